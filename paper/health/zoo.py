"""Models other people wrote, built without a download: the study of architectures, timm's families, transformers'."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 4


class NotBuilt(Exception):
    """A model that cannot be built here, and why; no finding about `diagnose` or `watch`."""


@dataclass
class Subject:
    """A model with a batch."""

    model: nn.Module
    inputs: Any
    """As `diagnose` takes them: a tensor, or keyword arguments."""
    targets: Tensor
    variant: str = ""
    """Which one of its family."""

    def call(self) -> Any:
        """The model's outputs for the batch."""
        return self.model(**self.inputs) if isinstance(self.inputs, Mapping) else self.model(self.inputs)


def loss(outputs: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of the first tensor of the outputs, whatever stands around it; of numbers the squared distance."""
    logits = first(outputs).float()
    if targets.is_floating_point():
        return F.mse_loss(logits.reshape(targets.shape), targets)
    if targets.ndim == 1 and logits.ndim > 2:  # classes in maps or sequences: their mean decides
        logits = logits.flatten(2).mean(-1) if logits.shape[1] > logits.shape[-1] else logits.flatten(1, -2).mean(1)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def first(value: Any) -> Tensor:
    """The first tensor of numbers in nested outputs."""
    if isinstance(value, Tensor):
        return value
    parts = value.values() if isinstance(value, Mapping) else value
    return next(first(part) for part in parts if isinstance(part, Tensor | Mapping | list | tuple))


Make = Callable[[str], Subject]


def study() -> Iterator[tuple[str, Make]]:
    """Every network of the study of architectures, on inputs of its problem's shape."""
    from ..studies.architectures.catalogue import networks

    for name, network in networks(quick=False).items():
        if network.rates_of:  # another, trained for longer
            continue

        def make(device: str, network: Any = network) -> Subject:
            with torch.device(device):
                model, side = network.make(), 14 if network.kind == "cnn" else 28
                if network.kind == "gpt":
                    return Subject(model, torch.randint(256, (BATCH, 64)), torch.randint(256, (BATCH, 64)))
                if network.kind == "mlp":
                    last, stem = [m for m in model if isinstance(m, nn.Linear)][-1], model[0]
                    targets = torch.randn(32, 1) if last.out_features == 1 else torch.randint(4, (32,))
                    return Subject(model, torch.randn(32, stem.in_features), targets)
                return Subject(model, torch.rand(BATCH, 1, side, side), torch.randint(10, (BATCH,)))

        yield name, make


# Words of variants, the smallest first.
_SIZES = (
    "atto", "femto", "pico", "nano", "xxtiny", "xxs", "t0", "xtiny", "xs", "tiny", "mini", "micro", "lite", "b0", "a0",
    "s0", "p0", "050", "075", "extra_small", "small", "_s", "s12", "s16", "18", "26", "34", "m0", "002", "004", "100",
    "39", "42", "50", "57", "65", "base", "_b", "medium", "_m",
)  # fmt: skip
_LARGE = 60_000_000
_TRIES = 4


def _rank(name: str) -> tuple[int, int, str]:
    """Smaller variants first, by their names; those made for timm's own tests after the others."""
    words = [at for at, word in enumerate(_SIZES) if re.search(rf"(?:^|[_\d]){word.lstrip('_')}(?:$|[_\d])", name)]
    return len(_SIZES) + 1 if name.startswith("test_") else min(words, default=len(_SIZES)), len(name), name


def timm_families() -> Iterator[tuple[str, Make]]:
    """A small variant of each module of timm, with random weights."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import timm

    for module in sorted(timm.list_modules()):
        names = sorted(timm.list_models(module=module), key=_rank)
        if names:
            yield module, lambda device, names=names: _timm(names, device)  # type: ignore[misc]


def _timm(names: list[str], device: str) -> Subject:
    """The first of the variants that can be built and is not large; else the smallest of those that were tried."""
    import timm

    reasons, built = [], []
    for name in dict.fromkeys((*names[:_TRIES], *(name for name in names if name.startswith("test_")))):
        try:
            model = timm.create_model(name, pretrained=False)
        except Exception as error:  # a missing package, say
            reasons.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        count = sum(parameter.numel() for parameter in model.parameters())
        built.append((count, name, model))
        if count < _LARGE:
            break
    if not built:
        raise NotBuilt("; ".join(reasons)[:400])
    _, name, model = min(built, key=lambda one: one[0])
    model = model.to(device)
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", {})
    channels, height, width = config.get("input_size", (3, 224, 224))
    sizes = [(height, width)]
    if not config.get("fixed_input_size") and max(height, width) > 224:
        sizes.insert(0, (224, 224))
    for size in sizes:
        x = torch.randn(BATCH, channels, *size, device=device)
        try:
            with torch.no_grad():
                outputs = first(model(x))
        except Exception as error:  # an input size that the model does not take
            reasons.append(f"{name} at {size}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
            continue
        classes = outputs.shape[-1] if outputs.ndim == 2 else min(outputs.shape[1], outputs.shape[-1])
        return Subject(model, x, torch.randint(max(2, classes), (BATCH,), device=device) % classes, name)
    raise NotBuilt("; ".join(reasons)[:400])


_SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 200,
    "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_PICTURE = {"image_size": 32, "patch_size": 8, "num_labels": 10}
_LANGUAGE: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "bert": ("BertForMaskedLM", {}),
    "roberta": ("RobertaForMaskedLM", {"max_position_embeddings": 80}),
    "albert": ("AlbertForMaskedLM", {"embedding_size": 32}),
    "electra": ("ElectraForMaskedLM", {"embedding_size": 32}),
    "distilbert": ("DistilBertForMaskedLM", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}),
    "deberta-v2": ("DebertaV2ForMaskedLM", {}),
    "mpnet": ("MPNetForMaskedLM", {"max_position_embeddings": 80}),
    "llama": ("LlamaForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "gemma": ("GemmaForCausalLM", {}),
    "phi": ("PhiForCausalLM", {}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "opt": ("OPTForCausalLM", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": ("BloomForCausalLM", {"n_layer": 2, "n_head": 4}),
    "mamba": ("MambaForCausalLM", {"state_size": 8, "expand": 2}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4}),
    "t5": ("T5ForConditionalGeneration", {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128, "d_kv": 16}),
    "bart": ("BartForConditionalGeneration",
             {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
              "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}),
}  # fmt: skip
_SEEING: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", {}),
    "deit": ("DeiTForImageClassification", {}),
    "beit": ("BeitForImageClassification", {}),
    "swin": ("SwinForImageClassification", {"embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2,
                                            "patch_size": 4}),
    "convnext": ("ConvNextForImageClassification", {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}),
    "resnet": ("ResNetForImageClassification", {"hidden_sizes": [16, 32], "depths": [1, 1], "embedding_size": 16}),
    "segformer": ("SegformerForImageClassification", {}),
    "poolformer": ("PoolFormerForImageClassification", {}),
}  # fmt: skip


def transformers_families() -> Iterator[tuple[str, Make]]:
    """Small models of transformers, of text and of images."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    for kind, (name, words) in (*_LANGUAGE.items(), *_SEEING.items()):

        def make(device: str, kind: str = kind, name: str = name, words: dict[str, Any] = words) -> Subject:
            sees = kind in _SEEING
            try:
                usual = _PICTURE | (_SMALL if name.startswith(("ViT", "DeiT", "Beit")) else {}) if sees else _SMALL
                config = transformers.AutoConfig.for_model(kind, **{**usual, **words})
                with torch.device(device):
                    model = getattr(transformers, name)(config)
            except Exception as error:  # a version of transformers without it
                raise NotBuilt(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from None
            if sees:
                side = 64 if kind in ("segformer", "poolformer") else 32
                inputs = {"pixel_values": torch.rand(BATCH, 3, side, side, device=device)}
                return Subject(model, inputs, torch.randint(2, (BATCH,), device=device), name)
            tokens = torch.randint(3, 200, (BATCH, 16), device=device)
            inputs = {"input_ids": tokens}
            if kind in ("t5", "bart"):
                inputs["decoder_input_ids"] = tokens
            return Subject(model, inputs, tokens, name)

        yield kind, make


SOURCES: dict[str, Callable[[], Iterator[tuple[str, Make]]]] = {
    "study": study,
    "transformers": transformers_families,
    "timm": timm_families,
}
