/* How does the ground move when an earthquake's waves go through it?
 *
 * A relative of 183.equake of SPEC CPU 2000 (after Bao and others, "Large-scale simulation of elastic wave
 * propagation in heterogeneous media on parallel computers", 1998): finite elements on a mesh of tetrahedra,
 * explicit steps in time. The stiffness matrix is sparse and symmetric, of blocks of 3x3: each block is a table of
 * three rows, and each row a block of memory of its own, as is each node's vector in each of the fields. One sparse
 * product a step takes most of the time. The mesh is a deformed grid whose nodes are numbered anew at random within
 * neighbourhoods, as a mesh generator leaves them.
 */
#include "../micro/micro.h"

#include <math.h>

static uint64_t side = 40, steps = 150, scatter = 500;

enum { AXES = 3, TETRAHEDRA = 6, CORNERS = 4, NEIGHBOURS_MAX = 14, FIELDS = 3 };

static const double STIFF_LONG = 2.0, STIFF_CROSS = 1.0, TIME_STEP = 0.1, DAMPING = 0.05, PULSE_STEPS = 40;

static uint64_t node_count, entry_count;
static uint32_t *number_of; /* of a place of the grid: the node */
static double (*places)[AXES]; /* of nodes */

/* The matrix: of node i the columns from[i] to from[i + 1] - 1, itself first, then its neighbours of higher number. */
static uint32_t *from, *columns;
static double ***matrix;
static double ***fields; /* FIELDS displacements: before, now, next; [field][node][axis] */
static double **forces, **velocities;
static double *masses;

/* ------------------------------------------------------------------ mesh */

static void nodes_number(micro_random *random)
{
    for (uint32_t i = 0; i < node_count; i++) number_of[i] = i;
    for (uint64_t i = node_count - 1; i > 0; i--) {
        uint64_t window = i + 1 < scatter ? i + 1 : scatter, other = i - micro_below(random, window);
        uint32_t number = number_of[i];
        number_of[i] = number_of[other];
        number_of[other] = number;
    }
}

static void nodes_place(micro_random *random)
{
    for (uint64_t i = 0; i < node_count; i++) {
        double *place = places[number_of[i]];
        place[0] = (double)(i % side) + 0.3 * (micro_unit(random) - 0.5);
        place[1] = (double)(i / side % side) + 0.3 * (micro_unit(random) - 0.5);
        place[2] = (double)(i / side / side) + 0.3 * (micro_unit(random) - 0.5);
    }
}

/* The corners of one of the tetrahedra of a cube of the grid: all go from one end of a diagonal to the other, along the
 * three axes in some order (Kuhn's triangulation, which fits from cube to cube). */
static void tetrahedron(uint64_t cube, int which, uint32_t corners[CORNERS])
{
    static const uint8_t orders[TETRAHEDRA][AXES] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const uint64_t strides[AXES] = {1, side, side * side};
    uint64_t x = cube % (side - 1), y = cube / (side - 1) % (side - 1), z = cube / (side - 1) / (side - 1);
    uint64_t at = x + y * side + z * side * side;
    corners[0] = number_of[at];
    for (int i = 0; i < AXES; i++) corners[i + 1] = number_of[at += strides[orders[which][i]]];
}

static uint64_t cube_count(void)
{
    return (side - 1) * (side - 1) * (side - 1);
}

/* ------------------------------------------------------------------ matrix */

static void neighbour_note(uint32_t (*neighbours)[NEIGHBOURS_MAX], uint8_t *counts, uint32_t one, uint32_t other)
{
    uint32_t low = one < other ? one : other, high = one < other ? other : one;
    for (uint8_t i = 0; i < counts[low]; i++)
        if (neighbours[low][i] == high) return;
    neighbours[low][counts[low]++] = high;
}

