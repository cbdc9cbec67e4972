/* The live heap profile: the sampled objects that live, each with its call site, and the sites of these. What they stand for is left
 * to who reads it, who can then say how sure it is. */
#include "../platform/json.h"
#include "api.h"

#include <string.h>

/* The thread that answers is alone here. */
struct writing {
    struct json *json;
    uint64_t sites[CALL_SITES_MAX / 64 + 1]; /* those that a sample has */
};
static struct writing writing;

static void write_member(struct json *json, const char *name, uint64_t number)
{
    json_name(json, name);
    json_number(json, number);
}

static void write_sample(const struct sampled *sampled, void *argument)
{
    struct writing *its = argument;
    its->sites[sampled->site / 64] |= UINT64_C(1) << (sampled->site % 64);
    json_open(its->json, '{');
    write_member(its->json, "site", sampled->site);
    write_member(its->json, "bytes", sampled->bytes);
    write_member(its->json, "mean", sampled->mean);
    write_member(its->json, "age_ms", sampled->age_ms);
    write_member(its->json, "pinned", sampled->pinned);
    json_close(its->json, '}');
}

/* The names of files may be anything; an answer is text. */
static void make_ascii(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~') *text = '?';
}

static void write_site(struct json *json, uint32_t number)
{
    char place[TRACE_PLACE_MAX];
    const struct trace *trace = call_site_trace(number);
    json_open(json, '{');
    write_member(json, "site", number);
    json_name(json, "calls");
    json_open(json, '[');
    for (uint32_t i = 0; i < trace->count; i++) {
        trace_describe(trace, i, place);
        make_ascii(place);
        json_string(json, place);
    }
    json_close(json, ']');
    json_close(json, '}');
}

void profile_json(struct json *json)
{
    struct sample_figures figures = sample_figures();
    memset(&writing, 0, sizeof writing);
    writing.json = json;
    json_open(json, '{');
    write_member(json, "mean", atomic_load_explicit(&sample_mean, memory_order_relaxed));
    write_member(json, "taken", figures.taken);
    write_member(json, "missed", figures.missed);
    json_name(json, "samples");
    json_open(json, '[');
    bool complete = sample_visit(write_sample, &writing);
    json_close(json, ']');
    json_name(json, "sites");
    json_open(json, '[');
    for (uint32_t site = CALL_SITE_NONE + 1; site <= CALL_SITES_MAX; site++)
        if ((writing.sites[site / 64] >> (site % 64) & 1) != 0) write_site(json, site);
    json_close(json, ']');
    json_name(json, "complete");
    json_bool(json, complete);
    json_close(json, '}');
}
