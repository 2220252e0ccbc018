/* engine/sequence: answers have the same bytes with draft tokens as without, whatever the drafts
 * are, and a step accepts as many of them as are right. */
#include "support/support.h"

#include "support/adapters.h"
#include "support/drafts.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 256

#if defined(__SANITIZE_ADDRESS__) || defined(AVO_TEST_EMULATED) /* ten times as slow */
#define QUESTIONS 40
#else
#define QUESTIONS 100
#endif
#define QUESTIONS_LONG   16 /* with a least length, or ended by a loop */
#define QUESTIONS_REMOTE 40 /* the same code in front of another device */

typedef struct told {
    int32_t token;
    uint32_t index;
    float logprob;
    uint32_t top_count;
    avo_logprob top[3];
    size_t text_bytes;
    char text[24];
    uint32_t length; /* of the session, when it was told */
} told;

typedef struct heard {
    told event[EVENTS_MAX];
    size_t count;
    int32_t ids[EVENTS_MAX];
    uint32_t id_count, refuse_after;
    int32_t timeline[TINY_CONTEXT]; /* of the session afterwards */
    uint32_t length;
    avo_result result;
    size_t first_allocations, last_allocations;
    const avo_session *session;
    const test_allocator *counter;
} heard;

typedef struct stage {
    test_allocator counter;
    avo_model *model;
    avo_engine *engine;
    avo_adapter *adapter;
    avo_grammar *grammar;
    avo_error error;
} stage;

typedef struct stage_options {
    uint32_t threads, logits;
    uint64_t kv_tokens;
    const char *device, *kv_type;
} stage_options;

static void stage_open(stage *s, stage_options given) {
    memset(s, 0, sizeof(*s));
    test_allocator_init(&s->counter);
    avo_model_options model = AVO_MODEL_OPTIONS_INIT;
    model.allocator = &s->counter.allocator;
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, &model, &s->model, &s->error), &s->error);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.speculate = "custom"; /* what a test proposes, and nothing else */
    options.threads = given.threads;
    options.context_max = TINY_CONTEXT;
    options.sessions_max = 2;
    options.logits_max = given.logits;
    options.rows_max = 40;
    options.kv_tokens = given.kv_tokens;
    options.device = test_device(given.device);
    options.kv_type = given.kv_type;
    assert_ok_error(avo_engine_open(s->model, &options, &s->engine, &s->error), &s->error);
    s->adapter = test_adapter_make(
        s->model, &(adapter_random_options){3, 4, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.5f});
    static const char words[] = "root ::= word (\" \" word)* \".\"\nword ::= [a-z]{1,6} | [0-9]+";
    assert_ok_error(
        avo_grammar_open(s->model, AVO_GRAMMAR_GBNF, words, NULL, &s->grammar, &s->error),
        &s->error);
}

static void stage_close(stage *s) {
    avo_grammar_close(s->grammar);
    avo_adapter_close(s->adapter);
    avo_engine_close(s->engine);
    avo_model_close(s->model);
    assert_int_equal(s->counter.live, 0);
}

static bool hear(void *context, const avo_event *event) {
    heard *h = context;
    if (event->kind != AVO_EVENT_TOKEN)
        return true;
    const avo_token_event *token = event->token;
    assert_true(h->count < EVENTS_MAX);
    told *to = &h->event[h->count++];
    memset(to, 0, sizeof(*to));
    to->token = token->token;
    to->index = token->index;
    to->length = avo_session_length(h->session);
    to->text_bytes = token->text_bytes;
    memcpy(to->text, token->text, token->text_bytes < 24 ? token->text_bytes : 24);
    if (token->token < 0)
        return true;
    to->logprob = token->logprob;
    to->top_count = token->top_count;
    for (uint32_t i = 0; i < token->top_count; i++)
        to->top[i] = token->top[i];
    h->ids[h->id_count++] = token->token;
    h->last_allocations = h->counter->allocations;
    if (h->id_count == 1)
        h->first_allocations = h->last_allocations;
    return h->refuse_after == 0 || h->id_count < h->refuse_after;
}

