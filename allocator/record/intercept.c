/* The malloc family and C++'s operators, in front of the program's allocator: each call is passed on to the next library that
 * defines its name, and noted when something is recorded. When nothing is, that is a load and a jump.
 *
 * A function comes in three parts. The exported one, NAME, only decides; noted_NAME does what is done while something is
 * recorded. It is jumped to, not called, so that the frame above its own is that of who called NAME. And first_NAME stands
 * where the next library's function will, until that is looked for.
 *
 * The next library's functions are found by dlsym, by whoever calls first: the dynamic linker itself, or the constructor of
 * another library, long before ours runs. dlsym may allocate in turn. What it asks for before the next malloc is known comes
 * from a little arena, and stays there.
 *
 * A name that the next libraries lack is made of what they have: C23's free_sized, and the operators in a program without a
 * C++ run-time library.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "note.h"
#include "platform/cxx.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(size_t) == sizeof(unsigned long), "std::size_t is mangled as 'm', unsigned long");

/* NOLINTBEGIN(bugprone-macro-parentheses): parameters and arguments come with theirs */

/* ---- the next library's functions ------------------------------------------------------------------------------------------- */

/* Relaxed: all that look for them find the same. */
#define NEXT(name) atomic_load_explicit(&next_##name, memory_order_relaxed)
#define SET_NEXT(name, function) atomic_store_explicit(&next_##name, (function), memory_order_relaxed)

#define HAS_NEXT(result, name, parameters)                                                                             \
    static result first_##name parameters;                                                                             \
    static _Atomic(result(*) parameters) next_##name = first_##name

struct nothrow; /* std::nothrow_t; nobody looks into one */

HAS_NEXT(void *, malloc, (size_t));
HAS_NEXT(void *, calloc, (size_t, size_t));
HAS_NEXT(void *, realloc, (void *, size_t));
HAS_NEXT(void *, reallocarray, (void *, size_t, size_t));
HAS_NEXT(int, posix_memalign, (void **, size_t, size_t));
HAS_NEXT(void *, aligned_alloc, (size_t, size_t));
HAS_NEXT(void *, memalign, (size_t, size_t));
HAS_NEXT(void *, valloc, (size_t));
HAS_NEXT(void *, pvalloc, (size_t));
HAS_NEXT(size_t, malloc_usable_size, (void *));
HAS_NEXT(void, free, (void *));
HAS_NEXT(void, cfree, (void *));
HAS_NEXT(void, free_sized, (void *, size_t));
HAS_NEXT(void, free_aligned_sized, (void *, size_t, size_t));

HAS_NEXT(void *, new, (size_t));
HAS_NEXT(void *, new_array, (size_t));
HAS_NEXT(void *, new_aligned, (size_t, size_t));
HAS_NEXT(void *, new_array_aligned, (size_t, size_t));
HAS_NEXT(void *, new_nothrow, (size_t, const struct nothrow *));
HAS_NEXT(void *, new_array_nothrow, (size_t, const struct nothrow *));
HAS_NEXT(void *, new_aligned_nothrow, (size_t, size_t, const struct nothrow *));
HAS_NEXT(void *, new_array_aligned_nothrow, (size_t, size_t, const struct nothrow *));

HAS_NEXT(void, delete, (void *));
HAS_NEXT(void, delete_array, (void *));
HAS_NEXT(void, delete_sized, (void *, size_t));
HAS_NEXT(void, delete_array_sized, (void *, size_t));
HAS_NEXT(void, delete_aligned, (void *, size_t));
HAS_NEXT(void, delete_array_aligned, (void *, size_t));
HAS_NEXT(void, delete_sized_aligned, (void *, size_t, size_t));
HAS_NEXT(void, delete_array_sized_aligned, (void *, size_t, size_t));
HAS_NEXT(void, delete_nothrow, (void *, const struct nothrow *));
HAS_NEXT(void, delete_array_nothrow, (void *, const struct nothrow *));
HAS_NEXT(void, delete_aligned_nothrow, (void *, size_t, const struct nothrow *));
HAS_NEXT(void, delete_array_aligned_nothrow, (void *, size_t, const struct nothrow *));

/* ---- before they are known: an arena ---------------------------------------------------------------------------------------- */

/* Of the thread that is looking for them. */
static __thread bool searching __attribute__((tls_model("initial-exec")));

