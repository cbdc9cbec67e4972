/* How near do the nodes of a quadtree lie whose walks go up and down again between neighbours?
 *
 * Builds the quadtree of a black-and-white image, a ring, and adds up the perimeter of what is black: each black
 * leaf looks for its neighbour on each of its four sides, up through the parents and down again. After perimeter
 * of the Olden suite, whose algorithm is Samet's (Computing perimeters of regions in images represented by
 * quadtrees, IEEE Transactions on Pattern Analysis and Machine Intelligence 3, 1981), and with its proportions:
 * the ring's radii are a quarter and an eighth of the image's side.
 *
 * The perimeter is known beforehand. A disc of pixels with a whole radius r around a corner of the grid is in one
 * piece in every row and column, so its perimeter is that of the square around it, 8 r; the ring has that of two
 * discs.
 */
#include "olden.h"

static uint64_t levels = 18, passes = 40;

enum colour { WHITE, BLACK, GREY };
enum side { NORTH, EAST, SOUTH, WEST, SIDES };
/* Two bits, one for each axis: east or west, south or north. */
enum quadrant { NORTH_WEST = 0, IN_EAST = 1, IN_SOUTH = 2, QUADRANTS = 4 };

struct node {
    enum colour colour;
    enum quadrant quadrant; /* of the parent, that this node is */
    struct node *children[QUADRANTS]; /* of a grey node */
    struct node *parent;
};

static uint64_t nodes;

/* ------------------------------------------------------------------------- image */

/* Distances are from the image's centre to the centres of pixels, in halves of a pixel: whole, odd numbers. */
struct range {
    int64_t least, most;
};

/* Of the pixels from `at` on, along one axis. */
static struct range distances(int64_t at, int64_t size, int64_t image)
{
    int64_t first = 2 * at + 1 - image, last = 2 * (at + size - 1) + 1 - image;
    if (first < 0 && last > 0) return (struct range){1, last}; /* the whole image, as blocks are aligned */
    return first > 0 ? (struct range){first, last} : (struct range){-last, -first};
}

static enum colour block_colour(int64_t x, int64_t y, int64_t size, int64_t image)
{
    struct range across = distances(x, size, image), down = distances(y, size, image);
    int64_t nearest = across.least * across.least + down.least * down.least;
    int64_t farthest = across.most * across.most + down.most * down.most;
    int64_t outer = (image / 2) * (image / 2), inner = (image / 4) * (image / 4);
    if (nearest >= outer || farthest < inner) return WHITE;
    return nearest >= inner && farthest < outer ? BLACK : GREY;
}

static struct node *tree_new(struct node *parent, enum quadrant quadrant, int64_t x, int64_t y, int64_t size,
                             int64_t image)
{
    struct node *node = olden_new(sizeof *node);
    *node = (struct node){.parent = parent, .quadrant = quadrant, .colour = block_colour(x, y, size, image)};
    nodes++;
    int64_t half = size / 2;
    for (enum quadrant i = NORTH_WEST; node->colour == GREY && i < QUADRANTS; i++)
        node->children[i] = tree_new(node, i, i & IN_EAST ? x + half : x, i & IN_SOUTH ? y + half : y, half, image);
    return node;
}

/* --------------------------------------------------------------------- perimeter */

static bool touches(enum quadrant quadrant, enum side side)
{
    switch (side) {
    case NORTH:
        return !(quadrant & IN_SOUTH);
    case SOUTH:
        return quadrant & IN_SOUTH;
    case WEST:
        return !(quadrant & IN_EAST);
    default:
        return quadrant & IN_EAST;
    }
}

static enum quadrant mirrored(enum quadrant quadrant, enum side side)
{
    return quadrant ^ (side == NORTH || side == SOUTH ? IN_SOUTH : IN_EAST);
}

static enum side opposite(enum side side)
{
    return (side + SIDES / 2) % SIDES;
}

/* The node next to this one on that side that is as large, or the leaf there that is larger; NULL outside the
 * image. */
static const struct node *neighbour(const struct node *node, enum side side)
{
    const struct node *around = node->parent;
    if (around && touches(node->quadrant, side)) around = neighbour(around, side);
    return around && around->colour == GREY ? around->children[mirrored(node->quadrant, side)] : around;
}

/* How much of a side of a node is white. */
static uint64_t white_along(const struct node *node, enum side side, uint64_t size)
{
    if (node->colour != GREY) return node->colour == WHITE ? size : 0;
    uint64_t sum = 0;
    for (enum quadrant i = NORTH_WEST; i < QUADRANTS; i++)
        if (touches(i, side)) sum += white_along(node->children[i], side, size / 2);
    return sum;
}

static uint64_t leaf_perimeter(const struct node *leaf, uint64_t size)
{
    uint64_t sum = 0;
    for (enum side side = NORTH; side < SIDES; side++) {
        const struct node *beside = neighbour(leaf, side);
        if (!beside || beside->colour == WHITE) sum += size;
        else if (beside->colour == GREY) sum += white_along(beside, opposite(side), size);
    }
    return sum;
}

static uint64_t perimeter(const struct node *node, uint64_t size)
{
    if (node->colour == WHITE) return 0;
    if (node->colour == BLACK) return leaf_perimeter(node, size);
    uint64_t sum = 0;
    for (enum quadrant i = NORTH_WEST; i < QUADRANTS; i++) sum += perimeter(node->children[i], size / 2);
    return sum;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how near do the nodes of a quadtree lie whose walks go from neighbour to neighbour?",
                (micro_option[]){{"levels", &levels, false, "of the tree; the image's side is 2 to this power"},
                                 {"passes", &passes, true, "over the tree"},
                                 {0}});
    micro_require(levels >= 3 && levels <= 28, "3 to 28 levels");
    double start = micro_now();
    uint64_t side = (uint64_t)1 << levels, expected = 8 * (side / 4 + side / 8), digest = 0;
    struct node *root = tree_new(NULL, NORTH_WEST, 0, 0, (int64_t)side, (int64_t)side);
    for (uint64_t i = 0; i < passes; i++) {
        uint64_t found = perimeter(micro_opaque(root), side); /* opaque, so that each pass is made */
        if (found != expected) micro_fail("a perimeter of %" PRIu64 " instead of %" PRIu64, found, expected);
        digest = olden_fold(digest, found);
    }
    printf("perimeter: %" PRIu64 "\nnodes: %" PRIu64 "\n", expected, nodes);
    return micro_report(nodes * (passes + 1), micro_now() - start, digest);
}
