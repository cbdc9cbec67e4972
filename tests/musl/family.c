/* The malloc family as programs made for musl know it: what it promises, and where musl's differs from glibc's. */
#include "check.h"

/* Sizes that the compiler cannot see, so that it neither warns nor folds. */
static volatile size_t too_much = SIZE_MAX / 2 + 2, three = 3, nothing = 0;

static void alignments_hold(void)
{
    for (size_t alignment = sizeof(void *); alignment <= (4 << 20); alignment *= 2) {
        for (size_t size = 0; size < 5000; size += 631) {
            void *block = NULL;
            CHECK(posix_memalign(&block, alignment, size) == 0);
            CHECK((uintptr_t)block % alignment == 0 && (uintptr_t)block % 16 == 0);
            CHECK(malloc_usable_size(block) >= size);
            memset(block, 1, malloc_usable_size(block));
            free(block);
            block = aligned_alloc(alignment, size);
            CHECK(block != NULL && (uintptr_t)block % alignment == 0);
            free(block);
        }
    }
    void *block = memalign(4096, 1);
    CHECK(block != NULL && (uintptr_t)block % 4096 == 0);
    free(block);
    block = valloc(1);
    CHECK(block != NULL && (uintptr_t)block % (size_t)sysconf(_SC_PAGESIZE) == 0);
    free(block);
    CHECK(posix_memalign(&block, three, 8) == EINVAL);
    errno = 0;
    CHECK(aligned_alloc(three, 8) == NULL && errno == EINVAL);
}

static void what_cannot_be_had_is_refused(void)
{
    void *block = NULL, *kept = malloc(10);
    CHECK(kept != NULL);
    memcpy(kept, "something", 10);
    errno = 0;
    CHECK(malloc(too_much) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(too_much, 2) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, too_much, 2) == NULL && errno == ENOMEM);
    CHECK(posix_memalign(&block, 16, too_much) == ENOMEM && block == NULL);
    errno = 0;
    CHECK(realloc(kept, too_much) == NULL && errno == ENOMEM);
    CHECK(memcmp(kept, "something", 10) == 0);
    errno = 17;
    free(kept);
    free(NULL);
    CHECK(errno == 17);
}

static void nothing_is_an_object_too(void)
{
    void *one = malloc(nothing), *other = malloc(nothing);
    CHECK(one != NULL && other != NULL && one != other);
    free(other);
    CHECK(malloc_usable_size(NULL) == 0);
    /* glibc's would free it, return NULL, and the program take that for want of memory. */
    one = realloc(one, nothing);
    CHECK(one != NULL);
    one = realloc(one, 100000);
    CHECK(one != NULL);
    one = realloc(one, nothing);
    CHECK(one != NULL);
    one = reallocarray(one, nothing, 8);
    CHECK(one != NULL);
    free(one);
}

int main(void)
{
    alignments_hold();
    what_cannot_be_had_is_refused();
    nothing_is_an_object_too();
    return 0;
}
