# HEAPFIT_POOLS: whether libheapfit-pools is built. On x86-64 it reads machine code with Zydis (Debian:
# libzydis-dev); without that it is left out. Other processors need no decoder, since follow_none.c stands in there.
# HEAPFIT_FOLLOW_SOURCES: the sources that read machine code, or stand in.
#
# heapfit_link_decoder(<target>)  links what the pool layer of <target> needs. In the wheel, the decoder's library
#                                 lies beside ours and is found there: a machine that it is put on need not have it.

include_guard()
include(HeapfitMissing)

set(HEAPFIT_POOLS ON)
set(HEAPFIT_FOLLOW_SOURCES pools/follow_none.c)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  find_package(zydis 4 CONFIG QUIET)
  if(TARGET Zydis::Zydis)
    set(HEAPFIT_FOLLOW_SOURCES pools/code.c pools/follow.c pools/follow_state.c)
  else()
    set(HEAPFIT_POOLS OFF)
    heapfit_missing("No libheapfit-pools: it needs Zydis 4 (Debian: apt-get install libzydis-dev)")
  endif()
endif()

function(heapfit_link_decoder target)
  if(NOT TARGET Zydis::Zydis)
    return()
  endif()
  # The file alone: the target would add Zycore, of which only headers are needed. And a compiler's own folder, named
  # once more, would come too early for C++.
  get_target_property(folders Zydis::Zydis INTERFACE_INCLUDE_DIRECTORIES)
  list(REMOVE_ITEM folders ${CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES})
  target_include_directories("${target}" SYSTEM PRIVATE ${folders})
  target_link_libraries("${target}" PRIVATE "$<TARGET_FILE:Zydis::Zydis>")
  get_target_property(kind "${target}" TYPE)
  if(HEAPFIT_WHEEL AND kind STREQUAL "SHARED_LIBRARY")
    set_target_properties("${target}" PROPERTIES INSTALL_RPATH "$ORIGIN")
    heapfit_install_decoder()
  endif()
endfunction()

# Under the name that the dynamic linker asks for; a wheel cannot hold symbolic links.
function(heapfit_install_decoder)
  get_target_property(location Zydis::Zydis LOCATION)
  file(REAL_PATH "${location}" library)
  install(FILES "${library}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" RENAME "$<TARGET_SONAME_FILE_NAME:Zydis::Zydis>")
endfunction()
