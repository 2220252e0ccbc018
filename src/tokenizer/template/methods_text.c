/* The methods of strings: searching, cutting, joining. Case and classes are in methods_case.c. */
#include "base/utf8.h"
#include "tokenizer/template/render_int.h"

#include <string.h>

/* ---- strip ---- */

static bool strips(const jinja_text *chars, const jinja_text *text, size_t at, size_t bytes,
                   uint32_t code_point) {
    if (chars == NULL)
        return jinja_is_space(code_point);
    return memmem(chars->data, chars->size, text->data + at, bytes) != NULL;
}

static size_t previous_character(const jinja_text *text, size_t begin, size_t end) {
    size_t at = end - 1;
    while (at > begin && end - at < 4 && ((unsigned char)text->data[at] & 0xC0) == 0x80)
        at--;
    return at + jinja_character_bytes(text, at) == end ? at : end - 1;
}

avo_status jinja_strip(jinja_render *render, const jinja_text *text, jinja_value chars, bool left,
                       bool right, jinja_value *out) {
    const jinja_text *set = NULL;
    if (jinja_given(chars) && chars.kind != JINJA_NONE)
        AVO_TRY(jinja_want_text(render, chars, "what is stripped", &set));
    size_t begin = 0;
    size_t end = text->size;
    uint32_t code_point;
    bool valid;
    while (left && begin < end) {
        size_t bytes = jinja_read_character(text, begin, &code_point, &valid);
        if (!strips(set, text, begin, bytes, code_point))
            break;
        begin += bytes;
    }
    while (right && end > begin) {
        size_t at = previous_character(text, begin, end);
        size_t bytes = jinja_read_character(text, at, &code_point, &valid);
        if (!strips(set, text, at, bytes, code_point))
            break;
        end = at;
    }
    AVO_TRY(jinja_charge(render, (text->size - (end - begin)) / 16));
    if (begin == 0 && end == text->size) {
        *out = jinja_string(text);
        return AVO_OK;
    }
    return jinja_text_part(render, text, begin, end, out);
}

/* ---- replace ---- */

avo_status jinja_replace(jinja_render *render, const jinja_text *text, const jinja_text *from,
                         const jinja_text *to, int64_t count, jinja_value *out) {
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    AVO_TRY(jinja_charge_bytes(render, text->size));
    size_t begin = 0;
    size_t search = 0;
    for (int64_t done = 0; count < 0 || done < count; done++) {
        size_t at = jinja_text_find(text, jinja_view_of(from), search);
        if (at == SIZE_MAX)
            break;
        AVO_TRY(jinja_charge(render, 1));
        AVO_TRY(jinja_builder_part(&builder, text, begin, at));
        AVO_TRY(jinja_builder_text(&builder, to));
        begin = at + from->size;
        search = begin;
        if (from->size == 0) { /* between any two characters */
            if (at >= text->size)
                break;
            search = at + jinja_character_bytes(text, at);
        }
    }
    if (begin == 0 && builder.size == 0 && !(from->size == 0 && text->size == 0)) {
        *out = jinja_string(text);
        return AVO_OK;
    }
    AVO_TRY(jinja_builder_part(&builder, text, begin, text->size));
    return jinja_builder_finish(&builder, out);
}

/* ---- split ---- */

static avo_status add_part(jinja_render *render, jinja_sequence *parts, const jinja_text *text,
                           size_t begin, size_t end) {
    jinja_value part;
    AVO_TRY(jinja_charge(render, 1));
    AVO_TRY(jinja_text_part(render, text, begin, end, &part));
    return jinja_sequence_add(render, parts, part);
}

static avo_status split_space(jinja_render *render, const jinja_text *text, int64_t limit,
                              jinja_sequence *parts) {
    size_t at = 0;
    uint32_t code_point;
    bool valid;
    for (int64_t done = 0;; done++) {
        size_t bytes = 0;
        while (at < text->size) {
            bytes = jinja_read_character(text, at, &code_point, &valid);
            if (!jinja_is_space(code_point))
                break;
            at += bytes;
        }
        if (at >= text->size)
            return AVO_OK;
        size_t begin = at;
        if (limit >= 0 && done >= limit) /* the rest as it is */
            return add_part(render, parts, text, begin, text->size);
        while (at < text->size) {
            bytes = jinja_read_character(text, at, &code_point, &valid);
            if (jinja_is_space(code_point))
                break;
            at += bytes;
        }
        AVO_TRY(add_part(render, parts, text, begin, at));
    }
}

