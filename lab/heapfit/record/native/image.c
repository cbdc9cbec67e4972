/* The program and its libraries as they lie in the process's memory. Their files may have been replaced since. */
#include "attach.h"
#include "stub.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool memory_read(const struct image *image, uint64_t from, void *to, size_t size)
{
    return pread(image->memory, to, size, (off_t)from) == (ssize_t)size;
}

/* Also where the process itself may not write: the kernel then gives it a page of its own. */
bool memory_write(const struct image *image, uint64_t to, const void *from, size_t size)
{
    return pwrite(image->memory, from, size, (off_t)to) == (ssize_t)size;
}

/* ---- one of them ------------------------------------------------------------------------------------------------------ */

enum { PARTS_MAX = 32, NAME_MAX_ = 64 };

struct module {
    uint64_t bias; /* what is added to the addresses in its file */
    size_t parts;
    ElfW(Phdr) part[PARTS_MAX];
    uint64_t symbols, names, hash; /* 0: none */
};

static uint64_t page_down(uint64_t address)
{
    return address & ~(uint64_t)4095;
}

/* Its tables' addresses: the dynamic linker has put the bias to them, on this processor. */
static void read_dynamic(const struct image *image, struct module *module, uint64_t at)
{
    ElfW(Dyn) entry;
    for (; memory_read(image, at, &entry, sizeof entry) && entry.d_tag != DT_NULL; at += sizeof entry) {
        uint64_t value = entry.d_un.d_ptr < module->bias ? entry.d_un.d_ptr + module->bias : entry.d_un.d_ptr;
        if (entry.d_tag == DT_SYMTAB) module->symbols = value;
        if (entry.d_tag == DT_STRTAB) module->names = value;
        if (entry.d_tag == DT_GNU_HASH) module->hash = value;
    }
}

