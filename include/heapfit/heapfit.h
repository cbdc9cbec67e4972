/* heapfit's public interface, for C99 and later and for C++.
 *
 * A program that is linked with heapfit, or started with it preloaded, need not include this file: malloc, free, operator
 * new and the rest are heapfit's then. This header is for what they cannot express: options, statistics, trimming, and
 * allocation under names of heapfit's own, for programs whose malloc is another one.
 *
 * All names start with hf_ or HF_. Sizes are in bytes. Every function may be called from any thread at any time, except
 * from a signal handler; none needs an initialisation. A function that fails says so by its return value and sets errno;
 * otherwise errno is left alone.
 */
#ifndef HEAPFIT_HEAPFIT_H
#define HEAPFIT_HEAPFIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HF_API __attribute__((visibility("default")))
#else
#define HF_API
#endif

/* ---- version --------------------------------------------------------------------------------------------------------- */

/* The version of the library in use, such as "0.1.0". Never NULL; not to be freed. */
HF_API const char *hf_version(void);

/* ---- allocating and freeing -------------------------------------------------------------------------------------------- */

/* These behave like the functions of the C library that they are named after. What one of them returns may be passed to any
 * of them and, where heapfit is the program's malloc, also to free and realloc, on any thread. They return NULL and set errno
 * to ENOMEM when memory has run out or more than PTRDIFF_MAX bytes are asked for. hf_malloc(0) returns an object of its own;
 * hf_realloc(p, 0) frees p and returns NULL. Memory is aligned to 16 bytes. */
HF_API void *hf_malloc(size_t size);
HF_API void *hf_calloc(size_t count, size_t size); /* also ENOMEM when the product overflows */
HF_API void *hf_realloc(void *pointer, size_t size);

/* Allocates `size` bytes at a multiple of `alignment`, which must be a power of two (otherwise NULL and EINVAL). `size` need
 * not be a multiple of it. */
HF_API void *hf_aligned_alloc(size_t alignment, size_t size);

/* NULL is ignored. Freeing what heapfit did not allocate, what points into an object, or what was freed before ends the
 * program with one line on stderr that names the error and the address. */
HF_API void hf_free(void *pointer);

/* Frees an object of which the program knows the size that it asked for. Ends the program if the object cannot be that
 * large; of objects of contexts this is not checked. */
HF_API void hf_free_sized(void *pointer, size_t size);

/* The bytes that may be used at a live object's address: at least what was asked for. 0 for NULL. */
HF_API size_t hf_usable_size(const void *pointer);

/* The smallest size that heapfit would use for an object of `size` bytes: asking for that much wastes nothing. 0 when such an
 * object cannot exist. */
HF_API size_t hf_good_size(size_t size);

/* Whether heapfit allocates at this address: false for NULL, for the stack, for another allocator's memory. This does not
 * say whether there is a live object. */
HF_API int hf_is_ours(const void *pointer);

/* ---- giving memory back ---------------------------------------------------------------------------------------------------- */

/* Give back to the kernel all free memory that the calling thread's heap and the shared cache hold. Memory that other threads
 * hold for their next allocations stays theirs; but in a process of many threads their free spans are given back too. Returns
 * the bytes that went to the kernel, of which those that were never touched held no memory. It costs system calls, so call it at
 * the end of a phase, not for every request. Memory that stays free is returned without it; see the option decay_ms. */
HF_API size_t hf_trim(void);

/* Trade speed for memory, and back, during a time in which memory is short, such as the reload of a large index (Janardhana
 * Reddy et al., How to Tune Malloc to Optimize Serving Side Applications, section 3.1, "speed-for-memory switch").
 *
 * hf_footprint_shrink gives all free memory back to the kernel at once, and from then on hardly keeps any: as if
 * thread_span_threshold and zeroed_reserve were 0, shared_span_threshold 4m, free_page_threshold 1m and decay_ms 10, where they
 * are set to more. Free spans that other threads keep are also returned at once; pages within spans that another thread is using
 * when that thread next needs blocks. hf_footprint_restore restores the options. Either may be called by any
 * thread at any time, and repeatedly: the last call counts. Returns as hf_trim does. */
HF_API size_t hf_footprint_shrink(void);
HF_API void hf_footprint_restore(void);

