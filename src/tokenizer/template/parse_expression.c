/* Expressions, in jinja2's order of precedence: inline if, or, and, not, comparisons, + and −, ~,
 * * / // %, **, signs, then names and literals with what follows them. Chains of one level become
 * one node, so that a long sum is not a deep tree. */
#include "tokenizer/template/render_int.h"

#include <string.h>

static avo_status parse_unary(jinja_parser *parser, bool with_filters, jinja_node **out);
static avo_status parse_primary(jinja_parser *parser, bool namespaces, jinja_node **out);

/* A level of the grammar: reads one operand. */
typedef avo_status (*level_function)(jinja_parser *parser, jinja_node **out);

static avo_status parse_list_items(jinja_parser *parser, int closing, jinja_node **place) {
    bool first = true;
    while (!jinja_at_operator(parser, closing)) {
        if (!first)
            AVO_TRY(jinja_expect_operator(parser, ','));
        if (jinja_at_operator(parser, closing))
            break;
        AVO_TRY(jinja_parse_expression(parser, true, place));
        place = &(*place)->next;
        first = false;
    }
    return jinja_advance(parser);
}

static avo_status parse_dict(jinja_parser *parser, jinja_node *node) {
    jinja_node **place = &node->operand;
    while (!jinja_at_operator(parser, '}')) {
        if (node->operand != NULL)
            AVO_TRY(jinja_expect_operator(parser, ','));
        if (jinja_at_operator(parser, '}'))
            break;
        AVO_TRY(jinja_node_new(parser, NODE_PAIR, parser->token.offset, place));
        AVO_TRY(jinja_parse_expression(parser, true, &(*place)->item.object));
        AVO_TRY(jinja_expect_operator(parser, ':'));
        AVO_TRY(jinja_parse_expression(parser, true, &(*place)->item.key));
        place = &(*place)->next;
    }
    return jinja_advance(parser);
}

/* Neighbouring string literals are one. */
static avo_status parse_string(jinja_parser *parser, jinja_node *node) {
    text_view text = parser->token.text;
    AVO_TRY(jinja_advance(parser));
    while (parser->token.kind == TOKEN_STRING) {
        char *joined = arena_take(&parser->chat->arena, text.size + parser->token.text.size + 1);
        if (joined == NULL)
            return status_fail(parser->error, AVO_ERROR_MEMORY,
                               "out of memory for a chat template");
        memcpy(joined, text.data, text.size);
        memcpy(joined + text.size, parser->token.text.data, parser->token.text.size);
        text = (text_view){joined, text.size + parser->token.text.size};
        AVO_TRY(jinja_advance(parser));
    }
    return jinja_literal(parser, text, &node->constant);
}

/* caller, varargs and kwargs are parameters of the macros that use them. */
static void note_special_name(jinja_parser *parser, uint32_t symbol) {
    if (parser->macro == NULL)
        return;
    parser->macro->takes_caller |= symbol == parser->chat->symbol_caller;
    parser->macro->takes_arguments |= symbol == parser->chat->symbol_varargs;
    parser->macro->takes_keywords |= symbol == parser->chat->symbol_kwargs;
}

static avo_status parse_name(jinja_parser *parser, bool namespaces, jinja_node *node) {
    text_view name = parser->token.text;
    AVO_TRY(jinja_advance(parser));
    if (text_is(name, "true") || text_is(name, "True"))
        node->constant = jinja_boolean(true);
    else if (text_is(name, "false") || text_is(name, "False"))
        node->constant = jinja_boolean(false);
    else if (text_is(name, "none") || text_is(name, "None"))
        node->constant = jinja_none();
    else
        node->kind = NODE_NAME;
    if (node->kind != NODE_NAME)
        return AVO_OK;
    AVO_TRY(jinja_intern(parser->chat, name, &node->symbol, parser->error));
    if (!namespaces || !jinja_at_operator(parser, '.')) {
        note_special_name(parser, node->symbol);
        return AVO_OK;
    }
    AVO_TRY(jinja_advance(parser));
    uint32_t attribute;
    AVO_TRY(jinja_expect_name(parser, &name));
    AVO_TRY(jinja_intern(parser->chat, name, &attribute, parser->error));
    node->kind = NODE_NAMESPACE_REFERENCE;
    node->what = (int)attribute;
    return AVO_OK;
}

