/* The malloc family and C++'s operators, in front of the program's allocator: each call is passed on to the next library that
 * defines its name (next.h), and noted when something is recorded. When nothing is, that is a load and a jump.
 *
 *     malloc, ...  ──► noted_malloc: noted_allocation ──► pass_on ──► the next library's
 *          │ │                                                ▲              ▲
 *          │ └── no sample falls on it ─► passed_malloc ──────┘              │
 *          └── nothing is recorded, or another call has made this one ───────┘
 *
 *     free, ...    ──► noted_free ──► note_and_free ──► pass_on_free ──► the next library's
 *
 * What is exported only decides. What notes the call is jumped to, not called, so that the frame above its own is that of who
 * called malloc: therefore it is a function of its own, one for each of the family, in which what they share is inlined.
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
#include <string.h>
#include <sys/auxv.h>

/* ---- a call ------------------------------------------------------------------------------------------------------------------------- */

/* What a function of the family takes, in this order. */
enum takes {
    TAKES_size,
    TAKES_count_size,
    TAKES_alignment_size,
    TAKES_size_alignment,
    TAKES_size_nothrow,
    TAKES_size_alignment_nothrow,
    TAKES_pointer,
    TAKES_pointer_size,
    TAKES_pointer_alignment,
    TAKES_pointer_size_alignment,
    TAKES_pointer_alignment_size,
    TAKES_pointer_nothrow,
    TAKES_pointer_alignment_nothrow,
};

/* One call: what is to be called, and with what. */
struct call {
    union {
        void *(*size)(size_t);
        void *(*count_size)(size_t, size_t);
        void *(*alignment_size)(size_t, size_t);
        void *(*size_alignment)(size_t, size_t);
        void *(*size_nothrow)(size_t, const struct nothrow *);
        void *(*size_alignment_nothrow)(size_t, size_t, const struct nothrow *);
        void (*pointer)(void *);
        void (*pointer_size)(void *, size_t);
        void (*pointer_alignment)(void *, size_t);
        void (*pointer_size_alignment)(void *, size_t, size_t);
        void (*pointer_alignment_size)(void *, size_t, size_t);
        void (*pointer_nothrow)(void *, const struct nothrow *);
        void (*pointer_alignment_nothrow)(void *, size_t, const struct nothrow *);
    } next; /* of the next library */
    enum takes takes; /* which of these it is */
    enum trace_kind kind; /* noted as */
    void *pointer;
    size_t size, alignment, count; /* 0: it takes none */
    const struct nothrow *nothrow;
};

/* Whether a call is not to be noted: because nothing is, or because another one made it. */
ALWAYS_INLINE bool is_not_for_us(void)
{
    return LIKELY(!is_recording()) || UNLIKELY(record_thread.inside);
}

/* ---- allocations -------------------------------------------------------------------------------------------------------------------- */

/* What the unwinder asks about a frame (Itanium C++ ABI, exception handling, 1.6.2), first in search of a handler, then on its way
 * there: those of pass_on have no handler, and no cleaning up to do that could not be done at once. */
enum { UNWIND_CLEANUP_PHASE = 2, UNWIND_CONTINUE = 8 };
int record_personality(int version, int actions, uint64_t exception_class, void *exception, void *context)
    __attribute__((used, visibility("hidden")));

int record_personality(int version, int actions, uint64_t exception_class, void *exception, void *context)
{
    (void)version, (void)exception_class, (void)exception, (void)context;
    if (actions & UNWIND_CLEANUP_PHASE) thread_leave();
    return UNWIND_CONTINUE;
}

/* An exception of operator new leaves the frame that this is in, and ends the call. The compiler could see to that (`cleanup`), but
 * by a personality of libgcc_s.so, which this library would then need. The encoding of ours, 0x1b, relative to its place and of
 * four bytes, is for a name that is in the library and seen there alone. */
