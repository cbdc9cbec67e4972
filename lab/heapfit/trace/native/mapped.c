/* Which code an address means, where other code has been mapped at the same addresses before.
 *
 * A listing says what is mapped when it is written. A site means the code of the last listing before it, or, where that has nothing
 * at its address, of the next one that has: the recorder writes a listing before code is unmapped, and another one after. Code that
 * lies where other code has lain gets a *space* of its own: its addresses, and those of its sites, are told as SPACE times its number
 * higher. So each address means one thing in the whole trace.
 */
#include "reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No program has longer addresses, and places of interpreted programs begin at 256 spaces. What lies in the last one has no name:
 * it is more than is told apart. */
enum { SPACE_SHIFT = 48, SPACES = 255 };

/* Of mappings: some tenths of a second. What a file asks for beyond is taken to be the first at its addresses. */
enum { COMPARISONS_MAX = 1 << 28 };

static bool is_plain(uint64_t address)
{
    return address >> SPACE_SHIFT == 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------------------------ */

/* "start end offset path", or "build-id start id", then with `end` 0. */
struct line {
    uint64_t start, end, offset;
    const char *rest; /* the path, or the identity */
    size_t rest_length;
};

static const char BUILD_ID[] = "build-id ";

static bool take_hexadecimal(const char **at, uint64_t *number)
{
    char *end;
    *number = strtoull(*at, &end, 16);
    if (end == *at || *end != ' ') return false;
    *at = end + 1;
    return true;
}

static bool line_take(const char *text, size_t length, struct line *line)
{
    const char *at = text;
    bool is_id = strncmp(text, BUILD_ID, strlen(BUILD_ID)) == 0;
    if (is_id) at += strlen(BUILD_ID);
    *line = (struct line){0};
    if (!take_hexadecimal(&at, &line->start)) return false;
    if (!is_id && !(take_hexadecimal(&at, &line->end) && take_hexadecimal(&at, &line->offset))) return false;
    if (at >= text + length || (!is_id && line->start >= line->end)) return false;
    line->rest = at;
    line->rest_length = length - (size_t)(at - text);
    return is_plain(line->start) && is_plain(line->end);
}

/* The same for all parts of a file that is mapped at one place. */
static uint64_t identity_of(const struct line *mapping, const struct line *id)
{
    uint64_t hash = mapping->start - mapping->offset;
    for (size_t i = 0; i < mapping->rest_length; i++)
        hash = (hash ^ (uint8_t)mapping->rest[i]) * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = 0; id != NULL && i < id->rest_length; i++)
        hash = (hash ^ (uint8_t)id->rest[i]) * UINT64_C(0xBF58476D1CE4E5B9);
    return hash;
}

/* ---- spaces ------------------------------------------------------------------------------------------------------------------ */

/* The space of a mapping: that of the same one before, or the first in which nothing else was there. */
static unsigned space_of(struct trace_reader *reader, struct mapped_code wanted)
{
    struct mapped *mapped = &reader->tables.mapped;
    uint64_t taken[(SPACES + 1) / 64] = {0};
    for (size_t i = 0; i < mapped->known_count && mapped->comparisons < COMPARISONS_MAX; i++, mapped->comparisons++) {
        struct mapped_code *known = &mapped->known[i];
        if (known->start >= wanted.end || wanted.start >= known->end) continue;
        if (known->identity == wanted.identity) {
            if (wanted.start < known->start) known->start = wanted.start;
            if (wanted.end > known->end) known->end = wanted.end;
            return known->space;
        }
        taken[known->space / 64] |= UINT64_C(1) << known->space % 64;
    }
    while (wanted.space < SPACES && (taken[wanted.space / 64] >> wanted.space % 64 & 1) != 0) wanted.space++;
    if (room_for(reader, &mapped->known, &mapped->known_capacity, mapped->known_count + 1, sizeof *mapped->known))
        mapped->known[mapped->known_count++] = wanted;
    return wanted.space;
}

