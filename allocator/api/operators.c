/* C++ operator new and delete, in all forms, written in C under their mangled names: so that a C program with this library
 * need not load a C++ run-time library.
 *
 * What the forms owe to each other is the C++ standard's ([new.delete]): a program may replace some forms, and the others
 * must then end up in the program's. So each form that by default calls a more basic one looks whether that one is still
 * ours, which costs a comparison with the linker's table, and else calls it. This file is compiled so that the compiler
 * does not decide the comparison itself (-fsemantic-interposition).
 *
 * In the shared libraries all are ordinary symbols: Valgrind's tools replace no weak ones. In libheapfit.a all are weak, as
 * in the C++ run-time libraries, because a program that is linked with it may define its own (cmake/HeapfitVariant.cmake).
 *
 * Failure is C++'s affair too: the new-handler and std::bad_alloc live in the C++ run-time library, which is looked for
 * only then (platform/cxx.c).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../platform/cxx.h"
#include "api.h"

_Static_assert(sizeof(size_t) == sizeof(unsigned long), "std::size_t is mangled as 'm', unsigned long");

/* ---- failure ---------------------------------------------------------------------------------------------------------- */

/* The loop that the standard demands: the new-handler makes room, throws or ends the program. */
static COLD void *new_failed(size_t size, size_t alignment)
{
    void *object;
    do {
        cxx_new_handler handler = cxx_installed_new_handler();
        if (handler == NULL) cxx_throw_bad_alloc(size);
        handler();
        object = heap_malloc_aligned(size, alignment);
    } while (object == NULL);
    return object;
}

static NOINLINE void *new_slow(size_t size, struct heap *heap)
{
    void *object = object_malloc_slow(size, heap);
    return LIKELY(object != NULL) ? object : new_failed(size, MALLOC_ALIGNMENT);
}

/* ---- declarations: `own` is what we define, `seen` what the program uses, under the mangled name -------------------------- */

struct nothrow; /* std::nothrow_t; nobody looks into one */