/* ---- Requests out of a seed ---- */

typedef struct question {
    int32_t tokens[96];
    size_t count;
    avo_sampling sampling;
    avo_logit_bias bias;
    const char *stop[2];
    size_t stop_count;
    int32_t stop_token;
    uint32_t max_new_tokens, refuse_after, ring_window, ring_keep;
    bool adapter, grammar, ignore_end;
    uint32_t min_new_tokens, repeated; /* 0: any length; loops do not end it */
} question;

static uint32_t roll(uint64_t seed, uint64_t *at, uint32_t sides) {
    return random_at(seed, 4, (*at)++).words[0] % sides;
}

static question roll_question(uint64_t seed) {
    static const char *const stops[] = {"e", "th", " a", "in", "o ", "the of"};
    question q = {.sampling = AVO_SAMPLING_INIT, .stop_token = -1};
    uint64_t at = 0;
    avo_sampling *sampling = &q.sampling;
    q.count = 1 + roll(seed, &at, 95);
    for (size_t i = 0; i < q.count; i++)
        q.tokens[i] = (int32_t)(3 + roll(seed, &at, TINY_VOCABULARY - 3));
    uint32_t kind = roll(seed, &at, 6);
    sampling->seed = roll(seed, &at, 1000);
    sampling->temperature = kind == 0 ? 0.0f : 0.5f + (float)roll(seed, &at, 10) * 0.1f;
    sampling->top_k = kind == 2 ? 1 + roll(seed, &at, 70) : 0;
    sampling->top_p = kind == 3 ? 0.9f : 1.0f;
    sampling->repetition_penalty = kind == 4 ? 1.2f : 1.0f;
    sampling->frequency_penalty = kind == 4 ? 0.3f : 0.0f;
    sampling->top_logprobs = roll(seed, &at, 3) == 0 ? 1 + roll(seed, &at, 3) : 0;
    if (roll(seed, &at, 4) == 0) {
        q.bias = (avo_logit_bias){(int32_t)roll(seed, &at, TINY_VOCABULARY), 3.0f};
        sampling->bias = &q.bias;
        sampling->bias_count = 1;
    }
    q.stop_count = roll(seed, &at, 2) == 0 ? 0 : 1 + roll(seed, &at, 2);
    for (size_t i = 0; i < q.stop_count; i++)
        q.stop[i] = stops[roll(seed, &at, 6)];
    q.stop_token = roll(seed, &at, 3) == 0 ? (int32_t)roll(seed, &at, TINY_VOCABULARY) : -1;
    q.max_new_tokens = roll(seed, &at, 6) == 0 ? 0 : 1 + roll(seed, &at, 60);
    q.refuse_after = roll(seed, &at, 5) == 0 ? 1 + roll(seed, &at, 20) : 0;
    q.adapter = roll(seed, &at, 3) == 0;
    q.grammar = roll(seed, &at, 4) == 0;
    q.ignore_end = roll(seed, &at, 2) == 0;
    if (q.max_new_tokens == 0) { /* until the context is full */
        q.stop_count = q.refuse_after = 0;
        q.stop_token = -1;
        q.grammar = false;
        q.ignore_end = true;
    } else if (roll(seed, &at, 4) == 0) {
        q.ring_window = 40 + roll(seed, &at, 40);
        q.ring_keep = roll(seed, &at, 10);
    }
    return q;
}

