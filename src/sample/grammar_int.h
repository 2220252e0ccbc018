/* Between the files of grammars: from a text to a network of byte transitions.
 *
 *   GBNF text    ─ grammar_gbnf.c ───┐
 *   JSON schema  ─ grammar_schema*.c ┴▶ grammar_rules (expressions) ─ grammar_network.c ▶ network
 *
 * Expressions are trees over Unicode characters and literal bytes; a network has bytes only, so
 * that a token may begin and end inside of a character. Nothing here knows tokens.
 */
#ifndef AVO_SAMPLE_GRAMMAR_INT_H
#define AVO_SAMPLE_GRAMMAR_INT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/cursor.h"
#include "base/status.h"

/* ---- Limits; each is an error that names it ---- */
#define GRAMMAR_TEXT_MAX    ((size_t)256 << 10) /* bytes of a grammar or schema */
#define GRAMMAR_RULES_MAX   2048u
#define GRAMMAR_NESTING_MAX 128u  /* of groups and schemas in the text */
#define GRAMMAR_REPEAT_MAX  4096u /* n of {m,n}, maxLength, maxItems */
#define GRAMMAR_NODES_MAX   262144u
#define GRAMMAR_NESTED_MAX                                                                         \
    4096u /* expressions inside of each other: readers go down on the stack */
#define GRAMMAR_STEPS_MAX   ((uint64_t)64 << 20) /* of work while a grammar is compiled */
#define GRAMMAR_STATES_MAX  65536u
#define GRAMMAR_EDGES_MAX   262144u
#define GRAMMAR_DEPTH_MAX   512u  /* rules inside of rules while an answer is read */
#define GRAMMAR_PLACES_MAX  1024u /* where an answer may be in the grammar at once */
#define GRAMMAR_FRAMES_MAX  4096u /* distinct stacks of one answer, shared parts once */
#define GRAMMAR_TRIGGER_MAX 256u  /* bytes */
#define GRAMMAR_ARENA_MAX   ((size_t)64 << 20)
#define GRAMMAR_UNBOUNDED   UINT32_MAX

/* ---- Expressions ---- */

typedef struct code_range {
    uint32_t first, last; /* both are in it */
} code_range;

/* Ascending, disjoint, not adjacent once code_set_tidy has been there. */
typedef struct code_set {
    code_range *ranges;
    uint32_t count, capacity;
} code_set;

typedef enum expression_kind {
    EXPRESSION_BYTES,    /* exactly these; none: the empty text */
    EXPRESSION_CLASS,    /* one character of a set */
    EXPRESSION_SEQUENCE, /* one after the other */
    EXPRESSION_CHOICE,   /* one of them; none: nothing fits */
    EXPRESSION_REPEAT,
    EXPRESSION_RULE,
    EXPRESSION_MEMBERS /* items in their order, some of which may be absent, with separators */
} expression_kind;

typedef struct expression expression;

typedef struct expression_member {
    const expression *item;
    bool required;
} expression_member;

struct expression {
    expression_kind kind;
    uint32_t parts;  /* expressions in it and itself, those that stand there twice counted twice */
    uint32_t nested; /* the deepest of them */
    union {
        text_view bytes;
        struct {
            code_set set;
            bool quoted; /* the character as it stands in a JSON string: escaped where it must be */
        } characters;
        struct {
            const expression **items;
            uint32_t count;
        } list;
        struct {
            const expression *item;
            uint32_t least, most;
        } repeat;
        uint32_t rule;
        struct {
            expression_member *items;
            uint32_t count;
            const expression *separator;
            const expression *rest; /* any number of these behind; NULL: none */
        } members;
    };
};

typedef struct grammar_rule {
    text_view name;
    const expression *body; /* NULL: named but not defined yet */
    bool nullable;          /* the empty text is one of its texts */
    bool productive;        /* it has a text at all */
} grammar_rule;

