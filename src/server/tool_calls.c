/* An answer, byte by byte: text for the user, and calls. However it is cut into pieces, what comes
 * out is the same.
 *
 *   SPACE    in front of everything and behind a call: white space, which belongs to no text when a
 *            call, or the end, comes next
 *   TEXT     what may become an opener is held back
 *   PAYLOAD  behind an opener: a JSON value, to its end; what is none is text, opener and all
 *   CLOSE    behind a call: white space and what closes it
 */
#include "server/tool_int.h"

#include <stdlib.h>
#include <string.h>

#define BARE_NAME_MAX 128

typedef enum parse_state { PARSE_SPACE, PARSE_TEXT, PARSE_PAYLOAD, PARSE_CLOSE } parse_state;

struct tool_parser {
    const tool_format *format;
    parse_state state;
    bool bare_may; /* a call may begin without an opener here */
    bool bare;     /* this one has */
    buffer out;    /* text for the user, of this push */
    buffer space;  /* of PARSE_SPACE */
    buffer held;   /* of PARSE_TEXT and PARSE_CLOSE */
    buffer raw;    /* of PARSE_PAYLOAD, with its opener */
    const tool_opener *opener;
    size_t json_at; /* in raw, where the value begins; 0: not yet */
    uint32_t depth;
    bool in_string, escaped;
    bool inside; /* of the value there is more than its first byte */
    arena arena; /* names and arguments */
    tool_call *calls;
    size_t count, malformed;
};

avo_status tool_parser_open(const tool_format *format, tool_parser **out, avo_error *error) {
    *out = NULL;
    tool_parser *p = calloc(1, sizeof(*p));
    if (p == NULL || (p->calls = calloc(TOOL_CALLS_MAX, sizeof(*p->calls))) == NULL) {
        free(p);
        return status_no_memory(error, "a parser of calls", sizeof(*p));
    }
    p->format = format;
    p->bare_may = true;
    arena_init(&p->arena, NULL, SIZE_MAX);
    buffer_init(&p->out, NULL, SIZE_MAX);
    buffer_init(&p->space, NULL, SIZE_MAX);
    buffer_init(&p->held, NULL, SIZE_MAX);
    buffer_init(&p->raw, NULL, SIZE_MAX);
    *out = p;
    return AVO_OK;
}

void tool_parser_close(tool_parser *p) {
    if (p == NULL)
        return;
    arena_free(&p->arena);
    buffer_free(&p->out);
    buffer_free(&p->space);
    buffer_free(&p->held);
    buffer_free(&p->raw);
    free(p->calls);
    free(p);
}

size_t tool_parser_count(const tool_parser *p) {
    return p->count;
}

const tool_call *tool_parser_call(const tool_parser *p, size_t index) {
    return index < p->count ? &p->calls[index] : NULL;
}

size_t tool_parser_malformed(const tool_parser *p) {
    return p->malformed;
}

/* ---- Text ---- */

static avo_status move_text(buffer *from, buffer *to) {
    if (from->size == 0)
        return AVO_OK;
    AVO_TRY(buffer_append(to, from->data, from->size));
    from->size = 0;
    return AVO_OK;
}

/* Text for the user, with the white space before it. */
static avo_status show(tool_parser *p, const char *data, size_t bytes) {
    if (bytes == 0)
        return AVO_OK;
    AVO_TRY(move_text(&p->space, &p->out));
    p->bare_may = false;
    return buffer_append(&p->out, data, bytes);
}

static bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* ---- Calls ---- */

static const json_value *member(const json_value *object, const char *a, const char *b) {
    const json_value *found = json_find(object, a);
    return found != NULL ? found : json_find(object, b);
}

