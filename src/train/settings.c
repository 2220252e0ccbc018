/* The table of settings, their defaults and checks. */
#include "train/settings.h"

#include "model/heads.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SFT            (1u << TRAIN_SFT)
#define DPO            (1u << TRAIN_DPO)
#define RL             (1u << TRAIN_RL)
#define PRETRAIN       (1u << TRAIN_PRETRAIN)
#define HEADS          (1u << TRAIN_HEADS)
#define ALL            (SFT | DPO | RL | PRETRAIN | HEADS)
#define TUNING         (SFT | DPO | RL)
#define VALID          (SFT | DPO | PRETRAIN | HEADS)
#define ITEM_BYTES_MAX ((size_t)1 << 20)
#define AT(field)      offsetof(train_settings, field)

const char *train_task_name(train_task task) {
    static const char *const names[TRAIN_TASKS] = {"sft", "dpo", "rl", "pretrain", "heads"};
    return names[task];
}

/* Numbers that may be "not given" have −1 below their minimum: only the range is checked. */
const train_setting train_setting_table[] = {
    {"data", SETTING_LIST, AT(data), ALL, true, 0, 0, "PATH",
     "training data: a .jsonl, .json, .csv or .txt file, or a folder with train.jsonl and perhaps "
     "valid.jsonl; may be repeated"},
    {"valid", SETTING_TEXT, AT(valid), VALID, true, 0, 0, "PATH",
     "data for --eval-every (default: valid.jsonl in the folder of --data)"},
    {"system", SETTING_TEXT, AT(system), TUNING | HEADS, false, 0, 0, "TEXT",
     "system message for conversations that have none"},
    {"context", SETTING_U32, AT(context), ALL, false, 2, 16777216, "N",
     "longest sample in tokens (default: the model's context, at most 2048)"},
    {"cut", SETTING_FLAG, AT(cut), ALL, false, 0, 0, NULL,
     "cut longer samples instead of refusing them"},
    {"no-template", SETTING_FLAG, AT(no_template), TUNING | HEADS, false, 0, 0, NULL,
     "join prompts and answers as they are, without the chat template"},
    {"steps", SETTING_U32, AT(steps), ALL, true, 1, 1000000000, "N",
     "optimizer steps (default: as many as --epochs need)"},
    {"epochs", SETTING_NUMBER, AT(epochs), ALL, true, 0.000001, 1000000, "X",
     "passes over the data (default 1; not used with --steps)"},
    {"batch", SETTING_U32, AT(batch), ALL, false, 1, 65536, "N",
     "samples of a step (RL: prompts; default 8, RL 4)"},
    {"micro-batch", SETTING_U32, AT(micro_batch), SFT | PRETRAIN, false, 1, 65536, "N",
     "sum the gradients of N samples apart, then add the sums in order: what ranks of mpirun "
     "compute; other bits than without it (default: off; under mpirun 1)"},
    {"seed", SETTING_U64, AT(seed), ALL, false, 0, 0, "N",
     "of the order of the data, new weights and completions (default 0)"},
    {"full", SETTING_FLAG, AT(full), TUNING, false, 0, 0, NULL,
     "train all weights instead of a LoRA adapter"},
    {"rank", SETTING_U32, AT(rank), TUNING, false, 1, 256, "N", "LoRA: rank (default 16)"},
    {"alpha", SETTING_NUMBER, AT(alpha), TUNING, false, 1e-6, 1e6, "X",
     "LoRA: the update is multiplied by alpha / rank (default 32)"},
    {"target", SETTING_LIST, AT(targets), TUNING, false, 0, 0, "NAME",
     "LoRA: a module such as q_proj; may be repeated (default all-linear)"},
    {"rslora", SETTING_FLAG, AT(rslora), TUNING, false, 0, 0, NULL,
     "LoRA: multiply by alpha / sqrt(rank) instead"},
    {"dora", SETTING_FLAG, AT(dora), TUNING, false, 0, 0, NULL,
     "LoRA: train magnitudes, too (DoRA)"},
    {"adapter", SETTING_TEXT, AT(adapter), TUNING, true, 0, 0, "FOLDER",
     "LoRA: start from this PEFT folder, made with the same rank, alpha, rslora and dora"},
    {"lora-plus", SETTING_NUMBER, AT(lora_plus), TUNING, false, 0.001, 1000, "X",
     "LoRA+: learning rate of B / that of A (default 1)"},
    {"lr", SETTING_NUMBER, AT(lr), ALL, false, 0, 1000, "X",
     "learning rate (default: sft 2e-4, dpo 5e-5, rl 5e-5, pretrain 1e-3, heads 2e-3; with --full "
     "a tenth)"},
    {"optimizer", SETTING_CHOICE, AT(optimizer), ALL, false, 0, 0, "adamw|muon",
     "muon: with all weights or heads, for matrices, AdamW for the rest (default: pretrain and "
     "heads muon, else adamw)"},
    {"muon-lr", SETTING_NUMBER, AT(muon_lr), ALL, false, 0, 1000, "X",
     "learning rate of matrices with Muon (default 0.02; heads: medusa 0.03, eagle and layers "
     "0.04)"},
    {"schedule", SETTING_CHOICE, AT(schedule), ALL, false, 0, 0, "constant|linear|cosine",
     "learning rate over the steps (default: pretrain cosine, rl constant, else linear)"},
    {"warmup", SETTING_U32, AT(warmup), ALL, false, 0, 1000000000, "N",
     "steps until the learning rate is reached (default 0)"},
    {"end-lr", SETTING_NUMBER, AT(end_lr), ALL, false, 0, 1, "X",
     "learning rate at the end / --lr, of linear and cosine schedules (default 0)"},
    {"weight-decay", SETTING_NUMBER, AT(weight_decay), ALL, false, 0, 100, "X",
     "of matrices (default 0; pretrain 0.1)"},
    {"beta1", SETTING_NUMBER, AT(beta1), ALL, false, 0, 0.99999999, "X", "AdamW (default 0.9)"},
    {"beta2", SETTING_NUMBER, AT(beta2), ALL, false, 0, 0.99999999, "X",
     "AdamW (default 0.999; pretrain 0.95)"},
    {"epsilon", SETTING_NUMBER, AT(epsilon), ALL, false, 1e-12, 1, "X", "AdamW (default 1e-8)"},
    {"clip", SETTING_NUMBER, AT(clip), ALL, false, 0, 1e9, "X",
     "largest norm of the gradients; larger ones are scaled down (default 1; 0: off)"},
    {"beta", SETTING_NUMBER, AT(beta), DPO | RL, false, 0, 1000, "X",
     "dpo: how closely the reference is followed (default 0.1); rl: weight of the KL divergence "
     "to the model without the adapter (default 0)"},
    {"loss", SETTING_CHOICE, AT(loss), DPO | RL, false, 0, 0,
     "sigmoid|ipo|grpo|dr_grpo|dapo|rloo|reinforce",
     "dpo: sigmoid (default) or ipo; rl: how advantages and tokens are weighted (default dapo)"},
    {"label-smoothing", SETTING_NUMBER, AT(label_smoothing), DPO, false, 0, 0.499, "X",
     "dpo: share of pairs that may be the wrong way round (default 0)"},
    {"reward", SETTING_LIST, AT(rewards), RL, false, 0, 0, "REWARD",
     "rl: what is rewarded, such as contains:dog, 0.5*number or command:./judge (docs/rewards.md); "
     "may be repeated"},
    {"group", SETTING_U32, AT(group), RL, false, 1, 4096, "N",
     "rl: completions of each prompt (default 8; 1 with loss reinforce alone)"},
    {"answer", SETTING_U32, AT(answer), RL | HEADS, false, 1, 16777216, "N",
     "longest completion, or answer to a prompt without one, in tokens (default 128)"},
    {"scale", SETTING_CHOICE, AT(scale), RL, false, 0, 0, "auto|group|none",
     "rl: divide advantages by the standard deviation of the group's rewards (auto: with grpo)"},
    {"epsilon-low", SETTING_NUMBER, AT(epsilon_low), RL, false, 0, 1, "X",
     "rl: lower clip of probability ratios (default 0.2)"},
    {"epsilon-high", SETTING_NUMBER, AT(epsilon_high), RL, false, 0, 1000, "X",
     "rl: upper clip (default 0.2)"},
    {"iterations", SETTING_U32, AT(iterations), RL, false, 1, 64, "N",
     "rl: steps from the same completions (default 1)"},
    {"python", SETTING_TEXT, AT(python), RL, true, 0, 0, "PROGRAM",
     "rl: interpreter of python rewards (default python3)"},
    {"unsafe", SETTING_FLAG, AT(unsafe), RL, true, 0, 0, NULL,
     "rl: run python rewards also where the system cannot confine them"},
    {"kind", SETTING_CHOICE, AT(kind), HEADS, false, 0, 0, "medusa|eagle|layers",
     "medusa: heads that read the model's last state (default); eagle: a layer that also reads its "
     "own drafts; layers: a distilled draft, a small model between the embedding and the output "
     "matrix of the large one"},
    {"depth", SETTING_U32, AT(depth), HEADS, false, 1, HEADS_DEPTH_MAX, "N",
     "layers: how many (default 2)"},
    {"drafts", SETTING_U32, AT(drafts), HEADS, false, 1, 8, "N",
     "medusa: heads (default 4); eagle: drafts in a row that it learns, at most 4 (default 2); "
     "layers: drafts in a row that metrics count (default 4)"},
    {"frequent", SETTING_U32, AT(frequent), HEADS, false, 1, 65536, "N",
     "tokens that can be drafted: the most frequent ones (default 8192, at most the vocabulary)"},
    {"window", SETTING_U32, AT(window), HEADS, false, 0, 65536, "N",
     "eagle, layers: rows that a row sees, at least 8 (default 128; 0: all)"},
    {"teacher", SETTING_NUMBER, AT(teacher), HEADS, false, 0, 10, "X",
     "heads learn the model's probabilities at this temperature (default 0.7; 0: the tokens of the "
     "texts)"},
    {"temperature", SETTING_NUMBER, AT(temperature), HEADS, false, 0, 10, "X",
     "of answers that the model gives to prompts without one (default 0: the likeliest tokens)"},
    {"generate", SETTING_FLAG, AT(generate), HEADS, false, 0, 0, NULL,
     "let the model answer, also where the data has answers"},
    {"type", SETTING_CHOICE, AT(type), HEADS, true, 0, 0, "q8|q4|f32",
     "of the matrices in the result (default q8)"},
    {"eval-every", SETTING_U32, AT(eval_every), VALID, true, 0, 1000000000, "N",
     "steps between two evaluations; the best weights are kept in OUT/best (default 0: never)"},
    {"save-every", SETTING_U32, AT(save_every), ALL, true, 0, 1000000000, "N",
     "steps between two checkpoints (default 100; 0: only at the end)"},
    {"keep", SETTING_U32, AT(keep), ALL, true, 1, 1000000, "N",
     "checkpoints that are kept (default 2)"},
    {"rows", SETTING_U32, AT(rows), ALL, true, 2, 1048576, "N",
     "tokens of one pass through the model; memory grows with it, results are the same (default: "
     "1024, or --context if longer)"},
    {"bf16", SETTING_FLAG, AT(bf16), ALL, false, 0, 0, NULL,
     "backward products in bfloat16, where the processor has it"},
    {"threads", SETTING_U32, AT(threads), ALL, true, 0, 256, "N",
     "worker threads (default: all that this process may use); results are the same"},
    {0},
};

