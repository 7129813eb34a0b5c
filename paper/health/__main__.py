"""Say of every network of a record what `diagnose` or `watch` says of it now, and what has changed.

    python -m paper.health trainability [--train]    # 1,688 networks, diagnosed, or trained as well: one core, an hour
    python -m paper.health faults|faults-fresh|healthy    # trainings, watched

`--only TEXT` takes the rows whose description contains it; `--write` keeps what is said now.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import torch
from benchmarks import timing

from . import diagnosis, trainability, watching

Row = dict[str, Any]
TRAININGS: dict[str, tuple[str, Callable[[Row], Row]]] = {
    "faults": ("watch-faults", watching.faulty),
    "faults-fresh": ("watch-faults-fresh", watching.faulty),
    "healthy": ("watch-healthy", watching.healthy),
}


def changes(before: Row, now: Row) -> str:
    """What of a row differs, but for the numbers behind it."""
    names = [name for name in now if name not in ("measured", "loss") and now[name] != before.get(name)]
    return ", ".join(f"{name} {before.get(name)!r} → {now[name]!r}" for name in names)


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("name", choices=("trainability", *TRAININGS))
    parser.add_argument("--train", action="store_true", help="train the networks again, too")
    parser.add_argument("--only", default="", help="rows that contain this, such as a fault")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.write and options.only:
        parser.error(f"--write keeps a record as a whole; leave out --only {options.only}.")
    if options.name == "trainability":
        record, key = diagnosis.read(), "rows"
        again: Callable[[Row], Row] = partial(trainability.examine, again=options.train)
    else:
        name, again = TRAININGS[options.name]
        record, key = timing.kept(name), "trainings"
    old = [row for row in record[key] if options.only in json.dumps(row, ensure_ascii=False)]
    with ProcessPoolExecutor(options.workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        new = list(pool.map(again, old, chunksize=4))
    told = [(now, text) for before, now in zip(old, new) if (text := changes(before, now))]
    for now, text in told:
        print(" ".join(str(value) for value in list(now.values())[:7]), "|", text)
    print(f"{len(told)} of {len(old)} rows changed")
    if options.write:
        record |= {key: new}
        if options.name == "trainability":
            diagnosis.write(record)
        else:
            timing.write(name, record, key)


if __name__ == "__main__":
    main()
