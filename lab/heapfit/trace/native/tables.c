/* What a trace says beside its events: threads, call sites, mappings of code, and the recorder's own words.
 */
#include "reader.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON --------------------------------------------------------------------------------------------------------- *
 *
 * Of the recorder's objects only a few members are wanted, and a quotation mark within a text has a backslash before it,
 * so that `"member"` with a colon behind it is a member's name wherever it stands.
 */

static const char *skip_spaces(const char *text)
{
    while (*text == ' ' || *text == '\t' || *text == '\n' || *text == '\r') text++;
    return text;
}

/* Where its value begins; NULL when there is none. */
static const char *json_member(const char *text, const char *member)
{
    size_t length = strlen(member);
    while ((text = strchr(text, '"')) != NULL) {
        text++;
        if (strncmp(text, member, length) != 0 || text[length] != '"') continue;
        const char *colon = skip_spaces(text + length + 1);
        if (*colon == ':') return skip_spaces(colon + 1);
    }
    return NULL;
}

int64_t json_number(const char *text, const char *member, int64_t otherwise)
{
    _Static_assert(sizeof(long long) == sizeof(int64_t), "strtoll gives all of it");
    const char *value = json_member(text, member);
    if (value == NULL) return otherwise;
    char *end;
    long long number = strtoll(value, &end, 10);
    return end == value ? otherwise : number;
}

/* Four hexadecimal digits; -1: they are none. */
static int hexadecimal(const char *text)
{
    int number = 0;
    for (int i = 0; i < 4; i++) {
        char digit = text[i];
        if (digit >= '0' && digit <= '9') number = number * 16 + digit - '0';
        else if (digit >= 'a' && digit <= 'f') number = number * 16 + digit - 'a' + 10;
        else if (digit >= 'A' && digit <= 'F') number = number * 16 + digit - 'A' + 10;
        else return -1;
    }
    return number;
}