/* Answers the question on a session of its own, which `salt` lets find nobody's prefix. */
static void answer(stage *s, question *q, const char *salt, heard *h) {
    memset(h, 0, sizeof(*h));
    avo_adapter_use use = {s->adapter, 0.7f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &use;
    options.adapter_count = q->adapter;
    options.cache_salt = salt;
    options.ring_window = q->ring_window;
    options.ring_keep = q->ring_keep;
    avo_session *session = NULL;
    assert_ok_error(avo_session_open(s->engine, &options, &session, &s->error), &s->error);
    q->sampling.bias = q->sampling.bias_count > 0 ? &q->bias : NULL;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = q->tokens;
    request.token_count = q->count;
    request.sampling = &q->sampling;
    request.stop = q->stop_count > 0 ? q->stop : NULL;
    request.stop_count = q->stop_count;
    request.stop_tokens = q->stop_token >= 0 ? &q->stop_token : NULL;
    request.stop_token_count = q->stop_token >= 0;
    request.max_new_tokens = q->max_new_tokens;
    request.ignore_end = q->ignore_end;
    request.grammar = q->grammar ? s->grammar : NULL;
    request.min_new_tokens = q->min_new_tokens;
    if (q->repeated > 0)
        request.repetition = (avo_repetition){.pattern_max = 8, .count_min = q->repeated};
    request.on_event = hear;
    request.on_event_context = h;
    h->refuse_after = q->refuse_after;
    h->session = session;
    h->counter = &s->counter;
    h->result = (avo_result)AVO_RESULT_INIT;
    assert_ok_error(avo_generate(s->engine, session, &request, &h->result, &s->error), &s->error);
    assert_int_equal(h->first_allocations, h->last_allocations);
    h->length = avo_session_length(session);
    memcpy(h->timeline, avo_session_tokens(session), h->length * sizeof(int32_t));
    avo_session_close(session);
}

static void assert_same(const heard *a, const heard *b, uint64_t seed) {
    if (a->count != b->count || memcmp(a->event, b->event, a->count * sizeof(told)) != 0 ||
        a->length != b->length ||
        memcmp(a->timeline, b->timeline, a->length * sizeof(int32_t)) != 0)
        fail_msg("seed %llu: %zu events and %u tokens with drafts, %zu and %u without",
                 (unsigned long long)seed, a->count, a->length, b->count, b->length);
    assert_int_equal(a->result.finish, b->result.finish);
    assert_int_equal(a->result.new_tokens, b->result.new_tokens);
    assert_int_equal(a->result.stop_token, b->result.stop_token);
    assert_int_equal(a->result.stop_index, b->result.stop_index);
}

/* ---- The same bytes ---- */

static void answers_do_not_depend_on_drafts(stage *s, uint64_t from, uint64_t to) {
    heard *plain = calloc(1, sizeof(heard)), *drafted = calloc(1, sizeof(heard));
    assert_true(plain != NULL && drafted != NULL);
    uint32_t ends[AVO_FINISH_REPETITION + 1] = {0};
    for (uint64_t seed = from; seed < to + QUESTIONS_LONG; seed++) {
        question q = roll_question(seed);
        q.repeated = seed >= to ? 2 + (uint32_t)(seed % 3) : 0;
        q.min_new_tokens = seed >= to && seed % 2 == 0 ? q.max_new_tokens / 2 : 0;
        engine_draft_from(s->engine, NULL);
        answer(s, &q, "plain", plain);
        ends[plain->result.finish]++;
        drafted_answer known = {q.tokens, plain->ids, q.count, plain->id_count};
        for (int kind = DRAFTS_RIGHT; kind <= DRAFTS_MIXED; kind++) {
            drafting d = {.kind = (drafting_kind)kind,
                          .answers = &known,
                          .answer_count = 1,
                          .vocabulary = TINY_VOCABULARY,
                          .seed = seed};
            draft_source source = draft_source_of(&d, 1 + (uint32_t)(seed % DRAFTS_MAX));
            engine_draft_from(s->engine, &source);
            answer(s, &q, "drafted", drafted);
            assert_same(drafted, plain, seed);
        }
    }
    engine_draft_from(s->engine, NULL);
    free(plain);
    free(drafted);
    avo_kv_info kv = AVO_KV_INFO_INIT;
    avo_engine_kv(s->engine, &kv);
    assert_int_equal(kv.pages_used, 0);
    for (int i = AVO_FINISH_STOP_TOKEN; i <= AVO_FINISH_REPETITION; i++)
        if (ends[i] == 0 && i != AVO_FINISH_DEADLINE)
            fail_msg("no answer ends as %d", i);
}

static void the_same_bytes_with_any_drafts(void **state) {
    (void)state;
    static const char *const kv_types[] = {NULL, "int8", "bf16", "f32"};
    static const uint32_t logits[] = {20, 6, 3, 17};
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < isas.count; i++) {
        stage s;
        stage_open(&s, (stage_options){.threads = 1 + (uint32_t)i % 3,
                                       .logits = logits[i % 4],
                                       .device = isas.name[i],
                                       .kv_type = kv_types[i % 4]});
        answers_do_not_depend_on_drafts(
            &s, 100 * i, 100 * i + (test_device_is_remote() ? QUESTIONS_REMOTE : QUESTIONS));
        stage_close(&s);
    }
}

