"""Our own studies, as experiments like the paper's."""

from ..experiment import register
from .members import Members

EXPERIMENTS = tuple(map(register, (Members(),)))
