/* JSON schemas, a keyword at a time: texts that are accepted and texts that are not, and everything
 * that is refused by name. */
#include "grammar_texts.h"

#include <math.h>
#include <stdlib.h>

static const grammar_case cases[] = {
    /* Types */
    {"{\"type\":\"null\"}", {"null"}, {"nul", "\"null\"", ""}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "0"}},
    {"{\"type\":\"integer\"}", {"0", "-7", "1234567890123456"}, {"1.5", "01", "+1", "", "1e3"}},
    {"{\"type\":\"number\"}",
     {"0", "-7.25", "1e9", "2.5E-3", "-0"},
     {".5", "1.", "01", "1e", "NaN", "Infinity", "1e999"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a b\"", "\"\\n\\\"\\\\\\/\"", "\"\\u00e9\"", "\"\\ud83d\\ude00\"",
      "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\x7F\""},
     {"\"", "a", "\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\xC3\"",
      "\"a\"b\"", "\"\\ud83dx\""}},
    {"{\"type\":[\"string\",\"null\"]}", {"null", "\"x\""}, {"1", "true"}},
    {"{\"type\":[\"integer\",\"number\"]}", {"1", "1.5"}, {"\"1\""}},
    {"true", {"1", "{}", "[]", "\"x\"", "null", "{\"a\":[1,{\"b\":null}]}"}, {"", "{a:1}", "[1,]"}},
    {"{}", {"1", "[1, 2]", "{\"a\": {\"b\": 2.5}}"}, {"", "undefined"}},
    {"{\"description\":\"x\",\"title\":\"y\",\"default\":1,\"examples\":[2],\"$comment\":\"z\"}",
     {"1", "\"a\""},
     {""}},
    /* Objects */
    {"{\"type\":\"object\"}",
     {"{}", "{\"a\":1}", "{ \"a\": 1, \"b\": [true] }", "{\n  \"a\": 1,\n  \"b\": 2\n}"},
     {"[]", "{", "{\"a\"}", "{\"a\":1,}", "{1:2}", "{\"a\" :1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
     "\"string\"}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}",
     {"{\"a\":1,\"b\":\"x\"}", "{ \"a\": 1, \"b\": \"x\" }"},
     {"{}", "{\"a\":1}", "{\"b\":\"x\",\"a\":1}", "{\"a\":1,\"b\":\"x\",\"c\":1}",
      "{\"a\":\"x\",\"b\":\"x\"}", "{\"a\":1\"b\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
     "\"const\":3}},\"required\":[\"b\"]}",
     {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"c\":3}", "{,\"b\":2}", "{\"b\":2,}", "{\"b\":2,\"d\":4}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}}}",
     {"{}", "{ }", "{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"c\":1}", "{\"b\":2,\"a\":1}"}},
    {"{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":true}",
     {"{}", "{\"a\":1}", "{\"x\":[1]}", "{\"a\":1,\"b\":2,\"aa\":3,\"\":4}"},
     {"{\"a\":2}", "{\"b\":2,\"a\":1}", "{\"b\":1,\"a\":2}", "{\"\\u0061\":2}"}},
    {"{\"properties\":{\"ab\":{\"const\":1},\"ac\":{\"const\":2}},\"additionalProperties\":{"
     "\"type\":\"integer\"}}",
     {"{\"ab\":1,\"ad\":7}", "{\"a\":3}", "{\"abc\":3}", "{\"b\":3}", "{\"\xC3\xA9\":5}"},
     {"{\"ac\":3}", "{\"x\":\"y\"}", "{\"ac\":2,\"ab\":1}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}",
     {"{}", "{\"k\":\"v\",\"l\":\"w\"}"},
     {"{\"k\":1}"}},
    {"{\"type\":\"object\",\"required\":[\"z\"]}", {"{\"z\":1}", "{\"z\":{}}"}, {"{}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\\\"b\\n\":{\"const\":1}},\"required\":["
     "\"a\\\"b\\n\"]"
     "}",
     {"{\"a\\\"b\\n\":1}"},
     {"{\"a\"b\":1}"}},
    /* Arrays */
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"},
     {"[1,]", "[\"a\"]", "[1 2]", "[1;2]"}},
    {"{\"type\":\"array\",\"items\":{\"const\":0},\"minItems\":2,\"maxItems\":3}",
     {"[0,0]", "[0, 0, 0]"},
     {"[]", "[0]", "[0,0,0,0]"}},
    {"{\"type\":\"array\",\"items\":{\"const\":0},\"maxItems\":0}", {"[]"}, {"[0]"}},
    {"{\"type\":\"array\",\"items\":{\"const\":0},\"minItems\":1}", {"[0]", "[0,0,0]"}, {"[]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false}",
     {"[]", "[1]", "[1,2]"},
     {"[2]", "[1,2,3]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},\"minItems\":2,"
     "\"maxItems\":4}",
     {"[1,2]", "[1,2,3]", "[1,2,3,3]"},
     {"[1]", "[1,2,4]", "[1,2,3,3,3]"}},
    {"{\"prefixItems\":[{\"const\":1}]}", {"[1]", "[1,\"x\",null]", "[]"}, {"[2]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"maxItems\":1}", {"[]", "[1]"}, {"[1,2]"}},
    {"{\"type\":\"array\",\"uniqueItems\":false}", {"[1,1]"}, {"1"}},
    /* Values */
    {"{\"enum\":[\"a\",1,null,{\"x\":[1,2]},1.5]}",
     {"\"a\"", "1", "null", "{\"x\":[1,2]}", "1.5"},
     {"\"b\"", "2", "a"}},
    {"{\"const\":\"\xC3\xA9\\n\"}", {"\"\xC3\xA9\\n\""}, {"\"e\""}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1,\"b\"]}", {"\"a\"", "\"b\""}, {"1"}},
    /* Several */
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"1", "\"x\""}, {"null"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"1", "\"x\""}, {"null"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":"
     "\"integer\"}},\"required\":[\"k\",\"x\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
     "\"const\":\"b\"}},\"required\":[\"k\"]}]}",
     {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{\"k\":\"b\",\"x\":1}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{"
     "\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":1}", "{\"b\":2}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/x\"}],\"description\":\"d\",\"$defs\":{\"x\":{\"const\":5}}}",
     {"5"},
     {"6"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"anyOf\":[{\"required\":[\"a\"]},{"
     "\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{}"}},
    {"{\"allOf\":[{\"type\":[\"integer\",\"string\"]},{\"type\":[\"number\",\"null\"]}]}",
     {"1"},
     {"\"x\"", "null", "1.5"}},
    /* items speaks of what stands behind its own prefixItems, not behind the other's. */
    {"{\"allOf\":[{\"prefixItems\":[{\"type\":[\"string\",\"integer\"]}]},{\"items\":{\"type\":"
     "\"integer\"}}]}",
     {"[]", "[1]", "[1,2]"},
     {"[\"hero\",2]", "[1,\"x\"]"}},
    {"{\"allOf\":[{\"prefixItems\":[{\"const\":1}],\"items\":{\"type\":\"integer\"}},{"
     "\"prefixItems\":[{\"type\":\"integer\"},{\"enum\":[2,3]}],\"items\":true}]}",
     {"[1]", "[1]", "[1,2]", "[1,3,4]"},
     {"[2]", "[1,4]", "[1,2,\"x\"]"}},
    {"{\"allOf\":[{\"items\":false},{\"items\":{\"type\":\"integer\"}}]}", {"[]"}, {"[1]"}},
    {"{\"allOf\":[{\"items\":{\"type\":\"integer\"}},{\"items\":{\"minimum\":5}}]}",
     {"[5,6]"},
     {"[4]", "[5.5]", "[\"x\"]"}},
    /* A whole number that no int64_t holds */
    {"{\"type\":\"integer\",\"enum\":[1e300,2.5]}", {"1e+300"}, {"2.5"}},
    /* References */
    {"{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{"
     "\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}"}},
    {"{\"definitions\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/definitions/t\"}}},"
     "\"$ref\":\"#/definitions/t\"}",
     {"[]", "[[],[[]]]"},
     {"[1]", "[[]"}},
    {"{\"properties\":{\"a\":{\"$ref\":\"#/properties/"
     "b\"},\"b\":{\"const\":2}},\"required\":[\"a\","
     "\"b\"]}",
     {"{\"a\":2,\"b\":2}"},
     {"{\"a\":1,\"b\":2}"}},
    /* Strings */
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"abc\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\n\\\"\"", "\"\\u0001x\""},
     {"\"\"", "\"a\"", "\"abcd\"", "\"\\n\""}},
    {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
    {"{\"minLength\":1}", {"\"a\"", "\"abcdefghijklmnopqrstuvwxyz\""}, {"\"\"", "1"}},
    {"{\"pattern\":\"^[a-z]+$\"}", {"\"abc\""}, {"\"\"", "\"aB\"", "\"ab1\""}},
    {"{\"pattern\":\"b+\"}", {"\"b\"", "\"abbc\"", "\"xb\""}, {"\"\"", "\"ac\""}},
    {"{\"pattern\":\"^a\"}", {"\"a\"", "\"ab\\n\""}, {"\"ba\""}},
    {"{\"pattern\":\"a$\"}", {"\"a\"", "\"ba\""}, {"\"ab\""}},
    {"{\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""}},
    {"{\"pattern\":\"^(?:\\\\d{3}-){2}\\\\d{4}$\"}", {"\"123-456-7890\""}, {"\"123-4567890\""}},
    {"{\"pattern\":\"^\\\\w+@[^@\\\\s]+\\\\.(com|org)$\"}", {"\"a_1@b.com\""}, {"\"a@b.net\""}},
    {"{\"pattern\":\"^(?<y>\\\\d+?)[\\\\]\\\\-x]\\\\.$\"}", {"\"12].\"", "\"1-.\""}, {"\"1a.\""}},
    {"{\"pattern\":\"^.$\"}", {"\"a\"", "\"\\\"\"", "\"\\t\""}, {"\"\\n\"", "\"\"", "\"ab\""}},
    {"{\"pattern\":\"^\\\"\\\\\\\\$\"}", {"\"\\\"\\\\\""}, {"\"x\""}},
    {"{\"pattern\":\"^\\\\u00e9\\\\x41\\\\0$\"}",
     {"\"\xC3\xA9"
      "A\\u0000\""},
     {"\"e\""}},
    {"{\"pattern\":\"\"}", {"\"\"", "\"anything\""}, {"1"}},
    {"{\"pattern\":\"^[a-c]{2,4}$\",\"minLength\":1,\"maxLength\":5}", {"\"ab\""}, {"\"a\""}},
    {"{\"format\":\"date\"}", {"\"2024-02-28\"", "\"1999-12-31\""}, {"\"2024-13-01\"", "\"x\""}},
    {"{\"format\":\"time\"}", {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""}, {"\"24:00:00Z\""}},
    {"{\"format\":\"date-time\"}", {"\"2024-02-28T10:00:00Z\""}, {"\"2024-02-30T10:00:00Z\""}},
    {"{\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567e89b12d3a456426614174000\""}},
    {"{\"format\":\"email\"}", {"\"a.b@c.example.org\""}, {"\"a@b\"", "\"@b.c\""}},
    {"{\"format\":\"ipv4\"}", {"\"192.168.0.1\"", "\"255.255.255.255\""}, {"\"256.1.1.1\""}},
    /* Numbers */
    {"{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}",
     {"-3", "-1", "0", "9", "10", "12"},
     {"-4", "13", "-0", "100", "01"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":0}", {"1", "1000"}, {"0", "-1"}},
    {"{\"type\":\"integer\",\"minimum\":1.5,\"exclusiveMaximum\":4}", {"2", "3"}, {"1", "4"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "1", "0.5", "1.0", "0.000"},
     {"1.1", "-0.1", "2", "1.01", "-0"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
     {"0.5", "0.01", "0.99"},
     {"0", "1", "0.0", "1.0"}},
    {"{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":-0.25}",
     {"-2.5", "-1", "-0.25", "-0.3", "-2.50"},
     {"-2.51", "-0.2", "0", "-0.249", "-3"}},
    {"{\"type\":\"number\",\"minimum\":1.25,\"maximum\":1.75}",
     {"1.25", "1.3", "1.75", "1.7", "1.250"},
     {"1", "1.2", "1.8", "1.76", "1.249", "2"}},
    {"{\"type\":\"number\",\"minimum\":10}", {"10", "11.5", "100", "10.0"}, {"9", "9.99", "-10"}},
    {"{\"maximum\":-1}", {"-1", "-1.5", "-20"}, {"0", "-0.5", "1"}},
    /* Keywords of other types are about nothing. */
    {"{\"type\":\"integer\",\"minLength\":3,\"pattern\":\"^x$\"}", {"1"}, {"\"x\""}},
};

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_case(AVO_GRAMMAR_JSON_SCHEMA, &cases[i]);
}

static void test_json(void **state) {
    (void)state;
    static const grammar_case json = {
        NULL,
        {"{}", "{\"a\":1}", "{\"a\":{\"b\":[]}}", "{\n\t\"a\": true\n}"},
        {"", "[]", "1", "{\"a\"}", "{\"a\":}", "{} ", " {}", "{  }\n\n"}};
    check_case(AVO_GRAMMAR_JSON, &json);
}

/* White space ends: at most one line end and 20 characters of indentation. */
static void test_space(void **state) {
    (void)state;
    texts t;
    assert_ok_error(texts_open(&t, AVO_GRAMMAR_JSON, NULL), &t.error);
    assert_int_equal(texts_fit(&t, "{\n                    \"", 23), FIT_BEGINNING);
    assert_int_equal(texts_fit(&t, "{\n\n\n", 4), FIT_NO);
    char many[200] = "{\"a\":1,\n";
    memset(many + 8, ' ', 100);
    assert_int_equal(texts_fit(&t, many, 8 + 20), FIT_BEGINNING);
    assert_int_equal(texts_fit(&t, many, 8 + 21), FIT_NO);
    texts_close(&t);
}

static const struct {
    const char *schema;
    avo_status status;
    const char *part;
} refused[] = {
    {"", AVO_ERROR_FORMAT, "schema"},
    {"{\"type\":}", AVO_ERROR_FORMAT, "line 1"},
    {"[]", AVO_ERROR_UNSUPPORTED, "a schema must be an object, true or false"},
    {"{\"type\":\"text\"}", AVO_ERROR_UNSUPPORTED, "unknown type"},
    {"{\"type\":[]}", AVO_ERROR_UNSUPPORTED, "the list of types is empty"},
    {"{\"type\":\"number\",\"multipleOf\":3}", AVO_ERROR_UNSUPPORTED, "\"multipleOf\""},
    {"{\"type\":\"object\",\n\"minProperties\":1}", AVO_ERROR_UNSUPPORTED,
     "schema, line 2: keyword \"minProperties\" is not"},
    {"{\"patternProperties\":{}}", AVO_ERROR_UNSUPPORTED, "\"patternProperties\""},
    {"{\"propertyNames\":{}}", AVO_ERROR_UNSUPPORTED, "\"propertyNames\""},
    {"{\"uniqueItems\":true}", AVO_ERROR_UNSUPPORTED, "\"uniqueItems\""},
    {"{\"contains\":{}}", AVO_ERROR_UNSUPPORTED, "\"contains\""},
    {"{\"not\":{}}", AVO_ERROR_UNSUPPORTED, "\"not\""},
    {"{\"if\":{}}", AVO_ERROR_UNSUPPORTED, "\"if\""},
    {"{\"dependentRequired\":{}}", AVO_ERROR_UNSUPPORTED, "\"dependentRequired\""},
    {"{\"unevaluatedProperties\":false}", AVO_ERROR_UNSUPPORTED, "\"unevaluatedProperties\""},
    {"{\"nullable\":true}", AVO_ERROR_UNSUPPORTED, "\"nullable\""},
    {"{\"properties\":{\"a\":{\"x-mine\":1}}}", AVO_ERROR_UNSUPPORTED, "\"x-mine\""},
    {"{\"properties\":[]}", AVO_ERROR_UNSUPPORTED, "properties must be an object"},
    {"{\"required\":\"a\"}", AVO_ERROR_UNSUPPORTED, "required must be a list"},
    {"{\"required\":[1]}", AVO_ERROR_UNSUPPORTED, "required must be a list of names"},
    {"{\"items\":[{}]}", AVO_ERROR_UNSUPPORTED, "prefixItems"},
    {"{\"minItems\":-1}", AVO_ERROR_UNSUPPORTED, "minItems must be"},
    {"{\"maxLength\":1000000}", AVO_ERROR_LIMIT, "schema, line 1: maxLength must be at most 4096"},
    {"{\"minLength\":5,\"maxLength\":3}", AVO_ERROR_ARGUMENT, "no text can match the grammar"},
    {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", AVO_ERROR_ARGUMENT,
     "no text can match the grammar"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", AVO_ERROR_ARGUMENT,
     "no text can match the grammar"},
    {"{\"type\":\"number\",\"minimum\":3,\"exclusiveMaximum\":3}", AVO_ERROR_ARGUMENT,
     "no text can match the grammar"},
    {"{\"minimum\":\"3\"}", AVO_ERROR_UNSUPPORTED, "minimum must be a number"},
    {"{\"minimum\":1e300}", AVO_ERROR_LIMIT, "must be between -1e15 and 1e15"},
    {"{\"enum\":[]}", AVO_ERROR_UNSUPPORTED, "enum must be a non-empty list"},
    {"{\"enum\":[\"a\"],\"minLength\":1}", AVO_ERROR_UNSUPPORTED, "enum and const can be combined"},
    {"{\"type\":\"integer\",\"const\":\"a\"}", AVO_ERROR_UNSUPPORTED, "const does not have the"},
    {"{\"type\":\"integer\",\"enum\":[\"a\"]}", AVO_ERROR_UNSUPPORTED, "no value of enum"},
    {"{\"anyOf\":[]}", AVO_ERROR_UNSUPPORTED, "anyOf must be a non-empty list"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", AVO_ERROR_UNSUPPORTED,
     "schemas 1 and 2 may both accept"},
    {"{\"oneOf\":[{\"properties\":{\"a\":{}}},{\"type\":\"string\"}]}", AVO_ERROR_UNSUPPORTED,
     "may both accept"},
    {"{\"oneOf\":[{\"const\":1},{\"const\":1.0}]}", AVO_ERROR_UNSUPPORTED, "may both accept"},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", AVO_ERROR_UNSUPPORTED,
     "allOf: no type satisfies"},
    {"{\"allOf\":[{\"minLength\":1},{\"minLength\":2}]}", AVO_ERROR_UNSUPPORTED,
     "\"minLength\" has two different"},
    {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{"
     "\"b\":{}}}]}",
     AVO_ERROR_UNSUPPORTED, "additionalProperties cannot"},
    {"{\"allOf\":[{\"prefixItems\":[{\"type\":\"string\"}],\"minItems\":1},{\"items\":{\"type\":"
     "\"integer\"}}]}",
     AVO_ERROR_UNSUPPORTED, "allOf: no type satisfies"},
    {"{\"allOf\":[{\"prefixItems\":[{}]},{\"items\":[{}]}]}", AVO_ERROR_UNSUPPORTED,
     "items must be a schema"},
    {"{\"allOf\":[true,{\"type\":\"null\"}]}", AVO_ERROR_UNSUPPORTED, "true and false"},
    {"{\"$ref\":\"http://example.org/x\"}", AVO_ERROR_UNSUPPORTED, "must point into this"},
    {"{\"$ref\":\"#/$defs/none\"}", AVO_ERROR_UNSUPPORTED, "no such schema"},
    {"{\"$ref\":\"#anchor\"}", AVO_ERROR_UNSUPPORTED, "anchors"},
    {"{\"$ref\":\"#\"}", AVO_ERROR_ARGUMENT, "no text can match the grammar"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":"
     "\"null\"}]}}}",
     AVO_ERROR_UNSUPPORTED, "begins with itself"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     AVO_ERROR_ARGUMENT, "no text can match the grammar"},
    {"false", AVO_ERROR_ARGUMENT, "no text can match the grammar"},
    {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}", AVO_ERROR_ARGUMENT,
     "no text can match the grammar"},
    {"{\"properties\":{},\"required\":[\"a\"],\"additionalProperties\":false}", AVO_ERROR_ARGUMENT,
     "no text can match the grammar"},
    {"{\"format\":\"hostname\"}", AVO_ERROR_UNSUPPORTED, "format is not supported"},
    {"{\"pattern\":\"a\",\"format\":\"date\"}", AVO_ERROR_UNSUPPORTED, "pattern and format cannot"},
    {"{\"pattern\":\"^a*$\",\"maxLength\":3}", AVO_ERROR_UNSUPPORTED, "minLength and maxLength"},
    {"{\"pattern\":\"a(?=b)\"}", AVO_ERROR_UNSUPPORTED, "look-around"},
    {"{\"pattern\":\"(a)\\\\1\"}", AVO_ERROR_UNSUPPORTED, "not supported"},
    {"{\"pattern\":\"\\\\bx\"}", AVO_ERROR_UNSUPPORTED, "not supported"},
    {"{\"pattern\":\"\\\\p{L}\"}", AVO_ERROR_UNSUPPORTED, "not supported"},
    {"{\"pattern\":\"(^a)\"}", AVO_ERROR_UNSUPPORTED, "at the ends of the pattern only"},
    {"{\"pattern\":\"a$b\"}", AVO_ERROR_UNSUPPORTED, "at the ends of the pattern only"},
    {"{\"pattern\":\"(a\"}", AVO_ERROR_UNSUPPORTED, "lacks its ')'"},
    {"{\"pattern\":\"a)\"}", AVO_ERROR_UNSUPPORTED, "a ')' has no matching"},
    {"{\"pattern\":\"[a\"}", AVO_ERROR_UNSUPPORTED, "a character class is not closed"},
    {"{\"pattern\":\"*\"}", AVO_ERROR_UNSUPPORTED, "nothing to repeat"},
    {"{\"pattern\":\"a{9999}\"}", AVO_ERROR_LIMIT, "at most 4096 times"},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        check_refused(AVO_GRAMMAR_JSON_SCHEMA, refused[i].schema, refused[i].status,
                      refused[i].part);
}

static bool near(int n, const int *bounds, size_t count, int distance) {
    for (size_t i = 0; i < count; i++)
        if (abs(n - bounds[i]) <= distance)
            return true;
    return false;
}

/* Whole numbers around every pair of bounds. */
static void test_integers(void **state) {
    (void)state;
    static const int bounds[] = {-1005, -100, -99, -10, -9,  -1,  0,    1,   5,
                                 9,     10,   11,  99,  100, 999, 1000, 1234};
    const size_t count = sizeof(bounds) / sizeof(bounds[0]);
    for (size_t i = 0; i < count; i++)
        for (size_t j = i; j < count; j++) {
            char schema[128];
            texts t;
            (void)snprintf(schema, sizeof(schema),
                           "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", bounds[i],
                           bounds[j]);
            assert_ok_error(texts_open(&t, AVO_GRAMMAR_JSON_SCHEMA, schema), &t.error);
            for (int n = -1300; n <= 1300; n++) {
                char text[16];
                if (!near(n, bounds, count, 2) && n % 37 != 0)
                    continue;
                (void)snprintf(text, sizeof(text), "%d", n);
                bool inside = n >= bounds[i] && n <= bounds[j];
                if ((texts_fit(&t, text, strlen(text)) == FIT_WHOLE) != inside)
                    fail_msg("%s: %d", schema, n);
            }
            texts_close(&t);
        }
}

/* Decimals with up to three digits behind the point around bounds of up to two. */
static void test_decimals(void **state) {
    (void)state;
    static const char *const bounds[] = {"-10.5", "-1.25", "-1",  "-0.5", "0",   "0.05",
                                         "0.5",   "1",     "1.2", "1.25", "9.9", "10"};
    const size_t count = sizeof(bounds) / sizeof(bounds[0]);
    for (size_t i = 0; i < count; i++)
        for (size_t j = i; j < count; j++)
            for (int strict = 0; strict < 2; strict++) {
                char schema[160];
                texts t;
                (void)snprintf(schema, sizeof(schema), "{\"type\":\"number\",\"%s\":%s,\"%s\":%s}",
                               strict ? "exclusiveMinimum" : "minimum", bounds[i],
                               strict ? "exclusiveMaximum" : "maximum", bounds[j]);
                if (strict && i == j)
                    continue;
                double low = strtod(bounds[i], NULL);
                double high = strtod(bounds[j], NULL);
                assert_ok_error(texts_open(&t, AVO_GRAMMAR_JSON_SCHEMA, schema), &t.error);
                int thousandths[] = {(int)round(low * 1000), (int)round(high * 1000)};
                for (int n = -11000; n <= 11000; n += 5) {
                    char text[24];
                    if (!near(n, thousandths, 2, 15) && n % 235 != 0)
                        continue;
                    double value = n / 1000.0;
                    (void)snprintf(text, sizeof(text), "%.3f", value);
                    bool inside =
                        strict ? value > low && value < high : value >= low && value <= high;
                    if (n == 0)
                        (void)snprintf(text, sizeof(text), "0.000");
                    if ((texts_fit(&t, text, strlen(text)) == FIT_WHOLE) != inside)
                        fail_msg("%s: %s", schema, text);
                }
                texts_close(&t);
            }
}

static void test_hostile(void **state) {
    (void)state;
    static char text[300000];
    char *at = text;
    for (int i = 0; i < 200; i++)
        at = stpcpy(at, "{\"items\":");
    at = stpcpy(at, "{}");
    for (int i = 0; i < 200; i++)
        at = stpcpy(at, "}");
    check_refused(AVO_GRAMMAR_JSON_SCHEMA, text, AVO_ERROR_FORMAT, "schema");
    /* Merging that never ends, and that doubles. */
    check_refused(AVO_GRAMMAR_JSON_SCHEMA,
                  "{\"properties\":{\"a\":{\"allOf\":[{\"$ref\":\"#\"},{\"type\":\"object\"}]},"
                  "\"b\":{\"allOf\":[{\"$ref\":\"#\"},{\"type\":\"object\"}]}}}",
                  AVO_ERROR_LIMIT, "schema");
    check_refused(
        AVO_GRAMMAR_JSON_SCHEMA,
        "{\"type\":\"array\",\"maxItems\":4000,\"items\":{\"type\":\"array\",\"maxItems\":"
        "4000,\"items\":{\"type\":\"string\",\"maxLength\":4000}}}",
        AVO_ERROR_LIMIT, "states");
    at = stpcpy(text, "{\"properties\":{");
    for (int i = 0; i < 3000; i++)
        at += snprintf(at, 128, "%s\"property number %d\":{\"type\":\"string\"}", i > 0 ? "," : "",
                       i);
    (void)stpcpy(at, "}}");
    texts t;
    avo_status status = texts_open(&t, AVO_GRAMMAR_JSON_SCHEMA, text);
    assert_true(status == AVO_OK || status == AVO_ERROR_LIMIT);
    texts_close(&t);
}

/* Objects in objects with `wide` required properties each, two families that differ at the end. */
static void write_levels(char *at, int levels, int wide, const char *end_a, const char *end_b) {
    at = stpcpy(at, "{\"oneOf\":[{\"$ref\":\"#/$defs/a0\"},{\"$ref\":\"#/$defs/b0\"}],\"$defs\":{");
    for (int side = 0; side < 2; side++)
        for (int level = 0; level <= levels; level++) {
            char family = side == 0 ? 'a' : 'b';
            at += snprintf(at, 128, "%s\"%c%d\":", side + level > 0 ? "," : "", family, level);
            if (level == levels) {
                at = stpcpy(at, side == 0 ? end_a : end_b);
                continue;
            }
            at = stpcpy(at, "{\"type\":\"object\",\"properties\":{");
            for (int i = 0; i < wide; i++)
                at += snprintf(at, 128, "%s\"p%d\":{\"$ref\":\"#/$defs/%c%d\"}", i > 0 ? "," : "",
                               i, family, level + 1);
            at = stpcpy(at, "},\"required\":[");
            for (int i = 0; i < wide; i++)
                at += snprintf(at, 128, "%s\"p%d\"", i > 0 ? "," : "", i);
            at = stpcpy(at, "]}");
        }
    (void)stpcpy(at, "}}");
}

static char *write_enum(char *at, const char *begin, const char *prefix, int count) {
    at = stpcpy(at, begin);
    for (int i = 0; i < count; i++)
        at += snprintf(at, 128, "%s\"%s%d\"", i > 0 ? "," : "", prefix, i);
    return stpcpy(at, "]}");
}

/* Work is counted: what would compare for minutes is proved once for each pair, or refused. */
static void test_work(void **state) {
    (void)state;
    static char text[300000];
    texts t;
    write_levels(text, 8, 8, "{\"type\":\"string\"}", "{\"type\":\"string\"}");
    check_refused(AVO_GRAMMAR_JSON_SCHEMA, text, AVO_ERROR_UNSUPPORTED, "oneOf");
    write_levels(text, 8, 8, "{\"type\":\"string\"}", "{\"type\":\"integer\"}");
    avo_status status = texts_open(&t, AVO_GRAMMAR_JSON_SCHEMA, text);
    assert_true(status == AVO_OK);
    texts_close(&t);
    /* Lists of values, as many comparisons as both have values. */
    (void)stpcpy(
        write_enum(write_enum(text, "{\"oneOf\":[{\"enum\":[", "a", 500), ",{\"enum\":[", "b", 500),
        "]}");
    assert_ok_error(texts_open(&t, AVO_GRAMMAR_JSON_SCHEMA, text), &t.error);
    accepts(&t, "\"a499\"");
    refuses(&t, "\"a500\"");
    texts_close(&t);
    (void)stpcpy(write_enum(write_enum(text, "{\"oneOf\":[{\"enum\":[", "a", 12000), ",{\"enum\":[",
                            "b", 12000),
                 "]}");
    check_refused(AVO_GRAMMAR_JSON_SCHEMA, text, AVO_ERROR_LIMIT, "steps to compile");
    /* Names of a long list, each looked for in another. */
    char *at = stpcpy(text, "{\"properties\":{");
    for (int i = 0; i < 9000; i++)
        at += snprintf(at, 128, "%s\"p%d\":{}", i > 0 ? "," : "", i);
    at = stpcpy(at, "},\"required\":[");
    for (int i = 0; i < 9000; i++)
        at += snprintf(at, 128, "%s\"q%d\"", i > 0 ? "," : "", i);
    (void)stpcpy(at, "]}");
    check_refused(AVO_GRAMMAR_JSON_SCHEMA, text, AVO_ERROR_LIMIT, "steps to compile");
    /* Patterns of nothing. */
    check_case(AVO_GRAMMAR_JSON_SCHEMA,
               &(grammar_case){"{\"pattern\":\"^((((()|){0,4096}){4096}){4096}|){4096}a$\"}",
                               {"\"a\""},
                               {"\"\"", "\"aa\""}});
}

/* Values are compared as JSON means them. */
static void test_same_values(void **state) {
    (void)state;
    static const char *const same[] = {
        "{\"oneOf\":[{\"const\":1},{\"const\":1.0}]}",
        "{\"oneOf\":[{\"const\":{\"a\":1}},{\"const\":{\"a\":1.0}}]}",
        "{\"oneOf\":[{\"const\":{\"a\":1,\"b\":[2]}},{\"const\":{\"b\":[2],\"a\":1}}]}",
        "{\"oneOf\":[{\"enum\":[1,null]},{\"enum\":[null,2]}]}"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        check_refused(AVO_GRAMMAR_JSON_SCHEMA, same[i], AVO_ERROR_UNSUPPORTED, "oneOf");
    static const grammar_case different[] = {
        {"{\"oneOf\":[{\"const\":{\"a\":1}},{\"const\":{\"a\":2}}]}", {"{\"a\":1}"}, {"{}"}},
        {"{\"oneOf\":[{\"const\":[1,2]},{\"const\":[1]}]}", {"[1]", "[1,2]"}, {"[2]"}},
        {"{\"oneOf\":[{\"const\":9007199254740993},{\"const\":9007199254740992}]}",
         {"9007199254740993"},
         {"9007199254740991"}},
    };
    for (size_t i = 0; i < sizeof(different) / sizeof(different[0]); i++)
        check_case(AVO_GRAMMAR_JSON_SCHEMA, &different[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),       cmocka_unit_test(test_json),
        cmocka_unit_test(test_space),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_integers),    cmocka_unit_test(test_decimals),
        cmocka_unit_test(test_hostile),     cmocka_unit_test(test_work),
        cmocka_unit_test(test_same_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
