/* Calls: arguments, macros, and what can be called. */
#include "tokenizer/template/render_int.h"

#include <string.h>

static avo_status add_star_star(jinja_render *render, jinja_value mapping,
                                jinja_arguments *arguments) {
    if (mapping.kind != JINJA_DICT)
        return jinja_fail(render, "** needs a dict, not %s", jinja_type_name(mapping));
    size_t count = arguments->keyword_count;
    jinja_keyword *keywords;
    AVO_TRY(jinja_take(render, count + mapping.dict->count, sizeof(*keywords), &keywords));
    if (count > 0)
        memcpy(keywords, arguments->keywords, count * sizeof(*keywords));
    for (size_t i = 0; i < mapping.dict->count; i++) {
        const jinja_entry *entry = &mapping.dict->entries[i];
        if (!jinja_is_string(entry->key))
            return jinja_fail(render, "** needs strings as keys, not %s",
                              jinja_type_name(entry->key));
        for (size_t j = 0; j < count; j++)
            if (text_equal(keywords[j].name, jinja_view_of(entry->key.text)))
                return jinja_fail(render, "argument '%.*s' is given twice",
                                  TEXT_ARGUMENT(keywords[j].name));
        keywords[arguments->keyword_count++] =
            (jinja_keyword){jinja_view_of(entry->key.text), entry->value};
    }
    arguments->keywords = keywords;
    return AVO_OK;
}

static avo_status add_star(jinja_render *render, jinja_value more, jinja_arguments *arguments) {
    jinja_sequence *items;
    AVO_TRY(jinja_collect(render, more, &items));
    jinja_value *all;
    AVO_TRY(jinja_take(render, arguments->count + items->count, sizeof(*all), &all));
    if (arguments->count > 0)
        memcpy(all, arguments->items, arguments->count * sizeof(*all));
    if (items->count > 0)
        memcpy(all + arguments->count, items->items, items->count * sizeof(*all));
    arguments->items = all;
    arguments->count += items->count;
    return AVO_OK;
}

avo_status jinja_evaluate_arguments(jinja_render *render, const jinja_call_node *node,
                                    jinja_arguments *out) {
    *out = (jinja_arguments){0};
    size_t count = 0;
    size_t keyword_count = 0;
    for (const jinja_node *n = node->arguments; n != NULL; n = n->next)
        count++;
    for (const jinja_node *n = node->keywords; n != NULL; n = n->next)
        keyword_count++;
    if (count > 0)
        AVO_TRY(jinja_take(render, count, sizeof(*out->items), &out->items));
    if (keyword_count > 0)
        AVO_TRY(jinja_take(render, keyword_count, sizeof(*out->keywords), &out->keywords));
    for (const jinja_node *n = node->arguments; n != NULL; n = n->next)
        AVO_TRY(jinja_evaluate(render, n, &out->items[out->count++]));
    jinja_value value;
    if (node->star != NULL) {
        AVO_TRY(jinja_evaluate(render, node->star, &value));
        AVO_TRY(add_star(render, value, out));
    }
    for (const jinja_node *n = node->keywords; n != NULL; n = n->next) {
        jinja_keyword *keyword = &out->keywords[out->keyword_count++];
        keyword->name = jinja_view_of(render->chat->symbols[n->symbol].text);
        AVO_TRY(jinja_evaluate(render, n->operand, &keyword->value));
    }
    if (node->star_star != NULL) {
        AVO_TRY(jinja_evaluate(render, node->star_star, &value));
        AVO_TRY(add_star_star(render, value, out));
    }
    return AVO_OK;
}

avo_status jinja_parameters(jinja_render *render, const char *what,
                            const jinja_arguments *arguments, const char *const *names,
                            size_t count, size_t required, jinja_value *values) {
    if (arguments->count > count)
        return jinja_fail(render, "%s takes at most %zu arguments, not %zu", what, count,
                          arguments->count);
    for (size_t i = 0; i < count; i++)
        values[i] = i < arguments->count ? arguments->items[i] : (jinja_value){0};
    for (size_t k = 0; k < arguments->keyword_count; k++) {
        const jinja_keyword *keyword = &arguments->keywords[k];
        size_t at = 0;
        while (at < count && !text_is(keyword->name, names[at]))
            at++;
        if (at == count || jinja_given(values[at]))
            return jinja_fail(render, "%s: argument '%.*s' is %s", what,
                              TEXT_ARGUMENT(keyword->name),
                              at == count ? "unknown" : "given twice");
        values[at] = keyword->value;
    }
    for (size_t i = 0; i < required; i++)
        if (!jinja_given(values[i]))
            return jinja_fail(render, "%s: argument '%s' is missing", what, names[i]);
    return AVO_OK;
}

