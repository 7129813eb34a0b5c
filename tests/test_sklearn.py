"""`stiefel_init.sklearn`: scikit-learn's perceptrons, all of their habits kept, with another start."""

from __future__ import annotations

import importlib
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
from conftest import ALL_SCHEMES
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.neural_network._multilayer_perceptron import BaseMultilayerPerceptron
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stiefel_init.sklearn
from stiefel_init import StiefelError, check, draw
from stiefel_init.schemes import Rotation
from stiefel_init.sklearn import StiefelMLPClassifier, StiefelMLPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
DIGITS = load_digits()
X, Y = DIGITS.data / 16, DIGITS.target
START: dict[str, Any] = {
    "learning_rate_init": 1e-300,
    "max_iter": 1,
}  # a step that changes no weight: `coefs_` are the first ones


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ["adam", "sgd"])
@pytest.mark.parametrize(("mlp", "outputs"), [(StiefelMLPClassifier, 10), (StiefelMLPRegressor, 1)])
def test_training_starts_in_the_set(mlp: Any, outputs: int, solver: str, dtype: Any) -> None:
    model = mlp(hidden_layer_sizes=(16, 16, 24), solver=solver, alpha=0, random_state=0, **START)
    model.fit(X.astype(dtype), Y)
    assert [W.shape for W in model.coefs_] == [(64, 16), (16, 16), (16, 24), (24, outputs)]
    for W, b in zip(model.coefs_, model.intercepts_):
        assert W.dtype == b.dtype == dtype
        assert check(W.T).ok, check(W.T)
        assert not (abs(b) > dtype(1e-200)).any()


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize(("mlp", "outputs"), [(StiefelMLPClassifier, 10), (StiefelMLPRegressor, 1)])
def test_training_starts_with_the_scheme_of_that_name(mlp: Any, outputs: int, scheme: str) -> None:
    """With the seeds that `random_state` gives, one for each layer."""
    model = mlp(hidden_layer_sizes=(16, 24), scheme=scheme, alpha=0, random_state=3, **START).fit(X, Y)
    state = np.random.RandomState(3)
    for W, (n, m) in zip(model.coefs_, [(64, 16), (16, 24), (24, outputs)], strict=True):
        seed = int(state.randint(2**63 - 1, dtype=np.int64))
        np.testing.assert_allclose(W, draw(scheme, m, n, seed=seed).T, rtol=1e-12, atol=1e-200)


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("mlp", [StiefelMLPClassifier, StiefelMLPRegressor])
def test_every_scheme_can_be_trained_from(mlp: Any, solver: str, scheme: str) -> None:
    options: dict[str, Any] = {"hidden_layer_sizes": (8,), "solver": solver, "max_iter": 3, "random_state": 0}
    model = mlp(scheme=scheme, **options).fit(X[:100], Y[:100])
    assert all(np.isfinite(W).all() for W in model.coefs_)
    start = mlp(scheme=scheme, **options | START | {"solver": "sgd"}).fit(X[:100], Y[:100])
    assert any(abs(a - b).max() > 1e-6 for a, b in zip(model.coefs_, start.coefs_))


def test_a_scheme_may_be_a_value_and_one_that_is_none_is_refused_when_it_is_asked_for() -> None:
    by_name, by_value = (
        StiefelMLPClassifier((8,), scheme=s, random_state=0, **START) for s in ("rotation 1", Rotation(1))
    )
    np.testing.assert_array_equal(by_name.fit(X, Y).coefs_[0], by_value.fit(X, Y).coefs_[0])
    for scheme, words in (("glorot", "scheme='glorot' is not known"), (None, "scheme=None"), ("random -1", "std=-1")):
        model = StiefelMLPClassifier((8,), scheme=scheme)  # as all of scikit-learn, it looks when it fits
        with pytest.raises(StiefelError, match=words):
            model.fit(X, Y)


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
    assert model.get_params() == theirs | {"scheme": "stiefel"}
    assert clone(StiefelMLPClassifier(scheme="rotation 1")).get_params()["scheme"] == "rotation 1"
    assert clone(model).get_params() == model.get_params()
    model.fit(X, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(clone(model).fit(X, Y).predict_proba(X), model.predict_proba(X))
    pipeline = make_pipeline(StandardScaler(), StiefelMLPClassifier((8,) * 3, random_state=0, max_iter=3))
    grid = {"stiefelmlpclassifier__alpha": [1e-4, 1e-2], "stiefelmlpclassifier__scheme": ["stiefel", "he"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X[:200], Y[:200])
    assert search.best_score_ > 0
    assert len(search.cv_results_["params"]) == 4


@pytest.mark.parametrize(
    ("mlp", "parent"), [(StiefelMLPClassifier, MLPClassifier), (StiefelMLPRegressor, MLPRegressor)]
)
def test_the_signature_is_scikit_learns_with_the_scheme_added(mlp: Any, parent: Any) -> None:
    own, known = (inspect.signature(kind.__init__).parameters for kind in (mlp, parent))
    assert list(own) == [*known, "scheme"]
    assert own["scheme"].default == "stiefel"
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


RATE = 1e-3 / 30**0.5  # the paper's, for 30 layers


def test_thirty_hidden_layers_train_and_with_scikit_learns_own_start_they_do_not() -> None:
    """Test accuracy after 20 passes, five seeds: 0.87 to 0.90 with this start, 0.10, by chance, with scikit-learn's."""
    train, test, labels, truth = train_test_split(X, Y, random_state=0, stratify=Y)
    options: dict[str, Any] = {
        "hidden_layer_sizes": (32,) * 30,
        "learning_rate_init": RATE,
        "max_iter": 20,
        "random_state": 0,
    }
    assert StiefelMLPClassifier(**options).fit(train, labels).score(test, truth) > 0.75
    assert MLPClassifier(**options).fit(train, labels).score(test, truth) < 0.3


def test_a_deep_regressor_trains() -> None:
    """Three seeds explained 0.53 to 0.55 of the variance, about what a linear model does."""
    x, y = load_diabetes(return_X_y=True)
    x, y = StandardScaler().fit_transform(x), (y - y.mean()) / y.std()
    options: dict[str, Any] = {
        "hidden_layer_sizes": (32,) * 30,
        "learning_rate_init": RATE,
        "batch_size": 32,
        "max_iter": 60,
    }
    assert StiefelMLPRegressor(random_state=0, **options).fit(x, y).score(x, y) > 0.4


def test_a_scikit_learn_without_the_hook_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.delattr(BaseMultilayerPerceptron, "_init_coef")
        with pytest.raises(ImportError, match=r"MLPClassifier\._init_coef.*install an older scikit-learn"):
            importlib.reload(stiefel_init.sklearn)
    importlib.reload(stiefel_init.sklearn)


@pytest.mark.parametrize("solver", ["adam", "sgd", "lbfgs"])
def test_scikit_learn_calls_the_hook_once_for_each_layer(solver: str) -> None:
    """What the classes rest on: a private method, so its contract is pinned against the installed version."""
    calls: list[Any] = []

    class Watched(MLPClassifier):  # type: ignore[misc]
        def _init_coef(self, *arguments: Any) -> Any:
            calls.append(arguments)
            return super()._init_coef(*arguments)

    Watched((16, 24), solver=solver, max_iter=1).fit(X, Y)
    assert calls == [(64, 16, np.float64), (16, 24, np.float64), (24, 10, np.float64)]