/* ---- Lengths and loops ---- */

/* How often the last tokens are one pattern of `length`, and how many of the answer there are. */
static bool is_loop(const heard *h, uint32_t count, uint32_t repeated) {
    for (uint32_t pattern = 1; pattern <= 8; pattern++) {
        uint32_t total = pattern * repeated, same = 0;
        if (total > count)
            continue;
        for (uint32_t i = count - total; i + pattern < count; i++)
            same += h->ids[i] == h->ids[i + pattern];
        if (same == total - pattern)
            return true;
    }
    return false;
}

/* A loop ends an answer at its first token that makes it one; what ends an answer does not before
 * min_new_tokens. */
static void lengths_and_loops(void **state) {
    (void)state;
    stage s;
    stage_open(&s, (stage_options){.threads = 1, .logits = 1, .device = "ref"});
    heard *h = calloc(1, sizeof(heard));
    assert_non_null(h);
    uint32_t loops = 0, held = 0;
    for (uint64_t seed = 2000; seed < 2060; seed++) {
        question q = roll_question(seed);
        q.grammar = false;
        q.refuse_after = q.ring_window = q.ring_keep = 0;
        q.repeated = 2 + (uint32_t)(seed % 3);
        q.min_new_tokens = seed % 2 == 0 ? q.max_new_tokens / 2 : 0;
        answer(&s, &q, "loops", h);
        uint32_t most = h->id_count;
        for (uint32_t count = 1; count <= most; count++) {
            bool last = count == most && h->result.finish == AVO_FINISH_REPETITION;
            bool counts = count >= q.min_new_tokens && count < q.max_new_tokens;
            if (counts && h->result.stop_token < 0 && count < most)
                assert_false(is_loop(h, count, q.repeated));
            if (last)
                assert_true(is_loop(h, count, q.repeated));
        }
        loops += h->result.finish == AVO_FINISH_REPETITION;
        held += q.min_new_tokens > 0 && h->result.finish <= AVO_FINISH_STOP_STRING;
        assert_true(h->result.new_tokens >= q.min_new_tokens);
    }
    assert_true(loops > 0 && held > 0);
    free(h);
    stage_close(&s);
}

/* ---- Text ---- */

/* The text of all tokens, found by decoding them in one go. */
static size_t decode_all(const stage *s, const heard *h, buffer *text) {
    decode_stream stream;
    decode_stream_init(&stream, s->model->tokenizer, false);
    decode_stream_continue(&stream);
    uint32_t count = h->id_count - (h->result.stop_token >= 0);
    size_t before_last = 0;
    text->size = 0;
    for (uint32_t i = 0; i < count; i++) {
        before_last = text->size;
        assert_ok(decode_stream_push(&stream, h->ids[i], text, NULL));
    }
    if (h->result.finish != AVO_FINISH_CANCELLED)
        assert_ok(decode_stream_finish(&stream, text, NULL));
    return before_last;
}

/* The first stop string by where it ends, of several the longest; SIZE_MAX: none. */
static size_t find_stop(const buffer *text, const question *q, size_t *begin, size_t *end) {
    size_t found = SIZE_MAX;
    for (*end = 1; *end <= text->size && found == SIZE_MAX; ++*end)
        for (size_t i = 0; i < q->stop_count; i++) {
            size_t bytes = strlen(q->stop[i]);
            if (bytes > *end || memcmp(text->data + *end - bytes, q->stop[i], bytes) != 0 ||
                (found != SIZE_MAX && *end - bytes >= *begin))
                continue;
            found = i;
            *begin = *end - bytes;
        }
    --*end;
    return found;
}

