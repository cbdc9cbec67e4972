/* Stacks, by the rules of frame.c, which are kept; and the files that code comes from, by _dl_find_object, which takes no locks.
 *
 * A file may be unloaded, and another be loaded there, before anybody asks what an address was. So the name of each file, with
 * where it lay, is written down when an address of it is first met; there is room for as many as programs with plug-ins have.
 * Beside musl there are no rules and no such function: no stack is known but, of a fault, the instruction, which has no file.
 */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "frame.h"
#include "image.h"

#ifdef __GLIBC__

enum { MODULES = 64, MODULE_NONE = UINT8_MAX, PATH_BYTES = 256 }; /* a bit of 64 each: trace_files */
_Static_assert((int)MODULES < (int)MODULE_NONE, "a number fits its byte");

#pragma weak _dl_find_object /* as in frame.c */

/* Written once, then published by `known`. */
struct module {
    _Atomic(bool) known;
    uintptr_t start, end; /* in memory */
    uintptr_t base; /* what its own addresses are counted from */
    char path[PATH_BYTES];
    uint8_t id[BUILD_ID_MAX];
    size_t id_size; /* 0: it has none */
};

static struct module modules[MODULES];
static _Atomic(uint32_t) modules_begun;

static void path_of(const struct link_map *map, char *path)
{
    size_t length = map->l_name == NULL ? 0 : strnlen(map->l_name, PATH_BYTES - 1);
    if (length != 0) {
        memcpy(path, map->l_name, length);
    } else { /* the program itself */
        int saved = errno;
        ssize_t read = readlink("/proc/self/exe", path, PATH_BYTES - 1);
        length = read > 0 ? (size_t)read : 0;
        errno = saved;
    }
    path[length] = '\0';
}

static bool is_module(const struct module *module, const struct dl_find_object *object)
{
    /* Acquire: pairs with the release in module_add. */
    if (!atomic_load_explicit(&module->known, memory_order_acquire)) return false;
    if (module->start != (uintptr_t)object->dlfo_map_start || module->end != (uintptr_t)object->dlfo_map_end)
        return false;
    const char *name = object->dlfo_link_map->l_name;
    return name == NULL || name[0] == '\0' || strncmp(name, module->path, PATH_BYTES - 1) == 0;
}

/* Two threads may add the same one; then it is there twice. */
static unsigned module_add(const struct dl_find_object *object)
{
    if (atomic_load_explicit(&modules_begun, memory_order_relaxed) >= MODULES) return MODULE_NONE;
    uint32_t number = atomic_fetch_add_explicit(&modules_begun, 1, memory_order_relaxed);
    if (number >= MODULES) return MODULE_NONE;
    struct module *module = &modules[number];
    module->start = (uintptr_t)object->dlfo_map_start;
    module->end = (uintptr_t)object->dlfo_map_end;
    module->base = object->dlfo_link_map->l_addr;
    path_of(object->dlfo_link_map, module->path);
    module->id_size = image_build_id(object->dlfo_map_start, object->dlfo_map_end, module->base, module->id);
    atomic_store_explicit(&module->known, true, memory_order_release);
    return number;
}

/* The address is that of code which a thread is executing, so that it is not unloaded meanwhile. */
static unsigned module_of(uintptr_t address)
{
    struct dl_find_object object;
    if (_dl_find_object == NULL || _dl_find_object((void *)address, &object) != 0) return MODULE_NONE;
    uint32_t begun = atomic_load_explicit(&modules_begun, memory_order_relaxed);
    for (unsigned number = 0; number < begun && number < MODULES; number++)
        if (is_module(&modules[number], &object)) return number;
    return module_add(&object);
}

static bool describe_module(unsigned number, uintptr_t address, char *text)
{
    if (number >= MODULES) return false;
    platform_format(text, TRACE_PLACE_MAX, "%s+%p", modules[number].path, (void *)(address - modules[number].base));
    return true;
}

/* Returns its file. */
static unsigned add(struct trace *trace, uintptr_t address)
{
    unsigned module = module_of(address);
    trace->modules[trace->count] = (uint8_t)module;
    trace->addresses[trace->count++] = address;
    return module;
}

/* Where the memory of this library begins; NULL where its frames are a program's, as in a static library, or cannot be told.
 * A shared library's own frames say nothing to its user. */
static const void *own_library(void)
{
    struct dl_find_object own;
    if (_dl_find_object == NULL || _dl_find_object((void *)(uintptr_t)own_library, &own) != 0) return NULL;
    const char *name = own.dlfo_link_map->l_name;
    return name == NULL || name[0] == '\0' ? NULL : own.dlfo_map_start;
}

