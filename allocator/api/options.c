/* Options: read from HEAPFIT_OPTIONS when the allocator starts, set and read by hf_option_set and hf_option_get. Which there are
 * stands in one table (options_table.c).
 *
 * Parsing allocates nothing and may happen before the C library is ready. A mistake in HEAPFIT_OPTIONS is reported in one
 * line and the default holds: a program must not fail because of a tuning knob.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts -------------------------------------------------------------------------------------------------------------- */

/* A stretch of a longer text. */
struct text {
    const char *start;
    size_t length;
};

static struct text text_of(const char *string)
{
    return (struct text){string, strlen(string)};
}

static bool text_equals(struct text text, const char *string)
{
    return strlen(string) == text.length && memcmp(text.start, string, text.length) == 0;
}

static struct text text_trimmed(struct text text)
{
    while (text.length > 0 && text.start[0] == ' ') text.start++, text.length--;
    while (text.length > 0 && text.start[text.length - 1] == ' ') text.length--;
    return text;
}

/* Cuts off and returns what stands before the first `separator`, or everything. */
static struct text text_cut(struct text *rest, char separator)
{
    const char *at = memchr(rest->start, separator, rest->length);
    struct text head = {rest->start, at == NULL ? rest->length : (size_t)(at - rest->start)};
    size_t used = at == NULL ? head.length : head.length + 1;
    rest->start += used;
    rest->length -= used;
    return head;
}

/* Texts longer than this are cut in messages and when they are compared with names. */
enum { WORD_MAX = 40 };

/* A text as a string, for messages. */
struct word {
    char text[WORD_MAX + 1];
};

static struct word word_of(struct text text)
{
    struct word word = {.text = ""};
    memcpy(word.text, text.start, text.length < WORD_MAX ? text.length : WORD_MAX);
    return word;
}

/* ---- names ---------------------------------------------------------------------------------------------------------------- */

static struct option *option_find(struct text name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (text_equals(name, options_table[i].public.name)) return &options_table[i];
    return NULL;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Levenshtein's distance, row by row (Wagner, Fischer 1974). */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1];
    size_t columns = strlen(b);
    for (size_t j = 0; j <= columns; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[columns];
}

/* The option that was probably meant: one that begins so, or whose name is not half another; NULL: none. */
static const char *nearest_name(const char *name)
{
    const char *nearest = NULL;
    size_t length = strlen(name), least = length / 2 + 1;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const char *other = options_table[i].public.name;
        if (strncmp(other, name, length) == 0) return other;
        size_t distance = edit_distance(name, other);
        if (distance >= least) continue;
        least = distance;
        nearest = other;
    }
    return nearest;
}

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

/* log2 of what a suffix multiplies by; -1 when it is none. */
static int suffix_shift(char suffix)
{
    switch (suffix) {
    case 'k':
    case 'K':
        return 10;
    case 'm':
    case 'M':
        return 20;
    case 'g':
    case 'G':
        return 30;
    default:
        return -1;
    }
}

/* Digits, with a suffix where sizes are wanted. Returns 0, EINVAL when the text is no number, ERANGE when it is too large
 * for 64 bits. */
static int parse_number(struct text text, bool with_suffix, uint64_t *number)
{
    int shift = with_suffix && text.length > 1 ? suffix_shift(text.start[text.length - 1]) : -1;
    if (shift >= 0) text.length--;
    else shift = 0;
    if (text.length == 0) return EINVAL;
    bool overflow = false;
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.start[i] < '0' || text.start[i] > '9') return EINVAL;
        overflow |= __builtin_mul_overflow(*number, 10, number);
        overflow |= __builtin_add_overflow(*number, (uint64_t)(text.start[i] - '0'), number);
    }
    overflow |= __builtin_mul_overflow(*number, UINT64_C(1) << shift, number);
    return overflow ? ERANGE : 0;
}

static int parse_choice(const hf_option *option, struct text text, uint64_t *value)
{
    for (*value = 0; *value <= option->maximum; ++*value)
        if (text_equals(text, option->choices[*value])) return 0;
    return EINVAL;
}

static const char unlimited[] = "unlimited";

/* The word that stands for a value besides its digits; NULL: none. */
static const char *word_for(const hf_option *option, uint64_t value)
{
    if (option->kind == HF_OPTION_CHOICE) return option->choices[value];
    if (option->unlimited && value == option->maximum) return unlimited;
    if (option->words == NULL) return NULL;
    return value == option->minimum ? option->words[0] : value == option->maximum ? option->words[1] : NULL;
}

