/* The malloc family and C++'s operators, in front of the program's allocator: each call is passed on to the next library that
 * defines its name (next.h), and noted when something is recorded. When nothing is, that is a load and a jump.
 *
 * A function comes in parts. The exported one, NAME, only decides; noted_NAME notes the call and passes it on. It is jumped to,
 * not called, so that the frame above its own is that of who called NAME. passed_NAME is for calls that no sample falls on.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "next.h"
#include "note.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>

/* NOLINTBEGIN(bugprone-macro-parentheses): parameters and arguments come with theirs */

/* ---- allocations -------------------------------------------------------------------------------------------------------------------- */

/* Whether a call is not to be noted: because nothing is, or because another one made it. */
ALWAYS_INLINE bool is_not_for_us(void)
{
    return LIKELY(!is_recording()) || UNLIKELY(record_thread.inside);
}

/* The binary logarithm, rounded up; 0 for none. */
ALWAYS_INLINE unsigned alignment_log(size_t alignment)
{
    return alignment <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(alignment - 1);
}

/* A new object, or none, which is not noted where it was for an alignment that cannot be. */
ALWAYS_INLINE void note_allocation(unsigned kind, void *object, size_t size, size_t alignment, uint32_t site)
{
    if (UNLIKELY(object == NULL)) {
        if ((alignment & (alignment - 1)) == 0) note(kind, 0, size, 0, alignment_log(alignment), site);
        return;
    }
    if (UNLIKELY(record_settings.sample != 0) && !sample_remember((uintptr_t)object)) return;
    size_t usable = NEXT(malloc_usable_size)(object);
    note(kind, (uintptr_t)object, size, usable - size, alignment_log(alignment), site);
}

/* An exception leaves the function that this is written in by way of a frame whose personality ends the call. Others are
 * thrown by nothing that they call. */
#define MAY_THROW __asm__ volatile(".cfi_personality 0x1b, record_personality")
#define THROWS_NOTHING (void)0

/* What the unwinder asks about a frame (Itanium C++ ABI, exception handling, 1.6.2), first in search of a handler, then on its way
 * there: this one has no handler and no cleaning up to do that could not be done at once. The pseudo-relative encoding above,
 * of four bytes, is for a name that is in the library and seen there alone. */
enum { UNWIND_CLEANUP_PHASE = 2, UNWIND_CONTINUE = 8 };
int record_personality(int version, int actions, uint64_t exception_class, void *exception, void *context)
    __attribute__((used, visibility("hidden")));

int record_personality(int version, int actions, uint64_t exception_class, void *exception, void *context)
{
    (void)version, (void)exception_class, (void)exception, (void)context;
    if (actions & UNWIND_CLEANUP_PHASE) thread_leave();
    return UNWIND_CONTINUE;
}

/* Whoever passes a call on without noting it keeps what it calls in turn from being drawn for a second time: but for malloc, which
 * is itself what the others may call. */
#define ALLOCATES(kind, name, bytes, alignment, throwing, pass, parameters, arguments)                                 \
    static NOINLINE __attribute__((unused)) void *passed_##name parameters                                             \
    {                                                                                                                  \
        throwing;                                                                                                      \
        thread_enter();                                                                                                \
        void *object = NEXT(name) arguments;                                                                           \
        thread_leave();                                                                                                \
        return object;                                                                                                 \
    }                                                                                                                  \
    static NOINLINE void *noted_##name parameters                                                                      \
    {                                                                                                                  \
        throwing;                                                                                                      \
        thread_enter();                                                                                                \
        bool falls = LIKELY(record_settings.sample == 0) || sample_falls(bytes);                                       \
        void *object = NEXT(name) arguments;                                                                           \
        if (LIKELY(falls)) note_allocation(kind, object, bytes, alignment, site_of_caller());                          \
        thread_leave();                                                                                                \
        return object;                                                                                                 \
    }                                                                                                                  \
    EXPORT void *name parameters                                                                                       \
    {                                                                                                                  \
        if (is_not_for_us()) return NEXT(name) arguments;                                                              \
        if (record_settings.sample != 0 && sample_passes(bytes)) return pass(name) arguments;                          \
        return noted_##name arguments;                                                                                 \
    }

