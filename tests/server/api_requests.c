/* Bodies of requests: every field of the tables with good values, wrong types and values out of
 * range; prompts, messages and their other forms; what is refused names its field. */
#include "support/support.h"

#include "engine/request.h"
#include "server/api/api_int.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct desk {
    avo_model *model;
    server_options options;
    api api;
} desk;

static int open_desk(void **state) {
    static desk desk;
    avo_error error;
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, NULL, &desk.model, &error), &error);
    desk.options = (server_options){.model = desk.model, .model_name = "tiny", .choices_max = 16};
    desk.api = (api){.options = &desk.options, .model = desk.model};
    desk.api.info = (avo_model_info)AVO_MODEL_INFO_INIT;
    avo_model_describe(desk.model, &desk.api.info);
    desk.api.context = desk.api.info.context;
    pthread_mutex_init(&desk.api.lock, NULL);
    assert_ok_error(chat_format_open(desk.model, &desk.api.format, &error), &error);
    *state = &desk;
    return 0;
}

static int close_desk(void **state) {
    desk *desk = *state;
    chat_format_close(desk->api.format);
    avo_model_close(desk->model);
    return 0;
}

/* ---- The table ---- */

static const api_body bodies[] = {BODY_CHAT,          BODY_COMPLETION,      BODY_RESPONSE,
                                  BODY_MESSAGE,       BODY_COUNT,           BODY_EMBEDDING,
                                  BODY_TOKENIZE,      BODY_DETOKENIZE,      BODY_LOAD,
                                  BODY_UNLOAD,        BODY_LLAMA,           BODY_INFILL,
                                  BODY_TEMPLATE,      BODY_LLAMA_EMBEDDING, BODY_OLLAMA_EMBED,
                                  BODY_OLLAMA_VECTOR, BODY_OLLAMA_NAME};

/* Reads {required fields…, "name": value}; NULL: refused. */
static api_request *read_with(desk *desk, api_body body, const char *name, const char *value,
                              api_fault *fault) {
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof(text), "{");
    for (const char *at = api_required(body); *at != '\0';) {
        size_t length = strcspn(at, ",");
        bool own = strlen(name) == length && strncmp(at, name, length) == 0;
        bool integer = strncmp(at, "max_tokens", length) == 0;
        if (!own)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "\"%.*s\":%s,", (int)length,
                                     at, integer ? "1" : "\"x\"");
        at += length + (at[length] == ',');
    }
    snprintf(text + used, sizeof(text) - used, "\"%s\":%s}", name, value);
    api_request *request = NULL;
    *fault = (api_fault){0};
    (void)!api_request_open(&desk->api, body, NULL, text_from(text), &request, fault);
    return request;
}

static void refused(desk *desk, api_body body, const api_field *field, const char *value) {
    api_fault fault;
    if (read_with(desk, body, field->name, value, &fault) != NULL)
        fail_msg("%s: %s was taken", field->name, value);
    assert_int_equal(fault.status, 400);
    assert_string_equal(fault.param, field->name);
    assert_non_null(strstr(fault.text, field->name));
}

/* What the field became. */
typedef union taken_value {
    bool boolean;
    uint32_t u32;
    uint64_t seed;
    float real;
    double seconds;
    const char *text;
} taken_value;

static taken_value taken(desk *desk, api_body body, const api_field *field, const char *value) {
    api_fault fault;
    taken_value got = {0};
    api_request *request = read_with(desk, body, field->name, value, &fault);
    if (request == NULL)
        fail_msg("%s: %s: %s", field->name, value, fault.text);
    const size_t sizes[] = {sizeof(bool),   sizeof(uint32_t), sizeof(float),       sizeof(double),
                            sizeof(double), sizeof(uint64_t), sizeof(const char *)};
    if (field->kind < FIELD_VALUE)
        memcpy(&got, (const char *)request + field->offset, sizes[field->kind]);
    api_request_free(request);
    return got;
}

