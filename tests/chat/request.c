/* avo_chat_…: requests from JSON, defaults, refusals, and answers in parts. Every allocation fails
 * once. */
#include "support/support.h"

#include "chat/chat_int.h"
#include "sample/sample.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct fixture {
    test_allocator counter;
    avo_model *model;
    avo_chat *chat;
} fixture;

/* The model has no template, so calls have the form that a test names. */
static int open_fixture(void **state) {
    static fixture opened;
    fixture *f = &opened;
    char path[512];
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    test_allocator_init(&f->counter);
    options.allocator = &f->counter.allocator;
    snprintf(path, sizeof(path), "%s", tiny_model_write(test_scratch_folder(), 3));
    assert_ok(avo_model_open(path, &options, &f->model, NULL));
    assert_ok(avo_chat_open(f->model, &f->chat, NULL));
    chat_format_close(f->chat->format);
    assert_ok(chat_format_named("hermes", &f->chat->format, NULL));
    *state = f;
    return 0;
}

static int close_fixture(void **state) {
    fixture *f = *state;
    avo_chat_close(f->chat);
    avo_model_close(f->model);
    return 0;
}

static avo_chat_request *ask(fixture *f, const char *json,
                             const avo_chat_request_options *options) {
    avo_chat_request *request;
    avo_error error = {0};
    assert_ok_error(avo_chat_request_open(f->chat, json, strlen(json), options, &request, &error),
                    &error);
    return request;
}

