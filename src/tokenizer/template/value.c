/* Truth, equality, order and membership of values, as Python has them. */
#include "tokenizer/template/render_int.h"

#include <math.h>
#include <string.h>

const char *jinja_type_name(jinja_value value) {
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    static const char *const names[] = {
        [JINJA_MISSING] = "Undefined", [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "None",         [JINJA_BOOLEAN] = "bool",
        [JINJA_INTEGER] = "int",       [JINJA_NUMBER] = "float",
        [JINJA_STRING] = "str",        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",       [JINJA_DICT] = "dict",
        [JINJA_RANGE] = "range",       [JINJA_NAMESPACE] = "namespace",
        [JINJA_LOOP] = "loop",         [JINJA_MACRO] = "macro",
        [JINJA_METHOD] = "method",     [JINJA_FUNCTION] = "function",
    };
    if (value.kind == JINJA_VIEW)
        return views[value.view->kind];
    return value.kind == JINJA_ITERATOR ? value.iterator->name : names[value.kind];
}

avo_status jinja_undefined_make(jinja_render *render, text_view name, const char *of,
                                const char *why, jinja_value *out) {
    jinja_undefined *undefined;
    AVO_TRY(jinja_take(render, 1, sizeof(*undefined), &undefined));
    *undefined = (jinja_undefined){.name = name, .of = of, .why = why};
    *out = (jinja_value){.kind = JINJA_UNDEFINED, .undefined = undefined};
    return AVO_OK;
}

avo_status jinja_truth(jinja_render *render, jinja_value value, bool *truth) {
    size_t length;
    switch ((jinja_kind)value.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *truth = false;
        return AVO_OK;
    case JINJA_BOOLEAN:
        *truth = value.boolean;
        return AVO_OK;
    case JINJA_INTEGER:
        *truth = value.integer != 0;
        return AVO_OK;
    case JINJA_NUMBER:
        *truth = value.number != 0;
        return AVO_OK;
    case JINJA_STRING:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_RANGE:
    case JINJA_LOOP:
        AVO_TRY(jinja_length(render, value, &length));
        *truth = length > 0;
        return AVO_OK;
    default:
        *truth = true;
        return AVO_OK;
    }
}

bool jinja_same(jinja_value a, jinja_value b) {
    if (a.kind != b.kind)
        return false;
    switch ((jinja_kind)a.kind) {
    case JINJA_MISSING:
    case JINJA_NONE:
        return true;
    case JINJA_BOOLEAN:
        return a.boolean == b.boolean;
    case JINJA_INTEGER: /* small integers and literals are one object; others have no identity */
        return a.integer == b.integer;
    case JINJA_NUMBER:
        return false;
    case JINJA_FUNCTION:
        return a.function == b.function;
    default:
        return a.text == b.text; /* the pointer, whatever it points to */
    }
}

/* An integer against a float, exactly. */
static int compare_mixed(int64_t integer, double number, bool *ordered) {
    *ordered = !isnan(number);
    if (isnan(number))
        return 1;
    if (number >= 9223372036854775808.0)
        return -1;
    if (number < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)number;
    if (integer != whole)
        return integer < whole ? -1 : 1;
    double rest = number - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int compare_numbers(jinja_value a, jinja_value b, bool *ordered) {
    *ordered = true;
    if (jinja_is_integer(a) && jinja_is_integer(b)) {
        int64_t x = jinja_integer_of(a);
        int64_t y = jinja_integer_of(b);
        return x < y ? -1 : x > y ? 1 : 0;
    }
    if (jinja_is_integer(a))
        return compare_mixed(jinja_integer_of(a), b.number, ordered);
    if (jinja_is_integer(b))
        return -compare_mixed(jinja_integer_of(b), a.number, ordered);
    *ordered = !isnan(a.number) && !isnan(b.number);
    return a.number < b.number ? -1 : a.number > b.number ? 1 : *ordered ? 0 : 1;
}

static int compare_texts(const jinja_text *a, const jinja_text *b) {
    size_t common = a->size < b->size ? a->size : b->size;
    int order = common == 0 ? 0 : memcmp(a->data, b->data, common);
    if (order != 0)
        return order < 0 ? -1 : 1;
    return a->size < b->size ? -1 : a->size > b->size ? 1 : 0;
}

static avo_status enter_value(jinja_render *render) {
    if (render->value_depth >= JINJA_VALUE_DEPTH_MAX)
        return jinja_limit(render, "values nested too deeply");
    render->value_depth++;
    return AVO_OK;
}

static avo_status equal_dicts(jinja_render *render, const jinja_dict *a, const jinja_dict *b,
                              bool *equal) {
    *equal = a->count == b->count;
    for (size_t i = 0; i < a->count && *equal; i++) {
        jinja_entry *other;
        AVO_TRY(jinja_dict_find(render, b, a->entries[i].key, &other));
        *equal = other != NULL;
        if (*equal)
            AVO_TRY(jinja_equal(render, a->entries[i].value, other->value, equal));
    }
    return AVO_OK;
}

static avo_status equal_containers(jinja_render *render, jinja_value a, jinja_value b,
                                   bool *equal) {
    *equal = false;
    if (a.kind == JINJA_DICT)
        return equal_dicts(render, a.dict, b.dict, equal);
    if (a.sequence->count != b.sequence->count)
        return AVO_OK;
    *equal = true;
    for (size_t i = 0; i < a.sequence->count && *equal; i++)
        AVO_TRY(jinja_equal(render, a.sequence->items[i], b.sequence->items[i], equal));
    return AVO_OK;
}

static bool equal_ranges(const jinja_range *a, const jinja_range *b) {
    return a->count == b->count &&
           (a->count == 0 || (a->start == b->start && (a->count == 1 || a->step == b->step)));
}

avo_status jinja_equal(jinja_render *render, jinja_value a, jinja_value b, bool *equal) {
    AVO_TRY(jinja_charge(render, 1));
    bool ordered;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *equal = compare_numbers(a, b, &ordered) == 0 && ordered;
        return AVO_OK;
    }
    *equal = false;
    if (a.kind != b.kind)
        return AVO_OK;
    switch ((jinja_kind)a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *equal = true;
        return AVO_OK;
    case JINJA_STRING:
        AVO_TRY(jinja_charge_bytes(render, a.text->size));
        *equal = text_equal(jinja_view_of(a.text), jinja_view_of(b.text));
        return AVO_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (jinja_same(a, b)) {
            *equal = true;
            return AVO_OK;
        }
        AVO_TRY(enter_value(render));
        AVO_TRY(equal_containers(render, a, b, equal));
        render->value_depth--;
        return AVO_OK;
    case JINJA_RANGE:
        *equal = equal_ranges(a.range, b.range);
        return AVO_OK;
    case JINJA_METHOD:
        *equal =
            a.method->method == b.method->method && jinja_same(a.method->object, b.method->object);
        return AVO_OK;
    case JINJA_VIEW:
        *equal = jinja_same(a, b);
        if (*equal || a.view->kind == JINJA_VALUES || b.view->kind == JINJA_VALUES)
            return AVO_OK;
        return jinja_unsupported(render, "comparing the views of two dicts");
    default:
        *equal = jinja_same(a, b);
        return AVO_OK;
    }
}

static avo_status order_sequences(jinja_render *render, const jinja_sequence *a,
                                  const jinja_sequence *b, int *order, bool *ordered) {
    *ordered = true;
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        bool equal;
        AVO_TRY(jinja_equal(render, a->items[i], b->items[i], &equal));
        if (!equal)
            return jinja_order(render, a->items[i], b->items[i], order, ordered);
    }
    *order = a->count < b->count ? -1 : a->count > b->count ? 1 : 0;
    return AVO_OK;
}