static void try_number(desk *desk, api_body body, const api_field *field) {
    char text[64];
    bool integer = field->kind == FIELD_U32 || field->kind == FIELD_SEED;
    refused(desk, body, field, "\"3\"");
    refused(desk, body, field, "true");
    refused(desk, body, field, "[1]");
    refused(desk, body, field, "{}");
    refused(desk, body, field, integer ? "1e300" : "1e308");
    if (integer)
        refused(desk, body, field, "0.5");
    if (field->kind == FIELD_SEED) {
        assert_true(taken(desk, body, field, "-9223372036854775807").seed == -(uint64_t)INT64_MAX);
        assert_true(taken(desk, body, field, "-1").seed <= UINT32_MAX); /* one by chance */
        return;
    }
    for (int side = 0; side < 2; side++) {
        double bound = side == 0 ? field->minimum : field->maximum;
        snprintf(text, sizeof(text), "%.17g", bound);
        taken_value got = taken(desk, body, field, text);
        if (field->kind == FIELD_U32)
            assert_true(got.u32 == (bound < 0 ? 0 : (uint32_t)bound));
        else if (field->kind == FIELD_FLOAT)
            assert_true(got.real == (float)bound);
        else
            assert_true(got.seconds == bound * (field->kind == FIELD_SECONDS ? 1.0 : 1e-3));
        snprintf(text, sizeof(text), "%.17g", bound + (side == 0 ? -1.0 : 1.0) * fmax(1.0, bound));
        refused(desk, body, field, text);
    }
}

static void try_string(desk *desk, api_body body, const api_field *field) {
    refused(desk, body, field, "7");
    refused(desk, body, field, "false");
    refused(desk, body, field, "[\"a\"]");
    refused(desk, body, field, "\"a\\u0000b\"");
    assert_non_null(taken(desk, body, field, "\"ab\"").text);
    if (field->maximum > 600)
        return;
    char text[640];
    memset(text, 'a', sizeof(text));
    size_t length = (size_t)field->maximum + 1;
    text[0] = text[length + 1] = '"';
    text[length + 2] = '\0';
    refused(desk, body, field, text);
    text[length] = '"';
    text[length + 1] = '\0';
    (void)taken(desk, body, field, text);
}

static void try_field(desk *desk, api_body body, const api_field *field) {
    switch (field->kind) {
    case FIELD_BOOLEAN:
        refused(desk, body, field, "1");
        refused(desk, body, field, "\"true\"");
        assert_true(taken(desk, body, field, "true").boolean);
        assert_false(taken(desk, body, field, "false").boolean);
        break;
    case FIELD_U32:
    case FIELD_SEED:
    case FIELD_FLOAT:
    case FIELD_SECONDS:
    case FIELD_MILLISECONDS:
        try_number(desk, body, field);
        break;
    case FIELD_STRING:
        try_string(desk, body, field);
        break;
    case FIELD_VALUE:
        (void)taken(desk, body, field, "[1]");
        break;
    case FIELD_IGNORED:
        (void)taken(desk, body, field, "{\"any\":[1]}");
        break;
    case FIELD_REFUSED:
        refused(desk, body, field, "\"x\"");
        refused(desk, body, field, field->minimum == 1 ? "false" : "true");
        refused(desk, body, field, "{\"a\":1}");
        (void)taken(desk, body, field, "null");
        (void)taken(desk, body, field, field->minimum == 1 ? "true" : "false");
        (void)taken(desk, body, field, field->minimum == -1 ? "-1.0" : "null");
        (void)taken(desk, body, field, "[]");
        break;
    }
}

static void test_every_field(void **state) {
    desk *desk = *state;
    size_t tried = 0;
    for (size_t b = 0; b < sizeof(bodies) / sizeof(bodies[0]); b++)
        for (size_t i = 0; i < api_field_count; i++)
            if ((api_field_table[i].bodies & (uint32_t)bodies[b]) != 0) {
                try_field(desk, bodies[b], &api_field_table[i]);
                tried++;
            }
    assert_true(tried > 150);
}

static void test_no_field_twice_in_a_body(void **state) {
    (void)state;
    for (size_t i = 0; i < api_field_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(api_field_table[i].name, api_field_table[j].name) == 0)
                assert_int_equal(api_field_table[i].bodies & api_field_table[j].bodies, 0);
}