/* ---- contexts ------------------------------------------------------------------------------------------------------------------- */

/* A context is a heap for objects that die together, such as those of one request: hf_context_free_all frees all of them at
 * once, at a cost that does not depend on their number.
 *
 * A context belongs to one thread at a time, its *owner*, which at first is the thread that made it. Functions that take a
 * context may be called by its owner only, and take no locks; hf_free and other functions that take only an object's address
 * may be called by any thread, as for all objects. After fork() the child may go on using the contexts of the thread that
 * forked. */
typedef struct hf_context hf_context;

enum {
    /* Objects are freed one by one and reused at once, last in, first out; nothing is ever merged, sorted or
     * counted, since free_all makes that unnecessary (Inoue, Komatsu, Nakatani: A Study of Memory Management for Web-based
     * Applications on Multicore Processors, PLDI 2009). */
    HF_DEFRAG_DODGING = 0,
    /* A pointer is bumped, and freeing an object does nothing: for transactions that free little before they end. The
     * size of an object is not known: hf_usable_size returns 0. */
    HF_REGION = 1
};

/* How a context is made. Zero in any member stands for its default. */
typedef struct hf_context_config {
    int kind; /* HF_DEFRAG_DODGING or HF_REGION */
    int huge_pages; /* not 0: ask the kernel for huge pages. A context then has at least 2 MiB resident */
    size_t alignment; /* of objects: 16 or 8, 16 by default, as malloc promises. With 8, sizes are rounded up less */
    /* Address space is taken in chunks of this size, a multiple of 64 KiB. By default 2 MiB; for a region 16 MiB. Untouched
     * pages of it cost nothing. */
    size_t chunk_size;
    /* Memory for objects of one size is taken in segments of this size: a power of two from 8 KiB to 1 GiB, of which a chunk
     * holds a whole number, at most 64; 32 KiB by default. Objects larger than half a segment have segments of their own. Not
     * for regions. */
    size_t segment_size;
    /* The sizes that objects are rounded up to, in ascending order: multiples of 8, at most 120 of them, up to half a segment
     * (the largest is added if it is missing). By default every 8 bytes up to 128, every 32 up to 512, and powers of two. With
     * an alignment of 16, sizes that are not a multiple of 16 are left out. The list is copied. Not for regions. */
    const uint32_t *sizes;
    size_t sizes_count;
    size_t limit; /* bytes of address space that the context may have, see hf_context_set_limit */
    /* Bytes of address space that free_all keeps for the next transaction. By default as much as recent transactions needed;
     * SIZE_MAX: all. One chunk is always kept. */
    size_t retain;
} hf_context_config;

/* Make a context, with the calling thread as its owner. A `config` of NULL stands for the defaults. Returns NULL with errno
 * set on failure: EINVAL: the configuration breaks a rule above; ENOMEM. */
HF_API hf_context *hf_context_create(const hf_context_config *config);

/* End a context and every object in it. To be called by the owner, or by any thread if there is none. NULL is ignored. A
 * thread that has switched to the context must have switched away first, unless it is the caller. */
HF_API void hf_context_destroy(hf_context *context);

/* Like hf_malloc and so on, with memory of the context. They return NULL with errno ENOMEM when memory has run out, or the
 * context's limit is reached. hf_context_realloc takes NULL or an object of this very context; if it fails, the object stays
 * as it is. */
HF_API void *hf_context_malloc(hf_context *context, size_t size);
HF_API void *hf_context_calloc(hf_context *context, size_t count, size_t size);
HF_API void *hf_context_realloc(hf_context *context, void *pointer, size_t size);
HF_API void *hf_context_aligned_alloc(hf_context *context, size_t alignment, size_t size);

/* Free an object of this very context: what hf_free does, without first finding out where the object comes from. NULL is
 * ignored. Little is checked: passing an object from anywhere else corrupts the context. */
HF_API void hf_context_free(hf_context *context, void *pointer);

/* Free all objects of the context. It is then as if newly made, with the memory that it needs at hand. */
HF_API void hf_context_free_all(hf_context *context);

/* Whether an object, or any address, lies in memory of the context. Any thread may ask. */
HF_API int hf_context_owns(const hf_context *context, const void *pointer);

