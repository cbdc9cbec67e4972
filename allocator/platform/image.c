#define _GNU_SOURCE
#include "image.h"

#include <string.h>

const ElfW(Phdr) * image_parts(const void *start, unsigned *count)
{
    enum { PAGE_LEAST = 4096 };
    const ElfW(Ehdr) *file = start;
    if (!platform_is_readable(file) || memcmp(file->e_ident, ELFMAG, SELFMAG) != 0) return NULL;
    size_t size = (size_t)file->e_phnum * sizeof(ElfW(Phdr));
    if (file->e_phentsize != sizeof(ElfW(Phdr)) || file->e_phoff % _Alignof(ElfW(Phdr)) != 0 ||
        file->e_phoff > PAGE_LEAST || size > PAGE_LEAST - file->e_phoff)
        return NULL;
    *count = file->e_phnum;
    return (const void *)((const char *)file + file->e_phoff);
}

static size_t aligned(size_t size)
{
    return (size + 3) & ~(size_t)3;
}

size_t build_id_among(const uint8_t *notes, size_t size, uint8_t id[BUILD_ID_MAX])
{
    ElfW(Nhdr) note;
    for (size_t at = 0; at + sizeof note <= size;) {
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, value = name + aligned(note.n_namesz), length = note.n_descsz;
        if (value + length > size) return 0;
        bool is_id = note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU && length <= BUILD_ID_MAX;
        if (is_id && memcmp(notes + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
            memcpy(id, notes + value, length);
            return length;
        }
        at = value + aligned(length);
    }
    return 0;
}

/* Notes are few: no more than this is looked at, which lies in two pages at most. */
enum { NOTES_MAX = 1024 };

static bool is_readable(const uint8_t *from, size_t size)
{
    return platform_is_readable(from) && platform_is_readable(from + size - 1);
}

size_t image_build_id(const void *start, const void *end, uintptr_t base, uint8_t id[BUILD_ID_MAX])
{
    unsigned count = 0;
    const ElfW(Phdr) *parts = image_parts(start, &count);
    for (unsigned i = 0; i < count; i++) {
        uintptr_t offset = base + parts[i].p_vaddr - (uintptr_t)start, room = (uintptr_t)end - (uintptr_t)start;
        if (parts[i].p_type != PT_NOTE || parts[i].p_filesz == 0 || offset >= room) continue;
        size_t size = parts[i].p_filesz < room - offset ? parts[i].p_filesz : room - offset;
        if (size > NOTES_MAX) size = NOTES_MAX;
        const uint8_t *notes = (const uint8_t *)start + offset;
        size_t found = is_readable(notes, size) ? build_id_among(notes, size, id) : 0;
        if (found != 0) return found;
    }
    return 0;
}
