/* Between the files that build networks. */
#ifndef AVO_SAMPLE_GRAMMAR_NETWORK_INT_H
#define AVO_SAMPLE_GRAMMAR_NETWORK_INT_H

#include "sample/grammar_int.h"

#define NET_END          0u         /* the state that ends every rule */
#define NET_NONE         UINT32_MAX /* nothing leads there, or nothing follows */
#define INLINE_DEPTH_MAX 32u
#define STEPS_OF_BUILD   8u
#define INLINE_STATES    40u /* a rule of at most so many states is built where it is used */

typedef struct rule_info {
    uint64_t uses;   /* places in other rules, copies counted */
    uint32_t states; /* about so many, inlined rules included */
    uint32_t start;
    bool inlined, called;
} rule_info;

typedef struct builder {
    grammar_rules *rules;
    network *net;
    arena *scratch;
    uint32_t token_bytes_max;
    rule_info *info; /* [rules] */
    uint32_t *queue; /* [rules] rules that are called, in the order of their discovery */
    uint32_t queue_count;
    uint32_t inline_depth;
    uint32_t nested; /* of the inlined bodies that are being built */
    avo_status status;
} builder;

/* Each gives NET_NONE and sets b->status where there is no room. */
uint32_t builder_state(builder *b, net_kind kind, uint32_t first, uint32_t count);
uint32_t builder_targets(builder *b, net_kind kind, const uint32_t *targets, uint32_t count);
uint32_t builder_edges(builder *b, net_kind kind, const net_edge *edges, uint32_t count);
uint32_t builder_byte(builder *b, uint8_t low, uint8_t high, uint32_t next);
/* One character of the set. */
uint32_t builder_class(builder *b, const code_set *set, bool quoted, uint32_t next);

bool expression_nullable(const grammar_rules *rules, const expression *e);
bool expression_productive(const grammar_rules *rules, const expression *e);

/* All rules are defined, the root derives something; which rules are nullable, which productive and
 * which are built where they are used. */
AVO_MUST_USE avo_status rules_check(builder *b);
/* No rule can come back to itself without a byte. */
AVO_MUST_USE avo_status network_check_left(builder *b);

#endif
