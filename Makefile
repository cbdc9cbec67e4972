# heapfit's everyday commands. Each first installs what it needs: Debian packages that are missing, a
# Python environment in .venv, this checkout's wheel in it. What is up to date is not done again.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The steps use all processors themselves, and share apt, .venv and build/.
.NOTPARALLEL:

PYTHON ?= python3
ALLOCATORS ?= glibc,heapfit,jemalloc,mimalloc,tcmalloc
DEMO_TIME ?= 100s # of measuring: as many blocks as fit
STUDY ?= core
STUDY_OPTIONS ?=
SUITES_OPTIONS ?= # of benchmarks/suites.py
DIST_PYTHONS ?= # interpreters that the wheel is tried with, beside that of .venv

VENV := .venv
HEAPFIT := $(VENV)/bin/heapfit
comma := ,
allocator_names := $(subst $(comma), ,$(ALLOCATORS))

BUILD_PACKAGES := gcc libc6-dev libzydis-dev libzstd-dev # for the library with pools; for traces
CMAKE_PACKAGES := cmake ninja-build
# A toolchain of rustup's is used where there is one.
CARGO_PACKAGES := $(if $(shell command -v cargo),,cargo-web)
RUST_LINT_PACKAGES := $(if $(shell command -v cargo-clippy),,cargo-web rustfmt-web rust-web-clippy)

wheel_folders := $(wildcard allocator cmake docs/man examples include integrations lab studies traces workloads)
wheel_sources := CMakeLists.txt pyproject.toml LICENSE $(wildcard README.md) \
  $(shell find $(wheel_folders) -type f -not -path '*/__pycache__/*')

.PHONY: help demo test test-all suites bench lint analyze format build site dist clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.wheel ## Compare allocators on a real program and write the report (4 minutes)
	$(HEAPFIT) allocators install $(allocator_names)
	$(HEAPFIT) workloads install xml-transform
	$(HEAPFIT) compare xml-transform --allocators $(ALLOCATORS) --max-time $(DEMO_TIME)

# Two suites at a time, which share the machine's two cores; what fails does not keep the others from running.
run_suites = mkdir -p build && flock --nonblock --close --conflict-exit-code 3 build/tests.lock \
  $(MAKE) --no-print-directory -f tests/suites.mk PYTHON=$(PYTHON) $(1) || \
  { [ $$? -ne 3 ] || echo "Another run of the tests goes on in this checkout: wait until it has ended."; exit 1; }

test: ## Test every part, in minutes; closes with 'N passed, N failed'
	@$(call run_suites,gate)

test-all: ## Run every test (hours)
	@$(call run_suites,all)

suites: ## Run other projects' tests with heapfit and with glibc (hours; SUITES_OPTIONS=--minutes-per-suite=4)
	@mkdir -p build; $(MAKE) --no-print-directory -f tests/suites.mk PYTHON=$(PYTHON) libraries requirements
	@code=0; PYTHONPATH=lab $(VENV)/bin/python benchmarks/suites.py --json docs/results/suites.json $(SUITES_OPTIONS) || \
	  code=$$?; $(VENV)/bin/python scripts/update-docs suites; exit $$code

bench: $(VENV)/.wheel ## Run the core study: every peer on every workload (hours; STUDY_OPTIONS=--quick)
	$(HEAPFIT) study run $(STUDY) --install $(STUDY_OPTIONS)

lint: $(VENV)/.requirements-lint ## Check the form of all sources with pinned tools
	@scripts/apt-install $(BUILD_PACKAGES) $(CMAKE_PACKAGES) $(RUST_LINT_PACKAGES)
	@mkdir -p build; cmake --preset lint >build/cmake-lint.log || { cat build/cmake-lint.log; exit 1; }
	@scripts/lint

analyze: $(VENV)/.requirements-lint ## Follow the allocator's paths with clang's static analyzer (minutes)
	@scripts/apt-install $(BUILD_PACKAGES) $(CMAKE_PACKAGES)
	@cmake --preset lint
	@scripts/lint analyze

format: $(VENV)/.requirements-lint ## Lay all sources out as lint wants them
	@scripts/apt-install $(RUST_LINT_PACKAGES)
	@scripts/format

build: $(VENV)/.wheel ## Build the wheel (dist/) and install it into .venv
	@echo "$$($(VENV)/bin/heapfit --version) is built (dist/) and installed; to use it: source $(VENV)/bin/activate"

site: $(VENV)/.requirements-docs ## Build the documentation as a site, with search (build/site)
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict
	@echo "To read it: $(VENV)/bin/python -m http.server --bind 127.0.0.1 --directory build/site"

dist: $(VENV)/.requirements-dist ## Build and try all that is handed out: packages, wheels, crates, image (dist/)
	scripts/dist-debian
	@scripts/apt-install $(BUILD_PACKAGES)
	scripts/dist-wheel $(VENV) $(DIST_PYTHONS)
	@scripts/apt-install cargo-web
	$(VENV)/bin/python integrations/rust/test.py
	scripts/dist-container

clean: ## Remove everything that make made; results of comparisons stay
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache
	find lab tests workloads -name __pycache__ -prune -exec rm -rf {} +

# The environment: what the lab needs, the tools that pyproject.toml pins, the wheel.

$(VENV)/.made: scripts/make-venv
	scripts/make-venv $(VENV) $(PYTHON)
	@touch $@

$(VENV)/.wheel: $(VENV)/.made $(wheel_sources) scripts/install-wheel
	@scripts/apt-install $(BUILD_PACKAGES)
	scripts/install-wheel $(VENV) dist
	@touch $@

$(VENV)/.requirements-dist $(VENV)/.requirements-docs $(VENV)/.requirements-lint $(VENV)/.requirements-test $(VENV)/.requirements-test-all: $(VENV)/.requirements-%: $(VENV)/.made pyproject.toml
	scripts/install-requirements $(VENV) $*
	@touch $@
