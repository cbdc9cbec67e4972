/* Fuzz target: the input is what a client sends over the control channel, lines of any bytes. Each gets one answer,
 * which is one line of JSON whatever the request was. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api/api.h"
#include "platform/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 1 << 20 };

static struct {
    size_t length;
    char text[ANSWER_MAX + 1];
} answer;

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "request_sequence: %s: %s\n", what, answer.text);
    abort();
}

static bool collect(struct json *json, const char *bytes, size_t size)
{
    (void)json;
    require(size <= ANSWER_MAX - answer.length, "the answer does not end");
    memcpy(answer.text + answer.length, bytes, size);
    answer.length += size;
    answer.text[answer.length] = '\0';
    return true;
}

/* Past the end of a string whose opening quote stands before `at`. */
static const char *after_string(const char *at)
{
    while (*at != '"') {
        require(*at >= ' ' && *at <= '~', "a string with something else than text in it");
        if (*at == '\\') require(at[1] == '"' || at[1] == '\\', "an escape that is none");
        at += *at == '\\' ? 2 : 1;
    }
    return at + 1;
}

/* Brackets match; outside of strings stands only what JSON has. */
static void check_answer(void)
{
    char open[64];
    size_t depth = 0;
    const char *at = answer.text;
    require(strncmp(at, "{\"ok\":true", 10) == 0 || strncmp(at, "{\"ok\":false,\"error\":\"", 21) == 0, "no answer");
    do {
        require(*at != '\0' && strchr("{}[]:,\"-0123456789truefals", *at) != NULL, "no JSON");
        if (*at == '{' || *at == '[') open[depth++] = *at == '{' ? '}' : ']';
        require(depth < sizeof open, "brackets without end");
        if (*at == '}' || *at == ']') require(open[--depth] == *at, "brackets that do not match");
        at = *at == '"' ? after_string(at + 1) : at + 1;
    } while (depth != 0);
    require(strcmp(at, "\n") == 0, "not one line");
}

/* What would clear memory until there is none. */
static bool is_harmful(const char *line, size_t length)
{
    return memmem(line, length, "zeroed", 6) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = (const char *)data, *end = line + size;
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop != NULL ? stop : end) - line);
        struct json json = {.write = collect};
        answer.length = 0;
        if (!is_harmful(line, length)) {
            request_answer(line, length, &json);
            require(json_end(&json), "not written");
            check_answer();
        }
        line += length + 1;
    }
    return 0;
}
