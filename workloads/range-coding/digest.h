/* A digest of 64 bits that costs a small part of what coding costs: it finds accidents, not attacks. */
#ifndef RANGE_DIGEST_H
#define RANGE_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Mixes `word` into `digest`: the finaliser of splitmix64 (Steele, Lea, Flood 2014), one round of it. */
static inline uint64_t digest_add(uint64_t digest, uint64_t word)
{
    digest = (digest ^ word) * 0xbf58476d1ce4e5b9u;
    return digest ^ (digest >> 29);
}

static inline uint64_t digest_of(const uint8_t *bytes, size_t size)
{
    uint64_t digest = digest_add(0, size), word;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        digest = digest_add(digest, word);
    }
    word = 0;
    memcpy(&word, bytes, size);
    return digest_add(digest, word);
}

#endif
