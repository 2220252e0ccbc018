/* Grammars with a model: masks are what trying every token gives, whatever is drawn follows the
 * grammar, and answers that end are valid by an independent look. */
#include "support/support.h"

#include "base/json.h"
#include "base/random.h"
#include "model/model.h"
#include "sample/grammar.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[10] = {"{\"",  "\": ", "\", \"", "\"}", "true",
                                      "a\":", "]}",   "\n  ",   "1, ", "\xC3\xA9\""};

typedef struct stage {
    avo_model *model;
    avo_engine *engine;
    avo_error error;
} stage;

static stage open_stage(void) {
    stage s = {0};
    const char *path = tiny_model_write_words(test_scratch_folder(), 11, words);
    assert_ok_error(avo_model_open(path, NULL, &s.model, &s.error), &s.error);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    assert_ok_error(avo_engine_open(s.model, &options, &s.engine, &s.error), &s.error);
    return s;
}

static void close_stage(stage *s) {
    avo_engine_close(s->engine);
    avo_model_close(s->model);
}

static avo_grammar *open_grammar(stage *s, avo_grammar_kind kind, const char *text,
                                 const char *trigger) {
    avo_grammar *grammar = NULL;
    avo_grammar_options options = AVO_GRAMMAR_OPTIONS_INIT;
    options.json_or_text = trigger != NULL && trigger[0] == '\0';
    options.trigger = options.json_or_text ? NULL : trigger;
    avo_status status = avo_grammar_open(s->model, kind, text, &options, &grammar, &s->error);
    if (status != AVO_OK)
        fail_msg("%s: %s", text == NULL ? "JSON" : text, s->error.text);
    return grammar;
}

/* ---- Masks ---- */

static const struct {
    avo_grammar_kind kind;
    const char *text, *trigger; /* "": json_or_text */
} grammars[] = {
    {AVO_GRAMMAR_JSON, NULL, NULL},
    {AVO_GRAMMAR_JSON, NULL, ""},
    {AVO_GRAMMAR_JSON, NULL, "{\""},
    {AVO_GRAMMAR_JSON, NULL, "aab"},
    {AVO_GRAMMAR_GBNF, "root ::= \"(\" root \")\" | [a-z]{0,40} root2\nroot2 ::= \"!\"*", NULL},
    {AVO_GRAMMAR_GBNF, "root ::= word (\" \" word)* \".\"\nword ::= [a-b]+ | \"\xC3\xA9\"", NULL},
    {AVO_GRAMMAR_GBNF, "root ::= [0-9]+", "x"},
    {AVO_GRAMMAR_GBNF, "root ::= .{3}", NULL},
    {AVO_GRAMMAR_REGEX, "^(a|b{1,3})[^c-z\"]*\\d?$", NULL},
    {AVO_GRAMMAR_REGEX, "a+|\xC3\xA9.", NULL},
    {AVO_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":"
     "20}"
     ",\"ab\":{\"type\":\"string\",\"maxLength\":50},\"b\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"boolean\"},\"maxItems\":3}},\"required\":[\"a\"],\"additionalProperties\":{\"type\":"
     "\"number\"}}",
     NULL},
    {AVO_GRAMMAR_JSON_SCHEMA,
     "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{"
     "\"$ref\":\"#/$defs/n\"}}}}},\"$ref\":\"#/$defs/n\"}",
     NULL},
};

static bool bit(const uint64_t *bits, int32_t token) {
    return (bits[(uint32_t)token / 64] >> ((uint32_t)token % 64) & 1) != 0;
}

/* A matcher at the place where these tokens lead, and then the token's text. */
static bool fits(stage *s, avo_grammar *grammar, const int32_t *tokens, size_t count,
                 int32_t token) {
    grammar_matcher *matcher = NULL;
    char text[64];
    size_t bytes = 0;
    assert_ok_error(grammar_matcher_open(grammar, NULL, 0, NULL, &matcher, &s->error), &s->error);
    for (size_t i = 0; i < count; i++)
        assert_ok_error(grammar_matcher_follow(matcher, tokens[i], &s->error), &s->error);
    assert_ok(avo_detokenize(s->model, &token, 1, AVO_TOKENIZE_CONTINUE, text, sizeof(text), &bytes,
                             NULL));
    bool taken = bytes > 0 && grammar_matcher_take(matcher, text, bytes);
    grammar_matcher_close(matcher);
    return taken;
}

