# The libraries show a program exactly the public names: heapfit's own, libc's allocation functions and two that want a process
# of one thread, and C++'s operators. SHARED and STATIC are the libraries, NM the tool that lists their names, MORE a regular
# expression for names that this variant has besides, ALONE one for those of the shared library alone. NEVER is one for names that another C library has.

cmake_minimum_required(VERSION 3.25)

set(public_name "^(hf_[a-z0-9_]+\
|malloc|free|calloc|realloc|reallocarray|aligned_alloc|memalign|posix_memalign|valloc|pvalloc|cfree\
|free_sized|free_aligned_sized|malloc_usable_size|malloc_trim|malloc_stats|malloc_info|mallinfo\
|mallinfo2|mallopt|unshare|setns\
|__libc_(malloc|calloc|realloc|free|cfree|memalign|valloc|pvalloc)|__posix_memalign\
|_Zn[wa][a-zA-Z0-9_]+|_Zd[la]Pv[a-zA-Z0-9_]*)$")

function(defined_names result)
  execute_process(COMMAND "${NM}" --format=posix --defined-only ${ARGN}
    OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
  # An archive's listing also names its member, on a line without an address.
  string(REGEX MATCHALL "[^\n ]+ [A-Za-z] [0-9a-f]" names "${listing}")
  list(TRANSFORM names REPLACE "(@| ).*" "")
  list(FILTER names EXCLUDE REGEX "^HEAPFIT_[0-9.]+$") # the versions themselves
  list(SORT names)
  set("${result}" ${names} PARENT_SCOPE)
endfunction()

defined_names(shared_names --dynamic "${SHARED}")
defined_names(static_names --extern-only "${STATIC}")
list(FILTER shared_names EXCLUDE REGEX "^_(init|fini)$") # of musl's startup files: in each of its shared libraries
# The linker joins it with that of a program's own USDT probes (platform/probe.c). It is hidden, so that no program exports it.
list(REMOVE_ITEM static_names _.stapsdt.base)

if(ALONE)
  list(FILTER shared_names EXCLUDE REGEX "^(${ALONE})$")
endif()

set(internal ${shared_names} ${static_names})
list(FILTER internal EXCLUDE REGEX "${public_name}")
if(NEVER)
  set(never ${shared_names} ${static_names})
  list(FILTER never INCLUDE REGEX "^(${NEVER})$")
  list(APPEND internal ${never})
endif()
if(MORE)
  list(FILTER internal EXCLUDE REGEX "^(${MORE})$")
endif()
if(internal)
  message(SEND_ERROR "internal names can be seen from outside: ${internal}")
endif()

foreach(expected IN ITEMS hf_version malloc free posix_memalign malloc_usable_size _Znwm _ZdlPv)
  if(NOT expected IN_LIST shared_names)
    message(SEND_ERROR "${SHARED} does not define ${expected}")
  endif()
endforeach()

if(NOT shared_names STREQUAL static_names)
  message(SEND_ERROR
    "the shared and the static library differ:\n  ${shared_names}\n  ${static_names}")
endif()
