/* Reads the frames of CPython 3.11, 3.12 and 3.13 out of its memory (python.h).
 *
 * Where things lie is that version's affair (`layouts`, from its own headers), and is not believed: a thread's state must name the
 * thread, code must be of the type of code, names of that of texts. So another build of the same version, with other structures,
 * yields no frames rather than wrong ones.
 *
 * A thread's frames are its own: nobody changes them while it allocates, and what they name lives as long as they do. Still a
 * library that switches stacks (greenlet) may allocate halfway, and a thread that outlives the interpreter has none. So nothing is
 * read but through the kernel, which says when there is no memory; or, where every allocation is noted and that would take
 * most of the time, from pages of which it has said so before.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "python.h"

#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- layouts ------------------------------------------------------------------------------------------------------------ */

/* Distances in bytes, on processors of 64 bits. */
struct layout {
    uint32_t version; /* major and minor, as in Py_Version */
    uint16_t state_key; /* in _PyRuntime: of threads' states, a Py_tss_t */
    uint16_t state_thread; /* in a thread's state: pthread_self() */
    uint16_t state_frame; /* the innermost frame or, with `loop_frame`, what the innermost loop has on its stack ... */
    bool has_loops;
    uint8_t loop_frame,
        loop_previous; /* ... and in that: the innermost frame, and the same of the loop that this was called from */
    uint8_t frame_code, frame_previous, frame_instruction, frame_entry, frame_owner;
    uint8_t code_first_line, code_start;
    uint8_t text_ascii, text_compact; /* sizes of texts' headers */
};

static const struct layout layouts[] = {
    {.version = 0x030b,
     .state_key = 592,
     .state_thread = 152,
     .state_frame = 56,
     .has_loops = true,
     .loop_frame = 8,
     .loop_previous = 16,
     .frame_code = 32,
     .frame_previous = 48,
     .frame_instruction = 56,
     .frame_entry = 68,
     .frame_owner = 69,
     .code_first_line = 72,
     .code_start = 184,
     .text_ascii = 48,
     .text_compact = 72},
    {.version = 0x030c,
     .state_key = 1544,
     .state_thread = 136,
     .state_frame = 56,
     .has_loops = true,
     .loop_frame = 0,
     .loop_previous = 8,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_first_line = 68,
     .code_start = 192,
     .text_ascii = 40,
     .text_compact = 56},
    {.version = 0x030d,
     .state_key = 2160,
     .state_thread = 152,
     .state_frame = 72,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_first_line = 68,
     .code_start = 200,
     .text_ascii = 40,
     .text_compact = 56},
};

/* The same in all of them. */
enum {
    OBJECT_TYPE = 8,
    CODE_FILE = 112,
    CODE_NAME = 128,
    CODE_LINES = 136, /* its path, its qualified name, its table of lines */
    TEXT_LENGTH = 16,
    TEXT_STATE = 32,
    BYTES_LENGTH = 16,
    BYTES_START = 32,
    INSTRUCTION = 2, /* bytes of the unit that tables count in */
    FRAME_BYTES = 80,
    CODE_BYTES = CODE_LINES + sizeof(uintptr_t),
    OWNED_BY_LOOP = 3, /* of 3.12 and later: a frame that is on the stack of the loop, behind those that it runs */
};

static struct {
    const struct layout *layout; /* NULL: there is no interpreter, or none that is known */
    uintptr_t runtime;
    uintptr_t code_type, text_type, bytes_type;
    uintptr_t loop, loop_end;
} python;

/* 3.13 says of itself what it looks like. */
static bool is_as_it_says(const uint64_t *says)
{
    enum {
        FREE_THREADED = 2,
        STATE_FRAME = 23,
        STATE_THREAD = 24,
        FRAME = 29,
        FRAME_CODE,
        FRAME_INSTRUCTION,
        FRAME_OWNER = 33,
        CODE = 34,
        FILE_NAME,
        QUALIFIED_NAME = 37,
        LINES,
        FIRST_LINE,
        CODE_START = 43
    };
    const struct layout *layout = python.layout;
    return memcmp(says, "xdebugpy", sizeof *says) == 0 && says[FREE_THREADED] == 0 &&
           says[STATE_FRAME] == layout->state_frame && says[STATE_THREAD] == layout->state_thread &&
           says[FRAME] == layout->frame_previous && says[FRAME_CODE] == layout->frame_code &&
           says[FRAME_INSTRUCTION] == layout->frame_instruction && says[FRAME_OWNER] == layout->frame_owner &&
           says[FILE_NAME] == CODE_FILE && says[QUALIFIED_NAME] == CODE_NAME && says[LINES] == CODE_LINES &&
           says[FIRST_LINE] == layout->code_first_line && says[CODE_START] == layout->code_start;
}

