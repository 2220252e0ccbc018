/* What the configurations of all formats share: per-layer tables, and every check between fields
 * that later code relies on (model/, engine/ and device/cpu/ check none of them again). */
#include "formats/formats_int.h"

#include "device/kv_tile.h"

_Static_assert(SOURCE_HEAD_SIZE_MAX <= KV_HEAD_SIZE_MAX, "attention stages one head on the stack");

avo_status config_layers_fill(model_source *source, bool windowed, bool rotary, avo_error *error) {
    model_config *config = &source->config;
    void *windows, *rotations;
    AVO_TRY(source_take(source, config->layers, 1, "layers", &windows, error));
    AVO_TRY(source_take(source, config->layers, 1, "layers", &rotations, error));
    memset(windows, windowed, config->layers);
    memset(rotations, rotary, config->layers);
    config->layer_windowed = windows;
    config->layer_rotary = rotations;
    return AVO_OK;
}

/* A number that must be finite and within [minimum, maximum]. */
static avo_status check_number(const char *file, const char *field, double number, double minimum,
                               double maximum, avo_error *error) {
    if (number >= minimum && number <= maximum) /* false for NaN */
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is %g, must be %g to %g", file, field,
                       number, minimum, maximum);
}

static avo_status check_size(const char *file, const char *field, uint64_t size, uint64_t maximum,
                             avo_error *error) {
    if (size >= 1 && size <= maximum)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is %llu, must be 1 to %llu", file, field,
                       (unsigned long long)size, (unsigned long long)maximum);
}

static avo_status check_factors(const model_config *config, const char *file, avo_error *error) {
    const rope_scaling *rope = &config->rope;
    if (rope->kind != ROPE_LONGROPE && rope->kind != ROPE_FACTORS)
        return AVO_OK;
    if (rope->factor_count != config->rotary_dims / 2)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %u RoPE factors, must be half of the %u rotated dimensions", file,
                           rope->factor_count, config->rotary_dims);
    if (rope->short_factor == NULL || rope->long_factor == NULL)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: RoPE factors are missing", file);
    for (uint32_t i = 0; i < rope->factor_count; i++) {
        AVO_TRY(check_number(file, "short RoPE factor", rope->short_factor[i], 1e-9, 1e9, error));
        AVO_TRY(check_number(file, "long RoPE factor", rope->long_factor[i], 1e-9, 1e9, error));
    }
    return AVO_OK;
}

/* Numbers of rotation that must be finite whether or not anything rotates: they are shown and
 * written again. 0 is "not given". */
static avo_status check_rope_numbers(const model_config *config, const char *file,
                                     avo_error *error) {
    const rope_scaling *rope = &config->rope;
    const struct {
        const char *name;
        double number, maximum;
    } numbers[] = {
        {"RoPE base", config->rope_base, 1e12},
        {"local RoPE base", config->rope_base_local, 1e12},
        {"RoPE scaling factor", rope->factor, 1e6},
        {"RoPE attention factor", rope->attention_factor, 1e6},
        {"RoPE mscale", rope->mscale, 1e6},
        {"RoPE mscale_all_dim", rope->mscale_all_dim, 1e6},
        {"low_freq_factor", rope->low_frequency_factor, 1e6},
        {"high_freq_factor", rope->high_frequency_factor, 1e6},
        {"beta_fast", rope->beta_fast, 1e6},
        {"beta_slow", rope->beta_slow, 1e6},
        {"original context", rope->original_context, SOURCE_CONTEXT_MAX},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        AVO_TRY(
            check_number(file, numbers[i].name, numbers[i].number, 0, numbers[i].maximum, error));
    return AVO_OK;
}

/* What the kinds of scaling divide by, take logarithms of and subtract. */
static avo_status check_scaling(const model_config *config, const char *file, avo_error *error) {
    const rope_scaling *rope = &config->rope;
    AVO_TRY(check_number(file, "RoPE scaling factor", rope->factor, 1e-6, 1e6, error));
    if (rope->kind == ROPE_LLAMA3) {
        AVO_TRY(
            check_number(file, "low_freq_factor", rope->low_frequency_factor, 1e-6, 1e6, error));
        if (rope->low_frequency_factor >= rope->high_frequency_factor)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: low_freq_factor is %g, must be less than high_freq_factor (%g)",
                               file, rope->low_frequency_factor, rope->high_frequency_factor);
    }
    if (rope->kind == ROPE_YARN) {
        AVO_TRY(check_number(file, "beta_fast", rope->beta_fast, 1e-6, 1e6, error));
        AVO_TRY(check_number(file, "beta_slow", rope->beta_slow, 1e-6, 1e6, error));
    }
    if ((rope->kind == ROPE_LLAMA3 || rope->kind == ROPE_YARN || rope->kind == ROPE_LONGROPE) &&
        rope->original_context < 2)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: the original context of RoPE scaling is %u, must be at least 2",
                           file, rope->original_context);
    if (rope->kind == ROPE_DYNAMIC && config->rotary_dims <= 2)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: dynamic RoPE scaling with %u rotated dimensions, must be more than 2", file,
            config->rotary_dims);
    return check_factors(config, file, error);
}

static avo_status check_rope(const model_config *config, const char *file, avo_error *error) {
    AVO_TRY(check_rope_numbers(config, file, error));
    if (config->rotary_dims == 0) {
        if (config->rope.kind != ROPE_PLAIN)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: RoPE scaling is set, but no dimensions are rotated", file);
        return AVO_OK;
    }
    if (config->rotary_dims > config->head_size || config->rotary_dims % 2 != 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %u rotated dimensions, must be even and at most the head size (%u)",
                           file, config->rotary_dims, config->head_size);
    AVO_TRY(check_number(file, "RoPE base", config->rope_base, 1.0001, 1e12, error));
    if (config->rope_base_local != 0)
        AVO_TRY(
            check_number(file, "local RoPE base", config->rope_base_local, 1.0001, 1e12, error));
    return check_scaling(config, file, error);
}