typedef struct grammar_rules {
    arena *arena;
    grammar_rule *rules; /* [GRAMMAR_RULES_MAX] */
    uint32_t count;
    uint32_t root;
    uint32_t nodes;    /* expressions so far */
    uint64_t steps;    /* of work so far */
    avo_status status; /* of the first expression that could not be made */
    avo_error *error;
} grammar_rules;

AVO_MUST_USE avo_status grammar_rules_init(grammar_rules *rules, arena *arena, avo_error *error);
/* Counts work of which a short text can ask for much: a step is about a comparison of two names.
 * Never time, so that the same text is always taken or always refused. */
AVO_MUST_USE avo_status grammar_rules_work(grammar_rules *rules, uint64_t steps);
/* A new rule without a body. */
AVO_MUST_USE avo_status grammar_rule_add(grammar_rules *rules, text_view name, uint32_t *index);

/* Each gives NULL when memory or GRAMMAR_NODES_MAX is exhausted, with the error set, and passes
 * NULL among its arguments on, so that only the last one need be looked at. */
const expression *expression_bytes(grammar_rules *rules, text_view bytes);
const expression *expression_text(grammar_rules *rules, const char *terminated);
const expression *expression_class(grammar_rules *rules, const code_set *set, bool quoted);
const expression *expression_rule(grammar_rules *rules, uint32_t rule);
const expression *expression_repeat(grammar_rules *rules, const expression *item, uint32_t least,
                                    uint32_t most);
const expression *expression_list(grammar_rules *rules, expression_kind kind,
                                  const expression *const *items, uint32_t count);
/* Of up to four; the first NULL ends them. */
const expression *expression_sequence(grammar_rules *rules, const expression *a,
                                      const expression *b, const expression *c,
                                      const expression *d);
const expression *expression_choice(grammar_rules *rules, const expression *a, const expression *b,
                                    const expression *c, const expression *d);
const expression *expression_members(grammar_rules *rules, const expression_member *items,
                                     uint32_t count, const expression *separator,
                                     const expression *rest);
/* A range of one byte each, unquoted: [0-9] and the like. */
const expression *expression_range(grammar_rules *rules, uint32_t first, uint32_t last);

/* A list of expressions that grows; in the rules' arena. */
typedef struct expression_items {
    const expression **items;
    uint32_t count, capacity;
} expression_items;
AVO_MUST_USE avo_status expression_items_add(grammar_rules *rules, expression_items *items,
                                             const expression *item);

AVO_MUST_USE avo_status code_set_add(grammar_rules *rules, code_set *set, uint32_t first,
                                     uint32_t last);
/* Sorts and joins. */
void code_set_tidy(code_set *set);
/* Everything else of Unicode, without surrogates. */
AVO_MUST_USE avo_status code_set_negate(grammar_rules *rules, code_set *set);
/* Without the surrogates, which no text has. */
AVO_MUST_USE avo_status code_set_characters(grammar_rules *rules, const code_set *set,
                                            code_set *out);

/* ---- Readers ---- */

AVO_MUST_USE avo_status grammar_read_gbnf(grammar_rules *rules, text_view text);
AVO_MUST_USE avo_status grammar_read_schema(grammar_rules *rules, text_view text);
/* Any JSON object. */
AVO_MUST_USE avo_status grammar_read_json(grammar_rules *rules);
/* A regular expression (ECMA 262's, a subset) that must be found in a JSON string; the expression
 * is what may stand between the quotes. */
AVO_MUST_USE avo_status grammar_read_pattern(grammar_rules *rules, text_view pattern,
                                             const expression **out);
/* One that the whole answer must match. */
AVO_MUST_USE avo_status grammar_read_regex(grammar_rules *rules, text_view pattern);

/* ---- The network ---- */

