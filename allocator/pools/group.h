/* Groups from the inside: what group.c, log.c, shape.c, judge.c and api/explain.c share. All of it is under the judge's
 * lock, but for what is said to be otherwise.
 *
 *     group_watch ─► log: the newest observations, each an object of a watched group, in order
 *                     │ a look, at 100, 200, 400 … objects of a group
 *                     ▼
 *                    shape: edges (group, offset ─► group), out of the words of the samples
 *                     │
 *                     ▼
 *                    judge: ordinary, a pool, a mixed pool; for the group and for what belongs to it; or wait and see
 *
 * The objects that are read may be freed meanwhile, and their pages given back: see block_of.
 */
#ifndef HEAPFIT_POOLS_GROUP_H
#define HEAPFIT_POOLS_GROUP_H

#include "pools.h"

/* A share of something: 0 to WHOLE. */
enum { WHOLE = 1000 };

ALWAYS_INLINE unsigned share_of(uint64_t part, uint64_t whole)
{
    if (whole == 0) return 0;
    return part >= whole ? (unsigned)WHOLE : (unsigned)(part * WHOLE / whole);
}

/* ---- groups (group.c) ------------------------------------------------------------------------------------------- */

enum { SIZES_KEPT = 16 };

/* Why one group was put with another. */
enum affinity {
    AFFINITY_NONE,
    AFFINITY_TYPE_I, /* they are linked to one structure, by a field that leads to either (3.2.2) */
    AFFINITY_TYPE_II, /* a field of a third group leads to either (3.2.2) */
    AFFINITY_TOGETHER, /* allocated one after another, and linked one to one */
};

/* Why a group was treated as it was; the texts are in judge.c. */
enum reason {
    REASON_WATCHED, /* the number of its objects is below pool_min_objects */
    REASON_WAITING, /* not enough is known yet */
    REASON_TOO_LARGE,
    REASON_SMALL,
    REASON_SHORT_LIVED,
    REASON_SIZES,
    REASON_BELONGS_TO_ORDINARY,
    REASON_ALONE,
    REASON_TOGETHER_ALONE,
    REASON_NO_POOL,
    REASON_ALL,
    REASON_DISTURBED,
    REASON_LONG_LIVED,
    REASON_TOGETHER_DISTURBED,
    REASON_TOGETHER,
    REASON_MERGED,
    REASONS,
};

struct group_size {
    uint32_t size;
    uint32_t objects;
};

/* What a look at a group's samples tells, in shares. */
struct group_shares {
    uint16_t freed; /* log_freed_share, at the last look */
    uint16_t own; /* of the live neighbours in memory: those of the group, or of what belongs to it */
    uint16_t linked; /* shape_paired_most, with any */
};

struct group {
    _Atomic(uint64_t) verdict; /* struct verdict; written under the lock, read by anybody */
    uintptr_t chain[CHAIN_KEPT]; /* as `length` and `complete`, written before the group has a number */
    uint16_t length;
    bool complete;
    uint8_t state; /* enum group_state */
    uint8_t reason; /* enum reason */
    uint8_t affinity; /* enum affinity: with `merged_into` */
    uint32_t merged_into; /* GROUP_NONE: nothing */
    uint32_t pool; /* or POOL_NONE */

    uint64_t objects, bytes; /* as long as it was watched */
    uint64_t objects_large; /* of these, above max_size */
    uint64_t next_look; /* at so many objects */
    struct group_size sizes[SIZES_KEPT]; /* the first that occurred; `objects` 0: none */
    struct group_shares shares;

    uint32_t newest; /* its newest observation */
    uint32_t logged; /* observations in all */
    uint32_t freed_seen; /* the newest observation of all, when `freed` was found out */
    uint16_t freed; /* log_freed_share then */
    uint32_t scanned; /* objects whose words stand in the graph */
    uint32_t scanned_until; /* the newest of them */
    uint16_t edges_out, edges_in; /* first edge each; EDGE_NONE */
    uint16_t edges_out_count;
};

extern struct group groups[GROUPS_MAX];

/* Any thread, without the lock; groups below it stay for ever. */
uint32_t group_count(void);

/* Whether objects of the group go where those of other groups go too: at the end of the merges, or itself. */
uint32_t group_root(uint32_t group);

/* Give a watched group its place; POOL_NONE: the ordinary heap. */
void group_decide(uint32_t group, enum group_state state, enum reason reason, uint32_t pool);

/* The first group that was given a pool, or GROUP_NONE. */
uint32_t group_of_pool(uint32_t pool);

/* Bytes of the size class that most of its objects are of; 0: of several. */
uint32_t group_block_size(uint32_t group);

/* For a caller that reads many groups, and at leisure: api/explain.c. Waits. */
void group_lock(void);
void group_unlock(void);

/* ---- observations (log.c) --------------------------------------------------------------------------------------- */

