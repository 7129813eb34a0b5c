"""Training that stays on the set: optimizers, a parametrization, and the nearest member to any matrix."""

from .nearest import Projection, aligned, project, project_
from .optimizers import StiefelAdam, StiefelMuon, StiefelSGD

__all__ = ["Projection", "StiefelAdam", "StiefelMuon", "StiefelSGD", "aligned", "project", "project_"]
