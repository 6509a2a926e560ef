# Everything runs from .venv, made once and again when pyproject.toml or constraints.txt change.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11 python3.12 python3.13 python3 python
BIN := .venv/bin
STAMP := .venv/.installed
SOAK_RUNS ?= 3
SOAK_KILLS ?= 100
B ?= step
# Many tests mostly wait, for Airflow or for Slurm: each of these has a worker of its own, see
# tests/conftest.py.
WORKERS := --numprocesses 3 --dist loadscope --no-loadscope-reorder
# Two threads of a small model only get into each other's way.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test lint bench soak chaos clean system

help:
	@echo "make demo    train, fail twice, resume, publish and see ETT% in a real Airflow"
	@echo "make test    lint and all tests"
	@echo "make lint    ruff, mypy --strict, import-linter"
	@echo "make bench   B=step, metric, launch, slurm, checkpoint, communication, parcels, publish, ett, api or ui: a benchmark of bench/, with its targets; ARGS=--full"
	@echo "make soak    the long counts: SOAK_RUNS demos, N injections, SOAK_KILLS kills while saving"
	@echo "make chaos   N=30: kill and click at random in a real Airflow; SEED repeats a plan, SCHEDULER=slurm SSH=1"
	@echo "make clean   remove the environment, the demo and all caches"

# KEEP=0 stops everything at the end even on a terminal; PORT=8080 picks the port.
demo: $(STAMP)
	@$(BIN)/airflow-ett demo $(if $(filter 0,$(KEEP)),--no-keep) $(if $(PORT),--port $(PORT))

test: lint system
	@$(BIN)/python -m pytest $(WORKERS)

lint: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports | tail -n 2

bench: $(STAMP)
	@$(BIN)/python bench/$(B).py $(ARGS)

# Writes docs/soak.md.
soak: $(STAMP)
	@$(BIN)/python -m tests.soak --demos $(SOAK_RUNS) --injections $(or $(N),200) --kills $(SOAK_KILLS)

# Its last line is the tally, its exit code the result.
chaos: $(STAMP)
	@$(BIN)/python -m tests.system.chaos --n $(or $(N),30) $(if $(SEED),--seed $(SEED)) \
	  $(if $(SCHEDULER),--scheduler $(SCHEDULER)) $(if $(SSH),--ssh)

clean:
	@rm -rf .venv .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The browser tests need Chromium, torch.compile a C++ compiler, tests/slurm a Slurm and an sshd.
# Elsewhere than on Debian, or not as root, what is missing makes its tests skip, with the reason. apt
# must not start the services of Slurm, MariaDB and ssh: a policy-rc.d that answers 101 forbids it while apt runs,
# unless the machine has one of its own; where systemd runs, what was installed is not enabled either.
SYSTEM := chromium:chromium g++:g++ \
  sbatch:slurm-wlm slurmdbd:slurmdbd munged:munge mariadbd:mariadb-server sshd:openssh-server
POLICY := /usr/sbin/policy-rc.d

system:
	@missing=; \
	for pair in $(SYSTEM); do \
	  PATH=$$PATH:/usr/sbin command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair#*:}"; \
	done; \
	if [ -n "$$missing" ] && [ -e /etc/debian_version ] && [ "$$(id -u)" = 0 ]; then \
	  echo "installing$$missing"; \
	  apt-get update -qq; \
	  if [ ! -e $(POLICY) ]; then \
	    trap 'rm -f $(POLICY)' EXIT; \
	    printf '#!/bin/sh\nexit 101\n' > $(POLICY); \
	    chmod 755 $(POLICY); \
	  fi; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$missing >/dev/null; \
	  if [ -d /run/systemd/system ]; then \
	    for package in $$missing; do \
	      case $$package in \
	        slurm-wlm) systemctl --quiet disable slurmctld slurmd;; \
	        mariadb-server) systemctl --quiet disable mariadb;; \
	        openssh-server) systemctl --quiet disable ssh;; \
	        slurmdbd | munge) systemctl --quiet disable $$package;; \
	      esac; \
	    done; \
	  fi; \
	fi

$(STAMP): pyproject.toml constraints.txt
	@python=; \
	for candidate in $(PYTHON); do \
	  if $$candidate -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	      2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "airflow-ett needs Python 3.11, 3.12 or 3.13 with its venv module; none was found." \
	    "Install one or name it: make PYTHON=/path/to/python3.12 ..." >&2; \
	  exit 1; \
	fi; \
	if [ "$$(df -Pk . | awk 'NR == 2 {print $$4}')" -lt 4000000 ]; then \
	  echo "airflow-ett needs 4 GB of free disk space for .venv and the demo." >&2; \
	  exit 1; \
	fi; \
	echo "installing into .venv with $$($$python --version) (once; takes minutes)"; \
	$$python -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@
