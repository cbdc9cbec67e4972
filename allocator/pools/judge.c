/* Whether a group gets a pool, and with which others.
 *
 * A size-segregated heap already has most of what pools bring: objects of one size stand close together, in the order
 * in which they were allocated. What is left to gain is where groups are *interleaved* in a size class and not used
 * together; and where groups are used together that the size classes keep apart. Every doubt leaves a group where it is.
 *
 * A group is looked at when it has pool_min_objects, and again at twice as many, until it can be told:
 *
 *     1. too large for a pool                                             ─► ordinary
 *     2. few objects live at a time: nothing that a pool could make denser ─► wait; at the last look ordinary
 *     3. one of its cluster (shape.c) has been decided about               ─► as that one
 *     4. allocated and linked one to one with a group of another size,
 *        and neither denser in its size class than both would be together ─► a mixed pool for both
 *     5. its live neighbours in memory are of its cluster                 ─► ordinary
 *     6. many of its objects are free again                               ─► wait; at the last look ordinary
 *     7. else: interleaved with others                                    ─► a pool, with those of its cluster of its size
 *
 * Links to neighbours that are of no cluster with it do not keep a group where it is: who walks a list of cells passes by what
 * they point to, more often than not.
 */
#include "group.h"

/* ---- what decides ----------------------------------------------------------------------------------------------- */

/* Looks are at min_objects times 1, 2, 4, 8 and 16. A group whose objects die young never has many of them alive. */
enum { LOOKS_AT_MOST = 16, LOOK_OBJECTS_MIN = 100 };

/* A pool of fewer segments than these fits the cache however it lies, and what it wastes in its last page weighs
 * more. */
enum { LIVE_SEGMENTS = 4 };

/* So few neighbours say nothing. */
enum { TELLING_MIN = 16 };

enum {
    /* A group to which two thirds of its surroundings belong would become denser by half at best. */
    OWN_ENOUGH = WHOLE * 2 / 3,
    /* The malloc of a mixed pool is dearer: only where nearly all are pairs, and stay. */
    PAIRED_ENOUGH = WHOLE * 3 / 4,
    FREED_FOR_MIXED = WHOLE / 4,
    /* To look for an object's place costs more than a place that is soon another's brings. */
    FREED_FOR_POOL = WHOLE / 3,
};

static const struct {
    const char *text, *threshold;
} reasons[REASONS] = {
    [REASON_WATCHED] = {"fewer objects than a group needs", "min_objects"},
    [REASON_WAITING] = {"not enough is known yet", NULL},
    [REASON_TOO_LARGE] = {"most of its objects are too large", "max_size"},
    [REASON_SMALL] = {"few of its objects are alive at a time", "segment_size"},
    [REASON_SHORT_LIVED] = {"its objects die young", NULL},
    [REASON_SIZES] = {"its objects are of several size classes", NULL},
    [REASON_BELONGS_TO_ORDINARY] = {"belongs to a group that was left alone", NULL},
    [REASON_ALONE] = {"has its size class nearly to itself", NULL},
    [REASON_TOGETHER_ALONE] = {"shares its size class with its partners only", NULL},
    [REASON_NO_POOL] = {"there are as many pools as there can be", "pools"},
    [REASON_ALL] = {"every group has a pool", NULL},
    [REASON_DISTURBED] = {"interleaved with objects of other kinds", NULL},
    [REASON_LONG_LIVED] = {"long-lived among short-lived objects", NULL},
    [REASON_TOGETHER_DISTURBED] = {"interleaved, with its partners, with objects of other kinds", NULL},
    [REASON_TOGETHER] = {"allocated and linked one to one with a group of another size", NULL},
    [REASON_MERGED] = {"belongs to a group that has a pool", NULL},
};

const char *judge_reason_text(enum reason reason)
{
    return reasons[reason].text;
}

const char *judge_reason_threshold(enum reason reason)
{
    return reasons[reason].threshold;
}

/* ---- what is seen ----------------------------------------------------------------------------------------------- */

/* On static memory and not on the stack, as in shape.c. */
static uint32_t samples[SAMPLES_MAX];

struct view {
    unsigned own, others; /* live neighbours of the samples in memory */
    unsigned others_freed; /* neighbours of other watched groups that are free again */
};

static struct cluster cluster;

static void view_neighbour(struct view *view, const struct block *block, int side)
{
    struct block beside;
    if (!block_beside(block, side, &beside)) return;
    const struct observation *observation = log_at(log_find(beside.start));
    bool own = observation != NULL && cluster_contains(&cluster, observation->group);
    if (!block_is_live(&beside)) {
        if (observation != NULL && !own) view->others_freed++;
    } else if (own) {
        view->own++;
    } else {
        view->others++;
    }
}