/* dlsym wants some hundred bytes, if any. */
enum { ARENA_SIZE = 16 << 10, ARENA_ALIGNMENT = 16 };
static _Alignas(ARENA_ALIGNMENT) char arena[ARENA_SIZE];
static _Atomic(size_t) arena_used; /* Relaxed: each thread has what it got of it by itself */

static bool is_in_arena(const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)arena < ARENA_SIZE;
}

/* A block's size stands in front of it. Zeros: nothing is ever used twice. */
static void *arena_allocate(size_t size)
{
    size_t block = ARENA_ALIGNMENT + ((size + ARENA_ALIGNMENT - 1) & ~(size_t)(ARENA_ALIGNMENT - 1));
    if (size <= ARENA_SIZE) {
        size_t start = atomic_fetch_add_explicit(&arena_used, block, memory_order_relaxed);
        if (start <= ARENA_SIZE - block) {
            memcpy(arena + start, &size, sizeof size);
            return arena + start + ARENA_ALIGNMENT;
        }
    }
    errno = ENOMEM;
    return NULL;
}

static size_t arena_usable_size(const void *pointer)
{
    size_t size;
    memcpy(&size, (const char *)pointer - ARENA_ALIGNMENT, sizeof size);
    return size;
}

/* Moves a block of the arena to memory that `allocate` gives. */
static void *arena_reallocate(void *(*allocate)(size_t), void *pointer, size_t size)
{
    void *object = allocate(size);
    size_t before = arena_usable_size(pointer);
    if (object != NULL) memcpy(object, pointer, before < size ? before : size);
    return object;
}

/* The next library's, where a block may be of the arena: in place of its own if there are any. */
static void (*real_free)(void *);
static void *(*real_realloc)(void *, size_t);
static size_t (*real_malloc_usable_size)(void *);

static void guarded_free(void *pointer)
{
    if (!is_in_arena(pointer)) real_free(pointer);
}

static void *guarded_realloc(void *pointer, size_t size)
{
    return is_in_arena(pointer) ? arena_reallocate(NEXT(malloc), pointer, size) : real_realloc(pointer, size);
}

static size_t guarded_malloc_usable_size(void *pointer)
{
    return is_in_arena(pointer) ? arena_usable_size(pointer) : real_malloc_usable_size(pointer);
}

/* ---- what the next libraries may lack ------------------------------------------------------------------------------------------ */

static void lacking_cfree(void *pointer)
{
    NEXT(free)(pointer);
}

static void lacking_free_sized(void *pointer, size_t size)
{
    (void)size;
    NEXT(free)(pointer);
}

static void lacking_free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    (void)alignment, (void)size;
    NEXT(free)(pointer);
}

/* No libc that has these lacks them; without them nobody can have been linked to them. */
static void *lacking_aligned(size_t alignment, size_t size)
{
    (void)alignment, (void)size;
    errno = ENOMEM;
    return NULL;
}

static void *lacking_page(size_t size)
{
    return lacking_aligned(0, size);
}

static void *lacking_reallocarray(void *pointer, size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? lacking_page(size) : NEXT(realloc)(pointer, bytes);
}

static size_t lacking_malloc_usable_size(void *pointer)
{
    (void)pointer;
    return 0;
}

/* ---- operators in a program whose libraries have none ------------------------------------------------------------------------- */

/* A C++ run-time library may come later by dlopen, out of our reach but for its handler and its exception. */

static void *allocate_aligned(size_t size, size_t alignment)
{
    void *object;
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    return NEXT(posix_memalign)(&object, alignment, size) == 0 ? object : NULL;
}

/* The loop that the standard demands: the new-handler makes room, throws or ends the program. */
static void *lacking_new(size_t size)
{
    void *object;
    while ((object = NEXT(malloc)(size)) == NULL) {
        cxx_new_handler handler = cxx_installed_new_handler();
        if (handler == NULL) cxx_throw_bad_alloc(size);
        handler();
    }
    return object;
}

static void *lacking_new_aligned(size_t size, size_t alignment)
{
    void *object;
    while ((object = allocate_aligned(size, alignment)) == NULL) {
        cxx_new_handler handler = cxx_installed_new_handler();
        if (handler == NULL || !is_power_of_two(alignment)) cxx_throw_bad_alloc(size);
        handler();
    }
    return object;
}

