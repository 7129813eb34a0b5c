"""Why a network does not train: `diagnose`, and the `Diagnosis` it returns."""

from ._diagnose import diagnose
from ._diagnosis import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
