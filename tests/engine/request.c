/* One request for avo_generate and the scheduler: prompts of every kind, what avo_generate refuses,
 * and that a result names the stop that ended it. */
#include "support/support.h"

#include "support/tiny_model.h"

#include <stdio.h>
#include <string.h>

typedef struct stage {
    avo_model *model;
    avo_engine *engine;
    avo_session *session;
    avo_error error;
} stage;

typedef struct heard {
    int32_t ids[64];
    uint32_t count;
    char text[512];
    size_t bytes;
    uint64_t prefilled, prefill_total;
} heard;

static void stage_open(stage *s) {
    memset(s, 0, sizeof(*s));
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = TINY_CONTEXT;
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, NULL, &s->model, &s->error), &s->error);
    assert_ok_error(avo_engine_open(s->model, &options, &s->engine, &s->error), &s->error);
    assert_ok_error(avo_session_open(s->engine, NULL, &s->session, &s->error), &s->error);
}

static void stage_close(stage *s) {
    avo_session_close(s->session);
    avo_engine_close(s->engine);
    avo_model_close(s->model);
}

static bool hear(void *context, const avo_event *event) {
    heard *h = context;
    assert_int_equal(event->size, sizeof(*event));
    assert_int_equal(event->request, 0);
    if (event->kind == AVO_EVENT_PREFILL) {
        assert_true(event->done > h->prefilled && event->done <= event->total);
        h->prefilled = event->done;
        h->prefill_total = event->total;
        return true;
    }
    assert_int_equal(event->kind, AVO_EVENT_TOKEN);
    const avo_token_event *token = event->token;
    if (token->token >= 0)
        h->ids[h->count++] = token->token;
    memcpy(h->text + h->bytes, token->text, token->text_bytes);
    h->bytes += token->text_bytes;
    h->text[h->bytes] = '\0';
    return true;
}

static avo_request request_for(heard *h) {
    memset(h, 0, sizeof(*h));
    avo_request request = AVO_REQUEST_INIT;
    request.text = "the cat";
    request.text_flags = AVO_TOKENIZE_BEGIN;
    request.max_new_tokens = 24;
    request.ignore_end = true;
    request.on_event = hear;
    request.on_event_context = h;
    return request;
}

static avo_result generate(stage *s, const avo_request *request) {
    avo_result result = AVO_RESULT_INIT;
    assert_ok(avo_session_truncate(s->session, 0, &s->error));
    assert_ok_error(avo_generate(s->engine, s->session, request, &result, &s->error), &s->error);
    return result;
}

/* A text is what its tokens are. */
static void prompts_of_text(void **state) {
    (void)state;
    stage s;
    stage_open(&s);
    heard text, tokens;
    avo_request request = request_for(&text);
    avo_result result = generate(&s, &request);
    assert_int_equal(result.new_tokens, 24);
    assert_int_equal(result.finish, AVO_FINISH_LENGTH);
    assert_int_equal(result.stop_token, -1);
    assert_int_equal(result.stop_index, -1);
    assert_null(result.stop_string);
    assert_int_equal(text.prefilled, result.prompt_tokens);
    assert_int_equal(text.prefill_total, result.prompt_tokens);
    assert_true(result.total_seconds >= result.first_token_seconds);
    int32_t ids[32];
    size_t count = 0;
    assert_ok(avo_tokenize(s.model, request.text, strlen(request.text), AVO_TOKENIZE_BEGIN, ids, 32,
                           &count, &s.error));
    assert_int_equal(count, result.prompt_tokens);
    request = request_for(&tokens);
    request.text = NULL;
    request.tokens = ids;
    request.token_count = count;
    (void)generate(&s, &request);
    assert_memory_equal(text.ids, tokens.ids, sizeof(text.ids));
    assert_string_equal(text.text, tokens.text);
    /* Messages need a template, which this model does not have. */
    avo_message message = {"user", "hello"};
    request = request_for(&tokens);
    request.text = NULL;
    request.messages = &message;
    request.message_count = 1;
    assert_refused(avo_generate(s.engine, s.session, &request, NULL, &s.error), AVO_ERROR_NOT_FOUND,
                   &s.error, "template");
    stage_close(&s);
}

