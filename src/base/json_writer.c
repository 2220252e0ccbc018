/* The JSON writer: separators and nesting. Escapes and numbers are json_write.c's. */
#include "base/json_writer.h"

#include "base/number.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

json_writer json_writer_of(buffer *out) {
    return (json_writer){.out = out, .status = AVO_OK};
}

json_writer json_writer_indented(buffer *out, unsigned levels) {
    assert(levels > 0 && levels <= JSON_WRITER_DEPTH_MAX);
    return (json_writer){.out = out, .status = AVO_OK, .line_depth = (uint8_t)levels};
}

avo_status json_writer_status(const json_writer *w) {
    assert(w->depth == 0 && (w->filled & 1) != 0);
    return w->status;
}

void json_writer_note(json_writer *w, avo_status status) {
    if (w->status == AVO_OK)
        w->status = status;
}

static void append(json_writer *w, const char *text, size_t bytes) {
    if (w->status == AVO_OK)
        w->status = buffer_append(w->out, text, bytes);
}

/* ---- Separators ---- */

static bool in_object(const json_writer *w) {
    return (w->objects >> w->depth & 1) != 0;
}

static void start_line(json_writer *w, unsigned spaces) {
    append(w, "\n", 1);
    for (unsigned i = 0; i < spaces; i++)
        append(w, " ", 1);
}

/* False: no line break is pending. */
static bool take_line_break(json_writer *w) {
    if (w->line_break == 0)
        return false;
    start_line(w, w->line_break - 1u);
    w->line_break = 0;
    return true;
}

/* What precedes an item of the innermost container. */
static void separate(json_writer *w) {
    bool first = (w->filled >> w->depth & 1) == 0;
    if (!first)
        append(w, ",", 1);
    w->filled |= UINT32_C(1) << w->depth;
    if (take_line_break(w))
        return;
    if (w->depth > 0 && w->depth <= w->line_depth)
        start_line(w, 2u * w->depth);
    else if (!first && w->line_depth > 0)
        append(w, " ", 1);
}

static void value_begins(json_writer *w) {
    assert(w->has_key == in_object(w));
    assert(w->depth > 0 || (w->filled & 1) == 0);
    if (!w->has_key)
        separate(w);
    w->has_key = false;
}

/* ---- Containers and keys ---- */

static void container_begins(json_writer *w, bool object) {
    value_begins(w);
    assert(w->depth < JSON_WRITER_DEPTH_MAX);
    append(w, object ? "{" : "[", 1);
    w->depth++;
    uint32_t bit = UINT32_C(1) << w->depth;
    w->objects = object ? w->objects | bit : w->objects & ~bit;
    w->filled &= ~bit;
}

void json_object_begin(json_writer *w) {
    container_begins(w, true);
}

void json_array_begin(json_writer *w) {
    container_begins(w, false);
}

void json_end(json_writer *w) {
    assert(w->depth > 0 && !w->has_key);
    bool object = in_object(w);
    bool filled = (w->filled >> w->depth & 1) != 0;
    w->depth--;
    if (!take_line_break(w) && filled && w->depth < w->line_depth)
        start_line(w, 2u * w->depth);
    append(w, object ? "}" : "]", 1);
}

void json_line_break(json_writer *w, unsigned spaces) {
    assert(!w->has_key && spaces < UINT8_MAX);
    w->line_break = (uint8_t)(spaces + 1);
}

void json_key_text(json_writer *w, text_view key) {
    assert(in_object(w) && !w->has_key);
    separate(w);
    if (w->status == AVO_OK)
        w->status = json_write_string(w->out, key);
    append(w, ": ", w->line_depth > 0 ? 2 : 1);
    w->has_key = true;
}

void json_key(json_writer *w, const char *key) {
    json_key_text(w, text_from(key));
}

/* ---- Values ---- */

void json_raw(json_writer *w, text_view json) {
    value_begins(w);
    append(w, json.data, json.size);
}

void json_raw_items(json_writer *w, text_view json) {
    assert(w->depth > 0 && !w->has_key);
    if (json.size == 0)
        return;
    separate(w);
    append(w, json.data, json.size);
}

void json_raw_format(json_writer *w, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    assert(length >= 0 && (size_t)length < sizeof(text));
    json_raw(w, (text_view){text, (size_t)length});
}

void json_null(json_writer *w) {
    json_raw(w, TEXT_LITERAL("null"));
}

void json_boolean(json_writer *w, bool value) {
    json_raw(w, value ? TEXT_LITERAL("true") : TEXT_LITERAL("false"));
}

void json_u64(json_writer *w, uint64_t value) {
    json_raw_format(w, "%" PRIu64, value);
}

void json_i64(json_writer *w, int64_t value) {
    json_raw_format(w, "%" PRId64, value);
}

void json_number(json_writer *w, double value) {
    value_begins(w);
    if (w->status == AVO_OK)
        w->status = json_write_number(w->out, value);
}

static void decimal(json_writer *w, char kind, int precision, double value) {
    char text[352]; /* the largest double has 309 digits before the point */
    assert(precision >= 0 && precision <= 17);
    if (!isfinite(value)) {
        json_null(w);
        return;
    }
    int length = number_to_text(text, sizeof(text), kind, precision, value);
    json_raw(w, (text_view){text, (size_t)length});
}

void json_float(json_writer *w, float value) {
    char text[NUMBER_TEXT_MAX];
    int precision = 6;
    for (; precision < 9; precision++) {
        number_to_text(text, sizeof(text), 'g', precision, (double)value);
        if ((float)number_from_text(text, NULL) == value)
            break;
    }
    decimal(w, 'g', precision, (double)value);
}

void json_fixed(json_writer *w, double value, int decimals) {
    decimal(w, 'f', decimals, value);
}

void json_significant(json_writer *w, double value, int digits) {
    decimal(w, 'g', digits, value);
}

void json_text(json_writer *w, text_view value) {
    value_begins(w);
    if (w->status == AVO_OK)
        w->status = json_write_string(w->out, value);
}

void json_string(json_writer *w, const char *value) {
    if (value == NULL)
        json_null(w);
    else
        json_text(w, text_from(value));
}

void json_tree(json_writer *w, const json_value *value) {
    value_begins(w);
    if (w->status == AVO_OK)
        w->status = json_write_value(w->out, value);
}
