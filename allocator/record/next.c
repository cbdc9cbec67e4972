/* The next library's functions: how they are found, and what stands for those that it lacks.
 *
 * They are found by dlsym, by whoever calls first: the dynamic linker itself, or the constructor of another library, long before
 * ours runs. So first_NAME stands where the next library's function will, until that is looked for. dlsym may allocate in turn.
 * What it asks for before the next malloc is known comes from a little arena, and stays there.
 *
 * A name that the next libraries lack is made of what they have: C23's free_sized, and the operators in a program without a
 * C++ run-time library.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "next.h"
#include "platform/cxx.h"
#include "startup.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* NOLINTBEGIN(bugprone-macro-parentheses): parameters and arguments come with theirs */

#define SET_NEXT(name, function) atomic_store_explicit(&next_##name, (function), memory_order_relaxed)

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

static bool late;

void next_are_of_program(void)
{
    late = true;
    startup_find();
}

bool next_is_ours(const void *address)
{
    extern const char __ehdr_start[] HERE;
    extern const char _end[] HERE;
    return (uintptr_t)address - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start;
}

/* A program at a fixed address that asks for a function's address has a stub of its own for it, which is then the address for all who
 * ask. Where it leads is what calls by name go to (System V ABI for x86-64, "Function Addresses"). */
static bool is_stub(const void *found)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    return dladdr1(found, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL &&
           symbol->st_shndx == SHN_UNDEF;
}

/* What is not in the program is looked for in who asks, too: in us. */
void *next_symbol(const char *name)
{
    void *found = dlsym(late ? RTLD_DEFAULT : RTLD_NEXT, name);
    if (late && found != NULL && is_stub(found)) found = startup_symbol(name);
    return late && next_is_ours(found) ? NULL : found;
}

#define FIND_OR(name, symbol, otherwise)                                                                               \
    do {                                                                                                               \
        __typeof__(NEXT(name)) found;                                                                                  \
        *(void **)&found = next_symbol(symbol);                                                                        \
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
    *(void **)&found_malloc = next_symbol("malloc");
    *(void **)&found_calloc = next_symbol("calloc");
    *(void **)&real_realloc = next_symbol("realloc");
    *(void **)&real_free = next_symbol("free");
    *(void **)&real_malloc_usable_size = next_symbol("malloc_usable_size");
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

#define IS(function) ((uintptr_t)(function) == start)

bool next_is_allocating(uintptr_t start)
{
    return IS(NEXT(malloc)) || IS(NEXT(calloc)) || IS(NEXT(memalign)) || IS(NEXT(aligned_alloc)) ||
           IS(NEXT(posix_memalign)) || IS(NEXT(valloc)) || IS(NEXT(pvalloc)) || IS(real_realloc) || IS(real_free);
}

void next_find_all(void)
{
    search(find_all);
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

#define AT_FIRST(result, name, parameters) _Atomic(result(*) parameters) next_##name = first_##name

AT_FIRST(void *, malloc, (size_t));
AT_FIRST(void *, calloc, (size_t, size_t));
AT_FIRST(void *, realloc, (void *, size_t));
AT_FIRST(void, free, (void *));

/* dlsym needs none of the others. */
#define FIRST_SO(result, name, parameters, arguments, ...)                                                             \
    static result first_##name parameters                                                                              \
    {                                                                                                                  \
        search(find_all);                                                                                              \
        return NEXT(name) arguments;                                                                                   \
    }                                                                                                                  \
    AT_FIRST(result, name, parameters);
#define FIRST_FREE_SO(name, parameters, arguments, ...)                                                                \
    static void first_##name parameters                                                                                \
    {                                                                                                                  \
        search(find_all);                                                                                              \
        NEXT(name) arguments;                                                                                          \
    }                                                                                                                  \
    AT_FIRST(void, name, parameters);
#define FIRST(...) FIRST_SO(__VA_ARGS__, )
#define FIRST_FREE(...) FIRST_FREE_SO(__VA_ARGS__, )

FIRST(void *, reallocarray, (void *pointer, size_t count, size_t size), (pointer, count, size))
FIRST(int, posix_memalign, (void **result, size_t alignment, size_t size), (result, alignment, size))
FIRST(void *, aligned_alloc, ALIGNMENT_SIZE)
FIRST(void *, memalign, ALIGNMENT_SIZE)
FIRST(void *, valloc, SIZE)
FIRST(void *, pvalloc, SIZE)
FIRST(size_t, malloc_usable_size, (void *pointer), (pointer))
FIRST_FREE(cfree, POINTER)
FIRST_FREE(free_sized, POINTER_SIZE)
FIRST_FREE(free_aligned_sized, POINTER_ALIGNMENT_SIZE)

FIRST(void *, new, SIZE)
FIRST(void *, new_array, SIZE)
FIRST(void *, new_aligned, SIZE_ALIGNMENT)
FIRST(void *, new_array_aligned, SIZE_ALIGNMENT)
FIRST(void *, new_nothrow, SIZE_NOTHROW)
FIRST(void *, new_array_nothrow, SIZE_NOTHROW)
FIRST(void *, new_aligned_nothrow, SIZE_ALIGNMENT_NOTHROW)
FIRST(void *, new_array_aligned_nothrow, SIZE_ALIGNMENT_NOTHROW)

FIRST_FREE(delete, POINTER)
FIRST_FREE(delete_array, POINTER)
FIRST_FREE(delete_sized, POINTER_SIZE)
FIRST_FREE(delete_array_sized, POINTER_SIZE)
FIRST_FREE(delete_aligned, POINTER_ALIGNMENT)
FIRST_FREE(delete_array_aligned, POINTER_ALIGNMENT)
FIRST_FREE(delete_sized_aligned, POINTER_SIZE_ALIGNMENT)
FIRST_FREE(delete_array_sized_aligned, POINTER_SIZE_ALIGNMENT)
FIRST_FREE(delete_nothrow, POINTER_NOTHROW)
FIRST_FREE(delete_array_nothrow, POINTER_NOTHROW)
FIRST_FREE(delete_aligned_nothrow, POINTER_ALIGNMENT_NOTHROW)
FIRST_FREE(delete_array_aligned_nothrow, POINTER_ALIGNMENT_NOTHROW)

/* NOLINTEND(bugprone-macro-parentheses) */