static avo_status parse_primary(jinja_parser *parser, bool namespaces, jinja_node **out) {
    jinja_token token = parser->token;
    jinja_node *node;
    AVO_TRY(jinja_node_new(parser, NODE_CONSTANT, token.offset, &node));
    *out = node;
    if (token.kind == TOKEN_NAME)
        return parse_name(parser, namespaces, node);
    if (token.kind == TOKEN_STRING)
        return parse_string(parser, node);
    if (token.kind == TOKEN_INTEGER || token.kind == TOKEN_NUMBER) {
        node->constant =
            token.kind == TOKEN_INTEGER ? jinja_integer(token.integer) : jinja_number(token.number);
        return jinja_advance(parser);
    }
    if (token.kind != TOKEN_OPERATOR ||
        (token.operation != '(' && token.operation != '[' && token.operation != '{'))
        return jinja_unexpected(parser, "an expression");
    AVO_TRY(jinja_advance(parser));
    AVO_TRY(jinja_deeper(parser));
    if (token.operation == '(') {
        AVO_TRY(jinja_parse_tuple(parser, (jinja_tuple_rules){.parentheses = true}, out));
        AVO_TRY(jinja_expect_operator(parser, ')'));
    } else if (token.operation == '[') {
        node->kind = NODE_LIST;
        node->operand = NULL;
        AVO_TRY(parse_list_items(parser, ']', &node->operand));
    } else {
        node->kind = NODE_DICT;
        node->operand = NULL;
        AVO_TRY(parse_dict(parser, node));
    }
    parser->depth--;
    return AVO_OK;
}

static avo_status parse_keyword(jinja_parser *parser, jinja_call_node *call, jinja_node **place) {
    uint32_t offset = parser->token.offset;
    text_view name = parser->token.text;
    AVO_TRY(jinja_node_new(parser, NODE_KEYWORD, offset, place));
    AVO_TRY(jinja_intern(parser->chat, name, &(*place)->symbol, parser->error));
    for (const jinja_node *other = call->keywords; other != *place; other = other->next)
        if (other->symbol == (*place)->symbol)
            return jinja_parse_fail(parser, offset, "argument '%.*s' is given twice",
                                    TEXT_ARGUMENT(name));
    AVO_TRY(jinja_advance(parser));
    AVO_TRY(jinja_advance(parser));
    return jinja_parse_expression(parser, true, &(*place)->operand);
}

static avo_status parse_arguments(jinja_parser *parser, jinja_call_node *call) {
    uint32_t offset = parser->token.offset;
    AVO_TRY(jinja_expect_operator(parser, '('));
    AVO_TRY(jinja_deeper(parser));
    jinja_node **argument = &call->arguments;
    jinja_node **keyword = &call->keywords;
    bool first = true;
    while (!jinja_at_operator(parser, ')')) {
        if (!first) {
            AVO_TRY(jinja_expect_operator(parser, ','));
            if (jinja_at_operator(parser, ')'))
                break;
        }
        first = false;
        bool star = jinja_at_operator(parser, '*');
        bool stars = jinja_at_operator(parser, OPERATOR('*', '*'));
        bool named = false;
        if (parser->token.kind == TOKEN_NAME) {
            const jinja_token *ahead;
            AVO_TRY(jinja_look_ahead(parser, &ahead));
            named = ahead->kind == TOKEN_OPERATOR && ahead->operation == '=';
        }
        bool misplaced =
            call->star_star != NULL || (star && call->star != NULL) ||
            (!star && !stars && !named && (call->star != NULL || call->keywords != NULL));
        if (misplaced)
            return jinja_parse_fail(parser, offset, "arguments in the wrong order");
        if (star || stars) {
            AVO_TRY(jinja_advance(parser));
            AVO_TRY(jinja_parse_expression(parser, true, star ? &call->star : &call->star_star));
        } else if (named) {
            AVO_TRY(parse_keyword(parser, call, keyword));
            keyword = &(*keyword)->next;
        } else {
            AVO_TRY(jinja_parse_expression(parser, true, argument));
            argument = &(*argument)->next;
        }
    }
    parser->depth--;
    return jinja_advance(parser);
}

