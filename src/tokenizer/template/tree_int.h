/* The tree of a parsed template and what makes it: tokens, nodes, the parser's state. Immutable
 * once parsed; it lies in the arena of its chat_template. */
#ifndef AVO_TEMPLATE_TREE_INT_H
#define AVO_TEMPLATE_TREE_INT_H

#include "tokenizer/template/value_int.h"

/* ---- lexer.c ---- */

typedef enum jinja_token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_NUMBER,
    TOKEN_OPERATOR
} jinja_token_kind;

/* Operators are known by their characters: '+' or, for two, OPERATOR('*', '*'). */
#define OPERATOR(first, second) ((first) << 8 | (second))

typedef struct jinja_token {
    jinja_token_kind kind;
    uint32_t offset; /* in the source */
    text_view text;  /* DATA, NAME; STRING: unescaped */
    int operation;   /* OPERATOR */
    int64_t integer;
    double number;
} jinja_token;

typedef enum jinja_lexer_state { LEXER_ROOT, LEXER_BLOCK, LEXER_PRINT } jinja_lexer_state;

typedef struct jinja_lexer {
    arena *arena;
    text_view source; /* newlines are \n, the last one is gone */
    size_t at;
    jinja_lexer_state state;
    bool line_starting; /* what was matched last ended with a newline */
    bool begin_pending; /* the tag behind the data that was just returned */
    jinja_token pending;
    char *open; /* brackets that wait for their other half */
    size_t open_count;
    size_t open_capacity;
    avo_error *error;
} jinja_lexer;

/* Normalises the newlines of `source` into the arena. */
AVO_MUST_USE avo_status jinja_lexer_init(jinja_lexer *lexer, arena *arena, text_view source,
                                         avo_error *error);
AVO_MUST_USE avo_status jinja_lexer_next(jinja_lexer *lexer, jinja_token *token);
/* The failure with line and column of a place in the source. */
AVO_MUST_USE avo_status jinja_fail_at(avo_error *error, text_view source, size_t offset,
                                      avo_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));

/* ---- nodes ---- */

typedef enum jinja_node_kind {
    /* Statements. */
    NODE_DATA,         /* constant */
    NODE_PRINT,        /* print */
    NODE_IF,           /* choice, a chain through `otherwise` for elif */
    NODE_FOR,          /* loop */
    NODE_SET,          /* assign */
    NODE_SET_BLOCK,    /* assign with body, value is a filter chain on NODE_CAPTURED or NULL */
    NODE_MACRO,        /* macro */
    NODE_CALL_BLOCK,   /* macro, whose `call` is the call */
    NODE_GENERATION,   /* macro without parameters, called at once */
    NODE_FILTER_BLOCK, /* block with filter */
    NODE_WITH,         /* with */
    NODE_BREAK,
    NODE_CONTINUE,
    /* Expressions. */
    NODE_CONSTANT,           /* constant */
    NODE_NAME,               /* symbol */
    NODE_ATTRIBUTE,          /* item, symbol */
    NODE_ITEM,               /* item */
    NODE_SLICE,              /* slice; only as the key of an item */
    NODE_CALL,               /* call */
    NODE_FILTER,             /* call, what: its number, −1 unknown */
    NODE_TEST,               /* call, what: its number, −1 unknown */
    NODE_NOT,                /* operand */
    NODE_NEGATE,             /* operand */
    NODE_POSITIVE,           /* operand */
    NODE_AND,                /* chain of operands */
    NODE_OR,                 /* chain of operands */
    NODE_MATH,               /* chain: first operand, then NODE_OPERAND with `what` */
    NODE_COMPARE,            /* chain, the same */
    NODE_CONCATENATE,        /* chain of operands */
    NODE_OPERAND,            /* operand, what: its operator */
    NODE_INLINE_IF,          /* choice */
    NODE_LIST,               /* chain */
    NODE_TUPLE,              /* chain */
    NODE_DICT,               /* chain of NODE_PAIR */
    NODE_PAIR,               /* item: object is the key, key is the value */
    NODE_KEYWORD,            /* symbol, operand */
    NODE_CAPTURED,           /* what a block wrote: the subject of its filters */
    NODE_NAMESPACE_REFERENCE /* symbol, what: the attribute's symbol; only a target */
} jinja_node_kind;

typedef struct jinja_call_node {
    jinja_node *subject;
    jinja_node *arguments; /* chain */
    jinja_node *keywords;  /* chain of NODE_KEYWORD */
    jinja_node *star;      /* *expression */
    jinja_node *star_star; /* **expression */
} jinja_call_node;

typedef struct jinja_loop_node {
    jinja_node *target, *iterable, *test, *body, *otherwise;
    uint32_t *hidden; /* names that the body assigns before it reads them; see scope.c */
    uint32_t hidden_count;
    bool recursive;
} jinja_loop_node;

typedef struct jinja_macro_node {
    uint32_t *parameters;  /* symbols */
    jinja_node **defaults; /* one per parameter, NULL: none */
    uint32_t parameter_count;
    bool takes_caller, takes_arguments, takes_keywords; /* caller, varargs, kwargs are used */
    bool explicit_caller;                               /* caller is a parameter */
    jinja_node *body;
    jinja_node *call;
    uint32_t *hidden;
    uint32_t hidden_count;
} jinja_macro_node;

