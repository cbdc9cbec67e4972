/* What /proc says of the process, and why it may not be attached to. */
#include "attach.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files below /proc/PID -------------------------------------------------------------------------------------------- */

static ssize_t read_file(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    size_t size = 0;
    for (ssize_t count; size + 1 < room && (count = read(file, text + size, room - 1 - size)) > 0;)
        size += (size_t)count;
    close(file);
    text[size] = '\0';
    return (ssize_t)size;
}

enum { STATUS_BYTES = 8192, PATH_BYTES = 4200 };

static bool read_status(pid_t pid, pid_t thread, char text[STATUS_BYTES])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)thread);
    return read_file(path, text, STATUS_BYTES) > 0;
}

/* What stands behind "Name:"; NULL: there is no such line. */
static const char *field(const char *status, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = status; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1;
            return line + strspn(line, " \t");
        }
    }
    return NULL;
}

static long number(const char *status, const char *name)
{
    const char *text = field(status, name);
    return text == NULL ? 0 : strtol(text, NULL, 10);
}

static uint64_t signals(const char *status, const char *name)
{
    const char *text = field(status, name);
    return text == NULL ? 0 : strtoull(text, NULL, 16);
}

char process_state(pid_t pid, pid_t thread)
{
    char status[STATUS_BYTES];
    const char *state = read_status(pid, thread, status) ? field(status, "State") : NULL;
    return state == NULL || *state == 'Z' || *state == 'X' ? 0 : *state;
}

bool process_has_pending(pid_t pid, pid_t thread, uint64_t mask)
{
    char status[STATUS_BYTES];
    if (!read_status(pid, thread, status)) return true;
    return ((signals(status, "SigPnd") | signals(status, "ShdPnd")) & ~mask) != 0;
}

bool process_call(pid_t pid, pid_t thread, struct call *call)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", (int)pid, (int)thread);
    return read_file(path, text, sizeof text) > 0 &&
           sscanf(text, "%ld %lx %lx %lx %lx %lx %lx %*x %lx", &call->number, &call->arguments[0], &call->arguments[1],
                  &call->arguments[2], &call->arguments[3], &call->arguments[4], &call->arguments[5], &call->from) == 8;
}

size_t process_threads(pid_t pid, pid_t *threads, size_t room)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    size_t count = 0;
    if (folder == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread == 0) continue;
        if (count < room) threads[count] = thread;
        count++;
    }
    closedir(folder);
    return count;
}

/* As its process knows it, which may have a PID namespace of its own. */
static pid_t own_number(pid_t pid, pid_t thread)
{
    char status[STATUS_BYTES];
    if (!read_status(pid, thread, status)) return 0;
    const char *numbers = field(status, "NSpid");
    if (numbers == NULL) return thread; /* a kernel without such namespaces */
    const char *last = numbers + strcspn(numbers, "\n");
    while (last > numbers && last[-1] != '\t') last--;
    return (pid_t)strtol(last, NULL, 10);
}

pid_t process_find_thread(pid_t pid, pid_t own)
{
    enum { LOOKED_AT = 4096 };
    static pid_t threads[LOOKED_AT];
    if (own_number(pid, own) == own) return own;
    size_t count = process_threads(pid, threads, LOOKED_AT);
    for (size_t i = 0; i < count && i < LOOKED_AT; i++)
        if (own_number(pid, threads[i]) == own) return threads[i];
    return 0;
}

