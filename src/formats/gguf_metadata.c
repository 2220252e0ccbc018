/* GGUF metadata: key-value pairs, read in place.
 *
 * A pair is: string key (u64 length, bytes), u32 type, value. An array is u32 item type, u64 count,
 * items. Nothing is copied: a value remembers where its bytes lie. Arrays of strings get a table of
 * where each item begins, because strings have no fixed size.
 */
#include "base/checked.h"
#include "formats/formats_int.h"

#include <math.h>

#define GGUF_KEY_MAX 65535

typedef struct metadata_reader {
    arena *arena;
    cursor *at;
    const char *file;
    uint64_t strings; /* in arrays, so far */
    avo_error *error;
} metadata_reader;

const char *gguf_type_name(gguf_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)type <= GGUF_F64 ? names[type] : "?";
}

/* 0 for strings and arrays. */
static size_t type_bytes(gguf_type type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[type];
}

static avo_status cut_off(metadata_reader *reader, text_view key) {
    return status_fail(reader->error, AVO_ERROR_FORMAT,
                       "%s: metadata \"%.*s\" passes the end of the file", reader->file,
                       TEXT_ARGUMENT(key));
}

static bool read_string(cursor *at, text_view *string) {
    cursor before = *at;
    uint64_t bytes;
    const uint8_t *data;
    if (!cursor_read_u64(at, &bytes) || bytes > SIZE_MAX ||
        !cursor_take(at, (size_t)bytes, &data)) {
        *at = before;
        return false;
    }
    *string = (text_view){(const char *)data, (size_t)bytes};
    return true;
}

static avo_status read_type(metadata_reader *reader, text_view key, gguf_type *type) {
    uint32_t number;
    if (!cursor_read_u32(reader->at, &number))
        return cut_off(reader, key);
    if (number > GGUF_F64)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: metadata \"%.*s\" has unknown type %u", reader->file,
                           TEXT_ARGUMENT(key), number);
    *type = (gguf_type)number;
    return AVO_OK;
}

/* Bools are bytes in the file; only 0 and 1 are any. */
static avo_status check_bools(metadata_reader *reader, text_view key, bytes_view data) {
    for (size_t i = 0; i < data.size; i++)
        if (data.data[i] > 1)
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: metadata \"%.*s\" is %u, a bool must be 0 or 1", reader->file,
                               TEXT_ARGUMENT(key), data.data[i]);
    return AVO_OK;
}

static avo_status read_strings(metadata_reader *reader, gguf_value *value) {
    size_t left = cursor_left(reader->at);
    if (value->count > left / 8)
        return cut_off(reader, value->key);
    if (value->count > GGUF_STRINGS_MAX - reader->strings)
        return status_fail(reader->error, AVO_ERROR_LIMIT,
                           "%s: metadata \"%.*s\" has %llu strings, a file can have at most %d",
                           reader->file, TEXT_ARGUMENT(value->key),
                           (unsigned long long)value->count, GGUF_STRINGS_MAX);
    reader->strings += value->count;
    if (value->count == 0)
        return AVO_OK;
    uint64_t *offsets = arena_take_array(reader->arena, (size_t)value->count, sizeof(*offsets));
    if (offsets == NULL)
        return status_no_memory(reader->error, "metadata strings", (size_t)value->count * 8);
    size_t begin = reader->at->at;
    for (uint64_t i = 0; i < value->count; i++) {
        text_view ignored;
        offsets[i] = reader->at->at - begin;
        if (!read_string(reader->at, &ignored))
            return cut_off(reader, value->key);
    }
    value->string_offset = offsets;
    return AVO_OK;
}

static avo_status read_array(metadata_reader *reader, gguf_value *value, uint32_t depth);

/* Arrays in arrays: walked and checked, kept as bytes. */
static avo_status read_nested(metadata_reader *reader, gguf_value *value, uint32_t depth) {
    if (depth >= GGUF_DEPTH_MAX)
        return status_fail(reader->error, AVO_ERROR_LIMIT,
                           "%s: metadata \"%.*s\" nests arrays more than %d levels deep",
                           reader->file, TEXT_ARGUMENT(value->key), GGUF_DEPTH_MAX);
    if (value->count > cursor_left(reader->at) / 12)
        return cut_off(reader, value->key);
    for (uint64_t i = 0; i < value->count; i++) {
        gguf_value inner = {.key = value->key};
        AVO_TRY(read_array(reader, &inner, depth + 1));
    }
    return AVO_OK;
}

static avo_status read_array(metadata_reader *reader, gguf_value *value, uint32_t depth) {
    AVO_TRY(read_type(reader, value->key, &value->item_type));
    if (!cursor_read_u64(reader->at, &value->count))
        return cut_off(reader, value->key);
    size_t begin = reader->at->at;
    if (value->item_type == GGUF_STRING) {
        AVO_TRY(read_strings(reader, value));
    } else if (value->item_type == GGUF_ARRAY) {
        AVO_TRY(read_nested(reader, value, depth));
    } else {
        uint64_t bytes;
        if (!u64_multiply(value->count, type_bytes(value->item_type), &bytes) || bytes > SIZE_MAX ||
            !cursor_skip(reader->at, (size_t)bytes))
            return cut_off(reader, value->key);
    }
    value->data = (bytes_view){reader->at->data + begin, reader->at->at - begin};
    return value->item_type == GGUF_BOOL ? check_bools(reader, value->key, value->data) : AVO_OK;
}

