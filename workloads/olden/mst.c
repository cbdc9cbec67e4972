/* What do hash tables cost whose entries were made table after table, but are looked up one in each table in turn?
 *
 * Finds the minimum spanning tree of a complete graph. Each vertex has a hash table of its edges, with chains of
 * about four; all edges of a vertex are made before those of the next. The search grows the tree by one vertex at
 * a time and looks the edge to that vertex up in the table of every vertex that is still outside. After mst of the
 * Olden suite, whose algorithm is Bentley's (A parallel algorithm for constructing minimum spanning trees, Journal
 * of Algorithms 1, 1980).
 *
 * A table is hashed by the vertex's number, not by its address as in the published program: the work is the same
 * under every allocator. The weight of the tree is checked against Prim's algorithm on bare arrays.
 */
#include "olden.h"

static uint64_t vertices = 2048, passes = 10;

enum { CHAIN = 4, HEAVIEST = 2048 };

struct edge {
    const struct vertex *to;
    uint64_t weight;
    struct edge *next;
};

struct table {
    struct edge **chains;
    uint32_t count;
};

struct vertex {
    struct vertex *next;
    struct table *edges;
    uint64_t distance; /* to the nearest vertex of the tree */
    uint32_t number;
};

/* ------------------------------------------------------------------------- graph */

static uint64_t weight_between(uint64_t one, uint64_t other)
{
    uint64_t less = one < other ? one : other, greater = one < other ? other : one;
    return micro_mix(micro_mix(micro_seed) + less * vertices + greater) % HEAVIEST + 1;
}

static struct table *table_new(uint32_t count)
{
    struct table *table = olden_new(sizeof *table);
    table->count = count;
    table->chains = olden_new(count * sizeof *table->chains);
    for (uint32_t i = 0; i < count; i++) table->chains[i] = NULL;
    return table;
}

static void table_add(struct table *table, const struct vertex *to, uint64_t weight)
{
    struct edge *edge = olden_new(sizeof *edge);
    struct edge **chain = &table->chains[to->number % table->count];
    *edge = (struct edge){.to = to, .weight = weight, .next = *chain};
    *chain = edge;
}

static uint64_t table_find(const struct table *table, const struct vertex *to)
{
    const struct edge *edge = table->chains[to->number % table->count];
    while (edge && edge->to != to) edge = edge->next;
    if (!edge) micro_fail("the edge to vertex %" PRIu32 " was lost", to->number);
    return edge->weight;
}

static struct vertex *graph_new(void)
{
    struct vertex *graph = olden_new(vertices * sizeof *graph);
    uint32_t chains = (uint32_t)(vertices < CHAIN ? 1 : vertices / CHAIN);
    for (uint32_t i = 0; i < vertices; i++) graph[i] = (struct vertex){.number = i, .edges = table_new(chains)};
    for (uint32_t i = 0; i < vertices; i++)
        for (uint32_t j = 0; j < vertices; j++)
            if (i != j) table_add(graph[i].edges, &graph[j], weight_between(i, j));
    return graph;
}

/* ------------------------------------------------------------------------ search */

/* `added` has come into the tree: updates the distances of the vertices outside and returns the link of the list that
 * holds the nearest. */
static struct vertex **nearest_outside(struct vertex **outside, const struct vertex *added)
{
    struct vertex **nearest = outside;
    for (struct vertex **link = outside; *link; link = &(*link)->next) {
        struct vertex *vertex = *link;
        uint64_t distance = table_find(vertex->edges, added);
        if (distance < vertex->distance) vertex->distance = distance;
        if (vertex->distance < (*nearest)->distance) nearest = link;
    }
    return nearest;
}

/* The weight of the minimum spanning tree. */
static uint64_t span(struct vertex *graph)
{
    for (uint64_t i = 0; i < vertices; i++) {
        graph[i].distance = UINT64_MAX;
        graph[i].next = i + 1 < vertices ? &graph[i + 1] : NULL;
    }
    struct vertex *outside = graph[0].next, *added = &graph[0];
    uint64_t weight = 0;
    while (outside) {
        struct vertex **nearest = nearest_outside(&outside, added);
        added = *nearest;
        *nearest = added->next;
        weight += added->distance;
    }
    return weight;
}

/* ---------------------------------------------------------------------- checking */

/* The same by Prim's algorithm, the weights worked out anew; nothing here is from malloc. A distance of 0 is that
 * of a vertex in the tree: no edge is as light. */
static uint64_t span_on_arrays(void)
{
    uint64_t *distance = micro_map((vertices + 1) * sizeof *distance), weight = 0;
    for (uint64_t i = 1; i < vertices; i++) distance[i] = UINT64_MAX;
    for (uint64_t added = 0, left = vertices - 1; left > 0; left--) {
        uint64_t nearest = 0;
        for (uint64_t i = 1; i < vertices; i++) {
            if (distance[i] == 0) continue;
            uint64_t to_added = weight_between(i, added);
            if (to_added < distance[i]) distance[i] = to_added;
            if (nearest == 0 || distance[i] < distance[nearest]) nearest = i;
        }
        weight += distance[nearest];
        distance[nearest] = 0;
        added = nearest;
    }
    return weight;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what do tables cost that are made one after another but looked up in turn?",
                (micro_option[]){{"vertices", &vertices, false, "of the graph, which is complete"},
                                 {"passes", &passes, true, "of the search"},
                                 {0}});
    micro_require(vertices >= 1 && vertices <= 65536, "1 to 65536 vertices");
    double start = micro_now();
    struct vertex *graph = graph_new();
    uint64_t expected = span_on_arrays(), digest = 0;
    for (uint64_t i = 0; i < passes; i++) {
        uint64_t weight = span(graph);
        if (weight != expected) micro_fail("a tree of weight %" PRIu64 " instead of %" PRIu64, weight, expected);
        digest = olden_fold(digest, weight);
    }
    printf("weight: %" PRIu64 "\n", expected);
    return micro_report(vertices * vertices * (passes + 1), micro_now() - start, digest);
}
