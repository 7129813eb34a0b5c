"""`stiefel_init.sklearn`: scikit-learn's perceptrons, all of their habits kept, with another start."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from conftest import ALL_SCHEMES
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.neural_network._multilayer_perceptron import BaseMultilayerPerceptron
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from stiefel_init import StiefelError, check, draw
from stiefel_init.recipe.search import LRS
from stiefel_init.schemes import Centred, Lifted, Rotation, Scheme, Stiefel, Zeros, get
from stiefel_init.sklearn import StiefelMLPClassifier, StiefelMLPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
DIGITS = load_digits()
X, Y = DIGITS.data / 16, DIGITS.target
START: dict[str, Any] = {
    "learning_rate_init": 1e-300,
    "max_iter": 1,
}  # a step that changes no weight: `coefs_` are the first ones
RATE = 1e-3 / 30**0.5  # the paper's, for 30 layers


@pytest.mark.slow
@parametrize_with_checks([kind(max_iter=100) for kind in (StiefelMLPClassifier, StiefelMLPRegressor)])
def test_all_that_scikit_learn_asks_of_an_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


def start(mlp: Any, sizes: tuple[int, ...], features: int, dtype: Any = np.float64, **options: Any) -> Any:
    """A model with its first weights."""
    x = np.random.default_rng(0).standard_normal((200, features)).astype(dtype)
    y = np.arange(200) % 10
    return mlp(hidden_layer_sizes=sizes, alpha=0, random_state=0, **START, **options).fit(x, y)


def assert_drawn(model: Any, chosen: Sequence[Scheme]) -> None:
    """Each layer has weights and biases of its scheme, with the seeds that `random_state` gives, one for each layer."""
    state = np.random.RandomState(0)
    for W, b, scheme in zip(model.coefs_, model.intercepts_, chosen, strict=True):
        (n, m), seed = W.shape, int(state.randint(2**63 - 1, dtype=np.int64))
        assert W.dtype == b.dtype
        weight = draw(scheme, m, n, seed=seed, dtype=W.dtype)
        bias = draw(scheme.bias(n) or Zeros(), m, 1, seed=seed, name="bias", dtype=b.dtype)
        np.testing.assert_allclose(W, weight.T, rtol=1e-12, atol=1e-200)
        np.testing.assert_allclose(b, bias[:, 0], rtol=1e-12, atol=1e-30)


DEEP = ((32,) * 5, 8)
LIFTED = (Lifted(), *[Rotation(1 / 4**0.5)] * 4, Centred())  # four hidden layers in a row
STARTS: list[tuple[tuple[int, ...], int, dict[str, Any], tuple[Scheme, ...]]] = [
    *((*DEEP, {"activation": name}, LIFTED) for name in ("relu", "tanh", "logistic")),
    (*DEEP, {"dtype": np.float32}, LIFTED),
    ((64,), 1, {}, (Lifted(), Centred())),
    ((8, 8), 8, {}, (Stiefel(), Stiefel(), Centred())),  # no wider than its input, and a hidden layer on its own
    ((8, 8), 20, {}, (Stiefel(), Stiefel(), Centred())),
    ((16, 16), 4, {"activation": "identity"}, (Stiefel(), Stiefel(), Centred())),
    ((32, 32, 48, 24), 8, {}, (Lifted(), Rotation(1 / 3**0.5), Stiefel(), Stiefel(), Centred())),
    *(((), features, {}, (Centred(),)) for features in (1, 4, 20)),
    *(((16, 24), 8, {"scheme": text}, (get(text),) * 3) for text in ALL_SCHEMES),
]


@pytest.mark.parametrize(("sizes", "features", "options", "chosen"), STARTS)
def test_each_layer_starts_as_its_place_asks(
    sizes: tuple[int, ...], features: int, options: dict[str, Any], chosen: tuple[Scheme, ...]
) -> None:
    assert_drawn(start(StiefelMLPClassifier, sizes, features, **options), chosen)


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_a_regressor_starts_likewise_and_goes_on_from_there(solver: str) -> None:
    first = start(StiefelMLPRegressor, *DEEP)
    assert_drawn(first, LIFTED)
    x, y = np.random.default_rng(0).standard_normal((200, 8)), np.arange(200) % 10
    trained = StiefelMLPRegressor(hidden_layer_sizes=DEEP[0], solver=solver, max_iter=3, random_state=0).fit(x, y)
    assert all(np.isfinite(W).all() for W in trained.coefs_)
    assert any(abs(a - b).max() > 1e-6 for a, b in zip(trained.coefs_, first.coefs_))


@pytest.mark.parametrize("mlp", [StiefelMLPClassifier, StiefelMLPRegressor])
def test_each_fit_starts_over_and_knows_which_layer_is_which(mlp: Any) -> None:
    model = start(mlp, (32, 32, 32), 8)
    first = [*model.coefs_, *model.intercepts_]
    x, y = np.random.default_rng(0).standard_normal((200, 8)), np.arange(200) % 10
    for a, b in zip(first, [*model.fit(x, y).coefs_, *model.intercepts_], strict=True):
        np.testing.assert_array_equal(a, b)
    assert_drawn(model.set_params(hidden_layer_sizes=(16,)).fit(x, y), (Lifted(), Centred()))


def test_a_scheme_may_be_a_value_and_one_that_is_none_is_refused_when_it_is_asked_for() -> None:
    by_name, by_value = (
        StiefelMLPClassifier((8,), scheme=s, random_state=0, **START) for s in ("rotation 1", Rotation(1))
    )
    np.testing.assert_array_equal(by_name.fit(X, Y).coefs_[0], by_value.fit(X, Y).coefs_[0])
    for scheme, words in (("glorot", "scheme='glorot' is not known"), (5, "scheme=5"), ("random -1", "std=-1")):
        model = StiefelMLPClassifier((8,), scheme=scheme)  # as all of scikit-learn, it looks when it fits
        with pytest.raises(StiefelError, match=words):
            model.fit(X, Y)
        with pytest.raises(StiefelError, match=words):
            model.partial_fit(X, Y, classes=np.arange(10))
        model.set_params(scheme=None, max_iter=1).partial_fit(X, Y, classes=np.arange(10))  # no half start is left


def test_random_state_decides() -> None:
    def weights(state: int | np.random.RandomState | None) -> list[np.ndarray]:
        return StiefelMLPClassifier((64, 64), random_state=state, **START).fit(X, Y).coefs_

    first, again, other = weights(0), weights(0), weights(1)
    for a, b, c in zip(first, again, other):
        np.testing.assert_array_equal(a, b)
        assert abs(a - c).max() > 0.01
    assert abs(first[0] - first[1]).max() > 0.01  # fresh for each layer
    shared = np.random.RandomState(0)
    assert abs(weights(shared)[0] - weights(shared)[0]).max() > 0.01


def test_parameters_clone_pickle_and_search() -> None:
    model = StiefelMLPClassifier((8, 8), alpha=0.1, random_state=0, max_iter=3)
    theirs = MLPClassifier((8, 8), alpha=0.1, random_state=0, max_iter=3).get_params()
    assert model.get_params() == theirs | {"scheme": None}
    assert clone(StiefelMLPClassifier(scheme="rotation 1")).get_params()["scheme"] == "rotation 1"
    assert clone(model).get_params() == model.get_params()
    model.fit(X, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(clone(model).fit(X, Y).predict_proba(X), model.predict_proba(X))
    pipeline = make_pipeline(StandardScaler(), StiefelMLPClassifier((8,) * 3, random_state=0, max_iter=3))
    grid = {"stiefelmlpclassifier__alpha": [1e-4, 1e-2], "stiefelmlpclassifier__scheme": [None, "stiefel", Rotation(1)]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X[:200], Y[:200])
    assert search.best_score_ > 0
    assert len(search.cv_results_["params"]) == 6


@pytest.mark.parametrize(
    ("mlp", "parent"), [(StiefelMLPClassifier, MLPClassifier), (StiefelMLPRegressor, MLPRegressor)]
)
def test_the_signature_is_scikit_learns_with_the_scheme_added(mlp: Any, parent: Any) -> None:
    own, known = (inspect.signature(kind.__init__).parameters for kind in (mlp, parent))
    assert list(own) == [*known, "scheme"]
    assert own["scheme"].default is None
    assert all(own[name] == known[name] for name in known)


def test_partial_fit_and_warm_start_go_on_from_where_they_were() -> None:
    model = StiefelMLPClassifier((16, 16), random_state=0, learning_rate_init=1e-300)
    model.partial_fit(X, Y, classes=np.arange(10))
    first = [W.copy() for W in model.coefs_]
    model.partial_fit(X, Y)
    for a, b in zip(first, model.coefs_):
        np.testing.assert_array_equal(a, b)
    warm = StiefelMLPClassifier((16, 16), random_state=0, warm_start=True, max_iter=1).fit(X, Y)
    score = warm.loss_
    for _ in range(5):
        warm.fit(X, Y)
    assert warm.loss_ < score
    assert not check(warm.coefs_[0].T).ok  # trained on, not drawn anew


def test_thirty_hidden_layers_train_and_with_scikit_learns_own_start_they_do_not() -> None:
    """Test accuracy after 20 passes, five seeds: 0.88 to 0.92 with this start, 0.10, by chance, with scikit-learn's."""
    train, test, labels, truth = train_test_split(X, Y, random_state=0, stratify=Y)
    options: dict[str, Any] = {
        "hidden_layer_sizes": (32,) * 30,
        "learning_rate_init": RATE,
        "max_iter": 20,
        "random_state": 0,
    }
    assert StiefelMLPClassifier(**options).fit(train, labels).score(test, truth) > 0.75
    assert MLPClassifier(**options).fit(train, labels).score(test, truth) < 0.3