/* Who hangs together with whom. */
static void structure_make(void)
{
    uint32_t (*neighbours)[NEIGHBOURS_MAX] = micro_map(node_count * sizeof *neighbours), corners[CORNERS];
    uint8_t *counts = micro_map(node_count);
    for (uint64_t cube = 0; cube < cube_count(); cube++)
        for (int which = 0; which < TETRAHEDRA; which++) {
            tetrahedron(cube, which, corners);
            for (int a = 0; a < CORNERS; a++)
                for (int b = 0; b < a; b++) neighbour_note(neighbours, counts, corners[a], corners[b]);
        }
    for (uint32_t i = 0; i < node_count; i++) {
        from[i] = (uint32_t)entry_count;
        columns[entry_count++] = i;
        for (uint8_t j = 0; j < counts[i]; j++) columns[entry_count++] = neighbours[i][j];
    }
    from[node_count] = (uint32_t)entry_count;
    munmap(neighbours, node_count * sizeof *neighbours);
    munmap(counts, node_count);
}

static double *vector_new(void)
{
    double *vector = BLOCK_ARRAY(double, AXES);
    for (int axis = 0; axis < AXES; axis++) vector[axis] = 0;
    return vector;
}

static void memory_take(void)
{
    matrix = BLOCK_ARRAY(double **, entry_count);
    for (uint64_t i = 0; i < entry_count; i++) {
        matrix[i] = BLOCK_ARRAY(double *, AXES);
        for (int axis = 0; axis < AXES; axis++) matrix[i][axis] = vector_new();
    }
    fields = BLOCK_ARRAY(double **, FIELDS);
    for (int field = 0; field < FIELDS; field++) {
        fields[field] = BLOCK_ARRAY(double *, node_count);
        for (uint64_t i = 0; i < node_count; i++) fields[field][i] = vector_new();
    }
    forces = BLOCK_ARRAY(double *, node_count);
    velocities = BLOCK_ARRAY(double *, node_count);
    for (uint64_t i = 0; i < node_count; i++) {
        forces[i] = vector_new();
        velocities[i] = vector_new();
    }
    masses = BLOCK_ARRAY(double, node_count);
}

static void memory_give(void)
{
    for (uint64_t i = 0; i < entry_count; i++) {
        for (int axis = 0; axis < AXES; axis++) free(matrix[i][axis]);
        free(matrix[i]);
    }
    for (uint64_t i = 0; i < node_count; i++) {
        for (int field = 0; field < FIELDS; field++) free(fields[field][i]);
        free(forces[i]);
        free(velocities[i]);
    }
    for (int field = 0; field < FIELDS; field++) free(fields[field]);
    free(fields);
    free(matrix);
    free(forces);
    free(velocities);
    free(masses);
}

static double **entry(uint32_t row, uint32_t column)
{
    uint32_t at = from[row];
    while (columns[at] != column) at++;
    return matrix[at];
}

/* An edge is a spring, stiffer along itself than across: what it adds to the blocks of its ends and between them. */
static void spring_add(uint32_t one, uint32_t other, double stiffness)
{
    uint32_t low = one < other ? one : other, high = one < other ? other : one;
    double way[AXES], square = 0;
    for (int a = 0; a < AXES; a++) {
        way[a] = places[other][a] - places[one][a];
        square += way[a] * way[a];
    }
    double **first = entry(low, low), **second = entry(high, high), **between = entry(low, high);
    for (int a = 0; a < AXES; a++)
        for (int b = 0; b < AXES; b++) {
            double value = stiffness * (STIFF_LONG * way[a] * way[b] / square + (a == b ? STIFF_CROSS : 0));
            first[a][b] += value;
            second[a][b] += value;
            between[a][b] -= value;
        }
}

static void matrix_fill(void)
{
    uint32_t corners[CORNERS];
    for (uint64_t cube = 0; cube < cube_count(); cube++)
        for (int which = 0; which < TETRAHEDRA; which++) {
            tetrahedron(cube, which, corners);
            double soil = places[corners[0]][2] < (double)side / 3 ? 0.5 : 1; /* the upper layer is softer */
            for (int a = 0; a < CORNERS; a++) {
                masses[corners[a]] += 1.0 / CORNERS;
                for (int b = 0; b < a; b++) spring_add(corners[a], corners[b], soil);
            }
        }
}

/* ------------------------------------------------------------------ steps in time */