static void test_required_fields(void **state) {
    desk *desk = *state;
    for (size_t b = 0; b < sizeof(bodies) / sizeof(bodies[0]); b++) {
        api_request *request = NULL;
        api_fault fault = {0};
        bool needs = api_required(bodies[b])[0] != '\0';
        assert_int_equal(
            api_request_open(&desk->api, bodies[b], NULL, text_from("{}"), &request, &fault),
            !needs);
        if (needs)
            assert_string_equal(fault.code, "missing_required_parameter");
        api_request_free(request);
    }
}

/* What is no field of this body is refused, even if another one has it. */
static void test_fields_of_other_bodies(void **state) {
    desk *desk = *state;
    static const char *const names[][2] = {{"text", ""},
                                           {"max_output_tokens", ""},
                                           {"tempreature", "did you mean \"temperature\"?"},
                                           {"", ""}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        api_fault wrong = {0};
        assert_null(read_with(desk, BODY_COMPLETION, names[i][0], "1", &wrong));
        assert_int_equal(wrong.status, 400);
        assert_string_equal(wrong.code, "unknown_parameter");
        assert_string_equal(wrong.param, names[i][0]);
        assert_non_null(strstr(wrong.text, names[i][1]));
    }
    api_fault fault = {0};
    api_request *request = read_with(desk, BODY_COMPLETION, "text", "null", &fault);
    assert_non_null(request);
    assert_null(api_field_of(request, "text"));
    assert_null(api_field_of(request, "stop"));
    assert_null(api_field_of(request, "nothing"));
    assert_non_null(api_field_of(request, "prompt"));
    api_request_free(request);
}

/* ---- Whole requests ---- */

static bool read_text(desk *desk, api_body body, const char *text, api_request **g,
                      api_fault *fault) {
    *fault = (api_fault){0};
    return api_request_read(&desk->api, body, NULL, text_from(text), g, fault);
}

static void bad(desk *desk, api_body body, const char *text, unsigned status, const char *param) {
    api_request *g = NULL;
    api_fault fault;
    if (read_text(desk, body, text, &g, &fault))
        fail_msg("%s was taken", text);
    assert_null(g);
    if (fault.status != status || strcmp(fault.param, param) != 0)
        fail_msg("%s: status %u, param \"%s\", %s", text, fault.status, fault.param, fault.text);
}

static api_request *good(desk *desk, api_body body, const char *text) {
    api_request *g = NULL;
    api_fault fault;
    if (!read_text(desk, body, text, &g, &fault))
        fail_msg("%s: %s", text, fault.text);
    return g;
}

static void test_no_json(void **state) {
    desk *desk = *state;
    const char *const wrong[] = {"",
                                 "nonsense",
                                 "{",
                                 "[]",
                                 "3",
                                 "\"x\"",
                                 "{\"prompt\":NaN}",
                                 "{\"prompt\":\"a\",\"prompt\":\"b\"}",
                                 "{\"prompt\":\"\xff\"}",
                                 "{\"prompt\":\"a\"} more",
                                 "{\"temperature\":-Infinity}"};
    static const char *const params[] = {"",       "", "",       "", "",           "",
                                         "prompt", "", "prompt", "", "temperature"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        bad(desk, BODY_COMPLETION, wrong[i], 400, params[i]);
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"top_p\":1e999}", 400, "top_p");
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"top_p\":Infinity}", 400, "top_p");
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"3\":NaN}}", 400, "logit_bias");
    bad(desk, BODY_CHAT, "{\"messages\":[{\"role\":NaN}]}", 400, "messages");
    bad(desk, BODY_CHAT, "{\"messages\":[{\"role\":\"user\"}],oops}", 400, "");
    char deep[2001];
    memset(deep, '[', 2000);
    deep[2000] = '\0';
    bad(desk, BODY_COMPLETION, deep, 400, "");
}

