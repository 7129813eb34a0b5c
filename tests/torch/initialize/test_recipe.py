"""The default recipe: what each layer starts as, and that it trains where the set alone does not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from models import Fused, PlainCNN, Transformer, assert_filter, mlp, unit
from torch import Tensor, nn

from stiefel_init import check, draw
from stiefel_init.schemes import Blend, Centred, Offsets, Orthogonal, Rotation
from stiefel_init.torch import initialize_


def first_layer(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    hidden = [part for _ in range(9) for part in (nn.Linear(outputs, outputs), nn.ReLU())]
    model = nn.Sequential(nn.Linear(inputs, outputs, bias=bias), nn.ReLU(), *hidden, nn.Linear(outputs, 3))
    initialize_(model, seed=0)
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    return layer


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 64), (2, 64), (10, 64)])
def test_a_stem_of_few_inputs_is_lifted(inputs: int, outputs: int) -> None:
    layer = first_layer(inputs, outputs)
    assert check(layer.weight.detach().numpy() * math.sqrt(2 * inputs / outputs))
    bias = layer.bias.detach()
    assert abs(bias.sum()) < 1e-5 * outputs
    assert bias.std(correction=0) == pytest.approx(math.sqrt(2 if inputs == 1 else 0.5))
    with torch.no_grad():
        features = torch.relu(layer(torch.randn(500, inputs, generator=torch.Generator().manual_seed(0))))
    assert torch.linalg.matrix_rank(features, rtol=1e-3) > 15  # the set alone has at most 2 for each input


def test_a_wide_input_needs_no_lift() -> None:
    layer = first_layer(64, 16)
    assert check(layer.weight.detach().numpy())
    assert not layer.bias.any()


def test_without_biases_the_rows_of_a_stem_differ() -> None:
    weight = first_layer(1, 8, bias=False).weight.detach()
    assert len(set(weight.flatten().tolist())) == 8
    assert weight.norm() == pytest.approx(math.sqrt(16))  # power 2 for each unit


def test_a_stem_of_patches_sees_nine_pixels() -> None:
    model = PlainCNN(channels=32)
    initialize_(model, seed=0)
    assert torch.linalg.matrix_rank(model.stem.weight.detach().flatten(1)) == 9
    expected = draw(Orthogonal(math.sqrt(2)), 32, 9, seed=0, name="stem.weight")
    np.testing.assert_allclose(model.stem.weight.detach().flatten(1), expected, atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 10, 16, 20])
def test_a_head_does_not_see_the_common_level(outputs: int) -> None:
    model: Any = mlp(8, 7, outputs)
    initialize_(model, seed=0)
    weight = model[-1].weight.detach().double()
    np.testing.assert_allclose(weight.sum(1), 0, atol=1e-6)
    singular = torch.linalg.svdvals(weight)
    np.testing.assert_allclose(singular[: min(outputs, 15)], 1, atol=1e-5)
    np.testing.assert_allclose(weight, draw(Centred(), outputs, 16, seed=0, name="14.weight"), atol=1e-6)


def test_centred_rows_are_uniform_in_the_complement_of_the_ones() -> None:
    """A coordinate x of a uniform unit vector in n - 1 dimensions has E x² = 1/(n-1), E x⁴ = 3/((n-1)(n+1)).

    With 4,000 independent matrices, the limits are five standard errors: a false alarm in 10⁶ runs.
    """
    n = 6
    rows = draw(Centred(), 2, n, batch=4000, seed=1)[:, 0]
    direction = np.array([1.0, -1, 0, 0, 0, 0]) / math.sqrt(2)
    x = rows @ direction
    for power, mean in ((2, 1 / (n - 1)), (4, 3 / ((n - 1) * (n + 1))), (1, 0), (3, 0)):
        values = x**power
        assert abs(values.mean() - mean) < 5 * values.std() / math.sqrt(len(values))


def test_offsets_of_one_unit_are_zero() -> None:
    assert draw(Offsets(), 1, 1, seed=0) == 0
    values = draw(Offsets(0.3), 50, 1, batch=3, seed=0)
    np.testing.assert_allclose(values.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(values.std(1), 0.3)


def test_hidden_layers_in_a_row_are_small_rotations() -> None:
    model: Any = mlp(16, 10, 2)  # nine of them between the stem and the head
    initialize_(model, seed=3)
    for i in (2, 4, 10, 18):
        expected = draw(Rotation(1 / 3), 16, 16, seed=3, name=f"{i}.weight")
        np.testing.assert_allclose(model[i].weight.detach(), expected, atol=1e-6)


def test_hidden_kernels_are_a_permutation_and_patches() -> None:
    model: Any = PlainCNN(hidden=4)
    initialize_(model, seed=3)
    kernel = model.layers[1].weight.detach().double()
    expected = draw(Blend(0.5, 9, 4), 8, 72, seed=3, name="layers.1.weight")
    np.testing.assert_allclose(kernel.flatten(1), expected, atol=1e-6)
    patches = draw(Orthogonal(), 8, 72, seed=3, name="layers.1.weight")
    rest = (kernel.flatten(1).numpy() - 0.5 * math.sqrt(2) * patches).reshape(8, 8, 3, 3) / math.sqrt(0.75)
    centre = rest[:, :, 1, 1]
    np.testing.assert_allclose(centre.sum(0), 1, atol=1e-5)
    np.testing.assert_allclose(centre.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(np.sort(centre.ravel())[-8:], 1, atol=1e-5)
    rest[:, :, 1, 1] = 0
    np.testing.assert_allclose(rest, 0, atol=1e-5)


@pytest.mark.parametrize(("widths", "places"), [((6, 4), 9), ((4, 8), 9), ((8, 4), 3)])
def test_a_blend_between_two_widths(widths: tuple[int, int], places: int) -> None:
    m, n = widths
    kernel = draw(Blend(0.1, places, places // 2), m, n * places, seed=0).reshape(m, n, places)
    patches = draw(Orthogonal(), m, n * places, seed=0).reshape(m, n, places)
    if max(m, n) % min(m, n):
        np.testing.assert_allclose(kernel, math.sqrt(2) * patches)
    else:
        centre = (kernel - 0.1 * math.sqrt(2) * patches)[:, :, places // 2] / math.sqrt(0.99)
        assert check(centre)


def attention_of(model: Any) -> list[Tensor]:
    if isinstance(model, Fused):
        return [*model.qkv.weight.detach().chunk(3), model.proj.weight.detach()]
    if isinstance(model, nn.MultiheadAttention):
        return [*model.in_proj_weight.detach().chunk(3), model.out_proj.weight.detach()]
    block = model.blocks[1]
    return [layer.weight.detach() for layer in (block.q_proj, block.k_proj, block.v_proj, block.out_proj)]


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("make", [Fused, Transformer, lambda: nn.MultiheadAttention(16, 2)])
def test_attention_starts_as_a_filter(make: type[nn.Module], seed: int | None) -> None:
    model = make()
    initialize_(model, seed=seed)
    assert_filter(*attention_of(model))


def test_attention_to_another_sequence_is_drawn_apart() -> None:
    model = nn.TransformerDecoderLayer(16, 2, 32)
    initialize_(model, seed=0)
    q, k, _ = model.multihead_attn.in_proj_weight.detach().chunk(3)
    assert check(unit(k).numpy())
    assert not torch.allclose(q, k, atol=0.01)


def test_a_transposed_convolution_reaches_every_pixel() -> None:
    up, last = nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ConvTranspose2d(16, 3, 4, 2, 1)
    model = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), up, nn.ReLU(), last, nn.Sigmoid())
    initialize_(model, seed=0)
    with torch.no_grad():
        signal = model[:2](torch.randn(50, 4, 5, 5, generator=torch.Generator().manual_seed(0)))
        wider = model[2:4](signal)
        out = model[4](wider)
    power = [float(part[..., 1:-1, 1:-1].square().mean()) for part in (signal, wider)]
    assert 0.4 < power[1] / power[0] < 2.5  # a quarter of that if the stride were not made up for
    assert (wider.std((0, 1)) > 0.1).all()
    assert (out.abs() > 1e-6).float().mean() > 0.99


@pytest.mark.parametrize("depth", [2, 6])
def test_one_feature_is_learned(depth: int) -> None:
    """A thousand steps on y = sin 2x: the paper's recipe, with all units equal, explains next to nothing."""
    x = torch.linspace(-3, 3, 200)[:, None]
    y = torch.sin(2 * x)

    def score(recipe: str) -> float:
        model = mlp(1, depth, 1, width=64)
        initialize_(model, recipe=recipe, seed=0)  # type: ignore[arg-type]
        adam = torch.optim.Adam(model.parameters(), 3e-3 / math.sqrt(depth))
        for _ in range(1000):
            loss = ((model(x) - y) ** 2).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        return 1 - loss.item() / y.var().item()

    assert score("best") > 0.97
    assert score("paper") < 0.5