/* ---- Defaults ---- */

void train_settings_init(train_settings *s, train_task task) {
    *s = (train_settings){.task = task, .keep = 0};
    s->warmup = s->save_every = s->eval_every = s->window = UINT32_MAX;
    for (const train_setting *setting = train_setting_table; setting->name != NULL; setting++)
        if (setting->kind == SETTING_NUMBER)
            *(double *)(void *)((char *)s + setting->offset) = -1.0;
}

static void number(double *value, double otherwise) {
    if (*value < 0.0)
        *value = otherwise;
}

static void text(const char **value, const char *otherwise) {
    if (*value == NULL)
        *value = otherwise;
}

static void integer(uint32_t *value, uint32_t given, uint32_t otherwise) {
    if (*value == given)
        *value = otherwise;
}

static void fill_heads(train_settings *s) {
    text(&s->kind, "medusa");
    bool medusa = strcmp(s->kind, "medusa") == 0;
    integer(&s->drafts, 0, strcmp(s->kind, "eagle") == 0 ? 2 : 4);
    integer(&s->frequent, 0, 8192);
    integer(&s->window, UINT32_MAX, 128);
    number(&s->teacher, 0.7);
    number(&s->temperature, 0.0);
    text(&s->type, "q8");
    if (s->task == TRAIN_HEADS)
        number(&s->muon_lr, medusa ? 0.03 : 0.04);
    if (strcmp(s->kind, "layers") == 0)
        integer(&s->depth, 0, 2);
}

