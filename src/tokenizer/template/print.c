/* str() and repr() of values, as Python writes them. */
#include "base/number.h"
#include "tokenizer/template/render_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as the same number; returns the decimal exponent. */
static int shortest_digits(double number, char digits[20], int *count) {
    char text[40];
    for (int precision = 0; precision <= 16; precision++) {
        number_to_text(text, sizeof(text), 'e', precision, number);
        if (precision == 16 || number_from_text(text, NULL) == number)
            break;
    }
    char *exponent = strchr(text, 'e');
    *count = 0;
    for (const char *c = text; c < exponent; c++)
        if (*c >= '0' && *c <= '9')
            digits[(*count)++] = *c;
    while (*count > 1 && digits[*count - 1] == '0')
        (*count)--;
    return (int)strtol(exponent + 1, NULL, 10);
}

size_t jinja_number_text(double number, char text[JINJA_NUMBER_TEXT_MAX]) {
    if (isnan(number) || isinf(number)) {
        const char *name = isnan(number) ? "nan" : number < 0 ? "-inf" : "inf";
        memcpy(text, name, strlen(name) + 1);
        return strlen(name);
    }
    char digits[20];
    int count;
    int exponent = shortest_digits(fabs(number), digits, &count);
    size_t size = 0;
    if (signbit(number))
        text[size++] = '-';
    if (exponent < -4 || exponent >= 16) {
        text[size++] = digits[0];
        if (count > 1)
            text[size++] = '.';
        for (int i = 1; i < count; i++)
            text[size++] = digits[i];
        size += (size_t)snprintf(text + size, JINJA_NUMBER_TEXT_MAX - size, "e%c%02d",
                                 exponent < 0 ? '-' : '+', abs(exponent));
        return size;
    }
    if (exponent < 0) {
        text[size++] = '0';
        text[size++] = '.';
        for (int i = exponent + 1; i < 0; i++)
            text[size++] = '0';
    }
    int whole = exponent + 1; /* digits in front of the point */
    for (int i = 0; i < (count > whole ? count : whole); i++) {
        if (i == whole && exponent >= 0)
            text[size++] = '.';
        text[size++] = i < count ? digits[i] : '0';
    }
    if (exponent >= 0 && count <= whole) {
        text[size++] = '.';
        text[size++] = '0';
    }
    text[size] = '\0';
    return size;
}

static avo_status represent_character(jinja_builder *builder, uint32_t code_point, char quote,
                                      bool trusted) {
    char text[16];
    if (code_point == (uint32_t)quote || code_point == '\\')
        snprintf(text, sizeof(text), "\\%c", (char)code_point);
    else if (code_point == '\n' || code_point == '\r' || code_point == '\t')
        snprintf(text, sizeof(text), "\\%c",
                 code_point == '\n'   ? 'n'
                 : code_point == '\r' ? 'r'
                                      : 't');
    else if (jinja_is_printable(code_point))
        return jinja_builder_character(builder, code_point, trusted);
    else if (code_point < 0x100)
        snprintf(text, sizeof(text), "\\x%02x", code_point);
    else if (code_point < 0x10000)
        snprintf(text, sizeof(text), "\\u%04x", code_point);
    else
        snprintf(text, sizeof(text), "\\U%08x", code_point);
    return jinja_builder_bytes(builder, text, strlen(text), trusted);
}

static avo_status represent_text(jinja_builder *builder, const jinja_text *text) {
    bool has_single = memchr(text->data, '\'', text->size) != NULL;
    bool has_double = memchr(text->data, '"', text->size) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    if (text->markup)
        AVO_TRY(jinja_builder_bytes(builder, "Markup(", 7, false));
    AVO_TRY(jinja_builder_bytes(builder, &quote, 1, false));
    for (size_t at = 0; at < text->size;) {
        uint32_t code_point;
        bool valid;
        size_t bytes = jinja_read_character(text, at, &code_point, &valid);
        bool trusted = jinja_text_trusted_at(text, at);
        if (valid)
            AVO_TRY(represent_character(builder, code_point, quote, trusted));
        else
            AVO_TRY(jinja_builder_part(builder, text, at, at + bytes));
        at += bytes;
    }
    AVO_TRY(jinja_builder_bytes(builder, &quote, 1, false));
    return text->markup ? jinja_builder_bytes(builder, ")", 1, false) : AVO_OK;
}

static avo_status plain(jinja_builder *builder, const char *text) {
    return jinja_builder_bytes(builder, text, strlen(text), false);
}

static avo_status represent_sequence(jinja_builder *builder, const jinja_sequence *sequence,
                                     const char *open, const char *close) {
    AVO_TRY(plain(builder, open));
    for (size_t i = 0; i < sequence->count; i++) {
        if (i > 0)
            AVO_TRY(plain(builder, ", "));
        AVO_TRY(jinja_represent(builder, sequence->items[i]));
    }
    if (*close == ')' && sequence->count == 1)
        AVO_TRY(plain(builder, ","));
    return plain(builder, close);
}

