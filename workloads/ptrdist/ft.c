/* How long is the minimum spanning tree of a random graph?
 *
 * A relative of ft from the pointer-intensive benchmarks of Austin, Breach and Sohi ("Efficient detection of all
 * pointer and array access errors", PLDI 1994): Prim's algorithm over a Fibonacci heap (Fredman and Tarjan 1987).
 * Vertices are a list, each with a list of its edges; an edge is two objects, one for each end, allocated one after
 * the other. The result is compared with Kruskal's, which works on tables that no allocator knows of.
 */
#include "../micro/micro.h"

static uint64_t vertex_count = 150000, connections = 1500000;

enum { WEIGHTS = 1 << 20, DEGREES_MAX = 64 };

struct edge {
    struct vertex *source, *target;
    struct edge *next;
    uint32_t weight;
};

struct vertex {
    struct vertex *next;
    struct edge *edges;
    struct edge *chosen; /* the lightest that leads here from the tree */
    struct node *node; /* while it waits */
    uint32_t id;
    bool in_tree;
};

/* Of the Fibonacci heap: siblings are a ring. */
struct node {
    struct node *parent, *child, *left, *right;
    struct vertex *vertex;
    uint32_t key;
    uint16_t degree;
    bool marked; /* it has lost a child since it became one */
};

/* ------------------------------------------------------------------ Fibonacci heap */

static struct node *minimum;

static void ring_join(struct node *a, struct node *b)
{
    struct node *after = a->right, *last = b->left;
    a->right = b;
    b->left = a;
    last->right = after;
    after->left = last;
}

static void ring_leave(struct node *node)
{
    node->left->right = node->right;
    node->right->left = node->left;
    node->left = node->right = node;
}

static void root_add(struct node *node)
{
    node->parent = NULL;
    node->marked = false;
    if (minimum) ring_join(minimum, node);
    if (!minimum || node->key < minimum->key) minimum = node;
}

static struct node *heap_insert(struct vertex *vertex, uint32_t key)
{
    struct node *node = BLOCK_OF(struct node);
    *node = (struct node){.left = node, .right = node, .vertex = vertex, .key = key};
    root_add(node);
    return node;
}

static struct node *tree_link(struct node *upper, struct node *lower)
{
    if (lower->key < upper->key) return tree_link(lower, upper);
    lower->parent = upper;
    lower->marked = false;
    if (upper->child) ring_join(upper->child, lower);
    else upper->child = lower;
    upper->degree++;
    return upper;
}

/* Makes of the ring of roots one with a root of each degree at most. */
static void consolidate(struct node *roots)
{
    struct node *by_degree[DEGREES_MAX] = {0};
    while (roots) {
        struct node *node = roots, *other;
        roots = node->right == node ? NULL : node->right;
        ring_leave(node);
        while ((other = by_degree[node->degree])) {
            by_degree[node->degree] = NULL;
            node = tree_link(node, other);
        }
        by_degree[node->degree] = node;
    }
    minimum = NULL;
    for (size_t i = 0; i < DEGREES_MAX; i++)
        if (by_degree[i]) root_add(by_degree[i]);
}

static struct vertex *heap_extract(void)
{
    struct node *first = minimum;
    struct vertex *vertex = first->vertex;
    if (first->child) ring_join(first, first->child);
    struct node *rest = first->right == first ? NULL : first->right;
    ring_leave(first);
    free(first);
    consolidate(rest);
    return vertex;
}

static void cut(struct node *node)
{
    struct node *parent = node->parent;
    if (parent->child == node) parent->child = node->right == node ? NULL : node->right;
    parent->degree--;
    ring_leave(node);
    root_add(node);
}

static void heap_decrease(struct node *node, uint32_t key)
{
    node->key = key;
    struct node *parent = node->parent;
    if (parent && key < parent->key) {
        cut(node);
        for (node = parent; node->parent && node->marked; node = parent) {
            parent = node->parent;
            cut(node);
        }
        node->marked = true; /* of a root it means nothing: it is cleared when the root becomes a child */
    } else if (!parent && key < minimum->key) {
        minimum = node;
    }
}

/* ------------------------------------------------------------------ graph */

static struct vertex **vertices; /* by number: to pick them at random only */

/* What Kruskal works on. */
struct pair {
    uint32_t one, other, weight;
};
static struct pair *pairs;
static uint64_t pair_count;

static struct vertex *vertices_new(void)
{
    struct vertex *first = NULL;
    for (uint64_t i = vertex_count; i-- > 0;) {
        struct vertex *vertex = BLOCK_OF(struct vertex);
        *vertex = (struct vertex){.next = first, .id = (uint32_t)i};
        first = vertices[i] = vertex;
    }
    return first;
}

