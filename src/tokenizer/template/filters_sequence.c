/* Filters on lists, dicts and other iterables. */
#include "tokenizer/template/render_int.h"

#include <string.h>

/* jinja_filter_entry.option of min and max, and of select and its kin. */
enum { EXTREME_MIN, EXTREME_MAX };
enum { SELECT_ATTRIBUTE = 1, SELECT_NEGATE = 2 };

static avo_status as_list(jinja_sequence *sequence, jinja_value *out) {
    *out = (jinja_value){.kind = JINJA_LIST, .sequence = sequence};
    return AVO_OK;
}

static avo_status truth_of(jinja_render *render, jinja_value value, bool *truth) {
    *truth = false;
    return jinja_given(value) ? jinja_truth(render, value, truth) : AVO_OK;
}

avo_status jinja_lower_if_text(jinja_render *render, jinja_value value, jinja_value *out) {
    *out = value;
    return jinja_is_string(value) ? jinja_change_case(render, value.text, METHOD_lower, out)
                                  : AVO_OK;
}

static bool all_digits(text_view text) {
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    return text.size > 0 && text.size < 18;
}

avo_status jinja_attribute_path(jinja_render *render, jinja_value item, jinja_value path,
                                jinja_value fallback, jinja_value *out) {
    *out = item;
    if (!jinja_given(path) || path.kind == JINJA_NONE)
        return AVO_OK;
    bool has_fallback = jinja_given(fallback) && fallback.kind != JINJA_NONE;
    size_t begin = 0;
    for (bool last = false; !last;) {
        jinja_value part = path;
        last = true;
        if (jinja_is_string(path)) {
            size_t dot = jinja_text_find(path.text, TEXT_LITERAL("."), begin);
            last = dot == SIZE_MAX;
            size_t end = last ? path.text->size : dot;
            text_view name = {path.text->data + begin, end - begin};
            if (all_digits(name)) {
                int64_t index = 0;
                for (size_t i = 0; i < name.size; i++)
                    index = index * 10 + (name.data[i] - '0');
                part = jinja_integer(index);
            } else if (begin > 0 || !last) {
                AVO_TRY(jinja_text_part(render, path.text, begin, end, &part));
            }
            begin = end + 1;
        }
        AVO_TRY(jinja_get_item(render, *out, part, out));
        if (has_fallback && out->kind == JINJA_UNDEFINED)
            *out = fallback;
    }
    return AVO_OK;
}

/* ---- Sorting: a stable merge sort, so that errors and order are Python's ---- */

typedef struct sorter {
    jinja_render *render;
    jinja_value *items, *keys;
    jinja_value *other_items, *other_keys;
    bool reverse;
} sorter;

static avo_status goes_first(sorter *s, size_t right, size_t left, bool *first) {
    int order;
    bool ordered;
    jinja_value *keys = s->keys != NULL ? s->keys : s->items;
    /* Python sorts reversed by reversing twice: equal items keep their order either way. */
    AVO_TRY(jinja_order(s->render, keys[right], keys[left], &order, &ordered));
    *first = ordered && (s->reverse ? order > 0 : order < 0);
    return AVO_OK;
}

static void move(sorter *s, size_t to, size_t from) {
    s->other_items[to] = s->items[from];
    if (s->keys != NULL)
        s->other_keys[to] = s->keys[from];
}

static avo_status merge(sorter *s, size_t begin, size_t middle, size_t end) {
    size_t left = begin;
    size_t right = middle;
    for (size_t to = begin; to < end; to++) {
        bool take_right = left == middle;
        if (left < middle && right < end)
            AVO_TRY(goes_first(s, right, left, &take_right));
        else if (right == end)
            take_right = false;
        move(s, to, take_right ? right++ : left++);
    }
    memcpy(s->items + begin, s->other_items + begin, (end - begin) * sizeof(*s->items));
    if (s->keys != NULL)
        memcpy(s->keys + begin, s->other_keys + begin, (end - begin) * sizeof(*s->keys));
    return AVO_OK;
}

