/* The task that trains draft heads: answers, the tokens that can be drafted, steps, evaluations. */
#include "base/mathd.h"
#include "base/random.h"
#include "model/model.h"
#include "train/heads.h"
#include "train/heads_answers.h"

#include <stdio.h>
#include <string.h>

#define STREAM_OF_CUTS 0x4843 /* of base/random.h: "HC" */
#define CUT_LEFT       8      /* tokens of a prompt that a cut leaves */
#define STATE_PART     0.4    /* of the steps: the distance to the model's states counts */
#define TARGETS_FEW    20000  /* fewer are said so */

/* Samples of one split: as they are in the data, or with answers. */
typedef struct heads_split {
    const train_data *data;
    uint64_t samples;
    train_answers answers; /* data NULL: the data has them */
} heads_split;

typedef struct heads_task {
    heads_split train, valid;
    size_t capacity;
    train_sequence *sequences; /* [capacity] */
    uint32_t *begin;           /* [capacity] */
    heads_kind kind;
} heads_task;

static train_sequence sequence_at(const heads_split *split, uint64_t index) {
    train_tokens t = split->answers.data != NULL ? answers_at(&split->answers, index)
                                                 : train_data_at(split->data, index).text;
    return (train_sequence){t.tokens, t.count, t.wanted};
}

/* ---- Opening ---- */

static avo_status open_split(train_run_state *run, heads_split *split, const train_data *data,
                             const train_data_info *info, const char *file) {
    if (data == NULL)
        return AVO_OK;
    split->data = data;
    split->samples = info->samples;
    if (info->kind != TRAIN_DATA_PROMPT)
        return AVO_OK;
    split->answers = (train_answers){.data = data, .info = *info, .file = file};
    return answers_open(run, &split->answers);
}

/* Counts targets, and all tokens that count. */
static uint64_t count_tokens(const heads_split *split, uint64_t *amounts) {
    uint64_t targets = 0;
    for (uint64_t i = 0; i < split->samples; i++) {
        train_sequence sequence = sequence_at(split, i);
        targets += train_heads_targets(&sequence);
        for (uint32_t t = 0; t < sequence.count; t++)
            amounts[sequence.tokens[t]] += sequence.wanted[t] != 0;
    }
    return targets;
}

static avo_status choose_from(train_run_state *run, const heads_task *s, uint64_t *amounts,
                              int32_t *tokens) {
    uint32_t vocabulary = run->model->view.vocabulary, count = train_heads_tokens(run->core);
    uint64_t targets = count_tokens(&s->train, amounts);
    if (targets == 0)
        return status_fail(run->error, AVO_ERROR_FORMAT,
                           "%s: no token to learn: heads need tokens that count with two tokens "
                           "before them; give longer samples or a larger --answer",
                           run->info.path);
    if (targets < TARGETS_FEW)
        run_log(run,
                "%llu tokens to learn from are few: heads will know these texts and little else",
                (unsigned long long)targets);
    train_heads_rank(amounts, vocabulary, count, tokens);
    return train_heads_set_tokens(run->core, tokens, count, run->error);
}

/* The tokens that can be drafted. */
static avo_status choose_tokens(train_run_state *run, const heads_task *s) {
    uint32_t vocabulary = run->model->view.vocabulary;
    uint64_t *amounts = allocator_take_array(run->allocator, vocabulary, sizeof(*amounts));
    int32_t *tokens = allocator_take_array(run->allocator, vocabulary, sizeof(*tokens));
    avo_status status =
        amounts != NULL && tokens != NULL
            ? choose_from(run, s, amounts, tokens)
            : status_no_memory(run->error, "counts of tokens", vocabulary * sizeof(*amounts));
    allocator_give(run->allocator, tokens, vocabulary * sizeof(*tokens));
    allocator_give(run->allocator, amounts, vocabulary * sizeof(*amounts));
    return status;
}

static avo_status heads_open(train_run_state *run) {
    heads_task *s = allocator_take(run->allocator, sizeof(*s));
    if (s == NULL)
        return status_no_memory(run->error, "a batch", sizeof(*s));
    uint32_t batch = run->settings->batch;
    *s = (heads_task){.capacity = batch > run->sequences_max ? batch : run->sequences_max,
                      .kind = train_heads_kind(run->core)};
    run->task_state = s;
    s->sequences = allocator_take_array(run->allocator, s->capacity, sizeof(*s->sequences));
    s->begin = allocator_take_array(run->allocator, s->capacity, sizeof(*s->begin));
    if (s->sequences == NULL || s->begin == NULL)
        return status_no_memory(run->error, "a batch", s->capacity * sizeof(*s->sequences));
    AVO_TRY(open_split(run, &s->train, run->data, &run->info, "answers.jsonl"));
    AVO_TRY(open_split(run, &s->valid, run->valid, &run->valid_info, "answers-valid.jsonl"));
    return choose_tokens(run, s);
}

