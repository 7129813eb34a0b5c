"""docs/depths.png, by the code that docs/diagnose.md shows: statistics of the last hidden layer over the depth.

    python benchmarks/depths.py [--out docs]

One core, about half a minute.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "diagnose.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PAGE.parent)
    options = parser.parse_args()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "check_depths(" in block)
    lines = block.splitlines()
    names: dict[str, Any] = {}
    exec(compile("\n".join(line for line in lines if "savefig" not in line), str(PAGE), "exec"), names)
    print(names["found"])
    path = options.out / "depths.png"
    names["found"].plot().savefig(path, dpi=80, metadata={"Software": None})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
