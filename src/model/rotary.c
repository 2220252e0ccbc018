/* Rotation tables: the frequencies of RoPE and of its scaled forms, in double precision. */
#include "model/model_int.h"

#include "base/mathd.h"

#include <math.h>

#define PI 3.14159265358979323846

static double plain_frequency(double base, uint32_t dims, uint32_t i) {
    return mathd_power(base, -2.0 * i / dims);
}

/* Llama 3: long waves are slowed by `factor`, short ones kept, those between blended. */
static double llama3_frequency(const rope_scaling *rope, double frequency) {
    double original = rope->original_context;
    double wave = 2.0 * PI / frequency;
    if (wave < original / rope->high_frequency_factor)
        return frequency;
    if (wave > original / rope->low_frequency_factor)
        return frequency / rope->factor;
    double smooth = (original / wave - rope->low_frequency_factor) /
                    (rope->high_frequency_factor - rope->low_frequency_factor);
    return (1.0 - smooth) * frequency / rope->factor + smooth * frequency;
}

/* YaRN: the dimension that turns `rotations` times over the original context. */
static double yarn_dimension(double rotations, uint32_t dims, double base, double original) {
    return dims * mathd_log(original / (rotations * 2.0 * PI)) / (2.0 * mathd_log(base));
}

static double yarn_frequency(const rope_scaling *rope, double base, uint32_t dims, uint32_t i) {
    double original = rope->original_context;
    double low = yarn_dimension(rope->beta_fast, dims, base, original);
    double high = yarn_dimension(rope->beta_slow, dims, base, original);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, dims - 1.0);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax((i - low) / (high - low), 0.0), 1.0);
    double frequency = plain_frequency(base, dims, i);
    return frequency / rope->factor * ramp + frequency * (1.0 - ramp);
}

static double yarn_magnitude_of(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * mathd_log(factor) + 1.0;
}

static double yarn_magnitude(const rope_scaling *rope) {
    if (rope->attention_factor > 0.0)
        return rope->attention_factor;
    if (rope->mscale > 0.0 && rope->mscale_all_dim > 0.0)
        return yarn_magnitude_of(rope->factor, rope->mscale) /
               yarn_magnitude_of(rope->factor, rope->mscale_all_dim);
    return yarn_magnitude_of(rope->factor, 1.0);
}

static double longrope_magnitude(const model_config *config) {
    const rope_scaling *rope = &config->rope;
    if (rope->attention_factor > 0.0)
        return rope->attention_factor;
    double original = rope->original_context;
    double factor = rope->factor > 0.0 ? rope->factor : config->context / original;
    return factor <= 1.0 ? 1.0 : sqrt(1.0 + mathd_log(factor) / mathd_log(original));
}

static double scaled_frequency(const model_config *config, const double *factors, uint32_t i) {
    const rope_scaling *rope = &config->rope;
    double frequency = plain_frequency(config->rope_base, config->rotary_dims, i);
    switch (rope->kind) {
    case ROPE_PLAIN:
    case ROPE_DYNAMIC:
        return frequency;
    case ROPE_LINEAR:
        return frequency / rope->factor;
    case ROPE_LLAMA3:
        return llama3_frequency(rope, frequency);
    case ROPE_YARN:
        return yarn_frequency(rope, config->rope_base, config->rotary_dims, i);
    case ROPE_LONGROPE:
    case ROPE_FACTORS:
        return frequency / factors[i];
    }
    return frequency;
}

static avo_status main_table(const model_config *config, uint32_t rope_context, double *frequency,
                             rotary_table *table, avo_error *error) {
    const rope_scaling *rope = &config->rope;
    const double *factors = rope->long_factor;
    if (rope->kind == ROPE_LONGROPE && rope_context <= rope->original_context)
        factors = rope->short_factor;
    bool needs_factors = rope->kind == ROPE_LONGROPE || rope->kind == ROPE_FACTORS;
    if (needs_factors && (factors == NULL || rope->factor_count < table->pairs))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%u RoPE factors, must be %u for %u rotated dimensions",
                           rope->factor_count, table->pairs, config->rotary_dims);
    for (uint32_t i = 0; i < table->pairs; i++)
        frequency[i] = scaled_frequency(config, factors, i);
    if (rope->kind == ROPE_YARN)
        table->magnitude = yarn_magnitude(rope);
    if (rope->kind == ROPE_LONGROPE)
        table->magnitude = longrope_magnitude(config);
    if (rope->kind == ROPE_DYNAMIC) {
        table->dynamic_from = rope->original_context > 0 ? rope->original_context : config->context;
        table->dynamic_factor = rope->factor;
        table->dynamic_base = config->rope_base;
    }
    return AVO_OK;
}

avo_status model_rotary(const model_config *config, uint32_t rope_context, arena *arena,
                        const rotary_table **tables, uint32_t *count, avo_error *error) {
    *tables = NULL;
    *count = 0;
    if (config->rotary_dims == 0)
        return AVO_OK;
    uint32_t pairs = config->rotary_dims / 2;
    uint32_t wanted = config->rope_base_local > 0.0 ? 2 : 1;
    rotary_table *table = arena_take_array(arena, ROTARY_TABLES_MAX, sizeof(*table));
    double *frequency = arena_take_array(arena, (size_t)ROTARY_TABLES_MAX * pairs, sizeof(double));
    if (table == NULL || frequency == NULL)
        return status_no_memory(error, "RoPE tables", pairs * sizeof(double));
    for (uint32_t t = 0; t < wanted; t++)
        table[t] = (rotary_table){.pairs = pairs,
                                  .interleaved = config->rope_interleaved,
                                  .frequency = frequency + (size_t)t * pairs,
                                  .magnitude = 1.0};
    AVO_TRY(main_table(config, rope_context == 0 ? config->context : rope_context, frequency,
                       &table[0], error));
    for (uint32_t i = 0; wanted == 2 && i < pairs; i++)
        frequency[pairs + i] = plain_frequency(config->rope_base_local, config->rotary_dims, i);
    *tables = table;
    *count = wanted;
    return AVO_OK;
}
