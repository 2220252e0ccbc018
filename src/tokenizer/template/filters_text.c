/* Filters on strings. */
#include "tokenizer/template/render_int.h"

#include <string.h>

/* The subject as text: jinja2's filters take str() of what they get. */
static avo_status subject_text(jinja_render *render, const jinja_filter_call *call,
                               const jinja_text **text) {
    jinja_value value;
    AVO_TRY(jinja_to_text(render, call->subject, &value));
    *text = value.text;
    return AVO_OK;
}

static avo_status filter_case(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    const jinja_text *text;
    AVO_TRY(subject_text(render, call, &text));
    return jinja_change_case(render, text, call->option, out);
}

static bool begins_word(uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || jinja_is_space(c);
}

/* Words begin behind whitespace, hyphens and opening brackets; str.title() differs. */
static avo_status filter_title(jinja_render *render, const jinja_filter_call *call,
                               jinja_value *out) {
    const jinja_text *text;
    AVO_TRY(subject_text(render, call, &text));
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    for (size_t begin = 0; begin < text->size;) {
        /* A piece: only separators, or none. */
        size_t end = begin;
        bool separators = false;
        while (end < text->size) {
            uint32_t code_point;
            bool valid;
            size_t bytes = jinja_read_character(text, end, &code_point, &valid);
            bool separator = valid && begins_word(code_point);
            if (end == begin)
                separators = separator;
            else if (separator != separators)
                break;
            end += bytes;
        }
        jinja_value piece;
        if (separators) {
            AVO_TRY(jinja_builder_part(&builder, text, begin, end));
        } else {
            size_t first = begin + jinja_character_bytes(text, begin);
            AVO_TRY(jinja_text_part(render, text, begin, first, &piece));
            AVO_TRY(jinja_change_case(render, piece.text, METHOD_upper, &piece));
            AVO_TRY(jinja_builder_text(&builder, piece.text));
            AVO_TRY(jinja_text_part(render, text, first, end, &piece));
            AVO_TRY(jinja_change_case(render, piece.text, METHOD_lower, &piece));
            AVO_TRY(jinja_builder_text(&builder, piece.text));
        }
        begin = end;
    }
    return jinja_builder_finish(&builder, out);
}

static avo_status filter_trim(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    jinja_value chars = call->values[0];
    const jinja_text *text;
    AVO_TRY(subject_text(render, call, &text));
    return jinja_strip(render, text, chars, true, true, out);
}

static avo_status filter_string(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    return jinja_to_text(render, call->subject, out);
}

static avo_status mark_markup(jinja_render *render, const jinja_text *text, jinja_value *out) {
    jinja_text *marked;
    AVO_TRY(jinja_take(render, 1, sizeof(*marked), &marked));
    *marked = *text;
    marked->markup = true;
    *out = jinja_string(marked);
    return AVO_OK;
}

static avo_status filter_safe(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    const jinja_text *text;
    AVO_TRY(subject_text(render, call, &text));
    return mark_markup(render, text, out);
}

static avo_status filter_escape(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    const jinja_text *text;
    AVO_TRY(subject_text(render, call, &text));
    bool again = strcmp(call->name, "forceescape") == 0;
    if (text->markup && !again)
        return mark_markup(render, text, out);
    return jinja_text_escape(render, text, out);
}

static avo_status filter_replace(jinja_render *render, const jinja_filter_call *call,
                                 jinja_value *out) {
    const jinja_value *values = call->values;
    const jinja_text *text;
    AVO_TRY(subject_text(render, call, &text));
    jinja_value from;
    jinja_value to;
    AVO_TRY(jinja_to_text(render, values[0], &from));
    AVO_TRY(jinja_to_text(render, values[1], &to));
    int64_t count;
    AVO_TRY(jinja_want_integer(render, values[2], -1, &count));
    if (text->markup) { /* str() of Markup is a plain string */
        jinja_text *unmarked;
        AVO_TRY(jinja_take(render, 1, sizeof(*unmarked), &unmarked));
        *unmarked = *text;
        unmarked->markup = false;
        text = unmarked;
    }
    return jinja_replace(render, text, from.text, to.text, count, out);
}

