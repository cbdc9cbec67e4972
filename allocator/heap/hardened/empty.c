/* Objects of no bytes in the library that is hardened (hardened.h): addresses in a run of spans that nobody can access, each
 * MALLOC_ALIGNMENT bytes from the next. A bit for each says whether it is live. */
#include "../heap.h"

/* 256 KiB of address space and 2 KiB of bits. A program that has more of them gets blocks. */
enum { RUN_SPANS = 4, OBJECTS = RUN_SPANS * SPAN_SIZE / MALLOC_ALIGNMENT, WORD_BITS = 64, WORDS = OBJECTS / WORD_BITS };

enum { START_NEVER = 0, START_UNDER_WAY, START_DONE, START_FAILED };
static _Atomic(uint32_t) started;
static uintptr_t run; /* written before `started` says so */
static _Atomic(uint64_t) live[WORDS];

static bool has_started(void)
{
    /* Acquire: pairs with the release in start. */
    return atomic_load_explicit(&started, memory_order_acquire) == START_DONE;
}

/* Whoever comes first; the others do without meanwhile, as does a fork's child whose parent was about to. */
static COLD bool start(void)
{
    uint32_t never = START_NEVER;
    if (space_settings.huge_pages == HUGE_PAGES_HUGETLB ||
        !atomic_compare_exchange_strong_explicit(&started, &never, START_UNDER_WAY, memory_order_relaxed,
                                                 memory_order_relaxed))
        return false;
    const struct span *first = space_set_apart(RUN_SPANS, 1);
    bool done = first != NULL && platform_seal((void *)span_start(first), RUN_SPANS * SPAN_SIZE);
    if (done) run = span_start(first);
    atomic_store_explicit(&started, done ? START_DONE : START_FAILED, memory_order_release);
    if (done) hardened_watch_faults();
    return done;
}

/* The number of a bit that is set, from a place on that is chosen at random. */
static uint32_t any_of(uint64_t bits, uint64_t chance)
{
    uint32_t from = (uint32_t)(chance % WORD_BITS);
    uint64_t turned = bits >> from | bits << (WORD_BITS - from) % WORD_BITS;
    return ((uint32_t)__builtin_ctzll(turned) + from) % WORD_BITS;
}

/* The bits of a word whose addresses are multiples of the alignment, at most a span's size. */
static uint64_t aligned_bits(uint32_t word, size_t alignment)
{
    size_t step = alignment <= MALLOC_ALIGNMENT ? 1 : alignment / MALLOC_ALIGNMENT;
    if (step >= WORD_BITS) return (size_t)word * WORD_BITS % step == 0;
    uint64_t bits = 1;
    for (; step < WORD_BITS; step *= 2) bits |= bits << step;
    return bits;
}

void *empty_malloc(size_t alignment)
{
    if (alignment > SPAN_SIZE || (UNLIKELY(!has_started()) && !start())) return NULL;
    uint64_t chance = hardened_draw();
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t word = (uint32_t)(chance + i) % WORDS;
        uint64_t fit = aligned_bits(word, alignment);
        uint64_t before = atomic_load_explicit(&live[word], memory_order_relaxed);
        while ((~before & fit) != 0) {
            uint32_t bit = any_of(~before & fit, chance >> 32);
            if (atomic_compare_exchange_weak_explicit(&live[word], &before, before | UINT64_C(1) << bit,
                                                      memory_order_relaxed, memory_order_relaxed))
                return (void *)(run + ((uintptr_t)word * WORD_BITS + bit) * MALLOC_ALIGNMENT);
        }
    }
    return NULL;
}

bool empty_is_one(const void *pointer)
{
    return has_started() && (uintptr_t)pointer - run < RUN_SPANS * SPAN_SIZE;
}

static uint32_t number_of(const char *function, const void *pointer)
{
    uintptr_t offset = (uintptr_t)pointer - run;
    if (offset % MALLOC_ALIGNMENT != 0) check_pointer_failed(function, pointer);
    return (uint32_t)(offset / MALLOC_ALIGNMENT);
}

void empty_free(const char *function, const void *pointer)
{
    uint32_t number = number_of(function, pointer);
    uint64_t bit = UINT64_C(1) << number % WORD_BITS;
    if ((atomic_fetch_and_explicit(&live[number / WORD_BITS], ~bit, memory_order_relaxed) & bit) == 0)
        check_double_free(pointer);
}

size_t empty_usable_size(const char *function, const void *pointer)
{
    uint32_t number = number_of(function, pointer);
    if ((atomic_load_explicit(&live[number / WORD_BITS], memory_order_relaxed) >> number % WORD_BITS & 1) == 0)
        check_pointer_failed(function, pointer);
    return 0;
}
