/* json.dumps(), as transformers' tojson filter calls it. The characters of strings keep their
 * origin; everything that describes the structure of the caller's data counts as the caller's. */
#include "tokenizer/template/render_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
    jinja_builder *out;
    const jinja_json_style *style;
    size_t level;
} writer;

static avo_status write_value(writer *w, jinja_value value);

static avo_status plain(writer *w, const char *text) {
    return jinja_builder_bytes(w->out, text, strlen(text), false);
}

/* The escape of a character, or 0 when it stands for itself. */
static size_t escape_of(uint32_t code_point, bool ensure_ascii, char text[16]) {
    static const char from[] = "\"\\\n\r\t\b\f";
    static const char to[] = "\"\\nrtbf";
    const char *simple = code_point > 0 && code_point < 0x80 ? strchr(from, (int)code_point) : NULL;
    if (simple != NULL)
        return (size_t)snprintf(text, 16, "\\%c", to[simple - from]);
    if (code_point >= 0x20 && (code_point < 0x7F || !ensure_ascii))
        return 0;
    if (code_point == 0x7F)
        return 0;
    if (code_point < 0x10000)
        return (size_t)snprintf(text, 16, "\\u%04x", code_point);
    code_point -= 0x10000;
    return (size_t)snprintf(text, 16, "\\u%04x\\u%04x", 0xD800 + (code_point >> 10),
                            0xDC00 + (code_point & 0x3FF));
}

static avo_status write_text(writer *w, const jinja_text *text) {
    AVO_TRY(plain(w, "\""));
    size_t begin = 0;
    for (size_t at = 0; at < text->size;) {
        unsigned char byte = (unsigned char)text->data[at];
        if (byte >= 0x20 && byte != '"' && byte != '\\' &&
            (byte < 0x80 || !w->style->ensure_ascii)) {
            at++;
            continue;
        }
        uint32_t code_point;
        bool valid;
        size_t bytes = jinja_read_character(text, at, &code_point, &valid);
        char escape[16];
        size_t escape_bytes = escape_of(code_point, w->style->ensure_ascii, escape);
        if (escape_bytes > 0) {
            AVO_TRY(jinja_builder_part(w->out, text, begin, at));
            AVO_TRY(
                jinja_builder_bytes(w->out, escape, escape_bytes, jinja_text_trusted_at(text, at)));
            begin = at + bytes;
        }
        at += bytes;
    }
    AVO_TRY(jinja_builder_part(w->out, text, begin, text->size));
    return plain(w, "\"");
}

static avo_status write_number(writer *w, jinja_value value) {
    char text[JINJA_NUMBER_TEXT_MAX];
    if (value.kind == JINJA_INTEGER) {
        snprintf(text, sizeof(text), "%lld", (long long)value.integer);
        return jinja_builder_bytes(w->out, text, strlen(text), value.trusted);
    }
    if (isnan(value.number))
        return plain(w, "NaN");
    if (isinf(value.number))
        return plain(w, value.number < 0 ? "-Infinity" : "Infinity");
    return jinja_builder_bytes(w->out, text, jinja_number_text(value.number, text), value.trusted);
}

static avo_status new_line(writer *w) {
    if (!w->style->indented)
        return AVO_OK;
    AVO_TRY(plain(w, "\n"));
    for (size_t i = 0; i < w->level; i++)
        AVO_TRY(jinja_builder_text(w->out, w->style->indent));
    return AVO_OK;
}

static avo_status write_separator(writer *w, bool first) {
    if (!first)
        AVO_TRY(jinja_builder_text(w->out, w->style->item_separator));
    return new_line(w);
}

static avo_status write_sequence(writer *w, const jinja_sequence *sequence) {
    if (sequence->count == 0)
        return plain(w, "[]");
    AVO_TRY(plain(w, "["));
    w->level++;
    for (size_t i = 0; i < sequence->count; i++) {
        AVO_TRY(write_separator(w, i == 0));
        AVO_TRY(write_value(w, sequence->items[i]));
    }
    w->level--;
    AVO_TRY(new_line(w));
    return plain(w, "]");
}

static avo_status write_key(writer *w, jinja_value key) {
    if (key.kind == JINJA_STRING)
        return write_text(w, key.text);
    if (key.kind != JINJA_NONE && !jinja_is_number(key))
        return jinja_fail(w->out->render, "tojson: a key cannot be %s", jinja_type_name(key));
    AVO_TRY(plain(w, "\""));
    AVO_TRY(write_value(w, key));
    return plain(w, "\"");
}

static avo_status sorted_entries(writer *w, const jinja_dict *dict, jinja_value **values,
                                 jinja_value **keys) {
    jinja_render *render = w->out->render;
    AVO_TRY(jinja_take(render, dict->count, sizeof(jinja_value), keys));
    AVO_TRY(jinja_take(render, dict->count, sizeof(jinja_value), values));
    for (size_t i = 0; i < dict->count; i++) {
        (*keys)[i] = dict->entries[i].key;
        (*values)[i] = dict->entries[i].value;
    }
    return w->style->sort_keys ? jinja_sort(render, *values, *keys, dict->count, false) : AVO_OK;
}

static avo_status write_dict(writer *w, const jinja_dict *dict) {
    if (dict->count == 0)
        return plain(w, "{}");
    jinja_value *keys;
    jinja_value *values;
    AVO_TRY(sorted_entries(w, dict, &values, &keys));
    AVO_TRY(plain(w, "{"));
    w->level++;
    for (size_t i = 0; i < dict->count; i++) {
        AVO_TRY(write_separator(w, i == 0));
        AVO_TRY(write_key(w, keys[i]));
        AVO_TRY(jinja_builder_text(w->out, w->style->key_separator));
        AVO_TRY(write_value(w, values[i]));
    }
    w->level--;
    AVO_TRY(new_line(w));
    return plain(w, "}");
}

static avo_status write_value(writer *w, jinja_value value) {
    jinja_render *render = w->out->render;
    AVO_TRY(jinja_charge(render, 1));
    switch ((jinja_kind)value.kind) {
    case JINJA_NONE:
        return jinja_builder_bytes(w->out, "null", 4, value.trusted);
    case JINJA_BOOLEAN:
        return jinja_builder_bytes(w->out, value.boolean ? "true" : "false", value.boolean ? 4 : 5,
                                   value.trusted);
    case JINJA_INTEGER:
    case JINJA_NUMBER:
        return write_number(w, value);
    case JINJA_STRING:
        return write_text(w, value.text);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        break;
    default:
        return jinja_fail(render, "tojson: %s has no JSON form", jinja_type_name(value));
    }
    if (render->value_depth >= JINJA_VALUE_DEPTH_MAX)
        return jinja_limit(render, "values nested too deeply");
    render->value_depth++;
    AVO_TRY(value.kind == JINJA_DICT ? write_dict(w, value.dict)
                                     : write_sequence(w, value.sequence));
    render->value_depth--;
    return AVO_OK;
}

avo_status jinja_to_json(jinja_builder *builder, jinja_value value, const jinja_json_style *style) {
    writer w = {.out = builder, .style = style};
    return write_value(&w, value);
}
