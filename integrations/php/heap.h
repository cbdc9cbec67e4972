/* The extension's own layers, and what they share: the contexts that a PHP process has.
 *
 *     request startup        │ RINIT … RSHUTDOWN, executor shut down │ post-deactivate … the next request's startup
 *     sides[side]            │ main                                  │ sides[the other], which is `side` from here on
 *
 * PHP tells an extension neither when a request begins to allocate nor when its memory is forgotten (that is between one
 * request's post-deactivate and the next one's RINIT). So what is allocated in between comes from a small side context, and
 * there are two: when a request has begun, all that belonged to the request before it is emptied, namely `main` and the side
 * context that was in use while that request started. `main` is emptied before if PHP's last free of the request is seen: a
 * process may wait for hours until the next one.
 *
 * Which file does what: handlers.c emalloc, efree, erealloc; life.c when contexts are made, used and emptied; limit.c
 * memory_limit; teardown.c the end of a request without freeing each object; functions.c what PHP programs call; counting.c
 * how often each handler is called; heapfit.c the module. All is used by PHP's only thread (there is no ZTS build).
 */
#ifndef HEAPFIT_PHP_HEAP_H
#define HEAPFIT_PHP_HEAP_H

/* First: php.h defines NDEBUG, which would take the checks of a debugging build out of what is inlined here. */
#include "context/context.h"

#include "php.h"

#ifdef ZTS
#error "heapfit serves PHP without thread safety only"
#endif

enum { SIDES = 2 };

enum mode { MODE_OFF, MODE_DODGING, MODE_REGION };

struct request_heap {
    struct hf_context *main; /* NULL until the first request of this process */
    struct hf_context *sides[SIDES];
    const uint32_t *sizes; /* of each class; of the side contexts, since a region has none */
    unsigned side; /* which of them is in use between requests */
    zend_mm_heap *zend; /* whose handlers we are; still has what was allocated before */
    enum mode mode;
    bool in_request; /* `main` is in use */
    bool emptied; /* `main` is, before the next request has begun */
    const void *last; /* what PHP frees as the last of a request; NULL: it has, or a request runs */
};

extern struct request_heap request_heap;

/* ---- settings, from php.ini (heapfit.c) ------------------------------------------------------------------------------ */

struct settings {
    char *mode;
    zend_bool huge_pages;
    zend_long segment_size, chunk_size; /* 0: the default */
    zend_bool fast_shutdown;
    zend_bool count;
    char *count_file;
    const char *inactive; /* why nothing is done; NULL: heapfit is at work */
};

extern struct settings settings;

/* ---- handlers.c ------------------------------------------------------------------------------------------------------ */

void handlers_install_request(void);
void handlers_install_between(void);
void handlers_uninstall(void);

/* For counting.c: what serves requests in the present mode. */
struct handlers {
    void *(*malloc)(size_t size);
    void (*free)(void *pointer);
    void *(*realloc)(void *pointer, size_t size);
};

struct handlers handlers_request(void);
struct handlers handlers_between(void);

/* ---- life.c ------------------------------------------------------------------------------------------------------------ */

bool life_begin_request(void); /* false: there is no memory for contexts, Zend's own manager goes on */
void life_end_request(void);
void life_freed_last(void);
void life_end(void);

/* ---- limit.c ------------------------------------------------------------------------------------------------------------ */

void limit_start(void);
void limit_stop(void);
void limit_begin_request(void);
/* The main context has no `size` bytes left: raise PHP's error. Returns whether to try once more; false: NULL is expected. */
bool limit_may_pass(size_t size);
/* That was in vain: the process ends. */
ZEND_COLD ZEND_NORETURN void limit_end_process(size_t size);

/* ---- teardown.c ---------------------------------------------------------------------------------------------------------- */

void teardown_start(int module_number);
void teardown_begin_request(void);

/* ---- functions.c --------------------------------------------------------------------------------------------------------- */

extern const zend_function_entry heapfit_functions[];
void functions_start(void);
void functions_stop(void);

struct usage {
    size_t live, used, peak, footprint, footprint_peak;
};

struct usage functions_usage(void);

/* ---- counting.c ------------------------------------------------------------------------------------------------------------ */

struct counts {
    size_t mallocs, frees, reallocs;
    size_t malloc_bytes, realloc_bytes; /* asked for */
};

struct handlers counting_handlers(struct handlers counted);
struct counts counting_now(void);
void counting_begin_request(void);
void counting_end_request(void);

#endif
