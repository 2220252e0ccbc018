/* Statements: output, assignments, loops, macros. */
#include "tokenizer/template/render_int.h"

#include <string.h>

avo_status jinja_scope_new(jinja_render *render, jinja_scope *parent, const uint32_t *hidden,
                           uint32_t hidden_count, jinja_scope **out) {
    jinja_scope *scope = *out;
    bool reuse = scope != NULL && !scope->captured;
    if (!reuse) {
        AVO_TRY(jinja_take(render, 1, sizeof(*scope), &scope));
        scope->bindings = scope->first;
        scope->capacity = sizeof(scope->first) / sizeof(*scope->first);
    }
    scope->count = 0;
    scope->parent = parent;
    for (uint32_t i = 0; i < hidden_count; i++)
        AVO_TRY(jinja_bind(render, scope, hidden[i], (jinja_value){0}));
    *out = scope;
    return AVO_OK;
}

avo_status jinja_bind(jinja_render *render, jinja_scope *scope, uint32_t symbol,
                      jinja_value value) {
    AVO_TRY(jinja_charge(render, scope->count / 16));
    for (uint32_t i = 0; i < scope->count; i++) {
        if (scope->bindings[i].symbol == symbol) {
            scope->bindings[i].value = value;
            return AVO_OK;
        }
    }
    if (scope->count == scope->capacity) {
        jinja_binding *bindings;
        AVO_TRY(jinja_take(render, (size_t)scope->capacity * 2, sizeof(*bindings), &bindings));
        memcpy(bindings, scope->bindings, scope->count * sizeof(*bindings));
        scope->bindings = bindings;
        scope->capacity *= 2;
    }
    scope->bindings[scope->count++] = (jinja_binding){symbol, value};
    return AVO_OK;
}

static avo_status assign_attribute(jinja_render *render, const jinja_node *target,
                                   jinja_value value) {
    jinja_value object;
    AVO_TRY(jinja_lookup(render, target->symbol, &object));
    const jinja_text *name = render->chat->symbols[target->what].text;
    if (object.kind != JINJA_NAMESPACE)
        return jinja_fail(render, "attributes can be set on a namespace only, not on %s",
                          jinja_type_name(object));
    if (name->size > 0 && name->data[0] == '_')
        return jinja_fail(render, "a namespace attribute must not begin with '_'");
    return jinja_dict_set(render, object.dict, jinja_string(name), value);
}

static avo_status assign_tuple(jinja_render *render, const jinja_node *target, jinja_value value) {
    jinja_iterator *iterator;
    AVO_TRY(jinja_iterate(render, value, &iterator));
    bool more;
    jinja_value item;
    for (const jinja_node *part = target->operand; part != NULL; part = part->next) {
        AVO_TRY(jinja_next(render, iterator, &item, &more));
        if (!more)
            return jinja_fail(render, "too few values to unpack");
        AVO_TRY(jinja_assign(render, part, item));
    }
    AVO_TRY(jinja_next(render, iterator, &item, &more));
    return more ? jinja_fail(render, "too many values to unpack") : AVO_OK;
}

avo_status jinja_assign(jinja_render *render, const jinja_node *target, jinja_value value) {
    switch (target->kind) {
    case NODE_NAME:
        return jinja_bind(render, render->scope, target->symbol, value);
    case NODE_NAMESPACE_REFERENCE:
        return assign_attribute(render, target, value);
    default:
        return assign_tuple(render, target, value);
    }
}

avo_status jinja_capture(jinja_render *render, const jinja_node *statements, jinja_value *out) {
    jinja_builder builder;
    jinja_builder *output = render->output;
    jinja_builder_init(&builder, render);
    render->output = &builder;
    AVO_TRY(jinja_run(render, statements));
    render->output = output;
    return jinja_builder_finish(&builder, out);
}

/* ---- Loops ---- */

/* Whoever keeps a scope keeps those around it too. */
static void capture_scopes(jinja_scope *scope) {
    for (; scope != NULL && !scope->captured; scope = scope->parent)
        scope->captured = true;
}

