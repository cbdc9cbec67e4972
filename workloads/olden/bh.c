/* What does a tree cost that is built over long-lived objects, dropped and built again at every step?
 *
 * Moves bodies under their gravitation: at each step an octree is built over them, whose cells stand for all
 * bodies in them wherever they are far enough away; then it is dropped. The bodies live from the start to the end,
 * in a list. After bh of the Olden suite, whose algorithm is that of Barnes and Hut (A hierarchical O(N log N)
 * force-calculation algorithm, Nature 324, 1986), and which starts from a cluster as Plummer's model has it
 * (Aarseth, Henon, Wielen: A comparison of numerical methods for the study of star cluster dynamics, 1974).
 *
 * The forces on some bodies are checked against sums over all others.
 */
#include "olden.h"
#include <math.h>

static uint64_t bodies = 160000, steps = 2, angle = 100;

enum { AXES = 3, OCTANTS = 8, DEEPEST = 64, SAMPLES = 16 };

static const double SOFTENING = 0.05; /* bodies nearer than about this attract each other less */
static const double STEP = 0.0125; /* of time */
static const double TOLERATED = 0.1; /* mean relative error of a force; at the usual angle it is near 0.01 */

struct vector {
    double axis[AXES];
};

/* What a tree is made of: a body or a cell, either begins with this. */
struct node {
    bool is_body;
    double mass;
    struct vector place; /* of a cell: the centre of its masses */
};

struct body {
    struct node node;
    struct vector velocity, acceleration;
    double potential;
    struct body *next;
};

struct cell {
    struct node node;
    struct node *children[OCTANTS];
};

struct box {
    struct vector centre;
    double half; /* of its side */
};

/* ------------------------------------------------------------------------ vectors */

static struct vector added(struct vector one, struct vector other, double times)
{
    for (unsigned i = 0; i < AXES; i++) one.axis[i] += other.axis[i] * times;
    return one;
}

static double product(struct vector one, struct vector other)
{
    double sum = 0;
    for (unsigned i = 0; i < AXES; i++) sum += one.axis[i] * other.axis[i];
    return sum;
}

/* In any direction, with equal chances. */
static struct vector random_direction(micro_random *random)
{
    struct vector vector;
    double square;
    do {
        for (unsigned i = 0; i < AXES; i++) vector.axis[i] = 2 * micro_unit(random) - 1;
        square = product(vector, vector);
    } while (square > 1 || square < 1e-4);
    return added((struct vector){0}, vector, 1 / sqrt(square));
}

/* ------------------------------------------------------------------------ cluster */

/* The share of the escape velocity that a body has, by rejection. */
static double random_speed(micro_random *random)
{
    double speed, chance;
    do {
        speed = micro_unit(random);
        chance = micro_unit(random) / 10;
    } while (chance > speed * speed * pow(1 - speed * speed, 3.5));
    return speed;
}

/* Distances from the centre in units of Plummer's radius; the farthest are left out. */
static double random_distance(micro_random *random)
{
    double distance;
    do distance = 1 / sqrt(pow(micro_unit(random), -2.0 / 3) - 1);
    while (!(distance < 9));
    return distance;
}

static struct body *body_new(micro_random *random)
{
    struct body *body = olden_new(sizeof *body);
    *body = (struct body){.node = {.is_body = true, .mass = 1.0 / (double)bodies}};
    double distance = random_distance(random), escape = sqrt(2) * pow(1 + distance * distance, -0.25);
    body->node.place = added(body->node.place, random_direction(random), distance);
    body->velocity = added(body->velocity, random_direction(random), escape * random_speed(random));
    return body;
}

static struct body *cluster_new(void)
{
    micro_random random = micro_random_start(0);
    struct body *first = NULL, **link = &first;
    for (uint64_t i = 0; i < bodies; i++) {
        *link = body_new(&random);
        link = &(*link)->next;
    }
    return first;
}

/* --------------------------------------------------------------------------- tree */

/* The cube around the origin that holds all bodies. */
static struct box box_around(const struct body *first)
{
    struct box box = {.half = 1};
    for (const struct body *body = first; body; body = body->next)
        for (unsigned i = 0; i < AXES; i++)
            while (fabs(body->node.place.axis[i]) >= box.half) box.half *= 2;
    return box;
}

/* Which eighth of a box a place is in; the box becomes that eighth. */
static unsigned box_enter(struct box *box, struct vector place)
{
    unsigned octant = 0;
    box->half /= 2;
    for (unsigned i = 0; i < AXES; i++) {
        bool above = place.axis[i] >= box->centre.axis[i];
        octant |= (unsigned)above << i;
        box->centre.axis[i] += above ? box->half : -box->half;
    }
    return octant;
}

static struct cell *cell_new(void)
{
    struct cell *cell = olden_new(sizeof *cell);
    *cell = (struct cell){0};
    return cell;
}

