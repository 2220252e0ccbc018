/* The state of one render and the parts of the evaluator. */
#ifndef AVO_TEMPLATE_RENDER_INT_H
#define AVO_TEMPLATE_RENDER_INT_H

#include "tokenizer/template/tree_int.h"

/* Nested evaluations in all: macros within blocks within expressions. Bounds the C stack. */
#define JINJA_EVALUATION_DEPTH_MAX 1000
/* Lists within lists, when compared, hashed or printed. */
#define JINJA_VALUE_DEPTH_MAX 200
#define JINJA_RANGE_MAX       100000 /* as jinja2's sandbox */
/* A step is charged for so many bytes that are copied or searched. */
#define JINJA_BYTES_PER_STEP 128

/* The variables of a block. Names are few: searched linearly. */
typedef struct jinja_binding {
    uint32_t symbol;
    jinja_value value; /* MISSING: assigned later, hides what lies outside */
} jinja_binding;
typedef struct jinja_scope jinja_scope;
struct jinja_scope {
    jinja_scope *parent; /* the block around, as written */
    jinja_binding *bindings;
    uint32_t count;
    uint32_t capacity;
    bool captured; /* a macro or loop keeps it: the next round of a loop needs its own */
    jinja_binding first[4];
};

struct jinja_macro {
    const jinja_macro_node *node;
    text_view name; /* empty: a caller */
    jinja_scope *scope;
};

struct jinja_loop {
    const jinja_node *node;
    jinja_scope *scope; /* around the loop */
    jinja_scope *test_scope;
    jinja_iterator *iterator;
    size_t known_length; /* of the iterable, SIZE_MAX: has none */
    size_t index;        /* from 0 */
    bool has_after;
    bool finished; /* the iterator is at its end */
    bool tested;   /* what the iterator still gives has passed the test */
    jinja_value after, current, before;
    jinja_value changed;
    uint32_t depth;
};

typedef enum jinja_flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } jinja_flow;

struct jinja_render {
    const chat_template *chat;
    const chat_template_input *input;
    arena arena;
    avo_error *error;
    const jinja_node *node; /* being evaluated: where an error is reported */
    jinja_value *globals;   /* one per symbol; MISSING: no such variable */
    jinja_scope *scope;
    jinja_builder *output;
    jinja_builder *page;  /* the output of the whole template, where generation blocks are noted */
    text_span *generated; /* of `page`: what generation blocks wrote; ascending, disjoint */
    size_t generated_count, generated_capacity;
    bool generated_inside; /* a generation block wrote elsewhere: into a macro or a variable */
    jinja_flow flow;
    jinja_value captured; /* of the block whose filters run */
    uint64_t steps_left;
    uint32_t depth;       /* of evaluations */
    uint32_t calls;       /* of macros */
    uint32_t value_depth; /* of values being walked */
};

/* ---- render.c ---- */

