/* How do the atoms of long molecules move?
 *
 * A relative of 188.ammp of SPEC CPU 2000 (Harrison, "Stiffness and energy conservation in molecular dynamics",
 * Journal of Computational Chemistry 1993). Atoms are a list, and so are the bonds between two of them, the angles
 * of three and the torsions of four, all made in turn while a molecule is read. Each atom has a list of the atoms
 * near it, made anew every few steps. A step walks all these lists: forces of bonds, angles, torsions and of
 * neighbours, then motion (leapfrog).
 */
#include "../micro/micro.h"

#include <math.h>

static uint64_t side = 52, molecule = 200, steps = 20, rebuild = 5;

enum { AXES = 3, CHECKED = 40 };

static const double TIME_STEP = 0.002, CUTOFF = 1.9, SKIN = 0.2, SIGMA = 0.85, DEPTH = 0.2;

struct atom {
    double place[AXES], velocity[AXES], force[AXES];
    double charge;
    struct atom *next;
    struct atom *in_cube; /* the next one in the same cube of space */
    struct near *near; /* atoms of higher number */
    uint32_t id, molecule;
};

struct near {
    struct near *next;
    struct atom *atom;
};

struct bond {
    struct bond *next;
    struct atom *atoms[2];
    double length, strength;
};

struct angle {
    struct angle *next;
    struct atom *atoms[3];
    double distance, strength; /* between its ends */
};

struct torsion {
    struct torsion *next;
    struct atom *atoms[4];
    double distance, strength; /* between its ends */
};

static struct atom *atoms, *last_atom;
static struct bond *bonds;
static struct angle *angles;
static struct torsion *torsions;

static struct atom **cubes; /* of space: the first atom in each */
static uint64_t cubes_along, pairs;
static double energy;

/* ------------------------------------------------------------------ molecules */

/* The i-th place of a path that goes through a cubic grid without leaps. */
static void path_place(uint64_t i, int64_t place[AXES])
{
    int64_t x = (int64_t)(i % side), y = (int64_t)(i / side % side), z = (int64_t)(i / side / side),
            end = (int64_t)side - 1;
    bool back_y = z & 1, back_x = (i / side) & 1;
    place[0] = back_x ? end - x : x;
    place[1] = back_y ? end - y : y;
    place[2] = z;
}

static struct atom *atom_new(uint64_t id, micro_random *random)
{
    int64_t place[AXES];
    struct atom *atom = BLOCK_OF(struct atom);
    *atom = (struct atom){.id = (uint32_t)id, .molecule = (uint32_t)(id / molecule), .charge = id & 1 ? 0.1 : -0.1};
    path_place(id, place);
    for (int a = 0; a < AXES; a++) {
        atom->place[a] = (double)place[a] + 0.1 * (micro_unit(random) - 0.5);
        atom->velocity[a] = micro_unit(random) - 0.5;
    }
    if (last_atom) last_atom->next = atom;
    else atoms = atom;
    return last_atom = atom;
}

static double distance_of(const struct atom *one, const struct atom *other)
{
    double square = 0;
    for (int a = 0; a < AXES; a++) square += (one->place[a] - other->place[a]) * (one->place[a] - other->place[a]);
    return sqrt(square);
}

/* What holds an atom to the three before it in its molecule, the nearest first. */
static void atom_tie(struct atom *atom, struct atom *const before[3])
{
    if (!before[0] || before[0]->molecule != atom->molecule) return;
    struct bond *bond = BLOCK_OF(struct bond);
    *bond = (struct bond){bonds, {atom, before[0]}, distance_of(atom, before[0]), 300};
    bonds = bond;
    if (!before[1] || before[1]->molecule != atom->molecule) return;
    struct angle *angle = BLOCK_OF(struct angle);
    *angle = (struct angle){angles, {atom, before[0], before[1]}, distance_of(atom, before[1]), 30};
    angles = angle;
    if (!before[2] || before[2]->molecule != atom->molecule) return;
    struct torsion *torsion = BLOCK_OF(struct torsion);
    *torsion = (struct torsion){torsions, {atom, before[0], before[1], before[2]}, distance_of(atom, before[2]), 3};
    torsions = torsion;
}