/* The kernel's own that work for the process are among its threads (io_uring, vhost), and run no code of its. */
static bool is_of_kernel(pid_t pid, pid_t thread)
{
    static const char *const names[] = {"iou-wrk", "iou-sqp", "vhost-"};
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)pid, (int)thread);
    read_file(path, name, sizeof name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

bool process_has_one_thread(pid_t pid)
{
    enum { LOOKED_AT = 64 };
    pid_t threads[LOOKED_AT];
    size_t all = process_threads(pid, threads, LOOKED_AT), count = all;
    for (size_t i = 0; i < all && i < LOOKED_AT; i++) count -= threads[i] != pid && is_of_kernel(pid, threads[i]);
    return count <= 1;
}

/* ---- mappings --------------------------------------------------------------------------------------------------------- */

static bool mapping_read(char *line, struct mapping *mapping)
{
    int at = 0;
    if (sscanf(line, "%lx-%lx %4s %lx %*s %lu %n", &mapping->start, &mapping->end, mapping->permissions,
               &mapping->offset, &mapping->inode, &at) < 5)
        return false;
    snprintf(mapping->path, sizeof mapping->path, "%s", line + at);
    mapping->path[strcspn(mapping->path, "\n")] = '\0';
    return true;
}

bool process_mappings(pid_t pid, struct mappings *found)
{
    char path[64], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    found->count = 0;
    while (getline(&line, &room, file) > 0) {
        if (found->count == found->room) {
            found->room = found->room == 0 ? 256 : 2 * found->room;
            found->all = realloc(found->all, found->room * sizeof *found->all);
            if (found->all == NULL) refuse("there is no memory for its mappings");
        }
        found->count += mapping_read(line, &found->all[found->count]);
    }
    free(line);
    fclose(file);
    return true;
}

const struct mapping *mapping_of(const struct mappings *mappings, uint64_t address)
{
    for (size_t i = 0; i < mappings->count; i++)
        if (address - mappings->all[i].start < mappings->all[i].end - mappings->all[i].start) return &mappings->all[i];
    return NULL;
}

bool is_named(const struct mapping *mapping, const char *name)
{
    const char *slash = strrchr(mapping->path, '/');
    if (slash == NULL) return false;
    size_t stem = (size_t)(strchr(name, '.') - name), length = strcspn(slash + 1, " "); /* " (deleted)" */
    if (length == strlen(name) && strncmp(slash + 1, name, length) == 0) return true;
    return strncmp(slash + 1, name, stem) == 0 && strncmp(slash + 1 + stem, "-2.", 3) == 0;
}

/* ---- why not ---------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#else
enum { MACHINE = EM_NONE };
#endif

static _Noreturn void refuse_access(pid_t pid)
{
    char scope[16] = "";
    read_file("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope);
    if (scope[0] >= '1' && scope[0] <= '2')
        refuse("this user may not trace process %d, since /proc/sys/kernel/yama/ptrace_scope is %c; use sudo", (int)pid,
               scope[0]);
    if (scope[0] == '3')
        refuse("nobody may trace a process here: /proc/sys/kernel/yama/ptrace_scope is 3 until the next start");
    refuse("this user may not trace process %d: it is another's, or has other rights (CAP_SYS_PTRACE); use sudo",
           (int)pid);
}

_Noreturn void process_refuses_trace(pid_t pid, int error)
{
    char status[STATUS_BYTES];
    if (error == ESRCH || !read_status(pid, pid, status)) refuse("process %d has ended", (int)pid);
    long tracer = number(status, "TracerPid");
    if (tracer != 0) refuse("process %d is traced by process %ld, a debugger say; end that first", (int)pid, tracer);
    if (error == EPERM || error == EACCES) refuse_access(pid);
    refuse("process %d cannot be traced: %s", (int)pid, strerror(error));
}

static void check_state(pid_t pid, const char *status)
{
    const char *state = field(status, "State");
    if (state == NULL || *state == 'Z' || *state == 'X') refuse("process %d has ended", (int)pid);
    if (number(status, "Tgid") != pid)
        refuse("%d is a thread of process %ld; name that", (int)pid, number(status, "Tgid"));
    if (number(status, "TracerPid") != 0) process_refuses_trace(pid, EPERM);
    if (*state == 'T') refuse("process %d is stopped; let it go on first: kill -CONT %d", (int)pid, (int)pid);
}

static void check_seccomp(pid_t pid)
{
    enum { MOST = 4096 };
    static pid_t threads[MOST];
    char status[STATUS_BYTES];
    size_t count = process_threads(pid, threads, MOST);
    for (size_t i = 0; i < count && i < MOST; i++)
        if (read_status(pid, threads[i], status) && number(status, "Seccomp") != 0)
            refuse("process %d has a seccomp filter, which could end it for a system call of the recorder; record it "
                   "from its start: heapfit record -- COMMAND",
                   (int)pid);
}

static void check_program(pid_t pid, const char *status)
{
    char path[64];
    unsigned char header[20] = {0};
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    char target[PATH_BYTES];
    if (readlink(path, target, sizeof target) < 0) {
        if (errno == EACCES || errno == EPERM) refuse_access(pid);
        enum { STARTS_THEM = 2 }; /* kthreadd */
        if (pid == STARTS_THEM || number(status, "PPid") == STARTS_THEM)
            refuse("process %d is a thread of the kernel", (int)pid);
        refuse("process %d cannot be looked at: %s", (int)pid, strerror(errno));
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) refuse_access(pid);
    ssize_t size = read(file, header, sizeof header);
    close(file);
    unsigned machine = header[18] | (unsigned)header[19] << 8;
    if (size != sizeof header || header[EI_CLASS] != ELFCLASS64 || machine != MACHINE || MACHINE == EM_NONE)
        refuse("process %d runs a program for another processor or of 32 bits; only x86-64 can be attached to",
               (int)pid);
}

