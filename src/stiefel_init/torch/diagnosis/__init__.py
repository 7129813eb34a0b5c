"""Why a network does not train: `diagnose`, the `Diagnosis` it returns, and `check_depths`."""

from .depths import Depths, check_depths
from .diagnose import diagnose
from .diagnosis import Diagnosis

__all__ = ["Depths", "Diagnosis", "check_depths", "diagnose"]
