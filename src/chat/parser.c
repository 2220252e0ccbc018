/* An answer, byte by byte: text for the user, and calls. However it is cut into pieces, what comes
 * out is the same.
 *
 *   SPACE    in front of everything and behind a call: white space, which belongs to no text when a
 *            call, or the end, comes next
 *   TEXT     what may become an opener is held back
 *   PAYLOAD  behind an opener: a JSON value, to its end, or what a reader understands, to its
 *            closer; what is none is text, opener and all
 *   CLOSE    behind a call: white space and what closes it
 *
 * Arguments that are JSON are followed as they come: the bytes of the model without the white space
 * between them. With `eager` a call is begun as soon as its name and the beginning of its arguments
 * are there, and stays one.
 */
#include "chat/parser_int.h"

#include <string.h>

#define CALLS_ROOM      (2 * (size_t)CHAT_CALLS_MAX) /* calls, and those that are staged */
#define BEFORE_NAME_MAX 256
#define CLOSERS_MAX     16 /* that stand in what a reader says has not ended */

static avo_status feed(chat_parser *p, char byte);

static bool bare_allowed(const chat_parser *p) {
    return p->options.only == NULL || p->options.only[0] == '\0';
}

static void init_buffers(chat_parser *p) {
    buffer *const buffers[] = {&p->out, &p->space, &p->held, &p->raw, &p->arguments};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        buffer_init(buffers[i], p->allocator, SIZE_MAX);
    arena_init(&p->arena, p->allocator, SIZE_MAX);
    reasoning_open(p);
}

avo_status chat_parser_open(const chat_format *format, const chat_parser_options *options,
                            chat_parser **out, avo_error *error) {
    *out = NULL;
    chat_parser *p = allocator_take_array(format->allocator, 1, sizeof(*p));
    if (p == NULL)
        return status_no_memory(error, "a parser of answers", sizeof(*p));
    p->format = format;
    p->allocator = format->allocator;
    p->options = *options;
    p->bare_may = bare_allowed(p);
    init_buffers(p);
    avo_status status = AVO_OK;
    if (options->calls) {
        p->calls = allocator_take_array(p->allocator, CALLS_ROOM, sizeof(*p->calls));
        p->staged = p->calls + CHAT_CALLS_MAX;
        status = p->calls == NULL ? AVO_ERROR_MEMORY : AVO_OK;
        const char *implied = format->form->implied;
        for (const char *at = implied; status == AVO_OK && at != NULL && *at != '\0'; at++)
            status = feed(p, *at);
    }
    if (status != AVO_OK) {
        chat_parser_close(p);
        return status_no_memory(error, "a parser of answers", sizeof(*p));
    }
    *out = p;
    return AVO_OK;
}

void chat_parser_close(chat_parser *p) {
    if (p == NULL)
        return;
    buffer *const buffers[] = {&p->out, &p->space, &p->held, &p->raw, &p->arguments};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        buffer_free(buffers[i]);
    arena_free(&p->arena);
    reasoning_close(p);
    allocator_give(p->allocator, p->calls, CALLS_ROOM * sizeof(*p->calls));
    allocator_give(p->allocator, p, sizeof(*p));
}

bool chat_parser_reasons(const chat_parser *p) {
    return p->reasoning.state == REASONING_INSIDE;
}

size_t chat_parser_count(const chat_parser *p) {
    return p->count;
}

const tool_call *chat_parser_call(chat_parser *p, size_t index) {
    if (index < p->count)
        return &p->calls[index];
    if (index > p->count || !p->begun)
        return NULL;
    p->coming.arguments = buffer_text(&p->arguments);
    return &p->coming;
}

size_t chat_parser_malformed(const chat_parser *p) {
    return p->malformed;
}

/* ---- Text ---- */

avo_status parser_move(buffer *from, buffer *to) {
    if (from->size == 0)
        return AVO_OK;
    AVO_TRY(buffer_append(to, from->data, from->size));
    from->size = 0;
    return AVO_OK;
}

/* Text for the user, with the white space before it. */
static avo_status show(chat_parser *p, const char *data, size_t bytes) {
    if (bytes == 0)
        return AVO_OK;
    AVO_TRY(parser_move(&p->space, &p->out));
    p->bare_may = false;
    return buffer_append(&p->out, data, bytes);
}

/* ---- The end of a payload ---- */