avo_status jinja_sort(jinja_render *render, jinja_value *items, jinja_value *keys, size_t count,
                      bool reverse) {
    sorter s = {.render = render, .items = items, .keys = keys, .reverse = reverse};
    AVO_TRY(jinja_take(render, count, sizeof(*items), &s.other_items));
    AVO_TRY(jinja_take(render, count, sizeof(*items), &s.other_keys));
    for (size_t width = 1; width < count; width *= 2)
        for (size_t begin = 0; begin + width < count; begin += 2 * width)
            AVO_TRY(merge(&s, begin, begin + width,
                          begin + 2 * width < count ? begin + 2 * width : count));
    return AVO_OK;
}

/* "a,b.c": a list of the values of several paths. */
static avo_status multi_key(jinja_render *render, jinja_value item, jinja_value attribute,
                            bool case_sensitive, jinja_value *out) {
    jinja_sequence *parts;
    AVO_TRY(jinja_sequence_new(render, 1, &parts));
    size_t begin = 0;
    for (bool last = false; !last;) {
        jinja_value path = attribute;
        jinja_value key;
        last = true;
        if (jinja_is_string(attribute)) {
            size_t comma = jinja_text_find(attribute.text, TEXT_LITERAL(","), begin);
            last = comma == SIZE_MAX;
            size_t end = last ? attribute.text->size : comma;
            AVO_TRY(jinja_text_part(render, attribute.text, begin, end, &path));
            begin = end + 1;
        }
        AVO_TRY(jinja_attribute_path(render, item, path, (jinja_value){0}, &key));
        if (!case_sensitive)
            AVO_TRY(jinja_lower_if_text(render, key, &key));
        AVO_TRY(jinja_sequence_add(render, parts, key));
    }
    return as_list(parts, out);
}

static avo_status filter_sort(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    const jinja_value *values = call->values;
    bool reverse;
    bool case_sensitive;
    AVO_TRY(truth_of(render, values[0], &reverse));
    AVO_TRY(truth_of(render, values[1], &case_sensitive));
    jinja_sequence *items;
    AVO_TRY(jinja_collect(render, call->subject, &items));
    jinja_value *keys;
    AVO_TRY(jinja_take(render, items->count, sizeof(*keys), &keys));
    for (size_t i = 0; i < items->count; i++)
        AVO_TRY(multi_key(render, items->items[i], values[2], case_sensitive, &keys[i]));
    AVO_TRY(jinja_sort(render, items->items, keys, items->count, reverse));
    return as_list(items, out);
}

static avo_status filter_dictsort(jinja_render *render, const jinja_filter_call *call,
                                  jinja_value *out) {
    const jinja_value *values = call->values;
    if (call->subject.kind != JINJA_DICT)
        return jinja_fail(render, "dictsort needs a dict, not %s", jinja_type_name(call->subject));
    bool case_sensitive;
    bool reverse;
    AVO_TRY(truth_of(render, values[0], &case_sensitive));
    AVO_TRY(truth_of(render, values[2], &reverse));
    bool by_value = false;
    if (jinja_given(values[1])) {
        by_value = jinja_is_string(values[1]) && text_is(jinja_view_of(values[1].text), "value");
        if (!by_value &&
            !(jinja_is_string(values[1]) && text_is(jinja_view_of(values[1].text), "key")))
            return jinja_fail(render, "dictsort: by must be 'key' or 'value'");
    }
    const jinja_dict *dict = call->subject.dict;
    jinja_sequence *pairs;
    jinja_value *keys;
    AVO_TRY(jinja_sequence_new(render, dict->count, &pairs));
    AVO_TRY(jinja_take(render, dict->count, sizeof(*keys), &keys));
    for (size_t i = 0; i < dict->count; i++) {
        const jinja_entry *entry = &dict->entries[i];
        AVO_TRY(jinja_charge(render, 1));
        AVO_TRY(jinja_pair(render, entry->key, entry->value, &pairs->items[i]));
        keys[i] = by_value ? entry->value : entry->key;
        if (!case_sensitive)
            AVO_TRY(jinja_lower_if_text(render, keys[i], &keys[i]));
    }
    pairs->count = dict->count;
    AVO_TRY(jinja_sort(render, pairs->items, keys, pairs->count, reverse));
    return as_list(pairs, out);
}

