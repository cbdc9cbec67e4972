/* What the background thread has to do with the program's descriptors and filters: apart descriptors|filter|filter-at-once
 *
 * A program of two threads frees so much that the background thread comes. `descriptors` waits until that one has at most one file
 * open in a table of its own, while the program has many. `filter` then puts all threads behind a filter that kills for opening
 * files, and waits until the background thread has left. `filter-at-once` does so as soon as the call that started it has returned. */
#include "system.h"

#include <stdbool.h>

enum { OBJECTS = 400, OBJECT_SIZE = 100 << 10, OPEN = 8, NO_FILTER = 77 };

static void *rest(void *unused)
{
    free(malloc(100));
    for (;;) pause();
    return unused;
}

/* The number of a thread by its name; 0: there is none. */
static int thread_named(const char *name)
{
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; found == 0 && (entry = readdir(tasks)) != NULL;) {
        char path[300], text[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue;
        if (fgets(text, sizeof text, file) != NULL) text[strcspn(text, "\n")] = '\0';
        if (strcmp(text, name) == 0) found = atoi(entry->d_name);
        fclose(file);
    }
    closedir(tasks);
    return found;
}

/* Files that a thread has open; -1: it has ended. */
static int open_files_of(int thread)
{
    char path[100];
    int count = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/fd", thread);
    DIR *files = opendir(path);
    if (files == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(files)) != NULL;) count += entry->d_name[0] != '.';
    closedir(files);
    return count;
}

static void burst(void)
{
    static void *objects[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) memset(objects[i] = malloc(OBJECT_SIZE), 1, OBJECT_SIZE);
    for (int i = 0; i < OBJECTS; i++) free(objects[i]);
}

/* Each state is waited for, however long it takes. */
static void wait_until_apart(void)
{
    for (int files = -1; files < 0 || files > 1;) {
        int thread = thread_named("heapfit-reclaim");
        if (thread == 0) burst();
        else files = open_files_of(thread);
        sched_yield();
    }
}

static void confine(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) exit(NO_FILTER);
}

static bool has_company(void)
{
    enum { FOLDERS_LINKS = 2, OWN_THREADS = 2 };
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > FOLDERS_LINKS + OWN_THREADS;
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    pthread_t other;
    for (int i = 0; i < OPEN; i++)
        if (dup(STDOUT_FILENO) < 0) return EXIT_FAILURE;
    if (pthread_create(&other, NULL, rest, NULL) != 0) return EXIT_FAILURE;
    if (strcmp(mode, "filter-at-once") == 0)
        while (!has_company()) burst();
    else wait_until_apart();
    if (strncmp(mode, "filter", strlen("filter")) == 0) {
        confine();
        while (has_company()) sched_yield();
    }
    puts("done");
    return EXIT_SUCCESS;
}
