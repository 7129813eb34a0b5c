"""`stiefel_init.keras.initialize_` on both backends: the plan is kept, ends are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from conftest import assert_refused
from keras import layers
from paper.networks import mlp
from plan_law import ends, holds, kernels

from stiefel_init import check, draw
from stiefel_init.keras import initialize_, scale_rates
from stiefel_init.keras.optim import Aligned
from stiefel_init.torch import param_groups

# Keras' own arrays do not know NumPy 2's `copy` yet.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def values(model: keras.Model) -> list[np.ndarray]:
    return [weight.copy() for weight in model.get_weights()]


def at(model: Any, name: str) -> np.ndarray:
    """A parameter by its name in the plan."""
    *path, leaf = name.split(".")
    for word in path:
        inner = model.layers if isinstance(model, keras.Model) else model._flatten_layers(False, False)
        model = next(layer for layer in inner if layer.name == word)
    variable = next(variable for variable in model.weights if variable.name == leaf)
    return keras.ops.convert_to_numpy(variable)


def vision() -> keras.Model:
    image = keras.Input((8, 8, 1))
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="stem")(image)
    for i in range(4):
        x = layers.Activation("relu")(layers.Conv2D(8, 3, padding="same", name=f"body{i}")(x))
    x = layers.Conv2D(8, 3, groups=2, padding="same", name="grouped")(layers.BatchNormalization(name="norm")(x))
    tokens = layers.LayerNormalization()(layers.Reshape((-1, 8))(x))
    mixed = layers.MultiHeadAttention(2, 4, name="attention")(tokens, tokens)
    return keras.Model(image, layers.Dense(10, name="head")(layers.GlobalAveragePooling1D()(tokens + mixed)))


def test_every_matrix_is_what_the_plan_says() -> None:
    model = vision()
    plan = initialize_(model, seed=2)
    for row in plan:
        if row.action == "zeros":
            assert not at(model, row.name).any()
        elif row.action != "left alone":
            assert holds(row, kernels(row, at(model, row.name))), row
    assert (ends(plan, "stem"), ends(plan, "head")) == ({"stem.kernel"}, {"head.kernel"})
    assert all("0.5 patches" in plan[f"body{i}.kernel"].action for i in range(4))
    assert plan["grouped.kernel"].action.startswith("orthogonal 2 of 4×36")
    assert plan["norm.gamma"].reason == "a normalization"


def test_attention_starts_as_a_filter_and_to_another_sequence_is_drawn_apart() -> None:
    model = vision()
    initialize_(model, seed=2)
    q, k, v = (at(model, f"attention.{part}.kernel").reshape(8, 8).T for part in ("query", "key", "value"))
    out = at(model, "attention.attention_output.kernel").reshape(8, 8).T
    np.testing.assert_allclose(k, 0.7 * q, atol=1e-6)
    np.testing.assert_allclose(out, -0.25 * v.T * np.sqrt(8) / np.linalg.norm(v), atol=1e-6)
    a, b = keras.Input((5, 4)), keras.Input((6, 4))
    read = layers.MultiHeadAttention(2, 4, name="reader")(layers.Dense(8, name="a")(a), layers.Dense(8, name="b")(b))
    plan = initialize_(keras.Model([a, b], read), seed=0)
    assert plan["reader.key.kernel"].action == "stiefel 8×8"
    assert ends(plan, "stem") == {"a.kernel", "b.kernel"}


def test_every_kind_of_layer() -> None:
    signal, words = keras.Input((8, 8, 4)), keras.Input((3,))
    x = layers.DepthwiseConv2D(3, depth_multiplier=2, name="depthwise")(signal)
    x = layers.SeparableConv2D(6, 3, name="separable")(x)
    x = layers.Conv2DTranspose(5, 3, strides=2, name="up")(x)
    x = layers.Conv2D(4, 3, strides=3, name="patches")(x)
    x = layers.EinsumDense("abcd,de->abce", (None, None, 6), bias_axes="e", name="einsum")(x)
    x = layers.Reshape((-1, 6))(x)
    x = layers.Bidirectional(layers.LSTM(5, return_sequences=True, name="lstm"), name="both")(x)
    x = layers.GRU(4, return_sequences=True, name="gru")(x)
    x = layers.SimpleRNN(4, name="rnn")(x)
    y = layers.Flatten()(layers.Embedding(9, 2, name="table")(words))
    model = keras.Model(
        [signal, words], layers.Dense(3, name="head")(layers.PReLU(name="slope")(layers.Concatenate()([x, y])))
    )
    plan = initialize_(model, seed=1, recipe="paper")
    action = {row.name: row.action for row in plan}
    assert action["depthwise.kernel"] == "stiefel 4 of 2×1 at the centre"
    assert action["separable.depthwise_kernel"] == "stiefel 8 of 1×1 at the centre"
    assert action["separable.pointwise_kernel"] == "stiefel 6×8"
    assert action["up.kernel"] == "stiefel 5×6 at the centre"
    assert action["patches.kernel"] == "stiefel 4×45"
    assert action["einsum.kernel"] == "stiefel 6×4"
    assert action["both.forward_lstm.lstm_cell.kernel"] == "stiefel 4 of 5×6"
    assert action["gru.gru_cell.recurrent_kernel"] == "stiefel 3 of 4×4"
    assert action["rnn.simple_rnn_cell.kernel"] == "stiefel 4×4"
    assert {plan[name].reason for name in ("table.embeddings", "slope.alpha")} == {"an embedding", "the slope of PReLU"}
    expected = draw("stiefel", 2, 1, batch=4, seed=1, name="depthwise.weight")
    kernel = at(model, "depthwise.kernel")
    np.testing.assert_allclose(kernel[1, 1], expected[..., 0], atol=1e-6)
    assert np.count_nonzero(kernel) == 8
    up = at(model, "up.kernel")  # (3, 3, outputs, inputs)
    np.testing.assert_allclose(up[1, 1], draw("stiefel", 5, 6, seed=1, name="up.weight"), atol=5e-6)
    bias = at(model, "both.forward_lstm.lstm_cell.bias")
    np.testing.assert_array_equal(bias, np.repeat([0, 1, 0, 0], 5))


class Block(layers.Layer):  # type: ignore[misc]
    """A user's own layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = layers.LayerNormalization(), layers.Dense(8, "gelu"), layers.Dense(8)

    def build(self, shape: Any) -> None:
        self.norm.build(shape)
        self.inner.build(shape)
        self.outer.build(shape)

    def call(self, x: Any) -> Any:
        return x + self.outer(self.inner(self.norm(x)))


