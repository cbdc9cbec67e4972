/* The modules that a program was started with, and not loaded later: itself, what is preloaded, and all that these need.
 *
 * They are the first ones in the order in which the dynamic linker goes through all, up to the last one that another of them needs
 * by name; and they are never unloaded. Names that are not theirs alone are looked for in them, in this order.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "startup.h"

#include <dlfcn.h>
#include <string.h>

enum { NEEDED_MAX = 2048, MODULES_MAX = 1024 };

static struct {
    const ElfW(Phdr) * modules[MODULES_MAX]; /* by where their program headers are */
    const char *names[MODULES_MAX]; /* of their files */
    const char *needed[NEEDED_MAX]; /* without folders */
    size_t count, needed_count;
} startup;

static const char *without_folders(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash == NULL ? name : slash + 1;
}

uintptr_t startup_table(uintptr_t bias, uintptr_t start, ElfW(Addr) address)
{
    return address < start ? address + bias : address;
}

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info, uintptr_t *start)
{
    const ElfW(Dyn) *dynamic = NULL;
    *start = UINTPTR_MAX;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)at;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && at < *start) *start = at;
    }
    return dynamic;
}

static const char *names_of(const struct dl_phdr_info *info, const ElfW(Dyn) * entry, uintptr_t start)
{
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB) return (const char *)startup_table(info->dlpi_addr, start, entry->d_un.d_ptr);
    return NULL;
}

static bool is_needed(const char *name)
{
    for (size_t i = 0; i < startup.needed_count; i++)
        if (strcmp(startup.needed[i], name) == 0) return true;
    return false;
}

/* Of a pass over all modules. */
struct pass {
    size_t index, count;
};

static void add(const struct dl_phdr_info *info, const ElfW(Dyn) * entry, const char *names, size_t index)
{
    startup.modules[index] = info->dlpi_phdr;
    startup.names[index] = info->dlpi_name;
    for (; names != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag != DT_NEEDED || startup.needed_count == NEEDED_MAX) continue;
        const char *name = without_folders(names + entry->d_un.d_val);
        if (!is_needed(name)) startup.needed[startup.needed_count++] = name;
    }
}

static int look_at(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct pass *pass = argument;
    uintptr_t start;
    const ElfW(Dyn) *entry = dynamic_of(info, &start);
    const char *names = names_of(info, entry, start);
    size_t index = pass->index++;
    (void)size;
    if (index == MODULES_MAX) return 1;
    bool needed = is_needed(without_folders(info->dlpi_name));
    for (const ElfW(Dyn) *each = entry; names != NULL && each->d_tag != DT_NULL; each++)
        if (each->d_tag == DT_SONAME) needed |= is_needed(without_folders(names + each->d_un.d_val));
    if (needed && index >= pass->count) pass->count = index + 1;
    if (index < pass->count) add(info, entry, names, index);
    return 0;
}

void startup_find(void)
{
    struct pass pass = {.count = 1}; /* the program */
    do { /* what those need that stand in between */
        startup.count = pass.count;
        pass.index = 0;
        dl_iterate_phdr(look_at, &pass);
    } while (pass.count != startup.count);
}

bool startup_has(const ElfW(Phdr) * module)
{
    for (size_t i = 0; i < startup.count; i++)
        if (startup.modules[i] == module) return true;
    return false;
}

void *startup_open(const char *name)
{
    void *(*open_library)(const char *, int);
    *(void **)&open_library = dlsym(RTLD_DEFAULT, "dlopen");
    return open_library == NULL ? NULL : open_library(name, RTLD_LAZY | RTLD_NOLOAD);
}

/* In the module itself, and not in one that it needs. Its handle is kept: it is never unloaded. */
static void *defined_in(const char *module, const char *name)
{
    void *handle = module[0] == '\0' ? NULL : startup_open(module);
    void *found = handle == NULL ? NULL : dlsym(handle, name);
    Dl_info info;
    return found != NULL && dladdr(found, &info) != 0 && strcmp(info.dli_fname, module) == 0 ? found : NULL;
}

void *startup_symbol(const char *name)
{
    for (size_t i = 1; i < startup.count; i++) {
        void *found = defined_in(startup.names[i], name);
        if (found != NULL) return found;
    }
    return NULL;
}
