/* Which names of a block are assigned before they are read.
 *
 * jinja2 decides at compile time where a name lives. A block that assigns a name without having
 * read it, while no block around knows the name, makes it a variable of its own that is undefined
 * until then: what the caller passed under that name is hidden, also from loops and macros inside
 * that run earlier. Assignments inside an if are exempt. Everything else behaves as if names were
 * looked up from the inside out when they are used, which is what the evaluator does. */
#include "tokenizer/template/render_int.h"

#include <assert.h>
#include <string.h>

typedef struct frame frame;
struct frame {
    frame *parent;
    uint32_t *known; /* one per symbol: `stamp` when it is read or assigned in this block */
    uint32_t stamp;
    uint32_t depth;
    uint32_t *hidden;
    uint32_t hidden_count, hidden_capacity;
};

typedef struct resolver {
    chat_template *chat;
    arena scratch;
    frame *frame;
    uint32_t *known[TEMPLATE_DEPTH_MAX + 2]; /* frames of one depth share an array … */
    uint32_t stamp;                          /* … and tell their marks apart by a number */
    bool conditional;
    avo_error *error;
} resolver;

static avo_status no_memory(resolver *r) {
    return status_fail(r->error, AVO_ERROR_MEMORY, "out of memory for a chat template");
}

static bool known_in(const frame *frame, uint32_t symbol) {
    return frame->known[symbol] == frame->stamp;
}

static void mark(frame *frame, uint32_t symbol) {
    frame->known[symbol] = frame->stamp;
}

static bool known_outside(const frame *frame, uint32_t symbol) {
    for (const struct frame *f = frame->parent; f != NULL; f = f->parent)
        if (known_in(f, symbol))
            return true;
    return false;
}

static avo_status hide(resolver *r, uint32_t symbol) {
    frame *f = r->frame;
    if (f->hidden_count == f->hidden_capacity) {
        uint32_t capacity = f->hidden_capacity == 0 ? 8 : f->hidden_capacity * 2;
        uint32_t *hidden = arena_take_array(&r->chat->arena, capacity, sizeof(*hidden));
        if (hidden == NULL)
            return no_memory(r);
        if (f->hidden_count > 0)
            memcpy(hidden, f->hidden, f->hidden_count * sizeof(*hidden));
        f->hidden = hidden;
        f->hidden_capacity = capacity;
    }
    f->hidden[f->hidden_count++] = symbol;
    return AVO_OK;
}

static avo_status store(resolver *r, uint32_t symbol) {
    if (known_in(r->frame, symbol))
        return AVO_OK;
    bool outside = known_outside(r->frame, symbol);
    mark(r->frame, symbol);
    return outside || r->conditional ? AVO_OK : hide(r, symbol);
}

static void load(resolver *r, uint32_t symbol) {
    if (!known_outside(r->frame, symbol))
        mark(r->frame, symbol);
}

static avo_status visit_node(void *context, const jinja_node *node, bool *inside) {
    (void)inside;
    if (node->kind == NODE_NAME || node->kind == NODE_NAMESPACE_REFERENCE)
        load(context, node->symbol);
    return AVO_OK;
}

static avo_status visit_expression(resolver *r, const jinja_node *node) {
    jinja_visitor visitor = {
        .enter = visit_node, .context = r, .source = r->chat->source, .error = r->error};
    return jinja_visit_expression(&visitor, node);
}

static avo_status visit_chain(resolver *r, const jinja_node *node) {
    for (; node != NULL; node = node->next)
        AVO_TRY(visit_expression(r, node));
    return AVO_OK;
}

static avo_status visit_target(resolver *r, const jinja_node *target) {
    if (target->kind == NODE_NAME)
        return store(r, target->symbol);
    if (target->kind != NODE_TUPLE) {
        load(r, target->symbol);
        return AVO_OK;
    }
    for (const jinja_node *item = target->operand; item != NULL; item = item->next)
        AVO_TRY(visit_target(r, item));
    return AVO_OK;
}

static avo_status visit_statements(resolver *r, const jinja_node *node);

/* An elif is an if alone in the else branch: a chain of them is walked, not descended. */
static const jinja_node *next_branch(const jinja_node *node) {
    const jinja_node *otherwise = node->choice.otherwise;
    bool chained = otherwise != NULL && otherwise->kind == NODE_IF && otherwise->next == NULL;
    return chained ? otherwise : NULL;
}

static avo_status visit_if(resolver *r, const jinja_node *node) {
    bool conditional = r->conditional;
    AVO_TRY(visit_expression(r, node->choice.condition));
    r->conditional = true;
    for (;;) {
        AVO_TRY(visit_statements(r, node->choice.then));
        const jinja_node *branch = next_branch(node);
        if (branch == NULL)
            break;
        node = branch;
        AVO_TRY(visit_expression(r, node->choice.condition));
    }
    AVO_TRY(visit_statements(r, node->choice.otherwise));
    r->conditional = conditional;
    return AVO_OK;
}

