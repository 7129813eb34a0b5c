"""`python -m paper.faults`: the catalogue as a list, or with `--check [name …]` the proof with three seeds that each
fault holds."""

import argparse
import multiprocessing
import time
from collections import Counter

import torch

from . import FAULTS, half, judge


def _judged(name: str) -> tuple[str, bool, str]:
    torch.set_num_threads(1)
    began = time.perf_counter()
    verdict = judge(FAULTS[name])
    broken, repaired = ("".join(f"{score:6.2f}" for score in part) for part in (verdict.broken, verdict.repaired))
    mark = "holds" if verdict.holds else "FAILS"
    return (
        name,
        verdict.holds,
        f"{mark} broken{broken}  repaired{repaired}  {time.perf_counter() - began:5.1f} s  {name}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m paper.faults", description=__doc__)
    parser.add_argument("--half", choices=("choose", "score"), help="of this half alone")
    parser.add_argument("--look", type=int, choices=range(1, 6), help="of this set alone; the fifth is the fresh one")
    parser.add_argument("--check", nargs="*", metavar="NAME", help="of these faults or classes, or of all")
    arguments = parser.parse_args()
    wanted = {*(arguments.check or [])}
    chosen = [
        fault
        for fault in FAULTS.values()
        if arguments.half in (None, half(fault.name))
        and arguments.look in (None, fault.look)
        and (not wanted or wanted & {fault.name, fault.kind})
    ]
    if arguments.check is None:
        for fault in chosen:
            print(f"{half(fault.name):6}  {fault.kind:12}  {fault.name}: {fault.cause}  {fault.source}")
        for (kind, part), count in sorted(Counter((fault.kind, half(fault.name)) for fault in chosen).items()):
            print(f"{kind:12} {part:6} {count}")
        return 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        failed = []
        for name, holds, line in pool.imap(_judged, [fault.name for fault in chosen]):
            print(line, flush=True)
            failed += [] if holds else [name]
    print(f"{len(failed)} do not hold: {', '.join(failed)}" if failed else f"all {len(chosen)} hold")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
