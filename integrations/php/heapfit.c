/* The PHP module: its settings, and where PHP's life calls ours. */
#include "heap.h"

#include "ext/standard/info.h"
#include "php_ini.h"

#include <string.h>

struct settings settings;

/* ---- settings -------------------------------------------------------------------------------------------------------- */

static ZEND_INI_MH(on_mode)
{
    (void)entry, (void)mh_arg1, (void)mh_arg2, (void)mh_arg3, (void)stage;
    const char *mode = ZSTR_VAL(new_value);
    if (strcmp(mode, "defrag-dodging") == 0) request_heap.mode = MODE_DODGING;
    else if (strcmp(mode, "region") == 0) request_heap.mode = MODE_REGION;
    else if (strcmp(mode, "off") == 0 || *mode == '\0')
        request_heap.mode = MODE_OFF; /* php.ini's bare `off` is empty */
    else {
        zend_error(E_WARNING, "heapfit.mode is '%s': expected defrag-dodging, region or off", mode);
        return FAILURE;
    }
    settings.mode = request_heap.mode == MODE_OFF ? "off" : ZSTR_VAL(new_value);
    return SUCCESS;
}

#define STD_SETTING(name, default_value, on_modify, member)                                                            \
    {name,                                                                                                             \
     on_modify,                                                                                                        \
     (void *)offsetof(struct settings, member),                                                                        \
     &settings,                                                                                                        \
     NULL,                                                                                                             \
     default_value,                                                                                                    \
     NULL,                                                                                                             \
     sizeof(default_value) - 1,                                                                                        \
     sizeof(name) - 1,                                                                                                 \
     ZEND_INI_SYSTEM},

static const zend_ini_entry_def ini_entries[] = {
    {"heapfit.mode", on_mode, NULL, NULL, NULL, "defrag-dodging", NULL, sizeof("defrag-dodging") - 1,
     sizeof("heapfit.mode") - 1, ZEND_INI_SYSTEM},
    STD_SETTING("heapfit.huge_pages", "0", OnUpdateBool, huge_pages)
        STD_SETTING("heapfit.segment_size", "0", OnUpdateLongGEZero, segment_size)
            STD_SETTING("heapfit.chunk_size", "0", OnUpdateLongGEZero, chunk_size)
                STD_SETTING("heapfit.fast_shutdown", "1", OnUpdateBool, fast_shutdown)
                    STD_SETTING("heapfit.count", "0", OnUpdateBool, count)
                        STD_SETTING("heapfit.count_file", "", OnUpdateString, count_file){0}};

/* ---- life ------------------------------------------------------------------------------------------------------------- */

static ZEND_MINIT_FUNCTION(heapfit)
{
    zend_register_ini_entries(ini_entries, module_number);
    request_heap.zend = zend_mm_get_heap();
    if (type == MODULE_TEMPORARY) {
        settings.inactive = "heapfit must be loaded from php.ini, not by dl()";
        zend_error(E_WARNING, "heapfit is off: %s", settings.inactive);
    } else if (request_heap.mode == MODE_OFF) settings.inactive = "heapfit.mode is off";
    else if (!is_zend_mm()) settings.inactive = "PHP runs with another allocator (USE_ZEND_ALLOC)";
    if (settings.inactive != NULL) return SUCCESS;
    limit_start();
    functions_start();
    teardown_start(module_number);
    return SUCCESS;
}

static ZEND_MSHUTDOWN_FUNCTION(heapfit)
{
    (void)type;
    if (settings.inactive == NULL) {
        functions_stop();
        limit_stop();
    }
    zend_unregister_ini_entries(module_number);
    return SUCCESS;
}

static ZEND_RINIT_FUNCTION(heapfit)
{
    (void)type, (void)module_number;
    if (settings.inactive != NULL) return SUCCESS;
    if (!life_begin_request()) {
        settings.inactive = "there is no memory for contexts, or their sizes break a rule";
        functions_stop();
        limit_stop();
        zend_error(E_WARNING, "heapfit is off: %s", settings.inactive);
        return SUCCESS;
    }
    teardown_begin_request();
    if (settings.count) counting_begin_request();
    return SUCCESS;
}

static int post_deactivate(void)
{
    if (settings.inactive != NULL || !request_heap.in_request) return SUCCESS;
    if (settings.count) counting_end_request();
    life_end_request();
    return SUCCESS;
}

/* ---- phpinfo() ---------------------------------------------------------------------------------------------------------- */

static void print_size(const char *name, size_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", bytes);
    php_info_print_table_row(2, name, text);
}

static ZEND_MINFO_FUNCTION(heapfit)
{
    (void)zend_module;
    struct usage usage = functions_usage();
    php_info_print_table_start();
    php_info_print_table_row(2, "Version", HEAPFIT_VERSION);
    php_info_print_table_row(2, "Request memory", settings.inactive != NULL ? "Zend's own manager" : settings.mode);
    if (settings.inactive != NULL) php_info_print_table_row(2, "Why", settings.inactive);
    print_size("Live bytes", usage.live);
    print_size("Bytes in segments", usage.used);
    print_size("Peak of these", usage.peak);
    print_size("Address space", usage.footprint);
    php_info_print_table_end();
    display_ini_entries(zend_module);
}

static zend_module_entry module = {
    STANDARD_MODULE_HEADER,
    "heapfit",
    heapfit_functions,
    ZEND_MINIT(heapfit),
    ZEND_MSHUTDOWN(heapfit),
    ZEND_RINIT(heapfit),
    NULL,
    ZEND_MINFO(heapfit),
    HEAPFIT_VERSION,
    NO_MODULE_GLOBALS,
    post_deactivate,
    STANDARD_MODULE_PROPERTIES_EX,
};

EXPORT zend_module_entry *get_module(void)
{
    return &module;
}
