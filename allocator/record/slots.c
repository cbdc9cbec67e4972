/* The addresses by which a program that runs already calls what we stand in front of: they are redirected to us, and back.
 *
 * Each module has them in words of its own, which the dynamic linker has filled in (relocations of the kinds GLOB_DAT, JUMP_SLOT and
 * of whole addresses, as in a table of functions). A word is only changed that holds the very function to which we pass calls on:
 * who has an allocator of its own keeps that. A word that its first call is to fill in so far leads to that very function, too, if
 * the program was started with the module; one that was loaded later may have a scope of its own (RTLD_DEEPBIND), and its word is
 * looked at again every second until it has been filled in. What is in a module that is being loaded may be written by the dynamic
 * linker at the same time, which is no matter: a look follows soon.
 *
 * Most modules have the words in pages that are made read-only as the last thing before their code may run (RELRO). Those are made
 * writable for a moment; and left alone as long as they are still writable, since the dynamic linker is at work there. A module
 * is not unmapped while we look at it: dl_iterate_phdr has a lock that unloading takes, too.
 *
 * Nothing is remembered of what was changed: a module may be gone since. The way back is the same way, with the functions in each
 * other's places. Called by one thread at a time.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "attach.h"
#include "next.h"
#include "startup.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { WHOLE_ADDRESS = R_X86_64_64, GLOB_DAT = R_X86_64_GLOB_DAT, JUMP_SLOT = R_X86_64_JUMP_SLOT };
#elif defined(__aarch64__)
enum { WHOLE_ADDRESS = R_AARCH64_ABS64, GLOB_DAT = R_AARCH64_GLOB_DAT, JUMP_SLOT = R_AARCH64_JUMP_SLOT };
#endif

/* ---- what we stand in front of ------------------------------------------------------------------------------------------ */

static struct hook {
    const char *name;
    uintptr_t ours, theirs; /* 0: there is none */
} hooks[] = {
    {"malloc", 0, 0},
    {"calloc", 0, 0},
    {"realloc", 0, 0},
    {"reallocarray", 0, 0},
    {"posix_memalign", 0, 0},
    {"aligned_alloc", 0, 0},
    {"memalign", 0, 0},
    {"valloc", 0, 0},
    {"pvalloc", 0, 0},
    {"free", 0, 0},
    {"cfree", 0, 0},
    {"free_sized", 0, 0},
    {"free_aligned_sized", 0, 0},
    {"_Znwm", 0, 0},
    {"_Znam", 0, 0},
    {"_ZnwmSt11align_val_t", 0, 0},
    {"_ZnamSt11align_val_t", 0, 0},
    {"_ZnwmRKSt9nothrow_t", 0, 0},
    {"_ZnamRKSt9nothrow_t", 0, 0},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", 0, 0},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", 0, 0},
    {"_ZdlPv", 0, 0},
    {"_ZdaPv", 0, 0},
    {"_ZdlPvm", 0, 0},
    {"_ZdaPvm", 0, 0},
    {"_ZdlPvSt11align_val_t", 0, 0},
    {"_ZdaPvSt11align_val_t", 0, 0},
    {"_ZdlPvmSt11align_val_t", 0, 0},
    {"_ZdaPvmSt11align_val_t", 0, 0},
    {"_ZdlPvRKSt9nothrow_t", 0, 0},
    {"_ZdaPvRKSt9nothrow_t", 0, 0},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", 0, 0},
    {"_ZdaPvSt11align_val_tRKSt9nothrow_t", 0, 0},
    /* Before which the file is made whole (exits.c); code that goes (intercept.c); forks in handlers (process.c). */
    {"_exit", 0, 0},
    {"_Exit", 0, 0},
    {"execv", 0, 0},
    {"execve", 0, 0},
    {"execvp", 0, 0},
    {"execvpe", 0, 0},
    {"fexecve", 0, 0},
    {"execveat", 0, 0},
    {"execl", 0, 0},
    {"execlp", 0, 0},
    {"execle", 0, 0},
    {"daemon", 0, 0},
    {"dlclose", 0, 0},
    {"fork", 0, 0},
};
enum { HOOKS = sizeof hooks / sizeof *hooks };

