/* Sampling flags to avo_sampling. */
#include "cli/sampling_options.h"

#include "model/model.h"
#include "sample/sample.h"

#include <math.h>
#include <string.h>

void sampling_flags_init(sampling_flags *flags) {
    memset(flags, 0, sizeof(*flags));
    flags->temperature = flags->top_p = flags->min_p = flags->typical_p = NAN;
    flags->repetition_penalty = flags->presence_penalty = flags->frequency_penalty = NAN;
    flags->top_k = flags->loops = UINT32_MAX;
}

void sampling_flags_specs(sampling_flags *flags, bool logprobs, option_table *table) {
    option_spec own[] = {
        {"temperature", 0, OPTION_NUMBER, &flags->temperature, "X",
         "sampling temperature; 0: always the most likely token (default: the model's own, else "
         "0.7)",
         SAMPLING_TEMPERATURE},
        {"top-k", 0, OPTION_U32, &flags->top_k, "N",
         "sample from the N most likely tokens; 0 or -1: all (default: the model's own, else 0)",
         -1, SAMPLING_TOP_K_MAX},
        {"top-p", 0, OPTION_NUMBER, &flags->top_p, "X",
         "sample from the most likely tokens with total probability X (default: the model's own, "
         "else 0.95, or 1 with another of these options)",
         SAMPLING_PROBABILITY},
        {"min-p", 0, OPTION_NUMBER, &flags->min_p, "X",
         "drop tokens less than X times as likely as the most likely one (default: the model's "
         "own, else 0.05, or 0 with another of these options)",
         SAMPLING_PROBABILITY},
        {"typical-p", 0, OPTION_NUMBER, &flags->typical_p, "X",
         "sample from the most typical tokens with total probability X (default: the model's own, "
         "else 1)",
         SAMPLING_TYPICAL},
        {"repetition-penalty", 0, OPTION_NUMBER, &flags->repetition_penalty, "X",
         "divide the logits of tokens in the prompt or answer by X (default: the model's own, else "
         "1)",
         SAMPLING_REPETITION},
        {"presence-penalty", 0, OPTION_NUMBER, &flags->presence_penalty, "X",
         "subtract X from the logits of tokens in the answer (default 0)", SAMPLING_PENALTY},
        {"frequency-penalty", 0, OPTION_NUMBER, &flags->frequency_penalty, "X",
         "subtract X for each time a token is in the answer (default 0)", SAMPLING_PENALTY},
        {"logit-bias", 0, OPTION_TEXT_LIST, &flags->bias, "ID=X",
         "add X to the logit of token ID; -inf forbids it; may be repeated", 0, 0},
        {"seed", 0, OPTION_U64, &flags->seed, "N",
         "random seed; the same seed gives the same text (default, and -1: 0)", -0x1p63, 0x1p64},
        {"stop-loops", 0, OPTION_U32, &flags->loops, "N",
         "end an answer whose last part, of 16 tokens or more, has come N times in a row; 0: never "
         "(default 4; 0 with --ignore-eos)",
         0, 1000},
        {"stop", 0, OPTION_TEXT_LIST, &flags->stop, "TEXT",
         "stop before this text; may be repeated", 0, 0},
        {"stop-token", 0, OPTION_TEXT_LIST, &flags->stop_token, "ID",
         "stop at this token, in addition to the model's own; may be repeated", 0, 0},
        {"logprobs", 0, OPTION_U32, &flags->logprobs, "N",
         "with --json: log-probabilities of each token and of the N most likely ones, 1 to 20", 1,
         AVO_TOP_LOGPROBS_MAX},
        {0},
    };
    if (!logprobs)
        own[sizeof(own) / sizeof(own[0]) - 2] = (option_spec){0};
    options_add(table, own);
}

/* What is used where neither the user nor the model says how to sample. Small models answer
 * ordinary prompts with loops when they are greedy (docs/sampling.md). Filters stay off where the
 * user names anything: what was named is then all that there is. */
static avo_sampling fallback(bool named) {
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = 0.7f;
    sampling.top_p = named ? 1.0f : 0.95f;
    sampling.min_p = named ? 0.0f : 0.05f;
    return sampling;
}