static uintptr_t size_of(uintptr_t symbol)
{
    Dl_info info;
    ElfW(Sym) *entry = NULL;
    bool found = dladdr1((void *)symbol, &info, (void **)&entry, RTLD_DL_SYMENT) != 0;
    return found && entry != NULL && (uintptr_t)info.dli_saddr == symbol ? entry->st_size : 0;
}

static uintptr_t symbol(const char *name)
{
    return (uintptr_t)dlsym(RTLD_DEFAULT, name);
}

void python_start(void)
{
    enum { HAS_WORDS_OF_ITSELF = 0x030d, SHORTEST_RUNTIME = 4096 };
    const uint32_t *version = (const uint32_t *)symbol("Py_Version");
    python.runtime = symbol("_PyRuntime");
    python.code_type = symbol("PyCode_Type");
    python.text_type = symbol("PyUnicode_Type");
    python.bytes_type = symbol("PyBytes_Type");
    python.loop = symbol("_PyEval_EvalFrameDefault");
    python.loop_end = python.loop + (python.loop == 0 ? 0 : size_of(python.loop));
    if (version == NULL || python.runtime == 0 || size_of(python.runtime) < SHORTEST_RUNTIME) return;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].version == *version >> 16) python.layout = &layouts[i];
    if (python.layout != NULL && python.layout->version >= HAS_WORDS_OF_ITSELF &&
        !is_as_it_says((const uint64_t *)python.runtime))
        python.layout = NULL;
}

bool python_is_here(void)
{
    return python.layout != NULL;
}