/* The statements of one block, without the blocks inside. */
static avo_status visit_statements(resolver *r, const jinja_node *node) {
    for (; node != NULL; node = node->next) {
        switch (node->kind) {
        case NODE_PRINT:
            AVO_TRY(visit_expression(r, node->operand));
            break;
        case NODE_IF:
            AVO_TRY(visit_if(r, node));
            break;
        case NODE_FOR:
            AVO_TRY(visit_expression(r, node->loop.iterable));
            break;
        case NODE_SET:
            AVO_TRY(visit_expression(r, node->assign.value));
            AVO_TRY(visit_target(r, node->assign.target));
            break;
        case NODE_SET_BLOCK:
            AVO_TRY(visit_target(r, node->assign.target));
            break;
        case NODE_MACRO:
            AVO_TRY(store(r, node->symbol));
            break;
        case NODE_CALL_BLOCK:
            AVO_TRY(visit_expression(r, node->macro.call));
            break;
        case NODE_FILTER_BLOCK:
            AVO_TRY(visit_expression(r, node->block.filter));
            break;
        case NODE_WITH:
            AVO_TRY(visit_chain(r, node->with.values));
            break;
        default:
            break;
        }
    }
    return AVO_OK;
}

static avo_status resolve_inner(resolver *r, const jinja_node *node);

static void declare_target(frame *frame, const jinja_node *target) {
    if (target->kind == NODE_NAME)
        mark(frame, target->symbol);
    else if (target->kind == NODE_TUPLE)
        for (const jinja_node *item = target->operand; item != NULL; item = item->next)
            declare_target(frame, item);
}

static avo_status enter(resolver *r, frame *frame) {
    *frame = (struct frame){.parent = r->frame,
                            .stamp = ++r->stamp,
                            .depth = r->frame == NULL ? 0 : r->frame->depth + 1};
    assert(frame->depth < sizeof(r->known) / sizeof(*r->known)); /* the parser limits blocks */
    uint32_t **known = &r->known[frame->depth];
    if (*known == NULL)
        *known = arena_take_array(&r->scratch, r->chat->symbol_count, sizeof(**known));
    if (*known == NULL)
        return no_memory(r);
    frame->known = *known;
    r->frame = frame;
    r->conditional = false;
    return AVO_OK;
}

/* Body of the frame just entered; leaves it. */
static avo_status resolve_body(resolver *r, const jinja_node *body, uint32_t **hidden,
                               uint32_t *hidden_count) {
    AVO_TRY(visit_statements(r, body));
    if (hidden != NULL) {
        *hidden = r->frame->hidden;
        *hidden_count = r->frame->hidden_count;
    }
    AVO_TRY(resolve_inner(r, body));
    r->frame = r->frame->parent;
    return AVO_OK;
}

static avo_status resolve_for(resolver *r, jinja_node *node) {
    frame frame;
    AVO_TRY(enter(r, &frame));
    mark(&frame, r->chat->symbol_loop);
    declare_target(&frame, node->loop.target);
    AVO_TRY(resolve_body(r, node->loop.body, &node->loop.hidden, &node->loop.hidden_count));
    AVO_TRY(enter(r, &frame));
    return resolve_body(r, node->loop.otherwise, NULL, NULL);
}

static avo_status resolve_macro(resolver *r, jinja_node *node) {
    frame frame;
    AVO_TRY(enter(r, &frame));
    for (uint32_t i = 0; i < node->macro.parameter_count; i++)
        mark(&frame, node->macro.parameters[i]);
    if (node->macro.takes_caller)
        mark(&frame, r->chat->symbol_caller);
    if (node->macro.takes_arguments)
        mark(&frame, r->chat->symbol_varargs);
    if (node->macro.takes_keywords)
        mark(&frame, r->chat->symbol_kwargs);
    for (uint32_t i = 0; i < node->macro.parameter_count; i++)
        AVO_TRY(visit_expression(r, node->macro.defaults[i]));
    return resolve_body(r, node->macro.body, &node->macro.hidden, &node->macro.hidden_count);
}

static avo_status resolve_if(resolver *r, const jinja_node *node) {
    for (const jinja_node *branch; (branch = next_branch(node)) != NULL; node = branch)
        AVO_TRY(resolve_inner(r, node->choice.then));
    AVO_TRY(resolve_inner(r, node->choice.then));
    return resolve_inner(r, node->choice.otherwise);
}

/* The blocks inside a block, once the block itself is known. */
static avo_status resolve_inner(resolver *r, const jinja_node *node) {
    frame frame;
    for (; node != NULL; node = node->next) {
        switch (node->kind) {
        case NODE_IF:
            AVO_TRY(resolve_if(r, node));
            break;
        case NODE_FOR:
            AVO_TRY(resolve_for(r, (jinja_node *)node));
            break;
        case NODE_MACRO:
        case NODE_CALL_BLOCK:
        case NODE_GENERATION:
            AVO_TRY(resolve_macro(r, (jinja_node *)node));
            break;
        case NODE_SET_BLOCK:
            AVO_TRY(enter(r, &frame));
            AVO_TRY(resolve_body(r, node->assign.body, NULL, NULL));
            break;
        case NODE_FILTER_BLOCK:
            AVO_TRY(enter(r, &frame));
            AVO_TRY(resolve_body(r, node->block.body, NULL, NULL));
            break;
        case NODE_WITH:
            AVO_TRY(enter(r, &frame));
            for (const jinja_node *target = node->with.targets; target != NULL;
                 target = target->next)
                declare_target(&frame, target);
            AVO_TRY(resolve_body(r, node->with.body, NULL, NULL));
            break;
        default:
            break;
        }
    }
    return AVO_OK;
}

avo_status jinja_resolve_scopes(chat_template *chat, avo_error *error) {
    resolver r = {.chat = chat, .error = error};
    arena_init(&r.scratch, chat->allocator, TEMPLATE_MEMORY_MAX);
    frame frame;
    avo_status status = enter(&r, &frame);
    AVO_THEN(status, resolve_body(&r, chat->body, &chat->hidden, &chat->hidden_count));
    arena_free(&r.scratch);
    return status;
}