static void fill_defaults(train_settings *s) {
    static const double rates[TRAIN_TASKS] = {2e-4, 5e-5, 5e-5, 1e-3, 2e-3};
    bool scratch = s->task == TRAIN_PRETRAIN, heads = s->task == TRAIN_HEADS;
    fill_heads(s);
    number(&s->epochs, 1.0);
    integer(&s->batch, 0, s->task == TRAIN_RL ? 4 : 8);
    integer(&s->rank, 0, 16);
    number(&s->alpha, 32.0);
    number(&s->lora_plus, 1.0);
    number(&s->lr, rates[s->task] * (s->full && !scratch ? 0.1 : 1.0));
    text(&s->optimizer, scratch || heads ? "muon" : "adamw");
    number(&s->muon_lr, 0.02);
    text(&s->schedule, scratch ? "cosine" : s->task == TRAIN_RL ? "constant" : "linear");
    integer(&s->warmup, UINT32_MAX, 0);
    number(&s->end_lr, 0.0);
    number(&s->weight_decay, scratch ? 0.1 : 0.0);
    number(&s->beta1, 0.9);
    number(&s->beta2, scratch ? 0.95 : 0.999);
    number(&s->epsilon, 1e-8);
    number(&s->clip, 1.0);
    number(&s->beta, s->task == TRAIN_DPO ? 0.1 : 0.0);
    text(&s->loss, s->task == TRAIN_DPO ? "sigmoid" : "dapo");
    number(&s->label_smoothing, 0.0);
    integer(&s->group, 0, 8);
    integer(&s->answer, 0, 128);
    text(&s->scale, "auto");
    number(&s->epsilon_low, 0.2);
    number(&s->epsilon_high, 0.2);
    integer(&s->iterations, 0, 1);
    integer(&s->eval_every, UINT32_MAX, 0);
    integer(&s->save_every, UINT32_MAX, 100);
    integer(&s->keep, 0, 2);
    s->full = s->full || scratch;
}