ALWAYS_INLINE void *pass_on(const struct call *call)
{
    __asm__ volatile(".cfi_personality 0x1b, record_personality");
    switch (call->takes) {
    case TAKES_count_size:
        return call->next.count_size(call->count, call->size);
    case TAKES_alignment_size:
        return call->next.alignment_size(call->alignment, call->size);
    case TAKES_size_alignment:
        return call->next.size_alignment(call->size, call->alignment);
    case TAKES_size_nothrow:
        return call->next.size_nothrow(call->size, call->nothrow);
    case TAKES_size_alignment_nothrow:
        return call->next.size_alignment_nothrow(call->size, call->alignment, call->nothrow);
    default:
        return call->next.size(call->size);
    }
}

/* Without noting it. What it calls in turn is not noted either, lest a sample be drawn for it a second time. */
ALWAYS_INLINE void *only_pass_on(const struct call *call)
{
    thread_enter();
    void *object = pass_on(call);
    thread_leave();
    return object;
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
    if (UNLIKELY(record_settings.sample != 0) && !sample_remember((uintptr_t)object)) {
        atomic_fetch_add_explicit(&record_lost, 1, memory_order_relaxed); /* a number */
        return;
    }
    size_t usable = NEXT(malloc_usable_size)(object);
    note(kind, (uintptr_t)object, size, usable - size, alignment_log(alignment), site);
}

ALWAYS_INLINE size_t bytes_of(const struct call *call)
{
    size_t bytes;
    if (call->takes != TAKES_count_size) return call->size;
    return __builtin_mul_overflow(call->count, call->size, &bytes) ? SIZE_MAX : bytes;
}

ALWAYS_INLINE bool no_sample_falls(const struct call *call)
{
    return sample_passes(bytes_of(call));
}

ALWAYS_INLINE void *noted_allocation(const struct call *call)
{
    thread_enter();
    bool falls = LIKELY(record_settings.sample == 0) || sample_falls(bytes_of(call));
    void *object = pass_on(call);
    if (LIKELY(falls)) note_allocation(call->kind, object, bytes_of(call), call->alignment, site_of_caller());
    thread_leave();
    return object;
}

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

/* ---- frees ------------------------------------------------------------------------------------------------------------------------------ */

ALWAYS_INLINE void pass_on_free(const struct call *call)
{
    switch (call->takes) {
    case TAKES_pointer_size:
        call->next.pointer_size(call->pointer, call->size);
        break;
    case TAKES_pointer_alignment:
        call->next.pointer_alignment(call->pointer, call->alignment);
        break;
    case TAKES_pointer_size_alignment:
        call->next.pointer_size_alignment(call->pointer, call->size, call->alignment);
        break;
    case TAKES_pointer_alignment_size:
        call->next.pointer_alignment_size(call->pointer, call->alignment, call->size);
        break;
    case TAKES_pointer_nothrow:
        call->next.pointer_nothrow(call->pointer, call->nothrow);
        break;
    case TAKES_pointer_alignment_nothrow:
        call->next.pointer_alignment_nothrow(call->pointer, call->alignment, call->nothrow);
        break;
    default:
        call->next.pointer(call->pointer);
    }
}

/* Whether the object that is about to be freed is one of those that are noted; then it is no more. */
ALWAYS_INLINE bool is_noted(const void *pointer)
{
    return LIKELY(record_settings.sample == 0) || sample_forget((uintptr_t)pointer);
}

/* The dynamic linker's first address; 0: not known, as where it was told to start the program. */
static uintptr_t linker;

/* Of the function that this is written in. Most callers are further away. */
ALWAYS_INLINE bool is_called_by_linker(void)
{
    enum { LINKER_MAX = 4 << 20 };
    void *caller = __builtin_return_address(0);
    return UNLIKELY((uintptr_t)caller - linker < LINKER_MAX) && platform_is_in_linker(caller);
}

/* The dynamic linker frees what dead threads leave while the C library holds the lock without which no thread can be started. An
 * allocator that would start one in `free` looks who has called it, as libheapfit does (heap/background.c): so it must not be us. The
 * other calls are left by a return, for what they call in turn is not to be noted. */
ALWAYS_INLINE void note_and_free(const struct call *call)
{
    thread_enter();
    note(call->kind, (uintptr_t)call->pointer, 0, 0, 0, 0);
    if (call->kind == TRACE_FREE && is_called_by_linker()) {
        thread_leave();
        pass_on_free(call);
        return;
    }
    pass_on_free(call);
    thread_leave();
}

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