static void connect(struct vertex *one, struct vertex *other, uint32_t weight)
{
    struct edge *there = BLOCK_OF(struct edge);
    *there = (struct edge){one, other, one->edges, weight};
    one->edges = there;
    struct edge *back = BLOCK_OF(struct edge);
    *back = (struct edge){other, one, other->edges, weight};
    other->edges = back;
    pairs[pair_count++] = (struct pair){one->id, other->id, weight};
}

/* First a random tree, so that all hang together, then for each vertex in turn some more. */
static struct vertex *graph_new(micro_random *random)
{
    struct vertex *first = vertices_new();
    for (uint64_t i = 1; i < vertex_count; i++)
        connect(vertices[i], vertices[micro_below(random, i)], (uint32_t)micro_below(random, WEIGHTS));
    for (uint64_t i = 0; pair_count < connections; i = (i + 1) % vertex_count)
        for (int j = 0; j < 8 && pair_count < connections; j++) {
            uint64_t other = micro_below(random, vertex_count);
            if (other != i) connect(vertices[i], vertices[other], (uint32_t)micro_below(random, WEIGHTS));
        }
    return first;
}

static void graph_free(struct vertex *vertex)
{
    while (vertex) {
        struct vertex *next = vertex->next;
        for (struct edge *edge = vertex->edges; edge;) {
            struct edge *rest = edge->next;
            free(edge);
            edge = rest;
        }
        free(vertex);
        vertex = next;
    }
}

/* ------------------------------------------------------------------ spanning trees */

static void reach(struct edge *edge)
{
    struct vertex *target = edge->target;
    if (target->in_tree || (target->node && target->node->key <= edge->weight)) return;
    target->chosen = edge;
    if (target->node) heap_decrease(target->node, edge->weight);
    else target->node = heap_insert(target, edge->weight);
}

static void prim(struct vertex *start)
{
    start->node = heap_insert(start, 0);
    while (minimum) {
        struct vertex *vertex = heap_extract();
        vertex->in_tree = true;
        vertex->node = NULL;
        for (struct edge *edge = vertex->edges; edge; edge = edge->next) reach(edge);
    }
}

static uint64_t tree_weight(const struct vertex *vertex)
{
    uint64_t weight = 0, edges = 0;
    for (; vertex; vertex = vertex->next)
        if (vertex->chosen) {
            weight += vertex->chosen->weight;
            edges++;
        }
    if (edges != vertex_count - 1) micro_fail("the tree has %" PRIu64 " edges", edges);
    return weight;
}

static uint32_t root_of(uint32_t *parents, uint32_t i)
{
    for (; parents[i] != i; i = parents[i]) parents[i] = parents[parents[i]];
    return i;
}

/* The pairs in the order of their weights, by counting. */
static uint32_t *pairs_sorted(void)
{
    uint32_t *starts = micro_map((WEIGHTS + 1) * sizeof *starts), *order = micro_map(pair_count * sizeof *order);
    for (uint64_t i = 0; i < pair_count; i++) starts[pairs[i].weight + 1]++;
    for (uint32_t i = 0; i < WEIGHTS; i++) starts[i + 1] += starts[i];
    for (uint32_t i = 0; i < pair_count; i++) order[starts[pairs[i].weight]++] = i;
    return order;
}

static uint64_t kruskal_weight(void)
{
    uint32_t *order = pairs_sorted(), *parents = micro_map(vertex_count * sizeof *parents);
    uint64_t weight = 0;
    for (uint32_t i = 0; i < vertex_count; i++) parents[i] = i;
    for (uint64_t i = 0; i < pair_count; i++) {
        const struct pair *pair = &pairs[order[i]];
        uint32_t one = root_of(parents, pair->one), other = root_of(parents, pair->other);
        if (one == other) continue;
        parents[one] = other;
        weight += pair->weight;
    }
    return weight;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how long is the minimum spanning tree of a random graph?",
                (micro_option[]){{"vertices", &vertex_count, true, "of the graph"},
                                 {"connections", &connections, true, "between them, two edges each"},
                                 {0}});
    micro_require(vertex_count >= 2 && connections >= vertex_count && connections < UINT32_MAX,
                  "2 vertices at least, and as many connections");
    vertices = micro_map(vertex_count * sizeof *vertices);
    pairs = micro_map((connections + vertex_count) * sizeof *pairs);
    micro_random random = micro_random_start(0);
    double start = micro_now();
    struct vertex *graph = graph_new(&random);
    prim(graph);
    uint64_t weight = tree_weight(graph);
    graph_free(graph);
    double seconds = micro_now() - start;
    if (weight != kruskal_weight()) micro_fail("the tree weighs %" PRIu64 ", and there is another", weight);
    return micro_report(pair_count, seconds, weight);
}
