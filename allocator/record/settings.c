/* What the environment says to the recorder, and what it tells the programs that the process starts.
 *
 * Those inherit HEAPFIT_RECORD and the rest, so each has to find out what it is: the main process, whose file has the plain
 * name, the same after an exec, or a child. Therefore the first adds its number to the environment: HEAPFIT_RECORD_PROCESS.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record.h"

#include <string.h>
#include <unistd.h>

struct record_settings record_settings;

/* ---- numbers ------------------------------------------------------------------------------------------------------- */

/* Reads digits; returns the place after them, NULL when there are none or too many. */
static const char *read_number(const char *text, uint64_t *number)
{
    const char *at = text;
    for (*number = 0; *at >= '0' && *at <= '9'; at++) {
        if (at - text == 18) return NULL; /* more than any setting may be */
        *number = *number * 10 + (uint64_t)(*at - '0');
    }
    return at == text ? NULL : at;
}

static bool read_size(const char *text, uint64_t *size)
{
    static const char units[] = "kmgt";
    const char *at = read_number(text, size);
    if (at == NULL) return false;
    const char *unit = *at == '\0' ? NULL : strchr(units, *at | ' ');
    if (unit != NULL) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (*size >> (63 - shift) != 0) return false;
        *size <<= shift;
        at++;
    }
    return *at == '\0';
}

/* ---- HEAPFIT_RECORD_OPTIONS ------------------------------------------------------------------------------------------ */

struct option {
    const char *name;
    const char *values; /* for a person */
    const char *words[2]; /* for 0 and 1; NULL: a size or a number */
    uint64_t minimum, maximum;
    void (*apply)(uint64_t value);
};

static void apply_sample(uint64_t value)
{
    record_settings.sample = (size_t)value;
}

static void apply_sites(uint64_t value)
{
    record_settings.sites = (unsigned)value;
}

static void apply_start(uint64_t value)
{
    record_settings.later = value != 0;
}

static void apply_children(uint64_t value)
{
    record_settings.children = value != 0;
}

static void apply_process(uint64_t value)
{
    record_settings.process = (uint32_t)value;
}

static void apply_seconds(uint64_t value)
{
    record_settings.seconds = record_settings.lasts_s = (unsigned)value;
}

static void apply_flush_ms(uint64_t value)
{
    record_settings.flush_ms = (unsigned)value;
}

enum { FLUSH_MS = 100, YEAR_S = 365 * 86400 };

static const struct option options[] = {
    {"sample", "a size up to 1t", {NULL, NULL}, 0, UINT64_C(1) << 40, apply_sample},
    {"sites", "0 to 64", {NULL, NULL}, 0, 64, apply_sites},
    {"start", "now or later", {"now", "later"}, 0, 1, apply_start},
    {"children", "off or on", {"off", "on"}, 0, 1, apply_children},
    {"process", "the number of a process", {NULL, NULL}, 0, UINT32_MAX, apply_process},
    {"seconds", "0 to 31536000", {NULL, NULL}, 0, YEAR_S, apply_seconds},
    {"flush_ms", "1 to 60000", {NULL, NULL}, 1, 60000, apply_flush_ms},
};

static const struct option *option_find(const char *name)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(name, options[i].name) == 0) return &options[i];
    return NULL;
}

static bool option_read(const struct option *option, const char *text, uint64_t *value)
{
    if (option->words[0] == NULL)
        return read_size(text, value) && *value >= option->minimum && *value <= option->maximum;
    *value = strcmp(text, option->words[1]) == 0;
    return *value == 1 || strcmp(text, option->words[0]) == 0;
}

/* `setting` is "name:value"; it is taken apart. */
static void apply(char *setting)
{
    uint64_t value;
    char *colon = strchr(setting, ':');
    if (colon != NULL) *colon = '\0';
    const struct option *option = option_find(setting);
    if (option == NULL)
        platform_message(
            "HEAPFIT_RECORD_OPTIONS: there is no option '%s'; there are sample, sites, start, children, process, "
            "seconds and flush_ms",
            setting);
    else if (colon == NULL || !option_read(option, colon + 1, &value))
        platform_message("HEAPFIT_RECORD_OPTIONS: '%s' takes %s, not '%s'; it stays as it was", setting, option->values,
                         colon == NULL ? "" : colon + 1);
    else option->apply(value);
}

