"""`assert_initialized` over public packages: the smallest form of every class of transformers, and timm's families.

python -m paper.audits transformers timm
"""

from __future__ import annotations

import csv
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.timing import markdown
from torch import nn

from stiefel_init.core.errors import unknown
from stiefel_init.lab.progress import progress
from stiefel_init.torch.building import audit_built

from .results import write_table

PLACE = Path(__file__).with_suffix(".csv")
COLUMNS = "package", "version", "model", "parameters", "alarms", "first"
_SIZE = re.compile(r"size [^ ]+")
EXAMPLES = 6
"""Models that are named for each kind of finding."""
MOST = 30_000_000
"""Parameters of the largest model that is built."""
_SIZES = {
    2: "num_hidden_layers num_layers n_layer n_layers num_decoder_layers encoder_layers decoder_layers "
       "num_key_value_heads",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
       "num_local_experts n_routed_experts",
    8: "d_kv head_dim patch_size", 16: "moe_intermediate_size",
    32: "hidden_size d_model n_embd embed_dim dim image_size",
    64: "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff max_position_embeddings", 99: "vocab_size",
}  # fmt: skip
SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}
"""What a configuration is shrunk to, where it has these fields."""
TELLING = "tiny", "small", "nano", "pico", "atto", "18"
"""What the names of small models say."""
Builder = Callable[[], nn.Module]


def of_transformers() -> Iterator[tuple[str, Builder]]:
    """Every model type of transformers, from its smallest configuration."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    transformers.logging.set_verbosity_error()

    def shrunk(config: Any, depth: int = 0) -> Any:
        for name, size in SMALL.items():
            if isinstance(getattr(config, name, None), int):
                setattr(config, name, size)
        for part in list(vars(config).values()):
            if isinstance(part, transformers.PretrainedConfig) and depth < 2:
                shrunk(part, depth + 1)
        return config

    for kind in list(MODEL_MAPPING.keys()):
        yield kind.model_type, partial(lambda kind: transformers.AutoModel.from_config(shrunk(kind())), kind)


def of_timm() -> Iterator[tuple[str, Builder]]:
    """A small model of every family of timm."""
    import timm

    for family in timm.list_modules():
        names = timm.list_models(module=family)
        if names:
            small = next((name for name in names if any(word in name for word in TELLING)), names[0])
            yield f"{family}: {small}", partial(timm.create_model, small)


PACKAGES = {"transformers": of_transformers, "timm": of_timm}


def audited(make: Builder) -> tuple[int, int, str]:
    """Parameters, alarms and the first of these; no parameters for a model that cannot be built here, and why."""
    try:
        with torch.device("meta"):
            size = sum(values.numel() for values in make().parameters())
        if size > MOST:
            return 0, 0, f"not built: {size:,} parameters"
        found = audit_built(make, meta=True)
    except Exception as error:  # whatever a public class raises for such a configuration
        return 0, 0, f"not built: {type(error).__name__}"
    first = next((f"{row.name}: {row.alarm}" for row in found.alarms), "")
    return len(found.rows), len(found.alarms), first


def main(packages: list[str]) -> None:
    """Audit the packages and keep what was found; other packages' rows stay."""
    for package in packages:
        if package not in PACKAGES:
            raise unknown("package", package, PACKAGES)
    kept = [row for row in rows() if row["package"] not in packages] if PLACE.is_file() else []
    for package in packages:
        version = importlib.import_module(package).__version__
        models = list(PACKAGES[package]())
        with progress(len(models), package) as advance:
            for name, make in models:
                kept.append(dict(zip(COLUMNS, (package, version, name, *audited(make)), strict=True)))
                advance(1, name)
    write_table(kept, PLACE)


def rows() -> list[dict[str, Any]]:
    """What is on record."""
    with PLACE.open(newline="") as file:
        return list(csv.DictReader(file))


def _wrong(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in found if row["alarms"] not in ("0", "")]


def every() -> tuple[list[str], list[list[str]]]:
    """The models with a finding: docs/tables/audits.csv."""
    header = ["package", "version", "model", "parameters", "findings", "the first of them"]
    return header, [[row[column] for column in COLUMNS] for row in _wrong(rows())]


def part() -> list[str]:
    """The findings on docs/audit.md, by their kind."""
    found, lines = rows(), []
    for package in dict.fromkeys(row["package"] for row in found):
        own = [row for row in found if row["package"] == package]
        built = [row for row in own if row["parameters"] != "0"]
        kinds: dict[str, list[str]] = {}
        for row in (wrong := _wrong(built)):
            kind = _SIZE.sub("another size", row["first"].partition(": ")[2]).partition(",")[0]
            kinds.setdefault(kind, []).append(row["model"])
        told = sorted(kinds.items(), key=lambda item: -len(item[1]))
        table = [[kind, str(len(models)), ", ".join(models[:EXAMPLES])] for kind, models in told]
        lines += [
            f"**{package} {own[0]['version']}**: {len(built)} of {len(own)} models could be built small; "
            f"{len(built) - len(wrong)} of these pass, {len(wrong)} have a finding:", "",
            *markdown(["the first finding", "models", "such as"], table), "",
        ]  # fmt: skip
    return lines[:-1]


if __name__ == "__main__":
    main(sys.argv[1:])
