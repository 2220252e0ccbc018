/* One way through the nodes of an expression, for all who look for something in it. */
#include "tokenizer/template/render_int.h"

static avo_status visit_chain(jinja_visitor *visitor, const jinja_node *node) {
    for (; node != NULL; node = node->next)
        AVO_TRY(jinja_visit_expression(visitor, node));
    return AVO_OK;
}

static avo_status visit_children(jinja_visitor *visitor, const jinja_node *node) {
    switch (node->kind) {
    case NODE_FILTER:
    case NODE_TEST:
    case NODE_CALL:
        AVO_TRY(jinja_visit_expression(visitor, node->call.subject));
        AVO_TRY(visit_chain(visitor, node->call.arguments));
        AVO_TRY(visit_chain(visitor, node->call.keywords));
        AVO_TRY(jinja_visit_expression(visitor, node->call.star));
        return jinja_visit_expression(visitor, node->call.star_star);
    case NODE_ATTRIBUTE:
        return jinja_visit_expression(visitor, node->item.object);
    case NODE_ITEM:
    case NODE_PAIR:
        AVO_TRY(jinja_visit_expression(visitor, node->item.object));
        return jinja_visit_expression(visitor, node->item.key);
    case NODE_SLICE:
        AVO_TRY(jinja_visit_expression(visitor, node->slice.start));
        AVO_TRY(jinja_visit_expression(visitor, node->slice.stop));
        return jinja_visit_expression(visitor, node->slice.step);
    case NODE_INLINE_IF:
        AVO_TRY(jinja_visit_expression(visitor, node->choice.condition));
        AVO_TRY(jinja_visit_expression(visitor, node->choice.then));
        return jinja_visit_expression(visitor, node->choice.otherwise);
    case NODE_AND:
    case NODE_OR:
    case NODE_MATH:
    case NODE_COMPARE:
    case NODE_CONCATENATE:
    case NODE_LIST:
    case NODE_TUPLE:
    case NODE_DICT:
        return visit_chain(visitor, node->operand);
    case NODE_NOT:
    case NODE_NEGATE:
    case NODE_POSITIVE:
    case NODE_OPERAND:
    case NODE_KEYWORD:
        return jinja_visit_expression(visitor, node->operand);
    default:
        return AVO_OK;
    }
}

avo_status jinja_visit_expression(jinja_visitor *visitor, const jinja_node *node) {
    if (node == NULL)
        return AVO_OK;
    if (visitor->depth >= JINJA_EVALUATION_DEPTH_MAX)
        return jinja_fail_at(visitor->error, visitor->source, node->offset, AVO_ERROR_LIMIT,
                             "the expression is nested more than %d levels deep",
                             JINJA_EVALUATION_DEPTH_MAX);
    bool inside = true;
    AVO_TRY(visitor->enter(visitor->context, node, &inside));
    if (!inside)
        return AVO_OK;
    visitor->depth++;
    AVO_TRY(visit_children(visitor, node));
    visitor->depth--;
    return AVO_OK;
}
