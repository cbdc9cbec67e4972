/* One attack on the heap, under whatever allocator is in place.
 *
 *     attacks NAME SIZE WAY SEED
 *
 * SIZE is the bytes of the objects. What is asked for is as much as they have, so that one byte more is not theirs, but in the attacks
 * whose names begin with "asked": these ask for a few bytes less, and begin behind those. WAY is how the mistake comes about: by a plain
 * store or call, by memcpy or among other calls, on an object that realloc has returned, or in another thread. The process ends by a
 * signal when the mistake is caught, with SPOILT when it did what an attacker wants of it, and with HARMLESS when it came to nothing:
 * no byte has changed that is not the object's, what was looked for is not there. benchmarks/attacks.py runs all of them, and says
 * which ways each may come about in. WRONG_USE is an error, and no outcome.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum outcome { SPOILT = 10, HARMLESS = 11, WRONG_USE = 2 };
enum way { DIRECT, COPIED, RESIZED, THREAD, WAYS };
static const char *const way_names[WAYS] = {"direct", "memcpy", "realloc", "thread"};

static size_t object_bytes;
static enum way way;

/* ---- objects ---------------------------------------------------------------------------------------------------- */

/* Compilers must not see where a pointer comes from. */
static char *hidden(void *pointer)
{
    char *volatile copy = pointer;
    return copy;
}

static char *make(void)
{
    if (way != RESIZED) return hidden(malloc(object_bytes));
    char *object = hidden(malloc(object_bytes / 3 + 1));
    return hidden(realloc(object, object_bytes));
}

/* As many bytes as the object has, whatever the allocator rounds to. */
static size_t bytes_of(void *object)
{
    return malloc_usable_size(object);
}

/* What a program does before and after: so that there are neighbours, and what was freed is used again. */
enum { NEIGHBOURS = 48, ROUNDS = 40 };
static char *neighbours[NEIGHBOURS];

static void make_neighbours(void)
{
    for (int i = 0; i < NEIGHBOURS; i++) {
        neighbours[i] = make();
        memset(neighbours[i], 'n', object_bytes);
    }
}

static void free_neighbours(void)
{
    for (int i = 0; i < NEIGHBOURS; i++) free(neighbours[i]);
}

static void go_on(void)
{
    enum { LIVE = 256 };
    static char *live[LIVE];
    int count = object_bytes > 100000 ? 64 : LIVE;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) live[i] = hidden(malloc(object_bytes));
        for (int i = 0; i < count; i++) free(live[i]);
    }
}

/* ---- ways ---------------------------------------------------------------------------------------------------------- */

struct write {
    char *at;
    const char *bytes;
    size_t size;
};

static void *write_directly(void *argument)
{
    const struct write *write = argument;
    volatile char *at = write->at;
    for (size_t i = 0; i < write->size; i++) at[i] = write->bytes[i];
    return NULL;
}

static void in_thread(void *(*act)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, act, argument) != 0) exit(WRONG_USE);
    pthread_join(thread, NULL);
}

/* True when the bytes stood there already, so that nothing was written that matters. */
static bool put(char *at, const void *bytes, size_t size)
{
    struct write write = {at, bytes, size};
    bool stood_there = memcmp(hidden(at), bytes, size) == 0;
    if (way == THREAD) in_thread(write_directly, &write);
    else if (way == COPIED) memcpy(hidden(at), bytes, size);
    else write_directly(&write);
    return stood_there;
}

static void *(*call)(void *);

/* As put, for a call: among others' is its second way. */
static void call_in_its_way(void *(*function)(void *), void *pointer)
{
    call = function;
    if (way == COPIED) {
        char *before = make(), *after = make();
        free(before);
        call(pointer);
        free(after);
    } else if (way == THREAD) {
        in_thread(call, pointer);
    } else {
        call(pointer);
    }
}

static void *free_it(void *pointer)
{
    free(pointer);
    return NULL;
}

static void give(void *pointer)
{
    call_in_its_way(free_it, pointer);
}

/* ---- attacks ---------------------------------------------------------------------------------------------------------- */

static const char ones[64] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
static const char zeros[64];

static char *among_neighbours(void)
{
    make_neighbours();
    return neighbours[NEIGHBOURS / 2 + rand() % 8];
}

