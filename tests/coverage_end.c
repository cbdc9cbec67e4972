// In the preset `coverage`, for test programs: counts are written when a process ends by exit(3), but many a test's child
// ends by _exit, or by abort, where the library has found a mistake of the program.
#define _GNU_SOURCE
#include <gcov.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);
_Noreturn void __real_abort(void);
_Noreturn void __wrap_abort(void);

// Once only: writing allocates, and that may find the mistake again.
static void write_counts(void)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&begun)) __gcov_dump();
}

_Noreturn void __wrap__exit(int code)
{
    write_counts();
    __real__exit(code);
}

_Noreturn void __wrap_abort(void)
{
    write_counts();
    __real_abort();
}