/* Whether the loop's `if` keeps an item; the item is visible there under its name. */
static avo_status keeps(jinja_render *render, jinja_loop *loop, jinja_value item, bool *keep) {
    *keep = true;
    if (loop->node->loop.test == NULL || loop->tested)
        return AVO_OK;
    jinja_scope *scope = render->scope;
    AVO_TRY(jinja_scope_new(render, loop->scope, NULL, 0, &loop->test_scope));
    render->scope = loop->test_scope;
    AVO_TRY(jinja_assign(render, loop->node->loop.target, item));
    AVO_TRY(jinja_evaluate_truth(render, loop->node->loop.test, keep));
    render->scope = scope;
    return AVO_OK;
}

/* The next item that the loop's test keeps. */
static avo_status fetch(jinja_render *render, jinja_loop *loop, jinja_value *item, bool *more) {
    for (;;) {
        AVO_TRY(jinja_next(render, loop->iterator, item, more));
        bool keep = false;
        if (*more)
            AVO_TRY(keeps(render, loop, *item, &keep));
        if (keep || !*more)
            return AVO_OK;
    }
}

static avo_status peek(jinja_render *render, jinja_loop *loop, bool *more) {
    *more = loop->has_after;
    if (loop->has_after || loop->finished)
        return AVO_OK;
    AVO_TRY(fetch(render, loop, &loop->after, more));
    loop->has_after = *more;
    loop->finished = !*more;
    return AVO_OK;
}

avo_status jinja_loop_length(jinja_render *render, jinja_loop *loop, size_t *length) {
    if (loop->known_length == SIZE_MAX) {
        /* Walk the rest into a list, and go on from that list. */
        jinja_sequence *rest;
        AVO_TRY(jinja_sequence_new(render, 8, &rest));
        for (bool more = !loop->finished; more;) {
            jinja_value item;
            AVO_TRY(fetch(render, loop, &item, &more));
            if (more)
                AVO_TRY(jinja_sequence_add(render, rest, item));
        }
        loop->known_length = loop->index + 1 + (loop->has_after ? 1 : 0) + rest->count;
        AVO_TRY(jinja_iterate(render, (jinja_value){.kind = JINJA_LIST, .sequence = rest},
                              &loop->iterator));
        loop->tested = true;
    }
    *length = loop->known_length;
    return AVO_OK;
}

static avo_status loop_neighbour(jinja_render *render, jinja_loop *loop, bool next,
                                 jinja_value *out) {
    bool more = loop->index > 0;
    if (next)
        AVO_TRY(peek(render, loop, &more));
    if (!more)
        return jinja_undefined_make(render, (text_view){0}, NULL,
                                    next ? "there is no next item" : "there is no previous item",
                                    out);
    *out = next ? loop->after : loop->before;
    return AVO_OK;
}

avo_status jinja_loop_attribute(jinja_render *render, jinja_loop *loop, text_view name,
                                jinja_value *out) {
    size_t length = 0;
    int64_t index = (int64_t)loop->index;
    if (text_is(name, "length") || text_is(name, "revindex") || text_is(name, "revindex0"))
        AVO_TRY(jinja_loop_length(render, loop, &length));
    if (text_is(name, "index"))
        *out = jinja_integer(index + 1);
    else if (text_is(name, "index0"))
        *out = jinja_integer(index);
    else if (text_is(name, "first"))
        *out = jinja_boolean(index == 0);
    else if (text_is(name, "length"))
        *out = jinja_integer((int64_t)length);
    else if (text_is(name, "revindex"))
        *out = jinja_integer((int64_t)length - index);
    else if (text_is(name, "revindex0"))
        *out = jinja_integer((int64_t)length - index - 1);
    else if (text_is(name, "depth") || text_is(name, "depth0"))
        *out = jinja_integer(loop->depth + (name.size == 5 ? 1 : 0));
    else if (text_is(name, "previtem") || text_is(name, "nextitem"))
        return loop_neighbour(render, loop, name.data[0] == 'n', out);
    else if (text_is(name, "cycle") || text_is(name, "changed")) {
        jinja_method *method;
        AVO_TRY(jinja_take(render, 1, sizeof(*method), &method));
        *method = (jinja_method){{.kind = JINJA_LOOP, .loop = loop},
                                 name.size == 5 ? METHOD_LOOP_CYCLE : METHOD_LOOP_CHANGED};
        *out = (jinja_value){.kind = JINJA_METHOD, .method = method};
    } else if (text_is(name, "last")) {
        bool more;
        AVO_TRY(peek(render, loop, &more));
        *out = jinja_boolean(!more);
    } else
        return jinja_undefined_make(render, name, "loop", NULL, out);
    return AVO_OK;
}

