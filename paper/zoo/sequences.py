"""Sequences: language models, translation between strings, forecasts; classes of packages among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init import StiefelError

from ..networks import Net, chain, nanogpt, sized
from ..problems import held_out
from .entry import ACCURACY, ERROR, NATS, Batch, Entry, Task, accuracy, adam, cross_entropy, log_error, squared
from .pictures import hf

MASK = 96
VOCABULARY = 98


@lru_cache
def _characters(directory: Path | None) -> Tensor:
    path = (directory or Path()) / "text" / "tinyshakespeare.txt"
    try:
        text = path.read_bytes()
    except OSError:
        raise StiefelError(f"{path} is missing; give the directory that holds text/tinyshakespeare.txt.") from None
    return (torch.frombuffer(bytearray(text), dtype=torch.uint8).long() - 31).clamp(0, 95)


def _windows(big: bool, directory: Path | None) -> tuple[Tensor, Tensor]:
    text, length = _characters(directory), 129 if big else 49
    cut, generator = len(text) * 9 // 10, torch.Generator().manual_seed(0)
    places = torch.randint(cut - length, (100_000 if big else 6_000,), generator=generator)
    held = torch.randint(cut, len(text) - length, (100,), generator=generator)
    return tuple(text[each[:, None] + torch.arange(length)] for each in (places, held))


def following(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """Text, and the next character at each place."""
    train, test = ((rows[:, :-1], rows[:, 1:]) for rows in _windows(big, directory))
    return train, test


def hidden(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """Text with one character in six hidden, and these."""
    parts, generator = [], torch.Generator().manual_seed(1)
    for rows in _windows(big, directory):
        where = torch.rand(rows.shape, generator=generator) < 1 / 6
        parts.append((rows.masked_fill(where, MASK), rows.masked_fill(~where, -100)))
    return parts[0], parts[1]


def sorting(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Strings, the sorted string one place later, and the sorted string."""
    length, letters = (16, 24) if big else (8, 12)
    x = torch.randint(3, 3 + letters, (60_000 if big else 6_500, length), generator=torch.Generator().manual_seed(2))
    y = x.sort(1).values
    late = torch.cat([torch.full((len(y), 1), 2), y[:, :-1]], 1)
    return held_out(500, x, late, y)


