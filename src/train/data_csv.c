/* CSV after RFC 4180 with a header: each row becomes an object whose members are named by it.
 * Fields may be quoted, then contain commas, line ends and doubled quotes; lines may end in CRLF or
 * LF. */
#include "train/data_int.h"

#include "base/utf8.h"

#include <string.h>

#define CSV_COLUMNS_MAX 1024

typedef enum csv_end { CSV_FIELD, CSV_ROW, CSV_FILE } csv_end;

/* A quoted field into the arena, its doubled quotes made single. */
static avo_status take_quoted(data_reader *reader, text_view *field) {
    uint64_t line = reader->line;
    const char *text = reader->text.data;
    size_t begin = ++reader->at, quotes = 0;
    for (; reader->at < reader->text.size; reader->at++) {
        char c = text[reader->at];
        reader->line += c == '\n';
        if (c != '"')
            continue;
        if (reader->at + 1 >= reader->text.size || text[reader->at + 1] != '"')
            break;
        reader->at++;
        quotes++;
    }
    if (reader->at >= reader->text.size)
        return data_read_fail(reader, line, "a quoted field has no closing quote");
    *field = (text_view){text + begin, reader->at - begin};
    reader->at++;
    if (quotes == 0)
        return AVO_OK;
    char *copy = arena_take(&reader->arena, field->size);
    if (copy == NULL)
        return status_no_memory(reader->error, "a field", field->size);
    size_t bytes = 0;
    for (size_t i = 0; i < field->size; i++) {
        copy[bytes++] = field->data[i];
        i += field->data[i] == '"';
    }
    *field = (text_view){copy, bytes};
    return AVO_OK;
}

static void take_plain(data_reader *reader, text_view *field) {
    const char *text = reader->text.data;
    size_t begin = reader->at;
    while (reader->at < reader->text.size && text[reader->at] != ',' && text[reader->at] != '\n' &&
           text[reader->at] != '\r')
        reader->at++;
    *field = (text_view){text + begin, reader->at - begin};
}

static avo_status take_field(data_reader *reader, text_view *field, csv_end *end) {
    uint64_t line = reader->line;
    const char *text = reader->text.data;
    if (reader->at < reader->text.size && text[reader->at] == '"')
        AVO_TRY(take_quoted(reader, field));
    else
        take_plain(reader, field);
    if (utf8_valid_prefix(field->data, field->size) != field->size)
        return data_read_fail(reader, line, "the field is not valid UTF-8");
    *end = CSV_FILE;
    if (reader->at >= reader->text.size)
        return AVO_OK;
    char c = text[reader->at];
    if (c == '\r' && reader->at + 1 < reader->text.size && text[reader->at + 1] == '\n')
        c = text[++reader->at];
    if (c != ',' && c != '\n')
        return data_read_fail(reader, line, "expected ',' or the end of the line behind a field");
    reader->at++;
    reader->line += c == '\n';
    *end = c == ',' ? CSV_FIELD : reader->at >= reader->text.size ? CSV_FILE : CSV_ROW;
    return AVO_OK;
}

static avo_status read_header(data_reader *reader, json_member *columns, size_t *count,
                              csv_end *end) {
    do {
        text_view name;
        if (*count == CSV_COLUMNS_MAX)
            return data_read_fail(reader, 1, "the header has more than %d columns",
                                  CSV_COLUMNS_MAX);
        AVO_TRY(take_field(reader, &name, end));
        for (size_t i = 0; i < *count; i++)
            if (text_equal(columns[i].key, name))
                return data_read_fail(reader, 1, "the header has two columns \"%.*s\"",
                                      TEXT_ARGUMENT(name));
        columns[(*count)++].key = name;
    } while (*end == CSV_FIELD);
    return AVO_OK;
}

static avo_status read_row(data_reader *reader, json_member *columns, size_t count, csv_end *end) {
    uint64_t line = reader->line;
    size_t found = 0;
    do {
        text_view field;
        size_t begin = reader->at;
        AVO_TRY(take_field(reader, &field, end));
        if (found == 0 && *end != CSV_FIELD && field.size == 0 && reader->text.data[begin] != '"')
            return AVO_OK; /* an empty line */
        if (found < count)
            columns[found].value = (json_value){.kind = JSON_STRING, .string = field};
        found++;
    } while (*end == CSV_FIELD);
    if (found != count)
        return data_read_fail(reader, line, "the row has %zu fields, the header has %zu", found,
                              count);
    json_value item = {.kind = JSON_OBJECT, .object = {.members = columns, .count = count}};
    return data_read_item(reader, &item, line);
}

avo_status data_read_csv(data_reader *reader) {
    arena arena;
    arena_init(&arena, reader->allocator, SIZE_MAX);
    json_member *columns = arena_take_array(&arena, CSV_COLUMNS_MAX, sizeof(*columns));
    size_t count = 0;
    csv_end end = CSV_FILE;
    avo_status status = columns == NULL ? status_no_memory(reader->error, "columns",
                                                           CSV_COLUMNS_MAX * sizeof(*columns))
                                        : read_header(reader, columns, &count, &end);
    for (size_t i = 0; i < count && status == AVO_OK; i++) { /* items reset the reader's arena */
        const char *copy = arena_copy_text(&arena, columns[i].key.data, columns[i].key.size);
        if (copy == NULL)
            status = status_no_memory(reader->error, "a column", columns[i].key.size);
        columns[i].key.data = copy;
    }
    while (status == AVO_OK && end != CSV_FILE)
        status = read_row(reader, columns, count, &end);
    arena_free(&arena);
    return status;
}
