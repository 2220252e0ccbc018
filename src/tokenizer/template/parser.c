/* The parser's tools and its statements. */
#include "base/hash.h"
#include "tokenizer/template/render_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static avo_status no_memory(jinja_parser *parser) {
    return status_fail(parser->error, AVO_ERROR_MEMORY, "out of memory for a chat template");
}

avo_status jinja_parse_fail(jinja_parser *parser, size_t offset, const char *format, ...) {
    char text[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return jinja_fail_at(parser->error, parser->chat->source, offset, AVO_ERROR_TEMPLATE, "%s",
                         text);
}

avo_status jinja_advance(jinja_parser *parser) {
    if (parser->ahead_read) {
        parser->token = parser->ahead;
        parser->ahead_read = false;
        return AVO_OK;
    }
    return jinja_lexer_next(&parser->lexer, &parser->token);
}

avo_status jinja_look_ahead(jinja_parser *parser, const jinja_token **token) {
    if (!parser->ahead_read) {
        AVO_TRY(jinja_lexer_next(&parser->lexer, &parser->ahead));
        parser->ahead_read = true;
    }
    *token = &parser->ahead;
    return AVO_OK;
}

bool jinja_at_operator(const jinja_parser *parser, int operation) {
    return parser->token.kind == TOKEN_OPERATOR && parser->token.operation == operation;
}

bool jinja_at_name(const jinja_parser *parser, const char *name) {
    return parser->token.kind == TOKEN_NAME && text_is(parser->token.text, name);
}

avo_status jinja_skip_operator(jinja_parser *parser, int operation, bool *skipped) {
    *skipped = jinja_at_operator(parser, operation);
    return *skipped ? jinja_advance(parser) : AVO_OK;
}

avo_status jinja_skip_name(jinja_parser *parser, const char *name, bool *skipped) {
    *skipped = jinja_at_name(parser, name);
    return *skipped ? jinja_advance(parser) : AVO_OK;
}

avo_status jinja_unexpected(jinja_parser *parser, const char *expected) {
    const jinja_token *token = &parser->token;
    char found[64];
    switch (token->kind) {
    case TOKEN_END:
        snprintf(found, sizeof(found), "the end of the template");
        break;
    case TOKEN_NAME:
        snprintf(found, sizeof(found), "'%.*s'",
                 (int)(token->text.size > 40 ? 40 : token->text.size), token->text.data);
        break;
    case TOKEN_OPERATOR:
        if (token->operation > 0xFF)
            snprintf(found, sizeof(found), "'%c%c'", token->operation >> 8,
                     token->operation & 0xFF);
        else
            snprintf(found, sizeof(found), "'%c'", token->operation);
        break;
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_NUMBER:
        snprintf(found, sizeof(found), "a literal");
        break;
    default:
        snprintf(found, sizeof(found), "the end of the tag");
        break;
    }
    return jinja_parse_fail(parser, token->offset, "expected %s, found %s", expected, found);
}

avo_status jinja_expect_operator(jinja_parser *parser, int operation) {
    if (jinja_at_operator(parser, operation))
        return jinja_advance(parser);
    char expected[8];
    snprintf(expected, sizeof(expected), "'%c'", operation);
    return jinja_unexpected(parser, expected);
}

avo_status jinja_expect_name(jinja_parser *parser, text_view *name) {
    if (parser->token.kind != TOKEN_NAME)
        return jinja_unexpected(parser, "a name");
    *name = parser->token.text;
    return jinja_advance(parser);
}

avo_status jinja_node_new(jinja_parser *parser, jinja_node_kind kind, uint32_t offset,
                          jinja_node **out) {
    *out = arena_take(&parser->chat->arena, sizeof(**out));
    if (*out == NULL)
        return no_memory(parser);
    (*out)->kind = kind;
    (*out)->offset = offset;
    return AVO_OK;
}

avo_status jinja_deeper(jinja_parser *parser) {
    if (parser->depth >= TEMPLATE_DEPTH_MAX)
        return jinja_fail_at(parser->error, parser->chat->source, parser->token.offset,
                             AVO_ERROR_LIMIT, "nested more than %d levels deep",
                             TEMPLATE_DEPTH_MAX);
    parser->depth++;
    return AVO_OK;
}

static jinja_text *literal_new(arena *arena, text_view bytes) {
    jinja_text *text = arena_take(arena, sizeof(*text));
    if (text != NULL)
        *text = (jinja_text){.data = bytes.size == 0 ? "" : bytes.data,
                             .size = bytes.size,
                             .length = jinja_count_characters(bytes.data, bytes.size),
                             .origin = JINJA_TRUSTED};
    return text;
}

avo_status jinja_literal(jinja_parser *parser, text_view bytes, jinja_value *out) {
    const jinja_text *text = literal_new(&parser->chat->arena, bytes);
    if (text == NULL)
        return no_memory(parser);
    *out = jinja_string(text);
    return AVO_OK;
}

avo_status jinja_intern(chat_template *chat, text_view name, uint32_t *symbol, avo_error *error) {
    uint64_t hash = hash_bytes(name.data, name.size);
    uint32_t *slot = &chat->symbol_slots[hash % JINJA_SYMBOL_SLOTS];
    for (uint32_t at = *slot; at != 0; at = chat->symbols[at - 1].same_slot) {
        if (chat->symbols[at - 1].hash == hash &&
            text_equal(jinja_view_of(chat->symbols[at - 1].text), name)) {
            *symbol = at - 1;
            return AVO_OK;
        }
    }
    if (chat->symbol_count == chat->symbol_capacity) {
        uint32_t capacity = chat->symbol_capacity == 0 ? 64 : chat->symbol_capacity * 2;
        jinja_symbol *symbols = arena_take_array(&chat->arena, capacity, sizeof(*symbols));
        if (symbols == NULL)
            return status_fail(error, AVO_ERROR_MEMORY, "out of memory for a chat template");
        if (chat->symbol_count > 0)
            memcpy(symbols, chat->symbols, chat->symbol_count * sizeof(*symbols));
        chat->symbols = symbols;
        chat->symbol_capacity = capacity;
    }
    const jinja_text *text = literal_new(&chat->arena, name);
    if (text == NULL)
        return status_fail(error, AVO_ERROR_MEMORY, "out of memory for a chat template");
    *symbol = chat->symbol_count++;
    chat->symbols[*symbol] = (jinja_symbol){.text = text,
                                            .method = jinja_method_number(name),
                                            .function = jinja_function_number(name),
                                            .hash = hash,
                                            .same_slot = *slot};
    *slot = *symbol + 1;
    return AVO_OK;
}

/* ---- Statements ---- */

static avo_status parse_statements(jinja_parser *parser, const char *const *ends,
                                   jinja_node **body);

static avo_status expect_block_end(jinja_parser *parser) {
    if (parser->token.kind != TOKEN_BLOCK_END)
        return jinja_unexpected(parser, "'%}'");
    return jinja_advance(parser);
}

/* "%}" and what follows up to one of `ends`, at which the parser then stands. */
static avo_status parse_body(jinja_parser *parser, const char *const *ends, jinja_node **body) {
    bool colon;
    AVO_TRY(jinja_skip_operator(parser, ':', &colon));
    AVO_TRY(expect_block_end(parser));
    AVO_TRY(jinja_deeper(parser));
    AVO_TRY(parse_statements(parser, ends, body));
    parser->depth--;
    return AVO_OK;
}

/* The same up to the one word `end`, which is consumed. `scope` bodies have their own variables:
 * an unknown filter in them is an error at once, even inside an if. */
static avo_status parse_whole_body(jinja_parser *parser, const char *end, jinja_node **body) {
    bool soft = parser->soft;
    parser->soft = false;
    AVO_TRY(parse_body(parser, (const char *const[]){end, NULL}, body));
    parser->soft = soft;
    return jinja_advance(parser);
}

static avo_status parse_set(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    jinja_node *node;
    AVO_TRY(jinja_node_new(parser, NODE_SET, offset, &node));
    AVO_TRY(jinja_parse_target(parser, NULL, true, &node->assign.target));
    bool assign;
    AVO_TRY(jinja_skip_operator(parser, '=', &assign));
    *out = node;
    if (assign)
        return jinja_parse_tuple(parser, (jinja_tuple_rules){0}, &node->assign.value);
    node->kind = NODE_SET_BLOCK;
    if (jinja_at_operator(parser, '|')) {
        jinja_node *captured;
        AVO_TRY(jinja_node_new(parser, NODE_CAPTURED, offset, &captured));
        AVO_TRY(jinja_parse_filters(parser, captured, false, &node->assign.value));
    }
    return parse_whole_body(parser, "endset", &node->assign.body);
}

static avo_status parse_for(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    jinja_node *node;
    AVO_TRY(jinja_node_new(parser, NODE_FOR, offset, &node));
    bool was_in_loop = parser->in_loop_body;
    parser->in_loop_body = true;
    AVO_TRY(jinja_parse_target(parser, "in", false, &node->loop.target));
    parser->in_loop_body = was_in_loop;
    bool found;
    AVO_TRY(jinja_skip_name(parser, "in", &found));
    if (!found)
        return jinja_unexpected(parser, "'in'");
    AVO_TRY(jinja_parse_tuple(parser, (jinja_tuple_rules){.no_inline_if = true, .end = "recursive"},
                              &node->loop.iterable));
    bool soft = parser->soft;
    parser->soft = false;
    AVO_TRY(jinja_skip_name(parser, "if", &found));
    if (found)
        AVO_TRY(jinja_parse_expression(parser, true, &node->loop.test));
    AVO_TRY(jinja_skip_name(parser, "recursive", &node->loop.recursive));
    parser->loops++;
    parser->in_loop_body = true;
    AVO_TRY(parse_body(parser, (const char *const[]){"endfor", "else", NULL}, &node->loop.body));
    parser->loops--;
    AVO_TRY(jinja_skip_name(parser, "else", &found));
    if (found)
        AVO_TRY(parse_body(parser, (const char *const[]){"endfor", NULL}, &node->loop.otherwise));
    parser->in_loop_body = was_in_loop;
    parser->soft = soft;
    *out = node;
    return jinja_advance(parser);
}

static avo_status parse_if(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    bool soft = parser->soft;
    parser->soft = true;
    jinja_node **place = out;
    for (;;) {
        jinja_node *node;
        AVO_TRY(jinja_node_new(parser, NODE_IF, offset, &node));
        *place = node;
        AVO_TRY(jinja_parse_tuple(parser, (jinja_tuple_rules){.no_inline_if = true},
                                  &node->choice.condition));
        AVO_TRY(parse_body(parser, ends, &node->choice.then));
        place = &node->choice.otherwise;
        offset = parser->token.offset;
        bool found;
        AVO_TRY(jinja_skip_name(parser, "elif", &found));
        if (found)
            continue;
        AVO_TRY(jinja_skip_name(parser, "else", &found));
        if (found)
            AVO_TRY(parse_body(parser, (const char *const[]){"endif", NULL}, place));
        break;
    }
    parser->soft = soft;
    return jinja_advance(parser);
}

/* Parameters in parentheses. */
static avo_status parse_signature(jinja_parser *parser, jinja_macro_node *macro) {
    AVO_TRY(jinja_expect_operator(parser, '('));
    uint32_t capacity = 0;
    while (!jinja_at_operator(parser, ')')) {
        if (macro->parameter_count > 0)
            AVO_TRY(jinja_expect_operator(parser, ','));
        if (macro->parameter_count == capacity) {
            uint32_t larger = capacity == 0 ? 8 : capacity * 2;
            uint32_t *parameters = arena_take_array(&parser->chat->arena, larger, sizeof(uint32_t));
            jinja_node **defaults =
                arena_take_array(&parser->chat->arena, larger, sizeof(jinja_node *));
            if (parameters == NULL || defaults == NULL)
                return no_memory(parser);
            if (capacity > 0) {
                memcpy(parameters, macro->parameters, capacity * sizeof(*parameters));
                memcpy(defaults, macro->defaults, capacity * sizeof(jinja_node *));
            }
            macro->parameters = parameters;
            macro->defaults = defaults;
            capacity = larger;
        }
        uint32_t offset = parser->token.offset;
        text_view name;
        AVO_TRY(jinja_expect_name(parser, &name));
        uint32_t at = macro->parameter_count;
        AVO_TRY(jinja_intern(parser->chat, name, &macro->parameters[at], parser->error));
        for (uint32_t i = 0; i < at; i++)
            if (macro->parameters[i] == macro->parameters[at])
                return jinja_parse_fail(parser, offset, "parameter '%.*s' appears twice",
                                        TEXT_ARGUMENT(name));
        macro->explicit_caller |= macro->parameters[at] == parser->chat->symbol_caller;
        macro->parameter_count++;
        bool assign;
        AVO_TRY(jinja_skip_operator(parser, '=', &assign));
        if (assign)
            AVO_TRY(jinja_parse_expression(parser, true, &macro->defaults[at]));
        else if (at > 0 && macro->defaults[at - 1] != NULL)
            return jinja_parse_fail(parser, offset,
                                    "a parameter without a default follows one with a default");
    }
    return jinja_advance(parser);
}

/* Signature (where there is one) and body of a macro or call block. */
static avo_status parse_macro_body(jinja_parser *parser, jinja_node *node, const char *end) {
    jinja_macro_node *around = parser->macro;
    uint32_t loops = parser->loops;
    uint32_t offset = node->offset;
    parser->macro = &node->macro;
    parser->loops = 0;
    AVO_TRY(parse_whole_body(parser, end, &node->macro.body));
    parser->macro = around;
    parser->loops = loops;
    jinja_macro_node *macro = &node->macro;
    if (around != NULL) {
        around->takes_caller |= macro->takes_caller;
        around->takes_arguments |= macro->takes_arguments;
        around->takes_keywords |= macro->takes_keywords;
    }
    for (uint32_t i = 0; i < macro->parameter_count; i++) {
        if (macro->parameters[i] == parser->chat->symbol_varargs)
            macro->takes_arguments = false;
        if (macro->parameters[i] == parser->chat->symbol_kwargs)
            macro->takes_keywords = false;
        if (macro->parameters[i] == parser->chat->symbol_caller && macro->takes_caller &&
            macro->defaults[i] == NULL)
            return jinja_parse_fail(parser, offset,
                                    "the parameter 'caller' must be omitted or have a default");
    }
    return AVO_OK;
}

static avo_status parse_macro(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    jinja_node *node;
    AVO_TRY(jinja_node_new(parser, NODE_MACRO, offset, &node));
    text_view name;
    AVO_TRY(jinja_expect_name(parser, &name));
    AVO_TRY(jinja_intern(parser->chat, name, &node->symbol, parser->error));
    bool soft = parser->soft;
    parser->soft = false;
    AVO_TRY(parse_signature(parser, &node->macro));
    parser->soft = soft;
    *out = node;
    return parse_macro_body(parser, node, "endmacro");
}

static avo_status parse_call_block(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    jinja_node *node;
    AVO_TRY(jinja_node_new(parser, NODE_CALL_BLOCK, offset, &node));
    if (jinja_at_operator(parser, '('))
        AVO_TRY(parse_signature(parser, &node->macro));
    AVO_TRY(jinja_parse_expression(parser, true, &node->macro.call));
    if (node->macro.call->kind != NODE_CALL)
        return jinja_parse_fail(parser, offset, "{%% call %%} needs a call");
    *out = node;
    return parse_macro_body(parser, node, "endcall");
}

static avo_status parse_generation(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    AVO_TRY(jinja_node_new(parser, NODE_GENERATION, offset, out));
    parser->chat->has_generation = true;
    return parse_macro_body(parser, *out, "endgeneration");
}

static avo_status parse_filter_block(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    jinja_node *node;
    jinja_node *captured;
    AVO_TRY(jinja_node_new(parser, NODE_FILTER_BLOCK, offset, &node));
    AVO_TRY(jinja_node_new(parser, NODE_CAPTURED, offset, &captured));
    AVO_TRY(jinja_parse_filters(parser, captured, true, &node->block.filter));
    *out = node;
    return parse_whole_body(parser, "endfilter", &node->block.body);
}

static avo_status parse_with(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    jinja_node *node;
    AVO_TRY(jinja_node_new(parser, NODE_WITH, offset, &node));
    jinja_node **target = &node->with.targets;
    jinja_node **value = &node->with.values;
    while (parser->token.kind != TOKEN_BLOCK_END) {
        if (node->with.targets != NULL)
            AVO_TRY(jinja_expect_operator(parser, ','));
        AVO_TRY(jinja_parse_target(parser, NULL, false, target));
        AVO_TRY(jinja_expect_operator(parser, '='));
        AVO_TRY(jinja_parse_expression(parser, true, value));
        target = &(*target)->next;
        value = &(*value)->next;
    }
    *out = node;
    return parse_whole_body(parser, "endwith", &node->with.body);
}

static avo_status parse_print(jinja_parser *parser, uint32_t offset, jinja_node **out) {
    *out = NULL;
    while (parser->token.kind != TOKEN_BLOCK_END) {
        if (*out != NULL) {
            AVO_TRY(jinja_expect_operator(parser, ','));
            out = &(*out)->next;
        }
        AVO_TRY(jinja_node_new(parser, NODE_PRINT, offset, out));
        AVO_TRY(jinja_parse_expression(parser, true, &(*out)->operand));
    }
    return AVO_OK;
}

static avo_status parse_loop_control(jinja_parser *parser, uint32_t offset, bool is_break,
                                     jinja_node **out) {
    if (parser->loops == 0)
        return jinja_parse_fail(parser, offset, "'%s' outside of a loop",
                                is_break ? "break" : "continue");
    return jinja_node_new(parser, is_break ? NODE_BREAK : NODE_CONTINUE, offset, out);
}

/* One statement; the parser stands behind "{%". May give a chain, or nothing. */
static avo_status parse_statement(jinja_parser *parser, jinja_node **out) {
    static const char *const refused[] = {"block",  "extends", "include",
                                          "import", "from",    "autoescape"};
    uint32_t offset = parser->token.offset;
    text_view name = {0};
    AVO_TRY(jinja_expect_name(parser, &name));
    if (text_is(name, "set"))
        return parse_set(parser, offset, out);
    if (text_is(name, "if"))
        return parse_if(parser, offset, out);
    if (text_is(name, "for"))
        return parse_for(parser, offset, out);
    if (text_is(name, "macro"))
        return parse_macro(parser, offset, out);
    if (text_is(name, "call"))
        return parse_call_block(parser, offset, out);
    if (text_is(name, "filter"))
        return parse_filter_block(parser, offset, out);
    if (text_is(name, "generation"))
        return parse_generation(parser, offset, out);
    if (text_is(name, "with"))
        return parse_with(parser, offset, out);
    if (text_is(name, "print"))
        return parse_print(parser, offset, out);
    if (text_is(name, "break") || text_is(name, "continue"))
        return parse_loop_control(parser, offset, text_is(name, "break"), out);
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
        if (text_is(name, refused[i]))
            return jinja_parse_fail(parser, offset, "{%% %s %%} is not supported", refused[i]);
    return jinja_parse_fail(parser, offset, "unknown tag '%.*s'", TEXT_ARGUMENT(name));
}

static bool at_end_word(const jinja_parser *parser, const char *const *ends) {
    for (; ends != NULL && *ends != NULL; ends++)
        if (jinja_at_name(parser, *ends))
            return true;
    return false;
}

static avo_status parse_statements(jinja_parser *parser, const char *const *ends,
                                   jinja_node **body) {
    jinja_node **place = body;
    *place = NULL;
    while (parser->token.kind != TOKEN_END) {
        uint32_t offset = parser->token.offset;
        switch (parser->token.kind) {
        case TOKEN_DATA:
            AVO_TRY(jinja_node_new(parser, NODE_DATA, offset, place));
            AVO_TRY(jinja_literal(parser, parser->token.text, &(*place)->constant));
            AVO_TRY(jinja_advance(parser));
            break;
        case TOKEN_PRINT_BEGIN:
            AVO_TRY(jinja_advance(parser));
            AVO_TRY(jinja_node_new(parser, NODE_PRINT, offset, place));
            AVO_TRY(jinja_parse_tuple(parser, (jinja_tuple_rules){0}, &(*place)->operand));
            if (parser->token.kind != TOKEN_PRINT_END)
                return jinja_unexpected(parser, "'}}'");
            AVO_TRY(jinja_advance(parser));
            break;
        default: /* BLOCK_BEGIN: the lexer gives nothing else here */
            AVO_TRY(jinja_advance(parser));
            if (at_end_word(parser, ends))
                return AVO_OK;
            AVO_TRY(parse_statement(parser, place));
            AVO_TRY(expect_block_end(parser));
            break;
        }
        while (*place != NULL)
            place = &(*place)->next;
    }
    if (ends != NULL)
        return jinja_parse_fail(parser, parser->token.offset,
                                "the template ends, but {%% %s %%} is missing", ends[0]);
    return AVO_OK;
}

avo_status jinja_parse(chat_template *chat, text_view source, avo_error *error) {
    jinja_parser parser = {.chat = chat, .error = error};
    AVO_TRY(jinja_lexer_init(&parser.lexer, &chat->arena, source, error));
    chat->source = parser.lexer.source;
    AVO_TRY(jinja_intern(chat, TEXT_LITERAL("loop"), &chat->symbol_loop, error));
    AVO_TRY(jinja_intern(chat, TEXT_LITERAL("caller"), &chat->symbol_caller, error));
    AVO_TRY(jinja_intern(chat, TEXT_LITERAL("varargs"), &chat->symbol_varargs, error));
    AVO_TRY(jinja_intern(chat, TEXT_LITERAL("kwargs"), &chat->symbol_kwargs, error));
    AVO_TRY(jinja_advance(&parser));
    AVO_TRY(parse_statements(&parser, NULL, &chat->body));
    return jinja_resolve_scopes(chat, error);
}
