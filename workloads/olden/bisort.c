/* What becomes of a tree's layout when a program exchanges its subtrees?
 *
 * Sorts the numbers in a complete binary tree, upwards and then downwards. The tree's in-order sequence and one
 * number more, the *spare*, are what is sorted. The sort is bitonic: the left half is sorted upwards, the right
 * half downwards, then both are merged; the merge exchanges whole subtrees by their pointers, so that of the order
 * in which the nodes were made less is left with every merge. After bisort of the Olden suite, whose algorithm is
 * that of Bilardi and Nicolau (Adaptive bitonic sorting, SIAM Journal on Computing 18, 1989).
 */
#include "olden.h"

static uint64_t levels = 21;

struct node {
    int32_t value;
    struct node *left, *right;
};

enum direction { UPWARDS, DOWNWARDS };

/* -------------------------------------------------------------------------- tree */

static int32_t number_new(micro_random *random)
{
    return (int32_t)(micro_next(random) >> 33);
}

static struct node *tree_new(uint64_t height, micro_random *random)
{
    if (height == 0) return NULL;
    struct node *node = olden_new(sizeof *node);
    node->value = number_new(random);
    node->left = tree_new(height - 1, random);
    node->right = tree_new(height - 1, random);
    return node;
}

/* The same however the numbers are ordered. */
static uint64_t tree_numbers(const struct node *node)
{
    if (!node) return 0;
    return tree_numbers(node->left) + tree_numbers(node->right) + micro_mix((uint64_t)node->value);
}

/* ----------------------------------------------------------------------- sorting */

static bool misplaced(int32_t first, int32_t second, enum direction direction)
{
    return direction == UPWARDS ? first > second : first < second;
}

static void values_exchange(struct node *one, struct node *other)
{
    int32_t value = one->value;
    one->value = other->value;
    other->value = value;
}

static void left_exchange(struct node *one, struct node *other)
{
    struct node *left = one->left;
    one->left = other->left;
    other->left = left;
}

static void right_exchange(struct node *one, struct node *other)
{
    struct node *right = one->right;
    one->right = other->right;
    other->right = right;
}

/* Walks down the two halves of a bitonic sequence side by side and exchanges what belongs into the other half.
 * Where a pair is to be exchanged, so are all pairs on one side of it: a subtree. On which side depends on whether
 * the roots were (`crossed`); the search goes on on the other side. */
static void halves_part(struct node *low, struct node *high, bool crossed, enum direction direction)
{
    while (low) {
        bool exchange = misplaced(low->value, high->value, direction);
        if (exchange) values_exchange(low, high);
        if (exchange && crossed) right_exchange(low, high);
        if (exchange && !crossed) left_exchange(low, high);
        bool to_left = exchange == crossed;
        low = to_left ? low->left : low->right;
        high = to_left ? high->left : high->right;
    }
}

/* Sorts a bitonic sequence; both functions return the last number. */
static int32_t merge(struct node *root, int32_t spare, enum direction direction)
{
    bool crossed = misplaced(root->value, spare, direction);
    if (crossed) {
        int32_t value = root->value;
        root->value = spare;
        spare = value;
    }
    halves_part(root->left, root->right, crossed, direction);
    if (!root->left) return spare;
    root->value = merge(root->left, root->value, direction);
    return merge(root->right, spare, direction);
}

static int32_t sort(struct node *root, int32_t spare, enum direction direction)
{
    if (root->left) {
        root->value = sort(root->left, root->value, direction);
        spare = sort(root->right, spare, direction == UPWARDS ? DOWNWARDS : UPWARDS);
    }
    return merge(root, spare, direction);
}

/* ---------------------------------------------------------------------- checking */

struct walk {
    enum direction direction;
    int32_t last;
    uint64_t digest;
};

static void walk_number(struct walk *walk, int32_t value)
{
    if (misplaced(walk->last, value, walk->direction))
        micro_fail("%" PRId32 " and %" PRId32 " are not in order", walk->last, value);
    walk->last = value;
    walk->digest = olden_fold(walk->digest, (uint64_t)value);
}

static void walk_tree(struct walk *walk, const struct node *node)
{
    if (!node) return;
    walk_tree(walk, node->left);
    walk_number(walk, node->value);
    walk_tree(walk, node->right);
}

/* The digest of the sequence, which must be sorted. */
static uint64_t sorted_digest(const struct node *root, int32_t spare, enum direction direction)
{
    struct walk walk = {.direction = direction, .last = direction == UPWARDS ? INT32_MIN : INT32_MAX};
    walk_tree(&walk, root);
    walk_number(&walk, spare);
    return walk.digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what becomes of a tree's layout when a program exchanges its subtrees?",
                (micro_option[]){{"levels", &levels, false, "of the tree"}, {0}});
    micro_require(levels >= 1 && levels <= 40, "1 to 40 levels");
    double start = micro_now();
    micro_random random = micro_random_start(0);
    struct node *root = tree_new(levels, &random);
    int32_t spare = number_new(&random);
    uint64_t numbers = tree_numbers(root) + micro_mix((uint64_t)spare), digest = 0;
    for (enum direction direction = UPWARDS; direction <= DOWNWARDS; direction++) {
        spare = sort(root, spare, direction);
        digest = olden_fold(digest, sorted_digest(root, spare, direction));
    }
    if (tree_numbers(root) + micro_mix((uint64_t)spare) != numbers) micro_fail("the numbers are not those of before");
    printf("numbers: %" PRIu64 "\n", (uint64_t)1 << levels);
    return micro_report(((uint64_t)1 << levels) * levels * 2, micro_now() - start, digest);
}
