"""Training that stays on the set: optimizers, a parametrization, and the nearest member to any matrix."""

from ._aligned import aligned
from ._optimizers import StiefelAdam, StiefelMuon, StiefelSGD
from ._project import Projection, project, project_

__all__ = ["Projection", "StiefelAdam", "StiefelMuon", "StiefelSGD", "aligned", "project", "project_"]