/* Of what is mapped from its file's beginning at `start`. */
static bool read_module(const struct image *image, uint64_t start, struct module *module)
{
    ElfW(Ehdr) header;
    *module = (struct module){0};
    if (!memory_read(image, start, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    if (header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phnum > PARTS_MAX) return false;
    module->parts = header.e_phnum;
    if (!memory_read(image, start + header.e_phoff, module->part, module->parts * sizeof *module->part)) return false;
    for (size_t i = 0; i < module->parts; i++)
        if (module->part[i].p_type == PT_LOAD) {
            module->bias = start - page_down(module->part[i].p_vaddr);
            break;
        }
    for (size_t i = 0; i < module->parts; i++)
        if (module->part[i].p_type == PT_DYNAMIC) read_dynamic(image, module, module->bias + module->part[i].p_vaddr);
    return true;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++) hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* The address of a name that it defines; 0: it does not. By the table that dynamic linkers search (DT_GNU_HASH). */
static uint64_t find_symbol(const struct image *image, const struct module *module, const char *name)
{
    struct {
        uint32_t buckets, first, words, shift;
    } table;
    uint32_t hash = hash_of(name), index;
    if (module->hash == 0 || !memory_read(image, module->hash, &table, sizeof table) || table.buckets == 0) return 0;
    uint64_t buckets = module->hash + sizeof table + table.words * sizeof(uint64_t);
    uint64_t chains = buckets + table.buckets * sizeof(uint32_t);
    if (!memory_read(image, buckets + hash % table.buckets * sizeof index, &index, sizeof index) || index < table.first)
        return 0;
    for (;; index++) {
        uint32_t link;
        ElfW(Sym) symbol;
        char found[NAME_MAX_] = "";
        if (!memory_read(image, chains + (index - table.first) * sizeof link, &link, sizeof link)) return 0;
        bool same = (link | 1) == (hash | 1) &&
                    memory_read(image, module->symbols + index * sizeof symbol, &symbol, sizeof symbol) &&
                    memory_read(image, module->names + symbol.st_name, found, strlen(name) + 1);
        if (same && strcmp(found, name) == 0 && symbol.st_shndx != SHN_UNDEF) return module->bias + symbol.st_value;
        if (link & 1) return 0;
    }
}

/* ---- the C library ---------------------------------------------------------------------------------------------------- */

static const struct mapping *find_named(const struct image *image, const char *name)
{
    for (size_t i = 0; i < image->mappings.count; i++)
        if (image->mappings.all[i].offset == 0 && is_named(&image->mappings.all[i], name))
            return &image->mappings.all[i];
    return NULL;
}

/* Before 2.34 it was in several files. */
static uint64_t find_in_libc(const struct image *image, const char *name)
{
    static const char *const files[] = {"libc.so.6", "libpthread.so.0", "libdl.so.2"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct module module;
        const struct mapping *mapping = find_named(image, files[i]);
        uint64_t found =
            mapping != NULL && read_module(image, mapping->start, &module) ? find_symbol(image, &module, name) : 0;
        if (found != 0) return found;
    }
    return 0;
}

static bool holds_zeros(const struct image *image, uint64_t at)
{
    char bytes[STUB_MAX];
    size_t size = (size_t)(stub_end - stub_begin);
    if (!memory_read(image, at, bytes, size)) return false;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0) return false;
    return true;
}

/* Of one of us that was killed. */
static bool holds_stub(const struct image *image, uint64_t at)
{
    char bytes[STUB_MAX];
    size_t size = (size_t)(stub_slots - stub_begin);
    return memory_read(image, at, bytes, size) && memcmp(bytes, stub_begin, size) == 0;
}

/* A variable of the C library. A program that reads it itself may have it among its own. */
static uint64_t find_variable(const struct image *image, const char *name)
{
    for (size_t i = 0; i < image->mappings.count; i++) {
        const struct mapping *mapping = &image->mappings.all[i];
        struct module module;
        if (mapping->offset != 0 || mapping->path[0] != '/' || !read_module(image, mapping->start, &module)) continue;
        uint64_t found = mapping->start == image->libc ? 0 : find_symbol(image, &module, name);
        if (found != 0) return found;
    }
    return find_in_libc(image, name);
}

bool image_knows_one_thread(const struct image *image)
{
    char single = 0;
    return image->single != 0 && memory_read(image, image->single, &single, sizeof single) && single != 0;
}

/* Its environment is what the C library sets in its constructor, and that there is one thread a little earlier: in both cases the
 * dynamic linker has filled in all addresses of functions, and the C library is ready. */
bool image_is_ready(const struct image *image)
{
    uint64_t environment = 0;
    if (image_knows_one_thread(image)) return true;
    return image->environment != 0 && memory_read(image, image->environment, &environment, sizeof environment) &&
           environment != 0;
}

/* Code is mapped in whole pages, the last of which it seldom fills: there is room behind it that no file's part is in. Where the code of
 * one of us is who was killed, threads may still be in that. Only of what is never unloaded. */
static uint64_t find_room(const struct image *image, pid_t pid)
{
    uint64_t size = ((uint64_t)(stub_end - stub_begin) + 15) & ~(uint64_t)15;
    char link[64], program[sizeof image->mappings.all->path] = "";
    snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
    if (readlink(link, program, sizeof program - 1) < 0) program[0] = '\0';
    for (size_t i = 0; i < image->mappings.count; i++) {
        const struct mapping *mapping = &image->mappings.all[i];
        struct module module;
        bool stays = strcmp(mapping->path, program) == 0 || is_named(mapping, "libc.so.6") ||
                     is_named(mapping, "ld-linux-x86-64.so.2");
        if (mapping->offset != 0 || !stays || !read_module(image, mapping->start, &module)) continue;
        for (size_t j = 0; j < module.parts; j++) {
            const ElfW(Phdr) *part = &module.part[j];
            if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || part->p_memsz != part->p_filesz) continue;
            uint64_t end = (module.bias + part->p_vaddr + part->p_memsz + 15) & ~(uint64_t)15;
            const struct mapping *code = mapping_of(&image->mappings, end - 17);
            if (code == NULL || strcmp(code->permissions, "r-xp") != 0 || code->end - end >= 4096) continue;
            for (; end + size <= code->end; end += size)
                if (holds_zeros(image, end) || (holds_stub(image, end) && thread_clears_room(pid, image, end)))
                    return end;
        }
    }
    return 0;
}

/* Whether anything but the C library and the dynamic linker defines the name: of malloc, an allocator that is preloaded or linked. */
static bool is_defined_elsewhere(const struct image *image, const char *name)
{
    for (size_t i = 0; i < image->mappings.count; i++) {
        const struct mapping *mapping = &image->mappings.all[i];
        struct module module;
        if (mapping->offset != 0 || mapping->path[0] != '/' || mapping->start == image->libc) continue;
        if (is_named(mapping, "ld-linux-x86-64.so.2") || !read_module(image, mapping->start, &module)) continue;
        if (find_symbol(image, &module, name) != 0) return true;
    }
    return false;
}

