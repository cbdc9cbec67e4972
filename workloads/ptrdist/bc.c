/* What are numbers of thousands of digits, calculated by a script?
 *
 * A relative of bc from the pointer-intensive benchmarks of Austin, Breach and Sohi (PLDI 1994): a calculator of
 * arbitrary precision. A script is parsed to a tree and interpreted. A number is a list of limbs that is shared by
 * all who refer to it and counts them; an array is a table of numbers. All memory comes through one wrapper, as in
 * many programs of that time. The scripts compute Fibonacci's and Lucas' numbers and factorials, and check laws that
 * hold among them; what the tree is evaluated to is compared with the same modulo a prime, which needs no lists.
 */
#include "../micro/micro.h"

static uint64_t terms = 12000, factorial = 3000, sweeps = 12;

enum { BASE = 1000000000, NAMES = 26 };
static const uint64_t PRIME = 2147483629; /* below 2^31: products of residues fit in 64 bits */

/* ------------------------------------------------------------------ memory */

/* Not inlined: it is one place for all, as where it has a file of its own. */
__attribute__((noinline)) static void *memory_take(size_t size)
{
    void *block = malloc(size);
    if (!block) micro_fail("no memory for %zu bytes", size);
    return block;
}

/* ------------------------------------------------------------------ numbers: naturals only */

struct limb {
    struct limb *up, *down; /* to the next more and less significant */
    uint32_t digits; /* below BASE */
};

struct number {
    struct limb *low, *high; /* none: the number is 0 */
    uint64_t residue; /* modulo PRIME, computed beside */
    uint32_t references;
};

static struct number *number_new(uint64_t residue)
{
    struct number *number = memory_take(sizeof *number);
    *number = (struct number){.residue = residue % PRIME, .references = 1};
    return number;
}

static struct number *number_share(struct number *number)
{
    number->references++;
    return number;
}

static void number_drop(struct number *number)
{
    if (!number || --number->references > 0) return;
    for (struct limb *limb = number->low; limb;) {
        struct limb *up = limb->up;
        free(limb);
        limb = up;
    }
    free(number);
}

static struct limb *limb_append(struct number *number, uint32_t digits)
{
    struct limb *limb = memory_take(sizeof *limb);
    *limb = (struct limb){NULL, number->high, digits};
    if (number->high) number->high->up = limb;
    else number->low = limb;
    return number->high = limb;
}

static struct limb *limb_prepend(struct number *number, uint32_t digits)
{
    struct limb *limb = memory_take(sizeof *limb);
    *limb = (struct limb){number->low, NULL, digits};
    if (number->low) number->low->down = limb;
    else number->high = limb;
    return number->low = limb;
}

/* Takes zeros from the top. */
static struct number *number_trim(struct number *number)
{
    while (number->high && number->high->digits == 0) {
        struct limb *zero = number->high;
        number->high = zero->down;
        if (number->high) number->high->up = NULL;
        else number->low = NULL;
        free(zero);
    }
    return number;
}

static struct number *number_of(uint64_t value)
{
    struct number *number = number_new(value);
    for (; value > 0; value /= BASE) limb_append(number, (uint32_t)(value % BASE));
    return number;
}

static struct number *number_add(const struct number *a, const struct number *b)
{
    struct number *sum = number_new(a->residue + b->residue);
    uint32_t carry = 0;
    for (const struct limb *x = a->low, *y = b->low; x || y || carry;) {
        uint32_t digits_sum = (x ? x->digits : 0) + (y ? y->digits : 0) + carry;
        carry = digits_sum >= BASE;
        limb_append(sum, carry ? digits_sum - BASE : digits_sum);
        x = x ? x->up : NULL;
        y = y ? y->up : NULL;
    }
    return sum;
}

static struct number *number_subtract(const struct number *a, const struct number *b)
{
    struct number *rest = number_new(a->residue + PRIME - b->residue);
    uint32_t borrow = 0;
    const struct limb *y = b->low;
    for (const struct limb *x = a->low; x; x = x->up) {
        uint32_t less = (y ? y->digits : 0) + borrow;
        borrow = x->digits < less;
        limb_append(rest, x->digits + (borrow ? BASE : 0) - less);
        y = y ? y->up : NULL;
    }
    if (borrow || y) micro_fail("a difference is below zero");
    return number_trim(rest);
}