static avo_status indent_lines(jinja_render *render, const jinja_text *text,
                               const jinja_text *indent, bool first, bool blank, jinja_value *out) {
    jinja_sequence *lines;
    AVO_TRY(jinja_split_lines(render, text, false, &lines));
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    if (first)
        AVO_TRY(jinja_builder_text(&builder, indent));
    for (size_t i = 0; i < lines->count; i++) {
        const jinja_text *line = lines->items[i].text;
        if (i > 0)
            AVO_TRY(jinja_builder_bytes(&builder, "\n", 1, true));
        if (i > 0 && (blank || line->size > 0))
            AVO_TRY(jinja_builder_text(&builder, indent));
        AVO_TRY(jinja_builder_text(&builder, line));
    }
    return jinja_builder_finish(&builder, out);
}

static avo_status filter_indent(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    const jinja_value *values = call->values;
    if (!jinja_is_string(call->subject))
        return jinja_fail(render, "indent needs a string, not %s", jinja_type_name(call->subject));
    jinja_value width = jinja_given(values[0]) ? values[0] : jinja_integer(4);
    if (jinja_is_integer(width)) {
        int64_t count = jinja_integer_of(width);
        jinja_builder spaces;
        jinja_builder_init(&spaces, render);
        AVO_TRY(jinja_builder_fill(&spaces, " ", 1, count < 0 ? 0 : (size_t)count, true));
        AVO_TRY(jinja_builder_finish(&spaces, &width));
    }
    const jinja_text *indent;
    AVO_TRY(jinja_want_text(render, width, "indent's width", &indent));
    bool first = false;
    bool blank = false;
    if (jinja_given(values[1]))
        AVO_TRY(jinja_truth(render, values[1], &first));
    if (jinja_given(values[2]))
        AVO_TRY(jinja_truth(render, values[2], &blank));
    jinja_value newline;
    jinja_value text;
    AVO_TRY(jinja_text_new(render, TEXT_LITERAL("\n"), JINJA_TRUSTED, &newline));
    AVO_TRY(jinja_text_join(render, call->subject.text, newline.text, &text));
    return indent_lines(render, text.text, indent, first, blank, out);
}

static avo_status filter_format(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    const jinja_text *text;
    const jinja_arguments *arguments = call->arguments;
    AVO_TRY(subject_text(render, call, &text));
    if (arguments->count > 0 && arguments->keyword_count > 0)
        return jinja_fail(render, "format: use positional or named arguments, not both");
    if (text->markup)
        return jinja_unsupported(render, "format on escaped text");
    jinja_value values;
    if (arguments->keyword_count > 0) {
        jinja_dict *dict;
        AVO_TRY(jinja_dict_new(render, arguments->keyword_count, &dict));
        for (size_t i = 0; i < arguments->keyword_count; i++) {
            jinja_value key;
            AVO_TRY(jinja_text_new(render, arguments->keywords[i].name, JINJA_UNTRUSTED, &key));
            AVO_TRY(jinja_dict_set(render, dict, key, arguments->keywords[i].value));
        }
        values = (jinja_value){.kind = JINJA_DICT, .dict = dict};
    } else {
        jinja_sequence *tuple;
        AVO_TRY(jinja_sequence_new(render, arguments->count, &tuple));
        for (size_t i = 0; i < arguments->count; i++)
            tuple->items[tuple->count++] = arguments->items[i];
        values = (jinja_value){.kind = JINJA_TUPLE, .sequence = tuple};
    }
    return jinja_format_percent(render, text, values, out);
}

static avo_status filter_center(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    jinja_value width = call->values[0];
    const jinja_text *text;
    int64_t columns;
    AVO_TRY(subject_text(render, call, &text));
    AVO_TRY(jinja_want_integer(render, width, 80, &columns));
    return jinja_pad(render, text, columns, NULL, METHOD_center, out);
}