class Subclassed(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.answer = layers.Dense(8), Block(), layers.Dense(2, name="answer")

    def call(self, x: Any) -> Any:
        return self.answer(self.block(keras.ops.relu(self.first(x))))


def test_a_subclassed_model_is_read_with_symbols() -> None:
    model = Subclassed()
    x = np.ones((3, 2), "float32")
    model(x)
    for inputs in (None, x):
        plan = initialize_(model, seed=0, inputs=inputs)
        assert ends(plan, "head") == {"answer.kernel"}
        assert plan.rows[0].reason.startswith("stem")
        assert plan.rows[0].action.startswith("orthogonal 8×2")
    assert not model.first._inbound_nodes
    assert "traced" in plan["answer.kernel"].reason


def test_what_looks_at_values_is_initialized_by_the_order_of_its_layers() -> None:
    class Looks(Subclassed):
        def call(self, x: Any) -> Any:
            if float(keras.ops.convert_to_numpy(x).sum()) > 0:
                x = -x
            return super().call(x)

    model = Looks()
    model(np.ones((3, 2), "float32"))
    plan = initialize_(model, seed=0, inputs=np.ones((3, 2), "float32"))
    assert "give inputs=" in plan.rows[0].reason
    plan = initialize_(model, stem=(), head="answer.*")
    assert (ends(plan, "stem"), ends(plan, "head")) == (set(), {"answer.kernel"})


def test_names_that_keras_counts_are_counted_in_the_model() -> None:
    keras.utils.set_random_seed(0)  # the author's sizes, which the recipe keeps, are drawn
    first, second = (keras.Sequential([keras.Input((3,)), layers.Dense(8, "relu"), layers.Dense(2)]) for _ in range(2))
    second.set_weights(first.get_weights())
    assert first.layers[0].name != second.layers[0].name
    initialize_(first, seed=0)
    initialize_(second, seed=0)
    for a, b in zip(values(first), values(second)):
        np.testing.assert_array_equal(a, b)
    keras.utils.set_random_seed(1)
    initialize_(first)
    keras.utils.set_random_seed(1)
    initialize_(second)
    for a, b in zip(values(first), values(second)):
        np.testing.assert_array_equal(a, b)
    initialize_(second)
    assert abs(values(first)[0] - values(second)[0]).max() > 0.01


def test_frozen_skipped_shared_and_nested_layers() -> None:
    shared = layers.Dense(8, "relu", name="shared")
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(8, "relu", name="deep")], name="nested")
    x = keras.Input((3,))
    hidden = inner(shared(shared(layers.Dense(8, "relu", name="first")(x))))
    frozen = layers.Dense(8, "relu", name="frozen")
    model = keras.Model(x, layers.Dense(2, name="last")(frozen(hidden)))
    frozen.trainable = False
    before = at(model, "frozen.kernel").copy(), at(model, "last.kernel").copy()
    plan = initialize_(model, seed=0, skip="last.kernel")
    np.testing.assert_array_equal(at(model, "frozen.kernel"), before[0])
    np.testing.assert_array_equal(at(model, "last.kernel"), before[1])
    assert plan["frozen.kernel"].reason == "frozen: trainable is False"
    assert plan["nested.deep.kernel"].action.startswith("rotation")
    assert sum(row.name.startswith("shared.kernel") for row in plan) == 1


