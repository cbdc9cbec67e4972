/* When the contexts of a process are made, used and emptied: see the picture in heap.h. */
#include "heap.h"

/* What is allocated between requests is little, but for the stack of PHP's virtual machine (256 KiB). The segments are those
 * of the main context, so that both have the same classes. */
enum { SIDE_SEGMENTS = 32, SEGMENT_DEFAULT = 32 << 10 };

/* A chunk is also what memory_limit is counted in: as in Zend's own manager. */
enum { MAIN_CHUNK = 2 << 20 };

/* PHP rounds sizes up to 8 and expects no more. */
enum { PHP_ALIGNMENT = 8 };

static bool contexts_make(void)
{
    hf_context_config main = {
        .kind = request_heap.mode == MODE_REGION ? HF_REGION : HF_DEFRAG_DODGING,
        .huge_pages = settings.huge_pages,
        .alignment = PHP_ALIGNMENT,
        .chunk_size = settings.chunk_size != 0 ? (size_t)settings.chunk_size : MAIN_CHUNK,
        .segment_size = (size_t)settings.segment_size,
    };
    hf_context_config side = {
        .alignment = PHP_ALIGNMENT,
        .chunk_size = SIDE_SEGMENTS * (settings.segment_size != 0 ? (size_t)settings.segment_size : SEGMENT_DEFAULT),
        .segment_size = (size_t)settings.segment_size,
    };
    request_heap.main = hf_context_create(&main);
    for (int i = 0; i < SIDES; i++) request_heap.sides[i] = hf_context_create(&side);
    if (request_heap.main == NULL || request_heap.sides[0] == NULL || request_heap.sides[1] == NULL) return false;
    request_heap.sizes = request_heap.sides[0]->sizes;
    return true;
}

bool life_begin_request(void)
{
    if (request_heap.main == NULL) {
        if (!contexts_make()) {
            life_end();
            return false;
        }
    } else {
        if (!request_heap.emptied) hf_context_free_all(request_heap.main);
        hf_context_free_all(request_heap.sides[!request_heap.side]);
    }
    request_heap.in_request = true;
    request_heap.emptied = false;
    request_heap.last = NULL;
    limit_begin_request();
    handlers_install_request();
    return true;
}

/* PHP ends a request by freeing its compiler's arena, the first part last, and then the table of its interned strings, if it has
 * one (main.c, php_request_shutdown). With that nothing of the request is looked at any more. */
static const void *first_of_arena(void)
{
    const zend_arena *arena = CG(arena);
    while (arena->prev != NULL) arena = arena->prev;
    return arena;
}

static const void *table_of_strings(void)
{
    HashTable *strings = &CG(interned_strings);
    return (HT_FLAGS(strings) & HASH_FLAG_UNINITIALIZED) != 0 ? NULL : HT_GET_DATA_ADDR(strings);
}

void life_freed_last(void)
{
    const void *table = table_of_strings();
    bool is_over = table == NULL || table == request_heap.last;
    request_heap.last = is_over ? NULL : table;
    if (!is_over) return;
    size_t footprint = request_heap.main->footprint;
    hf_context_free_all(request_heap.main);
    request_heap.emptied = true;
    /* PHP waits for the next request without a call that would come by what is due. */
    if (request_heap.main->footprint < footprint) hf_trim();
}

void life_end_request(void)
{
    request_heap.last = first_of_arena();
    request_heap.in_request = false;
    request_heap.side = !request_heap.side;
    handlers_install_between();
}

void life_end(void)
{
    hf_context_destroy(request_heap.main);
    request_heap.main = NULL;
    for (int i = 0; i < SIDES; i++) {
        hf_context_destroy(request_heap.sides[i]);
        request_heap.sides[i] = NULL;
    }
}
