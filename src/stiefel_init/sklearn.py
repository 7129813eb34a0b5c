"""scikit-learn: `StiefelMLPClassifier` and `StiefelMLPRegressor`, its perceptrons with another initialization.

The recipe is that of `stiefel_init.torch.initialize_`, for layers in a chain: recipe/rules.py decides.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import numpy as np

from .core.errors import StiefelError, missing
from .core.sample import draw
from .schemes import Position, Recipe, Scheme, SchemeName, Start, Zeros, get

try:
    import sklearn
    from sklearn.neural_network import MLPClassifier, MLPRegressor
except ModuleNotFoundError as error:
    raise missing(error, "stiefel_init.sklearn", "sklearn", "sklearn") from None

__all__ = ["StiefelMLPClassifier", "StiefelMLPRegressor"]


# scikit-learn has no public way to give an MLP its first weights: `_initialize` asks `_init_coef` for those of each
# layer, in every release since 0.24. With a release that asks elsewhere the classes below would do nothing, unsaid.
for _mlp in (MLPClassifier, MLPRegressor):
    for _hook in ("_initialize", "_init_coef"):
        if not hasattr(_mlp, _hook):
            raise ImportError(
                f"scikit-learn {sklearn.__version__} no longer draws first weights in {_mlp.__name__}.{_hook}, which "
                "stiefel_init.sklearn replaces; install an older scikit-learn, or a newer stiefel-init."
            )


def _with_scheme(parent: Any) -> Callable[..., None]:
    """The constructor of a perceptron with `scheme` added to the parameters, which differ from release to release."""

    def __init__(self: Any, *args: Any, scheme: SchemeName | Scheme | None = None, **options: Any) -> None:
        parent.__init__(self, *args, **options)
        self.scheme = scheme

    known = signature(parent.__init__)
    added = Parameter("scheme", Parameter.KEYWORD_ONLY, default=None)
    # scikit-learn reads the names of the parameters from the signature.
    __init__.__signature__ = known.replace(parameters=[*known.parameters.values(), added])  # type: ignore[attr-defined]
    return __init__


class _Initialized:
    """Mixed into one of scikit-learn's perceptrons: draws the first weights of each layer."""

    activation: str
    coefs_: list[np.ndarray]
    n_layers_: int
    scheme: SchemeName | Scheme | None
    _random_state: np.random.RandomState

    def _initialize(self, *arguments: Any) -> None:
        scheme = self._chosen
        if isinstance(scheme, Start) and scheme != Recipe():
            scheme.draw(None)  # type: ignore[arg-type]  # which says why it cannot
        if scheme.activations and self.activation not in scheme.activations:
            raise StiefelError(
                f"scheme={str(scheme)!r} is made for networks with {' or '.join(scheme.activations)}, and "
                f"activation={self.activation!r}; use another scheme or that activation."
            )
        super()._initialize(*arguments)  # type: ignore[misc]  # which sets the first attributes

    @property
    def _chosen(self) -> Scheme:
        return Recipe() if self.scheme is None else get(self.scheme)

    def _init_coef(self, fan_in: int, fan_out: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        index, last = len(self.coefs_), self.n_layers_ - 2  # `_initialize` collects the layers in `coefs_`
        position = Position(index == 0, index == last, row=max(1, last - 1), units=fan_out, inputs=fan_in)
        scheme = self._chosen.at(position._replace(activation=self.activation))
        seed = int(self._random_state.randint(2**63 - 1, dtype=np.int64))
        weights = draw(scheme, fan_out, fan_in, seed=seed, dtype=dtype)
        biases = draw(scheme.bias(fan_in) or Zeros(), fan_out, 1, seed=seed, name="bias", dtype=dtype)
        return np.ascontiguousarray(weights.T), biases[:, 0]


class StiefelMLPClassifier(_Initialized, MLPClassifier):  # type: ignore[misc]
    """`sklearn.neural_network.MLPClassifier` whose hidden layers start on Õ(m,n) = { semi-orthogonal, W ξ_n = ξ_m }.

    Only the initial `coefs_` and `intercepts_` differ from scikit-learn's; `random_state` seeds them. Standardize the
    features. Deep networks need small steps: the paper uses `learning_rate_init=0.001 / depth**0.5`.

    Args:
        scheme: `None`, the default, is the recipe of `stiefel_init.torch.initialize_`: hidden layers in the set, near
            the identity if several are square; a first layer with more units than features is scaled up and its
            biases set the units apart; the last layer ignores the mean of its inputs. A name of
            `stiefel_init.schemes.names()` or a `Scheme` is used for every layer instead, with zero biases:
            `"stiefel"` is the paper. The others as in `MLPClassifier`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> model = StiefelMLPClassifier((16,) * 20, max_iter=500, random_state=0)
    >>> make_pipeline(StandardScaler(), model).fit(X, y).score(X, y) > 0.95
    True
    """

    __init__ = _with_scheme(MLPClassifier)


class StiefelMLPRegressor(_Initialized, MLPRegressor):  # type: ignore[misc]
    """`sklearn.neural_network.MLPRegressor` with the initialization of `StiefelMLPClassifier`.

    Args:
        scheme: As in `StiefelMLPClassifier`; the others as in `MLPRegressor`.

    >>> x = np.linspace(-3, 3, 300)[:, None]
    >>> y = np.sin(2 * x[:, 0])
    >>> StiefelMLPRegressor(hidden_layer_sizes=(32,) * 3, max_iter=500, random_state=0).fit(x, y).score(x, y) > 0.95
    True
    """

    __init__ = _with_scheme(MLPRegressor)