def test_a_scikit_learn_without_the_hook_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(BaseMultilayerPerceptron, "_init_coef")
    spec = importlib.util.find_spec("stiefel_init.sklearn")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"MLPClassifier\._init_coef.*install an older scikit-learn"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))  # a second copy of the module


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_scikit_learn_calls_the_hook_once_for_each_layer(solver: str) -> None:
    """What the classes rest on: a private method, so its contract is pinned against the installed version."""
    calls: list[Any] = []

    class Watched(MLPClassifier):  # type: ignore[misc]
        def _init_coef(self, *arguments: Any) -> Any:
            calls.append((len(self.coefs_), self.n_layers_, *arguments))
            return super()._init_coef(*arguments)

    model = Watched((16, 24), solver=solver, max_iter=1).fit(X, Y)
    expected = [(0, 4, 64, 16, np.float64), (1, 4, 16, 24, np.float64), (2, 4, 24, 10, np.float64)]
    assert calls == expected
    model.fit(X, Y)
    assert calls == expected * 2


@pytest.mark.parametrize(("solver", "sizes"), [("adam", (32,) * 20), ("adam", (32,)), ("sgd", (32,) * 3)])
def test_a_rate_is_found_that_trains_as_well_as_the_best_of_all(solver: str, sizes: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"hidden_layer_sizes": sizes, "solver": solver, "max_iter": 32, "random_state": 0}
    model = StiefelMLPClassifier(learning_rate_init="auto", **options).fit(X[:600], Y[:600])
    rates = [(1 if solver == "adam" else 10) * rate for rate in LRS]
    losses = {}
    for rate in rates:
        with suppress(ValueError):  # scikit-learn's, of one that diverged
            losses[rate] = StiefelMLPClassifier(learning_rate_init=rate, **options).fit(X[:600], Y[:600]).loss_
    assert model.learning_rate_init_ in losses
    assert model.learning_rate_init == "auto"
    assert model.loss_ == losses[model.learning_rate_init_] < 0.1
    assert model.score(X[600:], Y[600:]) > 0.85
    again = clone(model).fit(X[:600], Y[:600])
    assert again.learning_rate_init_ == model.learning_rate_init_


def test_a_rate_that_is_found_serves_what_goes_on_and_what_cannot_be_found_is_refused() -> None:
    model = StiefelMLPRegressor(hidden_layer_sizes=(8,), learning_rate_init="auto", max_iter=16, random_state=0)
    with pytest.raises(StiefelError, match="is chosen by fit; partial_fit needs it as a number"):
        model.partial_fit(X, Y)
    found = model.fit(X, Y).learning_rate_init_
    assert model.partial_fit(X, Y).learning_rate_init_ == found
    with pytest.raises(ValueError, match="learning_rate_init"):
        model.set_params(learning_rate_init="fast").fit(X, Y)
