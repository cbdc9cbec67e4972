/* What do walks cost along a list that leads through the nodes of a tree in another order than they were made in?
 *
 * Finds a short tour through all cities. They stand in a balanced binary tree that parts the map in halves,
 * alternately from north to south and from east to west. Parts of a few cities get tours by the closest-point
 * heuristic; the tours of two halves and the city between are then joined where it costs least. The tours are
 * circular, doubly linked lists through the tree's nodes. After tsp of the Olden suite, whose algorithm is Karp's
 * (Probabilistic analysis of partitioning algorithms for the traveling-salesman problem in the plane, Mathematics
 * of Operations Research 2, 1977).
 */
#include "olden.h"
#include <float.h>
#include <math.h>

static uint64_t levels = 21, part = 150;

struct city {
    uint32_t count; /* of the cities of its subtree */
    double x, y;
    struct city *left, *right;
    struct city *next, *previous; /* on the tour */
};

struct map {
    double west, east, south, north;
};

/* --------------------------------------------------------------------------- tree */

/* Where the middle one of `count` cities lies that are anywhere between `low` and `high`: near the middle, the
 * nearer the more there are. Its deviation is that of the median of uniform numbers, its shape the sum of some. */
static double random_median(micro_random *random, double low, double high, uint64_t count)
{
    enum { DRAWN = 12 }; /* the sum of so many has variance 1 */
    double sum = -DRAWN / 2.0, width = high - low;
    for (unsigned i = 0; i < DRAWN; i++) sum += micro_unit(random);
    double median = (low + high) / 2 + sum * width / (2 * sqrt((double)count + 2));
    return median > low && median < high ? median : (low + high) / 2;
}

static double random_between(micro_random *random, double low, double high)
{
    return low + (high - low) * micro_unit(random);
}

/* `count` cities, as many in one half as in the other. */
static struct city *tree_new(uint64_t count, struct map map, bool by_x, micro_random *random)
{
    if (count == 0) return NULL;
    struct city *city = olden_new(sizeof *city);
    struct map lower = map, upper = map;
    city->count = (uint32_t)count;
    if (by_x) {
        city->x = lower.east = upper.west = random_median(random, map.west, map.east, count);
        city->y = random_between(random, map.south, map.north);
    } else {
        city->y = lower.north = upper.south = random_median(random, map.south, map.north, count);
        city->x = random_between(random, map.west, map.east);
    }
    city->left = tree_new(count / 2, lower, !by_x, random);
    city->right = tree_new(count / 2, upper, !by_x, random);
    return city;
}

/* -------------------------------------------------------------------------- tours */

static double distance(const struct city *one, const struct city *other)
{
    double x = one->x - other->x, y = one->y - other->y;
    return sqrt(x * x + y * y);
}

static void follow(struct city *city, struct city *next)
{
    city->next = next;
    next->previous = city;
}

/* The city of a tour that is nearest to one outside. */
static struct city *nearest(struct city *tour, const struct city *outside)
{
    struct city *best = tour, *city = tour;
    double least = DBL_MAX;
    do {
        double x = city->x - outside->x, y = city->y - outside->y, square = x * x + y * y;
        if (square < least) {
            least = square;
            best = city;
        }
        city = city->next;
    } while (city != tour);
    return best;
}

/* That neighbour of `city` between which two a city outside fits better. */
static struct city *better_neighbour(const struct city *city, const struct city *outside)
{
    double to_next = distance(city->next, outside) - distance(city->next, city);
    double to_previous = distance(city->previous, outside) - distance(city->previous, city);
    return to_next < to_previous ? city->next : city->previous;
}

static void reverse(struct city *tour)
{
    struct city *city = tour;
    do {
        struct city *next = city->next;
        city->next = city->previous;
        city->previous = next;
        city = next;
    } while (city != tour);
}

/* -------------------------------------------------------------- closest-point tours */

/* Chains a subtree up by `next`, before `rest`. */
static struct city *chain(struct city *tree, struct city *rest)
{
    if (!tree) return rest;
    tree->next = chain(tree->left, chain(tree->right, rest));
    return tree;
}

