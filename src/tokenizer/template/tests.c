/* The tests behind "is". */
#include "tokenizer/template/render_int.h"

#include <string.h>

typedef enum test_number {
    TEST_BOOLEAN,
    TEST_CALLABLE,
    TEST_DEFINED,
    TEST_DIVISIBLEBY,
    TEST_EQUAL,
    TEST_ESCAPED,
    TEST_EVEN,
    TEST_FALSE,
    TEST_FILTER,
    TEST_FLOAT,
    TEST_GREATER,
    TEST_GREATER_EQUAL,
    TEST_IN,
    TEST_INTEGER,
    TEST_ITERABLE,
    TEST_LESS,
    TEST_LESS_EQUAL,
    TEST_LOWER,
    TEST_MAPPING,
    TEST_NONE,
    TEST_NOT_EQUAL,
    TEST_NUMBER,
    TEST_ODD,
    TEST_SAMEAS,
    TEST_SEQUENCE,
    TEST_STRING,
    TEST_TEST,
    TEST_TRUE,
    TEST_UNDEFINED,
    TEST_UPPER
} test_number;

static const struct {
    const char *name;
    test_number number;
} tests[] = {
    {"!=", TEST_NOT_EQUAL},
    {"<", TEST_LESS},
    {"<=", TEST_LESS_EQUAL},
    {"==", TEST_EQUAL},
    {">", TEST_GREATER},
    {">=", TEST_GREATER_EQUAL},
    {"boolean", TEST_BOOLEAN},
    {"callable", TEST_CALLABLE},
    {"defined", TEST_DEFINED},
    {"divisibleby", TEST_DIVISIBLEBY},
    {"eq", TEST_EQUAL},
    {"equalto", TEST_EQUAL},
    {"escaped", TEST_ESCAPED},
    {"even", TEST_EVEN},
    {"false", TEST_FALSE},
    {"filter", TEST_FILTER},
    {"float", TEST_FLOAT},
    {"ge", TEST_GREATER_EQUAL},
    {"greaterthan", TEST_GREATER},
    {"gt", TEST_GREATER},
    {"in", TEST_IN},
    {"integer", TEST_INTEGER},
    {"iterable", TEST_ITERABLE},
    {"le", TEST_LESS_EQUAL},
    {"lessthan", TEST_LESS},
    {"lower", TEST_LOWER},
    {"lt", TEST_LESS},
    {"mapping", TEST_MAPPING},
    {"ne", TEST_NOT_EQUAL},
    {"none", TEST_NONE},
    {"number", TEST_NUMBER},
    {"odd", TEST_ODD},
    {"sameas", TEST_SAMEAS},
    {"sequence", TEST_SEQUENCE},
    {"string", TEST_STRING},
    {"test", TEST_TEST},
    {"true", TEST_TRUE},
    {"undefined", TEST_UNDEFINED},
    {"upper", TEST_UPPER},
};

int jinja_test_number(text_view name) {
    for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
        if (text_is(name, tests[i].name))
            return (int)i;
    return -1;
}

static bool is_boolean(jinja_value value, bool wanted) {
    return value.kind == JINJA_BOOLEAN && value.boolean == wanted;
}

static avo_status divisible(jinja_render *render, jinja_value value, jinja_value by, int64_t wanted,
                            bool *result) {
    jinja_value rest;
    if (value.kind == JINJA_UNDEFINED)
        return jinja_fail(render, "'%.*s' is undefined", TEXT_ARGUMENT(value.undefined->name));
    AVO_TRY(jinja_math(render, '%', value, by, &rest));
    return jinja_equal(render, rest, jinja_integer(wanted), result);
}

#define KIND(name) (1u << JINJA_##name)

/* The kinds of values that a test is true for; 0: it asks for more than the kind. */
static const uint32_t test_kinds[TEST_UPPER + 1] = {
    [TEST_BOOLEAN] = KIND(BOOLEAN),
    [TEST_CALLABLE] = KIND(MACRO) | KIND(METHOD) | KIND(FUNCTION) | KIND(LOOP) | KIND(UNDEFINED),
    [TEST_DEFINED] = ~KIND(UNDEFINED),
    [TEST_UNDEFINED] = KIND(UNDEFINED),
    [TEST_FLOAT] = KIND(NUMBER),
    [TEST_INTEGER] = KIND(INTEGER),
    [TEST_MAPPING] = KIND(DICT),
    [TEST_NONE] = KIND(NONE),
    [TEST_STRING] = KIND(STRING),
    /* has a length and items by key or number; also undefined values */
    [TEST_SEQUENCE] =
        KIND(STRING) | KIND(LIST) | KIND(TUPLE) | KIND(DICT) | KIND(RANGE) | KIND(UNDEFINED),
};

