/* Constrained output: what an answer may be, as masks over the model's tokens.
 *
 * A grammar (avo_grammar, compiled once) is shared by any number of answers. Each answer has a
 * matcher, which knows where in the grammar the answer is, says which tokens may come next, and
 * follows the one that was drawn. It never fails open: where the grammar, a limit or memory leaves
 * no token, the answer fails with an error.
 *
 * Limits of an answer (AVO_ERROR_LIMIT, of that answer alone): 16 M visits of the token trie for
 * one mask, 64 M and 512 Ki more with each token for all of them and for following; see
 * grammar_mask.h.
 */
#ifndef AVO_SAMPLE_GRAMMAR_H
#define AVO_SAMPLE_GRAMMAR_H

#include "base/allocator.h"
#include "base/status.h"

typedef struct grammar_matcher grammar_matcher;

/* Refused: a grammar of another model. */
AVO_MUST_USE avo_status grammar_check(const avo_grammar *grammar, const avo_model *model,
                                      avo_error *error);

/* The grammar must outlive it. `stop_tokens` end the answer beside the model's own and are allowed
 * where those are; they are copied. Of one thread at a time. */
AVO_MUST_USE avo_status grammar_matcher_open(avo_grammar *grammar, const int32_t *stop_tokens,
                                             size_t stop_count, const avo_allocator *allocator,
                                             grammar_matcher **out, avo_error *error);
void grammar_matcher_close(grammar_matcher *matcher);

/* The tokens that may come next, one bit each (token 64·w + b is bit b of word w), at least one.
 * Lives until the next call. Where the grammar is complete, the tokens that end an answer are among
 * them; tokens without a text otherwise are not, but in free text. */
AVO_MUST_USE avo_status grammar_matcher_mask(grammar_matcher *matcher, const uint64_t **allowed,
                                             avo_error *error);
/* An allowed token was drawn and the answer goes on. */
AVO_MUST_USE avo_status grammar_matcher_follow(grammar_matcher *matcher, int32_t token,
                                               avo_error *error);
/* Nothing may follow, and the model has no token to say so: the answer is over. */
bool grammar_matcher_over(const grammar_matcher *matcher);
/* What was said so far is complete. */
bool grammar_matcher_complete(const grammar_matcher *matcher);
/* Takes bytes instead of a token; false: they do not fit, and nothing after them will. */
bool grammar_matcher_take(grammar_matcher *matcher, const char *bytes, size_t count);

/* Tokens of the text that must come next, where the grammar leaves no choice of bytes: up to
 * `most`, each the longest that fits. A guess: the same text could be cut into other tokens.
 * Charged to nobody, and changes nothing. */
uint32_t grammar_matcher_forced(grammar_matcher *matcher, uint32_t most, int32_t *tokens);

/* Nodes of the token trie that masks have looked at so far, and memory that they are kept in: for
 * benchmarks. */
typedef struct grammar_counts {
    uint32_t states, masks;
    uint64_t visits;
    size_t mask_bytes;
} grammar_counts;
grammar_counts grammar_count(avo_grammar *grammar);

#endif
