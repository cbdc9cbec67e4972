/* The trace format, version 2: what a file of the recorder holds, for whoever writes or reads one.
 *
 *     file  = file header, block, block, ...
 *     block = block header, payload of `stored` bytes
 *
 * All numbers are little-endian. A block is whole or it is not there: its checksum covers its header and its payload, and
 * it can be decoded without any other block. A reader that meets a damaged block looks for the next one by its magic
 * number. docs/trace-format.md explains all this at length; this header is its exact form, and knows nothing of threads,
 * files or the allocator.
 */
#ifndef HEAPFIT_RECORD_FORMAT_H
#define HEAPFIT_RECORD_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC "heapfit\x1a" /* eight bytes; the last ends a text, so that `cat` shows little */
#define TRACE_BLOCK_MAGIC UINT32_C(0x31424648) /* "HFB1" */

enum {
    TRACE_VERSION = 2, /* 1 had no TRACE_SHARED; all else is the same */
    TRACE_FILE_HEADER = 16, /* bytes of struct trace_file_header */
    TRACE_BLOCK_HEADER = 48, /* of struct trace_block_header */
    TRACE_RAW_MAX = 1 << 20, /* no payload is larger before compression; a reader needs no more room */
    TRACE_EVENT_MAX = 72, /* no encoded event is longer: a byte, six numbers of 64 bits and one of 32 take 66 */
    TRACE_SECTION_MAX = 20, /* nor what stands before the events of a section of TRACE_SHARED: 5 bytes, 10 and 3 */
};

/* No code has an address from here on, but places of interpreted programs have (TRACE_MODULES). */
#define TRACE_PLACES ((uint64_t)1 << 56)

struct trace_file_header {
    char magic[8];
    uint16_t version; /* a reader refuses a later one */
    uint16_t size; /* TRACE_FILE_HEADER: where the first block is */
    uint32_t reserved; /* 0 */
};

enum trace_block {
    TRACE_INFO = 1, /* JSON, always the first block: what was recorded, how and where (docs/trace-format.md) */
    TRACE_EVENTS, /* of one thread, in its own order */
    TRACE_THREAD, /* JSON {"thread": index, "tid": number, "name": text}: before the thread's first events, or a new name */
    TRACE_MARK, /* struct trace_mark: the clock, the resident memory, and how far the file is complete */
    TRACE_MODULES, /* text, a line per mapping of code: "start end offset path", hexadecimal, as it is at this point, and below it,
                    * where its file has a GNU build ID, "build-id start id". And one per place of an interpreted program, when
                    * it is new: "start end line path\tfunction", from TRACE_PLACES on */
    TRACE_SITES, /* for each call site that is new: varint of the caller's site (0: none), varint of the return address.
                  * The first block's first site is number 1, and so on. A site stands before the events that name it. */
    TRACE_END, /* JSON {"reason": text, ...}; without one the recording was cut short */
    TRACE_SHARED, /* events of several threads, who each did little: sections, which are varint of the thread's index, varint of the
                   * ticks from first_tick to the section's own (zigzag), varint of the bytes that follow, and these: what a
                   * TRACE_EVENTS of that thread and that first tick holds. One thread may have several, in its own order */
    TRACE_LIMIT, /* JSON {"sites": "innermost" or "none"}: which sites chains of calls have from about here on that have
                      * none yet, because there were too many: one of their innermost address alone, or none */
};

struct trace_block_header {
    uint32_t magic; /* TRACE_BLOCK_MAGIC */
    uint8_t type; /* enum trace_block; a reader skips one that it does not know */
    uint8_t codec; /* 0: as it is; 1: a zstd frame */
    uint16_t reserved; /* 0 */
    uint32_t stored; /* bytes of the payload in the file */
    uint32_t raw; /* bytes of it when decoded, at most TRACE_RAW_MAX */
    uint32_t
        thread; /* of TRACE_EVENTS: index of the thread, from 0 in order of appearance; of TRACE_SITES: number of its first
                      * site, so that no later site changes its number when this block is lost; else 0 */
    uint32_t events; /* of TRACE_EVENTS and TRACE_SHARED: how many; else 0 */
    uint64_t
        first_tick; /* of TRACE_EVENTS: the clock from which its first event's distance counts; of TRACE_SHARED: from which those
                          * of its sections do; else when it was written. Of the first block: the trace's time 0 */
    uint64_t last_tick; /* of TRACE_EVENTS and TRACE_SHARED: the clock at its last event; else first_tick */
    uint32_t
        sequence; /* counts the file's blocks, from 0: a gap tells how many are lost, and a lower one is no block of this file */
    uint32_t checksum; /* CRC-32 (IEEE 802.3) of the header with 0 here, and the payload as stored */
};