static avo_status read_value(metadata_reader *reader, gguf_value *value) {
    AVO_TRY(read_type(reader, value->key, &value->type));
    value->item_type = value->type;
    value->count = 1;
    if (value->type == GGUF_ARRAY)
        return read_array(reader, value, 0);
    if (value->type == GGUF_STRING) {
        text_view string;
        if (!read_string(reader->at, &string))
            return cut_off(reader, value->key);
        value->data = (bytes_view){(const uint8_t *)string.data, string.size};
        return AVO_OK;
    }
    size_t bytes = type_bytes(value->type);
    if (!cursor_take(reader->at, bytes, &value->data.data))
        return cut_off(reader, value->key);
    value->data.size = bytes;
    return value->type == GGUF_BOOL ? check_bools(reader, value->key, value->data) : AVO_OK;
}

avo_status gguf_metadata_read(arena *arena, cursor *at, uint64_t count, const char *file,
                              gguf_metadata *metadata, avo_error *error) {
    metadata_reader reader = {.arena = arena, .at = at, .file = file, .error = error};
    if (count > GGUF_VALUES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: %llu metadata values, must be at most %d",
                           file, (unsigned long long)count, GGUF_VALUES_MAX);
    if (count > cursor_left(at) / 13) /* the shortest pair: an empty key and one byte */
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %llu metadata values cannot fit in the file's %zu bytes", file,
                           (unsigned long long)count, at->size);
    gguf_value *values = arena_take_array(arena, (size_t)count + 1, sizeof(*values));
    if (values == NULL || name_index_open(&metadata->index, arena, (size_t)count) != AVO_OK)
        return status_no_memory(error, "GGUF metadata", (size_t)count * sizeof(*values));
    metadata->values = values;
    for (metadata->count = 0; metadata->count < count; metadata->count++) {
        gguf_value *value = &values[metadata->count];
        if (!read_string(at, &value->key))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: key of metadata value %zu passes the end of the file", file,
                               metadata->count);
        if (value->key.size == 0 || value->key.size > GGUF_KEY_MAX)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: key of metadata value %zu has %zu bytes, must have 1 to %d",
                               file, metadata->count, value->key.size, GGUF_KEY_MAX);
        AVO_TRY(read_value(&reader, value));
        if (!name_index_add(&metadata->index, NAME_COLUMN(values, gguf_value, key),
                            metadata->count))
            return status_fail(error, AVO_ERROR_FORMAT, "%s: metadata \"%.*s\" appears twice", file,
                               TEXT_ARGUMENT(value->key));
    }
    return AVO_OK;
}

/* ---- Access ---- */

const gguf_value *gguf_find(const gguf_metadata *metadata, const char *key) {
    if (metadata == NULL)
        return NULL;
    size_t place = name_index_find(&metadata->index, NAME_COLUMN(metadata->values, gguf_value, key),
                                   text_from(key));
    return place == NAME_INDEX_NONE ? NULL : &metadata->values[place];
}

/* The bytes of a number; NULL when there is no such item. */
static const uint8_t *item_bytes(const gguf_value *value, uint64_t index) {
    if (value == NULL || index >= value->count || type_bytes(value->item_type) == 0)
        return NULL;
    return value->data.data + index * type_bytes(value->item_type);
}

#define READ_AS(type, from, to)                                                                    \
    do {                                                                                           \
        type number_;                                                                              \
        memcpy(&number_, from, sizeof(number_));                                                   \
        *(to) = number_;                                                                           \
    } while (0)

bool gguf_integer(const gguf_value *value, uint64_t index, int64_t *out) {
    const uint8_t *data = item_bytes(value, index);
    if (data == NULL)
        return false;
    switch (value->item_type) {
    case GGUF_U8:
    case GGUF_BOOL:
        *out = *data;
        return true;
    case GGUF_I8:
        READ_AS(int8_t, data, out);
        return true;
    case GGUF_U16:
        READ_AS(uint16_t, data, out);
        return true;
    case GGUF_I16:
        READ_AS(int16_t, data, out);
        return true;
    case GGUF_U32:
        READ_AS(uint32_t, data, out);
        return true;
    case GGUF_I32:
        READ_AS(int32_t, data, out);
        return true;
    case GGUF_I64:
        READ_AS(int64_t, data, out);
        return true;
    case GGUF_U64: {
        uint64_t large;
        READ_AS(uint64_t, data, &large);
        if (large > INT64_MAX)
            return false;
        *out = (int64_t)large;
        return true;
    }
    default:
        return false;
    }
}

bool gguf_number(const gguf_value *value, uint64_t index, double *out) {
    const uint8_t *data = item_bytes(value, index);
    if (data == NULL)
        return false;
    if (value->item_type == GGUF_F32) {
        READ_AS(float, data, out);
        return true;
    }
    if (value->item_type == GGUF_F64) {
        READ_AS(double, data, out);
        return true;
    }
    int64_t integer;
    if (value->item_type == GGUF_BOOL || !gguf_integer(value, index, &integer) ||
        integer > (int64_t)1 << 53 || integer < -((int64_t)1 << 53))
        return false;
    *out = (double)integer;
    return true;
}

bool gguf_string(const gguf_value *value, uint64_t index, text_view *out) {
    if (value == NULL || value->item_type != GGUF_STRING || index >= value->count)
        return false;
    if (value->type == GGUF_STRING) {
        *out = (text_view){(const char *)value->data.data, value->data.size};
        return true;
    }
    cursor at = cursor_over(value->data);
    at.at = (size_t)value->string_offset[index];
    return read_string(&at, out);
}

bool gguf_boolean(const gguf_value *value, uint64_t index, bool *out) {
    const uint8_t *data = item_bytes(value, index);
    if (data == NULL || value->item_type != GGUF_BOOL)
        return false;
    *out = *data != 0;
    return true;
}
