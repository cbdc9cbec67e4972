/* What the process's control groups allow it in memory, how much of that is used, and how hard the kernel works to keep it so.
 *
 * A process is in one group of the hierarchy that counts memory. The limits of that group and of all above it hold, each for
 * all processes below; so what counts is the group that leaves the least room. Where the files are:
 *
 *     version 2    /proc/self/cgroup says "0::/a/b", the files are in /sys/fs/cgroup/a/b (or /sys/fs/cgroup/unified/a/b)
 *     version 1    it says "4:memory:/a/b", the files are in /sys/fs/cgroup/memory/a/b
 *     a container  may see its own group as /sys/fs/cgroup, whatever the path says: what is not there is passed over
 *
 * Any of it may be missing, and then says nothing. Nothing is remembered, so that it is as true in a fork's child, and after
 * somebody has moved the process.
 *
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux; systemd's "Resource Pressure Handling".
 */
#define _GNU_SOURCE
#include "lines.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- numbers ---------------------------------------------------------------------------------------------------------- */

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t both;
    return __builtin_add_overflow(a, b, &both) ? SIZE_MAX : both;
}

/* What follows "key " or "key=" in a line; NULL: it is another key's. */
static const char *value_of(const char *line, const char *key)
{
    size_t length = strlen(key);
    bool is = strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == '=');
    return is ? line + length + 1 : NULL;
}

/* ---- one group ---------------------------------------------------------------------------------------------------------- */

enum { KEYS = 2 };

/* What its files are called. */
struct version {
    const char *limits[KEYS]; /* NULL: no further one */
    const char *used;
    const char *statistics;
    const char *file_cache[KEYS]; /* in them, what the kernel takes back before anything else */
    const char *events;
    const char *limit_met[KEYS]; /* in them; NULL: the file is the number itself */
    uint64_t limit_most; /* what says that there is none */
};

static const struct version versions[] = {
    [1] = {.limits = {"memory.limit_in_bytes", NULL},
           .used = "memory.usage_in_bytes",
           .statistics = "memory.stat",
           .file_cache = {"total_inactive_file", "total_active_file"},
           .events = "memory.failcnt",
           .limit_most = UINT64_C(1) << 62},
    [2] = {.limits = {"memory.max", "memory.high"},
           .used = "memory.current",
           .statistics = "memory.stat",
           .file_cache = {"inactive_file", "active_file"},
           .events = "memory.events",
           .limit_met = {"high", "max"},
           .limit_most = SIZE_MAX},
};

/* The path of a group's folder, with room behind it for a file's name. */
struct folder {
    char path[LINE_MAX_BYTES + 256];
    size_t root; /* bytes of it that are the hierarchy's root */
    size_t length;
};

enum { FILE_NAME_MAX = 32 };

static bool open_in(struct folder *folder, const char *name, struct lines *lines)
{
    folder->path[folder->length] = '/';
    memcpy(folder->path + folder->length + 1, name, strlen(name) + 1);
    bool opened = lines_open(lines, folder->path);
    folder->path[folder->length] = '\0';
    return opened;
}

/* The number that a file consists of; SIZE_MAX: none. */
static uint64_t file_number(struct folder *folder, const char *name, struct lines *lines)
{
    if (!open_in(folder, name, lines)) return SIZE_MAX;
    uint64_t number = lines_next(lines) ? number_at(lines->line) : SIZE_MAX;
    lines_close(lines);
    return number;
}

/* The sum of the values of some keys. */
static uint64_t file_sum(struct folder *folder, const char *name, const char *const keys[KEYS], struct lines *lines)
{
    uint64_t total = 0;
    if (!open_in(folder, name, lines)) return 0;
    while (lines_next(lines)) {
        for (unsigned i = 0; i < KEYS; i++) {
            const char *value = value_of(lines->line, keys[i]);
            if (value != NULL) total = sum(total, number_at(value));
        }
    }
    lines_close(lines);
    return total;
}

static uint64_t group_limit(struct folder *folder, const struct version *version, struct lines *lines)
{
    uint64_t limit = SIZE_MAX;
    for (unsigned i = 0; i < KEYS && version->limits[i] != NULL; i++) {
        uint64_t number = file_number(folder, version->limits[i], lines);
        if (number < limit) limit = number;
    }
    return limit < version->limit_most ? limit : SIZE_MAX;
}

static uint64_t group_events(struct folder *folder, const struct version *version, struct lines *lines)
{
    if (version->limit_met[0] != NULL) return file_sum(folder, version->events, version->limit_met, lines);
    uint64_t number = file_number(folder, version->events, lines);
    return number == SIZE_MAX ? 0 : number;
}

