# HEAPFIT_ZSTD: whether libzstd is there as an archive (Debian: libzstd-dev), which the recorder and the reader of its traces
# are linked with; without it both are left out.
# HEAPFIT_ZSTD_LIBRARY: the archive.
#
# heapfit_link_zstd(<target>)  links it into <target>, a library that keeps its names to itself: neither a recorded program
#                              nor whoever reads a trace gets another libzstd than its own.

include_guard()
include(HeapfitMissing)

set(HEAPFIT_ZSTD OFF)
find_library(HEAPFIT_ZSTD_LIBRARY NAMES libzstd.a)
find_path(HEAPFIT_ZSTD_HEADERS NAMES zstd.h)
mark_as_advanced(HEAPFIT_ZSTD_LIBRARY HEAPFIT_ZSTD_HEADERS)
if(HEAPFIT_ZSTD_LIBRARY AND HEAPFIT_ZSTD_HEADERS)
  set(HEAPFIT_ZSTD ON)
  if(CMAKE_CROSSCOMPILING) # where the compiler does not look by itself
    include_directories(SYSTEM "${HEAPFIT_ZSTD_HEADERS}")
  endif()
elseif(CMAKE_CROSSCOMPILING)
  message(STATUS "No libheapfit-record, no libheapfit-trace: they need libzstd for the processor that is built for "
    "(Debian: scripts/cross-packages arm64 build/sysroot-aarch64 libzstd-dev)")
else()
  heapfit_missing("No libheapfit-record, no libheapfit-trace: they need libzstd (Debian: apt-get install libzstd-dev)")
endif()

function(heapfit_link_zstd target)
  target_link_libraries("${target}" PRIVATE "${HEAPFIT_ZSTD_LIBRARY}")
  get_target_property(kind "${target}" TYPE)
  if(kind STREQUAL "SHARED_LIBRARY")
    target_link_options("${target}" PRIVATE LINKER:--exclude-libs,libzstd.a)
  endif()
endfunction()