static bool is_one_of(const char *value, const char *choices) {
    size_t length = strlen(value);
    if (strchr(value, '|') != NULL) /* several of them are none */
        return false;
    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, value, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* Settings that would have no effect. Defaults are not filled in yet. */
static avo_status refuse_idle(const train_settings *s, avo_error *error) {
    bool muon = s->task == TRAIN_PRETRAIN || s->task == TRAIN_HEADS;
    const char *optimizer = s->optimizer != NULL ? s->optimizer : muon ? "muon" : "adamw";
    if (s->valid != NULL && (s->eval_every == 0 || s->eval_every == UINT32_MAX))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "valid is given but eval-every is not: the data would not be used; "
                           "give eval-every, the steps between two evaluations");
    if (s->muon_lr >= 0.0 && strcmp(optimizer, "muon") != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "muon-lr is for optimizer muon, and the optimizer is %s: give lr",
                           optimizer);
    if (s->label_smoothing > 0.0 && s->loss != NULL && strcmp(s->loss, "ipo") == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "label-smoothing is for loss sigmoid; ipo has none");
    if (s->end_lr >= 0.0 && s->schedule != NULL && strcmp(s->schedule, "constant") == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "end-lr is for schedules linear and cosine; constant has none");
    return AVO_OK;
}