static bool names_any(const sampling_flags *flags) {
    return !isnan(flags->temperature) || !isnan(flags->top_p) || !isnan(flags->min_p) ||
           !isnan(flags->typical_p) || flags->top_k != UINT32_MAX;
}

/* The flag, where it was given. */
static void choose(double flag, float *value) {
    if (!isnan(flag))
        *value = (float)flag;
}

static bool parse_token(const cli_command *command, const char *name, text_view text,
                        uint32_t vocabulary, int32_t *token) {
    uint64_t id = 0;
    const char *fault = number_parse_part(text, 0, vocabulary - 1, &id);
    if (fault == NULL) {
        *token = (int32_t)id;
        return true;
    }
    cli_usage(command, "--%s: token \"%.*s\" %s; must be 0 to %u", name, TEXT_ARGUMENT(text), fault,
              vocabulary - 1);
    return false;
}

static bool parse_bias(const cli_command *command, const char *text, uint32_t vocabulary,
                       avo_logit_bias *bias) {
    size_t length = strcspn(text, "=");
    double value = 0.0;
    if (text[length] != '=') {
        cli_usage(command, "--logit-bias: \"%s\" must have the form ID=X, as in 15043=-2.5", text);
        return false;
    }
    if (!parse_token(command, "logit-bias", (text_view){text, length}, vocabulary, &bias->token))
        return false;
    const char *fault = number_parse_double(text + length + 1, -HUGE_VAL, 3e38, &value);
    if (fault != NULL) {
        cli_usage(command, "--logit-bias: \"%s\" %s", text + length + 1, fault);
        return false;
    }
    bias->bias = (float)value;
    return true;
}

static bool apply_lists(const cli_command *command, const sampling_flags *flags,
                        uint32_t vocabulary, sampling_values *values, avo_request *request) {
    for (size_t i = 0; i < flags->bias.count; i++)
        if (!parse_bias(command, flags->bias.items[i], vocabulary, &values->bias[i]))
            return false;
    for (size_t i = 0; i < flags->stop_token.count; i++)
        if (!parse_token(command, "stop-token", text_from(flags->stop_token.items[i]), vocabulary,
                         &values->stop_tokens[i]))
            return false;
    for (size_t i = 0; i < flags->stop.count; i++)
        if (flags->stop.items[i][0] == '\0') {
            cli_usage(command, "--stop: the text is empty");
            return false;
        }
    values->sampling.bias = values->bias;
    values->sampling.bias_count = flags->bias.count;
    request->sampling = &values->sampling;
    request->stop_tokens = values->stop_tokens;
    request->stop_token_count = flags->stop_token.count;
    request->stop = flags->stop.items;
    request->stop_count = flags->stop.count;
    return true;
}

static void apply_flags(const sampling_flags *flags, const avo_model *model, bool named,
                        avo_sampling *sampling) {
    const avo_sampling otherwise = fallback(named);
    (void)model_sampling(model, &otherwise, sampling);
    choose(flags->temperature, &sampling->temperature);
    choose(flags->top_p, &sampling->top_p);
    choose(flags->min_p, &sampling->min_p);
    choose(flags->typical_p, &sampling->typical_p);
    choose(flags->repetition_penalty, &sampling->repetition_penalty);
    choose(flags->presence_penalty, &sampling->presence_penalty);
    choose(flags->frequency_penalty, &sampling->frequency_penalty);
    if (flags->top_k != UINT32_MAX)
        sampling->top_k = flags->top_k;
    sampling->seed = flags->seed;
    sampling->top_logprobs = flags->logprobs;
}

bool sampling_flags_apply(const cli_command *command, const sampling_flags *flags,
                          const avo_model *model, sampling_values *values, avo_request *request) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    apply_flags(flags, model, names_any(flags), &values->sampling);
    apply_flags(flags, model, true, &values->named);
    uint32_t loops = flags->loops != UINT32_MAX ? flags->loops : request->ignore_end ? 0 : 4;
    if (loops > 0)
        request->repetition =
            (avo_repetition){.pattern_min = 16, .pattern_max = 256, .count_min = loops};
    if (!apply_lists(command, flags, info.vocabulary, values, request))
        return false;
    values->named.bias = values->sampling.bias;
    values->named.bias_count = values->sampling.bias_count;
    return true;
}