struct trace_mark {
    uint64_t tick; /* the clock of events now ... */
    uint64_t monotonic_ns; /* ... and CLOCK_MONOTONIC: two marks tell what a tick is */
    uint64_t complete_tick; /* all events before it are in the file already, but for those that the reader calls late */
    uint64_t resident; /* bytes of the process in memory (anonymous and file); 0: not known */
    uint64_t resident_anonymous; /* bytes of it that are anonymous */
    uint64_t lost; /* events so far that could not be kept */
};

/* ---- events ----------------------------------------------------------------------------------------------------- *
 *
 * An event is a byte `kind | flags`, then, each a varint (LEB128: seven bits a byte, the lowest first):
 *
 *     ticks since the thread's event before (of the block's first: since first_tick), modulo 2^64 should a clock go backwards
 *     TRACE_FREE, _DELETE:   address
 *     TRACE_MALLOC, _CALLOC, _NEW:   size, slack, site?, address
 *     TRACE_ALIGNED, _NEW_ALIGNED:   binary logarithm of the alignment, then as TRACE_MALLOC
 *     TRACE_REALLOC:   address of the old block, size, slack, site?, new address, ticks that the call lasted
 *
 * An allocation's time is when it has returned, a free's when it is called; a realloc's is when it is called, and its new
 * block exists from then plus what it lasted. So a block's free never comes before its allocation, and the next
 * allocation at that address never before the free, whichever threads they are of.
 *
 * `slack` is the usable size less the size asked for. `site` stands there with TRACE_SITE_FOLLOWS; without, the site is that
 * of the last allocation in this context, failed or not, 0 at first. A context is a number that follows from the size
 * (trace_context). With TRACE_FAILED there is neither slack nor new address: no memory was to be had, an old block stays, and
 * so do the predictions of addresses.
 *
 * An address is a distance, modulo 2^64, from one of two predictions, in units of 8 bytes (of 1 with TRACE_UNIT_BYTE), zigzag
 * coded:
 *
 *     |            | without TRACE_OTHER                     | with TRACE_OTHER            |
 *     | allocation | the context's last allocated address    | the last freed address      |
 *     | free       | the last freed address                  | the last allocated address  |
 *
 * A realloc's old address is predicted as a free's; its new one from the old one, always in units of 1. Then the old is the
 * last freed address, and the new one the last allocated, of its context too. All predictions are 0 at a block's start.
 */
enum trace_kind {
    TRACE_FREE,
    TRACE_MALLOC,
    TRACE_CALLOC,
    TRACE_REALLOC, /* of a block; of NULL it is a TRACE_MALLOC, to nothing a TRACE_FREE */
    TRACE_ALIGNED,
    TRACE_NEW,
    TRACE_NEW_ALIGNED,
    TRACE_DELETE,
    TRACE_KIND_MASK = 15,
    TRACE_OTHER = 16,
    TRACE_UNIT_BYTE = 32,
    TRACE_FAILED = 64,
    TRACE_SITE_FOLLOWS = 128,
};

enum { TRACE_CONTEXTS = 64 };

static inline unsigned trace_context(uint64_t size)
{
    uint64_t context = (size + 15) / 16;
    return context < TRACE_CONTEXTS ? (unsigned)context : TRACE_CONTEXTS - 1;
}

/* What an encoder or a decoder of one thread's events knows; all zero at a block's start, but for `tick`: first_tick. */
struct trace_coder {
    uint64_t tick;
    uint64_t freed, allocated; /* the last addresses */
    uint64_t addresses[TRACE_CONTEXTS];
    uint32_t sites[TRACE_CONTEXTS];
};

/* One event, decoded. */
struct trace_event {
    uint64_t tick;
    uint64_t address; /* of the block that is allocated or freed; 0: failed */
    uint64_t old; /* of TRACE_REALLOC: the block's address before */
    uint64_t size;
    uint64_t usable; /* 0: failed */
    uint64_t lasted; /* of TRACE_REALLOC, in ticks */
    uint32_t site;
    uint8_t kind; /* enum trace_kind, without flags */
    uint8_t alignment; /* binary logarithm; 0: none was asked for */
};

#endif