/* NAME before a value, with whatever the form has around it. */
static text_view name_before(const chat_parser *p) {
    size_t begin = p->opener == NULL ? 0 : strlen(p->opener->text);
    text_view text = tool_trim(raw_at(p, begin, p->value_at - begin));
    const char *mark = p->format->form->marks[0];
    const char *at =
        mark == NULL || text.size == 0 ? NULL : memmem(text.data, text.size, mark, strlen(mark));
    if (at != NULL && p->format->form->fenced) {
        size_t after = (size_t)(at - text.data) + strlen(mark);
        text_view behind = tool_trim((text_view){text.data + after, text.size - after});
        const char *fence = behind.size == 0 ? NULL : memchr(behind.data, '`', behind.size);
        behind.size = fence == NULL ? behind.size : (size_t)(fence - behind.data);
        behind = tool_trim(behind);
        if (behind.size > 0)
            return behind;
    }
    if (at != NULL)
        text.size = (size_t)(at - text.data);
    const char *bracket = text.size == 0 ? NULL : memchr(text.data, '[', text.size);
    if (bracket != NULL) /* [CALL_ID]…[ARGS] */
        text.size = (size_t)(bracket - text.data);
    (void)text_take(&text, "functions.");
    const char *colon = text.size == 0 ? NULL : memchr(text.data, ':', text.size);
    if (colon != NULL)
        text.size = (size_t)(colon - text.data);
    return tool_trim(text);
}

bool tool_name_good(text_view name) {
    bool good = name.size > 0;
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        good = good && (c == '_' || c == '-' || c == '.' || (c >= '0' && c <= '9') ||
                        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
    }
    return good;
}

static bool has_name_before(const chat_parser *p) {
    size_t begin = p->opener == NULL ? 0 : strlen(p->opener->text);
    return tool_trim(raw_at(p, begin, p->value_at - begin)).size > 0;
}