/* Takes the next item, as loop.last may already have done. */
static avo_status step(jinja_render *render, jinja_loop *loop, bool *more) {
    jinja_value item;
    if (loop->has_after) {
        item = loop->after;
        loop->has_after = false;
        *more = true;
    } else if (loop->finished) {
        *more = false;
    } else {
        AVO_TRY(fetch(render, loop, &item, more));
    }
    if (!*more)
        return AVO_OK;
    loop->index++;
    loop->before = loop->current;
    loop->current = item;
    return AVO_OK;
}

static avo_status run_iterations(jinja_render *render, jinja_loop *loop, bool *any) {
    const jinja_loop_node *node = &loop->node->loop;
    jinja_scope *around = render->scope;
    jinja_scope *inner = NULL;
    *any = false;
    for (;;) {
        bool more;
        AVO_TRY(step(render, loop, &more));
        if (!more)
            break;
        AVO_TRY(jinja_scope_new(render, around, node->hidden, node->hidden_count, &inner));
        render->scope = inner;
        AVO_TRY(jinja_bind(render, inner, render->chat->symbol_loop,
                           (jinja_value){.kind = JINJA_LOOP, .loop = loop}));
        AVO_TRY(jinja_assign(render, node->target, loop->current));
        AVO_TRY(jinja_run(render, node->body));
        render->scope = around;
        /* jinja2 notes that the body ran at its end: a break in the first round runs the else. */
        bool broken = render->flow == FLOW_BREAK;
        *any |= render->flow == FLOW_NEXT;
        render->flow = FLOW_NEXT;
        if (broken)
            break;
    }
    return AVO_OK;
}

avo_status jinja_run_loop(jinja_render *render, const jinja_node *node, jinja_value iterable,
                          uint32_t depth) {
    jinja_loop *loop;
    AVO_TRY(jinja_take(render, 1, sizeof(*loop), &loop));
    *loop = (jinja_loop){.node = node,
                         .scope = render->scope,
                         .known_length = SIZE_MAX,
                         .index = SIZE_MAX, /* one before the first */
                         .depth = depth};
    if (node->loop.recursive)
        capture_scopes(render->scope);
    AVO_TRY(jinja_iterate(render, iterable, &loop->iterator));
    if (iterable.kind != JINJA_ITERATOR && node->loop.test == NULL)
        AVO_TRY(jinja_length(render, iterable, &loop->known_length));
    bool any;
    AVO_TRY(run_iterations(render, loop, &any));
    if (any || node->loop.otherwise == NULL)
        return AVO_OK;
    jinja_scope *around = render->scope;
    jinja_scope *inner = NULL;
    AVO_TRY(jinja_scope_new(render, around, NULL, 0, &inner));
    render->scope = inner;
    AVO_TRY(jinja_run(render, node->loop.otherwise));
    render->scope = around;
    return AVO_OK;
}

static avo_status run_for(jinja_render *render, const jinja_node *node) {
    jinja_value iterable;
    AVO_TRY(jinja_evaluate(render, node->loop.iterable, &iterable));
    return jinja_run_loop(render, node, iterable, 0);
}

/* ---- The others ---- */