/* Who lives beside a group's samples. */
static struct view view_of(uint32_t group)
{
    unsigned available = log_samples(&groups[group], samples);
    struct view view = {0};
    for (unsigned i = 0; i < available; i++) {
        struct block block;
        if (!observation_is_live(samples[i], log_at(samples[i]), &block)) continue;
        view_neighbour(&view, &block, -1);
        view_neighbour(&view, &block, 1);
    }
    return view;
}

static unsigned own_share(const struct view *view)
{
    return view->others == 0 ? (unsigned)WHOLE : share_of(view->own, view->own + view->others);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

static bool is_too_large(const struct group *group)
{
    return group->objects_large * 2 > group->objects;
}

static bool has_enough(const struct group *group)
{
    uint64_t live_bytes = group->bytes * (WHOLE - group->shares.freed) / WHOLE;
    return live_bytes >= (uint64_t)LIVE_SEGMENTS * pool_settings.segment_size;
}

static bool is_last_look(const struct group *group)
{
    uint64_t least = pool_settings.min_objects > LOOK_OBJECTS_MIN ? pool_settings.min_objects : LOOK_OBJECTS_MIN;
    return group->objects >= LOOKS_AT_MOST * least;
}

/* ---- decisions -------------------------------------------------------------------------------------------------- */

static bool is_watched(uint32_t group)
{
    return groups[group].state == GROUP_WATCHED;
}

/* The group goes where another has gone, or goes with it now. */
static void join(uint32_t group, uint32_t to, enum affinity affinity, enum reason reason)
{
    groups[group].merged_into = to;
    groups[group].affinity = (uint8_t)affinity;
    group_decide(group, groups[to].state == GROUP_ORDINARY ? GROUP_ORDINARY : GROUP_MERGED, reason, groups[to].pool);
}

static void leave_alone(uint32_t group, enum reason reason)
{
    group_decide(group, GROUP_ORDINARY, reason, POOL_NONE);
}

/* A pool for a group, of blocks of one size or (0) mixed; and nothing for the others of its cluster yet. */
static bool give_pool(uint32_t group, uint32_t block_size, enum reason reason)
{
    uint32_t pool;
    bool given = block_size != 0 ? place_pool(&pool, block_size) : place_mixed(&pool);
    if (given) group_decide(group, block_size != 0 ? GROUP_POOLED : GROUP_MIXED, reason, pool);
    else leave_alone(group, REASON_NO_POOL);
    return given;
}

/* Those of the cluster that are still watched, and of the group's size. */
static void join_same_size(uint32_t group, uint32_t block_size, enum reason reason)
{
    for (unsigned i = 1; i < cluster.count; i++) {
        uint32_t member = cluster.members[i];
        if (is_watched(member) && group_block_size(member) == block_size)
            join(member, group, (enum affinity)cluster.affinities[i], reason);
    }
}

/* ---- the rules -------------------------------------------------------------------------------------------------- */

/* Whether a group was left where it is for the sake of what is beside it, and not because nothing was to be gained by
 * it alone. */
static bool has_a_place(uint32_t group)
{
    enum reason reason = (enum reason)groups[group].reason;
    return reason == REASON_ALONE || reason == REASON_TOGETHER_ALONE || reason == REASON_BELONGS_TO_ORDINARY;
}

/* Rule 3. A member of another size that was left alone has no bearing on this one. */
static bool follow_decided(uint32_t group, uint32_t block_size)
{
    for (unsigned i = 1; i < cluster.count; i++) {
        uint32_t member = cluster.members[i];
        if (is_watched(member)) continue;
        uint32_t root = group_root(member);
        bool mixed = groups[root].state == GROUP_MIXED, ordinary = groups[root].state == GROUP_ORDINARY;
        if ((!mixed && group_block_size(member) != block_size) || (ordinary && !has_a_place(root))) continue;
        join(group, root, (enum affinity)cluster.affinities[i], ordinary ? REASON_BELONGS_TO_ORDINARY : REASON_MERGED);
        return true;
    }
    return false;
}

static bool may_be_mixed(uint32_t group)
{
    return is_watched(group) && !is_too_large(&groups[group]) && log_freed_share(group) <= FREED_FOR_MIXED;
}

/* The members of the cluster that are to be in a mixed pool with the group; itself first. */
static struct cluster pairs;

static void find_pairs(uint32_t group, uint32_t block_size)
{
    pairs = (struct cluster){.count = 1, .members = {group}};
    for (unsigned i = 1; i < cluster.count; i++) {
        uint32_t member = cluster.members[i];
        bool same_size = block_size != 0 && group_block_size(member) == block_size;
        if (!same_size && shape_paired(group, member) >= PAIRED_ENOUGH && may_be_mixed(member))
            pairs.members[pairs.count++] = member;
    }
}

/* What one object takes in a mixed pool. */
static uint64_t mean_size(uint32_t group)
{
    return groups[group].bytes / groups[group].objects + MALLOC_ALIGNMENT;
}

/* In a mixed pool each group is as dense as its part of the bytes. To walk one of them alone must not cost more than
 * now. Objects of many sizes are walked from one size class to another now, whoever their neighbours there are. */
static bool none_gets_sparser(void)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < pairs.count; i++) all += mean_size(pairs.members[i]);
    for (unsigned i = 0; i < pairs.count; i++) {
        if (group_block_size(pairs.members[i]) == 0) continue;
        struct view view = view_of(pairs.members[i]);
        if (own_share(&view) > share_of(mean_size(pairs.members[i]), all)) return false;
    }
    return true;
}

