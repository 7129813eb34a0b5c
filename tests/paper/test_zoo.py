"""The zoo: every network builds and takes a step from each initialization; halves, rates and verdicts follow rules."""

from __future__ import annotations

import copy
import csv
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paper.experiment import Options
from paper.results import Results
from paper.zoo.catalogue import ENTRIES, entries
from paper.zoo.entry import ARMS, AUTHOR, OURS, SCHEDULES, Learner, begin_, half, outputs
from paper.zoo.runs import TUNING, Job, Trainer, best_rate, further, left
from paper.zoo.search import FullSearch, summaries
from paper.zoo.search import Outcome as Searched
from paper.zoo.study import DROP_IN, Zoo, found

from stiefel_init.torch import diagnose, initialize_, param_groups, watch


def test_the_hash_of_the_name_decides_the_half() -> None:
    for name in ENTRIES:
        assert half(name) == ("report" if hashlib.sha256(name.encode()).digest()[0] % 2 else "choosing")
    assert entries("choosing").keys() | entries("report").keys() == entries().keys()
    assert not entries("choosing").keys() & entries("report").keys()
    assert len({entry.kind for entry in ENTRIES.values()}) >= 20
    assert {row["network"] for name in ("zoo-cpu", "find-start") for row in Results().table(name)} <= ENTRIES.keys()


