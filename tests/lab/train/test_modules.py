"""Networks that are modules, against an ordinary loop; their images, their records, and what they refuse."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_refused
from laboratory import RNG, SETS, Cli, refused, timeless
from laboratory import small_network as cell
from torch import nn

from stiefel_init.lab.train import convolutional, training
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.convolutional import Blueprint, own, size_of
from stiefel_init.lab.train.modules import Modules, Pictures, SlotEngine
from stiefel_init.lab.train.problem import Problem, Problems
from stiefel_init.lab.train.record import Outcome
from stiefel_init.lab.train.runner import check, run
from stiefel_init.lab.train.training import train
from stiefel_init.torch import initialize_, param_groups

CPU = torch.device("cpu")


def problem_of(one: Cell) -> Problem:
    """What it learns."""
    return Problems(SETS)(one)


def trained(cells: Sequence[Cell], **options: Any) -> list[Outcome]:
    """The outcomes of a stack."""
    return train(cells, [problem_of(one) for one in cells], CPU, **options)[0]


@pytest.fixture(autouse=True)
def _own_networks() -> Iterator[None]:
    """Those of a test are forgotten."""
    before = dict(convolutional.OWN)
    yield
    convolutional.OWN.clear()
    convolutional.OWN.update(before)


@pytest.fixture
def own_network(tmp_path: Path) -> Callable[..., str]:
    """Puts a function body into a file; the name that cells have for it."""

    def write(body: str, file: str = "net.py") -> str:
        (tmp_path / file).write_text(f"from torch import nn\nimport torch\n\n\ndef make():\n    {body}\n")
        return own(f"{tmp_path / file}:make")[0]

    return write


# Training.


def plainly(one: Cell, augmented: Callable[[Modules, int, int], torch.Tensor] | None = None) -> list[float]:
    """The mean training losses of each epoch, of the same network in an ordinary loop."""
    problem = problem_of(one)
    stack = Modules([one], [problem], CPU)  # for its order
    pixels = problem.features / 255.0
    if problem.image:
        pixels = pixels.reshape(-1, *problem.image)
        pixels = (pixels - pixels.mean((0, 2, 3), keepdims=True)) / pixels.std((0, 2, 3), keepdims=True)
    x, y = torch.tensor(pixels, dtype=torch.float32), torch.from_numpy(problem.targets)
    torch.manual_seed(one.seed)
    model = Blueprint.of(one, problem).build()
    initialize_(model, one.scheme, seed=one.seed)
    groups: Any = model.parameters()
    if one.groups:
        groups = param_groups(model, one.rate, weight_decay=one.decay)
    kind = torch.optim.AdamW if one.optimizer == "adam" else torch.optim.SGD
    optimizer = kind(groups, lr=one.rate, weight_decay=one.decay)
    base = [group["lr"] for group in optimizer.param_groups]
    means, steps = [], one.epochs * (80 // 16)
    warm = math.ceil(0.1 * steps) if one.warmup is None else round(one.warmup * 5)
    for epoch in range(one.epochs):
        stack.shuffle(epoch)
        losses = []
        for at in range(80 // 16):
            step = 5 * epoch + at
            share = (step + 1) / warm if step < warm else (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2
            for group, lr in zip(optimizer.param_groups, base):
                group["lr"] = lr * (share if one.schedule == "cosine" else 1)
            rows = stack.order[0, 16 * at : 16 * at + 16]
            inputs = x[rows] if augmented is None else augmented(stack, 16 * at, 16 * at + 16)
            loss = nn.functional.cross_entropy(model(inputs), y[rows], label_smoothing=one.smoothing)
            optimizer.zero_grad()
            loss.backward()
            if one.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), one.clip)
            optimizer.step()
            losses.append(loss.item())
        means.append(sum(losses) / 5)
    return means


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scheme": "recipe", "decay": 0.1, "clip": 0.5, "schedule": "cosine"},
        {"schedule": "cosine", "warmup": 0.6, "smoothing": 0.2},
        {"scheme": "recipe", "groups": True, "decay": 0.1, "rate": 0.003},
        {"network": "resnet8", "epochs": 3},
        {"network": "resnet8-nobn", "scheme": "recipe"},
        {"network": "vgg11", "activation": "elu"},
        {"network": "cnn-bn", "activation": "tat", "scheme": "he"},
        {"optimizer": "sgd", "rate": 0.05},
        {"scheme": "torch", "seed": 7},
    ],
)
def test_an_engine_of_slots_trains_as_an_ordinary_loop(options: dict[str, Any]) -> None:
    one = cell(**options)
    (outcome,) = trained([one])
    assert outcome.train_loss == pytest.approx(plainly(one), rel=2e-4)


def test_cut_images_are_those_that_are_trained_on() -> None:
    one = cell(augment="crop-flip", epochs=3)
    (outcome,) = trained([one])
    assert outcome.train_loss == pytest.approx(
        plainly(one, lambda *given: Modules.batch_of(given[0], 0, *given[1:])[0]), rel=2e-4
    )
    assert outcome.train_loss != trained([replace(one, augment="none")])[0].train_loss


def test_the_ends_of_a_module_learn_at_a_rate_of_their_own() -> None:
    """The first step of Adam is as long as the rate."""
    one = cell(batch=None, epochs=1, ends=3.0, scheme="recipe")
    stack = Modules([one], [problem_of(one)], CPU)
    before = [parameter.detach().clone() for parameter in stack.models[0].parameters()]
    engine = SlotEngine(stack)
    engine.epoch()
    moved = [float((new.detach() - old).abs().max()) for new, old in zip(stack.models[0].parameters(), before)]
    assert moved == pytest.approx([0.03, 0.03, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.03, 0.03], rel=0.01)


def test_weights_are_those_of_initialize_and_what_it_leaves_is_of_the_seed(own_network: Callable[..., str]) -> None:
    plain = cell(scheme="recipe", seed=3)
    network = own_network("return nn.Sequential(nn.Flatten(), nn.Linear(192, 3), nn.Hardtanh(), nn.PReLU(3, 0.1))")
    for one in (plain, replace(plain, network=network, scheme="he")):
        problem = problem_of(one)
        stack = Modules([one, replace(one, seed=4)], [problem, problem], CPU)
        expected = Blueprint.of(one, problem).build()
        initialize_(expected, one.scheme, seed=3)
        assert all(map(torch.equal, stack.models[0].parameters(), expected.parameters()))
        assert not torch.equal(next(stack.models[0].parameters()), next(stack.models[1].parameters()))


def test_what_calibrates_measures_the_training_rows() -> None:
    one = cell(scheme="lsuv")
    stack = Modules([one], [problem_of(one)], CPU)
    images = stack.as_inputs(0, stack.data.inputs(stack.data.features[stack.calibration_rows()[0]]))
    first = stack.models[0].get_submodule("0.conv")(images)
    assert float(first.detach().std()) == pytest.approx(1, rel=1e-3)


def test_half_precision_is_in_the_record_and_near_to_the_whole() -> None:
    one = cell(epochs=1)
    half = trained([replace(one, precision="bfloat16")])[0].train_loss[0]
    assert 0 < abs(half - trained([one])[0].train_loss[0]) < 0.05


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("network", ["cnn", "resnet8"])
def test_a_captured_step_is_the_step(network: str) -> None:
    cells = [cell(network=network, augment="crop-flip", clip=1.0, seed=seed) for seed in range(3)]
    problems = [problem_of(one) for one in cells]
    for here, there in zip(trained(cells), train(cells, problems, torch.device("cuda"))[0]):
        assert there.train_loss == pytest.approx(here.train_loss, rel=1e-2)


# Networks.


@pytest.mark.parametrize(
    ("network", "depth", "layers"),
    [("cnn", 5, 5), ("cnn", 20, 20), ("cnn", 21, 21), ("vgg16", 1, 14), ("vgg11", 1, 9), ("resnet20", 1, 22)],
)
def test_a_network_has_the_layers_of_its_name(network: str, depth: int, layers: int) -> None:
    """VGG has one linear layer here and not three; a residual network two shortcuts with weights."""
    for suffix in ("", "-nobn" if network.startswith("resnet") else "-bn"):
        one = cell(network=network + suffix, depth=depth)
        model = Blueprint.of(one, problem_of(one)).build()
        assert sum(isinstance(each, nn.Conv2d | nn.Linear) for each in model.modules()) == layers
        normalized = any(isinstance(each, nn.BatchNorm2d) for each in model.modules())
        assert normalized == (suffix == "-bn" or one.network == "resnet")
        assert Cell(network=one.network, dataset="pictures", depth=one.depth) == replace(
            one, scheme="stiefel", width=64, epochs=20, batch=256, rate=0.001
        )


def test_the_size_of_a_network() -> None:
    one = cell(depth=5, width=4)
    size = size_of(one, problem_of(one))
    assert size.parameters == sum(n * m * 9 + m for n, m in ((3, 4), (4, 4), (4, 8), (8, 16))) + 16 * 3 + 3
    assert size.products == 9 * (64 * (12 + 16) + 16 * 32 + 4 * 128) + 48
    assert size.largest == 256


# Images.


def test_images_are_cut_out_of_a_mirrored_frame() -> None:
    """Against NumPy's own padding; all cuts and flips occur, each as often as it should (false alarms: 1 in 10⁶)."""
    features = RNG.integers(0, 256, (40, 3 * 16 * 24), np.uint8)
    problem = Problem(features, RNG.integers(2, size=40), features, RNG.integers(2, size=40), 2, "cross_entropy", 255.0)
    pictures = Pictures(replace(problem, image=(3, 16, 24)), torch.from_numpy(features))
    images = features.reshape(40, 3, 16, 24) / 255
    images = (images - images.mean((0, 2, 3), keepdims=True)) / images.std((0, 2, 3), keepdims=True)
    frames = np.pad(images, ((0, 0), (0, 0), (2, 2), (3, 3)), mode="reflect")
    chosen = torch.arange(40).repeat(50)
    lots = torch.randint(-(2**31), 2**31, (2000,), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    seen = Counter[tuple[int, int, bool]]()
    places = [(down, right, flipped) for down in range(5) for right in range(7) for flipped in (False, True)]
    for row, image in zip(chosen.tolist(), pictures.batch(chosen, lots.int(), "crop-flip").numpy()):
        cuts = [
            (down, right, flipped)
            for down, right, flipped in places
            for cut in [frames[row][:, down : down + 16, right : right + 24]]
            if np.allclose(cut[:, :, ::-1] if flipped else cut, image, atol=1e-5)
        ]
        assert len(cuts) == 1
        seen[cuts[0]] += 1
    assert len(seen) == 70
    assert max(abs(count - 2000 / 70) for count in seen.values()) < 6 * (2000 / 70) ** 0.5
    whole = pictures.batch(torch.arange(40), torch.arange(40).int(), "none")
    assert np.allclose(whole, images, atol=1e-5)
    assert torch.allclose(whole, pictures.standardized(torch.from_numpy(features) / 255.0), atol=1e-5)


# Records, pages, watching.


def test_records_of_modules_are_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell(seed=seed, clip=1.0, augment="flip", groups=True) for seed in range(3)]
    first = run(cells, out=tmp_path, device="cpu", datasets=SETS)
    assert {record.environment["engine"] for record in first} == {"slots"}
    assert len(first[0].test_score) == 2
    monkeypatch.setattr(training, "pick_engine", None)
    assert timeless(run(cells, out=tmp_path, device="cpu", datasets=SETS)) == timeless(first)
    assert "clip" not in Cell("digits").identity()
    assert Cell.from_dict(cells[0].identity()) == cells[0]


