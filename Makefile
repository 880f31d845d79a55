# Two commands: `make lab` to learn, `make test` to prove. `make` alone lists the rest.

PYTHON ?= python3
PORT ?= 8888
LAB_ARGS ?=
BENCH_ARGS ?= engine
# Architectures for build-kernels, such as 8.0;9.0a or native. Empty: all cards since Turing.
ARCH ?=
# An extra package index to take torch from, such as PyTorch's own index of CPU builds.
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Settings of an outer environment that would lead Python and Jupyter away from this one.
unexport PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER := 0
export JUPYTER_PREFER_ENV_PATH := 1
export TORCH_INDEX

.PHONY: help lab test env model build-kernels site format notebooks exercises bench clean
.DEFAULT_GOAL := help

help:
	@echo "make lab         the environment, the model, and JupyterLab open at the first notebook"
	@echo "                   PORT=8888, LAB_ARGS='--no-browser', TORCH_INDEX=<index of CPU builds>"
	@echo "make test        the environment if needed, then everything that CI runs"
	@echo "make env         only the environment, in $(VENV)     (PYTHON=python3.12 picks the Python)"
	@echo "make model       only the model (93 MB, kept in your cache folder)"
	@echo "make build-kernels   compile the CUDA kernels ahead of time, with nvcc   (ARCH='8.0;9.0a')"
	@echo "make bench       what the engine achieves on this machine   (BENCH_ARGS='$(BENCH_ARGS)')"
	@echo "make site        the course as a web site, in build/site     (needs Python 3.11)"
	@echo "make format      for authors: sort imports and format"
	@echo "make notebooks   for authors: run every notebook again and keep the outputs"
	@echo "make exercises   for authors: write exercises/ and solutions/ from the reference"
	@echo "make clean       remove the environment and what tests left; the model and your work stay"

$(READY): pyproject.toml constraints.txt .ci/bootstrap.py
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "Python is missing: no '$(PYTHON)' here. Install Python 3.10 or later (Debian, Ubuntu: sudo apt-get install python3 python3-venv), or name yours: make lab PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) .ci/bootstrap.py $(VENV)

env: $(READY)

model: $(READY)
	@$(BIN)/yaie pull

lab: model
	@$(BIN)/python -m yaie.course.lab --port=$(PORT) $(LAB_ARGS)

test: model
	@$(BIN)/python .ci/test.py

build-kernels: $(READY)
	@$(BIN)/python csrc/setup.py $(if $(ARCH),--arch "$(ARCH)")

site: $(READY)
	@$(BIN)/python -m yaie.course.author.site

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebooks: model
	$(BIN)/python -m yaie.course.author run

exercises: $(READY)
	$(BIN)/python -m yaie.course build

bench: model
	$(BIN)/yaie bench $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
