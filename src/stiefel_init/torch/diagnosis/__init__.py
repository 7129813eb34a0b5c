"""Why a network does not train: `diagnose`, the `Diagnosis` it returns, and `check_depths`."""

from ._depths import Depths, check_depths
from ._diagnose import diagnose
from ._diagnosis import Diagnosis

__all__ = ["Depths", "Diagnosis", "check_depths", "diagnose"]
