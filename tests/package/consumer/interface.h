/*
 * What programs that are linked with heapfit rely on: the size of each structure, the offset and type of its members, the
 * values of the constants, the types of the functions. It does not compile where heapfit.h says otherwise.
 *
 * It changes only where somebody means it to. A program that was linked before must still run: a name that is added goes
 * into a version of its own (allocator/versions.map), into the lists of symbols in debian/ and here; whatever is removed, or
 * is laid out otherwise than a caller that passes its size can know, takes another HEAPFIT_INTERFACE.
 */
#include <stddef.h>

#include <heapfit/heapfit.h>

#define SIZE(structure, size) _Static_assert(sizeof(structure) == (size), #structure)
#define MEMBER(offset, structure, member, type)                                                                        \
    _Static_assert(offsetof(structure, member) == (offset) && _Generic(((structure *)0)->member, type: 1, default: 0), \
                   #structure "." #member)

_Static_assert(HF_DEFRAG_DODGING == 0, "HF_DEFRAG_DODGING");
_Static_assert(HF_REGION == 1, "HF_REGION");
SIZE(hf_context_config, 64);
MEMBER(0, hf_context_config, kind, int);
MEMBER(4, hf_context_config, huge_pages, int);
MEMBER(8, hf_context_config, alignment, size_t);
MEMBER(16, hf_context_config, chunk_size, size_t);
MEMBER(24, hf_context_config, segment_size, size_t);
MEMBER(32, hf_context_config, sizes, const uint32_t *);
MEMBER(40, hf_context_config, sizes_count, size_t);
MEMBER(48, hf_context_config, limit, size_t);
MEMBER(56, hf_context_config, retain, size_t);
SIZE(hf_context_stats, 56);
MEMBER(0, hf_context_stats, live_bytes, size_t);
MEMBER(8, hf_context_stats, used_bytes, size_t);
MEMBER(16, hf_context_stats, peak_bytes, size_t);
MEMBER(24, hf_context_stats, footprint, size_t);
MEMBER(32, hf_context_stats, footprint_peak, size_t);
MEMBER(40, hf_context_stats, chunks, size_t);
MEMBER(48, hf_context_stats, free_alls, size_t);
_Static_assert(HF_OPTION_NUMBER == 0, "HF_OPTION_NUMBER");
_Static_assert(HF_OPTION_SIZE == 1, "HF_OPTION_SIZE");
_Static_assert(HF_OPTION_FLAG == 2, "HF_OPTION_FLAG");
_Static_assert(HF_OPTION_CHOICE == 3, "HF_OPTION_CHOICE");
SIZE(hf_option, 72);
MEMBER(0, hf_option, name, const char *);
MEMBER(8, hf_option, description, const char *);
MEMBER(16, hf_option, kind, int);
MEMBER(20, hf_option, live, int);
MEMBER(24, hf_option, initial, uint64_t);
MEMBER(32, hf_option, minimum, uint64_t);
MEMBER(40, hf_option, maximum, uint64_t);
MEMBER(48, hf_option, choices, const char *const *);
MEMBER(56, hf_option, unlimited, int);
MEMBER(64, hf_option, words, const char *const *);
SIZE(hf_stats, 272);
MEMBER(0, hf_stats, live_objects, size_t);
MEMBER(8, hf_stats, live_bytes, size_t);
MEMBER(16, hf_stats, large_objects, size_t);
MEMBER(24, hf_stats, large_bytes, size_t);
MEMBER(32, hf_stats, free_bytes, size_t);
MEMBER(40, hf_stats, dirty_bytes, size_t);
MEMBER(48, hf_stats, own_bytes, size_t);
MEMBER(56, hf_stats, footprint, size_t);
MEMBER(64, hf_stats, committed, size_t);
MEMBER(72, hf_stats, reserved, size_t);
MEMBER(80, hf_stats, purged, size_t);
MEMBER(88, hf_stats, purges, size_t);
MEMBER(96, hf_stats, heaps, size_t);
MEMBER(104, hf_stats, heaps_idle, size_t);
MEMBER(112, hf_stats, orphan_spans, size_t);
MEMBER(120, hf_stats, contexts, size_t);
MEMBER(128, hf_stats, context_bytes, size_t);
MEMBER(136, hf_stats, resident, size_t);
MEMBER(144, hf_stats, cached_bytes, size_t);
MEMBER(152, hf_stats, zeroed_bytes, size_t);
MEMBER(160, hf_stats, zeroed_hits, size_t);
MEMBER(168, hf_stats, zeroed_misses, size_t);
MEMBER(176, hf_stats, huge_bytes, size_t);
MEMBER(184, hf_stats, commits, size_t);
MEMBER(192, hf_stats, advices, size_t);
MEMBER(200, hf_stats, refills, size_t);
MEMBER(208, hf_stats, remote_batches, size_t);
MEMBER(216, hf_stats, remote_blocks, size_t);
MEMBER(224, hf_stats, threads_sharing, size_t);
MEMBER(232, hf_stats, nodes, size_t);
MEMBER(240, hf_stats, guard_slots, size_t);
MEMBER(248, hf_stats, guard_objects, size_t);
MEMBER(256, hf_stats, guard_samples, size_t);
MEMBER(264, hf_stats, guard_missed, size_t);
SIZE(hf_class_stats, 32);
MEMBER(0, hf_class_stats, block_size, size_t);
MEMBER(8, hf_class_stats, spans, size_t);
MEMBER(16, hf_class_stats, live_objects, size_t);
MEMBER(24, hf_class_stats, free_objects, size_t);
SIZE(hf_heap_stats, 56);
MEMBER(0, hf_heap_stats, number, size_t);
MEMBER(8, hf_heap_stats, thread, long int);
MEMBER(16, hf_heap_stats, spans, size_t);
MEMBER(24, hf_heap_stats, live_bytes, size_t);
MEMBER(32, hf_heap_stats, free_bytes, size_t);
MEMBER(40, hf_heap_stats, cached_bytes, size_t);
MEMBER(48, hf_heap_stats, refills, size_t);
SIZE(hf_node_stats, 32);
MEMBER(0, hf_node_stats, node, size_t);
MEMBER(8, hf_node_stats, dirty_bytes, size_t);
MEMBER(16, hf_node_stats, zeroed_bytes, size_t);
MEMBER(24, hf_node_stats, crossings, size_t);
SIZE(hf_ledger_row, 56);
MEMBER(0, hf_ledger_row, cause, const char *);
MEMBER(8, hf_ledger_row, name, const char *);
MEMBER(16, hf_ledger_row, in_heap, int);
MEMBER(24, hf_ledger_row, heap, long int);
MEMBER(32, hf_ledger_row, thread, long int);
MEMBER(40, hf_ledger_row, resident, size_t);
MEMBER(48, hf_ledger_row, swapped, size_t);

void *hf_aligned_alloc(size_t, size_t);
void *hf_calloc(size_t, size_t);
void *hf_context_aligned_alloc(hf_context *, size_t, size_t);
void *hf_context_calloc(hf_context *, size_t, size_t);
hf_context *hf_context_create(const hf_context_config *);
hf_context *hf_context_current(void);
void hf_context_destroy(hf_context *);
void hf_context_enter(hf_context *);
void hf_context_free(hf_context *, void *);
void hf_context_free_all(hf_context *);
void hf_context_leave(hf_context *);
void *hf_context_malloc(hf_context *, size_t);
int hf_context_owns(const hf_context *, const void *);
void *hf_context_realloc(hf_context *, void *, size_t);
int hf_context_set_limit(hf_context *, size_t);
int hf_context_stats_get(const hf_context *, hf_context_stats *, size_t);
hf_context *hf_context_switch(hf_context *);
void hf_footprint_restore(void);
size_t hf_footprint_shrink(void);
void hf_free(void *);
void hf_free_sized(void *, size_t);
size_t hf_good_size(size_t);
int hf_is_ours(const void *);
int hf_ledger(void (*)(const hf_ledger_row *, void *), void *);
void *hf_malloc(size_t);
const hf_option *hf_option_at(size_t);
size_t hf_option_count(void);
int hf_option_get(const char *, char *, size_t);
int hf_option_set(const char *, const char *);
void *hf_realloc(void *, size_t);
size_t hf_stats_classes(hf_class_stats *, size_t);
int hf_stats_get(hf_stats *, size_t);
size_t hf_stats_heaps(hf_heap_stats *, size_t);
void hf_stats_json(int);
size_t hf_stats_nodes(hf_node_stats *, size_t);
void hf_stats_print(int);
size_t hf_trim(void);
size_t hf_usable_size(const void *);
const char *hf_version(void);
