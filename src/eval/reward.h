/* Rewards: how good a completion is, as one number. Reinforcement learning and evaluations call
 * them; docs/rewards.md lists the kinds.
 *
 * A reward is described by JSON, {"reward": "contains", "text": "dog", "weight": 0.5}, or by one
 * line of text, "0.5*contains:dog".
 *
 * Scores are finite. Whatever prevents one (a field that an item lacks, a pattern that takes too
 * many steps, a program that fails, takes too long or gives a wrong count or NaN) is an error whose
 * text begins with the reward's name; no item then has a score.
 */
#ifndef AVO_EVAL_REWARD_H
#define AVO_EVAL_REWARD_H

#include "base/json.h"
#include "eval/code_run.h"

#define REWARD_TEXT_MAX   65536 /* of a description */
#define REWARD_ITEMS_MAX  65536 /* of one call */
#define REWARD_WEIGHT_MAX 1e6

/* The number of tokens of a text, as the model's tokenizer counts them. */
typedef avo_status (*reward_tokens_function)(void *context, const char *text, uint64_t *count,
                                             avo_error *error);

typedef struct reward_options {
    const avo_allocator *allocator;      /* NULL: malloc */
    reward_tokens_function count_tokens; /* NULL: lengths in tokens are refused */
    void *tokens_context;
    /* Of `python`: interpreter, memory, processes and `unsafe`. Its seconds are the reward's own.
     */
    code_run_options code;
} reward_options;

typedef struct reward reward;

typedef struct reward_item {
    const char *prompt, *completion;
    const json_value *fields; /* the object of the data item: answer, …; NULL: none */
} reward_item;

/* Everything that `description` refers to is read now and copied. `options` may be NULL. */
AVO_MUST_USE avo_status reward_open(const json_value *description, const reward_options *options,
                                    reward **out, avo_error *error);
AVO_MUST_USE avo_status reward_open_text(text_view description, const reward_options *options,
                                         reward **out, avo_error *error);
void reward_close(reward *reward);

/* "contains": the kind, which names columns of reports. */
const char *reward_name(const reward *reward);
double reward_weight(const reward *reward);

/* scores[count], without the weight. One thread at a time. */
AVO_MUST_USE avo_status reward_score(reward *reward, const reward_item *items, size_t count,
                                     float *scores, avo_error *error);

#endif
