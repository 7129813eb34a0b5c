"""`python -m paper.zoo`: train what is left of the zoo, or of a part of it, and print the verdicts."""

from __future__ import annotations

from ..loop import command
from .study import Zoo

if __name__ == "__main__":
    command(Zoo, "paper.zoo", __doc__, {
        "names": {"nargs": "*", "help": "networks; by default all that can be built here"},
        "--half": {"dest": "part", "choices": ("choosing", "report")},
    }, "results")  # fmt: skip