@pytest.fixture(autouse=True)
def little_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images, text and people that need no file."""
    from paper.zoo import pictures, relations, sequences

    generator = torch.Generator().manual_seed(0)
    images = tuple((torch.rand(90, 1, 28, 28, generator=generator), torch.randint(10, (90,))) for _ in range(2))
    people = tuple((torch.randn(600, 14, generator=generator), torch.randint(2, (600,))) for _ in range(2))
    monkeypatch.setattr(pictures, "_images", lambda name, directory: images)
    monkeypatch.setattr(sequences, "_characters", lambda directory: torch.randint(96, (5000,), generator=generator))
    monkeypatch.setattr(relations, "_people", lambda directory: people)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of DeBERTa's module
@pytest.mark.parametrize("name", entries())
def test_every_network_takes_a_step_from_each_initialization(name: str) -> None:
    entry, made = ENTRIES[name], {}
    train_part, test_part = (tuple(each[:20] for each in part) for part in entry.task.data(False, None))
    for arm in ARMS:
        torch.manual_seed(0)
        learner = Learner(entry, False)
        begin_(learner.net, arm, entry.gain, entry.task.inputs(train_part))
        made[arm] = torch.cat([parameter.detach().flatten() for parameter in learner.net.parameters()])
        parameters = [each for each in learner.parameters() if each.requires_grad]
        loss = learner(train_part)
        loss.backward()
        entry.optimizer(parameters, lr=torch.tensor(entry.rates[0]), gpu=False).step()
        with torch.no_grad():
            assert loss.isfinite()
            assert learner.eval().score(test_part).isfinite()
    assert not any(torch.equal(made[AUTHOR], made[arm]) for arm in ("he", "orthogonal"))
    listed = [id(each) for group in param_groups(learner.net, 1e-3) for each in group["params"]]
    assert sorted(listed) == sorted(id(each) for each in learner.net.parameters() if each.requires_grad)


def plainly(job: Job, steps: int) -> list[float]:
    """A run as a user would write it."""
    entry, found = ENTRIES[job.network], []
    data, test = entry.task.data(False, None)
    torch.manual_seed(job.seed)
    learner = Learner(entry, False)
    begin_(learner.net, job.start, entry.gain, entry.task.inputs(tuple(each[:16] for each in data)))
    adam, batch = torch.optim.AdamW(learner.parameters(), weight_decay=0.0), entry.batch[0]
    order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(job.seed))
    for step in range(steps):
        adam.param_groups[0]["lr"] = job.rate * float(SCHEDULES[entry.schedule](torch.tensor(step / steps)))
        adam.zero_grad()
        learner(tuple(each[order[step * batch :][:batch]] for each in data)).backward()
        adam.step()
        if step + 1 in (steps // 2, steps):
            with torch.no_grad():
                found.append(float(learner.eval().score(test)))
            learner.train()
    return found


@pytest.fixture
def deep_set() -> Trainer:
    return Trainer(ENTRIES["deep set"], torch.device("cpu"), quick=True)


def test_a_run_is_the_training_as_users_write_it_whatever_was_trained_before(deep_set: Trainer) -> None:
    for job, steps in ((Job("deep set", OURS, 1e-3, 0), 6), (Job("deep set", AUTHOR, 1e-2, TUNING), 3)) * 2:
        assert deep_set.train(job) == pytest.approx(plainly(job, steps), abs=2e-3)


def test_a_run_depends_on_how_it_begins_and_a_diverged_one_has_the_score_of_chance(deep_set: Trainer) -> None:
    starts = (*((arm, 0) for arm in ARMS), (OURS, 1))
    assert len({tuple(deep_set.train(Job("deep set", arm, 1e-3, seed))) for arm, seed in starts}) == len(starts)
    chance = ENTRIES["deep set"].task.metric.chance
    assert deep_set.train(Job("deep set", OURS, 1e30, 0)) == [chance, chance]


def test_the_zoo_trains_what_is_left_of_a_network_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    study, options = Zoo(["deep set"]), Options(tmp_path, quick=True, device="cpu", minutes=0)
    study.run(options)
    assert not (tmp_path / "zoo-quick.csv").exists(), "no run is begun after the time"
    study.run(replace(options, minutes=None))
    path = tmp_path / "zoo-quick.csv"
    text = path.read_text()
    runs = Zoo().read(Results(tmp_path).table("zoo-quick"))
    assert {job.start for job in runs} == set(ARMS)
    assert {job.seed for job in runs} == {0, 1, TUNING}
    study.run(replace(options, minutes=None))
    assert path.read_text() == text
    whole = text.splitlines(keepends=True)
    path.write_text("".join(whole[:5]))
    study.run(replace(options, minutes=None))
    assert [line.rpartition(",")[0] for line in path.read_text().splitlines()] == [
        line.rpartition(",")[0] for line in text.splitlines()
    ], "and finds the same, but for the seconds"


@pytest.mark.slow
def test_networks_trained_at_once_score_as_alone(tmp_path: Path) -> None:
    """As on a GPU, where each has a process of its own."""
    zoo, options, cpu = Zoo(["deep set", "PointNet"]), Options(tmp_path, quick=True), torch.device("cpu")
    runs = zoo.together(zoo.wanted(options, {}), options, torch.device("cuda"))
    assert {job.network for job in runs} == {"deep set", "PointNet"}
    runs = [job for job in runs if job.start == AUTHOR]
    told: list[int] = []
    at_once = zoo.train(runs, options, cpu, lambda count, _: told.append(count))
    assert at_once == [zoo.train([job], options, cpu, lambda *_: None)[0] for job in runs]
    assert sum(told) == len(runs)


def test_the_authors_initialization_is_the_network_as_made_and_others_change_it() -> None:
    entry = ENTRIES["deep set"]
    torch.manual_seed(0)
    net = Learner(entry, False).net
    made = [parameter.clone() for parameter in net.parameters()]
    begin_(net, AUTHOR, entry.gain, None)
    assert all(map(torch.equal, made, net.parameters()))
    begin_(net, "orthogonal", 2.0, None)
    first = net.each[0].weight  # type: ignore[index,union-attr]
    torch.testing.assert_close(first.mT @ first, 4 * torch.eye(3))
    assert outputs(net, torch.zeros(2, 10, 3)).shape == (2, 1)


def _scored(best: dict[str, float], seeds: dict[tuple[str, float], list[float]]) -> dict[Job, float]:
    entry = ENTRIES["deep set"]
    scores = {Job(entry.name, arm, rate, TUNING): -float(rate == best[arm]) for arm in ARMS for rate in entry.rates}
    return scores | {Job(entry.name, arm, rate, s): v for (arm, rate), vs in seeds.items() for s, v in enumerate(vs)}


def test_rates_go_on_beyond_an_end_and_ours_also_runs_at_the_authors() -> None:
    entry = ENTRIES["deep set"]
    _, middle, high = entry.rates
    scores = _scored(dict.fromkeys(ARMS, middle) | {OURS: high}, {})
    assert (further(entry, AUTHOR, scores), best_rate(entry, AUTHOR, scores)) == ([], middle)
    assert (further(entry, OURS, scores), best_rate(entry, OURS, scores)) == ([0.009], None)
    scores[Job(entry.name, OURS, 3 * high, TUNING)] = 0.0
    asked = {(job.start, job.rate) for job in left(entry, scores)}
    assert asked == {(arm, middle) for arm in ARMS} | {(OURS, high)}


def test_verdicts_and_the_page_follow_from_records(tmp_path: Path) -> None:
    entry = ENTRIES["deep set"]
    _, middle, _ = entry.rates
    steady = {(arm, middle): [-1.0, -1.01, -0.99] for arm in ARMS}
    for ours, word in (([-1.3, -1.31, -1.29], "better"), ([-0.5, -0.51, -0.49], "worse"), ([-2.0, 0.0, -0.9], "level")):
        scores = _scored(dict.fromkeys(ARMS, middle), steady | {(OURS, middle): ours})
        with open(tmp_path / "zoo.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("network", "start", "rate", "seed", "score", "curve"))
            writer.writerows((*job, score, f"0.0 {score}") for job, score in scores.items())
        [each] = Zoo().evidence(Results(tmp_path)) or []
        assert each.word(OURS, AUTHOR) == each.word(DROP_IN, AUTHOR) == word
        text = "\n".join(Zoo().section([each]))
        told = "Level: deep set." if word == "level" else f"({middle:g})"
        assert all(part in text for part in ("deep set", word, told))
    assert found({job: score for job, score in scores.items() if job.seed != 2 or job.start != "he"}), "two seeds do"
    assert not found({job: score for job, score in scores.items() if job.start != "author"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of DeBERTa's module
@pytest.mark.parametrize("name", [name for name, entry in entries().items() if entry.task.loss is None])
def test_diagnose_and_watch_leave_a_network_as_it_is_and_the_plan_names_all_of_it(name: str) -> None:
    entry = ENTRIES[name]
    batch = tuple(each[:4] for each in entry.task.data(False, None)[0])
    torch.manual_seed(0)
    net, inputs = entry.net(False), entry.task.inputs(batch)

    def loss(found: Any, targets: Any = None) -> torch.Tensor:
        return entry.task.error(getattr(found, "logits", getattr(found, "prediction_outputs", found)), batch)

    before, noise = {key: value.clone() for key, value in net.state_dict().items()}, torch.get_rng_state()
    found = diagnose(net, inputs, batch[-1], loss=loss)
    assert torch.equal(noise, torch.get_rng_state())
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())
    rows = [
        {k: v for k, v in row.items() if not k.startswith("bias")} for row in found.records()
    ]  # some are no vectors
    assert np.isfinite([value for row in rows for value in row.values() if isinstance(value, float)]).all()
    assert rows
    ends = []
    for watched in (False, True):
        twin = copy.deepcopy(net)
        adam, seen = torch.optim.Adam(twin.parameters(), 1e-4), watch(twin, 1) if watched else None
        torch.manual_seed(1)
        for _ in range(2):
            value = loss(outputs(twin, inputs))
            adam.zero_grad()
            value.backward()
            adam.step()
            if seen is not None:
                seen.step(value)
        if seen is not None:
            seen.close()
            assert seen.samples == 2
        ends.append([*twin.parameters(), *twin.buffers()])
    assert all(map(torch.equal, *ends))
    names = {name for name, _ in net.named_parameters(remove_duplicate=False)}
    assert names <= {row.name for row in initialize_(net, seed=0, inputs=inputs)}


def test_the_search_is_run_beside_find_start_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    study, options = FullSearch(["table MLP"]), Options(tmp_path, quick=True, device="cpu")
    study.run(options)
    text = (tmp_path / "find-start-quick.csv").read_text()
    assert len(text.splitlines()) == 1 + 25 + 2
    study.run(options)
    assert (tmp_path / "find-start-quick.csv").read_text() == text
    (tmp_path / "find-start-quick.csv").rename(tmp_path / "find-start.csv")
    [each] = study.evidence(Results(tmp_path)) or []
    assert each.length == 16
    assert each.share < 0.15
    assert "table MLP" in "\n".join(study.section([each]))


@pytest.mark.parametrize(("choice", "within"), [(9.95, True), (9.0, False), (10.5, True)])
def test_a_choice_is_judged_by_the_margin_of_the_zoo(choice: float, within: bool) -> None:
    best, own = ("best", "one rate", 1e-3), ("he", "one rate", 1e-3)
    scores, fresh = {best: [10.0], own: [9.9]}, {best: [10.0, 10.0, 10.0], own: [choice] * 3}
    found = Searched(ENTRIES["table MLP"], scores, fresh, own, best, 10, 10)
    assert found.within(fresh) is within
    assert ("not in: table MLP" in summaries([found])[0]) is not within