static avo_status parse_slice_part(jinja_parser *parser, jinja_node **out) {
    *out = NULL;
    if (jinja_at_operator(parser, ':') || jinja_at_operator(parser, ']') ||
        jinja_at_operator(parser, ','))
        return AVO_OK;
    return jinja_parse_expression(parser, true, out);
}

static avo_status parse_subscript(jinja_parser *parser, jinja_node **out) {
    jinja_node *first = NULL;
    uint32_t offset = parser->token.offset;
    if (!jinja_at_operator(parser, ':')) {
        AVO_TRY(jinja_parse_expression(parser, true, &first));
        if (!jinja_at_operator(parser, ':')) {
            *out = first;
            return AVO_OK;
        }
    }
    AVO_TRY(jinja_advance(parser));
    AVO_TRY(jinja_node_new(parser, NODE_SLICE, offset, out));
    (*out)->slice.start = first;
    AVO_TRY(parse_slice_part(parser, &(*out)->slice.stop));
    bool colon;
    AVO_TRY(jinja_skip_operator(parser, ':', &colon));
    return colon ? parse_slice_part(parser, &(*out)->slice.step) : AVO_OK;
}

static avo_status parse_brackets(jinja_parser *parser, uint32_t offset, jinja_node *node) {
    jinja_node *keys = NULL;
    jinja_node **place = &keys;
    size_t count = 0;
    AVO_TRY(jinja_deeper(parser));
    while (!jinja_at_operator(parser, ']')) {
        if (count > 0)
            AVO_TRY(jinja_expect_operator(parser, ','));
        AVO_TRY(parse_subscript(parser, place));
        if (count > 0 && ((*place)->kind == NODE_SLICE || keys->kind == NODE_SLICE))
            return jinja_parse_fail(parser, offset, "a tuple of slices is not supported");
        place = &(*place)->next;
        count++;
    }
    parser->depth--;
    node->item.key = keys;
    if (count != 1) {
        AVO_TRY(jinja_node_new(parser, NODE_TUPLE, offset, &node->item.key));
        node->item.key->operand = keys;
    }
    return jinja_advance(parser);
}

static avo_status parse_dot(jinja_parser *parser, jinja_node *node) {
    if (parser->token.kind == TOKEN_NAME) {
        node->kind = NODE_ATTRIBUTE;
        AVO_TRY(jinja_intern(parser->chat, parser->token.text, &node->symbol, parser->error));
        return jinja_advance(parser);
    }
    if (parser->token.kind != TOKEN_INTEGER)
        return jinja_unexpected(parser, "a name or number");
    AVO_TRY(jinja_node_new(parser, NODE_CONSTANT, parser->token.offset, &node->item.key));
    node->item.key->constant = jinja_integer(parser->token.integer);
    return jinja_advance(parser);
}

/* Attributes, items and calls behind a node. Each makes the tree one deeper. */
static avo_status parse_postfix(jinja_parser *parser, jinja_node **subject) {
    uint32_t depth = parser->depth;
    for (;;) {
        uint32_t offset = parser->token.offset;
        bool dot = jinja_at_operator(parser, '.');
        bool bracket = jinja_at_operator(parser, '[');
        if (!dot && !bracket && !jinja_at_operator(parser, '('))
            break;
        AVO_TRY(jinja_deeper(parser));
        jinja_node *node;
        AVO_TRY(jinja_node_new(parser, dot || bracket ? NODE_ITEM : NODE_CALL, offset, &node));
        if (dot || bracket) {
            node->item.object = *subject;
            AVO_TRY(jinja_advance(parser));
            AVO_TRY(dot ? parse_dot(parser, node) : parse_brackets(parser, offset, node));
        } else {
            node->call.subject = *subject;
            AVO_TRY(parse_arguments(parser, &node->call));
        }
        *subject = node;
    }
    parser->depth = depth;
    return AVO_OK;
}

