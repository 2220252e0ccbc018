/* engine/: ring mode. After any number of turns a session is what a fresh one with the remaining
 * text is; the timeline depends on its tokens, not on the chunks they came in; memory stays
 * constant. */
#include "support/support.h"

#include "sample/sample.h"
#include "support/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 44, CHUNK = 16 };

static avo_engine_options options_of(uint32_t sessions, uint64_t kv_tokens) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 2;
    options.context_max = 48; /* all positions that GPT-2 has learned */
    options.sessions_max = sessions;
    options.rows_max = CHUNK;
    options.kv_tokens = kv_tokens;
    return options;
}

static avo_session *open_ring(place *p, uint32_t window, uint32_t keep, const char *salt) {
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.ring_window = window;
    options.ring_keep = keep;
    options.cache_salt = salt;
    avo_session *session;
    assert_ok_error(avo_session_open(p->engine, &options, &session, &p->error), &p->error);
    return session;
}

static int32_t token_at(const place *p, uint32_t i) {
    return (int32_t)((i * 13 + i / 7 * i + 5) % (p->vocabulary - 2));
}

static void extend(place *p, avo_session *session, const int32_t *tokens, size_t count,
                   float *logits) {
    avo_batch_clear(p->batch);
    assert_ok_error(avo_batch_add(p->batch, session, tokens, count), avo_batch_error(p->batch));
    assert_ok(avo_step(p->engine, p->batch));
    memcpy(logits, avo_batch_logits(p->batch, session, 0), p->vocabulary * sizeof(float));
}

/* The last logits of a fresh session with this text. */
static void compute_fresh(place *p, const int32_t *tokens, uint32_t count, float *logits) {
    avo_session *fresh = open_ring(p, 0, 0, "fresh");
    for (uint32_t done = 0; done < count;) {
        uint32_t now = count - done < 9 ? count - done : 9;
        extend(p, fresh, tokens + done, now, logits);
        done += now;
    }
    avo_session_close(fresh);
}

/* The timeline by its definition, a token at a time. */
static uint32_t turn_naively(int32_t *line, uint32_t count, uint32_t window, uint32_t keep,
                             int32_t token) {
    if (count == window) {
        uint32_t half = (window - keep) / 2;
        memmove(line + keep, line + keep + half, (window - keep - half) * sizeof(*line));
        count -= half;
    }
    line[count++] = token;
    return count;
}

static void ring_equals_fresh(const char *model, uint32_t keep) {
    place p;
    place_open(&p, model, options_of(2, 0));
    float logits[PLACE_VOCABULARY_MAX], fresh[PLACE_VOCABULARY_MAX];
    int32_t line[WINDOW];
    uint32_t length = 0;
    avo_session *session = open_ring(&p, WINDOW, keep, NULL);
    size_t before = p.counter.allocations;
    uint32_t used_most = 0;
    for (uint32_t i = 0; i < 20 * WINDOW;) {
        int32_t next[CHUNK];
        uint32_t now = 1 + i * 7 % 11; /* chunks of 1 … 11 */
        for (uint32_t j = 0; j < now; j++) {
            next[j] = token_at(&p, i++);
            length = turn_naively(line, length, WINDOW, keep, next[j]);
        }
        extend(&p, session, next, now, logits);
        assert_int_equal(avo_session_length(session), length);
        assert_memory_equal(avo_session_tokens(session), line, length * sizeof(*line));
        avo_kv_info kv = AVO_KV_INFO_INIT;
        avo_engine_kv(p.engine, &kv);
        used_most = kv.pages_used > used_most ? kv.pages_used : used_most;
        if (i % 5 == 0 || length < WINDOW / 2 + now + keep) {
            compute_fresh(&p, line, length, fresh);
            if (memcmp(logits, fresh, p.vocabulary * sizeof(float)) != 0)
                fail_msg("%s, token %u, length %u: not as a fresh session", model, i, length);
        }
    }
    assert_int_equal(p.counter.allocations, before);
    assert_int_equal(used_most, (WINDOW + 31) / 32);
    avo_session_close(session);
    place_close(&p);
}

static void turning_equals_starting_afresh(void **state) {
    (void)state;
    ring_equals_fresh("models/llama2.gguf", 5);
    ring_equals_fresh("models/gpt2.gguf", 0); /* learned positions */
    ring_equals_fresh("models/gemma3.gguf", 33);
}

