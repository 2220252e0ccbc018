/* Which model this is: configuration, names, types and shapes of all tensors, and a sample of their
 * numbers.
 *
 * A sample, because all of them may be 40 GB on a disk, and whoever asks wants to know at once. Two
 * models of one shape differ in nearly every number (other training moves all of them), so a few
 * kilobytes of each tensor tell them apart. It is no proof against damage: .avo files have sums of
 * their own for that. Training, which reads all weights anyway, hashes them all.
 */
#include "base/hash.h"
#include "formats/source.h"

#define SAMPLE_WHOLE  4096 /* tensors up to this size are hashed whole */
#define SAMPLE_PIECES 8    /* of the others, spread evenly from the first byte to the last */
#define SAMPLE_BYTES  256

static void add_number(hash_stream *stream, uint64_t number) {
    hash_stream_add(stream, &number, sizeof(number));
}

static void add_real(hash_stream *stream, double number) {
    hash_stream_add(stream, &number, sizeof(number));
}

static void add_array(hash_stream *stream, const void *data, size_t count, size_t size) {
    add_number(stream, data == NULL ? 0 : count);
    if (data != NULL)
        hash_stream_add(stream, data, count * size);
}

static void add_rope(hash_stream *stream, const rope_scaling *rope) {
    const double reals[] = {
        rope->factor,    rope->low_frequency_factor, rope->beta_fast, rope->high_frequency_factor,
        rope->beta_slow, rope->attention_factor,     rope->mscale,    rope->mscale_all_dim};
    add_number(stream, rope->kind);
    add_number(stream, rope->original_context);
    add_number(stream, rope->truncate);
    add_array(stream, reals, sizeof(reals) / sizeof(reals[0]), sizeof(reals[0]));
    add_array(stream, rope->short_factor, rope->factor_count, sizeof(double));
    add_array(stream, rope->long_factor, rope->factor_count, sizeof(double));
}

/* Field by field: a structure has holes. */
static void add_config(hash_stream *stream, const model_config *config) {
    const uint32_t numbers[] = {
        config->architecture,    config->layers,          config->width,
        config->feed_forward,    config->heads,           config->kv_heads,
        config->head_size,       config->vocabulary,      config->context,
        config->activation,      config->embedding_width, config->tied_head,
        config->norm_plus_one,   config->norm_after,      config->no_final_norm,
        config->transposed,      config->rotary_dims,     config->rope_interleaved,
        config->position_offset, config->positions,       config->window};
    const double reals[] = {
        config->norm_epsilon,    config->rope_base,         config->rope_base_local,
        config->attention_scale, config->embedding_scale,   config->residual_scale,
        config->logit_scale,     config->attention_softcap, config->logit_softcap};
    add_array(stream, numbers, sizeof(numbers) / sizeof(numbers[0]), sizeof(numbers[0]));
    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
        add_real(stream, reals[i]);
    add_rope(stream, &config->rope);
    add_array(stream, config->layer_windowed, config->layers, 1);
    add_array(stream, config->layer_rotary, config->layers, 1);
    if (config->experts == 0) /* dense models keep the digests they had */
        return;
    const uint32_t experts[] = {config->experts,
                                config->experts_used,
                                config->expert_feed_forward,
                                config->shared_feed_forward,
                                config->router,
                                config->router_normalised};
    add_array(stream, experts, sizeof(experts) / sizeof(experts[0]), sizeof(experts[0]));
    add_array(stream, config->layer_experts, config->layers, 1);
}

static void add_tensor(hash_stream *stream, const source_tensor *tensor, bool whole) {
    add_array(stream, tensor->name.data, tensor->name.size, 1);
    add_number(stream, tensor->type);
    add_number(stream, tensor->layout);
    add_array(stream, tensor->shape, SOURCE_RANK_MAX, sizeof(tensor->shape[0]));
    add_number(stream, tensor->bytes);
    if (whole || tensor->bytes <= SAMPLE_WHOLE) {
        hash_stream_add(stream, tensor->data, (size_t)tensor->bytes);
        return;
    }
    uint64_t step = (tensor->bytes - SAMPLE_BYTES) / (SAMPLE_PIECES - 1);
    for (uint64_t i = 0; i < SAMPLE_PIECES; i++)
        hash_stream_add(stream, tensor->data + i * step, SAMPLE_BYTES);
}

static uint64_t digest(const model_source *source, bool whole) {
    hash_stream stream;
    hash_stream_begin(&stream);
    add_config(&stream, &source->config);
    add_number(&stream, source->tensor_count);
    for (uint32_t i = 0; i < source->tensor_count; i++)
        add_tensor(&stream, &source->tensors[i], whole);
    return hash_stream_sum(&stream);
}

uint64_t source_digest(const model_source *source) {
    return digest(source, false);
}

uint64_t source_digest_whole(const model_source *source) {
    return digest(source, true);
}
