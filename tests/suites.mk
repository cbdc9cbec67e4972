# The suites of tests, each a target that leaves its results in build/results/NAME.xml. `make test` runs `gate`, `make test-all`
# runs `all`; one of them alone: make -f tests/suites.mk gate-lab.
#
# Suites run two at a time, and each runs one thing at a time, so that two cores are busy and no more.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
RESULTS := build/results
# Seconds after which a test is taken to hang (ctest has it from cmake/HeapfitTest.cmake).
HANG_S := 600

# Nothing that a person's environment holds may change what is tested.
unexport HEAPFIT_OPTIONS HEAPFIT_HOME HEAPFIT_LIBRARY HEAPFIT_POOLS_LIBRARY HEAPFIT_HARDENED_LIBRARY HEAPFIT_RECORD_LIBRARY
unexport HEAPFIT_RECORD HEAPFIT_TRACE_MEMORY LD_PRELOAD LD_LIBRARY_PATH GLIBC_TUNABLES MALLOC_ARENA_MAX MALLOC_CONF MALLOC_PERTURB_
unexport MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_ PYTHONMALLOC
unexport CTEST_PARALLEL_LEVEL GTEST_FILTER GTEST_REPEAT GTEST_SHUFFLE GTEST_TOTAL_SHARDS PYTEST_ADDOPTS PYTHONDONTWRITEBYTECODE
unexport ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS
# `make` of a test program is none of this one's parts.
unexport MAKEFLAGS MFLAGS MAKELEVEL

BUILD_PACKAGES := cmake g++ gcc googletest libc6-dev libgtest-dev libzstd-dev libzydis-dev ninja-build pkg-config rapidjson-dev
PHP_PACKAGES := $(shell cat integrations/php/tests/packages.txt)
CARGO_PACKAGES := $(if $(shell command -v cargo),,cargo-web)
# The programs that the gate runs with heapfit preloaded.
PROGRAM_PACKAGES := git iso-codes perl php-cli redis-server redis-tools sqlite3 valgrind

GATE := gate-native gate-asan gate-lab gate-commands gate-programs gate-php gate-rust
FULL := native alone asan tsan debug clang aarch64 musl fuzz lab programs musl-programs php rust wheel

.PHONY: gate all $(GATE) $(FULL) packages packages-all libraries requirements requirements-all results

gate all: | results
	@code=0; env $(if $(filter gate,$@),HEAPFIT_TEST_SEED=1 HEAPFIT_TEST_SECONDS=0) \
	  make --no-print-directory -f tests/suites.mk --keep-going -j2 --output-sync=target PYTHON=$(PYTHON) \
	  $(if $(filter gate,$@),$(GATE),$(FULL)) || code=1; \
	scripts/sum-tests $(RESULTS) $(if $(filter gate,$@),$(GATE),$(FULL)) || code=1; \
	exit $$code

results:
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)

# ---- what is installed and built ------------------------------------------------------------------------------------------

packages:
	@mkdir -p build
	@scripts/apt-install $(sort $(BUILD_PACKAGES) $(PHP_PACKAGES) $(CARGO_PACKAGES) $(PROGRAM_PACKAGES))

packages-all: packages
	@scripts/apt-install clang-16 libclang-rt-16-dev g++-aarch64-linux-gnu gcc-aarch64-linux-gnu qemu-user musl-dev musl-tools \
	  cargo-web docker-compose prometheus systemd $$($(PYTHON) scripts/test-packages)

requirements:
	@$(MAKE) --no-print-directory --quiet PYTHON=$(PYTHON) $(VENV)/.requirements-test

requirements-all: requirements
	@$(MAKE) --no-print-directory --quiet PYTHON=$(PYTHON) $(VENV)/.requirements-test-all

# configure PRESET, build PRESET TARGET: compiling goes on after an error, so that one test does not hide the others.
configure = cmake --preset $(1) >build/cmake-$(1).log || { cat build/cmake-$(1).log; exit 1; }
build = cmake --build --preset $(1) --target $(2) --parallel $(or $(3),1) -- -k 0 >build/$@.log || \
  { grep -A 20 '^FAILED' build/$@.log; exit 1; }
# ctest_run PRESET SELECTION: leaves build/results/TARGET.xml. Of the output only what failed is shown.
ctest_run = ctest --preset $(1) $(2) --quiet --output-on-failure --output-junit $(CURDIR)/$(RESULTS)/$@.xml

libraries: packages
	@$(call configure,release); $(call build,release,libraries,2)

# ---- the gate: of every part something, by behaviour alone ----------------------------------------------------------------

gate-native: libraries
	@$(call build,release,gate_tests); $(call ctest_run,release,-L gate --parallel 1)

gate-asan: packages
	@$(call configure,asan); $(call build,asan,gate_tests); $(call ctest_run,asan,-L gate --parallel 1)

pytest = PYTHONPATH=lab $(VENV)/bin/python -m pytest --timeout $(HANG_S) --quiet --no-header -p no:cacheprovider \
  --junitxml $(RESULTS)/$@.xml

gate_tests = gate or not full

gate-lab: libraries requirements
	@$(pytest) -m "$(gate_tests)" --ignore-glob 'tests/lab/test_cli_*' tests/lab

gate-commands: libraries requirements
	@$(pytest) -m "$(gate_tests)" tests/lab/test_cli_*.py

gate-programs: libraries requirements
	@$(pytest) -m "$(gate_tests)" tests/preload

gate-php: libraries requirements
	@$(pytest) -m "$(gate_tests)" integrations/php/tests

gate-rust: packages
	@$(PYTHON) integrations/rust/test.py $(RESULTS)/$@.xml >build/rust.log 2>&1 || { tail -n 60 build/rust.log; exit 1; }

# ---- the full run ---------------------------------------------------------------------------------------------------------

native: libraries packages-all
	@$(call build,release,all); $(call ctest_run,release,-LE alone)

# Those that change settings of the whole machine: after everything that could notice.
alone: $(filter-out alone,$(FULL))
	@$(call ctest_run,release,-L alone)

asan tsan debug clang: packages-all
	@$(call configure,$@); $(call build,$@,all); $(call ctest_run,$@,-LE alone)

aarch64: packages-all
	@scripts/cross-packages arm64 build/sysroot-aarch64 libzstd-dev
	@$(call configure,$@); $(call build,$@,all); $(call ctest_run,$@,)

musl fuzz: packages-all
	@$(call configure,$@); $(call build,$@,all); $(call ctest_run,$@,)

lab: libraries requirements-all packages-all
	@$(pytest) --numprocesses 2 --dist loadfile tests/lab

programs: libraries requirements-all packages-all
	@$(pytest) tests/preload

musl-programs: requirements-all musl
	@$(pytest) tests/musl

php: libraries requirements-all packages-all
	@$(pytest) integrations/php/tests

rust: packages-all
	@$(PYTHON) integrations/rust/test.py $(RESULTS)/$@.xml

wheel: requirements-all packages-all
	@$(pytest) tests/wheel
