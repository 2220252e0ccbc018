/* The JSON parser: recursive descent over a bounded text, tree into an arena. */
#include "base/json.h"

#include "base/checked.h"
#include "base/number.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_INDEX_FROM  8  /* members from which an object gets a hash index */
#define JSON_NUMBER_MAX  64 /* characters of one number */
#define JSON_ITEMS_FIRST 8

typedef struct parser {
    arena *arena;
    const char *at;
    const char *end;
    uint32_t line;
    uint32_t depth;
    text_view member; /* of the outermost object, whose value is being read */
    avo_error *error;
} parser;

const char *json_kind_name(json_kind kind) {
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    return names[kind];
}

static avo_status fail(parser *p, const char *what) {
    return status_fail(p->error, AVO_ERROR_FORMAT, "JSON line %u: %s", p->line, what);
}

static avo_status no_memory(parser *p) {
    return status_fail(p->error, AVO_ERROR_MEMORY, "out of memory at JSON line %u", p->line);
}

static void skip_space(parser *p) {
    while (p->at < p->end) {
        char c = *p->at;
        if (c == '\n')
            p->line++;
        else if (c != ' ' && c != '\t' && c != '\r')
            return;
        p->at++;
    }
}

static bool take_word(parser *p, const char *word) {
    size_t bytes = strlen(word);
    if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, word, bytes) != 0)
        return false;
    p->at += bytes;
    return true;
}

static bool hex4(const char *text, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char c = text[i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A') + 10;
        else
            return false;
        *value = *value << 4 | digit;
    }
    return true;
}

/* Decodes the escape behind a backslash into `out`; returns its bytes, 0 when it is wrong. */
static size_t take_escape(const char **at, const char *end, char *out) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (*at >= end)
        return 0;
    char c = *(*at)++;
    const char *simple = c == '\0' ? NULL : strchr(from, c);
    if (simple != NULL) {
        *out = to[simple - from];
        return 1;
    }
    uint32_t code;
    if (c != 'u' || end - *at < 4 || !hex4(*at, &code))
        return 0;
    *at += 4;
    if (code >= 0xD800 && code < 0xDC00) {
        uint32_t low;
        if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' || !hex4(*at + 2, &low) ||
            low < 0xDC00 || low > 0xDFFF)
            return 0;
        *at += 6;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        return 0;
    }
    return utf8_encode(code, out);
}

/* Skips bytes that are nothing special in a string, eight at a time: texts are mostly those. `high`
 * gathers their highest bits: without any it is ASCII. */
static const char *skip_plain(const char *at, const char *end, uint64_t *high) {
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t tops = 0x8080808080808080u;
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        uint64_t quote = word ^ ones * '"';
        uint64_t slash = word ^ ones * '\\';
        uint64_t special = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) |
                            ((word - ones * 0x20) & ~word)) &
                           tops;
        if (special != 0)
            break;
        *high |= word & tops;
        at += 8;
    }
    return at;
}

/* `at` stands behind the opening quote. */
static avo_status parse_string(parser *p, text_view *string) {
    const char *begin = p->at;
    const char *scan = begin;
    bool escaped = false;
    uint64_t high = 0;
    for (;;) {
        scan = skip_plain(scan, p->end, &high);
        while (scan < p->end && *scan != '"' && *scan != '\\' && (unsigned char)*scan >= 0x20)
            high |= (unsigned char)*scan++ & 0x80u;
        if (scan >= p->end || *scan == '"')
            break;
        if ((unsigned char)*scan < 0x20)
            return fail(p, "control character in a string");
        escaped = true;
        scan += 2; /* what is behind the backslash is looked at below */
    }
    if (scan >= p->end)
        return fail(p, "unterminated string");
    size_t raw = (size_t)(scan - begin);
    if (high != 0 && utf8_valid_prefix(begin, raw) != raw)
        return fail(p, "invalid UTF-8 in a string");
    p->at = scan + 1;
    if (!escaped) {
        *string = (text_view){begin, raw};
        return AVO_OK;
    }
    char *copy = arena_take(p->arena, raw + 1);
    if (copy == NULL)
        return no_memory(p);
    size_t size = 0;
    for (const char *c = begin; c < scan;) {
        const char *slash = memchr(c, '\\', (size_t)(scan - c));
        size_t plain = (size_t)((slash != NULL ? slash : scan) - c);
        memcpy(copy + size, c, plain);
        size += plain;
        c += plain;
        if (slash == NULL)
            break;
        c++;
        size_t bytes = take_escape(&c, scan, copy + size);
        if (bytes == 0)
            return fail(p, "invalid escape in a string");
        size += bytes;
    }
    *string = (text_view){copy, size};
    return AVO_OK;
}

