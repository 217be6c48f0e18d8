# Everything a newcomer needs. Each target sets up what it uses and may be run again at any time.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
FAULTS ?= 50
PART   ?= 1/1
CORES  ?= $(shell $(PYTHON) -c "import os; print(min(len(os.sched_getaffinity(0)), 4))")
# uv installs 150 packages in seconds. torch comes by pip, whose settings say where a machine gets its build of it.
UV     := $(BIN)/uv pip install -q -p $(BIN)/python
PYTEST := $(BIN)/pytest -n $(CORES) --dist worksteal --durations 10

# Where this is set, each of the hundreds of processes that the tests start would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup browser demo pictures test golden oracle engines chaos fuzz properties check docs reference format serve migrate revision container wheel research clean

help:  ## Show this list.
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(READY)  ## Create .venv with everything in it.

$(READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-compile $$(grep '^uv==' constraints.txt)
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install -q --no-compile "$$(grep '^torch==' constraints.txt)"
	$(UV) -c constraints.txt -e '.[dev]'
	$(UV) --no-deps --no-build-isolation $$(grep -E '^(deepspeed|megatron-core|torchtitan|openapi-python-client)==' constraints.txt)
	@touch $@

browser:  # the dashboard's tests drive Debian's Chromium
	@command -v chromium >/dev/null || (echo "== installing chromium"; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null) || \
	  (echo "install Chromium so that 'chromium' is on the PATH, then run this again"; exit 1)

demo: setup  ## Sweep a small Llama over this machine's own devices and rank the result.
	@BIN=$(BIN) sh scripts/demo.sh

pictures: setup browser  ## Take the pictures of the README from the demo's database: make demo pictures.
	$(BIN)/python scripts/pictures.py

test: setup browser  ## Run the tests, a process per core (CORES=2); 8 to 17 minutes.
	$(PYTEST) -m "not oracle and not engine" --ignore tests/oracle

golden: setup  ## Record anew what tests/golden compares with; read the differences before you commit them.
	$(PYTEST) --record tests/golden

# PART=2/12 runs the second twelfth of these tests, and every option by itself.
oracle: setup  ## Run the slow tests (PART=1/1): every option and every pair of options trains as one process does; 60 to 90 minutes.
	$(PYTEST) --part $(PART) -m oracle

# Two engines at a time, each with daemons of its own.
engines: setup  ## Hold every engine to its contract: a real Slurm and a real Ray on this machine, a fake Kubernetes; 13 to 18 minutes.
	$(UV) -c constraints.txt -e '.[ray]'
	@sh tests/engines/slurm/install.sh
	$(BIN)/pytest -n 2 -m engine --durations 10 tests/engines

chaos: setup  ## Have 50 faults strike on SQLite and 50 on PostgreSQL (FAULTS=8), and account for every trial; a quarter of an hour.
	$(BIN)/python -m tests.chaos --faults $(FAULTS)

# What it finds need not be of the change under test, so .ci/run leaves it out; `make test` reads the real examples.
# FUZZ_SECONDS bounds each parser (5), FUZZ_REQUESTS the requests in all (2000).
fuzz: setup  ## Feed every parser and the REST API with anything, under coverage: about 4 minutes on two cores.
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.fuzz.openapi

# Not part of .ci/run: a search draws other examples every time, so what it finds need not be of the change under test.
# A counterexample that it finds becomes an @example of its property, which `make test` then holds for ever.
properties: setup  ## Search the properties of layouts, legality and predictions with fresh random examples.
	$(PYTEST) --hypothesis-profile search tests/properties

check: setup  ## Lint, types, import arrows, plain English, compose file, examples of CI.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/test_repository.py -k plain_english
	$(BIN)/biome check api/dashboard
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows docs/examples/github-action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.gitlab-ci docs/examples/gitlab-ci.yml

docs: setup browser  ## Build the documentation site into site/ and test its search; a broken link or a page in no menu fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict
	AUTOTUNER_TEST_SITE=site $(BIN)/pytest tests/browser/test_documentation.py
	@$(BIN)/python -m documentation.words

reference: setup  ## Write the pages of docs/reference that the code determines; a test compares them.
	$(BIN)/python -m documentation.reference

format: setup  ## Rewrite the code in the project's format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/biome format --write api/dashboard

serve: setup  ## Run the service, dashboard and worker on http://127.0.0.1:8000.
	$(BIN)/autotuner serve

migrate: setup  ## Bring the database of AUTOTUNER_DATABASE_URL to the newest schema.
	$(BIN)/autotuner migrate

revision: setup  ## Draft a schema revision: make revision m="what changes".
	@$(BIN)/autotuner migrate
	@$(BIN)/python -c "from autotuner.service.settings import Settings; from autotuner.store.schema import write_revision; \
	  print(write_revision(Settings().database_url, '$(m)'))"

wheel: setup  ## Build the wheel, install it alone into a new environment, and ask it the ten usual questions; a minute.
	$(BIN)/python scripts/wheel.py

container: setup  ## Replay the Dockerfile's steps in a plain shell and serve from PostgreSQL.
	@BIN=$(BIN) sh scripts/container.sh

research: setup  ## Print how fast predictions are; TABLE=sweep.csv adds the cost model against measured runs.
	$(UV) -c constraints.txt --no-deps llm-analysis fire  # it asks for years-old transformers
	OMP_NUM_THREADS=1 $(BIN)/python -m research.predict_speed
	@test -z "$(TABLE)" || $(BIN)/autotuner backtest "$(TABLE)"

clean:  ## Remove .venv, caches and local data.
	rm -rf $(VENV) var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