/* Adds `a` times `factor` to a number from `at` on. */
static void product_row(struct number *product, struct limb *at, const struct number *a, uint32_t factor)
{
    uint64_t carry = 0;
    for (const struct limb *x = a->low; x || carry; x = x ? x->up : NULL) {
        uint64_t value = carry + at->digits + (x ? (uint64_t)x->digits * factor : 0);
        at->digits = (uint32_t)(value % BASE);
        carry = value / BASE;
        at = at->up ? at->up : limb_append(product, 0);
    }
}

static struct number *number_multiply(const struct number *a, const struct number *b)
{
    struct number *product = number_new(a->residue * b->residue);
    struct limb *at = limb_append(product, 0);
    for (const struct limb *y = b->low; y; y = y->up) {
        product_row(product, at, a, y->digits);
        at = at->up ? at->up : limb_append(product, 0);
    }
    return number_trim(product);
}

static uint64_t residue_of(const struct number *number)
{
    uint64_t residue = 0;
    for (const struct limb *limb = number->high; limb; limb = limb->down)
        residue = (residue * BASE + limb->digits) % PRIME;
    return residue;
}

/* The divisor is one limb; `*remainder` may be NULL. */
static struct number *number_divide(const struct number *a, const struct number *b, struct number **remainder)
{
    if (!b->low || b->low->up) micro_fail("a divisor is not between 1 and %d", BASE - 1);
    struct number *quotient = number_new(0);
    uint64_t rest = 0;
    for (const struct limb *x = a->high; x; x = x->down) {
        rest = rest * BASE + x->digits;
        limb_prepend(quotient, (uint32_t)(rest / b->low->digits));
        rest %= b->low->digits;
    }
    if (remainder) *remainder = number_of(rest);
    number_trim(quotient)->residue = residue_of(quotient);
    return quotient;
}

/* Below, equal, above: -1, 0, 1. */
static int number_compare(const struct number *a, const struct number *b)
{
    int order = 0;
    const struct limb *x = a->low, *y = b->low;
    for (; x && y; x = x->up, y = y->up)
        if (x->digits != y->digits) order = x->digits < y->digits ? -1 : 1;
    return x ? 1 : y ? -1 : order;
}

static void number_check(const struct number *number)
{
    if (residue_of(number) != number->residue) micro_fail("a number is wrong modulo %" PRIu64, PRIME);
}

/* ------------------------------------------------------------------ scripts: the tree */

enum kind { LITERAL, VARIABLE, ELEMENT, OPERATOR, ASSIGN, WHILE, CHECK, SHOW };

struct tree {
    struct tree *left, *right; /* operands; of WHILE the condition and the first statement */
    struct tree *next; /* statement */
    struct number *value; /* of a literal */
    uint8_t kind; /* enum kind */
    char sign; /* of an operator; 'a' to 'z' of a variable or an array */
};

static const char *source; /* what is left of the script */

static struct tree *tree_new(enum kind kind, char sign, struct tree *left, struct tree *right)
{
    struct tree *tree = memory_take(sizeof *tree);
    *tree = (struct tree){.left = left, .right = right, .kind = (uint8_t)kind, .sign = sign};
    return tree;
}

static void tree_free(struct tree *tree)
{
    while (tree) {
        struct tree *next = tree->next;
        tree_free(tree->left);
        tree_free(tree->right);
        number_drop(tree->value);
        free(tree);
        tree = next;
    }
}

static bool accept(char sign)
{
    while (*source == ' ' || *source == '\n') source++;
    if (*source != sign) return false;
    source++;
    return true;
}

static void expect(char sign)
{
    if (!accept(sign)) micro_fail("the script lacks %c before %.20s", sign, source);
}

static struct tree *parse_sum(void);

