/* How few wires cross when a circuit is cut in two halves?
 *
 * A relative of ks from the pointer-intensive benchmarks of Austin, Breach and Sohi (PLDI 1994): the graph
 * partitioning of Kernighan and Lin as Schweikert and Kernighan ("A proper model for the partitioning of electrical
 * circuits", DAC 1972) took it to nets of several modules. Each net has a list of its modules and each module a list
 * of its nets: cells of one size, allocated in turn from two places. Which modules are in which half is kept in
 * lists too. A pass exchanges the two modules that gain most, one pair after another, and keeps the best prefix of
 * its exchanges.
 */
#include "../micro/micro.h"

static uint64_t module_count = 120000, net_count = 160000, passes = 3, exchanges = 80;

enum { PINS_LEAST = 2, PINS_MOST = 5, NEAR = 2000 };

struct cell {
    struct cell *next;
    void *what;
};

struct net {
    struct cell *modules;
    struct net *next;
};

struct module {
    struct cell *nets;
    uint32_t id;
    uint8_t half;
    bool locked;
    int32_t gain; /* wires that would no longer cross if it moved, less those that would cross then */
};

/* Modules of a half that may still move, as a list. */
static struct cell *halves[2];
static struct module **modules; /* by number: to make nets of only */
static struct net *nets;

/* ------------------------------------------------------------------ circuit */

static struct cell *cell_push(struct cell *cell, struct cell *next, void *what)
{
    *cell = (struct cell){next, what};
    return cell;
}

static void modules_new(micro_random *random)
{
    for (uint32_t i = 0; i < module_count; i++) {
        struct module *module = BLOCK_OF(struct module);
        uint8_t half = (uint8_t)(i & 1);
        *module = (struct module){.id = i, .half = half};
        halves[half] = cell_push(BLOCK_OF(struct cell), halves[half], module);
        modules[i] = module;
    }
    for (uint64_t i = module_count - 1; i > 0; i--) { /* who stands near whom is not who was made near whom */
        uint64_t other = i - micro_below(random, i < NEAR ? i + 1 : NEAR);
        struct module *module = modules[i];
        modules[i] = modules[other];
        modules[other] = module;
    }
}

static bool net_has(const struct net *net, const struct module *module)
{
    for (const struct cell *cell = net->modules; cell; cell = cell->next)
        if (cell->what == module) return true;
    return false;
}

