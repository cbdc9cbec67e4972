/* On how few tracks can the nets of a channel be wired?
 *
 * A relative of yacr2 from the pointer-intensive benchmarks of Austin, Breach and Sohi (PLDI 1994), a channel router
 * after Reed, Sangiovanni-Vincentelli and Santomauro ("A new symbolic channel router: YACR2", IEEE TCAD 1985). A
 * channel has pins on its upper and lower edge; a net connects pins by a horizontal wire on a track and by vertical
 * wires to its pins. Where two nets have pins in one column, the upper one's track must be above: these constraints
 * are lists, from each net up and down, as are the pins of a net and the wires of a track. Nets are put on tracks
 * from the left edge on, those first that most others wait for. Each channel is made, routed, verified and freed.
 */
#include "../micro/micro.h"

static uint64_t column_count = 400000, levels = 100, channels = 3, reach = 200;

struct cell {
    struct cell *next;
    struct net *net;
};

struct pin {
    struct pin *next;
    uint32_t column;
    bool upper; /* on which edge */
};

struct net {
    struct net *next; /* of those that are ready, by their left ends */
    struct cell *above, *below; /* which its track must be below, and above */
    struct pin *pins;
    uint32_t left, right; /* columns */
    uint32_t level; /* of the track that it has in the solution that the channel was made from */
    uint32_t waiting; /* nets above that have no track yet */
    uint32_t height; /* of the longest chain of constraints below */
    uint32_t track;
};

/* A piece of horizontal wire. */
struct wire {
    struct wire *next;
    const struct net *net;
};

struct channel {
    struct net **upper, **lower; /* of each column: whose pin there is on that edge */
    struct net **nets; /* by the left end */
    uint64_t net_count;
    struct wire **tracks;
    uint64_t track_count;
};

static uint64_t routed, digest;

/* ------------------------------------------------------------------ making a channel */

static void pin_new(struct net *net, uint32_t column, bool upper, struct channel *channel)
{
    struct pin *pin = BLOCK_OF(struct pin);
    *pin = (struct pin){net->pins, column, upper};
    net->pins = pin;
    (upper ? channel->upper : channel->lower)[column] = net;
}

/* On an edge that is free there, and not against the order of the levels: so there is a solution. */
static void pin_try(struct net *net, uint32_t column, micro_random *random, struct channel *channel)
{
    const struct net *upper = channel->upper[column], *lower = channel->lower[column];
    if (upper == net || lower == net || (upper && lower)) return;
    bool may_be_upper = !upper && (!lower || net->level < lower->level);
    bool may_be_lower = !lower && (!upper || net->level > upper->level);
    if (!may_be_upper && !may_be_lower) return;
    bool both = may_be_upper && may_be_lower;
    pin_new(net, column, both ? micro_below(random, 2) : may_be_upper, channel);
}

static void pins_free(struct net *net)
{
    while (net->pins) {
        struct pin *next = net->pins->next;
        free(net->pins);
        net->pins = next;
    }
}

/* Gives the pins of a net that is none back. */
static void net_drop(struct net *net, struct channel *channel)
{
    for (const struct pin *pin = net->pins; pin; pin = pin->next)
        (pin->upper ? channel->upper : channel->lower)[pin->column] = NULL;
    pins_free(net);
    free(net);
}

static void net_span(struct net *net)
{
    net->left = UINT32_MAX, net->right = 0;
    for (const struct pin *pin = net->pins; pin; pin = pin->next) {
        if (pin->column < net->left) net->left = pin->column;
        if (pin->column > net->right) net->right = pin->column;
    }
}

/* A net of 2 to 4 pins within some columns; returns the column after it. */
static uint32_t net_new(uint32_t from, uint32_t level, micro_random *random, struct channel *channel)
{
    uint32_t to = from + (uint32_t)micro_between(random, 4, 2 * reach), pins = (uint32_t)micro_between(random, 2, 4);
    if (to >= column_count) to = (uint32_t)column_count - 1;
    struct net *net = BLOCK_OF(struct net);
    *net = (struct net){.level = level};
    for (uint32_t i = 0; i < pins; i++) pin_try(net, (uint32_t)micro_between(random, from, to), random, channel);
    net_span(net);
    if (net->pins && net->left < net->right) channel->nets[channel->net_count++] = net;
    else net_drop(net, channel);
    return to + 1;
}

