/* What a loaded ELF file says of itself in its own memory: its parts, and its build ID, by which it is told from another build. */
#ifndef HEAPFIT_IMAGE_H
#define HEAPFIT_IMAGE_H

#include <link.h>

#include "platform.h"

/* The program headers of what is loaded at `start`: in its first page, where linkers put them. NULL when they are not there. */
const ElfW(Phdr) * image_parts(const void *start, unsigned *count);

enum { BUILD_ID_MAX = 32 }; /* linkers make them of 8 to 20 bytes */

/* Bytes of the build ID among the notes, which goes to `id`; 0: there is none. */
size_t build_id_among(const uint8_t *notes, size_t size, uint8_t id[BUILD_ID_MAX]);

/* The same of what is loaded from `start` to `end`, and whose own addresses are counted from `base`. Takes no locks. */
size_t image_build_id(const void *start, const void *end, uintptr_t base, uint8_t id[BUILD_ID_MAX]);

#endif
