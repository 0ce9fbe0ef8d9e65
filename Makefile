# `make demo` and `make test` need Python 3.11+, make and a package index; nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTEST_ARGS ?=

.PHONY: docs providers setup fmt lint types imports spell audit advisories system test quick collect check chaos compose runs bench demo up clean
setup: $(STAMP) ## make .venv/ with the pinned dependencies

$(STAMP): pyproject.toml clients/python/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "pointsman: installing into $(VENV)/ (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade 'pip>=25.1' setuptools 2>$(VENV)/pip.log || (cat $(VENV)/pip.log; exit 1)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-build-isolation -c constraints.txt --group dev -e . -e clients/python 2>$(VENV)/pip.log || (cat $(VENV)/pip.log; exit 1)
	@touch $(STAMP)

fmt: setup ## format the code
	$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

spell: setup
	$(BIN)/codespell

system: ## what Docker and browser tests need; SYSTEM=1 installs it (root on Debian or Ubuntu)
	@SYSTEM=$(SYSTEM) $(PYTHON) -m tests.system

test: setup system ## the whole suite
	@$(BIN)/python -m tests.run $(PYTEST_ARGS)

quick: setup ## what answers in a minute after a change: unit tests, and one job of each kind on real servers
	@$(BIN)/python -m tests.run --quick

collect: setup ## import and compile every test, so that no process of `test` has to
	@$(BIN)/python -m tests.run -qq --collect-only >$(VENV)/collect.log || (cat $(VENV)/collect.log; exit 1)

audit: setup ## known advisories about the pinned dependencies; fails if it could check none of them
	@$(BIN)/python -m tests.audit_dependencies

advisories: setup # the same for `check`, which also runs where no advisory service is reached
	@$(BIN)/python -m tests.audit_dependencies || [ $$? -eq 2 ]

check: ## what CI runs; what needs no servers at once: packages come while others are there already
	@$(MAKE) --no-print-directory --jobs=3 --output-sync $(if $(SYSTEM),system) types collect lint imports spell advisories
	@$(MAKE) --no-print-directory test

chaos: setup ## the fleet under fire, and plain Celery beside it; ONLY=fleet, JOBS=10000, SEED=2, MINUTES=15
	@$(BIN)/python -m tests.chaos $(ONLY)

compose: setup ## the compose stack, built, used, scaled, killed and taken down; root, with Docker, docker-compose, debootstrap
	LONG=1 $(BIN)/python -m pytest -q -s -rs tests/acceptance/test_compose_stack.py

providers: setup ## the shipped cases through every provider's dialect, and calls to a real llama.cpp server, built once
	@$(BIN)/python -m tests.provider_trial

bench: setup ## race the peers and rewrite docs/performance.md, in a quarter of an hour; ONLY=growth asks one question, CHECK=1 keeps nothing and finds what got slower
	@$(BIN)/python -m benchmarks $(ONLY) $(if $(CHECK),--check)

runs: setup ## a feature and a P0 ticket to their pull requests, proposed commands of many stacks and QA's verdicts, in real boxes; needs what SYSTEM=1 installs
	RUNS=1 $(BIN)/python -m pytest -q -s tests/box/test_ticket_runs.py tests/box/test_project_init.py tests/box/test_measured_reviewers.py

.PHONY: guides
guides: setup ## the integration guides and the tutorial, run as they are written; needs curl, Node.js and npm
	LONG=1 $(BIN)/python -m pytest -q tests/acceptance/test_guides.py

demo: setup ## the product's main job, end to end, on embedded defaults
	@$(BIN)/pointsman demo

up: setup ## everything embedded, left running
	@$(BIN)/pointsman up

clean:
	rm -rf $(VENV) build dist *.egg-info

docs: setup ## what is generated from the code: pages, what the clients offer, compose's workers, KEDA's files
	$(BIN)/python docs/generate.py > docs/configuration.md
	$(BIN)/python docs/generate_metrics.py > docs/metrics.md
	$(BIN)/python docs/generate_http.py > docs/reference/http.md
	$(BIN)/python docs/generate_cli.py > docs/reference/cli.md
	$(BIN)/python -m docs.generate_queues
	$(BIN)/python -m docs.generate_clients

.PHONY: routing-model
routing-model: setup ## train the second opinion from the labelled prompts, but for those held out; a minute
	$(BIN)/python -m routing.decision.training tests/data/routing_golden.jsonl tests/data/routing_trained.jsonl

.PHONY: screenshots
screenshots: setup ## pictures of the example sites and the console in docs/pictures/; needs Chromium, and is no part of CI
	$(BIN)/python -m docs.pictures
	$(BIN)/python -m docs.console_pictures
	$(BIN)/python -m docs.recording

.PHONY: capacity
capacity: setup ## a real fleet at two loads against what `pointsman capacity` predicts of it; five minutes on a quiet machine
	LONG=1 $(BIN)/python -m pytest -q -s tests/acceptance/test_capacity.py