/* What an endpoint takes is what its errors say. */
static void test_lengths(void **state) {
    desk *desk = *state;
    const char *const chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"%s\":%d}";
    static const struct {
        api_body body;
        const char *name;
        int lowest;
    } rows[] = {{BODY_CHAT, "max_tokens", 1},
                {BODY_CHAT, "max_completion_tokens", 1},
                {BODY_MESSAGE, "max_tokens", 1},
                {BODY_COMPLETION, "max_tokens", 0},
                {BODY_RESPONSE, "max_output_tokens", 1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *form = rows[i].body == BODY_COMPLETION ? "{\"prompt\":\"a\",\"%s\":%d}"
                           : rows[i].body == BODY_RESPONSE ? "{\"input\":\"a\",\"%s\":%d}"
                                                           : chat;
        for (int given = -1; given <= 1; given++) {
            char body[200], said[100];
            snprintf(body, sizeof(body), form, rows[i].name, given);
            snprintf(said, sizeof(said), "%s is %d, must be %d to %lld", rows[i].name, given,
                     rows[i].lowest, (long long)REQUEST_NEW_TOKENS_MAX);
            if (given >= rows[i].lowest && rows[i].body == BODY_COMPLETION) {
                api_request_free(good(desk, rows[i].body, body));
            } else if (given < rows[i].lowest) { /* the model here has no template to chat with */
                api_fault fault;
                api_request *g = NULL;
                assert_false(read_text(desk, rows[i].body, body, &g, &fault));
                assert_string_equal(fault.param, rows[i].name);
                assert_string_equal(fault.text, said);
            }
        }
    }
}

static void test_prompts(void **state) {
    desk *desk = *state;
    api_request *g = good(desk, BODY_COMPLETION, "{\"prompt\":\"once\"}");
    assert_int_equal(g->prompt_count, 1);
    assert_string_equal(g->prompts[0].text, "once");
    assert_int_equal(g->submit.max_new_tokens, 16);
    api_request_free(g);
    g = good(desk, BODY_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":0,\"echo\":true}");
    assert_int_equal(g->prompt_count, 2);
    assert_true(g->submit.no_answer && g->echo);
    api_request_free(g);
    g = good(desk, BODY_COMPLETION, "{\"prompt\":[1,2,3],\"logprobs\":5}");
    assert_int_equal(g->prompts[0].token_count, 3);
    assert_int_equal(g->prompts[0].tokens[2], 3);
    assert_int_equal(g->sampling.top_logprobs, 5);
    api_request_free(g);
    g = good(desk, BODY_COMPLETION, "{\"prompt\":[[1,2],[3]]}");
    assert_int_equal(g->prompt_count, 2);
    api_request_free(g);
    bad(desk, BODY_COMPLETION, "{\"prompt\":[]}", 400, "prompt");
    bad(desk, BODY_COMPLETION, "{\"prompt\":[[]]}", 400, "prompt[0]");
    bad(desk, BODY_COMPLETION, "{\"prompt\":[\"a\",3]}", 400, "prompt[1]");
    bad(desk, BODY_COMPLETION, "{\"prompt\":[1,\"a\"]}", 400, "prompt");
    bad(desk, BODY_COMPLETION, "{\"prompt\":[1,-2]}", 400, "prompt");
    bad(desk, BODY_COMPLETION, "{\"prompt\":[1,364]}", 400, "prompt");
    bad(desk, BODY_COMPLETION, "{\"prompt\":{\"a\":1}}", 400, "prompt");
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\\u0000\"}", 400, "prompt");
    bad(desk, BODY_EMBEDDING, "{\"input\":[true]}", 400, "input[0]");
    char many[8192] = "{\"prompt\":[0";
    for (int i = 0; i < 300; i++)
        memcpy(many + strlen(many), ",1", 3);
    memcpy(many + strlen(many), "]}", 3);
    bad(desk, BODY_COMPLETION, many, 400, "prompt");
}

static void test_choices(void **state) {
    desk *desk = *state;
    api_request *g = good(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"n\":2,\"best_of\":4}");
    assert_int_equal(g->n, 2);
    assert_int_equal(g->best_of, 4);
    api_request_free(g);
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"n\":17}", 400, "n");
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"best_of\":17}", 400, "best_of");
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"n\":3,\"best_of\":2}", 400, "best_of");
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"best_of\":2,\"stream\":true}", 400, "best_of");
}

