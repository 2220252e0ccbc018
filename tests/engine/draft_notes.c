/* engine/draft_notes, engine/draft_policy: what the laboratory sees of steps adds up to the result,
 * looking changes nothing, and lossy policies accept what they say and only while they are set. */
#include "support/support.h"

#include "engine/draft_notes.h"
#include "engine/draft_policy.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <math.h>
#include <string.h>

#define ANSWER 40
#define FIXED  7 /* the token that the source always drafts */

typedef struct seen {
    uint32_t steps, drafted, accepted, tokens;
    uint64_t ns;
    bool whole; /* every note makes sense */
} seen;

static void note(void *context, const draft_note *n) {
    seen *s = context;
    s->whole = s->whole && n->rows == n->drafted + 1 && n->accepted <= n->drafted &&
               n->verify_ns > 0 && n->predicted_ns > 0 && n->context > 0;
    s->steps++;
    s->drafted += n->drafted;
    s->accepted += n->accepted;
    s->tokens += n->accepted + 1;
    s->ns += n->draft_ns + n->verify_ns + n->host_ns;
}

typedef struct answer {
    int32_t ids[ANSWER];
    float logprobs[ANSWER];
    uint32_t count;
    avo_result result;
} answer;

static bool hear(void *context, const avo_event *event) {
    answer *a = context;
    if (event->kind == AVO_EVENT_TOKEN && event->token->token >= 0 && a->count < ANSWER) {
        a->logprobs[a->count] = event->token->logprob;
        a->ids[a->count++] = event->token->token;
    }
    return true;
}

static void ask(avo_engine *engine, answer *a) {
    static const int32_t prompt[] = {1, 5, 9, 5, 9, 5, 9};
    avo_error error = {0};
    avo_session *session;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = sizeof(prompt) / sizeof(prompt[0]);
    request.max_new_tokens = ANSWER;
    request.ignore_end = true;
    request.on_event = hear;
    request.on_event_context = a;
    memset(a, 0, sizeof(*a));
    a->result = (avo_result)AVO_RESULT_INIT;
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    assert_ok_error(avo_generate(engine, session, &request, &a->result, &error), &error);
    avo_session_close(session);
}

static uint32_t draft_fixed(void *context, const int32_t *timeline, uint32_t count, uint32_t most,
                            int32_t *drafts) {
    (void)context, (void)timeline, (void)count;
    for (uint32_t i = 0; i < most; i++)
        drafts[i] = FIXED;
    return most;
}

static const draft_source fixed_source = {draft_fixed, NULL, 3};

static void notes_add_up_and_change_nothing(void **state) {
    (void)state;
    fixture_engine opened;
    answer plain, watched;
    seen s = {.whole = true};
    const draft_observer observer = {note, &s};
    fixture_engine_open(&opened, test_fixture_path("models/llama3.gguf"), "ref", 128, 1, 1);
    engine_draft_from(opened.engine, &fixed_source);
    ask(opened.engine, &plain);
    assert_int_equal(s.steps, 0);
    engine_draft_observe(opened.engine, &observer);
    for (int controller = 0; controller < CONTROLLERS; controller++) {
        engine_draft_control(opened.engine, (draft_controller)controller);
        engine_draft_from(opened.engine, controller % 2 == 0 ? &fixed_source : NULL);
        s = (seen){.whole = true};
        ask(opened.engine, &watched);
        assert_true(s.whole);
        assert_memory_equal(plain.ids, watched.ids, sizeof(plain.ids));
        assert_int_equal(s.tokens + 1, watched.result.new_tokens); /* the first is the prefill's */
        assert_int_equal(s.drafted, watched.result.drafted_tokens);
        assert_int_equal(s.accepted, watched.result.accepted_tokens);
        assert_true((double)s.ns * 1e-9 <= watched.result.total_seconds);
    }
    assert_true(engine_draft_cost(opened.engine)->learned != 0);
    engine_draft_observe(opened.engine, NULL);
    uint32_t steps = s.steps;
    ask(opened.engine, &watched);
    assert_int_equal(s.steps, steps);
    fixture_engine_close(&opened);
}

/* ---- Policies ---- */

static void policies_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        draft_policy policy;
    } good[] = {{"exact", {POLICY_EXACT, 0}},           {"threshold:0.3", {POLICY_THRESHOLD, 0.3}},
                {"threshold:1", {POLICY_THRESHOLD, 1}}, {"top-k:1", {POLICY_TOP_K, 1}},
                {"top-k:1000", {POLICY_TOP_K, 1000}},   {"typical:.09", {POLICY_TYPICAL, 0.09}}};
    static const char *const bad[] = {"",
                                      "exact:1",
                                      "threshold",
                                      "threshold:",
                                      "threshold:0",
                                      "threshold:1.1",
                                      "top-k:0",
                                      "top-k:1.5",
                                      "top-k:1001",
                                      "top-k",
                                      "typical:nan",
                                      "typical:-1",
                                      "typical: 1",
                                      "lossy:1",
                                      "threshold:0.3x",
                                      "threshold:0x1p-2"};
    draft_policy policy;
    avo_error error = {0};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_ok_error(draft_policy_parse(text_from(good[i].text), &policy, &error), &error);
        assert_int_equal(policy.kind, good[i].policy.kind);
        assert_true(policy.value == good[i].policy.value);
        assert_int_equal(draft_policy_lossy(&policy), policy.kind != POLICY_EXACT);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(draft_policy_parse(text_from(bad[i]), &policy, &error), AVO_ERROR_ARGUMENT,
                       &error, "threshold:P");
}

