/* The storage shape graph (3.2.1), read out of the heap instead of the program: which fields of a group's objects lead
 * to objects of which groups. Beyond the paper's graph an edge says how many of the links are *near*: to an object that
 * was allocated beside the one that points to it, or that lies there. Those are the links that splitting would tear
 * apart.
 */
#include "group.h"

struct edge edges[EDGES_MAX];

static uint32_t count;

uint32_t edge_count(void)
{
    return count;
}

/* ---- edges ------------------------------------------------------------------------------------------------------ */

static void link_in(uint16_t number)
{
    struct edge *edge = &edges[number];
    struct group *from = &groups[edge->from];
    edge->next_out = from->edges_out;
    from->edges_out = number;
    from->edges_out_count++;
    edge->next_in = groups[edge->to].edges_in;
    groups[edge->to].edges_in = number;
}

/* NULL: there is no room for another one. */
static struct edge *edge_get(uint32_t from, uint32_t to, uint32_t offset)
{
    for (uint16_t at = groups[from].edges_out; at != EDGE_NONE; at = edges[at].next_out)
        if (edges[at].to == to && edges[at].offset == offset) return &edges[at];
    if (groups[from].edges_out_count == EDGES_OUT_MAX || count == EDGES_MAX - 1) return NULL;
    struct edge *edge = &edges[++count];
    *edge = (struct edge){.from = (uint16_t)from, .to = (uint16_t)to, .offset = (uint16_t)offset};
    link_in((uint16_t)count);
    return edge;
}

/* Later the one is counted on and the other is not, which would tell nothing of how many there are of each. */
static void note_objects(struct edge *edge)
{
    const struct group *from = &groups[edge->from], *to = &groups[edge->to];
    if (edge->from_objects != 0 && (from->state != GROUP_WATCHED || to->state != GROUP_WATCHED)) return;
    edge->from_objects = (uint32_t)from->objects;
    edge->to_objects = (uint32_t)to->objects;
}

static void edge_add(uint32_t from, uint32_t to, uint32_t offset, bool near)
{
    struct edge *edge = edge_get(from, to, offset);
    if (edge == NULL || edge->count == UINT16_MAX) return;
    edge->count++;
    if (near) edge->near++;
    note_objects(edge);
}

/* ---- reading objects -------------------------------------------------------------------------------------------- */

/* Longer objects are read as far as this: 256 bytes, twice the largest that the paper puts into pools. */
enum { WORDS_MAX = 32 };

/* What a word leads to. */
struct target {
    uint32_t group;
    uint32_t number; /* of the observation, LOG_NONE: there is none */
    uintptr_t start;
};

/* Observations no further apart count as one after another: the parts of a record, and an object or two that do not
 * belong to it or are of other threads. Blocks no further apart in memory share cache lines, or the prefetcher brings
 * them. */
enum { NEAR_OBSERVATIONS = 8, NEAR_BYTES = 4 * CACHE_LINE };

static bool is_near(uint32_t number, uintptr_t start, const struct target *target)
{
    uintptr_t distance = start > target->start ? start - target->start : target->start - start;
    if (distance <= NEAR_BYTES) return true;
    if (number == LOG_NONE || target->number == LOG_NONE) return false;
    uint32_t between = number - target->number;
    return between <= NEAR_OBSERVATIONS || -between <= NEAR_OBSERVATIONS;
}

/* Whether a word leads to an object whose group is known. Anywhere in the object counts: lists may be linked through a member
 * of their elements. */
static bool resolve(uintptr_t word, struct target *target)
{
    struct block block;
    if (!block_of(word, &block)) return false;
    target->start = block.start;
    target->number = LOG_NONE;
    /* Objects in pools are in no log, but there the span tells. */
    uint32_t pool = place_of(block.span);
    if (pool != POOL_NONE) return (target->group = group_of_pool(pool)) != GROUP_NONE;
    if (!block_is_live(&block)) return false;
    target->number = log_find(block.start);
    const struct observation *observation = log_at(target->number);
    if (observation == NULL) return false;
    target->group = observation->group;
    return true;
}

/* ---- scanning --------------------------------------------------------------------------------------------------- */

/* On static memory, not on the stack: programs allocate on small ones, and all this is under the lock. */
static struct target targets[WORDS_MAX];

/* Objects of two groups to which one object points. */
static void add_siblings(uint32_t parent, unsigned found)
{
    for (unsigned i = 0; i < found; i++) {
        for (unsigned j = i + 1; j < found; j++) {
            uint32_t a = targets[i].group, b = targets[j].group;
            if (a == b || a == parent || b == parent) continue;
            edge_add(a < b ? a : b, a < b ? b : a, OFFSET_SIBLINGS,
                     is_near(targets[i].number, targets[i].start, &targets[j]));
        }
    }
}