/* From now on the calling thread's malloc, calloc, realloc(NULL) and aligned forms, operator new and hf_malloc take their
 * memory from `context`, which is entered if need be; NULL: from the thread's own heap again. Returns where they took it
 * from before; pass that to go back, so that switches nest. An object that is reallocated stays in the heap that it came from; but
 * one of a context that has to move, and that another thread than the context's owner reallocates, moves to that thread's own
 * heap, and then has to be freed.
 * Every object has to be freed, or forgotten, before its context is emptied: what a library allocates for later use, such as a
 * cache or a stream's buffer, must not be allocated while switched. */
HF_API hf_context *hf_context_switch(hf_context *context);
/* The context that the calling thread has switched to; NULL: none. */
HF_API hf_context *hf_context_current(void);

/* Hand a context to another thread: its owner leaves it and tells the other thread by any means that synchronises, and the
 * other thread enters it. In between nobody may use the context, but hf_free works. A context whose owner has exited may also
 * be entered. A thread that leaves the context that it has switched to switches to its own heap. */
HF_API void hf_context_leave(hf_context *context);
HF_API void hf_context_enter(hf_context *context);

/* Set the bytes of address space that the context may have from now on, in whole chunks; 0: no limit. If the context already
 * has more, returns -1 with errno ENOMEM and changes nothing. */
HF_API int hf_context_set_limit(hf_context *context, size_t limit);

/* What a context holds. Later versions may append members. */
typedef struct hf_context_stats {
    size_t live_bytes; /* that the program has allocated and not freed, rounded up; for a region: all since free_all */
    size_t used_bytes; /* in segments and large objects: what the transaction has needed so far. Does not shrink
                          when small objects are freed */
    size_t peak_bytes; /* the most that used_bytes has been since the last free_all */
    size_t footprint; /* address space, in chunks and large objects; what the limit is for */
    size_t footprint_peak; /* the most that it has been since the last free_all */
    size_t chunks;
    size_t free_alls; /* how often hf_context_free_all was called */
} hf_context_stats;

/* Fill in the first `size` bytes of `stats`; pass sizeof(hf_context_stats). Returns 0, or -1 with errno EINVAL when `stats`
 * is NULL. Takes time in proportion to the objects that were freed one by one. */
HF_API int hf_context_stats_get(const hf_context *context, hf_context_stats *stats, size_t size);

/* ---- options ------------------------------------------------------------------------------------------------------------------ */

enum { HF_OPTION_NUMBER = 0, HF_OPTION_SIZE = 1, HF_OPTION_FLAG = 2, HF_OPTION_CHOICE = 3 };

/* One option. The first call that allocates reads HEAPFIT_OPTIONS="name:value,name:value"; a name or a value that it does
 * not understand is reported on stderr, and the default stays in force. Later versions may append members. */
typedef struct hf_option {
    const char *name;
    const char *description; /* one line */
    int kind; /* HF_OPTION_NUMBER: decimal. _SIZE: also with a suffix k, m, g. _FLAG: 0 or 1. _CHOICE: a word */
    int live; /* not 0: may be set while the program runs; 0: only through HEAPFIT_OPTIONS */
    uint64_t initial; /* the default */
    uint64_t minimum, maximum;
    const char *const
        *choices; /* the words that a choice takes, maximum + 1 of them, of which initial is an index; otherwise NULL */
    int unlimited; /* not 0: the maximum stands for no limit at all, and is also written "unlimited" */
    const char *const *words; /* two words that a size also takes, for its minimum and its maximum; otherwise NULL */
} hf_option;

/* How many options there are, and each of them: NULL for an index of hf_option_count() or more. Not to be freed or changed. */
HF_API size_t hf_option_count(void);
HF_API const hf_option *hf_option_at(size_t index);

/* Set an option from text, as HEAPFIT_OPTIONS would. Returns 0, or -1 with nothing changed and errno set: ENOENT: there is
 * no option of this name; EINVAL: the value is not understood; ERANGE: it lies outside minimum and maximum; EBUSY: the
 * option is not live and the allocator is at work. */
HF_API int hf_option_set(const char *name, const char *value);

/* Write the value of an option, with a terminating zero, into `buffer`: as decimal digits or the word chosen, which
 * hf_option_set understands. Returns 0, or -1 with errno set: ENOENT, or ERANGE when it needs more than `capacity` bytes
 * (21 always suffice). */
