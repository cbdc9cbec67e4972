# Builds SOURCE into PROGRAM with what pkg-config says of the package below PREFIX, and runs it.
# LINK: shared, static (libheapfit.a, the rest dynamic) or fully-static (gcc -static).
# COMPILER, NM, EMULATOR: the tools; VERSION: what must be found.

cmake_minimum_required(VERSION 3.25)

set(ENV{PKG_CONFIG_LIBDIR} "${PREFIX}/${LIBDIR}/pkgconfig")

function(ask_pkg_config result)
  execute_process(COMMAND "${PKG_CONFIG}" ${ARGN}
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(answer UNIX_COMMAND "${answer}")
  set("${result}" ${answer} PARENT_SCOPE)
endfunction()

set(malloc_home program)
if(LINK STREQUAL "shared")
  ask_pkg_config(flags --cflags --libs heapfit)
  list(APPEND flags "-Wl,-rpath,${PREFIX}/${LIBDIR}")
  set(malloc_home libheapfit.so)
elseif(LINK STREQUAL "static")
  ask_pkg_config(flags --cflags --libs heapfit-static)
else()
  set(malloc_home "")
  ask_pkg_config(flags --cflags --static --libs heapfit)
  list(APPEND flags -static)
endif()

ask_pkg_config(version --modversion heapfit)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "heapfit.pc is of version '${version}', the project of '${VERSION}'")
endif()

execute_process(COMMAND "${COMPILER}" -Wall -Wextra -Werror "${SOURCE}" -o "${PROGRAM}" ${flags}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${EMULATOR} "${PROGRAM}" "${VERSION}" ${malloc_home}
  COMMAND_ERROR_IS_FATAL ANY)

if(LINK STREQUAL "fully-static")
  execute_process(COMMAND "${NM}" "${PROGRAM}" OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
  # A function that only libc's malloc has; heapfit defines __libc_malloc and the like itself.
  if(names MATCHES " _int_malloc\n")
    message(FATAL_ERROR "libc's own malloc is in the program beside heapfit's")
  endif()
endif()