/* More tokens at once than a window has. */
static void chunks_do_not_matter(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_of(3, 0));
    float logits[3][PLACE_VOCABULARY_MAX];
    for (uint32_t keep = 0; keep < 7; keep += 3) {
        avo_session *sessions[3];
        uint32_t chunk[3] = {1, 7, CHUNK};
        for (uint32_t s = 0; s < 3; s++) {
            sessions[s] = open_ring(&p, 12, keep, NULL);
            for (uint32_t i = 0; i < 112;) {
                int32_t next[CHUNK];
                uint32_t now = 112 - i < chunk[s] ? 112 - i : chunk[s];
                for (uint32_t j = 0; j < now; j++)
                    next[j] = token_at(&p, i++);
                extend(&p, sessions[s], next, now, logits[s]);
            }
            assert_int_equal(avo_session_length(sessions[s]), avo_session_length(sessions[0]));
            assert_memory_equal(avo_session_tokens(sessions[s]), avo_session_tokens(sessions[0]),
                                avo_session_length(sessions[0]) * sizeof(int32_t));
            assert_memory_equal(logits[s], logits[0], p.vocabulary * sizeof(float));
        }
        for (uint32_t s = 0; s < 3; s++)
            avo_session_close(sessions[s]);
    }
    place_close(&p);
}

/* ---- Generation ---- */

typedef struct answer {
    int32_t tokens[20 * WINDOW];
    uint32_t count;
    const test_allocator *counter;
    size_t allocations; /* when its first token came */
} answer;

static bool take_token(void *context, const avo_event *event) {
    answer *a = context;
    if (event->kind != AVO_EVENT_TOKEN)
        return true;
    if (a->count == 0)
        a->allocations = a->counter->allocations;
    assert_int_equal(a->counter->allocations, a->allocations);
    a->tokens[a->count++] = event->token->token;
    return true;
}

static avo_finish generate(place *p, avo_session *session, const int32_t *tokens, size_t count,
                           uint32_t new_tokens, answer *a) {
    avo_request request = AVO_REQUEST_INIT;
    avo_result result = AVO_RESULT_INIT;
    request.tokens = tokens;
    request.token_count = count;
    request.max_new_tokens = new_tokens;
    request.ignore_end = true;
    request.on_event = take_token;
    request.on_event_context = a;
    a->count = 0;
    a->counter = &p->counter;
    assert_ok_error(avo_generate(p->engine, session, &request, &result, &p->error), &p->error);
    assert_int_equal(result.new_tokens, new_tokens);
    assert_int_equal(result.prompt_tokens, count);
    return result.finish;
}

static void answers_have_no_end(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/gpt2.gguf", options_of(2, 0));
    answer *a = malloc(sizeof(*a)), *b = malloc(sizeof(*b));
    int32_t prompt[3 * WINDOW], line[WINDOW];
    for (uint32_t i = 0; i < 3 * WINDOW; i++)
        prompt[i] = token_at(&p, i);
    avo_session *session = open_ring(&p, WINDOW, 4, NULL);
    assert_int_equal(generate(&p, session, prompt, 9, 20 * WINDOW, a), AVO_FINISH_LENGTH);
    uint32_t length = 0;
    for (uint32_t i = 0; i < 9 + a->count; i++)
        length = turn_naively(line, length, WINDOW, 4, i < 9 ? prompt[i] : a->tokens[i - 9]);
    assert_int_equal(avo_session_length(session), length);
    assert_memory_equal(avo_session_tokens(session), line, length * sizeof(*line));
    /* The next turn of the talk is longer than the window; what follows is what a fresh session
     * with the remaining text says. */
    for (uint32_t i = 0; i < 3 * WINDOW; i++)
        length = turn_naively(line, length, WINDOW, 4, prompt[i]);
    assert_int_equal(generate(&p, session, prompt, 3 * WINDOW, WINDOW - length, a),
                     AVO_FINISH_LENGTH);
    avo_session *fresh = open_ring(&p, 0, 0, "fresh");
    assert_int_equal(generate(&p, fresh, line, length, WINDOW - length, b), AVO_FINISH_LENGTH);
    assert_memory_equal(a->tokens, b->tokens, a->count * sizeof(int32_t));
    avo_session_close(session);
    avo_session_close(fresh);
    free(a);
    free(b);
    place_close(&p);
}

/* ---- Drawing in a ring ---- */

typedef struct drawing {
    int32_t tokens[4 * WINDOW];
    uint32_t count;
} drawing;

static bool on_drawn(void *context, const avo_event *event) {
    drawing *d = context;
    if (event->kind == AVO_EVENT_TOKEN && event->token->token >= 0)
        d->tokens[d->count++] = event->token->token;
    return true;
}

static void draw_tokens(place *p, avo_session *session, const int32_t *prompt, size_t count,
                        uint32_t tokens, const avo_sampling *sampling, drawing *d) {
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = count;
    request.max_new_tokens = tokens;
    request.sampling = sampling;
    request.ignore_end = true;
    request.on_event = on_drawn;
    request.on_event_context = d;
    d->count = 0;
    assert_ok_error(avo_generate(p->engine, session, &request, NULL, &p->error), &p->error);
}