/* The kernel adds up its statistics when they are read, which takes it time: so not before a group is this full, as a share. */
enum { STATISTICS_FROM_LEFT_SHARE = 4 };

static void group_read(struct folder *folder, const struct version *version, struct lines *lines,
                       struct platform_memory *memory)
{
    uint64_t limit = group_limit(folder, version, lines);
    if (limit == SIZE_MAX) return;
    uint64_t used = file_number(folder, version->used, lines);
    if (used == SIZE_MAX) return;
    if (used >= limit || limit - used < limit / STATISTICS_FROM_LEFT_SHARE) {
        uint64_t cache = file_sum(folder, version->statistics, version->file_cache, lines);
        used -= cache < used ? cache : used;
    }
    memory->events = sum(memory->events, group_events(folder, version, lines));
    uint64_t left = limit > used ? limit - used : 0;
    uint64_t least = memory->limit > memory->used ? memory->limit - memory->used : 0;
    if (memory->limit != SIZE_MAX && left >= least) return;
    memory->limit = limit;
    memory->used = used;
}

/* ---- the groups of this process --------------------------------------------------------------------------------------------- */

static bool is_in_list(const char *list, size_t length, const char *word)
{
    for (const char *end = list + length; list < end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t size = (size_t)((comma != NULL ? comma : end) - list);
        if (size == strlen(word) && memcmp(list, word, size) == 0) return true;
        list += size + 1;
    }
    return false;
}

/* Of a line "number:controllers:path" of the hierarchy that counts memory, the path, and its version; NULL: of another. */
static const char *path_in(const char *line, unsigned *version)
{
    const char *controllers = strchr(line, ':');
    const char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL) return NULL;
    controllers++;
    *version = path == controllers ? 2 : 1;
    bool counts = *version == 2 || is_in_list(controllers, (size_t)(path - controllers), "memory");
    return counts ? path + 1 : NULL;
}

/* A path that leads out of what this process sees of the hierarchy says nothing: then its root alone is looked at. */
static bool path_leads_out(const char *path)
{
    return path[0] != '/' || strncmp(path, "/..", 3) == 0;
}

/* The path of its group and the version of the hierarchy, 0: there is none. The first version's comes first: then the second one
 * does not count memory. */
static unsigned group_find(const char *file, struct lines *lines, char path[LINE_MAX_BYTES])
{
    unsigned found = 0, version;
    if (!lines_open(lines, file)) return 0;
    while (found != 1 && lines_next(lines)) {
        const char *group = path_in(lines->line, &version);
        if (group == NULL || (found != 0 && version == 2)) continue;
        found = version;
        bool known = !lines->cut && !path_leads_out(group);
        memcpy(path, known ? group : "/", known ? strlen(group) + 1 : 2);
    }
    lines_close(lines);
    return found;
}

static bool folder_begin(struct folder *folder, const char *root, const char *below, const char *path)
{
    size_t size = strlen(root), more = strlen(below), rest = strlen(path);
    if (size + more + rest + FILE_NAME_MAX + 2 > sizeof folder->path) return false;
    memcpy(folder->path, root, size);
    memcpy(folder->path + size, below, more);
    memcpy(folder->path + size + more, path, rest + 1);
    folder->root = size + more;
    folder->length = folder->root + rest;
    while (folder->length > folder->root && folder->path[folder->length - 1] == '/') folder->length--;
    folder->path[folder->length] = '\0';
    return true;
}

/* From the folder of a group to that of the one above; false: it was the root. */
static bool folder_rise(struct folder *folder)
{
    if (folder->length <= folder->root) return false;
    do folder->length--;
    while (folder->length > folder->root && folder->path[folder->length] != '/');
    folder->path[folder->length] = '\0';
    return true;
}

static void hierarchy_read(struct folder *folder, const struct version *version, struct lines *lines,
                           struct platform_memory *memory)
{
    do group_read(folder, version, lines, memory);
    while (folder_rise(folder));
}

/* ---- stalls ------------------------------------------------------------------------------------------------------------------- */

/* Lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0". */
static uint64_t stalled_us(struct lines *lines, bool full)
{
    uint64_t total = SIZE_MAX;
    while (total == SIZE_MAX && lines_next(lines)) {
        const char *value = value_of(lines->line, full ? "full" : "some");
        value = value == NULL ? NULL : strstr(value, "total=");
        if (value != NULL) total = number_at(value + strlen("total="));
    }
    return total == SIZE_MAX ? 0 : total;
}

