/* JSON, see json.h and RFC 8259. */
#include "json.h"

#include <string.h>

static void flush(struct json *json)
{
    if (!json->failed && json->length != 0) json->failed = !json->write(json, json->buffer, json->length);
    json->length = 0;
}

static void add(struct json *json, char character)
{
    if (json->length == sizeof json->buffer) flush(json);
    json->buffer[json->length++] = character;
}

static void add_text(struct json *json, const char *text)
{
    for (; *text != '\0'; text++) add(json, *text);
}

static void begin_value(struct json *json)
{
    if (json->follows) add(json, ',');
    json->follows = true;
}

void json_open(struct json *json, char bracket)
{
    begin_value(json);
    add(json, bracket);
    json->follows = false;
}

void json_close(struct json *json, char bracket)
{
    add(json, bracket);
    json->follows = true;
}

static void add_escaped(struct json *json, unsigned char character)
{
    static const char digits[] = "0123456789abcdef";
    if (character == '"' || character == '\\') {
        add(json, '\\');
    } else if (character < ' ') {
        add_text(json, "\\u00");
        add(json, digits[character >> 4]);
        character = (unsigned char)digits[character & 15];
    }
    add(json, (char)character);
}

static void add_string(struct json *json, const char *text)
{
    add(json, '"');
    for (; *text != '\0'; text++) add_escaped(json, (unsigned char)*text);
    add(json, '"');
}

void json_name(struct json *json, const char *name)
{
    begin_value(json);
    add_string(json, name);
    add(json, ':');
    json->follows = false;
}

void json_number(struct json *json, uint64_t number)
{
    char digits[20]; /* as many as 2^64 has */
    size_t length = 0;
    begin_value(json);
    do digits[length++] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    while (length > 0) add(json, digits[--length]);
}

void json_signed(struct json *json, int64_t number)
{
    if (number >= 0) {
        json_number(json, (uint64_t)number);
        return;
    }
    begin_value(json);
    add(json, '-');
    json->follows = false;
    json_number(json, -(uint64_t)number);
}

void json_thousandths(struct json *json, uint64_t number)
{
    json_number(json, number / 1000);
    add(json, '.');
    for (uint64_t rest = number % 1000, unit = 100; unit != 0; rest %= unit, unit /= 10)
        add(json, (char)('0' + rest / unit));
}

void json_null(struct json *json)
{
    begin_value(json);
    add_text(json, "null");
}

void json_bool(struct json *json, bool value)
{
    begin_value(json);
    add_text(json, value ? "true" : "false");
}

void json_string(struct json *json, const char *text)
{
    begin_value(json);
    add_string(json, text);
}

bool json_end(struct json *json)
{
    add(json, '\n');
    flush(json);
    return !json->failed;
}

bool json_to_file(struct json *json, const char *bytes, size_t size)
{
    return platform_write(((const struct json_file *)json)->file, bytes, size);
}