def test_a_study_of_convolutional_networks_has_a_page(stiefel_init: Cli, tmp_path: Path) -> None:
    options = "--network resnet8-nobn --width 2 --scheme recipe,he --epochs 1 --clip 1 --augment crop --warmup 0.5"
    command = ["train", *options.split(), "--schedule", "cosine", "--param-groups"]
    done = stiefel_init(*command, "--out", "study", "--watch")
    assert done.code == 0
    (page,) = (tmp_path / "study").glob("digits-*/index.html")
    told = ("residual networks without normalization, 2 channels", "at most 1.", "mirrored frame", "0.5 of an epoch")
    for words in (*told, "1 × 0.001, the same", "param_groups"):
        assert words in page.read_text()
    assert len(list((tmp_path / "study" / "watch").glob("*.html"))) == 2


def test_a_network_of_the_users_own(stiefel_init: Cli, tmp_path: Path) -> None:
    """Images go to it as images, or as rows if that is what it takes; its file's content is in its name."""
    body = "def make():\n    return nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))\n"
    (tmp_path / "net.py").write_text(f"from torch import nn\n{body}")
    command = ["train", "--network", "net.py:make", "--scheme", "he", "--epochs", "1", "--device", "cpu"]
    assert stiefel_init(*command).code == 0
    assert "1 of them finished; 0 to train" in stiefel_init(*command, "--dry-run").out
    (tmp_path / "net.py").write_text(f"from torch import nn\n{body}# changed\n")
    assert "0 of them finished; 1 to train" in stiefel_init(*command, "--dry-run").out