/* The first place behind two characters with four printable ones around it; 0: there is none. */
static size_t plain_place(const heard *h) {
    for (size_t at = 2; at + 2 <= h->bytes; at++) {
        bool plain = true;
        for (size_t i = at - 2; i < at + 2; i++)
            plain = plain && h->text[i] > ' ' && h->text[i] <= '~';
        if (plain)
            return at;
    }
    return 0;
}

static void stops_are_named(void **state) {
    (void)state;
    stage s;
    stage_open(&s);
    heard whole, h;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = 1.0f;
    size_t middle = 0;
    avo_request request;
    while (middle == 0) {
        sampling.seed++;
        request = request_for(&whole);
        request.sampling = &sampling;
        (void)generate(&s, &request);
        middle = plain_place(&whole);
    }
    /* A piece out of the middle, and one that ends with it and is longer. */
    char piece[8], longer[16];
    snprintf(piece, sizeof(piece), "%.2s", whole.text + middle);
    snprintf(longer, sizeof(longer), "%.4s", whole.text + middle - 2);
    const char *stops[] = {"never in it", piece, longer, longer};
    request = request_for(&h);
    request.sampling = &sampling;
    request.stop = stops;
    request.stop_count = 4;
    avo_result result = generate(&s, &request);
    assert_int_equal(result.finish, AVO_FINISH_STOP_STRING);
    size_t first = (size_t)(strstr(whole.text, piece) - whole.text);
    bool early = first != middle;
    assert_int_equal(result.stop_index, early ? 1 : 2);
    assert_ptr_equal(result.stop_string, stops[result.stop_index]);
    assert_int_equal(h.bytes, early ? first : middle - 2);
    assert_int_equal(result.stop_token, -1);
    int32_t stop_token = whole.ids[6];
    const int32_t stop_tokens[] = {stop_token == 1 ? 2 : 1, stop_token};
    request = request_for(&h);
    request.sampling = &sampling;
    request.stop_tokens = stop_tokens;
    request.stop_token_count = 2;
    result = generate(&s, &request);
    assert_int_equal(result.finish, AVO_FINISH_STOP_TOKEN);
    assert_int_equal(result.stop_token, stop_token);
    assert_int_equal(result.stop_index, 1);
    assert_null(result.stop_string);
    stage_close(&s);
}

/* A result of an older header is filled as far as it goes. */
static void results_have_a_size(void **state) {
    (void)state;
    stage s;
    stage_open(&s);
    heard h;
    avo_request request = request_for(&h);
    avo_result result = AVO_RESULT_INIT;
    result.size = offsetof(avo_result, reused_tokens);
    result.new_tokens = 77;
    assert_ok_error(avo_generate(s.engine, s.session, &request, &result, &s.error), &s.error);
    assert_int_equal(result.finish, AVO_FINISH_LENGTH);
    assert_true(result.prompt_tokens > 0);
    assert_int_equal(result.new_tokens, 77);
    stage_close(&s);
}

static void refuse(stage *s, const avo_request *request, const char *part) {
    assert_refused(avo_generate(s->engine, s->session, request, NULL, &s->error),
                   AVO_ERROR_ARGUMENT, &s->error, part);
    assert_int_equal(avo_session_length(s->session), 0);
}

static avo_status no_grammar(void *context, avo_grammar **grammar, avo_error *error) {
    (void)context;
    (void)grammar;
    (void)error;
    return AVO_ERROR_ARGUMENT;
}