/* Learned positions: the offset is a row of the table, and the context ends where the table does.
 */
static avo_status check_positions(const model_config *config, const char *file, avo_error *error) {
    uint32_t positions = config->positions, offset = config->position_offset;
    if (positions > SOURCE_CONTEXT_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %u learned positions, must be at most %d",
                           file, positions, SOURCE_CONTEXT_MAX);
    if (positions == 0 ? offset != 0 : offset >= positions)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: position offset is %u, must be less than the number of learned positions (%u)",
            file, offset, positions);
    if (positions != 0 && config->context > positions - offset)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: context is %u, but only %u learned positions follow offset %u",
                           file, config->context, positions - offset, offset);
    return AVO_OK;
}

static avo_status check_layers(const model_config *config, const char *file, avo_error *error) {
    if (config->window > SOURCE_CONTEXT_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: attention window is %u, must be at most %d", file, config->window,
                           SOURCE_CONTEXT_MAX);
    if (config->layer_windowed == NULL || config->layer_rotary == NULL)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: the per-layer window and RoPE flags are missing", file);
    for (uint32_t i = 0; i < config->layers; i++) {
        if (config->layer_windowed[i] > 1 || config->layer_rotary[i] > 1)
            return status_fail(
                error, AVO_ERROR_FORMAT,
                "%s: layer %u: window flag is %u and RoPE flag is %u, must be 0 or 1", file, i,
                config->layer_windowed[i], config->layer_rotary[i]);
        if (config->layer_windowed[i] != 0 && config->window == 0)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: layer %u uses an attention window, but the window is 0", file,
                               i);
    }
    return AVO_OK;
}

static avo_status check_experts(const model_config *config, const char *file, avo_error *error) {
    if (config->experts == 0) {
        if (config->experts_used != 0 || config->expert_feed_forward != 0 ||
            config->shared_feed_forward != 0 || config->layer_experts != NULL)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: the number of experts is 0, but others of their sizes are not",
                               file);
        return AVO_OK;
    }
    AVO_TRY(check_size(file, "expert count", config->experts, SOURCE_EXPERTS_MAX, error));
    AVO_TRY(
        check_size(file, "experts of a row", config->experts_used, SOURCE_EXPERTS_USED_MAX, error));
    AVO_TRY(check_size(file, "width of an expert", config->expert_feed_forward,
                       SOURCE_FEED_FORWARD_MAX, error));
    if (config->shared_feed_forward > SOURCE_FEED_FORWARD_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: width of the shared expert is %u, must be at most %d", file,
                           config->shared_feed_forward, SOURCE_FEED_FORWARD_MAX);
    if (config->experts_used > config->experts)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: a row uses %u of %u experts", file,
                           config->experts_used, config->experts);
    if (config->layer_experts == NULL)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the per-layer expert flags are missing",
                           file);
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->layer_experts[i] > 1)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: layer %u: expert flag is %u, must be 0 or 1", file, i,
                               config->layer_experts[i]);
    return AVO_OK;
}

static avo_status check_multipliers(const model_config *config, const char *file,
                                    avo_error *error) {
    AVO_TRY(check_number(file, "attention scale", config->attention_scale, 0, 1e6, error));
    AVO_TRY(check_number(file, "embedding scale", config->embedding_scale, 0, 1e6, error));
    AVO_TRY(check_number(file, "residual scale", config->residual_scale, 0, 1e6, error));
    AVO_TRY(check_number(file, "logit scale", config->logit_scale, 0, 1e6, error));
    AVO_TRY(check_number(file, "attention soft cap", config->attention_softcap, 0, 1e6, error));
    return check_number(file, "logit soft cap", config->logit_softcap, 0, 1e6, error);
}

avo_status config_check(const model_config *config, const char *file, avo_error *error) {
    AVO_TRY(check_size(file, "layer count", config->layers, SOURCE_LAYERS_MAX, error));
    AVO_TRY(check_size(file, "width", config->width, SOURCE_WIDTH_MAX, error));
    AVO_TRY(check_size(file, "embedding width", config->embedding_width, SOURCE_WIDTH_MAX, error));
    AVO_TRY(check_size(file, "feed-forward width", config->feed_forward, SOURCE_FEED_FORWARD_MAX,
                       error));
    AVO_TRY(check_size(file, "head count", config->heads, SOURCE_HEADS_MAX, error));
    AVO_TRY(check_size(file, "KV head count", config->kv_heads, SOURCE_HEADS_MAX, error));
    AVO_TRY(check_size(file, "head size", config->head_size, SOURCE_HEAD_SIZE_MAX, error));
    AVO_TRY(check_size(file, "vocabulary", config->vocabulary, SOURCE_VOCABULARY_MAX, error));
    AVO_TRY(check_size(file, "context", config->context, SOURCE_CONTEXT_MAX, error));
    if (config->heads % config->kv_heads != 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: heads (%u) must be a multiple of KV heads (%u)", file,
                           config->heads, config->kv_heads);
    AVO_TRY(check_positions(config, file, error));
    AVO_TRY(check_layers(config, file, error));
    AVO_TRY(check_experts(config, file, error));
    AVO_TRY(check_number(file, "norm epsilon", config->norm_epsilon, 0, 1, error));
    AVO_TRY(check_multipliers(config, file, error));
    return check_rope(config, file, error);
}
