/* What lies in a span of blocks, page by page, whoever owns it and while its owner goes on: for figures.
 *
 * The lists of free blocks cannot be followed while their owner changes them. But a free block looks free wherever it stands, in a
 * list of its span, ready for malloc, or on its way from another thread: its first word is a link, which malloc clears
 * (block_looks_free). So one pass over the first words tells free blocks from live ones, and the counts in the descriptor say how
 * many of the free ones are in the owner's hands.
 *
 * It is a copy of the pages that is looked through: the program may make pages of its objects inaccessible, and so do we those of
 * large objects, which may stand here a moment later, in the library that is hardened.
 *
 * What the owner does meanwhile may be seen in part. A block that is allocated or freed during the pass counts as one or the other;
 * where the span has got another owner or use, it is looked at again. A live block into which the program has copied a link counts
 * as free.
 */
#ifndef HEAPFIT_SURVEY_H
#define HEAPFIT_SURVEY_H

#include "../platform/pages.h"
#include "heap.h"

/* The smallest page that Linux has. */
enum { SURVEY_PAGES_MAX = SPAN_SIZE >> 12 };

struct span_survey {
    const struct heap *owner; /* NULL: the span is none of blocks any more, and nothing else of this is set */
    bool in_pool; /* its blocks are a pool's */
    bool zeros; /* pages without blocks have never been written to */
    uint32_t live[SURVEY_PAGES_MAX],
        free[SURVEY_PAGES_MAX]; /* bytes of blocks in each page; the rest of it is not cut */
    uint32_t objects[SURVEY_PAGES_MAX]; /* live ones of which the page has a part */
    uint32_t free_blocks;
    uint32_t on_the_way; /* of these: freed by other threads, and not taken in by the owner yet */
};

/* `states` are of the pages of the span; `copy` is room for its SPAN_SIZE bytes. Only what is resident is looked at; blocks that
 * begin elsewhere count as live. */
void span_survey(const struct span *span, const uint8_t *states, void *copy, struct span_survey *survey);

#endif
