/* The span of reasoning in front of an answer: <think> … </think> and the like. White space around
 * it and at both of its ends belongs to nobody. Where the prompt has opened the span already, the
 * answer begins inside. A tag that comes later is text: models quote it. */
#include "chat/parser_int.h"

#include <string.h>

const reasoning_tags reasoning_known[REASONING_TAGS] = {{"<think>", "</think>"},
                                                        {"[THINK]", "[/THINK]"}};

void reasoning_open(chat_parser *p) {
    reasoning *r = &p->reasoning;
    buffer_init(&r->held, p->allocator, SIZE_MAX);
    buffer_init(&r->out, p->allocator, SIZE_MAX);
    buffer_init(&r->text, p->allocator, SIZE_MAX);
    r->state = !p->options.reasoning ? REASONING_OVER
               : p->format->reasons  ? REASONING_INSIDE
                                     : REASONING_BEGIN;
    r->close = reasoning_known[0].close;
}

void reasoning_close(chat_parser *p) {
    buffer_free(&p->reasoning.held);
    buffer_free(&p->reasoning.out);
    buffer_free(&p->reasoning.text);
}

/* The part of what is held that is no white space. */
static text_view mark_in(const reasoning *r) {
    text_view held = buffer_text(&r->held);
    while (held.size > 0 && tool_is_space(held.data[0]))
        held.data++, held.size--;
    return held;
}

static avo_status begin_byte(reasoning *r, char byte) {
    AVO_TRY(buffer_append(&r->held, &byte, 1));
    text_view mark = mark_in(r);
    bool prefix = mark.size == 0;
    for (size_t i = 0; i < REASONING_TAGS; i++) {
        text_view open = text_from(reasoning_known[i].open);
        prefix = prefix || text_starts(open, mark);
        if (mark.size > 0 && text_equal(open, mark)) {
            r->state = REASONING_INSIDE;
            r->close = reasoning_known[i].close;
            r->held.size = 0;
            return AVO_OK;
        }
    }
    if (prefix)
        return AVO_OK;
    r->state = REASONING_OVER;
    return parser_move(&r->held, &r->text);
}

/* Held is white space and what may be the closer. */
static avo_status inside_byte(reasoning *r, char byte) {
    if (tool_is_space(byte) && r->held.size == 0 && !r->begun)
        return AVO_OK; /* behind the opener */
    AVO_TRY(buffer_append(&r->held, &byte, 1));
    text_view close = text_from(r->close);
    for (;;) {
        text_view mark = mark_in(r);
        if (mark.size > 0 && text_equal(mark, close)) {
            r->state = REASONING_AFTER;
            r->held.size = 0;
            return AVO_OK;
        }
        if (text_starts(close, mark))
            return AVO_OK;
        /* White space and the first byte behind it are reasoning after all. */
        size_t sure = r->held.size - mark.size + 1;
        r->begun = true;
        AVO_TRY(buffer_append(&r->out, r->held.data, sure));
        memmove(r->held.data, r->held.data + sure, r->held.size -= sure);
    }
}

avo_status reasoning_feed(chat_parser *p, text_view text) {
    reasoning *r = &p->reasoning;
    for (size_t i = 0; i < text.size; i++) {
        char byte = text.data[i];
        if (r->state == REASONING_AFTER && !tool_is_space(byte))
            r->state = REASONING_OVER;
        if (r->state == REASONING_OVER)
            return buffer_append(&r->text, text.data + i, text.size - i);
        if (r->state == REASONING_BEGIN) {
            AVO_TRY(begin_byte(r, byte));
        } else if (r->state == REASONING_INSIDE) {
            AVO_TRY(inside_byte(r, byte));
        }
    }
    return AVO_OK;
}

avo_status reasoning_finish(chat_parser *p) {
    reasoning *r = &p->reasoning;
    if (r->state == REASONING_BEGIN)
        AVO_TRY(parser_move(&r->held, &r->text));
    else if (r->state == REASONING_INSIDE && mark_in(r).size > 0)
        AVO_TRY(parser_move(&r->held, &r->out));
    r->state = REASONING_OVER;
    return AVO_OK;
}