static void molecules_read(micro_random *random)
{
    struct atom *before[3] = {0};
    for (uint64_t i = 0; i < side * side * side; i++) {
        struct atom *atom = atom_new(i, random);
        atom_tie(atom, before);
        before[2] = before[1], before[1] = before[0], before[0] = atom;
    }
}

/* Frees a list whose elements begin with the pointer to the next. */
static void list_free(void *list)
{
    while (list) {
        void *next;
        memcpy(&next, list, sizeof next);
        free(list);
        list = next;
    }
}

static void molecules_free(void)
{
    while (atoms) {
        struct atom *next = atoms->next;
        list_free(atoms->near);
        free(atoms);
        atoms = next;
    }
    list_free(bonds);
    list_free(angles);
    list_free(torsions);
}

/* ------------------------------------------------------------------ neighbours */

static int64_t cube_along(double place)
{
    int64_t along = (int64_t)(place / (CUTOFF + SKIN));
    return along < 0 ? 0 : along >= (int64_t)cubes_along ? (int64_t)cubes_along - 1 : along;
}

static struct atom **cube_at(int64_t x, int64_t y, int64_t z)
{
    int64_t along = (int64_t)cubes_along;
    if (x < 0 || y < 0 || z < 0 || x >= along || y >= along || z >= along) return NULL;
    return &cubes[(z * along + y) * along + x];
}

static void cubes_fill(void)
{
    memset(cubes, 0, cubes_along * cubes_along * cubes_along * sizeof(struct atom *));
    for (struct atom *atom = atoms; atom; atom = atom->next) {
        struct atom **cube =
            cube_at(cube_along(atom->place[0]), cube_along(atom->place[1]), cube_along(atom->place[2]));
        atom->in_cube = *cube;
        *cube = atom;
    }
}

/* Those tied to each other have forces of their own. */
static bool is_near(const struct atom *one, const struct atom *other)
{
    if (other->id <= one->id || (other->molecule == one->molecule && other->id - one->id <= 3)) return false;
    return distance_of(one, other) < CUTOFF + SKIN;
}

static void near_find(struct atom *atom)
{
    int64_t middle[AXES];
    for (int a = 0; a < AXES; a++) middle[a] = cube_along(atom->place[a]);
    for (int64_t i = 0; i < 27; i++) {
        struct atom **cube = cube_at(middle[0] + i % 3 - 1, middle[1] + i / 3 % 3 - 1, middle[2] + i / 9 - 1);
        for (struct atom *other = cube ? *cube : NULL; other; other = other->in_cube)
            if (is_near(atom, other)) {
                struct near *near = BLOCK_OF(struct near);
                *near = (struct near){atom->near, other};
                atom->near = near;
                pairs++;
            }
    }
}

static void near_rebuild(void)
{
    cubes_fill();
    for (struct atom *atom = atoms; atom; atom = atom->next) {
        list_free(atom->near);
        atom->near = NULL;
        near_find(atom);
    }
}

/* ------------------------------------------------------------------ forces */

static void pull(struct atom *one, struct atom *other, double factor)
{
    for (int a = 0; a < AXES; a++) {
        double force = factor * (other->place[a] - one->place[a]);
        one->force[a] += force;
        other->force[a] -= force;
    }
}

static void spring(struct atom *one, struct atom *other, double distance, double strength)
{
    double now = distance_of(one, other), off = now - distance;
    energy += strength * off * off / 2;
    pull(one, other, strength * off / now);
}

static void near_force(struct atom *one, struct atom *other)
{
    double square = 0;
    for (int a = 0; a < AXES; a++) square += (one->place[a] - other->place[a]) * (one->place[a] - other->place[a]);
    if (square >= CUTOFF * CUTOFF) return;
    double ratio = SIGMA * SIGMA / square, sixth = ratio * ratio * ratio,
           electric = one->charge * other->charge / sqrt(square);
    energy += 4 * DEPTH * (sixth * sixth - sixth) + electric;
    pull(one, other, -(24 * DEPTH * (2 * sixth * sixth - sixth) + electric) / square);
}

