/* Draft heads in training: Medusa heads, EAGLE layers and distilled drafts of a frozen model
 * (docs/heads.md has the formulas and the file). A core that was opened with TRAIN_DRAFT_HEADS has
 * them as its parameters, under the names that they have in the file. Hidden states are those of
 * the serving forward pass, so any model that is served can be the base. Called by the loop
 * (heads_task.c) and by output.h.
 *
 * Target j is a token of a sequence that is wanted and has two tokens before it; T tokens before it
 * are known to no draft of index T − 1. The loss of a target is
 *
 *   Σ over drafts k of HEADS_DECAY^k · cross entropy with the model's own probabilities of token j
 *
 * at temperature `teacher`, of which those of tokens that can be drafted enter; with teacher 0 the
 * token itself is what is to be guessed. Draft k guesses token j from what was known k + 2 tokens
 * before. EAGLE: the drafts in front of it are taken to be right, its own output is the state, and
 * state_share · HEADS_DECAY^k · smooth L1 distance of the normed output to the model's normed state
 * is added, divided by the latter's size. A distilled draft has draft 0 alone: what it says behind
 * drafts that were right is what it says behind the tokens themselves.
 *
 * Bits depend on neither threads nor the division into passes: each sequence is computed forward
 * and backward alone, and sequences are in order. */
#ifndef AVO_TRAIN_HEADS_H
#define AVO_TRAIN_HEADS_H

#include "quant/quant.h"
#include "train/core.h"

#define HEADS_DRAFTS_MAX  HEADS_MEDUSA_MAX
#define HEADS_TRAINED_MAX 65536 /* tokens that can be drafted; more cost more than they gain */
#define HEADS_DECAY       0.7
#define HEADS_EAGLE_STEPS 4 /* drafts in a row of an EAGLE layer */

/* Refused by name: models without what heads read, and more drafts or tokens than there can be. */
AVO_MUST_USE avo_status train_heads_check(const avo_model *model,
                                          const train_heads_options *options, avo_error *error);
/* The tokens that can be drafted, ascending: before the first pass. */
AVO_MUST_USE avo_status train_heads_set_tokens(train_core *core, const int32_t *tokens,
                                               uint32_t count, avo_error *error);
heads_kind train_heads_kind(const train_core *core);
/* How many these are: at most as many as the vocabulary has. */
uint32_t train_heads_tokens(const train_core *core);
/* The `count` most frequent of these tokens with `amounts`, ascending. Amounts say little about
 * rare tokens, so that a prior is added: merges come in the order of frequency. */
void train_heads_rank(uint64_t *amounts, uint32_t vocabulary, uint32_t count, int32_t *tokens);

/* ---- Passes ---- */

typedef struct train_heads_pass {
    const train_sequence *sequences;
    /* [count] rows of a layer begin here, as in use: of a long prompt it is fed the end only; NULL:
     * at 0. Medusa heads have no rows of their own. */
    const uint32_t *begin;
    size_t count;
    double weight;      /* of a target: 1 ÷ targets of the step */
    double state_share; /* EAGLE */
    bool learn;         /* add the gradients */
} train_heads_pass;

/* Added to. Chain: all drafts behind one position, of which the first `k` are targets. */
typedef struct train_heads_sums {
    uint64_t targets;
    double loss[HEADS_DRAFTS_MAX], distance[HEADS_DRAFTS_MAX];
    uint64_t chains[HEADS_DRAFTS_MAX], accepted[HEADS_DRAFTS_MAX]; /* … of k + 1 drafts */
} train_heads_sums;

uint64_t train_heads_targets(const train_sequence *sequence);
AVO_MUST_USE avo_status train_heads_run(train_core *core, const train_heads_pass *pass,
                                        train_heads_sums *sums, avo_error *error);

/* ---- The file ---- */

/* The heads as they are now. `type`: QUANT_F32, QUANT_Q8_0 or QUANT_Q4_1, of matrices. */
AVO_MUST_USE avo_status train_heads_write(const train_core *core, const char *path, quant_type type,
                                          avo_error *error);

#endif