static avo_status run_if(jinja_render *render, const jinja_node *node) {
    for (;;) {
        bool truth;
        AVO_TRY(jinja_evaluate_truth(render, node->choice.condition, &truth));
        const jinja_node *branch = truth ? node->choice.then : node->choice.otherwise;
        /* An elif is an if alone in the else branch: walked, not descended. */
        bool chained = !truth && branch != NULL && branch->kind == NODE_IF && branch->next == NULL;
        if (!chained)
            return jinja_run(render, branch);
        node = branch;
        render->node = node;
    }
}

/* A body with variables of its own, its output as a value; then filters on it. */
static avo_status capture_scoped(jinja_render *render, const jinja_node *body,
                                 const jinja_node *filter, jinja_value *out) {
    jinja_scope *around = render->scope;
    jinja_scope *inner = NULL;
    AVO_TRY(jinja_scope_new(render, around, NULL, 0, &inner));
    render->scope = inner;
    AVO_TRY(jinja_capture(render, body, out));
    if (filter != NULL && render->flow == FLOW_NEXT) {
        jinja_value captured = render->captured;
        render->captured = *out;
        AVO_TRY(jinja_evaluate(render, filter, out));
        render->captured = captured;
    }
    render->scope = around;
    return AVO_OK;
}

static avo_status run_set_block(jinja_render *render, const jinja_node *node) {
    jinja_value value;
    AVO_TRY(capture_scoped(render, node->assign.body, node->assign.value, &value));
    return render->flow == FLOW_NEXT ? jinja_assign(render, node->assign.target, value) : AVO_OK;
}

/* What a filter block or call block gives goes to the output as it is: it must be a string. */
static avo_status output_text(jinja_render *render, jinja_value value) {
    if (!jinja_is_string(value))
        return jinja_fail(render, "the block returns %s, must be a string", jinja_type_name(value));
    return jinja_builder_text(render->output, value.text);
}

static avo_status run_filter_block(jinja_render *render, const jinja_node *node) {
    jinja_value value;
    AVO_TRY(capture_scoped(render, node->block.body, node->block.filter, &value));
    return render->flow == FLOW_NEXT ? output_text(render, value) : AVO_OK;
}

static avo_status macro_value(jinja_render *render, const jinja_node *node, text_view name,
                              jinja_value *out) {
    jinja_macro *macro;
    AVO_TRY(jinja_take(render, 1, sizeof(*macro), &macro));
    capture_scopes(render->scope);
    *macro = (jinja_macro){.node = &node->macro, .name = name, .scope = render->scope};
    *out = (jinja_value){.kind = JINJA_MACRO, .macro = macro};
    return AVO_OK;
}

static avo_status run_macro(jinja_render *render, const jinja_node *node) {
    jinja_value macro;
    AVO_TRY(
        macro_value(render, node, jinja_view_of(render->chat->symbols[node->symbol].text), &macro));
    return jinja_bind(render, render->scope, node->symbol, macro);
}

/* The call gets the body as its keyword argument `caller`. */
static avo_status run_call_block(jinja_render *render, const jinja_node *node) {
    const jinja_call_node *call = &node->macro.call->call;
    jinja_value callee;
    jinja_arguments arguments;
    AVO_TRY(jinja_evaluate(render, call->subject, &callee));
    AVO_TRY(jinja_evaluate_arguments(render, call, &arguments));
    jinja_keyword *keywords;
    AVO_TRY(jinja_take(render, arguments.keyword_count + 1, sizeof(*keywords), &keywords));
    for (size_t i = 0; i < arguments.keyword_count; i++) {
        if (text_is(arguments.keywords[i].name, "caller"))
            return jinja_fail(render, "'caller' is given twice");
        keywords[i + 1] = arguments.keywords[i];
    }
    keywords[0].name = TEXT_LITERAL("caller");
    AVO_TRY(macro_value(render, node, (text_view){0}, &keywords[0].value));
    arguments.keywords = keywords;
    arguments.keyword_count++;
    render->node = node;
    jinja_value result;
    AVO_TRY(jinja_call(render, callee, &arguments, &result));
    return output_text(render, result);
}

