/* Lookup drafting: finds the longest recent context of a token stream that occurred before, and
 * drafts the tokens that followed it.
 *
 * The index is a binary search tree of contexts. The context of position i is the tokens before it,
 * read backwards; the node of position i stands for "behind this context came token i". Every push
 * inserts the newest context as the root of its tree, so a node is always newer than the nodes
 * below it (a treap whose priority is time). From that follows:
 *   - the first node of a search path that shares n tokens with the context searched for is the
 *     most recent occurrence of those n tokens, for every n. One walk inserts and finds;
 *   - what falls out of the window hangs below everything else and is cut off when it is met:
 *     forgetting the oldest token costs nothing, and there is no rebuilding;
 *   - a context that is equal to an older one takes its place.
 * One tree per hash of the last token keeps them low. A suffix automaton has up to 2 states and 3
 * transitions per token, about 80 bytes with hashed transitions, copies whole transition lists, and
 * knows the first occurrence only, and forgetting means building it again. This takes 16 bytes a
 * token (20 with owners), and 0.1 to 1 us to push and propose in 100,000 tokens (bench/lookup.c).
 *
 * Drafting from the most frequent continuation instead of the most recent one was measured too: it
 * is right more often behind one token (.21 against .18), where neither pays, and within .01 behind
 * three and more.
 *
 * An index of one sequence drafts for itself (here); corpus.h keeps the texts of many owners in one
 * index and drafts for others.
 *
 * Limits: contexts are compared over SUFFIX_LENGTH_MAX tokens, so a longer match counts as one of
 * that length. A walk visits at most SUFFIX_STEPS_MAX nodes; text made to grow a degenerate tree
 * loses old occurrences, never time.
 *
 * Pure: no threads, no clock, no randomness; allocates only when opened. Tokens are >= 0. Not for
 * several threads.
 */
#ifndef AVO_SPEC_SUFFIX_H
#define AVO_SPEC_SUFFIX_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define SUFFIX_LENGTH_MAX 32                  /* tokens of a context that are compared */
#define SUFFIX_STEPS_MAX  128                 /* nodes that one walk visits */
#define SUFFIX_TOKENS_MAX ((uint32_t)1 << 30) /* of one index */

typedef struct suffix_index suffix_index;

/* What other occurrences that the walk met say about the first draft: those of the same length or,
 * where there are none, one of a shorter context that is more recent. It tells as much as the
 * length does: behind two tokens of wikitext the first draft is right in .37 (alone), .81 (agreed)
 * and .12 (disputed) of all cases (bench/lookup.c). */
typedef enum suffix_vote {
    SUFFIX_ALONE,    /* there is no other */
    SUFFIX_AGREED,   /* all were followed by the same token */
    SUFFIX_DISPUTED, /* some were followed by another token */
    SUFFIX_VOTES
} suffix_vote;

typedef struct suffix_match {
    uint32_t length; /* tokens of the context that occurred before; 0: none did */
    uint32_t count;  /* draft tokens written; fewer than asked for where the document ended */
    uint32_t seen;   /* occurrences of that length met, at least 1 where there is a match: a lower
                        bound, because the walk need not meet them all */
    suffix_vote vote;
    uint32_t back; /* tokens from the occurrence's next one to the end of the indexed stream */
} suffix_match;

/* Bytes of an index of the newest `tokens_max` tokens. */
size_t suffix_index_bytes(uint32_t tokens_max);
/* AVO_ERROR_ARGUMENT for tokens_max of 0, AVO_ERROR_LIMIT past SUFFIX_TOKENS_MAX, AVO_ERROR_MEMORY.
 */
AVO_MUST_USE avo_status suffix_index_open(uint32_t tokens_max, const avo_allocator *allocator,
                                          suffix_index **out, avo_error *error);
/* NULL is ignored. */
void suffix_index_close(suffix_index *index);
/* Forgets everything, in time proportional to what it knows. */
void suffix_index_clear(suffix_index *index);
/* The next token of the stream. Past tokens_max the oldest is forgotten. */
void suffix_index_push(suffix_index *index, int32_t token);
/* The document ends: no context and no draft crosses it. Takes the space of a token. */
void suffix_index_break(suffix_index *index);
/* Tokens and breaks that drafts can come from; at most tokens_max. */
uint32_t suffix_index_length(const suffix_index *index);

/* Drafts what follows the stream: up to `most` tokens behind the most recent earlier occurrence of
 * the longest context. Where the drafts reach the end of the stream they go on with themselves: a
 * loop "abababa" is continued. */
suffix_match suffix_index_propose(const suffix_index *index, uint32_t most, int32_t *drafts);

#endif
