# heapfit's everyday commands. Each first installs what it needs: Debian packages that are missing, a
# Python environment in .venv, this checkout's wheel in it. What is up to date is not done again.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The steps use all processors themselves, and share apt, .venv and build/.
.NOTPARALLEL:

PYTHON ?= python3
ALLOCATORS ?= glibc,heapfit,jemalloc,mimalloc,tcmalloc
DEMO_REPLICATES ?= 7
STUDY ?= core
STUDY_OPTIONS ?=

VENV := .venv
HEAPFIT := $(VENV)/bin/heapfit
comma := ,
allocator_names := $(subst $(comma), ,$(ALLOCATORS))

BUILD_PACKAGES := gcc libc6-dev libzydis-dev libzstd-dev # for the library with pools; for traces
CMAKE_PACKAGES := cmake ninja-build
TEST_PACKAGES := $(CMAKE_PACKAGES) g++ libgtest-dev googletest pkg-config $(FUZZ_PACKAGES)
FUZZ_PACKAGES := clang-16 libclang-rt-16-dev # the second holds libFuzzer and the sanitizers
PHP_PACKAGES := $(shell cat integrations/php/tests/packages.txt)
RUST_PACKAGES := cargo-web # plain cargo would do for the crates, but not for those of the catalogue
RUST_LINT_PACKAGES := rustfmt-web rust-web-clippy
CROSS_PACKAGES := gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user
# Those that need packages of their own, but for gigabytes; workloads/micro is compiled by its tests, and
# those of the PHP applications make a tenth of their data, whose whole takes minutes.
TEST_WORKLOADS := $(filter-out php-%,$(notdir $(patsubst %/workload.toml,%,$(shell grep -L '^large = true' \
  workloads/*/workload.toml workloads/range-coding/*/workload.toml))))

wheel_folders := $(wildcard allocator cmake examples include integrations lab studies traces workloads)
wheel_sources := CMakeLists.txt pyproject.toml LICENSE $(wildcard README.md) \
  $(shell find $(wheel_folders) -type f -not -path '*/__pycache__/*')

.PHONY: help demo test bench lint format build clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.wheel ## Compare allocators on a real program and write the report (minutes)
	$(HEAPFIT) allocators install $(allocator_names)
	$(HEAPFIT) workloads install xml-transform
	$(HEAPFIT) compare xml-transform --allocators $(ALLOCATORS) --replicates $(DEMO_REPLICATES)

test: $(VENV)/.test ## Run every test; closes with 'N passed, N failed' (an hour or more)
	@packages=$$($(VENV)/bin/python scripts/test-packages) && \
	  scripts/apt-install $(BUILD_PACKAGES) $(TEST_PACKAGES) $(PHP_PACKAGES) $(RUST_PACKAGES) $$packages
	@test "$$(uname -m)" = aarch64 || { scripts/apt-install $(CROSS_PACKAGES) && \
	  scripts/cross-packages arm64 build/sysroot-aarch64 libzstd-dev; }
	@HEAPFIT_HOME=build/test-home $(HEAPFIT) workloads install $(TEST_WORKLOADS)
	@scripts/run-tests

bench: $(VENV)/.wheel ## Run the core study: every peer on every workload (hours; STUDY_OPTIONS=--quick)
	$(HEAPFIT) study run $(STUDY) --install $(STUDY_OPTIONS)

lint: $(VENV)/.lint ## Check the form of all sources with pinned tools
	@scripts/apt-install $(BUILD_PACKAGES) $(CMAKE_PACKAGES) $(RUST_PACKAGES) $(RUST_LINT_PACKAGES)
	@cmake --preset lint
	@scripts/lint

format: $(VENV)/.lint ## Lay all sources out as lint wants them
	@scripts/apt-install $(RUST_PACKAGES) $(RUST_LINT_PACKAGES)
	@scripts/format

build: $(VENV)/.wheel ## Build the wheel (dist/) and install it into .venv

clean: ## Remove everything that make made; results of comparisons stay
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache
	find lab tests workloads -name __pycache__ -prune -exec rm -rf {} +

# The environment, and in it the wheel, then the tools that pyproject.toml pins.

$(VENV)/.made: scripts/make-venv
	scripts/make-venv $(VENV) $(PYTHON)
	@touch $@

$(VENV)/.wheel: $(VENV)/.made $(wheel_sources) scripts/install-wheel
	@scripts/apt-install $(BUILD_PACKAGES)
	scripts/install-wheel $(VENV) dist
	@touch $@

$(VENV)/.test $(VENV)/.lint: $(VENV)/.%: $(VENV)/.wheel
	$(VENV)/bin/pip install --disable-pip-version-check "$$(echo dist/heapfit-*.whl)[$*]"
	@touch $@