static void scan_object(uint32_t number, const struct observation *observation, const struct block *block)
{
    uint32_t size = observation->size < block->size ? observation->size : block->size;
    unsigned words = size / sizeof(uintptr_t), found = 0;
    for (unsigned i = 0; i < words && i < WORDS_MAX; i++) {
        struct target *target = &targets[found];
        if (!resolve(block_word(block->start, i), target) || target->start == block->start) continue;
        edge_add(observation->group, target->group, i * (uint32_t)sizeof(uintptr_t),
                 is_near(number, block->start, target));
        found++;
    }
    add_siblings(observation->group, found);
}

static uint32_t samples[SAMPLES_MAX];

void shape_scan(uint32_t group)
{
    struct group *scanned = &groups[group];
    unsigned available = log_samples(scanned, samples);
    for (unsigned i = 0; i < available; i++) {
        /* Each object once: what the graph says are shares. Newest first, so the rest has been here. */
        if (scanned->scanned_until != LOG_NONE && log_age(samples[i]) >= log_age(scanned->scanned_until)) break;
        const struct observation *observation = log_at(samples[i]);
        struct block block;
        if (!observation_is_live(samples[i], observation, &block)) continue;
        scan_object(samples[i], observation, &block);
        scanned->scanned++;
    }
    if (available > 0) scanned->scanned_until = samples[0];
}

/* What was known of the group's edges may be out of date. Siblings stay: they are shares of what was seen. */
static void forget(uint32_t group)
{
    groups[group].scanned = 0;
    groups[group].scanned_until = LOG_NONE;
    for (uint16_t at = groups[group].edges_out; at != EDGE_NONE; at = edges[at].next_out)
        if (edges[at].offset != OFFSET_SIBLINGS) edges[at].count = edges[at].near = 0;
}

/* A few at a time, in turn: in a program with few groups all are seen again soon, in one with many it costs no more. */
enum { RESCANS = 2 };
static uint32_t rescanned;

void shape_rescan_some(void)
{
    uint32_t groups_known = group_count(), left = RESCANS;
    for (uint32_t tries = 0; tries < groups_known && tries < 4 * RESCANS && left > 0; tries++) {
        uint32_t group = rescanned++ % groups_known;
        if (groups[group].state == GROUP_WATCHED || log_at(groups[group].newest) == NULL) continue;
        forget(group);
        shape_scan(group);
        left--;
    }
}

/* ---- what was allocated among a group's objects ----------------------------------------------------------------- */

enum { COMPANIONS_MAX = 6 };

struct companion {
    uint32_t group, met;
};

static struct companion companions[COMPANIONS_MAX];

static void meet(uint32_t group)
{
    unsigned i = 0;
    while (i < COMPANIONS_MAX && companions[i].met != 0 && companions[i].group != group) i++;
    if (i == COMPANIONS_MAX) return;
    companions[i].group = group;
    companions[i].met++;
}

static void meet_around(uint32_t number, uint32_t group)
{
    for (uint32_t distance = 1; distance <= NEAR_OBSERVATIONS / 2; distance++) {
        const struct observation *before = log_at(number - distance), *after = log_at(number + distance);
        if (before != NULL && before->group != group) meet(before->group);
        if (after != NULL && after->group != group) meet(after->group);
    }
}

void shape_scan_around(uint32_t group)
{
    for (unsigned i = 0; i < COMPANIONS_MAX; i++) companions[i] = (struct companion){0};
    unsigned available = log_samples(&groups[group], samples);
    for (unsigned i = 0; i < available; i++) meet_around(samples[i], group);
    /* Not worth the time for those that are there only now and then: they are no partners. */
    for (unsigned i = 0; i < COMPANIONS_MAX; i++)
        if (companions[i].met >= available / 4 && companions[i].met > 0) shape_scan(companions[i].group);
}

/* ---- shares ----------------------------------------------------------------------------------------------------- */

/* So few samples say nothing. */
enum { SCANNED_MIN = 8 };

/* A quarter of a group's objects tells what its fields are for: in a tree, half the nodes have no children. */
enum { SHARE_THAT_TELLS = WHOLE / 4 };

