# `make help` explains the targets. What builds on the environment makes it first, which is instant when nothing changed; what stops
# or looks takes the one that is there.
SHELL := /bin/bash
.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH
unexport PYTHONHOME

BIN := .venv/bin
PYTHON3 := $(shell command -v python3 || command -v python || echo python3)
UNITS := tests/unit
PURE := tests/unit/decide tests/unit/simulate
SERVED := tests/dags tests/spark tests/integration
PARALLEL := -n auto --maxprocesses 4 --dist loadfile
EMBEDDED := $(BIN)/python -m spillway.embedded
UV_COMPILE := $(BIN)/uv pip compile --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header --quiet

.PHONY: help setup made demo up down status logs test served beside pure unit check format bench lock clean

help:  ## Show this help
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' | while IFS=$$'\t' read -r t d; do printf '  make %-8s %s\n' "$$t" "$$d"; done

setup:  ## Make the environment; afterwards .venv/bin/spillway works
	@$(PYTHON3) tools/bootstrap.py

made:
	@test -x $(BIN)/python || { echo "There is no .venv in this clone, so it has started nothing: run 'make setup' first." >&2; exit 1; }

demo: setup  ## Run the taxi pipeline end to end on embedded services (KEEP=1 leaves everything up)
	@$(BIN)/spillway demo $(if $(KEEP),--keep,)

up: setup  ## Start the embedded services: Postgres, Kafka, Spark, Airflow
	@$(EMBEDDED) up

down: made  ## Stop them and leave no process; data stay for the next `make up`
	@$(EMBEDDED) down

status: made  ## Show the services, their ports and health
	@$(EMBEDDED) status

logs: made  ## Show the end of a service's log: make logs S=kafka (F=1 follows)
	@$(EMBEDDED) logs $(if $(S),$(S),supervisor) $(if $(F),--follow,)

test: setup  ## Run all tests (T= chooses: make test T=tests/unit)
ifdef T
	@$(BIN)/python -m pytest $(T)
else
	@$(BIN)/python -m pytest $(PARALLEL) $(UNITS) $(PURE:%=--ignore=%)
	@$(MAKE) --no-print-directory -j 3 served beside pure
	@$(BIN)/python -m pytest -m alone $(SERVED)
endif

served:
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not alone and not beside" --durations=10 $(SERVED)

# On what CPU those with services leave; what came of it is shown when it has ended.
define quietly
	@echo "$(3) run beside those that need a cluster; what came of them is shown when they have ended"
	@log=$$(mktemp) && trap 'rm -f $$log' EXIT; nice -n $(1) $(BIN)/python -m pytest $(2) $(3) >$$log 2>&1; \
	code=$$?; cat $$log; exit $$code
endef

beside:
	$(call quietly,5,--timeout 600 --durations=10 -m beside,$(SERVED))

pure:
	$(call quietly,15,--timeout 1500,$(PURE))

unit: setup  ## Run the unit tests only
	@$(BIN)/python -m pytest $(PARALLEL) $(UNITS)

check: setup  ## Format, lint and types, then all tests; CI runs the tests, which hold the other three too
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(MAKE) --no-print-directory test

format: setup  ## Format the code and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup  ## Run one bench: make bench NAME=overhead
	@test -f "bench/$(NAME).py" || { echo "There is no bench called '$(NAME)': choose one of $$(ls bench | grep -v '^_' | sed -n 's/\.py$$//p' | xargs)." >&2; exit 2; }
	@$(BIN)/python "bench/$(NAME).py" $(ARGS)

lock: setup  ## Resolve requirements*.in into the lock files
	$(UV_COMPILE) requirements.in -o requirements.txt
	$(UV_COMPILE) requirements-dev.in -c requirements.txt -o requirements-dev.txt

clean: made  ## Stop the services and remove their data (.venv and the download cache stay)
	@$(EMBEDDED) clean
