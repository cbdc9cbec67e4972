/* Functions that allocate, as programs have them; compiled once for each way of compiling. */
#include "subject.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(function) JOIN(function, WAY)
/* A function that is looked at: called as others call it, not made part of its caller, nor fitted to it. */
#ifdef __clang__
#define SUBJECT(function) __attribute__((noinline)) NAME(function)
#else
#define SUBJECT(function) __attribute__((noinline, noclone)) NAME(function)
#endif

struct node {
    struct node *next;
    int value;
};
struct vector {
    size_t size;
    void *data;
};

static volatile size_t total, calls;
static struct node *volatile list;
static void *volatile last;
static volatile int sink;

/* ---- those that pass it on --------------------------------------------------------------------------------------- */

void *SUBJECT(or_die)(size_t size)
{
    void *object = allocate(size);
    if (object == NULL) die("out of memory");
    return object;
}

void *SUBJECT(or_die_unless_empty)(size_t size)
{
    void *object = allocate(size);
    if (object == NULL && size != 0) {
        sink = 1;
        die("out of memory");
    }
    return object;
}

void *SUBJECT(counted)(size_t size)
{
    void *object = allocate(size);
    if (object == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    total += size;
    calls++;
    return object;
}

void *SUBJECT(retried)(size_t size)
{
    void *object;
    while ((object = allocate(size)) == NULL) {
        if (!is_ready()) die("no memory at all");
    }
    return object;
}

void *SUBJECT(locked)(size_t size)
{
    lock_heap();
    void *object = allocate(size);
    unlock_heap();
    return object;
}

void *SUBJECT(limited)(size_t size)
{
    if (size > 1 << 20) return NULL;
    if (size == 0) size = 1;
    void *object = allocate(size);
    if (!is_ready()) return NULL;
    return object;
}

void *SUBJECT(cleared)(size_t size)
{
    void *object = allocate(size);
    if (object != NULL) memset(object, 0, size);
    return object;
}

void *SUBJECT(duplicate)(const void *from, size_t size)
{
    void *object = allocate(size);
    if (object == NULL) die("out of memory");
    memcpy(object, from, size);
    calls++;
    return object;
}

char *SUBJECT(duplicate_string)(const char *from)
{
    return strcpy(allocate(strlen(from) + 1), from);
}

void *SUBJECT(behind_header)(size_t size)
{
    size_t *object = allocate(size + 16);
    if (object == NULL) return NULL;
    object[0] = size;
    object[1] = 0x600d;
    return object + 2;
}

void *SUBJECT(aligned)(size_t size, size_t alignment)
{
    char *object = allocate(size + alignment + sizeof(void *));
    if (object == NULL) return NULL;
    void **place = (void **)((uintptr_t)(object + sizeof(void *) + alignment - 1) & -alignment);
    place[-1] = object;
    return place;
}

struct vector SUBJECT(as_a_pair)(size_t size)
{
    void *object = allocate(size);
    return (struct vector){size, object};
}

int SUBJECT(by_parameter)(size_t size, void **place)
{
    void *object = allocate(size);
    if (object == NULL) return ENOMEM;
    *place = object;
    return 0;
}

int SUBJECT(by_last_parameter)(int a, int b, int c, int d, int e, void **place)
{
    *place = NULL;
    if (a + b + c + d + e < 0) return 1;
    void *object = allocate((size_t)a);
    *place = object;
    calls++;
    return is_ready();
}

/* From another wrapper, which stores it where an argument points. */
void *SUBJECT(out_of_a_variable)(void)
{
    void *object = NULL;
    allocate_into(&object);
    if (object == NULL) die("out of memory");
    return object;
}

int SUBJECT(through_both)(int unused, void **place)
{
    sink = unused;
    int status = allocate_second(40, place);
    if (status != 0) sink = status;
    return status;
}

void *SUBJECT(status_and_variable)(size_t size)
{
    void *object;
    if (allocate_second(size, &object) != 0) return NULL;
    return object;
}

/* ---- those that use it ------------------------------------------------------------------------------------------- */

struct node *SUBJECT(constructs)(int value)
{
    struct node *node = allocate(sizeof *node);
    if (node == NULL) die("out of memory");
    node->next = NULL;
    node->value = value;
    return node;
}

void SUBJECT(links)(int value)
{
    struct node *node = allocate(sizeof *node);
    node->value = value;
    node->next = list;
    list = node;
}

void SUBJECT(hangs_into_parameter)(struct node *parent)
{
    parent->next = allocate(sizeof *parent);
    parent->next->value = 1;
}

void SUBJECT(keeps_as_field)(struct vector *vector, size_t size)
{
    vector->data = allocate(size);
    vector->size = size;
}

void *SUBJECT(keeps_in_global)(size_t size)
{
    void *object = allocate(size);
    last = object;
    return object;
}

void *SUBJECT(hands_down)(size_t size)
{
    void *object = allocate(size);
    initialise(object);
    return object;
}

void *SUBJECT(hands_down_by_reference)(size_t size)
{
    void *object = allocate(size);
    initialise_at(&object);
    return object;
}

int SUBJECT(reads)(size_t size)
{
    volatile int *object = allocate(size);
    return object[3];
}

int SUBJECT(fills_and_writes)(struct node **place)
{
    struct node *node = allocate(sizeof *node);
    if (node == NULL) return -1;
    *place = node;
    memset(node, 0, sizeof *node);
    node->value = 7;
    return 0;
}

char *SUBJECT(ends_string)(size_t size)
{
    char *object = allocate(size + 1);
    object[size] = 0;
    return object;
}

int SUBJECT(drops)(size_t size)
{
    return allocate(size) != NULL;
}

int SUBJECT(out_of_a_variable_and_reads)(void)
{
    void *object = NULL;
    allocate_into(&object);
    return ((volatile int *)object)[1];
}

void SUBJECT(second_into_field)(struct vector *vector)
{
    allocate_second(40, &vector->data);
    calls++; /* so that the call is not its last instruction */
}

/* ---- calling them ------------------------------------------------------------------------------------------------ */

static char memory[64];
static void *place;
static struct vector vector;

#define RUN(function, ...)                                                                                             \
    static void NAME(run_##function)(void)                                                                             \
    {                                                                                                                  \
        (void)NAME(function)(__VA_ARGS__);                                                                             \
    }

RUN(or_die, 40)
RUN(or_die_unless_empty, 40)
RUN(counted, 40)
RUN(retried, 40)
RUN(locked, 40)
RUN(limited, 40)
RUN(cleared, 40)
RUN(duplicate, memory, sizeof memory)
RUN(duplicate_string, memory)
RUN(behind_header, 40)
RUN(aligned, 40, 64)
RUN(as_a_pair, 40)
RUN(by_parameter, 40, &place)
RUN(by_last_parameter, 40, 1, 2, 3, 4, &place)
RUN(out_of_a_variable, )
RUN(through_both, 1, &place)
RUN(status_and_variable, 40)
RUN(constructs, 1)
RUN(links, 1)
RUN(hangs_into_parameter, &(struct node){0})
RUN(keeps_as_field, &vector, 40)
RUN(keeps_in_global, 40)
RUN(hands_down, 40)
RUN(hands_down_by_reference, 40)
RUN(reads, 40)
RUN(fills_and_writes, (struct node **)&place)
RUN(ends_string, 39)
RUN(drops, 40)
RUN(out_of_a_variable_and_reads, )
RUN(second_into_field, &vector)

enum { RETURN = -1 };
#define IS(function, arrives, expected, passing)                                                                       \
    {#function, NAME(run_##function), NULL, NULL, NULL, expected, arrives, passing}

extern const struct subject NAME(subjects)[];
const struct subject NAME(subjects)[] = {
    IS(or_die, RETURN, PASSED_ON, RETURN),
    IS(or_die_unless_empty, RETURN, PASSED_ON, RETURN),
    IS(counted, RETURN, PASSED_ON, RETURN),
    IS(retried, RETURN, PASSED_ON, RETURN),
    IS(locked, RETURN, PASSED_ON, RETURN),
    IS(limited, RETURN, PASSED_ON, RETURN),
    IS(cleared, RETURN, PASSED_ON, RETURN),
    IS(duplicate, RETURN, PASSED_ON, RETURN),
    IS(duplicate_string, RETURN, PASSED_ON, RETURN),
    IS(behind_header, RETURN, PASSED_ON, RETURN),
    IS(aligned, RETURN, PASSED_ON, RETURN),
    IS(as_a_pair, RETURN, PASSED_ON, RETURN),
    IS(by_parameter, RETURN, PASSED_ON, 1),
    IS(by_last_parameter, RETURN, PASSED_ON, 5),
    IS(out_of_a_variable, 0, PASSED_ON, RETURN),
    IS(through_both, 1, PASSED_ON, 1),
    IS(status_and_variable, 1, PASSED_ON, RETURN),
    IS(constructs, RETURN, USED, RETURN),
    IS(links, RETURN, USED, RETURN),
    IS(hangs_into_parameter, RETURN, USED, RETURN),
    IS(keeps_as_field, RETURN, USED, RETURN),
    IS(keeps_in_global, RETURN, USED, RETURN),
    IS(hands_down, RETURN, USED, RETURN),
    IS(hands_down_by_reference, RETURN, USED, RETURN),
    IS(reads, RETURN, USED, RETURN),
    IS(fills_and_writes, RETURN, USED, RETURN),
    IS(ends_string, RETURN, USED, RETURN),
    IS(drops, RETURN, USED, RETURN),
    IS(out_of_a_variable_and_reads, 0, USED, 0),
    IS(second_into_field, 1, USED, 1),
    {NULL, NULL, NULL, NULL, NULL, 0, 0, 0},
};