static int32_t pick(const uint64_t *allowed, uint64_t seed, uint64_t at) {
    uint32_t count = 0;
    for (int32_t token = 0; token < TINY_VOCABULARY; token++)
        count += bit(allowed, token);
    uint32_t wanted = random_at(seed, 9, at).words[0] % count;
    for (int32_t token = 0; token < TINY_VOCABULARY; token++)
        if (bit(allowed, token) && wanted-- == 0)
            return token;
    return -1;
}

static void check_masks(stage *s, avo_grammar *grammar, bool triggered, uint64_t seed) {
    int32_t tokens[64];
    grammar_matcher *matcher = NULL;
    assert_ok_error(grammar_matcher_open(grammar, NULL, 0, NULL, &matcher, &s->error), &s->error);
    for (size_t count = 0; count < 24; count++) {
        const uint64_t *allowed = NULL;
        assert_ok_error(grammar_matcher_mask(matcher, &allowed, &s->error), &s->error);
        for (int32_t token = 0; token < TINY_VOCABULARY; token++) {
            bool ends = avo_model_token_ends(s->model, token);
            bool wanted =
                ends ? grammar_matcher_complete(matcher) : fits(s, grammar, tokens, count, token);
            if (triggered && token < 3 && !ends)
                continue; /* tokens without a text: in free text alone */
            if (bit(allowed, token) != wanted)
                fail_msg("seed %llu, step %zu, token %d: %d, should be %d",
                         (unsigned long long)seed, count, token, bit(allowed, token), wanted);
        }
        tokens[count] = pick(allowed, seed, count);
        if (avo_model_token_ends(s->model, tokens[count]))
            break;
        assert_ok_error(grammar_matcher_follow(matcher, tokens[count], &s->error), &s->error);
    }
    grammar_matcher_close(matcher);
}

#if defined(__SANITIZE_ADDRESS__)
#define SEEDS 1
#else
#define SEEDS 12
#endif

static void test_masks(void **state) {
    (void)state;
    stage s = open_stage();
    uint64_t seeds = test_device_is_remote() ? 1 : SEEDS; /* masks are made without a device */
    for (size_t i = 0; i < sizeof(grammars) / sizeof(grammars[0]); i++) {
        avo_grammar *grammar =
            open_grammar(&s, grammars[i].kind, grammars[i].text, grammars[i].trigger);
        for (uint64_t seed = 0; seed < seeds; seed++)
            check_masks(&s, grammar, grammars[i].trigger != NULL, seed);
        avo_grammar_close(grammar);
    }
    close_stage(&s);
}

/* ---- An independent look at values ---- */

static bool valid(const json_value *schema, const json_value *value);

static double number_of(const json_value *value) {
    return value->kind == JSON_INTEGER ? (double)value->integer : value->number;
}

static bool has_type(text_view type, const json_value *value) {
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    return text_is(type, names[value->kind]) ||
           (text_is(type, "number") && value->kind == JSON_INTEGER);
}

static bool valid_object(const json_value *schema, const json_value *value) {
    const json_value *properties = json_find(schema, "properties");
    const json_value *required = json_find(schema, "required");
    const json_value *additional = json_find(schema, "additionalProperties");
    for (size_t i = 0; required != NULL && i < required->array.count; i++)
        if (json_find_text(value, required->array.items[i].string) == NULL)
            return false;
    for (size_t i = 0; i < value->object.count; i++) {
        const json_member *member = &value->object.members[i];
        const json_value *own = json_find_text(properties, member->key);
        if (own == NULL)
            own = additional;
        if (own != NULL && !valid(own, &member->value))
            return false;
    }
    return true;
}

static size_t characters(text_view text) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

