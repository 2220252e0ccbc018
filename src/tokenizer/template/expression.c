/* Expressions: names, attributes, items, logic. */
#include "tokenizer/template/render_int.h"

#include <string.h>

avo_status jinja_lookup(jinja_render *render, uint32_t symbol, jinja_value *out) {
    for (const jinja_scope *scope = render->scope; scope != NULL; scope = scope->parent) {
        for (uint32_t i = 0; i < scope->count; i++) {
            if (scope->bindings[i].symbol != symbol)
                continue;
            *out = scope->bindings[i].value;
            if (out->kind != JINJA_MISSING)
                return AVO_OK;
            return jinja_undefined_make(render, jinja_view_of(render->chat->symbols[symbol].text),
                                        NULL, NULL, out);
        }
        AVO_TRY(jinja_charge(render, scope->count / 16));
    }
    *out = render->globals[symbol];
    if (out->kind != JINJA_MISSING)
        return AVO_OK;
    return jinja_undefined_make(render, jinja_view_of(render->chat->symbols[symbol].text), NULL,
                                NULL, out);
}

avo_status jinja_fail_undefined(jinja_render *render, jinja_value value) {
    const jinja_undefined *undefined = value.undefined;
    if (undefined->why != NULL)
        return jinja_fail(render, "%s", undefined->why);
    if (undefined->of != NULL)
        return jinja_fail(render, "%s has no '%.*s'", undefined->of,
                          TEXT_ARGUMENT(undefined->name));
    return jinja_fail(render, "'%.*s' is undefined", TEXT_ARGUMENT(undefined->name));
}

static avo_status bound_method(jinja_render *render, jinja_value object, int method,
                               jinja_value *out) {
    jinja_method *bound;
    AVO_TRY(jinja_take(render, 1, sizeof(*bound), &bound));
    *bound = (jinja_method){object, method};
    *out = (jinja_value){.kind = JINJA_METHOD, .method = bound};
    return AVO_OK;
}

static avo_status macro_attribute(jinja_render *render, const jinja_macro *macro, text_view name,
                                  bool *found, jinja_value *out) {
    static const char *const others[] = {"arguments", "catch_kwargs", "catch_varargs", "caller",
                                         "explicit_caller"};
    *found = text_is(name, "name");
    if (*found)
        return jinja_text_new(render, macro->name, JINJA_TRUSTED, out);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (text_is(name, others[i]))
            return jinja_unsupported(render, "this attribute of a macro");
    return AVO_OK;
}

/* Python's getattr() as far as the sandbox shows it; *found says whether there is one. */
static avo_status python_attribute(jinja_render *render, jinja_value object, int method,
                                   text_view name, bool *found, jinja_value *out) {
    *found = false;
    jinja_entry *entry;
    switch ((jinja_kind)object.kind) {
    case JINJA_UNDEFINED:
        return jinja_fail_undefined(render, object);
    case JINJA_LOOP:
        AVO_TRY(jinja_loop_attribute(render, object.loop, name, out));
        *found = out->kind != JINJA_UNDEFINED || out->undefined->of == NULL;
        return AVO_OK;
    case JINJA_MACRO:
        return macro_attribute(render, object.macro, name, found, out);
    case JINJA_NAMESPACE: {
        jinja_text key = {.data = name.data, .size = name.size};
        AVO_TRY(jinja_dict_find(render, object.dict, jinja_string(&key), &entry));
        *found = entry != NULL;
        if (*found)
            *out = entry->value;
        return AVO_OK;
    }
    case JINJA_TUPLE:
        *found = object.sequence->grouped && (text_is(name, "grouper") || text_is(name, "list"));
        if (!*found)
            break;
        *out = object.sequence->items[name.data[0] == 'g' ? 0 : 1];
        return AVO_OK;
    default:
        break;
    }
    switch (jinja_method_access(method, (jinja_kind)object.kind)) {
    case ACCESS_NONE:
        return AVO_OK;
    case ACCESS_METHOD:
        *found = true;
        return bound_method(render, object, method, out);
    case ACCESS_UNSAFE:
        *found = true;
        return jinja_undefined_make(
            render, name, NULL, "the sandbox allows no method that changes a list or dict", out);
    case ACCESS_UNSUPPORTED:
        break;
    }
    return jinja_fail(render, "'%.*s' of %s is not supported", TEXT_ARGUMENT(name),
                      jinja_type_name(object));
}