static bool digits(const char **at, const char *end) {
    const char *begin = *at;
    while (*at < end && **at >= '0' && **at <= '9')
        (*at)++;
    return *at > begin;
}

static avo_status parse_number(parser *p, json_value *value) {
    const char *begin = p->at;
    const char *at = begin;
    if (at < p->end && *at == '-')
        at++;
    const char *first = at;
    if (!digits(&at, p->end) || (*first == '0' && at - first > 1))
        return fail(p, "invalid number");
    bool integer = true;
    if (at < p->end && *at == '.') {
        integer = false;
        at++;
        if (!digits(&at, p->end))
            return fail(p, "invalid number");
    }
    if (at < p->end && (*at == 'e' || *at == 'E')) {
        integer = false;
        at++;
        if (at < p->end && (*at == '+' || *at == '-'))
            at++;
        if (!digits(&at, p->end))
            return fail(p, "invalid number");
    }
    size_t bytes = (size_t)(at - begin);
    char text[JSON_NUMBER_MAX + 1];
    if (bytes > JSON_NUMBER_MAX)
        return fail(p, "a number has too many characters");
    memcpy(text, begin, bytes);
    text[bytes] = '\0';
    p->at = at;
    if (integer) {
        errno = 0;
        long long parsed = strtoll(text, NULL, 10);
        if (errno == 0) {
            value->kind = JSON_INTEGER;
            value->integer = parsed;
            return AVO_OK;
        }
    }
    value->kind = JSON_NUMBER;
    value->number = number_from_text(text, NULL);
    if (!isfinite(value->number))
        return fail(p, "a number is out of range");
    return AVO_OK;
}

static avo_status parse_value(parser *p, json_value *value);

/* Room for one more item: the arena cannot shrink, so arrays double and the old copies stay. */
static void *grow(parser *p, void *items, size_t count, size_t *capacity, size_t item_bytes) {
    if (count < *capacity)
        return items;
    size_t larger = *capacity == 0 ? JSON_ITEMS_FIRST : *capacity * 2;
    void *moved = arena_take_array(p->arena, larger, item_bytes);
    if (moved == NULL)
        return NULL;
    if (count > 0)
        memcpy(moved, items, count * item_bytes);
    *capacity = larger;
    return moved;
}

static avo_status parse_array(parser *p, json_value *value) {
    value->kind = JSON_ARRAY;
    size_t capacity = 0;
    json_value *items = NULL;
    size_t count = 0;
    skip_space(p);
    if (take_word(p, "]")) {
        value->array.items = NULL;
        value->array.count = 0;
        return AVO_OK;
    }
    for (;;) {
        items = grow(p, items, count, &capacity, sizeof(*items));
        if (items == NULL)
            return no_memory(p);
        AVO_TRY(parse_value(p, &items[count]));
        count++;
        skip_space(p);
        if (take_word(p, "]"))
            break;
        if (!take_word(p, ","))
            return fail(p, "expected ',' or ']'");
    }
    value->array.items = items;
    value->array.count = count;
    return AVO_OK;
}

