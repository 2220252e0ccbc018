/* The fields of the context index, and what ngram.c and corpus.c use beyond suffix.h. */
#ifndef AVO_SPEC_SUFFIX_INT_H
#define AVO_SPEC_SUFFIX_INT_H

#include "spec/suffix.h"

#include <stdbool.h>

#define SUFFIX_BREAK (-1) /* in the place of a token: a document ended */
#define SUFFIX_NONE  0    /* no position; the stream starts at 1 */

typedef struct suffix_node {
    uint32_t before, after; /* positions whose contexts are ordered before or after this one */
} suffix_node;

/* An occurrence: `length` tokens before position `at` equal the context. */
typedef struct suffix_found {
    uint32_t length, at;
    uint32_t seen, agreed; /* of this length; followed by the same token as `at` */
    uint32_t shorter;      /* a more recent occurrence of a shorter context; SUFFIX_NONE: none */
} suffix_found;

struct suffix_index {
    const avo_allocator *allocator;
    size_t bytes;        /* of this block, which holds the arrays too */
    uint32_t window;     /* tokens_max: nodes of older positions count as absent */
    uint32_t length_max; /* tokens of a context that are compared */
    uint32_t capacity;   /* of the ring: window + length_max, so that the contexts of all nodes in
                            the window are whole and keep their order */
    uint32_t end;        /* position of the next token; counts up without wrapping */
    uint32_t lap;        /* the newest position in slot 0 */
    uint32_t head_mask;
    uint32_t owner;     /* of the tokens being pushed; 0 without owners */
    suffix_found best;  /* for the newest context */
    int32_t *tokens;    /* [capacity] */
    suffix_node *nodes; /* [capacity] */
    uint32_t *owners;   /* [capacity] of each token; NULL: one stream that drafts for itself */
    uint32_t *heads;    /* [head_mask + 1] roots by hash of owner and last token */
};

typedef struct suffix_options {
    uint32_t tokens_max;
    uint32_t length_max; /* 1 … SUFFIX_LENGTH_MAX */
    /* Texts of several owners, to draft for streams that are elsewhere. No context matches another
     * owner's. A context is known only once its next token is: the end of a text then does not hide
     * older occurrences that go on. */
    bool owners;
} suffix_options;

size_t suffix_options_bytes(const suffix_options *options);
AVO_MUST_USE avo_status suffix_options_open(const suffix_options *options,
                                            const avo_allocator *allocator, suffix_index **out,
                                            avo_error *error);
/* Ends the document; the following tokens belong to `owner`. With owners only. */
void suffix_index_begin(suffix_index *index, uint32_t owner);
/* Drafts what follows a stream of this owner, of which `tokens` are the newest `count`; more than
 * SUFFIX_LENGTH_MAX make no difference. With owners only. */
suffix_match suffix_index_propose_of(const suffix_index *index, uint32_t owner,
                                     const int32_t *tokens, size_t count, uint32_t most,
                                     int32_t *drafts);

/* Spreads ids, which come in runs, over the heads, and gives the trees an order that has nothing to
 * do with the order in which texts use ids. Fixed, so that every process grows the same trees. */
static inline uint32_t suffix_scatter(uint32_t value) {
    value *= 0x9e3779b1u;
    value ^= value >> 15;
    value *= 0x85ebca77u;
    return value ^ value >> 13;
}

static inline uint32_t suffix_slot(const suffix_index *index, uint32_t position) {
    uint32_t slot = position - index->lap;
    return position >= index->lap ? slot : slot + index->capacity;
}

/* The oldest position whose token is still there. */
static inline uint32_t suffix_oldest(const suffix_index *index) {
    return index->end > index->capacity ? index->end - index->capacity : 1;
}

#endif