/* By a handle of ours: a name alone would be bound to the program's. */
bool slots_start(void)
{
    Dl_info here;
    static const char place;
    void *self = dladdr(&place, &here) == 0 ? NULL : startup_open(here.dli_fname);
    if (self == NULL) return false;
    for (size_t i = 0; i < HOOKS; i++) {
        hooks[i].ours = (uintptr_t)dlsym(self, hooks[i].name);
        hooks[i].theirs = (uintptr_t)next_symbol(hooks[i].name);
        if (!next_is_ours((void *)hooks[i].ours)) hooks[i].ours = 0;
    }
    dlerror(); /* which this thread alone has */
    return true;
}

/* ---- pages that are writable ---------------------------------------------------------------------------------------------- */

enum { RANGES_MAX = 16384 };

/* Of all private mappings of files that can be read: the words are in these. */
static struct range {
    uintptr_t start, end;
    bool is_writable;
} ranges[RANGES_MAX];
static size_t range_count;

static const char *read_hexadecimal(const char *at, uintptr_t *number)
{
    for (*number = 0;; at++) {
        unsigned digit = *at >= '0' && *at <= '9' ? (unsigned)(*at - '0') : (unsigned)(*at - 'a') + 10;
        if (digit > 15) return at;
        *number = *number << 4 | digit;
    }
}

static void take_line(const char *line)
{
    struct range range;
    const char *at = read_hexadecimal(line, &range.start);
    if (*at != '-' || range_count == RANGES_MAX) return;
    at = read_hexadecimal(at + 1, &range.end);
    if (strlen(at) < sizeof " r--p" || at[1] != 'r' || at[4] != 'p' || strchr(at, '/') == NULL) return;
    range.is_writable = at[2] == 'w';
    ranges[range_count++] = range;
}

/* In the order of their addresses. */
static bool read_ranges(void)
{
    static char chunk[8192];
    size_t kept = 0;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    range_count = 0;
    if (file < 0) return false;
    for (ssize_t count; (count = read(file, chunk + kept, sizeof chunk - 1 - kept)) > 0;) {
        kept += (size_t)count;
        char *line = chunk, *end;
        while ((end = memchr(line, '\n', kept)) != NULL) {
            *end = '\0';
            take_line(line);
            kept -= (size_t)(end + 1 - line);
            line = end + 1;
        }
        if (kept == sizeof chunk - 1) kept = 0; /* no line is so long */
        memmove(chunk, line, kept);
    }
    close(file);
    return range_count > 0;
}

static const struct range *range_of(uintptr_t address)
{
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    return low < range_count && ranges[low].start <= address ? &ranges[low] : NULL;
}

/* ---- a module ------------------------------------------------------------------------------------------------------------- */

struct module {
    uintptr_t bias, start, end; /* where it is */
    bool is_of_start; /* the program was started with it */
    uintptr_t sealed, sealed_end; /* RELRO, in whole pages */
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * relocations[2];
    size_t count[2];
};

static bool read_dynamic(struct module *module, const ElfW(Dyn) * entry)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        uintptr_t at = startup_table(module->bias, module->start, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB:
            module->symbols = (const ElfW(Sym) *)at;
            break;
        case DT_STRTAB:
            module->names = (const char *)at;
            break;
        case DT_RELA:
            module->relocations[0] = (const ElfW(Rela) *)at;
            break;
        case DT_RELASZ:
            module->count[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_JMPREL:
            module->relocations[1] = (const ElfW(Rela) *)at;
            break;
        case DT_PLTRELSZ:
            module->count[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        default:
            break;
        }
    }
    return module->symbols != NULL && module->names != NULL;
}

static bool read_module(struct module *module, const struct dl_phdr_info *info)
{
    size_t page = platform_page_size();
    const ElfW(Dyn) *dynamic = NULL;
    *module =
        (struct module){.bias = info->dlpi_addr, .start = UINTPTR_MAX, .is_of_start = startup_has(info->dlpi_phdr)};
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && start < module->start) module->start = start & -page;
        if (part->p_type == PT_LOAD && start + part->p_memsz > module->end) module->end = start + part->p_memsz;
        if (part->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)start;
        if (part->p_type == PT_GNU_RELRO) {
            module->sealed = start & -page;
            module->sealed_end = (start + part->p_memsz) & -page;
        }
    }
    return dynamic != NULL && range_of((uintptr_t)dynamic) != NULL && read_dynamic(module, dynamic);
}

static bool is_within(const struct module *module, uintptr_t address)
{
    return address - module->start < module->end - module->start;
}

/* ---- words ---------------------------------------------------------------------------------------------------------------- */

struct look {
    bool back;
    bool insists; /* also on what should have been made read-only by now, and so will stay as it is */
    size_t left; /* that are to be looked at again, soon */
    size_t unfilled; /* and these in a second */
};