static int by_left_end(const void *a, const void *b)
{
    const struct net *one = *(struct net *const *)a, *other = *(struct net *const *)b;
    if (one->left != other->left) return one->left < other->left ? -1 : 1;
    return one->level < other->level ? -1 : one->level > other->level;
}

/* The tables are mapped: they are as large under every allocator. */
static struct channel channel_new(micro_random *random)
{
    uint64_t most = column_count; /* a net has two pins at least */
    struct channel channel = {
        .upper = micro_map(column_count * sizeof(struct net *)),
        .lower = micro_map(column_count * sizeof(struct net *)),
        .nets = micro_map(most * sizeof(struct net *)),
        .tracks = micro_map(most * sizeof(struct wire *)),
    };
    uint32_t *ends = micro_map(levels * sizeof *ends);
    for (bool grown = true; grown;) { /* all levels advance together, so that neighbours are made in turn */
        grown = false;
        for (uint32_t level = 0; level < levels; level++)
            if (ends[level] + 4 < column_count) {
                ends[level] = net_new(ends[level], level, random, &channel);
                grown = true;
            }
    }
    munmap(ends, levels * sizeof *ends);
    qsort(channel.nets, channel.net_count, sizeof *channel.nets, by_left_end);
    return channel;
}

static void wires_free(struct wire *wire)
{
    while (wire) {
        struct wire *next = wire->next;
        free(wire);
        wire = next;
    }
}

static void cells_free(struct cell *cell)
{
    while (cell) {
        struct cell *next = cell->next;
        free(cell);
        cell = next;
    }
}

static void channel_free(struct channel *channel)
{
    for (uint64_t i = 0; i < channel->track_count; i++) wires_free(channel->tracks[i]);
    for (uint64_t i = 0; i < channel->net_count; i++) {
        struct net *net = channel->nets[i];
        cells_free(net->above);
        cells_free(net->below);
        pins_free(net);
        free(net);
    }
    munmap(channel->upper, column_count * sizeof(struct net *));
    munmap(channel->lower, column_count * sizeof(struct net *));
    munmap(channel->nets, column_count * sizeof(struct net *));
    munmap(channel->tracks, column_count * sizeof(struct wire *));
}

/* ------------------------------------------------------------------ routing */

static bool has(const struct cell *cell, const struct net *net)
{
    for (; cell; cell = cell->next)
        if (cell->net == net) return true;
    return false;
}

static void constrain(struct net *upper, struct net *lower)
{
    if (has(upper->below, lower)) return;
    struct cell *below = BLOCK_OF(struct cell);
    *below = (struct cell){upper->below, lower};
    upper->below = below;
    struct cell *above = BLOCK_OF(struct cell);
    *above = (struct cell){lower->above, upper};
    lower->above = above;
    lower->waiting++;
}

static uint32_t height_of(struct net *net)
{
    if (net->height > 0) return net->height;
    uint32_t height = 0;
    for (const struct cell *cell = net->below; cell; cell = cell->next) {
        uint32_t below = height_of(cell->net);
        height = below > height ? below : height;
    }
    return net->height = height + 1;
}

static void constraints_find(struct channel *channel)
{
    for (uint64_t column = 0; column < column_count; column++)
        if (channel->upper[column] && channel->lower[column]) constrain(channel->upper[column], channel->lower[column]);
    for (uint64_t i = 0; i < channel->net_count; i++) height_of(channel->nets[i]);
}

/* Of those that start not before `from` and in reach of the first: the one that most wait for. Where it hangs. */
static struct net **net_choose(struct net **ready, uint32_t from)
{
    while (*ready && (*ready)->left < from) ready = &(*ready)->next;
    struct net **chosen = *ready ? ready : NULL;
    for (uint32_t nearest = chosen ? (*chosen)->right : 0; *ready && (*ready)->left <= nearest; ready = &(*ready)->next)
        if ((*ready)->height > (*chosen)->height) chosen = ready;
    return chosen;
}