static void check_libraries(pid_t pid)
{
    struct mappings mappings = {0};
    bool has_libc = false, has_musl = false;
    if (!process_mappings(pid, &mappings)) refuse_access(pid);
    if (mappings.count == 0) refuse("process %d has ended", (int)pid);
    for (size_t i = 0; i < mappings.count; i++) {
        has_libc |= is_named(&mappings.all[i], "libc.so.6");
        has_musl |=
            strstr(mappings.all[i].path, "/ld-musl-") != NULL || strstr(mappings.all[i].path, "libc.musl") != NULL;
    }
    if (has_musl && !has_libc)
        refuse("process %d runs with musl; only programs with glibc can be attached to", (int)pid);
    if (!has_libc)
        refuse("process %d has no glibc loaded: a static program, or one of another C library, cannot be attached to",
               (int)pid);
    free(mappings.all);
}

/* Whether the path leads it to the same file as us. A link in the path would be followed from our root. */
static bool has_in_common(pid_t pid, const char *name)
{
    char path[PATH_BYTES];
    struct stat ours, theirs;
    snprintf(path, sizeof path, "/proc/%d/root%s", (int)pid, name);
    return stat(name, &ours) == 0 && stat(path, &theirs) == 0 && theirs.st_ino == ours.st_ino &&
           theirs.st_dev == ours.st_dev;
}

static void check_library(pid_t pid, const char *library)
{
    if (access(library, F_OK) != 0) refuse("there is no %s", library);
    if (has_in_common(pid, library)) return;
    refuse("process %d does not see %s: it is in a container, or has another root; install heapfit there, and run it "
           "there",
           (int)pid, library);
}

/* What is wrong with a folder that is not there, the process says itself when it makes the file. */
static void check_folder(pid_t pid, const char *file)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", file);
    char *slash = strrchr(folder, '/');
    if (slash == NULL) return;
    slash[slash == folder] = '\0';
    char *name = realpath(folder, NULL);
    if (name != NULL && !has_in_common(pid, name))
        refuse("process %d has another folder at %s, or none: it has mounts of its own, a private /tmp say; name one "
               "that both see, with -o, or run heapfit there",
               (int)pid, name);
    free(name);
}

void process_check(pid_t pid, const char *library, const char *file)
{
    char status[STATUS_BYTES];
    if (pid == getpid()) refuse("process %d is this one", (int)pid);
    if (!read_status(pid, pid, status)) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d", (int)pid);
        if (read_file(strcat(path, "/status"), status, sizeof status) <= 0) refuse("there is no process %d", (int)pid);
    }
    check_state(pid, status);
    process_is_there(pid);
    check_program(pid, status);
    check_seccomp(pid);
    check_libraries(pid);
    check_library(pid, library);
    check_folder(pid, file);
}
