"""`diagnose`, `watch` and `initialize_` on models people use, built without a download: nothing fails or is untrue.

    python -m paper.health.zoo [--only TEXT] [--write]

Each model is diagnosed in training mode. Its parameters, its buffers, its mode, its random numbers and its outputs must
be the same to the bit afterwards. Then it is trained for a few steps of Adam twice from one state, plain and watched at
every second step; both must end at the same parameters and buffers to the bit. What they measured must be finite where
the outputs and gradients of the model are. At last it is initialized, and must be as the plan says, parameter by
parameter.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from benchmarks import timing
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import Plan, diagnose, initialize_, watch

BATCH, STEPS, EVERY = 4, 4, 2
CONSTANTS = {"zeros": 0.0, "ones": 1.0}


class Subject(NamedTuple):
    """A model with a batch; its inputs are a tensor, or keyword arguments."""

    model: nn.Module
    inputs: Any
    targets: Tensor
    variant: str = ""

    def call(self) -> Any:
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


def of_transformers(kind: str) -> Subject:
    """A small model of transformers, of text or of images."""
    import transformers

    name, words = (_LANGUAGE | _SEEING)[kind]
    sees = kind in _SEEING
    usual = _PICTURE | (_SMALL if name.startswith(("ViT", "DeiT", "Beit")) else {}) if sees else _SMALL
    model = getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **{**usual, **words}))
    if sees:
        side = 64 if kind in ("segformer", "poolformer") else 32
        return Subject(model, {"pixel_values": torch.rand(BATCH, 3, side, side)}, torch.randint(2, (BATCH,)), name)
    tokens = torch.randint(3, 200, (BATCH, 16))
    more = {"decoder_input_ids": tokens} if kind in ("t5", "bart") else {}
    return Subject(model, {"input_ids": tokens, **more}, tokens, name)


SOURCES = {
    "study": "plain, residual, recurrent and attention networks of our own",
    "transformers": "small models of transformers, one of each architecture",
    "timm": "one model of each family of timm, as it is there",
}
"""Of the record; models of transformers alone can be tried again."""


# The check.


def state(model: nn.Module) -> dict[str, Tensor]:
    """All parameters, by every name they have, and buffers, copied."""
    values = (*model.named_parameters(remove_duplicate=False), *model.named_buffers())
    return {name: value.detach().clone() for name, value in values}


def different(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of what differs, NaN being equal to NaN."""
    return [name for name in one if not torch.equal(one[name].nan_to_num(), other[name].nan_to_num())]


@torch.no_grad()
def answer(subject: Subject) -> Tensor:
    """What the model puts out in evaluation, its mode kept."""
    modes = {module: module.training for module in subject.model.modules()}
    subject.model.eval()
    result = first(subject.call()).clone()
    for module, mode in modes.items():
        module.training = mode
    return result


def trained(subject: Subject, kept: dict[str, Tensor], log: Path | None = None) -> tuple[dict[str, Tensor], Any]:
    """The state after a few steps from `kept`, and the watch that writes `log`, if one does."""
    model = subject.model
    model.load_state_dict(kept, strict=False)
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    seen = None if log is None else watch(model, EVERY, report=lambda event: None, to=log)
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(subject.call(), subject.targets)
        value.backward()
        optimizer.step()
        if seen is not None:
            seen.step(value)
    if seen is not None:
        seen.close()
    return state(model), seen