static void net_place(struct net **where, struct channel *channel)
{
    struct net *net = *where;
    struct wire *wire = BLOCK_OF(struct wire);
    uint64_t track = channel->track_count;
    *wire = (struct wire){channel->tracks[track], net};
    channel->tracks[track] = wire;
    net->track = (uint32_t)track;
    *where = net->next;
    routed++;
}

static struct net *merged(struct net *a, struct net *b)
{
    struct net *first = NULL, **last = &first;
    while (a && b) {
        struct net **least = by_left_end(&a, &b) <= 0 ? &a : &b;
        *last = *least;
        *least = (*least)->next;
        last = &(*last)->next;
    }
    *last = a ? a : b;
    return first;
}

static struct net *sorted(struct net *list)
{
    if (!list || !list->next) return list;
    struct net *middle = list;
    for (const struct net *end = list->next; end && end->next; end = end->next->next) middle = middle->next;
    struct net *rest = middle->next;
    middle->next = NULL;
    return merged(sorted(list), sorted(rest));
}

/* The nets whose last net above has just got its track. */
static struct net *nets_freed(const struct wire *wire)
{
    struct net *first = NULL;
    for (; wire; wire = wire->next)
        for (const struct cell *cell = wire->net->below; cell; cell = cell->next)
            if (--cell->net->waiting == 0) {
                cell->net->next = first;
                first = cell->net;
            }
    return sorted(first);
}

static void route(struct channel *channel)
{
    struct net *ready = NULL;
    constraints_find(channel);
    for (uint64_t i = channel->net_count; i-- > 0;)
        if (channel->nets[i]->waiting == 0) {
            channel->nets[i]->next = ready;
            ready = channel->nets[i];
        }
    for (; ready; channel->track_count++) {
        uint32_t from = 0;
        for (struct net **where = &ready; (where = net_choose(where, from));) {
            from = (*where)->right + 1;
            net_place(where, channel);
        }
        ready = merged(ready, nets_freed(channel->tracks[channel->track_count]));
    }
}

/* ------------------------------------------------------------------ verifying */

/* A track's wires are listed from right to left. */
static uint64_t track_verify(const struct wire *wire, uint32_t track)
{
    uint64_t sum = 0;
    for (; wire; wire = wire->next) {
        const struct net *net = wire->net;
        if (net->track != track) micro_fail("a net is on two tracks");
        if (wire->next && wire->next->net->right >= net->left) micro_fail("two nets overlap on track %u", track);
        for (const struct cell *cell = net->above; cell; cell = cell->next)
            if (cell->net->track >= track) micro_fail("a vertical wire crosses another net's");
        for (const struct pin *pin = net->pins; pin; pin = pin->next)
            sum += micro_mix(((uint64_t)pin->column << 32) + 2 * track + pin->upper);
    }
    return sum;
}

static void verify(const struct channel *channel)
{
    uint64_t wires = 0;
    for (uint32_t track = 0; track < channel->track_count; track++) {
        digest += track_verify(channel->tracks[track], track);
        for (const struct wire *wire = channel->tracks[track]; wire; wire = wire->next) wires++;
    }
    if (wires != channel->net_count) micro_fail("%" PRIu64 " nets have no track", channel->net_count - wires);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "on how few tracks can the nets of a channel be wired?",
                (micro_option[]){{"columns", &column_count, true, "of a channel"},
                                 {"levels", &levels, false, "tracks of the solution that a channel is made from"},
                                 {"reach", &reach, false, "columns of a net, on average"},
                                 {"channels", &channels, false, "one after the other"},
                                 {0}});
    micro_require(column_count >= 100 && column_count < UINT32_MAX / 2 && levels > 0 && levels <= 10000 && reach >= 4 &&
                      reach < 1000000 && channels > 0,
                  "100 columns, 1 to 10000 levels, a reach of 4 at least");
    micro_random random = micro_random_start(0);
    double start = micro_now();
    for (uint64_t i = 0; i < channels; i++) {
        struct channel channel = channel_new(&random);
        route(&channel);
        verify(&channel);
        channel_free(&channel);
    }
    return micro_report(routed, micro_now() - start, digest);
}
