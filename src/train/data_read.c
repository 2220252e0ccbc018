/* Items of JSONL, JSON and text files; CSV is in data_csv.c. The file is mapped, one item is parsed
 * at a time, and pages that were read are given back. */
#include "train/data_int.h"

#include "base/file.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES       ((size_t)4 << 20) /* between two reports of progress */
#define ITEM_TREE_MAX    ((size_t)1 << 30)
#define DOCUMENT_DIVIDER "<|endoftext|>" /* a line of a text file that divides documents */

avo_status data_read_fail(data_reader *reader, uint64_t line, const char *format, ...) {
    char text[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return status_fail(reader->error, AVO_ERROR_FORMAT, "%s:%llu: %s", reader->path,
                       (unsigned long long)line, text);
}

/* Gives back what lies behind the reader and reports how far it is. */
static avo_status advance(data_reader *reader) {
    if (reader->at - reader->told < STEP_BYTES)
        return AVO_OK;
    file_map_forget((const uint8_t *)reader->text.data + reader->told, reader->at - reader->told);
    reader->told = reader->at;
    if (reader->progress != NULL &&
        !reader->progress(reader->progress_context, "reading data", reader->at, reader->text.size))
        return status_fail(reader->error, AVO_ERROR_CANCELLED, "%s: reading was cancelled",
                           reader->path);
    return AVO_OK;
}

avo_status data_read_item(data_reader *reader, const json_value *item, uint64_t line) {
    if (item->kind != JSON_OBJECT)
        return data_read_fail(reader, line, "found %s, expected an object with the sample's fields",
                              json_kind_name(item->kind));
    avo_status status = reader->use(reader->context, &reader->arena, item, reader->error);
    if (status != AVO_OK)
        return status_prefix(reader->error, status, "%s:%llu", reader->path,
                             (unsigned long long)line);
    arena_reset(&reader->arena);
    return advance(reader);
}

/* "JSON line 2: text" of a value that begins at `line` becomes "path:line: text". */
static avo_status json_failed(data_reader *reader, avo_status status, uint64_t line) {
    static const char front[] = "JSON line ";
    if (status != AVO_ERROR_FORMAT)
        return status_prefix(reader->error, status, "%s:%llu", reader->path,
                             (unsigned long long)line);
    char text[AVO_ERROR_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", reader->error->text);
    const char *rest = text;
    if (strncmp(text, front, sizeof(front) - 1) == 0) {
        char *end;
        line += strtoul(text + sizeof(front) - 1, &end, 10) - 1;
        rest = end[0] == ':' && end[1] == ' ' ? end + 2 : end;
    }
    return data_read_fail(reader, line, "%s", rest);
}

static avo_status parse(data_reader *reader, text_view text, uint64_t line, json_value *item) {
    if (text.size > TRAIN_DATA_ITEM_MAX)
        return data_read_fail(reader, line, "the item has %zu bytes, must have at most %zu",
                              text.size, TRAIN_DATA_ITEM_MAX);
    avo_status status = json_parse(&reader->arena, text, item, reader->error);
    return status == AVO_OK ? AVO_OK : json_failed(reader, status, line);
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_blank(text_view text) {
    for (size_t i = 0; i < text.size; i++)
        if (!is_space(text.data[i]))
            return false;
    return true;
}

/* ---- JSONL ---- */

/* The next line, without its end. */
static text_view take_line(data_reader *reader) {
    const char *begin = reader->text.data + reader->at;
    size_t left = reader->text.size - reader->at;
    const char *end = memchr(begin, '\n', left);
    size_t bytes = end == NULL ? left : (size_t)(end - begin);
    reader->at += bytes + (end != NULL);
    reader->line++;
    return (text_view){begin, bytes};
}

static avo_status read_lines(data_reader *reader) {
    while (reader->at < reader->text.size) {
        uint64_t line = reader->line;
        text_view text = take_line(reader);
        json_value item;
        if (is_blank(text))
            continue;
        AVO_TRY(parse(reader, text, line, &item));
        AVO_TRY(data_read_item(reader, &item, line));
    }
    return AVO_OK;
}

/* ---- JSON ---- */

static void skip_space(data_reader *reader) {
    for (; reader->at < reader->text.size && is_space(reader->text.data[reader->at]); reader->at++)
        reader->line += reader->text.data[reader->at] == '\n';
}

static char next_character(const data_reader *reader) {
    return reader->at < reader->text.size ? reader->text.data[reader->at] : '\0';
}

/* The bytes of the value at the reader's place: up to where its brackets are closed. Whether it is
 * JSON, the parser finds out. */
static text_view take_value(data_reader *reader) {
    const char *text = reader->text.data;
    size_t begin = reader->at, depth = 0;
    bool quoted = false;
    for (; reader->at < reader->text.size; reader->at++) {
        char c = text[reader->at];
        reader->line += c == '\n';
        if (quoted) {
            reader->at += c == '\\' && reader->at + 1 < reader->text.size;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
            break;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            reader->at++;
            break;
        }
    }
    return (text_view){text + begin, reader->at - begin};
}

/* {"data": […]}: an object whose one list of objects holds the items. */
static const json_value *find_list(const json_value *root) {
    const json_value *list = NULL;
    for (size_t i = 0; i < root->object.count; i++) {
        const json_value *value = &root->object.members[i].value;
        if (value->kind != JSON_ARRAY)
            continue;
        if (list != NULL)
            return NULL;
        list = value;
    }
    if (list == NULL || list->array.count == 0 || list->array.items[0].kind != JSON_OBJECT ||
        json_find(&list->array.items[0], "role") != NULL ||
        json_find(&list->array.items[0], "from") != NULL)
        return NULL;
    return list;
}

static avo_status read_list(data_reader *reader, const json_value *list, uint64_t line) {
    for (size_t i = 0; i < list->array.count; i++) {
        const json_value *item = &list->array.items[i];
        uint64_t begins = line + item->line - 1;
        if (item->kind != JSON_OBJECT)
            return data_read_fail(reader, begins, "found %s, expected an object",
                                  json_kind_name(item->kind));
        arena own;
        arena_init(&own, reader->allocator, ITEM_TREE_MAX);
        avo_status status = reader->use(reader->context, &own, item, reader->error);
        arena_free(&own);
        if (status != AVO_OK)
            return status_prefix(reader->error, status, "%s:%llu", reader->path,
                                 (unsigned long long)begins);
    }
    arena_reset(&reader->arena);
    return AVO_OK;
}

/* Values one behind the other, as JSONL has them, too. */
static avo_status read_values(data_reader *reader) {
    bool first = true;
    for (skip_space(reader); reader->at < reader->text.size; skip_space(reader)) {
        uint64_t line = reader->line;
        text_view text = take_value(reader);
        json_value item;
        if (text.size == 0)
            return data_read_fail(reader, line, "found '%c', expected a list or an object",
                                  next_character(reader));
        AVO_TRY(parse(reader, text, line, &item));
        skip_space(reader);
        const json_value *list = first && item.kind == JSON_OBJECT && next_character(reader) == '\0'
                                     ? find_list(&item)
                                     : NULL;
        AVO_TRY(list != NULL ? read_list(reader, list, line) : data_read_item(reader, &item, line));
        first = false;
    }
    return AVO_OK;
}

static avo_status read_array(data_reader *reader) {
    reader->at++;
    skip_space(reader);
    if (next_character(reader) == ']')
        reader->at++;
    else
        for (;;) {
            skip_space(reader);
            uint64_t line = reader->line;
            text_view text = take_value(reader);
            json_value item;
            AVO_TRY(parse(reader, text, line, &item));
            AVO_TRY(data_read_item(reader, &item, line));
            skip_space(reader);
            char c = next_character(reader);
            if (c != ',' && c != ']')
                return data_read_fail(reader, reader->line,
                                      "expected ',' or ']' behind an item of the list");
            reader->at++;
            if (c == ']')
                break;
        }
    skip_space(reader);
    if (reader->at < reader->text.size)
        return data_read_fail(reader, reader->line, "found more text behind the list of items");
    return AVO_OK;
}

static avo_status read_json(data_reader *reader) {
    skip_space(reader);
    return next_character(reader) == '[' ? read_array(reader) : read_values(reader);
}

/* ---- Text ---- */

static avo_status use_document(data_reader *reader, text_view text, uint64_t line) {
    if (is_blank(text))
        return AVO_OK;
    json_member member = {TEXT_LITERAL("text"), {.kind = JSON_STRING, .string = text}};
    json_value item = {.kind = JSON_OBJECT, .object = {.members = &member, .count = 1}};
    return data_read_item(reader, &item, line);
}

/* A file is one document, or several with lines of <|endoftext|> between them. */
static avo_status read_text(data_reader *reader) {
    size_t begin = 0;
    uint64_t line = 1;
    size_t valid = utf8_valid_prefix(reader->text.data, reader->text.size);
    if (valid < reader->text.size) {
        for (size_t i = 0; i < valid; i++)
            line += reader->text.data[i] == '\n';
        return data_read_fail(reader, line, "the text is not valid UTF-8");
    }
    while (reader->at < reader->text.size) {
        size_t before = reader->at;
        text_view text = take_line(reader);
        if (text.size > 0 && text.data[text.size - 1] == '\r')
            text.size--;
        if (!text_is(text, DOCUMENT_DIVIDER))
            continue;
        AVO_TRY(use_document(reader, (text_view){reader->text.data + begin, before - begin}, line));
        begin = reader->at;
        line = reader->line;
    }
    return use_document(reader, (text_view){reader->text.data + begin, reader->text.size - begin},
                        line);
}

/* ---- Files ---- */

static const struct {
    const char *ending;
    avo_status (*read)(data_reader *reader);
} data_formats[] = {
    {".jsonl", read_lines},  {".ndjson", read_lines}, {".json", read_json},
    {".csv", data_read_csv}, {".txt", read_text},
};
#define DATA_FORMATS (sizeof(data_formats) / sizeof(data_formats[0]))

avo_status data_read(data_reader *reader, avo_error *error) {
    size_t format = 0;
    while (format < DATA_FORMATS &&
           !text_ends(text_from(reader->path), text_from(data_formats[format].ending)))
        format++;
    if (format == DATA_FORMATS)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: the name of a data file must end in .jsonl, .json, .csv or .txt",
                           reader->path);
    file_map map;
    AVO_TRY(file_map_open(reader->path, &map, error));
    avo_error own = {0};
    reader->error = error == NULL ? &own : error;
    reader->text = (text_view){(const char *)map.bytes.data, map.bytes.size};
    if (reader->text.size >= 3 && memcmp(reader->text.data, "\xEF\xBB\xBF", 3) == 0) {
        reader->text.data += 3; /* the mark that some editors put in front */
        reader->text.size -= 3;
    }
    reader->at = reader->told = 0;
    reader->line = 1;
    arena_init(&reader->arena, reader->allocator, ITEM_TREE_MAX);
    avo_status status = reader->text.size == 0 ? status_fail(error, AVO_ERROR_FORMAT,
                                                             "%s: the file is empty", reader->path)
                                               : data_formats[format].read(reader);
    arena_free(&reader->arena);
    file_map_close(&map);
    return status;
}

avo_status data_find_split(const char *path, const char *split, char *file, size_t capacity,
                           avo_error *error) {
    bool valid = strcmp(split, "valid") == 0;
    file_kind kind = file_kind_of(path);
    if (kind == FILE_MISSING)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "%s: no such file or folder", path);
    if (kind != FILE_FOLDER) {
        if (strcmp(split, "train") != 0)
            return status_fail(error, AVO_ERROR_NOT_FOUND,
                               "%s is one file without a split \"%s\"; a folder can have %s.jsonl",
                               path, split, split);
        int bytes = snprintf(file, capacity, "%s", path);
        return bytes >= 0 && (size_t)bytes < capacity
                   ? AVO_OK
                   : status_fail(error, AVO_ERROR_LIMIT, "%s: the path is too long", path);
    }
    const char *const names[] = {split, valid ? "validation" : split, valid ? "val" : split};
    char found[sizeof(data_formats) / sizeof(data_formats[0])][64];
    size_t count = 0;
    for (size_t n = 0; n < (valid ? 3 : 1) && count == 0; n++)
        for (size_t i = 0; i < DATA_FORMATS; i++) {
            snprintf(found[count], sizeof(found[count]), "%.40s%s", names[n],
                     data_formats[i].ending);
            AVO_TRY(file_join(file, capacity, path, found[count], error));
            count += file_kind_of(file) == FILE_REGULAR;
        }
    if (count == 0)
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "%s: the folder has no %s.jsonl (.ndjson, .json, .csv, .txt)", path,
                           split);
    if (count > 1)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: the folder has both %s and %s; remove one or name the file", path,
                           found[0], found[1]);
    return file_join(file, capacity, path, found[0], error);
}
