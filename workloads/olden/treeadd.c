/* How near to each other do the nodes of a tree lie that is built once, depth first, and walked again and again?
 *
 * Builds a complete binary tree and adds up its nodes, recursively. Each node holds 1, so the sum is the number of
 * nodes. After treeadd of the Olden suite (Rogers, Carlisle, Reppy, Hendren: Supporting dynamic data structures on
 * distributed-memory machines, 1995).
 */
#include "olden.h"

static uint64_t levels = 22, passes = 30;

struct node {
    int32_t value;
    struct node *left, *right;
};

static struct node *tree_new(uint64_t height)
{
    if (height == 0) return NULL;
    struct node *node = olden_new(sizeof *node);
    node->value = 1;
    node->right = tree_new(height - 1);
    node->left = tree_new(height - 1);
    return node;
}

static uint64_t tree_sum(const struct node *node)
{
    if (!node) return 0;
    return tree_sum(node->left) + tree_sum(node->right) + (uint64_t)node->value;
}

int main(int argc, char **argv)
{
    micro_parse(
        argc, argv, "how near do the nodes of a tree lie that is built once and walked again and again?",
        (micro_option[]){{"levels", &levels, false, "of the tree"}, {"passes", &passes, true, "over the tree"}, {0}});
    micro_require(levels >= 1 && levels <= 40, "1 to 40 levels");
    double start = micro_now();
    struct node *root = tree_new(levels);
    uint64_t nodes = ((uint64_t)1 << levels) - 1, digest = 0;
    for (uint64_t i = 0; i < passes; i++) {
        uint64_t sum = tree_sum(micro_opaque(root)); /* opaque, so that each pass is made */
        if (sum != nodes) micro_fail("the sum is %" PRIu64 " instead of %" PRIu64, sum, nodes);
        digest = olden_fold(digest, sum);
    }
    printf("sum: %" PRIu64 "\n", nodes);
    return micro_report(nodes * (passes + 1), micro_now() - start, digest);
}
