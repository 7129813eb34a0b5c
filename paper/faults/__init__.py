"""Faults that other people reported, each re-created as a small program with its repaired twin."""

from . import architecture, data, loop, mixing, modes, outputs, parameters
from .catalogue import FAULTS, SEEDS, Fault, Program, Verdict, half, judge

__all__ = [
    "FAULTS",
    "SEEDS",
    "Fault",
    "Program",
    "Verdict",
    "architecture",
    "data",
    "half",
    "judge",
    "loop",
    "mixing",
    "modes",
    "outputs",
    "parameters",
]
