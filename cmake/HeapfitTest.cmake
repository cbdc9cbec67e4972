# heapfit_test(<name> [LINK static|shared|objects|layers|checked|pool_...|hardened_...] [LABEL <label>] [SANITIZED]
#   [FULL [TIMEOUT <seconds>]] [ALONE] <source>... [WRAP <function>...])
#
# Makes one GoogleTest program; CTest runs each of its tests in a process of its own, as
# <name>.<Suite>.<Test>. LINK says what of heapfit the program gets:
#   static   libheapfit.a (the default): its malloc is in the program, and only public names are seen
#   shared   libheapfit.so
#   objects  the objects before their internal names are hidden, for a test of one layer
#   layers   the same without api/: nothing replaces the malloc of the test program itself, which is compiled with
#            HEAPFIT_TEST_LAYERS
#   checked  all objects, with the checks of builds for debugging
#   pool_static, pool_shared, pool_objects, pool_layers  the same of the library with pools
#   hardened_static, hardened_shared, hardened_layers  the same of the library that is hardened
#
# LABEL core: the test is for the sanitizers and other processors too; of these, the gate has those that are SANITIZED. `single` is `core`, but not for ThreadSanitizer, which
# finds little where one thread works at a time.
# WRAP: the test defines __wrap_<function>, which is called in its place (the linker's --wrap).
# FULL: the test is for the full run alone, and may take longer than others (TIMEOUT). ALONE: for the full run, and no other test runs meanwhile, because it changes
# settings of the whole machine.
#
# CTest's label of a test is what it is of, joined to when it runs: `core-gate`, `allocator-full`, `allocator-full-alone`;
# `ctest -L` selects by any part. `gate` is of the tests that every change must pass (CONTRIBUTING.md says what may be in one): in a build for
# sanitizers the SANITIZED ones, in other builds the rest, so that no program is compiled for it twice. The targets gate_tests and
# core_tests build the programs of both labels.

include_guard()
if(HEAPFIT_GLIBC)
  include(GoogleTest)
  include(HeapfitGoogleTest)
endif()

# Seconds after which a test is taken to hang.
set(HEAPFIT_TEST_TIMEOUT 600)

add_custom_target(core_tests)
add_custom_target(gate_tests)

# heapfit_in_gate(<variable> <when>): whether a test is in the gate of this build. <when> is FULL, SANITIZED or nothing.
function(heapfit_in_gate variable when)
  set(is_gate OFF)
  if((HEAPFIT_SANITIZE AND when STREQUAL "SANITIZED") OR (NOT HEAPFIT_SANITIZE AND when STREQUAL ""))
    set(is_gate ON)
  endif()
  set("${variable}" "${is_gate}" PARENT_SCOPE)
endfunction()

# heapfit_label(<variable> <label> <when>): the label that CTest gets.
function(heapfit_label variable label when)
  heapfit_in_gate(is_gate "${when}")
  if(is_gate)
    string(APPEND label "-gate")
  elseif(when STREQUAL "FULL")
    string(APPEND label "-full")
  endif()
  set("${variable}" "${label}" PARENT_SCOPE)
endfunction()

# heapfit_label_tests(<label> <when> <test>...): the same for tests that are not GoogleTest's.
function(heapfit_label_tests label when)
  heapfit_label(label "${label}" "${when}")
  set_tests_properties(${ARGN} PROPERTIES LABELS "${label}" TIMEOUT "${HEAPFIT_TEST_TIMEOUT}")
endfunction()

# AddressSanitizer looks at the library's own code: a test with its checks takes three times as long to compile. ThreadSanitizer
# has to see all that synchronises.
set(HEAPFIT_TEST_INSTRUMENTATION ${HEAPFIT_INSTRUMENTATION})
if(HEAPFIT_SANITIZE MATCHES "address")
  set(HEAPFIT_TEST_INSTRUMENTATION -D__SANITIZE_ADDRESS__=1)
endif()

