# `make demo` and `make test` do everything on a fresh machine: virtualenv, install, run.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test check test-slow format bench clean

demo: $(VENV)/.installed-demo
	$(BIN)/flatout demo

test: check

check: $(VENV)/.installed
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n 2 --dist loadfile --durations 20

test-slow: $(VENV)/.installed
	$(BIN)/pytest -m slow

format: $(VENV)/.installed
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

bench: $(VENV)/.installed
	$(BIN)/flatout bench env --json

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache

# The demo needs the core only; PyTorch, Stable-Baselines3 and SBX come with the tests.
$(VENV)/.installed-demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[bench,test]"
	touch $@