static void what_a_scheduler_does_is_refused(void **state) {
    (void)state;
    stage s;
    stage_open(&s);
    heard h;
    const avo_request good = request_for(&h);
    avo_adapter_use use = {NULL, 1.0f};
    avo_named_adapter named = {"a", 1.0f};
    avo_request bad[12];
    for (size_t i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].adapters = &use;
    bad[0].adapter_count = 1;
    bad[1].named_adapters = &named;
    bad[1].named_adapter_count = 1;
    bad[2].cache_salt = "salt";
    bad[3].tenant = "a";
    bad[4].tenant_weight = 1.0f;
    bad[5].priority = 0;
    bad[6].first_token_deadline = 1.0;
    bad[7].deadline = -1.0;
    bad[8].prompt_logprobs = true;
    bad[9].no_answer = true;
    bad[10].pooling = AVO_POOLING_LAST;
    bad[11].open_grammar = no_grammar;
    static const char *const names[12] = {"adapters is not supported",
                                          "named_adapters is not supported",
                                          "cache_salt is not supported",
                                          "tenant is not supported",
                                          "tenant_weight is not supported",
                                          "priority is not supported",
                                          "first_token_deadline is not supported",
                                          "deadline is not supported",
                                          "prompt_logprobs is not supported",
                                          "no_answer is not supported",
                                          "pooling is not supported",
                                          "open_grammar is not supported"};
    for (size_t i = 0; i < 12; i++)
        refuse(&s, &bad[i], names[i]);
    stage_close(&s);
}

/* Messages that come as variables of the template. */
static void roles_of_variables_are_refused(stage *s, heard *h) {
    static const char json[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                               "{\"role\":\"poet\",\"content\":\"b\"}]}";
    avo_chat_options chat = AVO_CHAT_OPTIONS_INIT;
    avo_request bad = request_for(h);
    assert_ok(avo_value_open(json, strlen(json), NULL, &chat.variables, NULL));
    bad.text = NULL;
    bad.chat = &chat;
    refuse(s, &bad, "messages[1]: role is \"poet\"");
    avo_value_close(chat.variables);
}

static void slips_are_refused(void **state) {
    (void)state;
    stage s;
    stage_open(&s);
    heard h;
    avo_request bad = request_for(&h);
    const char *missing[] = {"a", NULL};
    const int32_t ids[] = {1, 2}, many[65] = {0};
    avo_message message = {"user", NULL};
    bad.stop_count = 1;
    refuse(&s, &bad, "stop is NULL, but");
    bad.stop = missing;
    bad.stop_count = 2;
    refuse(&s, &bad, "stop string 2 is NULL");
    bad = request_for(&h);
    bad.tokens = ids;
    bad.token_count = 2;
    refuse(&s, &bad, "give one of tokens, messages");
    bad = request_for(&h);
    bad.text = NULL;
    refuse(&s, &bad, "empty");
    bad.messages = &message;
    bad.message_count = 1;
    refuse(&s, &bad, "message 1 has no role");
    message = (avo_message){"usr", "a"};
    refuse(&s, &bad, "messages[0]: role is \"usr\", must be system, developer, user, assistant or");
    bad = request_for(&h);
    bad.max_new_tokens = 16777217;
    refuse(&s, &bad, "max_new_tokens is 16777217, must be at most 16777216");
    bad = request_for(&h);
    bad.max_new_tokens = 3;
    bad.min_new_tokens = 4;
    refuse(&s, &bad, "min_new_tokens is 4, must be at most max_new_tokens (3)");
    bad = request_for(&h);
    bad.repetition = (avo_repetition){.pattern_max = 1025, .count_min = 2};
    refuse(&s, &bad, "repetition: pattern_max is 1025, must be at most 1024");
    bad.repetition = (avo_repetition){.pattern_min = 5, .pattern_max = 4, .count_min = 2};
    refuse(&s, &bad, "repetition: pattern_min is 5, must be at most pattern_max (4)");
    bad.repetition = (avo_repetition){.pattern_max = 4, .count_min = 1};
    refuse(&s, &bad, "repetition: count_min is 1, must be at least 2");
    bad = request_for(&h);
    bad.stop_tokens = many;
    bad.stop_token_count = 65;
    refuse(&s, &bad, "65 stop tokens, must be at most 64");
    roles_of_variables_are_refused(&s, &h);
    bad = request_for(&h);
    bad.size = 3;
    refuse(&s, &bad, "avo_request");
    stage_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_text),     cmocka_unit_test(stops_are_named),
        cmocka_unit_test(results_have_a_size), cmocka_unit_test(what_a_scheduler_does_is_refused),
        cmocka_unit_test(slips_are_refused),
    };
    return cmocka_run_group_tests_name("engine/request", tests, NULL, NULL);
}
