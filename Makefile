# The few commands a person needs. `make help` lists them.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := $(VENV)/bin

.PHONY: help env audit demo test test-slow image-test report-test lab-smoke lab-test lab-standins lab-proofs lab-beside lab-rollout lab-reprovision lab-site lab-power lab-dkms lint docs site lock wheel clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

env: $(VENV)/.ready  ## the environment: a virtual environment with the locked packages

$(VENV)/.ready: requirements-dev.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq python3 python3-venv; \
	  else echo "make: expected Python 3.11 or newer with the venv module, found none; install it (Debian, Ubuntu: apt-get install python3 python3-venv)" >&2; exit 1; fi; fi
	@py="$(PYTHON)"; $${py:-python3} -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

audit: env  ## audit this machine; succeeds on clean (0) and on warnings (1)
	@$(BIN)/nearsocket audit @local; code=$$?; [ $$code -le 1 ] || exit $$code

demo: env  ## the fault and its cure on a two-socket virtual machine, all set-up included (KEEP=1 leaves it up)
	@$(BIN)/nearsocket lab demo $(if $(KEEP),--keep)

test: env  ## the tests that need no virtual machine, linters included
	@$(BIN)/python -m pytest

image-test: env  ## the image kit on the untouched SGLang wheels (downloads 75 MB from the package index)
	@$(BIN)/python -m pytest -m network tests/image

test-slow: env  ## the tests that take minutes and need no virtual machine
	@$(BIN)/python -m pytest -m "slow and not lab" tests

lab-smoke: env  ## one lab machine: boot, fault, cure, audit over SSH (minutes)
	@NEARSOCKET_LAB_PROFILE=small $(BIN)/python -m pytest -m lab tests/lab/test_smoke.py

lab-test: env  ## the lab itself: lifecycle, shapes, placement, containers, the patched image's build (half an hour and more without KVM)
	@$(BIN)/python -m pytest -m "lab and not slow" tests/lab $(addprefix --ignore ,$(STANDINS) $(PROOFS) $(BESIDE) $(ROLLOUT) $(REPROVISION) tests/lab/test_site.py)

STANDINS := $(addprefix tests/lab/test_,standins.py standins_engine.py driver_upgrade.py)
lab-standins: env  ## the stand-in engine and GPUs on the lab: planted faults, a driver upgrade (half an hour and more without KVM)
	@$(BIN)/python -m pytest -m "lab and not slow" $(STANDINS)

PROOFS := $(addprefix tests/lab/test_,verify.py probe.py path_probe.py)
lab-proofs: env  ## proofs at starts and their policies, restart lotteries, probes before a start (an hour without KVM)
	@$(BIN)/python -m pytest -m "lab and not slow" $(PROOFS)

BESIDE := $(addprefix tests/lab/test_,beside.py reloads.py)
lab-beside: env  ## beside what already runs: import, observe, take over, leave without a trace
	@$(BIN)/python -m pytest -m "lab and not slow" $(BESIDE)

ROLLOUT := tests/lab/test_rollout.py
lab-rollout: env  ## three lab machines with two replicas each: in order, taken back, resumed (an hour and a half without KVM)
	@$(BIN)/python -m pytest -m "lab and not slow" $(ROLLOUT)

REPROVISION := tests/lab/test_reprovision.py
lab-reprovision: env  ## driver upgrades over two lab machines, with their reboots (two hours without KVM)
	@$(BIN)/python -m pytest -m "lab and not slow" $(REPROVISION)

lab-dkms: env  ## driver modules that DKMS builds on a lab machine, and one that it cannot build (an image with a compiler)
	@$(BIN)/python -m pytest -m "lab and slow" tests/lab/test_dkms.py $(REPROVISION)

report-test: env  ## the HTML report in headless Chromium, and its accessibility by axe-core where npm is
	@if command -v npm >/dev/null; then npm ci --silent --no-audit --no-fund --ignore-scripts --prefix tests/report/axe; \
	  else echo "make: no npm, so axe-core's rules are skipped" >&2; fi
	@$(BIN)/python -m pytest -m browser tests/report

lint: env  ## ruff and mypy alone
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

docs: env  ## write the generated documentation pages anew
	@$(BIN)/python -m nearsocket.commands.docs docs

lab-site: env  ## deploys/site.py on the lab: two replicas near by force, drift, removal, faults of /etc, a flip of SNC
	@$(BIN)/python -m pytest -m 'lab and not slow' tests/lab/test_site.py

lab-power: env  ## twenty power cuts in the middle of an apply (up to an hour without KVM)
	@$(BIN)/python -m pytest -m 'lab and slow' tests/lab/test_power.py

site: env  ## build the documentation as a static site into build/site; a link that leads nowhere is an error
	@rm -rf build/site && $(BIN)/python -m nearsocket.commands.site build/site

lock:  ## resolve the locks anew (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --group dev pyproject.toml -o requirements-dev.lock

wheel: env  ## build the wheel into dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w dist .

clean:  ## remove what the other targets made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
