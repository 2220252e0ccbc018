/* What masks are charged: the same whoever asks and whatever was computed before, for all places of
 * a mask together; and the work itself stays within it. */
#include "grammar_texts.h"

#include "sample/grammar_mask.h"

#include <stdlib.h>

#define LETTERS 6u
#define DEPTH   6u
#define NODES   55987u /* 6^0 + … + 6^6 */

/* Every text of up to six letters of a to f is a token. */
typedef struct full_trie {
    token_trie trie;
    trie_node nodes[NODES + 1];
    int32_t ids[NODES];
} full_trie;

static uint32_t grow(full_trie *t, uint32_t at, uint16_t depth, uint8_t byte) {
    uint32_t here = at++;
    t->nodes[here] = (trie_node){.tokens = here == 0 ? 0 : here - 1, .depth = depth, .byte = byte};
    for (uint32_t i = 0; i < LETTERS && depth < DEPTH; i++)
        at = grow(t, at, (uint16_t)(depth + 1), (uint8_t)('a' + i));
    t->nodes[here].end = at;
    return at;
}

static full_trie *full_trie_open(void) {
    full_trie *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    assert_int_equal(grow(t, 0, 0, 0), NODES);
    t->nodes[NODES] = (trie_node){.end = NODES + 1, .tokens = NODES - 1};
    for (uint32_t i = 0; i < NODES; i++)
        t->ids[i] = (int32_t)i;
    t->trie = (token_trie){.nodes = t->nodes,
                           .count = NODES,
                           .depth_max = DEPTH,
                           .ids = t->ids,
                           .token_count = NODES - 1,
                           .vocabulary = NODES - 1};
    return t;
}

typedef struct stage {
    texts t;
    full_trie *trie;
    grammar_masks *masks;
    uint64_t bits[NODES / 64 + 1];
} stage;

static void open_masks(stage *s) {
    assert_ok_error(
        grammar_masks_open(&s->t.net, &s->trie->trie, NODES - 1, NULL, &s->masks, &s->t.error),
        &s->t.error);
}

static stage *open_stage(const char *grammar) {
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    assert_ok_error(texts_open(&s->t, AVO_GRAMMAR_GBNF, grammar), &s->t.error);
    s->trie = full_trie_open();
    open_masks(s);
    return s;
}

static void close_stage(stage *s) {
    grammar_masks_close(s->masks);
    texts_close(&s->t);
    free(s->trie);
    free(s);
}

/* A mask of all places behind `text`, which may be charged `most`. */
static avo_status mask(stage *s, const char *text, bool first, uint64_t most, uint64_t *charged) {
    uint64_t walked = 0;
    avo_status status = AVO_OK;
    assert_true(texts_fit(&s->t, text, strlen(text)) != FIT_NO);
    memset(s->bits, 0, sizeof(s->bits));
    grammar_masks_begin(s->masks, most);
    for (uint32_t i = 0; i < s->t.now.seen_count && status == AVO_OK; i++)
        if (net_takes_byte(&s->t.net.states[s->t.now.seen[i].state]))
            status = grammar_masks_add(s->masks, &s->t.frames, s->t.now.seen[i], first, s->bits,
                                       &s->t.error);
    *charged = grammar_masks_charged(s->masks, &walked);
    assert_true(walked <= *charged);
    return status;
}

static const char list_grammar[] = "root ::= w (\"a\" w)* | n n \"f\"\nw ::= [b-e] w | [b-e]\n"
                                   "n ::= [a-f] n | [a-f]\n";

static void test_same_charge(void **state) {
    (void)state;
    stage *s = open_stage(list_grammar);
    uint64_t cold = 0, warm = 0, known = 0, other = 0;
    assert_ok_error(mask(s, "b", true, MASK_VISITS_MAX, &cold), &s->t.error);
    uint64_t bits[NODES / 64 + 1];
    memcpy(bits, s->bits, sizeof(bits));
    assert_true(cold > NODES); /* more than one walk over the vocabulary */
    uint64_t before = grammar_masks_visits(s->masks);
    assert_ok(mask(s, "b", true, MASK_VISITS_MAX, &warm));
    assert_int_equal(warm, cold);
    assert_memory_equal(bits, s->bits, sizeof(bits));
    assert_true(grammar_masks_visits(s->masks) - before < cold); /* though less was done */
    assert_ok(mask(s, "b", false, MASK_VISITS_MAX, &known));
    assert_true(known > 0 && known < cold); /* the answer was there before */
    /* One less is too little, whether the masks are kept or must be computed. */
    assert_ok(mask(s, "b", true, cold, &other));
    assert_int_equal(mask(s, "b", true, cold - 1, &other), AVO_ERROR_LIMIT);
    assert_non_null(strstr(s->t.error.text, "the token masks of this answer"));
    grammar_masks_close(s->masks);
    open_masks(s);
    assert_int_equal(mask(s, "b", true, cold - 1, &other), AVO_ERROR_LIMIT);
    assert_ok(mask(s, "b", true, cold, &other));
    assert_int_equal(other, cold);
    /* What was prepared is not charged. */
    grammar_masks_close(s->masks);
    open_masks(s);
    assert_ok(grammar_masks_prepare(s->masks, &s->t.error));
    assert_ok(mask(s, "b", true, MASK_VISITS_MAX, &other));
    assert_int_equal(other, known);
    close_stage(s);
}

/* Each place is cheap enough, all of them are not: one bound for the mask. */
static void test_all_places(void **state) {
    (void)state;
    static const char letters[] = "abc";
    char grammar[8192];
    char *at = grammar;
    for (int i = 0; i < 60; i++)
        at += snprintf(at, 128, "%s a%d b%d c%d \"x\"", i == 0 ? "root ::=" : " |", i, i, i);
    for (int i = 0; i < 60; i++)
        for (int r = 0; r < 3; r++)
            at += snprintf(at, 128, "\n%c%d ::= [^x] %c%d | [^x]", letters[r], i, letters[r], i);
    stage *s = open_stage(grammar);
    uint64_t charged = 0;
    assert_int_equal(mask(s, "a", true, MASK_VISITS_MAX, &charged), AVO_ERROR_LIMIT);
    assert_non_null(strstr(s->t.error.text, "a token mask takes more than 16777216 visits"));
    uint64_t before = grammar_masks_visits(s->masks);
    for (int i = 0; i < 3; i++) /* kept or not, it stays so, and what is done stays within it */
        assert_int_equal(mask(s, "a", true, MASK_VISITS_MAX, &charged), AVO_ERROR_LIMIT);
    assert_true(grammar_masks_visits(s->masks) - before <= 3 * (MASK_VISITS_MAX + NODES));
    close_stage(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_charge),
                                       cmocka_unit_test(test_all_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
