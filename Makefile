# Two commands for newcomers:
#   make demo     everything set up, then the demo
#   make test     everything set up, then all tests this machine can run

PYTHON ?= python3.11
JOBS   ?= 3# tests at a time: many of them wait, few compute
BIN    := .venv/bin

.PHONY: demo test doctest check setup clean

demo: setup
	@$(BIN)/ludus demo

test: setup
	@$(BIN)/pytest -q -m "not slow" -n $(JOBS) --dist worksteal && $(MAKE) --no-print-directory doctest

doctest: setup
	@$(BIN)/pytest -q --doctest-modules src/ludus/*.py envs rewards agent trainer sandboxes -m "not slow" -p no:cacheprovider

check: setup
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/lint-imports && $(BIN)/python scripts/check_style.py && $(BIN)/pyright && $(BIN)/mypy

setup: .venv/ready

.venv/ready: pyproject.toml scripts/install.sh
	@sh scripts/install.sh $(PYTHON)
	@touch $@

clean:
	rm -rf .venv build dist