/* A new-handler may throw, which C cannot catch: where there is one, there is a library that can. */
static void *lacking_new_nothrow(size_t size, const struct nothrow *nothrow)
{
    void *object = NEXT(malloc)(size);
    if (LIKELY(object != NULL) || cxx_installed_new_handler() == NULL) return object;
    void *(*catching)(size_t, const struct nothrow *);
    *(void **)&catching = cxx_find("_ZnwmRKSt9nothrow_t");
    return catching == NULL ? NULL : catching(size, nothrow);
}

static void *lacking_new_aligned_nothrow(size_t size, size_t alignment, const struct nothrow *nothrow)
{
    void *object = allocate_aligned(size, alignment);
    if (LIKELY(object != NULL) || cxx_installed_new_handler() == NULL) return object;
    void *(*catching)(size_t, size_t, const struct nothrow *);
    *(void **)&catching = cxx_find("_ZnwmSt11align_val_tRKSt9nothrow_t");
    return catching == NULL ? NULL : catching(size, alignment, nothrow);
}

static void lacking_delete(void *pointer)
{
    NEXT(free)(pointer);
}

static void lacking_delete_with(void *pointer, size_t size_or_alignment)
{
    (void)size_or_alignment;
    NEXT(free)(pointer);
}

static void lacking_delete_with_both(void *pointer, size_t size, size_t alignment)
{
    (void)size, (void)alignment;
    NEXT(free)(pointer);
}

static void lacking_delete_nothrow(void *pointer, const struct nothrow *nothrow)
{
    (void)nothrow;
    NEXT(free)(pointer);
}

static void lacking_delete_aligned_nothrow(void *pointer, size_t alignment, const struct nothrow *nothrow)
{
    (void)alignment, (void)nothrow;
    NEXT(free)(pointer);
}

/* ---- looking for them ---------------------------------------------------------------------------------------------------------- */

#define FIND_OR(name, symbol, otherwise)                                                                               \
    do {                                                                                                               \
        __typeof__(NEXT(name)) found;                                                                                  \
        *(void **)&found = dlsym(RTLD_NEXT, symbol);                                                                   \
        SET_NEXT(name, found != NULL ? found : (otherwise));                                                           \
    } while (0)

static _Noreturn COLD void no_allocator(void)
{
    platform_message("libheapfit-record.so found no malloc behind it");
    abort();
}

/* What every allocation needs. They are known all at once: until then whatever this thread asks for is of the arena, and what it
 * gives back. */
static void find_basic(void)
{
    __typeof__(NEXT(malloc)) found_malloc;
    __typeof__(NEXT(calloc)) found_calloc;
    *(void **)&found_malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&found_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&real_free = dlsym(RTLD_NEXT, "free");
    *(void **)&real_malloc_usable_size = dlsym(RTLD_NEXT, "malloc_usable_size");
    if (found_malloc == NULL || found_calloc == NULL || real_realloc == NULL || real_free == NULL) no_allocator();
    if (real_malloc_usable_size == NULL) real_malloc_usable_size = lacking_malloc_usable_size;
    bool guarded = atomic_load_explicit(&arena_used, memory_order_relaxed) != 0;
    SET_NEXT(malloc, found_malloc);
    SET_NEXT(calloc, found_calloc);
    SET_NEXT(realloc, guarded ? guarded_realloc : real_realloc);
    SET_NEXT(free, guarded ? guarded_free : real_free);
    SET_NEXT(malloc_usable_size, guarded ? guarded_malloc_usable_size : real_malloc_usable_size);
}

static void find_other(void)
{
    FIND_OR(reallocarray, "reallocarray", lacking_reallocarray);
    FIND_OR(posix_memalign, "posix_memalign", NULL);
    FIND_OR(aligned_alloc, "aligned_alloc", lacking_aligned);
    FIND_OR(memalign, "memalign", lacking_aligned);
    FIND_OR(valloc, "valloc", lacking_page);
    FIND_OR(pvalloc, "pvalloc", lacking_page);
    FIND_OR(cfree, "cfree", lacking_cfree);
    FIND_OR(free_sized, "free_sized", lacking_free_sized);
    FIND_OR(free_aligned_sized, "free_aligned_sized", lacking_free_aligned_sized);
    if (NEXT(posix_memalign) == NULL) no_allocator();
}