static struct tree *parse_operand(void)
{
    if (accept('(')) {
        struct tree *inner = parse_sum();
        expect(')');
        return inner;
    }
    if (*source >= '0' && *source <= '9') {
        struct tree *literal = tree_new(LITERAL, 0, NULL, NULL);
        literal->value = number_of(strtoull(source, (char **)&source, 10));
        return literal;
    }
    if (*source < 'a' || *source > 'z') micro_fail("the script lacks an operand before %.20s", source);
    char name = *source++;
    if (!accept('[')) return tree_new(VARIABLE, name, NULL, NULL);
    struct tree *index = parse_sum();
    expect(']');
    return tree_new(ELEMENT, name, index, NULL);
}

static struct tree *parse_product(void)
{
    struct tree *left = parse_operand();
    for (;;) {
        char sign = accept('*') ? '*' : accept('/') ? '/' : accept('%') ? '%' : 0;
        if (!sign) return left;
        left = tree_new(OPERATOR, sign, left, parse_operand());
    }
}

static struct tree *parse_sum(void)
{
    struct tree *left = parse_product();
    for (;;) {
        char sign = accept('+') ? '+' : accept('-') ? '-' : 0;
        if (!sign) return left;
        left = tree_new(OPERATOR, sign, left, parse_product());
    }
}

/* `=` compares, as `<` does: an assignment is written with `:`. */
static struct tree *parse_condition(void)
{
    struct tree *left = parse_sum();
    char sign = accept('<') ? '<' : accept('=') ? '=' : 0;
    return sign ? tree_new(OPERATOR, sign, left, parse_sum()) : left;
}

static struct tree *parse_statements(void)
{
    struct tree *first = NULL, **last = &first;
    while (!accept('}') && *source) {
        if (accept('?')) { /* ?condition{statements} repeats */
            *last = tree_new(WHILE, 0, parse_condition(), NULL);
            expect('{');
            (*last)->right = parse_statements();
        } else if (accept('!')) {
            *last = tree_new(CHECK, 0, parse_condition(), NULL);
            expect(';');
        } else if (accept('>')) {
            *last = tree_new(SHOW, 0, parse_sum(), NULL);
            expect(';');
        } else {
            struct tree *place = parse_operand();
            expect(':');
            *last = tree_new(ASSIGN, 0, place, parse_sum());
            expect(';');
        }
        last = &(*last)->next;
    }
    return first;
}

/* ------------------------------------------------------------------ scripts: run */

static struct number *variables[NAMES];
static struct number **arrays[NAMES];
static size_t lengths[NAMES];
static uint64_t operations, digest;

static uint64_t number_small(const struct number *number)
{
    if (number->low && number->low->up) micro_fail("an index is too large");
    return number->low ? number->low->digits : 0;
}

static struct number *evaluate(const struct tree *tree);

/* Where a variable or an element of an array keeps its number; NULL in it counts as 0. */
static struct number **place_of(const struct tree *tree)
{
    size_t name = (size_t)(tree->sign - 'a');
    if (tree->kind == VARIABLE) return &variables[name];
    struct number *index = evaluate(tree->left);
    size_t at = number_small(index);
    number_drop(index);
    if (at >= lengths[name]) {
        size_t length = 2 * at + 16;
        arrays[name] = realloc(arrays[name], length * sizeof *arrays[name]);
        if (!arrays[name]) micro_fail("no memory for an array of %zu numbers", length);
        memset(arrays[name] + lengths[name], 0, (length - lengths[name]) * sizeof *arrays[name]);
        lengths[name] = length;
    }
    return &arrays[name][at];
}

static struct number *operate(char sign, const struct number *a, const struct number *b)
{
    struct number *remainder = NULL;
    operations++;
    switch (sign) {
    case '+':
        return number_add(a, b);
    case '-':
        return number_subtract(a, b);
    case '*':
        return number_multiply(a, b);
    case '/':
        return number_divide(a, b, NULL);
    case '%':
        number_drop(number_divide(a, b, &remainder));
        return remainder;
    case '<':
        return number_of(number_compare(a, b) < 0);
    default:
        return number_of(number_compare(a, b) == 0);
    }
}