/* So many bytes from there on, before or behind an object. */
static int write_beside(char *at, const char *bytes, size_t size)
{
    bool nothing = put(at, bytes, size);
    free_neighbours();
    go_on();
    return nothing ? HARMLESS : SPOILT;
}

static int overflow_of_a_byte(void)
{
    char *object = among_neighbours();
    return write_beside(object + bytes_of(object), ones, 1);
}

static int overflow_of_a_zero(void)
{
    char *object = among_neighbours();
    return write_beside(object + bytes_of(object), zeros, 1);
}

static int overflow_of_words(void)
{
    char *object = among_neighbours();
    return write_beside(object + bytes_of(object), ones, 48);
}

/* Such as a page's worth and more, by a loop that has no end. */
static int overflow_without_end(void)
{
    static char many[1 << 18];
    char *object = among_neighbours();
    memset(many, 'A', sizeof many);
    return write_beside(object + bytes_of(object), many, sizeof many);
}

static int underflow_of_a_byte(void)
{
    return write_beside(among_neighbours() - 1, ones, 1);
}

static int underflow_of_a_word(void)
{
    return write_beside(among_neighbours() - 8, ones, 8);
}

static int underflow_of_words(void)
{
    return write_beside(among_neighbours() - 48, ones, 48);
}

/* Neither touches what stands directly beside the object. */
static int write_ahead(void)
{
    char *object = among_neighbours();
    return write_beside(object + bytes_of(object) + 24, ones, 8);
}

static int write_behind(void)
{
    return write_beside(among_neighbours() - 32, ones, 8);
}

/* From what was asked for on, of which malloc gives more. */
enum { LEFT_OUT = 5 };

static char *made_smaller(void)
{
    make_neighbours();
    object_bytes -= LEFT_OUT;
    char *object = make();
    object_bytes += LEFT_OUT;
    return object;
}

/* What lies in the room that is left over is nobody's. */
static int overflow_of_a_byte_asked(void)
{
    char *object = made_smaller();
    bool is_room = bytes_of(object) > object_bytes - LEFT_OUT;
    bool nothing = put(object + object_bytes - LEFT_OUT, ones, 1);
    free(object);
    free_neighbours();
    go_on();
    return is_room || nothing ? HARMLESS : SPOILT;
}

static int overflow_of_words_asked(void)
{
    char *object = made_smaller();
    bool nothing = put(object + object_bytes - LEFT_OUT, ones, 48);
    free(object);
    free_neighbours();
    go_on();
    return nothing ? HARMLESS : SPOILT;
}

/* Where spans of 64 KiB meet, if there is such a place among so many: where memory of another kind may begin. */
enum { EDGE = 1 << 16, MANY = 6000 };
static char *many_objects[MANY];

static char *at_an_edge(bool at_end)
{
    int count = object_bytes > 100000 ? 256 : MANY;
    char *best = NULL;
    size_t least = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        char *object = many_objects[i] = make();
        size_t place = (uintptr_t)object % EDGE;
        if (at_end) place = EDGE - ((uintptr_t)object + bytes_of(object)) % EDGE;
        if (place < least) best = object;
        if (place < least) least = place;
    }
    return best;
}

static int go_on_after_edge(bool nothing)
{
    for (int i = 0; i < MANY && many_objects[i] != NULL; i++) free(many_objects[i]);
    go_on();
    return nothing ? HARMLESS : SPOILT;
}

static int overflow_out_of_a_span(void)
{
    char *object = at_an_edge(true);
    return go_on_after_edge(put(object + bytes_of(object), ones, 48));
}

static int underflow_out_of_a_span(void)
{
    return go_on_after_edge(put(at_an_edge(false) - 8, ones, 8));
}

static int write_after_free_at(size_t offset)
{
    char *object = among_neighbours();
    free(object);
    put(object + offset, ones, 16);
    go_on();
    return SPOILT;
}

static int write_after_free(void)
{
    return write_after_free_at(0);
}

static int write_after_free_inside(void)
{
    return write_after_free_at(object_bytes / 2 & ~(size_t)15);
}