typedef enum net_kind {
    NET_BYTES,  /* edges: takes a byte */
    NET_SPLIT,  /* targets: goes to any of them */
    NET_CALL,   /* targets[0]: the rule's first state, then targets[1] */
    NET_TAIL,   /* targets[0]: the rule's first state, nothing to come back for */
    NET_RETURN, /* the rule is complete */
    NET_FREE    /* like NET_BYTES, and tokens without text are allowed, too */
} net_kind;

typedef struct net_state {
    uint32_t first; /* of its edges or targets */
    uint32_t count : 24;
    uint32_t kind : 8;
    uint32_t alias; /* a state with the same mask: everything that tokens can reach is the same */
} net_state;

typedef struct net_edge {
    uint8_t low, high;
    uint32_t next;
} net_edge;

typedef struct network {
    net_state *states;
    net_edge *edges;
    uint32_t *targets;
    uint32_t state_count, edge_count, target_count;
    uint32_t start;
    uint8_t byte_class[256]; /* bytes that no edge tells apart */
    uint8_t class_byte[256]; /* one of each class */
    uint32_t classes;
} network;

/* What rules derive from the root on, in `arena`. `token_bytes_max`: the longest token, which says
 * how far a mask looks ahead. `trigger`: free text before it; empty: none. Refused: rules that are
 * not defined, left recursion, nothing derived, too large. */
AVO_MUST_USE avo_status network_build(grammar_rules *rules, arena *arena, uint32_t token_bytes_max,
                                      text_view trigger, bool json_or_text, network *net);

/* ---- Reading an answer: places in a network ---- */

/* Where a rule came from: behind it stand `next` and then the frame `parent`. Frame 0 is the bottom
 * of all. Equal stacks are one. */
typedef struct frame {
    uint32_t next, parent;
    uint32_t depth;
} frame;

typedef struct frame_store {
    frame *frames;
    uint32_t *slots; /* hash table of indices, 0: empty */
    uint32_t count, capacity, slot_mask;
} frame_store;

typedef struct place {
    uint32_t state, frame;
} place;

/* Places reached by a byte, with all that follows without one. `seen` has them all, `places` those
 * that take a byte. */
typedef struct place_set {
    place *seen;
    uint32_t seen_count, capacity;
    uint32_t *slots; /* of `seen`, one more; 0: empty */
    uint32_t slot_mask;
    bool complete; /* the bottom was reached: the text may end here */
    bool deep;     /* something was left out because of GRAMMAR_DEPTH_MAX */
    bool full;     /* GRAMMAR_PLACES_MAX or the frames were not enough: nothing here counts */
} place_set;

AVO_MUST_USE avo_status frame_store_open(frame_store *store, arena *arena, uint32_t capacity,
                                         avo_error *error);
void frame_store_clear(frame_store *store);
/* UINT32_MAX: no room. */
uint32_t frame_store_push(frame_store *store, uint32_t next, uint32_t parent);
/* As if no frame had been pushed since there were `count`. */
void frame_store_pop(frame_store *store, uint32_t count);
AVO_MUST_USE avo_status place_set_open(place_set *set, arena *arena, uint32_t capacity,
                                       avo_error *error);
void place_set_clear(place_set *set);
/* Adds a place and everything that follows without a byte. */
void place_set_add(place_set *set, const network *net, frame_store *store, place place);
/* Adds what follows the places of `from` with this byte. */
void place_set_take(place_set *set, const network *net, frame_store *store, const place_set *from,
                    uint8_t byte);

/* ---- Looking ahead (grammar_ahead.c) ---- */

#define AHEAD_PLACES_MAX 32  /* of a text that has no choice */
#define AHEAD_BYTES_MAX  256 /* of it */

/* Bytes that must follow the places of `now`, whatever else does: up to AHEAD_BYTES_MAX into
 * `text`. `ahead` are two sets for it; the frames are afterwards as they were. */
size_t grammar_ahead(const place_set *now, const network *net, frame_store *store,
                     place_set ahead[2], char *text);

static inline bool net_takes_byte(const net_state *state) {
    return state->kind == NET_BYTES || state->kind == NET_FREE;
}

#endif
