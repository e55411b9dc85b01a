# Every target sets itself up: a machine needs only make, git and Python 3.10 or newer.
PYTHON ?= python3
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup-done

HTA := .bench/hta
HTA_SETUP := $(HTA)/.setup-done

MINDSPORE := .bench/mindspore
MINDSPORE_SETUP := $(MINDSPORE)/.setup-done
MSPROF := .bench/msprof
MSPROF_SETUP := $(MSPROF)/.setup-done

.PHONY: help setup demo test test-fast bench lint clean

help:
	@echo "make demo       train a small network under steplens and show where its steps went"
	@echo "make test       every test"
	@echo "make test-fast  the tests that take no more than a few seconds each"
	@echo "make lint       ruff, mypy --strict, import-linter"
	@echo "make bench      speed and overhead, measured beside the peers"
	@echo "make setup      only the set-up: $(VENV) with steplens, PyTorch and the development tools"

setup: $(SETUP)

$(SETUP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: $(SETUP)
	$(BIN)/python examples/demo.py

test: $(SETUP) $(HTA_SETUP) $(MSPROF_SETUP) $(MINDSPORE_SETUP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-fast: $(SETUP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The peer that tests and benchmarks compare with has its own environment: its pins (pandas < 3, numpy < 2) are not ours.
$(HTA_SETUP):
	mkdir -p .bench
	test -x $(HTA)/bin/python || $(PYTHON) -m venv $(HTA)
	$(HTA)/bin/python -m pip install --quiet "HolisticTraceAnalysis==0.5.0" "pandas<3" "numpy<2" setuptools
	touch $@

# The client that result directories are written for; it takes any pandas, and was tested with the third.
$(MSPROF_SETUP):
	mkdir -p .bench
	test -x $(MSPROF)/bin/python || $(PYTHON) -m venv $(MSPROF)
	$(MSPROF)/bin/python -m pip install --quiet "msprof-analyze==26.2.0" "pandas<4"
	touch $@

# MindSpore wants numpy < 2. The tests of steplens.mindspore run with this interpreter.
$(MINDSPORE_SETUP): pyproject.toml
	mkdir -p .bench
	test -x $(MINDSPORE)/bin/python || $(PYTHON) -m venv $(MINDSPORE)
	$(MINDSPORE)/bin/python -m pip install --quiet --upgrade pip
	$(MINDSPORE)/bin/python -m pip install --quiet --editable ".[mindspore]" setuptools
	touch $@

bench: $(SETUP) $(HTA_SETUP) $(MINDSPORE_SETUP)
	$(BIN)/python benchmarks/report.py

clean:
	rm -rf $(VENV) .bench .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis result demo_result
