/* A program without a threads library of its own, as it were: the allocator found none when it was loaded. It starts threads
 * one after the other, and forks; what each thread took must be there for the next.
 *
 *     old late|never     when the allocator gets the functions that start threads, which it wants for one of its own
 *     old overflow       what is read beyond a guarded object is reported, with stacks
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 200, BLOCKS = 4000, BLOCK = 512 }; /* 2 MiB each: 400 in all */
enum { RESIDENT_KIB_MAX = 64 * 1024 };

static void *allocate(void *unused)
{
    static _Thread_local char *blocks[BLOCKS];
    (void)unused;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK);
        if (blocks[i] == NULL) abort();
        blocks[i][0] = (char)i;
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i][0] != (char)i) abort();
        free(blocks[i]);
    }
    return NULL;
}

static void run_threads(int count)
{
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, allocate, NULL) != 0 || pthread_join(thread, NULL) != 0) abort();
    }
}

static void overflow(void)
{
    for (volatile size_t beyond = 64;;) {
        char *volatile object = malloc(64);
        object[0] = ((volatile char *)object)[beyond];
        free(object);
    }
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1) abort();
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int threads(void)
{
    int count = -2; /* the folder, and the one above */
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL) abort();
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "overflow") == 0) overflow();
    int others = argc == 2 && strcmp(argv[1], "late") == 0 ? 1 : 0;
    if (threads() != 1 + others) {
        fprintf(stderr, "%d threads instead of %d\n", threads(), 1 + others);
        return 1;
    }
    run_threads(THREADS);
    pid_t child = fork();
    if (child == 0) {
        run_threads(2);
        _exit(0);
    }
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
    long kib = resident_kib();
    if (kib >= RESIDENT_KIB_MAX) fprintf(stderr, "%ld KiB are resident\n", kib);
    return kib < RESIDENT_KIB_MAX ? 0 : 1;
}
