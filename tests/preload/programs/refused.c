/* Allocates in all ways, on several threads and after a fork, while the kernel refuses this and that.
 *
 * What is refused as by a full memory (NULL, ENOMEM) is counted, and the count printed at the end. Objects must hold what was
 * written into them whatever happens: exit code 1 otherwise, and if an allocation fails in another way.
 */
#include "system.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { OBJECTS = 400, THREADS = 3, KIB = 1024, MIB = 1024 * 1024, ANSWER_SECONDS = 5 };

struct object {
    unsigned char *start;
    size_t size;
};

static atomic_int refused, wrong;

static size_t size_of(unsigned number)
{
    if (number % 100 == 50) return (size_t)4 * MIB + number;
    if (number % 20 == 10) return (size_t)100 * KIB + number;
    return number * 37 % 3000 + 1;
}

static void fill(struct object *object, unsigned char *start, size_t size, int zeros)
{
    *object = (struct object){.start = start, .size = start == NULL ? 0 : size};
    if (start == NULL) {
        if (errno != ENOMEM) wrong++;
        refused++;
        return;
    }
    if (zeros && (start[0] != 0 || start[size - 1] != 0)) wrong++;
    start[0] = start[size - 1] = (unsigned char)size;
}

static void make(struct object *object, unsigned number)
{
    size_t size = size_of(number);
    errno = 0;
    if (number % 3 == 0) fill(object, calloc(1, size), size, 1);
    else if (number % 7 == 0) fill(object, memalign(4096, size), size, 0);
    else fill(object, malloc(size), size, 0);
}

static void check(const struct object *object)
{
    if (object->size != 0 && (object->start[0] != (unsigned char)object->size ||
                              object->start[object->size - 1] != (unsigned char)object->size ||
                              malloc_usable_size(object->start) < object->size))
        wrong++;
}

static void grow(struct object *object, size_t size)
{
    check(object);
    unsigned char first = object->size != 0 ? object->start[0] : 0;
    errno = 0;
    unsigned char *grown = realloc(object->start, size);
    if (grown == NULL) {
        if (errno != ENOMEM) wrong++;
        refused++;
        return; /* the old one is as before */
    }
    if (object->size != 0 && grown[0] != first) wrong++;
    *object = (struct object){.start = grown, .size = size};
    grown[0] = grown[size - 1] = (unsigned char)size;
}

static void drop(struct object *object)
{
    check(object);
    free(object->start);
    *object = (struct object){0};
}

static void *work(void *argument)
{
    struct object *objects = argument;
    for (unsigned i = 0; i < OBJECTS; i++) make(&objects[i], i);
    for (unsigned i = 0; i < OBJECTS; i += 2) drop(&objects[i]);
    return NULL;
}

static void work_on_threads(void)
{
    static struct object objects[THREADS][OBJECTS];
    pthread_t threads[THREADS];
    int started[THREADS];
    for (int i = 0; i < THREADS; i++) started[i] = pthread_create(&threads[i], NULL, work, objects[i]) == 0;
    for (int i = 0; i < THREADS; i++)
        if (started[i]) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) /* what others have made */
        for (unsigned k = 0; k < OBJECTS; k++) drop(&objects[i][k]);
}

static void work_in_a_child(void)
{
    static struct object objects[OBJECTS];
    pid_t child = fork();
    int status = 0;
    if (child < 0) return;
    if (child == 0) {
        work(objects);
        work_on_threads();
        _exit(wrong != 0);
    }
    if (waitpid(child, &status, 0) == child && status != 0) wrong++;
}

/* Asks over the control channel, if there is one: no answer is none's fault. */
static void ask(const char *request)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    char answer[4096];
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "heapfit/%d", (int)getpid());
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (connection < 0) return;
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* for connect, too */
    if (connect(connection, (struct sockaddr *)&address, size) == 0 &&
        send(connection, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request)) {
        ssize_t got = recv(connection, answer, sizeof answer, 0);
        if (got > 0 && answer[0] != '{') wrong++;
    }
    close(connection);
}

/* Nothing else in this process calls this function: of all that it asks of the kernel, this alone must not be refused. */
static void report(void)
{
    char text[64];
    struct iovec line = {text, 0};
    line.iov_len = (size_t)snprintf(text, sizeof text, "refused %d wrong %d\n", (int)refused, (int)wrong);
    if (writev(STDOUT_FILENO, &line, 1) < 0) abort();
}

int main(void)
{
    static struct object objects[OBJECTS];
    struct object growing = {0};
    work(objects);
    for (size_t size = 64 * KIB; size <= (size_t)64 * MIB; size *= 2) grow(&growing, size);
    work_on_threads();
    ask("stats\n");
    ask("ledger\n");
    work_in_a_child();
    for (unsigned i = 0; i < OBJECTS; i++) drop(&objects[i]);
    drop(&growing);
    malloc_trim(0);
    (void)mallinfo2();
    malloc_stats();
    work(objects);
    report();
    return wrong != 0;
}
