/* What the kernel knows of this process: its program, memory, threads and mappings. Used by the recorder's thread alone.
 *
 * All is read from /proc, through descriptors that are opened at the start: a process may leave that root, or lose the right to
 * open files. The figures of memory are those of this thread, which are the process's, and are there when the main thread has
 * left. Mappings are read there too, not asked of the dynamic linker: a program's thread may hold its lock while it waits for
 * this one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "attach.h"
#include "platform/image.h"
#include "platform/json.h"
#include "record.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int memory = -1, status = -1, contents = -1, mappings = -1, threads = -1, main_thread = -1;

static void reopen(int *file, const char *path, int flags)
{
    *file = open(path, O_RDONLY | O_CLOEXEC | flags);
}

void facts_prepare(void)
{
    char path[64];
    reopen(&memory, "/proc/thread-self/statm", 0);
    reopen(&status, "/proc/thread-self/status", 0);
    reopen(&contents, "/proc/self/mem", 0);
    reopen(&mappings, "/proc/thread-self/maps", 0);
    reopen(&threads, "/proc/self/task", O_DIRECTORY);
    platform_format(path, sizeof path, "/proc/self/task/%zu/stat", (size_t)getpid());
    reopen(&main_thread, path, 0);
}

/* Bytes from the start of a file, with a terminating zero behind them. */
static size_t read_start(int file, char *text, size_t capacity)
{
    ssize_t size = file < 0 ? -1 : pread(file, text, capacity - 1, 0);
    text[size < 0 ? 0 : size] = '\0';
    return size < 0 ? 0 : (size_t)size;
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

static const char *read_decimal(const char *at, uint64_t *number)
{
    while (*at == ' ') at++;
    for (*number = 0; *at >= '0' && *at <= '9'; at++) *number = *number * 10 + (uint64_t)(*at - '0');
    return at;
}

void facts_memory(uint64_t *resident, uint64_t *anonymous)
{
    char text[128];
    uint64_t pages[3] = {0}; /* of address space, resident, of these a file's or shared */
    read_start(memory, text, sizeof text);
    const char *at = text;
    for (int i = 0; i < 3; i++) at = read_decimal(at, &pages[i]);
    size_t page = platform_page_size();
    *resident = pages[1] * page;
    *anonymous = pages[1] < pages[2] ? 0 : (pages[1] - pages[2]) * page;
}

uint64_t facts_resident_most(void)
{
    static const char name[] = "VmHWM:";
    char text[4096];
    uint64_t kib = 0;
    read_start(status, text, sizeof text);
    const char *line = strstr(text, name);
    if (line != NULL) {
        for (line += sizeof name - 1; *line == '\t'; line++) continue;
        read_decimal(line, &kib);
    }
    return kib << 10;
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

bool facts_thread_name(int32_t tid, char name[16])
{
    char path[32], text[32];
    platform_format(path, sizeof path, "%zu/comm", (size_t)tid);
    int file = openat(threads, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    size_t size = read_start(file, text, sizeof text);
    close(file);
    if (size > 0 && text[size - 1] == '\n') size--;
    if (size > 15) size = 15;
    memset(name, 0, 16);
    memcpy(name, text, size);
    return true;
}

/* The folder of threads has a link for each, beside two that any folder has. */
size_t facts_threads(void)
{
    struct stat folder;
    return fstat(threads, &folder) == 0 && folder.st_nlink > 2 ? folder.st_nlink - 2 : 0;
}

/* By their names, as platform_thread_start gives them, but for the recorder's. */
static bool is_of_heapfit(int32_t tid, int32_t other)
{
    static const char beginning[] = "heapfit-";
    char name[16];
    return tid != platform_thread_number() && tid != other && facts_thread_name(tid, name) &&
           strncmp(name, beginning, sizeof beginning - 1) == 0;
}

size_t facts_threads_of_heapfit(int32_t other)
{
    char entries[2048] __attribute__((aligned(8)));
    size_t count = 0;
    int folder = openat(threads, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return 0;
    for (;;) {
        ssize_t size = getdents64(folder, entries, sizeof entries);
        if (size <= 0) break;
        for (ssize_t place = 0; place < size;) {
            const struct dirent64 *entry = (const struct dirent64 *)(entries + place);
            int32_t tid = (int32_t)strtol(entry->d_name, NULL, 10); /* 0: the folder itself, and the one above */
            count += tid != 0 && is_of_heapfit(tid, other);
            place += entry->d_reclen;
        }
    }
    close(folder);
    return count;
}

bool facts_main_has_left(void)
{
    char text[512];
    read_start(main_thread, text, sizeof text);
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && strncmp(name_end, ") Z", 3) == 0;
}

/* ---- build IDs ----------------------------------------------------------------------------------------------------- */

/* The kernel reads it: what is not mapped any more, or beyond the end of a file that was cut, is an error and no signal. */
static bool read_contents(uint64_t from, void *to, size_t size)
{
    return contents >= 0 && pread(contents, to, size, (off_t)from) == (ssize_t)size;
}

enum { HEADERS_MAX = 64, NOTES_MAX = 1024 }; /* linkers make some ten headers */

/* Bytes of the build ID of the file whose first `mapped` bytes are mapped at `start`; 0: there is none. It may be no ELF file, and say anything. */
static size_t build_id(uint64_t start, uint64_t mapped, uint8_t id[BUILD_ID_MAX])
{
    Elf64_Ehdr file;
    Elf64_Phdr part;
    uint8_t notes[NOTES_MAX];
    if (!read_contents(start, &file, sizeof file) || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0) return 0;
    if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_phentsize != sizeof part || file.e_phoff > mapped) return 0;
    for (size_t i = 0; i < file.e_phnum && i < HEADERS_MAX; i++) {
        if (!read_contents(start + file.e_phoff + i * sizeof part, &part, sizeof part)) return 0;
        if (part.p_type != PT_NOTE || part.p_offset > mapped) continue;
        size_t size = part.p_filesz < sizeof notes ? part.p_filesz : sizeof notes;
        size_t found = read_contents(start + part.p_offset, notes, size) ? build_id_among(notes, size, id) : 0;
        if (found != 0) return found;
    }
    return 0;
}

/* ---- mappings of code ---------------------------------------------------------------------------------------------- */

enum { RANGES_MAX = 4096, PATH_BYTES = 4096, LINE_BYTES = PATH_BYTES + 128 };

static struct range {
    uint64_t start, end;
} ranges[RANGES_MAX]; /* in the order of their addresses, as the kernel gives them */
static size_t range_count;

bool facts_is_code(uint64_t address)
{
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    return low < range_count && ranges[low].start <= address;
}

static const char *read_hexadecimal(const char *at, uint64_t *number)
{
    for (*number = 0;; at++) {
        unsigned digit = *at >= '0' && *at <= '9' ? (unsigned)(*at - '0') : (unsigned)(*at - 'a') + 10;
        if (digit > 15) return at;
        *number = *number << 4 | digit;
    }
}

static const char digits[] = "0123456789abcdef";

static char *put_hexadecimal(char *at, uint64_t number)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        if (number >> shift != 0 || shift == 0) *at++ = digits[number >> shift & 15];
    *at++ = ' ';
    return at;
}

static const char *skip_word(const char *at)
{
    while (*at != '\0' && *at != ' ') at++;
    while (*at == ' ') at++;
    return at;
}

static size_t put_mapping(const struct range *range, uint64_t offset, const char *path, char *text, size_t room)
{
    enum { NUMBERS = 3 * 17 }; /* each with a space */
    size_t length = strlen(path);
    if (room < NUMBERS + length + 1) return 0;
    char *at = put_hexadecimal(put_hexadecimal(put_hexadecimal(text, range->start), range->end), offset);
    memcpy(at, path, length + 1);
    at[length] = '\n';
    return (size_t)(at - text) + length + 1;
}

static struct {
    struct range range;
    char path[PATH_BYTES];
} beginning; /* of the file that was last seen mapped from its beginning, which is where notes are */

static void note_beginning(const struct range *range, const char *path)
{
    beginning.range = *range;
    platform_format(beginning.path, sizeof beginning.path, "%s", path);
}

/* "build-id start id" of the mapping of code at `start`: nothing where the file has none, or is not mapped from its beginning. */
static size_t put_build_id(uint64_t start, const char *path, char *text, size_t room)
{
    enum { NUMBER = 17 }; /* with a space */
    static const char word[] = "build-id ";
    uint8_t id[BUILD_ID_MAX];
    if (path[0] != '/' || strcmp(path, beginning.path) != 0 || room < sizeof word + NUMBER + 2 * sizeof id) return 0;
    size_t size = build_id(beginning.range.start, beginning.range.end - beginning.range.start, id);
    if (size == 0) return 0;
    memcpy(text, word, sizeof word - 1);
    char *at = put_hexadecimal(text + sizeof word - 1, start);
    for (size_t i = 0; i < size; i++) {
        *at++ = digits[id[i] >> 4];
        *at++ = digits[id[i] & 15];
    }
    *at++ = '\n';
    return (size_t)(at - text);
}

/* "start-end permissions offset device inode path": what is code goes to `text`. */
static size_t take_mapping(const char *line, char *text, size_t room)
{
    struct range range;
    uint64_t offset;
    const char *at = read_hexadecimal(line, &range.start);
    if (*at++ != '-') return 0;
    at = read_hexadecimal(at, &range.end);
    if (strlen(at) < sizeof " r-xp ") return 0;
    bool is_code = at[3] == 'x';
    at = read_hexadecimal(skip_word(at + 1), &offset);
    const char *path = skip_word(skip_word(at + 1));
    if (offset == 0) note_beginning(&range, path);
    if (!is_code) return 0;
    if (range_count < RANGES_MAX) ranges[range_count++] = range;
    size_t size = put_mapping(&range, offset, path, text, room);
    return size == 0 ? 0 : size + put_build_id(range.start, path, text + size, room - size);
}

size_t facts_modules(char *text)
{
    static char chunk[LINE_BYTES + 1];
    size_t size = 0, kept = 0;
    if (mappings < 0 || lseek(mappings, 0, SEEK_SET) != 0) return 0;
    range_count = 0;
    for (;;) {
        ssize_t count = read(mappings, chunk + kept, sizeof chunk - 1 - kept);
        if (count <= 0) return size;
        kept += (size_t)count;
        char *line = chunk, *end;
        while ((end = memchr(line, '\n', kept)) != NULL) {
            *end = '\0';
            size += take_mapping(line, text + size, TRACE_RAW_MAX - size);
            kept -= (size_t)(end + 1 - line);
            line = end + 1;
        }
        if (kept == sizeof chunk - 1) kept = 0; /* no line is so long */
        memmove(chunk, line, kept);
    }
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

struct json_text {
    struct json json;
    char *text;
    size_t size;
};

static bool write_to_text(struct json *json, const char *bytes, size_t size)
{
    struct json_text *target = (struct json_text *)json;
    if (size > TRACE_RAW_MAX - target->size) return false;
    memcpy(target->text + target->size, bytes, size);
    target->size += size;
    return true;
}

/* Bytes of the UTF-8 character at `text`, 0 when there is none: a continuation must not be missing, nor a form longer than needed
 * be used, nor half a pair of UTF-16. */
static size_t utf8_length(const unsigned char *text)
{
    if (text[0] < 0x80) return 1;
    size_t length = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (text[0] < 0xC2 || text[0] > 0xF4) return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    if (text[0] == 0xE0 && text[1] < 0xA0) return 0;
    if (text[0] == 0xED && text[1] > 0x9F) return 0;
    if (text[0] == 0xF0 && text[1] < 0x90) return 0;
    if (text[0] == 0xF4 && text[1] > 0x8F) return 0;
    return length;
}

/* Names need not be text; JSON must be. */
char *facts_text(char *name)
{
    for (unsigned char *at = (unsigned char *)name; *at != '\0';) {
        size_t length = utf8_length(at);
        if (length == 0) *at = '?';
        at += length == 0 ? 1 : length;
    }
    return name;
}

/* When the process began, in the kernel's ticks since boot; 0: not known. */
static uint64_t process_began(void)
{
    enum { STATE = 3, START = 22 }; /* of the fields, from 1 */
    char text[512];
    uint64_t began;
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    read_start(file, text, sizeof text);
    if (file >= 0) close(file);
    const char *at = strrchr(text, ')'); /* the name may have spaces */
    if (at == NULL) return 0;
    at = skip_word(at);
    for (int field = STATE; field < START; field++) at = skip_word(at);
    read_decimal(at, &began);
    return began;
}

static void put_text(struct json *json, const char *name, const char *text)
{
    json_name(json, name);
    json_string(json, text);
}

static void put_number(struct json *json, const char *name, uint64_t number)
{
    json_name(json, name);
    json_number(json, number);
}

/* As many of the arguments as there is room for; the last may be cut. */
static void put_arguments(struct json *json)
{
    static char text[32 << 10];
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    size_t size = read_start(file, text, sizeof text);
    if (file >= 0) close(file);
    json_name(json, "arguments");
    json_open(json, '[');
    for (size_t at = 0, length; at < size; at += length + 1) {
        length = strlen(text + at);
        json_string(json, facts_text(text + at));
    }
    json_close(json, ']');
}

/* The variables by which an interpreter asks malloc for every object, as far as they are set: without one a recording of its
 * program has few of the objects that the program's source speaks of. */
static void put_environment(struct json *json)
{
    static const char *const names[] = {"PYTHONMALLOC", "USE_ZEND_ALLOC"};
    char value[32];
    json_name(json, "environment");
    json_open(json, '{');
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        /* As the interpreter found it. The program may be changing what it has made of it. */
        if (platform_environment_at_start(names[i], value, sizeof value)) put_text(json, names[i], facts_text(value));
    }
    json_close(json, '}');
}

static const char *program_path(void)
{
    static char path[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    return facts_text(path);
}

static uint64_t unix_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t ticks_per_second(uint64_t tick, uint64_t ns)
{
    uint64_t ticks = record_ticks() - tick, lasted = platform_clock_ns() - ns;
    return lasted == 0 ? 0 : (uint64_t)((double)ticks * 1e9 / (double)lasted);
}

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#endif

size_t facts_info(char *text, uint64_t tick, uint64_t ns)
{
    static bool has_recorded; /* or the process that this is a copy of */
    struct json_text info = {.json.write = write_to_text, .text = text};
    struct json *json = &info.json;
    json_open(json, '{');
    put_text(json, "heapfit", HEAPFIT_VERSION);
    put_number(json, "format", TRACE_VERSION);
    put_number(json, "pid", (uint64_t)getpid());
    put_number(json, "parent", (uint64_t)getppid());
    put_number(json, "process_began", process_began());
    put_text(json, "program", program_path());
    put_arguments(json);
    put_environment(json);
    put_text(json, "arch", ARCHITECTURE);
    put_number(json, "pointer_bytes", sizeof(void *));
    put_number(json, "page_size", platform_page_size());
    put_number(json, "cores", platform_processors());
    char allocator[PATH_BYTES];
    platform_format(allocator, sizeof allocator, "%s", intercept_allocator());
    put_text(json, "allocator", facts_text(allocator));
    put_number(json, "sample", record_settings.sample);
    put_number(json, "sites", record_settings.sites);
    put_number(json, "started_unix_ns", unix_ns());
    put_number(json, "ticks_per_second_guess", ticks_per_second(tick, ns));
    put_number(json, "file_number", record_file.number);
    bool late = attach_is_late() || record_settings.later || has_recorded;
    json_name(json, "began_late");
    json_bool(json, late);
    if (!late) put_number(json, "live_before", intercept_live_before());
    has_recorded = true;
    json_close(json, '}');
    return json_end(json) ? info.size : 0;
}

size_t facts_sites_limit(char *text, enum sites_limit limit)
{
    struct json_text facts = {.json.write = write_to_text, .text = text};
    json_open(&facts.json, '{');
    put_text(&facts.json, "sites", limit == SITES_ALONE ? "innermost" : "none");
    json_close(&facts.json, '}');
    return json_end(&facts.json) ? facts.size : 0;
}

size_t facts_thread(char *text, uint32_t thread, int32_t tid, char *name)
{
    struct json_text facts = {.json.write = write_to_text, .text = text};
    json_open(&facts.json, '{');
    put_number(&facts.json, "thread", thread);
    put_number(&facts.json, "tid", (uint64_t)tid);
    put_text(&facts.json, "name", facts_text(name));
    json_close(&facts.json, '}');
    return json_end(&facts.json) ? facts.size : 0;
}