static void text_is_what_the_tokens_say(void **state) {
    (void)state;
    stage s;
    stage_open(&s, (stage_options){.threads = 1, .logits = 1, .device = "ref"});
    heard *h = calloc(1, sizeof(heard));
    assert_non_null(h);
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    assert_ok(buffer_reserve(&text, 4096));
    uint32_t stopped = 0;
    for (uint64_t seed = 1000; seed < 1200; seed++) {
        question q = roll_question(seed);
        if (seed % 8 == 0) { /* what half a character becomes at the end */
            q.stop[0] = "\xEF\xBF\xBD";
            q.stop_count = 1;
        }
        answer(&s, &q, NULL, h);
        size_t last = decode_all(&s, h, &text), begin = 0, end = 0;
        size_t stop = find_stop(&text, &q, &begin, &end);
        size_t wanted = stop == SIZE_MAX ? text.size : begin, shown = 0;
        for (size_t i = 0; i < h->count; i++) {
            const told *event = &h->event[i];
            assert_true(shown + event->text_bytes <= wanted);
            assert_memory_equal(event->text, text.data + shown,
                                event->text_bytes < 24 ? event->text_bytes : 24);
            shown += event->text_bytes;
        }
        if (h->result.finish != AVO_FINISH_CANCELLED)
            assert_int_equal(shown, wanted);
        assert_int_equal(stop != SIZE_MAX, h->result.finish == AVO_FINISH_STOP_STRING);
        if (stop == SIZE_MAX)
            continue;
        stopped++;
        assert_int_equal(h->result.stop_index, stop);
        assert_true(end > last); /* with the very token that completes it */
    }
    assert_true(stopped > 20);
    buffer_free(&text);
    free(h);
    stage_close(&s);
}

/* ---- How many are accepted ---- */

static question plain_question(uint32_t new_tokens) {
    question q = {.sampling = AVO_SAMPLING_INIT,
                  .stop_token = -1,
                  .max_new_tokens = new_tokens,
                  .ignore_end = true,
                  .count = 10};
    q.sampling.temperature = 0.8f;
    for (size_t i = 0; i < q.count; i++)
        q.tokens[i] = (int32_t)(20 + i);
    return q;
}

/* Behind the first token, which the prompt gives, a step with k right drafts gives k + 1, one with
 * wrong ones gives one; each step asks once. */
static void counts_are_right(void **state) {
    (void)state;
    stage s;
    stage_open(&s, (stage_options){.threads = 1, .logits = 17});
    heard *plain = calloc(1, sizeof(heard)), *drafted = calloc(1, sizeof(heard));
    assert_true(plain != NULL && drafted != NULL);
    question q = plain_question(61);
    answer(&s, &q, NULL, plain);
    drafted_answer known = {q.tokens, plain->ids, q.count, plain->id_count};
    for (uint32_t k = 1; k <= DRAFTS_MAX; k++)
        for (int kind = DRAFTS_RIGHT; kind <= DRAFTS_WRONG; kind++) {
            drafting d = {.kind = (drafting_kind)kind,
                          .answers = &known,
                          .answer_count = 1,
                          .vocabulary = TINY_VOCABULARY};
            draft_source source = draft_source_of(&d, k);
            engine_draft_from(s.engine, &source);
            answer(&s, &q, NULL, drafted);
            assert_same(drafted, plain, k);
            /* No drafts are asked for where one token is left. */
            uint32_t steps = kind == DRAFTS_RIGHT ? (60 + k) / (k + 1) : 60;
            bool alone = kind == DRAFTS_WRONG || 60 % (k + 1) == 1;
            assert_int_equal(d.calls, steps - alone);
        }
    engine_draft_from(s.engine, NULL);
    free(plain);
    free(drafted);
    stage_close(&s);
}

/* ---- Limits ---- */

