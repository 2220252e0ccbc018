/* Payloads that are no JSON: tags, pairs of keys and values, Python's calls, Gemma's. Each reader
 * gets the whole of one and is linear in its bytes; nesting is limited. */
#include "chat/tool_int.h"

#include "base/utf8.h"

#include <string.h>

#define NESTING_MAX 64

/* ---- Tags ---- */

static void skip_space(text_view *text) {
    while (text->size > 0 && tool_is_space(text->data[0]))
        text->data++, text->size--;
}

static void skip(text_view *text, size_t bytes) {
    text->data += bytes;
    text->size -= bytes;
}

/* Everything up to `end`, which is taken as well; false: it is not there. */
static bool take_until(text_view *text, const char *end, text_view *taken) {
    size_t size = strlen(end);
    const char *at = text->size == 0 ? NULL : memmem(text->data, text->size, end, size);
    if (at == NULL)
        return false;
    *taken = (text_view){text->data, (size_t)(at - text->data)};
    skip(text, taken->size + size);
    return true;
}

/* NAME"> or NAME>; *more: what stands between the quote and '>'. */
static bool take_name(const tool_markup *markup, text_view *text, text_view *name,
                      text_view *more) {
    *more = (text_view){"", 0};
    if (!markup->quoted)
        return take_until(text, ">", name);
    return take_until(text, "\"", name) && take_until(text, ">", more);
}

/* Whether `text` may still become `prefix`. */
static bool may_become(text_view text, const char *prefix) {
    return text.size < strlen(prefix) &&
           (text.size == 0 || memcmp(text.data, prefix, text.size) == 0);
}

static text_view plain_value(const tool_markup *markup, text_view value) {
    text_view inner = tool_trim(value);
    static const char begin[] = "<![CDATA[", end[] = "]]>";
    if (markup->quoted && text_starts(inner, text_from(begin)) &&
        text_ends(inner, text_from(end)) && inner.size >= sizeof(begin) + sizeof(end) - 2)
        return (text_view){inner.data + sizeof(begin) - 1,
                           inner.size - (sizeof(begin) - 1) - (sizeof(end) - 1)};
    if (markup->lines && value.size > 0 && value.data[0] == '\n')
        skip(&value, 1);
    if (markup->lines && value.size > 0 && value.data[value.size - 1] == '\n')
        value.size--;
    return value;
}

static avo_status write_member(buffer *object, text_view key) {
    AVO_TRY(buffer_append_text(object, object->size > 1 ? "," : ""));
    AVO_TRY(json_write_string(object, key));
    return buffer_append_text(object, ":");
}

/* One value; DeepSeek says in an attribute whether it is a text. */
static avo_status add_parameter(const json_value *parameters, text_view key, text_view attributes,
                                text_view value, arena *arena, buffer *object) {
    json_value parsed;
    AVO_TRY(write_member(object, key));
    if (memmem(attributes.data, attributes.size, "string=\"true\"", 13) != NULL)
        return json_write_string(object, value);
    if (memmem(attributes.data, attributes.size, "string=\"false\"", 14) != NULL &&
        json_parse(arena, value, &parsed, NULL) == AVO_OK)
        return json_write_value(object, &parsed);
    return tool_write_value(parameters, key, value, arena, object);
}

static tool_outcome read_parameters(const tool_markup *markup, text_view *text,
                                    const json_value *parameters, arena *arena, buffer *object,
                                    avo_status *status) {
    for (;;) {
        text_view key, attributes, value;
        skip_space(text);
        if (text_take(text, markup->call_close))
            return TOOL_GOOD;
        if (!text_take(text, markup->key))
            return may_become(*text, markup->key) || may_become(*text, markup->call_close)
                       ? TOOL_MORE
                       : TOOL_BAD;
        if (!take_name(markup, text, &key, &attributes) ||
            !take_until(text, markup->value_close, &value))
            return TOOL_MORE;
        *status = add_parameter(parameters, tool_trim(key), attributes, plain_value(markup, value),
                                arena, object);
        if (*status != AVO_OK)
            return TOOL_BAD;
    }
}