static bool is_in(const void *library, uintptr_t address)
{
    struct dl_find_object object;
    return library != NULL && _dl_find_object((void *)address, &object) == 0 && object.dlfo_map_start == library;
}

/* Rules that were found, by the return address and its file: another may be loaded there later. Any thread writes them at any time, one
 * over the other. A pair of which each half is of another is told by `check`, which is both in one. Relaxed: nothing hangs on the order. */
enum { KNOWN_RULES = 1 << 11 };
static struct known_rule {
    _Atomic(uint64_t) check, rule;
} known_rules[KNOWN_RULES];

static struct frame_rule rule_of(uintptr_t return_address, unsigned module)
{
    uint64_t key = (uint64_t)module << 56 ^ return_address;
    struct known_rule *known =
        &known_rules[key * UINT64_C(0x9E3779B97F4A7C15) >> 53 & (KNOWN_RULES - 1)]; /* Knuth, 6.4 */
    uint64_t packed = atomic_load_explicit(&known->rule, memory_order_relaxed);
    if (LIKELY((atomic_load_explicit(&known->check, memory_order_relaxed) ^ packed) == key && module != MODULE_NONE))
        return rule_unpacked(packed);
    struct frame_rule rule = frame_rule_find(return_address, NULL, NULL);
    if (rule.known != FRAME_KNOWN) return rule;
    packed = rule_packed(&rule);
    atomic_store_explicit(&known->rule, packed, memory_order_relaxed);
    atomic_store_explicit(&known->check, packed ^ key, memory_order_relaxed);
    return rule;
}

static bool step(struct frame *frame, unsigned module)
{
    struct frame_rule rule = rule_of(frame->return_address, module);
    return frame_step(&rule, frame);
}

/* The frames from this one on. */
static void walk(struct trace *trace, struct frame *frame)
{
    while (trace->count < TRACE_MAX && frame->return_address != 0) {
        unsigned module = add(trace, frame->return_address - 1); /* of the call */
        if (!step(frame, module)) return;
    }
}

NOINLINE void trace_take(struct trace *trace)
{
    struct frame frame = frame_of_caller();
    const void *own = own_library();
    trace->count = 0;
    while (is_in(own, frame.return_address - 1))
        if (!step(&frame, module_of(frame.return_address - 1))) break;
    walk(trace, &frame);
}

void trace_of_fault(struct trace *trace, const struct platform_fault *fault)
{
    /* As if the instruction behind were returned to, which is what rules are asked for. */
    struct frame frame = {.return_address = fault->code + 1, .stack = fault->stack, .base = fault->base};
    trace->count = 0;
    if (step(&frame, add(trace, fault->code))) walk(trace, &frame);
    else if (fault->link != 0) walk(trace, &(struct frame){fault->link, fault->stack, fault->base});
}

void trace_describe(const struct trace *trace, uint32_t index, char text[TRACE_PLACE_MAX])
{
    uintptr_t address = trace->addresses[index];
    if (!describe_module(trace->modules[index], address, text))
        platform_format(text, TRACE_PLACE_MAX, "%p", (void *)address);
}

uint64_t trace_files(const struct trace *trace)
{
    uint64_t files = 0;
    for (uint32_t i = 0; i < trace->count; i++)
        if (trace->modules[i] < MODULES) files |= UINT64_C(1) << trace->modules[i];
    return files;
}

bool trace_describe_file(unsigned file, char text[TRACE_PLACE_MAX])
{
    static const char digits[] = "0123456789abcdef";
    const struct module *module = &modules[file];
    char id[2 * BUILD_ID_MAX + 1];
    for (size_t i = 0; i < module->id_size; i++) {
        id[2 * i] = digits[module->id[i] >> 4];
        id[2 * i + 1] = digits[module->id[i] & 15];
    }
    id[2 * module->id_size] = '\0';
    platform_format(text, TRACE_PLACE_MAX, "build ID of %s: %s", module->path, id);
    return module->id_size != 0;
}

#else

void trace_take(struct trace *trace)
{
    trace->count = 0;
}

void trace_of_fault(struct trace *trace, const struct platform_fault *fault)
{
    trace->count = 1;
    trace->addresses[0] = fault->code;
}

void trace_describe(const struct trace *trace, uint32_t index, char text[TRACE_PLACE_MAX])
{
    platform_format(text, TRACE_PLACE_MAX, "%p", (void *)trace->addresses[index]);
}

uint64_t trace_files(const struct trace *trace)
{
    (void)trace;
    return 0;
}

bool trace_describe_file(unsigned file, char text[TRACE_PLACE_MAX])
{
    (void)file, (void)text;
    return false;
}

#endif