/* An engine with one row of logits has none for drafts, and one whose pool is full does without. */
static void they_do_without(void **state) {
    (void)state;
    heard *plain = calloc(1, sizeof(heard)), *drafted = calloc(1, sizeof(heard));
    assert_true(plain != NULL && drafted != NULL);
    question q = plain_question(54); /* 63 tokens are computed: two pages */
    for (int full = 0; full < 2; full++) {
        stage s;
        stage_open(
            &s, (stage_options){.threads = 1, .logits = full ? 17 : 1, .kv_tokens = full ? 64 : 0});
        answer(&s, &q, NULL, plain);
        assert_int_equal(plain->result.new_tokens, 54);
        drafted_answer known = {q.tokens, plain->ids, q.count, plain->id_count};
        drafting d = {.kind = DRAFTS_WRONG,
                      .answers = &known,
                      .answer_count = 1,
                      .vocabulary = TINY_VOCABULARY};
        draft_source source = draft_source_of(&d, DRAFTS_MAX);
        engine_draft_from(s.engine, &source);
        answer(&s, &q, NULL, drafted);
        assert_same(drafted, plain, 0);
        assert_true(full ? d.calls > 40 : d.calls == 0);
        stage_close(&s);
    }
    free(plain);
    free(drafted);
}

/* ---- Pages ---- */

typedef struct watching {
    drafting drafting;
    avo_engine *engine;
    int32_t last[TINY_CONTEXT]; /* the timeline of the last step and its drafts */
    uint32_t count, drafts, crossings;
} watching;

/* Between steps others find what was accepted and nothing else, and no page is held beyond it. */
static uint32_t propose_and_look(void *context, const int32_t *timeline, uint32_t count,
                                 uint32_t most, int32_t *drafts) {
    watching *w = context;
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    avo_kv_info kv = AVO_KV_INFO_INIT;
    uint32_t page = 32, computed = count - 1;
    if (w->drafts > 0 && w->drafting.kind == DRAFTS_WRONG) {
        uint32_t found = engine_prefix_peek(w->engine, &options, w->last, w->count + w->drafts);
        assert_true(found <= w->count / page * page);
    }
    w->crossings += w->drafts > 0 && (w->count + w->drafts) / page > (w->count - 1) / page;
    assert_int_equal(engine_prefix_peek(w->engine, &options, timeline, count),
                     computed / page * page);
    avo_engine_kv(w->engine, &kv);
    assert_int_equal(kv.pages_used, (computed + page - 1) / page);
    w->drafts = draft_propose(&w->drafting, timeline, count, most, drafts);
    w->count = count;
    memcpy(w->last, timeline, count * sizeof(int32_t));
    memcpy(w->last + count, drafts, w->drafts * sizeof(int32_t));
    return w->drafts;
}

static void pages_follow_what_was_accepted(void **state) {
    (void)state;
    heard *plain = calloc(1, sizeof(heard)), *drafted = calloc(1, sizeof(heard));
    assert_true(plain != NULL && drafted != NULL);
    for (int kind = DRAFTS_RIGHT; kind <= DRAFTS_WRONG; kind++) {
        stage s;
        stage_open(&s, (stage_options){.threads = 1, .logits = 17});
        question q = plain_question(120);
        answer(&s, &q, "plain", plain);
        drafted_answer known = {q.tokens, plain->ids, q.count, plain->id_count};
        watching w = {.drafting = {.kind = (drafting_kind)kind,
                                   .answers = &known,
                                   .answer_count = 1,
                                   .vocabulary = TINY_VOCABULARY},
                      .engine = s.engine};
        draft_source source = {propose_and_look, &w, 12};
        engine_draft_from(s.engine, &source);
        answer(&s, &q, NULL, drafted);
        assert_same(drafted, plain, 0);
        assert_true(w.crossings > (kind == DRAFTS_WRONG ? 10 : 2));
        stage_close(&s);
    }
    free(plain);
    free(drafted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_what_the_tokens_say),
        cmocka_unit_test(the_same_bytes_with_any_drafts),
        cmocka_unit_test(lengths_and_loops),
        cmocka_unit_test(counts_are_right),
        cmocka_unit_test(they_do_without),
        cmocka_unit_test(pages_follow_what_was_accepted),
    };
    return cmocka_run_group_tests_name("engine/sequence", tests, NULL, NULL);
}