/* A link to where nothing is to be handed out: what comes next is there, or not. */
static int link_of_a_free_block(void)
{
    static char target[256] __attribute__((aligned(64)));
    char *object = among_neighbours(), *other = make(), *aim = target + 64;
    free(other);
    free(object);
    put(object, &aim, sizeof aim);
    for (int i = 0; i < 2048; i++) {
        char *given = hidden(malloc(object_bytes));
        if (given >= target && given < target + sizeof target) return SPOILT;
        if (object_bytes > 100000 && i > 64) break;
    }
    return HARMLESS;
}

/* Somebody else's object where the freed one was, before long. */
static int use_of_anothers(void)
{
    enum { TRIES = 8 };
    char *object = make();
    give(object);
    for (int i = 0; i < TRIES; i++) {
        char *given = hidden(malloc(object_bytes));
        if (given <= object && object < given + object_bytes) return SPOILT;
    }
    return HARMLESS;
}

static void *look_for_secret(void *pointer)
{
    const char *object = pointer;
    for (size_t i = 0; i + 8 <= object_bytes; i++)
        if (memcmp(object + i, "S3CR3T!!", 8) == 0) return pointer;
    return NULL;
}

static void write_secret(char *object)
{
    for (size_t i = 0; i + 8 <= object_bytes; i += 8) memcpy(object + i, "S3CR3T!!", 8);
}

static int stale_data_through_the_old_pointer(void)
{
    char *object = among_neighbours();
    write_secret(object);
    give(object);
    return look_for_secret(object) != NULL ? SPOILT : HARMLESS;
}

static int stale_data_in_a_new_object(void)
{
    for (int i = 0; i < NEIGHBOURS; i++) write_secret(neighbours[i] = make());
    for (int i = 0; i < NEIGHBOURS; i++) give(neighbours[i]);
    for (int i = 0; i < 512; i++) {
        char *object = hidden(malloc(object_bytes));
        if (look_for_secret(object) != NULL) return SPOILT;
        if (object_bytes > 100000 && i > 128) break;
    }
    return HARMLESS;
}

/* Where the next object will stand is known from the last: the difference between two in a row comes again. */
static int layout(void)
{
    make_neighbours();
    intptr_t stride = neighbours[NEIGHBOURS - 1] - neighbours[NEIGHBOURS - 2];
    char *guess = neighbours[NEIGHBOURS - 1] + stride, *given = make();
    return given == guess ? SPOILT : HARMLESS;
}

static int free_twice(void)
{
    char *object = among_neighbours();
    free(object);
    give(object);
    go_on();
    return SPOILT;
}

static int free_twice_later(void)
{
    enum { BETWEEN = 20 };
    char *object = among_neighbours(), *between[BETWEEN];
    for (int i = 0; i < BETWEEN; i++) between[i] = make();
    free(object);
    for (int i = 0; i < BETWEEN; i++) free(between[i]);
    give(object);
    go_on();
    return SPOILT;
}

static int free_inside(void)
{
    give(among_neighbours() + 16);
    go_on();
    return SPOILT;
}

static int free_unaligned(void)
{
    give(among_neighbours() + 1);
    go_on();
    return SPOILT;
}

static int free_of_the_stack(void)
{
    char local[512] __attribute__((aligned(64)));
    memset(local, 0, sizeof local);
    /* What an attacker would forge for glibc: the size of a chunk that looks in use. */
    size_t chunk = 0x41;
    memcpy(local + 56, &chunk, sizeof chunk);
    give(hidden(local + 64));
    go_on();
    return SPOILT;
}

static void *resize_it(void *pointer)
{
    return realloc(pointer, object_bytes + object_bytes / 2);
}

static int resize_after_free(void)
{
    char *object = among_neighbours();
    free(object);
    call_in_its_way(resize_it, object);
    go_on();
    return SPOILT;
}

/* C++'s operators, and C23's free_sized, where the allocator or a library that is loaded has them. */
extern void free_sized(void *pointer, size_t size) __attribute__((weak));
extern void delete_sized(void *pointer, size_t size) __asm__("_ZdlPvm") __attribute__((weak));
extern void delete_aligned(void *pointer, size_t alignment) __asm__("_ZdlPvSt11align_val_t") __attribute__((weak));
extern void *new_array(size_t size) __asm__("_Znam") __attribute__((weak));
extern void *new_object(size_t size) __asm__("_Znwm") __attribute__((weak));
extern void delete_object(void *pointer) __asm__("_ZdlPv") __attribute__((weak));

