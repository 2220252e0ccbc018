/* Rewards of every kind: what they score, what they refuse, and what happens when programs that
 * score fail. */
#include "support/support.h"

#include "base/clock.h"
#include "base/file.h"
#include "eval/reward.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static arena memory;

static const json_value *parse(const char *text) {
    json_value *value = arena_take_array(&memory, 1, sizeof(*value));
    avo_error error;
    assert_non_null(value);
    assert_ok_error(json_parse(&memory, text_from(text), value, &error), &error);
    return value;
}

static const char *write_scratch(const char *name, const char *text) {
    static char path[4096];
    avo_error error;
    snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), name);
    assert_ok_error(file_write(path, text, strlen(text), &error), &error);
    return path;
}

static avo_status count_words(void *context, const char *text, uint64_t *count, avo_error *error) {
    (void)context;
    (void)error;
    *count = text[0] != '\0';
    for (; *text != '\0'; text++)
        *count += *text == ' ';
    return AVO_OK;
}

static const reward_options with_tokens = {.count_tokens = count_words};

/* A description in JSON begins with a brace or bracket. */
static avo_status open_any(const char *description, const reward_options *options, reward **out,
                           avo_error *error) {
    if (description[0] == '{' || description[0] == '[')
        return reward_open(parse(description), options, out, error);
    return reward_open_text(text_from(description), options, out, error);
}

/* ---- What completions get ---- */

static const struct {
    const char *description, *completion, *fields;
    float score;
} scored[] = {
    {"exact_match", "42", "{\"answer\":\"42\"}", 1},
    {"exact_match", " 42\n", "{\"answer\":\"42 \"}", 1},
    {"exact_match", "42.", "{\"answer\":\"42\"}", 0},
    {"exact_match", "42", "{\"answer\":42}", 1},
    {"exact_match", "true", "{\"answer\":true}", 1},
    {"exact_match", "b", "{\"answer\":[\"a\",\"b\"]}", 1},
    {"exact_match", "c", "{\"answer\":[\"a\",\"b\"]}", 0},
    {"exact_match:target", "x", "{\"answer\":\"y\",\"target\":\"x\"}", 1},
    {"exact_match", "Yes", "{\"answer\":\"yes\"}", 0},
    {"{\"reward\":\"exact_match\",\"ignore_case\":true}", "Yes", "{\"answer\":\"yes\"}", 1},
    {"exact_match", "", "{\"answer\":\"\"}", 1},

    {"contains:dog", "a dog.", NULL, 1},
    {"contains:dog", "a Dog.", NULL, 0},
    {"contains:a:b", "xa:bx", NULL, 1},
    {"{\"reward\":\"contains\",\"text\":\"dog\",\"ignore_case\":true}", "a DOG", NULL, 1},
    {"{\"reward\":\"contains\",\"text\":\"dog\",\"ignore_case\":true}", "do", NULL, 0},

    {"regex:^<a>.*</a>$", "<a>x</a>", NULL, 1},
    {"regex:^<a>.*</a>$", "x<a>x</a>", NULL, 0},
    {"regex:\\d{3}", "ab123", NULL, 1},
    {"regex:^.$", "\xC3\xA4", NULL, 1},
    {"regex:b", "\xff\xff b \xff", NULL, 1},
    {"{\"reward\":\"regex\",\"pattern\":\"X\",\"ignore_case\":true}", "x", NULL, 1},

    {"length:2:3", "a", NULL, 0},
    {"length:2:3", "ab", NULL, 1},
    {"length:2:3", "abc", NULL, 1},
    {"length:2:3", "abcd", NULL, 0},
    {"length:2:3", "\xC3\xA4\xC3\xA4", NULL, 1},
    {"length:2:", "\xff", NULL, 0},
    {"length:2:", "\xff\xff", NULL, 1},
    {"length::2", "", NULL, 1},
    {"length:2:2:tokens", "two words", NULL, 1},
    {"length:2:2:tokens", "word", NULL, 0},
    {"{\"reward\":\"length\",\"minimum\":1,\"maximum\":1,\"unit\":\"tokens\"}", "a", NULL, 1},

    {"number", "so 3 + 4 = 7.", "{\"answer\":\"3+4\\n#### 7\"}", 1},
    {"number", "so 3 + 4 = 8.", "{\"answer\":\"3+4\\n#### 7\"}", 0},
    {"number", "It costs $1,234.50 now", "{\"answer\":\"1234.5\"}", 1},
    {"number", "x = -5", "{\"answer\":-5}", 1},
    {"number", "5-3", "{\"answer\":-3}", 1},
    {"number", "18.00", "{\"answer\":\"18\"}", 1},
    {"number", "18...", "{\"answer\":\"18\"}", 0},
    {"number", "18. And so on...", "{\"answer\":\"18\"}", 1},
    {"number", "none", "{\"answer\":\"18\"}", 0},
    {"number", "1.2.3", "{\"answer\":\"3\"}", 0},
    {"number:value", "2", "{\"value\":2.0}", 1},

    {"json_schema:{\"type\":\"object\"}", " {\"a\": 1} ", NULL, 1},
    {"json_schema:{\"type\":\"object\"}", "{\"a\": 1} and", NULL, 0},
    {"{\"reward\":\"json_schema\",\"schema\":{\"type\":\"array\"}}", "[1]", NULL, 1},
    {"{\"reward\":\"json_schema\",\"schema\":false}", "[1]", NULL, 0},
};

