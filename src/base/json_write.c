/* JSON output. */
#include "base/json.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

/* The escape of an ASCII character that needs one, else NULL; \u00XX goes through `scratch`. */
static const char *escape_of(unsigned char c, char scratch[8]) {
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    default:
        break;
    }
    if (c >= 0x20 && c != 0x7F)
        return NULL;
    snprintf(scratch, 8, "\\u%04x", c);
    return scratch;
}

avo_status json_write_string(buffer *out, text_view text) {
    AVO_TRY(buffer_append(out, "\"", 1));
    size_t at = 0;
    size_t plain = 0; /* begin of what can be copied as it is */
    while (at < text.size) {
        unsigned char c = (unsigned char)text.data[at];
        char scratch[8];
        const char *replacement = NULL;
        size_t length = 1;
        if (c < 0x80) {
            replacement = escape_of(c, scratch);
        } else {
            uint32_t ignored;
            length = utf8_decode(text.data + at, text.size - at, &ignored);
            if (length == 0) {
                length = utf8_invalid_length(text.data + at, text.size - at);
                replacement = "\xEF\xBF\xBD";
            }
        }
        if (replacement != NULL) {
            AVO_TRY(buffer_append(out, text.data + plain, at - plain));
            AVO_TRY(buffer_append_text(out, replacement));
            plain = at + length;
        }
        at += length;
    }
    AVO_TRY(buffer_append(out, text.data + plain, text.size - plain));
    return buffer_append(out, "\"", 1);
}

void json_number_text(double number, char text[static NUMBER_TEXT_MAX]) {
    for (int precision = 6; precision <= 17; precision++) {
        number_to_text(text, NUMBER_TEXT_MAX, 'g', precision, number);
        if (number_from_text(text, NULL) == number)
            break;
    }
    if (number == 0.0 && signbit(number)) /* "-0" would be read as an integer, which has no sign */
        snprintf(text, NUMBER_TEXT_MAX, "-0.0");
}

avo_status json_write_number(buffer *out, double number) {
    char text[NUMBER_TEXT_MAX];
    if (!isfinite(number))
        return buffer_append_text(out, "null");
    json_number_text(number, text);
    return buffer_append_text(out, text);
}

/* Depth is bounded by the parser (JSON_DEPTH_MAX), so recursion is safe. */
avo_status json_write_value(buffer *out, const json_value *value) {
    switch (value->kind) {
    case JSON_NULL:
        return buffer_append_text(out, "null");
    case JSON_BOOLEAN:
        return buffer_append_text(out, value->boolean ? "true" : "false");
    case JSON_INTEGER:
        return buffer_format(out, "%lld", (long long)value->integer);
    case JSON_NUMBER:
        return json_write_number(out, value->number);
    case JSON_STRING:
        return json_write_string(out, value->string);
    case JSON_ARRAY:
        AVO_TRY(buffer_append(out, "[", 1));
        for (size_t i = 0; i < value->array.count; i++) {
            if (i > 0)
                AVO_TRY(buffer_append(out, ",", 1));
            AVO_TRY(json_write_value(out, &value->array.items[i]));
        }
        return buffer_append(out, "]", 1);
    case JSON_OBJECT:
        AVO_TRY(buffer_append(out, "{", 1));
        for (size_t i = 0; i < value->object.count; i++) {
            if (i > 0)
                AVO_TRY(buffer_append(out, ",", 1));
            AVO_TRY(json_write_string(out, value->object.members[i].key));
            AVO_TRY(buffer_append(out, ":", 1));
            AVO_TRY(json_write_value(out, &value->object.members[i].value));
        }
        return buffer_append(out, "}", 1);
    }
    return AVO_ERROR_ARGUMENT;
}

const char *json_shown_key(text_view key, char text[static JSON_SHOWN_KEY_MAX]) {
    size_t used = 0;
    for (size_t i = 0; i < key.size && used < JSON_SHOWN_KEY_MAX - 7; i++) {
        unsigned char c = (unsigned char)key.data[i];
        if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(text + used, 7, "\\u%04x", c);
        else
            text[used++] = (char)c;
    }
    text[used] = '\0';
    return text;
}
