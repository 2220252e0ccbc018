/* Strings whose bytes know where they come from. */
#include "base/checked.h"
#include "base/utf8.h"
#include "tokenizer/template/render_int.h"

#include <assert.h>
#include <string.h>

#define STORE_FROM 1024 /* bytes from which a joined string leaves room for more */

size_t jinja_count_characters(const char *data, size_t size) {
    size_t valid = utf8_valid_prefix(data, size);
    size_t count = 0;
    for (size_t i = 0; i < valid; i++)
        count += ((unsigned char)data[i] & 0xC0) != 0x80;
    while (valid < size) {
        uint32_t code_point;
        size_t bytes = utf8_decode(data + valid, size - valid, &code_point);
        valid += bytes == 0 ? 1 : bytes;
        count++;
    }
    return count;
}

size_t jinja_read_character(const jinja_text *text, size_t at, uint32_t *code_point, bool *valid) {
    unsigned char byte = (unsigned char)text->data[at];
    *valid = true;
    *code_point = byte;
    if (byte < 0x80)
        return 1;
    size_t bytes = utf8_decode(text->data + at, text->size - at, code_point);
    if (bytes > 0)
        return bytes;
    *valid = false;
    *code_point = UTF8_REPLACEMENT;
    return 1;
}

size_t jinja_character_bytes(const jinja_text *text, size_t at) {
    uint32_t code_point;
    bool valid;
    return jinja_read_character(text, at, &code_point, &valid);
}

avo_status jinja_text_offset(jinja_render *render, const jinja_text *text, size_t character,
                             size_t *offset) {
    assert(character <= text->length);
    if (text->length == text->size || character == text->length) {
        *offset = character == text->length ? text->size : character;
        return AVO_OK;
    }
    AVO_TRY(jinja_charge(render, character / 16));
    size_t at = 0;
    for (size_t i = 0; i < character; i++)
        at += jinja_character_bytes(text, at);
    *offset = at;
    return AVO_OK;
}

avo_status jinja_text_new(jinja_render *render, text_view bytes, jinja_origin origin,
                          jinja_value *out) {
    jinja_text *text;
    AVO_TRY(jinja_take(render, 1, sizeof(*text), &text));
    *text = (jinja_text){.data = bytes.size == 0 ? "" : bytes.data,
                         .size = bytes.size,
                         .length = jinja_count_characters(bytes.data, bytes.size),
                         .origin = (uint8_t)origin};
    *out = jinja_string(text);
    return AVO_OK;
}