static void completions_get_their_scores(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(scored) / sizeof(scored[0]); i++) {
        reward *opened;
        avo_error error;
        float score = 9;
        assert_ok_error(open_any(scored[i].description, &with_tokens, &opened, &error), &error);
        reward_item item = {"p", scored[i].completion,
                            scored[i].fields == NULL ? NULL : parse(scored[i].fields)};
        assert_ok_error(reward_score(opened, &item, 1, &score, &error), &error);
        if (score != scored[i].score)
            fail_msg("%s on \"%s\": %g", scored[i].description, scored[i].completion,
                     (double)score);
        reward_close(opened);
    }
}

static const struct {
    const char *schema, *value;
    bool valid;
} schemas[] = {
    {"true", "1", true},
    {"{}", "nonsense", false},
    {"{}", "{\"a\":1,\"a\":2}", false},
    {"{\"type\":[\"integer\",\"null\"]}", "null", true},
    {"{\"type\":\"integer\"}", "1.0", true},
    {"{\"type\":\"integer\"}", "1.5", false},
    {"{\"type\":\"number\"}", "1", true},
    {"{\"type\":\"boolean\"}", "0", false},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":2}", "\"\xC3\xA4\xC3\xA4\"", true},
    {"{\"maxLength\":1}", "\"ab\"", false},
    {"{\"pattern\":\"^a\"}", "\"ba\"", false},
    {"{\"pattern\":\"^a\"}", "\"ab\"", true},
    {"{\"pattern\":\"^a\"}", "1", true},
    {"{\"enum\":[1,\"a\",{\"x\":[1]}]}", "{\"x\":[1.0]}", true},
    {"{\"enum\":[1,\"a\"]}", "2", false},
    {"{\"const\":{\"a\":1,\"b\":2}}", "{\"b\":2,\"a\":1}", true},
    {"{\"const\":null}", "0", false},
    {"{\"minimum\":1,\"maximum\":2}", "2", true},
    {"{\"exclusiveMaximum\":2}", "2", false},
    {"{\"exclusiveMinimum\":2}", "2", false},
    {"{\"multipleOf\":3}", "9", true},
    {"{\"multipleOf\":3}", "10", false},
    {"{\"multipleOf\":0.1}", "0.3", true},
    {"{\"multipleOf\":0.1}", "0.35", false},
    {"{\"items\":{\"type\":\"integer\"}}", "[1,2]", true},
    {"{\"items\":{\"type\":\"integer\"}}", "[1,\"a\"]", false},
    {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false}", "[1]", true},
    {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false}", "[1,2]", false},
    {"{\"minItems\":1,\"maxItems\":2}", "[]", false},
    {"{\"minItems\":1,\"maxItems\":2}", "[1,2,3]", false},
    {"{\"uniqueItems\":true}", "[1,2,1.0]", false},
    {"{\"uniqueItems\":true}", "[1,2,\"1\"]", true},
    {"{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}", "{\"b\":1}", false},
    {"{\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{\"a\":\"x\"}", false},
    {"{\"properties\":{\"a\":{}},\"additionalProperties\":false}", "{\"a\":1,\"b\":1}", false},
    {"{\"properties\":{\"a\":{}},\"additionalProperties\":false}", "{\"a\":1}", true},
    {"{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"b\":\"\"}", false},
    {"{\"minProperties\":1,\"maxProperties\":1}", "{}", false},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"minimum\":5}]}", "4", false},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"minimum\":5}]}", "6", true},
    {"{\"oneOf\":[{\"minimum\":1},{\"minimum\":5}]}", "6", false},
    {"{\"oneOf\":[{\"minimum\":1},{\"minimum\":5}]}", "2", true},
    {"{\"allOf\":[{\"minimum\":1},{\"maximum\":5}]}", "6", false},
    {"{\"not\":{\"type\":\"null\"}}", "null", false},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"}},"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
     "{\"next\":{\"next\":{}}}", true},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"}},"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
     "{\"next\":{\"next\":1}}", false},
    {"{\"$defs\":{\"a/b~\":false},\"$ref\":\"#/$defs/a~1b~0\"}", "1", false},
};

