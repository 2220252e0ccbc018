/* Which methods values have, and those of lists, dicts and other containers. */
#include "tokenizer/template/render_int.h"

#include <string.h>

static const char *const method_names[] = {[METHOD_NONE] = "",
#define JINJA_METHOD_NAME(name) [METHOD_##name] = #name,
                                           JINJA_METHODS(JINJA_METHOD_NAME)
#undef JINJA_METHOD_NAME
};

int jinja_method_number(text_view name) {
    if (name.size < 3)
        return METHOD_NONE;
    for (int i = METHOD_NONE + 1; i < METHOD_LOOP_CYCLE; i++)
        if (text_is(name, method_names[i]))
            return i;
    return METHOD_NONE;
}

const char *jinja_method_text(int method) {
    return method < METHOD_LOOP_CYCLE ? method_names[method] : "loop method";
}

static bool listed(int method, const uint8_t *methods, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (methods[i] == method)
            return true;
    return false;
}
#define LISTED(method, table) listed(method, table, sizeof(table) / sizeof(*(table)))

static jinja_access text_access(int method) {
    static const uint8_t unsupported[] = {METHOD_encode,      METHOD_expandtabs, METHOD_maketrans,
                                          METHOD_translate,   METHOD_casefold,   METHOD_isnumeric,
                                          METHOD_isidentifier};
    static const uint8_t others[] = {/* methods of other types */
                                     METHOD_append,     METHOD_as_integer_ratio,
                                     METHOD_bit_count,  METHOD_bit_length,
                                     METHOD_clear,      METHOD_conjugate,
                                     METHOD_copy,       METHOD_denominator,
                                     METHOD_extend,     METHOD_from_bytes,
                                     METHOD_fromhex,    METHOD_fromkeys,
                                     METHOD_get,        METHOD_hex,
                                     METHOD_imag,       METHOD_insert,
                                     METHOD_is_integer, METHOD_items,
                                     METHOD_keys,       METHOD_numerator,
                                     METHOD_pop,        METHOD_popitem,
                                     METHOD_real,       METHOD_remove,
                                     METHOD_reverse,    METHOD_setdefault,
                                     METHOD_sort,       METHOD_start,
                                     METHOD_step,       METHOD_stop,
                                     METHOD_to_bytes,   METHOD_update,
                                     METHOD_values,     METHOD_isdisjoint,
                                     METHOD_mapping};
    if (LISTED(method, unsupported))
        return ACCESS_UNSUPPORTED;
    return LISTED(method, others) ? ACCESS_NONE : ACCESS_METHOD;
}

jinja_access jinja_method_access(int method, jinja_kind kind) {
    static const uint8_t list_changers[] = {METHOD_append,  METHOD_clear,  METHOD_pop,
                                            METHOD_reverse, METHOD_insert, METHOD_sort,
                                            METHOD_extend,  METHOD_remove};
    static const uint8_t dict_changers[] = {METHOD_clear, METHOD_pop, METHOD_popitem,
                                            METHOD_setdefault, METHOD_update};
    static const uint8_t dict_methods[] = {METHOD_copy, METHOD_get, METHOD_items, METHOD_keys,
                                           METHOD_values};
    static const uint8_t number_attributes[] = {METHOD_as_integer_ratio,
                                                METHOD_bit_count,
                                                METHOD_bit_length,
                                                METHOD_conjugate,
                                                METHOD_denominator,
                                                METHOD_from_bytes,
                                                METHOD_imag,
                                                METHOD_numerator,
                                                METHOD_real,
                                                METHOD_to_bytes,
                                                METHOD_fromhex,
                                                METHOD_hex,
                                                METHOD_is_integer};
    static const uint8_t view_attributes[] = {METHOD_isdisjoint, METHOD_mapping};
    static const uint8_t range_attributes[] = {METHOD_start, METHOD_stop, METHOD_step};
    if (method == METHOD_NONE)
        return ACCESS_NONE;
    switch (kind) {
    case JINJA_STRING:
        return text_access(method);
    case JINJA_LIST:
        if (LISTED(method, list_changers))
            return ACCESS_UNSAFE;
        return method == METHOD_copy || method == METHOD_count || method == METHOD_index
                   ? ACCESS_METHOD
                   : ACCESS_NONE;
    case JINJA_TUPLE:
        return method == METHOD_count || method == METHOD_index ? ACCESS_METHOD : ACCESS_NONE;
    case JINJA_DICT:
        if (LISTED(method, dict_changers))
            return ACCESS_UNSAFE;
        if (method == METHOD_fromkeys)
            return ACCESS_UNSUPPORTED;
        return LISTED(method, dict_methods) ? ACCESS_METHOD : ACCESS_NONE;
    case JINJA_BOOLEAN:
    case JINJA_INTEGER:
    case JINJA_NUMBER:
        return LISTED(method, number_attributes) ? ACCESS_UNSUPPORTED : ACCESS_NONE;
    case JINJA_VIEW:
        return LISTED(method, view_attributes) ? ACCESS_UNSUPPORTED : ACCESS_NONE;
    case JINJA_RANGE:
        if (LISTED(method, range_attributes))
            return ACCESS_UNSUPPORTED;
        return method == METHOD_count || method == METHOD_index ? ACCESS_METHOD : ACCESS_NONE;
    case JINJA_FUNCTION:
        return method == METHOD_fromkeys ? ACCESS_UNSUPPORTED : ACCESS_NONE;
    default:
        return ACCESS_NONE;
    }
}