static avo_status filter_groupby(jinja_render *render, const jinja_filter_call *call,
                                 jinja_value *out) {
    const jinja_value *values = call->values;
    bool case_sensitive;
    AVO_TRY(truth_of(render, values[2], &case_sensitive));
    jinja_sequence *items;
    jinja_sequence *groups;
    jinja_value *keys;
    AVO_TRY(jinja_collect(render, call->subject, &items));
    AVO_TRY(jinja_take(render, items->count, sizeof(*keys), &keys));
    for (size_t i = 0; i < items->count; i++) {
        AVO_TRY(jinja_attribute_path(render, items->items[i], values[0], values[1], &keys[i]));
        if (!case_sensitive)
            AVO_TRY(jinja_lower_if_text(render, keys[i], &keys[i]));
    }
    AVO_TRY(jinja_sort(render, items->items, keys, items->count, false));
    AVO_TRY(jinja_sequence_new(render, 4, &groups));
    jinja_sequence *group = NULL;
    for (size_t i = 0; i < items->count; i++) {
        bool same = false;
        if (i > 0)
            AVO_TRY(jinja_equal(render, keys[i - 1], keys[i], &same));
        if (!same) {
            jinja_value grouper;
            jinja_value pair;
            jinja_value list;
            AVO_TRY(jinja_sequence_new(render, 4, &group));
            AVO_TRY(as_list(group, &list));
            AVO_TRY(jinja_attribute_path(render, items->items[i], values[0], values[1], &grouper));
            AVO_TRY(jinja_pair(render, case_sensitive ? keys[i] : grouper, list, &pair));
            pair.sequence->grouped = true;
            AVO_TRY(jinja_sequence_add(render, groups, pair));
        }
        AVO_TRY(jinja_sequence_add(render, group, items->items[i]));
    }
    return as_list(groups, out);
}

/* ---- One value out of many ---- */

static avo_status filter_first(jinja_render *render, const jinja_filter_call *call,
                               jinja_value *out) {
    jinja_iterator *iterator;
    bool more;
    AVO_TRY(jinja_iterate(render, call->subject, &iterator));
    AVO_TRY(jinja_next(render, iterator, out, &more));
    return more ? AVO_OK
                : jinja_undefined_make(render, (text_view){0}, NULL, "first of nothing", out);
}

static avo_status reversed(jinja_render *render, jinja_value value, jinja_iterator **out) {
    jinja_sequence *items;
    switch ((jinja_kind)value.kind) {
    case JINJA_DICT:
    case JINJA_VIEW:
        AVO_TRY(jinja_iterator_new(render, JINJA_WALK_DICT_BACK, "dict_reversekeyiterator", out));
        (*out)->dict = value.kind == JINJA_DICT ? value.dict : value.view->dict;
        (*out)->view = value.kind == JINJA_DICT ? JINJA_KEYS : value.view->kind;
        return AVO_OK;
    case JINJA_UNDEFINED:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_STRING:
        AVO_TRY(jinja_collect(render, value, &items));
        AVO_TRY(jinja_iterator_new(render, JINJA_WALK_BACK, "reversed", out));
        (*out)->items = items->items;
        (*out)->count = items->count;
        return AVO_OK;
    default:
        return jinja_fail(render, "%s cannot be reversed", jinja_type_name(value));
    }
}

static avo_status filter_last(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    jinja_iterator *iterator;
    bool more;
    AVO_TRY(reversed(render, call->subject, &iterator));
    AVO_TRY(jinja_next(render, iterator, out, &more));
    return more ? AVO_OK
                : jinja_undefined_make(render, (text_view){0}, NULL, "last of nothing", out);
}

static avo_status filter_reverse(jinja_render *render, const jinja_filter_call *call,
                                 jinja_value *out) {
    jinja_value value = call->subject;
    if (jinja_is_string(value))
        return jinja_slice(render, value, jinja_none(), jinja_none(), jinja_integer(-1), out);
    jinja_sequence *items;
    if (value.kind == JINJA_ITERATOR) {
        AVO_TRY(jinja_collect(render, value, &items));
        for (size_t i = 0; i < items->count / 2; i++) {
            jinja_value other = items->items[items->count - 1 - i];
            items->items[items->count - 1 - i] = items->items[i];
            items->items[i] = other;
        }
        return as_list(items, out);
    }
    jinja_iterator *iterator;
    AVO_TRY(reversed(render, value, &iterator));
    *out = (jinja_value){.kind = JINJA_ITERATOR, .iterator = iterator};
    return AVO_OK;
}

