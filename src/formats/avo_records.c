/* The records of a .avo's small sections: configuration, generation defaults, notes. Reading and
 * writing stand side by side, field by field. */
#include "formats/avo_int.h"

#include "base/checked.h"
#include "base/utf8.h"
#include "formats/formats_int.h"

/* ---- Configuration ---- */

/* Fields with the same name in the record and in the configuration, those that the record has with
 * "rope_" before the name they have in rope_scaling, and the flags. */
/* clang-format off */
#define SAME_FIELDS(X)                                                                             \
    X(layers) X(width) X(feed_forward) X(heads) X(kv_heads) X(head_size) X(vocabulary) X(context)  \
    X(embedding_width) X(rotary_dims) X(position_offset) X(positions) X(window) X(norm_epsilon)    \
    X(rope_base) X(rope_base_local) X(attention_scale) X(embedding_scale) X(residual_scale)        \
    X(logit_scale) X(attention_softcap) X(logit_softcap)
#define ROPE_FIELDS(X)                                                                             \
    X(original_context) X(factor) X(low_frequency_factor) X(high_frequency_factor) X(beta_fast)    \
    X(beta_slow) X(attention_factor) X(mscale) X(mscale_all_dim)
#define FLAG_FIELDS(X)                                                                             \
    X(TIED_HEAD, tied_head) X(NORM_AFTER, norm_after) X(NO_FINAL_NORM, no_final_norm)              \
    X(ROPE_INTERLEAVED, rope_interleaved) X(ROPE_TRUNCATE, rope.truncate)
#define EXPERT_FIELDS(X)                                                                           \
    X(experts) X(experts_used) X(expert_feed_forward) X(shared_feed_forward)
/* clang-format on */

static void config_from_record(const avo_config_record *record, model_config *config) {
#define READ_FIELD(name)      config->name = record->name;
#define READ_ROPE(name)       config->rope.name = record->rope_##name;
#define READ_FLAG(flag, name) config->name = (record->flags & AVO_FLAG_##flag) != 0;
    config->architecture = (source_architecture)record->architecture;
    config->activation = (source_activation)record->activation;
    config->rope = (rope_scaling){.kind = (rope_scaling_kind)record->rope_kind,
                                  .factor_count = record->factor_count};
    SAME_FIELDS(READ_FIELD)
    ROPE_FIELDS(READ_ROPE)
    FLAG_FIELDS(READ_FLAG)
    EXPERT_FIELDS(READ_FIELD)
    config->router = (source_router)record->router;
    config->router_normalised = record->router_normalised != 0;
}

static avo_config_record record_from_config(const model_config *config) {
#define WRITE_FIELD(name)      record.name = config->name;
#define WRITE_ROPE(name)       record.rope_##name = config->rope.name;
#define WRITE_FLAG(flag, name) record.flags |= config->name ? AVO_FLAG_##flag : 0u;
    avo_config_record record = {.record_bytes = sizeof(record),
                                .architecture = config->architecture,
                                .activation = config->activation,
                                .rope_kind = config->rope.kind,
                                .factor_count = config->rope.factor_count};
    SAME_FIELDS(WRITE_FIELD)
    ROPE_FIELDS(WRITE_ROPE)
    FLAG_FIELDS(WRITE_FLAG)
    if (config->experts == 0) {
        record.record_bytes = AVO_CONFIG_RECORD_DENSE;
        return record;
    }
    EXPERT_FIELDS(WRITE_FIELD)
    record.router = config->router;
    record.router_normalised = config->router_normalised;
    return record;
}