static avo_status check_rl(const train_settings *s, avo_error *error) {
    if (!is_one_of(s->loss, "grpo|dr_grpo|dapo|rloo|reinforce"))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "loss is %s, for rl must be grpo, dr_grpo, dapo, rloo or reinforce",
                           s->loss);
    bool steps_mean = strcmp(s->loss, "reinforce") == 0;
    if (s->group == 1 && !steps_mean)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "group is 1: %s compares the completions of a prompt with each other; "
                           "give at least 2, or use loss reinforce",
                           s->loss);
    if (s->group == 1 && s->batch == 1)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "group and batch are 1: reinforce compares the completions of a step "
                           "with each other; give at least 2 of either");
    if (strcmp(s->scale, "group") == 0 && !is_one_of(s->loss, "grpo|dapo"))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "scale is group, which is for loss grpo and dapo; %s does not divide by "
                           "the deviation",
                           s->loss);
    if (s->full && s->beta > 0.0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "beta is %g: the KL divergence needs the model without the adapter, "
                           "which full tuning does not keep",
                           s->beta);
    return AVO_OK;
}

/* Temperatures near 0 would only lose digits. */
#define TEACHER_MIN 0.05

static avo_status check_heads(const train_settings *s, avo_error *error) {
    if (s->teacher > 0.0 && s->teacher < TEACHER_MIN)
        return status_fail(error, AVO_ERROR_ARGUMENT, "teacher is %g, must be 0 or at least %g",
                           s->teacher, TEACHER_MIN);
    if (strcmp(s->kind, "eagle") == 0 && s->drafts > 4)
        return status_fail(error, AVO_ERROR_ARGUMENT, "drafts is %u, with eagle at most 4",
                           s->drafts);
    if (s->depth > 0 && strcmp(s->kind, "layers") != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "depth has an effect only with kind layers, kind is %s", s->kind);
    if (s->window > 0 && s->window < 8)
        return status_fail(error, AVO_ERROR_ARGUMENT, "window is %u, must be 0 or at least 8",
                           s->window);
    return AVO_OK;
}

avo_status train_settings_finish(train_settings *s, avo_error *error) {
    bool adapts = s->rank > 0 || s->alpha >= 0.0 || s->targets.count > 0 || s->rslora || s->dora ||
                  s->adapter != NULL || s->lora_plus >= 0.0;
    if (s->full && adapts)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "full trains all weights: rank, alpha, target, rslora, dora, adapter "
                           "and lora-plus are settings of LoRA");
    AVO_TRY(refuse_idle(s, error));
    fill_defaults(s);
    if (s->data.count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "missing data: give data, a file or a folder (--data PATH)");
    if (!s->full && s->task != TRAIN_HEADS && strcmp(s->optimizer, "muon") == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "optimizer is muon, which is for full weight matrices: use adamw for "
                           "a LoRA adapter, or train all weights with full");
    if (s->task == TRAIN_DPO && !is_one_of(s->loss, "sigmoid|ipo"))
        return status_fail(error, AVO_ERROR_ARGUMENT, "loss is %s, for dpo must be sigmoid or ipo",
                           s->loss);
    if (s->task == TRAIN_DPO && s->beta <= 0.0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "beta is 0, for dpo must be positive");
    if (s->task == TRAIN_HEADS)
        return check_heads(s, error);
    return s->task == TRAIN_RL ? check_rl(s, error) : AVO_OK;
}

/* ---- JSON ---- */