static void reverse_items(jinja_sequence *parts) {
    for (size_t i = 0; i < parts->count / 2; i++) {
        jinja_value other = parts->items[parts->count - 1 - i];
        parts->items[parts->count - 1 - i] = parts->items[i];
        parts->items[i] = other;
    }
}

static avo_status rsplit_space(jinja_render *render, const jinja_text *text, int64_t limit,
                               jinja_sequence *parts) {
    size_t end = text->size;
    uint32_t code_point;
    bool valid;
    for (int64_t done = 0;; done++) {
        while (end > 0) {
            size_t at = previous_character(text, 0, end);
            jinja_read_character(text, at, &code_point, &valid);
            if (!jinja_is_space(code_point))
                break;
            end = at;
        }
        if (end == 0)
            break;
        if (limit >= 0 && done >= limit) {
            AVO_TRY(add_part(render, parts, text, 0, end));
            break;
        }
        size_t begin = end;
        while (begin > 0) {
            size_t at = previous_character(text, 0, begin);
            jinja_read_character(text, at, &code_point, &valid);
            if (jinja_is_space(code_point))
                break;
            begin = at;
        }
        AVO_TRY(add_part(render, parts, text, begin, end));
        end = begin;
    }
    reverse_items(parts);
    return AVO_OK;
}

/* The last place of `needle` that ends at or before `end`; SIZE_MAX: none. */
static size_t find_last(const jinja_text *text, const jinja_text *needle, size_t begin,
                        size_t end) {
    if (needle->size > end || end - needle->size < begin)
        return SIZE_MAX;
    for (size_t at = end - needle->size + 1; at-- > begin;)
        if (memcmp(text->data + at, needle->data, needle->size) == 0)
            return at;
    return SIZE_MAX;
}

static avo_status split_by(jinja_render *render, const jinja_text *text,
                           const jinja_text *separator, int64_t limit, bool from_right,
                           jinja_sequence *parts) {
    if (separator->size == 0)
        return jinja_fail(render, "split: the separator is empty");
    AVO_TRY(jinja_charge_bytes(render, from_right ? text->size * separator->size : text->size));
    size_t begin = 0;
    size_t end = text->size;
    for (int64_t done = 0; limit < 0 || done < limit; done++) {
        size_t at = from_right ? find_last(text, separator, 0, end)
                               : jinja_text_find(text, jinja_view_of(separator), begin);
        if (at == SIZE_MAX)
            break;
        AVO_TRY(add_part(render, parts, text, from_right ? at + separator->size : begin,
                         from_right ? end : at));
        begin = at + separator->size;
        end = from_right ? at : end;
    }
    AVO_TRY(add_part(render, parts, text, from_right ? 0 : begin, from_right ? end : text->size));
    if (from_right)
        reverse_items(parts);
    return AVO_OK;
}

static avo_status split(jinja_render *render, const jinja_text *text, const jinja_value *values,
                        bool from_right, jinja_value *out) {
    int64_t limit;
    jinja_sequence *parts;
    AVO_TRY(jinja_want_integer(render, values[1], -1, &limit));
    AVO_TRY(jinja_sequence_new(render, 4, &parts));
    *out = (jinja_value){.kind = JINJA_LIST, .sequence = parts};
    if (!jinja_given(values[0]) || values[0].kind == JINJA_NONE)
        return from_right ? rsplit_space(render, text, limit, parts)
                          : split_space(render, text, limit, parts);
    const jinja_text *separator;
    AVO_TRY(jinja_want_text(render, values[0], "split's separator", &separator));
    return split_by(render, text, separator, limit, from_right, parts);
}