/* "name" or "name.name" of a filter or test. */
static avo_status parse_dotted(jinja_parser *parser, text_view *name) {
    *name = (text_view){0};
    AVO_TRY(jinja_expect_name(parser, name));
    if (!jinja_at_operator(parser, '.'))
        return AVO_OK;
    return jinja_parse_fail(parser, parser->token.offset,
                            "unknown filter or test with a dot in its name");
}

/* The number of a filter or test; one that is not known is an error at once unless an if stands
 * around: then it is one when it is reached. */
static avo_status resolve_operation(jinja_parser *parser, jinja_node *node, text_view name) {
    bool filter = node->kind == NODE_FILTER;
    node->what = filter ? jinja_filter_number(name) : jinja_test_number(name);
    if (node->what < 0 && !parser->soft)
        return jinja_parse_fail(parser, node->offset, "no %s named '%.*s'",
                                filter ? "filter" : "test", TEXT_ARGUMENT(name));
    return jinja_intern(parser->chat, name, &node->symbol, parser->error);
}

avo_status jinja_parse_filters(jinja_parser *parser, jinja_node *subject, bool first_without_pipe,
                               jinja_node **out) {
    uint32_t depth = parser->depth;
    while (first_without_pipe || jinja_at_operator(parser, '|')) {
        if (!first_without_pipe)
            AVO_TRY(jinja_advance(parser));
        first_without_pipe = false;
        AVO_TRY(jinja_deeper(parser));
        jinja_node *node;
        AVO_TRY(jinja_node_new(parser, NODE_FILTER, parser->token.offset, &node));
        text_view name;
        AVO_TRY(parse_dotted(parser, &name));
        AVO_TRY(resolve_operation(parser, node, name));
        node->call.subject = subject;
        if (jinja_at_operator(parser, '('))
            AVO_TRY(parse_arguments(parser, &node->call));
        subject = node;
    }
    parser->depth = depth;
    *out = subject;
    return AVO_OK;
}