static bool valid(const json_value *schema, const json_value *value) {
    const json_value *k;
    if (schema->kind == JSON_BOOLEAN)
        return schema->boolean;
    if ((k = json_find(schema, "type")) != NULL && !has_type(k->string, value))
        return false;
    if ((k = json_find(schema, "anyOf")) != NULL) {
        bool any = false;
        for (size_t i = 0; i < k->array.count; i++)
            any = any || valid(&k->array.items[i], value);
        if (!any)
            return false;
    }
    if (value->kind == JSON_OBJECT && !valid_object(schema, value))
        return false;
    if (value->kind == JSON_ARRAY) {
        for (size_t i = 0; (k = json_find(schema, "items")) != NULL && i < value->array.count; i++)
            if (!valid(k, &value->array.items[i]))
                return false;
        if ((k = json_find(schema, "maxItems")) != NULL && value->array.count > (size_t)k->integer)
            return false;
        if ((k = json_find(schema, "minItems")) != NULL && value->array.count < (size_t)k->integer)
            return false;
    }
    if (value->kind == JSON_STRING) {
        if ((k = json_find(schema, "maxLength")) != NULL &&
            characters(value->string) > (size_t)k->integer)
            return false;
        if ((k = json_find(schema, "minLength")) != NULL &&
            characters(value->string) < (size_t)k->integer)
            return false;
    }
    if (value->kind == JSON_INTEGER || value->kind == JSON_NUMBER) {
        if ((k = json_find(schema, "minimum")) != NULL && number_of(value) < number_of(k))
            return false;
        if ((k = json_find(schema, "maximum")) != NULL && number_of(value) > number_of(k))
            return false;
    }
    return true;
}

/* ---- Answers ---- */

typedef struct heard {
    char text[8192];
    size_t size;
    uint32_t tokens;
    float logprob_first;
} heard;

static bool hear(void *context, const avo_event *told) {
    heard *h = context;
    const avo_token_event *event = told->token;
    if (told->kind != AVO_EVENT_TOKEN)
        return true;
    assert_true(h->size + event->text_bytes < sizeof(h->text));
    memcpy(h->text + h->size, event->text, event->text_bytes);
    h->size += event->text_bytes;
    if (h->tokens++ == 0)
        h->logprob_first = event->logprob;
    return true;
}

static avo_status answer(stage *s, const avo_request *wanted, heard *h, avo_result *result) {
    static const int32_t prompt[] = {1, 300, 310, 320};
    avo_session *session = NULL;
    avo_request request = *wanted;
    request.tokens = prompt;
    request.token_count = 4;
    request.on_event = hear;
    request.on_event_context = h;
    *h = (heard){0};
    *result = (avo_result)AVO_RESULT_INIT;
    assert_ok_error(avo_session_open(s->engine, NULL, &session, &s->error), &s->error);
    avo_status status = avo_generate(s->engine, session, &request, result, &s->error);
    avo_session_close(session);
    return status;
}

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":"
    "17}"
    ",\"b\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":5},\"ab\":{\"type\":\"boolean\"}},"
    "\"required\":[\"a\",\"ab\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":2.25},"
    "\"minItems\":1,\"maxItems\":4}",
    "{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"maxItems\":2}},\"required\":["
    "\"x\"]}]}",
    "{\"type\":\"string\",\"maxLength\":3}",
};

static void roll_sampling(avo_sampling *sampling, uint64_t seed) {
    *sampling = (avo_sampling)AVO_SAMPLING_INIT;
    sampling->seed = seed;
    sampling->temperature = seed % 5 == 0 ? 0.0f : 1.5f;
    sampling->top_k = seed % 5 == 1 ? 5 : 0;
    sampling->top_p = seed % 5 == 2 ? 0.7f : 1.0f;
    sampling->repetition_penalty = seed % 5 == 3 ? 1.3f : 1.0f;
}