/* Their malloc wants to have seen each thread begin. */
static void check_sanitizers(const struct image *image, pid_t pid)
{
    static const char *const names[] = {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init", "__lsan_init"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_defined_elsewhere(image, names[i]))
            refuse("process %d runs under a sanitizer, which has an allocator and threads of its own", (int)pid);
}

void image_open(struct image *image, pid_t pid)
{
    char path[64];
    *image = (struct image){0};
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    image->memory = open(path, O_RDWR | O_CLOEXEC);
    if (image->memory < 0) process_refuses_trace(pid, errno);
    if (!process_mappings(pid, &image->mappings)) process_refuses_trace(pid, errno);
    const struct mapping *libc = find_named(image, "libc.so.6");
    if (libc == NULL) refuse("process %d has just begun, or has ended; try again", (int)pid);
    image->libc = libc->start;
    image->dlopen = find_in_libc(image, "dlopen");
    image->dlsym = find_in_libc(image, "dlsym");
    image->dlerror = find_in_libc(image, "dlerror");
    image->pthread_create = find_in_libc(image, "pthread_create");
    image->pthread_detach = find_in_libc(image, "pthread_detach");
    if (image->dlopen == 0 || image->dlsym == 0 || image->dlerror == 0 || image->pthread_create == 0 ||
        image->pthread_detach == 0)
        refuse("process %d has a glibc before 2.34, and not its libpthread and libdl; it cannot be attached to",
               (int)pid);
    check_sanitizers(image, pid);
    image->own_malloc = !is_defined_elsewhere(image, "malloc");
    image->single = find_variable(image, "__libc_single_threaded");
    image->environment = find_variable(image, "__environ");
    image->room = find_room(image, pid);
    if (image->room == 0) refuse("process %d has no room for a few instructions behind its code", (int)pid);
}

static bool is_same_mapping(const struct mapping *a, const struct mapping *b)
{
    return a != NULL && b != NULL && a->start == b->start && a->end == b->end && a->inode == b->inode;
}

bool image_is_the_same(const struct image *image, pid_t pid)
{
    struct mappings now = {0};
    bool same = process_mappings(pid, &now) &&
                is_same_mapping(mapping_of(&now, image->libc), mapping_of(&image->mappings, image->libc)) &&
                is_same_mapping(mapping_of(&now, image->room), mapping_of(&image->mappings, image->room));
    free(now.all);
    unsigned char byte;
    return same && memory_read(image, image->room, &byte, 1); /* an exec has ended the memory that we have open */
}

/* The middle of the largest: neither the heap nor a stack grows so far. */
uint64_t image_find_gap(const struct image *image, uint64_t size)
{
    uint64_t largest = 0, middle = 0;
    for (size_t i = 0; i + 1 < image->mappings.count; i++) {
        uint64_t start = image->mappings.all[i].end, gap = image->mappings.all[i + 1].start - start;
        if (image->mappings.all[i + 1].start >> 47 != 0 || gap <= largest) continue;
        largest = gap;
        middle = page_down(start + gap / 2);
    }
    return largest > 4 * size ? middle : 0;
}

/* ---- thread-local variables ------------------------------------------------------------------------------------------- */

/* The C library tells debuggers where things are in its own structures: their size in bits, how many there are, and the offset in
 * bytes. */
struct description {
    uint32_t bits, count, offset;
};

static bool describe(const struct image *image, const char *name, struct description *description)
{
    uint64_t at = find_in_libc(image, name);
    return at != 0 && memory_read(image, at, description, sizeof *description);
}

static uint64_t first_link(const struct image *image)
{
    struct r_debug debug;
    struct module module;
    for (size_t i = 0; i < image->mappings.count; i++) {
        const struct mapping *mapping = &image->mappings.all[i];
        bool is_linker =
            mapping->offset == 0 && (is_named(mapping, "ld-linux-x86-64.so.2") || is_named(mapping, "ld.so.2"));
        uint64_t at =
            is_linker && read_module(image, mapping->start, &module) ? find_symbol(image, &module, "_r_debug") : 0;
        if (at != 0 && memory_read(image, at, &debug, sizeof debug)) return (uint64_t)debug.r_map;
    }
    return 0;
}

struct variables {
    uint64_t offset; /* below the thread pointer */
    uint64_t number; /* of its module */
    uint64_t from, size, whole; /* what they begin with, and how many bytes there are in all */
};

enum { MODULES_MAX = 4096, MODULES_NUMBERED = 512 };

/* Of a loaded module; false: it has none, or not in that place. */
static bool read_variables(const struct image *image, uint64_t link, const struct description *offset,
                           const struct description *number, struct variables *found)
{
    struct link_map map;
    struct module module;
    uint64_t where, id;
    if (!memory_read(image, link, &map, sizeof map) ||
        !memory_read(image, link + offset->offset, &where, sizeof where) ||
        !memory_read(image, link + number->offset, &id, sizeof id))
        return false;
    if (where == 0 || where == UINT64_MAX) return false;
    const struct mapping *dynamic = mapping_of(&image->mappings, (uint64_t)map.l_ld), *start = dynamic;
    while (start != NULL && start > image->mappings.all && start->offset != 0) start--;
    if (start == NULL || !read_module(image, start->start, &module)) return false;
    for (size_t i = 0; i < module.parts; i++)
        if (module.part[i].p_type == PT_TLS) {
            *found = (struct variables){.offset = where,
                                        .number = id,
                                        .from = module.bias + module.part[i].p_vaddr,
                                        .size = module.part[i].p_filesz,
                                        .whole = module.part[i].p_memsz};
            return true;
        }
    return false;
}

typedef bool each_function(const struct image *image, const struct variables *variables, void *argument);

static bool each_module(const struct image *image, each_function *act, void *argument)
{
    struct description offset, number;
    struct variables variables;
    struct link_map map;
    if (!describe(image, "_thread_db_link_map_l_tls_offset", &offset) ||
        !describe(image, "_thread_db_link_map_l_tls_modid", &number))
        return false;
    uint64_t link = first_link(image);
    if (link == 0) return false;
    for (size_t i = 0; link != 0 && i < MODULES_MAX; i++) {
        if (read_variables(image, link, &offset, &number, &variables) && !act(image, &variables, argument))
            return false;
        if (!memory_read(image, link, &map, sizeof map)) return false;
        link = (uint64_t)map.l_next;
    }
    return true;
}

static bool measure(const struct image *image, const struct variables *variables, void *argument)
{
    struct local *local = argument;
    (void)image;
    if (variables->offset > local->below) local->below = variables->offset;
    return variables->offset < 1 << 20;
}

/* What the thread control block begins with on x86-64, as compilers know it, too. */
enum { TCB_SELF = 0, TCB_VECTOR = 8, TCB_THREAD = 16, TCB_MULTIPLE = 24, TCB_GUARDS = 0x28 };
enum { VECTOR_ENTRY = 16, VECTOR_BYTES = (MODULES_NUMBERED + 2) * VECTOR_ENTRY };

/* The vector of modules stands behind the C library's own structure. */
bool local_measure(const struct image *image, struct local *local)
{
    struct description number;
    uint32_t size = 0;
    uint64_t at = find_in_libc(image, "_thread_db_sizeof_pthread");
    *local = (struct local){0};
    if (at == 0 || !memory_read(image, at, &size, sizeof size) || size > 1 << 16 ||
        !describe(image, "_thread_db_pthread_tid", &number) || !each_module(image, measure, local))
        return false;
    local->below = (local->below + 4096 + 4095) & ~(uint64_t)4095;
    local->above = ((size + 4095) & ~(uint64_t)4095) + VECTOR_BYTES;
    local->number_at = number.offset;
    return true;
}

struct writing {
    uint64_t pointer, vector;
};

static bool write_variables(const struct image *image, const struct variables *variables, void *argument)
{
    const struct writing *writing = argument;
    char bytes[4096];
    uint64_t block = writing->pointer - variables->offset;
    for (uint64_t at = 0; at < variables->size; at += sizeof bytes) {
        size_t size = variables->size - at < sizeof bytes ? variables->size - at : sizeof bytes;
        if (!memory_read(image, variables->from + at, bytes, size) || !memory_write(image, block + at, bytes, size))
            return false;
    }
    if (variables->number > MODULES_NUMBERED) return true;
    return memory_write(image, writing->vector + variables->number * VECTOR_ENTRY, &block, sizeof block);
}

bool local_write(const struct image *image, const struct local *local, uint64_t pointer, uint64_t like)
{
    struct writing writing = {.pointer = pointer, .vector = pointer + local->above - VECTOR_BYTES + VECTOR_ENTRY};
    uint64_t guards[2], length = MODULES_NUMBERED;
    uint32_t multiple = 1;
    return memory_read(image, like + TCB_GUARDS, guards, sizeof guards) &&
           memory_write(image, pointer + TCB_SELF, &pointer, sizeof pointer) &&
           memory_write(image, pointer + TCB_VECTOR, &writing.vector, sizeof writing.vector) &&
           memory_write(image, pointer + TCB_THREAD, &pointer, sizeof pointer) &&
           memory_write(image, pointer + TCB_MULTIPLE, &multiple, sizeof multiple) &&
           memory_write(image, pointer + TCB_GUARDS, guards, sizeof guards) &&
           memory_write(image, writing.vector - VECTOR_ENTRY, &length, sizeof length) &&
           each_module(image, write_variables, &writing);
}

/* Until 2.3x each thread had a word of its own for that, which pthread_create sets in its caller. */
bool local_tell(const struct image *image, uint64_t pointer)
{
    uint32_t multiple = 1;
    return memory_write(image, pointer + TCB_MULTIPLE, &multiple, sizeof multiple);
}
