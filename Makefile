# Everything a person needs to begin with; each target first installs what is missing.

.PHONY: help setup demo test test-all bench lint lock lab-up lab-down clean
help:
	@echo "make demo      from nothing to a completion answered by two virtual hosts"
	@echo "make test      style, unit, plan, and the main jobs and faults on the lab; stages timed"
	@echo "make test-all  the same and all that takes longer on the lab"
	@echo "make bench     a no-change prepare beside one cold read of the same state, on the lab;"
	@echo "               model files verified, beside the disk's rate and other tools"
	@echo "make lint      style and types only"
	@echo "make lock      STACK=name: digests and hashes from the registry and the Hub; asks first"
	@echo "make setup     packages (asks first) and the virtual environment in .venv"
	@echo "make lab-up    start the two virtual hosts"
	@echo "make lab-down  switch them off; their state is kept"
	@echo "make clean     remove the lab with its cached images, .venv and caches"

setup:
	@sh tools/setup.sh

demo:
	@sh tools/demo.sh

test:
	@sh tools/test.sh

test-all:
	@sh tools/test.sh all

bench: setup
	@.venv/bin/python tools/bench.py
	@.venv/bin/python tools/bench_shards.py

lint: setup
	@sh tools/lint.sh

# LOCK_OPTIONS='--tag v2 --revision main' and the like; `python -m stacks.lock --help` lists them.
lock: setup
	@.venv/bin/python -m stacks.lock $(STACK) $(LOCK_OPTIONS)

lab-up: setup
	@.venv/bin/python -m lab up

lab-down: setup
	@.venv/bin/python -m lab down

clean:
	@if [ -x .venv/bin/python ]; then .venv/bin/python -m lab destroy --images; fi
	@rm -rf .venv reports dist .mypy_cache .pytest_cache .ruff_cache .hypothesis pyinfra-debug.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
