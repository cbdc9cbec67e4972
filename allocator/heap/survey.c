/* What lies in a span of blocks, see survey.h. */
#include "survey.h"

#include <string.h>

#define READ(member) __atomic_load_n(&(member), __ATOMIC_RELAXED)

/* What the descriptor says, read one by one: the owner goes on. */
struct counts {
    const struct heap *owner;
    unsigned bin;
    uint32_t carved, live;
    uint16_t uncarved;
    bool zeros;
};

READS_RACILY static bool counts_read(const struct span *span, struct counts *counts)
{
    counts->owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    counts->bin = READ(span->bin);
    if (span_kind_read(span) != SPAN_BLOCKS || counts->owner == NULL || counts->bin >= HEAP_BINS) return false;
    counts->carved = READ(span->carved);
    counts->uncarved = READ(span->uncarved);
    counts->live = READ(span->countdown) + READ(span->held_back);
    counts->zeros = span->zeros;
    return true;
}

/* ---- one span ---------------------------------------------------------------------------------------------------- */

struct look {
    uintptr_t start;
    char *copy; /* of the pages that are known */
    uint32_t page, pages; /* bytes of a page; how many the span has */
    uint32_t block_size;
    uint16_t known; /* a bit per page */
};

static void copy_pages(struct look *look, const uint8_t *states)
{
    look->known = 0;
    for (uint32_t page = 0; page < look->pages; page++) {
        size_t at = (size_t)page * look->page;
        if ((states[page] & PAGE_RESIDENT) != 0 && platform_page_copy(look->copy + at, look->start + at, look->page))
            look->known |= (uint16_t)(1u << page);
    }
}

/* The link that the first word of a block is; more than LINK_MAX: it is none, or the page is not known. */
static uintptr_t link_of(const struct look *look, uintptr_t block)
{
    size_t at = block - look->start;
    if (((look->known >> (at / look->page)) & 1) == 0) return UINTPTR_MAX;
    uintptr_t word;
    memcpy(&word, look->copy + at, sizeof word);
    return word ^ space.link_key;
}

static void add_block(const struct look *look, uint32_t *bytes, uint32_t *objects, uint32_t start)
{
    uint32_t end = start + look->block_size;
    for (uint32_t page = start / look->page; start < end; page++) {
        uint32_t page_end = (page + 1) * look->page;
        uint32_t stop = end < page_end ? end : page_end;
        bytes[page] += stop - start;
        if (objects != NULL) objects[page]++;
        start = stop;
    }
}

/* The first and the end of the blocks that start in a unit, as span_unit_blocks, which asks the descriptor. */
static uint32_t first_in_unit(const struct look *look, uint32_t unit)
{
    uint32_t block = ((unit << CARVE_UNIT_LOG2) + look->block_size - 1) / look->block_size;
    uint32_t capacity = (uint32_t)SPAN_SIZE / look->block_size;
    return block < capacity ? block : capacity;
}

static void look_at_blocks(const struct look *look, uint16_t uncarved, struct span_survey *survey)
{
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++) {
        if (((uncarved >> unit) & 1) != 0) continue;
        uint32_t end = first_in_unit(look, unit + 1);
        for (uint32_t block = first_in_unit(look, unit); block < end; block++) {
            uint32_t start = block * look->block_size;
            bool is_free = link_of(look, look->start + start) <= LINK_MAX;
            survey->free_blocks += is_free;
            if (is_free) add_block(look, survey->free, NULL, start);
            else add_block(look, survey->live, survey->objects, start);
        }
    }
}

/* Where a block of the span starts, as far as its address says: what led there may have been a program's own word. */
static bool is_in_span(const struct look *look, uintptr_t block)
{
    return (block & ~(uintptr_t)(SPAN_SIZE - 1)) == look->start && block % MALLOC_ALIGNMENT == 0;
}

/* How many blocks of the span its owner's bin holds, which malloc takes from meanwhile: as far as its list leads, and at hand. */
READS_RACILY static uint32_t blocks_in_bin(const struct look *look, const struct counts *counts)
{
    uintptr_t block = READ(counts->owner->free[counts->bin]);
    uint32_t blocks = 0;
    while (is_in_span(look, block) && blocks < counts->carved) {
        uintptr_t link = link_of(look, block);
        if (link > LINK_MAX) break;
        block ^= link;
        blocks++;
    }
    if (!bin_has_hand(counts->bin)) return blocks;
    const struct hand *hand = &counts->owner->hands[counts->bin - HAND_BIN_MIN];
    uint32_t count = READ(hand->count);
    for (uint32_t i = 0; i < count && i < HAND_BLOCKS; i++) blocks += is_in_span(look, READ(hand->blocks[i]));
    return blocks;
}

static void survey_blocks(const struct look *look, const struct counts *counts, struct span_survey *survey)
{
    look_at_blocks(look, counts->uncarved, survey);
    uint32_t in_list = counts->carved > counts->live ? counts->carved - counts->live : 0;
    uint32_t with_owner = in_list + blocks_in_bin(look, counts);
    survey->on_the_way = survey->free_blocks > with_owner ? survey->free_blocks - with_owner : 0;
}

/* Of objects of many sizes it is known how much is free, and not where. */
static void survey_mixed(const struct look *look, const struct span *span, struct span_survey *survey)
{
    struct mixed_figures figures = {0};
    if (POOLS_EXIST && (look->known & 1) != 0) figures = mixed_figures(span); /* the first page tells */
    for (uint32_t page = 0; page < look->pages; page++) {
        survey->free[page] = (uint32_t)((uint64_t)figures.bytes_free * look->page / SPAN_SIZE);
        survey->live[page] = look->page - survey->free[page];
        survey->objects[page] = (uint32_t)((uint64_t)figures.objects * look->page / SPAN_SIZE);
    }
}

/* Once; whether what the descriptor says of its blocks was the same before and after. */
static bool try_once(const struct span *span, const uint8_t *states, char *copy, struct span_survey *survey)
{
    struct counts before, after;
    memset(survey, 0, sizeof *survey);
    if (!counts_read(span, &before)) return true;
    struct look look = {.start = span_start(span), .copy = copy, .page = (uint32_t)platform_page_size()};
    look.pages = (uint32_t)SPAN_SIZE / look.page;
    look.block_size = bin_block_size(before.bin);
    copy_pages(&look, states);
    survey->owner = before.owner;
    survey->in_pool = bin_is_pool(before.bin);
    survey->zeros = before.zeros;
    if (bin_is_mixed(before.bin)) survey_mixed(&look, span, survey);
    else survey_blocks(&look, &before, survey);
    return counts_read(span, &after) && after.owner == before.owner && after.bin == before.bin &&
           after.carved == before.carved && after.uncarved == before.uncarved && after.live == before.live;
}

void span_survey(const struct span *span, const uint8_t *states, void *copy, struct span_survey *survey)
{
    enum { TRIES_MAX = 3 }; /* a busy owner frees all the time */
    for (int tries = 0; tries < TRIES_MAX && !try_once(span, states, copy, survey); tries++) {
    }
}
