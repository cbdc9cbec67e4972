# heapfit_add_variant(<target> OBJECTS <object library>... [SHARED_OBJECTS <object library>...] SOURCES <file>...
#   [DEFINITIONS <definition>...])
#
# Makes the three targets of one variant of the library:
#   <target>_objects  the compiled sources, which with those of OBJECTS are the whole library, for tests that look inside
#   <target>          lib<target>.so, which alone has those of SHARED_OBJECTS
#   <target>_static   lib<target>.a, of a single object that exports what the shared library does
#
# A variant is a library of its own, chosen when it is linked or preloaded, never at run time.

include_guard()

# The number of the binary interface, in the libraries' names (libheapfit.so.1). It is raised when a program that was linked with
# the libraries before could not use them any more, and only then; tests/package/consumer/interface.h says what may change.
set(HEAPFIT_INTERFACE 1)

# Warnings are errors only where CMAKE_COMPILE_WARNING_AS_ERROR says so: in our presets, not on the
# machine of somebody with a newer compiler.
set(HEAPFIT_WARNINGS -Wall -Wextra -Wpedantic)

set(HEAPFIT_CODE_GENERATION
  -fno-builtin-malloc          # the compiler must not turn malloc + memset in calloc into calloc
  -ftls-model=initial-exec     # thread-local access without a call, which could itself allocate
  -fno-semantic-interposition  # our own calls to our own functions are direct
  -fno-plt
  -fexceptions)                # std::bad_alloc passes through operator new

set(HEAPFIT_LINK_OPTIONS
  LINKER:-z,now        # no lazy binding: the first malloc may come before everything else
  LINKER:-z,nodelete   # dlclose must not unmap code that owns live memory
  LINKER:-z,defs)

