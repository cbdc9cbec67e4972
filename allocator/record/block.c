/* Blocks as they stand in a file: a header, a payload that zstd has compressed where that pays, and a checksum over both. */
#define ZSTD_STATIC_LINKING_ONLY /* contexts in memory of ours; the library is linked statically, so they are there */
#include "record/record.h"

#include <string.h>
#include <zstd.h>

_Static_assert(sizeof(struct trace_file_header) == TRACE_FILE_HEADER, "no padding");
_Static_assert(sizeof(struct trace_block_header) == TRACE_BLOCK_HEADER, "no padding");
_Static_assert(sizeof(struct trace_mark) == 6 * sizeof(uint64_t), "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format's structures are written as they are");

/* ---- checksum ------------------------------------------------------------------------------------------------------ *
 *
 * Eight bytes at a time, with a table for each place ("slicing by 8"). Table k says what a byte becomes when 8 (k + 1) zero
 * bits follow it. That is linear: the entry of a byte is the exclusive or of those of its bits, so the eight of these, from the
 * lowest, are all that has to be given.
 */
#define OF_1(x, a) (x), (x) ^ (a)
#define OF_2(x, a, b) OF_1(x, a), OF_1((x) ^ (b), a)
#define OF_3(x, a, b, c) OF_2(x, a, b), OF_2((x) ^ (c), a, b)
#define OF_4(x, a, b, c, d) OF_3(x, a, b, c), OF_3((x) ^ (d), a, b, c)
#define OF_5(x, a, b, c, d, e) OF_4(x, a, b, c, d), OF_4((x) ^ (e), a, b, c, d)
#define OF_6(x, a, b, c, d, e, f) OF_5(x, a, b, c, d, e), OF_5((x) ^ (f), a, b, c, d, e)
#define OF_7(x, a, b, c, d, e, f, g) OF_6(x, a, b, c, d, e, f), OF_6((x) ^ (g), a, b, c, d, e, f)
#define TABLE(a, b, c, d, e, f, g, h) {OF_7(0, a, b, c, d, e, f, g), OF_7(h, a, b, c, d, e, f, g)}

enum { SLICES = 8, BYTES = 256 };

static const uint32_t tables[SLICES][BYTES] = {
    TABLE(0x77073096, 0xEE0E612C, 0x076DC419, 0x0EDB8832, 0x1DB71064, 0x3B6E20C8, 0x76DC4190, 0xEDB88320),
    TABLE(0x191B3141, 0x32366282, 0x646CC504, 0xC8D98A08, 0x4AC21251, 0x958424A2, 0xF0794F05, 0x3B83984B),
    TABLE(0x01C26A37, 0x0384D46E, 0x0709A8DC, 0x0E1351B8, 0x1C26A370, 0x384D46E0, 0x709A8DC0, 0xE1351B80),
    TABLE(0xB8BC6765, 0xAA09C88B, 0x8F629757, 0xC5B428EF, 0x5019579F, 0xA032AF3E, 0x9B14583D, 0xED59B63B),
    TABLE(0x3D6029B0, 0x7AC05360, 0xF580A6C0, 0x30704BC1, 0x60E09782, 0xC1C12F04, 0x58F35849, 0xB1E6B092),
    TABLE(0xCB5CD3A5, 0x4DC8A10B, 0x9B914216, 0xEC53826D, 0x03D6029B, 0x07AC0536, 0x0F580A6C, 0x1EB014D8),
    TABLE(0xA6770BB4, 0x979F1129, 0xF44F2413, 0x33EF4E67, 0x67DE9CCE, 0xCFBD399C, 0x440B7579, 0x8816EAF2),
    TABLE(0xCCAA009E, 0x4225077D, 0x844A0EFA, 0xD3E51BB5, 0x7CBB312B, 0xF9766256, 0x299DC2ED, 0x533B85DA),
};

uint32_t trace_crc(uint32_t crc, const void *bytes, size_t size)
{
    const uint8_t *at = bytes, *end = at + size;
    crc = ~crc;
    for (; end - at >= SLICES; at += SLICES) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        word ^= crc;
        crc = 0;
#pragma GCC unroll 8
        for (unsigned i = 0; i < SLICES; i++) crc ^= tables[SLICES - 1 - i][word >> 8 * i & 0xFF];
    }
    for (; at < end; at++) crc = tables[0][(crc ^ *at) & 0xFF] ^ crc >> 8;
    return ~crc;
}

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

/* The recorder has one core at most, and every byte is compressed once: the fastest level that is not a "fast" one. */
enum { LEVEL = 1 };

size_t trace_workspace_size(void)
{
    return ZSTD_estimateCCtxSize(LEVEL);
}

size_t trace_block_bound(size_t raw)
{
    return TRACE_BLOCK_HEADER + ZSTD_compressBound(raw);
}

/* A payload of less gains nothing that is worth the start of a frame: 80 microseconds. */
enum { COMPRESS_LEAST = 128 };

/* Bytes that it took at `out`, 0 when it would not be fewer than `size`, or there is no workspace. */
static size_t compress(const void *raw, size_t size, void *workspace, uint8_t *out)
{
    ZSTD_CCtx *context =
        workspace == NULL || size < COMPRESS_LEAST ? NULL : ZSTD_initStaticCCtx(workspace, trace_workspace_size());
    if (context == NULL) return 0;
    size_t stored = ZSTD_compressCCtx(context, out, size - 1, raw, size, LEVEL);
    return ZSTD_isError(stored) ? 0 : stored;
}

size_t trace_block_make(struct trace_block_header *header, const void *raw, size_t raw_size, void *workspace,
                        uint8_t *out)
{
    uint8_t *payload = out + TRACE_BLOCK_HEADER;
    size_t stored = compress(raw, raw_size, workspace, payload);
    header->magic = TRACE_BLOCK_MAGIC;
    header->codec = stored != 0;
    header->reserved = 0;
    if (stored == 0 && raw_size != 0) memcpy(payload, raw, stored = raw_size);
    header->stored = (uint32_t)stored;
    header->raw = (uint32_t)raw_size;
    header->checksum = 0;
    header->checksum = trace_crc(trace_crc(0, header, sizeof *header), payload, stored);
    memcpy(out, header, sizeof *header);
    return TRACE_BLOCK_HEADER + stored;
}
