/* malloc called from hand-written code, on stacks that end early or hold nonsense, and on coroutines' own stacks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { OBJECTS = 1000, STACK_BYTES = 64 * 1024, PAGE = 4096 };

void *malloc_with_any_registers(size_t size);
void *malloc_at_the_end(size_t size, void *end);
void *malloc_below_nonsense(size_t size, void *end);

static unsigned char *objects[4 * OBJECTS];
static unsigned count;
static ucontext_t outside, inside;

static void keep(void *object, size_t size)
{
    if (object == NULL) abort();
    memset(object, (int)(count % 251), size);
    objects[count++] = object;
}

/* With nothing mapped behind its end. */
static char *stack_end(void)
{
    char *stack = mmap(NULL, STACK_BYTES + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) abort();
    return stack + STACK_BYTES;
}

static void coroutine(void)
{
    for (;;) {
        keep(malloc(40), 40);
        swapcontext(&inside, &outside);
    }
}

int main(void)
{
    char *end = stack_end(), *other_end = stack_end();
    uint64_t sum = 0;
    getcontext(&inside);
    inside.uc_stack.ss_sp = other_end - STACK_BYTES;
    inside.uc_stack.ss_size = STACK_BYTES;
    makecontext(&inside, coroutine, 0);
    for (int i = 0; i < OBJECTS; i++) {
        keep(malloc_with_any_registers(40), 40);
        keep(malloc_at_the_end(40, end), 40);
        keep(malloc_below_nonsense(40, end), 40);
        swapcontext(&outside, &inside);
    }
    for (unsigned i = 0; i < count; i++) {
        for (int at = 0; at < 40; at++) sum = sum * 3 + objects[i][at];
        free(objects[i]);
    }
    printf("%u objects, %016llx\n", count, (unsigned long long)sum);
    return 0;
}