def series(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """48 values of waves with noise and a drift, and the next 12."""
    generator, rows = torch.Generator().manual_seed(3), 50_000 if big else 6_000
    time = torch.arange(60.0)
    period = 5 + 20 * torch.rand(rows, 2, 1, generator=generator)
    phase, size = 2 * math.pi * torch.rand(rows, 2, 1, generator=generator), torch.rand(rows, 2, 1, generator=generator)
    waves = (size * (2 * math.pi * time / period + phase).sin()).sum(1)
    noise = 0.05 * torch.randn(rows, 60, generator=generator)
    values = waves + noise + 0.02 * torch.randn(rows, 1, generator=generator) * time
    x, y = values[:, :48, None], values[:, 48:]
    return held_out(1000, x, y)


def recall(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Strings of letters, and the first one."""
    x = torch.randint(8, (20_000 if big else 5_000, 64 if big else 24), generator=torch.Generator().manual_seed(4))
    one = F.one_hot(x, 8).float()
    return held_out(500, one, x[:, 0])


def tones(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Sounds of one of eight pitches with overtones and noise, and the pitch."""
    generator, rows = torch.Generator().manual_seed(5), 20_000 if big else 2_500
    y = torch.randint(8, (rows,), generator=generator)
    pitch = (0.05 * 2 ** (y / 8 + 0.03 * torch.randn(rows, generator=generator)))[:, None]
    angle = 2 * math.pi * (pitch * torch.arange(800.0) + torch.rand(rows, 1, generator=generator))
    x = angle.sin() + 0.5 * (3 * angle).sin() + torch.randn(rows, 800, generator=generator)
    return held_out(500, x, y)


class Recurrent(nn.Module):
    """A recurrent network of one of three kinds behind an embedding, or of values; the last state forecasts."""

    def __init__(self, kind: Callable[..., nn.RNNBase], inputs: int, width: int, out: int, layers: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(inputs, width) if inputs > 90 else None
        self.rnn = kind(width if self.table else inputs, width, layers, batch_first=True)
        self.out = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        y = self.rnn(self.table(x) if self.table else x)[0]
        return self.out(y if self.table else y[:, -1])


class Causal(nn.Module):
    """Two dilated causal convolutions and a shortcut; N(0, 0.01²), as published."""

    def __init__(self, n: int, m: int, dilation: int) -> None:
        super().__init__()
        self.pad = 2 * dilation
        self.conv1, self.conv2 = nn.Conv1d(n, m, 3, dilation=dilation), nn.Conv1d(m, m, 3, dilation=dilation)
        self.short = nn.Conv1d(n, m, 1) if n != m else nn.Identity()
        for layer in (self.conv1, self.conv2):
            nn.init.normal_(layer.weight, 0, 0.01)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv1(F.pad(x, (self.pad, 0))))
        y = F.relu(self.conv2(F.pad(y, (self.pad, 0))))
        return F.relu(y + self.short(x))


def temporal(width: int) -> Net:
    """Temporal convolutions; the last place forecasts."""
    blocks = nn.Sequential(*(Causal(width if k else 1, width, 2**k) for k in range(4)))
    return Net(lambda net, x: net.out(net.blocks(x.transpose(1, 2))[:, :, -1]), blocks=blocks, out=nn.Linear(width, 12))


def backcast(width: int, blocks: int) -> Net:
    """Blocks of four ReLU layers, each of which explains a part of the input away and adds to the forecast."""

    def rule(net: Any, x: Tensor) -> Tensor:
        rest, forecast = x[:, :, 0], torch.zeros(())
        for block in net.blocks:
            back, ahead = block(rest).split((48, 12), 1)
            rest, forecast = rest - back, ahead + forecast.to(ahead.device)
        return forecast

    return Net(rule, blocks=nn.ModuleList(chain([48, *[width] * 4, 60]) for _ in range(blocks)))


def wavenet(width: int, layers: int) -> Net:
    """Dilated causal convolutions with gates, a skip connection from each layer, for text."""

    def rule(net: Any, x: Tensor) -> Tensor:
        y, told = net.table(x).mT, 0
        for gated, further, skip in zip(net.gated, net.further, net.skips):
            a, b = gated(F.pad(y, (gated.dilation[0], 0))).chunk(2, 1)
            new = torch.tanh(a) * torch.sigmoid(b)
            y, told = y + further(new), told + skip(new)
        return net.out(told).mT

    return Net(
        rule, table=nn.Embedding(VOCABULARY, width),
        gated=nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** (k % 6)) for k in range(layers)),
        further=nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers)),
        skips=nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers)),
        out=nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, VOCABULARY, 1)),
    )  # fmt: skip


def listener(width: int) -> Net:
    """An LSTM reads, another writes and looks at what was read."""

    def rule(net: Any, x: Tensor, y: Tensor) -> Tensor:
        read, written = net.reads(net.table(x))[0], net.writes(net.table(y))[0]
        seen = (net.looks(written) @ read.mT).softmax(2) @ read
        return net.out(torch.tanh(net.joins(torch.cat([written, seen], 2))))

    return Net(
        rule, table=nn.Embedding(32, width), reads=nn.LSTM(width, width // 2, batch_first=True, bidirectional=True),
        writes=nn.LSTM(width, width, batch_first=True), looks=nn.Linear(width, width, bias=False),
        joins=nn.Linear(2 * width, width), out=nn.Linear(width, 32),
    )  # fmt: skip


def translator(width: int, layers: int) -> Net:
    """torch.nn.Transformer with embeddings and positions."""

    def rule(net: Any, x: Tensor, y: Tensor) -> Tensor:
        place = net.place(torch.arange(x.shape[1], device=x.device))
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return net.out(net.net(net.table(x) + place, net.table(y) + place, tgt_mask=mask, tgt_is_causal=True))

    return Net(
        rule, table=nn.Embedding(32, width), place=nn.Embedding(32, width),
        net=nn.Transformer(width, 4, layers, layers, 4 * width, 0.0, batch_first=True), out=nn.Linear(width, 32),
    )  # fmt: skip


def reader(width: int, layers: int) -> Net:
    """torch.nn.TransformerEncoder behind a linear layer; the mean decides."""
    read, place = nn.Linear(8, width), nn.Parameter(0.02 * torch.randn(64, width))
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=False)
    return Net(
        lambda net, x: net.out(net.net(net.read(x) + net.place[: x.shape[1]]).mean(1)), read=read, place=place,
        net=nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), out=nn.Linear(width, 8),
    )  # fmt: skip


