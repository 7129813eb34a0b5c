"""Train networks as users write them, from several starts: does `initialize_` win?

python benchmarks/architectures.py --data DIR [--only cnn8 vit …] [--seeds 3] [--processes 8] [--out FILE]

Needs a GPU and the files of Fashion-MNIST and MNIST; the text of the language model is Python's own library. Each start
is tried at several learning rates with seed 0, and the best rate is run again with fresh seeds. Every run is a line of
the record, benchmarks/records/architectures.jsonl; runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import sysconfig
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.lab import load
from stiefel_init.torch import initialize_

RECORD = Path(__file__).parent / "records" / "architectures.jsonl"
DEVICE = "cuda"
BATCH = 256
CNN_RATES = {8: (4e-3, 8e-3, 1.6e-2), 20: (2e-3, 4e-3, 8e-3), 50: (1e-3, 2e-3, 4e-3), 100: (5e-4, 1e-3, 2e-3)}


class PlainCNN(nn.Module):
    """3 × 3 convolutions of 32 channels and ReLU, no shortcut, no normalization; two of them halve the image."""

    def __init__(self, depth: int, channels: int = 32) -> None:
        super().__init__()
        stage = (depth - 1) // 3
        strides = [2 if place == 0 and number else 1 for number in range(3) for place in range(stage)]
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, stride=stride) for stride in strides)
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    """A residual block of two convolutions, with or without batch normalization."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, normalized: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not normalized)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=not normalized)
        self.norm1, self.norm2 = (nn.BatchNorm2d(outputs) if normalized else nn.Identity() for _ in range(2))
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.short(x) + self.norm2(self.conv2(y)))


class ResNet20(nn.Module):
    """Three stages of three blocks, 16, 32 and 64 channels."""

    def __init__(self, *, normalized: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1, bias=not normalized)
        self.norm = nn.BatchNorm2d(16) if normalized else nn.Identity()
        sizes = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        self.blocks = nn.Sequential(
            *(
                Block(inputs if place == 0 else outputs, outputs, stride if place == 0 else 1, normalized=normalized)
                for inputs, outputs, stride in sizes
                for place in range(3)
            )
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))


class Attention(nn.Module):
    """Self-attention with one projection for q, k and v."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))


class TransformerBlock(nn.Module):
    """Pre-norm attention and a feed-forward layer four times as wide."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """128 wide, 8 blocks, patches of 4 × 4."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, width, 4, 4)
        self.position = nn.Parameter(torch.randn(1, 49, width) * 0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(width, 4, causal=False) for _ in range(8)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class GPT(nn.Module):
    """A language model of bytes: 256 wide, 8 blocks, 256 tokens."""

    def __init__(self, width: int = 256, tokens: int = 256) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(256, width), nn.Embedding(tokens, width)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(width, 8, causal=True) for _ in range(8)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embedding(x) + self.position.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(tokens)))


class Rows(nn.Module):
    """A recurrent network that reads an image row by row."""

    def __init__(self, kind: str, width: int = 128) -> None:
        super().__init__()
        kinds: dict[str, Callable[[], nn.RNNBase]] = {
            "rnn": lambda: nn.RNN(28, width, nonlinearity="relu", batch_first=True),
            "lstm": lambda: nn.LSTM(28, width, batch_first=True),
            "gru": lambda: nn.GRU(28, width, batch_first=True),
        }
        self.recurrent, self.head = kinds[kind](), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x[:, 0])[0][:, -1])


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[float, ...], float]] = {
    # how it is made, learning rates, epochs (steps of the language model)
    **{f"cnn{depth}": (partial(PlainCNN, depth), rates, 3) for depth, rates in CNN_RATES.items()},
    "resnet20": (lambda: ResNet20(normalized=True), (2e-3, 4e-3, 8e-3), 4),
    "resnet20 without normalization": (lambda: ResNet20(normalized=False), (1e-3, 2e-3, 4e-3), 4),
    "vit": (VisionTransformer, (5e-4, 1e-3, 2e-3), 4),
    "gpt": (GPT, (1e-3, 2e-3, 4e-3), 400),
    "rnn": (lambda: Rows("rnn"), (3e-4, 1e-3, 3e-3), 3),
    "lstm": (lambda: Rows("lstm"), (1e-3, 3e-3, 1e-2), 3),
    "gru": (lambda: Rows("gru"), (1e-3, 3e-3, 1e-2), 3),
}


