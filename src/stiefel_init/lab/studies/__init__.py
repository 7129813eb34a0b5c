"""Our own studies, as experiments like the paper's."""

from ..experiment import register
from .architectures import Architectures
from .members import Members
from .on_the_set import OnTheSet
from .rivals import Rivals

EXPERIMENTS = tuple(map(register, (Members(), Architectures(), Rivals(), OnTheSet())))