/* Keeps where in the rendered text a generation block wrote; `begin` is where it began. */
static avo_status note_generated(jinja_render *render, size_t begin) {
    if (render->output != render->page) {
        render->generated_inside = true;
        return AVO_OK;
    }
    if (begin == render->page->size)
        return AVO_OK;
    if (render->generated_count == render->generated_capacity) {
        size_t capacity = render->generated_capacity == 0 ? 8 : render->generated_capacity * 2;
        text_span *spans;
        AVO_TRY(jinja_take(render, capacity, sizeof(*spans), &spans));
        if (render->generated_count > 0)
            memcpy(spans, render->generated, render->generated_count * sizeof(*spans));
        render->generated = spans;
        render->generated_capacity = capacity;
    }
    render->generated[render->generated_count++] = (text_span){begin, render->page->size};
    return AVO_OK;
}

static avo_status run_generation(jinja_render *render, const jinja_node *node) {
    jinja_value macro;
    jinja_value result;
    jinja_arguments none = {0};
    AVO_TRY(macro_value(render, node, (text_view){0}, &macro));
    AVO_TRY(jinja_call(render, macro, &none, &result));
    size_t begin = render->output->size;
    AVO_TRY(jinja_print(render->output, result));
    return note_generated(render, begin);
}

static avo_status run_with(jinja_render *render, const jinja_node *node) {
    jinja_scope *around = render->scope;
    jinja_scope *inner = NULL;
    AVO_TRY(jinja_scope_new(render, around, NULL, 0, &inner));
    const jinja_node *value = node->with.values;
    for (const jinja_node *target = node->with.targets; target != NULL; target = target->next) {
        jinja_value evaluated;
        render->scope = around;
        AVO_TRY(jinja_evaluate(render, value, &evaluated));
        render->scope = inner;
        AVO_TRY(jinja_assign(render, target, evaluated));
        value = value->next;
    }
    render->scope = inner;
    AVO_TRY(jinja_run(render, node->with.body));
    render->scope = around;
    return AVO_OK;
}

static avo_status run_set(jinja_render *render, const jinja_node *node) {
    jinja_value value;
    AVO_TRY(jinja_evaluate(render, node->assign.value, &value));
    render->node = node;
    return jinja_assign(render, node->assign.target, value);
}

static avo_status run_print(jinja_render *render, const jinja_node *node) {
    jinja_value value;
    AVO_TRY(jinja_evaluate(render, node->operand, &value));
    render->node = node;
    return jinja_print(render->output, value);
}

static avo_status run_one(jinja_render *render, const jinja_node *node) {
    switch (node->kind) {
    case NODE_DATA:
        return jinja_builder_text(render->output, node->constant.text);
    case NODE_PRINT:
        return run_print(render, node);
    case NODE_IF:
        return run_if(render, node);
    case NODE_FOR:
        return run_for(render, node);
    case NODE_SET:
        return run_set(render, node);
    case NODE_SET_BLOCK:
        return run_set_block(render, node);
    case NODE_MACRO:
        return run_macro(render, node);
    case NODE_CALL_BLOCK:
        return run_call_block(render, node);
    case NODE_GENERATION:
        return run_generation(render, node);
    case NODE_FILTER_BLOCK:
        return run_filter_block(render, node);
    case NODE_WITH:
        return run_with(render, node);
    case NODE_BREAK:
        render->flow = FLOW_BREAK;
        return AVO_OK;
    case NODE_CONTINUE:
        render->flow = FLOW_CONTINUE;
        return AVO_OK;
    default:
        return jinja_fail(render, "no statement");
    }
}

avo_status jinja_run(jinja_render *render, const jinja_node *statements) {
    if (render->depth >= JINJA_EVALUATION_DEPTH_MAX)
        return jinja_limit(render, "evaluations nested too deeply");
    render->depth++;
    for (const jinja_node *node = statements; node != NULL && render->flow == FLOW_NEXT;
         node = node->next) {
        AVO_TRY(jinja_charge(render, 1));
        render->node = node;
        AVO_TRY(run_one(render, node));
    }
    render->depth--;
    return AVO_OK;
}