tool_outcome tool_read_tags(const tool_markup *markup, text_view text, tool_found *found,
                            avo_status *status) {
    tool_outcome outcome = TOOL_GOOD;
    do {
        text_view name, attributes;
        skip_space(&text);
        if (!text_take(&text, markup->call))
            return may_become(text, markup->call) ? TOOL_MORE : TOOL_BAD;
        if (!take_name(markup, &text, &name, &attributes))
            return TOOL_MORE;
        name = tool_trim(name);
        buffer object;
        buffer_init(&object, found->arena->allocator, 8 * CHAT_CALL_BYTES_MAX);
        *status = buffer_append_text(&object, "{");
        outcome = *status != AVO_OK
                      ? TOOL_BAD
                      : read_parameters(markup, &text, tool_parameters(found->tools, name),
                                        found->arena, &object, status);
        if (outcome == TOOL_GOOD && !tool_found_add(found, name, &object, status))
            outcome = TOOL_BAD;
        buffer_free(&object);
        skip_space(&text);
    } while (outcome == TOOL_GOOD && text.size > 0);
    return outcome;
}

/* ---- Pairs ---- */

static tool_outcome read_pairs(const tool_markup *markup, text_view text,
                               const json_value *parameters, arena *arena, buffer *object,
                               avo_status *status) {
    for (;;) {
        text_view key, value;
        skip_space(&text);
        if (text.size == 0)
            return TOOL_GOOD;
        if (!text_take(&text, markup->key))
            return may_become(text, markup->key) ? TOOL_MORE : TOOL_BAD;
        if (!take_until(&text, markup->key_close, &key))
            return TOOL_MORE;
        skip_space(&text);
        if (!text_take(&text, markup->value))
            return may_become(text, markup->value) ? TOOL_MORE : TOOL_BAD;
        if (!take_until(&text, markup->value_close, &value))
            return TOOL_MORE;
        *status = write_member(object, tool_trim(key));
        if (*status == AVO_OK)
            *status = tool_write_value(parameters, tool_trim(key), value, arena, object);
        if (*status != AVO_OK)
            return TOOL_BAD;
    }
}

tool_outcome tool_read_pairs(const tool_markup *markup, text_view text, tool_found *found,
                             avo_status *status) {
    const char *begin = text.size == 0 ? NULL : memchr(text.data, '<', text.size);
    text_view name = {text.data, begin == NULL ? text.size : (size_t)(begin - text.data)};
    skip(&text, name.size);
    name = tool_trim(name);
    if (markup->separator != NULL)
        (void)text_take(&text, markup->separator);
    for (size_t i = 0; i < name.size; i++)
        if (tool_is_space(name.data[i]))
            return TOOL_BAD;
    buffer object;
    buffer_init(&object, found->arena->allocator, 8 * CHAT_CALL_BYTES_MAX);
    *status = buffer_append_text(&object, "{");
    tool_outcome outcome = *status != AVO_OK
                               ? TOOL_BAD
                               : read_pairs(markup, text, tool_parameters(found->tools, name),
                                            found->arena, &object, status);
    if (outcome == TOOL_GOOD && !tool_found_add(found, name, &object, status))
        outcome = TOOL_BAD;
    buffer_free(&object);
    return outcome;
}

/* ---- Python and Gemma: values of their own ---- */

typedef struct value_reader {
    text_view text;
    buffer *out;
    avo_status status;
    bool gemma; /* strings in <|"|>, keys without quotes */
} value_reader;

static bool put(value_reader *r, const char *text) {
    if (r->status == AVO_OK)
        r->status = buffer_append_text(r->out, text);
    return r->status == AVO_OK;
}

static bool put_string(value_reader *r, text_view text) {
    if (r->status == AVO_OK)
        r->status = json_write_string(r->out, text);
    return r->status == AVO_OK;
}

static bool next_is(value_reader *r, char byte) {
    skip_space(&r->text);
    return r->text.size > 0 && r->text.data[0] == byte;
}

static bool take_char(value_reader *r, char byte) {
    if (!next_is(r, byte))
        return false;
    skip(&r->text, 1);
    return true;
}

