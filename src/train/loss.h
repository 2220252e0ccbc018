/* Losses as functions of log-probabilities. Each takes the log-probabilities that train_forward
 * computed (and references), and gives the loss, what it reports about it, and the derivative of
 * the loss by each log-probability, which train_backward wants as coefficients. Pure: no model, no
 * memory, nothing can fail. All are computed in double precision, in the order of the arguments.
 *
 * Formulas and names of metrics are those of TRL (SFTTrainer, DPOTrainer, GRPOTrainer). */
#ifndef AVO_TRAIN_LOSS_H
#define AVO_TRAIN_LOSS_H

#include "base/status.h"

/* ---- Preferences ---- */

typedef enum dpo_kind { DPO_SIGMOID, DPO_IPO } dpo_kind;

typedef struct dpo_options {
    dpo_kind kind;
    double beta;
    double smoothing; /* of labels: the share of pairs that are taken to be the wrong way round;
                         sigmoid alone */
} dpo_options;

/* Sums of log-probabilities of an answer's tokens; for DPO_IPO their means. */
typedef struct dpo_pair {
    double chosen, rejected;
    double reference_chosen, reference_rejected;
} dpo_pair;

typedef struct dpo_result {
    double loss;
    double reward_chosen, reward_rejected; /* beta · (policy − reference) */
    double by_chosen; /* derivative of the loss by `chosen`; that by `rejected` is its negative */
} dpo_result;
dpo_result loss_dpo(const dpo_options *options, const dpo_pair *pair);

/* ---- Policy gradients ---- */

/* How advantages and sums over tokens are normalised. L is a completion's length, N the number of
 * completions of the step, M the largest length that a completion may have:
 *                 advantage of reward r             loss: Σ over tokens, multiplied by
 *   GRPO          (r − mean of the group) [÷ std]   1 ÷ (N · L)
 *   DR_GRPO       r − mean of the group             1 ÷ (N · M)
 *   DAPO          (r − mean of the group) [÷ std]   1 ÷ Σ L
 *   RLOO          r − mean of the others            1 ÷ N
 *   REINFORCE     r − mean of the step              1 ÷ Σ L */
typedef enum policy_kind {
    POLICY_GRPO,
    POLICY_DR_GRPO,
    POLICY_DAPO,
    POLICY_RLOO,
    POLICY_REINFORCE
} policy_kind;
/* "grpo", "dr_grpo", "dapo", "rloo", "reinforce" */
const char *policy_name(policy_kind kind);

typedef struct policy_options {
    policy_kind kind;
    bool scale; /* GRPO and DAPO: divide by the standard deviation of the group's rewards + 1e-4 */
    double epsilon_low, epsilon_high; /* ratios count within [1 − low, 1 + high] */
    double beta;                      /* of the KL divergence to the reference; 0: none */
} policy_options;

/* Rewards of `groups` groups of `group` completions each, in this order, to advantages. `spread`
 * (NULL: not wanted): the standard deviation of each group's rewards (with Bessel's correction). */
void policy_advantages(const policy_options *options, const double *rewards, size_t groups,
                       size_t group, double *advantages, double *spread);

/* What multiplies the sum over tokens of a completion of `length` tokens: see above. */
double policy_token_weight(policy_kind kind, size_t completions, uint64_t tokens, uint32_t length,
                           uint32_t length_max);

typedef struct policy_result {
    double loss;     /* of the token, not weighted */
    double gradient; /* its derivative by the log-probability */
    double kl;       /* k3: exp(reference − now) − (reference − now) − 1 */
    bool low, high;  /* the ratio was clipped there */
} policy_result;
/* `old`: when the token was sampled; `reference`: of the model that the KL guard compares with,
 * not used if beta is 0. */
policy_result policy_token(const policy_options *options, double advantage, double now, double old,
                           double reference);

#endif