static bool is_word_for(const hf_option *option, uint64_t value, struct text text)
{
    const char *word = word_for(option, value);
    return word != NULL && text_equals(text, word);
}

static int option_parse(const struct option *option, struct text text, uint64_t *value)
{
    if (option->public.kind == HF_OPTION_CHOICE) return parse_choice(&option->public, text, value);
    const uint64_t ends[] = {option->public.minimum, option->public.maximum};
    for (unsigned i = 0; i < 2; i++) {
        *value = ends[i];
        if (is_word_for(&option->public, *value, text)) return 0;
    }
    int error = parse_number(text, option->public.kind == HF_OPTION_SIZE, value);
    if (error != 0) return error;
    return *value < option->public.minimum || *value > option->public.maximum ? ERANGE : 0;
}

/* Under this lock values are set and handed to the layers: so the two agree, and the first to allocate and the first to set an
 * option may be two threads. */
static platform_lock lock;
static _Atomic(bool) configured;
static _Atomic(bool) shrunk; /* written under the lock */
static _Atomic(uint32_t) pressed; /* enum pressure; too */
static _Atomic(size_t) pressed_kept; /* too; see heap_settings_bound */

bool options_shrunk(void)
{
    return atomic_load_explicit(&shrunk, memory_order_relaxed);
}

/* What the layers go by when an option has this value. */
static uint64_t in_force(const struct option *option, uint64_t value)
{
    uint32_t pressure = atomic_load_explicit(&pressed, memory_order_relaxed);
    if (!option->keeps_memory) return value;
    if (options_shrunk() || pressure == PRESSURE_NEAR) value = least(value, option->kept_shrunk);
    if (pressure != PRESSURE_AT) return value;
    if (option->kept_pressed != KEPT_OF_MARGIN) return least(value, option->kept_pressed);
    return least(value, atomic_load_explicit(&pressed_kept, memory_order_relaxed));
}

static void option_apply(struct option *option, uint64_t value)
{
    /* Relaxed: a value stands for itself; nothing else is published with it. */
    atomic_store_explicit(&option->value, value, memory_order_relaxed);
    if (option->apply != NULL) option->apply(in_force(option, value));
}

static uint64_t option_value(const struct option *option)
{
    return atomic_load_explicit(&option->value, memory_order_relaxed);
}

struct option_text options_text(const hf_option *option, uint64_t value)
{
    struct option_text result = {.text = ""};
    const char *word = word_for(option, value);
    if (word != NULL) memcpy(result.text, word, strlen(word));
    else platform_format(result.text, sizeof result.text, "%zu", (size_t)value);
    return result;
}

static struct option_text text_now(const struct option *option)
{
    return options_text(&option->public, option_value(option));
}

/* ---- mistakes ------------------------------------------------------------------------------------------------------------ */

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* The variant that has an option which this one has not; NULL: none has. */
static const char *variant_with(const char *name)
{
    if (strcmp(name, "check_family") == 0) return "hardened";
    return strcmp(name, "pools") == 0 || begins_with(name, "pool_") ? "pools" : NULL;
}

static COLD void explain_name(struct text name, struct option_mistake *mistake)
{
    struct word word = word_of(name);
    const char *nearest = name.length == 0 ? NULL : nearest_name(word.text), *variant = variant_with(word.text);
    if (variant != NULL)
        platform_format(mistake->text, sizeof mistake->text, "only libheapfit-%s.so has the option '%s'", variant,
                        word.text);
    else if (nearest != NULL)
        platform_format(mistake->text, sizeof mistake->text, "there is no option '%s'; the nearest is '%s'", word.text,
                        nearest);
    else
        platform_format(mistake->text, sizeof mistake->text, "there is no option '%s'; verbose:1 lists them",
                        word.text);
}

static const char *size_note(const hf_option *option)
{
    return option->kind == HF_OPTION_SIZE ? " (k, m, g are understood)" : "";
}

static COLD void explain_value(const struct option *option, struct text value, struct option_mistake *mistake)
{
    const hf_option *public = &option->public;
    struct word word = word_of(value);
    struct option_text stays = text_now(option);
    if (public->kind == HF_OPTION_CHOICE)
        platform_format(mistake->text, sizeof mistake->text, "'%s' is no value for '%s' (%s); it stays %s", word.text,
                        public->name, public->description, stays.text);
    else if (public->words != NULL)
        platform_format(mistake->text, sizeof mistake->text,
                        "'%s' is no value for '%s', which takes %s, %s or a number%s; it stays %s", word.text,
                        public->name, public->words[0], public->words[1], size_note(public), stays.text);
    else
        platform_format(mistake->text, sizeof mistake->text,
                        "'%s' is no value for '%s', which takes %s to %s%s; it stays %s", word.text, public->name,
                        options_text(public, public->minimum).text, options_text(public, public->maximum).text,
                        size_note(public), stays.text);
}

