# Google's tcmalloc as a library to preload, from the source that the crate libtcmalloc-sys carries.
# That crate compiles it for Rust programs, without the malloc family; this is the whole of it.
#
#     make -f google-tcmalloc.mk SOURCE=folder/of/the/crate LIBRARY=made.so

MAKEFLAGS += --jobs=$(shell nproc)

tcmalloc := $(SOURCE)/c_src/tcmalloc/tcmalloc
abseil := $(SOURCE)/c_src/abseil-cpp/absl

# The parts of Abseil that tcmalloc uses.
abseil_parts := base base/internal container/internal crc crc/internal debugging/internal \
  hash/internal numeric profiling/internal status status/internal strings strings/internal \
  strings/internal/str_format synchronization synchronization/internal time \
  time/internal/cctz/src types

sources := \
  $(wildcard $(tcmalloc)/*.cc $(tcmalloc)/internal/*.cc) \
  $(tcmalloc)/internal/percpu_rseq_asm.S \
  $(tcmalloc)/selsan/selsan.cc \
  $(wildcard $(addsuffix /*.cc,$(addprefix $(abseil)/,$(abseil_parts)))) \
  $(abseil)/debugging/stacktrace.cc \
  $(abseil)/debugging/symbolize.cc

# Tests and their tools; choices that a program would make by linking one in; what writes profiles.
sources := $(filter-out \
  %_test.cc %_test_a.cc %_test_b.cc %_test_common.cc %_testing.cc %/test_util.cc \
  %/test_instance_tracker.cc \
  $(tcmalloc)/mock_% $(tcmalloc)/want_% \
  %/status_matchers.cc $(tcmalloc)/profile_marshaler.cc $(tcmalloc)/internal/profile_builder.cc,$(sources))

objects := $(patsubst $(SOURCE)/%,%.o,$(sources))

CXXFLAGS := -std=c++17 -O2 -DNDEBUG -DTCMALLOC_INTERNAL_8K_PAGES -w \
  -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -ftls-model=initial-exec \
  -fno-omit-frame-pointer -ffunction-sections -fdata-sections -pthread \
  -I$(SOURCE)/c_src/abseil-cpp -I$(SOURCE)/c_src/tcmalloc

$(LIBRARY): $(objects)
	$(CXX) -shared -pthread -Wl,--gc-sections -o $@ $^ -ldl

$(objects): %.o: $(SOURCE)/%
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -c -o $@ $<
