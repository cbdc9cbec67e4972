/* Which of the objects that it has learnt does a neural network see in an image?
 *
 * A relative of 179.art of SPEC CPU 2000: adaptive resonance (Carpenter and Grossberg, "ART 2: self-organization of
 * stable category recognition codes for analog input patterns", Applied Optics 1987). For each of the many cells of
 * the first layer there are three small arrays, each a block of its own: what it sees, and its weights to and from
 * each of the few cells of the second layer. The weights are walked one category after another, so that a sweep
 * touches one word of each of these arrays. Images are made from a seed: smooth ones that are learnt, noisy copies
 * to be recognised.
 */
#include "../micro/micro.h"

#include <math.h>

static uint64_t cell_count = 160000, categories = 10, sweeps = 2, noise = 10;

static const double A = 10, B = 10, THETA = 0.001, WINNER = 0.9, VIGILANCE = 0.85, SMALL = 1e-12;
enum { LEARNING = 4, SETTLING = 3, SEEN_WORDS = 2 };

/* A cell of the first layer: the stages that its signal goes through. */
struct cell {
    double *seen; /* SEEN_WORDS: now, and before it was normalised */
    double w, x, v, u, p, q, r;
};

static struct cell *cells;
static double **up, **down; /* weights: of a cell to and from each category */
static double *activity; /* of the categories */
static bool *learnt, *refused;

/* ------------------------------------------------------------------ the network */

/* What a weight is before anything is learnt: small enough that a learnt category always comes first. */
static double blank_weight(void)
{
    return 1 / ((1 - WINNER) * sqrt((double)cell_count)) / 16;
}

static void cell_new(uint64_t i)
{
    cells[i].seen = BLOCK_ARRAY(double, SEEN_WORDS);
    up[i] = BLOCK_ARRAY(double, categories);
    down[i] = BLOCK_ARRAY(double, categories);
    for (uint64_t j = 0; j < categories; j++) {
        up[i][j] = blank_weight();
        down[i][j] = 0;
    }
}

static void network_new(void)
{
    cells = BLOCK_ARRAY(struct cell, cell_count);
    up = BLOCK_ARRAY(double *, cell_count);
    down = BLOCK_ARRAY(double *, cell_count);
    activity = BLOCK_ARRAY(double, categories);
    learnt = micro_map(categories);
    refused = micro_map(categories);
    for (uint64_t i = 0; i < cell_count; i++) cell_new(i);
}

static void network_free(void)
{
    for (uint64_t i = 0; i < cell_count; i++) {
        free(cells[i].seen);
        free(up[i]);
        free(down[i]);
    }
    free(cells);
    free(up);
    free(down);
    free(activity);
}

/* ------------------------------------------------------------------ images */

/* A smooth image: which it is decides how many waves there are, the seed where. */
static void image_show(uint64_t image, uint64_t percent, micro_random *random)
{
    uint64_t width = (uint64_t)sqrt((double)cell_count);
    double place = (double)(micro_mix(micro_seed + image) % 628) / 100;
    for (uint64_t i = 0; i < cell_count; i++) {
        double x = (double)(i % width) / (double)width, y = (double)(i / width) / (double)width;
        double wave = sin(6.28 * x * (double)(image + 1) + place) * cos(6.28 * y * (double)(image % 3 + 1));
        double error = (micro_unit(random) - 0.5) * (double)percent / 100;
        cells[i].seen[1] = wave > 0 ? wave + error : 0.02 + error / 8;
    }
}

/* ------------------------------------------------------------------ the first layer */

static double threshold(double signal)
{
    return signal > THETA ? signal : 0;
}

static double norm_of_seen(void)
{
    double sum = 0;
    for (uint64_t i = 0; i < cell_count; i++) sum += cells[i].seen[1] * cells[i].seen[1];
    return sqrt(sum) + SMALL;
}

/* The signal goes round between the stages; `winner` adds what it expects, if there is one. */
static void settle_once(int64_t winner)
{
    double w_sum = 0, v_sum = 0, p_sum = 0;
    for (uint64_t i = 0; i < cell_count; i++) {
        cells[i].w = cells[i].seen[0] + A * cells[i].u;
        w_sum += cells[i].w * cells[i].w;
    }
    double w_norm = sqrt(w_sum) + SMALL;
    for (uint64_t i = 0; i < cell_count; i++) {
        cells[i].x = cells[i].w / w_norm;
        cells[i].v = threshold(cells[i].x) + B * threshold(cells[i].q);
        v_sum += cells[i].v * cells[i].v;
    }
    double v_norm = sqrt(v_sum) + SMALL;
    for (uint64_t i = 0; i < cell_count; i++) {
        cells[i].u = cells[i].v / v_norm;
        cells[i].p = cells[i].u + (winner >= 0 ? WINNER * down[i][winner] : 0);
        p_sum += cells[i].p * cells[i].p;
    }
    double p_norm = sqrt(p_sum) + SMALL;
    for (uint64_t i = 0; i < cell_count; i++) cells[i].q = cells[i].p / p_norm;
}

