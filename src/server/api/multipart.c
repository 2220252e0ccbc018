/* Parts of a form, found by their boundary. */
#include "server/api/multipart.h"

#include <stddef.h>
#include <strings.h>

#define DISPOSITION "content-disposition:"

static bool starts_with(text_view text, const char *prefix) {
    size_t size = strlen(prefix);
    return text.size >= size && strncasecmp(text.data, prefix, size) == 0;
}

static void skip(text_view *text, size_t bytes) {
    text->data += bytes;
    text->size -= bytes;
}

static void skip_spaces(text_view *text) {
    while (text->size > 0 && (text->data[0] == ' ' || text->data[0] == '\t'))
        skip(text, 1);
}

/* Where `wanted` begins; text.size where it is not. */
static size_t position(text_view text, text_view wanted) {
    const char *found = text.size < wanted.size || wanted.size == 0
                            ? NULL
                            : memmem(text.data, text.size, wanted.data, wanted.size);
    return found == NULL ? text.size : (size_t)(found - text.data);
}

/* The next ";name=value" or ;name="value" of a header's value. False: there are no more. */
static bool next_parameter(text_view *rest, text_view *name, text_view *value) {
    skip_spaces(rest);
    if (rest->size == 0 || rest->data[0] != ';')
        return false;
    skip(rest, 1);
    skip_spaces(rest);
    size_t equals = position(*rest, TEXT_LITERAL("="));
    if (equals == rest->size)
        return false;
    *name = (text_view){rest->data, equals};
    skip(rest, equals + 1);
    bool quoted = rest->size > 0 && rest->data[0] == '"';
    if (quoted)
        skip(rest, 1);
    size_t end = 0;
    while (end < rest->size &&
           (quoted ? rest->data[end] != '"' : rest->data[end] != ';' && rest->data[end] != ' '))
        end++;
    if (quoted && end == rest->size)
        return false;
    *value = (text_view){rest->data, end};
    skip(rest, end + quoted);
    return true;
}

static bool is_named(text_view name, const char *wanted) {
    return name.size == strlen(wanted) && strncasecmp(name.data, wanted, name.size) == 0;
}

static bool read_boundary(const char *type, text_view *boundary) {
    text_view rest = text_from(type), name, value;
    if (!starts_with(rest, "multipart/form-data"))
        return false;
    skip(&rest, strlen("multipart/form-data"));
    while (next_parameter(&rest, &name, &value))
        if (is_named(name, "boundary") && value.size > 0 && value.size <= MULTIPART_BOUNDARY_MAX) {
            *boundary = value;
            return true;
        }
    return false;
}

/* The lines above a part's data. */
static bool read_headers(text_view headers, multipart_part *part) {
    while (headers.size > 0) {
        size_t end = position(headers, TEXT_LITERAL("\r\n"));
        text_view line = {headers.data, end}, name, value;
        skip(&headers, end + 2 <= headers.size ? end + 2 : headers.size);
        if (starts_with(line, "content-transfer-encoding:"))
            return false;
        if (!starts_with(line, DISPOSITION))
            continue;
        skip(&line, strlen(DISPOSITION));
        skip_spaces(&line);
        if (!starts_with(line, "form-data"))
            return false;
        skip(&line, strlen("form-data"));
        while (next_parameter(&line, &name, &value)) {
            if (is_named(name, "name"))
                part->name = value;
            else if (is_named(name, "filename"))
                part->filename = value;
        }
    }
    return part->name.size > 0;
}

/* A part up to the next delimiter, behind which `rest` then stands. */
static bool read_part(text_view *rest, text_view delimiter, multipart_part *part,
                      const char **why) {
    size_t end = position(*rest, delimiter);
    text_view whole = {rest->data, end};
    if (end == rest->size) {
        *why = "the form has no end: its closing boundary is missing";
        return false;
    }
    size_t blank = position(whole, TEXT_LITERAL("\r\n\r\n"));
    *part = (multipart_part){0};
    if (blank == whole.size || !read_headers((text_view){whole.data, blank}, part)) {
        *why = "a part of the form has no Content-Disposition: form-data with a name, or has a "
               "Content-Transfer-Encoding";
        return false;
    }
    skip(&whole, blank + 4);
    part->data = whole;
    skip(rest, end + delimiter.size);
    return true;
}

bool multipart_read(const char *type, text_view body, multipart *out, const char **why) {
    char text[MULTIPART_BOUNDARY_MAX + 5];
    text_view boundary;
    *out = (multipart){0};
    *why = "the body must be multipart/form-data with a boundary of 1 to 70 characters";
    if (type == NULL || !read_boundary(type, &boundary))
        return false;
    memcpy(text, "\r\n--", 4);
    memcpy(text + 4, boundary.data, boundary.size);
    text_view delimiter = {text, boundary.size + 4};
    /* The first one has no line in front of it. */
    text_view first = {text + 2, boundary.size + 2};
    *why = "the form does not begin with its boundary";
    if (!text_starts(body, first))
        return false;
    skip(&body, first.size);
    while (text_starts(body, TEXT_LITERAL("\r\n"))) {
        if (out->count == MULTIPART_PARTS_MAX) {
            *why = "the form has more than 16 parts";
            return false;
        }
        skip(&body, 2);
        if (!read_part(&body, delimiter, &out->parts[out->count], why))
            return false;
        out->count++;
    }
    *why = "the form has no end: its closing boundary is missing";
    return text_starts(body, TEXT_LITERAL("--"));
}

const multipart_part *multipart_find(const multipart *form, const char *name) {
    for (size_t i = 0; i < form->count; i++)
        if (text_is(form->parts[i].name, name))
            return &form->parts[i];
    return NULL;
}