HF_API int hf_option_get(const char *name, char *buffer, size_t capacity);

/* ---- statistics ----------------------------------------------------------------------------------------------------------------- */

/* What the heap holds. Nothing is counted while the program allocates: the figures are derived when they are asked for,
 * while other threads continue. They are exact for memory that no other thread is working on; a block that another thread
 * keeps for its next malloc, or that is on its way back to the thread that owns it, counts as live. Later versions may append
 * members. */
typedef struct hf_stats {
    size_t live_objects; /* that the program has allocated and not freed */
    size_t live_bytes; /* that they may use: what was asked for, rounded up */
    size_t large_objects; /* of these, objects that have spans of their own */
    size_t large_bytes;
    size_t free_bytes; /* free blocks in spans that are in use */
    size_t dirty_bytes; /* free spans that have not been returned to the kernel */
    size_t own_bytes; /* heapfit's own tables */
    size_t
        footprint; /* the most that may be resident because of heapfit but for free memory in huge pages: its tables, and all spans that are in use, kept or dirty.
                         These count in full, touched or not */
    size_t committed; /* address space that is accessible */
    size_t reserved; /* address space that is reserved; grows with the heap */
    size_t purged; /* bytes returned to the kernel since the start, pages that were never touched included */
    size_t purges; /* system calls that this took */
    size_t heaps; /* thread heaps ever made */
    size_t heaps_idle; /* of these, the ones without a thread, which wait for the next one */
    size_t orphan_spans; /* spans in which objects of threads that have exited live on */
    size_t contexts; /* that exist */
    size_t context_bytes; /* address space of contexts, however much of it they use */
    size_t resident; /* the part of `committed` that is in memory; counted when asked for */
    size_t cached_bytes; /* free spans that threads keep for themselves; part of footprint */
    size_t zeroed_bytes; /* cleared spans that wait for calloc; part of footprint */
    size_t zeroed_hits; /* callocs that were given memory known to be zero, since the start */
    size_t zeroed_misses; /* callocs above 1 KiB that had to clear theirs */
    size_t huge_bytes; /* committed memory for which huge pages were asked for, or taken from the kernel's pool */
    size_t commits; /* system calls that made address space accessible, since the start */
    size_t advices; /* system calls that asked for huge pages or declined them */
    size_t refills; /* how often a thread's bin was empty and was filled again */
    size_t remote_batches; /* lists of blocks that were handed over to the heap that they belong to */
    size_t remote_blocks; /* blocks in them */
    size_t threads_sharing; /* threads that share heaps under a lock, see the option lockless_threads */
    size_t nodes; /* NUMA nodes that free memory is kept apart for; 1: there is nothing to keep apart */
    size_t guard_slots; /* places for guarded objects, see the option guard_sample; 0 until the first one */
    size_t guard_objects; /* guarded objects that are live */
    size_t guard_samples; /* guarded objects since the start */
    size_t guard_missed; /* objects that were to be guarded, and for which there was no place */
} hf_stats;

/* Fill in the first `size` bytes of `stats`; pass sizeof(hf_stats). A member that this version of the library does not
 * know becomes 0. Returns 0, or -1 with errno EINVAL when `stats` is NULL. Takes time in proportion to the spans in use,
 * and during that time no thread can get or give back a span. */
HF_API int hf_stats_get(hf_stats *stats, size_t size);

/* The objects of one size class. */
typedef struct hf_class_stats {
    size_t block_size;
    size_t spans; /* of 64 KiB */
    size_t live_objects;
    size_t free_objects; /* blocks that exist and are free; a span makes its blocks as they are needed */
} hf_class_stats;

/* Fill in the first `count` of the size classes, in the order of their size; returns how many there are. hf_stats_get's
 * remarks hold here too. */
HF_API size_t hf_stats_classes(hf_class_stats *classes, size_t count);

/* One heap: that of a thread, one that several threads share, or the spans of threads that are gone. */
typedef struct hf_heap_stats {
    size_t number; /* identifies the heap; 0: the spans of threads that are gone */
    long thread; /* the kernel's ID of the thread that has it; 0: none, -1: several share it */
    size_t spans; /* of 64 KiB, cut into blocks */
    size_t live_bytes; /* blocks that are in use, or kept for the next malloc */
    size_t free_bytes; /* blocks that are free */
    size_t cached_bytes; /* free spans that it keeps */
    size_t refills; /* how often one of its bins was empty and was filled again */
} hf_heap_stats;