static const train_setting *find(text_view name) {
    for (const train_setting *setting = train_setting_table; setting->name != NULL; setting++) {
        size_t length = strlen(setting->name), i = 0;
        if (length != name.size)
            continue;
        while (i < length && (name.data[i] == setting->name[i] ||
                              (name.data[i] == '_' && setting->name[i] == '-')))
            i++;
        if (i == length)
            return setting;
    }
    return NULL;
}

/* Whether the settings have a value of their own already. */
static bool is_given(const train_settings *s, const train_setting *setting) {
    const char *at = (const char *)s + setting->offset;
    train_settings empty;
    train_settings_init(&empty, s->task);
    const char *none = (const char *)&empty + setting->offset;
    switch (setting->kind) {
    case SETTING_FLAG:
        return *(const bool *)at;
    case SETTING_U32:
        return memcmp(at, none, sizeof(uint32_t)) != 0;
    case SETTING_U64:
        return memcmp(at, none, sizeof(uint64_t)) != 0;
    case SETTING_NUMBER:
        return memcmp(at, none, sizeof(double)) != 0;
    case SETTING_LIST:
        return ((const train_list *)(const void *)at)->count > 0;
    case SETTING_TEXT:
    case SETTING_CHOICE:
        break;
    }
    return *(const char *const *)(const void *)at != NULL;
}

typedef struct reader {
    train_settings *settings;
    arena *arena;
    const char *name; /* of the file */
    avo_error *error;
} reader;

static avo_status wrong(const reader *r, const train_setting *setting, const json_value *value,
                        const char *expected) {
    return status_fail(r->error, AVO_ERROR_FORMAT, "%s: line %u: %s must be %s", r->name,
                       value->line, setting->name, expected);
}

static avo_status read_text(const reader *r, const train_setting *setting, const json_value *value,
                            const char **out) {
    if (value->kind != JSON_STRING || memchr(value->string.data, 0, value->string.size) != NULL)
        return wrong(r, setting, value, "a string");
    *out = arena_copy_text(r->arena, value->string.data, value->string.size);
    if (*out == NULL)
        return status_no_memory(r->error, "settings", value->string.size);
    if (setting->kind == SETTING_CHOICE && !is_one_of(*out, setting->value))
        return status_fail(r->error, AVO_ERROR_FORMAT,
                           "%s: line %u: %s is \"%.40s\", must be one of %s", r->name, value->line,
                           setting->name, *out, setting->value);
    return AVO_OK;
}

/* A string, or an object as its text: rewards may be described by either. */
static avo_status read_item(const reader *r, const train_setting *setting, const json_value *value,
                            const char **out) {
    buffer text;
    if (value->kind == JSON_STRING)
        return read_text(r, setting, value, out);
    if (value->kind != JSON_OBJECT || setting->offset != AT(rewards))
        return wrong(r, setting, value, "an array of strings");
    buffer_init(&text, r->arena->allocator, ITEM_BYTES_MAX);
    avo_status status = json_write_value(&text, value);
    *out = status == AVO_OK ? arena_copy_text(r->arena, text.data, text.size) : NULL;
    size_t bytes = text.size;
    buffer_free(&text);
    return *out != NULL ? AVO_OK : status_no_memory(r->error, "settings", bytes);
}

static avo_status read_list(const reader *r, const train_setting *setting, const json_value *value,
                            train_list *list) {
    list->count = 0;
    if (value->kind == JSON_STRING) {
        list->count = 1;
        return read_text(r, setting, value, &list->items[0]);
    }
    if (value->kind != JSON_ARRAY || value->array.count > TRAIN_LIST_MAX)
        return wrong(r, setting, value, "a string or an array of at most 32 strings");
    for (size_t i = 0; i < value->array.count; i++, list->count++)
        AVO_TRY(read_item(r, setting, &value->array.items[i], &list->items[i]));
    return AVO_OK;
}

static avo_status read_number(const reader *r, const train_setting *setting,
                              const json_value *value, double *out) {
    char range[96];
    bool is_number = value->kind == JSON_INTEGER || value->kind == JSON_NUMBER;
    *out = value->kind == JSON_INTEGER ? (double)value->integer : value->number;
    if (is_number && *out >= setting->minimum && *out <= setting->maximum)
        return AVO_OK;
    snprintf(range, sizeof(range), "a number from %g to %g", setting->minimum, setting->maximum);
    return wrong(r, setting, value, range);
}

