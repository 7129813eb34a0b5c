"""The paper's tables and figures as experiments, its published numbers, and how ours compare."""

from ..experiment import register
from .algorithms import Algorithms
from .everything import Everything
from .figure1 import Figure1
from .figure2 import Figure2
from .figure3 import Figure3
from .protocols.study import Table5Protocol
from .signal import Signals
from .table1 import Table1
from .table2 import Table2
from .table3 import Table3
from .table5 import Table5, Table5Explained

EXPERIMENTS = tuple(
    map(
        register,
        (
            Table1(), Table2(), Table3(), Figure3(), Table5(), Table5Protocol(), Table5Explained(), Figure1(),
            Figure2(), Signals(), Algorithms(), Everything(),
        ),
    )
)  # fmt: skip
"""In the order of the report."""
