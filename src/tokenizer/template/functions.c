/* The global functions. */
#include "tokenizer/template/render_int.h"

#include <string.h>

static const char *const function_names[] = {
    [FUNCTION_NONE] = "",
    [FUNCTION_RANGE] = "range",
    [FUNCTION_DICT] = "dict",
    [FUNCTION_NAMESPACE] = "namespace",
    [FUNCTION_RAISE_EXCEPTION] = "raise_exception",
    [FUNCTION_STRFTIME_NOW] = "strftime_now",
    [FUNCTION_LIPSUM] = "lipsum",
    [FUNCTION_CYCLER] = "cycler",
    [FUNCTION_JOINER] = "joiner",
};

int jinja_function_number(text_view name) {
    for (int i = FUNCTION_NONE + 1; i <= FUNCTION_JOINER; i++)
        if (text_is(name, function_names[i]))
            return i;
    return FUNCTION_NONE;
}

static avo_status make_range(jinja_render *render, const jinja_arguments *arguments,
                             jinja_value *out) {
    if (arguments->keyword_count > 0 || arguments->count == 0 || arguments->count > 3)
        return jinja_fail(render, "range takes one to three arguments");
    int64_t given[3] = {0, 0, 1};
    for (size_t i = 0; i < arguments->count; i++) {
        if (!jinja_is_integer(arguments->items[i]))
            return jinja_fail(render, "range needs integers, not %s",
                              jinja_type_name(arguments->items[i]));
        given[i] = jinja_integer_of(arguments->items[i]);
    }
    if (arguments->count == 1) {
        given[1] = given[0];
        given[0] = 0;
    }
    if (given[2] == 0)
        return jinja_fail(render, "range: the step cannot be 0");
    jinja_range *range;
    AVO_TRY(jinja_take(render, 1, sizeof(*range), &range));
    *range = (jinja_range){.start = given[0], .stop = given[1], .step = given[2]};
    bool back = range->step < 0;
    if (back ? range->start > range->stop : range->start < range->stop) {
        uint64_t distance = back ? (uint64_t)range->start - (uint64_t)range->stop
                                 : (uint64_t)range->stop - (uint64_t)range->start;
        uint64_t stride = back ? 0 - (uint64_t)range->step : (uint64_t)range->step;
        uint64_t count = (distance - 1) / stride + 1;
        if (count > JINJA_RANGE_MAX)
            return jinja_fail(render, "range: more than %d items", JINJA_RANGE_MAX);
        range->count = (size_t)count;
    }
    *out = (jinja_value){.kind = JINJA_RANGE, .range = range};
    return AVO_OK;
}

/* dict(mapping or pairs, name=value, …). */
static avo_status make_dict(jinja_render *render, const jinja_arguments *arguments,
                            jinja_dict **out) {
    if (arguments->count > 1)
        return jinja_fail(render, "dict takes one argument and keywords");
    jinja_dict *dict;
    AVO_TRY(jinja_dict_new(render, arguments->keyword_count, &dict));
    if (arguments->count == 1 && arguments->items[0].kind == JINJA_DICT) {
        const jinja_dict *from = arguments->items[0].dict;
        for (size_t i = 0; i < from->count; i++)
            AVO_TRY(jinja_dict_set(render, dict, from->entries[i].key, from->entries[i].value));
    } else if (arguments->count == 1) {
        jinja_sequence *pairs;
        AVO_TRY(jinja_collect(render, arguments->items[0], &pairs));
        for (size_t i = 0; i < pairs->count; i++) {
            jinja_sequence *pair;
            AVO_TRY(jinja_collect(render, pairs->items[i], &pair));
            if (pair->count != 2)
                return jinja_fail(render, "dict needs pairs");
            AVO_TRY(jinja_dict_set(render, dict, pair->items[0], pair->items[1]));
        }
    }
    for (size_t i = 0; i < arguments->keyword_count; i++) {
        jinja_value key;
        AVO_TRY(jinja_text_new(render, arguments->keywords[i].name, JINJA_UNTRUSTED, &key));
        AVO_TRY(jinja_dict_set(render, dict, key, arguments->keywords[i].value));
    }
    *out = dict;
    return AVO_OK;
}

static avo_status make_namespace(jinja_render *render, const jinja_arguments *arguments,
                                 jinja_value *out) {
    jinja_dict *dict;
    AVO_TRY(make_dict(render, arguments, &dict));
    for (size_t i = 0; i < dict->count; i++) {
        jinja_value key = dict->entries[i].key;
        if (jinja_is_string(key) && key.text->size > 0 && key.text->data[0] == '_')
            return jinja_fail(render, "a namespace attribute must not begin with '_'");
    }
    *out = (jinja_value){.kind = JINJA_NAMESPACE, .dict = dict};
    return AVO_OK;
}

static avo_status raise_exception(jinja_render *render, const jinja_arguments *arguments) {
    static const char *const names[] = {"message"};
    jinja_value message;
    AVO_TRY(jinja_parameters(render, "raise_exception", arguments, names, 1, 1, &message));
    AVO_TRY(jinja_to_text(render, message, &message));
    size_t size = message.text->size > 800 ? 800 : message.text->size;
    return jinja_fail(render, "%.*s", (int)size, message.text->data);
}

avo_status jinja_call_function(jinja_render *render, int function, const jinja_arguments *arguments,
                               jinja_value *out) {
    jinja_value format;
    jinja_dict *dict;
    const jinja_text *text;
    switch (function) {
    case FUNCTION_RANGE:
        return make_range(render, arguments, out);
    case FUNCTION_DICT:
        AVO_TRY(make_dict(render, arguments, &dict));
        *out = (jinja_value){.kind = JINJA_DICT, .dict = dict};
        return AVO_OK;
    case FUNCTION_NAMESPACE:
        return make_namespace(render, arguments, out);
    case FUNCTION_RAISE_EXCEPTION:
        return raise_exception(render, arguments);
    case FUNCTION_STRFTIME_NOW:
        AVO_TRY(jinja_parameters(render, "strftime_now", arguments, (const char *const[]){"format"},
                                 1, 1, &format));
        AVO_TRY(jinja_want_text(render, format, "strftime_now's format", &text));
        return jinja_strftime(render, text, out);
    default:
        return jinja_unsupported(render, function_names[function]);
    }
}
