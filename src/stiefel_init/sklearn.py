"""scikit-learn: `StiefelMLPClassifier` and `StiefelMLPRegressor`, its perceptrons with another initialization.

The recipe is that of `stiefel_init.torch.initialize_`, for layers in a chain: recipe/rules.py decides. The search for a
learning rate is that of `find_start`: recipe/search.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import numpy as np

from .core.errors import StiefelError, missing
from .core.sample import draw
from .recipe.search import LRS, ROUNDS, TIMES, downhill, shortlist
from .schemes import Position, Recipe, Scheme, SchemeName, WholeModel, Zeros, get

try:
    import sklearn
    from sklearn.base import clone
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.utils._param_validation import StrOptions
except ModuleNotFoundError as error:
    raise missing(error, "stiefel_init.sklearn", "sklearn", "sklearn") from None

AUTO = "auto"
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
    learning_rate_init: Any
    max_iter: int
    scheme: SchemeName | Scheme | None
    solver: str
    _random_state: np.random.RandomState

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        known: dict[str, Any] = cls._parameter_constraints  # type: ignore[attr-defined]
        rate = [*known["learning_rate_init"], StrOptions({AUTO})]
        cls._parameter_constraints = {**known, "learning_rate_init": rate}  # type: ignore[attr-defined]

    def _fit(self, X: Any, y: Any, *arguments: Any, **options: Any) -> Any:
        """scikit-learn's training, whether `fit` or `partial_fit` asks for it."""
        if self.learning_rate_init != AUTO:
            return super()._fit(X, y, *arguments, **options)  # type: ignore[misc]
        if options.get("incremental") and not hasattr(self, "learning_rate_init_"):
            raise StiefelError(
                'learning_rate_init="auto" is chosen by fit; partial_fit needs it as a number, or a fit before.'
            )
        if not options.get("incremental"):
            self.learning_rate_init_ = self._best_rate(X, y)
        try:
            self.learning_rate_init = self.learning_rate_init_
            return super()._fit(X, y, *arguments, **options)  # type: ignore[misc]
        finally:
            self.learning_rate_init = AUTO

    def _best_rate(self, X: Any, y: Any) -> float:
        """The rate with which the loss of the training falls most, as `find_start` finds it."""

        def train(setting: tuple[float], epochs: int) -> float:
            tried = {"max_iter": epochs, "tol": 0.0, "n_iter_no_change": epochs, "early_stopping": False}
            model = clone(self).set_params(**tried, learning_rate_init=setting[0], warm_start=False, verbose=False)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    curve = model.fit(X, y).loss_curve_
            except ValueError as error:
                if "non-finite" not in str(error):
                    raise
                return math.inf
            return float(np.mean(curve[-max(1, epochs // 4) :]))

        settings = [(rate if self.solver == "adam" else 10 * rate,) for rate in LRS]
        epochs = max(TIMES ** (ROUNDS - 1), self.max_iter)
        with np.errstate(all="ignore"):
            best = shortlist(settings, epochs, train)[0]
            return downhill(best, settings, lambda setting: train(setting, epochs))[0]

    def _initialize(self, *arguments: Any) -> None:
        scheme = self._chosen
        if isinstance(scheme, WholeModel) and scheme != Recipe():
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
            `"stiefel"` is the paper.
        learning_rate_init: As in `MLPClassifier`, or `"auto"`: a search, which costs about three trainings, finds
            one, which is in `learning_rate_init_`. The others as in `MLPClassifier`.

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
        scheme: As in `StiefelMLPClassifier`, and so is `learning_rate_init`; the others as in `MLPRegressor`.

    >>> x = np.linspace(-3, 3, 300)[:, None]
    >>> y = np.sin(2 * x[:, 0])
    >>> StiefelMLPRegressor(hidden_layer_sizes=(32,) * 3, max_iter=500, random_state=0).fit(x, y).score(x, y) > 0.95
    True
    """

    __init__ = _with_scheme(MLPRegressor)