def test_the_paper_is_every_layer_in_the_set() -> None:
    model = mlp(1, 2, 1)
    initialize_(model, recipe="paper", seed=0)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            expected = draw("stiefel", *parameter.shape, seed=0, name=name)
            np.testing.assert_allclose(parameter.detach(), expected, atol=1e-6)
        else:
            assert not parameter.any()


def test_attention_without_normalization_holds_together_too() -> None:
    class Bare(nn.Module):
        """Its projections read the input, and its output is the model's: they are ends and yet attention."""

        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(torch.softmax(self.q(x) @ self.k(x).mT, -1) @ self.v(x))

    in_a_row = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), Bare(), nn.Linear(8, 2))
    for model in (Bare(), in_a_row):
        initialize_(model, seed=0)
        bare: Any = model if isinstance(model, Bare) else model[4]
        torch.testing.assert_close(bare.k.weight, 0.7 * bare.q.weight)
        torch.testing.assert_close(bare.o.weight, -0.25 * bare.v.weight.T)


class Branches(nn.Module):
    """Residual blocks of two layers, with or without normalization; the first has a shortcut of its own."""

    def __init__(self, blocks: int, norm: type[nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(5, 16), nn.Linear(16, 3)
        self.short = nn.Linear(16, 16, bias=False)
        self.first, self.last = (nn.ModuleList(nn.Linear(16, 16) for _ in range(blocks)) for _ in range(2))
        self.norms = nn.ModuleList(norm(16) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        for place, (first, last, norm) in enumerate(zip(self.first, self.last, self.norms)):
            y = last(torch.relu(first(norm(x))))
            x = torch.relu((self.short(x) if place == 0 else x) + y)
        return self.head(x)


@pytest.mark.parametrize("inputs", [None, torch.ones(2, 5)], ids=["read", "watched"])
def test_ends_of_branches_without_normalization_are_scaled(inputs: Tensor | None) -> None:
    model = Branches(9)
    plan = initialize_(model, seed=0, inputs=inputs)
    for place in range(9):
        weight = model.get_parameter(f"last.{place}.weight").detach()
        torch.testing.assert_close(9 * weight @ weight.T, torch.eye(16), atol=1e-5, rtol=0)
        assert "one of 9 residual branches" in plan[f"last.{place}.weight"].reason
        assert not plan[f"first.{place}.weight"].reason
    assert check(model.short.weight.detach())
    signal = torch.rand(200, 5, generator=torch.Generator().manual_seed(0))
    deep, shallow = Branches(30), Branches(2)
    for other in (deep, shallow):
        initialize_(other, seed=0)
    with torch.no_grad():
        assert 0.2 < float(deep(signal).std() / shallow(signal).std()) < 5  # 1/√30 of members: 16 times


def test_branches_that_a_normalization_holds_are_left_as_they_are() -> None:
    plan = initialize_(Branches(9, nn.LayerNorm), seed=0)
    assert not any("branches" in row.reason for row in plan)
    assert not any("branches" in row.reason for row in initialize_(Branches(1), seed=0))


class Mixing(nn.Module):
    """One layer over channels, then one over tokens, with one of the ways to write a transpose."""

    def __init__(self, turn: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.turn = turn
        self.stem, self.norm = nn.Linear(4, 16), nn.LayerNorm(16)
        self.channels, self.tokens, self.back = nn.Linear(16, 16), nn.Linear(9, 12), nn.Linear(12, 9)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.channels(self.norm(x))
        x = x + self.turn(self.back(torch.relu(self.tokens(self.turn(self.norm(x))))))
        return self.head(self.norm(x).mean(1))


@pytest.mark.parametrize("inputs", [None, torch.ones(2, 9, 4)], ids=["read", "watched"])
@pytest.mark.parametrize("turn", [lambda x: x.mT, lambda x: x.transpose(1, 2), lambda x: x.permute(0, 2, 1)])
def test_layers_over_the_token_axis_have_no_preferred_direction(turn: Any, inputs: Tensor | None) -> None:
    model = Mixing(turn)
    plan = initialize_(model, seed=0, inputs=inputs)
    assert check(unit(model.channels.weight))
    for layer in (model.tokens, model.back):
        weight = unit(layer.weight)
        small = weight.T @ weight if len(weight) > weight.shape[1] else weight @ weight.T
        torch.testing.assert_close(small, torch.eye(9), atol=1e-5, rtol=0)
        assert not check(weight)
    assert "mixes tokens" in plan["tokens.weight"].reason
    assert "mixes tokens" not in plan["channels.weight"].reason


class Gated(nn.Module):
    """Two layers of gates, of an input or of tokens."""

    def __init__(self, kind: Any, *, tokens: bool = False, **options: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4) if tokens else nn.Identity()
        self.gates = kind(4, 32, 2, batch_first=True, **options)
        self.head = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gates(self.table(x))[0].mean(1))


@pytest.mark.parametrize("traced", [False, True])
def test_gates_get_the_whole_power_of_few_inputs(traced: bool) -> None:
    x = torch.randn(200, 3, 4, generator=torch.Generator().manual_seed(0))
    model = Gated(nn.LSTM, bidirectional=True)
    model(x)
    initialize_(model, seed=0, inputs=x if traced else None)
    for name in ("weight_ih_l0", "weight_ih_l0_reverse"):
        weight = getattr(model.gates, name).detach()
        for gate in weight.view(-1, 32, 4):
            torch.testing.assert_close(gate.T @ gate, 16 * torch.eye(4), rtol=0, atol=1e-4)
            assert not check(gate.numpy() / 4)
        assert (x @ weight.T).square().mean() == pytest.approx(2, rel=0.1)
    for name in ("weight_hh_l0", "weight_ih_l1", "weight_hh_l1"):
        matrices = getattr(model.gates, name).detach().view(-1, 32, 64 if name == "weight_ih_l1" else 32)
        assert all(has_no_direction(matrix) for matrix in matrices), name


def has_no_direction(matrix: Tensor) -> bool:
    """Whether it is semi-orthogonal, and no member of the set."""
    return bool(torch.linalg.svdvals(matrix).sub(1).abs().max() < 1e-5) and not check(matrix.numpy())


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (Gated(nn.LSTM, tokens=True), torch.zeros(2, 3, dtype=torch.long)),  # an embedding's numbers are large
        (Gated(nn.GRU), torch.zeros(2, 3, 4)),  # gains nothing
        (Gated(nn.RNN), torch.zeros(2, 3, 4)),  # has no gates
    ],
)
def test_other_recurrent_inputs_are_orthogonal(model: Gated, x: Tensor) -> None:
    model(x)
    initialize_(model, seed=0, inputs=x)
    weight = model.gates.weight_ih_l0
    assert isinstance(weight, Tensor)
    assert all(has_no_direction(gate) for gate in weight.detach().view(-1, 32, 4))


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # which is slow, says torch
def test_a_projected_state_is_no_input() -> None:
    model, x = Gated(nn.LSTM, proj_size=8), torch.zeros(2, 3, 4)
    model(x)
    initialize_(model, seed=0, inputs=x)
    for weight in (model.gates.weight_ih_l1, model.gates.weight_hh_l0):
        assert isinstance(weight, Tensor)
        assert all(has_no_direction(gate) for gate in weight.detach().view(4, 32, 8))


def test_the_state_of_a_relu_network_starts_near_the_identity() -> None:
    for module in (nn.RNN(3, 32, 2, nonlinearity="relu", bidirectional=True), nn.RNNCell(3, 32, nonlinearity="relu")):
        initialize_(module, seed=0)
        for name, weight in module.named_parameters():
            if name.startswith("weight_hh"):
                assert check(weight.detach())
                assert (
                    0.5 < float((weight.detach() - torch.eye(32)).norm()) < 1.3
                )  # 0.15 √32 = 0.85; of a random one, 8
    tanh = nn.RNN(3, 32)
    initialize_(tanh, seed=0)
    assert float((tanh.get_parameter("weight_hh_l0").detach() - torch.eye(32)).norm()) > 5


class Variational(nn.Module):
    """Returns what it decodes, and the code's mean and log-variance."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mean, self.variance = mlp(12, 3, 24, 24), nn.Linear(24, 3), nn.Linear(24, 3)
        self.decoder, self.head = nn.Linear(3, 24), mlp(24, 1, 12, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.relu(self.encoder(x))
        mean, variance = self.mean(hidden), self.variance(hidden)
        code = mean + torch.randn_like(mean) * (variance / 2).exp()
        return self.head(torch.relu(self.decoder(code))), mean, variance


def test_codes_ignore_the_common_level_and_their_readers_have_none_to_pass_on() -> None:
    widths = [16, 24, 24, 4, 24, 24, 24, 16]
    layers = [nn.Linear(n, m) for n, m in itertools.pairwise(widths)]
    rectified = [(layer,) if at in (2, 6) else (layer, nn.ReLU()) for at, layer in enumerate(layers)]
    plain = nn.Sequential(*itertools.chain.from_iterable(rectified))  # a code after the third
    variational = Variational()
    for model, codes, reader in (
        (plain, [layers[2]], layers[3]),
        (variational, [variational.mean, variational.variance], variational.decoder),
    ):
        plan = initialize_(model, seed=0)
        names = {module: name for name, module in model.named_modules()}
        for code in codes:
            assert "makes a code" in plan[f"{names[code]}.weight"].reason
            weight = code.weight.detach()
            torch.testing.assert_close(weight @ weight.T, torch.eye(len(weight)), atol=1e-6, rtol=0)
            assert abs(weight.sum(1)).max() < 1e-5
        assert "reads a code" in plan[f"{names[reader]}.weight"].reason
        weight = reader.weight.detach()
        torch.testing.assert_close(weight.T @ weight, 2 * torch.eye(weight.shape[1]), atol=1e-5, rtol=0)
        assert not check(weight.numpy() / math.sqrt(2))


@pytest.mark.parametrize("between", [nn.ReLU(), nn.LayerNorm(4)], ids=["rectified", "normalized"])
def test_what_is_rectified_or_normalized_is_no_code(between: nn.Module) -> None:
    model = nn.Sequential(
        nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4), between, nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2)
    )
    assert not any("code" in row.reason for row in initialize_(model, dry_run=True))


def test_factors_are_no_codes() -> None:
    """Two narrow layers in one row are a deep network of low rank, whose common level must get through."""
    pairs = [module for _ in range(3) for module in (nn.Linear(24, 4), nn.Linear(4, 24), nn.ReLU())]
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), *pairs, nn.Linear(24, 2))
    assert not any("code" in row.reason for row in initialize_(model, seed=0))
    assert all(check(module.weight.detach().numpy()) for module in pairs if isinstance(module, nn.Linear))


def test_an_autoencoder_trains_better_for_it() -> None:
    """Against all hidden layers in the set: twelve numbers made of three, 200 steps, the same rate; means of four."""
    generator = torch.Generator().manual_seed(0)
    sheet = torch.randn(256, 3, generator=generator)
    x = torch.tanh(sheet @ torch.randn(3, 12, generator=generator)) + 1
    losses: dict[str, list[float]] = {"codes": [], "members": []}
    for seed in range(4):
        for start, found in losses.items():
            torch.manual_seed(seed)
            model = Variational()
            initialize_(model, seed=seed)
            if start == "members":
                for name in ("mean", "variance", "decoder"):
                    layer = model.get_submodule(name)
                    assert isinstance(layer, nn.Linear)
                    initialize_(layer, "stiefel", seed=seed)
            adam = torch.optim.Adam(model.parameters(), lr=0.01)
            for _ in range(200):
                adam.zero_grad()
                made, mean, variance = model(x)
                divergence = (variance.exp() + mean**2 - 1 - variance).sum(1).mean() / 2
                loss = (made - x).square().sum(1).mean() + 0.05 * divergence
                loss.backward()
                adam.step()
            found.append(float(loss.detach()))
    assert sum(losses["codes"]) < 0.95 * sum(losses["members"]), losses
