/* The table of filters, and those on single values. */
#include "base/number.h"
#include "tokenizer/template/render_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const jinja_filter_entry *const tables[] = {jinja_value_filters, jinja_text_filters,
                                                   jinja_sequence_filters};
#define TABLE_STRIDE 64 /* a filter's number is table × 64 + place */

int jinja_filter_number(text_view name) {
    for (int t = 0; t < 3; t++)
        for (int i = 0; tables[t][i].name != NULL; i++)
            if (text_is(name, tables[t][i].name))
                return t * TABLE_STRIDE + i;
    return -1;
}

avo_status jinja_filter(jinja_render *render, int number, jinja_value subject,
                        const jinja_arguments *arguments, jinja_value *out) {
    const jinja_filter_entry *entry = &tables[number / TABLE_STRIDE][number % TABLE_STRIDE];
    if (entry->function == NULL)
        return jinja_fail(render, "the filter '%s' is not supported", entry->name);
    /* map(map(…)): filters may call filters. */
    if (render->depth >= JINJA_EVALUATION_DEPTH_MAX)
        return jinja_limit(render, "evaluations nested too deeply");
    render->depth++;
    jinja_filter_call call = {
        .subject = subject, .arguments = arguments, .name = entry->name, .option = entry->option};
    size_t count = 0;
    while (count < JINJA_FILTER_PARAMETERS && entry->parameters[count] != NULL)
        count++;
    if (entry->required != JINJA_OWN_ARGUMENTS)
        AVO_TRY(jinja_parameters(render, entry->name, arguments, entry->parameters, count,
                                 (size_t)entry->required, call.values));
    AVO_TRY(entry->function(render, &call, out));
    render->depth--;
    return AVO_OK;
}

static avo_status filter_default(jinja_render *render, const jinja_filter_call *call,
                                 jinja_value *out) {
    const jinja_value *values = call->values;
    bool boolean = false;
    bool truth = true;
    if (jinja_given(values[1]))
        AVO_TRY(jinja_truth(render, values[1], &boolean));
    if (boolean)
        AVO_TRY(jinja_truth(render, call->subject, &truth));
    *out = call->subject;
    if (call->subject.kind != JINJA_UNDEFINED && truth)
        return AVO_OK;
    *out = values[0];
    return jinja_given(values[0]) ? AVO_OK
                                  : jinja_text_new(render, (text_view){"", 0}, JINJA_TRUSTED, out);
}

static avo_status filter_length(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    size_t length;
    AVO_TRY(jinja_length(render, call->subject, &length));
    *out = jinja_integer((int64_t)length);
    return AVO_OK;
}

static avo_status filter_abs(jinja_render *render, const jinja_filter_call *call,
                             jinja_value *out) {
    jinja_value value = call->subject;
    if (!jinja_is_number(value))
        return jinja_fail(render, "abs does not work on %s", jinja_type_name(value));
    *out = value;
    if (value.kind == JINJA_NUMBER) {
        out->number = fabs(value.number);
        return AVO_OK;
    }
    int64_t integer = jinja_integer_of(value);
    if (integer == INT64_MIN)
        return jinja_unsupported(render, "an integer of more than 64 bits");
    *out = jinja_integer(integer < 0 ? -integer : integer);
    out->trusted = value.trusted;
    return AVO_OK;
}

/* ---- int and float ---- */

/* The text without whitespace around and underscores between digits; false when it is too long or
 * an underscore stands elsewhere. */
static bool plain_number(const jinja_text *text, char plain[400]) {
    size_t begin = 0;
    size_t end = text->size;
    while (begin < end && jinja_is_space((unsigned char)text->data[begin]))
        begin++;
    while (end > begin && jinja_is_space((unsigned char)text->data[end - 1]))
        end--;
    size_t size = 0;
    for (size_t i = begin; i < end; i++) {
        char c = text->data[i];
        if (c == '_') {
            if (i == begin || i + 1 == end || text->data[i + 1] == '_' ||
                !((text->data[i - 1] >= '0' && text->data[i - 1] <= '9') ||
                  (text->data[i - 1] | 0x20) >= 'a'))
                return false;
            continue;
        }
        if (c == '\0' || size + 1 >= 400)
            return false;
        plain[size++] = c;
    }
    plain[size] = '\0';
    return size > 0;
}