#define PASSED(name) passed_##name

static size_t product(size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes;
}

ALLOCATES(TRACE_MALLOC, malloc, size, 0, THROWS_NOTHING, NEXT, (size_t size), (size))
ALLOCATES(TRACE_CALLOC, calloc, product(count, size), 0, THROWS_NOTHING, PASSED, (size_t count, size_t size),
          (count, size))
ALLOCATES(TRACE_ALIGNED, aligned_alloc, size, alignment, THROWS_NOTHING, PASSED, (size_t alignment, size_t size),
          (alignment, size))
ALLOCATES(TRACE_ALIGNED, memalign, size, alignment, THROWS_NOTHING, PASSED, (size_t alignment, size_t size),
          (alignment, size))
ALLOCATES(TRACE_ALIGNED, valloc, size, platform_page_size(), THROWS_NOTHING, PASSED, (size_t size), (size))
ALLOCATES(TRACE_ALIGNED, pvalloc, size, platform_page_size(), THROWS_NOTHING, PASSED, (size_t size), (size))

static NOINLINE int noted_posix_memalign(void **result, size_t alignment, size_t size)
{
    thread_enter();
    bool noted = LIKELY(record_settings.sample == 0) || sample_takes(size);
    int error = NEXT(posix_memalign)(result, alignment, size);
    if (noted && error != EINVAL)
        note_allocation(TRACE_ALIGNED, error == 0 ? *result : NULL, size, alignment, site_of_caller());
    thread_leave();
    return error;
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    return is_not_for_us() ? NEXT(posix_memalign)(result, alignment, size)
                           : noted_posix_memalign(result, alignment, size);
}

/* ---- C++: each form under its mangled name ------------------------------------------------------------------------------------------ */

#define NEW_FORM(kind, name, mangled, alignment, throwing, parameters, arguments)                                      \
    EXPORT void *name parameters __asm__(mangled);                                                                     \
    ALLOCATES(kind, name, size, alignment, throwing, PASSED, parameters, arguments)

#define NEW_OF(...) NEW_FORM(__VA_ARGS__)

NEW_OF(TRACE_NEW, new, "_Znwm", 0, MAY_THROW, SIZE)
NEW_OF(TRACE_NEW, new_array, "_Znam", 0, MAY_THROW, SIZE)
NEW_OF(TRACE_NEW, new_nothrow, "_ZnwmRKSt9nothrow_t", 0, THROWS_NOTHING, SIZE_NOTHROW)
NEW_OF(TRACE_NEW, new_array_nothrow, "_ZnamRKSt9nothrow_t", 0, THROWS_NOTHING, SIZE_NOTHROW)
NEW_OF(TRACE_NEW_ALIGNED, new_aligned, "_ZnwmSt11align_val_t", alignment, MAY_THROW, SIZE_ALIGNMENT)
NEW_OF(TRACE_NEW_ALIGNED, new_array_aligned, "_ZnamSt11align_val_t", alignment, MAY_THROW, SIZE_ALIGNMENT)
NEW_OF(TRACE_NEW_ALIGNED, new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", alignment, THROWS_NOTHING,
       ALL_THREE)
NEW_OF(TRACE_NEW_ALIGNED, new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", alignment, THROWS_NOTHING,
       ALL_THREE)

/* ---- frees ------------------------------------------------------------------------------------------------------------------------------ */

/* Whether the object that is about to be freed is one of those that are noted; then it is no more. */
ALWAYS_INLINE bool is_noted(const void *pointer)
{
    return LIKELY(record_settings.sample == 0) || sample_forget((uintptr_t)pointer);
}

