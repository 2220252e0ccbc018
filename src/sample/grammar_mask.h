/* Masks of places in a network: which tokens may come next.
 *
 * A mask is a walk over the trie of all tokens. Most of the answer depends on the innermost rule
 * alone, so that is computed once for each state and kept: the tokens that stay inside of the rule
 * (as a list or as bits), and the nodes of the trie at which the rule may have ended. What follows
 * there depends on who called the rule and is walked for each mask, which takes microseconds, since
 * few tokens go on behind the end of a string or number.
 *
 * Walks go through a deterministic automaton that is built as they need it: sets of places over an
 * unknown bottom, with a table of their successors. It is emptied when full.
 */
#ifndef AVO_SAMPLE_GRAMMAR_MASK_H
#define AVO_SAMPLE_GRAMMAR_MASK_H

#include "sample/grammar_int.h"
#include "tokenizer/trie.h"

/* ---- Limits ---- */
#define MASK_SETS_MAX        4096u                 /* of the automaton */
#define MASK_PLACES_MAX      65536u                /* in all of its sets */
#define MASK_FRAMES_MAX      8192u                 /* in all of its sets */
#define MASK_ENDS_MAX        65536u                /* nodes at which a rule may have ended */
#define MASK_BYTES_MAX       ((size_t)128 << 20)   /* kept for one grammar */
#define MASK_VISITS_MAX      ((uint64_t)16 << 20)  /* that one mask is charged, all its places */
#define MASK_VISITS_ANSWER   ((uint64_t)64 << 20)  /* that the masks of one answer are charged, */
#define MASK_VISITS_TOKEN    ((uint64_t)512 << 10) /* and so many more with each of its tokens */
#define MASK_VISITS_REAL     ((uint64_t)64 << 20)  /* nodes, places and edges looked at for one */
#define MASK_VISITS_PREPARED ((uint64_t)48 << 20)  /* nodes looked at when a grammar is opened */

typedef struct grammar_masks grammar_masks;

AVO_MUST_USE avo_status grammar_masks_open(const network *net, const token_trie *trie,
                                           uint32_t vocabulary, const avo_allocator *allocator,
                                           grammar_masks **out, avo_error *error);
void grammar_masks_close(grammar_masks *masks);
/* Computes what the most states need, as far as MASK_VISITS_PREPARED goes. */
AVO_MUST_USE avo_status grammar_masks_prepare(grammar_masks *masks, avo_error *error);

/* What masks cost is bounded for each mask and each answer by visits that they are charged, which
 * depend on the grammar and the answer alone, never on time or on what others had computed before:
 * a visit is a node of the trie at a walk, more where many places are followed at once. A state's
 * own walk is charged when an answer first comes there, kept or not; what was prepared when the
 * grammar was opened is free. MASK_VISITS_REAL is behind that, for the automaton's own work. */

/* A new mask, which may be charged at most `visits`. */
void grammar_masks_begin(grammar_masks *masks, uint64_t visits);
/* Adds to `bits` the tokens with a text that may come next at this place. `first`: the answer was
 * not at this place's mask_state before. */
AVO_MUST_USE avo_status grammar_masks_add(grammar_masks *masks, const frame_store *frames,
                                          place place, bool first, uint64_t *bits,
                                          avo_error *error);
/* States that share a mask are one. */
static inline uint32_t mask_state(const network *net, uint32_t state) {
    return net->states[state].alias;
}
/* What was charged since grammar_masks_begin; `walked`: of it, what the next mask would be charged
 * again. */
uint64_t grammar_masks_charged(const grammar_masks *masks, uint64_t *walked);
uint64_t grammar_masks_visits(const grammar_masks *masks);
void grammar_masks_describe(const grammar_masks *masks, uint32_t *kept, size_t *bytes);

#endif
