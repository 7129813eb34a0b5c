"""`stiefel-init` and `python -m stiefel_init`: the command line, if its packages are installed."""

from __future__ import annotations

import sys

from .core.errors import missing


def main() -> None:
    """Run the command line."""
    try:
        from .lab.cli import main as run
    except ModuleNotFoundError as error:
        print(f"error: {missing(error, 'the command line', str(error.name), 'lab')}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
