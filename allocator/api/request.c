/* What another process may ask of this one over the control channel, and the answers: heapfit-control(7) has the
 * protocol.
 *
 * A request is a line of words. An answer is one line of JSON: {"ok":true,...}, or {"ok":false,"error":"what is
 * wrong"}. What comes in is not trusted to be a request, nor to be text. Nothing is allocated: the figures would show
 * it.
 */
#include "../platform/server.h"
#include "api.h"

#include <string.h>

/* The name of a command and what it takes. */
enum { ARGUMENTS_MAX = 2, WORDS_MAX = 1 + ARGUMENTS_MAX };

enum { NAME_MAX_BYTES = 512 }; /* of a mapping, as long as they are read */

struct request {
    char text[REQUEST_MAX + 1]; /* the line, cut into words by zeros */
    const char *words[WORDS_MAX];
    size_t count; /* one more than WORDS_MAX: too many */
};

/* ---- answers --------------------------------------------------------------------------------------------------- */

static void answer_open(struct json *json)
{
    json_open(json, '{');
    json_name(json, "ok");
    json_bool(json, true);
}

static void answer_number(struct json *json, const char *name, size_t number)
{
    answer_open(json);
    json_name(json, name);
    json_number(json, number);
    json_close(json, '}');
}

static void write_text(struct json *json, const char *name, const char *text)
{
    json_name(json, name);
    json_string(json, text);
}

/* ---- commands -------------------------------------------------------------------------------------------------- */

static void run_version(struct json *json, const struct request *request)
{
    (void)request;
    answer_open(json);
    write_text(json, "version", hf_version());
    json_close(json, '}');
}

static void run_stats(struct json *json, const struct request *request)
{
    (void)request;
    answer_open(json);
    json_name(json, "stats");
    report_json(json);
    json_close(json, '}');
}

/* The names of files may be anything; an answer is text. */
static void write_name(struct json *json, const char *name)
{
    char text[NAME_MAX_BYTES + 1];
    size_t length = 0;
    for (; name[length] != '\0' && length < NAME_MAX_BYTES; length++) {
        bool is_ascii = name[length] >= ' ' && name[length] <= '~';
        text[length] = is_ascii ? name[length] : '?';
    }
    text[length] = '\0';
    write_text(json, "name", text);
}

static void write_ledger_row(const hf_ledger_row *row, void *argument)
{
    struct json *json = argument;
    json_open(json, '{');
    write_text(json, "cause", row->cause);
    write_name(json, row->name);
    json_name(json, "in_heap");
    json_bool(json, row->in_heap != 0);
    json_name(json, "heap");
    json_signed(json, row->heap);
    json_name(json, "thread");
    json_signed(json, row->thread);
    json_name(json, "resident");
    json_number(json, row->resident);
    json_name(json, "swapped");
    json_number(json, row->swapped);
    json_close(json, '}');
}

static void run_ledger(struct json *json, const struct request *request)
{
    (void)request;
    answer_open(json);
    json_name(json, "ledger");
    json_open(json, '[');
    int failed = hf_ledger(write_ledger_row, json);
    json_close(json, ']');
    json_name(json, "complete");
    json_bool(json, failed == 0);
    json_close(json, '}');
}

static void run_profile(struct json *json, const struct request *request)
{
    (void)request;
    answer_open(json);
    json_name(json, "profile");
    profile_json(json);
    json_close(json, '}');
}

static const char *kind_name(int kind)
{
    static const char *const names[] = {[HF_OPTION_NUMBER] = "number",
                                        [HF_OPTION_SIZE] = "size",
                                        [HF_OPTION_FLAG] = "flag",
                                        [HF_OPTION_CHOICE] = "choice"};
    return names[kind];
}

static void write_choices(struct json *json, const hf_option *option)
{
    json_name(json, "choices");
    json_open(json, '[');
    for (uint64_t i = 0; option->choices != NULL && i <= option->maximum; i++) json_string(json, option->choices[i]);
    json_close(json, ']');
}

static void write_option(struct json *json, const hf_option *option)
{
    struct option_text value;
    struct option_mistake mistake;
    options_get(option->name, &value, &mistake); /* it exists */
    json_open(json, '{');
    write_text(json, "name", option->name);
    write_text(json, "description", option->description);
    write_text(json, "kind", kind_name(option->kind));
    json_name(json, "live");
    json_bool(json, option->live != 0);
    write_text(json, "value", value.text);
    write_text(json, "in_force", options_in_force(option->name).text);
    write_text(json, "initial", options_text(option, option->initial).text);
    json_name(json, "minimum");
    json_number(json, option->minimum);
    json_name(json, "maximum");
    json_number(json, option->maximum);
    json_name(json, "unlimited");
    json_bool(json, option->unlimited != 0);
    write_choices(json, option);
    json_close(json, '}');
}

