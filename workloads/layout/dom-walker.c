/* What does it cost to parse a large document, and to walk and edit its tree many times?
 *
 * Reads an XML document from standard input, as often as it is told to, into one tree: an object for each element
 * and each text, lists of attributes, and every name and text in a block of its own. Each round walks the whole tree
 * three times, as the users of such a tree do (what tags are there and how much text; which anchors do the links
 * lead to; what does the text say), and then edits it: paragraphs are removed and others copied in their place,
 * texts are split, marked and rewritten. In the end the tree is written, and the text parsed again and written
 * again: both must be the same.
 *
 * Of XML it knows what such documents consist of: elements, attributes, text and comments (left out). Text is kept
 * as written.
 */
#include "../micro/micro.h"

static uint64_t copies = 2, rounds = 30, edits = 10;

enum { NAMES_MAX = 4096, NAME_LONGEST = 256, DEPTH_MAX = 10000, ANCHORS = 1 << 20 };

struct attribute {
    struct attribute *next;
    const char *name; /* of the table */
    char *value;
};

/* An element, or a text: that has no name. */
struct node {
    struct node *parent, *first, *last, *next, *previous;
    const char *name; /* of the table */
    struct attribute *attributes;
    char *text;
};

static struct node *root;
static uint64_t operations, digest;

/* ------------------------------------------------------------------ names: one block for each */

static char *names[NAMES_MAX];

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return micro_mix(hash);
}