def infinite(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Layers and columns whose number is neither finite nor missing; a log has these as text."""
    return [
        f"{row['layer']}.{column}"
        for row in rows
        for column, value in row.items()
        if (isinstance(value, float) and not math.isfinite(value)) or value in ("nan", "inf", "-inf")
    ]


def is_finite(subject: Subject) -> bool:
    """Whether outputs, loss and gradients of the model are finite."""
    outputs = subject.call()
    value = loss(outputs, subject.targets)
    value.backward()
    found = [first(outputs), value, *(p.grad for p in subject.model.parameters() if p.grad is not None)]
    subject.model.zero_grad(set_to_none=True)
    return all(bool(tensor.isfinite().all()) for tensor in found)


def unaccounted(plan: Plan, before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """The parameters of which the plan says nothing, or something that did not happen."""
    wrong = []
    for row in plan:
        old, new = before[row.name], after[row.name]
        if row.action == "left alone":
            right = torch.equal(old, new) and bool(row.reason)
        elif row.action in CONSTANTS:
            right = bool((new == CONSTANTS[row.action]).all())
        else:  # drawn, or tied to what is
            right = row.action.startswith("tied to") or not torch.equal(old, new)
        if not right:
            wrong.append(row.name)
    return wrong


def examine(subject: Subject) -> dict[str, Any]:
    """Diagnose, watch and initialize one model, and tell what was wrong with that."""
    model = subject.model.train()
    kept = state(model)
    finite = is_finite(subject)
    model.load_state_dict(kept, strict=False)
    outputs = answer(subject)
    noise, begin = torch.get_rng_state(), time.perf_counter()
    found = diagnose(model, subject.inputs, subject.targets, loss=loss)
    seconds = time.perf_counter() - begin
    rows = found.records()
    told: dict[str, Any] = {
        "diagnose changed": different(kept, state(model)),
        "diagnose drew random numbers": not torch.equal(noise, torch.get_rng_state()),
        "diagnose changed the mode": not all(module.training for module in model.modules()),
        "diagnose left gradients": any(p.grad is not None for p in model.parameters()),
        "diagnose changed the outputs": not torch.allclose(outputs, answer(subject), rtol=0, atol=0, equal_nan=True),
        "diagnose: not finite": finite and infinite(rows),
    }
    plain, _ = trained(subject, kept)
    with TemporaryDirectory() as folder:
        watched, seen = trained(subject, kept, log := Path(folder, "watch.jsonl"))
        history = [row for text in log.read_text("utf-8").splitlines() for row in json.loads(text)["layers"]]
    told |= {
        "watch changed the training": different(plain, watched),
        f"watch took {seen.samples} samples": seen.samples != STEPS // EVERY,
        "watch: not finite": finite and infinite(history),
    }
    model.load_state_dict(kept, strict=False)
    before, plan = state(model), initialize_(model, recipe="paper", seed=0)
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    told["the plan lacks"] = sorted(names ^ {row.name for row in plan})
    told["initialized otherwise than planned"] = unaccounted(plan, before, state(model))
    wrong = [f"{text} {what if isinstance(what, list) else ''}".strip() for text, what in told.items() if what]
    return {
        "variant": subject.variant, "parameters": sum(p.numel() for p in model.parameters()), "layers": len(rows),
        "watched layers": len({row["layer"] for row in history}), "finite": finite, "diagnose s": round(seconds, 3),
        "findings": [finding.kind for finding in found.findings],
        "warnings": [finding.kind for finding in found.warnings],
        "events": [event.kind for event in seen.events], "wrong": wrong,
    }  # fmt: skip


def part() -> list[str]:
    rows = []
    for source, entry in timing.kept("families-cpu")["sources"].items():
        tried = [row for row in entry["models"].values() if "skipped" not in row]
        right = [row for row in tried if not row["wrong"]]
        version = f", {source} {entry['version']}" if entry.get("version") else ""
        counts = len(tried), len(entry["models"]) - len(tried), len(right), sum(bool(row["findings"]) for row in right)
        rows.append(
            [
                SOURCES[source], *map(str, counts), f"{statistics.median(row['diagnose s'] for row in right):.2g} s",
                f"{timing.where(entry)}, PyTorch {entry['machine']['torch']}{version}",
            ]
        )  # fmt: skip
    header = ["models", "tried", "not tried, for time", "as they should be", "called sick", "`diagnose`, median", "on"]
    return timing.markdown(header, rows)[:-1]


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--from", choices=("transformers",), help="where the models come from")
    parser.add_argument("--only", default="", help="models whose name contains this")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")
    if options.write and options.only:
        parser.error(f"--write keeps the models of a source as a whole; leave out --only {options.only}.")
    models: dict[str, Any] = {}
    for kind in (kind for kind in _LANGUAGE | _SEEING if options.only in kind):
        torch.manual_seed(0)
        try:
            models[kind] = examine(of_transformers(kind))
        except Exception as error:
            models[kind] = {"wrong": [f"{type(error).__name__}: {error}"[:300]], "findings": [], "diagnose s": math.nan}
        print(f"{kind:24} {models[kind]['wrong'] or 'as it should be'}", flush=True)
    if options.write:
        record, version = timing.kept("families-cpu"), getattr(sys.modules.get("transformers"), "__version__", None)
        record["sources"]["transformers"] = {"machine": timing.machine("cpu"), "models": models, "version": version}
        timing.write("families-cpu", record)


if __name__ == "__main__":
    main()