/* Its modules are near each other, as a circuit's are. */
static void net_new(micro_random *random)
{
    struct net *net = BLOCK_OF(struct net);
    *net = (struct net){NULL, nets};
    nets = net;
    uint64_t middle = micro_below(random, module_count), pins = micro_between(random, PINS_LEAST, PINS_MOST);
    for (uint64_t i = 0; i < pins; i++) {
        struct module *module = modules[(middle + micro_below(random, NEAR)) % module_count];
        if (net_has(net, module)) continue;
        net->modules = cell_push(BLOCK_OF(struct cell), net->modules, module);
        module->nets = cell_push(BLOCK_OF(struct cell), module->nets, net);
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

static void circuit_free(void)
{
    while (nets) {
        struct net *next = nets->next;
        cells_free(nets->modules);
        free(nets);
        nets = next;
    }
    for (uint64_t i = 0; i < module_count; i++) {
        cells_free(modules[i]->nets);
        free(modules[i]);
    }
    cells_free(halves[0]);
    cells_free(halves[1]);
}

/* ------------------------------------------------------------------ wires and gains */

/* Every two modules of a net are a wire. */
static uint64_t crossing_wires(void)
{
    uint64_t wires = 0;
    for (const struct net *net = nets; net; net = net->next) {
        uint64_t in_half[2] = {0};
        for (const struct cell *cell = net->modules; cell; cell = cell->next)
            in_half[((const struct module *)cell->what)->half]++;
        wires += in_half[0] * in_half[1];
    }
    return wires;
}

static int32_t wires_between(const struct module *one, const struct module *other)
{
    int32_t wires = 0;
    for (const struct cell *net = one->nets; net; net = net->next) wires += net_has(net->what, other);
    return wires;
}

static int32_t gain_of(const struct module *module)
{
    int32_t gain = 0;
    for (const struct cell *net = module->nets; net; net = net->next)
        for (const struct cell *cell = ((const struct net *)net->what)->modules; cell; cell = cell->next) {
            const struct module *other = cell->what;
            if (other != module) gain += other->half == module->half ? -1 : 1;
        }
    return gain;
}

/* A module has moved: what its neighbours gain has changed. */
static void gains_update(struct module *moved)
{
    for (const struct cell *net = moved->nets; net; net = net->next)
        for (const struct cell *cell = ((const struct net *)net->what)->modules; cell; cell = cell->next) {
            struct module *other = cell->what;
            if (other != moved) other->gain += other->half == moved->half ? -2 : 2;
        }
}

static void move(struct module *module)
{
    module->half ^= 1;
    module->gain = -module->gain;
    gains_update(module);
}

/* ------------------------------------------------------------------ a pass */

static struct module *best_of(const struct cell *cell)
{
    struct module *best = NULL;
    for (; cell; cell = cell->next) {
        struct module *module = cell->what;
        if (!module->locked && (!best || module->gain > best->gain)) best = module;
    }
    return best;
}

/* The partner that gains most together with `one`: a wire between them crosses before and after. */
static struct module *partner_of(const struct module *one, const struct cell *cell, int32_t *gain)
{
    struct module *best = NULL;
    for (; cell; cell = cell->next) {
        struct module *other = cell->what;
        if (other->locked || (best && other->gain + one->gain <= *gain)) continue;
        int32_t together = one->gain + other->gain - 2 * wires_between(one, other);
        if (best && together <= *gain) continue;
        best = other;
        *gain = together;
    }
    return best;
}

/* The halves' lists, anew in the order of the modules' numbers. */
static void halves_sort(void)
{
    for (int half = 0; half < 2; half++) cells_free(halves[half]);
    halves[0] = halves[1] = NULL;
    for (uint64_t i = module_count; i-- > 0;) {
        struct module *module = modules[i];
        module->locked = false;
        halves[module->half] = cell_push(BLOCK_OF(struct cell), halves[module->half], module);
    }
}

/* Returns by how many wires it is better. */
static int64_t pass(struct module *(*exchanged)[2])
{
    int64_t sum = 0, most = 0;
    uint64_t done = 0, kept = 0;
    for (const struct net *net = nets; net; net = net->next)
        for (const struct cell *cell = net->modules; cell; cell = cell->next)
            ((struct module *)cell->what)->gain = gain_of(cell->what);
    while (done < exchanges) {
        int32_t gain = 0;
        struct module *one = best_of(halves[0]), *other = one ? partner_of(one, halves[1], &gain) : NULL;
        if (!other) break;
        one->locked = other->locked = true;
        move(one);
        move(other);
        exchanged[done][0] = one, exchanged[done][1] = other;
        done++;
        sum += gain;
        if (sum > most) most = sum, kept = done;
    }
    while (done-- > kept) move(exchanged[done][0]), move(exchanged[done][1]);
    halves_sort();
    return most;
}

static uint64_t partition_digest(void)
{
    uint64_t digest = 0, in_half[2] = {0};
    for (uint64_t i = 0; i < module_count; i++) {
        digest += micro_mix(2 * (uint64_t)modules[i]->id + modules[i]->half);
        in_half[modules[i]->half]++;
    }
    if (in_half[1] > in_half[0] || in_half[0] - in_half[1] > 1) micro_fail("the halves are not alike");
    return digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how few wires cross when a circuit is cut in two halves?",
                (micro_option[]){{"modules", &module_count, true, "of the circuit"},
                                 {"nets", &net_count, true, "that connect 2 to 5 modules"},
                                 {"passes", &passes, false, "at most"},
                                 {"exchanges", &exchanges, false, "of a pass, at most"},
                                 {0}});
    micro_require(module_count >= 16 && module_count < UINT32_MAX && net_count > 0 && exchanges > 0,
                  "16 modules, a net");
    modules = micro_map(module_count * sizeof *modules);
    struct module *(*exchanged)[2] = micro_map(exchanges * sizeof *exchanged);
    micro_random random = micro_random_start(0);
    double start = micro_now();
    modules_new(&random);
    for (uint64_t i = 0; i < net_count; i++) net_new(&random);
    uint64_t wires = crossing_wires();
    int64_t better = 1;
    for (uint64_t i = 0; i < passes && better > 0; i++) wires -= (uint64_t)(better = pass(exchanged));
    if (wires != crossing_wires()) micro_fail("%" PRIu64 " wires should cross", wires);
    uint64_t digest = partition_digest() + wires;
    circuit_free();
    return micro_report(wires, micro_now() - start, digest);
}
