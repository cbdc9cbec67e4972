/* A library that keeps something for each thread, as libraries do: in a thread-specific key whose destructor is free, in one whose
 * destructor is its own, and in a thread-local variable with a destructor, as C++ has them. It is closed while threads have all
 * three.
 */
#include "forking.h"

/* The C library's, by which C++ registers a destructor: the library stays until the last of them has run. */
int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library);
extern void *__dso_handle;

static pthread_key_t freed_by_malloc, freed_by_us;
static __thread char
    large[20000]; /* comes by malloc in each thread that uses it, and goes with the thread or the library */

struct kept {
    char *lines[20];
};

static void kept_free(void *argument)
{
    struct kept *kept = argument;
    for (unsigned i = 0; i < 20; i++) free(kept->lines[i]);
    free(kept);
}

static struct kept *kept_new(void)
{
    struct kept *kept = malloc(sizeof *kept);
    require(kept != NULL, "no memory");
    for (unsigned i = 0; i < 20; i++) kept->lines[i] = calloc(1, 20 + 30 * i);
    return kept;
}

__attribute__((visibility("default"))) void plugin_use(void)
{
    memset(large, 1, sizeof large);
    pthread_setspecific(freed_by_malloc, malloc(100));
    pthread_setspecific(freed_by_us, kept_new());
}

__attribute__((visibility("default"))) void plugin_use_as_cxx(void)
{
    __cxa_thread_atexit_impl(kept_free, kept_new(), &__dso_handle);
}

__attribute__((constructor)) static void begin(void)
{
    require(pthread_key_create(&freed_by_malloc, free) == 0, "no key");
    require(pthread_key_create(&freed_by_us, kept_free) == 0, "no key");
}

/* What the other threads have there is lost, but for nobody's sake may it be reached any more. */
__attribute__((destructor)) static void end(void)
{
    kept_free(pthread_getspecific(freed_by_us));
    pthread_key_delete(freed_by_us);
}