enum { OPTIONS_BYTES = 1024 };

/* They are taken apart. */
static void apply_all(char *text)
{
    for (char *setting = text, *next; setting != NULL; setting = next) {
        next = strchr(setting, ',');
        if (next != NULL) *next++ = '\0';
        if (*setting != '\0') apply(setting);
    }
}

static void read_options(void)
{
    char text[OPTIONS_BYTES];
    if (platform_environment("HEAPFIT_RECORD_OPTIONS", text, sizeof text)) apply_all(text);
}

/* ---- HEAPFIT_RECORD ---------------------------------------------------------------------------------------------------- */

/* Absolute: a forked child may be somewhere else when it opens its file. */
static void read_path(void)
{
    char given[sizeof record_settings.path];
    char folder[sizeof record_settings.path] = "";
    record_settings.path[0] = '\0';
    if (!platform_environment("HEAPFIT_RECORD", given, sizeof given) || given[0] == '\0') return;
    if (given[0] != '/' && getcwd(folder, sizeof folder) == NULL) {
        platform_message("no recording: %s: the working directory has no path", given);
        return;
    }
    if (strlen(folder) + 1 + strlen(given) + 1 > sizeof record_settings.path) {
        platform_message("no recording: the path in HEAPFIT_RECORD is too long");
        return;
    }
    platform_format(record_settings.path, sizeof record_settings.path, "%s%s%s", folder, folder[0] != '\0' ? "/" : "",
                    given);
}

/* ---- HEAPFIT_RECORD_PROCESS ---------------------------------------------------------------------------------------------- */

#define PROCESS_NAME "HEAPFIT_RECORD_PROCESS"

/* Some programs look for more behind the environment's end, as the kernel's is: they find zeros. */
enum { BEHIND_END = 2 };

extern char **environ;

/* With one entry more. Only by the constructor: later the environment is the program's, which may free what it finds there. */
static void environment_add(char *entry)
{
    size_t page = platform_page_size();
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL) count++;
    size_t size = ((count + 2 + BEHIND_END) * sizeof *environ + page - 1) & -page;
    char **larger = (char **)platform_reserve(size, page);
    if (larger == NULL || !platform_commit((void *)larger, size)) return;
    if (count > 0) memcpy((void *)larger, (const void *)environ, count * sizeof *environ);
    larger[count] = entry;
    environ = larger;
}

/* The main process is the first that finds nobody named. */
static void find_process(void)
{
    static char entry[sizeof PROCESS_NAME "=4294967295"];
    char text[sizeof entry];
    uint64_t number;
    if (platform_environment(PROCESS_NAME, text, sizeof text) && read_number(text, &number) != NULL) {
        if (record_settings.process == 0) record_settings.process = (uint32_t)number;
        return;
    }
    if (record_settings.process == 0) record_settings.process = (uint32_t)getpid();
    record_settings.first = record_settings.process == (uint32_t)getpid();
    platform_format(entry, sizeof entry, PROCESS_NAME "=%zu", (size_t)record_settings.process);
    environment_add(entry);
}

bool record_settings_apply(void)
{
    if (record_settings.path[0] == '\0') return false;
    return record_settings.children || record_settings.process == (uint32_t)getpid();
}

void record_settings_read(void)
{
    record_settings = (struct record_settings){.flush_ms = FLUSH_MS};
    read_path();
    if (record_settings.path[0] == '\0') return;
    read_options();
    find_process();
}

bool record_settings_give(const char *options, const char *path)
{
    char text[OPTIONS_BYTES];
    if (strlen(options) >= sizeof text || strlen(path) >= sizeof record_settings.path) return false;
    record_settings = (struct record_settings){.flush_ms = FLUSH_MS, .quiet = true, .process = (uint32_t)getpid()};
    memcpy(text, options, strlen(options) + 1);
    apply_all(text);
    memcpy(record_settings.path, path, strlen(path) + 1);
    return true;
}
