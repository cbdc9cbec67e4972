/* Which words of a dictionary have together the letters of a phrase?
 *
 * A relative of anagram from the pointer-intensive benchmarks of Austin, Breach and Sohi (PLDI 1994). The dictionary
 * is a list of words, each with its text in a block of its own; for each phrase it is walked for words that fit in,
 * which become candidates: objects that live as long as the phrase. The search counts letters in the fields of two
 * words of 64 bits, each field with a bit in front that shows when a letter is used up. Words are made of syllables
 * from a seed.
 */
#include "../micro/micro.h"

static uint64_t word_count = 1000000, phrases = 250;

enum {
    LETTERS = 26,
    QUADS = 2, /* 64-bit words that hold the counts of a phrase's letters */
    WORDS_MAX = 8, /* of an anagram */
    PHRASE_MAX = 16, /* letters: their fields fit in two quads */
    WORD_LEAST = 4, /* letters of a word that is of use: shorter ones are in every anagram */
    STEPS_MAX = 400000, /* of the search for one phrase: some phrases have anagrams without end */
};

struct word {
    struct word *next;
    char *text;
    uint32_t length;
    uint32_t letters; /* which there are: a bit each */
};

struct candidate {
    uint64_t counts[QUADS];
    const struct word *word;
    struct candidate *next;
};

/* A letter's place in the counts. */
struct field {
    uint8_t quad, shift, width;
    uint8_t count; /* in the phrase */
};

static struct field fields[LETTERS];
static uint64_t guards[QUADS]; /* the bits in front */
static struct candidate **candidates; /* of this phrase, longest first */
static size_t candidate_count;
static uint64_t steps, found, digest;

/* ------------------------------------------------------------------ dictionary */

static void append(char *text, size_t *length, const char *part)
{
    for (; *part; part++) text[(*length)++] = *part;
}

static struct word *word_new(micro_random *random, struct word *next)
{
    static const char *const onsets[] = {"b", "c", "d", "f", "g",  "l",  "m", "n",
                                         "p", "r", "s", "t", "st", "tr", "h", "v"};
    static const char *const vowels[] = {"a", "e", "i", "o", "u", "ea", "ou", "y"};
    static const char *const codas[] = {"", "", "", "n", "r", "s", "t", "l"};
    char text[32];
    size_t length = 0;
    for (uint64_t left = micro_between(random, 1, 4); left > 0; left--) {
        append(text, &length, onsets[micro_below(random, MICRO_COUNT(onsets))]);
        append(text, &length, vowels[micro_below(random, MICRO_COUNT(vowels))]);
        append(text, &length, codas[micro_below(random, MICRO_COUNT(codas))]);
    }
    struct word *word = BLOCK_OF(struct word);
    *word = (struct word){next, BLOCK_ARRAY(char, length + 1), (uint32_t)length, 0};
    for (size_t i = 0; i < length; i++) word->letters |= UINT32_C(1) << (text[i] - 'a');
    memcpy(word->text, text, length);
    word->text[length] = '\0';
    return word;
}

/* ------------------------------------------------------------------ a phrase */

static bool fields_lay_out(const char *phrase)
{
    unsigned quad = 0, used = 0;
    memset(fields, 0, sizeof fields);
    memset(guards, 0, sizeof guards);
    for (; *phrase; phrase++) fields[*phrase - 'a'].count++;
    for (size_t i = 0; i < LETTERS; i++) {
        if (fields[i].count == 0) continue;
        unsigned width = 33 - (unsigned)__builtin_clz(fields[i].count); /* its bits and the one in front */
        if (used + width > 64) quad++, used = 0;
        if (quad == QUADS) return false;
        fields[i] = (struct field){(uint8_t)quad, (uint8_t)used, (uint8_t)width, fields[i].count};
        guards[quad] |= UINT64_C(1) << (used + width - 1);
        used += width;
    }
    return true;
}

static void counts_of(const char *text, uint64_t counts[QUADS])
{
    memset(counts, 0, QUADS * sizeof *counts);
    for (; *text; text++) {
        const struct field *field = &fields[*text - 'a'];
        counts[field->quad] += UINT64_C(1) << field->shift;
    }
}

static bool fits(const struct word *word, uint32_t letters, size_t length)
{
    uint8_t used[LETTERS] = {0};
    if (word->length < WORD_LEAST || word->length > length || (word->letters & ~letters)) return false;
    for (const char *text = word->text; *text; text++)
        if (++used[*text - 'a'] > fields[*text - 'a'].count) return false;
    return true;
}

