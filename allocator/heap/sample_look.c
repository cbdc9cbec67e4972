/* The sampled objects that live, and what they pin, while the program goes on: see sample.h.
 *
 * A sample whose block has been freed ends when the block is given to a bin. Until then the block looks free. So a sample is of an
 * object that lives if its block does not look free, and the sample is still the same when that has been seen.
 *
 * What an object pins is its part of what is free on the pages that it lies on. With each object's part multiplied by how many
 * objects it stands for, the sum over a call site's is without bias what all the site's objects pin; and over all sites, what is free
 * on pages with live objects.
 */
#include "survey.h"

#include <string.h>

/* ---- the order in which samples are looked at ------------------------------------------------------------------------------------- */

/* By their spans, so that each is surveyed once: by two passes over twelve bits each (Knuth, 5.2.5), which are enough for a TiB. What
 * changes meanwhile is looked at out of order, no more. */
enum { DIGIT_BITS = 12, DIGITS = 1 << DIGIT_BITS, PASSES = 2 };

struct item {
    uint32_t span, number;
};

struct order {
    size_t bytes; /* of what is borrowed */
    uint32_t count;
    struct item *items, *others;
    uint32_t *starts; /* for each digit */
};

static bool order_borrow(struct order *order, uint32_t most)
{
    order->bytes = (size_t)most * (2 * sizeof(struct item)) + DIGITS * sizeof(uint32_t);
    order->items = platform_borrow(order->bytes);
    if (order->items == NULL) return false;
    order->others = order->items + most;
    order->starts = (uint32_t *)(order->others + most);
    return true;
}

static uint32_t digit_of(const struct item *item, unsigned pass)
{
    return item->span >> (pass * DIGIT_BITS) & (DIGITS - 1);
}

static void order_pass(const struct order *order, const struct item *from, struct item *to, unsigned pass)
{
    memset(order->starts, 0, DIGITS * sizeof *order->starts);
    for (uint32_t i = 0; i < order->count; i++) order->starts[digit_of(&from[i], pass)]++;
    for (uint32_t digit = 0, start = 0; digit < DIGITS; digit++) {
        uint32_t items = order->starts[digit];
        order->starts[digit] = start;
        start += items;
    }
    for (uint32_t i = 0; i < order->count; i++) to[order->starts[digit_of(&from[i], pass)]++] = from[i];
}

static void order_make(struct order *order, uint32_t last)
{
    struct sample_now now;
    order->count = 0;
    for (uint32_t number = 1; number <= last; number++) {
        if (!sample_read(number, &now)) continue;
        uint32_t span = (uint32_t)((now.object - space.base) >> SPAN_SHIFT);
        order->items[order->count++] = (struct item){.span = span, .number = number};
    }
    _Static_assert(PASSES == 2, "it ends where it began");
    order_pass(order, order->items, order->others, 0);
    order_pass(order, order->others, order->items, 1);
}

/* ---- what one of them pins --------------------------------------------------------------------------------------------------------- */

struct looking {
    struct platform_pages pages;
    char *copy; /* borrowed: room for that of a span, as it was surveyed last */
    const struct span *span; /* which that was; NULL: none yet */
    uint8_t states[SURVEY_PAGES_MAX];
    struct span_survey survey;
    uint64_t now;
    void (*visit)(const struct sampled *sampled, void *argument);
    void *argument;
};

static void look_at_span(struct looking *looking, const struct span *span)
{
    if (looking->span == span) return;
    platform_pages_look(&looking->pages, span_start(span), SPAN_SIZE / looking->pages.page, looking->states);
    span_survey(span, looking->states, looking->copy, &looking->survey);
    looking->span = span;
}

static bool is_resident(const struct looking *looking, size_t page)
{
    return (looking->states[page] & PAGE_RESIDENT) != 0;
}

/* As far as its page was there. */
static bool is_free(const struct looking *looking, uintptr_t block)
{
    uintptr_t word;
    size_t at = block & (SPAN_SIZE - 1);
    if (!is_resident(looking, at / looking->pages.page)) return false;
    memcpy(&word, looking->copy + at, sizeof word);
    return (word ^ space.link_key) <= LINK_MAX;
}

static size_t pinned_by(const struct looking *looking, uintptr_t object, size_t bytes)
{
    const struct span_survey *survey = &looking->survey;
    size_t start = object & (SPAN_SIZE - 1), pinned = 0, size = looking->pages.page;
    for (size_t page = start / size; page <= (start + bytes - 1) / size && page < SPAN_SIZE / size; page++)
        if (is_resident(looking, page) && survey->objects[page] != 0)
            pinned += (size - survey->live[page]) / survey->objects[page];
    return pinned;
}

static void look_at_sample(struct looking *looking, uint32_t number)
{
    struct sample_now now;
    if (!sample_read(number, &now)) return;
    struct sampled sampled = {.bytes = now.bytes, .mean = now.mean, .site = now.site};
    sampled.age_ms = looking->now > now.since_ms ? looking->now - now.since_ms : 0;
    if (!now.large) {
        look_at_span(looking, span_of_offset(now.object - space.base));
        if (looking->survey.owner == NULL || is_free(looking, now.object)) return;
        sampled.pinned = pinned_by(looking, now.object, now.bytes);
    }
    if (sample_is_unchanged(number, &now)) looking->visit(&sampled, looking->argument);
}

/* ---- all of them ------------------------------------------------------------------------------------------------------------------- */

static void look(struct looking *looking, const struct order *order)
{
    looking->now = platform_clock_ms();
    platform_pages_open(&looking->pages);
    for (uint32_t i = 0; i < order->count; i++) look_at_sample(looking, order->items[i].number);
    platform_pages_close(&looking->pages);
}

bool sample_visit(void (*visit)(const struct sampled *sampled, void *argument), void *argument)
{
    struct looking looking = {.span = NULL, .visit = visit, .argument = argument};
    struct order order;
    uint32_t last = sample_last();
    if (last == 0) return true;
    if (!order_borrow(&order, last)) return false;
    looking.copy = platform_borrow(SPAN_SIZE);
    if (looking.copy != NULL) {
        order_make(&order, last);
        look(&looking, &order);
        platform_give_back(looking.copy, SPAN_SIZE);
    }
    platform_give_back(order.items, order.bytes);
    return looking.copy != NULL;
}