static avo_status filter_extreme(jinja_render *render, const jinja_filter_call *call,
                                 jinja_value *out) {
    const bool largest = call->option == EXTREME_MAX;
    const jinja_value *values = call->values;
    bool case_sensitive;
    AVO_TRY(truth_of(render, values[0], &case_sensitive));
    jinja_sequence *items;
    AVO_TRY(jinja_collect(render, call->subject, &items));
    if (items->count == 0)
        return jinja_undefined_make(render, (text_view){0}, NULL, "min or max of nothing", out);
    jinja_value best = {0};
    for (size_t i = 0; i < items->count; i++) {
        jinja_value key;
        int order = -1;
        bool ordered = true;
        AVO_TRY(jinja_attribute_path(render, items->items[i], values[1], (jinja_value){0}, &key));
        if (!case_sensitive)
            AVO_TRY(jinja_lower_if_text(render, key, &key));
        if (i > 0)
            AVO_TRY(jinja_order(render, key, best, &order, &ordered));
        if (i == 0 || (ordered && (largest ? order > 0 : order < 0))) {
            best = key;
            *out = items->items[i];
        }
    }
    return AVO_OK;
}

static avo_status filter_sum(jinja_render *render, const jinja_filter_call *call,
                             jinja_value *out) {
    const jinja_value *values = call->values;
    jinja_iterator *iterator;
    AVO_TRY(jinja_iterate(render, call->subject, &iterator));
    *out = jinja_given(values[1]) ? values[1] : jinja_integer(0);
    if (jinja_is_string(*out))
        return jinja_fail(render, "sum does not add strings");
    for (;;) {
        jinja_value item;
        bool more;
        AVO_TRY(jinja_next(render, iterator, &item, &more));
        if (!more)
            return AVO_OK;
        AVO_TRY(jinja_attribute_path(render, item, values[0], (jinja_value){0}, &item));
        AVO_TRY(jinja_math(render, '+', *out, item, out));
    }
}

static avo_status filter_join(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    const jinja_value *values = call->values;
    jinja_value separator;
    AVO_TRY(jinja_text_new(render, (text_view){"", 0}, JINJA_TRUSTED, &separator));
    if (jinja_given(values[0]))
        AVO_TRY(jinja_to_text(render, values[0], &separator));
    return jinja_join_filter(render, call->subject, separator.text, values[1], out);
}

static avo_status filter_list(jinja_render *render, const jinja_filter_call *call,
                              jinja_value *out) {
    jinja_sequence *items;
    AVO_TRY(jinja_collect(render, call->subject, &items));
    return as_list(items, out);
}

/* ---- Generators ---- */

static avo_status generator(jinja_render *render, jinja_walk walk, jinja_value source,
                            jinja_iterator **iterator, jinja_value *out) {
    AVO_TRY(jinja_iterator_new(render, walk, "generator", iterator));
    (*iterator)->subject = source;
    *out = (jinja_value){.kind = JINJA_ITERATOR, .iterator = *iterator};
    return AVO_OK;
}

static avo_status filter_items(jinja_render *render, const jinja_filter_call *call,
                               jinja_value *out) {
    jinja_iterator *iterator;
    AVO_TRY(generator(render, JINJA_WALK_DICT, call->subject, &iterator, out));
    iterator->view = JINJA_ITEMS;
    return AVO_OK;
}

/* Names the filter or test that the generator applies, from argument number `at`. */
static avo_status take_operation(jinja_render *render, const jinja_arguments *arguments, size_t at,
                                 bool filter, jinja_iterator *iterator) {
    if (at >= arguments->count)
        return AVO_OK;
    (void)render;
    if (!jinja_is_string(arguments->items[at])) {
        iterator->bad_arguments = true;
        return AVO_OK;
    }
    iterator->operation_name = jinja_view_of(arguments->items[at].text);
    iterator->operation = filter ? jinja_filter_number(iterator->operation_name)
                                 : jinja_test_number(iterator->operation_name);
    iterator->arguments = *arguments;
    iterator->arguments.items += at + 1;
    iterator->arguments.count -= at + 1;
    return AVO_OK;
}