# What is refused.

REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown": ({"network": "cnnn"}, ("network='cnnn'", "did you mean 'cnn'?")),
    "vgg": ({"network": "vgg12"}, ("12 layers", "11, 13, 16 or 19")),
    "resnet": ({"network": "resnet", "depth": 21}, ("21 layers", "8, 14, 20")),
    "shallow": ({"depth": 4}, ("4 layers", "5 or more")),
    "on the set": ({"optimizer": "stiefel-adam", "scheme": "stiefel"}, ("stiefel-adam", "give 'adam' or 'sgd'")),
    "dropout": ({"dropout": 0.1}, ("dropout=0.1", "of your own")),
    "widths": ({"width": (4, 4, 4, 4, 4)}, ("channels of the first stage",)),
    "augment": ({"augment": "turn"}, ("augment='turn'", "crop-flip")),
    "clip": ({"clip": -1}, ("clip=-1.0", "positive")),
    "smoothing": ({"smoothing": 1}, ("smoothing=1.0",)),
    "warm-up": ({"warmup": 1}, ("warmup=1", "schedule='cosine'")),
    "a perceptron": ({"network": "mlp", "clip": 1}, ("clip=1.0", "not for perceptrons")),
    "a perceptron's groups": ({"network": "mlp", "groups": True}, ("groups=True", "not for perceptrons")),
    "a perceptron in half": ({"network": "mlp", "precision": "bfloat16"}, ("bfloat16", "not for perceptrons")),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_a_cell_that_makes_no_sense_is_refused(options: dict[str, Any], words: tuple[str, ...]) -> None:
    assert_refused(lambda: cell(**options), words)