/* The fixed part, with the rule for fields that this reader does not know. */
static avo_status read_record(const model_source *source, cursor *at, avo_config_record *record,
                              avo_error *error) {
    const uint8_t *bytes, *rest;
    *record = (avo_config_record){0};
    if (!cursor_take(at, AVO_CONFIG_RECORD_DENSE, &bytes))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: config section has %zu bytes, must have at least %u", source->path,
                           at->size, AVO_CONFIG_RECORD_DENSE);
    memcpy(record, bytes, AVO_CONFIG_RECORD_DENSE);
    if (record->record_bytes < AVO_CONFIG_RECORD_DENSE || record->record_bytes > at->size ||
        (record->record_bytes > AVO_CONFIG_RECORD_DENSE &&
         record->record_bytes < sizeof(*record)) ||
        record->record_bytes % 8 != 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: config record claims %u bytes, the section has %zu", source->path,
                           record->record_bytes, at->size);
    size_t more = size_min(record->record_bytes, sizeof(*record)) - AVO_CONFIG_RECORD_DENSE;
    if (cursor_take(at, more, &rest))
        memcpy((uint8_t *)record + AVO_CONFIG_RECORD_DENSE, rest, more);
    while (at->at < record->record_bytes) {
        uint64_t unknown = 0;
        if (!cursor_read_u64(at, &unknown) || unknown != 0)
            return status_fail(
                error, AVO_ERROR_UNSUPPORTED,
                "%s: the configuration has an unknown field at byte %zu; use a newer avocet",
                source->path, at->at);
    }
    if (record->architecture >= ARCHITECTURE_COUNT)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: unknown architecture %u; use a newer avocet", source->path,
                           record->architecture);
    if (record->router > SOURCE_ROUTER_TOP_SOFTMAX || record->router_normalised > 1)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: unknown router %u; use a newer avocet", source->path,
                           record->router);
    if (record->activation > SOURCE_ACTIVATION_SWIGLU_CLIPPED)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: unknown activation %u; use a newer avocet", source->path,
                           record->activation);
    if (record->rope_kind > ROPE_FACTORS)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: unknown RoPE scaling %u; use a newer avocet", source->path,
                           record->rope_kind);
    if ((record->flags & ~(uint32_t)AVO_FLAGS_ALL) != 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: unknown configuration flags %x; use a newer avocet", source->path,
                           record->flags);
    if (record->layers == 0 || record->layers > SOURCE_LAYERS_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: layer count is %u, must be 1 to %d",
                           source->path, record->layers, SOURCE_LAYERS_MAX);
    if (record->factor_count > SOURCE_HEAD_SIZE_MAX / 2)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %u RoPE factors, must be at most %d",
                           source->path, record->factor_count, SOURCE_HEAD_SIZE_MAX / 2);
    return AVO_OK;
}

static avo_status read_factors(model_source *source, cursor *at, const double **out,
                               avo_error *error) {
    uint32_t count = source->config.rope.factor_count;
    void *factors;
    const uint8_t *bytes;
    AVO_TRY(source_take(source, count, sizeof(double), "RoPE factors", &factors, error));
    if (!cursor_take(at, count * sizeof(double), &bytes))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: config section ends before its %u RoPE factors are complete",
                           source->path, count);
    if (count > 0)
        memcpy(factors, bytes, count * sizeof(double));
    *out = factors;
    return AVO_OK;
}

static avo_status read_layer_flags(model_source *source, cursor *at, const char *what,
                                   const uint8_t **out, avo_error *error) {
    uint32_t layers = source->config.layers;
    if (!cursor_take(at, layers, out))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: config section ends before the %s flags are complete", source->path,
                           what);
    return AVO_OK;
}

avo_status avo_config_read(model_source *source, bytes_view section, avo_error *error) {
    cursor at = cursor_over(section);
    avo_config_record record;
    AVO_TRY(read_record(source, &at, &record, error));
    model_config *config = &source->config;
    config_from_record(&record, config);
    AVO_TRY(read_factors(source, &at, &config->rope.short_factor, error));
    AVO_TRY(read_factors(source, &at, &config->rope.long_factor, error));
    AVO_TRY(read_layer_flags(source, &at, "window", &config->layer_windowed, error));
    AVO_TRY(read_layer_flags(source, &at, "rotation", &config->layer_rotary, error));
    if (config->experts > 0)
        AVO_TRY(read_layer_flags(source, &at, "expert", &config->layer_experts, error));
    if (cursor_left(&at) >= 8)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %zu unexpected bytes after the configuration", source->path,
                           cursor_left(&at));
    return config_check(config, source->path, error);
}

static avo_status pad_to_eight(buffer *out) {
    static const char zeros[8];
    return buffer_append(out, zeros, (8 - out->size % 8) % 8);
}

avo_status avo_config_write(const model_config *config, buffer *out) {
    avo_config_record record = record_from_config(config);
    bool has_factors = config->rope.short_factor != NULL && config->rope.long_factor != NULL;
    if (!has_factors)
        record.factor_count = 0;
    AVO_TRY(buffer_append(out, &record, record.record_bytes));
    AVO_TRY(buffer_append(out, config->rope.short_factor, record.factor_count * sizeof(double)));
    AVO_TRY(buffer_append(out, config->rope.long_factor, record.factor_count * sizeof(double)));
    AVO_TRY(buffer_append(out, config->layer_windowed, config->layers));
    AVO_TRY(buffer_append(out, config->layer_rotary, config->layers));
    if (config->experts > 0)
        AVO_TRY(buffer_append(out, config->layer_experts, config->layers));
    return pad_to_eight(out);
}

/* ---- Generation defaults ---- */