avo_status jinja_split_lines(jinja_render *render, const jinja_text *text, bool keep_ends,
                             jinja_sequence **out) {
    AVO_TRY(jinja_sequence_new(render, 4, out));
    AVO_TRY(jinja_charge(render, text->size / 16));
    size_t begin = 0;
    for (size_t at = 0; at < text->size;) {
        uint32_t code_point;
        bool valid;
        size_t bytes = jinja_read_character(text, at, &code_point, &valid);
        size_t next = at + bytes;
        if (!jinja_is_line_break(code_point)) {
            at = next;
            continue;
        }
        if (code_point == '\r' && next < text->size && text->data[next] == '\n')
            next++;
        AVO_TRY(add_part(render, *out, text, begin, keep_ends ? next : at));
        begin = next;
        at = next;
    }
    return begin < text->size ? add_part(render, *out, text, begin, text->size) : AVO_OK;
}

static avo_status partition(jinja_render *render, const jinja_text *text, jinja_value separator,
                            bool from_right, jinja_value *out) {
    const jinja_text *by;
    AVO_TRY(jinja_want_text(render, separator, "partition's separator", &by));
    if (by->size == 0)
        return jinja_fail(render, "partition: the separator is empty");
    AVO_TRY(jinja_charge_bytes(render, text->size));
    jinja_sequence *parts;
    AVO_TRY(jinja_sequence_new(render, 3, &parts));
    *out = (jinja_value){.kind = JINJA_TUPLE, .sequence = parts};
    size_t at = from_right ? find_last(text, by, 0, text->size)
                           : jinja_text_find(text, jinja_view_of(by), 0);
    if (at != SIZE_MAX) {
        AVO_TRY(add_part(render, parts, text, 0, at));
        AVO_TRY(add_part(render, parts, text, at, at + by->size));
        return add_part(render, parts, text, at + by->size, text->size);
    }
    if (!from_right)
        AVO_TRY(jinja_sequence_add(render, parts, jinja_string(text)));
    AVO_TRY(add_part(render, parts, text, 0, 0));
    AVO_TRY(add_part(render, parts, text, 0, 0));
    return from_right ? jinja_sequence_add(render, parts, jinja_string(text)) : AVO_OK;
}

/* ---- join ---- */

avo_status jinja_join(jinja_render *render, const jinja_text *separator, jinja_value items,
                      bool convert, jinja_value *out) {
    jinja_iterator *iterator;
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    AVO_TRY(jinja_iterate(render, items, &iterator));
    for (size_t i = 0;; i++) {
        jinja_value item;
        bool more;
        AVO_TRY(jinja_next(render, iterator, &item, &more));
        if (!more)
            return jinja_builder_finish(&builder, out);
        if (!convert && !jinja_is_string(item))
            return jinja_fail(render, "join: item %zu is %s, not a string", i,
                              jinja_type_name(item));
        if (i > 0)
            AVO_TRY(jinja_builder_text(&builder, separator));
        AVO_TRY(jinja_print(&builder, item));
    }
}

avo_status jinja_join_filter(jinja_render *render, jinja_value items, const jinja_text *separator,
                             jinja_value attribute, jinja_value *out) {
    if (!jinja_given(attribute) || attribute.kind == JINJA_NONE)
        return jinja_join(render, separator, items, true, out);
    jinja_iterator *mapped;
    AVO_TRY(jinja_iterator_new(render, JINJA_WALK_MAP, "map", &mapped));
    mapped->attribute = attribute;
    AVO_TRY(jinja_iterate(render, items, &mapped->source));
    return jinja_join(render, separator, (jinja_value){.kind = JINJA_ITERATOR, .iterator = mapped},
                      true, out);
}

/* ---- find and its kin ---- */

/* The bytes [begin, end) that start and stop (in characters) name; *empty when start lies behind
 * the end. */
static avo_status search_bounds(jinja_render *render, const jinja_text *text,
                                const jinja_value *values, size_t *begin, size_t *end,
                                bool *empty) {
    int64_t length = (int64_t)text->length;
    int64_t start;
    int64_t stop;
    AVO_TRY(jinja_want_integer(render, values[0], 0, &start));
    AVO_TRY(jinja_want_integer(render, values[1], INT64_MAX, &stop));
    if (start < 0)
        start = start < -length ? 0 : start + length;
    if (stop < 0)
        stop = stop < -length ? 0 : stop + length;
    stop = stop > length ? length : stop;
    *empty = start > stop;
    *begin = 0;
    *end = 0;
    if (*empty)
        return AVO_OK;
    AVO_TRY(jinja_text_offset(render, text, (size_t)start, begin));
    return jinja_text_offset(render, text, (size_t)stop, end);
}