AVO_MUST_USE avo_status jinja_fail(jinja_render *render, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* "'name' is undefined", or why. */
AVO_MUST_USE avo_status jinja_fail_undefined(jinja_render *render, jinja_value value);
/* What jinja2 knows but this engine does not. */
AVO_MUST_USE avo_status jinja_unsupported(jinja_render *render, const char *what);
AVO_MUST_USE avo_status jinja_limit(jinja_render *render, const char *what);
AVO_MUST_USE avo_status jinja_out_of_steps(jinja_render *render);
/* Cleared memory; size may be 0 (then some address). */
AVO_MUST_USE avo_status jinja_take(jinja_render *render, size_t count, size_t size, void *out);

static inline avo_status jinja_charge(jinja_render *render, size_t steps) {
    if (render->steps_left < steps)
        return jinja_out_of_steps(render);
    render->steps_left -= steps;
    return AVO_OK;
}
static inline avo_status jinja_charge_bytes(jinja_render *render, size_t bytes) {
    return jinja_charge(render, bytes / JINJA_BYTES_PER_STEP);
}
AVO_MUST_USE avo_status jinja_from_json(jinja_render *render, const json_value *json,
                                        jinja_value *out);

/* ---- evaluate.c (statements), expression.c ---- */

AVO_MUST_USE avo_status jinja_run(jinja_render *render, const jinja_node *statements);
AVO_MUST_USE avo_status jinja_capture(jinja_render *render, const jinja_node *statements,
                                      jinja_value *out);
AVO_MUST_USE avo_status jinja_assign(jinja_render *render, const jinja_node *target,
                                     jinja_value value);
AVO_MUST_USE avo_status jinja_bind(jinja_render *render, jinja_scope *scope, uint32_t symbol,
                                   jinja_value value);
/* An empty scope; *out, where there is one, is used again unless it is captured. */
AVO_MUST_USE avo_status jinja_scope_new(jinja_render *render, jinja_scope *parent,
                                        const uint32_t *hidden, uint32_t hidden_count,
                                        jinja_scope **out);
/* The body of a loop over `iterable`; `depth` of recursive loops. */
AVO_MUST_USE avo_status jinja_run_loop(jinja_render *render, const jinja_node *node,
                                       jinja_value iterable, uint32_t depth);
AVO_MUST_USE avo_status jinja_loop_attribute(jinja_render *render, jinja_loop *loop, text_view name,
                                             jinja_value *out);
AVO_MUST_USE avo_status jinja_loop_length(jinja_render *render, jinja_loop *loop, size_t *length);

AVO_MUST_USE avo_status jinja_evaluate(jinja_render *render, const jinja_node *node,
                                       jinja_value *out);
AVO_MUST_USE avo_status jinja_evaluate_truth(jinja_render *render, const jinja_node *node,
                                             bool *truth);
AVO_MUST_USE avo_status jinja_lookup(jinja_render *render, uint32_t symbol, jinja_value *out);
/* environment.getattr and environment.getitem of jinja2's sandbox. */
AVO_MUST_USE avo_status jinja_get_attribute(jinja_render *render, jinja_value object,
                                            const jinja_symbol *symbol, jinja_value *out);
AVO_MUST_USE avo_status jinja_get_item(jinja_render *render, jinja_value object, jinja_value key,
                                       jinja_value *out);
AVO_MUST_USE avo_status jinja_get_attribute_text(jinja_render *render, jinja_value object,
                                                 const jinja_text *name, jinja_value *out);

/* ---- call.c ---- */

AVO_MUST_USE avo_status jinja_call(jinja_render *render, jinja_value callee,
                                   jinja_arguments *arguments, jinja_value *out);
AVO_MUST_USE avo_status jinja_evaluate_arguments(jinja_render *render, const jinja_call_node *node,
                                                 jinja_arguments *out);
/* Sorts what was given into the parameters `names` (those not given are MISSING); `required` of
 * them must be given. `what` is named in the error. */
AVO_MUST_USE avo_status jinja_parameters(jinja_render *render, const char *what,
                                         const jinja_arguments *arguments, const char *const *names,
                                         size_t count, size_t required, jinja_value *values);

/* ---- operators.c ---- */

AVO_MUST_USE avo_status jinja_math(jinja_render *render, int operation, jinja_value left,
                                   jinja_value right, jinja_value *out);
AVO_MUST_USE avo_status jinja_compare(jinja_render *render, int operation, jinja_value left,
                                      jinja_value right, bool *result);
AVO_MUST_USE avo_status jinja_slice(jinja_render *render, jinja_value object, jinja_value start,
                                    jinja_value stop, jinja_value step, jinja_value *out);
#define OPERATOR_IN     1
#define OPERATOR_NOT_IN 2

/* ---- filters*.c, tests.c, methods*.c, functions.c ---- */

int jinja_filter_number(text_view name); /* −1: unknown */
int jinja_test_number(text_view name);
AVO_MUST_USE avo_status jinja_filter(jinja_render *render, int number, jinja_value subject,
                                     const jinja_arguments *arguments, jinja_value *out);
AVO_MUST_USE avo_status jinja_test(jinja_render *render, int number, jinja_value subject,
                                   const jinja_arguments *arguments, bool *result);

#define JINJA_FILTER_PARAMETERS 4
#define JINJA_OWN_ARGUMENTS     (-1) /* the function reads `arguments` itself */
typedef struct jinja_filter_call {
    jinja_value subject;
    jinja_value values[JINJA_FILTER_PARAMETERS]; /* by the entry's parameters; MISSING: not given */
    const jinja_arguments *arguments;
    const char *name;
    int option;
} jinja_filter_call;
typedef avo_status (*jinja_filter_function)(jinja_render *render, const jinja_filter_call *call,
                                            jinja_value *out);
typedef struct jinja_filter_entry {
    const char *name;
    jinja_filter_function function; /* NULL: jinja2 has it, this engine does not */
    const char *parameters[JINJA_FILTER_PARAMETERS];
    int required; /* so many of them must be given; or JINJA_OWN_ARGUMENTS */
    int option;   /* for functions that are several filters */
} jinja_filter_entry;
extern const jinja_filter_entry jinja_text_filters[];
extern const jinja_filter_entry jinja_sequence_filters[];
extern const jinja_filter_entry jinja_value_filters[];

/* The path "a.b.0" of selectattr, map(attribute=…) and sort, applied to one item. */
AVO_MUST_USE avo_status jinja_attribute_path(jinja_render *render, jinja_value item,
                                             jinja_value path, jinja_value fallback,
                                             jinja_value *out);
AVO_MUST_USE avo_status jinja_lower_if_text(jinja_render *render, jinja_value value,
                                            jinja_value *out);
/* Stable; `keys` decide, NULL: the items themselves. */
AVO_MUST_USE avo_status jinja_sort(jinja_render *render, jinja_value *items, jinja_value *keys,
                                   size_t count, bool reverse);

/* One line per few names; the formatter never comes to rest here. */
/* clang-format off */
#define JINJA_METHODS(X)                                                                           \
    X(append) X(as_integer_ratio) X(bit_count) X(bit_length) X(capitalize) X(casefold) X(center)   \
    X(clear) X(conjugate) X(copy) X(count) X(denominator) X(encode) X(endswith) X(expandtabs)      \
    X(extend) X(find) X(format) X(format_map) X(from_bytes) X(fromhex) X(fromkeys) X(get) X(hex)   \
    X(imag) X(index) X(insert) X(is_integer) X(isalnum) X(isalpha) X(isascii) X(isdecimal)         \
    X(isdigit) X(isidentifier) X(islower) X(isnumeric) X(isprintable) X(isspace) X(istitle)        \
    X(isupper) X(items) X(join) X(keys) X(ljust) X(lower) X(lstrip) X(maketrans) X(numerator)      \
    X(partition) X(pop) X(popitem) X(real) X(remove) X(removeprefix) X(removesuffix) X(replace)    \
    X(reverse) X(rfind) X(rindex) X(rjust) X(rpartition) X(rsplit) X(rstrip) X(setdefault)         \
    X(sort) X(split) X(splitlines) X(start) X(startswith) X(step) X(stop) X(strip) X(swapcase)     \
    X(title) X(to_bytes) X(translate) X(update) X(upper) X(values) X(zfill) X(isdisjoint)          \
    X(mapping)
/* clang-format on */

typedef enum jinja_method_name {
    METHOD_NONE,
#define JINJA_METHOD_ENUM(name) METHOD_##name,
    JINJA_METHODS(JINJA_METHOD_ENUM)
#undef JINJA_METHOD_ENUM
        METHOD_LOOP_CYCLE,
    METHOD_LOOP_CHANGED
} jinja_method_name;

int jinja_method_number(text_view name);
const char *jinja_method_text(int method);
typedef enum jinja_access {
    ACCESS_NONE,
    ACCESS_METHOD,
    ACCESS_UNSAFE,
    ACCESS_UNSUPPORTED
} jinja_access;
/* What attribute `method` is for a value of this kind. */
jinja_access jinja_method_access(int method, jinja_kind kind);
AVO_MUST_USE avo_status jinja_call_method(jinja_render *render, const jinja_method *method,
                                          const jinja_arguments *arguments, jinja_value *out);
AVO_MUST_USE avo_status jinja_text_method(jinja_render *render, int method, const jinja_text *text,
                                          const jinja_arguments *arguments, jinja_value *out);
/* The parts of text methods that filters use too. */
AVO_MUST_USE avo_status jinja_strip(jinja_render *render, const jinja_text *text, jinja_value chars,
                                    bool left, bool right, jinja_value *out);
AVO_MUST_USE avo_status jinja_replace(jinja_render *render, const jinja_text *text,
                                      const jinja_text *from, const jinja_text *to, int64_t count,
                                      jinja_value *out);
AVO_MUST_USE avo_status jinja_change_case(jinja_render *render, const jinja_text *text, int method,
                                          jinja_value *out);
AVO_MUST_USE avo_status jinja_join(jinja_render *render, const jinja_text *separator,
                                   jinja_value items, bool convert, jinja_value *out);
AVO_MUST_USE avo_status jinja_split_lines(jinja_render *render, const jinja_text *text,
                                          bool keep_ends, jinja_sequence **out);
AVO_MUST_USE avo_status jinja_pad(jinja_render *render, const jinja_text *text, int64_t width,
                                  const jinja_text *fill, int method, jinja_value *out);
AVO_MUST_USE avo_status jinja_is_case(const jinja_text *text, bool upper, bool *result);
AVO_MUST_USE avo_status jinja_join_filter(jinja_render *render, jinja_value items,
                                          const jinja_text *separator, jinja_value attribute,
                                          jinja_value *out);

typedef enum jinja_function {
    FUNCTION_NONE,
    FUNCTION_RANGE,
    FUNCTION_DICT,
    FUNCTION_NAMESPACE,
    FUNCTION_RAISE_EXCEPTION,
    FUNCTION_STRFTIME_NOW,
    FUNCTION_LIPSUM,
    FUNCTION_CYCLER,
    FUNCTION_JOINER
} jinja_function;
int jinja_function_number(text_view name);
AVO_MUST_USE avo_status jinja_call_function(jinja_render *render, int function,
                                            const jinja_arguments *arguments, jinja_value *out);
/* An argument that must be an integer (bool counts), or missing/none: `fallback`. */
AVO_MUST_USE avo_status jinja_want_integer(jinja_render *render, jinja_value value,
                                           int64_t fallback, int64_t *out);
AVO_MUST_USE avo_status jinja_want_text(jinja_render *render, jinja_value value, const char *what,
                                        const jinja_text **out);

#endif