static COLD void explain_not_live(const struct option *option, struct option_mistake *mistake)
{
    platform_format(mistake->text, sizeof mistake->text,
                    "'%s' can only be set at the start, in HEAPFIT_OPTIONS; it stays %s", option->public.name,
                    text_now(option).text);
}

/* Returns 0, or an error of hf_option_set with nothing changed and the mistake explained. */
static int option_set(struct text name, struct text value, bool started, struct option_mistake *mistake)
{
    struct option *option = option_find(name);
    uint64_t number;
    if (option == NULL) {
        explain_name(name, mistake);
        return ENOENT;
    }
    int error = option_parse(option, value, &number);
    if (error != 0) {
        explain_value(option, value, mistake);
        return error;
    }
    if (started && !option->public.live) {
        explain_not_live(option, mistake);
        return EBUSY;
    }
    option_apply(option, number);
    return 0;
}

/* ---- HEAPFIT_OPTIONS ----------------------------------------------------------------------------------------------------------- */

static COLD void explain_separator(struct text entry)
{
    struct text value = entry;
    struct word name = word_of(text_cut(&value, '='));
    platform_message("HEAPFIT_OPTIONS: a ':' stands between an option and its value: %s:%s", name.text,
                     word_of(value).text);
}

/* What is between options elsewhere, and in no value: a ';', or a blank with another option behind it. */
static bool has_other_separator(struct text entry)
{
    struct text value = entry;
    text_cut(&value, ':');
    bool has_blank = memchr(value.start, ' ', value.length) != NULL;
    return memchr(entry.start, ';', entry.length) != NULL ||
           (has_blank && memchr(value.start, ':', value.length) != NULL);
}

static void read_entry(struct text entry)
{
    if (has_other_separator(entry)) {
        platform_message("HEAPFIT_OPTIONS: a ',' stands between two options, no blank or ';': %s", word_of(entry).text);
        return;
    }
    if (memchr(entry.start, ':', entry.length) == NULL && memchr(entry.start, '=', entry.length) != NULL) {
        explain_separator(entry);
        return;
    }
    struct text value = entry;
    struct text name = text_trimmed(text_cut(&value, ':'));
    struct option_mistake mistake;
    if (option_set(name, text_trimmed(value), false, &mistake) != 0)
        platform_message("HEAPFIT_OPTIONS: %s", mistake.text);
}

/* There may have been more: what is cut may be a number, and then says another one. */
static void drop_cut_entry(char *options)
{
    platform_message("HEAPFIT_OPTIONS is too long: only what is complete in its first %zu bytes counts",
                     strlen(options));
    char *comma = strrchr(options, ',');
    *(comma != NULL ? comma : options) = '\0';
}

static void read_environment(void)
{
    char buffer[1024];
    if (!platform_environment("HEAPFIT_OPTIONS", buffer, sizeof buffer)) return;
    if (strlen(buffer) == sizeof buffer - 1) drop_cut_entry(buffer);
    struct text rest = text_of(buffer);
    while (rest.length > 0) {
        struct text entry = text_trimmed(text_cut(&rest, ','));
        if (entry.length > 0) read_entry(entry);
    }
}

/* A path is no value that an option can have. */
static void read_explain(void)
{
#ifdef HEAPFIT_POOLS
    char *path = pool_settings.explain;
    if (!platform_environment("HEAPFIT_POOLS_EXPLAIN", path, sizeof pool_settings.explain)) path[0] = '\0';
#endif
}

static COLD void report_options(void)
{
    platform_message("version %s, options:", hf_version());
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const hf_option *public = &options_table[i].public;
        platform_message("  %s:%s (%s)", public->name, text_now(&options_table[i]).text, public->description);
    }
}

/* The run-time library of ThreadSanitizer replaces functions that we call, and calls malloc before its own work. It has a
 * malloc of its own; where ours is in force instead, the library is not the first in the program's order, as it has to be,
 * and the program would crash in a moment, for no reason that could be seen. AddressSanitizer's says so itself. */
extern void __tsan_init(void) __attribute__((weak));