static avo_status find(jinja_render *render, int method, const jinja_text *text,
                       const jinja_arguments *arguments, jinja_value *out) {
    static const char *const names[] = {"sub", "start", "end"};
    const char *name = jinja_method_text(method);
    jinja_value values[3];
    const jinja_text *needle;
    AVO_TRY(jinja_parameters(render, name, arguments, names, 3, 1, values));
    AVO_TRY(jinja_want_text(render, values[0], name, &needle));
    size_t begin;
    size_t end;
    bool empty;
    AVO_TRY(search_bounds(render, text, &values[1], &begin, &end, &empty));
    jinja_text part = {.data = text->data, .size = end, .length = end};
    bool last = method == METHOD_rfind || method == METHOD_rindex;
    AVO_TRY(jinja_charge_bytes(render, last ? (end - begin) * (needle->size + 1) : end - begin));
    if (method == METHOD_count) {
        int64_t count = 0;
        if (needle->size == 0 && !empty)
            count = (int64_t)jinja_count_characters(text->data + begin, end - begin) + 1;
        for (size_t at = begin; needle->size > 0 && !empty;) {
            at = jinja_text_find(&part, jinja_view_of(needle), at);
            if (at == SIZE_MAX)
                break;
            AVO_TRY(jinja_charge(render, 1));
            count++;
            at += needle->size;
        }
        *out = jinja_integer(count);
        return AVO_OK;
    }
    size_t at = empty  ? SIZE_MAX
                : last ? find_last(text, needle, begin, end)
                       : jinja_text_find(&part, jinja_view_of(needle), begin);
    if (at == SIZE_MAX && (method == METHOD_index || method == METHOD_rindex))
        return jinja_fail(render, "%s: not found", name);
    *out = jinja_integer(at == SIZE_MAX ? -1 : (int64_t)jinja_count_characters(text->data, at));
    return AVO_OK;
}

static avo_status affix(jinja_render *render, int method, const jinja_text *text,
                        const jinja_arguments *arguments, jinja_value *out) {
    static const char *const names[] = {"prefix", "start", "end"};
    jinja_value values[3];
    AVO_TRY(jinja_parameters(render, jinja_method_text(method), arguments, names, 3, 1, values));
    size_t begin;
    size_t end;
    bool empty;
    AVO_TRY(search_bounds(render, text, &values[1], &begin, &end, &empty));
    text_view part = {text->data + begin, end - begin};
    jinja_value *choices = values;
    size_t count = 1;
    if (values[0].kind == JINJA_TUPLE) {
        choices = values[0].sequence->items;
        count = values[0].sequence->count;
    }
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        const jinja_text *choice;
        AVO_TRY(jinja_want_text(render, choices[i], jinja_method_text(method), &choice));
        AVO_TRY(jinja_charge_bytes(render, choice->size));
        found = !empty && (method == METHOD_startswith ? text_starts(part, jinja_view_of(choice))
                                                       : text_ends(part, jinja_view_of(choice)));
    }
    *out = jinja_boolean(found);
    return AVO_OK;
}

static avo_status remove_affix(jinja_render *render, int method, const jinja_text *text,
                               jinja_value value, jinja_value *out) {
    const jinja_text *part;
    AVO_TRY(jinja_want_text(render, value, jinja_method_text(method), &part));
    size_t begin = 0;
    size_t end = text->size;
    if (method == METHOD_removeprefix && text_starts(jinja_view_of(text), jinja_view_of(part)))
        begin = part->size;
    if (method == METHOD_removesuffix && text_ends(jinja_view_of(text), jinja_view_of(part)))
        end -= part->size;
    return jinja_text_part(render, text, begin, end, out);
}

/* ---- padding ---- */