def _gpt2_(model: nn.Module) -> None:
    """GPT-2's own start: N(0, 0.02²), the outputs of residual branches divided by √(2 · blocks)."""
    blocks = sum(isinstance(module, TransformerBlock) for module in model.modules())
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            last = name.endswith(("proj", "fc2"))
            nn.init.normal_(module.weight, std=0.02 / (math.sqrt(2 * blocks) if last else 1))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _identity_(model: nn.Module) -> None:
    """Le, Jaitly, Hinton (2015): the identity between the states of a ReLU network, small inputs."""
    initialize_(model, "xavier")
    for name, parameter in model.named_parameters():
        if "weight_hh" in name:
            nn.init.eye_(parameter)
        elif "weight_ih" in name:
            nn.init.normal_(parameter, std=0.001)


STARTS: dict[str, Callable[[nn.Module], Any]] = {
    "torch": lambda model: None,
    "he": lambda model: initialize_(model, "he"),
    "xavier": lambda model: initialize_(model, "xavier"),
    "orthogonal": lambda model: initialize_(model, f"orthogonal {math.sqrt(2)}"),
    "paper": lambda model: initialize_(model, recipe="paper"),
    "gpt-2": _gpt2_,
    "identity": _identity_,
    "ours": initialize_,
}


def starts(network: str) -> list[str]:
    """The starts that a network is trained from."""
    own = {"vit": ["gpt-2"], "gpt": ["gpt-2"], "rnn": ["identity"]}
    return [name for name in STARTS if name not in ("gpt-2", "identity") or name in own.get(network, [])]


@lru_cache
def images(folder: str, name: str, half: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dataset = load(name, directory=folder)
    pictures = torch.from_numpy(dataset.x).to(DEVICE).view(-1, 1, 28, 28).float() / dataset.scale
    if half:
        pictures = F.avg_pool2d(pictures, 2)
    labels, cut = torch.from_numpy(dataset.y).to(DEVICE), dataset.train_rows
    return pictures[:cut], labels[:cut], pictures[cut:], labels[cut:]


@lru_cache
def text() -> tuple[Tensor, Tensor]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(file for file in folder.rglob("*.py") if not {"site-packages", "dist-packages"} & set(file.parts))
    everything = b"\n".join(file.read_bytes() for file in files[:1500])[:24_000_000]
    tokens = torch.frombuffer(bytearray(everything), dtype=torch.uint8)
    cut = len(tokens) * 9 // 10
    return tokens[:cut].to(DEVICE).long(), tokens[cut:].to(DEVICE).long()


def train(job: dict[str, Any]) -> dict[str, Any]:
    """One run; its score is the test accuracy in percent, of the language model the loss in nats."""
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(job["seed"])
    make, _, length = NETWORKS[job["network"]]
    start = time.perf_counter()
    model = make()
    STARTS[job["start"]](model)
    model = model.to(DEVICE)
    score = (_language if job["network"] == "gpt" else _classify)(model, job, length)
    job = {key: value for key, value in job.items() if key != "data"}
    seconds = round(time.perf_counter() - start, 1)
    return {**job, "score": score, "seconds": seconds, "device": torch.cuda.get_device_name()}


def _schedule(step: int, steps: int, warm: int, low: float) -> float:
    return min(1.0, (step + 1) / warm) * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * step / steps)))