static void find_operators(void)
{
    FIND_OR(new, "_Znwm", lacking_new);
    FIND_OR(new_array, "_Znam", lacking_new);
    FIND_OR(new_aligned, "_ZnwmSt11align_val_t", lacking_new_aligned);
    FIND_OR(new_array_aligned, "_ZnamSt11align_val_t", lacking_new_aligned);
    FIND_OR(new_nothrow, "_ZnwmRKSt9nothrow_t", lacking_new_nothrow);
    FIND_OR(new_array_nothrow, "_ZnamRKSt9nothrow_t", lacking_new_nothrow);
    FIND_OR(new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", lacking_new_aligned_nothrow);
    FIND_OR(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", lacking_new_aligned_nothrow);
    FIND_OR(delete, "_ZdlPv", lacking_delete);
    FIND_OR(delete_array, "_ZdaPv", lacking_delete);
    FIND_OR(delete_sized, "_ZdlPvm", lacking_delete_with);
    FIND_OR(delete_array_sized, "_ZdaPvm", lacking_delete_with);
    FIND_OR(delete_aligned, "_ZdlPvSt11align_val_t", lacking_delete_with);
    FIND_OR(delete_array_aligned, "_ZdaPvSt11align_val_t", lacking_delete_with);
    FIND_OR(delete_sized_aligned, "_ZdlPvmSt11align_val_t", lacking_delete_with_both);
    FIND_OR(delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", lacking_delete_with_both);
    FIND_OR(delete_nothrow, "_ZdlPvRKSt9nothrow_t", lacking_delete_nothrow);
    FIND_OR(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", lacking_delete_nothrow);
    FIND_OR(delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", lacking_delete_aligned_nothrow);
    FIND_OR(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", lacking_delete_aligned_nothrow);
}

static COLD void search(void (*find)(void))
{
    int saved = errno;
    searching = true;
    find();
    searching = false;
    errno = saved;
}

/* Names that are not found leave a message for dlerror behind, which would be given to the program. It has not asked for any yet:
 * what its libraries' constructors do before ours is all that has happened. */
static void find_all(void)
{
    find_basic();
    find_other();
    find_operators();
    dlerror();
}

/* ---- calls before that ----------------------------------------------------------------------------------------------------------- */

/* The dynamic linker calls these very early, so that no more is looked for than they need. */

static void *first_malloc(size_t size)
{
    if (searching) return arena_allocate(size);
    search(find_basic);
    return NEXT(malloc)(size);
}

static void *first_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (searching) return arena_allocate(__builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes);
    search(find_basic);
    return NEXT(calloc)(count, size);
}

static void *first_realloc(void *pointer, size_t size)
{
    if (searching) return pointer == NULL ? arena_allocate(size) : arena_reallocate(arena_allocate, pointer, size);
    search(find_basic);
    return NEXT(realloc)(pointer, size);
}

static void first_free(void *pointer)
{
    if (searching) return; /* it is of the arena */
    search(find_basic);
    NEXT(free)(pointer);
}

/* dlsym needs none of the others. */
#define FIRST(result, name, parameters, arguments)                                                                     \
    static result first_##name parameters                                                                              \
    {                                                                                                                  \
        search(find_all);                                                                                                        \
        return NEXT(name) arguments;                                                                                   \
    }
#define FIRST_FREE(name, parameters, arguments)                                                                        \
    static void first_##name parameters                                                                                \
    {                                                                                                                  \
        search(find_all);                                                                                                        \
        NEXT(name) arguments;                                                                                          \
    }

FIRST(void *, reallocarray, (void *pointer, size_t count, size_t size), (pointer, count, size))
FIRST(int, posix_memalign, (void **result, size_t alignment, size_t size), (result, alignment, size))
FIRST(size_t, malloc_usable_size, (void *pointer), (pointer))

/* ---- allocations -------------------------------------------------------------------------------------------------------------------- */

enum call {
    CALL_NESTED, /* in another one: not for us */
    CALL_PASSED, /* not noted, since no sample has fallen on it; but what it calls is nested */
    CALL_NOTED,
};

ALWAYS_INLINE enum call call_enter(size_t size)
{
    if (UNLIKELY(record_thread.inside)) return CALL_NESTED;
    thread_enter();
    return LIKELY(record_settings.sample == 0) || sample_takes(size) ? CALL_NOTED : CALL_PASSED;
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
    note(kind, (uintptr_t)object, size, usable > size ? usable - size : 0, alignment_log(alignment), site);
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

#define ALLOCATES(kind, name, bytes, alignment, throwing, parameters, arguments)                                       \
    static NOINLINE void *noted_##name parameters                                                                      \
    {                                                                                                                  \
        throwing;                                                                                                      \
        enum call call = call_enter(bytes);                                                                            \
        if (UNLIKELY(call == CALL_NESTED)) return NEXT(name) arguments;                                                \
        void *object = NEXT(name) arguments;                                                                           \
        if (LIKELY(call == CALL_NOTED)) note_allocation(kind, object, bytes, alignment, site_of_caller());             \
        thread_leave();                                                                                                \
        return object;                                                                                                 \
    }                                                                                                                  \
    EXPORT void *name parameters                                                                                       \
    {                                                                                                                  \
        return LIKELY(!is_recording()) ? NEXT(name) arguments : noted_##name arguments;                                \
    }

#define MALLOC_FORM(kind, name, bytes, alignment, parameters, arguments)                                               \
    FIRST(void *, name, parameters, arguments)                                                                         \
    ALLOCATES(kind, name, bytes, alignment, THROWS_NOTHING, parameters, arguments)

static size_t product(size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes;
}

ALLOCATES(TRACE_MALLOC, malloc, size, 0, THROWS_NOTHING, (size_t size), (size))
ALLOCATES(TRACE_CALLOC, calloc, product(count, size), 0, THROWS_NOTHING, (size_t count, size_t size), (count, size))
MALLOC_FORM(TRACE_ALIGNED, aligned_alloc, size, alignment, (size_t alignment, size_t size), (alignment, size))
MALLOC_FORM(TRACE_ALIGNED, memalign, size, alignment, (size_t alignment, size_t size), (alignment, size))
MALLOC_FORM(TRACE_ALIGNED, valloc, size, platform_page_size(), (size_t size), (size))
MALLOC_FORM(TRACE_ALIGNED, pvalloc, size, platform_page_size(), (size_t size), (size))

static NOINLINE int noted_posix_memalign(void **result, size_t alignment, size_t size)
{
    enum call call = call_enter(size);
    if (UNLIKELY(call == CALL_NESTED)) return NEXT(posix_memalign)(result, alignment, size);
    int error = NEXT(posix_memalign)(result, alignment, size);
    if (LIKELY(call == CALL_NOTED) && error != EINVAL)
        note_allocation(TRACE_ALIGNED, error == 0 ? *result : NULL, size, alignment, site_of_caller());
    thread_leave();
    return error;
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    return LIKELY(!is_recording()) ? NEXT(posix_memalign)(result, alignment, size)
                                   : noted_posix_memalign(result, alignment, size);
}

/* ---- C++: each form under its mangled name ------------------------------------------------------------------------------------------ */

#define NEW_FORM(kind, name, mangled, alignment, throwing, parameters, arguments)                                      \
    EXPORT void *name parameters __asm__(mangled);                                                                     \
    FIRST(void *, name, parameters, arguments)                                                                         \
    ALLOCATES(kind, name, size, alignment, throwing, parameters, arguments)

#define SIZE (size_t size), (size)
#define SIZE_ALIGNMENT (size_t size, size_t alignment), (size, alignment)
#define SIZE_NOTHROW (size_t size, const struct nothrow *nothrow), (size, nothrow)
#define ALL_THREE (size_t size, size_t alignment, const struct nothrow *nothrow), (size, alignment, nothrow)
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

/* Whether the object that is about to be freed is one of those that are noted. */
ALWAYS_INLINE bool is_noted(const void *pointer)
{
    return pointer != NULL && (LIKELY(record_settings.sample == 0) || sample_forget((uintptr_t)pointer));
}

/* Without a sample nothing is in the way of a jump: a call that is nested finds its object noted no more. */
#define FREES(kind, name, parameters, arguments)                                                                       \
    static NOINLINE void noted_##name parameters                                                                       \
    {                                                                                                                  \
        if (UNLIKELY(record_thread.inside) || !is_noted(pointer)) {                                                    \
            NEXT(name) arguments;                                                                                      \
            return;                                                                                                    \
        }                                                                                                              \
        thread_enter();                                                                                                \
        note(kind, (uintptr_t)pointer, 0, 0, 0, 0);                                                                    \
        NEXT(name) arguments;                                                                                          \
        thread_leave();                                                                                                \
    }                                                                                                                  \
    EXPORT void name parameters                                                                                        \
    {                                                                                                                  \
        if (LIKELY(!is_recording())) NEXT(name) arguments;                                                             \
        else noted_##name arguments;                                                                                   \
    }

#define FREE_FORM(kind, name, parameters, arguments)                                                                   \
    FIRST_FREE(name, parameters, arguments)                                                                            \
    FREES(kind, name, parameters, arguments)

void cfree(void *pointer);
void free_sized(void *pointer, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size);

FREES(TRACE_FREE, free, (void *pointer), (pointer))
FREE_FORM(TRACE_FREE, cfree, (void *pointer), (pointer))
FREE_FORM(TRACE_FREE, free_sized, (void *pointer, size_t size), (pointer, size))
FREE_FORM(TRACE_FREE, free_aligned_sized, (void *pointer, size_t alignment, size_t size), (pointer, alignment, size))

#define DELETE_FORM(name, mangled, parameters, arguments)                                                              \
    EXPORT void name parameters __asm__(mangled);                                                                      \
    FREE_FORM(TRACE_DELETE, name, parameters, arguments)

#define POINTER (void *pointer), (pointer)
#define POINTER_WITH (void *pointer, size_t number), (pointer, number)
#define POINTER_WITH_BOTH (void *pointer, size_t size, size_t alignment), (pointer, size, alignment)
#define POINTER_NOTHROW (void *pointer, const struct nothrow *nothrow), (pointer, nothrow)
#define POINTER_ALIGNMENT_NOTHROW                                                                                      \
    (void *pointer, size_t alignment, const struct nothrow *nothrow), (pointer, alignment, nothrow)
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
    if (call->begins && call->size != 0) note(TRACE_REALLOC, (uintptr_t)call->old, call->size, 0, 0, site);
    else note(TRACE_FREE, (uintptr_t)call->old, 0, 0, 0, 0);
}

/* The real call has failed: the old block is there as before. */
static COLD void note_reallocation_failed(const struct reallocation *call)
{
    if (call->ends && record_settings.sample != 0) sample_remember((uintptr_t)call->old);
    if (call->begins) note(RECORD_RESULT, 0, call->size, 0, 0, 0);
}

ALWAYS_INLINE void note_reallocated(const struct reallocation *call, void *object)
{
    bool remembered = LIKELY(record_settings.sample == 0) || sample_remember((uintptr_t)object);
    size_t usable = NEXT(malloc_usable_size)(object);
    note(RECORD_RESULT, (uintptr_t)object, call->size, usable > call->size ? usable - call->size : 0, 0, 0);
    if (UNLIKELY(!remembered)) note(TRACE_FREE, (uintptr_t)object, 0, 0, 0, 0); /* its free would be missed */
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
    if (UNLIKELY(record_thread.inside)) return NEXT(realloc)(old, size);
    struct reallocation call = {.old = old, .size = size};
    call.begins = call_enter(size) == CALL_NOTED;
    call.ends = is_noted(old);
    uint32_t site = call.begins ? site_of_caller() : 0;
    note_reallocation(&call, site);
    void *object = NEXT(realloc)(old, size);
    if (old == NULL || size == 0) note_other_result(&call, object, site);
    else if (UNLIKELY(object == NULL)) note_reallocation_failed(&call);
    else if (call.begins) note_reallocated(&call, object);
    thread_leave();
    return object;
}

EXPORT void *realloc(void *old, size_t size)
{
    return LIKELY(!is_recording()) ? NEXT(realloc)(old, size) : noted_realloc(old, size);
}

/* By definition it is realloc of the product, as which it is noted. One that overflows does nothing. */
EXPORT void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (LIKELY(!is_recording()) || __builtin_mul_overflow(count, size, &bytes))
        return NEXT(reallocarray)(old, count, size);
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

static const void *object_of(void *function, const char **path)
{
    Dl_info info;
    if (dladdr(function, &info) == 0) return NULL;
    if (path != NULL) *path = info.dli_fname;
    return info.dli_fbase;
}

void intercept_start(void)
{
    static bool started;
    if (started) return;
    started = true;
    search(find_all);
    rings_start();
    void *(*ours)(size_t) = first_malloc, *(*next)(size_t) = NEXT(malloc);
    object_of(*(void **)&next, &allocator);
    if (object_of(dlsym(RTLD_DEFAULT, "malloc"), NULL) != object_of(*(void **)&ours, NULL))
        platform_message("nothing can be recorded: another malloc stands before libheapfit-record.so, in the program itself or "
                         "earlier in LD_PRELOAD");
}