static name_column keys_of(const json_value *object) {
    return NAME_COLUMN(object->object.members, json_member, key);
}

/* Hash index over the members; also where duplicate keys show. */
static avo_status index_object(parser *p, json_value *object) {
    size_t count = object->object.count;
    if (count < JSON_INDEX_FROM) {
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < i; j++)
                if (text_equal(object->object.members[i].key, object->object.members[j].key))
                    return fail(p, "duplicate key in an object");
        return AVO_OK;
    }
    avo_status status = name_index_open(&object->object.index, p->arena, count);
    if (status != AVO_OK)
        return status == AVO_ERROR_MEMORY ? no_memory(p) : fail(p, "too many members in an object");
    for (size_t i = 0; i < count; i++)
        if (!name_index_add(&object->object.index, keys_of(object), i))
            return fail(p, "duplicate key in an object");
    return AVO_OK;
}

static avo_status parse_object(parser *p, json_value *value) {
    value->kind = JSON_OBJECT;
    json_member *members = NULL;
    size_t capacity = 0;
    size_t count = 0;
    skip_space(p);
    bool empty = take_word(p, "}");
    while (!empty) {
        members = grow(p, members, count, &capacity, sizeof(*members));
        if (members == NULL)
            return no_memory(p);
        skip_space(p);
        if (!take_word(p, "\""))
            return fail(p, "expected a key in quotes");
        AVO_TRY(parse_string(p, &members[count].key));
        skip_space(p);
        if (!take_word(p, ":"))
            return fail(p, "expected ':'");
        if (p->depth == 1)
            p->member = members[count].key;
        AVO_TRY(parse_value(p, &members[count].value));
        if (p->depth == 1)
            p->member = (text_view){NULL, 0};
        count++;
        skip_space(p);
        if (take_word(p, "}"))
            break;
        if (!take_word(p, ","))
            return fail(p, "expected ',' or '}'");
    }
    value->object.members = members;
    value->object.count = count;
    value->object.index = (name_index){0};
    return index_object(p, value);
}

static avo_status parse_nested(parser *p, json_value *value, bool object) {
    if (p->depth >= JSON_DEPTH_MAX)
        return fail(p, "nested too deeply");
    p->at++;
    p->depth++;
    AVO_TRY(object ? parse_object(p, value) : parse_array(p, value));
    p->depth--;
    return AVO_OK;
}

static avo_status parse_value(parser *p, json_value *value) {
    skip_space(p);
    value->line = p->line;
    if (p->at >= p->end)
        return fail(p, "unexpected end");
    switch (*p->at) {
    case '{':
        return parse_nested(p, value, true);
    case '[':
        return parse_nested(p, value, false);
    case '"':
        p->at++;
        value->kind = JSON_STRING;
        return parse_string(p, &value->string);
    default:
        break;
    }
    value->kind = JSON_BOOLEAN;
    value->boolean = true;
    if (take_word(p, "true"))
        return AVO_OK;
    value->boolean = false;
    if (take_word(p, "false"))
        return AVO_OK;
    value->kind = JSON_NULL;
    if (take_word(p, "null"))
        return AVO_OK;
    if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9'))
        return parse_number(p, value);
    return fail(p, "expected a value");
}

static avo_status parse_text(parser *p, json_value *root) {
    AVO_TRY(parse_value(p, root));
    skip_space(p);
    return p->at == p->end ? AVO_OK : fail(p, "unexpected text after the value");
}

avo_status json_parse(arena *arena, text_view text, json_value *root, avo_error *error) {
    text_view ignored;
    return json_parse_named(arena, text, root, &ignored, error);
}

avo_status json_parse_named(arena *arena, text_view text, json_value *root, text_view *member,
                            avo_error *error) {
    parser p = {.arena = arena,
                .at = text.size == 0 ? "" : text.data,
                .end = text.size == 0 ? NULL : text.data + text.size,
                .line = 1,
                .error = error};
    if (text.size == 0)
        p.end = p.at;
    if (text_starts(text, TEXT_LITERAL("\xEF\xBB\xBF")))
        p.at += 3; /* a byte order mark, which some editors write */
    avo_status status = parse_text(&p, root);
    *member = p.member;
    return status;
}