/* Runs of letters, digits and underscores. */
static avo_status filter_wordcount(jinja_render *render, const jinja_filter_call *call,
                                   jinja_value *out) {
    const jinja_text *text;
    AVO_TRY(subject_text(render, call, &text));
    AVO_TRY(jinja_charge(render, text->length));
    int64_t count = 0;
    bool inside = false;
    for (size_t at = 0; at < text->size;) {
        uint32_t c;
        bool valid;
        at += jinja_read_character(text, at, &c, &valid);
        bool word = c == '_' || jinja_is_alphabetic(c) || jinja_is_digit(c) || jinja_is_numeric(c);
        count += word && !inside;
        inside = word;
    }
    *out = jinja_integer(count);
    return AVO_OK;
}

static avo_status filter_truncate(jinja_render *render, const jinja_filter_call *call,
                                  jinja_value *out) {
    const jinja_value *values = call->values;
    int64_t length;
    int64_t leeway;
    AVO_TRY(jinja_want_integer(render, values[0], 255, &length));
    AVO_TRY(jinja_want_integer(render, values[3], 5, &leeway));
    bool kill = false;
    if (jinja_given(values[1]))
        AVO_TRY(jinja_truth(render, values[1], &kill));
    jinja_value end;
    AVO_TRY(jinja_text_new(render, TEXT_LITERAL("..."), JINJA_TRUSTED, &end));
    if (jinja_given(values[2]))
        end = values[2];
    const jinja_text *end_text;
    AVO_TRY(jinja_want_text(render, end, "truncate's end", &end_text));
    if (length < (int64_t)end_text->length || leeway < 0)
        return jinja_fail(render, "truncate: length is too small");
    size_t subject_length;
    AVO_TRY(jinja_length(render, call->subject, &subject_length));
    *out = call->subject;
    if ((int64_t)subject_length <= length || (int64_t)subject_length - length <= leeway)
        return AVO_OK;
    if (!jinja_is_string(call->subject))
        return jinja_fail(render, "truncate needs a string");
    const jinja_text *text = call->subject.text;
    size_t cut;
    AVO_TRY(jinja_text_offset(render, text, (size_t)length - end_text->length, &cut));
    size_t space = cut;
    while (!kill && space > 0 && text->data[space - 1] != ' ')
        space--;
    if (space > 0 && !kill)
        cut = space - 1;
    jinja_value part;
    AVO_TRY(jinja_text_part(render, text, 0, cut, &part));
    return jinja_text_join(render, part.text, end_text, out);
}

const jinja_filter_entry jinja_text_filters[] = {
    {"capitalize", filter_case, {NULL}, 0, METHOD_capitalize},
    {"center", filter_center, {"width"}, 0, 0},
    {"e", filter_escape, {NULL}, 0, 0},
    {"escape", filter_escape, {NULL}, 0, 0},
    {"forceescape", filter_escape, {NULL}, 0, 0},
    {"format", filter_format, {NULL}, JINJA_OWN_ARGUMENTS, 0},
    {"indent", filter_indent, {"width", "first", "blank"}, 0, 0},
    {"lower", filter_case, {NULL}, 0, METHOD_lower},
    {"replace", filter_replace, {"old", "new", "count"}, 2, 0},
    {"safe", filter_safe, {NULL}, 0, 0},
    {"string", filter_string, {NULL}, 0, 0},
    {"striptags", NULL, {NULL}, 0, 0},
    {"title", filter_title, {NULL}, 0, 0},
    {"trim", filter_trim, {"chars"}, 0, 0},
    {"truncate", filter_truncate, {"length", "killwords", "end", "leeway"}, 0, 0},
    {"upper", filter_case, {NULL}, 0, METHOD_upper},
    {"wordcount", filter_wordcount, {NULL}, 0, 0},
    {"wordwrap", NULL, {NULL}, 0, 0},
    {NULL, NULL, {NULL}, 0, 0},
};
