# `make demo` and `make test` set up a fresh checkout.

PYTHON ?= python3
VENV ?= .venv
OUT ?= out
DIST ?= dist
PYTEST_ARGS ?= -n 2 --dist worksteal -m 'not slow and not study'

RUN := $(VENV)/bin/python
export MPLBACKEND ?= Agg
# The tests start hundreds of processes that import vioc; without bytecode on disk each takes half a second more
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test kernels versions lint types bench studies docs wheel release-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## Swing up a cart-pole; writes plots, an animation and the trajectory into out/
	$(RUN) -m vioc demo --out $(OUT)

test: $(VENV)/.installed ## Run the tests, except slow ones and whole studies; PYTEST_ARGS='-n 2' runs all
	$(RUN) -m pytest $(PYTEST_ARGS)

kernels: $(VENV)/.installed ## Run the numerical tests with the summation order of other processors
	$(RUN) tests/trust/kernels.py

versions: ## Run numerical tests on the oldest and the newest versions of the dependencies
	$(PYTHON) tests/trust/versions.py

lint: $(VENV)/.installed-dev ## Check style, formatting and imports between folders
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache

types: $(VENV)/.installed-dev ## Check the types
	$(RUN) -m mypy
	$(RUN) -m mypy --strict --follow-imports=silent tests/editor_types.py

bench: $(VENV)/.installed ## Run the benchmarks
	$(RUN) -m studies.benchmarks

studies: $(VENV)/.installed-studies ## Run the quick form of every study
	$(RUN) -m vioc study run --all --quick --jobs 2 --out $(OUT)/studies
	@touch $(OUT)/studies/.run

wheel: $(VENV)/.installed-dev ## Build wheel and source twice and compare the bits; test the wheels of vioc and of the studies in a new environment
	rm -rf $(DIST) $(DIST)-studies $(VENV)-wheel
	$(RUN) tests/build_twice.py $(DIST)
	$(RUN) tests/build_twice.py $(DIST)-studies studies
	$(RUN) -m twine check --strict $(DIST)/*
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check $(DIST)/*.whl
	cd / && env -u PYTHONPATH $(abspath $(VENV)-wheel)/bin/python $(abspath tests/installed_smoke.py)
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check $(DIST)-studies/*.whl
	cd / && env -u PYTHONPATH $(abspath $(VENV)-wheel)/bin/python $(abspath tests/installed_smoke.py) --studies

release-check: $(VENV)/.installed-dev ## Check a release: version, citation, licence, links and sizes of documents; then wheel and docs
	$(RUN) -m pytest tests/test_habits.py tests/test_docs.py -m 'not slow and not peer' -k 'not snippets_run and not commands_run'
	$(MAKE) wheel
	$(MAKE) docs

docs: $(VENV)/.installed-docs $(OUT)/studies/.run ## Build the documentation site in out/docs, with the pictures of the studies, and check it
	rm -rf docs/generated $(OUT)/docs
	VIOC_STUDIES=$(abspath $(OUT)/studies) $(RUN) -m sphinx --quiet --fail-on-warning docs $(OUT)/docs
	$(RUN) tests/whole_site.py $(OUT)/docs
	@echo "open $(OUT)/docs/index.html"

$(OUT)/studies/.run:
	$(MAKE) studies

clean: ## Remove the environment, outputs and caches
	rm -rf $(VENV) $(VENV)-wheel out build docs/generated $(DIST) $(DIST)-studies *.egg-info studies/build studies/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are newer than both files pyproject.toml for which the environment was made; `venv` also completes a partial one.
$(VENV)/.installed: pyproject.toml studies/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "vioc needs Python 3.10 or newer, \
	this is " + sys.version.split()[0] + "; choose one with: make ... PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[test]' --editable ./studies
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.installed-studies: $(VENV)/.installed
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable './studies[peers]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@