const json_value *json_find_text(const json_value *object, text_view key) {
    if (object == NULL || object->kind != JSON_OBJECT)
        return NULL;
    if (object->object.index.size > 0) {
        size_t place = name_index_find(&object->object.index, keys_of(object), key);
        return place == NAME_INDEX_NONE ? NULL : &object->object.members[place].value;
    }
    for (size_t i = 0; i < object->object.count; i++)
        if (text_equal(object->object.members[i].key, key))
            return &object->object.members[i].value;
    return NULL;
}

const json_value *json_find(const json_value *object, const char *key) {
    return json_find_text(object, text_from(key));
}

const json_value *json_item(const json_value *array, size_t index) {
    if (array == NULL || array->kind != JSON_ARRAY || index >= array->array.count)
        return NULL;
    return &array->array.items[index];
}

/* The member, or NULL when it is absent or null. */
static const json_value *find_optional(const json_value *object, const char *key) {
    const json_value *value = json_find(object, key);
    return value != NULL && value->kind == JSON_NULL ? NULL : value;
}

static avo_status wrong_kind(const char *key, const char *wanted, const json_value *value,
                             avo_error *error) {
    return status_fail(error, AVO_ERROR_FORMAT, "%s (line %u): expected %s, found %s", key,
                       value->line, wanted, json_kind_name(value->kind));
}

avo_status json_get_integer(const json_value *object, const char *key, int64_t minimum,
                            int64_t maximum, int64_t *value, avo_error *error) {
    const json_value *found = find_optional(object, key);
    if (found == NULL)
        return AVO_OK;
    int64_t integer;
    if (found->kind == JSON_INTEGER)
        integer = found->integer;
    else if (found->kind == JSON_NUMBER && found->number == floor(found->number) &&
             fabs(found->number) < 9e15)
        integer = (int64_t)found->number; /* 1e4 and 16.0 are integers too */
    else
        return wrong_kind(key, "an integer", found, error);
    if (integer < minimum || integer > maximum)
        return status_fail(error, AVO_ERROR_FORMAT, "%s (line %u) is %lld, must be %lld to %lld",
                           key, found->line, (long long)integer, (long long)minimum,
                           (long long)maximum);
    *value = integer;
    return AVO_OK;
}

avo_status json_get_number(const json_value *object, const char *key, double minimum,
                           double maximum, double *value, avo_error *error) {
    const json_value *found = find_optional(object, key);
    if (found == NULL)
        return AVO_OK;
    if (found->kind != JSON_INTEGER && found->kind != JSON_NUMBER)
        return wrong_kind(key, "a number", found, error);
    double number = found->kind == JSON_INTEGER ? (double)found->integer : found->number;
    if (!(number >= minimum && number <= maximum))
        return status_fail(error, AVO_ERROR_FORMAT, "%s (line %u) is %g, must be %g to %g", key,
                           found->line, number, minimum, maximum);
    *value = number;
    return AVO_OK;
}

avo_status json_get_boolean(const json_value *object, const char *key, bool *value,
                            avo_error *error) {
    const json_value *found = find_optional(object, key);
    if (found == NULL)
        return AVO_OK;
    if (found->kind != JSON_BOOLEAN)
        return wrong_kind(key, "true or false", found, error);
    *value = found->boolean;
    return AVO_OK;
}

avo_status json_get_string(const json_value *object, const char *key, text_view *value,
                           avo_error *error) {
    const json_value *found = find_optional(object, key);
    if (found == NULL)
        return AVO_OK;
    if (found->kind != JSON_STRING)
        return wrong_kind(key, "a string", found, error);
    *value = found->string;
    return AVO_OK;
}