/* Tests that need nothing but the value. */
static avo_status test_alone(jinja_render *render, test_number number, jinja_value value,
                             bool *result) {
    jinja_value text;
    *result = (test_kinds[number] >> value.kind & 1) != 0;
    if (test_kinds[number] != 0)
        return AVO_OK;
    switch (number) {
    case TEST_ESCAPED:
        *result = jinja_is_string(value) && value.text->markup;
        return AVO_OK;
    case TEST_EVEN:
        return divisible(render, value, jinja_integer(2), 0, result);
    case TEST_ODD:
        return divisible(render, value, jinja_integer(2), 1, result);
    case TEST_TRUE:
    case TEST_FALSE:
        *result = is_boolean(value, number == TEST_TRUE);
        return AVO_OK;
    case TEST_NUMBER:
        *result = jinja_is_number(value);
        return AVO_OK;
    case TEST_ITERABLE:
        *result = jinja_iterable(value);
        return AVO_OK;
    default:
        break;
    }
    if (number == TEST_LOWER || number == TEST_UPPER) {
        AVO_TRY(jinja_to_text(render, value, &text));
        AVO_TRY(jinja_charge(render, text.text->length));
        return jinja_is_case(text.text, number == TEST_UPPER, result);
    }
    if (jinja_is_string(value)) {
        text_view name = jinja_view_of(value.text);
        *result =
            number == TEST_FILTER ? jinja_filter_number(name) >= 0 : jinja_test_number(name) >= 0;
        return AVO_OK;
    }
    *result = false;
    return jinja_hashable(value) ? AVO_OK : jinja_fail(render, "the value is not a name");
}

static avo_status test_pair(jinja_render *render, test_number number, jinja_value value,
                            jinja_value other, bool *result) {
    switch (number) {
    case TEST_EQUAL:
        return jinja_compare(render, OPERATOR('=', '='), value, other, result);
    case TEST_NOT_EQUAL:
        return jinja_compare(render, OPERATOR('!', '='), value, other, result);
    case TEST_LESS:
        return jinja_compare(render, '<', value, other, result);
    case TEST_LESS_EQUAL:
        return jinja_compare(render, OPERATOR('<', '='), value, other, result);
    case TEST_GREATER:
        return jinja_compare(render, '>', value, other, result);
    case TEST_GREATER_EQUAL:
        return jinja_compare(render, OPERATOR('>', '='), value, other, result);
    case TEST_IN:
        return jinja_contains(render, other, value, result);
    case TEST_DIVISIBLEBY:
        return divisible(render, value, other, 0, result);
    default:
        *result = jinja_same(value, other);
        return AVO_OK;
    }
}

/* What Python calls the argument of a test, NULL when it has none. */
static const char *argument_name(test_number test) {
    switch (test) {
    case TEST_DIVISIBLEBY:
        return "num";
    case TEST_SAMEAS:
        return "other";
    case TEST_IN:
        return "seq";
    case TEST_EQUAL:
    case TEST_NOT_EQUAL:
    case TEST_LESS:
    case TEST_LESS_EQUAL:
    case TEST_GREATER:
    case TEST_GREATER_EQUAL:
        return ""; /* Python's operator functions take no names */
    default:
        return NULL;
    }
}

avo_status jinja_test(jinja_render *render, int number, jinja_value subject,
                      const jinja_arguments *arguments, bool *result) {
    test_number test = tests[number].number;
    const char *name = argument_name(test);
    bool pair = name != NULL;
    jinja_value other;
    AVO_TRY(jinja_parameters(render, tests[number].name, arguments, &name, pair ? 1 : 0,
                             pair ? 1 : 0, &other));
    return pair ? test_pair(render, test, subject, other, result)
                : test_alone(render, test, subject, result);
}