avo_status jinja_order(jinja_render *render, jinja_value a, jinja_value b, int *order,
                       bool *ordered) {
    AVO_TRY(jinja_charge(render, 1));
    *ordered = true;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *order = compare_numbers(a, b, ordered);
        return AVO_OK;
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        AVO_TRY(jinja_charge_bytes(render, a.text->size));
        *order = compare_texts(a.text, b.text);
        return AVO_OK;
    }
    if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) {
        AVO_TRY(enter_value(render));
        AVO_TRY(order_sequences(render, a.sequence, b.sequence, order, ordered));
        render->value_depth--;
        return AVO_OK;
    }
    return jinja_fail(render, "%s and %s cannot be ordered", jinja_type_name(a),
                      jinja_type_name(b));
}

static avo_status contains_any(jinja_render *render, jinja_value container, jinja_value item,
                               bool *contains) {
    jinja_iterator *iterator;
    AVO_TRY(jinja_iterate(render, container, &iterator));
    *contains = false;
    for (;;) {
        jinja_value candidate;
        bool more;
        AVO_TRY(jinja_next(render, iterator, &candidate, &more));
        if (!more)
            return AVO_OK;
        AVO_TRY(jinja_equal(render, candidate, item, contains));
        if (*contains || jinja_same(candidate, item)) {
            *contains = true;
            return AVO_OK;
        }
    }
}

static avo_status contains_key(jinja_render *render, const jinja_dict *dict, jinja_value key,
                               bool *contains) {
    jinja_entry *entry;
    AVO_TRY(jinja_dict_find(render, dict, key, &entry));
    *contains = entry != NULL;
    return AVO_OK;
}

avo_status jinja_contains(jinja_render *render, jinja_value container, jinja_value item,
                          bool *contains) {
    switch ((jinja_kind)container.kind) {
    case JINJA_STRING:
        if (!jinja_is_string(item))
            return jinja_fail(render, "'in' with a string needs a string, not %s",
                              jinja_type_name(item));
        AVO_TRY(jinja_charge_bytes(render, container.text->size));
        *contains = jinja_text_find(container.text, jinja_view_of(item.text), 0) != SIZE_MAX;
        return AVO_OK;
    case JINJA_DICT:
        return contains_key(render, container.dict, item, contains);
    case JINJA_VIEW:
        if (container.view->kind == JINJA_KEYS)
            return contains_key(render, container.view->dict, item, contains);
        return contains_any(render, container, item, contains);
    case JINJA_LOOP:
    case JINJA_NAMESPACE:
        return jinja_fail(render, "'in' does not work on %s", jinja_type_name(container));
    default:
        return contains_any(render, container, item, contains);
    }
}

avo_status jinja_length(jinja_render *render, jinja_value value, size_t *length) {
    switch ((jinja_kind)value.kind) {
    case JINJA_UNDEFINED:
        *length = 0;
        return AVO_OK;
    case JINJA_STRING:
        *length = value.text->length;
        return AVO_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *length = value.sequence->count;
        return AVO_OK;
    case JINJA_DICT:
        *length = value.dict->count;
        return AVO_OK;
    case JINJA_VIEW:
        *length = value.view->dict->count;
        return AVO_OK;
    case JINJA_RANGE:
        *length = value.range->count;
        return AVO_OK;
    case JINJA_LOOP:
        return jinja_loop_length(render, value.loop, length);
    default:
        return jinja_fail(render, "%s has no length", jinja_type_name(value));
    }
}