struct jinja_node {
    jinja_node_kind kind;
    uint32_t offset; /* in the source */
    uint32_t symbol;
    int what;
    jinja_node *next; /* in a chain: statements, arguments, operands, items */
    union {
        jinja_value constant;
        jinja_node *operand; /* also PRINT's expression and the head of a chain */
        struct {
            jinja_node *condition, *then, *otherwise;
        } choice;
        struct {
            jinja_node *object, *key;
        } item;
        struct {
            jinja_node *start, *stop, *step;
        } slice;
        jinja_call_node call;
        jinja_loop_node loop;
        struct {
            jinja_node *target, *value, *body;
        } assign;
        jinja_macro_node macro;
        struct {
            jinja_node *body, *filter;
        } block;
        struct {
            jinja_node *targets, *values, *body; /* chains of the same length */
        } with;
    };
};

/* A name of the template: variable, attribute, keyword. */
typedef struct jinja_symbol {
    const jinja_text *text;
    int method;   /* jinja_method_name of that name, or METHOD_NONE */
    int function; /* jinja_function of that name, or FUNCTION_NONE */
    uint64_t hash;
    uint32_t same_slot; /* chain of the hash table: symbol number + 1 */
} jinja_symbol;

#define JINJA_SYMBOL_SLOTS 256

struct chat_template {
    const avo_allocator *allocator;
    arena arena;
    text_view source;
    bool has_generation; /* a generation block is in it */
    jinja_node *body;
    uint32_t *hidden;
    uint32_t hidden_count;
    jinja_symbol *symbols;
    uint32_t symbol_count;
    uint32_t symbol_capacity;
    uint32_t symbol_slots[JINJA_SYMBOL_SLOTS];
    uint32_t symbol_loop, symbol_caller, symbol_varargs, symbol_kwargs;
};

/* ---- parser ---- */

typedef struct jinja_parser {
    chat_template *chat;
    jinja_lexer lexer;
    jinja_token token; /* current */
    jinja_token ahead; /* the next, when ahead_read */
    bool ahead_read;
    uint32_t depth;
    bool soft;               /* inside an if: an unknown filter is an error only when it runs */
    uint32_t loops;          /* for loops around, up to the next macro: break may stand here */
    bool in_loop_body;       /* inside any loop: `loop` cannot be assigned */
    jinja_macro_node *macro; /* the innermost around */
    avo_error *error;
} jinja_parser;

/* parser.c */
AVO_MUST_USE avo_status jinja_parse(chat_template *chat, text_view source, avo_error *error);
AVO_MUST_USE avo_status jinja_advance(jinja_parser *parser);
AVO_MUST_USE avo_status jinja_look_ahead(jinja_parser *parser, const jinja_token **token);
bool jinja_at_operator(const jinja_parser *parser, int operation);
bool jinja_at_name(const jinja_parser *parser, const char *name);
AVO_MUST_USE avo_status jinja_skip_operator(jinja_parser *parser, int operation, bool *skipped);
AVO_MUST_USE avo_status jinja_skip_name(jinja_parser *parser, const char *name, bool *skipped);
AVO_MUST_USE avo_status jinja_expect_operator(jinja_parser *parser, int operation);
AVO_MUST_USE avo_status jinja_expect_name(jinja_parser *parser, text_view *name);
AVO_MUST_USE avo_status jinja_unexpected(jinja_parser *parser, const char *expected);
AVO_MUST_USE avo_status jinja_parse_fail(jinja_parser *parser, size_t offset, const char *format,
                                         ...) __attribute__((format(printf, 3, 4), cold));
AVO_MUST_USE avo_status jinja_node_new(jinja_parser *parser, jinja_node_kind kind, uint32_t offset,
                                       jinja_node **out);
AVO_MUST_USE avo_status jinja_intern(chat_template *chat, text_view name, uint32_t *symbol,
                                     avo_error *error);
AVO_MUST_USE avo_status jinja_deeper(jinja_parser *parser);
/* A trusted text in the template's arena. */
AVO_MUST_USE avo_status jinja_literal(jinja_parser *parser, text_view text, jinja_value *out);

/* parse_expression.c */
AVO_MUST_USE avo_status jinja_parse_expression(jinja_parser *parser, bool with_inline_if,
                                               jinja_node **out);
typedef struct jinja_tuple_rules {
    bool simple; /* only names and literals */
    bool no_inline_if;
    bool parentheses; /* were written: the empty tuple is allowed */
    bool namespaces;  /* name.attribute is a reference to a namespace's attribute */
    const char *end;  /* a name that ends the tuple too */
} jinja_tuple_rules;
AVO_MUST_USE avo_status jinja_parse_tuple(jinja_parser *parser, jinja_tuple_rules rules,
                                          jinja_node **out);
AVO_MUST_USE avo_status jinja_parse_filters(jinja_parser *parser, jinja_node *subject,
                                            bool first_without_pipe, jinja_node **out);
AVO_MUST_USE avo_status jinja_parse_target(jinja_parser *parser, const char *end, bool namespaces,
                                           jinja_node **out);

/* scope.c: fills the `hidden` lists. */
AVO_MUST_USE avo_status jinja_resolve_scopes(chat_template *chat, avo_error *error);

/* visit.c: calls `enter` for a node, then for those inside it unless that sets *inside to false. A
 * NULL node is none. Nesting past JINJA_EVALUATION_DEPTH_MAX is AVO_ERROR_LIMIT. */
typedef struct jinja_visitor {
    avo_status (*enter)(void *context, const jinja_node *node, bool *inside);
    void *context;
    text_view source; /* of the template, for messages */
    avo_error *error;
    uint32_t depth; /* 0 to begin with */
} jinja_visitor;
AVO_MUST_USE avo_status jinja_visit_expression(jinja_visitor *visitor, const jinja_node *node);

#endif