static void run_options(struct json *json, const struct request *request)
{
    const hf_option *option;
    (void)request;
    answer_open(json);
    json_name(json, "options");
    json_open(json, '[');
    for (size_t i = 0; (option = hf_option_at(i)) != NULL; i++) write_option(json, option);
    json_close(json, ']');
    json_close(json, '}');
}

static void run_get(struct json *json, const struct request *request)
{
    struct option_text value;
    struct option_mistake mistake;
    if (!options_get(request->words[1], &value, &mistake)) {
        server_refuse(json, mistake.text);
        return;
    }
    answer_open(json);
    write_text(json, "name", request->words[1]);
    write_text(json, "value", value.text);
    json_close(json, '}');
}

static void run_set(struct json *json, const struct request *request)
{
    struct option_mistake mistake;
    if (options_set(request->words[1], request->words[2], &mistake)) run_get(json, request);
    else server_refuse(json, mistake.text);
}

static void run_shrink(struct json *json, const struct request *request)
{
    (void)request;
    answer_number(json, "given_back", hf_footprint_shrink());
}

static void run_restore(struct json *json, const struct request *request)
{
    (void)request;
    hf_footprint_restore();
    answer_open(json);
    json_close(json, '}');
}

static void run_trim(struct json *json, const struct request *request)
{
    (void)request;
    answer_number(json, "given_back", trim_everywhere());
}

struct command {
    const char *name;
    const char *arguments[ARGUMENTS_MAX]; /* what they are; NULL: none */
    void (*run)(struct json *json, const struct request *request);
};

static const struct command commands[] = {
    {"version", {NULL, NULL}, run_version}, {"stats", {NULL, NULL}, run_stats},  {"options", {NULL, NULL}, run_options},
    {"get", {"NAME", NULL}, run_get},       {"set", {"NAME", "VALUE"}, run_set}, {"shrink", {NULL, NULL}, run_shrink},
    {"restore", {NULL, NULL}, run_restore}, {"trim", {NULL, NULL}, run_trim},    {"ledger", {NULL, NULL}, run_ledger},
    {"profile", {NULL, NULL}, run_profile},
};

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i].name) == 0) return &commands[i];
    return NULL;
}

static size_t command_words(const struct command *command)
{
    size_t words = 1;
    while (words < WORDS_MAX && command->arguments[words - 1] != NULL) words++;
    return words;
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

/* Requests are ASCII, as the names and values of options are: so an answer that repeats some of one is text, too. */
static bool is_text(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] < ' ' || line[i] > '~') return false;
    return true;
}

static void split(struct request *request, const char *line, size_t length)
{
    bool inside = false;
    memcpy(request->text, line, length);
    request->text[length] = '\0';
    request->count = 0;
    for (char *at = request->text; *at != '\0'; at++) {
        bool starts = *at != ' ' && !inside;
        inside = *at != ' ';
        if (!inside) *at = '\0';
        if (!starts) continue;
        if (request->count < WORDS_MAX) request->words[request->count] = at;
        if (request->count <= WORDS_MAX) request->count++;
    }
}

static COLD void refuse_unknown(struct json *json, const char *name)
{
    char why[2 * REQUEST_MAX];
    platform_format(
        why, sizeof why,
        "there is no command '%s'; there are version, stats, options, get, set, shrink, restore, trim, ledger and "
        "profile",
        name);
    server_refuse(json, why);
}

static COLD void refuse_usage(struct json *json, const struct command *command)
{
    char why[REQUEST_MAX];
    const char *first = command->arguments[0], *second = command->arguments[1];
    platform_format(why, sizeof why, "it is written: %s%s%s%s%s", command->name, first != NULL ? " " : "",
                    first != NULL ? first : "", second != NULL ? " " : "", second != NULL ? second : "");
    server_refuse(json, why);
}

void request_answer(const char *line, size_t length, struct json *json)
{
    struct request request;
    if (length > REQUEST_MAX) {
        server_refuse(json, "a request is a line of at most 256 bytes");
        return;
    }
    if (!is_text(line, length)) {
        server_refuse(json, "a request is a line of printable ASCII");
        return;
    }
    split(&request, line, length);
    const struct command *command = request.count == 0 ? NULL : command_find(request.words[0]);
    if (command == NULL) refuse_unknown(json, request.count == 0 ? "" : request.words[0]);
    else if (request.count != command_words(command)) refuse_usage(json, command);
    else command->run(json, &request);
}