/* Without a sample nothing is in the way of a jump: a call that is nested finds its object noted no more. */
#define FREES(kind, name, parameters, arguments)                                                                       \
    static NOINLINE void noted_##name parameters                                                                       \
    {                                                                                                                  \
        thread_enter();                                                                                                \
        note(kind, (uintptr_t)pointer, 0, 0, 0, 0);                                                                    \
        NEXT(name) arguments;                                                                                          \
        thread_leave();                                                                                                \
    }                                                                                                                  \
    EXPORT void name parameters                                                                                        \
    {                                                                                                                  \
        if (is_not_for_us() || UNLIKELY(pointer == NULL) || !is_noted(pointer)) NEXT(name) arguments;                  \
        else noted_##name arguments;                                                                                   \
    }

void cfree(void *pointer);
void free_sized(void *pointer, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size);

FREES(TRACE_FREE, free, (void *pointer), (pointer))
FREES(TRACE_FREE, cfree, (void *pointer), (pointer))
FREES(TRACE_FREE, free_sized, (void *pointer, size_t size), (pointer, size))
FREES(TRACE_FREE, free_aligned_sized, (void *pointer, size_t alignment, size_t size), (pointer, alignment, size))

#define DELETE_FORM(name, mangled, parameters, arguments)                                                              \
    EXPORT void name parameters __asm__(mangled);                                                                      \
    FREES(TRACE_DELETE, name, parameters, arguments)

#define DELETE_OF(...) DELETE_FORM(__VA_ARGS__)