static void test_answers(void **state) {
    (void)state;
    stage s = open_stage();
    uint32_t finished = 0;
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        avo_grammar *grammar = open_grammar(&s, AVO_GRAMMAR_JSON_SCHEMA, schemas[i], NULL);
        for (uint64_t seed = 0; seed < 5 * SEEDS; seed++) {
            avo_sampling sampling;
            heard h;
            avo_result result;
            roll_sampling(&sampling, seed);
            avo_request request = AVO_REQUEST_INIT;
            request.sampling = &sampling;
            request.grammar = grammar;
            request.max_new_tokens = 120;
            assert_ok_error(answer(&s, &request, &h, &result), &s.error);
            grammar_matcher *matcher = NULL;
            assert_ok(grammar_matcher_open(grammar, NULL, 0, NULL, &matcher, &s.error));
            if (result.finish != AVO_FINISH_STOP_TOKEN) {
                grammar_matcher_close(matcher);
                continue; /* half a character may be missing */
            }
            assert_true(grammar_matcher_take(matcher, h.text, h.size));
            assert_true(grammar_matcher_complete(matcher));
            grammar_matcher_close(matcher);
            finished++;
            arena arena;
            json_value schema;
            json_value value;
            arena_init(&arena, NULL, SIZE_MAX);
            assert_ok(json_parse(&arena, text_from(schemas[i]), &schema, NULL));
            if (json_parse(&arena, (text_view){h.text, h.size}, &value, &s.error) != AVO_OK ||
                !valid(&schema, &value))
                fail_msg("%s: %.*s: %s", schemas[i], (int)h.size, h.text, s.error.text);
            arena_free(&arena);
        }
        avo_grammar_close(grammar);
    }
    assert_true(finished >= SEEDS * 4 * 3); /* of 5 for each schema */
    close_stage(&s);
}

/* ---- Ends, stops, triggers ---- */

static void test_ends(void **state) {
    (void)state;
    stage s = open_stage();
    heard h;
    avo_result result;
    avo_request request = AVO_REQUEST_INIT;
    request.grammar = open_grammar(&s, AVO_GRAMMAR_GBNF, "root ::= \"abcdef\"", NULL);
    assert_ok_error(answer(&s, &request, &h, &result), &s.error);
    assert_int_equal(result.finish, AVO_FINISH_STOP_TOKEN);
    assert_int_equal(h.size, 6);
    assert_memory_equal(h.text, "abcdef", 6);
    /* The logprob is the model's own: far from certain. */
    assert_true(h.logprob_first < -0.1f);
    request.max_new_tokens = 3;
    assert_ok_error(answer(&s, &request, &h, &result), &s.error);
    assert_int_equal(result.finish, AVO_FINISH_LENGTH);
    request.max_new_tokens = 12;
    request.ignore_end = true; /* end tokens are drawn, the text stays */
    assert_ok_error(answer(&s, &request, &h, &result), &s.error);
    assert_int_equal(result.finish, AVO_FINISH_LENGTH);
    assert_int_equal(result.new_tokens, 12);
    assert_int_equal(h.size, 6);
    request.ignore_end = false;
    const char *stop[] = {"cd"};
    request.stop = stop;
    request.stop_count = 1;
    assert_ok_error(answer(&s, &request, &h, &result), &s.error);
    assert_int_equal(result.finish, AVO_FINISH_STOP_STRING);
    assert_int_equal(h.size, 2);
    request.stop_count = 0;
    /* A bias that forbids what the grammar demands fails by name. */
    avo_logit_bias bias[TINY_VOCABULARY];
    for (int32_t i = 0; i < TINY_VOCABULARY; i++)
        bias[i] = (avo_logit_bias){i, i == 2 ? 0.0f : -INFINITY};
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.bias = bias;
    sampling.bias_count = TINY_VOCABULARY;
    request.sampling = &sampling;
    assert_refused(answer(&s, &request, &h, &result), AVO_ERROR_ARGUMENT, &s.error,
                   "that the grammar allows");
    avo_grammar_close(request.grammar);
    /* Deeper than stacks go. */
    request.sampling = NULL;
    request.grammar = open_grammar(&s, AVO_GRAMMAR_GBNF, "root ::= \"(\" root \")\" | \"x\"", NULL);
    grammar_matcher *matcher = NULL;
    assert_ok(grammar_matcher_open(request.grammar, NULL, 0, NULL, &matcher, &s.error));
    avo_status status = AVO_OK;
    int depth = 0;
    for (; depth < 2000 && status == AVO_OK; depth++) {
        const uint64_t *allowed;
        status = grammar_matcher_mask(matcher, &allowed, &s.error);
        if (status == AVO_OK)
            status = grammar_matcher_follow(matcher, 3 + 256 + '(' - 32, &s.error);
    }
    assert_refused(status, AVO_ERROR_LIMIT, &s.error, "nested deeper");
    assert_true(depth > 256);
    grammar_matcher_close(matcher);
    avo_grammar_close(request.grammar);
    close_stage(&s);
}