/* forces = matrix times field; the matrix is symmetric, so each block counts for both its nodes. */
static void sparse_product(double *const *field)
{
    for (uint64_t i = 0; i < node_count; i++) forces[i][0] = forces[i][1] = forces[i][2] = 0;
    for (uint32_t i = 0; i < node_count; i++) {
        uint32_t at = from[i], end = from[i + 1];
        const double *own = field[i];
        double sum[AXES];
        for (int a = 0; a < AXES; a++)
            sum[a] = matrix[at][a][0] * own[0] + matrix[at][a][1] * own[1] + matrix[at][a][2] * own[2];
        while (++at < end) {
            const double *other = field[columns[at]];
            double *pull = forces[columns[at]], *const *block = matrix[at];
            for (int a = 0; a < AXES; a++) {
                sum[a] += block[a][0] * other[0] + block[a][1] * other[1] + block[a][2] * other[2];
                pull[a] += block[0][a] * own[0] + block[1][a] * own[1] + block[2][a] * own[2];
            }
        }
        for (int a = 0; a < AXES; a++) forces[i][a] += sum[a];
    }
}

static double pulse(uint64_t step)
{
    double time = (double)step / PULSE_STEPS;
    return time < 1 ? sin(3.14159265 * time) * sin(3.14159265 * time) : 0;
}

static void step_once(uint64_t step, uint32_t source)
{
    double **before = fields[step % FIELDS], **now = fields[(step + 1) % FIELDS], **next = fields[(step + 2) % FIELDS];
    sparse_product(now);
    forces[source][0] -= pulse(step), forces[source][2] -= 2 * pulse(step);
    for (uint64_t i = 0; i < node_count; i++)
        for (int a = 0; a < AXES; a++) {
            double acceleration = -forces[i][a] / masses[i] - DAMPING * velocities[i][a];
            next[i][a] = 2 * now[i][a] - before[i][a] + TIME_STEP * TIME_STEP * acceleration;
            velocities[i][a] = (next[i][a] - before[i][a]) / (2 * TIME_STEP);
        }
}

/* ------------------------------------------------------------------ checks */

/* Ground that moves as a whole is not strained: no force. */
static void rigid_check(void)
{
    double most = 0;
    for (uint64_t i = 0; i < node_count; i++) fields[0][i][0] = fields[0][i][1] = fields[0][i][2] = 1;
    sparse_product(fields[0]);
    for (uint64_t i = 0; i < node_count; i++)
        for (int a = 0; a < AXES; a++) {
            most = fabs(forces[i][a]) > most ? fabs(forces[i][a]) : most;
            fields[0][i][a] = 0;
        }
    if (!(most < 1e-9)) micro_fail("the matrix is not that of a body: a force of %g", most);
}

static uint64_t motion_digest(double *const *field)
{
    double sum = 0, most = 0;
    for (uint64_t i = 0; i < node_count; i++)
        for (int a = 0; a < AXES; a++) {
            sum += field[i][a] * (double)(i % 97 + (uint64_t)a);
            most = fabs(field[i][a]) > most ? fabs(field[i][a]) : most;
        }
    if (!(most > 1e-9 && most < 1)) micro_fail("the ground moved by %g", most);
    return (uint64_t)llround(sum * 1e12);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how does the ground move when an earthquake's waves go through it?",
                (micro_option[]){{"side", &side, false, "nodes along an edge of the ground"},
                                 {"steps", &steps, true, "in time"},
                                 {"scatter", &scatter, false, "how far a node's number is from its place's"},
                                 {0}});
    micro_require(side >= 4 && side <= 300 && steps > 0 && scatter > 0, "4 to 300 nodes along an edge, a step");
    micro_random random = micro_random_start(0);
    node_count = side * side * side;
    number_of = micro_map(node_count * sizeof *number_of);
    places = micro_map(node_count * sizeof *places);
    from = micro_map((node_count + 1) * sizeof *from);
    columns = micro_map(node_count * (NEIGHBOURS_MAX + 1) * sizeof *columns);
    nodes_number(&random);
    nodes_place(&random);
    double start = micro_now();
    structure_make();
    memory_take();
    memset(masses, 0, node_count * sizeof *masses);
    matrix_fill();
    rigid_check();
    uint32_t source = number_of[node_count / 2 + side / 2];
    for (uint64_t step = 0; step < steps; step++) step_once(step, source);
    uint64_t digest = motion_digest(fields[(steps + 1) % FIELDS]);
    memory_give();
    return micro_report(steps * entry_count, micro_now() - start, digest);
}