static void forces_find(void)
{
    energy = 0;
    for (struct atom *atom = atoms; atom; atom = atom->next) memset(atom->force, 0, sizeof atom->force);
    for (const struct bond *bond = bonds; bond; bond = bond->next)
        spring(bond->atoms[0], bond->atoms[1], bond->length, bond->strength);
    for (const struct angle *angle = angles; angle; angle = angle->next)
        spring(angle->atoms[0], angle->atoms[2], angle->distance, angle->strength);
    for (const struct torsion *torsion = torsions; torsion; torsion = torsion->next)
        spring(torsion->atoms[0], torsion->atoms[3], torsion->distance, torsion->strength);
    for (struct atom *atom = atoms; atom; atom = atom->next)
        for (const struct near *near = atom->near; near; near = near->next) near_force(atom, near->atom);
}

static void atoms_move(void)
{
    for (struct atom *atom = atoms; atom; atom = atom->next)
        for (int a = 0; a < AXES; a++) {
            atom->velocity[a] += TIME_STEP * atom->force[a];
            atom->place[a] += TIME_STEP * atom->velocity[a];
            energy += atom->velocity[a] * atom->velocity[a] / 2;
        }
}

/* ------------------------------------------------------------------ checks */

/* What acts between two atoms acts on both: all forces together are none. */
static void forces_check(void)
{
    double sum[AXES] = {0}, size = 1;
    for (const struct atom *atom = atoms; atom; atom = atom->next)
        for (int a = 0; a < AXES; a++) {
            sum[a] += atom->force[a];
            size += fabs(atom->force[a]);
        }
    for (int a = 0; a < AXES; a++)
        if (!(fabs(sum[a]) < 1e-9 * size)) micro_fail("the forces do not balance: %g", sum[a]);
}

/* Some atoms' neighbours, looked for among all atoms; the lists must have just been made. */
static void near_check(void)
{
    const struct atom *atom = atoms;
    for (int i = 0; i < CHECKED && atom; i++) {
        int64_t missing = 0;
        for (const struct atom *other = atom->next; other; other = other->next) missing += is_near(atom, other);
        for (const struct near *near = atom->near; near; near = near->next) missing--;
        if (missing != 0) micro_fail("atom %u lacks %" PRId64 " neighbours", atom->id, missing);
        for (uint32_t j = 0; j < 17 && atom; j++) atom = atom->next;
    }
}

static uint64_t motion_digest(void)
{
    double sum = 0;
    for (const struct atom *atom = atoms; atom; atom = atom->next)
        for (int a = 0; a < AXES; a++) sum += atom->place[a] * (double)(atom->id % 89 + (uint32_t)a);
    return (uint64_t)llround(sum * 1e3);
}

/* Returns the energy after the first step: it must be kept. */
static double run(void)
{
    double first_energy = 0;
    for (uint64_t step = 0; step < steps; step++) {
        if (step % rebuild == 0) near_rebuild();
        if (step == 0) near_check();
        forces_find();
        atoms_move();
        if (step == 0) first_energy = energy;
    }
    return first_energy;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how do the atoms of long molecules move?",
                (micro_option[]){{"side", &side, false, "atoms along an edge of the cube that the molecules fill"},
                                 {"molecule", &molecule, false, "atoms of one"},
                                 {"steps", &steps, true, "in time"},
                                 {"rebuild", &rebuild, false, "the lists of neighbours after so many steps"},
                                 {0}});
    micro_require(side >= 4 && side <= 1000 && molecule > 0 && rebuild > 0, "4 to 1000 atoms along an edge");
    cubes_along = (uint64_t)((double)side / (CUTOFF + SKIN)) + 1;
    cubes = micro_map(cubes_along * cubes_along * cubes_along * sizeof(struct atom *));
    micro_random random = micro_random_start(0);
    double start = micro_now();
    molecules_read(&random);
    double first_energy = run();
    forces_check();
    if (!(fabs(energy - first_energy) < 0.02 * fabs(first_energy)))
        micro_fail("energy was %g, is %g", first_energy, energy);
    uint64_t digest = motion_digest();
    molecules_free();
    return micro_report(pairs * rebuild, micro_now() - start, digest);
}
