/* Loads the library that is named, which is linked with heapfit, uses heapfit through it in several threads at once, and
 * unloads it while some of them live on with blocks of theirs; then all over again. The program itself knows nothing of
 * heapfit. Exits with 0 when all is well. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20, THREADS = 4, BLOCKS = 300 };

struct heapfit {
    void *(*allocate)(size_t);
    void *(*zeroed)(size_t, size_t);
    void (*release)(void *);
};

static struct heapfit heapfit;
static pthread_barrier_t step;
static void *left_behind[THREADS]; /* to the round after, and its threads */

static void require(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "%s: %s\n", what, dlerror());
    exit(1);
}

static void *look_up(void *library, const char *name)
{
    void *found = dlsym(library, name);
    require(found != NULL, name);
    return found;
}

static void use(size_t number)
{
    char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 16 + i * (i % 50 == 0 ? 1000 : 10);
        blocks[i] = i % 3 == 0 ? heapfit.zeroed(1, size) : heapfit.allocate(size);
        if (blocks[i] == NULL) abort();
        memset(blocks[i], (int)number, size);
    }
    for (size_t i = 0; i < BLOCKS; i++) heapfit.release(blocks[i]);
}

/* Before, while and after the library is unloaded: its code stays, for it owns live memory. */
static void *live(void *argument)
{
    size_t number = *(size_t *)argument;
    use(number);
    heapfit.release(left_behind[number]);
    left_behind[number] = heapfit.allocate(1000);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    use(number);
    return NULL;
}

static void round_of(const char *path)
{
    pthread_t threads[THREADS];
    size_t numbers[THREADS];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    require(library != NULL, path);
    *(void **)&heapfit.allocate = look_up(library, "hf_malloc");
    *(void **)&heapfit.zeroed = look_up(library, "hf_calloc");
    *(void **)&heapfit.release = look_up(library, "hf_free");
    for (size_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        require(pthread_create(&threads[i], NULL, live, &numbers[i]) == 0, "thread");
    }
    pthread_barrier_wait(&step);
    require(dlclose(library) == 0, "dlclose");
    pthread_barrier_wait(&step);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **words)
{
    if (count != 2) return 2;
    pthread_barrier_init(&step, NULL, THREADS + 1);
    for (int i = 0; i < ROUNDS; i++) round_of(words[1]);
    return 0;
}