static avo_status payload_is(chat_parser *p, bool good) {
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

static avo_status json_ends(chat_parser *p) {
    json_value value;
    text_view text = raw_at(p, p->value_at, p->raw.size - p->value_at);
    bool good = json_parse(&p->arena, text, &value, NULL) == AVO_OK;
    if (p->count > p->payload_calls) { /* calls that were told already stay */
        p->malformed += !good || p->broken;
        return payload_is(p, true);
    }
    bool named = has_name_before(p);
    if (good && named) {
        good = value.kind == JSON_OBJECT && tool_name_good(name_before(p));
        if (good)
            AVO_TRY(parser_add_call(p, name_before(p), &value, &p->staged[0], &good));
    } else if (good) {
        AVO_TRY(parser_add_value(p, &value, &good));
    }
    return payload_is(p, good);
}

/* By a reader; *more: the closer was a part of it. */
static avo_status read_payload(chat_parser *p, text_view text, bool *good, bool *more) {
    tool_found found = {.calls = p->calls + p->count,
                        .capacity = CHAT_CALLS_MAX - p->count,
                        .arena = &p->arena,
                        .tools = p->options.tools};
    avo_status status = AVO_OK;
    tool_outcome outcome = TOOL_BAD;
    tool_reader reader = p->opener == NULL ? TOOL_PYTHON : p->opener->reader;
    if (reader == TOOL_TAGS)
        outcome = tool_read_tags(p->opener->markup, text, &found, &status);
    else if (reader == TOOL_PAIRS)
        outcome = tool_read_pairs(p->opener->markup, text, &found, &status);
    else if (reader == TOOL_GEMMA)
        outcome = tool_read_gemma(text, &found, &status);
    else
        outcome = tool_read_python(text, &found, &status);
    *good = outcome == TOOL_GOOD && status == AVO_OK;
    *more = outcome == TOOL_MORE;
    if (*good)
        p->count += found.count;
    return status == AVO_ERROR_LIMIT ? AVO_OK : status;
}

/* ---- States ---- */

static void payload_begins(chat_parser *p, const tool_opener *opener) {
    p->state = PARSE_PAYLOAD;
    p->opener = opener;
    p->bare = opener == NULL;
    p->scan = opener != NULL && opener->whole ? SCAN_CLOSER : SCAN_BEFORE;
    p->value_at = p->depth = p->closers = 0;
    p->quote = 0;
    p->escaped = p->inside = p->broken = p->begun = false;
    p->payload_calls = p->count;
    p->follow = (follower){0};
    p->staged[0] = (tool_call){0};
}

/* What began like a call is none; its last byte may begin another one. */
static avo_status payload_fails(chat_parser *p) {
    char last = p->raw.data[p->raw.size - 1];
    p->malformed++;
    p->state = PARSE_TEXT;
    if (p->begun)
        AVO_TRY(begun_ends(p));
    else
        AVO_TRY(show(p, p->raw.data, p->raw.size - 1));
    p->raw.size = 0;
    return feed(p, last);
}

static avo_status value_begins(chat_parser *p, char byte) {
    bool python = byte == '[' &&
                  (p->opener == NULL ? p->format->form->python : p->opener->reader == TOOL_PYTHON);
    p->scan = python ? SCAN_PYTHON : SCAN_JSON;
    p->value_at = p->raw.size - 1;
    p->depth = 1;
    if (has_name_before(p) && tool_name_good(name_before(p)))
        return arguments_begin(p, name_before(p)); /* to the end of the value */
    p->follow.members = byte == '[' ? 2 : 1;
    return follow_open(p, byte);
}

/* Before the value: white space, or the name of a function. */
static avo_status payload_before(chat_parser *p, char byte) {
    const tool_form *form = p->format->form;
    bool named = p->opener != NULL && p->opener->named;
    size_t opened = p->opener == NULL ? 0 : strlen(p->opener->text);
    text_view sofar = {p->raw.data + opened, p->raw.size - opened};
    bool blank = tool_trim((text_view){sofar.data, sofar.size - 1}).size == 0;
    if (byte == '{' || (byte == '[' && blank))
        return value_begins(p, byte);
    if (form->text_name != NULL && text_is(sofar, form->text_name)) {
        p->state = PARSE_TEXT;
        p->raw.size = 0;
        return AVO_OK;
    }
    if (tool_is_space(byte) && sofar.size < BEFORE_NAME_MAX)
        return AVO_OK;
    bool reads = p->opener != NULL && p->opener->markup != NULL;
    if (reads || (p->opener != NULL && p->opener->reader == TOOL_GEMMA)) {
        p->scan = SCAN_CLOSER;
        return AVO_OK;
    }
    bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                  (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.';
    bool mark = !blank && ((unsigned char)byte >= 0x80 || strchr("[]<>|:`", byte) != NULL);
    if (sofar.size < BEFORE_NAME_MAX && named && (letter || (mark && byte != '\0')))
        return AVO_OK;
    return payload_fails(p);
}

static avo_status json_byte(chat_parser *p, char byte) {
    follower *f = &p->follow;
    if (p->quote != 0 || (f->open && !tool_is_space(byte))) {
        if (f->open)
            AVO_TRY(buffer_append(&p->arguments, &byte, 1));
    }
    if (p->quote != 0) {
        f->escapes = f->escapes || byte == '\\';
        bool ends = !p->escaped && byte == '"';
        p->escaped = !p->escaped && byte == '\\';
        p->quote = ends ? 0 : p->quote;
        if (ends)
            follow_string(p);
        return AVO_OK;
    }
    if (byte == '"') {
        p->quote = byte;
        f->string_at = p->raw.size;
        f->escapes = false;
    } else if (byte == '{' || byte == '[') {
        p->depth++;
        return follow_open(p, byte);
    } else if (byte == '}' || byte == ']') {
        p->depth--;
        AVO_TRY(follow_close(p));
        return p->depth == 0 ? json_ends(p) : AVO_OK;
    } else if (p->depth == f->members && (byte == ':' || byte == ',')) {
        f->value = byte == ':';
    }
    return AVO_OK;
}

static avo_status python_byte(chat_parser *p, char byte) {
    if (p->quote != 0) {
        bool ends = !p->escaped && byte == p->quote;
        p->escaped = !p->escaped && byte == '\\';
        p->quote = ends ? 0 : p->quote;
        return AVO_OK;
    }
    if (byte == '"' || byte == '\'')
        p->quote = byte;
    else if (byte == '{' || byte == '[' || byte == '(')
        p->depth++;
    else if ((byte == '}' || byte == ']' || byte == ')') && --p->depth == 0) {
        bool good, more;
        AVO_TRY(read_payload(p, raw_at(p, p->value_at, p->raw.size - p->value_at), &good, &more));
        return payload_is(p, good);
    }
    return AVO_OK;
}

/* To the closer; one that stands inside of a value is none. */
static avo_status closer_byte(chat_parser *p) {
    text_view raw = buffer_text(&p->raw), close = text_from(p->opener->close);
    size_t begin = p->opener->whole ? 0 : strlen(p->opener->text);
    if (raw.size < begin + close.size || !text_ends(raw, close))
        return AVO_OK;
    size_t end = p->opener->whole ? raw.size : raw.size - close.size;
    bool good, more;
    AVO_TRY(read_payload(p, raw_at(p, begin, end - begin), &good, &more));
    if (more && ++p->closers < CLOSERS_MAX)
        return AVO_OK;
    AVO_TRY(payload_is(p, good));
    if (good) { /* it has been closed */
        p->state = PARSE_SPACE;
        p->bare_may = p->format->form->bare && bare_allowed(p);
    }
    return AVO_OK;
}

/* Without an opener, what cannot be a call shall not be held back. */
static bool unlikely(const chat_parser *p, char byte) {
    if (!p->bare || p->inside || tool_is_space(byte))
        return false;
    if (p->scan == SCAN_PYTHON)
        return !((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_');
    return byte != (p->raw.data[0] == '[' ? '{' : '"');
}

static avo_status payload_byte(chat_parser *p, char byte) {
    AVO_TRY(buffer_append(&p->raw, &byte, 1));
    if (p->scan == SCAN_BEFORE)
        return payload_before(p, byte);
    if (p->raw.size > CHAT_CALL_BYTES_MAX)
        return payload_fails(p);
    if (p->scan == SCAN_CLOSER)
        return closer_byte(p);
    if (p->quote == 0 && p->scan == SCAN_PYTHON && !p->inside && byte == '{') {
        p->scan = SCAN_JSON; /* an array of objects after all */
        p->follow.members = 2;
    }
    if (p->quote == 0 && unlikely(p, byte))
        return payload_fails(p);
    p->inside = p->inside || !tool_is_space(byte);
    return p->scan == SCAN_PYTHON ? python_byte(p, byte) : json_byte(p, byte);
}

static bool may_open(const chat_parser *p, const tool_opener *opener) {
    return p->options.only == NULL || strcmp(opener->text, p->options.only) == 0;
}

/* The opener that is `held`; *prefix: it may become one; *noise: it says nothing. */
static const tool_opener *opener_of(const chat_parser *p, bool *prefix, bool *noise) {
    const tool_form *form = p->format->form;
    *prefix = *noise = false;
    for (size_t i = 0; i < 2 && form->noise[i] != NULL; i++) {
        bool begins = text_starts(text_from(form->noise[i]), buffer_text(&p->held));
        *prefix = *prefix || begins;
        *noise = *noise || (begins && form->noise[i][p->held.size] == '\0');
    }
    for (size_t i = 0; i < TOOL_OPENERS_MAX && form->openers[i].text != NULL; i++) {
        const tool_opener *opener = &form->openers[i];
        if (!may_open(p, opener) || !text_starts(text_from(opener->text), buffer_text(&p->held)))
            continue;
        *prefix = true;
        if (opener->text[p->held.size] == '\0')
            return opener;
    }
    return NULL;
}

static avo_status text_byte(chat_parser *p, char byte) {
    const tool_form *form = p->format->form;
    if (p->bare_may && p->held.size == 0 && (byte == '{' || byte == '[')) {
        /* An array without an opener must begin with an object; one with "[TOOL…" is an opener. */
        bool array =
            byte == '[' && form->openers[0].text != NULL && form->openers[0].text[0] == '[';
        if (!array) {
            payload_begins(p, NULL);
            return payload_byte(p, byte);
        }
    }
    AVO_TRY(buffer_append(&p->held, &byte, 1));
    while (p->held.size > 0) {
        bool prefix, noise;
        const tool_opener *opener = opener_of(p, &prefix, &noise);
        if (opener != NULL) {
            AVO_TRY(parser_move(&p->held, &p->raw));
            payload_begins(p, opener);
            return AVO_OK;
        }
        if (noise) { /* is dropped where a call follows, as white space is */
            p->state = PARSE_SPACE;
            return parser_move(&p->held, &p->space);
        }
        if (prefix)
            return AVO_OK;
        AVO_TRY(show(p, p->held.data, 1));
        memmove(p->held.data, p->held.data + 1, --p->held.size);
    }
    return AVO_OK;
}

static avo_status space_byte(chat_parser *p, char byte) {
    bool between = p->count > 0 && p->format->form->bare && byte == ';';
    if (tool_is_space(byte) || between)
        return buffer_append(&p->space, &byte, 1);
    p->state = PARSE_TEXT;
    return text_byte(p, byte);
}

static void call_ends(chat_parser *p) {
    p->state = PARSE_SPACE;
    p->bare_may = p->format->form->bare && bare_allowed(p);
    p->held.size = 0;
}

/* White space, then the closer; where something else comes, that is what comes next. */
static avo_status close_byte(chat_parser *p, char byte) {
    const char *close = p->opener == NULL ? NULL : p->opener->close;
    bool blank = tool_is_space(byte) || (p->format->form->fenced && byte == '`');
    if (close != NULL && p->held.size == 0 && blank)
        return buffer_append(&p->space, &byte, 1);
    if (close == NULL || close[p->held.size] != byte) {
        buffer rest = p->held;
        buffer_init(&p->held, p->allocator, SIZE_MAX);
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

static avo_status feed(chat_parser *p, char byte) {
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

/* ---- Pushes ---- */

static avo_status feed_text(chat_parser *p, text_view text) {
    if (!p->options.calls)
        return text.size == 0 ? AVO_OK : buffer_append(&p->out, text.data, text.size);
    for (size_t i = 0; i < text.size; i++)
        AVO_TRY(feed(p, text.data[i]));
    return AVO_OK;
}

static avo_status feed_answer(chat_parser *p, text_view text) {
    if (p->reasoning.state == REASONING_OVER)
        return feed_text(p, text);
    p->reasoning.text.size = 0;
    AVO_TRY(reasoning_feed(p, text));
    return feed_text(p, buffer_text(&p->reasoning.text));
}

static bool marker_counts(const chat_parser *p, const tool_marker *marker) {
    if (marker->reasoning)
        return p->reasoning.state == REASONING_BEGIN || p->reasoning.state == REASONING_INSIDE;
    bool inside = p->state == PARSE_PAYLOAD || p->state == PARSE_CLOSE;
    return p->options.calls && (marker->opens || inside);
}

static avo_status push(chat_parser *p, int32_t token, text_view piece) {
    AVO_TRY(feed_answer(p, piece));
    for (size_t i = 0; token >= 0 && i < p->format->marker_count; i++) {
        const tool_marker *marker = &p->format->markers[i];
        if (marker->token == token && marker_counts(p, marker))
            AVO_TRY(feed_answer(p, text_from(marker->text)));
    }
    return AVO_OK;
}

static void begin_delta(chat_parser *p, chat_delta *delta) {
    p->out.size = p->reasoning.out.size = 0;
    *delta = (chat_delta){{"", 0}, {"", 0}};
}

static avo_status end_delta(const chat_parser *p, avo_status status, chat_delta *delta,
                            avo_error *error) {
    if (status != AVO_OK)
        return status_no_memory(error, "an answer", p->out.size);
    *delta = (chat_delta){buffer_text(&p->out), buffer_text(&p->reasoning.out)};
    return AVO_OK;
}

avo_status chat_parser_push(chat_parser *p, int32_t token, text_view piece, chat_delta *delta,
                            avo_error *error) {
    begin_delta(p, delta);
    return end_delta(p, push(p, token, piece), delta, error);
}

/* An answer that ends where only the closer is missing has called. */
static avo_status payload_cut(chat_parser *p) {
    bool good = false, more = false;
    const tool_form *form = p->format->form;
    size_t opened = p->opener == NULL ? 0 : strlen(p->opener->text);
    if (p->begun) {
        p->malformed++;
        p->coming.cut = true;
        return begun_ends(p);
    }
    if (p->count > p->payload_calls) {
        p->malformed++;
        return AVO_OK;
    }
    if (p->scan == SCAN_CLOSER && p->opener->reader == TOOL_TAGS && !p->opener->whole)
        AVO_TRY(read_payload(p, raw_at(p, opened, p->raw.size - opened), &good, &more));
    if (good)
        return AVO_OK;
    bool implied = form->implied != NULL && p->raw.size == strlen(form->implied) && p->count == 0;
    if (implied) /* nothing was said at all */
        return AVO_OK;
    p->malformed++;
    return show(p, p->raw.data, p->raw.size);
}

static avo_status finish(chat_parser *p) {
    p->reasoning.text.size = 0;
    AVO_TRY(reasoning_finish(p));
    AVO_TRY(feed_text(p, buffer_text(&p->reasoning.text)));
    if (p->state == PARSE_PAYLOAD)
        AVO_TRY(payload_cut(p));
    else if (p->state == PARSE_TEXT || p->state == PARSE_CLOSE)
        AVO_TRY(show(p, p->held.data, p->held.size));
    p->raw.size = p->held.size = 0;
    p->state = PARSE_SPACE;
    if (p->count == 0)
        AVO_TRY(parser_move(&p->space, &p->out));
    p->space.size = 0;
    return AVO_OK;
}

avo_status chat_parser_finish(chat_parser *p, chat_delta *delta, avo_error *error) {
    begin_delta(p, delta);
    return end_delta(p, finish(p), delta, error);
}
