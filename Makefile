# make demo, make test: each from a fresh clone. PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
# Twice the cores' worth of threads in each of several test processes would only get in each other's way.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -q

.PHONY: demo test test-all check bench docs results site site-check release clean
.DEFAULT_GOAL := test

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "stiefel-init needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Set PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing stiefel-init and its laboratory into $(VENV) ..."
	@$(INSTALL) '.[lab]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing stiefel-init and its development tools into $(VENV) ..."
	@$(INSTALL) '.[dev]'
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/stiefel-init demo

# What a change needs; the rest, full grids and tests with other processes, is marked slow.
test: $(VENV)/.dev
	@$(PYTEST) -m "not slow"

test-all: $(VENV)/.dev
	@$(PYTEST)

check: $(VENV)/.dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks sampler

docs: $(VENV)/.dev
	@$(BIN)/python -m paper docs

$(VENV)/.site: $(VENV)/.dev
	@$(INSTALL) '.[dev,site]'
	@touch $@

# Into build/site; notebooks are run, unless their text is unchanged.
site: $(VENV)/.site
	@$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/site
	@echo "The site is in build/site/index.html."

# AXE is axe.min.js of npm's axe-core; without it accessibility is not checked.
site-check: site
	@$(BIN)/python -m tools.site_check build/site $(if $(AXE),--axe $(AXE))

$(VENV)/.release: $(VENV)/.dev
	@$(INSTALL) '.[dev,release]'
	@touch $@

# Wheel and sdist into dist/, checked, and installed into empty environments.
release: $(VENV)/.release
	@$(BIN)/python -m tools.release

# RECORDS is what `stiefel-init reproduce` wrote.
results: $(VENV)/.dev
	@$(BIN)/python -m paper publish $(or $(RECORDS),stiefel-init-results) --out results

clean:
	rm -rf $(VENV) build dist