/* A body's way down to an empty place; where another body stands, both go down further in a new cell. */
static void tree_add(struct cell *cell, struct box box, struct body *body)
{
    for (unsigned depth = 0; depth < DEEPEST; depth++) {
        struct node **child = &cell->children[box_enter(&box, body->node.place)];
        if (!*child) {
            *child = &body->node;
            return;
        }
        if ((*child)->is_body) {
            struct box inner = box;
            struct node *other = *child;
            struct cell *between = cell_new();
            between->children[box_enter(&inner, other->place)] = other;
            *child = &between->node;
        }
        cell = (struct cell *)*child;
    }
    micro_fail("two bodies are at one place");
}

/* Masses of all cells, from below. */
static void tree_weigh(struct cell *cell)
{
    for (unsigned i = 0; i < OCTANTS; i++) {
        struct node *child = cell->children[i];
        if (!child) continue;
        if (!child->is_body) tree_weigh((struct cell *)child);
        cell->node.mass += child->mass;
        cell->node.place = added(cell->node.place, child->place, child->mass);
    }
    for (unsigned i = 0; i < AXES; i++) cell->node.place.axis[i] /= cell->node.mass;
}

static struct cell *tree_new(struct body *first, struct box box)
{
    struct cell *root = cell_new();
    for (struct body *body = first; body; body = body->next) tree_add(root, box, body);
    tree_weigh(root);
    return root;
}

static uint64_t tree_free(struct cell *cell)
{
    uint64_t cells = 1;
    for (unsigned i = 0; i < OCTANTS; i++)
        if (cell->children[i] && !cell->children[i]->is_body) cells += tree_free((struct cell *)cell->children[i]);
    free(cell);
    return cells;
}

/* ------------------------------------------------------------------------- forces */

static void attract(struct body *body, const struct node *other)
{
    struct vector way = added(other->place, body->node.place, -1);
    double square = product(way, way) + SOFTENING * SOFTENING, pull = other->mass / sqrt(square);
    body->potential -= pull;
    body->acceleration = added(body->acceleration, way, pull / square);
}

/* `near` is the square of the distance below which a cell of this depth is opened. */
static void attract_tree(struct body *body, const struct cell *cell, double near)
{
    for (unsigned i = 0; i < OCTANTS; i++) {
        const struct node *child = cell->children[i];
        if (!child || child == &body->node) continue;
        struct vector way = added(child->place, body->node.place, -1);
        if (child->is_body || product(way, way) >= near) attract(body, child);
        else attract_tree(body, (const struct cell *)child, near / 4);
    }
}

static void forces(struct body *first, const struct cell *root, struct box box)
{
    double reach = angle ? box.half * 100 / (double)angle : INFINITY; /* the root's children have that side */
    for (struct body *body = first; body; body = body->next) {
        body->acceleration = (struct vector){0};
        body->potential = 0;
        attract_tree(body, root, reach * reach);
    }
}

static void move(struct body *first)
{
    for (struct body *body = first; body; body = body->next) {
        body->velocity = added(body->velocity, body->acceleration, STEP);
        body->node.place = added(body->node.place, body->velocity, STEP);
    }
}

/* ----------------------------------------------------------------------- checking */

/* How far off the acceleration of a body is, as a share of what it should be. */
static double force_error(const struct body *first, const struct body *body)
{
    struct body exact = *body;
    exact.acceleration = (struct vector){0};
    for (const struct body *other = first; other; other = other->next)
        if (other != body) attract(&exact, &other->node);
    struct vector off = added(body->acceleration, exact.acceleration, -1);
    double square = product(exact.acceleration, exact.acceleration);
    return square > 0 ? sqrt(product(off, off) / square) : 0;
}

/* The mean of some bodies. */
static double mean_force_error(const struct body *first)
{
    uint64_t number = 0, every = bodies / SAMPLES + 1, samples = 0;
    double sum = 0;
    for (const struct body *body = first; body; body = body->next) {
        if (number++ % every != 0) continue;
        sum += force_error(first, body);
        samples++;
    }
    return sum / (double)samples;
}

static uint64_t cluster_digest(const struct body *first)
{
    uint64_t digest = 0;
    for (const struct body *body = first; body; body = body->next)
        for (unsigned i = 0; i < AXES; i++) digest = olden_fold(digest, olden_bits(body->node.place.axis[i]));
    return digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does a tree cost that is dropped and built again at every step?",
                (micro_option[]){{"bodies", &bodies, false, "that attract each other"},
                                 {"steps", &steps, true, "of time"},
                                 {"angle", &angle, false, "percent that a cell's side may be of its distance"},
                                 {0}});
    micro_require(bodies >= 1 && bodies < UINT32_MAX, "1 body at least, less than 2^32");
    double start = micro_now(), error = 0;
    struct body *first = cluster_new();
    uint64_t cells = 0;
    for (uint64_t i = 0; i < steps; i++) {
        struct box box = box_around(first);
        struct cell *root = tree_new(first, box);
        forces(first, root, box);
        if (i == 0) error = mean_force_error(first);
        move(first);
        cells += tree_free(root);
    }
    if (!(error < TOLERATED)) micro_fail("forces are off by %g of what they should be", error);
    printf("force error: %.6f\ncells: %" PRIu64 "\n", error, cells);
    return micro_report(bodies * steps + cells, micro_now() - start, cluster_digest(first));
}