static void write_word(const struct module *module, _Atomic(uintptr_t) *word, uintptr_t value, struct look *look)
{
    uintptr_t address = (uintptr_t)word, page = platform_page_size(), start = address & -page;
    const struct range *range = range_of(address);
    bool is_sealed = address - module->sealed < module->sealed_end - module->sealed;
    if (range == NULL || (range->is_writable && is_sealed && !look->insists)) {
        look->left++;
        return;
    }
    if (!range->is_writable && (!is_sealed || mprotect((void *)start, page, PROT_READ | PROT_WRITE) != 0)) return;
    /* Relaxed: the function is there, and was before. */
    atomic_store_explicit(word, value, memory_order_relaxed);
    if (!range->is_writable) mprotect((void *)start, page, PROT_READ);
}

static bool is_call_by_name(unsigned long type)
{
    return type == JUMP_SLOT || type == GLOB_DAT || type == WHOLE_ADDRESS;
}

static const struct hook *hook_named(const char *name)
{
    for (size_t i = 0; i < HOOKS; i++)
        if (hooks[i].name[0] == name[0] && strcmp(hooks[i].name, name) == 0) return &hooks[i];
    return NULL;
}

/* Many names may have one function: that of the relocation decides. */
static void look_at(const struct module *module, const ElfW(Rela) * relocation, struct look *look)
{
    unsigned long type = ELF64_R_TYPE(relocation->r_info), symbol = ELF64_R_SYM(relocation->r_info);
    if (!is_call_by_name(type) || symbol == 0 || (type == WHOLE_ADDRESS && relocation->r_addend != 0)) return;
    const struct hook *hook = hook_named(module->names + module->symbols[symbol].st_name);
    if (hook == NULL || hook->ours == 0 || hook->theirs == 0) return;
    _Atomic(uintptr_t) *word = (_Atomic(uintptr_t) *)(module->bias + relocation->r_offset);
    if (range_of((uintptr_t)word) == NULL) return;
    uintptr_t now = atomic_load_explicit(word, memory_order_relaxed);
    /* Not filled in so far: it leads to code of the module's own, which looks for the function. */
    bool is_unfilled = type == JUMP_SLOT && module->symbols[symbol].st_shndx == SHN_UNDEF && is_within(module, now) &&
                       !is_within(module, hook->theirs);
    look->unfilled += is_unfilled && !module->is_of_start;
    bool is_due = look->back ? now == hook->ours : now == hook->theirs || (is_unfilled && module->is_of_start);
    if (is_due) write_word(module, word, look->back ? hook->theirs : hook->ours, look);
}

static int look_at_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct module module;
    (void)size;
    if (!read_module(&module, info) || is_within(&module, (uintptr_t)hooks)) return 0;
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; module.relocations[i] != NULL && j < module.count[i]; j++)
            look_at(&module, &module.relocations[i][j], argument);
    return 0;
}

/* Modules that have been loaded and unloaded so far. */
static int read_changes(struct dl_phdr_info *info, size_t size, void *changes)
{
    (void)size;
    *(unsigned long long *)changes = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

static unsigned long long changes_seen;
static unsigned tries_left; /* 0: nothing was left */
static uint64_t unfilled_ms; /* when they are to be looked at again; 0: there are none */

enum { TRIES = 50, UNFILLED_MS = 1000 }; /* tries of a look each, some 20 ms apart: a module is loaded faster */

static unsigned long long changes_now(void)
{
    unsigned long long changes = 0;
    dl_iterate_phdr(read_changes, &changes);
    return changes;
}

bool slots_are_new(void)
{
    return tries_left != 0 || (unfilled_ms != 0 && platform_clock_ms() >= unfilled_ms) || changes_now() != changes_seen;
}

void slots_take(void)
{
    unsigned long long changes = changes_now();
    unsigned tries = changes == changes_seen && tries_left != 0 ? tries_left - 1 : TRIES;
    struct look look = {.back = false, .insists = tries == 0};
    if (!read_ranges()) return;
    changes_seen = changes;
    dl_iterate_phdr(look_at_module, &look);
    tries_left = look.left != 0 ? tries : 0;
    unfilled_ms = look.unfilled != 0 ? platform_clock_ms() + UNFILLED_MS : 0;
}

void slots_give_back(void)
{
    struct look look = {.back = true, .insists = true};
    if (!read_ranges()) return;
    dl_iterate_phdr(look_at_module, &look);
}
