/* What another process may ask of the recorder: heapfit-record(7) has the protocol.
 *
 * A request is a word: start, stop or status; a number behind start says after how many seconds the recording ends by itself, where
 * that is not as set. The answer is one line of JSON: {"ok":true,...} with the state afterwards, or
 * {"ok":false,"error":"what is wrong"}. A start while it records, or a stop while it does not, changes nothing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record.h"

#include "platform/server.h"

#include <string.h>

static void answer_state(struct json *json)
{
    char path[sizeof record_file.path];
    memcpy(path, record_file.path, sizeof path);
    json_open(json, '{');
    json_name(json, "ok");
    json_bool(json, true);
    json_name(json, "recording");
    json_bool(json, record_file.open);
    json_name(json, "file");
    json_string(json, facts_text(path));
    json_name(json, "events");
    json_number(json, record_file.events);
    json_name(json, "bytes");
    json_number(json, record_file.bytes);
    json_name(json, "lost");
    json_number(json, file_lost());
    if (record_file.error != NULL) {
        json_name(json, "ended_by");
        json_string(json, record_file.error);
    }
    json_close(json, '}');
}

static bool is(const char *line, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(line, word, length) == 0;
}

/* Whether the line is "start", or "start N", whose N it sets. */
static bool is_start(const char *line, size_t length, unsigned *seconds)
{
    static const char word[] = "start ";
    enum { DIGITS_MAX = 8, BASE = 10 };
    size_t at = sizeof word - 1;
    if (is(line, length, "start")) return true;
    if (length <= at || length > at + DIGITS_MAX || memcmp(line, word, at) != 0) return false;
    for (*seconds = 0; at < length; at++) {
        if (line[at] < '0' || line[at] > '9') return false;
        *seconds = *seconds * BASE + (unsigned)(line[at] - '0');
    }
    return true;
}

void record_answer(const char *line, size_t length, struct json *json)
{
    const char *wrong = NULL;
    if (length > 0 && line[length - 1] == '\r') length--;
    unsigned seconds = record_settings.seconds;
    if (is_start(line, length, &seconds)) {
        if (!record_file.open) record_settings.lasts_s = seconds;
        wrong = recording_begin();
    } else if (is(line, length, "stop")) recording_end("stop");
    else if (!is(line, length, "status")) wrong = "there is no such request; there are start, stop and status";
    if (wrong != NULL) server_refuse(json, wrong);
    else answer_state(json);
}