static avo_status dict_method(jinja_render *render, int method, jinja_dict *dict,
                              const jinja_arguments *arguments, jinja_value *out) {
    const char *name = jinja_method_text(method);
    if (arguments->keyword_count > 0)
        return jinja_fail(render, "dict.%s takes no named arguments", name);
    if (method == METHOD_get) {
        jinja_value values[2];
        jinja_entry *entry;
        static const char *const names[] = {"key", "default"};
        AVO_TRY(jinja_parameters(render, "dict.get", arguments, names, 2, 1, values));
        AVO_TRY(jinja_dict_find(render, dict, values[0], &entry));
        *out = entry != NULL ? entry->value : jinja_given(values[1]) ? values[1] : jinja_none();
        return AVO_OK;
    }
    AVO_TRY(jinja_parameters(render, name, arguments, NULL, 0, 0, NULL));
    if (method == METHOD_copy) {
        jinja_dict *copy;
        AVO_TRY(jinja_dict_new(render, dict->count, &copy));
        for (size_t i = 0; i < dict->count; i++)
            AVO_TRY(jinja_dict_set(render, copy, dict->entries[i].key, dict->entries[i].value));
        *out = (jinja_value){.kind = JINJA_DICT, .dict = copy};
        return AVO_OK;
    }
    jinja_view *view;
    AVO_TRY(jinja_take(render, 1, sizeof(*view), &view));
    view->dict = dict;
    view->kind = method == METHOD_keys     ? JINJA_KEYS
                 : method == METHOD_values ? JINJA_VALUES
                                           : JINJA_ITEMS;
    *out = (jinja_value){.kind = JINJA_VIEW, .view = view};
    return AVO_OK;
}

/* The range [start, stop) that list.index may search. */
static avo_status search_range(jinja_render *render, const jinja_value *bounds, size_t count,
                               size_t *begin, size_t *end) {
    int64_t at[2];
    AVO_TRY(jinja_want_integer(render, bounds[0], 0, &at[0]));
    AVO_TRY(jinja_want_integer(render, bounds[1], INT64_MAX, &at[1]));
    for (int i = 0; i < 2; i++) {
        if (at[i] < 0)
            at[i] = at[i] < -(int64_t)count ? 0 : at[i] + (int64_t)count;
        at[i] = at[i] > (int64_t)count ? (int64_t)count : at[i];
    }
    *begin = (size_t)at[0];
    *end = (size_t)at[1];
    return AVO_OK;
}

static avo_status sequence_method(jinja_render *render, int method, jinja_value object,
                                  const jinja_arguments *arguments, jinja_value *out) {
    const char *name = jinja_method_text(method);
    static const char *const names[] = {"value", "start", "stop"};
    jinja_value values[3] = {0};
    if (arguments->keyword_count > 0)
        return jinja_fail(render, "%s takes no named arguments", name);
    jinja_sequence *items;
    AVO_TRY(jinja_collect(render, object, &items));
    if (method == METHOD_copy) {
        AVO_TRY(jinja_parameters(render, name, arguments, NULL, 0, 0, NULL));
        *out = (jinja_value){.kind = JINJA_LIST, .sequence = items};
        return AVO_OK;
    }
    size_t limit = method == METHOD_index && object.kind != JINJA_RANGE ? 3 : 1;
    AVO_TRY(jinja_parameters(render, name, arguments, names, limit, 1, values));
    size_t begin;
    size_t end;
    AVO_TRY(search_range(render, &values[1], items->count, &begin, &end));
    int64_t count = 0;
    for (size_t i = begin; i < end; i++) {
        bool equal;
        AVO_TRY(jinja_equal(render, items->items[i], values[0], &equal));
        count += equal;
        if (equal && method == METHOD_index) {
            *out = jinja_integer((int64_t)i);
            return AVO_OK;
        }
    }
    if (method == METHOD_index)
        return jinja_fail(render, "index: the value is not in the %s", jinja_type_name(object));
    *out = jinja_integer(count);
    return AVO_OK;
}

avo_status jinja_call_method(jinja_render *render, const jinja_method *method,
                             const jinja_arguments *arguments, jinja_value *out) {
    switch ((jinja_kind)method->object.kind) {
    case JINJA_STRING:
        return jinja_text_method(render, method->method, method->object.text, arguments, out);
    case JINJA_DICT:
        return dict_method(render, method->method, method->object.dict, arguments, out);
    default:
        return sequence_method(render, method->method, method->object, arguments, out);
    }
}
