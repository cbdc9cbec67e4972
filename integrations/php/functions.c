/* What PHP programs call: memory_get_usage() and its kin, which must tell of the contexts instead of Zend's own heap, and
 * heapfit_stats(). */
#include "heap.h"

/* ---- figures ------------------------------------------------------------------------------------------------------------- */

static void add(struct usage *usage, const struct hf_context *context)
{
    hf_context_stats stats;
    hf_context_stats_get(context, &stats, sizeof stats);
    usage->live += stats.live_bytes;
    usage->used += stats.used_bytes;
    usage->peak += stats.peak_bytes;
    usage->footprint += stats.footprint;
    usage->footprint_peak += stats.footprint_peak;
}

struct usage functions_usage(void)
{
    struct usage usage = {0};
    if (request_heap.main == NULL) return usage;
    add(&usage, request_heap.main);
    for (int i = 0; i < SIDES; i++) add(&usage, request_heap.sides[i]);
    return usage;
}

/* ---- PHP's own functions --------------------------------------------------------------------------------------------------- */

static bool real_argument(zend_execute_data *execute_data, bool *real)
{
    *real = false;
    ZEND_PARSE_PARAMETERS_START(0, 1)
    Z_PARAM_OPTIONAL
    Z_PARAM_BOOL(*real)
    ZEND_PARSE_PARAMETERS_END_EX(return false);
    return true;
}

static ZEND_FUNCTION(usage_now)
{
    bool real;
    if (!real_argument(execute_data, &real)) return;
    struct usage usage = functions_usage();
    RETURN_LONG((zend_long)(real ? usage.footprint : usage.live));
}

static ZEND_FUNCTION(usage_peak)
{
    bool real;
    if (!real_argument(execute_data, &real)) return;
    struct usage usage = functions_usage();
    RETURN_LONG((zend_long)(real ? usage.footprint_peak : usage.peak));
}

static ZEND_FUNCTION(usage_reset_peak)
{
    ZEND_PARSE_PARAMETERS_NONE();
    struct hf_context *contexts[] = {request_heap.main, request_heap.sides[0], request_heap.sides[1]};
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        contexts[i]->used_peak = contexts[i]->used;
        contexts[i]->footprint_peak = contexts[i]->footprint;
    }
}

static ZEND_FUNCTION(give_back)
{
    ZEND_PARSE_PARAMETERS_NONE();
    context_give_back_unused(request_heap.main);
    RETURN_LONG((zend_long)hf_trim());
}

static struct replacement {
    const char *name;
    zif_handler ours, original;
} replacements[] = {
    {"memory_get_usage", ZEND_FN(usage_now), NULL},
    {"memory_get_peak_usage", ZEND_FN(usage_peak), NULL},
    {"memory_reset_peak_usage", ZEND_FN(usage_reset_peak), NULL},
    {"gc_mem_caches", ZEND_FN(give_back), NULL},
};

enum { REPLACEMENTS = sizeof replacements / sizeof *replacements };

static zend_internal_function *internal_function(const char *name)
{
    zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
    return function != NULL && function->type == ZEND_INTERNAL_FUNCTION ? &function->internal_function : NULL;
}

void functions_start(void)
{
    for (int i = 0; i < REPLACEMENTS; i++) {
        zend_internal_function *function = internal_function(replacements[i].name);
        if (function == NULL) continue; /* disabled in php.ini */
        replacements[i].original = function->handler;
        function->handler = replacements[i].ours;
    }
}

void functions_stop(void)
{
    for (int i = 0; i < REPLACEMENTS; i++) {
        zend_internal_function *function = internal_function(replacements[i].name);
        if (function != NULL && function->handler == replacements[i].ours) function->handler = replacements[i].original;
    }
}

/* ---- heapfit_stats() ----------------------------------------------------------------------------------------------------------- */

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_heapfit_stats, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

static void add_size(zval *array, const char *name, size_t value)
{
    add_assoc_long(array, name, (zend_long)value);
}

static void add_counts(zval *array, struct counts counts)
{
    add_size(array, "mallocs", counts.mallocs);
    add_size(array, "frees", counts.frees);
    add_size(array, "reallocs", counts.reallocs);
    add_size(array, "malloc_bytes", counts.malloc_bytes);
    add_size(array, "realloc_bytes", counts.realloc_bytes);
}

static ZEND_FUNCTION(heapfit_stats)
{
    ZEND_PARSE_PARAMETERS_NONE();
    /* Before the array, which is memory too. */
    struct usage usage = functions_usage();
    struct counts counts = counting_now();
    array_init(return_value);
    add_assoc_string(return_value, "mode", settings.inactive != NULL ? "off" : settings.mode);
    add_size(return_value, "live", usage.live);
    add_size(return_value, "used", usage.used);
    add_size(return_value, "peak", usage.peak);
    add_size(return_value, "footprint", usage.footprint);
    add_size(return_value, "footprint_peak", usage.footprint_peak);
    add_size(return_value, "free_alls", request_heap.main != NULL ? request_heap.main->free_alls : 0);
    if (settings.count && settings.inactive == NULL) add_counts(return_value, counts);
}

const zend_function_entry heapfit_functions[] = {ZEND_FE(heapfit_stats, arginfo_heapfit_stats) ZEND_FE_END};
