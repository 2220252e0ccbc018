/* spec/passage: a copy that differs from its source here and there is followed past the difference.
 */
#include "support/support.h"

#include "spec/passage.h"

/* Source 100 … 119, then what was copied of it; `copied` tokens of the copy have come. */
typedef struct copy {
    int32_t tokens[64];
    uint32_t count;
    passage passage;
} copy;

static draft_timeline timeline_of(const copy *c, uint32_t dropped) {
    return (draft_timeline){c->tokens + dropped, c->count - dropped, c->count};
}

static void push(copy *c, int32_t token, uint32_t dropped) {
    c->tokens[c->count++] = token;
    draft_timeline timeline = timeline_of(c, dropped);
    passage_follow(&c->passage, &timeline, c->count - 1, token);
}

static copy begin(void) {
    copy c = {.count = 0};
    for (int32_t i = 0; i < 20; i++)
        push(&c, 100 + i, 0);
    for (int32_t i = 0; i < 4; i++)
        push(&c, 100 + i, 0);
    passage_found(&c.passage, 4, 4);
    return c;
}

static void expect(const copy *c, uint32_t dropped, uint32_t most, int32_t first, uint32_t count,
                   uint32_t match) {
    int32_t drafts[16];
    uint32_t found;
    draft_timeline timeline = timeline_of(c, dropped);
    assert_int_equal(passage_propose(&c->passage, &timeline, most, drafts, &found), count);
    if (count == 0)
        return;
    assert_int_equal(found, match);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(drafts[i], first + (int32_t)i);
}

static void it_goes_on_behind_a_replaced_token(void **state) {
    (void)state;
    copy c = begin();
    expect(&c, 0, 3, 104, 3, 16);
    push(&c, 104, 0);
    expect(&c, 0, 3, 105, 3, 16);
    push(&c, 7, 0); /* instead of 105 */
    expect(&c, 0, 3, 106, 3, 1);
    push(&c, 106, 0);
    expect(&c, 0, 3, 107, 3, 16);
    push(&c, 7, 0); /* two instead of 107 */
    push(&c, 8, 0);
    expect(&c, 0, 3, 108, 3, 2);
    push(&c, 108, 0);
    expect(&c, 0, 3, 109, 3, 16);
}

static void insertions_and_equal_lengths(void **state) {
    (void)state;
    copy c = begin();
    push(&c, 7, 0);
    push(&c, 104, 0); /* inserted before it */
    expect(&c, 0, 2, 105, 2, 16);
    push(&c, 7, 0);
    push(&c, 8, 0);
    push(&c, 107, 0); /* two for two: 105 and 106 */
    expect(&c, 0, 2, 108, 2, 16);
}

static void it_ends(void **state) {
    (void)state;
    copy c = begin();
    for (int32_t i = 0; i < PASSAGE_ASTRAY_MAX; i++)
        push(&c, 7, 0);
    expect(&c, 0, 2, 105, 2, PASSAGE_ASTRAY_MAX);
    push(&c, 7, 0);
    expect(&c, 0, 2, 0, 0, 0);
    passage_found(&c.passage, 4, PASSAGE_RUN_LEAST - 1); /* too short */
    expect(&c, 0, 2, 0, 0, 0);
    passage_found(&c.passage, c.count, PASSAGE_RUN_LEAST); /* nothing behind it yet */
    expect(&c, 0, 2, 0, 0, 0);
}

static void a_ring_may_have_dropped_the_source(void **state) {
    (void)state;
    copy c = begin();
    expect(&c, 4, 2, 104, 2, 16);
    expect(&c, 5, 2, 0, 0, 0);
    push(&c, 104, 5); /* cannot be compared any more: astray */
    expect(&c, 5, 2, 105, 2, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_behind_a_replaced_token),
        cmocka_unit_test(insertions_and_equal_lengths),
        cmocka_unit_test(it_ends),
        cmocka_unit_test(a_ring_may_have_dropped_the_source),
    };
    return cmocka_run_group_tests_name("spec/passage", tests, NULL, NULL);
}