static struct number *evaluate(const struct tree *tree)
{
    if (tree->kind == LITERAL) return number_share(tree->value);
    if (tree->kind != OPERATOR) {
        struct number **place = place_of(tree);
        if (!*place) *place = number_of(0);
        return number_share(*place);
    }
    struct number *a = evaluate(tree->left), *b = evaluate(tree->right);
    struct number *result = operate(tree->sign, a, b);
    number_drop(a);
    number_drop(b);
    return result;
}

static bool is_true(const struct tree *tree)
{
    struct number *number = evaluate(tree);
    bool answer = number->low;
    number_drop(number);
    return answer;
}

static void assign(const struct tree *tree)
{
    struct number *value = evaluate(tree->right), **place = place_of(tree->left);
    number_drop(*place);
    *place = value;
}

static void show(const struct tree *tree)
{
    struct number *number = evaluate(tree->left);
    number_check(number);
    for (const struct limb *limb = number->low; limb; limb = limb->up) digest = micro_mix(digest + limb->digits);
    number_drop(number);
}

static void run(const struct tree *tree)
{
    for (; tree; tree = tree->next) {
        if (tree->kind == WHILE)
            while (is_true(tree->left)) run(tree->right);
        else if (tree->kind == ASSIGN) assign(tree);
        else if (tree->kind == SHOW) show(tree);
        else if (!is_true(tree->left)) micro_fail("a law of numbers does not hold");
    }
}

static void run_script(const char *script)
{
    source = script;
    struct tree *tree = parse_statements();
    run(tree);
    tree_free(tree);
}

static void forget_all(void)
{
    for (size_t name = 0; name < NAMES; name++) {
        number_drop(variables[name]);
        for (size_t i = 0; i < lengths[name]; i++) number_drop(arrays[name][i]);
        free(arrays[name]);
    }
}

/* ------------------------------------------------------------------ the scripts */

/* Fibonacci's and Lucas' numbers, made in turn. */
static const char *const SEQUENCES = "f[0]:0; f[1]:1; l[0]:2; l[1]:1; i:0;"
                                     "?i<n{ f[i+2]: f[i]+f[i+1]; l[i+2]: l[i]+l[i+1]; i: i+1; } >f[n]; >l[n];";

/* Their sums, the quotients by a small number, and how the two sequences hang together, over all of them. */
static const char *const SWEEPS = "j:0; ?j<m{ i:0; s:0; t:0; ?i<n{ s: s+f[i]; t: t+l[i]; i: i+1; }"
                                  "!s+1 = f[n+1]; !t+1 = l[n+1]; i:1; ?i<n{ !f[i-1]+f[i+1] = l[i]; i: i+1; } j: j+1; }";

/* Cassini's law, for numbers far apart; the factorial of d, and back from it to 1. */
static const char *const PRODUCTS = "i:2; ?i<n{ !f[i]*f[i]+1 = f[i-1]*f[i+1]; i: i+n/16/2*2+2; } >f[n]*l[n];"
                                    "i:1; k:1; ?i<d+1{ k: k*i; i: i+1; } >k; ?1<i{ i: i-1; !k%i = 0; k: k/i; } !k = 1;";

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what are numbers of thousands of digits, calculated by a script?",
                (micro_option[]){{"terms", &terms, true, "of each of two sequences"},
                                 {"factorial", &factorial, true, "of which a factorial is taken"},
                                 {"sweeps", &sweeps, false, "over the sequences"},
                                 {0}});
    micro_require(terms >= 16 && terms < 1000000 && factorial >= 1 && factorial < 100000,
                  "16 terms at least, a million at most");
    double start = micro_now();
    variables['n' - 'a'] = number_of(terms);
    variables['d' - 'a'] = number_of(factorial);
    variables['m' - 'a'] = number_of(sweeps);
    run_script(SEQUENCES);
    run_script(SWEEPS);
    run_script(PRODUCTS);
    forget_all();
    return micro_report(operations, micro_now() - start, digest);
}