avo_status jinja_pad(jinja_render *render, const jinja_text *text, int64_t width,
                     const jinja_text *fill, int method, jinja_value *out) {
    if (fill != NULL && fill->length != 1)
        return jinja_fail(render, "the fill must be one character");
    *out = jinja_string(text);
    if (width <= (int64_t)text->length)
        return AVO_OK;
    size_t missing = (size_t)width - text->length;
    size_t left = method == METHOD_ljust ? 0 : missing;
    if (method == METHOD_center) /* as Python places the odd one */
        left = missing / 2 + (missing & (size_t)width & 1);
    const char *data = fill == NULL ? " " : fill->data;
    size_t size = fill == NULL ? 1 : fill->size;
    bool trusted = fill == NULL || jinja_text_trusted_at(fill, 0);
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    size_t sign =
        method == METHOD_zfill && text->size > 0 && (text->data[0] == '-' || text->data[0] == '+')
            ? 1
            : 0;
    if (method == METHOD_zfill) {
        data = "0";
        AVO_TRY(jinja_builder_part(&builder, text, 0, sign));
    }
    AVO_TRY(jinja_builder_fill(&builder, data, size, left, trusted));
    AVO_TRY(jinja_builder_part(&builder, text, sign, text->size));
    AVO_TRY(jinja_builder_fill(&builder, data, size, missing - left, trusted));
    AVO_TRY(jinja_builder_finish(&builder, out));
    ((jinja_text *)out->text)->markup = text->markup; /* just made */
    return AVO_OK;
}

static avo_status pad_method(jinja_render *render, int method, const jinja_text *text,
                             const jinja_arguments *arguments, jinja_value *out) {
    static const char *const names[] = {"width", "fillchar"};
    jinja_value values[2] = {0};
    const jinja_text *fill = NULL;
    int64_t width;
    AVO_TRY(jinja_parameters(render, jinja_method_text(method), arguments, names,
                             method == METHOD_zfill ? 1 : 2, 1, values));
    if (!jinja_is_integer(values[0]))
        return jinja_fail(render, "a width must be an integer");
    AVO_TRY(jinja_want_integer(render, values[0], 0, &width));
    if (jinja_given(values[1]))
        AVO_TRY(jinja_want_text(render, values[1], "the fill", &fill));
    return jinja_pad(render, text, width, fill, method, out);
}

/* ---- dispatch ---- */

/* Methods whose arguments Python takes only by position. */
static bool takes_names(int method) {
    return method == METHOD_split || method == METHOD_rsplit || method == METHOD_splitlines ||
           method == METHOD_format || method == METHOD_format_map;
}

/* Methods of Markup that would escape what they are given. */
static bool escapes_arguments(int method, const jinja_arguments *arguments) {
    switch (method) {
    case METHOD_join:
    case METHOD_format:
    case METHOD_format_map:
    case METHOD_replace:
        return true;
    case METHOD_center:
    case METHOD_ljust:
    case METHOD_rjust:
        return arguments->count > 1;
    default:
        return false;
    }
}

static avo_status one_argument(jinja_render *render, int method, const jinja_arguments *arguments,
                               size_t required, jinja_value *value) {
    static const char *const names[] = {"argument"};
    return jinja_parameters(render, jinja_method_text(method), arguments, names, 1, required,
                            value);
}

static avo_status replace_method(jinja_render *render, const jinja_text *text,
                                 const jinja_arguments *arguments, jinja_value *out) {
    static const char *const names[] = {"old", "new", "count"};
    jinja_value values[3];
    const jinja_text *from;
    const jinja_text *to;
    int64_t count;
    AVO_TRY(jinja_parameters(render, "replace", arguments, names, 3, 2, values));
    AVO_TRY(jinja_want_text(render, values[0], "replace's first argument", &from));
    AVO_TRY(jinja_want_text(render, values[1], "replace's second argument", &to));
    if (values[2].kind == JINJA_NONE)
        return jinja_fail(render, "replace: count must be an integer");
    AVO_TRY(jinja_want_integer(render, values[2], -1, &count));
    return jinja_replace(render, text, from, to, count, out);
}

