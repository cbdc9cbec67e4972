# heapfit_missing(<what is left out, and the package that brings what it needs>)
#
# Something optional is not installed. Where tests are built, that is an error, lest a run that has tested less looks like any
# other; -D HEAPFIT_ALLOW_MISSING=ON asks for it.

include_guard()

option(HEAPFIT_ALLOW_MISSING "Build the tests without those whose optional dependencies are not installed" OFF)

function(heapfit_missing words)
  if(HEAPFIT_BUILD_TESTS AND NOT HEAPFIT_ALLOW_MISSING)
    message(FATAL_ERROR "${words}; or configure with -D HEAPFIT_ALLOW_MISSING=ON")
  endif()
  message(STATUS "${words}")
endfunction()