def _classify(model: nn.Module, job: dict[str, Any], epochs: float) -> float:
    network, rate = job["network"], job["rate"]
    dataset = "mnist" if network in ("rnn", "lstm", "gru") else "fashion-mnist"
    x, y, test_x, test_y = images(job["data"], dataset, network.startswith("cnn"))
    steps = int(epochs * (len(x) // BATCH))
    lr = torch.tensor(0.0, device=DEVICE)
    adam = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0, fused=True, capturable=True)
    inputs, labels = x[:BATCH].clone(), y[:BATCH].clone()

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=network == "vit", cache_enabled=False):
            loss = F.cross_entropy(model(inputs).float(), labels)
        loss.backward()
        if dataset == "mnist":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        adam.step()

    run = _captured(model, adam, step)
    generator = torch.Generator(DEVICE).manual_seed(job["seed"])
    order = torch.empty(0, dtype=torch.long)
    for number in range(steps):
        place = number % (len(x) // BATCH)
        if place == 0:
            order = torch.randperm(len(x), device=DEVICE, generator=generator)
        chosen = order[place * BATCH : (place + 1) * BATCH]
        inputs.copy_(x[chosen]), labels.copy_(y[chosen])
        lr.fill_(rate * _schedule(number, steps, max(1, steps // 20), 0.0))
        run()
    model.eval()
    with torch.no_grad():
        parts = zip(test_x.split(2000), test_y.split(2000))
        return sum(int((model(part).argmax(1) == truth).sum()) for part, truth in parts) / len(test_y) * 100


def _language(model: nn.Module, job: dict[str, Any], steps: float) -> float:
    train_text, test_text = text()
    size, tokens = 64, 256
    lr = torch.tensor(0.0, device=DEVICE)
    adam = torch.optim.AdamW(
        model.parameters(), lr=lr, weight_decay=0.1, betas=(0.9, 0.95), fused=True, capturable=True
    )
    window = torch.arange(tokens + 1, device=DEVICE)
    batch = torch.zeros(size, tokens + 1, dtype=torch.long, device=DEVICE)

    def loss_of(rows: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return F.cross_entropy(model(rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        loss_of(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        adam.step()

    run = _captured(model, adam, step)

    def draw(source: Tensor, rows: int, generator: torch.Generator) -> Tensor:
        return source[torch.randint(len(source) - tokens - 1, (rows, 1), device=DEVICE, generator=generator) + window]

    generator = torch.Generator(DEVICE).manual_seed(job["seed"])
    for number in range(int(steps)):
        batch.copy_(draw(train_text, size, generator))
        lr.fill_(job["rate"] * _schedule(number, int(steps), 100, 0.1))
        run()
    held_out = draw(test_text, 256, torch.Generator(DEVICE).manual_seed(9))
    with torch.no_grad():
        return sum(float(loss_of(part)) for part in held_out.split(64)) / 4


def _captured(model: nn.Module, adam: torch.optim.Optimizer, step: Callable[[], None]) -> Callable[[], None]:
    """The step as a CUDA graph, for which the model is put back; cuDNN's recurrent layers go without."""
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):
        return step
    before = {name: value.clone() for name, value in model.state_dict().items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(before[name])
        for state in adam.state.values():
            for value in state.values():
                value.zero_()
    return graph.replay


def better(network: str) -> int:
    """+1 where more is better."""
    return -1 if network == "gpt" else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder that holds fashion-mnist/ and mnist/")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--seeds", type=int, default=3, help="fresh seeds at the best rate")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which nothing new is begun")
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    begun = time.monotonic()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    known = {(row["network"], row["start"], row["rate"], row["seed"]) for row in done}

    def jobs(network: str, fresh: bool) -> list[dict[str, Any]]:
        wanted = []
        for start in starts(network):
            rates = [(rate, 0) for rate in NETWORKS[network][1]]
            if fresh:
                tried = [row for row in done if row["network"] == network and row["start"] == start and not row["seed"]]
                tried = [row for row in tried if math.isfinite(row["score"])]
                if not tried:
                    continue
                best = max(tried, key=lambda row: better(network) * row["score"])["rate"]
                rates = [(best, seed) for seed in range(1, options.seeds + 1)]
            wanted += [(network, start, rate, seed) for rate, seed in rates]
        fields = "network", "start", "rate", "seed"
        return [{**dict(zip(fields, job)), "data": options.data} for job in wanted if job not in known]

    torch.multiprocessing.set_start_method("spawn")
    with torch.multiprocessing.Pool(options.processes) as pool, options.out.open("a") as record:
        for network, fresh in ((network, fresh) for network in options.only for fresh in (False, True)):
            for row in pool.imap_unordered(train, jobs(network, fresh), chunksize=1):
                done.append(row)
                print(json.dumps(row), file=record, flush=True)
                took = time.monotonic() - begun
                print(
                    f"{took:4.0f} s  {row['network']:10.10} {row['start']:10} {row['rate']:g} seed {row['seed']}: "
                    f"{row['score']:.3f}",
                    flush=True,
                )
                if took > options.limit:
                    pool.terminate()
                    return


if __name__ == "__main__":
    main()