/* NOLINTBEGIN(bugprone-macro-parentheses): names that are declared take none */
#define OPERATOR(own, seen, mangled)                                                                                   \
    extern __typeof__(own) seen __asm__(mangled) __attribute__((alias(#own), visibility("default")))
/* NOLINTEND(bugprone-macro-parentheses) */

/* Our own goes through a register: clang takes a function and an alias of it for two functions, and decides the comparison. */
#define REPLACED(name)                                                                                                 \
    __extension__({                                                                                                    \
        __typeof__(&own_##name) own = own_##name;                                                                      \
        __asm__("" : "+r"(own));                                                                                       \
        UNLIKELY(seen_##name != own);                                                                                  \
    })

/* ---- new: the basic forms ------------------------------------------------------------------------------------------------- */

static void *own_new(size_t size)
{
    return object_of_family(object_malloc_or(size, new_slow), FAMILY_NEW);
}
OPERATOR(own_new, seen_new, "_Znwm");

ALWAYS_INLINE void *new_aligned(size_t size, size_t alignment, enum family family)
{
    if (UNLIKELY(!is_power_of_two(alignment))) cxx_throw_bad_alloc(size);
    void *object = object_malloc_aligned(size, alignment);
    return object_of_family(LIKELY(object != NULL) ? object : new_failed(size, alignment), family);
}

static void *own_new_aligned(size_t size, size_t alignment)
{
    return new_aligned(size, alignment, FAMILY_NEW);
}
OPERATOR(own_new_aligned, seen_new_aligned, "_ZnwmSt11align_val_t");

/* ---- new: arrays ------------------------------------------------------------------------------------------------------------ */

static void *own_new_array(size_t size)
{
    return REPLACED(new) ? seen_new(size) : object_of_family(object_malloc_or(size, new_slow), FAMILY_NEW_ARRAY);
}
OPERATOR(own_new_array, seen_new_array, "_Znam");

static void *own_new_array_aligned(size_t size, size_t alignment)
{
    return REPLACED(new_aligned) ? seen_new_aligned(size, alignment) : new_aligned(size, alignment, FAMILY_NEW_ARRAY);
}
OPERATOR(own_new_array_aligned, seen_new_array_aligned, "_ZnamSt11align_val_t");

/* ---- new: forms that return NULL ----------------------------------------------------------------------------------------------- */

/* These are defined as calling the throwing form and catching what it throws, which C cannot. Where something might be
 * thrown, because there is a new-handler or the program has replaced the throwing form, the C++ run-time library's own
 * definition does it: it calls the throwing form that the program uses. In a static executable, which has no second
 * definition, the throwing form is called as it is. */

typedef void *(*new_nothrow)(size_t size, const struct nothrow *nothrow);
typedef void *(*new_aligned_nothrow)(size_t size, size_t alignment, const struct nothrow *nothrow);

static COLD void *catching_new(const char *symbol, size_t size, const struct nothrow *nothrow,
                               void *(*throwing)(size_t))
{
    new_nothrow catching;
    *(void **)&catching = cxx_find(symbol);
    return catching != NULL ? catching(size, nothrow) : throwing(size);
}

static COLD void *catching_new_aligned(const char *symbol, size_t size, size_t alignment, const struct nothrow *nothrow,
                                       void *(*throwing)(size_t, size_t))
{
    new_aligned_nothrow catching;
    *(void **)&catching = cxx_find(symbol);
    return catching != NULL ? catching(size, alignment, nothrow) : throwing(size, alignment);
}

static NOINLINE void *new_nothrow_slow(size_t size, struct heap *heap)
{
    static const char nothrow;
    void *object = object_malloc_slow(size, heap);
    if (LIKELY(object != NULL) || cxx_installed_new_handler() == NULL) return object;
    return catching_new("_ZnwmRKSt9nothrow_t", size, (const struct nothrow *)&nothrow, seen_new);
}

static void *own_new_nothrow(size_t size, const struct nothrow *nothrow)
{
    if (REPLACED(new)) return catching_new("_ZnwmRKSt9nothrow_t", size, nothrow, seen_new);
    return object_of_family(object_malloc_or(size, new_nothrow_slow), FAMILY_NEW);
}
OPERATOR(own_new_nothrow, seen_new_nothrow, "_ZnwmRKSt9nothrow_t");

static void *own_new_array_nothrow(size_t size, const struct nothrow *nothrow)
{
    if (REPLACED(new_array) || REPLACED(new)) return catching_new("_ZnamRKSt9nothrow_t", size, nothrow, seen_new_array);
    return object_of_family(object_malloc_or(size, new_nothrow_slow), FAMILY_NEW_ARRAY);
}
OPERATOR(own_new_array_nothrow, seen_new_array_nothrow, "_ZnamRKSt9nothrow_t");

ALWAYS_INLINE void *new_aligned_or_null(size_t size, size_t alignment, const struct nothrow *nothrow,
                                        enum family family)
{
    static const char symbol[] = "_ZnwmSt11align_val_tRKSt9nothrow_t";
    if (REPLACED(new_aligned)) return catching_new_aligned(symbol, size, alignment, nothrow, seen_new_aligned);
    if (UNLIKELY(!is_power_of_two(alignment))) return NULL;
    void *object = object_malloc_aligned(size, alignment);
    if (UNLIKELY(object == NULL) && cxx_installed_new_handler() != NULL)
        object = catching_new_aligned(symbol, size, alignment, nothrow, seen_new_aligned);
    return object_of_family(object, family);
}

static void *own_new_aligned_nothrow(size_t size, size_t alignment, const struct nothrow *nothrow)
{
    return new_aligned_or_null(size, alignment, nothrow, FAMILY_NEW);
}
OPERATOR(own_new_aligned_nothrow, seen_new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t");

static void *own_new_array_aligned_nothrow(size_t size, size_t alignment, const struct nothrow *nothrow)
{
    if (REPLACED(new_array_aligned))
        return catching_new_aligned("_ZnamSt11align_val_tRKSt9nothrow_t", size, alignment, nothrow,
                                    seen_new_array_aligned);
    return new_aligned_or_null(size, alignment, nothrow, FAMILY_NEW_ARRAY);
}
OPERATOR(own_new_array_aligned_nothrow, seen_new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t");

/* ---- delete: the basic forms ----------------------------------------------------------------------------------------------------- */

/* Where the program has a form of new of its own, what that makes is no family's that we know. */
#define MADE_BY(family) (REPLACED(new) || REPLACED(new_array) || REPLACED(new_aligned) ? FAMILY_ANY : (family))

static void own_delete(void *pointer)
{
    heap_free_of_family(pointer, MADE_BY(FAMILY_NEW));
}
OPERATOR(own_delete, seen_delete, "_ZdlPv");

static void own_delete_aligned(void *pointer, size_t alignment)
{
    check_alignment(pointer, alignment);
    heap_free_of_family(pointer, MADE_BY(FAMILY_NEW));
}
OPERATOR(own_delete_aligned, seen_delete_aligned, "_ZdlPvSt11align_val_t");

/* ---- delete: arrays ---------------------------------------------------------------------------------------------------------------- */

static void own_delete_array(void *pointer)
{
    if (REPLACED(delete)) seen_delete(pointer);
    else heap_free_of_family(pointer, MADE_BY(FAMILY_NEW_ARRAY));
}
OPERATOR(own_delete_array, seen_delete_array, "_ZdaPv");

static void own_delete_array_aligned(void *pointer, size_t alignment)
{
    if (REPLACED(delete_aligned)) {
        seen_delete_aligned(pointer, alignment);
        return;
    }
    check_alignment(pointer, alignment);
    heap_free_of_family(pointer, MADE_BY(FAMILY_NEW_ARRAY));
}
OPERATOR(own_delete_array_aligned, seen_delete_array_aligned, "_ZdaPvSt11align_val_t");

/* ---- delete: with a size, which is what compilers call since C++14 ----------------------------------------------------------------- */

/* The forms have the same long part, which gcc would share between them at the price of a jump: not for this one. */
#if defined(__has_attribute)
#if __has_attribute(no_icf)
#define OWN_CODE __attribute__((no_icf))
#endif
#endif
#ifndef OWN_CODE
#define OWN_CODE
#endif

OWN_CODE static void own_delete_sized(void *pointer, size_t size)
{
    if (REPLACED(delete)) {
        seen_delete(pointer);
        return;
    }
    check_family(pointer, MADE_BY(FAMILY_NEW));
    heap_free_sized(pointer, size);
}
OPERATOR(own_delete_sized, seen_delete_sized, "_ZdlPvm");

static void own_delete_array_sized(void *pointer, size_t size)
{
    if (REPLACED(delete_array) || REPLACED(delete)) {
        seen_delete_array(pointer);
        return;
    }
    check_family(pointer, MADE_BY(FAMILY_NEW_ARRAY));
    heap_free_sized(pointer, size);
}
OPERATOR(own_delete_array_sized, seen_delete_array_sized, "_ZdaPvm");

ALWAYS_INLINE void delete_sized_aligned(void *pointer, size_t size, size_t alignment, enum family family)
{
    check_alignment(pointer, alignment);
    check_family(pointer, MADE_BY(family));
    heap_free_sized(pointer, size);
}

static void own_delete_sized_aligned(void *pointer, size_t size, size_t alignment)
{
    if (REPLACED(delete_aligned)) seen_delete_aligned(pointer, alignment);
    else delete_sized_aligned(pointer, size, alignment, FAMILY_NEW);
}
OPERATOR(own_delete_sized_aligned, seen_delete_sized_aligned, "_ZdlPvmSt11align_val_t");

static void own_delete_array_sized_aligned(void *pointer, size_t size, size_t alignment)
{
    if (REPLACED(delete_array_aligned) || REPLACED(delete_aligned)) seen_delete_array_aligned(pointer, alignment);
    else delete_sized_aligned(pointer, size, alignment, FAMILY_NEW_ARRAY);
}
OPERATOR(own_delete_array_sized_aligned, seen_delete_array_sized_aligned, "_ZdaPvmSt11align_val_t");

/* ---- delete: what a constructor that throws under new(std::nothrow) calls ------------------------------------------------------------ */

static void own_delete_nothrow(void *pointer, const struct nothrow *nothrow)
{
    (void)nothrow;
    seen_delete(pointer);
}
OPERATOR(own_delete_nothrow, seen_delete_nothrow, "_ZdlPvRKSt9nothrow_t");

static void own_delete_array_nothrow(void *pointer, const struct nothrow *nothrow)
{
    (void)nothrow;
    seen_delete_array(pointer);
}
OPERATOR(own_delete_array_nothrow, seen_delete_array_nothrow, "_ZdaPvRKSt9nothrow_t");

static void own_delete_aligned_nothrow(void *pointer, size_t alignment, const struct nothrow *nothrow)
{
    (void)nothrow;
    seen_delete_aligned(pointer, alignment);
}
OPERATOR(own_delete_aligned_nothrow, seen_delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t");

static void own_delete_array_aligned_nothrow(void *pointer, size_t alignment, const struct nothrow *nothrow)
{
    (void)nothrow;
    seen_delete_array_aligned(pointer, alignment);
}
OPERATOR(own_delete_array_aligned_nothrow, seen_delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t");
