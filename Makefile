# Two commands: `make run` trains an agent, `make test` passes the tests. Both set everything up first.
.PHONY: run setup vllm peers test test-slow quick test-vllm test-peers check docs gpu gpu-parts clean

PY := .venv/bin/python

run: setup
	.venv/bin/hindcast start

setup:
	@sh app/setup.sh

vllm: setup
	@sh app/setup_vllm.sh

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	@$(PY) tests/tools/package_folder.py build/package
	.venv/bin/mypy
	.venv/bin/mypy --explicit-package-bases tests/vllm

PYTEST := .venv/bin/pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 10

test: setup
	@sh app/setup.sh tests
	$(PYTEST) -m "not slow"

# Whole runs of every recipe, faults injected for minutes, the tour: what `make test` leaves out and CI runs, too.
test-slow: setup
	@sh app/setup.sh tests
	$(PYTEST) -m slow

# The unit tests without broker, browser, model and other processes: what to run while writing code.
quick: setup
	.venv/bin/pytest -n 2 --dist loadfile -m "not broker and not browser and not torch and not process and not slow" tests/unit tests/golden

docs: setup
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	PYTHONPATH=tests .venv/bin/python -m tools.docs_site --to build/site

# The whole protocol for a machine with a GPU where packages can be installed: a report in OUT. VLLM_PYTHON names the Python of an
# environment with vLLM; without it the steps with a server are left out.
VLLM_PYTHON ?=
gpu: OUT = build/gpu
gpu: setup
	@sh app/setup.sh tests
	PYTHONPATH=tests .venv/bin/python -m bench.gpu_protocol $(OUT) --vllm-python "$(VLLM_PYTHON)"

# Speed, memory and equal bits of the learner on this machine's GPU. Installs nothing: GPU_PYTHON brings torch 2.11 or newer,
# transformers and what else the learner imports. OUT is a folder for the records; what is there is not measured again.
OUT ?= build/gpu-parts
GPU_PYTHON ?= python3
gpu-parts:
	@$(GPU_PYTHON) tests/tools/package_folder.py build/package
	PYTHONPATH=build/package:tests $(GPU_PYTHON) -m bench.gpu_parts $(OUT)

peers: setup
	@sh app/setup_peers.sh

# With other projects' real packages, each in an environment of its own.
PEERS := $(sort $(patsubst tests/peers/%/,%,$(dir $(wildcard tests/peers/*/test_*.py))))
PEER_PYTEST = PATH="$(CURDIR)/.venv/bin:$$PATH" .venv-peers/$(1)/bin/python -m pytest
test-peers: peers
	set -e; for name in $(PEERS); do $(call PEER_PYTEST,$$name) -m peers tests/peers/$$name; done
	$(call PEER_PYTEST,wandb) -k wandb tests/unit/test_attach_examples.py
	$(call PEER_PYTEST,trackio) -k trackio tests/unit/test_attach_examples.py

test-vllm: vllm
	.venv/bin/pytest -m vllm tests/vllm

clean:
	rm -rf .venv .venv-vllm .venv-peers .hindcast .mypy_cache .ruff_cache .pytest_cache build *.egg-info