/* Each city in turn is put beside the nearest of those that are on the tour. */
static struct city *small_tour(struct city *tree)
{
    struct city *left = chain(tree, NULL)->next;
    follow(tree, tree);
    while (left) {
        struct city *city = left;
        left = city->next;
        struct city *beside = nearest(tree, city), *other = better_neighbour(beside, city);
        struct city *before = beside->next == other ? beside : other;
        struct city *after = before == beside ? other : beside;
        follow(before, city);
        follow(city, after);
    }
    return tree;
}

/* ------------------------------------------------------------------------- joining */

/* Where a tour is opened: between two neighbours, of which `inner` is joined to the city between both tours and
 * `outer` to the other tour's. */
struct opening {
    struct city *inner, *outer;
};

static double opening_cost(struct opening one, struct opening other, const struct city *between)
{
    return distance(one.inner, between) + distance(between, other.inner) + distance(one.outer, other.outer);
}

static struct opening turned(struct opening opening)
{
    return (struct opening){.inner = opening.outer, .outer = opening.inner};
}

/* Of the four ways to join two tours that are opened at these places, turns both openings to the shortest. */
static void choose(struct opening *one, struct opening *other, const struct city *between)
{
    struct opening ones[] = {*one, turned(*one)}, others[] = {*other, turned(*other)};
    double least = DBL_MAX;
    for (unsigned i = 0; i < MICRO_COUNT(ones) * MICRO_COUNT(others); i++) {
        double cost = opening_cost(ones[i / 2], others[i % 2], between);
        if (cost >= least) continue;
        least = cost;
        *one = ones[i / 2];
        *other = others[i % 2];
    }
}

static struct opening open_near(struct city *tour, const struct city *between)
{
    struct city *inner = nearest(tour, between);
    return (struct opening){.inner = inner, .outer = better_neighbour(inner, between)};
}

/* ... one.outer .. one.inner, between, other.inner .. other.outer ... */
static struct city *join(struct city *left, struct city *right, struct city *between)
{
    struct opening one = open_near(left, between), other = open_near(right, between);
    choose(&one, &other, between);
    if (one.inner->next != one.outer) reverse(left);
    if (other.outer->next != other.inner) reverse(right);
    follow(one.inner, between);
    follow(between, other.inner);
    follow(other.outer, one.outer);
    return between;
}

static struct city *tour_new(struct city *tree)
{
    if (tree->count <= part) return small_tour(tree);
    struct city *left = tour_new(tree->left), *right = tour_new(tree->right);
    return join(left, right, tree);
}

/* ----------------------------------------------------------------------- checking */

static uint64_t city_number(const struct city *city)
{
    return micro_mix(olden_bits(city->x) ^ micro_mix(olden_bits(city->y)));
}

/* The same on whatever way. */
static uint64_t tree_numbers(const struct city *tree)
{
    return tree ? tree_numbers(tree->left) + tree_numbers(tree->right) + city_number(tree) : 0;
}

/* Walks the tour, which must hold every city once; returns its digest and adds up its length. */
static uint64_t tour_digest(const struct city *tour, double *length)
{
    uint64_t left = tour->count, numbers = 0, digest = 0;
    const struct city *city = tour;
    do {
        if (left-- == 0 || city->next->previous != city) micro_fail("the tour does not hold together");
        numbers += city_number(city);
        digest = olden_fold(digest, city_number(city));
        *length += distance(city, city->next);
        city = city->next;
    } while (city != tour);
    if (left != 0 || numbers != tree_numbers(tour)) micro_fail("the tour leaves cities out");
    return digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what do walks cost along a list through nodes that were made in another order?",
                (micro_option[]){{"levels", &levels, false, "of the tree; cities: 2 to this power, less 1"},
                                 {"part", &part, false, "at most so many cities get a tour by themselves"},
                                 {0}});
    micro_require(levels >= 1 && levels <= 32 && part >= 2, "1 to 32 levels, parts of 2 cities at least");
    double start = micro_now(), length = 0;
    micro_random random = micro_random_start(0);
    uint64_t cities = ((uint64_t)1 << levels) - 1;
    struct city *tree = tree_new(cities, (struct map){0, 1, 0, 1}, true, &random);
    uint64_t digest = tour_digest(tour_new(tree), &length);
    printf("cities: %" PRIu64 "\nlength: %.6f\n", cities, length);
    return micro_report(cities, micro_now() - start, digest);
}
