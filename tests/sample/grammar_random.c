/* Random grammars and texts against a matcher that is slow and plainly right: every expression maps
 * a set of positions in the text to the set of positions where it may have ended. */
#include "grammar_texts.h"

#include "base/random.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define GRAMMARS 400
#else
#define GRAMMARS 2000
#endif
#define TEXTS    40
#define TEXT_MAX 14
#define RULES    4

typedef struct dice {
    uint64_t seed, at;
} dice;

static uint32_t roll(dice *dice, uint32_t sides) {
    return random_at(dice->seed, 5, dice->at++).words[0] % sides;
}

/* ---- Random expressions ---- */

typedef enum kind { LITERAL, CLASS, NEGATED, SEQUENCE, CHOICE, REPEAT, RULE } kind;

typedef struct node {
    kind kind;
    const char *text; /* literal; characters of a class */
    struct node *items[3];
    uint32_t count, least, most;
    uint32_t rule;
} node;

typedef struct world {
    node nodes[400];
    uint32_t count;
    node *rules[RULES];
    char text[16384];
    size_t size;
} world;

static const char *const literals[] = {"a", "b", "ab", "ba", "\xC3\xA9", "", "aa"};
static const char *const classes[] = {"a", "ab", "b\xC3\xA9", "\xC3\xA9", "abc"};

/* A rule may name later ones, and itself or earlier ones only behind a letter: no left recursion.
 * `first`: nothing stands before it in its rule. */
static node *make(world *w, dice *dice, uint32_t depth, uint32_t rule) {
    assert_true(w->count < 400);
    node *made = &w->nodes[w->count++];
    *made = (node){0};
    made->kind = depth == 0 ? (kind)roll(dice, 3) : (kind)roll(dice, 7);
    switch (made->kind) {
    case LITERAL:
        made->text = literals[roll(dice, 7)];
        break;
    case CLASS:
    case NEGATED:
        made->text = classes[roll(dice, 5)];
        break;
    case SEQUENCE:
    case CHOICE:
        made->count = 1 + roll(dice, 3);
        for (uint32_t i = 0; i < made->count; i++)
            made->items[i] = make(w, dice, depth - 1, rule);
        break;
    case REPEAT:
        made->count = 1;
        made->items[0] = make(w, dice, depth - 1, rule);
        made->least = roll(dice, 3);
        made->most = roll(dice, 3) == 0 ? UINT32_MAX : made->least + roll(dice, 3);
        break;
    case RULE:
        made->rule = roll(dice, RULES);
        if (made->rule > rule)
            break;
        /* "a" rule | "b" */
        node *self = &w->nodes[w->count++];
        node *letter = &w->nodes[w->count++];
        node *both = &w->nodes[w->count++];
        node *other = &w->nodes[w->count++];
        *self = (node){.kind = RULE, .rule = made->rule};
        *letter = (node){.kind = LITERAL, .text = "a"};
        *both = (node){.kind = SEQUENCE, .items = {letter, self}, .count = 2};
        *other = (node){.kind = LITERAL, .text = "b"};
        *made = (node){.kind = CHOICE, .items = {both, other}, .count = 2};
        break;
    }
    return made;
}

static void put(world *w, const char *text) {
    w->size += (size_t)snprintf(w->text + w->size, sizeof(w->text) - w->size, "%s", text);
}

static void print(world *w, const node *n) {
    char number[64];
    switch (n->kind) {
    case LITERAL:
        put(w, "\"");
        put(w, n->text);
        put(w, "\"");
        break;
    case CLASS:
    case NEGATED:
        put(w, n->kind == CLASS ? "[" : "[^");
        put(w, n->text);
        put(w, "]");
        break;
    case SEQUENCE:
    case CHOICE:
        put(w, "(");
        for (uint32_t i = 0; i < n->count; i++) {
            put(w, i == 0 ? "" : n->kind == CHOICE ? " | " : " ");
            print(w, n->items[i]);
        }
        put(w, ")");
        break;
    case REPEAT:
        print(w, n->items[0]);
        if (n->most == UINT32_MAX)
            (void)snprintf(number, sizeof(number), "{%u,}", n->least);
        else
            (void)snprintf(number, sizeof(number), "{%u,%u}", n->least, n->most);
        put(w, number);
        break;
    case RULE:
        (void)snprintf(number, sizeof(number), "r%u", n->rule);
        put(w, number);
        break;
    }
}

/* ---- The slow matcher ---- */

typedef struct slow {
    const world *world;
    const char *text;
    size_t size;
} slow;

static bool in_class(const char *set, const char *character, size_t bytes) {
    for (const char *at = set; *at != '\0'; at += (unsigned char)*at >= 0x80 ? 2 : 1)
        if (memcmp(at, character, bytes) == 0)
            return true;
    return false;
}