/* The first span that ends behind `at`. */
static size_t span_behind(const jinja_text *text, size_t at) {
    size_t low = 0;
    size_t high = text->span_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (text->spans[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool jinja_text_trusted_at(const jinja_text *text, size_t at) {
    if (text->origin != JINJA_MIXED)
        return text->origin == JINJA_TRUSTED;
    size_t span = span_behind(text, at);
    return span < text->span_count && text->spans[span].begin <= at;
}

void jinja_builder_init(jinja_builder *builder, jinja_render *render) {
    *builder = (jinja_builder){.render = render};
}

static avo_status reserve(jinja_builder *builder, size_t bytes) {
    size_t needed;
    if (!size_add(builder->size, bytes, &needed) || needed > TEMPLATE_OUTPUT_MAX)
        return jinja_limit(builder->render, "the text is longer than allowed");
    AVO_TRY(jinja_charge_bytes(builder->render, bytes));
    if (needed <= builder->capacity)
        return AVO_OK;
    size_t capacity = size_max(size_max(builder->capacity * 2, 48), needed);
    char *data;
    AVO_TRY(jinja_take(builder->render, capacity, 1, &data));
    if (builder->size > 0)
        memcpy(data, builder->data, builder->size);
    builder->data = data;
    builder->capacity = capacity;
    return AVO_OK;
}

/* Marks [begin, end), which lies at the end of what is marked so far, as the template's own. */
static avo_status mark(jinja_builder *builder, size_t begin, size_t end) {
    if (builder->span_count > 0 && builder->spans[builder->span_count - 1].end == begin) {
        builder->spans[builder->span_count - 1].end = end;
        return AVO_OK;
    }
    if (builder->span_count == builder->span_capacity) {
        size_t capacity = builder->span_capacity == 0 ? 4 : builder->span_capacity * 2;
        text_span *spans;
        AVO_TRY(jinja_take(builder->render, capacity, sizeof(*spans), &spans));
        if (builder->span_count > 0)
            memcpy(spans, builder->spans, builder->span_count * sizeof(*spans));
        builder->spans = spans;
        builder->span_capacity = capacity;
    }
    builder->spans[builder->span_count++] = (text_span){begin, end};
    return AVO_OK;
}

static avo_status append(jinja_builder *builder, const char *data, size_t size, size_t length,
                         bool trusted) {
    if (size == 0)
        return AVO_OK;
    AVO_TRY(reserve(builder, size));
    if (trusted)
        AVO_TRY(mark(builder, builder->size, builder->size + size));
    memcpy(builder->data + builder->size, data, size);
    builder->size += size;
    builder->length += length;
    return AVO_OK;
}

avo_status jinja_builder_bytes(jinja_builder *builder, const char *data, size_t size,
                               bool trusted) {
    return append(builder, data, size, jinja_count_characters(data, size), trusted);
}

avo_status jinja_builder_character(jinja_builder *builder, uint32_t code_point, bool trusted) {
    char bytes[4];
    return append(builder, bytes, utf8_encode(code_point, bytes), 1, trusted);
}

avo_status jinja_builder_fill(jinja_builder *builder, const char *data, size_t size, size_t times,
                              bool trusted) {
    size_t total;
    if (!size_multiply(size, times, &total) || total > TEMPLATE_OUTPUT_MAX)
        return jinja_limit(builder->render, "the text is longer than allowed");
    AVO_TRY(reserve(builder, total));
    size_t length = jinja_count_characters(data, size);
    for (size_t i = 0; i < times; i++)
        AVO_TRY(append(builder, data, size, length, trusted));
    return AVO_OK;
}

/* Bytes [begin, end) of a mixed text: only their marks. */
static avo_status copy_marks(jinja_builder *builder, const jinja_text *text, size_t begin,
                             size_t end, size_t to) {
    for (size_t i = span_behind(text, begin); i < text->span_count; i++) {
        size_t from = size_max(text->spans[i].begin, begin);
        if (from >= end)
            break;
        AVO_TRY(jinja_charge(builder->render, 1));
        AVO_TRY(
            mark(builder, to + (from - begin), to + (size_min(text->spans[i].end, end) - begin)));
    }
    return AVO_OK;
}

avo_status jinja_builder_part(jinja_builder *builder, const jinja_text *text, size_t begin,
                              size_t end) {
    size_t length = begin == 0 && end == text->size ? text->length
                    : text->length == text->size
                        ? end - begin
                        : jinja_count_characters(text->data + begin, end - begin);
    if (text->origin != JINJA_MIXED)
        return append(builder, text->data + begin, end - begin, length,
                      text->origin == JINJA_TRUSTED);
    size_t to = builder->size;
    AVO_TRY(append(builder, text->data + begin, end - begin, length, false));
    return copy_marks(builder, text, begin, end, to);
}

avo_status jinja_builder_text(jinja_builder *builder, const jinja_text *text) {
    return jinja_builder_part(builder, text, 0, text->size);
}

/* The text that a builder holds now; the builder may go on growing behind it. */
static void describe(const jinja_builder *builder, jinja_text *text) {
    *text = (jinja_text){.data = builder->size == 0 ? "" : builder->data,
                         .size = builder->size,
                         .length = builder->length,
                         .origin = JINJA_MIXED};
    if (builder->span_count == 0 && builder->size > 0) {
        text->origin = JINJA_UNTRUSTED;
    } else if (builder->size == 0 ||
               (builder->spans[0].begin == 0 && builder->spans[0].end >= builder->size)) {
        text->origin = JINJA_TRUSTED;
    } else {
        text->spans = builder->spans;
        text->span_count = builder->span_count;
    }
}

avo_status jinja_builder_finish(jinja_builder *builder, jinja_value *out) {
    jinja_text *text;
    AVO_TRY(jinja_take(builder->render, 1, sizeof(*text), &text));
    describe(builder, text);
    *out = jinja_string(text);
    return AVO_OK;
}

avo_status jinja_text_part(jinja_render *render, const jinja_text *text, size_t begin, size_t end,
                           jinja_value *out) {
    jinja_text *part;
    AVO_TRY(jinja_charge_bytes(render, end - begin));
    AVO_TRY(jinja_take(render, 1, sizeof(*part), &part));
    *part = (jinja_text){.data = text->data + begin, .size = end - begin, .markup = text->markup};
    part->length =
        text->length == text->size ? part->size : jinja_count_characters(part->data, part->size);
    part->origin = text->origin;
    *out = jinja_string(part);
    if (text->origin != JINJA_MIXED)
        return AVO_OK;
    jinja_builder marks;
    jinja_builder_init(&marks, render);
    AVO_TRY(copy_marks(&marks, text, begin, end, 0));
    marks.data = (char *)part->data; /* only described, never written: `marks` ends here */
    marks.size = part->size;
    marks.length = part->length;
    bool markup = part->markup;
    describe(&marks, part);
    part->markup = markup;
    return AVO_OK;
}

/* a + b. Long strings that grow at their end are appended to in place: the new text shares the
 * bytes of the old one, which keeps its own size. */
avo_status jinja_text_join(jinja_render *render, const jinja_text *a, const jinja_text *b,
                           jinja_value *out) {
    if (b->size == 0 || a->size == 0) {
        *out = jinja_string(b->size == 0 ? a : b);
        return AVO_OK;
    }
    jinja_builder own;
    jinja_builder *builder = &own;
    if (a->store != NULL && a->store->size == a->size) {
        builder = a->store;
    } else if (a->size + b->size >= STORE_FROM) {
        AVO_TRY(jinja_take(render, 1, sizeof(*builder), &builder));
        jinja_builder_init(builder, render);
        AVO_TRY(reserve(builder, size_max(a->size + b->size,
                                          size_min((a->size + b->size) * 2, TEMPLATE_OUTPUT_MAX))));
        AVO_TRY(jinja_builder_text(builder, a));
    } else {
        jinja_builder_init(&own, render);
        AVO_TRY(reserve(&own, a->size + b->size));
        AVO_TRY(jinja_builder_text(&own, a));
    }
    AVO_TRY(jinja_builder_text(builder, b));
    jinja_text *text;
    AVO_TRY(jinja_take(render, 1, sizeof(*text), &text));
    describe(builder, text);
    text->store = builder == &own ? NULL : builder;
    *out = jinja_string(text);
    return AVO_OK;
}

size_t jinja_text_find(const jinja_text *text, text_view needle, size_t from) {
    if (from > text->size)
        return SIZE_MAX;
    if (needle.size == 0)
        return from;
    const char *begin = text->data + from;
    size_t left = text->size - from;
    const char *found = needle.size == 1 ? memchr(begin, needle.data[0], left)
                                         : memmem(begin, left, needle.data, needle.size);
    return found == NULL ? SIZE_MAX : (size_t)(found - text->data);
}

avo_status jinja_text_escape(jinja_render *render, const jinja_text *text, jinja_value *out) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    size_t begin = 0;
    for (size_t i = 0; i < text->size; i++) {
        const char *found = text->data[i] == '\0' ? NULL : strchr(from, text->data[i]);
        if (found == NULL)
            continue;
        AVO_TRY(jinja_builder_part(&builder, text, begin, i));
        const char *escape = to[found - from];
        AVO_TRY(
            jinja_builder_bytes(&builder, escape, strlen(escape), jinja_text_trusted_at(text, i)));
        begin = i + 1;
    }
    AVO_TRY(jinja_builder_part(&builder, text, begin, text->size));
    jinja_text *escaped;
    AVO_TRY(jinja_take(render, 1, sizeof(*escaped), &escaped));
    describe(&builder, escaped);
    escaped->markup = true;
    *out = jinja_string(escaped);
    return AVO_OK;
}
