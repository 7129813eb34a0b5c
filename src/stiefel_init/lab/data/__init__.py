"""The paper's nine data sets, CIFAR-10 and the user's own, verified, split and standardized.

`load(name)` finds a set in a directory, the cache, OpenML or a package, and verifies its content hash;
`from_file`, `from_images` and `from_arrays` take the user's own data; `split` returns training and test data.
"""

from .catalog import CATALOG, NAMES
from .dataset import Dataset, Split, split, standardized
from .library import Listing, describe, get, load, names, register, where
from .table import Reading
from .user import from_arrays, from_file, from_images

__all__ = [
    "CATALOG", "NAMES", "Dataset", "Listing", "Reading", "Split", "describe", "from_arrays", "from_file", "from_images",
    "get", "load", "names", "register", "split", "standardized", "where",
]  # fmt: skip