bool python_is_loop(uintptr_t return_address)
{
    return return_address > python.loop && return_address <= python.loop_end;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

/* Of a thread: pages that were readable, each where its number says. */
enum { PAGES_KEPT = 64, PAGE_LOG = 12 };
static __thread uintptr_t pages_seen[PAGES_KEPT] __attribute__((tls_model("initial-exec")));

static bool is_seen(uintptr_t address)
{
    uintptr_t page = address >> PAGE_LOG;
    uintptr_t *place = &pages_seen[page % PAGES_KEPT];
    if (LIKELY(*place == page)) return true;
    if (page == 0 || !platform_is_readable((const void *)address)) return false;
    *place = page;
    return true;
}

static bool copy_by_kernel(void *to, uintptr_t from, size_t size)
{
    struct iovec there = {.iov_base = (void *)from, .iov_len = size}, here = {.iov_base = to, .iov_len = size};
    int saved = errno;
    bool copied = syscall(SYS_process_vm_readv, getpid(), &here, 1L, &there, 1L, 0L) == (long)size;
    errno = saved;
    return copied;
}

/* No more than a page. */
static bool copy(void *to, uintptr_t from, size_t size)
{
    if (record_settings.sample != 0) return copy_by_kernel(to, from, size);
    if (!is_seen(from) || !is_seen(from + size - 1)) return false;
    memcpy(to, (const void *)from, size);
    return true;
}

static uintptr_t word_at(const uint8_t *bytes, size_t place)
{
    uintptr_t word;
    memcpy(&word, bytes + place, sizeof word);
    return word;
}

/* 0: it cannot be read, or is 0. */
static uintptr_t word(uintptr_t address)
{
    uintptr_t found;
    return copy(&found, address, sizeof found) ? found : 0;
}

static bool is_of_type(const uint8_t *object, uintptr_t type)
{
    return word_at(object, OBJECT_TYPE) == type;
}

/* ---- frames --------------------------------------------------------------------------------------------------------------- */

/* The state of this thread; 0: it has none. */
static uintptr_t state_find(void)
{
    struct {
        int made;
        pthread_key_t key;
    } state_key; /* as in Py_tss_t */
    memcpy(&state_key, (const void *)(python.runtime + python.layout->state_key), sizeof state_key);
    uintptr_t state = state_key.made == 1 ? (uintptr_t)pthread_getspecific(state_key.key) : 0;
    bool is_ours = state != 0 && word(state + python.layout->state_thread) == (uintptr_t)pthread_self();
    return is_ours ? state : 0;
}

/* false: it is of no code, or of none that can be read. */
static bool frame_read(const uint8_t *frame, struct python_frame *found)
{
    const struct layout *layout = python.layout;
    uint8_t code[CODE_BYTES];
    found->code = word_at(frame, layout->frame_code);
    found->instruction = word_at(frame, layout->frame_instruction);
    found->loop = 0;
    if (!copy(code, found->code, sizeof code) || !is_of_type(code, python.code_type)) return false;
    uint64_t key = 0;
    const uint64_t parts[] = {found->code, found->instruction, word_at(code, CODE_FILE), word_at(code, CODE_NAME),
                              word_at(code, CODE_LINES)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        key = ((key << 32 | key >> 32) ^ parts[i]) * UINT64_C(0x9E3779B97F4A7C15); /* Knuth, 6.4 */
    found->key = key;
    return true;
}

/* That all frames from `first` on, which are of one loop, are of this one. */
static void loop_is(struct python_frame *frames, size_t first, size_t count, uintptr_t loop)
{
    for (size_t i = first; i < count; i++) frames[i].loop = loop;
}

size_t python_frames(struct python_frame *frames, size_t most)
{
    enum { LOOKED_AT_MAX = 256 }; /* the end of a loop's frames may be far behind those that are wanted */
    const struct layout *layout = python.layout;
    uintptr_t state = state_find(), loop = 0;
    uintptr_t at = state == 0 ? 0 : word(state + layout->state_frame);
    if (layout->has_loops) {
        loop = at;
        at = at == 0 ? 0 : word(loop + layout->loop_frame);
    }
    size_t count = 0, first = 0; /* `first`: of those that are of the same loop */
    for (size_t looked = 0; at != 0 && looked < LOOKED_AT_MAX && (count < most || first < count); looked++) {
        uint8_t frame[FRAME_BYTES];
        if (!copy(frame, at, sizeof frame)) break;
        bool is_behind = layout->frame_entry == 0 && frame[layout->frame_owner] == OWNED_BY_LOOP;
        if (!is_behind && count < most) count += frame_read(frame, &frames[count]);
        if (is_behind) {
            loop_is(frames, first, count, at);
            first = count;
        } else if (layout->frame_entry != 0 && frame[layout->frame_entry] != 0) {
            loop_is(frames, first, count, loop);
            first = count;
            loop = word(loop + layout->loop_previous);
        }
        at = word_at(frame, layout->frame_previous);
    }
    return count;
}

/* ---- lines ---------------------------------------------------------------------------------------------------------------- */

/* Of a code object's table: entries of a byte `1, kind, length - 1` and, without the highest bit, more; how far they reach, in
 * instructions, and how many lines they are from the one before. */
enum { LINES_MAX = 1 << 16, KIND_SHIFT = 3, KIND_NONE = 15, KIND_LONG = 14, KIND_NO_COLUMN = 13, KIND_ONE_LINE = 10 };

/* Six bits in a byte, the lowest first, of which bit 6 says that more follow; the lowest of all is the sign. */
static int64_t signed_number(const uint8_t *at, const uint8_t *end)
{
    uint64_t number = 0;
    for (unsigned shift = 0; at < end && shift < 60; shift += 6, at++) {
        number |= (uint64_t)(*at & 63) << shift;
        if ((*at & 64) == 0) break;
    }
    return (number & 1) != 0 ? -(int64_t)(number >> 1) : (int64_t)(number >> 1);
}

static int64_t line_distance(const uint8_t *entry, const uint8_t *end)
{
    unsigned kind = *entry >> KIND_SHIFT & 15;
    if (kind == KIND_LONG || kind == KIND_NO_COLUMN) return signed_number(entry + 1, end);
    return kind >= KIND_ONE_LINE && kind != KIND_NONE ? kind - KIND_ONE_LINE : 0;
}

/* The line of an instruction, of which there are `number` before it; the first line for what stands before all. */
static uint64_t line_of(const uint8_t *at, const uint8_t *end, int64_t number, int64_t line)
{
    int64_t first_line = line;
    while (at < end) {
        line += line_distance(at, end);
        number -= (*at & 7) + 1;
        bool has_line = (*at >> KIND_SHIFT & 15) != KIND_NONE;
        if (number < 0) return (uint64_t)(has_line ? line : first_line);
        do at++;
        while (at < end && (*at & 128) == 0);
    }
    return (uint64_t)first_line;
}

static bool find_line(const struct python_frame *frame, const uint8_t *code, uint64_t *line)
{
    static uint8_t table[LINES_MAX]; /* of one thread at a time */
    uint8_t header[BYTES_START];
    uintptr_t lines = word_at(code, CODE_LINES);
    if (!copy(header, lines, sizeof header) || !is_of_type(header, python.bytes_type)) return false;
    size_t size = word_at(header, BYTES_LENGTH);
    if (size > sizeof table) size = sizeof table; /* what is further has the first line */
    if (!copy_by_kernel(table, lines + BYTES_START, size)) return false;
    int32_t first_line;
    memcpy(&first_line, code + python.layout->code_first_line, sizeof first_line);
    intptr_t number = (intptr_t)(frame->instruction - frame->code - python.layout->code_start) / INSTRUCTION;
    *line = line_of(table, table + size, number, first_line);
    return true;
}

/* ---- texts ---------------------------------------------------------------------------------------------------------------- */

static uint32_t letter_of(const uint8_t *letters, size_t bytes, size_t index)
{
    uint32_t letter = 0;
    memcpy(&letter, letters + index * bytes, bytes); /* little-endian, as all processors are that we know */
    return letter;
}

/* In UTF-8; a question mark for what would end a line, or a part of it, and for what cannot be written so. */
static size_t put_letter(uint32_t letter, char *out)
{
    bool is_surrogate = letter >= 0xD800 && letter < 0xE000;
    if (letter < ' ' || letter == 127 || is_surrogate || letter > 0x10FFFF) letter = '?';
    *out = (char)letter;
    if (letter < 0x80) return 1;
    size_t length = letter < 0x800 ? 2 : letter < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; letter >>= 6) out[i] = (char)(0x80 | (letter & 63));
    out[0] = (char)((0xF00U >> length) | letter);
    return length;
}

/* A text of Python's, as much of it as there is room for: of a path the end, which tells more. */
static size_t put_text(uintptr_t text, bool wants_end, char *out, size_t room)
{
    enum { LETTERS_MAX = 512, LETTER_BYTES_MAX = 4 };
    uint8_t header[TEXT_STATE + sizeof(uint32_t)], letters[LETTERS_MAX * LETTER_BYTES_MAX];
    if (!copy(header, text, sizeof header) || !is_of_type(header, python.text_type)) return 0;
    uint32_t state;
    memcpy(&state, header + TEXT_STATE, sizeof state);
    unsigned bytes = state >> 2 & 7; /* of a letter */
    bool compact = (state >> 5 & 1) != 0, ascii = (state >> 6 & 1) != 0;
    if (!compact || (bytes != 1 && bytes != 2 && bytes != 4)) return 0;
    size_t length = word_at(header, TEXT_LENGTH), left_out = 0;
    if (length > LETTERS_MAX) {
        if (wants_end) left_out = length - LETTERS_MAX;
        length = LETTERS_MAX;
    }
    uintptr_t start = text + (ascii ? python.layout->text_ascii : python.layout->text_compact) + left_out * bytes;
    if (length == 0 || !copy_by_kernel(letters, start, length * bytes)) return 0;
    size_t used = 0;
    for (size_t i = 0; i < length && used + LETTER_BYTES_MAX < room; i++)
        used += put_letter(letter_of(letters, bytes, i), out + used);
    return used;
}

size_t python_describe(const struct python_frame *frame, char *text, size_t room)
{
    uint8_t code[CODE_BYTES];
    uint64_t line;
    if (!copy(code, frame->code, sizeof code) || !find_line(frame, code, &line)) return 0;
    platform_format(text, room, "%zx ", (size_t)line);
    size_t used = strlen(text);
    size_t path = put_text(word_at(code, CODE_FILE), true, text + used, (room - used) / 2);
    used += path;
    if (path == 0) return 0;
    text[used++] = '\t';
    size_t name = put_text(word_at(code, CODE_NAME), false, text + used, room - used - 1);
    used += name;
    text[used] = '\0';
    return name == 0 ? 0 : used;
}
