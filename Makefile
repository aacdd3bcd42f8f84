# `make demo` and `make test` do everything on a fresh machine: virtualenv, install, run.
PYTHON ?= python3
VENV   ?= .venv
OLDEST ?= .venv-oldest
BIN    := $(VENV)/bin
PIP     = $(BIN)/pip install --quiet --disable-pip-version-check
CODE    = src tests packages examples conftest.py
PYTEST  = $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder
# Where neither NVIDIA's nor AMD's driver is, PyTorch comes in its CPU build, a tenth of the size. It has a version of its
# own, of which pip takes what it finds; uv knows where PyTorch keeps them.
TORCH  ?= 2.13.0
GPU    := $(wildcard /proc/driver/nvidia /dev/nvidiactl /dev/kfd)

.PHONY: demo test check style test-slow test-portable test-faults test-oldest format bench clean

demo: $(VENV)/.installed-demo
	$(BIN)/flatout demo

test: style  # everything that is not slow
	$(PYTEST) --durations 20

check: style  # the inner loop: without what takes a second or more
	$(PYTEST) -m "not slow and not long"

style: $(VENV)/.installed
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test-slow: $(VENV)/.installed
	$(BIN)/pytest -m slow

test-portable: $(VENV)/.installed  # as on other machines; prints the table of docs/portability.md
	$(BIN)/python tests/portable.py $(ROWS)

test-faults: $(VENV)/.installed  # the code broken on purpose: each tolerance must find the fault it was made for
	$(BIN)/python tests/planted_faults/plant.py $(TESTS)

test-oldest: $(OLDEST)/.installed  # the oldest versions that pyproject.toml allows
	$(OLDEST)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder

format: $(VENV)/.installed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: $(VENV)/.installed
	$(BIN)/flatout bench env --json

clean:
	rm -rf $(VENV) $(OLDEST) runs .pytest_cache .mypy_cache .ruff_cache

# The demo needs the core only; PyTorch, Stable-Baselines3 and SBX come with the tests.
$(VENV)/.installed-demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.installed: pyproject.toml packages/flatout-crawl/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifeq ($(GPU),)
	$(BIN)/python -c "import torch" 2>/dev/null || $(PIP) "torch==$(TORCH)+cpu" 2>/dev/null || \
	  { $(PIP) uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --torch-backend cpu "torch==$(TORCH)"; } || \
	  echo "PyTorch's CPU build was not found: the build with CUDA will do as well"
endif
	$(PIP) -e ".[bench,test]" -e packages/flatout-crawl
	touch $@

$(OLDEST)/.installed: pyproject.toml packages/flatout-crawl/pyproject.toml
	rm -rf $(OLDEST)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct -e ".[bench,test]" -e packages/flatout-crawl
	touch $@