/* The arguments as text of a JSON object: an object, a text that is one, or none at all. */
static avo_status take_arguments(tool_parser *p, const json_value *value, text_view *out,
                                 bool *good) {
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    avo_status status = AVO_OK;
    json_value inner;
    *good = true;
    if (value == NULL || value->kind == JSON_NULL)
        status = buffer_append_text(&text, "{}");
    else if (value->kind == JSON_OBJECT)
        status = json_write_value(&text, value);
    else if (value->kind == JSON_STRING &&
             json_parse(&p->arena, value->string, &inner, NULL) == AVO_OK &&
             inner.kind == JSON_OBJECT)
        status = json_write_value(&text, &inner);
    else
        *good = false;
    if (status == AVO_OK && *good) {
        const char *copy = arena_copy_text(&p->arena, text.data, text.size);
        *out = (text_view){copy, text.size};
        status = copy == NULL ? AVO_ERROR_MEMORY : AVO_OK;
    }
    buffer_free(&text);
    return status;
}

static avo_status add_call(tool_parser *p, text_view name, const json_value *arguments,
                           bool *good) {
    *good = name.size > 0 && p->count < TOOL_CALLS_MAX;
    if (!*good)
        return AVO_OK;
    tool_call call = {0};
    AVO_TRY(take_arguments(p, arguments, &call.arguments, good));
    if (!*good)
        return AVO_OK;
    call.name.data = arena_copy_text(&p->arena, name.data, name.size);
    call.name.size = name.size;
    if (call.name.data == NULL)
        return AVO_ERROR_MEMORY;
    p->calls[p->count++] = call;
    return AVO_OK;
}

static avo_status add_object(tool_parser *p, const json_value *value, bool *good) {
    const json_value *function = json_find(value, "function");
    if (function != NULL && function->kind == JSON_OBJECT)
        value = function;
    const json_value *name = json_find(value, "name");
    const json_value *arguments = member(value, "arguments", "parameters");
    /* Without its opener an object must say more to be a call. */
    *good = name != NULL && name->kind == JSON_STRING && !(p->bare && arguments == NULL);
    return *good ? add_call(p, name->string, arguments, good) : AVO_OK;
}

/* All of them, or none. */
static avo_status add_value(tool_parser *p, const json_value *value, bool *good) {
    size_t before = p->count;
    *good = value->kind == JSON_OBJECT || (value->kind == JSON_ARRAY && value->array.count > 0);
    if (value->kind == JSON_OBJECT)
        return add_object(p, value, good);
    for (size_t i = 0; value->kind == JSON_ARRAY && *good && i < value->array.count; i++)
        AVO_TRY(add_object(p, &value->array.items[i], good));
    if (!*good)
        p->count = before;
    return AVO_OK;
}

/* NAME[ARGS]{…} or NAME{…}: what stands between opener and value. */
static text_view name_before(const tool_parser *p) {
    size_t begin = p->opener == NULL ? 0 : strlen(p->opener->text);
    size_t end = p->json_at - 1;
    const char *raw = p->raw.data;
    while (begin < end && is_space(raw[begin]))
        begin++;
    if (end - begin >= 6 && memcmp(raw + end - 6, "[ARGS]", 6) == 0)
        end -= 6;
    while (end > begin && is_space(raw[end - 1]))
        end--;
    return (text_view){raw + begin, end - begin};
}

static avo_status payload_ends(tool_parser *p) {
    text_view text = {p->raw.data + p->json_at - 1, p->raw.size - p->json_at + 1};
    json_value value;
    bool good = json_parse(&p->arena, text, &value, NULL) == AVO_OK;
    text_view name = name_before(p);
    if (good && name.size > 0) {
        good = value.kind == JSON_OBJECT;
        if (good)
            AVO_TRY(add_call(p, name, &value, &good));
    } else if (good) {
        AVO_TRY(add_value(p, &value, &good));
    }
    if (good) {
        p->state = PARSE_CLOSE;
        p->space.size = p->held.size = 0;
    } else {
        p->malformed++;
        p->state = PARSE_TEXT;
        AVO_TRY(show(p, p->raw.data, p->raw.size));
    }
    p->raw.size = 0;
    return AVO_OK;
}

/* ---- States ---- */