/* The character at a position: 1 byte, or the 2 of é; other bytes are no character. */
static size_t character(const slow *s, size_t at) {
    unsigned char c = at < s->size ? (unsigned char)s->text[at] : 0xFF;
    if (c < 0x80)
        return 1;
    return c == 0xC3 && at + 1 < s->size && (unsigned char)s->text[at + 1] == 0xA9 ? 2 : 0;
}

static uint32_t match(const slow *s, const node *n, uint32_t from, uint32_t fuel);

static uint32_t match_repeat(const slow *s, const node *n, uint32_t from, uint32_t fuel) {
    uint32_t reached = n->least == 0 ? from : 0;
    uint32_t now = from;
    /* Beyond so many rounds nothing new comes: each that matters takes a byte. */
    for (uint32_t round = 1; round <= n->most && round <= n->least + TEXT_MAX + 1; round++) {
        now = match(s, n->items[0], now, fuel);
        if (round >= n->least)
            reached |= now;
    }
    return reached;
}

static uint32_t match(const slow *s, const node *n, uint32_t from, uint32_t fuel) {
    uint32_t reached = 0;
    if (from == 0 || fuel == 0)
        return 0;
    switch (n->kind) {
    case LITERAL:
        for (size_t at = 0; at <= s->size; at++)
            if ((from >> at & 1) && s->size - at >= strlen(n->text) &&
                memcmp(s->text + at, n->text, strlen(n->text)) == 0)
                reached |= 1u << (at + strlen(n->text));
        return reached;
    case CLASS:
    case NEGATED:
        for (size_t at = 0; at < s->size; at++) {
            size_t bytes = character(s, at);
            if ((from >> at & 1) && bytes > 0 &&
                in_class(n->text, s->text + at, bytes) == (n->kind == CLASS))
                reached |= 1u << (at + bytes);
        }
        return reached;
    case SEQUENCE:
        for (uint32_t i = 0; i < n->count; i++)
            from = match(s, n->items[i], from, fuel);
        return from;
    case CHOICE:
        for (uint32_t i = 0; i < n->count; i++)
            reached |= match(s, n->items[i], from, fuel);
        return reached;
    case REPEAT:
        return match_repeat(s, n, from, fuel);
    case RULE:
        return match(s, s->world->rules[n->rule], from, fuel - 1);
    }
    return 0;
}

/* ---- Both ---- */

static void make_text(dice *dice, char *text, size_t *size) {
    static const char *const parts[] = {"a", "b", "a", "b", "\xC3\xA9", "\xC3", "\xA9", "c"};
    size_t wanted = roll(dice, TEXT_MAX - 1);
    *size = 0;
    while (*size < wanted) {
        const char *part = parts[roll(dice, 8)];
        memcpy(text + *size, part, strlen(part));
        *size += strlen(part);
    }
}

static void compare(world *w, texts *t, dice *dice, uint32_t *accepted) {
    char text[TEXT_MAX + 2];
    size_t size;
    make_text(dice, text, &size);
    slow s = {w, text, size};
    bool wanted = (match(&s, w->rules[0], 1, 2 * TEXT_MAX) >> size & 1) != 0;
    fit fit = texts_fit(t, text, size);
    if ((fit == FIT_WHOLE) != wanted)
        fail_msg("%s\non \"%.*s\": %d here, %d in truth", w->text, (int)size, text, (int)fit,
                 (int)wanted);
    *accepted += wanted;
    /* What is accepted was possible all along. */
    for (size_t i = 0; wanted && i < size; i++)
        if (texts_fit(t, text, i) == FIT_NO)
            fail_msg("%s\non \"%.*s\": its beginning does not fit", w->text, (int)i, text);
}

static void test_random(void **state) {
    (void)state;
    static world w;
    uint32_t accepted = 0;
    uint32_t compiled = 0;
    for (uint64_t seed = 1; seed <= GRAMMARS; seed++) {
        dice dice = {seed, 0};
        texts t;
        w.count = 0;
        w.size = 0;
        for (uint32_t i = 0; i < RULES; i++) {
            w.rules[i] = make(&w, &dice, i == 0 ? 3 : 2, i);
            put(&w, i == 0   ? "root ::= r0\nr0 ::= "
                    : i == 1 ? "r1 ::= "
                    : i == 2 ? "r2 ::= "
                             : "r3 ::= ");
            print(&w, w.rules[i]);
            put(&w, "\n");
        }
        assert_true(w.size < sizeof(w.text) - 1);
        avo_status status = texts_open(&t, AVO_GRAMMAR_GBNF, w.text);
        if (status != AVO_OK && strstr(t.error.text, "no text can match the grammar") == NULL)
            fail_msg("%s: %s", w.text, t.error.text);
        compiled += status == AVO_OK;
        for (int i = 0; status == AVO_OK && i < TEXTS; i++)
            compare(&w, &t, &dice, &accepted);
        texts_close(&t);
    }
    assert_true(compiled > GRAMMARS * 9 / 10);
    assert_true(accepted > GRAMMARS * TEXTS / 50); /* or the test would show little */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