static void test_sampling(void **state) {
    desk *desk = *state;
    api_request *g = good(desk, BODY_COMPLETION,
                          "{\"prompt\":\"a\",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":-1,"
                          "\"min_p\":0.1,\"repeat_penalty\":1.5,\"seed\":7,\"logit_bias\":{\"5\":2,"
                          "\"6\":-100},\"stop\":[\"x\",\"yz\"],\"stop_token_ids\":[3,4]}");
    assert_true(g->sampling.temperature == 0.5f && g->sampling.top_p == 0.9f);
    assert_true(g->sampling.repetition_penalty == 1.5f && g->sampling.min_p == 0.1f);
    assert_int_equal(g->sampling.top_k, 0);
    assert_int_equal(g->sampling.seed, 7);
    assert_int_equal(g->sampling.bias_count, 2);
    assert_true(g->sampling.bias[0].bias == 2.0f && isinf(g->sampling.bias[1].bias));
    assert_int_equal(g->submit.stop_count, 2);
    assert_string_equal(g->submit.stop[1], "yz");
    assert_int_equal(g->submit.stop_token_count, 2);
    api_request_free(g);
    const char *const wrong[][2] = {
        {"\"logit_bias\":[1]", "logit_bias"},
        {"\"logit_bias\":{\"x\":1}", "logit_bias"},
        {"\"logit_bias\":{\"364\":1}", "logit_bias"},
        {"\"logit_bias\":{\"99999999999999999999\":1}", "logit_bias"},
        {"\"logit_bias\":{\"1\":\"a\"}", "logit_bias"},
        {"\"stop\":5", "stop"},
        {"\"stop\":[\"a\",5]", "stop"},
        {"\"stop\":[[]]", "stop"},
        {"\"stop_token_ids\":[-1]", "stop_token_ids"},
        {"\"stop_token_ids\":3", "stop_token_ids"},
        {"\"stream_options\":3", "stream_options"},
        {"\"stream_options\":{\"include_usage\":3}", "stream_options.include_usage"},
        {"\"logprobs\":21", "logprobs"},
        {"\"logprobs\":\"a\"", "logprobs"},
        {"\"response_format\":3", "response_format"},
        {"\"response_format\":{\"type\":\"xml\"}", "response_format"},
        {"\"adapters\":[{\"name\":\"a\"}],\"lora\":null", "adapters"},
        {"\"adapters\":3", "adapters"},
        {"\"lora\":[{\"id\":0,\"scale\":1}]", "lora[0].id"},
        {"\"lora\":[{}]", "lora[0]"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "{\"prompt\":\"a\",%s}", wrong[i][0]);
        api_request *made = NULL;
        api_fault fault;
        assert_false(read_text(desk, BODY_COMPLETION, text, &made, &fault));
        assert_string_equal(fault.param, wrong[i][1]);
        assert_true(fault.status == 400 || fault.status == 404);
    }
    bad(desk, BODY_COMPLETION, "{\"prompt\":\"a\",\"model\":\"gpt-4\"}", 404, "model");
}

static void test_embeddings(void **state) {
    desk *desk = *state;
    api_request *g = good(desk, BODY_EMBEDDING,
                          "{\"input\":[\"a\",\"b\"],\"encoding_format\":\"base64\",\"pooling\":"
                          "\"last\",\"dimensions\":4}");
    assert_true(g->base64 && g->submit.no_answer && g->normalize);
    assert_int_equal(g->submit.pooling, AVO_POOLING_LAST);
    assert_int_equal(g->dimensions, 4);
    api_request_free(g);
    bad(desk, BODY_EMBEDDING, "{\"input\":\"a\",\"encoding_format\":\"hex\"}", 400,
        "encoding_format");
    bad(desk, BODY_EMBEDDING, "{\"input\":\"a\",\"pooling\":\"max\"}", 400, "pooling");
    bad(desk, BODY_EMBEDDING, "{\"input\":\"a\",\"dimensions\":100000}", 400, "dimensions");
}

/* ---- Conversations; this model has no template, which is the last thing to be looked at ---- */

/* What is kept of a body has a limit that follows from the body's size; this one lies about it. */
static void test_more_than_the_body_allows(void **state) {
    desk *desk = *state;
    size_t bytes = (size_t)9 << 20;
    char *text = malloc(bytes + 128);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, 128, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    memset(text + used, 'x', bytes);
    memcpy(text + used + bytes, "\"}]}", 5);
    api_request *request = NULL;
    api_fault fault = {0};
    assert_true(api_request_open(&desk->api, BODY_COUNT, NULL, text_from(text), &request, &fault));
    size_t allowed = request->arena.limit_bytes;
    request->arena.limit_bytes = (size_t)8 << 20;
    assert_false(api_request_talk(&desk->api, request, &fault));
    assert_int_equal(fault.status, 413);
    assert_string_equal(fault.code, "too_complex");
    api_request_free(request);
    /* As it is there is room, and the next thing is wrong: this model has no template. */
    assert_true(api_request_open(&desk->api, BODY_COUNT, NULL, text_from(text), &request, &fault));
    assert_int_equal(request->arena.limit_bytes, allowed);
    assert_false(api_request_talk(&desk->api, request, &fault));
    assert_string_equal(fault.code, "no_chat_template");
    api_request_free(request);
    free(text);
}