static void follow_text(stage *s, grammar_matcher *matcher, const char *text) {
    for (; *text != '\0'; text++)
        assert_ok_error(grammar_matcher_follow(matcher, 3 + (uint8_t)*text, &s->error), &s->error);
}

static void test_trigger(void **state) {
    (void)state;
    stage s = open_stage();
    avo_grammar *grammar = open_grammar(&s, AVO_GRAMMAR_GBNF, "root ::= [0-9]{2}", "=>");
    grammar_matcher *matcher = NULL;
    const uint64_t *allowed;
    const int32_t equals = 3 + '=';
    const int32_t x = 3 + 'x';
    const int32_t one = 3 + '1';
    assert_ok(grammar_matcher_open(grammar, NULL, 0, NULL, &matcher, &s.error));
    follow_text(&s, matcher, "free =");
    assert_ok(grammar_matcher_mask(matcher, &allowed, &s.error));
    assert_true(bit(allowed, x) && bit(allowed, 2) && bit(allowed, 1));
    follow_text(&s, matcher, ">");
    assert_ok(grammar_matcher_mask(matcher, &allowed, &s.error));
    assert_true(!bit(allowed, x) && !bit(allowed, 2) && !bit(allowed, 1) && bit(allowed, one));
    follow_text(&s, matcher, "12");
    assert_ok(grammar_matcher_mask(matcher, &allowed, &s.error));
    assert_true(bit(allowed, x) && bit(allowed, 2) && bit(allowed, equals));
    follow_text(&s, matcher, "then =>3");
    assert_ok(grammar_matcher_mask(matcher, &allowed, &s.error));
    assert_true(!bit(allowed, x) && bit(allowed, one));
    grammar_matcher_close(matcher);
    avo_grammar_close(grammar);
    close_stage(&s);
}

static void test_json_or_text(void **state) {
    (void)state;
    stage s = open_stage();
    avo_grammar *grammar = open_grammar(
        &s, AVO_GRAMMAR_JSON_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}",
        "");
    static const struct {
        const char *text;
        bool fits, complete;
    } texts[] = {
        {"", true, true},          {" \n", true, true},           {"Hello {x}", true, true},
        {"[", false, false},       {" {\"a\"", true, false},      {"{\"b\"", false, false},
        {"{\"a\":1}", true, true}, {"{\"a\":1} x", false, false}, {"x{\"b\"", true, true}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        grammar_matcher *matcher = NULL;
        assert_ok(grammar_matcher_open(grammar, NULL, 0, NULL, &matcher, &s.error));
        bool fits = grammar_matcher_take(matcher, texts[i].text, strlen(texts[i].text));
        if (fits != texts[i].fits ||
            (fits && grammar_matcher_complete(matcher) != texts[i].complete))
            fail_msg("\"%s\": %d", texts[i].text, fits);
        grammar_matcher_close(matcher);
    }
    avo_grammar_close(grammar);
    avo_grammar_options both = AVO_GRAMMAR_OPTIONS_INIT;
    both.trigger = "x";
    both.json_or_text = true;
    assert_refused(avo_grammar_open(s.model, AVO_GRAMMAR_JSON, NULL, &both, &grammar, &s.error),
                   AVO_ERROR_ARGUMENT, &s.error, "not both");
    close_stage(&s);
}