static void settle(int64_t winner)
{
    for (int i = 0; i < SETTLING; i++) settle_once(winner);
}

static void look(void)
{
    double norm = norm_of_seen();
    for (uint64_t i = 0; i < cell_count; i++) {
        cells[i].seen[0] = cells[i].seen[1] / norm;
        cells[i].u = cells[i].q = 0;
    }
    settle(-1);
}

/* ------------------------------------------------------------------ the second layer */

/* Category by category, as the weights are meant: one word of each cell's array. */
static int64_t winner_find(void)
{
    int64_t winner = -1;
    for (uint64_t j = 0; j < categories; j++) {
        activity[j] = 0;
        for (uint64_t i = 0; i < cell_count; i++) activity[j] += cells[i].p * up[i][j];
        if (!refused[j] && (winner < 0 || activity[j] > activity[winner])) winner = (int64_t)j;
    }
    return winner;
}

/* How well what the category expects goes with what is seen: 1 if they are alike. */
static double resonance(void)
{
    double u = 0, p = 0, r = 0;
    for (uint64_t i = 0; i < cell_count; i++) {
        u += cells[i].u * cells[i].u;
        p += cells[i].p * cells[i].p;
    }
    u = sqrt(u), p = sqrt(p);
    for (uint64_t i = 0; i < cell_count; i++) {
        cells[i].r = (cells[i].u + cells[i].p) / (u + p + SMALL);
        r += cells[i].r * cells[i].r;
    }
    return sqrt(r);
}

/* How alike the expectation and the image are: resonance alone is high for a category that expects nothing. */
static double likeness(int64_t winner)
{
    double product = 0, expected = 0, seen = 0;
    for (uint64_t i = 0; i < cell_count; i++) {
        product += cells[i].u * down[i][winner];
        expected += down[i][winner] * down[i][winner];
        seen += cells[i].u * cells[i].u;
    }
    return product / (sqrt(expected * seen) + SMALL);
}

/* The best category that is like the image and resonates with it; a blank one is like every image. */
static int64_t recognise(void)
{
    memset(refused, 0, categories);
    look();
    for (;;) {
        int64_t winner = winner_find();
        if (winner < 0 || !learnt[winner]) return winner;
        if (likeness(winner) >= VIGILANCE) {
            settle(winner);
            if (resonance() >= VIGILANCE) return winner;
            look();
        }
        refused[winner] = true;
    }
}

static void learn(int64_t winner)
{
    learnt[winner] = true;
    for (int step = 0; step < LEARNING; step++) {
        settle(winner);
        for (uint64_t i = 0; i < cell_count; i++) {
            double aim = cells[i].u / (1 - WINNER);
            down[i][winner] += (aim - down[i][winner]) * 0.5;
            up[i][winner] += (aim - up[i][winner]) * 0.5;
        }
    }
}

/* ------------------------------------------------------------------ the run */

static uint64_t weights_digest(void)
{
    double sum = 0;
    for (uint64_t i = 0; i < cell_count; i++)
        for (uint64_t j = 0; j < categories; j++) sum += (up[i][j] - down[i][j] / 2) * (double)(j + 1);
    return (uint64_t)llround(sum * 1e3);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "which of the objects that it has learnt does a neural network see?",
                (micro_option[]){{"cells", &cell_count, true, "of the first layer, one for each pixel"},
                                 {"categories", &categories, false, "of the second layer, and images to learn"},
                                 {"sweeps", &sweeps, false, "noisy copies of each image to recognise"},
                                 {"noise", &noise, false, "of these, percent"},
                                 {0}});
    micro_require(cell_count >= 400 && categories >= 1 && categories <= 16, "400 cells at least, 1 to 16 categories");
    micro_random random = micro_random_start(0);
    int64_t learnt_as[16];
    double start = micro_now();
    network_new();
    for (uint64_t image = 0; image < categories; image++) {
        image_show(image, 0, &random);
        learnt_as[image] = recognise();
        if (learnt_as[image] < 0 || learnt[learnt_as[image]]) micro_fail("two images look alike to the network");
        learn(learnt_as[image]);
    }
    for (uint64_t i = 0; i < sweeps * categories; i++) {
        image_show(i % categories, noise, &random);
        if (recognise() != learnt_as[i % categories]) micro_fail("an image is taken for another");
    }
    uint64_t digest = weights_digest();
    network_free();
    return micro_report((sweeps + 1) * categories, micro_now() - start, digest);
}
