dnl The extension and, compiled into it, the allocator: heapfit.so needs no other file.
dnl `build` lays the allocator's sources out beside this file.

PHP_ARG_ENABLE([heapfit], [whether to enable heapfit],
  [AS_HELP_STRING([--enable-heapfit], [Enable request memory from heapfit])])
PHP_ARG_ENABLE([heapfit-debug], [whether heapfit looks for misuse of memory],
  [AS_HELP_STRING([--enable-heapfit-debug], [heapfit: find writes to freed memory and double frees; slow])],
  [no], [no])

if test "$PHP_HEAPFIT" != no; then
  heapfit_flags="-std=gnu17 -O2 -fvisibility=hidden -fno-builtin-malloc -ftls-model=initial-exec"
  heapfit_flags="$heapfit_flags -fno-semantic-interposition -fno-plt -Wall -DZEND_ENABLE_STATIC_TSRMLS_CACHE=1"
  heapfit_flags="$heapfit_flags -I@ext_srcdir@/allocator -I@ext_srcdir@/include -DHEAPFIT_VERSION=\\\"$HEAPFIT_VERSION\\\""
  if test "$PHP_HEAPFIT_DEBUG" = no; then
    heapfit_flags="$heapfit_flags -DNDEBUG"
  else
    heapfit_flags="$heapfit_flags -UNDEBUG -g"
  fi

  dnl Only get_module is seen: another libheapfit in the process must not be taken for ours. The code stays mapped when PHP
  dnl closes the module, since handlers for fork, and Zend's last free, still lead here.
  HEAPFIT_SHARED_LIBADD="-Wl,--version-script=$abs_srcdir/exports.map -Wl,-z,nodelete -Wl,-z,now"
  PHP_SUBST([HEAPFIT_SHARED_LIBADD])

  heapfit_allocator=`cd "$abs_srcdir" && find allocator -name '*.c' | LC_ALL=C sort | tr '\n' ' '`
  PHP_NEW_EXTENSION([heapfit],
    [heapfit.c functions.c handlers.c life.c limit.c teardown.c counting.c $heapfit_allocator],
    [$ext_shared],, [$heapfit_flags])
  PHP_ADD_BUILD_DIR([$ext_builddir/allocator/platform], 1)
  PHP_ADD_BUILD_DIR([$ext_builddir/allocator/space], 1)
  PHP_ADD_BUILD_DIR([$ext_builddir/allocator/heap], 1)
  PHP_ADD_BUILD_DIR([$ext_builddir/allocator/context], 1)
  PHP_ADD_BUILD_DIR([$ext_builddir/allocator/api], 1)
fi