static void schemas_are_kept(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        char description[512];
        reward *opened;
        avo_error error;
        float score = 9;
        snprintf(description, sizeof(description), "{\"reward\":\"json_schema\",\"schema\":%s}",
                 schemas[i].schema);
        assert_ok_error(open_any(description, NULL, &opened, &error), &error);
        reward_item item = {"", schemas[i].value, NULL};
        assert_ok_error(reward_score(opened, &item, 1, &score, &error), &error);
        if (score != (schemas[i].valid ? 1.0f : 0.0f))
            fail_msg("%s on %s: %g", schemas[i].schema, schemas[i].value, (double)score);
        reward_close(opened);
    }
}

/* ---- What is refused ---- */

static void wrong_descriptions_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *description;
        avo_status status;
        const char *text;
    } cases[] = {
        {"", AVO_ERROR_ARGUMENT, "has 0 bytes"},
        {"exact", AVO_ERROR_ARGUMENT, "reward \"exact\": unknown, must be exact_match"},
        {"contains", AVO_ERROR_ARGUMENT, "contains: text is missing or empty"},
        {"contains:", AVO_ERROR_ARGUMENT, "contains: text is missing or empty"},
        {"exact_match:", AVO_ERROR_ARGUMENT, "exact_match: field is missing or empty"},
        {"x*contains:a", AVO_ERROR_ARGUMENT, "the weight before '*'"},
        {"nan*contains:a", AVO_ERROR_ARGUMENT, "the weight before '*'"},
        {"1e7*contains:a", AVO_ERROR_ARGUMENT, "from -1e6 to 1e6"},
        {"*contains:a", AVO_ERROR_ARGUMENT, "the weight before '*'"},
        {"length", AVO_ERROR_ARGUMENT, "must be MIN:MAX"},
        {"length:5", AVO_ERROR_ARGUMENT, "must be MIN:MAX"},
        {"length:a:5", AVO_ERROR_ARGUMENT, "must be MIN:MAX"},
        {"length:-1:5", AVO_ERROR_ARGUMENT, "must be MIN:MAX"},
        {"length:1:5:bytes", AVO_ERROR_ARGUMENT, "must be MIN:MAX"},
        {"length:1:9999999999999999999", AVO_ERROR_ARGUMENT, "must be MIN:MAX"},
        {"length:6:5", AVO_ERROR_ARGUMENT, "minimum is 6, must be at most the maximum (5)"},
        {"length:1:5:tokens", AVO_ERROR_ARGUMENT, "need a tokenizer"},
        {"regex:(", AVO_ERROR_ARGUMENT, "regex: the pattern \"(\" is wrong: missing"},
        {"json_schema:{", AVO_ERROR_FORMAT, "json_schema: JSON line 1"},
        {"json_schema:/no/file", AVO_ERROR_NOT_FOUND, "/no/file"},
        {"json_schema:{\"type\":\"text\"}", AVO_ERROR_ARGUMENT, "line 1: type must be a name"},
        {"json_schema:{\"if\":{}}", AVO_ERROR_UNSUPPORTED, "keyword \"if\" is not supported"},
        {"json_schema:{\"$ref\":\"#/a\"}", AVO_ERROR_ARGUMENT, "$ref must be"},
        {"json_schema:{\"pattern\":\"(\"}", AVO_ERROR_ARGUMENT,
         "line 1: the pattern \"(\" is wrong"},
        {"json_schema:{\"minItems\":-1}", AVO_ERROR_ARGUMENT, "minItems must be a whole number"},
        {"json_schema:{\"multipleOf\":0}", AVO_ERROR_ARGUMENT, "multipleOf must be"},
        {"json_schema:{\"anyOf\":[]}", AVO_ERROR_ARGUMENT, "anyOf must be an array of schemas"},
        {"json_schema:{\"items\":1}", AVO_ERROR_ARGUMENT, "a schema must be an object"},
        {"python:/no/file.py", AVO_ERROR_NOT_FOUND, "/no/file.py"},
        {"python", AVO_ERROR_ARGUMENT, "python: file is missing"},
        {"command:", AVO_ERROR_ARGUMENT, "command: command is missing"},
        {"[]", AVO_ERROR_ARGUMENT, "must be an object or a string"},
        {"{}", AVO_ERROR_ARGUMENT, "unknown, must be"},
        {"{\"reward\":\"contains\"}", AVO_ERROR_ARGUMENT, "contains: text is missing"},
        {"{\"reward\":\"contains\",\"text\":1}", AVO_ERROR_FORMAT, "text"},
        {"{\"reward\":\"contains\",\"text\":\"a\",\"txt\":1}", AVO_ERROR_ARGUMENT,
         "unknown member \"txt\", must be of: reward weight text ignore_case"},
        {"{\"reward\":\"contains\",\"text\":\"a\",\"seconds\":1}", AVO_ERROR_ARGUMENT,
         "unknown member \"seconds\""},
        {"{\"reward\":\"contains\",\"text\":\"a\",\"weight\":1e7}", AVO_ERROR_FORMAT, "weight"},
        {"{\"reward\":\"regex\",\"pattern\":\"a\\u0000\"}", AVO_ERROR_ARGUMENT, "zero byte"},
        {"{\"reward\":\"length\",\"unit\":\"words\"}", AVO_ERROR_ARGUMENT, "unit is \"words\""},
        {"{\"reward\":\"length\",\"minimum\":-1}", AVO_ERROR_FORMAT, "minimum"},
        {"{\"reward\":\"command\",\"command\":\"true\",\"seconds\":0}", AVO_ERROR_FORMAT,
         "seconds"},
        {"{\"reward\":\"json_schema\",\"schema\":{},\"file\":\"a\"}", AVO_ERROR_ARGUMENT,
         "has a file and a schema"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        reward *opened = NULL;
        avo_error error = {0};
        avo_status status = open_any(cases[i].description, NULL, &opened, &error);
        if (status != cases[i].status || strstr(error.text, cases[i].text) == NULL)
            fail_msg("%s: %d: %s", cases[i].description, (int)status, error.text);
        assert_null(opened);
    }
}

