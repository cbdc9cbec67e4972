/* Words to the user, and the environment: both without the C library's buffers, which allocate. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- messages -------------------------------------------------------------------------------------- */

enum { MESSAGE_CAPACITY = 512, DIGITS_MAX = 24 };

struct line {
    char *text;
    size_t capacity;
    size_t length;
};

static void line_add(struct line *line, const char *text, size_t length)
{
    size_t room = line->capacity - line->length;
    if (length > room) length = room;
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

static void line_add_number(struct line *line, uintptr_t value, unsigned base)
{
    char digits[DIGITS_MAX];
    size_t at = DIGITS_MAX;
    do {
        digits[--at] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    line_add(line, digits + at, DIGITS_MAX - at);
}

/* Adds one conversion; returns the place after it in the format. */
static const char *line_add_conversion(struct line *line, const char *conversion, va_list *arguments)
{
    if (conversion[0] == 's') {
        const char *text = va_arg(*arguments, const char *);
        line_add(line, text, strlen(text));
        return conversion + 1;
    }
    if (conversion[0] == 'p') {
        line_add(line, "0x", 2);
        line_add_number(line, (uintptr_t)va_arg(*arguments, void *), 16);
        return conversion + 1;
    }
    if (conversion[0] == 'z' && conversion[1] == 'u') {
        line_add_number(line, va_arg(*arguments, size_t), 10);
        return conversion + 2;
    }
    if (conversion[0] == 'z' && conversion[1] == 'x') {
        line_add_number(line, va_arg(*arguments, size_t), 16);
        return conversion + 2;
    }
    line_add(line, "%", 1);
    return conversion;
}

static void line_add_format(struct line *line, const char *format, va_list *arguments)
{
    while (*format != '\0') {
        if (*format == '%') {
            format = line_add_conversion(line, format + 1, arguments);
        } else {
            line_add(line, format, 1);
            format++;
        }
    }
}

void platform_format(char *buffer, size_t capacity, const char *format, ...)
{
    struct line line = {.text = buffer, .capacity = capacity - 1};
    va_list arguments;
    va_start(arguments, format);
    line_add_format(&line, format, &arguments);
    va_end(arguments);
    buffer[line.length] = '\0';
}

/* When nobody takes what was written before, that is waited for a few seconds, once. A sandbox may forbid to ask. */
bool platform_takes_more(int file)
{
    static _Atomic(bool) has_waited;
    enum { WAIT_S = 3 };
    struct pollfd asked = {.fd = file, .events = POLLOUT};
    bool waits = !atomic_load_explicit(&has_waited, memory_order_relaxed);
    struct timespec wait = {.tv_sec = waits ? WAIT_S : 0};
    long ready = platform_call(SYS_ppoll, &asked, 1, &wait, NULL, 0);
    if (ready == 0) atomic_store_explicit(&has_waited, true, memory_order_relaxed);
    return ready < 0 || (asked.revents & (POLLOUT | POLLERR | POLLHUP | POLLNVAL)) == POLLOUT;
}

__thread bool platform_descriptors_are_own;

void platform_message(const char *format, ...)
{
    char text[MESSAGE_CAPACITY];
    struct line line = {.text = text, .capacity = sizeof text - 1}; /* the last byte is for the newline */
    line_add(&line, "heapfit: ", 9);
    va_list arguments;
    va_start(arguments, format);
    line_add_format(&line, format, &arguments);
    va_end(arguments);
    text[line.length++] = '\n';
    int saved = errno;
    /* Bare system calls: write is a point at which a thread can be cancelled, and libraries replace it by functions that
     * may not be ready for us yet. When it fails, nobody is left to tell. */
    long file = STDERR_FILENO;
    if (platform_descriptors_are_own) /* /proc/self has those of the first thread */
        file = platform_call(SYS_openat, AT_FDCWD, "/proc/self/fd/2", O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
    if (file >= 0 && platform_takes_more((int)file)) platform_call(SYS_write, file, text, line.length);
    if (file > STDERR_FILENO) platform_call(SYS_close, file);
    errno = saved;
}

_Noreturn void platform_end(int code)
{
    platform_call(SYS_exit_group, code);
    __builtin_unreachable();
}

/* ---- environment ----------------------------------------------------------------------------------- */

extern char **environ;

/* When `entry` is "name=value", copies the value and returns true. */
static bool entry_matches(const char *entry, const char *name, char *buffer, size_t capacity)
{
    size_t length = strlen(name);
    if (strncmp(entry, name, length) != 0 || entry[length] != '=') return false;
    const char *value = entry + length + 1;
    size_t size = strnlen(value, capacity - 1);
    memcpy(buffer, value, size);
    buffer[size] = '\0';
    return true;
}

/* The longest value that anybody asks for, and the longest name before it. What is longer is cut. */
enum { ENTRY_MAX = 1024 + 64 };

/* Reads /proc/self/environ entry by entry. */
static bool environment_from_proc(const char *name, char *buffer, size_t capacity)
{
    /* By bare system calls: malloc may come by here, in which no thread is to be cancelled. */
    long file = platform_call(SYS_openat, AT_FDCWD, "/proc/self/environ", O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    char chunk[256];
    char entry[ENTRY_MAX];
    size_t length = 0;
    bool found = false;
    long got;
    while (!found && (got = platform_call(SYS_read, file, chunk, sizeof chunk)) > 0) {
        for (long i = 0; i < got && !found; i++) {
            if (length < sizeof entry - 1) entry[length++] = chunk[i];
            if (chunk[i] != '\0') continue;
            entry[length] = '\0';
            found = entry_matches(entry, name, buffer, capacity);
            length = 0;
        }
    }
    platform_call(SYS_close, file);
    return found;
}

bool platform_environment_at_start(const char *name, char *buffer, size_t capacity)
{
    if (getauxval(AT_SECURE) != 0) return false;
    int saved = errno;
    bool found = environment_from_proc(name, buffer, capacity);
    errno = saved;
    return found;
}

bool platform_environment(const char *name, char *buffer, size_t capacity)
{
    if (getauxval(AT_SECURE) != 0) return false;
    if (environ == NULL) return platform_environment_at_start(name, buffer, capacity);
    for (char **entry = environ; *entry != NULL; entry++)
        if (entry_matches(*entry, name, buffer, capacity)) return true;
    return false;
}