def test_what_cannot_be_trained_is_refused_before_anything_is(own_network: Callable[..., str]) -> None:
    def refused_by_check(words: Sequence[str], **options: Any) -> None:
        cells = [cell(**options)]
        assert_refused(lambda: check(cells, Problems(SETS), CPU), words)

    refused_by_check(["needs images", "numbers has none"], dataset="numbers")
    refused_by_check(["fixup"], scheme="fixup")
    wrong = own_network("return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))")
    refused_by_check(["net.py:make", "(2, 4)", "must be (2, 3)"], network=wrong)
    refused_by_check(["does not take inputs of shape (2, 3, 8, 8)"], network=own_network("return nn.Linear(5, 3)"))
    refused_by_check(["no parameter"], network=own_network("return nn.Sequential(nn.Flatten(), nn.MaxPool1d(64))"))
    refused_by_check(["as tuple"], network=own_network("return nn.LSTM(4, 3)"), dataset="numbers")
    refused_by_check(["not known here"], network="net.py:make@00000000")
    one = cell()
    assert_refused(lambda: check([one], Problems(SETS), CPU, "fused"), ["engine='fused'", "network='cnn'"])
    assert_refused(lambda: check([replace(one, network="mlp")], Problems(SETS), CPU, "slots"), ["network='mlp'"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("def make(:\n", ("net.py raised SyntaxError",)),
        ("make = 3\n", ("of type int",)),
        ("def make():\n    return 3\n", ("of type int", "torch.nn.Module")),
        ("def make():\n    raise OSError('no disk')\n", ("raised OSError (no disk)",)),
        ("x = 1\n", ("has no make",)),
    ],
)
def test_a_file_that_builds_nothing_is_one_sentence(
    content: str, words: tuple[str, ...], stiefel_init: Cli, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(content)
    refused(stiefel_init("train", "--network", "net.py:make", "--out", "study"), *words)
    assert not (tmp_path / "study").exists()


def test_networks_of_the_users_own_travel_to_nodes(own_network: Callable[..., str]) -> None:
    pytest.importorskip("ray")
    from stiefel_init.lab.train import cluster

    one = cell(network=own_network("return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))", "travels.py"))
    pickled = cluster.pickle_registered()
    del convolutional.OWN[one.network]
    cluster._register(pickled)
    assert isinstance(Blueprint.of(one, problem_of(one)).build(), nn.Sequential)
