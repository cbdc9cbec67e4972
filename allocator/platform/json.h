/* Writing JSON piece by piece, through a small buffer and without allocating. Commas are put where they belong; what is
 * opened has to be closed. */
#ifndef HEAPFIT_JSON_H
#define HEAPFIT_JSON_H

#include "platform.h"

struct json {
    /* Takes what the buffer holds; false when it cannot, and is then not called any more. */
    bool (*write)(struct json *json, const char *bytes, size_t size);
    bool failed;
    bool follows; /* a value stands before, on the same level */
    size_t length;
    char buffer[2048];
};

void json_open(struct json *json, char bracket); /* { or [ */
void json_close(struct json *json, char bracket); /* } or ] */
void json_name(struct json *json, const char *name); /* of the member that comes next */

void json_number(struct json *json, uint64_t number);
void json_signed(struct json *json, int64_t number);
void json_thousandths(struct json *json, uint64_t number); /* as a decimal fraction */
void json_null(struct json *json);
void json_bool(struct json *json, bool value);
void json_string(struct json *json, const char *text); /* ASCII */

/* Whose `write` is json_to_file. */
struct json_file {
    struct json json;
    int file;
};
bool json_to_file(struct json *json, const char *bytes, size_t size);

/* Ends the line and hands over what is left. False when anything could not be written. */
bool json_end(struct json *json);

#endif
