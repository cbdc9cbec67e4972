/* The recorder's files: how they are named, and blocks written to them. Used by the recorder's thread alone.
 *
 * A block is put into a buffer, which is written when it is full, and at each flush. A process that is killed leaves a file
 * that ends with a whole block or in the middle of one, which a reader passes over. When the disk is full, or the limit for
 * files is reached (whose signal this thread does not take), the file is cut to its whole blocks. The folder's descriptor is
 * kept: the process may have another root when it makes its next file.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "platform/json.h"
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct record_file record_file;

/* Room for the largest block there may be, and for more small ones before a write is due. */
enum { BUFFER_BYTES = 2 * TRACE_RAW_MAX, WRITE_AT = TRACE_RAW_MAX / 4 };

static int folder = -1;
static const char *base; /* of the path in the settings: what follows the folder */
static int file = -1;
static uint32_t blocks; /* in the file and in the buffer */
static uint64_t written; /* bytes in the file */
static uint64_t began_ns; /* processor time of the program when the file was opened */
static uint64_t ended_at; /* where the TRACE_END stands; 0: there is none */
static size_t buffered;
static uint8_t buffer[BUFFER_BYTES];
static void *workspace; /* NULL, and blocks are not compressed, where there is no memory for it */

/* ---- errors -------------------------------------------------------------------------------------------------------- */

/* The C library's texts may be translated, and allocate. */
static const char *error_text(int error)
{
    switch (error) {
    case ENOSPC:
        return "the disk is full";
    case EDQUOT:
        return "the user's quota of disk space is used up";
    case EFBIG:
        return "the limit on the size of files is reached (ulimit -f)";
    case EACCES:
    case EPERM:
        return "permission denied";
    case ENOENT:
        return "there is no such folder";
    case ENOTDIR:
        return "what should be a folder is none";
    case EROFS:
        return "the file system is read-only";
    case EEXIST:
        return "there is something that is not a file";
    case EMFILE:
        return "the process may open no more files (ulimit -n)";
    case EIO:
        return "input/output error";
    case ENAMETOOLONG:
        return "the name is too long";
    default:
        return "the file cannot be written";
    }
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static void append(char *text, size_t capacity, const char *format, size_t number)
{
    size_t length = strlen(text);
    if (length + 1 < capacity) platform_format(text + length, capacity - length, format, number);
}

/* The path of file number `number` of this process: PATH with its number for %p; else PATH, or PATH.PID of a child. The second
 * file has .2 behind it, and so on. */
static void file_path(uint32_t number, char *path, size_t capacity)
{
    size_t length = 0, process = (size_t)getpid();
    bool named = false;
    for (const char *at = record_settings.path; *at != '\0' && length + 1 < capacity; at++) {
        if (at[0] == '%' && at[1] == 'p') {
            path[length] = '\0';
            append(path, capacity, "%zu", process);
            length = strlen(path);
            named = true;
            at++;
        } else {
            path[length++] = *at;
        }
    }
    path[length] = '\0';
    if (!named && process != record_settings.process) append(path, capacity, ".%zu", process);
    if (number > 1) append(path, capacity, ".%zu", number);
}

bool file_prepare(void)
{
    char path[sizeof record_settings.path];
    memcpy(path, record_settings.path, sizeof path);
    char *slash = strrchr(path, '/');
    *(slash == path ? slash + 1 : slash) = '\0';
    folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    file = -1;
    record_file = (struct record_file){0};
    if (folder < 0) record_file.error = error_text(errno);
    if (folder < 0 && !record_settings.quiet) platform_message("no recording: %s: %s", path, record_file.error);
    /* After a fork it is there already. */
    if (workspace == NULL) {
        size_t page = platform_page_size();
        size_t size = (trace_workspace_size() + page - 1) & -page;
        workspace = platform_reserve(size, page);
        if (workspace != NULL && !platform_commit(workspace, size)) workspace = NULL;
    }
    return folder >= 0;
}

/* ---- writing ------------------------------------------------------------------------------------------------------- */

static bool write_all(const uint8_t *bytes, size_t size, size_t *done)
{
    for (*done = 0; *done < size;) {
        ssize_t count = write(file, bytes + *done, size - *done);
        if (count > 0) *done += (size_t)count;
        else if (count == 0 || errno != EINTR) return false;
    }
    return true;
}

/* Of `size` bytes in the buffer, those that are whole blocks; how many of them are not is taken off `blocks`. */
static size_t whole_blocks(size_t size)
{
    struct trace_block_header header;
    size_t whole = 0, at = written == 0 ? TRACE_FILE_HEADER : 0;
    bool inside = at <= size;
    for (; at < buffered; at += TRACE_BLOCK_HEADER + header.stored) {
        if (inside) whole = at;
        memcpy(&header, buffer + at, sizeof header);
        inside = inside && at + TRACE_BLOCK_HEADER + header.stored <= size;
        if (!inside) blocks--;
    }
    return inside ? size : whole;
}

static void put_end(const char *reason);
static uint64_t program_ns(void);

void file_close(void)
{
    if (file >= 0) close(file);
    file = -1;
    record_file.open = false;
}

/* The file is cut to its whole blocks, which makes room for the few bytes that say why. */
static void give_up(size_t done, int error)
{
    record_file.error = error_text(error);
    written += whole_blocks(done);
    buffered = 0;
    if (ftruncate(file, (off_t)written) == 0 && lseek(file, (off_t)written, SEEK_SET) >= 0 && written != 0) {
        put_end(record_file.error);
        if (write_all(buffer, buffered, &done)) written += buffered;
        else (void)!ftruncate(file, (off_t)written);
    }
    buffered = 0;
    record_file.bytes = written;
    if (written == 0) unlinkat(folder, base, 0);
    file_close();
}

bool file_flush(void)
{
    size_t done;
    if (!record_file.open) return false;
    if (write_all(buffer, buffered, &done)) {
        written += buffered;
        buffered = 0;
        record_file.bytes = written;
        return true;
    }
    give_up(done, errno);
    return false;
}

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

static void put_block(struct trace_block_header *header, const void *raw, size_t size)
{
    if (!record_file.open) return;
    if (buffered + trace_block_bound(size) > sizeof buffer && !file_flush()) return;
    header->sequence = blocks++;
    buffered += trace_block_make(header, raw, size, workspace, buffer + buffered);
    if (buffered >= WRITE_AT) file_flush();
}

void file_events(const struct trace_block_header *header, const void *raw, size_t size)
{
    struct trace_block_header copy = *header;
    put_block(&copy, raw, size);
    record_file.events += header->events;
}

void file_block(enum trace_block type, uint32_t thread, const void *raw, size_t size)
{
    uint64_t tick = record_ticks();
    struct trace_block_header header = {.type = type, .thread = thread, .first_tick = tick, .last_tick = tick};
    put_block(&header, raw, size);
}

/* ---- beginning and end --------------------------------------------------------------------------------------------- */

enum { FOR_OWNER = 0600, FILES_MAX = 10000 }; /* where a program's blocks are is nobody else's business */

static int make_file(const char *name)
{
    return openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, FOR_OWNER);
}