static avo_status lines_method(jinja_render *render, const jinja_text *text,
                               const jinja_arguments *arguments, jinja_value *out) {
    static const char *const names[] = {"keepends"};
    jinja_value keep;
    bool keep_ends = false;
    jinja_sequence *lines;
    AVO_TRY(jinja_parameters(render, "splitlines", arguments, names, 1, 0, &keep));
    if (jinja_given(keep))
        AVO_TRY(jinja_truth(render, keep, &keep_ends));
    AVO_TRY(jinja_split_lines(render, text, keep_ends, &lines));
    *out = (jinja_value){.kind = JINJA_LIST, .sequence = lines};
    return AVO_OK;
}

static avo_status split_method(jinja_render *render, int method, const jinja_text *text,
                               const jinja_arguments *arguments, jinja_value *out) {
    static const char *const names[] = {"sep", "maxsplit"};
    jinja_value values[2];
    AVO_TRY(jinja_parameters(render, jinja_method_text(method), arguments, names, 2, 0, values));
    return split(render, text, values, method == METHOD_rsplit, out);
}

static avo_status format_map(jinja_render *render, const jinja_text *text,
                             const jinja_arguments *arguments, jinja_value *out) {
    jinja_value mapping;
    AVO_TRY(one_argument(render, METHOD_format_map, arguments, 1, &mapping));
    if (mapping.kind != JINJA_DICT)
        return jinja_fail(render, "format_map needs a dict");
    jinja_arguments named = {0};
    AVO_TRY(jinja_take(render, mapping.dict->count, sizeof(jinja_keyword), &named.keywords));
    for (size_t i = 0; i < mapping.dict->count; i++)
        if (jinja_is_string(mapping.dict->entries[i].key))
            named.keywords[named.keyword_count++] = (jinja_keyword){
                jinja_view_of(mapping.dict->entries[i].key.text), mapping.dict->entries[i].value};
    return jinja_format_braces(render, text, &named, out);
}

avo_status jinja_text_method(jinja_render *render, int method, const jinja_text *text,
                             const jinja_arguments *arguments, jinja_value *out) {
    jinja_value value;
    if (arguments->keyword_count > 0 && !takes_names(method))
        return jinja_fail(render, "str.%s takes no named arguments", jinja_method_text(method));
    if (text->markup && escapes_arguments(method, arguments))
        return jinja_unsupported(render, "this method on escaped text");
    switch (method) {
    case METHOD_strip:
    case METHOD_lstrip:
    case METHOD_rstrip:
        AVO_TRY(one_argument(render, method, arguments, 0, &value));
        return jinja_strip(render, text, value, method != METHOD_rstrip, method != METHOD_lstrip,
                           out);
    case METHOD_split:
    case METHOD_rsplit:
        return split_method(render, method, text, arguments, out);
    case METHOD_splitlines:
        return lines_method(render, text, arguments, out);
    case METHOD_replace:
        return replace_method(render, text, arguments, out);
    case METHOD_startswith:
    case METHOD_endswith:
        return affix(render, method, text, arguments, out);
    case METHOD_removeprefix:
    case METHOD_removesuffix:
        AVO_TRY(one_argument(render, method, arguments, 1, &value));
        return remove_affix(render, method, text, value, out);
    case METHOD_find:
    case METHOD_rfind:
    case METHOD_index:
    case METHOD_rindex:
    case METHOD_count:
        return find(render, method, text, arguments, out);
    case METHOD_partition:
    case METHOD_rpartition:
        AVO_TRY(one_argument(render, method, arguments, 1, &value));
        return partition(render, text, value, method == METHOD_rpartition, out);
    case METHOD_join:
        AVO_TRY(one_argument(render, method, arguments, 1, &value));
        return jinja_join(render, text, value, false, out);
    case METHOD_center:
    case METHOD_ljust:
    case METHOD_rjust:
    case METHOD_zfill:
        return pad_method(render, method, text, arguments, out);
    case METHOD_format:
        return jinja_format_braces(render, text, arguments, out);
    case METHOD_format_map:
        return format_map(render, text, arguments, out);
    default:
        AVO_TRY(jinja_parameters(render, jinja_method_text(method), arguments, NULL, 0, 0, NULL));
        return jinja_change_case(render, text, method, out);
    }
}