static unsigned max_of(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

/* The share of all objects of the edge's target that it leads to, if each leads to another one. */
static unsigned share_of_target(const struct edge *edge, unsigned links)
{
    uint32_t scanned = groups[edge->from].scanned;
    if (scanned < SCANNED_MIN) return 0;
    return share_of((uint64_t)links * edge->from_objects, (uint64_t)scanned * edge->to_objects);
}

static unsigned share_of_source(const struct edge *edge, unsigned links)
{
    uint32_t scanned = groups[edge->from].scanned;
    return scanned < SCANNED_MIN ? 0 : share_of(links, scanned);
}

/* Of the objects that point to one of each group, those in which the two are near. */
static unsigned share_of_siblings(const struct edge *edge)
{
    return edge->count < SCANNED_MIN ? 0 : share_of(edge->near, edge->count);
}

/* A group that everything points to has very many edges that lead to it; the latest are looked at. */
enum { EDGES_IN_MAX = 64 };

/* Of a group's objects, those with a near link from or to one of the other. */
static unsigned linked(uint32_t group, uint32_t other)
{
    unsigned out = 0, in = 0, seen = 0;
    for (uint16_t at = groups[group].edges_out; at != EDGE_NONE; at = edges[at].next_out) {
        const struct edge *edge = &edges[at];
        if (edge->to != other) continue;
        out =
            max_of(out, edge->offset == OFFSET_SIBLINGS ? share_of_siblings(edge) : share_of_source(edge, edge->near));
    }
    for (uint16_t at = groups[group].edges_in; at != EDGE_NONE && seen < EDGES_IN_MAX; at = edges[at].next_in, seen++) {
        const struct edge *edge = &edges[at];
        if (edge->from != other) continue;
        if (edge->offset == OFFSET_SIBLINGS) out = max_of(out, share_of_siblings(edge));
        else in += share_of_target(edge, edge->near); /* different fields lead to different objects */
    }
    return max_of(out, in < WHOLE ? in : WHOLE);
}

/* Two that are linked and beside each other, but one of which is soon gone, are better apart. */
static bool lifetimes_differ(uint32_t group, uint32_t other)
{
    unsigned a = log_freed_share(group), b = log_freed_share(other);
    return (a <= FREED_LONG_LIVED && b >= FREED_SHORT_LIVED) || (b <= FREED_LONG_LIVED && a >= FREED_SHORT_LIVED);
}

/* That of most near links from a group to another, or the other way; NULL: there is none. */
static const struct edge *strongest(uint32_t group, uint32_t other)
{
    const struct edge *found = NULL;
    for (uint16_t at = groups[group].edges_out; at != EDGE_NONE; at = edges[at].next_out)
        if (edges[at].to == other && edges[at].near > (found != NULL ? found->near : 0)) found = &edges[at];
    for (uint16_t at = groups[other].edges_out; at != EDGE_NONE; at = edges[at].next_out)
        if (edges[at].to == group && edges[at].near > (found != NULL ? found->near : 0)) found = &edges[at];
    return found;
}

unsigned shape_paired(uint32_t group, uint32_t other)
{
    const struct edge *edge = strongest(group, other);
    if (edge == NULL) return 0;
    uint64_t from = edge->from_objects, to = edge->to_objects;
    uint64_t from_linked = from * linked(edge->from, edge->to), to_linked = to * linked(edge->to, edge->from);
    uint64_t pairs = from_linked < to_linked ? from_linked : to_linked;
    unsigned share = share_of(pairs / WHOLE, from > to ? from : to);
    return share >= SHARE_THAT_TELLS && lifetimes_differ(group, other) ? 0 : share;
}

/* ---- affinity --------------------------------------------------------------------------------------------------- */

/* Whether the field at an edge's offset leads from `from` to `to` as well. */
static bool leads(uint32_t from, uint32_t to, uint32_t offset)
{
    for (uint16_t at = groups[from].edges_out; at != EDGE_NONE; at = edges[at].next_out)
        if (edges[at].to == to && edges[at].offset == offset)
            return share_of_source(&edges[at], edges[at].count) >= SHARE_THAT_TELLS;
    return false;
}

/* Type I: a field of the one leads to the other, and between objects of the one or the other that field does the same.
 * The paper asks for objects of one size and any edge; but a record of the same size that is only referred to is
 * another type, and then the offsets differ. */
static bool continues(uint32_t group, uint32_t other)
{
    for (uint16_t at = groups[group].edges_out; at != EDGE_NONE; at = edges[at].next_out) {
        const struct edge *edge = &edges[at];
        if (edge->to != other || edge->offset == OFFSET_SIBLINGS) continue;
        if (share_of_source(edge, edge->count) < SHARE_THAT_TELLS) continue;
        if (leads(other, group, edge->offset) || leads(other, other, edge->offset) || leads(group, group, edge->offset))
            return true;
    }
    return false;
}

/* Type II: the same field of a third group leads to many objects of both. */
static bool has_parent_in_common(uint32_t group, uint32_t other)
{
    unsigned seen = 0;
    for (uint16_t in = groups[group].edges_in; in != EDGE_NONE && seen < EDGES_IN_MAX; in = edges[in].next_in, seen++) {
        const struct edge *edge = &edges[in];
        if (edge->offset == OFFSET_SIBLINGS || edge->from == group || edge->from == other) continue;
        if (share_of_target(edge, edge->count) < SHARE_THAT_TELLS) continue;
        for (uint16_t out = groups[edge->from].edges_out; out != EDGE_NONE; out = edges[out].next_out)
            if (edges[out].to == other && edges[out].offset == edge->offset &&
                share_of_target(&edges[out], edges[out].count) >= SHARE_THAT_TELLS)
                return true;
    }
    return false;
}

/* Half of them: then who walks the one has the other in hand. */
enum { TOGETHER_MIN = WHOLE / 2 };

enum affinity shape_affinity(uint32_t group, uint32_t other)
{
    uint32_t size = group_block_size(group);
    if (size != 0 && size == group_block_size(other)) {
        if (continues(group, other) || continues(other, group)) return AFFINITY_TYPE_I;
        if (has_parent_in_common(group, other)) return AFFINITY_TYPE_II;
    }
    return shape_paired(group, other) >= TOGETHER_MIN ? AFFINITY_TOGETHER : AFFINITY_NONE;
}

bool cluster_contains(const struct cluster *cluster, uint32_t group)
{
    for (unsigned i = 0; i < cluster->count; i++)
        if (cluster->members[i] == group) return true;
    return false;
}

unsigned shape_paired_most(uint32_t group)
{
    unsigned share = 0, seen = 0;
    for (uint16_t at = groups[group].edges_out; at != EDGE_NONE; at = edges[at].next_out)
        if (edges[at].to != group) share = max_of(share, shape_paired(group, edges[at].to));
    for (uint16_t at = groups[group].edges_in; at != EDGE_NONE && seen < EDGES_IN_MAX; at = edges[at].next_in, seen++)
        if (edges[at].from != group) share = max_of(share, shape_paired(group, edges[at].from));
    return share;
}

/* ---- clusters --------------------------------------------------------------------------------------------------- */

/* So many pairs of groups are compared in a look; where everything points to everything, more would take long. */
enum { COMPARISONS_MAX = 128 };
static unsigned compared;
static uint8_t compared_with[GROUPS_MAX / 8]; /* a bit for each group, of the member that is at hand */

/* Whether the pair has not been compared yet, and may be. */
static bool compare_once(uint32_t other)
{
    uint8_t bit = (uint8_t)(1U << (other % 8));
    if (compared == COMPARISONS_MAX || (compared_with[other / 8] & bit) != 0) return false;
    compared_with[other / 8] |= bit;
    compared++;
    return true;
}

static void consider(struct cluster *cluster, uint32_t member, uint32_t other)
{
    if (cluster->count == CLUSTER_MAX || cluster_contains(cluster, other)) return;
    if (!compare_once(other)) return;
    enum affinity affinity = shape_affinity(member, other);
    if (affinity == AFFINITY_NONE) return;
    cluster->members[cluster->count] = other;
    cluster->affinities[cluster->count++] = (uint8_t)affinity;
}

/* What else the field at an edge's offset leads to. */
static void consider_siblings(struct cluster *cluster, uint32_t member, const struct edge *edge)
{
    if (edge->offset == OFFSET_SIBLINGS) return;
    for (uint16_t out = groups[edge->from].edges_out; out != EDGE_NONE; out = edges[out].next_out)
        if (edges[out].offset == edge->offset) consider(cluster, member, edges[out].to);
}

static void consider_all(struct cluster *cluster, uint32_t member)
{
    unsigned seen = 0;
    memset(compared_with, 0, sizeof compared_with);
    for (uint16_t at = groups[member].edges_out; at != EDGE_NONE; at = edges[at].next_out)
        consider(cluster, member, edges[at].to);
    for (uint16_t at = groups[member].edges_in; at != EDGE_NONE && seen < EDGES_IN_MAX; at = edges[at].next_in) {
        consider(cluster, member, edges[at].from);
        consider_siblings(cluster, member, &edges[at]);
        seen++;
    }
}

void shape_cluster(uint32_t group, struct cluster *cluster)
{
    *cluster = (struct cluster){.count = 1, .members = {group}};
    compared = 0;
    if (!pool_settings.merge) return;
    for (unsigned i = 0; i < cluster->count; i++) consider_all(cluster, cluster->members[i]);
}

void cluster_drop(struct cluster *cluster, enum affinity affinity)
{
    unsigned kept = 1;
    for (unsigned i = 1; i < cluster->count; i++) {
        if (cluster->affinities[i] == affinity) continue;
        cluster->members[kept] = cluster->members[i];
        cluster->affinities[kept++] = cluster->affinities[i];
    }
    cluster->count = kept;
}
