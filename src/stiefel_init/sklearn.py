"""scikit-learn: `StiefelMLPClassifier` and `StiefelMLPRegressor`, its multilayer perceptrons with another start."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import numpy as np
import sklearn
from sklearn.neural_network import MLPClassifier, MLPRegressor

from ._sample import draw

__all__ = ["StiefelMLPClassifier", "StiefelMLPRegressor"]


# scikit-learn has no public way to give an MLP its first weights: it asks `_init_coef`, which every release since
# 0.24 has, for those of each layer. With a release that asks elsewhere the classes below would do nothing, unsaid.
for _mlp in (MLPClassifier, MLPRegressor):
    if not hasattr(_mlp, "_init_coef"):
        raise ImportError(
            f"scikit-learn {sklearn.__version__} no longer draws first weights in {_mlp.__name__}._init_coef, which "
            "stiefel_init.sklearn replaces; install an older scikit-learn, or a newer stiefel-init."
        )


class _Started:
    """Mixed into one of scikit-learn's perceptrons: its arguments and `scheme`, which draws the first weights."""

    scheme: Any
    _random_state: np.random.RandomState

    def __init_subclass__(cls) -> None:
        """Give the class its parent's signature with `scheme` added, which scikit-learn reads parameters from."""
        parent = cls.__mro__[2].__init__  # type: ignore[misc]

        def __init__(self: Any, *args: Any, scheme: Any = "stiefel", **options: Any) -> None:
            parent(self, *args, **options)
            self.scheme = scheme

        known = signature(parent)
        added = Parameter("scheme", Parameter.KEYWORD_ONLY, default="stiefel")
        __init__.__signature__ = known.replace(parameters=[*known.parameters.values(), added])  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign]

    def _init_coef(self, fan_in: int, fan_out: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        seed = int(self._random_state.randint(2**63 - 1, dtype=np.int64))
        weights = draw(self.scheme, fan_out, fan_in, seed=seed, dtype=dtype)
        return np.ascontiguousarray(weights.T), np.zeros(fan_out, dtype)


class StiefelMLPClassifier(_Started, MLPClassifier):  # type: ignore[misc]
    r"""`sklearn.neural_network.MLPClassifier` whose layers start on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }.

    Every layer's `coefs_[i]`, of shape (n, m), starts as the transpose of a fresh W of the scheme, drawn with
    `random_state`, and `intercepts_[i]` at zero. All else, parameters and methods, is scikit-learn's. A deep network
    wants small steps: the paper's are `learning_rate_init=0.001 / depth**0.5`.

    Args:
        scheme: A name of `stiefel_init.schemes.names()`; the others as in `MLPClassifier`.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> StiefelMLPClassifier((16,) * 20, max_iter=500, random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """


class StiefelMLPRegressor(_Started, MLPRegressor):  # type: ignore[misc]
    """`sklearn.neural_network.MLPRegressor` with the start of `StiefelMLPClassifier`.

    Args:
        scheme: A name of `stiefel_init.schemes.names()`; the others as in `MLPRegressor`.
    """
