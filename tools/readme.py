"""What the README shows of the records: `make docs` writes it."""

from __future__ import annotations

import statistics
from collections import Counter

from benchmarks.timing import markdown
from paper.results import Results
from paper.studies.baselines import DEPTHS, FAST, Baselines
from paper.studies.cifar import DEFAULT, GROUPS, Cifar
from paper.studies.cifar import HE as PLAIN_HE
from paper.studies.kit import Setting
from paper.zoo import Zoo
from paper.zoo.entry import AUTHOR, HE, OURS

from stiefel_init.lab.report.tables import wrapped

from . import drawings

SHOWN = {"torch": "default", "he": "He", "recipe": "`initialize_`"}
"""Of the README's table; the last is ours."""
CNNS = {"CNN, 20 layers, CIFAR-10": "CIFAR-10", "VGG, Fashion-MNIST": "VGG"}
"""Rows of the table, and how its picture calls them."""


def figures(results: Results) -> tuple[list[str], dict[str, str]]:
    """Its table and a sentence, and its two pictures by name."""
    found, runs = Baselines().evidence(results), {}
    for depth in DEPTHS:  # from 100 layers on the first and the last layer learn faster, by a cosine
        names = [name + FAST * (depth >= 100) for name in SHOWN]
        runs[depth] = [statistics.mean(found.scores[Setting("mnist", depth), name]) for name in names]
    of_zoo = Zoo().evidence(results) or []
    words = Counter(each.word(OURS, AUTHOR) for each in of_zoo if each.learnt)
    zoo_runs = {each.entry.name: each.outcomes for each in of_zoo}
    of_cifar = Cifar().evidence(results)
    scored = [of_cifar.scores(20, each) for each in (PLAIN_HE, GROUPS)]
    dead = max(of_cifar.reached(20, DEFAULT).values())  # at any rate, so that it was not trained further
    scores = [dead, *map(statistics.mean, scored)], [zoo_runs["VGG"][arm].mean for arm in (AUTHOR, HE, OURS)]
    cnns = dict(zip(CNNS, scores))
    rows = [[f"MLP, {depth:,} layers, MNIST", *map("{:.1f}".format, runs[depth])] for depth in DEPTHS[::2]]
    rows += [[name, *map("{:.1f}".format, each)] for name, each in cnns.items()]
    lines = dict(zip(("PyTorch's default", "He", "initialize_"), zip(*runs.values())))
    drawn = drawings.measured(lines, DEPTHS, {CNNS[name]: each for name, each in cnns.items()})
    told = (
        f"In [{words.total()} networks of many kinds](docs/zoo.md) as others write them, against their authors' own "
        f"initialization: better in {words['better']}, level in {words['level']}, worse in {words['worse'] or 'none'}."
    )
    return [*markdown(["", *SHOWN.values()], rows), *wrapped(told)], {"idea": drawings.idea(), "measured": drawn}