static void heads_close(train_run_state *run) {
    heads_task *s = run->task_state;
    answers_close(&s->train.answers);
    answers_close(&s->valid.answers);
    allocator_give(run->allocator, s->sequences, s->capacity * sizeof(*s->sequences));
    allocator_give(run->allocator, s->begin, s->capacity * sizeof(*s->begin));
    allocator_give(run->allocator, s, sizeof(*s));
    run->task_state = NULL;
}

/* ---- Steps ---- */

/* Of every other sample layers are fed only the end of the prompt, as it is of long ones in use.
 */
static uint32_t cut_of(const train_run_state *run, const train_sequence *sequence, uint64_t at) {
    uint32_t prompt = 0;
    while (prompt < sequence->count && sequence->wanted[prompt] == 0)
        prompt++;
    if (prompt <= CUT_LEFT || random_uniform_at(run->settings->seed, STREAM_OF_CUTS, 2 * at) < 0.5)
        return 0;
    double uniform = random_uniform_at(run->settings->seed, STREAM_OF_CUTS, 2 * at + 1);
    return (uint32_t)(uniform * (prompt - CUT_LEFT));
}

/* Divides sequences into passes as all tasks do. */
static avo_status run_passes(train_run_state *run, size_t count, train_heads_pass pass,
                             train_heads_sums *sums) {
    const heads_task *s = run->task_state;
    for (size_t first = 0, taken; first < count; first += taken) {
        taken = run_pass_count(run, s->sequences, count, first, 1);
        pass.sequences = s->sequences + first;
        pass.begin = s->begin + first;
        pass.count = taken;
        AVO_TRY(train_heads_run(run->core, &pass, sums, run->error));
    }
    return AVO_OK;
}

static void add_metrics(const train_run_state *run, const train_heads_sums *sums,
                        const char *prefix, train_metrics *metrics, double *loss) {
    double targets = sums->targets > 0 ? (double)sums->targets : 1.0, per_step = 1.0;
    char name[96];
    *loss = 0.0; /* a distilled draft has one of the first draft alone */
    for (uint32_t k = 0; k < run->settings->drafts; k++)
        *loss += mathd_power(HEADS_DECAY, k) * (sums->loss[k] + sums->distance[k]) / targets;
    snprintf(name, sizeof(name), "%sloss", prefix);
    metrics_add(metrics, name, *loss);
    for (uint32_t k = 0; k < run->settings->drafts; k++) {
        double chains = sums->chains[k] > 0 ? (double)sums->chains[k] : 1.0;
        snprintf(name, sizeof(name), "%saccepted_%u", prefix, k + 1);
        metrics_add(metrics, name, (double)sums->accepted[k] / chains);
        per_step += (double)sums->accepted[k] / chains;
    }
    snprintf(name, sizeof(name), "%stokens_per_model_step", prefix);
    metrics_add(metrics, name, per_step);
}

static avo_status heads_step(train_run_state *run, uint64_t step, train_metrics *metrics) {
    const heads_task *s = run->task_state;
    size_t count = run->settings->batch;
    uint64_t targets = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = (step - 1) * count + i;
        s->sequences[i] = sequence_at(&s->train, run_sample_index(run, at));
        s->begin[i] = s->kind != HEADS_MEDUSA ? cut_of(run, &s->sequences[i], at) : 0;
        targets += train_heads_targets(&s->sequences[i]);
    }
    double share = 1.0 - (double)(step - 1) / (double)run->steps / STATE_PART;
    train_heads_pass pass = {.weight = targets > 0 ? 1.0 / (double)targets : 0.0,
                             .state_share = s->kind == HEADS_EAGLE && share > 0.0 ? share : 0.0,
                             .learn = true};
    train_heads_sums sums = {0};
    AVO_TRY(run_passes(run, count, pass, &sums));
    AVO_TRY(run_update(run, step, step));
    run->step_tokens = run_rows(s->sequences, count);
    add_metrics(run, &sums, "", metrics, &run->loss);
    return AVO_OK;
}

static avo_status heads_evaluate(train_run_state *run, train_metrics *metrics) {
    const heads_task *s = run->task_state;
    train_heads_sums sums = {0};
    double loss;
    for (uint64_t first = 0; first < s->valid.samples;) {
        size_t count = 0;
        for (; count < s->capacity && first < s->valid.samples; count++, first++) {
            s->sequences[count] = sequence_at(&s->valid, first);
            s->begin[count] = 0;
        }
        AVO_TRY(run_passes(run, count, (train_heads_pass){.weight = 0.0}, &sums));
    }
    add_metrics(run, &sums, "eval_", metrics, &loss);
    return AVO_OK;
}

const train_task_code train_task_heads = {heads_open, heads_close, heads_step, heads_evaluate};