static bool parse_float(const jinja_text *text, double *number) {
    char plain[400];
    if (!plain_number(text, plain))
        return false;
    const char *digits = plain + (*plain == '-' || *plain == '+');
    bool named = strcasecmp(digits, "inf") == 0 || strcasecmp(digits, "infinity") == 0 ||
                 strcasecmp(digits, "nan") == 0;
    if (!named && strspn(digits, "0123456789.eE+-") != strlen(digits))
        return false; /* no hexadecimal */
    char *end;
    *number = number_from_text(plain, &end);
    return *end == '\0' && end != plain;
}

typedef enum parsed { PARSED, NOT_A_NUMBER, TOO_LARGE } parsed;

static parsed parse_integer(const jinja_text *text, int base, int64_t *integer) {
    char plain[400];
    if (!plain_number(text, plain))
        return NOT_A_NUMBER;
    const char *digits = plain + (*plain == '-' || *plain == '+');
    if (*digits == '\0' || *digits == '-' || *digits == '+' ||
        jinja_is_space((unsigned char)*digits))
        return NOT_A_NUMBER;
    bool prefixed = digits[0] == '0' && digits[1] != '\0';
    int marked = prefixed ? digits[1] | 0x20 : 0;
    int prefix_base = marked == 'x' ? 16 : marked == 'o' ? 8 : marked == 'b' ? 2 : 0;
    bool has_prefix = prefix_base != 0 && (base == 0 || base == prefix_base);
    if (has_prefix) {
        base = prefix_base;
        digits += 2;
    } else if (base == 0) {
        base = 10;
        if (prefixed && strspn(digits, "0") != strlen(digits))
            return NOT_A_NUMBER;
    }
    if (strspn(digits, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
            strlen(digits) ||
        *digits == '\0' || (base == 16 && !has_prefix && marked == 'x'))
        return NOT_A_NUMBER;
    char *end;
    errno = 0;
    unsigned long long magnitude = strtoull(digits, &end, base);
    if (*end != '\0')
        return NOT_A_NUMBER;
    if (errno == ERANGE || magnitude > (unsigned long long)INT64_MAX)
        return TOO_LARGE;
    *integer = *plain == '-' ? -(int64_t)magnitude : (int64_t)magnitude;
    return PARSED;
}

/* Whether every byte of a number's text is the template's own. */
static bool wholly_trusted(const jinja_text *text) {
    return text->origin == JINJA_TRUSTED;
}

static avo_status float_to_integer(jinja_render *render, double number, jinja_value fallback,
                                   jinja_value *out) {
    *out = fallback;
    if (isnan(number) || isinf(number))
        return AVO_OK;
    if (fabs(number) >= 9223372036854775808.0)
        return jinja_unsupported(render, "an integer of more than 64 bits");
    *out = jinja_integer((int64_t)number);
    return AVO_OK;
}

static avo_status filter_int(jinja_render *render, const jinja_filter_call *call,
                             jinja_value *out) {
    const jinja_value *values = call->values;
    jinja_value subject = call->subject;
    jinja_value fallback = jinja_given(values[0]) ? values[0] : jinja_integer(0);
    int64_t base;
    AVO_TRY(jinja_want_integer(render, values[1], 10, &base));
    *out = fallback;
    if (jinja_is_integer(subject)) {
        *out = jinja_integer(jinja_integer_of(subject));
        out->trusted = subject.trusted;
        return AVO_OK;
    }
    if (subject.kind == JINJA_NUMBER) {
        AVO_TRY(float_to_integer(render, subject.number, fallback, out));
        out->trusted = subject.trusted;
        /* int(inf) raises OverflowError, which jinja2 does not catch the first time. */
        return isinf(subject.number) ? jinja_fail(render, "int: the value is infinite") : AVO_OK;
    }
    if (subject.kind == JINJA_UNDEFINED)
        return jinja_fail(render, "int: '%.*s' is undefined",
                          TEXT_ARGUMENT(subject.undefined->name));
    if (subject.kind != JINJA_STRING)
        return AVO_OK;
    int64_t integer;
    double number;
    parsed result = base != 0 && (base < 2 || base > 36)
                        ? NOT_A_NUMBER
                        : parse_integer(subject.text, (int)base, &integer);
    if (result == TOO_LARGE)
        return jinja_unsupported(render, "an integer of more than 64 bits");
    if (result == PARSED)
        *out = jinja_integer(integer);
    else if (parse_float(subject.text, &number))
        AVO_TRY(float_to_integer(render, number, fallback, out));
    if (out->kind == JINJA_INTEGER)
        out->trusted &= wholly_trusted(subject.text);
    return AVO_OK;
}

static avo_status filter_float(jinja_render *render, const jinja_filter_call *call,
                               jinja_value *out) {
    jinja_value fallback = call->values[0];
    jinja_value subject = call->subject;
    *out = jinja_given(fallback) ? fallback : jinja_number(0);
    double number;
    if (jinja_is_number(subject)) {
        *out = jinja_number(jinja_number_of(subject));
        out->trusted = subject.trusted;
    } else if (subject.kind == JINJA_UNDEFINED) {
        return jinja_fail(render, "float: '%.*s' is undefined",
                          TEXT_ARGUMENT(subject.undefined->name));
    } else if (subject.kind == JINJA_STRING && parse_float(subject.text, &number)) {
        *out = jinja_number(number);
        out->trusted = wholly_trusted(subject.text);
    }
    return AVO_OK;
}

/* ---- round ---- */

static double round_common(double number, int64_t precision) {
    if (!isfinite(number) || precision > 22)
        return number;
    if (precision >= 0) { /* printf rounds the exact value half to even, as Python does */
        char text[400];
        number_to_text(text, sizeof(text), 'f', (int)precision, number);
        return number_from_text(text, NULL);
    }
    if (precision < -308)
        return copysign(0.0, number);
    double scale = pow(10, (double)-precision);
    return nearbyint(number / scale) * scale;
}

static avo_status round_integer(jinja_render *render, int64_t integer, int64_t precision,
                                jinja_value *out) {
    *out = jinja_integer(integer);
    if (precision >= 0)
        return AVO_OK;
    if (precision < -18)
        return jinja_unsupported(render, "rounding to that precision");
    int64_t scale = 1;
    for (int64_t i = precision; i < 0; i++)
        scale *= 10;
    int64_t rest = integer % scale;
    int64_t whole = integer - rest;
    int64_t doubled;
    if (__builtin_mul_overflow(rest < 0 ? -rest : rest, (int64_t)2, &doubled))
        return jinja_unsupported(render, "an integer of more than 64 bits");
    bool away = doubled > scale || (doubled == scale && (whole / scale) % 2 != 0);
    if (away && __builtin_add_overflow(whole, rest < 0 ? -scale : scale, &whole))
        return jinja_unsupported(render, "an integer of more than 64 bits");
    *out = jinja_integer(whole);
    return AVO_OK;
}

static avo_status filter_round(jinja_render *render, const jinja_filter_call *call,
                               jinja_value *out) {
    const jinja_value *values = call->values;
    jinja_value subject = call->subject;
    int64_t precision = 0;
    if (jinja_given(values[0]) && !jinja_is_integer(values[0]))
        return jinja_fail(render, "round: precision must be an integer");
    AVO_TRY(jinja_want_integer(render, values[0], 0, &precision));
    text_view method = jinja_given(values[1]) && jinja_is_string(values[1])
                           ? jinja_view_of(values[1].text)
                           : TEXT_LITERAL("common");
    bool common = text_is(method, "common");
    if ((!common && !text_is(method, "ceil") && !text_is(method, "floor")) ||
        (jinja_given(values[1]) && !jinja_is_string(values[1])))
        return jinja_fail(render, "round: method must be common, ceil or floor");
    if (!jinja_is_number(subject))
        return jinja_fail(render, "round does not work on %s", jinja_type_name(subject));
    if (common && jinja_is_integer(subject)) {
        AVO_TRY(round_integer(render, jinja_integer_of(subject), precision, out));
    } else if (common) {
        *out = jinja_number(round_common(subject.number, precision));
    } else {
        double number = jinja_number_of(subject);
        if (!isfinite(number))
            return jinja_fail(render, "round: not a finite number");
        double scale = pow(10, (double)precision);
        double scaled = text_is(method, "ceil") ? ceil(number * scale) : floor(number * scale);
        *out = jinja_number(scaled / scale);
    }
    out->trusted = subject.trusted;
    return AVO_OK;
}

/* ---- tojson ---- */

static avo_status json_indent(jinja_render *render, jinja_value indent, jinja_json_style *style) {
    if (!jinja_given(indent) || indent.kind == JINJA_NONE)
        return AVO_OK;
    style->indented = true;
    jinja_value text = indent;
    if (jinja_is_integer(indent)) {
        int64_t width = jinja_integer_of(indent);
        jinja_builder builder;
        jinja_builder_init(&builder, render);
        AVO_TRY(jinja_builder_fill(&builder, " ", 1, width < 0 ? 0 : (size_t)width, false));
        AVO_TRY(jinja_builder_finish(&builder, &text));
    }
    return jinja_want_text(render, text, "tojson's indent", &style->indent);
}

static avo_status json_separators(jinja_render *render, jinja_value separators,
                                  jinja_json_style *style) {
    jinja_value item;
    jinja_value key;
    text_view comma = style->indented ? TEXT_LITERAL(",") : TEXT_LITERAL(", ");
    AVO_TRY(jinja_text_new(render, comma, JINJA_UNTRUSTED, &item));
    AVO_TRY(jinja_text_new(render, TEXT_LITERAL(": "), JINJA_UNTRUSTED, &key));
    if (jinja_given(separators) && separators.kind != JINJA_NONE) {
        jinja_sequence *pair;
        AVO_TRY(jinja_collect(render, separators, &pair));
        if (pair->count != 2)
            return jinja_fail(render, "tojson: separators must be a pair");
        item = pair->items[0];
        key = pair->items[1];
    }
    AVO_TRY(jinja_want_text(render, item, "tojson's separator", &style->item_separator));
    return jinja_want_text(render, key, "tojson's separator", &style->key_separator);
}

static avo_status filter_tojson(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    const jinja_value *values = call->values;
    jinja_json_style style = {0};
    if (jinja_given(values[0]))
        AVO_TRY(jinja_truth(render, values[0], &style.ensure_ascii));
    if (jinja_given(values[3]))
        AVO_TRY(jinja_truth(render, values[3], &style.sort_keys));
    AVO_TRY(json_indent(render, values[1], &style));
    AVO_TRY(json_separators(render, values[2], &style));
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    AVO_TRY(jinja_to_json(&builder, call->subject, &style));
    return jinja_builder_finish(&builder, out);
}

static avo_status filter_attr(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    jinja_value name = call->values[0];
    const jinja_text *text;
    AVO_TRY(jinja_want_text(render, name, "attr's name", &text));
    /* Only attributes, no items: a dict shows its methods here, not its keys. */
    if (call->subject.kind == JINJA_DICT &&
        jinja_method_access(jinja_method_number(jinja_view_of(text)), JINJA_DICT) == ACCESS_NONE)
        return jinja_undefined_make(render, jinja_view_of(text), "dict", NULL, out);
    return jinja_get_attribute_text(render, call->subject, text, out);
}

const jinja_filter_entry jinja_value_filters[] = {
    {"abs", filter_abs, {NULL}, 0, 0},
    {"attr", filter_attr, {"name"}, 1, 0},
    {"count", filter_length, {NULL}, 0, 0},
    {"d", filter_default, {"default_value", "boolean"}, 0, 0},
    {"default", filter_default, {"default_value", "boolean"}, 0, 0},
    {"filesizeformat", NULL, {NULL}, 0, 0},
    {"float", filter_float, {"default"}, 0, 0},
    {"int", filter_int, {"default", "base"}, 0, 0},
    {"length", filter_length, {NULL}, 0, 0},
    {"pprint", NULL, {NULL}, 0, 0},
    {"random", NULL, {NULL}, 0, 0},
    {"round", filter_round, {"precision", "method"}, 0, 0},
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, 0},
    {"urlencode", NULL, {NULL}, 0, 0},
    {"urlize", NULL, {NULL}, 0, 0},
    {"xmlattr", NULL, {NULL}, 0, 0},
    {NULL, NULL, {NULL}, 0, 0},
};
