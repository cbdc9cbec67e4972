/* What do arrays of every length cost that hang on the nodes of a list, two for each?
 *
 * Computes how electromagnetic waves spread: nodes of the electric and of the magnetic field form a bipartite
 * graph, in which each node depends on random nodes of the other field. At each step every node's value is
 * lessened by the weighted values that it depends on, of one field first, then of the other. After em3d of the
 * Olden suite (Culler, Dusseau, Goldstein, Krishnamurthy, Lumetta, von Eicken, Yelick: Parallel programming in
 * Split-C, 1993).
 *
 * The graph is made in the published order: nodes, field by field, in one array the values; then for each node the
 * nodes that depend on it; then for each node, when their number is known, an array of pointers to the values that
 * it depends on and one of weights.
 */
#include "olden.h"

static uint64_t nodes = 200000, degree = 10, steps = 100;

enum field { ELECTRIC, MAGNETIC, FIELDS };

struct node {
    double *value;
    struct node *next;
    struct node **dependents; /* `degree` nodes of the other field */
    const double **sources; /* values of the other field that this one depends on */
    double *weights; /* of each source */
    uint32_t source_count, sources_known;
};

/* A field is a list of nodes; the table is to choose from them. */
struct field_nodes {
    struct node *first, **table;
};

/* -------------------------------------------------------------------------- graph */

static struct field_nodes field_new(micro_random *random)
{
    struct field_nodes field = {.table = olden_new(nodes * sizeof *field.table)};
    double *values = olden_new(nodes * sizeof *values);
    struct node **link = &field.first;
    for (uint64_t i = 0; i < nodes; i++) {
        struct node *node = olden_new(sizeof *node);
        *node = (struct node){.value = &values[i]};
        values[i] = micro_unit(random);
        field.table[i] = *link = node;
        link = &node->next;
    }
    return field;
}

static bool contains(struct node *const *some, uint64_t count, const struct node *node)
{
    for (uint64_t i = 0; i < count; i++)
        if (some[i] == node) return true;
    return false;
}

/* Each node of `list` gets `degree` different nodes of `table`. */
static void choose_dependents(struct node *list, struct node **table, micro_random *random)
{
    for (struct node *node = list; node; node = node->next) {
        node->dependents = olden_new(degree * sizeof *node->dependents);
        for (uint64_t i = 0; i < degree; i++) {
            struct node *other;
            do other = table[micro_below(random, nodes)];
            while (contains(node->dependents, i, other));
            node->dependents[i] = other;
            other->source_count++;
        }
    }
}

static void make_room(struct node *list)
{
    for (struct node *node = list; node; node = node->next) {
        if (node->source_count == 0) continue;
        node->sources = olden_new(node->source_count * sizeof *node->sources);
        node->weights = olden_new(node->source_count * sizeof *node->weights);
    }
}

/* The weights are such that values neither vanish nor grow out of bounds within the steps of a test. */
static void tell_dependents(struct node *list, micro_random *random)
{
    for (struct node *node = list; node; node = node->next) {
        for (uint64_t i = 0; i < degree; i++) {
            struct node *other = node->dependents[i];
            other->sources[other->sources_known] = node->value;
            other->weights[other->sources_known++] = micro_unit(random) / (double)degree;
        }
    }
}

/* Both fields, each with what it depends on in the other. */
static void graph_new(struct field_nodes fields[FIELDS])
{
    micro_random random = micro_random_start(0);
    for (unsigned i = 0; i < FIELDS; i++) fields[i] = field_new(&random);
    for (unsigned i = 0; i < FIELDS; i++) choose_dependents(fields[i].first, fields[FIELDS - 1 - i].table, &random);
    for (unsigned i = 0; i < FIELDS; i++) make_room(fields[i].first);
    for (unsigned i = 0; i < FIELDS; i++) tell_dependents(fields[i].first, &random);
}

/* -------------------------------------------------------------------- computation */

static void compute(struct node *list)
{
    for (struct node *node = list; node; node = node->next)
        for (uint32_t i = 0; i < node->source_count; i++) *node->value -= node->weights[i] * *node->sources[i];
}

/* ----------------------------------------------------------------------- checking */

/* The digest of a field's values; each must be a number still. */
static uint64_t field_digest(const struct node *list, uint64_t digest, uint64_t *known)
{
    for (const struct node *node = list; node; node = node->next) {
        if (node->sources_known != node->source_count) micro_fail("a node does not know what it depends on");
        if (!(*node->value - *node->value == 0)) micro_fail("a value has grown out of bounds");
        *known += node->sources_known;
        digest = olden_fold(digest, olden_bits(*node->value));
    }
    return digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what do arrays of every length cost that hang on the nodes of a list?",
                (micro_option[]){{"nodes", &nodes, false, "of each field"},
                                 {"degree", &degree, false, "nodes of the other field that depend on a node"},
                                 {"steps", &steps, true, "of time"},
                                 {0}});
    micro_require(nodes >= 1 && nodes < UINT32_MAX, "1 node at least, less than 2^32");
    micro_require(degree >= 1 && degree <= nodes, "a degree of 1 at least, and no higher than there are nodes");
    double start = micro_now();
    struct field_nodes fields[FIELDS];
    graph_new(fields);
    for (uint64_t i = 0; i < steps; i++)
        for (unsigned field = 0; field < FIELDS; field++) compute(fields[field].first);
    uint64_t digest = 0, known = 0;
    for (unsigned i = 0; i < FIELDS; i++) digest = field_digest(fields[i].first, digest, &known);
    if (known != FIELDS * nodes * degree) micro_fail("dependencies were lost");
    return micro_report(known * steps, micro_now() - start, digest);
}