/* So many are kept. Groups that are watched for long have their early objects forgotten, when others allocate much. */
enum { LOG_ENTRIES = 1 << 14 };

/* Numbers of observations count up from 1, and wrap: one is valid while log_at finds it. */
enum { LOG_NONE = 0 };

struct observation {
    uintptr_t object;
    uint16_t group;
    uint16_t size; /* as asked for; OBSERVED_MAX at most */
    uint32_t before; /* of the same group, LOG_NONE at its first */
};

/* Objects that are larger are counted only. */
enum { OBSERVED_MAX = 1024 };

/* Write one down; `before` of the same group. Returns its number. */
uint32_t log_add(uintptr_t object, uint32_t group, size_t size, uint32_t before);
/* NULL: forgotten, or never made. */
const struct observation *log_at(uint32_t number);
/* The newest observation of an object that starts there, or LOG_NONE. */
uint32_t log_find(uintptr_t object);
/* How many have been made after this one. */
uint32_t log_age(uint32_t number);

/* Observations of a group, newest first and spread over all that are left; without the very newest, which the program
 * is still filling in. Returns how many. */
enum { SAMPLES_MAX = 96 };
unsigned log_samples(const struct group *group, uint32_t samples[SAMPLES_MAX]);

/* The share of a group's samples that are free again, in that quarter of them, by age, in which it is highest: of early
 * objects some have not been freed yet, and of old ones that were freed long ago the blocks may be others' by now and
 * look alive. */
unsigned log_freed_share(uint32_t group);

/* Groups of which nearly nothing has been freed, and those of which most has. */
enum { FREED_LONG_LIVED = WHOLE / 8, FREED_SHORT_LIVED = WHOLE / 2 };

/* ---- blocks: reading the heap (log.c) --------------------------------------------------------------------------- */

struct block {
    uintptr_t start;
    uint32_t size; /* in a mixed pool MALLOC_ALIGNMENT, whatever lies there */
    const struct span *span;
};

/* The block that an address lies in, of any thread's heap. False: there is none. What is found may change at any time,
 * but the memory stays readable. */
bool block_of(uintptr_t address, struct block *found);
/* The one that many blocks further on, or back, in the same span. */
bool block_beside(const struct block *block, int distance, struct block *found);
bool block_is_live(const struct block *block);
uintptr_t block_word(uintptr_t start, unsigned index);

/* Whether an observed object is still the one that was observed. */
bool observation_is_live(uint32_t number, const struct observation *observation, struct block *block);

/* ---- the storage shape graph (shape.c) -------------------------------------------------------------------------- */

enum {
    EDGES_MAX = 1 << 14,
    EDGE_NONE = 0,
    EDGES_OUT_MAX = 48, /* of one group */
    OFFSET_SIBLINGS = 0xFFFF, /* no field: objects to which the same object points */
};

/* Objects of `from` whose word at `offset` leads to an object of `to`. Siblings: objects that point to one of each. */
struct edge {
    uint16_t from, to;
    uint16_t offset;
    uint16_t count; /* in the samples; sticks at its maximum, as `near` */
    uint16_t near; /* of those: to one that was allocated beside it, or lies there */
    uint16_t next_out, next_in; /* EDGE_NONE: the last */
    uint32_t from_objects, to_objects; /* that there were of either, when both were last watched */
};

extern struct edge edges[EDGES_MAX];
/* Edges are numbered from 1 to this. */
uint32_t edge_count(void);

/* Enter what the samples of a group show that has not been entered yet; and what those show that were allocated among
 * them. */
void shape_scan(uint32_t group);
void shape_scan_around(uint32_t group);
/* Look again at some that have been decided about: the program may have linked their objects to others since. */
void shape_rescan_some(void);

/* The share of the objects of either group, of the larger one if they differ in number, that have a near link from or
 * to one of the other for itself. 0 if those of one group stay and those of the other die young. */
unsigned shape_paired(uint32_t group, uint32_t other);
/* The most of shape_paired with any other group. */
unsigned shape_paired_most(uint32_t group);

enum affinity shape_affinity(uint32_t group, uint32_t other);

/* What belongs to a group, directly or by others; itself first. */
enum { CLUSTER_MAX = 16 };
struct cluster {
    unsigned count;
    uint32_t members[CLUSTER_MAX];
    uint8_t affinities[CLUSTER_MAX]; /* enum affinity: with one that stands before it */
};
void shape_cluster(uint32_t group, struct cluster *cluster);
bool cluster_contains(const struct cluster *cluster, uint32_t group);
/* Leave out those that are in it for this reason. */
void cluster_drop(struct cluster *cluster, enum affinity affinity);

/* ---- the judge (judge.c) ---------------------------------------------------------------------------------------- */

/* A watched group has reached next_look. */
void judge_look(uint32_t group);

const char *judge_reason_text(enum reason reason);
/* The option that was in the way, or NULL. */
const char *judge_reason_threshold(enum reason reason);

#endif
