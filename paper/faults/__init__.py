"""Faults that other people reported, each re-created as a small program with its repaired twin.

`catalogue.csv` is the table of reports; the modules named after its classes hold the programs.
"""

from .catalogue import SEEDS, Fault, Program, Verdict, half, judge, read

FAULTS = read()

__all__ = ["FAULTS", "SEEDS", "Fault", "Program", "Verdict", "half", "judge"]