static bool at_test_argument(const jinja_parser *parser) {
    switch (parser->token.kind) {
    case TOKEN_NAME:
        return !jinja_at_name(parser, "else") && !jinja_at_name(parser, "or") &&
               !jinja_at_name(parser, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_NUMBER:
        return true;
    default:
        return jinja_at_operator(parser, '[') || jinja_at_operator(parser, '{');
    }
}

static avo_status parse_test(jinja_parser *parser, jinja_node **subject) {
    uint32_t offset = parser->token.offset;
    bool negated;
    AVO_TRY(jinja_advance(parser));
    AVO_TRY(jinja_skip_name(parser, "not", &negated));
    jinja_node *node;
    AVO_TRY(jinja_node_new(parser, NODE_TEST, offset, &node));
    text_view name;
    AVO_TRY(parse_dotted(parser, &name));
    AVO_TRY(resolve_operation(parser, node, name));
    node->call.subject = *subject;
    if (jinja_at_operator(parser, '(')) {
        AVO_TRY(parse_arguments(parser, &node->call));
    } else if (at_test_argument(parser)) {
        if (jinja_at_name(parser, "is"))
            return jinja_parse_fail(parser, parser->token.offset, "tests cannot be chained");
        AVO_TRY(parse_primary(parser, false, &node->call.arguments));
        AVO_TRY(parse_postfix(parser, &node->call.arguments));
    }
    *subject = node;
    if (!negated)
        return AVO_OK;
    AVO_TRY(jinja_node_new(parser, NODE_NOT, offset, subject));
    (*subject)->operand = node;
    return AVO_OK;
}

static avo_status parse_filters_and_tests(jinja_parser *parser, jinja_node **subject) {
    uint32_t depth = parser->depth;
    for (;;) {
        AVO_TRY(jinja_deeper(parser));
        if (jinja_at_operator(parser, '|')) {
            AVO_TRY(jinja_parse_filters(parser, *subject, false, subject));
        } else if (jinja_at_name(parser, "is")) {
            AVO_TRY(parse_test(parser, subject));
        } else if (jinja_at_operator(parser, '(')) {
            jinja_node *node;
            AVO_TRY(jinja_node_new(parser, NODE_CALL, parser->token.offset, &node));
            node->call.subject = *subject;
            AVO_TRY(parse_arguments(parser, &node->call));
            *subject = node;
        } else {
            break;
        }
    }
    parser->depth = depth;
    return AVO_OK;
}

static avo_status parse_unary(jinja_parser *parser, bool with_filters, jinja_node **out) {
    bool minus = jinja_at_operator(parser, '-');
    if (minus || jinja_at_operator(parser, '+')) {
        jinja_node *node;
        AVO_TRY(jinja_node_new(parser, minus ? NODE_NEGATE : NODE_POSITIVE, parser->token.offset,
                               &node));
        AVO_TRY(jinja_advance(parser));
        AVO_TRY(jinja_deeper(parser));
        AVO_TRY(parse_unary(parser, false, &node->operand));
        parser->depth--;
        *out = node;
    } else {
        AVO_TRY(parse_primary(parser, false, out));
    }
    AVO_TRY(parse_postfix(parser, out));
    return with_filters ? parse_filters_and_tests(parser, out) : AVO_OK;
}

static avo_status parse_signed(jinja_parser *parser, jinja_node **out) {
    return parse_unary(parser, true, out);
}

/* operand (operator operand)* as one chain. */
static avo_status parse_chain(jinja_parser *parser, jinja_node_kind kind, const int *operations,
                              size_t operation_count, level_function level, jinja_node **out) {
    uint32_t offset = parser->token.offset;
    AVO_TRY(level(parser, out));
    jinja_node *chain = NULL;
    jinja_node **place = NULL;
    for (;;) {
        bool found = false;
        for (size_t i = 0; i < operation_count && !found; i++)
            found = jinja_at_operator(parser, operations[i]);
        if (!found)
            return AVO_OK;
        if (chain == NULL) {
            AVO_TRY(jinja_node_new(parser, kind, offset, &chain));
            chain->operand = *out;
            place = &(*out)->next;
            *out = chain;
        }
        AVO_TRY(jinja_node_new(parser, NODE_OPERAND, parser->token.offset, place));
        (*place)->what = parser->token.operation;
        AVO_TRY(jinja_advance(parser));
        AVO_TRY(level(parser, &(*place)->operand));
        place = &(*place)->next;
    }
}

static avo_status parse_power(jinja_parser *parser, jinja_node **out) {
    static const int operations[] = {OPERATOR('*', '*')};
    return parse_chain(parser, NODE_MATH, operations, 1, parse_signed, out);
}

static avo_status parse_product(jinja_parser *parser, jinja_node **out) {
    static const int operations[] = {'*', '/', OPERATOR('/', '/'), '%'};
    return parse_chain(parser, NODE_MATH, operations, 4, parse_power, out);
}

static avo_status parse_concatenation(jinja_parser *parser, jinja_node **out) {
    static const int operations[] = {'~'};
    return parse_chain(parser, NODE_CONCATENATE, operations, 1, parse_product, out);
}

static avo_status parse_sum(jinja_parser *parser, jinja_node **out) {
    static const int operations[] = {'+', '-'};
    return parse_chain(parser, NODE_MATH, operations, 2, parse_concatenation, out);
}

/* The comparison operator the parser stands at, 0 when there is none. */
static avo_status comparison_at(jinja_parser *parser, int *operation) {
    static const int operations[] = {
        OPERATOR('=', '='), OPERATOR('!', '='), '<', OPERATOR('<', '='), '>', OPERATOR('>', '=')};
    *operation = 0;
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
        if (jinja_at_operator(parser, operations[i]))
            *operation = operations[i];
    if (jinja_at_name(parser, "in"))
        *operation = OPERATOR_IN;
    if (!jinja_at_name(parser, "not"))
        return AVO_OK;
    const jinja_token *ahead;
    AVO_TRY(jinja_look_ahead(parser, &ahead));
    if (ahead->kind == TOKEN_NAME && text_is(ahead->text, "in")) {
        AVO_TRY(jinja_advance(parser));
        *operation = OPERATOR_NOT_IN;
    }
    return AVO_OK;
}

static avo_status parse_comparison(jinja_parser *parser, jinja_node **out) {
    uint32_t offset = parser->token.offset;
    AVO_TRY(parse_sum(parser, out));
    jinja_node *chain = NULL;
    jinja_node **place = NULL;
    for (;;) {
        int operation;
        uint32_t at = parser->token.offset;
        AVO_TRY(comparison_at(parser, &operation));
        if (operation == 0)
            return AVO_OK;
        AVO_TRY(jinja_advance(parser));
        if (chain == NULL) {
            AVO_TRY(jinja_node_new(parser, NODE_COMPARE, offset, &chain));
            chain->operand = *out;
            place = &(*out)->next;
            *out = chain;
        }
        AVO_TRY(jinja_node_new(parser, NODE_OPERAND, at, place));
        (*place)->what = operation;
        AVO_TRY(parse_sum(parser, &(*place)->operand));
        place = &(*place)->next;
    }
}

static avo_status parse_not(jinja_parser *parser, jinja_node **out) {
    if (!jinja_at_name(parser, "not"))
        return parse_comparison(parser, out);
    AVO_TRY(jinja_node_new(parser, NODE_NOT, parser->token.offset, out));
    AVO_TRY(jinja_advance(parser));
    AVO_TRY(jinja_deeper(parser));
    AVO_TRY(parse_not(parser, &(*out)->operand));
    parser->depth--;
    return AVO_OK;
}

/* operand (word operand)* as one chain. */
static avo_status parse_words(jinja_parser *parser, jinja_node_kind kind, const char *word,
                              level_function level, jinja_node **out) {
    uint32_t offset = parser->token.offset;
    AVO_TRY(level(parser, out));
    if (!jinja_at_name(parser, word))
        return AVO_OK;
    jinja_node *chain;
    AVO_TRY(jinja_node_new(parser, kind, offset, &chain));
    chain->operand = *out;
    jinja_node **place = &(*out)->next;
    *out = chain;
    while (jinja_at_name(parser, word)) {
        AVO_TRY(jinja_advance(parser));
        AVO_TRY(level(parser, place));
        place = &(*place)->next;
    }
    return AVO_OK;
}

static avo_status parse_and(jinja_parser *parser, jinja_node **out) {
    return parse_words(parser, NODE_AND, "and", parse_not, out);
}

static avo_status parse_or(jinja_parser *parser, jinja_node **out) {
    return parse_words(parser, NODE_OR, "or", parse_and, out);
}

/* An unknown filter in an inline if counts only when it is reached, but what stands in front of
 * the "if" is read before it is seen: so the whole expression is read softly when an if follows.
 * Reading twice would be quadratic; instead a first unknown filter is remembered by `what` < 0 and
 * refused here when no if came. */
static avo_status check_operation(void *context, const jinja_node *node, bool *inside) {
    jinja_parser *parser = context;
    bool filter = node->kind == NODE_FILTER;
    *inside = node->kind != NODE_INLINE_IF; /* which is soft inside */
    if ((filter || node->kind == NODE_TEST) && node->what < 0)
        return jinja_parse_fail(
            parser, node->offset, "no %s named '%.*s'", filter ? "filter" : "test",
            TEXT_ARGUMENT(jinja_view_of(parser->chat->symbols[node->symbol].text)));
    return AVO_OK;
}

static avo_status check_operations(jinja_parser *parser, const jinja_node *node) {
    jinja_visitor visitor = {.enter = check_operation,
                             .context = parser,
                             .source = parser->chat->source,
                             .error = parser->error};
    return jinja_visit_expression(&visitor, node);
}

static avo_status parse_inline_if(jinja_parser *parser, jinja_node **out) {
    bool soft = parser->soft;
    uint32_t depth = parser->depth;
    parser->soft = true;
    AVO_TRY(parse_or(parser, out));
    bool found;
    AVO_TRY(jinja_skip_name(parser, "if", &found));
    if (!found && !soft)
        AVO_TRY(check_operations(parser, *out));
    while (found) {
        AVO_TRY(jinja_deeper(parser));
        jinja_node *node;
        AVO_TRY(jinja_node_new(parser, NODE_INLINE_IF, (*out)->offset, &node));
        node->choice.then = *out;
        *out = node;
        AVO_TRY(parse_or(parser, &node->choice.condition));
        AVO_TRY(jinja_skip_name(parser, "else", &found));
        if (found)
            AVO_TRY(parse_inline_if(parser, &node->choice.otherwise));
        AVO_TRY(jinja_skip_name(parser, "if", &found));
    }
    parser->depth = depth;
    parser->soft = soft;
    return AVO_OK;
}

avo_status jinja_parse_expression(jinja_parser *parser, bool with_inline_if, jinja_node **out) {
    AVO_TRY(jinja_deeper(parser));
    AVO_TRY(with_inline_if ? parse_inline_if(parser, out) : parse_or(parser, out));
    parser->depth--;
    return AVO_OK;
}

static bool at_tuple_end(const jinja_parser *parser, const char *end) {
    return parser->token.kind == TOKEN_PRINT_END || parser->token.kind == TOKEN_BLOCK_END ||
           jinja_at_operator(parser, ')') || (end != NULL && jinja_at_name(parser, end));
}

avo_status jinja_parse_tuple(jinja_parser *parser, jinja_tuple_rules rules, jinja_node **out) {
    uint32_t offset = parser->token.offset;
    jinja_node *items = NULL;
    jinja_node **place = &items;
    bool is_tuple = false;
    for (;;) {
        if (items != NULL)
            AVO_TRY(jinja_expect_operator(parser, ','));
        if (at_tuple_end(parser, rules.end))
            break;
        if (rules.simple)
            AVO_TRY(parse_primary(parser, rules.namespaces, place));
        else
            AVO_TRY(jinja_parse_expression(parser, !rules.no_inline_if, place));
        place = &(*place)->next;
        if (!jinja_at_operator(parser, ','))
            break;
        is_tuple = true;
    }
    if (!is_tuple && items != NULL) {
        *out = items;
        return AVO_OK;
    }
    if (!is_tuple && !rules.parentheses)
        return jinja_unexpected(parser, "an expression");
    AVO_TRY(jinja_node_new(parser, NODE_TUPLE, offset, out));
    (*out)->operand = items;
    return AVO_OK;
}

static avo_status check_target(jinja_parser *parser, const jinja_node *target) {
    if (target->kind == NODE_NAMESPACE_REFERENCE)
        return AVO_OK;
    if (target->kind == NODE_NAME) {
        if (target->symbol == parser->chat->symbol_loop && parser->in_loop_body)
            return jinja_parse_fail(parser, target->offset, "'loop' cannot be assigned in a loop");
        return AVO_OK;
    }
    if (target->kind != NODE_TUPLE)
        return jinja_parse_fail(parser, target->offset, "this cannot be assigned");
    for (const jinja_node *item = target->operand; item != NULL; item = item->next)
        AVO_TRY(check_target(parser, item));
    return AVO_OK;
}

avo_status jinja_parse_target(jinja_parser *parser, const char *end, bool namespaces,
                              jinja_node **out) {
    AVO_TRY(jinja_parse_tuple(
        parser, (jinja_tuple_rules){.simple = true, .namespaces = namespaces, .end = end}, out));
    return check_target(parser, *out);
}