/* An index of a sequence, counted from the end when negative. */
static bool index_of(int64_t index, size_t length, size_t *at) {
    if (index < 0)
        index += (int64_t)length;
    *at = (size_t)index;
    return index >= 0 && (size_t)index < length;
}

/* Python's object[key]; *found is false where that raises TypeError, KeyError or IndexError. */
static avo_status python_item(jinja_render *render, jinja_value object, jinja_value key,
                              bool *found, jinja_value *out) {
    size_t at;
    size_t begin;
    *found = false;
    if (object.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(render, object);
    if (object.kind == JINJA_DICT) {
        jinja_entry *entry = NULL;
        if (jinja_hashable(key))
            AVO_TRY(jinja_dict_find(render, object.dict, key, &entry));
        *found = entry != NULL;
        if (*found)
            *out = entry->value;
        return AVO_OK;
    }
    if (!jinja_is_integer(key))
        return AVO_OK;
    int64_t index = jinja_integer_of(key);
    switch ((jinja_kind)object.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        *found = index_of(index, object.sequence->count, &at);
        if (*found)
            *out = object.sequence->items[at];
        return AVO_OK;
    case JINJA_RANGE:
        *found = index_of(index, object.range->count, &at);
        if (*found)
            *out = jinja_integer(object.range->start + (int64_t)at * object.range->step);
        return AVO_OK;
    case JINJA_STRING:
        *found = index_of(index, object.text->length, &at);
        if (!*found)
            return AVO_OK;
        AVO_TRY(jinja_text_offset(render, object.text, at, &begin));
        return jinja_text_part(render, object.text, begin,
                               begin + jinja_character_bytes(object.text, begin), out);
    default:
        return AVO_OK;
    }
}

static avo_status attribute_then_item(jinja_render *render, jinja_value object, int method,
                                      const jinja_text *name, jinja_value *out) {
    bool found;
    AVO_TRY(python_attribute(render, object, method, jinja_view_of(name), &found, out));
    if (!found)
        AVO_TRY(python_item(render, object, jinja_string(name), &found, out));
    if (found)
        return AVO_OK;
    return jinja_undefined_make(render, jinja_view_of(name), jinja_type_name(object), NULL, out);
}

avo_status jinja_get_attribute(jinja_render *render, jinja_value object, const jinja_symbol *symbol,
                               jinja_value *out) {
    return attribute_then_item(render, object, symbol->method, symbol->text, out);
}

avo_status jinja_get_attribute_text(jinja_render *render, jinja_value object,
                                    const jinja_text *name, jinja_value *out) {
    return attribute_then_item(render, object, jinja_method_number(jinja_view_of(name)), name, out);
}

avo_status jinja_get_item(jinja_render *render, jinja_value object, jinja_value key,
                          jinja_value *out) {
    bool found;
    AVO_TRY(python_item(render, object, key, &found, out));
    if (!found && jinja_is_string(key)) {
        text_view name = jinja_view_of(key.text);
        AVO_TRY(python_attribute(render, object, jinja_method_number(name), name, &found, out));
    }
    if (found)
        return AVO_OK;
    text_view name = jinja_is_string(key) ? jinja_view_of(key.text) : TEXT_LITERAL("such element");
    return jinja_undefined_make(render, name, jinja_type_name(object), NULL, out);
}

static avo_status evaluate_optional(jinja_render *render, const jinja_node *node,
                                    jinja_value *out) {
    *out = jinja_none();
    return node == NULL ? AVO_OK : jinja_evaluate(render, node, out);
}

static avo_status evaluate_item(jinja_render *render, const jinja_node *node, jinja_value *out) {
    jinja_value object;
    AVO_TRY(jinja_evaluate(render, node->item.object, &object));
    const jinja_node *key = node->item.key;
    if (node->kind == NODE_ATTRIBUTE) {
        render->node = node;
        return jinja_get_attribute(render, object, &render->chat->symbols[node->symbol], out);
    }
    if (key->kind == NODE_SLICE) {
        jinja_value start;
        jinja_value stop;
        jinja_value step;
        AVO_TRY(evaluate_optional(render, key->slice.start, &start));
        AVO_TRY(evaluate_optional(render, key->slice.stop, &stop));
        AVO_TRY(evaluate_optional(render, key->slice.step, &step));
        render->node = node;
        if (object.kind == JINJA_UNDEFINED)
            return jinja_fail_undefined(render, object);
        return jinja_slice(render, object, start, stop, step, out);
    }
    jinja_value evaluated;
    AVO_TRY(jinja_evaluate(render, key, &evaluated));
    render->node = node;
    return jinja_get_item(render, object, evaluated, out);
}

static avo_status evaluate_call(jinja_render *render, const jinja_node *node, jinja_value *out) {
    jinja_value callee;
    jinja_arguments arguments;
    AVO_TRY(jinja_evaluate(render, node->call.subject, &callee));
    AVO_TRY(jinja_evaluate_arguments(render, &node->call, &arguments));
    render->node = node;
    if (callee.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(render, callee);
    return jinja_call(render, callee, &arguments, out);
}

static avo_status evaluate_filter_or_test(jinja_render *render, const jinja_node *node,
                                          jinja_value *out) {
    jinja_value subject;
    jinja_arguments arguments;
    bool filter = node->kind == NODE_FILTER;
    AVO_TRY(jinja_evaluate(render, node->call.subject, &subject));
    AVO_TRY(jinja_evaluate_arguments(render, &node->call, &arguments));
    render->node = node;
    if (node->what < 0)
        return jinja_fail(render, "no %s named '%.*s'", filter ? "filter" : "test",
                          TEXT_ARGUMENT(jinja_view_of(render->chat->symbols[node->symbol].text)));
    if (filter)
        return jinja_filter(render, node->what, subject, &arguments, out);
    bool result;
    AVO_TRY(jinja_test(render, node->what, subject, &arguments, &result));
    *out = jinja_boolean(result);
    return AVO_OK;
}

/* The value of the first operand that decides. */
static avo_status evaluate_logic(jinja_render *render, const jinja_node *node, jinja_value *out) {
    bool stop_at = node->kind == NODE_OR;
    for (const jinja_node *operand = node->operand; operand != NULL; operand = operand->next) {
        AVO_TRY(jinja_evaluate(render, operand, out));
        bool truth;
        if (operand->next == NULL)
            break;
        AVO_TRY(jinja_truth(render, *out, &truth));
        if (truth == stop_at)
            break;
    }
    return AVO_OK;
}

static avo_status evaluate_math(jinja_render *render, const jinja_node *node, jinja_value *out) {
    AVO_TRY(jinja_evaluate(render, node->operand, out));
    for (const jinja_node *operand = node->operand->next; operand != NULL;
         operand = operand->next) {
        jinja_value right;
        AVO_TRY(jinja_evaluate(render, operand->operand, &right));
        render->node = operand;
        bool formats = operand->what == '%' && jinja_is_string(*out);
        if (out->kind == JINJA_UNDEFINED || (right.kind == JINJA_UNDEFINED && !formats))
            return jinja_fail_undefined(render, out->kind == JINJA_UNDEFINED ? *out : right);
        AVO_TRY(jinja_math(render, operand->what, *out, right, out));
    }
    return AVO_OK;
}

static avo_status evaluate_comparison(jinja_render *render, const jinja_node *node,
                                      jinja_value *out) {
    jinja_value left;
    bool result = true;
    AVO_TRY(jinja_evaluate(render, node->operand, &left));
    for (const jinja_node *operand = node->operand->next; operand != NULL && result;
         operand = operand->next) {
        jinja_value right;
        AVO_TRY(jinja_evaluate(render, operand->operand, &right));
        render->node = operand;
        AVO_TRY(jinja_compare(render, operand->what, left, right, &result));
        left = right;
    }
    *out = jinja_boolean(result);
    return AVO_OK;
}

static avo_status evaluate_concatenation(jinja_render *render, const jinja_node *node,
                                         jinja_value *out) {
    jinja_builder builder;
    jinja_value value;
    jinja_builder_init(&builder, render);
    AVO_TRY(jinja_evaluate(render, node->operand, &value));
    AVO_TRY(jinja_print(&builder, value));
    for (const jinja_node *operand = node->operand->next; operand != NULL;
         operand = operand->next) {
        AVO_TRY(jinja_evaluate(render, operand->operand, &value));
        render->node = operand;
        AVO_TRY(jinja_print(&builder, value));
    }
    return jinja_builder_finish(&builder, out);
}

static avo_status evaluate_sequence(jinja_render *render, const jinja_node *node,
                                    jinja_value *out) {
    size_t count = 0;
    for (const jinja_node *item = node->operand; item != NULL; item = item->next)
        count++;
    jinja_sequence *sequence;
    AVO_TRY(jinja_sequence_new(render, count, &sequence));
    for (const jinja_node *item = node->operand; item != NULL; item = item->next) {
        jinja_value value;
        AVO_TRY(jinja_evaluate(render, item, &value));
        sequence->items[sequence->count++] = value;
    }
    *out = (jinja_value){.kind = node->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE,
                         .sequence = sequence};
    return AVO_OK;
}

static avo_status evaluate_dict(jinja_render *render, const jinja_node *node, jinja_value *out) {
    jinja_dict *dict;
    AVO_TRY(jinja_dict_new(render, 0, &dict));
    for (const jinja_node *pair = node->operand; pair != NULL; pair = pair->next) {
        jinja_value key;
        jinja_value value;
        AVO_TRY(jinja_evaluate(render, pair->item.object, &key));
        AVO_TRY(jinja_evaluate(render, pair->item.key, &value));
        render->node = pair;
        AVO_TRY(jinja_dict_set(render, dict, key, value));
    }
    *out = (jinja_value){.kind = JINJA_DICT, .dict = dict};
    return AVO_OK;
}

static avo_status evaluate_sign(jinja_render *render, const jinja_node *node, jinja_value *out) {
    jinja_value value;
    AVO_TRY(jinja_evaluate(render, node->operand, &value));
    render->node = node;
    if (value.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(render, value);
    bool negate = node->kind == NODE_NEGATE;
    if (value.kind == JINJA_NUMBER) {
        *out = value;
        out->number = negate ? -value.number : value.number;
        return AVO_OK;
    }
    if (!jinja_is_integer(value))
        return jinja_fail(render, "%s has no sign", jinja_type_name(value));
    int64_t integer = jinja_integer_of(value);
    if (negate && __builtin_sub_overflow((int64_t)0, integer, &integer))
        return jinja_unsupported(render, "an integer of more than 64 bits");
    *out = (jinja_value){.kind = JINJA_INTEGER, .trusted = value.trusted, .integer = integer};
    return AVO_OK;
}

static avo_status evaluate_inline_if(jinja_render *render, const jinja_node *node,
                                     jinja_value *out) {
    bool truth;
    AVO_TRY(jinja_evaluate_truth(render, node->choice.condition, &truth));
    if (truth)
        return jinja_evaluate(render, node->choice.then, out);
    if (node->choice.otherwise != NULL)
        return jinja_evaluate(render, node->choice.otherwise, out);
    return jinja_undefined_make(render, (text_view){0}, NULL,
                                "the inline if was false and has no else", out);
}

static avo_status evaluate_kind(jinja_render *render, const jinja_node *node, jinja_value *out) {
    bool truth;
    switch (node->kind) {
    case NODE_CONSTANT:
        *out = node->constant;
        return AVO_OK;
    case NODE_NAME:
        return jinja_lookup(render, node->symbol, out);
    case NODE_ATTRIBUTE:
    case NODE_ITEM:
        return evaluate_item(render, node, out);
    case NODE_CALL:
        return evaluate_call(render, node, out);
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_filter_or_test(render, node, out);
    case NODE_NOT:
        AVO_TRY(jinja_evaluate_truth(render, node->operand, &truth));
        *out = jinja_boolean(!truth);
        return AVO_OK;
    case NODE_NEGATE:
    case NODE_POSITIVE:
        return evaluate_sign(render, node, out);
    case NODE_AND:
    case NODE_OR:
        return evaluate_logic(render, node, out);
    case NODE_MATH:
        return evaluate_math(render, node, out);
    case NODE_COMPARE:
        return evaluate_comparison(render, node, out);
    case NODE_CONCATENATE:
        return evaluate_concatenation(render, node, out);
    case NODE_INLINE_IF:
        return evaluate_inline_if(render, node, out);
    case NODE_LIST:
    case NODE_TUPLE:
        return evaluate_sequence(render, node, out);
    case NODE_DICT:
        return evaluate_dict(render, node, out);
    case NODE_CAPTURED:
        *out = render->captured;
        return AVO_OK;
    default:
        return jinja_fail(render, "no expression");
    }
}

avo_status jinja_evaluate(jinja_render *render, const jinja_node *node, jinja_value *out) {
    AVO_TRY(jinja_charge(render, 1));
    render->node = node;
    if (render->depth >= JINJA_EVALUATION_DEPTH_MAX)
        return jinja_limit(render, "evaluations nested too deeply");
    render->depth++;
    AVO_TRY(evaluate_kind(render, node, out));
    render->depth--;
    return AVO_OK;
}

avo_status jinja_evaluate_truth(jinja_render *render, const jinja_node *node, bool *truth) {
    jinja_value value;
    AVO_TRY(jinja_evaluate(render, node, &value));
    return jinja_truth(render, value, truth);
}