static void wrong_items_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *description, *fields, *text;
        avo_status status;
    } cases[] = {
        {"exact_match", "{}", "exact_match: completion 2: field \"answer\" is missing",
         AVO_ERROR_ARGUMENT},
        {"exact_match", "{\"answer\":{}}", "must be a text or a number", AVO_ERROR_ARGUMENT},
        {"number:x", "{\"x\":\"none\"}", "number: completion 2: field \"x\" contains no number",
         AVO_ERROR_ARGUMENT},
        {"regex:^(a+)+$", "{}", "regex: completion 2: the pattern takes too long", AVO_ERROR_LIMIT},
        {"json_schema:{\"$ref\":\"#\"}", "{}", "json_schema: completion 2: the schema nests deeper",
         AVO_ERROR_LIMIT},
        {"json_schema:{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/b\"},{\"$ref\":\"#/$defs/"
         "b\"}]},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/c\"},{\"$ref\":\"#/$defs/c\"},{\"items\":{"
         "\"$ref\":\"#/$defs/a\"}},{\"items\":{\"$ref\":\"#/$defs/a\"}}]},\"c\":{}},\"$ref\":\"#/"
         "$defs/a\"}",
         "{}", "takes more than 1000000 steps", AVO_ERROR_LIMIT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        reward *opened;
        avo_error error;
        float scores[2];
        assert_ok_error(open_any(cases[i].description, NULL, &opened, &error), &error);
        const char *hard = i < 4 ? "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"
                                 : "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]";
        reward_item items[2] = {{"", i < 4 ? "1" : "x", parse("{\"answer\":1,\"x\":1}")},
                                {"", hard, parse(cases[i].fields)}};
        assert_refused(reward_score(opened, items, 2, scores, &error), cases[i].status, &error,
                       cases[i].text);
        reward_close(opened);
    }
}