static uint64_t in_space(uint64_t address, unsigned space)
{
    return address + ((uint64_t)space << SPACE_SHIFT);
}

/* What the last listing has there, by bisection; NULL: nothing. A return address may be the end of its code. */
static const struct mapped_code *code_now_at(const struct mapped *mapped, uint64_t address)
{
    size_t low = 0, high = mapped->now_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mapped->now[middle].end < address) low = middle + 1;
        else high = middle;
    }
    return low < mapped->now_count && mapped->now[low].start < address ? &mapped->now[low] : NULL;
}

/* ---- sites --------------------------------------------------------------------------------------------------------------------- */

void mapped_site(struct trace_reader *reader, uint32_t number)
{
    struct mapped *mapped = &reader->tables.mapped;
    struct trace_site *site = &reader->tables.sites[number];
    if (site->address == 0 || !is_plain(site->address)) return;
    const struct mapped_code *code = code_now_at(mapped, site->address);
    if (code != NULL) site->address = in_space(site->address, code->space);
    else if (room_for(reader, &mapped->left, &mapped->left_capacity, mapped->left_count + 1, sizeof *mapped->left))
        mapped->left[mapped->left_count++] = number;
}

/* Sites that came before the first listing with their code. */
static void settle_left(struct trace_reader *reader)
{
    struct mapped *mapped = &reader->tables.mapped;
    size_t count = mapped->left_count;
    if (mapped->comparisons >= COMPARISONS_MAX) return;
    mapped->comparisons += count;
    mapped->left_count = 0;
    for (size_t i = 0; i < count; i++) mapped_site(reader, mapped->left[i]); /* puts back at most what it has read */
}

/* ---- listings --------------------------------------------------------------------------------------------------------------------- */

static bool emit(struct trace_reader *reader, const char *text, size_t length, const struct line *line, unsigned space)
{
    enum { NUMBERS = 3 * 18 };
    if (space == SPACES) return true;
    char *shifted = space == 0 ? NULL : malloc(NUMBERS + sizeof BUILD_ID + line->rest_length);
    if (shifted == NULL) return tables_line(reader, text, length);
    unsigned long long start = in_space(line->start, space), end = in_space(line->end, space);
    int size = line->end == 0 ? sprintf(shifted, "%s%llx ", BUILD_ID, start)
                              : sprintf(shifted, "%llx %llx %llx ", start, end, (unsigned long long)line->offset);
    memcpy(shifted + size, line->rest, line->rest_length);
    bool added = tables_line(reader, shifted, (size_t)size + line->rest_length);
    free(shifted);
    return added;
}

/* In order of address, as the kernel lists them: what is not can be found no more. */
static void add_now(struct trace_reader *reader, struct mapped_code code)
{
    struct mapped *mapped = &reader->tables.mapped;
    bool in_order = mapped->now_count == 0 || mapped->now[mapped->now_count - 1].end <= code.start;
    if (in_order && room_for(reader, &mapped->now, &mapped->now_capacity, mapped->now_count + 1, sizeof *mapped->now))
        mapped->now[mapped->now_count++] = code;
}

bool tables_modules(struct trace_reader *reader, const char *text)
{
    bool is_listing = false; /* not of places of an interpreted program alone */
    struct mapped_code last = {0};
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        const char *next = text + length + (text[length] == '\n');
        struct line line, id;
        bool taken = line_take(text, length, &line);
        if (taken && line.end != 0) {
            bool has_id = line_take(next, strcspn(next, "\n"), &id) && id.end == 0 && id.start == line.start;
            if (!is_listing) reader->tables.mapped.now_count = 0;
            is_listing = true;
            last = (struct mapped_code){line.start, line.end, identity_of(&line, has_id ? &id : NULL), 0};
            last.space = space_of(reader, last);
            add_now(reader, last);
        }
        unsigned space = taken && line.start == last.start ? last.space : 0;
        if (!emit(reader, text, length, &line, space)) return true;
        text = next;
    }
    if (is_listing) settle_left(reader);
    return true;
}