static void payload_begins(tool_parser *p, const tool_opener *opener) {
    p->state = PARSE_PAYLOAD;
    p->opener = opener;
    p->bare = opener == NULL;
    p->json_at = p->depth = 0;
    p->in_string = p->escaped = p->inside = false;
}

static avo_status feed(tool_parser *p, char byte);

/* What began like a call is none; its last byte may begin another one. */
static avo_status payload_fails(tool_parser *p) {
    char last = p->raw.data[p->raw.size - 1];
    p->malformed++;
    p->state = PARSE_TEXT;
    AVO_TRY(show(p, p->raw.data, p->raw.size - 1));
    p->raw.size = 0;
    return feed(p, last);
}

/* Before the value: white space, or the name of a function. */
static avo_status payload_before(tool_parser *p, char byte) {
    bool named = p->opener != NULL && p->opener->named;
    size_t opened = p->opener == NULL ? 0 : strlen(p->opener->text);
    text_view sofar = {p->raw.data + opened, p->raw.size - opened};
    bool blank = true;
    for (size_t i = 0; i + 1 < sofar.size; i++)
        blank = blank && is_space(sofar.data[i]);
    bool args = named && !blank && (byte == '[' || byte == ']');
    if (byte == '{' || (byte == '[' && blank)) {
        p->json_at = p->raw.size;
        p->depth = 1;
        return AVO_OK;
    }
    bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                  (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.';
    if (sofar.size < BARE_NAME_MAX && (is_space(byte) || args || (named && letter)))
        return AVO_OK;
    return payload_fails(p);
}

static avo_status payload_byte(tool_parser *p, char byte) {
    AVO_TRY(buffer_append(&p->raw, &byte, 1));
    if (p->json_at == 0)
        return payload_before(p, byte);
    if (p->raw.size > TOOL_CALL_BYTES_MAX)
        return payload_fails(p);
    if (p->in_string) {
        p->in_string = p->escaped || byte != '"';
        p->escaped = !p->escaped && byte == '\\';
        return AVO_OK;
    }
    /* Without an opener, what cannot be a call shall not be held back. */
    bool likely = byte == (p->raw.data[0] == '[' ? '{' : '"');
    if (p->bare && !p->inside && !is_space(byte) && !likely)
        return payload_fails(p);
    p->inside = p->inside || !is_space(byte);
    p->in_string = byte == '"';
    if (byte == '{' || byte == '[')
        p->depth++;
    if ((byte == '}' || byte == ']') && --p->depth == 0)
        return payload_ends(p);
    return AVO_OK;
}

/* The opener that is `held`; *prefix: it may become one. */
static const tool_opener *opener_of(const tool_parser *p, bool *prefix) {
    const tool_opener *openers = p->format->form->openers;
    *prefix = false;
    for (size_t i = 0; i < 4 && openers[i].text != NULL; i++) {
        size_t length = strlen(openers[i].text);
        if (p->held.size > length || memcmp(openers[i].text, p->held.data, p->held.size) != 0)
            continue;
        *prefix = true;
        if (p->held.size == length)
            return &openers[i];
    }
    return NULL;
}

static avo_status text_byte(tool_parser *p, char byte) {
    if (p->bare_may && p->held.size == 0 && (byte == '{' || byte == '[')) {
        /* An array without an opener must begin with an object; one with "[TOOL…" is an opener. */
        bool array = byte == '[' && p->format->form->openers[0].text != NULL &&
                     p->format->form->openers[0].text[0] == '[';
        if (!array) {
            payload_begins(p, NULL);
            return payload_byte(p, byte);
        }
    }
    AVO_TRY(buffer_append(&p->held, &byte, 1));
    while (p->held.size > 0) {
        bool prefix;
        const tool_opener *opener = opener_of(p, &prefix);
        if (opener != NULL) {
            AVO_TRY(move_text(&p->held, &p->raw));
            payload_begins(p, opener);
            return AVO_OK;
        }
        if (prefix)
            return AVO_OK;
        AVO_TRY(show(p, p->held.data, 1));
        memmove(p->held.data, p->held.data + 1, --p->held.size);
    }
    return AVO_OK;
}

static avo_status space_byte(tool_parser *p, char byte) {
    bool between = p->count > 0 && p->format->form->bare && byte == ';';
    if (is_space(byte) || between)
        return buffer_append(&p->space, &byte, 1);
    p->state = PARSE_TEXT;
    return text_byte(p, byte);
}

static void call_ends(tool_parser *p) {
    p->state = PARSE_SPACE;
    p->bare_may = p->format->form->bare;
    p->held.size = 0;
}

/* White space, then the closer; where something else comes, that is what comes next. */
static avo_status close_byte(tool_parser *p, char byte) {
    const char *close = p->opener == NULL ? NULL : p->opener->close;
    if (close != NULL && p->held.size == 0 && is_space(byte))
        return buffer_append(&p->space, &byte, 1);
    if (close == NULL || close[p->held.size] != byte) {
        buffer rest = p->held;
        buffer_init(&p->held, NULL, SIZE_MAX);
        call_ends(p);
        avo_status status = AVO_OK;
        for (size_t i = 0; i < rest.size && status == AVO_OK; i++)
            status = feed(p, rest.data[i]);
        buffer_free(&rest);
        return status == AVO_OK ? feed(p, byte) : status;
    }
    AVO_TRY(buffer_append(&p->held, &byte, 1));
    if (close[p->held.size] == '\0') {
        p->space.size = 0;
        call_ends(p);
    }
    return AVO_OK;
}

static avo_status feed(tool_parser *p, char byte) {
    switch (p->state) {
    case PARSE_SPACE:
        return space_byte(p, byte);
    case PARSE_TEXT:
        return text_byte(p, byte);
    case PARSE_PAYLOAD:
        return payload_byte(p, byte);
    case PARSE_CLOSE:
        return close_byte(p, byte);
    }
    return AVO_OK;
}

/* ---- Pieces ---- */

static avo_status feed_text(tool_parser *p, text_view text) {
    for (size_t i = 0; i < text.size; i++)
        AVO_TRY(feed(p, text.data[i]));
    return AVO_OK;
}

static avo_status fail(avo_status status, avo_error *error) {
    return status == AVO_OK ? AVO_OK : status_no_memory(error, "calls of functions", 1);
}

avo_status tool_parser_push(tool_parser *p, int32_t token, text_view piece, text_view *text,
                            avo_error *error) {
    p->out.size = 0;
    *text = (text_view){"", 0};
    AVO_TRY(fail(feed_text(p, piece), error));
    for (size_t i = 0; token >= 0 && i < p->format->marker_count; i++) {
        const tool_marker *marker = &p->format->markers[i];
        bool inside = p->state == PARSE_PAYLOAD || p->state == PARSE_CLOSE;
        if (marker->token == token && (marker->opens || inside))
            AVO_TRY(fail(feed_text(p, text_from(marker->text)), error));
    }
    *text = buffer_text(&p->out);
    return AVO_OK;
}

static avo_status finish(tool_parser *p) {
    if (p->state == PARSE_PAYLOAD) {
        p->malformed++;
        AVO_TRY(show(p, p->raw.data, p->raw.size));
    } else if (p->state == PARSE_TEXT || p->state == PARSE_CLOSE) {
        AVO_TRY(show(p, p->held.data, p->held.size));
    }
    p->raw.size = p->held.size = 0;
    p->state = PARSE_SPACE;
    if (p->count == 0)
        AVO_TRY(move_text(&p->space, &p->out));
    p->space.size = 0;
    return AVO_OK;
}

avo_status tool_parser_finish(tool_parser *p, text_view *text, avo_error *error) {
    p->out.size = 0;
    *text = (text_view){"", 0};
    AVO_TRY(fail(finish(p), error));
    *text = buffer_text(&p->out);
    return AVO_OK;
}