avo_status jinja_want_integer(jinja_render *render, jinja_value value, int64_t fallback,
                              int64_t *out) {
    *out = fallback;
    if (!jinja_given(value) || value.kind == JINJA_NONE)
        return AVO_OK;
    if (!jinja_is_integer(value))
        return jinja_fail(render, "expected an integer, not %s", jinja_type_name(value));
    *out = jinja_integer_of(value);
    return AVO_OK;
}

avo_status jinja_want_text(jinja_render *render, jinja_value value, const char *what,
                           const jinja_text **out) {
    if (!jinja_is_string(value))
        return jinja_fail(render, "%s must be a string, not %s", what, jinja_type_name(value));
    *out = value.text;
    return AVO_OK;
}

/* ---- Macros ---- */

/* Takes the keyword `name` out of `arguments`; *out is MISSING when it is not there. */
static void take_keyword(jinja_arguments *arguments, text_view name, jinja_value *out) {
    *out = (jinja_value){0};
    for (size_t i = 0; i < arguments->keyword_count; i++) {
        if (!text_equal(arguments->keywords[i].name, name))
            continue;
        *out = arguments->keywords[i].value;
        arguments->keyword_count--;
        memmove(&arguments->keywords[i], &arguments->keywords[i + 1],
                (arguments->keyword_count - i) * sizeof(jinja_keyword));
        return;
    }
}

/* caller, kwargs and varargs, for macros that use them; what is left over is an error. */
static avo_status bind_special(jinja_render *render, const jinja_macro *macro,
                               jinja_arguments *arguments, bool found_caller, jinja_scope *scope) {
    const jinja_macro_node *node = macro->node;
    const chat_template *chat = render->chat;
    if (node->takes_caller && !found_caller) {
        jinja_value caller;
        take_keyword(arguments, TEXT_LITERAL("caller"), &caller);
        if (!jinja_given(caller) || caller.kind == JINJA_NONE)
            AVO_TRY(jinja_undefined_make(render, TEXT_LITERAL("caller"), NULL, "no caller is there",
                                         &caller));
        AVO_TRY(jinja_bind(render, scope, chat->symbol_caller, caller));
    }
    if (node->takes_keywords) {
        jinja_dict *rest;
        AVO_TRY(jinja_dict_new(render, arguments->keyword_count, &rest));
        for (size_t i = 0; i < arguments->keyword_count; i++) {
            jinja_value key;
            AVO_TRY(jinja_text_new(render, arguments->keywords[i].name, JINJA_UNTRUSTED, &key));
            AVO_TRY(jinja_dict_set(render, rest, key, arguments->keywords[i].value));
        }
        AVO_TRY(jinja_bind(render, scope, chat->symbol_kwargs,
                           (jinja_value){.kind = JINJA_DICT, .dict = rest}));
    } else if (arguments->keyword_count > 0) {
        return jinja_fail(render, "macro '%.*s' takes no argument '%.*s'",
                          TEXT_ARGUMENT(macro->name), TEXT_ARGUMENT(arguments->keywords[0].name));
    }
    size_t taken = node->parameter_count;
    size_t left = arguments->count > taken ? arguments->count - taken : 0;
    if (!node->takes_arguments)
        return left == 0 ? AVO_OK
                         : jinja_fail(render, "macro '%.*s' takes at most %zu arguments",
                                      TEXT_ARGUMENT(macro->name), taken);
    jinja_sequence *rest;
    AVO_TRY(jinja_sequence_new(render, left, &rest));
    for (size_t i = 0; i < left; i++)
        rest->items[rest->count++] = arguments->items[taken + i];
    return jinja_bind(render, scope, chat->symbol_varargs,
                      (jinja_value){.kind = JINJA_TUPLE, .sequence = rest});
}

/* The parameters; those not given stay MISSING until the defaults are evaluated. */
static avo_status bind_parameters(jinja_render *render, const jinja_macro *macro,
                                  jinja_arguments *arguments, jinja_scope *scope) {
    const jinja_macro_node *node = macro->node;
    bool found_caller = arguments->count >= node->parameter_count && node->explicit_caller;
    for (uint32_t i = 0; i < node->parameter_count; i++) {
        jinja_value value;
        uint32_t symbol = node->parameters[i];
        if (i < arguments->count) {
            value = arguments->items[i];
        } else {
            take_keyword(arguments, jinja_view_of(render->chat->symbols[symbol].text), &value);
            found_caller |= symbol == render->chat->symbol_caller;
        }
        AVO_TRY(jinja_bind(render, scope, symbol, value));
    }
    return bind_special(render, macro, arguments, found_caller, scope);
}