static avo_status filter_map(jinja_render *render, const jinja_filter_call *call,
                             jinja_value *out) {
    const jinja_arguments *arguments = call->arguments;
    jinja_iterator *iterator;
    AVO_TRY(generator(render, JINJA_WALK_MAP, call->subject, &iterator, out));
    if (arguments->count == 0) {
        for (size_t i = 0; i < arguments->keyword_count; i++) {
            const jinja_keyword *keyword = &arguments->keywords[i];
            if (text_is(keyword->name, "attribute"))
                iterator->attribute = keyword->value;
            else if (text_is(keyword->name, "default"))
                iterator->fallback = keyword->value;
            else
                iterator->bad_arguments = true;
        }
        iterator->bad_arguments |= !jinja_given(iterator->attribute);
        return AVO_OK;
    }
    return take_operation(render, arguments, 0, true, iterator);
}

static avo_status filter_select(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    const bool attribute = (call->option & SELECT_ATTRIBUTE) != 0;
    jinja_iterator *iterator;
    AVO_TRY(generator(render, JINJA_WALK_SELECT, call->subject, &iterator, out));
    iterator->negate = (call->option & SELECT_NEGATE) != 0;
    iterator->bad_arguments = attribute && call->arguments->count == 0;
    if (iterator->bad_arguments)
        return AVO_OK;
    if (attribute)
        iterator->attribute = call->arguments->items[0];
    return take_operation(render, call->arguments, attribute ? 1 : 0, false, iterator);
}

static avo_status filter_unique(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    const jinja_value *values = call->values;
    jinja_iterator *iterator;
    AVO_TRY(generator(render, JINJA_WALK_UNIQUE, call->subject, &iterator, out));
    AVO_TRY(truth_of(render, values[0], &iterator->case_sensitive));
    iterator->attribute = values[1];
    return jinja_dict_new(render, 8, &iterator->seen);
}

/* batch and slice: the walk is the option. */
static avo_status filter_pieces(jinja_render *render, const jinja_filter_call *call,
                                jinja_value *out) {
    const jinja_value *values = call->values;
    bool batch = call->option == JINJA_WALK_BATCH;
    jinja_iterator *iterator;
    int64_t width;
    AVO_TRY(jinja_want_integer(render, values[0], 0, &width));
    if (width <= 0)
        return jinja_unsupported(render, batch ? "batch without a size" : "slice without a number");
    AVO_TRY(generator(render, (jinja_walk)call->option, call->subject, &iterator, out));
    iterator->width = (size_t)width;
    if (jinja_given(values[1]) && values[1].kind != JINJA_NONE)
        iterator->fill = values[1];
    return AVO_OK;
}

const jinja_filter_entry jinja_sequence_filters[] = {
    {"batch", filter_pieces, {"linecount", "fill_with"}, 1, JINJA_WALK_BATCH},
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}, 0, 0},
    {"first", filter_first, {NULL}, 0, 0},
    {"groupby", filter_groupby, {"attribute", "default", "case_sensitive"}, 1, 0},
    {"items", filter_items, {NULL}, 0, 0},
    {"join", filter_join, {"d", "attribute"}, 0, 0},
    {"last", filter_last, {NULL}, 0, 0},
    {"list", filter_list, {NULL}, 0, 0},
    {"map", filter_map, {NULL}, JINJA_OWN_ARGUMENTS, 0},
    {"max", filter_extreme, {"case_sensitive", "attribute"}, 0, EXTREME_MAX},
    {"min", filter_extreme, {"case_sensitive", "attribute"}, 0, EXTREME_MIN},
    {"reject", filter_select, {NULL}, JINJA_OWN_ARGUMENTS, SELECT_NEGATE},
    {"rejectattr", filter_select, {NULL}, JINJA_OWN_ARGUMENTS, SELECT_ATTRIBUTE | SELECT_NEGATE},
    {"reverse", filter_reverse, {NULL}, 0, 0},
    {"select", filter_select, {NULL}, JINJA_OWN_ARGUMENTS, 0},
    {"selectattr", filter_select, {NULL}, JINJA_OWN_ARGUMENTS, SELECT_ATTRIBUTE},
    {"slice", filter_pieces, {"slices", "fill_with"}, 1, JINJA_WALK_SLICE},
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}, 0, 0},
    {"sum", filter_sum, {"attribute", "start"}, 0, 0},
    {"unique", filter_unique, {"case_sensitive", "attribute"}, 0, 0},
    {NULL, NULL, {NULL}, 0, 0},
};