/* What has the name already is a recording of another time, and may be one that a process still writes: it loses its name, not
 * its contents. Anything but a file is left alone. */
static int replace_file(const char *name)
{
    struct stat there;
    if (fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(there.st_mode)) {
        errno = EEXIST;
        return -1;
    }
    return unlinkat(folder, name, 0) == 0 ? make_file(name) : -1;
}

/* The first file takes its name; all others the next that is free. So does the first of a program that an exec has put in the place
 * of a recorded one, and a file that is named after its process: in a container the number is the same each time. */
static int next_file(void)
{
    int made;
    bool replaces = record_settings.first && record_file.number == 0 && strstr(record_settings.path, "%p") == NULL;
    do {
        file_path(++record_file.number, record_file.path, sizeof record_file.path);
        base = strrchr(record_file.path, '/') + 1;
        made = make_file(base);
        if (made < 0 && errno == EEXIST && replaces) return replace_file(base);
    } while (made < 0 && errno == EEXIST && record_file.number < FILES_MAX);
    return made;
}

static void put_file_header(void)
{
    struct trace_file_header header = {.version = TRACE_VERSION, .size = TRACE_FILE_HEADER};
    memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
    memcpy(buffer, &header, sizeof header);
    buffered = sizeof header;
}

bool file_open(void)
{
    uint64_t lost = atomic_load_explicit(&record_lost, memory_order_relaxed);
    record_file = (struct record_file){.open = true, .number = record_file.number, .lost_before = lost};
    written = ended_at = blocks = 0;
    began_ns = program_ns();
    file = next_file();
    if (file < 0) {
        record_file.error = error_text(errno);
        record_file.open = false;
        return false;
    }
    put_file_header();
    return true;
}

struct json_buffer {
    struct json json;
    size_t size;
    char bytes[1024];
};

static bool write_to_buffer(struct json *json, const char *bytes, size_t size)
{
    struct json_buffer *target = (struct json_buffer *)json;
    if (size > sizeof target->bytes - target->size) return false;
    memcpy(target->bytes + target->size, bytes, size);
    target->size += size;
    return true;
}

static uint64_t processor_ns(clockid_t clock)
{
    struct timespec used = {0};
    platform_clock_get(clock, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* What the process has used without this thread, whose clock goes on while both are read: so it is read first. */
static uint64_t program_ns(void)
{
    uint64_t own = processor_ns(CLOCK_THREAD_CPUTIME_ID), all = processor_ns(CLOCK_PROCESS_CPUTIME_ID);
    return all > own ? all - own : 0;
}

/* Into the buffer, in which there is room. */
static void put_end(const char *reason)
{
    struct json_buffer end = {.json.write = write_to_buffer};
    json_open(&end.json, '{');
    json_name(&end.json, "reason");
    json_string(&end.json, reason);
    json_name(&end.json, "events");
    json_number(&end.json, record_file.events);
    json_name(&end.json, "lost");
    json_number(&end.json, file_lost());
    json_name(&end.json, "processor_ns");
    uint64_t now_ns = program_ns();
    json_number(&end.json, now_ns > began_ns ? now_ns - began_ns : 0);
    json_name(&end.json, "resident_most");
    json_number(&end.json, facts_resident_most());
    json_close(&end.json, '}');
    json_end(&end.json);
    uint64_t tick = record_ticks();
    struct trace_block_header header = {.type = TRACE_END, .first_tick = tick, .last_tick = tick, .sequence = blocks++};
    buffered += trace_block_make(&header, end.bytes, end.size, NULL, buffer + buffered);
}

void file_end(const char *reason)
{
    if (!file_flush()) return;
    ended_at = written;
    put_end(reason);
    file_flush();
}

void file_reopen(void)
{
    if (!record_file.open || ended_at == 0) return;
    if (ftruncate(file, (off_t)ended_at) != 0 || lseek(file, (off_t)ended_at, SEEK_SET) < 0) {
        give_up(0, errno);
        return;
    }
    written = ended_at;
    ended_at = 0;
    blocks--;
}