/* What a sampler that has seen the line draws at a place. */
static int32_t drawn_at(place *p, const int32_t *line, uint32_t length, uint64_t place_of_token,
                        const avo_sampling *sampling) {
    float logits[PLACE_VOCABULARY_MAX];
    sampler *sampler = NULL;
    sample_choice choice;
    compute_fresh(p, line, length, logits);
    assert_ok(sampler_open(sampling, p->vocabulary, NULL, &sampler, NULL));
    sampler_see_prompt(sampler, line, length);
    assert_ok(sampler_draw(sampler, logits, place_of_token, &choice, NULL));
    sampler_close(sampler);
    return choice.token;
}

/* A draw is keyed by the place among all tokens there ever were; penalties see what is left. */
static void draws_go_on_and_penalties_forget(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_of(2, 0));
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = 1.5f;
    sampling.seed = 9;
    sampling.repetition_penalty = 1.8f;
    int32_t prompt[10], line[WINDOW];
    uint32_t length = 0, as_if_nothing = 0;
    for (uint32_t i = 0; i < 10; i++) {
        prompt[i] = token_at(&p, i);
        length = turn_naively(line, length, WINDOW, 4, prompt[i]);
    }
    avo_session *session = open_ring(&p, WINDOW, 4, NULL);
    drawing *d = malloc(sizeof(*d));
    draw_tokens(&p, session, prompt, 10, 3 * WINDOW, &sampling, d);
    assert_int_equal(d->count, 3 * WINDOW);
    for (uint32_t i = 0; i < d->count; i++) {
        assert_int_equal(d->tokens[i], drawn_at(&p, line, length, 10 + i, &sampling));
        as_if_nothing += d->tokens[i] != drawn_at(&p, line, length, length, &sampling);
        length = turn_naively(line, length, WINDOW, 4, d->tokens[i]);
    }
    assert_true(as_if_nothing > 10); /* the places in the window would have given others */
    avo_session_close(session);
    free(d);
    place_close(&p);
}

/* Saved and restored, a ring draws on as if nothing had been. */
static void a_restored_ring_draws_on(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_of(2, 0));
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = 1.5f;
    int32_t prompt[10];
    for (uint32_t i = 0; i < 10; i++)
        prompt[i] = token_at(&p, i);
    avo_session *session = open_ring(&p, WINDOW, 4, NULL), *other = open_ring(&p, WINDOW, 4, NULL);
    drawing *d = malloc(2 * sizeof(*d));
    char path[512];
    snprintf(path, sizeof(path), "%s/ring.session", test_scratch_folder());
    draw_tokens(&p, session, prompt, 10, 2 * WINDOW, &sampling, &d[0]);
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    assert_ok_error(avo_session_restore(other, path, &p.error), &p.error);
    draw_tokens(&p, session, prompt, 3, WINDOW, &sampling, &d[0]);
    draw_tokens(&p, other, prompt, 3, WINDOW, &sampling, &d[1]);
    assert_int_equal(d[0].count, d[1].count);
    assert_memory_equal(d[0].tokens, d[1].tokens, d[0].count * sizeof(int32_t));
    avo_session_close(session);
    avo_session_close(other);
    free(d);
    place_close(&p);
}

static void wrong_rings_are_refused(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_of(2, 0));
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    avo_session *session;
    options.ring_window = 49;
    assert_refused(avo_session_open(p.engine, &options, &session, &p.error), AVO_ERROR_CONTEXT,
                   &p.error, "ring_window is 49");
    options.ring_window = 8;
    options.ring_keep = 7;
    assert_refused(avo_session_open(p.engine, &options, &session, &p.error), AVO_ERROR_ARGUMENT,
                   &p.error, "ring_keep is 7");
    options.ring_window = 0;
    assert_refused(avo_session_open(p.engine, &options, &session, &p.error), AVO_ERROR_ARGUMENT,
                   &p.error, "ring_keep is 7");
    /* Tokens before the turn have no logits any more, and a bad token turns nothing. */
    session = open_ring(&p, 8, 0, NULL);
    float logits[PLACE_VOCABULARY_MAX];
    int32_t tokens[CHUNK + 1] = {1, 2, 3, 4, 5, 6, 7, 8};
    extend(&p, session, tokens, 7, logits);
    avo_batch_clear(p.batch);
    assert_refused(avo_batch_add_scored(p.batch, session, tokens, 2, 2), AVO_ERROR_ARGUMENT,
                   avo_batch_error(p.batch), "the ring shifts 1 tokens before");
    tokens[1] = -1;
    assert_refused(avo_batch_add(p.batch, session, tokens, 2), AVO_ERROR_ARGUMENT,
                   avo_batch_error(p.batch), "token 1");
    tokens[1] = 1;
    assert_int_equal(avo_session_length(session), 7);
    assert_ok(avo_batch_add(p.batch, session, tokens, 2));
    avo_batch_clear(p.batch); /* turned, and without the new tokens */
    assert_int_equal(avo_session_length(session), 3);
    float fresh[PLACE_VOCABULARY_MAX];
    extend(&p, session, NULL, 0, logits); /* what is left is owed, and can be computed */
    compute_fresh(&p, avo_session_tokens(session), 3, fresh);
    assert_memory_equal(logits, fresh, p.vocabulary * sizeof(float));
    avo_session_close(session);
    place_close(&p);
}