static struct candidate *candidates_find(const struct word *word, const char *phrase)
{
    struct candidate *first = NULL;
    uint32_t letters = 0;
    for (const char *text = phrase; *text; text++) letters |= UINT32_C(1) << (*text - 'a');
    size_t length = strlen(phrase);
    for (; word; word = word->next) {
        if (!fits(word, letters, length)) continue;
        struct candidate *candidate = BLOCK_OF(struct candidate);
        *candidate = (struct candidate){.word = word, .next = first};
        counts_of(word->text, candidate->counts);
        first = candidate;
    }
    return first;
}

/* The candidates by the length of their words: the longest leave least to be searched. */
static void candidates_sort(struct candidate *first)
{
    candidate_count = 0;
    for (uint32_t length = PHRASE_MAX; length >= WORD_LEAST; length--)
        for (struct candidate *candidate = first; candidate; candidate = candidate->next)
            if (candidate->word->length == length) candidates[candidate_count++] = candidate;
}

/* ------------------------------------------------------------------ search */

static void anagram_found(const struct candidate *const *chosen, size_t count, const uint64_t phrase[QUADS])
{
    uint64_t sum[QUADS] = {0}, hash = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t counts[QUADS];
        counts_of(chosen[i]->word->text, counts);
        for (size_t quad = 0; quad < QUADS; quad++) sum[quad] += counts[quad];
        for (const char *text = chosen[i]->word->text; *text; text++) hash = micro_mix(hash + (uint64_t)*text);
    }
    if (memcmp(sum, phrase, sizeof sum) != 0) micro_fail("an anagram has other letters than its phrase");
    found++;
    digest += hash;
}

static void search(const uint64_t left[QUADS], size_t from, const struct candidate **chosen, size_t depth,
                   const uint64_t phrase[QUADS])
{
    for (size_t i = from; i < candidate_count && steps < STEPS_MAX; i++, steps++) {
        uint64_t rest[QUADS];
        bool enough = true, nothing = true;
        for (size_t quad = 0; quad < QUADS; quad++) {
            rest[quad] = left[quad] - candidates[i]->counts[quad];
            enough = enough && (rest[quad] & guards[quad]) == 0;
            nothing = nothing && rest[quad] == 0;
        }
        if (!enough) continue;
        chosen[depth] = candidates[i];
        if (nothing) anagram_found(chosen, depth + 1, phrase);
        else if (depth + 1 < WORDS_MAX) search(rest, i, chosen, depth + 1, phrase);
    }
}

static void phrase_solve(const struct word *dictionary, const char *phrase)
{
    const struct candidate *chosen[WORDS_MAX];
    uint64_t counts[QUADS];
    if (!fields_lay_out(phrase)) return;
    struct candidate *first = candidates_find(dictionary, phrase);
    candidates_sort(first);
    counts_of(phrase, counts);
    steps = 0;
    uint64_t before = found;
    search(counts, 0, chosen, 0, counts);
    if (steps < STEPS_MAX && found == before) micro_fail("the phrase %s is not found in its own words", phrase);
    while (first) {
        struct candidate *next = first->next;
        free(first);
        first = next;
    }
}

/* Two words of the dictionary, so that there is an anagram. */
static bool phrase_make(struct word *const *words, micro_random *random, char phrase[PHRASE_MAX + 1])
{
    const struct word *one = words[micro_below(random, word_count)], *other = words[micro_below(random, word_count)];
    bool good = one->length >= WORD_LEAST && other->length >= WORD_LEAST && one->length + other->length <= PHRASE_MAX;
    if (good) snprintf(phrase, PHRASE_MAX + 1, "%s%s", one->text, other->text);
    return good;
}

static void dictionary_free(struct word *word)
{
    while (word) {
        struct word *next = word->next;
        free(word->text);
        free(word);
        word = next;
    }
}

int main(int argc, char **argv)
{
    char phrase[PHRASE_MAX + 1];
    micro_parse(argc, argv, "which words of a dictionary have together the letters of a phrase?",
                (micro_option[]){{"words", &word_count, true, "of the dictionary"},
                                 {"phrases", &phrases, false, "to find anagrams of"},
                                 {0}});
    micro_require(word_count >= 1000 && word_count < UINT32_MAX && phrases > 0, "1000 words and a phrase at least");
    struct word **words = micro_map(word_count * sizeof *words); /* to make phrases of only */
    candidates = micro_map(word_count * sizeof *candidates);
    micro_random random = micro_random_start(0);
    double start = micro_now();
    struct word *dictionary = NULL;
    for (uint64_t i = 0; i < word_count; i++) words[i] = dictionary = word_new(&random, dictionary);
    for (uint64_t i = 0; i < phrases;) {
        if (!phrase_make(words, &random, phrase)) continue;
        phrase_solve(dictionary, phrase);
        i++;
    }
    dictionary_free(dictionary);
    return micro_report(found, micro_now() - start, digest);
}