static void refuses(fixture *f, const char *json, const char *text) {
    avo_chat_request *request = (avo_chat_request *)f;
    avo_error error = {0};
    size_t live = f->counter.live;
    assert_int_not_equal(avo_chat_request_open(f->chat, json, strlen(json), NULL, &request, &error),
                         AVO_OK);
    assert_null(request);
    if (strstr(error.text, text) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", json, error.text, text);
    assert_int_equal(f->counter.live, live);
}

#define SAID "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":"            \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}}}]"

static void reads_all_keys(void **state) {
    fixture *f = *state;
    avo_chat_request *request =
        ask(f,
            "{\"id\":[1],\"prompt\":\"once\",\"raw\":true,\"max_tokens\":7,\"temperature\":0.5,"
            "\"top_k\":4,\"seed\":9,\"logprobs\":2,\"stop\":[\"a\",\"b\"],\"stop_tokens\":[5],"
            "\"ignore_eos\":true,\"tenant\":\"t\",\"priority\":3,\"deadline\":1.5,"
            "\"cache_salt\":\"s\",\"grammar\":\"root ::= [a-z]\",\"top_p\":null,"
            "\"speculation\":\"suffix,corpus\",\"draft_tokens\":4}",
            NULL);
    const avo_request *got = avo_chat_request_get(request);
    assert_string_equal(got->text, "once");
    assert_int_equal(got->text_flags, AVO_TOKENIZE_BEGIN);
    assert_null(got->chat);
    assert_int_equal(got->max_new_tokens, 7);
    assert_true(got->sampling->temperature == 0.5f);
    assert_int_equal(got->sampling->top_k, 4);
    assert_int_equal(got->sampling->seed, 9);
    assert_int_equal(got->sampling->top_logprobs, 2);
    assert_int_equal(got->stop_count, 2);
    assert_string_equal(got->stop[1], "b");
    assert_int_equal(got->stop_tokens[0], 5);
    assert_true(got->ignore_end);
    assert_string_equal(got->tenant, "t");
    assert_int_equal(got->priority, 3);
    assert_true(got->deadline == 1.5);
    assert_string_equal(got->cache_salt, "s");
    assert_string_equal(got->speculate, "suffix,corpus");
    assert_int_equal(got->draft_tokens, 4);
    assert_non_null(got->grammar);
    assert_null(got->on_event);
    avo_chat_request_close(request);
}

static void defaults_count_where_a_key_is_missing(void **state) {
    fixture *f = *state;
    avo_request defaults = AVO_REQUEST_INIT;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    avo_chat_request_options options = AVO_CHAT_REQUEST_OPTIONS_INIT;
    const char *stop[] = {"end"};
    sampling.temperature = 0.25f;
    defaults.sampling = &sampling;
    defaults.stop = stop;
    defaults.stop_count = 1;
    defaults.max_new_tokens = 11;
    defaults.ignore_end = true;
    defaults.speculate = "off";
    defaults.draft_tokens = 3;
    defaults.text_flags = AVO_TOKENIZE_SPECIAL;
    assert_ok(avo_grammar_open(f->model, AVO_GRAMMAR_JSON, NULL, NULL, &defaults.grammar, NULL));
    options.defaults = &defaults;
    options.raw = true;
    avo_chat_request *plain = ask(f, "{\"prompt\":\"x\"}", &options);
    avo_chat_request *own =
        ask(f,
            "{\"prompt\":\"x\",\"max_tokens\":2,\"stop\":[],\"json_schema\":true,"
            "\"speculation\":\"auto\"}",
            &options);
    const avo_request *got = avo_chat_request_get(plain);
    assert_int_equal(got->max_new_tokens, 11);
    assert_true(got->ignore_end && got->sampling->temperature == 0.25f);
    assert_string_equal(got->stop[0], "end");
    assert_int_equal(got->text_flags, AVO_TOKENIZE_BEGIN | AVO_TOKENIZE_SPECIAL);
    assert_ptr_equal(got->grammar, defaults.grammar);
    assert_int_equal(avo_chat_request_get(own)->max_new_tokens, 2);
    assert_int_equal(avo_chat_request_get(own)->stop_count, 0);
    assert_string_equal(got->speculate, "off");
    assert_int_equal(got->draft_tokens, 3);
    assert_string_equal(avo_chat_request_get(own)->speculate, "auto");
    assert_int_equal(avo_chat_request_get(own)->draft_tokens, 3);
    assert_ptr_not_equal(avo_chat_request_get(own)->grammar, defaults.grammar);
    avo_grammar_close(defaults.grammar); /* the requests have references */
    avo_chat_request_close(own);
    avo_chat_request_close(plain);
    defaults.grammar = NULL;
    options.raw = false;
    options.system = "be brief";
    avo_chat_request *chat = ask(f, "{\"prompt\":\"x\"}", &options);
    assert_non_null(avo_chat_request_get(chat)->chat->variables);
    avo_chat_request_close(chat);
}

/* The same borders as over HTTP: docs/api.md. */
static void accepts_up_to_the_limits(void **state) {
    fixture *f = *state;
    avo_chat_request *request =
        ask(f,
            "{" SAID ",\"max_completion_tokens\":16777216,\"temperature\":1e6,\"top_k\":-1,"
            "\"seed\":-1,\"typical_p\":1e-6,\"repetition_penalty\":1e-6,\"stop\":[\"a\"],"
            "\"presence_penalty\":-1e6,\"logprobs\":3.0}",
            NULL);
    const avo_request *got = avo_chat_request_get(request);
    assert_int_equal(got->max_new_tokens, 16777216);
    assert_int_equal(got->sampling->top_k, 0);
    assert_int_equal(got->sampling->seed, 0);
    assert_int_equal(got->sampling->top_logprobs, 3);
    assert_int_equal(got->stop_count, 1);
    assert_string_equal(got->stop[0], "a");
    assert_false(got->no_answer);
    assert_ok(sampler_check(got->sampling, 512, NULL));
    avo_chat_request_close(request);
    request = ask(f, "{\"tokens\":[5],\"max_tokens\":0}", NULL); /* as completions do */
    assert_true(avo_chat_request_get(request)->no_answer);
    avo_chat_request_close(request);
}

static void adapters_by_name(void **state) {
    fixture *f = *state;
    char folder[512];
    avo_adapter *adapter;
    snprintf(folder, sizeof(folder), "%s/adapter", test_scratch_folder());
    assert_int_equal(mkdir(folder, 0700), 0);
    tiny_adapter_write(folder, 4);
    assert_ok(avo_adapter_open(f->model, folder, NULL, &adapter, NULL));
    avo_chat_adapter known[] = {{"one", adapter, 0.5f}};
    avo_chat_request_options options = AVO_CHAT_REQUEST_OPTIONS_INIT;
    options.adapters = known;
    options.adapter_count = 1;
    static const struct {
        const char *json;
        size_t count;
        float weight;
    } cases[] = {{"{" SAID "}", 1, 0.5f},
                 {"{" SAID ",\"adapter\":null}", 0, 0.0f},
                 {"{" SAID ",\"adapters\":[]}", 0, 0.0f},
                 {"{" SAID ",\"adapter\":\"one\"}", 1, 0.5f},
                 {"{" SAID ",\"adapters\":[{\"name\":\"one\",\"weight\":-2}]}", 1, -1.0f}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        avo_chat_request *request = ask(f, cases[i].json, &options);
        const avo_request *got = avo_chat_request_get(request);
        assert_int_equal(got->adapter_count, cases[i].count);
        if (cases[i].count > 0)
            assert_true(got->adapters[0].adapter == adapter &&
                        got->adapters[0].weight == cases[i].weight);
        avo_chat_request_close(request);
    }
    avo_adapter_close(adapter);
}

static void refuses_wrong_requests(void **state) {
    static const char *const cases[][2] = {
        {"{", "JSON"},
        {"[]", "expected a JSON object"},
        {"{}", "one of"},
        {"{\"prompt\":\"a\"," SAID "}", "one of"},
        {"{\"prompt\":5}", "prompt must be a string"},
        {"{\"prompt\":\"a\\u0000\"}", "zero byte"},
        {"{\"tokens\":[-1]}", "tokens[0] is -1, must be 0 to"},
        {"{\"messages\":[{\"role\":\"usr\",\"content\":\"q\"}]}", "role is \"usr\", must be"},
        {"{" SAID ",\"max_tokens\":0}", "max_tokens is 0, must be 1 to 16777216"},
        {"{" SAID ",\"max_tokens\":16777217}", "must be 1 to 16777216"},
        {"{" SAID ",\"max_tokens\":1.5}", "max_tokens must be an integer"},
        {"{" SAID ",\"temperature\":-0.1}", "temperature is -0.1, must be 0 to 1e+06"},
        {"{" SAID ",\"top_p\":1.01}", "top_p is 1.01, must be 0 to 1"},
        {"{" SAID ",\"typical_p\":0}", "typical_p"},
        {"{" SAID ",\"top_k\":-2}", "top_k is -2"},
        {"{" SAID ",\"ignore_eos\":1}", "ignore_eos must be true or false"},
        {"{" SAID ",\"deadline\":-1}", "deadline is -1"},
        {"{\"messages\":[]}", "empty"},
        {"{" SAID ",\"tempreature\":1}", "did you mean \"temperature\""},
        {"{" SAID ",\"temperature\":\"hot\"}", "temperature"},
        {"{" SAID ",\"max_tokens\":-1}", "max_tokens"},
        {"{" SAID ",\"logprobs\":21}", "logprobs"},
        {"{" SAID ",\"priority\":16}", "priority"},
        {"{" SAID ",\"speculation\":\"magic\"}", "speculation is \"magic\", must be off, auto or"},
        {"{" SAID ",\"speculation\":\"\"}", "speculation is \"\""},
        {"{" SAID ",\"speculation\":true}", "speculation must be a string"},
        {"{" SAID ",\"draft_tokens\":0}", "draft_tokens"},
        {"{" SAID ",\"draft_tokens\":17}", "must be 1 to 16"},
        {"{" SAID ",\"stop\":[1]}", "stop must be a string"},
        {"{" SAID ",\"stop_tokens\":[99999999]}", "stop_tokens[0] is 99999999, must be 0 to"},
        {"{" SAID ",\"pooling\":\"max\"}", "mean or last"},
        {"{" SAID ",\"adapter\":\"one\"}", "\"one\" is not loaded"},
        {"{" SAID ",\"adapter\":\"a\",\"adapters\":[]}", "not both"},
        {"{" SAID ",\"tools\":3}", "tools must be an array"},
        {"{" SAID ",\"tool_choice\":\"required\"}", "tool_choice needs tools"},
        {"{" SAID "," TOOLS ",\"tool_choice\":\"most\"}", "most"},
        {"{" SAID ",\"parallel_tool_calls\":1}", "true or false"},
        {"{" SAID ",\"chat_template_kwargs\":[]}", "must be an object"},
        {"{" SAID ",\"response_format\":{\"type\":\"xml\"}}", "xml"},
        {"{" SAID ",\"grammar\":\"x\",\"json_object\":true}",
         "json_object cannot be combined with grammar"},
        {"{" SAID ",\"grammar\":\"root ::= other\"}", "other"},
        {"{\"prompt\":\"a\",\"raw\":true," TOOLS "}", "chat template"},
        {"{\"tokens\":[5],\"tool_choice\":\"none\"}", "chat template"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuses(*state, cases[i][0], cases[i][1]);
    fixture *f = *state;
    avo_chat_request_options options = AVO_CHAT_REQUEST_OPTIONS_INIT;
    avo_chat_request *request;
    options.size = 3;
    assert_int_equal(avo_chat_request_open(f->chat, "{}", 2, &options, &request, NULL),
                     AVO_ERROR_ARGUMENT);
}

/* ---- Answers ---- */

/* Pushes a text in pieces of `step` bytes and collects what comes out. */
typedef struct parts {
    char content[256], reasoning[256];
    size_t early; /* pushes after which a call was there and not complete */
} parts;

static void add(char *to, const char *text, size_t bytes) {
    size_t length = strlen(to);
    assert_true(length + bytes < 256);
    if (bytes > 0)
        memcpy(to + length, text, bytes);
    to[length + bytes] = '\0';
}

static void push(avo_chat_parser *parser, const avo_token_event *event, parts *out) {
    avo_chat_delta delta = AVO_CHAT_DELTA_INIT;
    avo_tool_call call = AVO_TOOL_CALL_INIT;
    assert_ok(avo_chat_parser_push(parser, event, &delta, NULL));
    add(out->content, delta.content, delta.content_bytes);
    add(out->reasoning, delta.reasoning, delta.reasoning_bytes);
    assert_false(avo_chat_parser_call(parser, delta.calls, &call));
    if (delta.calls > 0) {
        assert_true(avo_chat_parser_call(parser, delta.calls - 1, &call));
        out->early += !call.complete;
    }
}

static avo_chat_parser *read_answer(const avo_chat_request *request, uint32_t flags,
                                    const char *text, size_t step, parts *out) {
    avo_chat_parser *parser;
    *out = (parts){0};
    assert_ok(avo_chat_parser_open(request, flags, &parser, NULL));
    for (size_t at = 0, size = strlen(text); at < size; at += step) {
        avo_token_event event = {.token = 1, .text = text + at};
        event.text_bytes = size - at < step ? size - at : step;
        push(parser, &event, out);
    }
    push(parser, NULL, out);
    return parser;
}

#define CALL(n) "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"n\": " #n "}}\n</tool_call>"

static void splits_answers(void **state) {
    fixture *f = *state;
    const char *text = "<think>why</think>\nso" CALL(1) "\n" CALL(2);
    for (size_t step = 1; step < 200; step += 9) {
        parts got;
        avo_tool_call call = AVO_TOOL_CALL_INIT;
        avo_chat_request *request = ask(f, "{" SAID "," TOOLS "}", NULL);
        avo_chat_parser *parser = read_answer(request, AVO_CHAT_REASONING, text, step, &got);
        assert_string_equal(got.content, "so");
        assert_string_equal(got.reasoning, "why");
        assert_int_equal(got.early, 0);
        assert_true(avo_chat_parser_call(parser, 1, &call) && call.complete);
        assert_memory_equal(call.name, "look", call.name_bytes);
        assert_int_equal(call.arguments_bytes, strlen("{\"n\":2}"));
        assert_memory_equal(call.arguments, "{\"n\":2}", call.arguments_bytes);
        assert_false(avo_chat_parser_call(parser, 2, &call));
        avo_chat_parser_close(parser);
        parser = read_answer(request, AVO_CHAT_EARLY_CALLS, text, step, &got);
        assert_non_null(strstr(got.content, "<think>why</think>")); /* was not asked for */
        assert_true(step > 1 || got.early > 10);
        avo_chat_parser_close(parser);
        avo_chat_request_close(request);
    }
}

static void looks_only_for_what_was_asked_for(void **state) {
    fixture *f = *state;
    parts got;
    avo_tool_call call = AVO_TOOL_CALL_INIT;
    avo_chat_request *plain = ask(f, "{" SAID "}", NULL);
    avo_chat_parser *parser = read_answer(plain, 0, "a" CALL(1), 5, &got);
    assert_string_equal(got.content, "a" CALL(1));
    assert_false(avo_chat_parser_call(parser, 0, &call));
    avo_chat_parser_close(parser);
    assert_int_equal(avo_chat_parser_open(plain, 4, &parser, NULL), AVO_ERROR_ARGUMENT);
    assert_null(parser);
    avo_chat_request_close(plain);
    avo_chat_request *one = ask(f, "{" SAID "," TOOLS ",\"parallel_tool_calls\":false}", NULL);
    parser = read_answer(one, 0, CALL(1) CALL(2), 7, &got);
    assert_true(avo_chat_parser_call(parser, 0, &call));
    assert_false(avo_chat_parser_call(parser, 1, &call));
    avo_chat_parser_close(parser);
    avo_chat_request_close(one);
}

static void survives_every_failure(void **state) {
    fixture *f = *state;
    const char *json = "{" SAID "," TOOLS ",\"stop\":[\"a\"],\"tool_choice\":\"required\"}";
    avo_status status = AVO_ERROR_MEMORY;
    for (size_t at = 1; status == AVO_ERROR_MEMORY; at++) {
        avo_chat *chat = NULL;
        avo_chat_request *request = NULL;
        avo_chat_parser *parser = NULL;
        avo_chat_delta delta = AVO_CHAT_DELTA_INIT;
        avo_token_event event = {.token = 1, .text = CALL(1), .text_bytes = strlen(CALL(1))};
        size_t live = f->counter.live;
        f->counter.fail_at = f->counter.allocations + at;
        status = avo_chat_open(f->model, &chat, NULL);
        if (status == AVO_OK)
            status = avo_chat_request_open(f->chat, json, strlen(json), NULL, &request, NULL);
        if (status == AVO_OK)
            status = avo_chat_parser_open(request, AVO_CHAT_REASONING, &parser, NULL);
        if (status == AVO_OK)
            status = avo_chat_parser_push(parser, &event, &delta, NULL);
        if (status == AVO_OK)
            status = avo_chat_parser_push(parser, NULL, &delta, NULL);
        f->counter.fail_at = 0;
        avo_chat_parser_close(parser);
        avo_chat_request_close(request);
        avo_chat_close(chat);
        if (status == AVO_ERROR_MEMORY)
            assert_int_equal(f->counter.live, live);
        assert_true(at > 3 || status == AVO_ERROR_MEMORY);
    }
    assert_ok(status);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_up_to_the_limits),
        cmocka_unit_test(reads_all_keys),
        cmocka_unit_test(defaults_count_where_a_key_is_missing),
        cmocka_unit_test(adapters_by_name),
        cmocka_unit_test(refuses_wrong_requests),
        cmocka_unit_test(splits_answers),
        cmocka_unit_test(looks_only_for_what_was_asked_for),
        cmocka_unit_test(survives_every_failure),
    };
    return cmocka_run_group_tests_name("chat/request", tests, open_fixture, close_fixture);
}
