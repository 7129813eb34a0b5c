"""Studies of the user: `stiefel-init train`, its learning rates, statistics, files and page; `diagnose`; the demo."""

SCHEMES = ("stiefel", "lee", "he", "xavier", "orthogonal", "random")
"""The initializations that the paper compares, in its order."""