static bool name_byte(char c) {
    return c == '_' || c == '-' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static bool take_word(value_reader *r, text_view *word) {
    size_t size = 0;
    skip_space(&r->text);
    while (size < r->text.size && name_byte(r->text.data[size]))
        size++;
    *word = (text_view){r->text.data, size};
    skip(&r->text, size);
    return size > 0;
}

/* \xHH, \uHHHH, \UHHHHHHHH: the digits. */
static bool take_code(value_reader *r, size_t digits, uint32_t *code) {
    *code = 0;
    if (r->text.size < digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        char c = r->text.data[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        *code = *code * 16 + (uint32_t)digit;
    }
    skip(&r->text, digits);
    return true;
}

static avo_status take_escape(value_reader *r, buffer *text) {
    static const char from[] = "ntrbfav0'\"\\", to[] = "\n\t\r\b\f\a\v\0'\"\\";
    char c = r->text.data[0];
    skip(&r->text, 1);
    uint32_t code = 0;
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0 && take_code(r, digits, &code)) {
        char bytes[4];
        size_t size = utf8_encode(
            code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0xFFFD : code, bytes);
        return buffer_append(text, bytes, size);
    }
    const char *known = c == '\0' ? NULL : strchr(from, c);
    if (c == '\n') /* a line that goes on */
        return AVO_OK;
    if (known != NULL)
        return buffer_append(text, &to[known - from], 1);
    AVO_TRY(buffer_append(text, "\\", 1));
    return buffer_append(text, &c, 1);
}

static bool read_quoted(value_reader *r) {
    char quote = r->text.data[0];
    skip(&r->text, 1);
    buffer text;
    buffer_init(&text, r->out->allocator, CHAT_CALL_BYTES_MAX);
    bool ended = false;
    while (r->text.size > 0 && r->status == AVO_OK && !ended) {
        char c = r->text.data[0];
        skip(&r->text, 1);
        ended = c == quote;
        if (c == '\\' && r->text.size > 0)
            r->status = take_escape(r, &text);
        else if (!ended)
            r->status = buffer_append(&text, &c, 1);
    }
    bool good = ended && put_string(r, buffer_text(&text));
    buffer_free(&text);
    return good;
}

static bool read_value(value_reader *r, unsigned depth);

static bool read_key(value_reader *r) {
    text_view key;
    if (r->gemma && !next_is(r, '<'))
        return take_word(r, &key) && put_string(r, key);
    skip_space(&r->text);
    if (r->gemma && text_take(&r->text, "<|\"|>"))
        return take_until(&r->text, "<|\"|>", &key) && put_string(r, key);
    return (next_is(r, '"') || next_is(r, '\'')) && read_quoted(r);
}

/* [a, b], (a, b) or {k: v}. */
static bool read_list(value_reader *r, char close, bool keys, unsigned depth) {
    bool first = true;
    skip(&r->text, 1);
    if (!put(r, keys ? "{" : "["))
        return false;
    while (!take_char(r, close)) {
        if (!first && !take_char(r, ','))
            return false;
        if (!first && take_char(r, close)) /* a comma at the end */
            break;
        if ((!first && !put(r, ",")) ||
            (keys && (!read_key(r) || !take_char(r, ':') || !put(r, ":"))) ||
            !read_value(r, depth + 1))
            return false;
        first = false;
    }
    return put(r, keys ? "}" : "]");
}

/* A number or a word. */
static bool read_plain(value_reader *r) {
    static const char *const words[][2] = {{"True", "true"},   {"true", "true"}, {"False", "false"},
                                           {"false", "false"}, {"None", "null"}, {"null", "null"}};
    size_t size = 0;
    char number[64];
    while (size < r->text.size && (name_byte(r->text.data[size]) || r->text.data[size] == '+'))
        size++;
    text_view word = {r->text.data, size};
    skip(&r->text, size);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (text_is(word, words[i][0]))
            return put(r, words[i][1]);
    if (size == 0 || size >= sizeof(number))
        return false;
    memcpy(number, word.data, size);
    number[size] = '\0';
    if (strspn(number, "+-.0123456789eE") < size)
        return false;
    return put(r, number[0] == '+' ? number + 1 : number); /* what is no number fails as JSON */
}

static bool read_value(value_reader *r, unsigned depth) {
    text_view text;
    skip_space(&r->text);
    if (r->text.size == 0 || depth > NESTING_MAX || r->status != AVO_OK)
        return false;
    if (r->gemma && text_take(&r->text, "<|\"|>"))
        return take_until(&r->text, "<|\"|>", &text) && put_string(r, text);
    switch (r->text.data[0]) {
    case '"':
    case '\'':
        return read_quoted(r);
    case '[':
        return read_list(r, ']', false, depth);
    case '(':
        return !r->gemma && read_list(r, ')', false, depth);
    case '{':
        return read_list(r, '}', true, depth);
    default:
        return read_plain(r);
    }
}

/* ---- Python ---- */

/* The name of the argument at a place, where the schema says it. */
static bool positional(const json_value *parameters, size_t place, text_view *key) {
    const json_value *properties = json_find(parameters, "properties");
    if (properties == NULL || properties->kind != JSON_OBJECT || place >= properties->object.count)
        return false;
    *key = properties->object.members[place].key;
    return true;
}

/* KEY= or nothing before a value. */
static bool take_keyword(value_reader *r, text_view *key) {
    text_view before = r->text;
    if (take_word(r, key) && take_char(r, '=') && !next_is(r, '='))
        return true;
    r->text = before;
    return false;
}

static bool read_arguments(value_reader *r, const json_value *parameters) {
    size_t place = 0;
    if (!put(r, "{"))
        return false;
    while (!take_char(r, ')')) {
        text_view key;
        if (place > 0 && !take_char(r, ','))
            return false;
        if (place > 0 && take_char(r, ')'))
            break;
        if ((!take_keyword(r, &key) && !positional(parameters, place, &key)) ||
            (place > 0 && !put(r, ",")) || !put_string(r, key) || !put(r, ":") || !read_value(r, 0))
            return false;
        place++;
    }
    return true;
}

tool_outcome tool_read_python(text_view text, tool_found *found, avo_status *status) {
    value_reader r = {.text = text};
    size_t calls = 0;
    bool good = take_char(&r, '[');
    buffer object;
    buffer_init(&object, found->arena->allocator, 8 * CHAT_CALL_BYTES_MAX);
    r.out = &object;
    while (good && !take_char(&r, ']')) {
        text_view name = {"", 0};
        object.size = 0;
        good = (calls == 0 || take_char(&r, ',')) && take_word(&r, &name) && take_char(&r, '(') &&
               read_arguments(&r, tool_parameters(found->tools, name)) &&
               tool_found_add(found, name, &object, &r.status);
        calls++;
    }
    buffer_free(&object);
    skip_space(&r.text);
    *status = r.status;
    return good && calls > 0 && r.text.size == 0 ? TOOL_GOOD : TOOL_BAD;
}

/* ---- Gemma ---- */

tool_outcome tool_read_gemma(text_view text, tool_found *found, avo_status *status) {
    value_reader r = {.text = text, .gemma = true};
    text_view name = {"", 0};
    buffer object;
    buffer_init(&object, found->arena->allocator, 8 * CHAT_CALL_BYTES_MAX);
    r.out = &object;
    skip_space(&r.text);
    bool good = text_take(&r.text, "call:") && take_word(&r, &name) && next_is(&r, '{') &&
                read_list(&r, '}', true, 0);
    skip_space(&r.text);
    tool_outcome outcome = good && r.text.size == 0 ? TOOL_GOOD : TOOL_BAD;
    if (good)
        object.size--; /* tool_found_add ends it */
    if (outcome == TOOL_GOOD && !tool_found_add(found, name, &object, &r.status))
        outcome = TOOL_BAD;
    /* The closer may stand in a string: what has not ended goes on to the next one. */
    if (outcome == TOOL_BAD && r.text.size == 0 && r.status == AVO_OK)
        outcome = TOOL_MORE;
    buffer_free(&object);
    *status = r.status;
    return outcome;
}
