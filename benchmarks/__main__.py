"""`python -m benchmarks NAME [--device cpu|cuda] [--write]`: measure, show the tables, keep the record."""

from __future__ import annotations

from importlib import import_module

from . import timing

RECORDS = {
    "sampler": "sampler", "engine": "engine", "initialize": "initialize", "diagnose": "diagnose",
    "watch": "watch-overhead", "on_the_set": "on_the_set", "startup": "startup", "rates": "rates",
}  # fmt: skip
"""Name of a benchmark → that of its record, to which the device is added."""


def main() -> None:
    parser = timing.arguments(f"{__doc__}\n\nThe benchmarks are {', '.join(RECORDS)}.")
    parser.add_argument("name", choices=RECORDS, metavar="NAME")
    options = parser.parse_args()
    module = import_module(f"{__package__}.{options.name}")
    record: timing.Record = {}
    for record in module.measure(options.device):
        if options.write:
            path = timing.write(f"{RECORDS[options.name]}-{options.device}", record)
    print(*module.tables(record), sep="\n")
    if options.write:
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
