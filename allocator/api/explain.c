/* What was decided about the groups of objects of a run and why, as JSON: for `heapfit pools explain`, which looks the
 * addresses up and prints it for people. In the library with pools alone.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../platform/json.h"
#include "../pools/group.h"
#include "api.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void write_count(struct json *json, const char *name, uint64_t number)
{
    json_name(json, name);
    json_number(json, number);
}

static void write_text(struct json *json, const char *name, const char *text)
{
    json_name(json, name);
    if (text != NULL) json_string(json, text);
    else json_null(json);
}

static void write_share(struct json *json, const char *name, uint64_t share)
{
    _Static_assert(WHOLE == 1000, "shares are thousandths");
    json_name(json, name);
    json_thousandths(json, share);
}

/* A number, of which the highest says that there is none. */
static void write_reference(struct json *json, const char *name, uint32_t number)
{
    json_name(json, name);
    if (number != UINT32_MAX) json_number(json, number);
    else json_null(json);
}

/* ---- the process ------------------------------------------------------------------------------------------------ */

enum { PATH_CAPACITY = 4096 };
static char program[PATH_CAPACITY];

static void find_program(void)
{
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
}

static void write_choice(struct json *json, const char *name, const char *option)
{
    struct option_text value;
    struct option_mistake mistake;
    write_text(json, name, options_get(option, &value, &mistake) ? value.text : NULL);
}

static void write_settings(struct json *json)
{
    json_name(json, "settings");
    json_open(json, '{');
    write_choice(json, "chain", "pool_chain");
    write_choice(json, "placing", "pools");
    json_name(json, "merge");
    json_bool(json, pool_settings.merge);
    json_name(json, "headers");
    json_bool(json, pool_settings.headers);
    write_count(json, "segment_size", pool_settings.segment_size);
    write_count(json, "min_objects", pool_settings.min_objects);
    write_count(json, "max_size", pool_settings.max_size);
    json_close(json, '}');
}

/* A mapped file: from where its addresses count, and where it ends. */
static int write_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct json *json = argument;
    uintptr_t end = 0;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t last = info->dlpi_addr + header->p_vaddr + header->p_memsz;
        if (header->p_type == PT_LOAD && last > end) end = last;
    }
    json_open(json, '{');
    write_text(json, "path", info->dlpi_name[0] != '\0' ? info->dlpi_name : program);
    write_count(json, "base", info->dlpi_addr);
    write_count(json, "end", end);
    json_close(json, '}');
    return 0;
}

static void write_modules(struct json *json)
{
    json_name(json, "modules");
    json_open(json, '[');
    dl_iterate_phdr(write_module, json);
    json_close(json, ']');
}

/* ---- groups and their graph ------------------------------------------------------------------------------------- */

static const char *const states[] = {
    [GROUP_WATCHED] = "watched", [GROUP_ORDINARY] = "ordinary", [GROUP_POOLED] = "pooled",
    [GROUP_MIXED] = "mixed",     [GROUP_MERGED] = "merged",
};

static const char *const affinities[] = {
    [AFFINITY_NONE] = NULL,
    [AFFINITY_TYPE_I] = "type-I",
    [AFFINITY_TYPE_II] = "type-II",
    [AFFINITY_TOGETHER] = "together",
};

static void write_chain(struct json *json, const struct group *group)
{
    json_name(json, "chain");
    json_open(json, '[');
    for (unsigned i = 0; i < group->length && i < CHAIN_KEPT; i++) json_number(json, group->chain[i]);
    json_close(json, ']');
    write_count(json, "length", group->length);
    json_name(json, "complete");
    json_bool(json, group->complete);
}