/* Each match is short, all together are not. */
static void patterns_of_a_schema_share_their_steps(void **state) {
    (void)state;
    static char text[400000];
    size_t bytes = 1;
    text[0] = '[';
    while (bytes < sizeof(text) - 40)
        bytes += (size_t)snprintf(text + bytes, 40, "\"abababababababababababababababab\",");
    memcpy(text + bytes, "1]", 3);
    reward *opened;
    avo_error error;
    float score;
    assert_ok_error(
        open_any("json_schema:{\"items\":{\"pattern\":\"^(a|b)*c|\"}}", NULL, &opened, &error),
        &error);
    reward_item item = {"", text, NULL};
    assert_refused(reward_score(opened, &item, 1, &score, &error), AVO_ERROR_LIMIT, &error,
                   "the pattern takes too long");
    reward_close(opened);
}

/* ---- Programs ---- */

static float scores[512];

static avo_status score_many(const char *description, size_t count, size_t bytes,
                             avo_error *error) {
    static reward_item items[512];
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    for (size_t i = 0; i < count; i++)
        items[i] = (reward_item){"prompt", text, parse("{\"answer\":\"\xC3\xA4\\n\"}")};
    reward *opened;
    assert_ok_error(open_any(description, NULL, &opened, error), error);
    avo_status status = reward_score(opened, items, count, scores, error);
    reward_close(opened);
    free(text);
    return status;
}

static const char *python_reward(const char *text, int seconds) {
    static char description[8192];
    snprintf(description, sizeof(description),
             "{\"reward\":\"python\",\"file\":\"%s\",\"seconds\":%d}",
             write_scratch("reward.py", text), seconds);
    return description;
}