static void test_no_template(void **state) {
    desk *desk = *state;
    api_request *g = NULL;
    api_fault fault;
    assert_false(read_text(desk, BODY_CHAT,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &g, &fault));
    assert_string_equal(fault.code, "no_chat_template");
    bad(desk, BODY_RESPONSE, "{\"input\":\"a\",\"previous_response_id\":\"r\"}", 400,
        "previous_response_id");
    bad(desk, BODY_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"web\"}]}",
        400, "tools[0]");
    bad(desk, BODY_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\","
        "\"function\":{\"name\":\"no spaces\"}}]}",
        400, "tools[0]");
    bad(desk, BODY_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\"}", 400,
        "tool_choice");
    bad(desk, BODY_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"top_logprobs\":2}", 400,
        "top_logprobs");
    bad(desk, BODY_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"modalities\":[\"audio\"]}", 400,
        "modalities");
}

static void test_long_grammar(void **state) {
    desk *desk = *state;
    buffer body;
    buffer_init(&body, NULL, SIZE_MAX);
    assert_ok(buffer_format(&body, "{\"prompt\":\"a\",\"grammar\":\"%*s\"}",
                            (int)CHAT_GRAMMAR_BYTES_MAX + 1, ""));
    assert_ok(buffer_terminate(&body));
    bad(desk, BODY_COMPLETION, body.data, 400, "grammar");
    buffer_free(&body);
}

/* ---- The document ---- */

static void test_document_has_every_route_and_field(void **state) {
    desk *desk = *state;
    buffer out;
    buffer_init(&out, NULL, 1 << 24);
    json_writer w = json_writer_of(&out);
    openapi_write(&w, &desk->api);
    assert_ok(json_writer_status(&w));
    arena arena;
    arena_init(&arena, NULL, 1 << 26);
    json_value root = {0};
    avo_error error;
    assert_ok_error(json_parse(&arena, buffer_text(&out), &root, &error), &error);
    const json_value *paths = json_find(&root, "paths");
    size_t operations = 0;
    for (size_t i = 0; i < paths->object.count; i++)
        operations += paths->object.members[i].value.object.count;
    assert_int_equal(operations, api_route_count);
    for (size_t i = 0; i < api_route_count; i++) {
        const api_route *route = &api_routes[i];
        const json_value *path = json_find(paths, route->path);
        const json_value *operation =
            json_find(path, strcmp(route->method, "GET") == 0    ? "get"
                            : strcmp(route->method, "POST") == 0 ? "post"
                                                                 : "delete");
        assert_non_null(operation);
        assert_non_null(json_find(json_find(operation, "responses"), "200"));
        if (route->body == BODY_NONE || route->body == BODY_SCALES)
            continue;
        const json_value *schema =
            json_find(json_find(json_find(json_find(operation, "requestBody"), "content"),
                                "application/json"),
                      "schema");
        const json_value *properties = json_find(schema, "properties");
        size_t fields = 0;
        for (size_t f = 0; f < api_field_count; f++)
            if ((api_field_table[f].bodies & (uint32_t)route->body) != 0) {
                fields++;
                assert_non_null(json_find(properties, api_field_table[f].name));
            }
        assert_int_equal(properties->object.count, fields);
    }
    arena_free(&arena);
    buffer_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_no_field_twice_in_a_body),
        cmocka_unit_test(test_required_fields),
        cmocka_unit_test(test_fields_of_other_bodies),
        cmocka_unit_test(test_no_json),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_more_than_the_body_allows),
        cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_long_grammar),
        cmocka_unit_test(test_document_has_every_route_and_field),
    };
    return cmocka_run_group_tests(tests, open_desk, close_desk);
}
