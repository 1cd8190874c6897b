# Every target does its own set-up. `make test ARGS="-k wheel -n 4"` hands ARGS to pytest; PYTHON= picks the interpreter.
PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
# Named for the interpreter, so that another PYTHON= is noticed.
READY := .venv/.ready-$(subst /,_,$(PYTHON))
# What runs needs less than what is worked on: no linters, no documentation, no test tools.
RUNS := .venv/.runs-$(subst /,_,$(PYTHON))
PATHS := $(wildcard src tests scripts benchmarks examples)
# mypy and import-linter refuse a package without a module.
MODULES := $(shell find src -name '*.py' -print -quit)

MAKEFLAGS += --no-print-directory
# The tests start thousands of Python processes; without bytecode each of them compiles Pitboss anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo story-checker video-metadata agent-jobs media-pipeline state-scraper test soak check fmt docs screenshots clean postgres strace faketime pgbouncer chromium redis rabbitmq ffmpeg systemd-analyze promtool fonts bench bench-quick

help:
	@echo 'make demo    see it run: examples/hello on an embedded store, no server (Ctrl-C ends it)'
	@echo 'make story-checker   see examples/story_checker run: proxies with limits, batches in a queue (half a minute)'
	@echo 'make video-metadata  see examples/video_metadata run: remote workers over HTTP, a video API with a quota (half a minute)'
	@echo 'make agent-jobs      see examples/agent_jobs run: schedules, events, fallbacks, dead letters (a quarter of a minute)'
	@echo 'make media-pipeline  see examples/media_pipeline run: messages on RabbitMQ become videos, segments, previews and dead letters (half a minute)'
	@echo 'make state-scraper   see examples/state_scraper run: four browsers scrape their own states through proxies (a minute or two; the first time some minutes more, to install)'
	@echo 'make test    run the tests on real servers (ARGS= goes to pytest)'
	@echo 'make soak    run the long reliability proofs and print their figures (about 80 minutes)'
	@echo 'make bench   measure Pitboss beside its peers (75 minutes; bench-quick: rough figures in three)'
	@echo 'make check   lint, format, types, import contracts, file checks'
	@echo 'make fmt     format the code and fix what can be fixed'
	@echo 'make docs    build the documentation into site/'
	@echo 'make screenshots  take the pictures of every page of the dashboard, wide and narrow, light and dark, into docs/pictures (five minutes)'
	@echo 'make clean   remove what these targets made'

setup: $(READY)

$(READY): pyproject.toml
	@PYTHON='$(PYTHON)' scripts/setup.sh venv
	@rm -f .venv/.ready-* .venv/.runs-* && touch $@ $(RUNS)

$(RUNS): pyproject.toml
	@PYTHON='$(PYTHON)' scripts/setup.sh app
	@rm -f .venv/.runs-* && touch $@

postgres:
	@scripts/setup.sh postgres

strace:
	@scripts/setup.sh strace

faketime:
	@scripts/setup.sh faketime

pgbouncer:
	@scripts/setup.sh pgbouncer

chromium:
	@scripts/setup.sh chromium

redis:
	@scripts/setup.sh redis

rabbitmq:
	@scripts/setup.sh rabbitmq

ffmpeg:
	@scripts/setup.sh ffmpeg

systemd-analyze:
	@scripts/setup.sh systemd-analyze

promtool:
	@scripts/setup.sh promtool

fonts:
	@scripts/setup.sh fonts

demo: $(RUNS)
	@scripts/demo.sh

# ARGS=--short has fewer tasks.
video-metadata: $(RUNS)
	@PYTHON=$(CURDIR)/$(BIN)/python examples/video_metadata/run --folder $(CURDIR)/build/video_metadata $(ARGS)

# ARGS=--short has fewer events.
agent-jobs: $(RUNS)
	@PYTHON=$(CURDIR)/$(BIN)/python examples/agent_jobs/run --folder $(CURDIR)/build/agent_jobs $(ARGS)

# ARGS=--no-broker leaves RabbitMQ out.
media-pipeline: $(RUNS) ffmpeg $(if $(findstring --no-broker,$(ARGS)),,rabbitmq)
	@PYTHON=$(CURDIR)/$(BIN)/python examples/media_pipeline/run --folder $(CURDIR)/build/media_pipeline $(ARGS)

# ARGS=--sqlite leaves PostgreSQL out; ARGS="--states 5" has more targets.
state-scraper: $(READY) chromium $(if $(findstring --sqlite,$(ARGS)),,postgres)
	@PYTHON=$(CURDIR)/$(BIN)/python examples/state_scraper/run --folder $(CURDIR)/build/state_scraper $(ARGS)

# ARGS=--stay goes on until Ctrl-C.
story-checker: $(RUNS)
	@PYTHON=$(CURDIR)/$(BIN)/python examples/story_checker/run --folder $(CURDIR)/build/story_checker $(ARGS)

test: $(READY) postgres strace faketime pgbouncer chromium rabbitmq ffmpeg systemd-analyze promtool
	@$(BIN)/python -m pytest $(ARGS)

# ARGS="power-loss crowd" runs only these.
soak: $(READY) postgres strace rabbitmq
	@$(BIN)/python -m benchmarks.soak $(ARGS)

# ARGS="--only pitboss-sqlite,pgqueuer --repetitions 5" chooses.
bench: $(READY) postgres redis rabbitmq
	@$(BIN)/python -m benchmarks.compare $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m benchmarks.source_bench)

bench-quick: $(READY) postgres redis
	@$(BIN)/python -m benchmarks.compare --quick $(ARGS)

check: $(READY)
	@$(BIN)/ruff check $(PATHS)
	@$(BIN)/ruff format --check $(PATHS)
	@$(BIN)/mypy $(if $(MODULES),,tests scripts)
	@$(if $(MODULES),$(BIN)/lint-imports --no-cache --no-logo,:)
	@$(BIN)/python scripts/check_imports.py
	@$(BIN)/python scripts/check_files.py
	@$(BIN)/python scripts/check_phrases.py

fmt: $(READY)
	@$(BIN)/ruff check --fix-only --quiet $(PATHS)
	@$(BIN)/ruff format $(PATHS)

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'Documentation: site/index.html'

# ARGS="overview tasks" takes only these pages, ARGS="--look wide-light" only this look.
screenshots: $(READY) chromium fonts
	@$(BIN)/python -m scripts.screenshots $(ARGS)

clean:
	@rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
