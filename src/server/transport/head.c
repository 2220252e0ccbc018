/* The form of a request's head, after RFC 9112. Lines may end with LF alone, as its section 2.2
 * allows; a CR anywhere else, folded lines and spaces before a colon are refused, since proxies
 * disagree on what they mean. */
#include "server/transport/head.h"

#include <string.h>
#include <strings.h>

/* What a head costs besides its bytes: libmicrohttpd keeps a record of every field and a copy of
 * cookies. */
typedef struct head_tally {
    uint32_t fields;
    size_t copied;
} head_tally;

static void refuse(head *out, unsigned status, const char *code, const char *text) {
    out->state = HEAD_BAD;
    out->status = status;
    out->code = code;
    out->text = text;
}

static bool is_token(char c) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

bool head_name_good(text_view name) {
    bool good = name.size > 0;
    for (size_t i = 0; good && i < name.size; i++)
        good = is_token(name.data[i]);
    return good;
}

/* The next line without its end; false where that has not come. */
static bool next_line(text_view *left, text_view *line) {
    const char *end = left->size == 0 ? NULL : memchr(left->data, '\n', left->size);
    if (end == NULL)
        return false;
    size_t size = (size_t)(end - left->data);
    *line = (text_view){left->data, size - (size > 0 && end[-1] == '\r')};
    left->data += size + 1;
    left->size -= size + 1;
    return true;
}

static uint32_t count_of(text_view text, char wanted) {
    uint32_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += text.data[i] == wanted;
    return count;
}

/* ---- The first line ---- */

/* A beginning of a first line: garbage shows in its first bytes. */
static void check_beginning(text_view line, head *out) {
    size_t method = 0;
    while (method < line.size && is_token(line.data[method]))
        method++;
    bool ends = method < line.size && line.data[method] == ' ';
    if (method > HEAD_METHOD_MAX || (method < line.size && (!ends || method == 0)))
        refuse(out, 400, "bad_request", "not an HTTP request: the first line has no method");
}

static void check_version(text_view version, head *out) {
    bool is_http = version.size == 8 && memcmp(version.data, "HTTP/", 5) == 0 &&
                   version.data[5] >= '0' && version.data[5] <= '9' && version.data[6] == '.' &&
                   version.data[7] >= '0' && version.data[7] <= '9';
    if (!is_http)
        refuse(out, 400, "bad_request",
               "not an HTTP request: the first line does not end with a version");
    else if (version.data[5] != '1')
        refuse(out, 505, "http_version", "only versions 1.0 and 1.1 of HTTP are supported");
}

static void check_first(text_view line, head *out, head_tally *tally) {
    check_beginning(line, out);
    const char *end = line.size == 0 ? NULL : memchr(line.data, ' ', line.size);
    if (out->state == HEAD_BAD)
        return;
    if (end == NULL) {
        refuse(out, 400, "bad_request", "not an HTTP request: the first line has only one word");
        return;
    }
    text_view method = {line.data, (size_t)(end - line.data)};
    text_view rest = {end + 1, line.size - method.size - 1};
    const char *space = rest.size == 0 ? NULL : memchr(rest.data, ' ', rest.size);
    text_view target = {rest.data, space == NULL ? rest.size : (size_t)(space - rest.data)};
    for (size_t i = 0; i < target.size; i++)
        if ((unsigned char)target.data[i] < 0x21 || target.data[i] == 0x7F) {
            refuse(out, 400, "bad_request", "the request target contains a control character");
            return;
        }
    if (target.size == 0 || space == NULL) {
        refuse(out, 400, "bad_request", "the first line must be a method, a target and a version");
        return;
    }
    check_version((text_view){space + 1, rest.size - target.size - 1}, out);
    out->method = method;
    out->target = target;
    if (memchr(target.data, '?', target.size) != NULL)
        tally->fields += 1 + count_of(target, '&');
}

/* ---- Header fields ---- */

static void check_length(text_view value, head *out) {
    for (size_t i = 0; i < value.size; i++)
        if (value.data[i] < '0' || value.data[i] > '9') {
            refuse(out, 400, "content_length", "Content-Length is not a number");
            return;
        }
    if (value.size == 0)
        refuse(out, 400, "content_length", "Content-Length is empty");
    else if (value.size > 18)
        refuse(out, 413, "body_too_large", "Content-Length is too large");
}

static bool is_named(text_view name, const char *wanted) {
    return name.size == strlen(wanted) && strncasecmp(name.data, wanted, name.size) == 0;
}

static void check_field(text_view line, head *out, head_tally *tally) {
    const char *colon = memchr(line.data, ':', line.size);
    text_view name = {line.data, colon == NULL ? 0 : (size_t)(colon - line.data)};
    if (line.data[0] == ' ' || line.data[0] == '\t') {
        refuse(out, 400, "bad_header", "a header line begins with a space");
        return;
    }
    if (!head_name_good(name)) {
        refuse(out, 400, "bad_header", "a header line must be a name, a colon and a value");
        return;
    }
    text_view value = {colon + 1, line.size - name.size - 1};
    while (value.size > 0 && (value.data[0] == ' ' || value.data[0] == '\t')) {
        value.data++;
        value.size--;
    }
    for (size_t i = 0; i < value.size; i++)
        if (((unsigned char)value.data[i] < 0x20 && value.data[i] != '\t') ||
            value.data[i] == 0x7F) {
            refuse(out, 400, "bad_header", "a header value contains a control character");
            return;
        }
    tally->fields += 1;
    if (is_named(name, "Content-Length"))
        check_length(value, out);
    if (is_named(name, "Cookie")) {
        tally->fields += 1 + count_of(value, ';') + count_of(value, ',');
        tally->copied += value.size;
    }
}

/* ---- All of it ---- */

static void check_lines(text_view bytes, size_t limit, head *out) {
    text_view left = bytes, line;
    head_tally tally = {0};
    uint32_t empty = 0;
    bool first = true;
    while (out->state == HEAD_PARTIAL) {
        if (!next_line(&left, &line)) {
            if (first && left.size > 0 && left.data[0] != '\r')
                check_beginning(left, out);
            return;
        }
        if (first && line.size == 0) { /* one that some clients send behind a body is ignored */
            if (++empty > 1)
                refuse(out, 400, "bad_request", "not an HTTP request: it begins with empty lines");
        } else if (first) {
            check_first(line, out, &tally);
            first = false;
        } else if (line.size == 0) {
            out->state = HEAD_GOOD;
        } else {
            check_field(line, out, &tally);
        }
        if (out->state != HEAD_BAD && tally.fields > HEAD_FIELDS_MAX)
            refuse(out, 431, "head_too_large", "the header has more than 128 fields");
        else if (out->state != HEAD_BAD && bytes.size - left.size + tally.copied > limit)
            refuse(out, 431, "head_too_large", "the header has too many cookies");
    }
}

head head_check(text_view bytes, size_t limit) {
    head out = {.state = HEAD_PARTIAL};
    text_view seen = {bytes.data, bytes.size < limit ? bytes.size : limit};
    check_lines(seen, limit, &out);
    if (out.state != HEAD_PARTIAL || bytes.size < limit)
        return out;
    if (out.target.size == 0)
        refuse(&out, 414, "target_too_long", "the first line is longer than --max-header allows");
    else
        refuse(&out, 431, "head_too_large", "the header is longer than --max-header allows");
    return out;
}
