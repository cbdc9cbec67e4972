# Cross-building for 64-bit ARM with Debian's compiler; programs run under qemu's user emulation.
# Debian packages: gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# qemu keeps a record of every reserved page: the usual reservation of a TiB or more costs it a minute
# at each start. heapfit reserves less where address space is limited.
math(EXPR emulated_address_space "16 * 1024 * 1024 * 1024")
set(CMAKE_CROSSCOMPILING_EMULATOR
  prlimit "--as=${emulated_address_space}" qemu-aarch64 -L /usr/aarch64-linux-gnu)

# Libraries that Debian's cross compiler does not bring along: scripts/cross-packages unpacks them there.
set(HEAPFIT_CROSS_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build/sysroot-aarch64" CACHE PATH "Unpacked packages for 64-bit ARM")
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu "${HEAPFIT_CROSS_ROOT}")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# BOTH: a package installed for the target by a test lies outside the compiler's root.
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
