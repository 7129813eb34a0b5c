"""Build the wheels and the sdist, check them, and try them in empty environments as a new user would.

    python -m tools.release                          # build, check, core and every extra on every Python here
    python -m tools.release --extras core,sklearn    # only these environments; --extras "" builds and checks alone

Everything goes into dist/. Installs go through constraints.txt, with the wheels of dist/ before any others. Ends
with exit code 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST, LIMITS = ROOT / "dist", ROOT / "constraints.txt"
LIMIT = 600_000
"""Bytes of the library's wheel and of its sdist."""
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS: dict[str, str] = {
    "core": "from stiefel_init.theory import propagate; print(propagate([784, 64, 64], mean=0.13, std=0.31))",
    "torch": "import torch; from stiefel_init.torch import stiefel_; stiefel_(torch.nn.Linear(784, 64).weight)",
    "jax": "import jax; from stiefel_init.jax import stiefel; print(stiefel()(jax.random.key(0), (784, 64)).shape)",
    "keras": "from stiefel_init.keras import Stiefel; print(Stiefel()((3, 2)))",
    "sklearn": (
        "from sklearn.datasets import load_iris; from stiefel_init.sklearn import StiefelMLPClassifier; "
        "print(StiefelMLPClassifier((8, 8), max_iter=400, random_state=0).fit(*load_iris(return_X_y=True)).n_layers_)"
    ),
    "lab": (
        "import subprocess; subprocess.run(['stiefel-init', 'train', '--depth', '2', '--epochs', '1', '--scheme', "
        "'recipe,he', '--out', __import__('tempfile').mkdtemp()], check=True)"
    ),
    "parquet": "import pyarrow",
    "records": "import importlib.util; assert importlib.util.find_spec('stiefel_init_records')",
    "ray": "import ray; from stiefel_init.lab import run",
    "umap": "import umap",
}
"""What is tried with each extra; `core` is none."""
MODULES = {"torch": "stiefel_init.torch", "jax": "stiefel_init.jax", "keras": "stiefel_init.keras"}


def build() -> list[Path]:
    """Wheel and sdist of the library, and the wheel of its records."""
    shutil.rmtree(DIST, ignore_errors=True)
    for folder, kinds in ((ROOT, []), (ROOT / "records", ["--wheel"])):
        options = ["--no-isolation", *kinds, "--outdir", str(DIST)]
        subprocess.run([sys.executable, "-m", "build", *options, str(folder)], check=True, stdout=subprocess.DEVNULL)
    return sorted(DIST.iterdir())


def wrong(built: list[Path]) -> list[str]:
    found = []
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        found.append(f"twine: {done.stdout}{done.stderr}")
    for path in built:
        print(f"{path.name}: {path.stat().st_size:,} bytes")
        if "records" not in path.name and path.stat().st_size > LIMIT:
            found.append(f"{path.name} has {path.stat().st_size:,} bytes, more than {LIMIT:,}")
        found += [f"{path.name} holds {name}" for name in members(path) if stray(name)]
    return found


def members(path: Path) -> list[str]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.namelist()
    with tarfile.open(path) as sdist:
        return [file.name.partition("/")[2] for file in sdist.getmembers() if file.isfile()]


SOURCES = (".py", ".md", ".typed", ".cff", ".toml", ".js", ".css")
METADATA = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE", "PKG-INFO", ".gitignore")


def stray(name: str) -> bool:
    """Whether a file has no place in a release; data belong to the records alone."""
    if name.startswith("stiefel_init_records/"):
        return not name.endswith((".csv", ".json"))
    return "__pycache__" in name or not name.endswith(SOURCES + METADATA)


def readme(extra: str) -> list[str]:
    """The README's Python blocks that need this extra alone."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    module = MODULES.get(extra)
    if extra == "core":
        return [block for block in blocks if not re.search(r"torch|jax|keras|sklearn", block)]
    return [block for block in blocks if module and f"from {module}" in block]


def interpreter(version: str) -> str | None:
    """A Python of that version: by its name, or beside the one that runs this, as pyenv keeps them."""
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python"))
    places = filter(None, (shutil.which(f"python{version}"), *map(str, beside)))
    return next((path for path in places if not subprocess.run([path, "-c", "import venv"]).returncode), None)


def install(python: str, extra: str, wheels: Path) -> str | None:
    """Try one extra in an empty environment; returns what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = Path(folder) / ("Scripts" if sys.platform == "win32" else "bin")
        wheel = next(wheels.glob("stiefel_init-*.whl"))
        wanted = [f"{wheel}" if extra == "core" else f"{wheel}[{extra}]", *(["torch"] if extra == "keras" else [])]
        options = ["--quiet", "--disable-pip-version-check", "--find-links", wheels, "--constraint", LIMITS]
        alone = {"PATH": f"{inside}:/usr/bin:/bin", "KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1", "HOME": folder}
        steps: list[tuple[list[object], dict[str, str] | None]] = [(["-m", "pip", "install", *options, *wanted], None)]
        steps += [(["-c", code], alone) for code in (EXTRAS[extra], *readme(extra))]
        for words, environment in steps:
            command = [str(inside / "python"), *map(str, words)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
            if done.returncode:
                return f"{command[-1].splitlines()[-1]}: {done.stderr.strip().splitlines()[-1]}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default=",".join(EXTRAS), help="which to try; core is none")
    parser.add_argument("--pythons", default=",".join(VERSIONS), help="on which versions, where they are here")
    options = parser.parse_args()
    extras = list(filter(None, options.extras.split(",")))
    if strange := set(extras) - set(EXTRAS):
        sys.exit(f"--extras has {', '.join(sorted(strange))}; there are {', '.join(EXTRAS)}.")
    found = wrong(build())
    for version, extra in product(options.pythons.split(","), extras):
        if (python := interpreter(version)) is None:
            print(f"Python {version} is not here.")
            continue
        problem = install(python, extra, DIST)
        print(f"Python {version}, {extra}: {problem or 'works'}", flush=True)
        found += [f"Python {version}, {extra}: {problem}"] if problem else []
    print(*found, sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
