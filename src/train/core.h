/* The differentiable model: log-probabilities of tokens, and the gradients of any function of them.
 *
 * The forward pass is the serving forward pass: an engine computes the steps, with the device's
 * kernels, and log-probabilities have the bits that the scheduler reports for the same tokens and
 * the same adapter. The backward pass is computed by hand, layer by layer, from the hidden states
 * that the engine taps before every layer; gradients pass through the rounding of activations as if
 * it were not there (straight-through).
 *
 * Every objective of training is a function of log-probabilities of given tokens, so this interface
 * serves all of them: the caller turns log-probabilities into the derivative of its loss by each of
 * them, and backward adds the gradients. Supervised training: −weight ÷ total weight. DPO and
 * policy gradients: loss.h.
 *
 * One thread uses a core at a time. Bits of all results depend neither on the number of threads nor
 * on how sequences are divided into calls of forward: each parameter's gradient is summed over
 * sequences in their order, and over the positions of a sequence in ascending order. */
#ifndef AVO_TRAIN_CORE_H
#define AVO_TRAIN_CORE_H

#include <avocet.h>

#include "model/heads.h"
#include "train/parameters.h"

typedef struct train_core train_core;

typedef enum train_method { TRAIN_LORA, TRAIN_FULL, TRAIN_DRAFT_HEADS } train_method;

/* Draft heads of a frozen model (train/heads.h, docs/heads.md). */
typedef struct train_heads_options {
    heads_kind kind;
    /* Medusa: heads; EAGLE: drafts in a row that are trained; distilled draft: that are counted */
    uint32_t drafts;
    uint32_t tokens; /* that can be drafted */
    uint32_t window; /* EAGLE, distilled draft: rows that a row sees; 0: all */
    double teacher;  /* temperature of the model's probabilities, which the heads learn; 0: the
                        tokens of the texts instead */
    uint32_t depth;  /* distilled draft: layers */
} train_heads_options;

typedef struct train_core_options {
    const avo_allocator *allocator;
    train_method method;
    /* LoRA. `targets`: module names as PEFT has them ("q_proj"), or "all-linear" alone: every
     * matrix of the layers. */
    uint32_t rank;
    double alpha;
    bool rslora, dora;
    const char *const *targets;
    size_t target_count;
    /* PEFT folder to continue from, made with the same rank, alpha, rslora, dora and targets; NULL:
     * A is random (PEFT's initialisation: uniform, Kaiming with a = √5), B is 0. */
    const char *resume;
    uint64_t seed; /* of A, and of the first weights of heads */
    train_heads_options heads;
    bool bfloat16; /* backward products in bfloat16 where the processor has it; else f32 */
    /* A call of forward has at most this many tokens, sequences, and tokens of one sequence. */
    uint32_t rows_max, sequences_max, context_max;
    /* Threads, device, KV type and placement; sizes are set by the core. */
    avo_engine_options engine;
} train_core_options;

/* The model must outlive the core. Full tuning does not change it: the core has a copy in f32. */
AVO_MUST_USE avo_status train_core_open(const avo_model *model, const train_core_options *options,
                                        train_core **out, avo_error *error);
void train_core_close(train_core *core);
/* Memory that an open core will take, of the host, its engine included. */
AVO_MUST_USE avo_status train_core_plan(const avo_model *model, const train_core_options *options,
                                        uint64_t *bytes, avo_error *error);

/* Values and gradients are the core's; the optimizer changes values in place. After it did,
 * train_core_changed makes the next forward pass use them. */
train_parameters *train_core_parameters(train_core *core);
AVO_MUST_USE avo_status train_core_changed(train_core *core, avo_error *error);
/* Sets all gradients to 0. */
void train_core_clear(train_core *core);
/* All gradients, one behind the other, with zeros between some: *count numbers. */
float *train_core_gradients(train_core *core, size_t *count);

/* The threads of backward passes, for work between two calls: the optimizer's. */
struct team *train_core_team(const train_core *core);

/* The engine, for rollouts between a backward and the next forward pass, and the adapter as it is
 * after the last train_core_changed (NULL with full tuning): a request with it has the bits of
 * forward. */
avo_engine *train_core_engine(train_core *core);
avo_adapter *train_core_adapter(train_core *core);
/* The model that the engine computes: the copy with full tuning, else the model itself. */
const avo_model *train_core_model(const train_core *core);

/* ---- Passes ---- */

typedef struct train_sequence {
    const int32_t *tokens;
    uint32_t count; /* at least 2 */
    /* [count] nonzero: the log-probability of this token, given all before it, is wanted. The first
     * must be 0. Tokens behind the last wanted one are not computed. */
    const uint8_t *wanted;
} train_sequence;

/* What a forward pass is for. A backward pass can follow the first only: the others leave out what
 * it would need of the head. */
typedef enum train_pass {
    TRAIN_PASS_LEARN,
    TRAIN_PASS_MEASURE, /* evaluations */
    TRAIN_PASS_BASE     /* without the adapter, for references (LoRA only) */
} train_pass;

/* Laid out like the tokens of all sequences, one behind the other; entries that are not wanted are
 * 0. NULL: not asked for, but for `logprobs`. */
typedef struct train_scores {
    float *logprobs, *entropies;
    uint8_t *likeliest; /* 1: no other token has a higher probability, nor a lower id and as high */
} train_scores;

/* The sequences must stay until backward. */
AVO_MUST_USE avo_status train_forward(train_core *core, const train_sequence *sequences,
                                      size_t count, train_pass pass, const train_scores *scores,
                                      avo_error *error);
/* Adds the gradients of Σ coefficient · log-probability over the wanted tokens of the last forward
 * pass, coefficients laid out like log-probabilities. For descent, coefficients are derivatives of
 * the loss. */
AVO_MUST_USE avo_status train_backward(train_core *core, const float *coefficients,
                                       avo_error *error);

#endif