/* A pipe or a socket, to which a service manager may write too, would have to be kept open, in a table of descriptors that is the
 * program's: it is not watched. */
static bool is_a_file(long file)
{
    struct stat status;
    /* By the bare call: the C library's may make another, for which a sandbox may end the process (docs/limits.md). */
    return platform_call(SYS_fstat, file, &status) == 0 && S_ISREG(status.st_mode);
}

uint64_t platform_stalled_us(const struct platform_stall_watch *watch)
{
    struct lines lines;
    int saved = errno;
    uint64_t us = 0;
    if (watch->path[0] != '\0' && lines_open(&lines, watch->path)) {
        if (is_a_file(lines.file)) us = stalled_us(&lines, watch->full);
        lines_close(&lines);
    }
    errno = saved;
    return us;
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------------ */

const struct platform_memory_files platform_memory_files_here = {"/proc/self/cgroup", "/sys/fs/cgroup"};

void platform_memory_read(const struct platform_memory_files *files, struct platform_memory *memory)
{
    struct lines lines;
    struct folder folder;
    char path[LINE_MAX_BYTES];
    int saved = errno;
    *memory = (struct platform_memory){.limit = SIZE_MAX};
    unsigned version = group_find(files->groups, &lines, path);
    if (version == 1 && folder_begin(&folder, files->root, "/memory", path))
        hierarchy_read(&folder, &versions[1], &lines, memory);
    if (version == 2 && folder_begin(&folder, files->root, "", path)) {
        if (open_in(&folder, "memory.pressure", &lines)) {
            memory->stalled_us = stalled_us(&lines, false);
            lines_close(&lines);
        }
        hierarchy_read(&folder, &versions[2], &lines, memory);
    }
    if (version == 2 && memory->limit == SIZE_MAX && folder_begin(&folder, files->root, "/unified", path))
        hierarchy_read(&folder, &versions[2], &lines, memory);
    errno = saved;
}

size_t platform_resident_own(void)
{
    struct lines lines;
    size_t pages = 0;
    int saved = errno;
    if (lines_open(&lines, "/proc/self/statm")) { /* all, resident, of files or shared ... */
        const char *resident = lines_next(&lines) ? strchr(lines.line, ' ') : NULL;
        const char *shared = resident == NULL ? NULL : strchr(resident + 1, ' ');
        if (shared != NULL) {
            uint64_t all = number_at(resident + 1), others = number_at(shared + 1);
            pages = all != SIZE_MAX && all > others ? (size_t)(all - others) : 0;
        }
        lines_close(&lines);
    }
    errno = saved;
    return pages * platform_page_size();
}

/* ---- what a service manager says ------------------------------------------------------------------------------------------------ */

static int digit_of_base64(char character)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = character == '\0' ? NULL : strchr(digits, character);
    return at == NULL ? -1 : (int)(at - digits);
}

/* As far as it goes: "=" and anything else that is no digit ends it. */
static void decode_base64(const char *encoded, char *text, size_t capacity)
{
    uint32_t bits = 0;
    unsigned count = 0;
    size_t size = 0;
    for (int digit; size + 1 < capacity && (digit = digit_of_base64(*encoded)) >= 0; encoded++) {
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        text[size++] = (char)(bits >> count);
    }
    text[size] = '\0';
}

void platform_stall_watch_parse(const char *path, const char *encoded, struct platform_stall_watch *watch)
{
    char text[64] = "";
    *watch = (struct platform_stall_watch){.is_off = strcmp(path, "/dev/null") == 0};
    if (watch->is_off || strlen(path) >= sizeof watch->path) return;
    memcpy(watch->path, path, strlen(path) + 1);
    decode_base64(encoded, text, sizeof text);
    const char *stall = value_of(text, "some");
    if (stall == NULL) stall = value_of(text, "full");
    const char *window = stall == NULL ? NULL : strchr(stall, ' ');
    if (window == NULL || number_at(stall) == SIZE_MAX || number_at(window + 1) == SIZE_MAX) return;
    watch->full = text[0] == 'f';
    watch->stall_us = number_at(stall);
    watch->window_us = number_at(window + 1);
}

void platform_stall_watch_find(struct platform_stall_watch *watch)
{
    char path[sizeof watch->path], encoded[128];
    if (!platform_environment_at_start("MEMORY_PRESSURE_WATCH", path, sizeof path)) path[0] = '\0';
    if (!platform_environment_at_start("MEMORY_PRESSURE_WRITE", encoded, sizeof encoded)) encoded[0] = '\0';
    platform_stall_watch_parse(path, encoded, watch);
}