static char *text_new(const char *text, size_t length)
{
    char *copy = BLOCK_ARRAY(char, length + 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

static const char *name_find(const char *text, size_t length)
{
    size_t at = hash_of(text, length) % NAMES_MAX;
    for (size_t tries = 0; tries < NAMES_MAX; tries++, at = (at + 1) % NAMES_MAX) {
        if (!names[at]) return names[at] = text_new(text, length);
        if (strncmp(names[at], text, length) == 0 && names[at][length] == '\0') return names[at];
    }
    micro_fail("the document has more than %d names", NAMES_MAX);
}

/* ------------------------------------------------------------------ the tree */

static struct node *element_new(const char *name)
{
    struct node *node = BLOCK_OF(struct node);
    *node = (struct node){.name = name};
    return node;
}

static struct node *text_node_new(const char *text, size_t length)
{
    struct node *node = BLOCK_OF(struct node);
    *node = (struct node){.text = text_new(text, length)};
    return node;
}

/* `value` becomes the attribute's. */
static void attribute_add(struct node *node, const char *name, char *value)
{
    struct attribute **last = &node->attributes;
    while (*last) last = &(*last)->next;
    *last = BLOCK_OF(struct attribute);
    **last = (struct attribute){NULL, name, value};
}

static const char *attribute_value(const struct node *node, const char *name)
{
    for (const struct attribute *attribute = node->attributes; attribute; attribute = attribute->next)
        if (attribute->name == name) return attribute->value;
    return NULL;
}

/* Before `before`, or at the end. */
static void node_insert(struct node *parent, struct node *node, struct node *before)
{
    node->parent = parent;
    node->next = before;
    node->previous = before ? before->previous : parent->last;
    if (node->previous) node->previous->next = node;
    else parent->first = node;
    if (before) before->previous = node;
    else parent->last = node;
}

static void node_take(struct node *node)
{
    if (node->previous) node->previous->next = node->next;
    else node->parent->first = node->next;
    if (node->next) node->next->previous = node->previous;
    else node->parent->last = node->previous;
    node->parent = node->next = node->previous = NULL;
}

static void node_free(struct node *node)
{
    while (node->first) {
        struct node *child = node->first;
        node_take(child);
        node_free(child);
    }
    while (node->attributes) {
        struct attribute *next = node->attributes->next;
        free(node->attributes->value);
        free(node->attributes);
        node->attributes = next;
    }
    free(node->text);
    free(node);
}

static struct node *node_copy(const struct node *node)
{
    if (!node->name) return text_node_new(node->text, strlen(node->text));
    struct node *copy = element_new(node->name);
    for (const struct attribute *attribute = node->attributes; attribute; attribute = attribute->next)
        attribute_add(copy, attribute->name, text_new(attribute->value, strlen(attribute->value)));
    for (const struct node *child = node->first; child; child = child->next) node_insert(copy, node_copy(child), NULL);
    return copy;
}

/* The next node in the order of the document; NULL after the last below `top`. */
static struct node *node_after(const struct node *node, const struct node *top)
{
    if (node->first) return node->first;
    while (node != top && !node->next) node = node->parent;
    return node == top ? NULL : node->next;
}

/* ------------------------------------------------------------------ parsing */

static const char *at; /* what is left of the document */

static bool accept(const char *sign)
{
    size_t length = strlen(sign);
    if (strncmp(at, sign, length) != 0) return false;
    at += length;
    return true;
}

static void expect(const char *sign)
{
    if (!accept(sign)) micro_fail("the document lacks %s before %.30s", sign, at);
}

static void skip_past(const char *sign)
{
    const char *end = strstr(at, sign);
    if (!end) micro_fail("the document ends without %s", sign);
    at = end + strlen(sign);
}

static const char *parse_name(void)
{
    size_t length = strcspn(at, " \t\n\r/>=<\"");
    if (length == 0 || length > NAME_LONGEST) micro_fail("the document lacks a name before %.30s", at);
    at += length;
    return name_find(at - length, length);
}

static void skip_spaces(void)
{
    at += strspn(at, " \t\n\r");
}

/* Returns whether the element is empty; `at` is behind its start tag then. */
static bool parse_attributes(struct node *node)
{
    for (skip_spaces();; skip_spaces()) {
        if (accept("/>")) return true;
        if (accept(">")) return false;
        const char *name = parse_name();
        expect("=\"");
        size_t length = strcspn(at, "\"<");
        attribute_add(node, name, text_new(at, length));
        at += length;
        expect("\"");
    }
}

static void parse_into(struct node *top)
{
    uint64_t depth = 0;
    for (struct node *open = top; *at;) {
        if (accept("<!--")) {
            skip_past("-->");
        } else if (accept("<?")) {
            skip_past("?>");
        } else if (accept("</")) {
            if (open == top || parse_name() != open->name)
                micro_fail("the document has a wrong end tag before %.30s", at);
            expect(">");
            open = open->parent;
            depth--;
        } else if (accept("<")) {
            struct node *element = element_new(parse_name());
            node_insert(open, element, NULL);
            if (parse_attributes(element)) continue;
            open = element;
            if (++depth > DEPTH_MAX) micro_fail("the document is too deep");
        } else {
            size_t length = strcspn(at, "<");
            node_insert(open, text_node_new(at, length), NULL);
            at += length;
        }
    }
    if (depth > 0) micro_fail("the document ends within an element");
}

static struct node *parse(const char *document, uint64_t times)
{
    struct node *top = element_new(name_find("documents", 9));
    for (uint64_t i = 0; i < times; i++) {
        at = document;
        parse_into(top);
    }
    return top;
}

/* ------------------------------------------------------------------ writing */

/* Mapped, and as large as it may ever become: what is not written to costs nothing. */
struct output {
    char *text;
    size_t length, most;
};

static void put(struct output *output, const char *text)
{
    size_t length = strlen(text);
    if (output->length + length >= output->most) micro_fail("the document has grown too much");
    memcpy(output->text + output->length, text, length);
    output->length += length;
}

static void write_start(struct output *output, const struct node *node)
{
    put(output, "<");
    put(output, node->name);
    for (const struct attribute *attribute = node->attributes; attribute; attribute = attribute->next) {
        put(output, " ");
        put(output, attribute->name);
        put(output, "=\"");
        put(output, attribute->value);
        put(output, "\"");
    }
    put(output, node->first ? ">" : "/>");
}

static void write_node(struct output *output, const struct node *node)
{
    if (!node->name) {
        put(output, node->text);
        return;
    }
    write_start(output, node);
    for (const struct node *child = node->first; child; child = child->next) {
        if (child->parent != node || (child->next && child->next->previous != child)) micro_fail("the tree is torn");
        write_node(output, child);
    }
    if (!node->first) return;
    put(output, "</");
    put(output, node->name);
    put(output, ">");
}

/* What is in a tree, without the element at its top. */
static struct output write_tree(const struct node *top, size_t most)
{
    struct output output = {micro_map(most), 0, most};
    for (const struct node *child = top->first; child; child = child->next) write_node(&output, child);
    return output;
}

/* ------------------------------------------------------------------ walks */

static uint64_t count_walk(void)
{
    uint64_t elements = 0, texts = 0, attributes = 0;
    for (const struct node *node = root; node; node = node_after(node, root)) {
        elements += node->name != NULL;
        texts += node->name == NULL;
        for (const struct attribute *attribute = node->attributes; attribute; attribute = attribute->next) attributes++;
        operations++;
    }
    return micro_mix(elements) + micro_mix(texts * 3) + attributes;
}

/* How many links lead to an anchor of the document: anchors by their hashes, in a table of bits. */
static uint64_t link_walk(void)
{
    static uint64_t bits[ANCHORS / 64];
    const char *id = name_find("id", 2), *href = name_find("href", 4), *value;
    uint64_t found = 0;
    memset(bits, 0, sizeof bits);
    for (const struct node *node = root; node; node = node_after(node, root))
        if (node->name && (value = attribute_value(node, id))) {
            uint64_t hash = hash_of(value, strlen(value)) % ANCHORS;
            bits[hash / 64] |= UINT64_C(1) << hash % 64;
        }
    for (const struct node *node = root; node; node = node_after(node, root))
        if (node->name && (value = attribute_value(node, href)) && *value == '#') {
            uint64_t hash = hash_of(value + 1, strlen(value + 1)) % ANCHORS;
            found += bits[hash / 64] >> hash % 64 & 1;
        }
    return found;
}

static uint64_t text_walk(void)
{
    uint64_t words = 0;
    for (const struct node *node = root; node; node = node_after(node, root)) {
        bool inside = false;
        for (const char *text = node->text; text && *text; text++) {
            words += !inside && *text > ' ';
            inside = *text > ' ';
        }
    }
    return words;
}

/* ------------------------------------------------------------------ edits */

/* Splits a text and puts its first half into an element of its own. */
static void text_mark(struct node *node)
{
    char *space = strchr(node->text + 1, ' '); /* neither half is empty: an empty text cannot be written */
    if (!space) return;
    struct node *mark = element_new(name_find("mark", 4));
    attribute_add(mark, name_find("class", 5), text_new("found", 5));
    node_insert(node->parent, mark, node);
    node_insert(mark, text_node_new(node->text, (size_t)(space - node->text)), NULL);
    char *rest = text_new(space, strlen(space));
    free(node->text);
    node->text = rest;
}

/* A longer text takes the place of a text. */
static void text_rewrite(struct node *node)
{
    size_t length = strlen(node->text);
    if (length > 2000) return;
    node->text = block_accept(realloc(node->text, length + 8), length + 8);
    memcpy(node->text + length, " again.", 8);
}

/* A copy of another paragraph takes the place of this one. Returns the copy. */
static struct node *paragraph_replace(struct node *node, const struct node *model)
{
    struct node *copy = node_copy(model);
    node_insert(node->parent, copy, node);
    node_take(node);
    node_free(node);
    return copy;
}

/* Of the paragraphs that are chosen, every other one is copied to the place of the next: never a copy once more, which
 * would gather the edits of all before it. */
static struct node *paragraph_edit(struct node *node, const struct node **model)
{
    const struct node *before = *model;
    *model = before ? NULL : node;
    return before ? paragraph_replace(node, before) : node;
}

/* Of a thousand nodes, `edits` are changed, roughly. */
static void edit_all(micro_random *random)
{
    const char *paragraph = name_find("p", 1);
    const struct node *model = NULL;
    for (struct node *node = root, *next; node; node = next) {
        uint64_t lot = micro_below(random, 1000);
        next = node_after(node, root);
        if (lot >= edits || node == root) continue;
        if (node->name == paragraph) {
            node = paragraph_edit(node, &model);
            next = node_after(node, root);
        } else if (!node->name) {
            if (lot % 2) text_rewrite(node);
            else text_mark(node);
        }
        operations++;
    }
}

/* ------------------------------------------------------------------ the run */

static char *read_all(size_t *length)
{
    const size_t most = (size_t)1 << 30;
    char *text = micro_map(most);
    *length = fread(text, 1, most - 1, stdin);
    if (*length == 0 || ferror(stdin)) micro_fail("there is no document on standard input");
    return text;
}

static void written_check(size_t most)
{
    struct output written = write_tree(root, most);
    struct node *again = parse(written.text, 1);
    struct output rewritten = write_tree(again, most);
    if (written.length != rewritten.length || memcmp(written.text, rewritten.text, written.length) != 0)
        micro_fail("the document is not the same when it is parsed again");
    digest += hash_of(written.text, written.length);
    node_free(again);
    munmap(written.text, most);
    munmap(rewritten.text, most);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost to parse a document, and to walk and edit its tree many times?",
                (micro_option[]){{"copies", &copies, false, "of the document in the tree"},
                                 {"rounds", &rounds, true, "of walks and edits"},
                                 {"edits", &edits, false, "nodes of a thousand that a round may change"},
                                 {0}});
    micro_require(copies > 0 && copies <= 1000 && edits <= 1000, "1 to 1000 copies, 1000 of a thousand at most");
    size_t length;
    char *document = read_all(&length);
    micro_random random = micro_random_start(0);
    double start = micro_now();
    root = parse(document, copies);
    for (uint64_t i = 0; i < rounds; i++) {
        digest = micro_mix(digest) + count_walk() + link_walk() + text_walk();
        edit_all(&random);
    }
    written_check(length * copies * 8 + (1 << 20));
    node_free(root);
    for (size_t i = 0; i < NAMES_MAX; i++) free(names[i]);
    return micro_report(operations, micro_now() - start, digest);
}
