"""The principles of the recipe, each on a small model as someone else would write it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stiefel_init import check
from stiefel_init.recipe import Plan
from stiefel_init.torch import initialize_

X = torch.linspace(-1, 1, 40).view(10, 4)


class RMSNorm(nn.Module):
    """As Llama has it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * (x.pow(2).mean(-1, keepdim=True) + 1e-6) ** -0.5


class Scaled(RMSNorm):
    """A normalization that is not called so."""


class Decoder(nn.Module):
    """One block with two queries for each key and a gated network."""

    def __init__(self, width: int = 32, norm: Any = RMSNorm, std: float = 0.02) -> None:
        super().__init__()
        self.num_heads, half = 4, width // 2
        self.table, self.norms = nn.Embedding(11, width), nn.ModuleList(norm(width) for _ in range(3))
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = nn.Linear(width, half, bias=False), nn.Linear(width, half, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down, self.generator = nn.Linear(2 * width, width, bias=False), nn.Linear(width, 11, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=std)

    def forward(self, ids: Tensor) -> Tensor:
        if ids.ndim != 2:  # which torch.fx cannot read
            raise ValueError("give a batch of sequences")
        x = self.table(ids)
        y = self.norms[0](x)
        shape = (*y.shape[:2], -1, y.shape[-1] // 4)
        q, k, v = (layer(y).view(shape).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        x = x + self.o_proj((torch.softmax(q @ k.mT, -1) @ v).transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        x = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return self.generator(self.norms[2](x))


def gain(weight: Tensor) -> float:
    """The size of a weight beside that of a semi-orthogonal matrix."""
    return float(weight.detach().norm()) / math.sqrt(min(weight.shape[0], weight[0].numel()))


def actions(plan: Plan) -> list[str]:
    return [row.action for row in plan]


@pytest.mark.parametrize("norm", [RMSNorm, Scaled, nn.LayerNorm])
def test_a_decoder_is_the_same_with_and_without_inputs(norm: Any) -> None:
    torch.manual_seed(0)
    model = Decoder(norm=norm)
    plan = initialize_(model, seed=0)
    assert actions(plan) == actions(initialize_(model, seed=0, inputs=torch.zeros(2, 5, dtype=torch.long)))
    assert not any("stem" in row.reason for row in plan)
    assert plan["generator.weight"].reason.startswith("head")
    assert plan["norms.0.weight"].action == ("ones" if norm is nn.LayerNorm else "left alone")


def test_the_first_query_of_each_group_is_what_its_key_looks_for() -> None:
    model = Decoder()
    initialize_(model, seed=0)
    queries = model.q_proj.weight.detach().view(2, 2, 8, 32)
    torch.testing.assert_close(model.k_proj.weight.view(2, 8, 32), 0.7 * queries[:, 0])
    assert not torch.allclose(queries[:, 1], queries[:, 0], atol=0.1)
    assert check(queries[:, 1].reshape(16, 32))


def test_branches_are_almost_silent_beside_a_stream_of_small_embeddings() -> None:
    model = Decoder()
    plan = initialize_(model, seed=0)
    for name in ("o_proj", "down"):
        assert gain(getattr(model, name).weight) == pytest.approx(0.15 * 0.02, rel=0.2)
        assert "beside a signal of size 0.02" in plan[f"{name}.weight"].reason
    large = Decoder()
    nn.init.normal_(large.table.weight)
    initialize_(large, seed=0)
    assert gain(large.down.weight) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize(("std", "expected"), [(0.02, 1.0), (0.1, 0.1 * math.sqrt(64)), (1.0, 1.0)])
def test_the_size_at_a_normalization_is_the_authors_unless_it_is_poor(std: float, expected: float) -> None:
    """Of 64 × 32, 0.02 was made for wider layers; 1 would let nothing but its own size through."""
    for seed in range(2):  # whatever was drawn
        torch.manual_seed(seed)
        model = Decoder(std=std)
        initialize_(model, seed=0)
        assert gain(model.up.weight) == pytest.approx(expected, rel=0.03)
        assert check(model.up.weight.detach() / gain(model.up.weight))


def test_sizes_are_the_same_whatever_the_author_drew_and_when_drawn_again() -> None:
    weights = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
        for _ in range(2):
            plan = initialize_(model, seed=0)
            weights.append(model.get_parameter("0.weight").detach().clone())
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    assert gain(weights[0]) == pytest.approx(1 / math.sqrt(3), rel=1e-4)
    assert plan["0.weight"].action == "orthogonal 8×27 × 0.577"


class Sums(nn.Module):
    """A short residual network without normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(1, 16), nn.Linear(16, 1)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = x + block(torch.relu(x))
        return self.head(x)


@pytest.mark.parametrize(
    "make",
    [Decoder, Sums, lambda: Decoder(std=0.1), lambda: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))],
)
def test_what_was_drawn_is_drawn_again(make: Any) -> None:
    model = make()
    initialize_(model, seed=0)
    first = [parameter.clone() for parameter in model.parameters()]
    initialize_(model, seed=1)
    initialize_(model, seed=0)
    for parameter, before in zip(model.parameters(), first):
        torch.testing.assert_close(parameter, before, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, lambda size: nn.GroupNorm(2, size)])
def test_beside_statistics_of_each_channel_no_direction_is_preferred(norm: Any) -> None:
    parts = [part for _ in range(3) for part in (nn.Conv2d(8, 8, 1), norm(8), nn.ReLU())]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm(8), nn.ReLU(), *parts, nn.Flatten(), nn.LazyLinear(2))
    model(torch.ones(2, 3, 5, 5))
    initialize_(model, seed=0)
    weight = model.get_parameter("6.weight").detach().flatten(1) * math.sqrt(3)
    torch.testing.assert_close(weight @ weight.T, torch.eye(8), atol=1e-5, rtol=0)
    assert not check(weight)


def test_what_is_zero_small_at_a_head_or_made_for_sines_stays() -> None:
    class Sine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(30 * x)

    class Meant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.norm, self.last = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 16)
            self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.norm.weight)
            nn.init.orthogonal_(self.policy.weight, 0.01)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = torch.relu(self.body(x))
            x = x + self.last(torch.relu(self.norm(x)))
            return self.policy(x), self.value(x)

    model = Meant()
    before = {name: value.clone() for name, value in model.named_parameters()}
    plan = initialize_(model, seed=0)
    for name in ("last.weight", "last.bias", "norm.weight", "policy.weight", "policy.bias"):
        assert torch.equal(model.get_parameter(name), before[name])
        assert plan[name].action == "left alone"
        assert "as its author made it" in plan[name].reason
    assert plan["value.weight"].action.startswith("centred")
    waves = nn.Sequential(nn.Linear(2, 16), Sine(), nn.Linear(16, 16), Sine(), nn.Linear(16, 1))
    old = [parameter.clone() for parameter in waves.parameters()]
    assert {row.reason for row in initialize_(waves, seed=0)} == {"made for sines by its author"}
    assert all(torch.equal(a, b) for a, b in zip(waves.parameters(), old))
    nothing = nn.Linear(4, 4)
    nn.init.zeros_(nothing.weight)
    initialize_(nothing, seed=0)
    assert nothing.weight.any()  # a model of zeros alone is not meant to stay so


def test_a_short_plain_network_has_the_authors_sizes_and_no_preferred_direction() -> None:
    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    for seed in range(2):
        torch.manual_seed(seed)
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        initialize_(model, seed=0)
        weight = model.get_parameter("2.weight").detach() * math.sqrt(3)
        torch.testing.assert_close(weight @ weight.T, torch.eye(32), atol=1e-5, rtol=0)
        assert not check(weight)
        assert model.get_parameter("2.bias").detach().std(correction=0) == pytest.approx(
            1 / math.sqrt(3 * 32), rel=1e-3
        )


class Field(nn.Module):
    """Eight layers behind coordinates, which are joined again half-way."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [2, 16, 16, 16, 18, 16, 16, 16]
        self.layers, self.head = nn.ModuleList(nn.Linear(n, 16) for n in sizes), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for place, layer in enumerate(self.layers):
            y = torch.relu(layer(torch.cat([y, x], -1) if place == 4 else y))
        return self.head(y)


def test_a_field_of_coordinates_has_no_common_level() -> None:
    model = Field()
    plan = initialize_(model, seed=0)
    for place in (1, 4, 7):
        assert plan[f"layers.{place}.weight"].action.startswith("orthogonal")


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_units_of_one_input_differ(kind: Any) -> None:
    model = nn.ModuleDict({"recurrent": kind(1, 8), "head": nn.Linear(8, 1)})
    initialize_(model, seed=0)
    gate = model.get_parameter("recurrent.weight_ih_l0").detach()[:8, 0]
    assert len(set(gate.tolist())) == 8


def test_a_sum_with_what_reads_something_else_ends_no_branch() -> None:
    class Timed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(4, 16), nn.Linear(16, 4)
            self.times = nn.ModuleList(nn.Linear(1, 16) for _ in range(3))
            self.first, self.last = (nn.ModuleList(nn.Linear(16, 16) for _ in range(3)) for _ in range(2))

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            x = self.stem(x)
            for time, first, last in zip(self.times, self.first, self.last):
                x = x + last(torch.relu(first(x) + time(t)))
            return self.head(x)

    plan = initialize_(Timed(), seed=0)
    branches = [row.name for row in plan if "branches" in row.reason]
    assert branches == [f"last.{place}.weight" for place in range(3)]


def test_only_layers_between_two_turns_mix_tokens() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.norm = nn.Linear(4, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)
            self.over, self.head = nn.Linear(9, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            x = torch.relu(edges @ self.first(x))
            x = self.norm(self.second(edges @ x).transpose(1, 2)).transpose(1, 2)
            return self.head(torch.relu(self.over((x @ x.transpose(1, 2)).flatten(1))))

    for inputs in (None, (torch.ones(2, 3, 4), torch.ones(2, 3, 3))):
        assert not any("tokens" in row.reason for row in initialize_(Graph(), seed=0, inputs=inputs))


@pytest.mark.parametrize("act", [nn.ReLU6(), lambda x: nn.functional.relu6(x)], ids=["module", "function"])
def test_relu6_is_one_activation(act: Any) -> None:
    class Six(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.act = nn.Linear(4, 16, bias=False), nn.Linear(16, 2), act

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.act(self.a(x)))

    assert actions(initialize_(Six(), seed=0)) == actions(initialize_(Six(), seed=0, inputs=X))


class Own(nn.Linear):
    """A linear layer whose forward is its author's."""

    def __init__(self, changed: Any) -> None:
        super().__init__(4, 4)
        self.changed = changed

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.changed(self.weight), self.bias)


@pytest.mark.parametrize("traced", [True, False])
def test_a_weight_that_its_layer_changes_before_use_stays(traced: bool) -> None:
    """By masks, scales or standardization it is not the matrix that the signal meets; a cast or a view of it is."""
    mask = torch.ones(4, 4).tril()
    ways = [
        lambda w: w * mask,
        lambda w: w / w.norm(),
        lambda w: (w - w.mean()) * 2,
        lambda w: w.to(X.dtype).view(4, 4),
    ]
    model = nn.Sequential(*(part for way in ways for part in (Own(way), nn.ReLU())), nn.Linear(4, 2))
    plan = initialize_(model, inputs=X if traced else None)
    left = [plan[f"{at}.weight"].action == "left alone" for at in (0, 2, 4, 6)]
    assert left == [plan[f"{at}.bias"].action == "left alone" for at in (0, 2, 4, 6)] == [True, True, True, False]


def test_what_follows_a_pattern_stays() -> None:
    """An identity, biases against a rare class, forget gates that are open, gains of one half; random ones do not."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.eye_(model.get_parameter("3.weight"))
    nn.init.constant_(model.get_parameter("5.bias"), -4.6)
    nn.init.constant_(model.get_parameter("1.weight"), 0.5)
    plan = initialize_(model)
    assert {row.name for row in plan if row.action == "left alone"} == {"1.weight", "3.weight", "3.bias", "5.bias"}
    memory = nn.LSTM(4, 8)
    bias = memory.get_parameter("bias_hh_l0")
    nn.init.zeros_(bias)
    nn.init.ones_(bias[8:16])
    plan = initialize_(memory)
    assert (plan["bias_ih_l0"].action, plan["bias_hh_l0"].action) == ("zeros", "left alone")
    assert bias.detach().view(4, 8).mean(1).tolist() == [0, 1, 0, 0]


def test_gates_keep_their_authors_size_in_no_preferred_direction() -> None:
    """A highway layer: what it lets through and how much multiply each other."""

    class Highway(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.new, self.gate = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            share = torch.sigmoid(self.gate(x))
            return share * torch.relu(self.new(x)) + (1 - share) * x

    layers = [Highway() for _ in range(10)]
    plan = initialize_(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), *layers, nn.Linear(16, 3)), seed=0)
    for weight in (layers[3].new.weight, layers[3].gate.weight):
        assert torch.allclose(weight @ weight.T, torch.eye(16) / 3, atol=1e-5)  # PyTorch's size
        assert not torch.allclose(weight.sum(1), weight.sum(1).mean().expand(16), atol=0.1)
    assert plan["5.gate.weight"].reason == "multiplies another signal: its author's size"


def test_weights_far_below_those_of_other_layers_stay() -> None:
    """As those that weigh the places of a gated network, which begins without them."""
    layers = [nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 2)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    nn.init.uniform_(layers[1].weight, -1e-4, 1e-4)
    before = layers[1].weight.clone()
    assert initialize_(model)["2.weight"].reason == "small, as its author made it"
    assert torch.equal(layers[1].weight, before)
    for layer in layers:
        nn.init.uniform_(layer.weight, -1e-4, 1e-4)  # a whole model so small is not meant to be
    assert not initialize_(model)["2.weight"].reason.startswith("small")


def test_a_kernel_at_its_centre_alone_is_no_pattern() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))
    initialize_(model, recipe="paper", seed=0)
    assert (model.get_parameter("2.weight") == 0).float().mean() > 0.8
    initialize_(model, seed=0)
    assert bool((model.get_parameter("2.weight") != 0).all())


@pytest.mark.parametrize("draw", [nn.init.xavier_uniform_, nn.init.kaiming_normal_])
def test_small_layers_follow_the_rule_that_fits_the_model(draw: Any) -> None:
    heads = []
    for seed in range(20):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
        for name in ("0.weight", "2.weight", "4.weight"):
            draw(model.get_parameter(name))
        initialize_(model, seed=0)
        heads.append(model.get_parameter("4.weight").detach().clone())
    assert all(torch.equal(head, heads[0]) for head in heads)


class Opaque(nn.Module):
    """A model that is called with two tensors at once, which nobody can guess."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.act = nn.Linear(3, 16), nn.ReLU()
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.o2 = nn.Linear(16, 1)

    def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:
        if not isinstance(both, tuple):
            raise TypeError("give two tensors")  # to torch.fx too
        return self.o2(self.act(self.block(self.read(torch.cat(both, -1)))))


def test_a_model_that_nobody_can_run_is_read_as_with_inputs() -> None:
    models = Opaque(), Opaque()
    for model, inputs in zip(models, (None, ((torch.randn(2, 5, 1), torch.randn(2, 5, 2)),))):
        plan = initialize_(model, inputs=inputs, seed=0)
        assert plan["o2.weight"].reason.startswith("head: ")
    for name in ("block.self_attn.in_proj_weight", "block.self_attn.out_proj.weight"):
        torch.testing.assert_close(*(model.get_parameter(name) for model in models))


class Tied(Opaque):
    """The same, of words, whose head is their table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.o2 = nn.Embedding(9, 16), nn.Linear(16, 9, bias=False)
        self.o2.weight = self.table.weight


def test_where_the_head_is_a_table_the_layer_before_is_none() -> None:
    plan = initialize_(Tied(), seed=0)
    assert [row.name for row in plan.rows if "head: " in row.reason] == []
    assert plan["block.linear2.weight"].action.startswith(("stiefel", "orthogonal"))