/* ---- what is exported ----------------------------------------------------------------------------------------------------------------------- */

/* NOLINTBEGIN(bugprone-macro-parentheses): parameters and arguments come with theirs */

#define CALL(name, noted_as, what, ...)                                                                                \
    (&(struct call){.next.what = NEXT(name), .takes = TAKES_##what, .kind = (noted_as), __VA_ARGS__})

/* What malloc calls in turn is nothing that could be noted, so that it is left by a jump where no sample falls. */
#define ALLOCATES_SO(name, noted_as, parameters, arguments, ...)                                                       \
    static NOINLINE __attribute__((unused)) void *passed_##name parameters                                             \
    {                                                                                                                  \
        return only_pass_on(CALL(name, noted_as, __VA_ARGS__));                                                        \
    }                                                                                                                  \
    static NOINLINE void *noted_##name parameters                                                                      \
    {                                                                                                                  \
        return noted_allocation(CALL(name, noted_as, __VA_ARGS__));                                                    \
    }                                                                                                                  \
    EXPORT void *name parameters                                                                                       \
    {                                                                                                                  \
        if (is_not_for_us()) return NEXT(name) arguments;                                                              \
        if (!no_sample_falls(CALL(name, noted_as, __VA_ARGS__))) return noted_##name arguments;                        \
        return (noted_as) == TRACE_MALLOC ? NEXT(name) arguments : passed_##name arguments;                            \
    }

/* Without a sample nothing is in the way of a jump: a call that is nested finds its object noted no more. */
#define FREES_SO(name, noted_as, parameters, arguments, ...)                                                           \
    static NOINLINE void noted_##name parameters                                                                       \
    {                                                                                                                  \
        note_and_free(CALL(name, noted_as, __VA_ARGS__));                                                              \
    }                                                                                                                  \
    EXPORT void name parameters                                                                                        \
    {                                                                                                                  \
        if (is_not_for_us() || UNLIKELY(pointer == NULL) || !is_noted(pointer)) NEXT(name) arguments;                  \
        else noted_##name arguments;                                                                                   \
    }

/* With what a function takes (next.h) in place of its parts. */
#define ALLOCATES(...) ALLOCATES_SO(__VA_ARGS__)
#define FREES(...) FREES_SO(__VA_ARGS__)

ALLOCATES(malloc, TRACE_MALLOC, SIZE)
ALLOCATES(calloc, TRACE_CALLOC, COUNT_SIZE)
ALLOCATES(aligned_alloc, TRACE_ALIGNED, ALIGNMENT_SIZE)
ALLOCATES(memalign, TRACE_ALIGNED, ALIGNMENT_SIZE)
ALLOCATES(valloc, TRACE_ALIGNED, SIZE, .alignment = platform_page_size())
ALLOCATES(pvalloc, TRACE_ALIGNED, SIZE, .alignment = platform_page_size())
ALLOCATES(new, TRACE_NEW, SIZE)
ALLOCATES(new_array, TRACE_NEW, SIZE)
ALLOCATES(new_nothrow, TRACE_NEW, SIZE_NOTHROW)
ALLOCATES(new_array_nothrow, TRACE_NEW, SIZE_NOTHROW)
ALLOCATES(new_aligned, TRACE_NEW_ALIGNED, SIZE_ALIGNMENT)
ALLOCATES(new_array_aligned, TRACE_NEW_ALIGNED, SIZE_ALIGNMENT)
ALLOCATES(new_aligned_nothrow, TRACE_NEW_ALIGNED, SIZE_ALIGNMENT_NOTHROW)
ALLOCATES(new_array_aligned_nothrow, TRACE_NEW_ALIGNED, SIZE_ALIGNMENT_NOTHROW)

void cfree(void *pointer);
void free_sized(void *pointer, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size);

FREES(free, TRACE_FREE, POINTER)
FREES(cfree, TRACE_FREE, POINTER)
FREES(free_sized, TRACE_FREE, POINTER_SIZE)
FREES(free_aligned_sized, TRACE_FREE, POINTER_ALIGNMENT_SIZE)
FREES(delete, TRACE_DELETE, POINTER)
FREES(delete_array, TRACE_DELETE, POINTER)
FREES(delete_sized, TRACE_DELETE, POINTER_SIZE)
FREES(delete_array_sized, TRACE_DELETE, POINTER_SIZE)
FREES(delete_aligned, TRACE_DELETE, POINTER_ALIGNMENT)
FREES(delete_array_aligned, TRACE_DELETE, POINTER_ALIGNMENT)
FREES(delete_sized_aligned, TRACE_DELETE, POINTER_SIZE_ALIGNMENT)
FREES(delete_array_sized_aligned, TRACE_DELETE, POINTER_SIZE_ALIGNMENT)
FREES(delete_nothrow, TRACE_DELETE, POINTER_NOTHROW)
FREES(delete_array_nothrow, TRACE_DELETE, POINTER_NOTHROW)
FREES(delete_aligned_nothrow, TRACE_DELETE, POINTER_ALIGNMENT_NOTHROW)
FREES(delete_array_aligned_nothrow, TRACE_DELETE, POINTER_ALIGNMENT_NOTHROW)

/* NOLINTEND(bugprone-macro-parentheses) */

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    return is_not_for_us() ? NEXT(posix_memalign)(result, alignment, size)
                           : noted_posix_memalign(result, alignment, size);
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

EXPORT size_t malloc_usable_size(void *pointer)
{
    return NEXT(malloc_usable_size)(pointer);
}

/* ---- code that is unloaded ---------------------------------------------------------------------------------------------------------------- */

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
    *(void **)&next = next_symbol("dlclose");
    if (record_settings.sites != 0) recording_note_modules();
    int result = next(handle);
    if (record_settings.sites == 0) return result;
    unsigned long long unloaded = 0;
    dl_iterate_phdr(read_unloaded, &unloaded);
    /* Relaxed: of two threads that see the same, one forgets for both. */
    if (atomic_exchange_explicit(&forgotten, unloaded, memory_order_relaxed) == unloaded) return result;
    sites_forget();
    recording_note_modules();
    return result;
}

/* ---- start ------------------------------------------------------------------------------------------------------------------------------------ */

static const char *allocator = "";

const char *intercept_allocator(void)
{
    return allocator;
}

/* What that library says is live, in all. */
static size_t live_bytes(void)
{
    struct all { /* mallinfo2(3) */
        size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
    } (*info)(void);
    *(void **)&info = next_symbol("mallinfo2");
    Dl_info file;
    if (info == NULL || dladdr(*(void **)&info, &file) == 0 || strcmp(file.dli_fname, allocator) != 0) return 0;
    struct all all = info();
    return all.uordblks + all.hblkhd;
}

size_t intercept_live_before(void)
{
    static size_t before = SIZE_MAX; /* the constructor asks first, before there is anybody else */
    if (before == SIZE_MAX) before = live_bytes();
    return before;
}

void intercept_start(void)
{
    static bool started;
    if (started) return;
    started = true;
    linker = (uintptr_t)getauxval(AT_BASE);
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

static _Atomic(bool) has_come;
static void *(*next_before)(size_t);

static void *come(size_t size)
{
    has_come = true;
    return next_before(size);
}

/* Whether a malloc that stands before ours passes a call on to us, as one that counts does. Other threads may call ours meanwhile. */
static bool passes_on(void *(*first)(size_t))
{
    void (*release)(void *);
    *(void **)&release = dlsym(RTLD_DEFAULT, "free");
    next_before = NEXT(malloc);
    atomic_store_explicit(&next_malloc, come, memory_order_relaxed);
    void *block = first(1);
    atomic_store_explicit(&next_malloc, next_before, memory_order_relaxed);
    release(block);
    return has_come;
}

bool intercept_check(void)
{
    void *(*first)(size_t);
    *(void **)&first = dlsym(RTLD_DEFAULT, "malloc");
    bool serves = !is_definition_elsewhere(*(void **)&first) || passes_on(first);
    if (!serves)
        platform_message(
            "nothing can be recorded: another malloc stands before libheapfit-record.so, in the program itself or "
            "earlier in LD_PRELOAD");
    return serves;
}
