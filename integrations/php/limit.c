/* memory_limit: the main context has it as its limit, and PHP's own error is raised when it is reached.
 *
 * As in Zend's manager, the limit counts address space, by the chunk. PHP 8.2 of recent Debian raises the error at the next
 * safe point of the program and lets it go on until then, up to memory_hard_limit_percent of the limit; older ones
 * raise it on the spot.
 */
#include "heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LIMIT_MESSAGE "Allowed memory size of %zu bytes exhausted (tried to allocate %zu bytes)"
#define MEMORY_MESSAGE "Out of memory (allocated %zu bytes) (tried to allocate %zu bytes)"

static size_t limit_soft(void)
{
    return (size_t)PG(memory_limit) > ZEND_LONG_MAX ? (size_t)ZEND_LONG_MAX : (size_t)PG(memory_limit);
}

static void limit_apply(void)
{
    request_heap.main->limit = limit_soft();
}

/* Else it is the system that has refused memory. */
static bool is_by_limit(size_t size)
{
    const struct hf_context *context = request_heap.main;
    return request_heap.in_request && context->limit != 0 &&
           (size > context->limit || context->footprint > context->limit - size ||
            context->chunk_size > context->limit - context->footprint);
}

/* ---- at the limit --------------------------------------------------------------------------------------------------------- */

#ifdef ZEND_HAS_OOM

/* What Zend's own manager does where memory_hard_limit_percent is not set. */
enum { HARD_FACTOR = 2, HARD_MORE_MAX = 1 << 30 };
enum { HARD_EXIT_STATUS = 137 };

static size_t limit_hard(void)
{
    size_t soft = limit_soft();
    zend_long percent = INI_INT("memory_hard_limit_percent");
    size_t more = soft < HARD_MORE_MAX ? soft * (HARD_FACTOR - 1) : HARD_MORE_MAX;
    if (percent >= 100) more = (size_t)((double)soft / 100 * (double)(percent - 100));
    return more < ZEND_LONG_MAX - soft ? soft + more : ZEND_LONG_MAX;
}

/* Whoever asked may live without the memory, but what then reports the error needs some: Zend's manager has most of a chunk
 * left at that point. We give one, once. */
static bool slack_given;

static void give_slack(struct hf_context *context)
{
    if (slack_given) return;
    slack_given = true;
    context->limit = context->footprint + context->chunk_size;
}

bool limit_may_pass(size_t size)
{
    struct hf_context *context = request_heap.main;
    bool by_limit = is_by_limit(size);
    if (by_limit) zend_mm_delayed_error_or_panic(true, LIMIT_MESSAGE, limit_soft(), size);
    else zend_mm_delayed_error_or_panic(true, MEMORY_MESSAGE, context->footprint, size);
    if (zend_mm_is_fallible()) {
        if (by_limit) give_slack(context);
        return false;
    }
    if (by_limit) context->limit = limit_hard();
    return true;
}

static void slack_reset(void)
{
    slack_given = false;
}

ZEND_COLD void limit_end_process(size_t size)
{
    if (!is_by_limit(size)) {
        fputs("Out of memory\n", stderr);
        exit(1);
    }
    const char *file = zend_is_executing() ? zend_get_executed_filename() : "Unknown";
    fprintf(stderr, "Hard memory limit of %zu bytes exhausted (tried to allocate %zu bytes) in %s on line %d\n",
            request_heap.main->limit, size, file, (int)zend_get_executed_lineno());
    _exit(HARD_EXIT_STATUS);
}

#else

static void slack_reset(void) {}

bool limit_may_pass(size_t size)
{
    struct hf_context *context = request_heap.main;
    bool by_limit = is_by_limit(size);
    zend_try
    {
        /* What reports the error allocates too. */
        context->limit = 0;
        if (by_limit) zend_error_noreturn(E_ERROR, LIMIT_MESSAGE, limit_soft(), size);
        zend_error_noreturn(E_ERROR, MEMORY_MESSAGE, context->footprint, size);
    }
    zend_end_try();
    limit_apply();
    zend_bailout();
    return true;
}

ZEND_COLD void limit_end_process(size_t size)
{
    (void)size;
    fputs("Out of memory\n", stderr);
    exit(1);
}

#endif

/* ---- changes while a program runs ---------------------------------------------------------------------------------------- */

static ZEND_INI_MH((*original_change)) = NULL;

static ZEND_INI_MH(on_change)
{
    zend_long before = PG(memory_limit);
    if (original_change(entry, new_value, mh_arg1, mh_arg2, mh_arg3, stage) == FAILURE) return FAILURE;
    if (!request_heap.in_request) return SUCCESS;
    struct hf_context *context = request_heap.main;
    if (limit_soft() < context->footprint) context_give_back_unused(context);
    if (limit_soft() < context->footprint && stage != ZEND_INI_STAGE_DEACTIVATE) {
        zend_error(E_WARNING, "Failed to set memory limit to %zd bytes (Current memory usage is %zd bytes)",
                   (size_t)PG(memory_limit), context->footprint);
        PG(memory_limit) = before;
        zend_set_memory_limit((size_t)before);
        return FAILURE;
    }
    limit_apply();
    return SUCCESS;
}

static zend_ini_entry *limit_entry(void)
{
    return zend_hash_str_find_ptr(EG(ini_directives), ZEND_STRL("memory_limit"));
}

void limit_start(void)
{
    zend_ini_entry *entry = limit_entry();
    original_change = entry->on_modify;
    entry->on_modify = on_change;
}

void limit_stop(void)
{
    zend_ini_entry *entry = limit_entry();
    if (entry != NULL && entry->on_modify == on_change) entry->on_modify = original_change;
}

void limit_begin_request(void)
{
    struct hf_context *context = request_heap.main;
    limit_apply();
    slack_reset();
    /* Kept from requests before, which may have had a higher limit. Nothing is in it yet. */
    if (context->footprint > context->limit && context->chunks_count > 1) {
        size_t chunks = context->limit / context->chunk_size;
        chunk_trim(context, chunks < 1 ? 1 : (uint32_t)chunks);
    }
}