set(HEAPFIT_INSTRUMENTATION "")
if(HEAPFIT_SANITIZE)
  list(APPEND HEAPFIT_INSTRUMENTATION
    "-fsanitize=${HEAPFIT_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # The sanitizer's runtime is resolved in the program, not in the library.
  list(REMOVE_ITEM HEAPFIT_LINK_OPTIONS LINKER:-z,defs)
endif()
if(HEAPFIT_COVERAGE)
  list(APPEND HEAPFIT_INSTRUMENTATION --coverage -fprofile-update=atomic)
endif()

# What shared libraries call of the C library by names that it has had only since glibc 2.28, they get from
# platform/compat.c, which tells why and how.
set(HEAPFIT_COMPAT_NAMES
  __rseq_offset __rseq_size _dl_find_object dladdr dladdr1 dlerror dlsym fstat fstatat getcpu getdents64 pthread_attr_setstacksize
  pthread_create
  pthread_getspecific pthread_key_create pthread_mutexattr_destroy pthread_mutexattr_init pthread_mutexattr_setrobust
  pthread_setspecific pthread_sigmask stat)

function(heapfit_add_variant target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OBJECTS;SHARED_OBJECTS;SOURCES;DEFINITIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "heapfit_add_variant(${target}): expected OBJECTS, SOURCES and DEFINITIONS only")
  endif()

  heapfit_add_objects("${target}_objects" "${arg_SOURCES}" "${arg_DEFINITIONS}")
  heapfit_add_shared("${target}" ${arg_OBJECTS} "${target}_objects" ${arg_SHARED_OBJECTS})
  heapfit_name_versions("${target}")
  heapfit_add_static("${target}" ${arg_OBJECTS} "${target}_objects")

  add_library("heapfit::${target}" ALIAS "${target}")
  add_library("heapfit::${target}_static" ALIAS "${target}_static")
endfunction()

function(heapfit_add_objects objects sources definitions)
  add_library("${objects}" OBJECT ${sources})
  set_target_properties("${objects}" PROPERTIES
    C_STANDARD 17
    C_STANDARD_REQUIRED ON
    C_EXTENSIONS OFF
    C_VISIBILITY_PRESET hidden
    POSITION_INDEPENDENT_CODE ON)
  target_compile_options("${objects}" PRIVATE
    ${HEAPFIT_WARNINGS}
    ${HEAPFIT_CODE_GENERATION}
    $<$<CONFIG:Release>:-O2>)
  target_compile_options("${objects}" PRIVATE ${HEAPFIT_INSTRUMENTATION})
  target_link_options("${objects}" PUBLIC ${HEAPFIT_INSTRUMENTATION})
  target_compile_definitions("${objects}"
    PRIVATE _GNU_SOURCE= "HEAPFIT_VERSION=\"${PROJECT_VERSION}\""
    PUBLIC ${definitions})
  target_include_directories("${objects}" PUBLIC
    "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/allocator")
  target_link_libraries("${objects}" PUBLIC Threads::Threads)
endfunction()

# heapfit_object_files(<variable> <object library>...): what they consist of.
function(heapfit_object_files variable)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  set("${variable}" "${ARGN}" PARENT_SCOPE)
endfunction()

# heapfit_add_shared(<target> <object library>...)
function(heapfit_add_shared target)
  heapfit_object_files(files ${ARGN})
  add_library("${target}" SHARED ${files})
  set_target_properties("${target}" PROPERTIES
    LINKER_LANGUAGE C
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  if(NOT HEAPFIT_WHEEL)
    # A wheel cannot hold symbolic links, so its library is the one file libheapfit.so.
    set_target_properties("${target}" PROPERTIES SOVERSION "${HEAPFIT_INTERFACE}")
  endif()
  target_link_options("${target}" PRIVATE ${HEAPFIT_LINK_OPTIONS})
  heapfit_link_compat("${target}" heapfit_compat)
  heapfit_public_interface("${target}" PRIVATE)
endfunction()

# heapfit_name_versions(<shared library>): gives our own names a version each. A program that was linked with a newer library is
# then refused by an older one when it starts, not when it calls what is not there. The malloc family has none: a definition with
# a version would not stand in for the C library's, which has another.
function(heapfit_name_versions target)
  if(HEAPFIT_GLIBC)
    set(versions "${PROJECT_SOURCE_DIR}/allocator/versions.map")
    target_link_options("${target}" PRIVATE "LINKER:--version-script=${versions}")
    set_property(TARGET "${target}" APPEND PROPERTY LINK_DEPENDS "${versions}")
  endif()
endfunction()

# heapfit_link_compat(<shared library> <object library of platform/compat.c>): of which it takes what it calls. Sanitizers
# stand in for some of these functions themselves. musl has no versions of symbols.
function(heapfit_link_compat target objects)
  if(HEAPFIT_SANITIZE OR NOT HEAPFIT_GLIBC)
    return()
  endif()
  target_sources("${target}" PRIVATE "$<TARGET_OBJECTS:${objects}>")
  list(TRANSFORM HEAPFIT_COMPAT_NAMES PREPEND LINKER:--wrap= OUTPUT_VARIABLE wraps)
  target_link_options("${target}" PRIVATE ${wraps} LINKER:--gc-sections)
endfunction()

# An archive of many members would let the linker take some of them and leave others to libc, and
# would show every internal name to the program. So the objects are joined into one and the hidden
# names made local. A program may define operators of its own beside it, so these are weak there.
# heapfit_add_static(<target> <object library>...)
function(heapfit_add_static target)
  heapfit_object_files(files ${ARGN})
  set(joined "${PROJECT_BINARY_DIR}/objects/${target}-joined.o")
  set(single "${PROJECT_BINARY_DIR}/objects/${target}.o")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/objects")
  add_custom_command(
    OUTPUT "${single}"
    BYPRODUCTS "${joined}"
    COMMAND "${CMAKE_LINKER}" -r -o "${joined}" ${files}
    COMMAND "${CMAKE_OBJCOPY}" --localize-hidden --wildcard --weaken-symbol=_Zn[wa]* --weaken-symbol=_Zd[la]*
      "${joined}" "${single}"
    # A program with probes of its own shares this one name with ours (platform/probe.c).
    COMMAND "${CMAKE_OBJCOPY}" --globalize-symbol=_.stapsdt.base "${single}"
    DEPENDS ${files}
    COMMENT "Joining the objects of lib${target}.a"
    COMMAND_EXPAND_LISTS
    VERBATIM)
  set_source_files_properties("${single}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

  add_library("${target}_static" STATIC "${single}")
  set_target_properties("${target}_static" PROPERTIES
    LINKER_LANGUAGE C
    OUTPUT_NAME "${target}"
    ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  if(HEAPFIT_OVERRIDE)
    # Even a program that never calls malloc itself must get ours: libc allocates on its behalf.
    target_link_options("${target}_static" INTERFACE LINKER:--undefined=malloc
      # In a fully static C++ program, what operator new throws std::bad_alloc with.
      $<$<LINK_LANGUAGE:CXX>:LINKER:--undefined=_ZSt17__throw_bad_allocv>)
  endif()
  heapfit_public_interface("${target}_static" PUBLIC)
endfunction()

# What a program that links the library sees of it. `threads` is PUBLIC where the program itself
# has to link what the library needs.
function(heapfit_public_interface target threads)
  target_include_directories("${target}" INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries("${target}" ${threads} Threads::Threads)
  if(HEAPFIT_INSTRUMENTATION)
    target_link_options("${target}" PUBLIC ${HEAPFIT_INSTRUMENTATION})
  endif()
endfunction()