static void python_scores_in_the_sandbox(void **state) {
    (void)state;
    avo_error error = {0};
    const char *good = python_reward("calls = 0\ndef reward(prompt, completion, fields):\n"
                                     "    global calls\n    calls += 1\n    print(calls)\n"
                                     "    assert prompt == 'prompt' and fields == {'answer': "
                                     "'\\u00e4\\n'}\n"
                                     "    return calls + len(completion) / 1024\n",
                                     (int)PATIENCE);
    avo_status status = score_many(good, 300, 1024, &error);
    if (status == AVO_ERROR_UNSUPPORTED) {
        print_message("SKIPPED: %s\n", error.text);
        skip();
    }
    assert_ok_error(status, &error);
    for (size_t i = 0; i < 300; i++)
        assert_float_equal(scores[i], (double)i + 2, 0);
    static const struct {
        const char *text, *says;
        avo_status status;
        int seconds;
    } cases[] = {
        {"def reward(p, c, f):\n    return 0 / 0\n", "ZeroDivisionError", AVO_ERROR_FORMAT, 600},
        {"def reward(p, c, f):\n    return 'good'\n", "could not convert", AVO_ERROR_FORMAT, 600},
        {"def reward(p, c, f):\n    return float('nan')\n", "score 1 is \"nan\", must be finite",
         AVO_ERROR_FORMAT, 600},
        {"def reward(p, c, f):\n    return 1e300\n", "must be finite", AVO_ERROR_FORMAT, 600},
        {"def reward(p, c):\n    return 1\n", "TypeError", AVO_ERROR_FORMAT, 600},
        {"def score(p, c, f):\n    return 1\n", "KeyError: 'reward'", AVO_ERROR_FORMAT, 600},
        {"def reward(p, c, f):\n    open('/etc/passwd')\n", "PermissionError", AVO_ERROR_FORMAT,
         600},
        {"import os\ndef reward(p, c, f):\n    os._exit(0)\n", "it ended early", AVO_ERROR_FORMAT,
         600},
        {"import os\ndef reward(p, c, f):\n    os.write(4, b'1')\n    return 1\n", "failed",
         AVO_ERROR_FORMAT, 600},
        {"import time\ndef reward(p, c, f):\n    time.sleep(1000)\n",
         "takes longer than 1 s for 2 completions", AVO_ERROR_DEADLINE, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(score_many(python_reward(cases[i].text, cases[i].seconds), 2, 4, &error),
                       cases[i].status, &error, cases[i].says);
}

static int count_descriptors(void) {
    int count = 0;
    for (int i = 0; i < 1024; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static void commands_score(void **state) {
    (void)state;
    int before = count_descriptors();
    avo_error error = {0};
    assert_ok_error(score_many("command:awk '{ print NR / 2 }'", 300, 4096, &error), &error);
    for (size_t i = 0; i < 300; i++)
        assert_float_equal(scores[i], (double)(i + 1) / 2, 0);
    assert_ok_error(score_many("command:echo 1.5; echo -2e-1; cat >/dev/null", 2, 1 << 20, &error),
                    &error);
    assert_float_equal(scores[1], -0.2, 1e-7);
    /* It does not read, and leaves a process behind that holds its output. */
    assert_ok_error(score_many("command:sleep 1000 & printf '1\\r\\n2'", 2, 1 << 20, &error),
                    &error);
    assert_ok_error(
        score_many("command:grep -c '^{\"prompt\":\"prompt\",\"completion\":\"xx\",\"fields\":{"
                   "\"answer\":\"\xC3\xA4\\\\n\"}}$'",
                   1, 2, &error),
        &error);
    assert_float_equal(scores[0], 1, 0);
    static const struct {
        const char *description, *says;
        avo_status status;
    } cases[] = {
        {"command:echo 1; cat >/dev/null", "1 scores, must be one for each of 2 completions",
         AVO_ERROR_FORMAT},
        {"command:echo 1; echo 2; echo 3", "3 scores", AVO_ERROR_FORMAT},
        {"command:true", "0 scores", AVO_ERROR_FORMAT},
        {"command:echo 1; echo", "line 2 is \"\", must be a number", AVO_ERROR_FORMAT},
        {"command:echo 1; echo good", "line 2 is \"good\"", AVO_ERROR_FORMAT},
        {"command:echo nan; echo 1", "score 1 is \"nan\", must be finite", AVO_ERROR_FORMAT},
        {"command:echo 1; echo inf", "score 2 is \"inf\"", AVO_ERROR_FORMAT},
        {"command:echo 1; echo 2; echo bad luck >&2; exit 3", "exit status 3; it said: bad luck",
         AVO_ERROR_IO},
        {"command:kill -9 $$", "died of signal 9", AVO_ERROR_IO},
        {"command:/no/such/program", "exit status 127", AVO_ERROR_IO},
        {"command:yes", "prints too much", AVO_ERROR_LIMIT},
        {"{\"reward\":\"command\",\"command\":\"sleep 1000 & sleep 1000\",\"seconds\":1}",
         "takes longer than 1 s", AVO_ERROR_DEADLINE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(score_many(cases[i].description, 2, 100, &error), cases[i].status, &error,
                       cases[i].says);
    assert_int_equal(count_descriptors(), before);
}

/* ---- Memory ---- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    const char *file = write_scratch("schema.json", "{\"pattern\":\"a+\",\"enum\":[\"aa\"]}");
    char from_file[4200];
    snprintf(from_file, sizeof(from_file), "json_schema:%s", file);
    const char *descriptions[] = {"exact_match", "regex:a+", from_file,
                                  "json_schema:{\"type\":\"string\"}", "command:echo 1"};
    const json_value *fields = parse("{\"answer\":1}");
    for (size_t i = 0; i < sizeof(descriptions) / sizeof(descriptions[0]); i++) {
        avo_status status = AVO_ERROR_MEMORY;
        for (size_t at = 1; status != AVO_OK; at++) {
            test_allocator allocator;
            test_allocator_init(&allocator);
            allocator.fail_at = at;
            reward_options options = {.allocator = &allocator.allocator};
            reward *opened = NULL;
            avo_error error;
            float score = 0;
            reward_item item = {"", "\"aa\"", fields};
            status = reward_open_text(text_from(descriptions[i]), &options, &opened, &error);
            if (status == AVO_OK)
                status = reward_score(opened, &item, 1, &score, &error);
            reward_close(opened);
            assert_int_equal(allocator.live, 0);
            if (status != AVO_OK && status != AVO_ERROR_MEMORY)
                fail_msg("%s: allocation %zu: %s", descriptions[i], at, error.text);
            assert_true(at < 1000);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions_get_their_scores),
        cmocka_unit_test(schemas_are_kept),
        cmocka_unit_test(wrong_descriptions_are_refused),
        cmocka_unit_test(wrong_items_are_refused),
        cmocka_unit_test(patterns_of_a_schema_share_their_steps),
        cmocka_unit_test(python_scores_in_the_sandbox),
        cmocka_unit_test(commands_score),
        cmocka_unit_test(every_allocation_may_fail),
    };
    arena_init(&memory, NULL, SIZE_MAX);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&memory);
    return failed;
}
