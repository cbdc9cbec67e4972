# GTest::gtest and GTest::gtest_main, from Debian's packages: the built library for a native build,
# the sources that the same package brings for any other (another processor, or for ThreadSanitizer).

include_guard()

set(HEAPFIT_GOOGLETEST_SOURCE "/usr/src/googletest" CACHE PATH "GoogleTest's sources")
set(googletest_advice
  "install it (Debian: apt-get install libgtest-dev) or configure with -DHEAPFIT_BUILD_TESTS=OFF")

if(CMAKE_CROSSCOMPILING OR HEAPFIT_SANITIZE STREQUAL "thread")
  if(NOT EXISTS "${HEAPFIT_GOOGLETEST_SOURCE}/CMakeLists.txt")
    message(FATAL_ERROR
      "no GoogleTest sources in ${HEAPFIT_GOOGLETEST_SOURCE}: ${googletest_advice}")
  endif()
  set(INSTALL_GTEST OFF)
  set(BUILD_GMOCK OFF)
  add_subdirectory("${HEAPFIT_GOOGLETEST_SOURCE}" "${PROJECT_BINARY_DIR}/googletest"
    EXCLUDE_FROM_ALL SYSTEM)
  foreach(library IN ITEMS gtest gtest_main)
    set_target_properties("${library}" PROPERTIES COMPILE_WARNING_AS_ERROR OFF)
    target_compile_options("${library}" PRIVATE ${HEAPFIT_INSTRUMENTATION})
    if(NOT TARGET "GTest::${library}")
      add_library("GTest::${library}" ALIAS "${library}")
    endif()
  endforeach()
else()
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "GoogleTest was not found: ${googletest_advice}")
  endif()
endif()