static avo_status read_integer(const reader *r, const train_setting *setting,
                               const json_value *value, void *out) {
    char range[96];
    bool wide = setting->kind == SETTING_U64;
    double most = wide ? 9.2e18 : setting->maximum;
    if (value->kind != JSON_INTEGER || (double)value->integer < setting->minimum ||
        (double)value->integer > most) {
        snprintf(range, sizeof(range), "an integer from %.0f to %.0f", setting->minimum, most);
        return wrong(r, setting, value, range);
    }
    if (wide)
        *(uint64_t *)out = (uint64_t)value->integer;
    else
        *(uint32_t *)out = (uint32_t)value->integer;
    return AVO_OK;
}

static avo_status read_value(const reader *r, const train_setting *setting,
                             const json_value *value) {
    void *at = (char *)r->settings + setting->offset;
    switch (setting->kind) {
    case SETTING_FLAG:
        if (value->kind != JSON_BOOLEAN)
            return wrong(r, setting, value, "true or false");
        *(bool *)at = value->boolean;
        return AVO_OK;
    case SETTING_U32:
    case SETTING_U64:
        return read_integer(r, setting, value, at);
    case SETTING_NUMBER:
        return read_number(r, setting, value, at);
    case SETTING_LIST:
        return read_list(r, setting, value, at);
    case SETTING_TEXT:
    case SETTING_CHOICE:
        break;
    }
    return read_text(r, setting, value, at);
}

avo_status train_settings_read(train_settings *settings, const json_value *object, bool keep,
                               arena *arena, const char *name, avo_error *error) {
    reader r = {settings, arena, name, error};
    char shown[JSON_SHOWN_KEY_MAX];
    if (object->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: must be a JSON object, is %s", name,
                           json_kind_name(object->kind));
    for (size_t i = 0; i < object->object.count; i++) {
        const json_member *member = &object->object.members[i];
        const train_setting *setting = find(member->key);
        if (setting == NULL)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: line %u: unknown setting \"%s\"; avocet train %s --help lists "
                               "them",
                               name, member->value.line, json_shown_key(member->key, shown),
                               train_task_name(settings->task));
        if (!train_setting_is_of(setting, settings->task))
            return status_fail(error, AVO_ERROR_FORMAT, "%s: line %u: %s is no setting of %s", name,
                               member->value.line, setting->name, train_task_name(settings->task));
        if (member->value.kind == JSON_NULL || (keep && is_given(settings, setting)))
            continue;
        AVO_TRY(read_value(&r, setting, &member->value));
    }
    return AVO_OK;
}

void train_settings_write(const train_settings *s, bool only_fixed, json_writer *w) {
    for (const train_setting *setting = train_setting_table; setting->name != NULL; setting++) {
        const void *at = (const char *)s + setting->offset;
        bool off = setting->offset == AT(micro_batch) && s->micro_batch == 0; /* as before it was */
        if (!train_setting_is_of(setting, s->task) || (only_fixed && setting->free) || off)
            continue;
        json_key(w, setting->name);
        const train_list *list = at;
        switch (setting->kind) {
        case SETTING_FLAG:
            json_boolean(w, *(const bool *)at);
            break;
        case SETTING_U32:
            json_u64(w, *(const uint32_t *)at);
            break;
        case SETTING_U64:
            json_u64(w, *(const uint64_t *)at);
            break;
        case SETTING_NUMBER:
            json_number(w, *(const double *)at);
            break;
        case SETTING_LIST:
            json_array_begin(w);
            for (uint32_t i = 0; i < list->count; i++)
                json_string(w, list->items[i]);
            json_end(w);
            break;
        case SETTING_TEXT:
        case SETTING_CHOICE:
            json_string(w, *(const char *const *)at);
            break;
        }
    }
}