avo_status avo_generation_read(model_source *source, bytes_view section, avo_error *error) {
    avo_generation_record record;
    if (section.size != sizeof(record))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: generation section has %zu bytes, must have %zu", source->path,
                           section.size, sizeof(record));
    memcpy(&record, section.data, sizeof(record));
    if (record.stop_token_count > SOURCE_STOP_TOKENS_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %u stop tokens, must be at most %d",
                           source->path, record.stop_token_count, SOURCE_STOP_TOKENS_MAX);
    generation_defaults *defaults = &source->generation;
    defaults->token_begin = record.token_begin;
    defaults->stop_token_count = record.stop_token_count;
    memcpy(defaults->stop_tokens, record.stop_tokens, sizeof(record.stop_tokens));
    defaults->temperature = record.temperature;
    defaults->top_p = record.top_p;
    defaults->min_p = record.min_p;
    defaults->typical_p = record.typical_p;
    defaults->repetition_penalty = record.repetition_penalty;
    defaults->top_k = record.top_k;
    return generation_check(defaults, source->config.vocabulary, source->path, error);
}

avo_status avo_generation_write(const generation_defaults *defaults, buffer *out) {
    avo_generation_record record = {
        .token_begin = defaults->token_begin,
        .stop_token_count = defaults->stop_token_count,
        .temperature = defaults->temperature,
        .top_p = defaults->top_p,
        .min_p = defaults->min_p,
        .typical_p = defaults->typical_p,
        .repetition_penalty = defaults->repetition_penalty,
        .top_k = defaults->top_k,
    };
    memcpy(record.stop_tokens, defaults->stop_tokens,
           defaults->stop_token_count * sizeof(record.stop_tokens[0]));
    return buffer_append(out, &record, sizeof(record));
}

/* ---- Notes: u32 count; count × (u32 key bytes, u32 value bytes); the texts ---- */

static avo_status check_text(const model_source *source, text_view text, avo_error *error) {
    if (utf8_valid_prefix(text.data, text.size) == text.size)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT, "%s: a note is not valid UTF-8", source->path);
}

avo_status avo_notes_read(model_source *source, bytes_view section, avo_error *error) {
    cursor lengths = cursor_over(section), texts = lengths;
    uint32_t count = 0;
    if (section.size > AVO_NOTE_BYTES_MAX || !cursor_read_u32(&lengths, &count) ||
        count > AVO_NOTES_MAX || !cursor_skip(&texts, 4 + 8 * (size_t)count))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: notes section is malformed: %u notes in %zu bytes", source->path,
                           count, section.size);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sizes[2] = {0, 0};
        const uint8_t *key = NULL, *value = NULL;
        if (!cursor_read_u32(&lengths, &sizes[0]) || !cursor_read_u32(&lengths, &sizes[1]) ||
            !cursor_take(&texts, sizes[0], &key) || !cursor_take(&texts, sizes[1], &value))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: note %u (%u + %u bytes) passes the end of the notes section",
                               source->path, i, sizes[0], sizes[1]);
        AVO_TRY(check_text(source, (text_view){(const char *)key, sizes[0]}, error));
        AVO_TRY(check_text(source, (text_view){(const char *)value, sizes[1]}, error));
        avo_note note = avo_notes_at(section, i);
        if (text_is(note.key, "name"))
            source->name = note.value;
    }
    if (cursor_left(&texts) >= 8)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %zu unexpected bytes after the notes",
                           source->path, cursor_left(&texts));
    return AVO_OK;
}

avo_note avo_notes_at(bytes_view section, uint32_t index) {
    cursor lengths = cursor_over(section), texts = lengths;
    uint32_t count = 0, key_bytes = 0, value_bytes = 0;
    const uint8_t *key = NULL, *value = NULL;
    (void)cursor_read_u32(&lengths, &count);
    (void)cursor_skip(&texts, 4 + 8 * (size_t)count);
    for (uint32_t i = 0; i <= index && i < count; i++) {
        (void)cursor_read_u32(&lengths, &key_bytes);
        (void)cursor_read_u32(&lengths, &value_bytes);
        (void)cursor_take(&texts, key_bytes, &key);
        (void)cursor_take(&texts, value_bytes, &value);
    }
    return (avo_note){{(const char *)key, key_bytes}, {(const char *)value, value_bytes}};
}

avo_status avo_notes_write(const avo_note *notes, uint32_t count, buffer *out) {
    AVO_TRY(buffer_append(out, &count, sizeof(count)));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sizes[2] = {(uint32_t)notes[i].key.size, (uint32_t)notes[i].value.size};
        AVO_TRY(buffer_append(out, sizes, sizeof(sizes)));
    }
    for (uint32_t i = 0; i < count; i++) {
        AVO_TRY(buffer_append(out, notes[i].key.data, notes[i].key.size));
        AVO_TRY(buffer_append(out, notes[i].value.data, notes[i].value.size));
    }
    return pad_to_eight(out);
}