DELETE_OF(delete, "_ZdlPv", POINTER)
DELETE_OF(delete_array, "_ZdaPv", POINTER)
DELETE_OF(delete_sized, "_ZdlPvm", POINTER_WITH)
DELETE_OF(delete_array_sized, "_ZdaPvm", POINTER_WITH)
DELETE_OF(delete_aligned, "_ZdlPvSt11align_val_t", POINTER_WITH)
DELETE_OF(delete_array_aligned, "_ZdaPvSt11align_val_t", POINTER_WITH)
DELETE_OF(delete_sized_aligned, "_ZdlPvmSt11align_val_t", POINTER_WITH_BOTH)
DELETE_OF(delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", POINTER_WITH_BOTH)
DELETE_OF(delete_nothrow, "_ZdlPvRKSt9nothrow_t", POINTER_NOTHROW)
DELETE_OF(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", POINTER_NOTHROW)
DELETE_OF(delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", POINTER_ALIGNMENT_NOTHROW)
DELETE_OF(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", POINTER_ALIGNMENT_NOTHROW)

/* ---- realloc ------------------------------------------------------------------------------------------------------------------------------ */

/* What becomes of a block, as far as it is noted. */
struct reallocation {
    void *old;
    size_t size;
    bool ends; /* the old block is one of those noted */
    bool begins; /* the new one will be */
};

/* Before the real call, which may free the old block. */
ALWAYS_INLINE void note_reallocation(const struct reallocation *call, uint32_t site)
{
    if (call->old == NULL || !(call->ends || call->begins)) return;
    if (call->size != 0) note(TRACE_REALLOC, (uintptr_t)call->old, call->size, 0, 0, site);
    else note(TRACE_FREE, (uintptr_t)call->old, 0, 0, 0, 0);
}

/* The real call has failed: the old block is there as before. */
static COLD void note_reallocation_failed(const struct reallocation *call)
{
    if (call->ends && record_settings.sample != 0) sample_remember((uintptr_t)call->old);
    if (call->ends || call->begins) note(RECORD_RESULT, 0, call->size, 0, 0, 0);
}

ALWAYS_INLINE void note_reallocated(const struct reallocation *call, void *object)
{
    bool remembered = LIKELY(record_settings.sample == 0) || sample_remember((uintptr_t)object);
    size_t usable = NEXT(malloc_usable_size)(object);
    note(RECORD_RESULT, (uintptr_t)object, call->size, usable - call->size, 0, 0);
    if (UNLIKELY(!remembered)) note(TRACE_FREE, (uintptr_t)object, 0, 0, 0, 0); /* its free would be missed */
}

/* The new block is not one of the sample. */
static COLD void note_reallocation_ended(void)
{
    note(RECORD_ENDED, 0, 0, 0, 0, 0);
}

/* After a call that does what malloc and free do: of no block, or to a size of nothing. Some allocators then free the old block and
 * give none, others one of no bytes. */
ALWAYS_INLINE void note_other_result(const struct reallocation *call, void *object, uint32_t site)
{
    if (call->begins && (call->old == NULL || object != NULL))
        note_allocation(TRACE_MALLOC, object, call->size, 0, site);
}

static NOINLINE void *noted_realloc(void *old, size_t size)
{
    thread_enter();
    struct reallocation call = {.old = old, .size = size};
    call.begins = LIKELY(record_settings.sample == 0) || sample_takes(size);
    call.ends = old != NULL && is_noted(old);
    uint32_t site = call.begins ? site_of_caller() : 0;
    note_reallocation(&call, site);
    void *object = NEXT(realloc)(old, size);
    if (old == NULL || size == 0) note_other_result(&call, object, site);
    else if (UNLIKELY(object == NULL)) note_reallocation_failed(&call);
    else if (call.begins) note_reallocated(&call, object);
    else if (call.ends) note_reallocation_ended();
    thread_leave();
    return object;
}

EXPORT void *realloc(void *old, size_t size)
{
    return is_not_for_us() ? NEXT(realloc)(old, size) : noted_realloc(old, size);
}

/* By definition it is realloc of the product, as which it is noted. One that overflows does nothing. */
EXPORT void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (is_not_for_us() || __builtin_mul_overflow(count, size, &bytes)) return NEXT(reallocarray)(old, count, size);
    return noted_realloc(old, bytes);
}

/* ---- what allocates nothing --------------------------------------------------------------------------------------------------------------- */

EXPORT size_t malloc_usable_size(void *pointer)
{
    return NEXT(malloc_usable_size)(pointer);
}

/* How many objects the dynamic linker has unloaded so far. */
static int read_unloaded(struct dl_phdr_info *info, size_t size, void *unloaded)
{
    (void)size;
    *(unsigned long long *)unloaded = info->dlpi_subs;
    return 1;
}

/* The C library itself unmaps some of its modules (of iconv, of name services) without a call of this name. What is known of
 * those is forgotten with the next that comes through here. */
EXPORT int dlclose(void *handle)
{
    static _Atomic(unsigned long long) forgotten;
    int (*next)(void *);
    *(void **)&next = dlsym(RTLD_NEXT, "dlclose");
    int result = next(handle);
    if (record_settings.sites == 0) return result;
    unsigned long long unloaded = 0;
    dl_iterate_phdr(read_unloaded, &unloaded);
    /* Relaxed: of two threads that see the same, one forgets for both. */
    if (atomic_exchange_explicit(&forgotten, unloaded, memory_order_relaxed) != unloaded) sites_forget();
    return result;
}

/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- start ------------------------------------------------------------------------------------------------------------------------------------ */

static const char *allocator = "";

const char *intercept_allocator(void)
{
    return allocator;
}

void intercept_start(void)
{
    static bool started;
    if (started) return;
    started = true;
    next_find_all();
    rings_start();
    void *(*next)(size_t) = NEXT(malloc);
    Dl_info info;
    if (dladdr(*(void **)&next, &info) != 0) allocator = info.dli_fname;
}

/* A program that is not position-independent may have an entry of its own for malloc, to which all take its address, and from
 * where calls go on to whoever defines it: its symbol is not a definition. */
static bool is_definition_elsewhere(const void *function)
{
    void *(*ours)(size_t) = noted_malloc;
    Dl_info here, there;
    const ElfW(Sym) *symbol = NULL;
    if (dladdr(*(void **)&ours, &here) == 0 || dladdr1(function, &there, (void **)&symbol, RTLD_DL_SYMENT) == 0)
        return false;
    return there.dli_fbase != here.dli_fbase && (symbol == NULL || symbol->st_shndx != SHN_UNDEF);
}

void intercept_check(void)
{
    if (is_definition_elsewhere(dlsym(RTLD_DEFAULT, "malloc")))
        platform_message(
            "nothing can be recorded: another malloc stands before libheapfit-record.so, in the program itself or "
            "earlier in LD_PRELOAD");
}
