"""Our own questions, as experiments: same objects as the paper's."""

from ..experiment import register
from .members import Members

EXPERIMENTS = tuple(map(register, (Members(),)))