/* Defaults are evaluated inside the macro, in order: each sees the parameters before it. */
static avo_status fill_defaults(jinja_render *render, const jinja_macro_node *node) {
    jinja_scope *scope = render->scope;
    for (uint32_t i = 0; i < node->parameter_count; i++) {
        jinja_value value = {0};
        for (uint32_t j = 0; j < scope->count; j++)
            if (scope->bindings[j].symbol == node->parameters[i])
                value = scope->bindings[j].value;
        if (jinja_given(value))
            continue;
        const jinja_text *name = render->chat->symbols[node->parameters[i]].text;
        if (node->defaults[i] != NULL)
            AVO_TRY(jinja_evaluate(render, node->defaults[i], &value));
        else
            AVO_TRY(jinja_undefined_make(render, jinja_view_of(name), NULL, NULL, &value));
        AVO_TRY(jinja_bind(render, scope, node->parameters[i], value));
    }
    return AVO_OK;
}

static avo_status call_macro(jinja_render *render, const jinja_macro *macro,
                             jinja_arguments *arguments, jinja_value *out) {
    const jinja_macro_node *node = macro->node;
    if (render->calls >= TEMPLATE_DEPTH_MAX)
        return jinja_limit(render, "macros call each other too deeply");
    render->calls++;
    jinja_scope *around = render->scope;
    jinja_scope *scope = NULL;
    AVO_TRY(jinja_scope_new(render, macro->scope, node->hidden, node->hidden_count, &scope));
    AVO_TRY(bind_parameters(render, macro, arguments, scope));
    render->scope = scope;
    AVO_TRY(fill_defaults(render, node));
    AVO_TRY(jinja_capture(render, node->body, out));
    render->scope = around;
    render->calls--;
    return AVO_OK;
}

/* ---- Other callables ---- */

static avo_status loop_cycle(jinja_render *render, const jinja_loop *loop,
                             const jinja_arguments *arguments, jinja_value *out) {
    if (arguments->count == 0 || arguments->keyword_count > 0)
        return jinja_fail(render, "loop.cycle needs at least one value");
    *out = arguments->items[loop->index % arguments->count];
    return AVO_OK;
}

static avo_status loop_changed(jinja_render *render, jinja_loop *loop,
                               const jinja_arguments *arguments, jinja_value *out) {
    jinja_sequence *values;
    AVO_TRY(jinja_sequence_new(render, arguments->count, &values));
    if (arguments->count > 0)
        memcpy(values->items, arguments->items, arguments->count * sizeof(jinja_value));
    values->count = arguments->count;
    jinja_value now = {.kind = JINJA_TUPLE, .sequence = values};
    bool same;
    AVO_TRY(jinja_equal(render, loop->changed, now, &same));
    *out = jinja_boolean(!same);
    loop->changed = now;
    return AVO_OK;
}

/* loop(…) of a recursive loop: its body over other items. */
static avo_status call_loop(jinja_render *render, const jinja_loop *loop,
                            const jinja_arguments *arguments, jinja_value *out) {
    if (!loop->node->loop.recursive)
        return jinja_fail(render, "only a loop marked 'recursive' can be called");
    if (arguments->count != 1 || arguments->keyword_count > 0)
        return jinja_fail(render, "loop(…) needs one argument");
    if (render->calls >= TEMPLATE_DEPTH_MAX)
        return jinja_limit(render, "loops call themselves too deeply");
    render->calls++;
    jinja_scope *around = render->scope;
    jinja_builder *output = render->output;
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    render->scope = loop->scope;
    render->output = &builder;
    AVO_TRY(jinja_run_loop(render, loop->node, arguments->items[0], loop->depth + 1));
    render->output = output;
    render->scope = around;
    render->calls--;
    return jinja_builder_finish(&builder, out);
}

avo_status jinja_call(jinja_render *render, jinja_value callee, jinja_arguments *arguments,
                      jinja_value *out) {
    switch ((jinja_kind)callee.kind) {
    case JINJA_MACRO:
        return call_macro(render, callee.macro, arguments, out);
    case JINJA_FUNCTION:
        return jinja_call_function(render, callee.function, arguments, out);
    case JINJA_LOOP:
        return call_loop(render, callee.loop, arguments, out);
    case JINJA_METHOD:
        if (callee.method->method == METHOD_LOOP_CYCLE)
            return loop_cycle(render, callee.method->object.loop, arguments, out);
        if (callee.method->method == METHOD_LOOP_CHANGED)
            return loop_changed(render, callee.method->object.loop, arguments, out);
        return jinja_call_method(render, callee.method, arguments, out);
    default:
        return jinja_fail(render, "%s cannot be called", jinja_type_name(callee));
    }
}
