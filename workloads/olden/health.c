/* How near to each other do a list's cells and what they point to lie?
 *
 * Simulates the health service of a country. Villages form a tree of four below each; every village has a
 * hospital, with more staff the higher it stands. At each step a person may fall ill in each village. A patient
 * waits for staff, is assessed, and then either treated or sent up to the next hospital. Patients are held by
 * doubly linked lists, which are walked whole at each step: new cells go to the end, found by a walk, and a cell
 * to be removed is searched for. After health of the Olden suite, a model of the health service of Colombia
 * (Lomow, Cleary, Unger, West: A performance study of Time Warp, 1988). Zilles (Benchmark health considered
 * harmful, Computer Architecture News 29, 2001) tells what better lists would save; programs whose lists are like
 * these are what it stands for.
 *
 * A cell and a patient are of one size and made one after the other. The published program leaves removed cells
 * where they are; with --free 1 they are given back, and serve later patients and cells in any mixture.
 */
#include "olden.h"

static uint64_t levels = 8, steps = 100, free_cells = 0;

enum {
    BELOW = 4, /* villages below each */
    ASSESSMENT = 3, /* in steps */
    TREATMENT = 10,
};

static const double ILLNESS = 1.0 / 3; /* in a village in a step */
static const double REFERRAL = 0.1; /* after an assessment, except at the top */

struct patient {
    int32_t hospitals, time, time_left;
    const struct village *home;
};

/* A list is a cell without a patient. */
struct cell {
    struct cell *next;
    struct patient *patient;
    struct cell *previous;
};

_Static_assert(sizeof(struct patient) == sizeof(struct cell), "what the program is known for");

struct hospital {
    uint32_t free_staff;
    struct cell waiting, assessed, treated, sent_up;
};

struct village {
    struct village *below[BELOW];
    struct cell healed;
    struct hospital hospital;
    micro_random random;
    uint64_t number; /* 0: the one at the top */
};

struct census {
    uint64_t villages, healed, waiting, assessed, treated, digest;
};

static uint64_t fallen_ill;

/* ------------------------------------------------------------------------- lists */

static void list_append(struct cell *list, struct patient *patient)
{
    while (list->next) list = list->next;
    struct cell *cell = olden_new(sizeof *cell);
    *cell = (struct cell){.patient = patient, .previous = list};
    list->next = cell;
}

static void list_remove(struct cell *list, const struct patient *patient)
{
    struct cell *cell = list->next;
    while (cell->patient != patient) cell = cell->next;
    cell->previous->next = cell->next;
    if (cell->next) cell->next->previous = cell->previous;
    if (free_cells) free(cell);
}

/* ------------------------------------------------------------------------ village */

static struct village *village_new(uint64_t level, uint64_t number)
{
    if (level == 0) return NULL;
    struct village *village = olden_new(sizeof *village);
    *village = (struct village){.number = number, .random = micro_random_start(number)};
    village->hospital.free_staff = (uint32_t)1 << (level - 1);
    for (uint64_t i = 0; i < BELOW; i++) village->below[i] = village_new(level - 1, number * BELOW + i + 1);
    return village;
}

static void assessment_begin(struct hospital *hospital, struct patient *patient)
{
    hospital->free_staff--;
    patient->time_left = ASSESSMENT;
    patient->time += ASSESSMENT;
    list_append(&hospital->assessed, patient);
}

static void admit(struct hospital *hospital, struct patient *patient)
{
    patient->hospitals++;
    if (hospital->free_staff > 0) assessment_begin(hospital, patient);
    else list_append(&hospital->waiting, patient);
}

/* Those whom the hospitals below could not help. */
static void admit_sent_up(struct hospital *hospital, struct cell *sent_up)
{
    for (struct cell *cell = sent_up->next, *next; cell; cell = next) {
        struct patient *patient = cell->patient;
        next = cell->next;
        admit(hospital, patient);
        list_remove(sent_up, patient);
    }
}

static void treatments_end(struct village *village)
{
    struct hospital *hospital = &village->hospital;
    for (struct cell *cell = hospital->treated.next, *next; cell; cell = next) {
        struct patient *patient = cell->patient;
        next = cell->next;
        if (--patient->time_left > 0) continue;
        hospital->free_staff++;
        list_remove(&hospital->treated, patient);
        list_append(&village->healed, patient);
    }
}