static bool allows(draft_policy policy, const float *logits, double temperature, int32_t token) {
    float logprob;
    return draft_policy_allows(&policy, logits, 4, temperature, token, &logprob);
}

/* Probabilities 1/2, 1/4, 1/8, 1/8: 1.75 bits of entropy. */
static void policies_accept_by_their_rules(void **state) {
    (void)state;
    const float logits[] = {logf(4), logf(8), logf(2), logf(2)};
    float logprob;
    assert_false(draft_policy_allows(&(draft_policy){POLICY_EXACT, 0}, logits, 4, 1, 1, &logprob));
    assert_true(fabsf(logprob - logf(0.5f)) < 1e-6f);
    const draft_policy quarter = {POLICY_THRESHOLD, 0.2499999};
    assert_true(allows(quarter, logits, 1, 0));
    assert_true(allows(quarter, logits, 0, 0)); /* greedy: as temperature 1 */
    assert_false(allows(quarter, logits, 1, 2));
    assert_false(allows(quarter, logits, 0.25, 0)); /* sharper: 16/273 */
    assert_true(allows(quarter, logits, 100, 1));
    assert_false(allows((draft_policy){POLICY_THRESHOLD, 0.2500001}, logits, 1, 0));
    assert_true(allows((draft_policy){POLICY_TOP_K, 1}, logits, 1, 1));
    assert_false(allows((draft_policy){POLICY_TOP_K, 1}, logits, 1, 0));
    assert_true(allows((draft_policy){POLICY_TOP_K, 3}, logits, 1, 2)); /* of equals the lower */
    assert_false(allows((draft_policy){POLICY_TOP_K, 3}, logits, 1, 3));
    /* exp(-entropy) = 2^-1.75 = 0.297: min(0.16, 0.4 × 0.297 = 0.119) and min(0.25, 0.149). */
    assert_true(allows((draft_policy){POLICY_TYPICAL, 0.16}, logits, 1, 2));
    assert_false(allows((draft_policy){POLICY_TYPICAL, 0.25}, logits, 1, 2));
    assert_true(allows((draft_policy){POLICY_TYPICAL, 0.25}, logits, 1, 0));
    const float forbidden[] = {0, -INFINITY, 0, -INFINITY};
    assert_false(allows((draft_policy){POLICY_TYPICAL, 0.3}, forbidden, 1, 1));
    assert_true(allows((draft_policy){POLICY_TYPICAL, 0.3}, forbidden, 1, 2));
}

static void a_policy_changes_answers_only_while_it_is_set(void **state) {
    (void)state;
    const draft_policy exact = {POLICY_EXACT, 0}, any = {POLICY_TOP_K, 1000};
    fixture_engine opened;
    answer plain, lossy;
    fixture_engine_open(&opened, test_fixture_path("models/llama3.gguf"), "ref", 128, 1, 1);
    engine_draft_from(opened.engine, &fixed_source);
    ask(opened.engine, &plain);
    engine_draft_policy(opened.engine, &any);
    ask(opened.engine, &lossy);
    assert_int_equal(lossy.result.accepted_tokens, lossy.result.drafted_tokens);
    assert_true(lossy.result.drafted_tokens > 0);
    for (uint32_t i = 1; i < 4; i++) { /* behind the prefill's token: three drafts, all taken */
        assert_int_equal(lossy.ids[i], FIXED);
        assert_true(lossy.logprobs[i] < 0);
    }
    assert_memory_not_equal(plain.ids, lossy.ids, sizeof(plain.ids));
    engine_draft_policy(opened.engine, &exact);
    ask(opened.engine, &lossy);
    assert_memory_equal(plain.ids, lossy.ids, sizeof(plain.ids));
    engine_draft_policy(opened.engine, NULL);
    ask(opened.engine, &lossy);
    assert_memory_equal(plain.ids, lossy.ids, sizeof(plain.ids));
    fixture_engine_close(&opened);
}

/* What a grammar forbids is not accepted by any policy. */
static void a_policy_keeps_to_the_grammar(void **state) {
    (void)state;
    const draft_policy any = {POLICY_TOP_K, 1000};
    fixture_engine opened;
    avo_error error = {0};
    avo_grammar *grammar;
    avo_session *session;
    answer a = {.result = AVO_RESULT_INIT};
    fixture_engine_open(&opened, tiny_model_write(test_scratch_folder(), 1), "ref", 128, 1, 1);
    assert_ok_error(
        avo_grammar_open(opened.model, AVO_GRAMMAR_GBNF, "root ::= [0-9]+", NULL, &grammar, &error),
        &error);
    engine_draft_from(opened.engine, &fixed_source);
    engine_draft_policy(opened.engine, &any);
    static const int32_t prompt[] = {1, 5, 9};
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = 3;
    request.max_new_tokens = ANSWER;
    request.grammar = grammar;
    request.on_event = hear;
    request.on_event_context = &a;
    assert_ok_error(avo_session_open(opened.engine, NULL, &session, &error), &error);
    assert_ok_error(avo_generate(opened.engine, session, &request, &a.result, &error), &error);
    for (uint32_t i = 0; i < a.count; i++)
        assert_int_not_equal(a.ids[i], FIXED);
    avo_session_close(session);
    avo_grammar_close(grammar);
    fixture_engine_close(&opened);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_add_up_and_change_nothing),
        cmocka_unit_test(policies_are_read),
        cmocka_unit_test(policies_accept_by_their_rules),
        cmocka_unit_test(a_policy_changes_answers_only_while_it_is_set),
        cmocka_unit_test(a_policy_keeps_to_the_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
