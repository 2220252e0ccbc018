/* Generation defaults: what "nothing was said" is, and the one range check for all formats. The
 * ranges are the sampler's: a default that it would refuse makes every run fail, so the file is
 * refused instead, by the name that its format has for the field. What is off by its own value (a
 * penalty or typical_p of 1, a min_p or top_k of 0) stays as it is. */
#include "formats/formats_int.h"

#include <math.h>
#include <stddef.h>

/* The sampler's ranges (sample/sample.h, which this layer cannot include; a test compares them). */
static const struct {
    const char *name;
    size_t offset; /* in generation_defaults */
    float minimum, maximum;
} fields[GENERATION_FIELD_COUNT] = {
    [GENERATION_TEMPERATURE] = {"temperature", offsetof(generation_defaults, temperature), 0, 1e6f},
    [GENERATION_TOP_P] = {"top_p", offsetof(generation_defaults, top_p), 0, 1},
    [GENERATION_MIN_P] = {"min_p", offsetof(generation_defaults, min_p), 0, 1},
    [GENERATION_TYPICAL_P] = {"typical_p", offsetof(generation_defaults, typical_p), 1e-6f, 1},
    [GENERATION_REPETITION_PENALTY] = {"repetition_penalty",
                                       offsetof(generation_defaults, repetition_penalty), 1e-6f,
                                       1e6f},
};

void generation_defaults_init(generation_defaults *defaults) {
    *defaults = (generation_defaults){
        .token_begin = -1,
        .temperature = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .typical_p = NAN,
        .repetition_penalty = NAN,
        .top_k = -1,
    };
}

const char *generation_field_name(generation_field field) {
    return fields[field].name;
}

float generation_number(const generation_defaults *defaults, generation_field field) {
    float number;
    memcpy(&number, (const char *)defaults + fields[field].offset, sizeof(number));
    return number;
}

avo_status generation_stop_add(generation_defaults *defaults, int64_t token, const char *file,
                               avo_error *error) {
    if (token < 0)
        return AVO_OK;
    if (token >= SOURCE_VOCABULARY_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: stop token %lld is not a token id", file,
                           (long long)token);
    for (uint32_t i = 0; i < defaults->stop_token_count; i++)
        if (defaults->stop_tokens[i] == token)
            return AVO_OK;
    if (defaults->stop_token_count == SOURCE_STOP_TOKENS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: more than %d stop tokens", file,
                           SOURCE_STOP_TOKENS_MAX);
    defaults->stop_tokens[defaults->stop_token_count++] = (int32_t)token;
    return AVO_OK;
}

/* The range is asked as a double, so that nothing out of it is rounded into it. */
static avo_status check_number(generation_field field, double number, const char *file,
                               const char *key, avo_error *error) {
    double minimum = (double)fields[field].minimum, maximum = (double)fields[field].maximum;
    if (number >= minimum && number <= maximum) /* false for NaN */
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is %g, must be %s 0 and at most %g%s", file,
                       key, number, minimum > 0 ? "more than" : "at least", maximum,
                       minimum > 0 ? " (1 disables it)" : "");
}

avo_status generation_number_set(generation_defaults *defaults, generation_field field,
                                 double number, const char *file, const char *key,
                                 avo_error *error) {
    AVO_TRY(check_number(field, number, file, key, error));
    float rounded = (float)number;
    memcpy((char *)defaults + fields[field].offset, &rounded, sizeof(rounded));
    return AVO_OK;
}

avo_status generation_top_k_set(generation_defaults *defaults, int64_t top_k, const char *file,
                                const char *key, avo_error *error) {
    if (top_k < -1 || top_k > SOURCE_VOCABULARY_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %s is %lld, must be -1 to %d (0 disables it)", file, key,
                           (long long)top_k, SOURCE_VOCABULARY_MAX);
    defaults->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    return AVO_OK;
}

avo_status generation_check(const generation_defaults *defaults, uint32_t vocabulary,
                            const char *file, avo_error *error) {
    if (defaults->token_begin < -1 || defaults->token_begin >= (int64_t)vocabulary)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: BOS token is %d, but the model has %u tokens", file,
                           defaults->token_begin, vocabulary);
    for (uint32_t i = 0; i < defaults->stop_token_count; i++)
        if (defaults->stop_tokens[i] < 0 || defaults->stop_tokens[i] >= (int64_t)vocabulary)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: stop token is %d, but the model has %u tokens", file,
                               defaults->stop_tokens[i], vocabulary);
    for (generation_field i = 0; i < GENERATION_FIELD_COUNT; i++) {
        float number = generation_number(defaults, i);
        if (!isnan(number))
            AVO_TRY(check_number(i, (double)number, file, fields[i].name, error));
    }
    if (defaults->top_k < -1 || defaults->top_k > SOURCE_VOCABULARY_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: top_k is %d, must be -1 to %d", file,
                           defaults->top_k, SOURCE_VOCABULARY_MAX);
    return AVO_OK;
}