static void check_order(void)
{
    if (&__tsan_init == NULL || &own_malloc == NULL || &malloc != &own_malloc) return;
    platform_message("the program has ThreadSanitizer, whose library must come first: run it without heapfit, "
                     "or with LD_PRELOAD=libtsan.so:libheapfit.so");
    platform_end(EXIT_FAILURE);
}

void heap_configure(void)
{
    /* Acquire: pairs with the release below. */
    if (atomic_load_explicit(&configured, memory_order_acquire)) return;
    platform_lock_acquire(&lock);
    if (!atomic_load_explicit(&configured, memory_order_relaxed)) {
        check_order();
        for (size_t i = 0; i < OPTION_COUNT; i++) option_apply(&options_table[i], options_table[i].public.initial);
        read_environment();
        read_explain();
        if (option_value(&options_table[VERBOSE]) != 0) report_options();
        /* Release: whoever sees it sees what the options set. */
        atomic_store_explicit(&configured, true, memory_order_release);
    }
    platform_lock_release(&lock);
}

enum stats_at_exit options_stats_at_exit(void)
{
    return (enum stats_at_exit)option_value(&options_table[STATS_AT_EXIT]);
}

bool options_control(void)
{
    return option_value(&options_table[CONTROL]) == CONTROL_ON;
}

bool options_deepbind(void)
{
    heap_configure();
    return option_value(&options_table[DEEPBIND]) == DEEPBIND_KEEP;
}

bool options_get(const char *name, struct option_text *value, struct option_mistake *mistake)
{
    heap_configure();
    const struct option *option = option_find(text_of(name));
    if (option == NULL) {
        explain_name(text_of(name), mistake);
        return false;
    }
    *value = text_now(option);
    return true;
}

struct option_text options_in_force(const char *name)
{
    const struct option *option = option_find(text_of(name));
    return options_text(&option->public, in_force(option, option_value(option)));
}

/* What some settings want done at once. Without the lock, since these take others or start a thread. */
static void follow(void)
{
    if (heap_is_started()) space_zeroed_adjust();
    control_start();
}

static int set(const char *name, const char *value, struct option_mistake *mistake)
{
    heap_configure(); /* or the start would overwrite what is set here */
    bool started = heap_is_started();
    platform_lock_acquire(&lock);
    int error = option_set(text_of(name), text_of(value), started, mistake);
    platform_lock_release(&lock);
    if (error == 0) follow();
    return error;
}

bool options_set(const char *name, const char *value, struct option_mistake *mistake)
{
    return set(name, value, mistake) == 0;
}

/* Those that keep memory, as they are now bounded. */
static void bounds_apply(void)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (options_table[i].keeps_memory) option_apply(&options_table[i], option_value(&options_table[i]));
}

void options_shrink(bool now)
{
    heap_configure(); /* or the start would overwrite what is set here */
    platform_lock_acquire(&lock);
    atomic_store_explicit(&shrunk, now, memory_order_relaxed);
    bounds_apply();
    platform_lock_release(&lock);
    follow();
}

bool heap_settings_bound(enum pressure pressure, size_t kept)
{
    if (!platform_lock_try(&lock)) return false; /* in an allocation, which waits for nobody here */
    atomic_store_explicit(&pressed, pressure, memory_order_relaxed);
    atomic_store_explicit(&pressed_kept, kept, memory_order_relaxed);
    bounds_apply();
    platform_lock_release(&lock);
    return true;
}

void options_fork_child(void)
{
    platform_lock_mend(&lock); /* every setting stands for itself */
}

/* ---- for programs ---------------------------------------------------------------------------------------------------------------- */

EXPORT size_t hf_option_count(void)
{
    return OPTION_COUNT;
}

EXPORT const hf_option *hf_option_at(size_t index)
{
    return index < OPTION_COUNT ? &options_table[index].public : NULL;
}

static int fail(int error)
{
    errno = error;
    return -1;
}

EXPORT int hf_option_set(const char *name, const char *value)
{
    struct option_mistake mistake;
    int error = set(name, value, &mistake);
    return error == 0 ? 0 : fail(error);
}

EXPORT int hf_option_get(const char *name, char *buffer, size_t capacity)
{
    struct option_text value;
    struct option_mistake mistake;
    if (!options_get(name, &value, &mistake)) return fail(ENOENT);
    size_t size = strlen(value.text) + 1;
    if (size > capacity) return fail(ERANGE);
    memcpy(buffer, value.text, size);
    return 0;
}