static void write_sizes(struct json *json, const struct group *group)
{
    json_name(json, "sizes");
    json_open(json, '[');
    for (unsigned i = 0; i < SIZES_KEPT && group->sizes[i].objects != 0; i++) {
        json_open(json, '{');
        write_count(json, "size", group->sizes[i].size);
        write_count(json, "objects", group->sizes[i].objects);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_decision(struct json *json, const struct group *group)
{
    write_text(json, "state", states[group->state]);
    write_reference(json, "merged_into", group->merged_into);
    write_text(json, "merged_by", affinities[group->affinity]);
    write_text(json, "reason", judge_reason_text((enum reason)group->reason));
    write_text(json, "threshold", judge_reason_threshold((enum reason)group->reason));
    write_reference(json, "pool", group->pool);
    write_share(json, "freed_share", group->shares.freed);
    write_share(json, "class_share", group->shares.own);
    write_share(json, "linked_share", group->shares.linked);
}

static void write_groups(struct json *json)
{
    json_name(json, "groups");
    json_open(json, '[');
    for (uint32_t i = 0; i < group_count(); i++) {
        json_open(json, '{');
        write_count(json, "id", i);
        write_chain(json, &groups[i]);
        write_count(json, "objects", groups[i].objects);
        write_count(json, "bytes", groups[i].bytes);
        write_sizes(json, &groups[i]);
        write_decision(json, &groups[i]);
        json_close(json, '}');
    }
    json_close(json, ']');
}

/* Between watched groups: of the two kinds there are, those of fields or those of siblings. */
static void write_edges(struct json *json, const char *name, bool siblings)
{
    json_name(json, name);
    json_open(json, '[');
    for (uint32_t i = 1; i <= edge_count(); i++) {
        const struct edge *edge = &edges[i];
        if ((edge->offset == OFFSET_SIBLINGS) != siblings || edge->count == 0) continue;
        json_open(json, '{');
        write_count(json, "from", edge->from);
        write_count(json, "to", edge->to);
        if (!siblings) write_count(json, "offset", edge->offset);
        write_count(json, "count", edge->count);
        write_count(json, "adjacent", edge->near);
        json_close(json, '}');
    }
    json_close(json, ']');
}

/* ---- pools and counters ----------------------------------------------------------------------------------------- */

static void write_pools(struct json *json)
{
    struct place_figures figures[POOL_BINS];
    uint32_t pools = place_figures(figures);
    json_name(json, "pools");
    json_open(json, '[');
    for (uint32_t pool = 0; pool < pools; pool++) {
        json_open(json, '{');
        write_count(json, "id", pool);
        write_text(json, "kind", figures[pool].mixed ? "mixed" : "one-size");
        write_count(json, "block_size", figures[pool].block_size);
        write_count(json, "objects", figures[pool].objects);
        write_count(json, "bytes", figures[pool].bytes);
        write_count(json, "footprint", figures[pool].footprint);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_counters(struct json *json)
{
    struct chain_figures figures;
    chain_figures(&figures);
    json_name(json, "counters");
    json_open(json, '{');
    write_count(json, "allocations_slow", figures.allocations_slow);
    write_count(json, "chains", figures.chains);
    write_share(json, "chain_length_mean", figures.chains == 0 ? 0 : figures.chain_addresses * WHOLE / figures.chains);
    write_count(json, "instructions_decoded", figures.instructions_decoded);
    write_count(json, "analysis_ns_median", figures.analysis_ns_median);
    json_name(json, "fallback");
    json_open(json, '{');
    for (unsigned i = 0; i < FALLBACKS; i++) write_count(json, chain_fallback_names[i], figures.fallbacks[i]);
    json_close(json, '}');
    json_close(json, '}');
}

/* ---- among statistics ------------------------------------------------------------------------------------------- */

void explain_statistics(struct json *json)
{
    json_name(json, "pools");
    json_open(json, '{');
    write_pools(json);
    write_counters(json);
    json_close(json, '}');
}

void explain_print(int file)
{
    struct place_figures figures[POOL_BINS];
    struct chain_figures chains;
    uint32_t pools = place_figures(figures);
    size_t objects = 0, bytes = 0;
    uint64_t untold = 0;
    for (uint32_t pool = 0; pool < pools; pool++) {
        objects += figures[pool].objects;
        bytes += figures[pool].bytes;
    }
    chain_figures(&chains);
    for (unsigned i = 0; i < FALLBACKS; i++) untold += chains.fallbacks[i];
    dprintf(file, "  pools      %12.3f MiB in %zu objects of %zu pools; %zu chains, %zu times not to be told\n",
            (double)bytes / (1 << 20), objects, (size_t)pools, (size_t)chains.chains, (size_t)untold);
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

void explain_json(struct json *json)
{
    find_program();
    json_open(json, '{');
    write_text(json, "format", "heapfit-pools/1");
    write_text(json, "version", hf_version());
    write_count(json, "pid", (uint64_t)getpid());
    write_text(json, "program", program);
    write_settings(json);
    write_modules(json);
    group_lock();
    write_groups(json);
    write_edges(json, "edges", false);
    write_edges(json, "siblings", true);
    group_unlock();
    write_pools(json);
    write_counters(json);
    json_close(json, '}');
}

/* The path with the process's number in place of the first %p, since a program may start others. */
static void path_of_process(char *path, size_t capacity)
{
    const char *wanted = pool_settings.explain, *mark = strstr(wanted, "%p");
    if (mark == NULL) {
        platform_format(path, capacity, "%s", wanted);
        return;
    }
    char before[sizeof pool_settings.explain];
    memcpy(before, wanted, (size_t)(mark - wanted));
    before[mark - wanted] = '\0';
    platform_format(path, capacity, "%s%zu%s", before, (size_t)getpid(), mark + 2);
}

void explain_at_exit(void)
{
    if (pool_settings.explain[0] == '\0') return;
    int saved = errno;
    char path[sizeof pool_settings.explain + 24]; /* the digits of a number are 20 at most */
    path_of_process(path, sizeof path);
    struct json_file target = {.json = {.write = json_to_file},
                               .file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    bool written = false;
    if (target.file >= 0) {
        explain_json(&target.json);
        written = json_end(&target.json);
        close(target.file);
    }
    if (!written) platform_message("HEAPFIT_POOLS_EXPLAIN: cannot write %s", path);
    errno = saved;
}