/* Rule 4. The pool is for the group, its partners, and what belongs to the group by its type. */
static bool mix(uint32_t group, uint32_t block_size)
{
    find_pairs(group, block_size);
    if (pairs.count == 1 || !may_be_mixed(group) || !none_gets_sparser()) return false;
    if (!give_pool(group, 0, REASON_TOGETHER)) return true;
    for (unsigned i = 1; i < pairs.count; i++) join(pairs.members[i], group, AFFINITY_TOGETHER, REASON_TOGETHER);
    if (block_size != 0) join_same_size(group, block_size, REASON_MERGED);
    return true;
}

/* Neighbours that are free again stand for short-lived groups, which long-lived objects should not share spans with. */
static bool is_long_lived_among_others(const struct group *group, const struct view *view)
{
    return group->shares.freed <= FREED_LONG_LIVED &&
           share_of(view->own, view->own + view->others + view->others_freed) < OWN_ENOUGH;
}

static bool has_partners(uint32_t block_size)
{
    for (unsigned i = 1; i < cluster.count; i++)
        if (group_block_size(cluster.members[i]) == block_size) return true;
    return false;
}

static void wait_or(uint32_t group, enum reason reason)
{
    if (is_last_look(&groups[group])) {
        leave_alone(group, groups[group].shares.freed >= FREED_SHORT_LIVED ? REASON_SHORT_LIVED : reason);
        return;
    }
    groups[group].reason = REASON_WAITING;
    groups[group].next_look = groups[group].objects * 2;
}

/* Rules 5 to 7. */
static void separate(uint32_t group, uint32_t block_size, const struct view *view)
{
    bool alone = own_share(view) >= OWN_ENOUGH, partners = has_partners(block_size);
    bool long_lived = alone && is_long_lived_among_others(&groups[group], view);
    if (alone && !long_lived) {
        leave_alone(group, partners ? REASON_TOGETHER_ALONE : REASON_ALONE);
        join_same_size(group, block_size, REASON_TOGETHER_ALONE);
    } else if (groups[group].shares.freed > FREED_FOR_POOL) {
        wait_or(group, REASON_SHORT_LIVED);
    } else {
        enum reason disturbed = partners ? REASON_TOGETHER_DISTURBED : REASON_DISTURBED;
        if (give_pool(group, block_size, long_lived ? REASON_LONG_LIVED : disturbed))
            join_same_size(group, block_size, REASON_MERGED);
    }
}

/* ---- looks ------------------------------------------------------------------------------------------------------ */

static void judge(uint32_t group, const struct view *view)
{
    uint32_t block_size = group_block_size(group);
    if (follow_decided(group, block_size) || mix(group, block_size)) return;
    if (block_size == 0) leave_alone(group, REASON_SIZES);
    else if (view->own + view->others + view->others_freed < TELLING_MIN) wait_or(group, REASON_ALONE);
    else separate(group, block_size, view);
}

/* As in the paper: every group past the thresholds, with those that have affinity to it. */
static void judge_as_paper(uint32_t group)
{
    uint32_t block_size = group_block_size(group);
    cluster_drop(&cluster, AFFINITY_TOGETHER);
    if (follow_decided(group, block_size)) return;
    if (give_pool(group, block_size, REASON_ALL) && block_size != 0) join_same_size(group, block_size, REASON_MERGED);
}

static struct view look_closely(uint32_t group)
{
    shape_scan(group);
    shape_scan_around(group);
    shape_rescan_some();
    shape_cluster(group, &cluster);
    struct view view = view_of(group);
    groups[group].shares.own = (uint16_t)own_share(&view);
    groups[group].shares.linked = (uint16_t)shape_paired_most(group);
    return view;
}

void judge_look(uint32_t group)
{
    bool all = pool_settings.placing == POOL_PLACING_ALL;
    groups[group].shares.freed = (uint16_t)log_freed_share(group);
    if (is_too_large(&groups[group])) {
        leave_alone(group, REASON_TOO_LARGE);
    } else if (!all && !has_enough(&groups[group])) {
        wait_or(group, REASON_SMALL);
    } else {
        struct view view = look_closely(group);
        if (all) judge_as_paper(group);
        else judge(group, &view);
    }
}