# How a test is compiled, whatever it is linked to.
function(heapfit_test_compile target)
  set_target_properties("${target}" PROPERTIES
    C_STANDARD 17 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_options("${target}" PRIVATE ${HEAPFIT_WARNINGS} ${HEAPFIT_TEST_INSTRUMENTATION}
    # A test that allocates and drops the result must really do so.
    -fno-builtin
    # Compiling the tests takes longer than running them; the library itself is what users get.
    $<$<CONFIG:Release>:-O0>
    # Clang before 19 has C++14's sized operator delete only when asked.
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fsized-deallocation>)
  target_compile_definitions("${target}" PRIVATE
    $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=> "HEAPFIT_EXPECTED_VERSION=\"${PROJECT_VERSION}\""
    "HEAPFIT_TEST_EMULATED=$<BOOL:${CMAKE_CROSSCOMPILING}>" "HEAPFIT_TEST_COUNTED=$<BOOL:${HEAPFIT_COVERAGE}>")
  target_link_libraries("${target}" PRIVATE GTest::gtest GTest::gtest_main Threads::Threads)
endfunction()

# Half of what compiling a test takes goes into these headers; so they are compiled once.
if(HEAPFIT_GLIBC)
  add_library(heapfit_test_headers OBJECT "${PROJECT_SOURCE_DIR}/tests/headers.cpp")
  heapfit_test_compile(heapfit_test_headers)
  target_precompile_headers(heapfit_test_headers PRIVATE
    "${PROJECT_SOURCE_DIR}/tests/allocator/system.h")
endif()

function(heapfit_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;FULL;SANITIZED" "LINK;LABEL;TIMEOUT" "WRAP")
  set(libraries_static heapfit::heapfit_static)
  set(libraries_shared heapfit::heapfit)
  set(libraries_objects heapfit_platform heapfit_core heapfit_objects)
  set(libraries_layers heapfit_platform heapfit_core heapfit_unconfigured)
  set(libraries_checked heapfit_checked_core heapfit_checked_api)
  if(TARGET heapfit_checked_override)
    list(APPEND libraries_checked heapfit_checked_override)
  endif()
  set(libraries_pool_static heapfit::heapfit-pools_static)
  set(libraries_pool_shared heapfit::heapfit-pools)
  set(libraries_pool_objects heapfit_platform heapfit-pools_core heapfit-pools_objects)
  set(libraries_pool_layers heapfit_platform heapfit-pools_core heapfit_unconfigured)
  set(libraries_hardened_static heapfit::heapfit-hardened_static)
  set(libraries_hardened_shared heapfit::heapfit-hardened)
  set(libraries_hardened_objects heapfit_platform heapfit-hardened_core heapfit-hardened_objects)
  set(libraries_hardened_layers heapfit_platform heapfit-hardened_core heapfit_unconfigured)
  if(NOT arg_LINK)
    set(arg_LINK static)
  endif()
  if(NOT DEFINED libraries_${arg_LINK})
    message(FATAL_ERROR "heapfit_test(${name}): LINK is none of those above: '${arg_LINK}'")
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL allocator)
  elseif(arg_LABEL STREQUAL "single" AND HEAPFIT_SANITIZE STREQUAL "thread")
    set(arg_LABEL allocator)
  elseif(arg_LABEL STREQUAL "single")
    set(arg_LABEL core)
  endif()
  set(when "")
  if(arg_FULL OR arg_ALONE)
    set(when FULL)
  elseif(arg_SANITIZED)
    set(when SANITIZED)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT "${HEAPFIT_TEST_TIMEOUT}")
  endif()
  heapfit_label(label "${arg_LABEL}" "${when}")
  if(arg_ALONE)
    string(APPEND label "-alone")
  endif()

  add_executable("test_${name}" ${arg_UNPARSED_ARGUMENTS})
  set_target_properties("test_${name}" PROPERTIES OUTPUT_NAME "${name}")
  target_link_libraries("test_${name}" PRIVATE ${libraries_${arg_LINK}})
  heapfit_test_compile("test_${name}")
  if(arg_LINK MATCHES "layers$")
    target_compile_definitions("test_${name}" PRIVATE HEAPFIT_TEST_LAYERS)
  endif()
  list(TRANSFORM arg_WRAP PREPEND "LINKER:--wrap=")
  # They are no headers of C, which in a build that counts lines each test has a file of.
  if(NOT HEAPFIT_COVERAGE AND NOT "${arg_UNPARSED_ARGUMENTS}" MATCHES "\\.c(;|$)")
    target_precompile_headers("test_${name}" REUSE_FROM heapfit_test_headers)
  endif()
  target_link_options("test_${name}" PRIVATE ${HEAPFIT_INSTRUMENTATION} ${arg_WRAP})
  if(HEAPFIT_COVERAGE)
    target_sources("test_${name}" PRIVATE "${PROJECT_SOURCE_DIR}/tests/coverage_end.c")
    target_link_options("test_${name}" PRIVATE LINKER:--wrap=_exit LINKER:--wrap=abort)
  endif()
  if(arg_LABEL STREQUAL "core")
    add_dependencies(core_tests "test_${name}")
  endif()
  if(label MATCHES "gate")
    add_dependencies(gate_tests "test_${name}")
  endif()
  gtest_discover_tests("test_${name}"
    TEST_PREFIX "${name}."
    DISCOVERY_TIMEOUT "${HEAPFIT_TEST_TIMEOUT}"
    PROPERTIES TIMEOUT "${arg_TIMEOUT}" LABELS "${label}" RUN_SERIAL "${arg_ALONE}")
endfunction()