TEXT = Task(following, NATS, cross_entropy, cross_entropy)
# 3.3 nats is what the frequencies of the characters alone give.
CLOZE = Task(hidden, NATS._replace(chance=3.3), cross_entropy, cross_entropy)
SORTED = Task(sorting, ACCURACY, cross_entropy, accuracy, inputs=lambda b: b[:2])
SORTED_HF = Task(sorting, ACCURACY, cross_entropy, accuracy,
                 inputs=lambda b: {"input_ids": b[0], "decoder_input_ids": b[1]})  # fmt: skip
FORECAST = Task(series, ERROR, squared, log_error)
PATCHED = Task(series, ERROR, squared, log_error, inputs=lambda b: {"past_values": b[0]})
RECALL = Task(recall, ACCURACY._replace(chance=12.5), cross_entropy, accuracy)
TONES = Task(tones, ACCURACY._replace(chance=12.5), cross_entropy, accuracy, inputs=lambda b: {"input_values": b[0]})
RATES = (1e-3, 3e-3, 1e-2)
SMALL: dict[str, Any] = {
    "hidden_size": (48, 256), "num_hidden_layers": (3, 6), "num_attention_heads": (4, 8), "vocab_size": VOCABULARY,
    "intermediate_size": (128, 1024), "max_position_embeddings": 136, "pad_token_id": 0, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "use_cache": False,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": (12, 32)}


def text(kind: str, task: Task = TEXT, steps: int = 150, words: dict[str, Any] | None = None, **more: Any) -> Entry:
    """A language model of transformers."""
    betas = (0.9, 0.999) if task is CLOZE else (0.9, 0.95)
    schedule = "warm linear" if task is CLOZE else "warm cosine"
    return Entry(kind, "package: text", hf(kind, **((SMALL if words is None else words) | more)), task, (steps, 1_200),
                 (16, 32), RATES, adam(0.1, betas), schedule, 1.0, 1.0, "transformers")  # fmt: skip


ENTRIES = [
    Entry("nanoGPT", "decoder", sized(nanogpt, (48, 384), (3, 6), 128, (4, 6), VOCABULARY), TEXT, (200, 1_500),
          (16, 32), RATES, adam(0.1, (0.9, 0.99)), "warm cosine", 1.0, 1.0),
    Entry("LSTM language model", "recurrent", sized(Recurrent, nn.LSTM, VOCABULARY, (48, 256), VOCABULARY), TEXT,
          (150, 1_200), (16, 32), RATES, clip=1.0, gain=1.0),
    Entry("GRU forecast", "recurrent", sized(Recurrent, nn.GRU, 1, (32, 64), 12), FORECAST, (200, 1_200), (32, 256),
          RATES, gain=1.0),
    Entry("LSTM recall", "recurrent", sized(Recurrent, nn.LSTM, 8, (32, 128), 8, 1), RECALL, (300, 1_500), (32, 128),
          RATES, schedule="constant", clip=1.0, gain=1.0),
    Entry("temporal convolutions", "temporal CNN", sized(temporal, (24, 64)), FORECAST, (250, 1_500), (32, 256), RATES),
    Entry("N-BEATS", "forecast", sized(backcast, (64, 256), (4, 6)), FORECAST, (300, 1_500), (128, 512),
          (3e-4, 1e-3, 3e-3), schedule="constant"),
    Entry("torch.nn.Transformer", "package: text", sized(translator, (32, 256), (2, 4)), SORTED, (300, 1_500),
          (32, 128), RATES, adam(0, (0.9, 0.98)), "warm cosine", 1.0, package="torch"),
    Entry("torch.nn.TransformerEncoder", "package: text", sized(reader, (32, 128), (3, 6)), RECALL, (300, 1_500),
          (32, 128), (3e-4, 1e-3, 3e-3), adam(), "warm cosine", 1.0, package="torch"),
    text("BertForMaskedLM", CLOZE), text("RobertaForMaskedLM", CLOZE),
    text("GPT2LMHeadModel", n_embd=(48, 256), n_layer=(3, 6), n_head=(4, 8), resid_pdrop=0.0, embd_pdrop=0.0,
         attn_pdrop=0.0, words={"vocab_size": VOCABULARY, "use_cache": False}),
    text("LlamaForCausalLM", words=GROUPED),
    text("MistralForCausalLM", words=GROUPED), text("GemmaForCausalLM", words=GROUPED),
    text("GPTNeoXForCausalLM"), text("Qwen2ForCausalLM", words=GROUPED), text("Olmo2ForCausalLM", words=GROUPED),
    text("PhiForCausalLM"), text("Starcoder2ForCausalLM", words=GROUPED),
    text("ElectraForMaskedLM", CLOZE, embedding_size=(48, 256)),
    text("DebertaV2ForMaskedLM", CLOZE, relative_attention=True, position_buckets=32, pos_att_type=["p2c", "c2p"]),
    text("OPTForCausalLM", ffn_dim=(128, 1024), word_embed_proj_dim=(48, 256), dropout=0.0),
    text("BloomForCausalLM", n_layer=(3, 6), n_head=(4, 8), hidden_dropout=0.0, attention_dropout=0.0),
    text("MambaForCausalLM", hidden_size=(48, 192), num_hidden_layers=(2, 4), state_size=8),
    text("PegasusForConditionalGeneration", SORTED_HF, 200, words={}, vocab_size=32, d_model=(32, 256), dropout=0.0,
         encoder_layers=(2, 4), decoder_layers=(2, 4), encoder_attention_heads=4, decoder_attention_heads=4,
         encoder_ffn_dim=(64, 1024), decoder_ffn_dim=(64, 1024), use_cache=False, max_position_embeddings=64),
    Entry("WaveNet", "temporal CNN", sized(wavenet, (16, 64), (4, 8)), TEXT, (150, 1_200), (16, 32), RATES, gain=1.0),
    Entry("ReLU RNN", "recurrent", sized(Recurrent, partial(nn.RNN, nonlinearity="relu"), 8, (32, 128), 8, 1), RECALL,
          (300, 1_500), (32, 128), (1e-4, 3e-4, 1e-3), schedule="constant", clip=1.0),
    Entry("LSTM with attention", "recurrent", sized(listener, (32, 128)), SORTED, (300, 1_500), (32, 128), RATES,
          clip=1.0, gain=1.0),
    text("T5ForConditionalGeneration", SORTED_HF, 200, words={}, vocab_size=32, d_model=(32, 256), d_kv=(8, 32),
         num_layers=(2, 4), num_heads=(4, 8), d_ff=(64, 1024), dropout_rate=0.0, use_cache=False),
    text("BartForConditionalGeneration", SORTED_HF, 200, words={}, vocab_size=32, d_model=(32, 256), dropout=0.0,
         encoder_layers=(2, 4), decoder_layers=(2, 4), encoder_attention_heads=4, decoder_attention_heads=4,
         encoder_ffn_dim=(64, 1024), decoder_ffn_dim=(64, 1024), use_cache=False),
    Entry("PatchTSTForPrediction", "package: forecast", hf("PatchTSTForPrediction", num_input_channels=1,
          context_length=48, prediction_length=12, patch_length=8, patch_stride=8, d_model=(32, 128),
          num_hidden_layers=3, num_attention_heads=4, ffn_dim=(64, 256)), PATCHED, (150, 1_500), (64, 256),
          (3e-4, 1e-3, 3e-3), adam(), gain=1.0, package="transformers"),
    Entry("Wav2Vec2ForSequenceClassification", "package: sound", hf("Wav2Vec2ForSequenceClassification",
          hidden_size=(32, 128), num_hidden_layers=(2, 6), num_attention_heads=4, intermediate_size=(64, 512),
          conv_dim=([16, 16, 32], [64, 64, 128]), conv_stride=[5, 4, 2], conv_kernel=[10, 8, 3],
          num_feat_extract_layers=3, num_labels=8, classifier_proj_size=(32, 128), num_conv_pos_embeddings=15,
          num_conv_pos_embedding_groups=4, layerdrop=0.0, hidden_dropout=0.0, apply_spec_augment=False), TONES,
          (150, 1_000), (16, 32), (3e-4, 1e-3, 3e-3), adam(), "warm linear", 1.0, 1.0, "transformers"),
]  # fmt: skip