static avo_status represent_dict(jinja_builder *builder, const jinja_dict *dict) {
    AVO_TRY(plain(builder, "{"));
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0)
            AVO_TRY(plain(builder, ", "));
        AVO_TRY(jinja_represent(builder, dict->entries[i].key));
        AVO_TRY(plain(builder, ": "));
        AVO_TRY(jinja_represent(builder, dict->entries[i].value));
    }
    return plain(builder, "}");
}

static avo_status represent_view(jinja_builder *builder, jinja_value value) {
    AVO_TRY(plain(builder, jinja_type_name(value)));
    AVO_TRY(plain(builder, "("));
    jinja_sequence *items;
    AVO_TRY(jinja_collect(builder->render, value, &items));
    AVO_TRY(represent_sequence(builder, items, "[", "]"));
    return plain(builder, ")");
}

static avo_status represent_range(jinja_builder *builder, const jinja_range *range) {
    char text[80];
    if (range->step == 1)
        snprintf(text, sizeof(text), "range(%lld, %lld)", (long long)range->start,
                 (long long)range->stop);
    else
        snprintf(text, sizeof(text), "range(%lld, %lld, %lld)", (long long)range->start,
                 (long long)range->stop, (long long)range->step);
    return plain(builder, text);
}

static avo_status represent_loop(jinja_builder *builder, jinja_loop *loop) {
    size_t length;
    AVO_TRY(jinja_loop_length(builder->render, loop, &length));
    char text[80];
    snprintf(text, sizeof(text), "<LoopContext %zu/%zu>", loop->index + 1, length);
    return jinja_builder_bytes(builder, text, strlen(text), true);
}

static avo_status represent_container(jinja_builder *builder, jinja_value value) {
    switch ((jinja_kind)value.kind) {
    case JINJA_LIST:
        return represent_sequence(builder, value.sequence, "[", "]");
    case JINJA_TUPLE:
        return represent_sequence(builder, value.sequence, "(", ")");
    case JINJA_DICT:
        return represent_dict(builder, value.dict);
    case JINJA_NAMESPACE:
        AVO_TRY(plain(builder, "<Namespace "));
        AVO_TRY(represent_dict(builder, value.dict));
        return plain(builder, ">");
    case JINJA_VIEW:
        return represent_view(builder, value);
    case JINJA_RANGE:
        return represent_range(builder, value.range);
    case JINJA_LOOP:
        return represent_loop(builder, value.loop);
    case JINJA_MACRO: {
        jinja_value name;
        AVO_TRY(jinja_text_new(builder->render, value.macro->name, JINJA_TRUSTED, &name));
        AVO_TRY(plain(builder, value.macro->name.size == 0 ? "<Macro anonymous" : "<Macro "));
        if (value.macro->name.size > 0)
            AVO_TRY(represent_text(builder, name.text));
        return plain(builder, ">");
    }
    default:
        return jinja_fail(builder->render, "%s cannot be printed", jinja_type_name(value));
    }
}

avo_status jinja_represent(jinja_builder *builder, jinja_value value) {
    jinja_render *render = builder->render;
    char text[JINJA_NUMBER_TEXT_MAX];
    AVO_TRY(jinja_charge(render, 1));
    switch ((jinja_kind)value.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
        return jinja_builder_bytes(builder, "Undefined", 9, true);
    case JINJA_NONE:
        return jinja_builder_bytes(builder, "None", 4, value.trusted);
    case JINJA_BOOLEAN:
        return jinja_builder_bytes(builder, value.boolean ? "True" : "False", value.boolean ? 4 : 5,
                                   value.trusted);
    case JINJA_INTEGER:
        snprintf(text, sizeof(text), "%lld", (long long)value.integer);
        return jinja_builder_bytes(builder, text, strlen(text), value.trusted);
    case JINJA_NUMBER:
        return jinja_builder_bytes(builder, text, jinja_number_text(value.number, text),
                                   value.trusted);
    case JINJA_STRING:
        return represent_text(builder, value.text);
    default:
        break;
    }
    if (render->value_depth >= JINJA_VALUE_DEPTH_MAX)
        return jinja_limit(render, "values nested too deeply");
    render->value_depth++;
    AVO_TRY(represent_container(builder, value));
    render->value_depth--;
    return AVO_OK;
}

avo_status jinja_print(jinja_builder *builder, jinja_value value) {
    if (value.kind == JINJA_STRING)
        return jinja_builder_text(builder, value.text);
    if (value.kind == JINJA_UNDEFINED)
        return builder->render->input->strict ? jinja_fail_undefined(builder->render, value)
                                              : AVO_OK;
    return jinja_represent(builder, value);
}

avo_status jinja_to_text(jinja_render *render, jinja_value value, jinja_value *out) {
    if (value.kind == JINJA_STRING) {
        *out = value;
        return AVO_OK;
    }
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    AVO_TRY(jinja_print(&builder, value));
    return jinja_builder_finish(&builder, out);
}