static void test_refused(void **state) {
    (void)state;
    stage s = open_stage();
    avo_grammar *grammar = NULL;
    avo_grammar_options options = AVO_GRAMMAR_OPTIONS_INIT;
    assert_refused(avo_grammar_open(s.model, AVO_GRAMMAR_GBNF, NULL, NULL, &grammar, &s.error),
                   AVO_ERROR_ARGUMENT, &s.error, "a grammar or schema needs a text");
    assert_refused(
        avo_grammar_open(s.model, (avo_grammar_kind)7, "root ::= \"a\"", NULL, &grammar, &s.error),
        AVO_ERROR_ARGUMENT, &s.error, "is not a grammar kind");
    assert_refused(avo_grammar_open(s.model, AVO_GRAMMAR_REGEX, "a(?=b)", NULL, &grammar, &s.error),
                   AVO_ERROR_UNSUPPORTED, &s.error, "look-around");
    assert_refused(avo_grammar_open(s.model, AVO_GRAMMAR_REGEX, "a^b", NULL, &grammar, &s.error),
                   AVO_ERROR_UNSUPPORTED, &s.error, "at the ends of the pattern only");
    options.trigger = "";
    assert_refused(avo_grammar_open(s.model, AVO_GRAMMAR_JSON, NULL, &options, &grammar, &s.error),
                   AVO_ERROR_ARGUMENT, &s.error, "is empty");
    assert_null(grammar);
    assert_int_equal(avo_grammar_open(s.model, AVO_GRAMMAR_GBNF, "root", NULL, &grammar, NULL),
                     AVO_ERROR_FORMAT);
    /* Another model's. */
    avo_model *other = NULL;
    heard h;
    avo_result result;
    assert_ok(avo_model_open(tiny_model_write_words(test_scratch_folder(), 11, words), NULL, &other,
                             &s.error));
    avo_request request = AVO_REQUEST_INIT;
    assert_ok(avo_grammar_open(other, AVO_GRAMMAR_JSON, NULL, NULL, &request.grammar, &s.error));
    assert_refused(answer(&s, &request, &h, &result), AVO_ERROR_ARGUMENT, &s.error,
                   "another model");
    avo_grammar_close(avo_grammar_share(request.grammar));
    avo_grammar_close(request.grammar);
    avo_model_close(other);
    close_stage(&s);
}

/* Grammars that would take an answer to thousands of places, and memory that runs out. */
static void test_limits(void **state) {
    (void)state;
    stage s = open_stage();
    avo_grammar *grammar = NULL;
    avo_status status = avo_grammar_open(
        s.model, AVO_GRAMMAR_GBNF,
        "root ::= (a | b | c){0,2000}\na ::= \"a\" a | \"a\" b | \"a\"\nb ::= \"a\" c b | \"a\" a "
        "\"a\"\nc ::= \"a\" a b | \"a\"",
        NULL, &grammar, &s.error);
    if (status == AVO_OK) {
        heard h;
        avo_result result;
        avo_request request = AVO_REQUEST_INIT;
        request.grammar = grammar;
        request.max_new_tokens = 100;
        status = answer(&s, &request, &h, &result);
    }
    if (status != AVO_OK)
        assert_refused(status, AVO_ERROR_LIMIT, &s.error, "ambiguous");
    avo_grammar_close(grammar);
    close_stage(&s);
    for (size_t fail_at = 1;; fail_at += 1 + fail_at / 8) {
        test_allocator counting;
        test_allocator_init(&counting);
        avo_model_options options = AVO_MODEL_OPTIONS_INIT;
        options.allocator = &counting.allocator;
        avo_model *model = NULL;
        avo_error error;
        assert_ok(avo_model_open(tiny_model_write_words(test_scratch_folder(), 11, words), &options,
                                 &model, &error));
        size_t live = counting.live;
        size_t before = counting.allocations;
        counting.fail_at = before + fail_at;
        grammar = NULL;
        status =
            avo_grammar_open(model, AVO_GRAMMAR_JSON_SCHEMA, schemas[0], NULL, &grammar, &error);
        bool all = counting.allocations < before + fail_at;
        counting.fail_at = 0;
        if (status != AVO_OK) {
            assert_int_equal(status, AVO_ERROR_MEMORY);
            assert_null(grammar);
        }
        avo_grammar_close(grammar);
        assert_true(counting.live <= live + 8); /* the trie of tokens may stay */
        avo_model_close(model);
        assert_int_equal(counting.live, 0);
        if (all)
            break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_ends),         cmocka_unit_test(test_trigger),
        cmocka_unit_test(test_json_or_text), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