static void *free_with_twice_its_size(void *pointer)
{
    size_t size = bytes_of(pointer) * 2;
    if (free_sized != NULL) free_sized(pointer, size);
    else delete_sized(pointer, size);
    return NULL;
}

static int free_of_another_size(void)
{
    char *object = among_neighbours();
    if (free_sized == NULL && delete_sized == NULL) return SPOILT;
    call_in_its_way(free_with_twice_its_size, object);
    go_on();
    return SPOILT;
}

static void *free_with_another_alignment(void *pointer)
{
    size_t alignment = 16;
    while ((uintptr_t)pointer % alignment == 0) alignment *= 2;
    delete_aligned(pointer, alignment);
    return NULL;
}

static int free_of_another_alignment(void)
{
    char *object = among_neighbours();
    if (delete_aligned == NULL) return SPOILT;
    call_in_its_way(free_with_another_alignment, object);
    go_on();
    return SPOILT;
}

static void *delete_it(void *pointer)
{
    delete_object(pointer);
    return NULL;
}

static int delete_of_an_array(void)
{
    make_neighbours();
    if (new_array == NULL || delete_object == NULL) return SPOILT;
    call_in_its_way(delete_it, hidden(new_array(object_bytes)));
    go_on();
    return SPOILT;
}

static int delete_of_what_malloc_gave(void)
{
    char *object = among_neighbours();
    if (delete_object == NULL) return SPOILT;
    call_in_its_way(delete_it, object);
    go_on();
    return SPOILT;
}

static int free_of_what_new_gave(void)
{
    make_neighbours();
    if (new_object == NULL) return SPOILT;
    give(hidden(new_object(object_bytes)));
    go_on();
    return SPOILT;
}

static int write_to_nothing(void)
{
    char *object = hidden(malloc(0));
    if (way == RESIZED) object = hidden(calloc(0, 8));
    put(object, ones, 8);
    go_on();
    return SPOILT;
}

static const struct {
    const char *name;
    int (*run)(void);
} attacks[] = {
    {"overflow-byte", overflow_of_a_byte},
    {"overflow-zero", overflow_of_a_zero},
    {"overflow-words", overflow_of_words},
    {"overflow-endless", overflow_without_end},
    {"asked-byte", overflow_of_a_byte_asked},
    {"asked-words", overflow_of_words_asked},
    {"underflow-byte", underflow_of_a_byte},
    {"underflow-word", underflow_of_a_word},
    {"underflow-words", underflow_of_words},
    {"write-ahead", write_ahead},
    {"write-behind", write_behind},
    {"span-overflow", overflow_out_of_a_span},
    {"span-underflow", underflow_out_of_a_span},
    {"write-after-free", write_after_free},
    {"write-after-free-inside", write_after_free_inside},
    {"link", link_of_a_free_block},
    {"use-after-free", use_of_anothers},
    {"stale-pointer", stale_data_through_the_old_pointer},
    {"stale-object", stale_data_in_a_new_object},
    {"layout", layout},
    {"double-free", free_twice},
    {"double-free-later", free_twice_later},
    {"free-inside", free_inside},
    {"free-unaligned", free_unaligned},
    {"free-stack", free_of_the_stack},
    {"realloc-after-free", resize_after_free},
    {"free-size", free_of_another_size},
    {"free-alignment", free_of_another_alignment},
    {"delete-array", delete_of_an_array},
    {"delete-malloc", delete_of_what_malloc_gave},
    {"free-new", free_of_what_new_gave},
    {"empty", write_to_nothing},
};

int main(int argc, char **argv)
{
    if (argc != 5) return WRONG_USE;
    object_bytes = strtoul(argv[2], NULL, 10);
    for (way = DIRECT; way < WAYS && strcmp(argv[3], way_names[way]) != 0; way++) {
    }
    srand((unsigned)atoi(argv[4]));
    if (object_bytes == 0 || way == WAYS) return WRONG_USE;
    char *sample = hidden(malloc(object_bytes));
    object_bytes = bytes_of(sample);
    free(sample);
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        if (strcmp(attacks[i].name, argv[1]) == 0) return attacks[i].run();
    return WRONG_USE;
}