/* A fork has all pages: the turn is refused, and nothing has turned. */
static void a_turn_without_pages_is_none(void **state) {
    (void)state;
    for (uint32_t keep = 0; keep < 41; keep += 8) {
        place p;
        place_open(&p, "models/llama2.gguf", options_of(3, 64));
        avo_session *session = open_ring(&p, WINDOW, keep, NULL), *fork;
        int32_t line[WINDOW];
        float logits[PLACE_VOCABULARY_MAX], fresh[PLACE_VOCABULARY_MAX];
        for (uint32_t i = 0; i < WINDOW; i++)
            line[i] = token_at(&p, i);
        for (uint32_t i = 0; i < WINDOW; i += 11)
            extend(&p, session, line + i, 11, logits);
        assert_ok_error(avo_session_fork(session, &fork, &p.error), &p.error);
        int32_t next[2] = {token_at(&p, WINDOW), token_at(&p, WINDOW + 1)};
        for (int again = 0; again < 2; again++) {
            avo_batch_clear(p.batch);
            assert_refused(avo_batch_add(p.batch, session, next, 2), AVO_ERROR_FULL,
                           avo_batch_error(p.batch), "no KV pages left");
            assert_int_equal(avo_session_length(session), WINDOW);
            assert_memory_equal(avo_session_tokens(session), line, sizeof(line));
        }
        avo_session_close(fork);
        extend(&p, session, next, 2, logits);
        uint32_t length = WINDOW;
        for (int i = 0; i < 2; i++)
            length = turn_naively(line, length, WINDOW, keep, next[i]);
        assert_int_equal(avo_session_length(session), length);
        assert_memory_equal(avo_session_tokens(session), line, length * sizeof(*line));
        avo_session_close(session);
        compute_fresh(&p, line, length, fresh);
        assert_memory_equal(logits, fresh, p.vocabulary * sizeof(float));
        place_close(&p);
    }
}

/* Everything that a ring needs was allocated, and planned, with the engine. */
static void the_first_ring_allocates_nothing(void **state) {
    (void)state;
    test_allocator counting;
    test_allocator_init(&counting);
    avo_model_options with = AVO_MODEL_OPTIONS_INIT;
    with.allocator = &counting.allocator;
    avo_error error = {0};
    avo_model *model;
    avo_engine *engine;
    avo_session *session;
    avo_engine_options options = options_of(2, 0);
    assert_ok_error(avo_model_open(test_fixture_path("models/llama2.gguf"), &with, &model, &error),
                    &error);
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    size_t before = counting.allocations;
    avo_session_options ring = AVO_SESSION_OPTIONS_INIT;
    ring.ring_window = WINDOW;
    assert_ok_error(avo_session_open(engine, &ring, &session, &error), &error);
    assert_int_equal(counting.allocations, before);
    avo_session_close(session);
    avo_engine_close(engine);
    avo_plan few = AVO_PLAN_INIT, many = AVO_PLAN_INIT;
    assert_ok(avo_engine_plan(model, &options, &few, &error));
    options.rows_max += 100; /* only its batch depends on rows */
    assert_ok(avo_engine_plan(model, &options, &many, &error));
    assert_true(many.session_bytes >= few.session_bytes + 100 * 4 * sizeof(uint32_t));
    avo_model_close(model);
    assert_int_equal(counting.live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turning_equals_starting_afresh),
        cmocka_unit_test(chunks_do_not_matter),
        cmocka_unit_test(answers_have_no_end),
        cmocka_unit_test(draws_go_on_and_penalties_forget),
        cmocka_unit_test(a_restored_ring_draws_on),
        cmocka_unit_test(wrong_rings_are_refused),
        cmocka_unit_test(the_first_ring_allocates_nothing),
        cmocka_unit_test(a_turn_without_pages_is_none),
    };
    return cmocka_run_group_tests_name("engine/ring", tests, NULL, NULL);
}