/* Fill in the first `count` of the heaps; returns how many there are. hf_stats_get's remarks hold here too. */
HF_API size_t hf_stats_heaps(hf_heap_stats *heaps, size_t count);

/* The free memory of one NUMA node. */
typedef struct hf_node_stats {
    size_t node;
    size_t dirty_bytes; /* free spans of this node that have not been returned to the kernel */
    size_t zeroed_bytes; /* cleared spans that wait for calloc */
    size_t crossings; /* runs of spans that went to a thread on another node, after their pages were returned */
} hf_node_stats;

/* Fill in the first `count` of the nodes; returns how many there are, at least 1. */
HF_API size_t hf_stats_nodes(hf_node_stats *nodes, size_t count);

/* Write all of these to a file descriptor: for a person to read, or as one JSON object ("format": "heapfit-stats/1") whose
 * members have the same names as those of the structures. */
HF_API void hf_stats_print(int file);
HF_API void hf_stats_json(int file);

/* ---- the ledger ----------------------------------------------------------------------------------------------------------------- */

/* One line of the ledger of resident memory: the number of bytes that are in memory for one cause. Later versions may append
 * members, and know other causes.
 *
 * In heapfit's heap:
 *   "live"        live objects, rounded up to their blocks; by how much is not known
 *   "pools"       the same in pools, in the library that has them
 *   "guarded"     slots of guarded objects, both live and freed
 *   "contexts"    memory of contexts, whatever it holds
 *   "pinned"      free blocks, and memory not yet cut into blocks, on pages that also hold a live object
 *   "kept"        pages without a live object in spans that a heap has in use, kept for its next objects
 *   "cached"      free spans that a heap keeps
 *   "on_the_way"  blocks that other threads have freed and the heap has not yet taken in
 *   "orphaned"    the same in spans that threads left behind when they ended
 *   "decaying"    free memory shared by all threads, which is returned to the kernel after decay_ms
 *   "zeroed"      cleared memory that waits for calloc
 *   "never_used"  resident because the kernel provided a huge page of which this part was never asked for
 *   "tables"      heapfit's own data
 * Outside the heap, as /proc/self/smaps says:
 *   "stack"       stacks of threads; "file" mapped files, including the variables of modules; "jit" code without a file;
 *                 "anonymous" other memory that the program has mapped; "brk" memory grown by brk(2); "shared" shared memory;
 *                 "kernel" pages that the kernel maps into every process */
typedef struct hf_ledger_row {
    const char *cause; /* one of the words above */
    const char
        *name; /* a file, or the name of a mapping; "": none. Valid until the function that was given it returns */
    int in_heap; /* not 0: the cause is in the first group */
    long heap; /* which heap it belongs to, by hf_heap_stats.number; -1: to no single heap, such as large objects */
    long thread; /* of a "stack" or of that heap, as hf_heap_stats.thread; 0: none */
    size_t resident; /* bytes */
    size_t swapped; /* bytes for the same cause that are in swap space instead */
} hf_ledger_row;

/* Assign every resident page of the process to its cause: calls `visit` for each row, in no particular order; several rows may
 * have the same cause and name. Returns 0, or -1 with errno set: EINVAL: `visit` is NULL; ENOMEM; ENOENT: there is no /proc, so
 * there are only rows of the heap, about which the kernel has told less.
 *
 * Where a page holds live and free blocks, its bytes are divided. The kernel is asked page by page (/proc/self/pagemap), and what
 * each span holds is read while its owner continues; a lock is held only to look through the descriptors, those of 4 GiB at a
 * time. So the rows of the heap add up to what the kernel counts for heapfit's mappings: exactly so if nothing is allocated
 * meanwhile; otherwise memory that is allocated, freed or returned between the first look and the last is missing, or counts
 * where it was. A live object that begins with a copy of what was in freed memory counts as free. Takes time in proportion to
 * resident memory, and some pages from the kernel, but none from the heap. */
HF_API int hf_ledger(void (*visit)(const hf_ledger_row *row, void *argument), void *argument);

#ifdef __cplusplus
}
#endif

#endif
