/* What a training run is asked to do: one table of settings that the command line, configuration
 * files (JSON), the C interface and the documents share. Names are those of PEFT and TRL where they
 * have one. A setting out of its range is refused by name; a setting of another task is, too.
 *
 * Called by cli/, by the public interface (public.c) and by the loop. Texts are copied into the
 * caller's arena. */
#ifndef AVO_TRAIN_SETTINGS_H
#define AVO_TRAIN_SETTINGS_H

#include "base/json_writer.h"
#include "base/status.h"

#define TRAIN_LIST_MAX 32

typedef enum train_task { TRAIN_SFT, TRAIN_DPO, TRAIN_RL, TRAIN_PRETRAIN, TRAIN_HEADS } train_task;
enum { TRAIN_TASKS = 5 };
/* "sft", "dpo", "rl", "pretrain", "heads" */
const char *train_task_name(train_task task);

typedef struct train_list {
    const char *items[TRAIN_LIST_MAX];
    uint32_t count;
} train_list;

/* Numbers below 0 stand for "not given": train_settings_finish puts the task's default there. */
typedef struct train_settings {
    train_task task;
    /* data */
    train_list data;   /* files or folders */
    const char *valid; /* file or folder; NULL: not given */
    const char *system;
    uint32_t context; /* 0: the model's, at most 2048 */
    bool cut, no_template;
    bool generate; /* draft heads: answers, also where the data has some */
    /* length */
    uint32_t steps; /* 0: from epochs */
    double epochs;
    uint32_t batch;       /* samples (RL: prompts) of a step; 0: the task's default */
    uint32_t micro_batch; /* samples whose gradients are summed apart; 0: all of a step */
    uint64_t seed;
    /* what is trained */
    bool full;
    uint32_t rank;
    double alpha;
    train_list targets; /* empty: all-linear */
    bool rslora, dora;
    const char *adapter; /* PEFT folder to continue from */
    double lora_plus;
    /* optimizer */
    const char *optimizer; /* "adamw", "muon" */
    double lr, muon_lr;
    const char *schedule;
    uint32_t warmup;
    double end_lr; /* of the schedule ÷ lr */
    double weight_decay, beta1, beta2, epsilon, clip;
    /* DPO; RL: weight of the KL divergence */
    double beta;
    const char *loss; /* DPO: "sigmoid", "ipo"; RL: "grpo", … */
    double label_smoothing;
    /* RL */
    train_list rewards; /* descriptions (eval/reward.h) */
    uint32_t group;     /* completions of a prompt */
    uint32_t answer;    /* largest length of a completion */
    const char *scale;  /* advantages: "auto", "group", "none" */
    double epsilon_low, epsilon_high;
    uint32_t iterations; /* updates from the same completions */
    const char *python;  /* interpreter of `python` rewards; NULL: python3 */
    bool unsafe;         /* … also where the system cannot confine it */
    /* draft heads */
    const char *kind, *type;     /* "medusa", …; of matrices in the result: "q8", … */
    double teacher, temperature; /* of the model's probabilities; of answers that it gives */
    uint32_t drafts;             /* 0: the kind's default */
    uint32_t frequent, window;   /* tokens that can be drafted; rows that a row of layers sees */
    uint32_t depth;              /* of a distilled draft; 0: the default */
    /* the run */
    uint32_t eval_every, save_every, keep; /* 0: never; 0: only at the end; checkpoints */
    uint32_t rows;                         /* tokens of a forward pass at most; 0: chosen */
    bool bf16;
    uint32_t threads;
} train_settings;

typedef enum train_setting_kind {
    SETTING_FLAG,   /* bool */
    SETTING_TEXT,   /* const char * */
    SETTING_CHOICE, /* const char *: one of the words in `value` */
    SETTING_U32,
    SETTING_U64,
    SETTING_NUMBER, /* double */
    SETTING_LIST    /* train_list: a JSON array of texts, an option that may be repeated */
} train_setting_kind;

typedef struct train_setting {
    const char *name; /* of the option; in JSON '_' may stand for '-' */
    train_setting_kind kind;
    size_t offset;  /* in train_settings */
    unsigned tasks; /* bit n: task n has it */
    bool free;      /* a run that is resumed may have another value */
    double minimum, maximum;
    const char *value, *help;
} train_setting;

/* All of them; the last has no name. */
extern const train_setting train_setting_table[];
static inline bool train_setting_is_of(const train_setting *setting, train_task task) {
    return (setting->tasks >> task & 1) != 0;
}

/* Every value "not given". */
void train_settings_init(train_settings *settings, train_task task);
/* Takes the members of a JSON object over. `name` is for messages. Values that `settings` has
 * already are kept where `keep` says so: options of a command line win over its file. */
AVO_MUST_USE avo_status train_settings_read(train_settings *settings, const json_value *object,
                                            bool keep, arena *arena, const char *name,
                                            avo_error *error);
/* Fills in the task's defaults and checks what depends on several settings. */
AVO_MUST_USE avo_status train_settings_finish(train_settings *settings, avo_error *error);
/* Members of the open object: every setting of the task, in the order of the table. */
void train_settings_write(const train_settings *settings, bool only_fixed, json_writer *w);

#endif