static void assessments_end(struct village *village)
{
    struct hospital *hospital = &village->hospital;
    for (struct cell *cell = hospital->assessed.next, *next; cell; cell = next) {
        struct patient *patient = cell->patient;
        next = cell->next;
        if (--patient->time_left > 0) continue;
        list_remove(&hospital->assessed, patient);
        if (micro_unit(&village->random) > REFERRAL || village->number == 0) {
            patient->time_left = TREATMENT;
            patient->time += TREATMENT;
            list_append(&hospital->treated, patient);
        } else {
            hospital->free_staff++;
            list_append(&hospital->sent_up, patient);
        }
    }
}

static void waiting_go_on(struct hospital *hospital)
{
    for (struct cell *cell = hospital->waiting.next, *next; cell; cell = next) {
        struct patient *patient = cell->patient;
        next = cell->next;
        if (hospital->free_staff > 0) {
            assessment_begin(hospital, patient);
            list_remove(&hospital->waiting, patient);
        } else {
            patient->time++;
        }
    }
}

static void fall_ill(struct village *village)
{
    if (micro_unit(&village->random) > ILLNESS) return;
    struct patient *patient = olden_new(sizeof *patient);
    *patient = (struct patient){.home = village};
    fallen_ill++;
    admit(&village->hospital, patient);
}

static void step(struct village *village)
{
    struct hospital *hospital = &village->hospital;
    for (unsigned i = BELOW; i-- > 0 && village->below[i];) step(village->below[i]);
    for (unsigned i = 0; i < BELOW && village->below[i]; i++)
        admit_sent_up(hospital, &village->below[i]->hospital.sent_up);
    treatments_end(village);
    assessments_end(village);
    waiting_go_on(hospital);
    fall_ill(village);
}

/* ----------------------------------------------------------------------- checking */

static uint64_t count_list(struct census *census, const struct cell *list)
{
    uint64_t count = 0;
    for (const struct cell *cell = list->next; cell; cell = cell->next, count++) {
        const struct patient *patient = cell->patient;
        if (cell->previous->next != cell) micro_fail("a list does not hold together");
        census->digest = olden_fold(census->digest, patient->home->number);
        census->digest = olden_fold(census->digest, (uint64_t)patient->time);
        census->digest = olden_fold(census->digest, (uint64_t)patient->hospitals);
    }
    return count;
}

static void count_village(struct census *census, const struct village *village, uint64_t level)
{
    const struct hospital *hospital = &village->hospital;
    uint64_t assessed = count_list(census, &hospital->assessed), treated = count_list(census, &hospital->treated);
    if (assessed + treated + hospital->free_staff != (uint64_t)1 << (level - 1))
        micro_fail("the hospital of village %" PRIu64 " has not the staff that it had", village->number);
    census->villages++;
    census->assessed += assessed;
    census->treated += treated;
    census->waiting += count_list(census, &hospital->waiting);
    census->healed += count_list(census, &village->healed);
    for (unsigned i = 0; i < BELOW && village->below[i]; i++) count_village(census, village->below[i], level - 1);
}

static struct census count_all(const struct village *top)
{
    struct census census = {0};
    count_village(&census, top, levels);
    if (census.healed + census.waiting + census.assessed + census.treated != fallen_ill)
        micro_fail("patients were lost, or are there twice");
    printf("fallen ill: %" PRIu64 "\nhealed: %" PRIu64 "\nwaiting: %" PRIu64 "\n", fallen_ill, census.healed,
           census.waiting);
    return census;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how near to each other do the cells of lists and what they point to lie?",
                (micro_option[]){{"levels", &levels, false, "of villages"},
                                 {"steps", &steps, true, "of time"},
                                 {"free", &free_cells, false, "1: cells that leave a list are freed"},
                                 {0}});
    micro_require(levels >= 1 && levels <= 15 && steps <= INT32_MAX, "1 to 15 levels, less than 2^31 steps");
    double start = micro_now();
    struct village *top = village_new(levels, 0);
    for (uint64_t i = 0; i < steps; i++) step(top);
    struct census census = count_all(top);
    return micro_report(census.villages * steps, micro_now() - start, census.digest);
}
