"""Your own data in five lines: NumPy arrays or a file, trained under several initializations at once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from stiefel_init.lab import Cell, from_arrays, from_file, run, summary

rng = np.random.default_rng(0)
x = rng.normal(size=(500, 12))
y = np.array(["low", "middle", "high"])[np.digitize(x[:, :4].sum(1), (-1, 1))]

# 50 layers, and features shifted by alpha = 2, as the paper advises for tables; the learning rate is 0.001/√depth.
settings: dict[str, Any] = {"depth": 50, "epochs": 20, "batch": 32, "alpha": 2}

mine = from_arrays(x, y)
cells = [Cell("mine", scheme, **settings) for scheme in ("stiefel", "he", "xavier")]
records = run(cells, datasets={"mine": mine})
for record in records:
    print(f"{record.cell.scheme!s:<9} {record.metric.label} {record.score:.1f}")

with TemporaryDirectory() as folder:
    file = Path(folder, "mine.csv")
    names = ",".join([*(f"x{j}" for j in range(12)), "level"])
    np.savetxt(file, np.column_stack([x, y]), fmt="%s", delimiter=",", header=names, comments="")

    # The same from a CSV file, three seeds each. With `out`, rerun to resume.
    levels = from_file(file, target="level")
    cells = [Cell("levels", scheme, seed=seed, **settings) for scheme in ("stiefel", "he") for seed in range(3)]
    records = run(cells, datasets={"levels": levels}, out=Path(folder, "records"))
    summary(records).show()