def test_dry_run_changes_nothing_and_dtypes_are_kept() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(8, "relu", dtype="bfloat16"), layers.Dense(2)])
    before = [weight.astype("float32") for weight in values(model)]
    initialize_(model, seed=0, dry_run=True)
    assert all((a.astype("float32") == b).all() for a, b in zip(values(model), before))
    initialize_(model, seed=0)
    assert keras.backend.standardize_dtype(model.layers[0].kernel.dtype) == "bfloat16"
    assert abs(values(model)[2] - before[2]).max() > 0.01


class Raises(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = layers.Dense(2)
        self.layer.build((None, 2))
        self.built = True

    def call(self, x: Any) -> Any:
        raise RuntimeError("not today")


def perceptron() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), layers.Dense(8, "relu", name="a"), layers.Dense(2, name="b")])


ONES = np.ones((2, 3), "float32")
REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], list[str]]] = {
    "no model": (lambda: [1], {}, ["list", "keras.Model"]),
    "an unbuilt model": (lambda: keras.Sequential([layers.Dense(3)]), {}, ["not built", "example"]),
    "inputs of the wrong size": (perceptron, {"inputs": ONES[:, :2]}, ["inputs=(2, 2)", "does not run"]),
    "a forward that raises": (Raises, {"inputs": ONES[:, :2]}, ["RuntimeError", "not today"]),
    "inputs that are not finite": (perceptron, {"inputs": ONES * np.nan}, ["inputs=(2, 3)", "not finite"]),
    "an unknown end": (perceptron, {"head": "nope"}, ["head pattern 'nope'", "'a.kernel'"]),
    "a negative seed": (perceptron, {"seed": -1}, ["seed=-1"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence_and_nothing_is_changed(case: str) -> None:
    make, options, words = REFUSED[case]
    model = make()
    before = values(model) if isinstance(model, keras.Model) else []
    assert_refused(lambda: initialize_(model, **options), words)
    if before:
        assert all((a == b).all() for a, b in zip(values(model), before))


def chain(depth: int, width: int = 32) -> keras.Model:
    inner = [layers.Dense(width, "relu") for _ in range(depth)]
    return keras.Sequential([keras.Input((12,)), *inner, layers.Dense(3)])


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_each_layer_steps_at_the_multiple_that_it_has_in_pytorch(name: str) -> None:
    keras.utils.set_random_seed(0)
    plain, scaled, start = chain(20), chain(20), chain(20)
    initialize_(start, seed=0)
    x, y = np.random.default_rng(0).standard_normal((64, 12)), np.arange(64) % 3
    for model in (plain, scaled):
        model.set_weights(values(start))
        optimizer = getattr(keras.optimizers, name)(1e-3, clipnorm=1.0)
        scale = scale_rates(optimizer, model) if model is scaled else optimizer
        model.compile(scale, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.train_on_batch(x, y)
    groups = param_groups(mlp(12, 3, 21, 32), 1.0, optimizer="sgd" if name == "SGD" else "adam")
    expected = {group["lr_scale"] for group in groups}
    found = set()
    for old, one, other in zip(values(start), values(plain), values(scaled), strict=True):
        scale = np.abs(other - old).sum() / np.abs(one - old).sum()
        found.add(min(expected, key=lambda multiple: abs(multiple - scale)))
        assert min(abs(scale / multiple - 1) for multiple in expected) < 0.01
    assert found == expected


def test_a_schedule_accumulated_gradients_and_a_constraint_keep_their_meaning() -> None:
    keras.utils.set_random_seed(0)
    inner = [layers.Dense(16, "relu", kernel_constraint=Aligned()) for _ in range(30)]
    model = keras.Sequential([keras.Input((12,)), *inner, layers.Dense(3)])
    initialize_(model, "stiefel", seed=0)
    rate = keras.optimizers.schedules.CosineDecay(3e-3, 100)
    adam = keras.optimizers.AdamW(rate, gradient_accumulation_steps=2)
    model.compile(scale_rates(adam, model), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.random.default_rng(0).standard_normal((256, 12))
    losses = model.fit(x, np.argmax(x[:, :3], 1), epochs=25, batch_size=32, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    assert all(check(at(model, f"{layer.name}.kernel").T, tol=1e-4).ok for layer in model.layers[1:-1])


def test_what_cannot_be_scaled_is_refused() -> None:
    adam, model = keras.optimizers.Adam(), chain(2)
    assert_refused(lambda: scale_rates("adam", model), ["optimizer is a str"])
    assert_refused(lambda: scale_rates(adam, adam), ["model is a Adam"])
    assert_refused(lambda: scale_rates(keras.optimizers.Adam(use_ema=True), model), ["use_ema"])


def test_small_layers_of_keras_have_the_size_that_keras_gives_them() -> None:
    """A few entries fit several rules; whatever was drawn, the same seed gives the same weights."""
    found = []
    for _ in range(12):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        initialize_(model, seed=0)
        found.append([np.asarray(weight) for weight in model.get_weights()])
    assert all(np.array_equal(a, b) for each in found for a, b in zip(each, found[0]))