/* What stands behind a backslash, as bytes, and how many; `text` goes behind it. */
static size_t unescape(const char **text, char bytes[3])
{
    static const char names[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    char name = **text;
    if (name == '\0') return 0;
    ++*text;
    const char *known = strchr(names, name);
    bytes[0] = known != NULL ? meanings[known - names] : name;
    if (name != 'u') return 1;
    int point = hexadecimal(*text);
    if (point <= 0) return 0;
    *text += 4;
    if (point < 0x80) {
        bytes[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        bytes[0] = (char)(0xC0 | point >> 6);
        bytes[1] = (char)(0x80 | (point & 0x3F));
        return 2;
    }
    if (point >= 0xD800 && point < 0xE000)
        point = 0xFFFD; /* half of a pair: a recorder writes such characters as they are */
    bytes[0] = (char)(0xE0 | point >> 12);
    bytes[1] = (char)(0x80 | (point >> 6 & 0x3F));
    bytes[2] = (char)(0x80 | (point & 0x3F));
    return 3;
}

bool json_text(const char *text, const char *member, char *out, size_t size)
{
    const char *value = json_member(text, member);
    if (value == NULL || *value != '"') return false;
    size_t used = 0;
    for (value++; *value != '"' && *value != '\0';) {
        char bytes[3] = {*value};
        size_t count = 1;
        if (*value++ == '\\') count = unescape(&value, bytes);
        if (used + count >= size) break;
        memcpy(out + used, bytes, count);
        used += count;
    }
    out[used] = '\0';
    return true;
}

/* ---- what the recorder says of itself ---------------------------------------------------------------------------- */

static bool keep(struct trace_reader *reader, char **kept, const char *text)
{
    if (*kept != NULL) return true; /* a second one is no recorder's */
    *kept = strdup(text);
    if (*kept == NULL) reader_stop(reader, ENOMEM);
    return true;
}

bool tables_info(struct trace_reader *reader, const char *text)
{
    return keep(reader, &reader->tables.info, text);
}

bool tables_end(struct trace_reader *reader, const char *text)
{
    return keep(reader, &reader->tables.end, text);
}

bool tables_limit(struct trace_reader *reader, const char *text)
{
    char sites[16];
    uint8_t limit = TRACE_SITES_ALL;
    if (!json_text(text, "sites", sites, sizeof sites)) return true;
    if (strcmp(sites, "innermost") == 0) limit = TRACE_SITES_INNERMOST;
    else if (strcmp(sites, "none") == 0) limit = TRACE_SITES_NONE;
    if (limit > reader->problems.sites_limit) reader->problems.sites_limit = limit;
    return true;
}

TRACE_API const char *trace_info(const struct trace_reader *reader)
{
    return reader->tables.info == NULL ? "{}" : reader->tables.info;
}

TRACE_API const char *trace_end(const struct trace_reader *reader)
{
    return reader->tables.end == NULL ? "" : reader->tables.end;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Threads are numbered in order of appearance, and each comes with a block: a file cannot let the tables grow much
 * more than it does itself. The spare ones are for a file that has lost a piece. */
static bool may_be(uint32_t index, uint64_t offset)
{
    return index < THREADS_MAX && index <= THREADS_SPARE + offset / TRACE_BLOCK_HEADER;
}

struct thread *tables_thread(struct trace_reader *reader, uint32_t index, uint64_t offset)
{
    struct tables *tables = &reader->tables;
    if (!may_be(index, offset)) return NULL;
    if (!room_for(reader, &tables->threads, &tables->threads_capacity, index + 1, sizeof *tables->threads) ||
        !room_for(reader, &tables->states, &tables->states_capacity, index + 1, sizeof *tables->states))
        return NULL;
    for (; tables->thread_count <= index; tables->thread_count++)
        tables->threads[tables->thread_count].index = (uint32_t)tables->thread_count;
    return &tables->states[index];
}

bool tables_name(struct trace_reader *reader, const char *text, uint64_t offset)
{
    int64_t index = json_number(text, "thread", -1), tid = json_number(text, "tid", 0);
    if (index < 0 || index > UINT32_MAX || tables_thread(reader, (uint32_t)index, offset) == NULL) return false;
    struct trace_thread *thread = &reader->tables.threads[index];
    thread->tid = tid >= 0 && tid <= INT_MAX ? (int32_t)tid : 0;
    char name[sizeof thread->name] = ""; /* of an earlier and longer one nothing stays behind its end */
    if (json_text(text, "name", name, sizeof name)) memcpy(thread->name, name, sizeof name);
    return true;
}

TRACE_API size_t trace_threads(const struct trace_reader *reader, const struct trace_thread **threads)
{
    *threads = reader->tables.threads;
    return reader->tables.thread_count;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

/* Like decode.c's, but for few and with a look at the end. */
bool number_take(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static bool add_site(struct trace_reader *reader, uint64_t caller, uint64_t address)
{
    struct tables *tables = &reader->tables;
    if (!room_for(reader, &tables->sites, &tables->sites_capacity, tables->site_count + 1, sizeof *tables->sites))
        return false;
    if (caller >= tables->site_count) caller = 0; /* one that is lost; chains of callers end, whatever the file says */
    /* Of deeper chains a small file could hold so many that following each takes minutes. No recorder makes them. */
    if (caller != 0 && tables->sites[caller].depth >= SITES_DEEPEST) caller = 0;
    uint32_t depth = caller == 0 ? 1 : tables->sites[caller].depth + 1;
    tables->sites[tables->site_count++] =
        (struct trace_site){.caller = (uint32_t)caller, .depth = depth, .address = address};
    mapped_site(reader, (uint32_t)tables->site_count - 1);
    return true;
}

/* Sites take room in the file: of a recorder's two bytes or more each. The spare ones are for a file that has lost a piece. */
static bool may_be_site(uint64_t number, uint64_t offset)
{
    return number < SITES_MAX && number <= SITES_SPARE + SITES_A_BYTE * offset;
}

/* Sites of lost blocks have no address, and none for a caller. `first` 0: the block goes on where the last one ended. */
bool tables_sites(struct trace_reader *reader, uint32_t first, const uint8_t *payload, size_t size, uint64_t offset)
{
    const uint8_t *at = payload, *end = payload + size;
    if (first != 0 && (first < reader->tables.site_count || !may_be_site(first, offset))) return false;
    while (reader->tables.site_count < first)
        if (!add_site(reader, 0, 0)) return false;
    while (at < end) {
        uint64_t caller, address;
        if (!number_take(&at, end, &caller) || !number_take(&at, end, &address)) return false;
        if (!may_be_site(reader->tables.site_count, offset) || !add_site(reader, caller, address)) return false;
    }
    return true;
}

TRACE_API size_t trace_sites(const struct trace_reader *reader, const struct trace_site **sites)
{
    *sites = reader->tables.sites;
    return reader->tables.site_count;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static uint64_t line_hash(const struct trace_reader *reader, const char *line, size_t length)
{
    uint64_t hash = reader->objects.live.secret;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)line[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash | 1; /* 0 is an empty place */
}

/* Where it is, or belongs. */
static uint64_t *line_place(const struct tables *tables, uint64_t hash)
{
    size_t at = hash >> 1;
    while (tables->lines[at & (tables->lines_capacity - 1)] != 0 &&
           tables->lines[at & (tables->lines_capacity - 1)] != hash)
        at++;
    return &tables->lines[at & (tables->lines_capacity - 1)];
}

/* Twice as many places. */
static bool lines_grow(struct trace_reader *reader)
{
    struct tables *tables = &reader->tables, larger = {0};
    if (!room_for(reader, &larger.lines, &larger.lines_capacity, 2 * tables->lines_capacity + 1, sizeof *larger.lines))
        return false;
    for (size_t i = 0; i < tables->lines_capacity; i++)
        if (tables->lines[i] != 0) *line_place(&larger, tables->lines[i]) = tables->lines[i];
    memory_give(reader, tables->lines_capacity * sizeof *tables->lines);
    free(tables->lines);
    tables->lines = larger.lines;
    tables->lines_capacity = larger.lines_capacity;
    return true;
}

bool tables_line(struct trace_reader *reader, const char *line, size_t length)
{
    struct tables *tables = &reader->tables;
    if (2 * tables->line_count >= tables->lines_capacity && !lines_grow(reader)) return false;
    uint64_t hash = line_hash(reader, line, length), *place = line_place(tables, hash);
    if (*place != 0 || length == 0 || tables->modules_size + length + 2 > MODULES_MAX) return true;
    if (!room_for(reader, &tables->modules, &tables->modules_capacity, tables->modules_size + length + 2, 1))
        return false;
    *place = hash;
    tables->line_count++;
    memcpy(tables->modules + tables->modules_size, line, length);
    tables->modules_size += length + 1;
    tables->modules[tables->modules_size - 1] = '\n';
    tables->modules[tables->modules_size] = '\0';
    return true;
}

TRACE_API const char *trace_modules(const struct trace_reader *reader)
{
    return reader->tables.modules == NULL ? "" : reader->tables.modules;
}
