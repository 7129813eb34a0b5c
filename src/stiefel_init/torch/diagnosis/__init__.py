"""Why a network does not train: `diagnose`, the `Diagnosis` it returns, and `check_depths`."""

from .depths import Depths, Widths, check_depths, check_widths
from .diagnose import diagnose
from .diagnosis import Diagnosis

__all__ = ["Depths", "Diagnosis", "Widths", "check_depths", "check_widths", "diagnose"]
