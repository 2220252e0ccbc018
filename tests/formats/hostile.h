/* The judge of hostile files: every one is refused with a message that names a file, or opens and
 * then can be used: all tensor bytes readable, configuration within the limits. Whatever happens,
 * nothing leaks and no more than the file and 64 MiB are taken. */
#ifndef AVO_TESTS_FORMATS_HOSTILE_H
#define AVO_TESTS_FORMATS_HOSTILE_H

#include "formats/formats_int.h"

#include <stdlib.h>

#define HOSTILE_EXTRA_BYTES ((size_t)64 << 20)

typedef struct hostile_counts {
    size_t opened;
    size_t refused;
} hostile_counts;

static inline void judge_config(const model_config *c) {
    assert_in_range(c->layers, 1, SOURCE_LAYERS_MAX);
    assert_in_range(c->width, 1, SOURCE_WIDTH_MAX);
    assert_in_range(c->embedding_width, 1, SOURCE_WIDTH_MAX);
    assert_in_range(c->feed_forward, 1, SOURCE_FEED_FORWARD_MAX);
    assert_in_range(c->heads, 1, SOURCE_HEADS_MAX);
    assert_in_range(c->kv_heads, 1, c->heads);
    assert_int_equal(c->heads % c->kv_heads, 0);
    assert_in_range(c->head_size, 1, SOURCE_HEAD_SIZE_MAX);
    assert_in_range(c->vocabulary, 1, SOURCE_VOCABULARY_MAX);
    assert_in_range(c->context, 1, SOURCE_CONTEXT_MAX);
    assert_true(c->rotary_dims <= c->head_size && c->rotary_dims % 2 == 0);
    assert_true(c->norm_epsilon >= 0 && c->norm_epsilon <= 1);
    assert_true(c->rotary_dims == 0 || c->rope_base > 1);
    assert_true(c->architecture < ARCHITECTURE_COUNT);
    for (uint32_t i = 0; i < c->layers; i++) {
        assert_true(c->layer_windowed[i] <= 1 && c->layer_rotary[i] <= 1);
        assert_true(!c->layer_windowed[i] || c->window > 0);
    }
}

/* Reads every byte, so that a sanitizer sees one outside the file; returns their sum. */
static inline uint64_t judge_tensors(const model_source *source) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *tensor = &source->tensors[i];
        uint64_t bytes;
        assert_true(tensor->rank <= SOURCE_RANK_MAX);
        assert_true(quant_run_bytes(tensor->type, source_tensor_elements(tensor), &bytes));
        assert_int_equal(bytes, tensor->bytes);
        assert_ptr_equal(source_find(source, tensor->name), tensor);
        for (uint64_t j = 0; j < tensor->bytes; j++)
            sum += tensor->data[j];
        /* The decoders take data at any address. */
        float numbers[QUANT_BLOCK_MAX];
        uint32_t block = quant_info_of(tensor->type)->block_elements;
        if (tensor->bytes > 0)
            quant_decode(tensor->type, tensor->data, block, numbers);
    }
    return sum;
}

static inline void judge_generation(const model_source *source) {
    const generation_defaults *g = &source->generation;
    assert_true(g->stop_token_count <= SOURCE_STOP_TOKENS_MAX);
    assert_true(g->token_begin >= -1);
    for (uint32_t i = 0; i < g->stop_token_count; i++)
        assert_in_range(g->stop_tokens[i], 0, SOURCE_VOCABULARY_MAX);
    assert_true(source->chat_template.size <= SOURCE_TEMPLATE_MAX);
}

static inline void judge(const memory_file *files, size_t count, hostile_counts *counts) {
    size_t file_bytes = 0;
    for (size_t i = 0; i < count; i++)
        file_bytes += files[i].bytes.size;
    test_allocator allocator;
    test_allocator_init(&allocator);
    model_source *source;
    avo_error error = {0};
    avo_status status = source_open_memory(files, count, &allocator.allocator, &source, &error);
    if (status == AVO_OK) {
        counts->opened++;
        judge_config(&source->config);
        judge_generation(source);
        volatile uint64_t sum = judge_tensors(source);
        (void)sum;
        source_close(source);
    } else {
        counts->refused++;
        assert_null(source);
        assert_int_equal(error.status, status);
        bool named = false;
        for (size_t i = 0; i < count; i++)
            named = named || strstr(error.text, files[i].name) != NULL;
        if (!named)
            fail_msg("no file name in: %s", error.text);
        assert_null(strchr(error.text, '\n'));
    }
    assert_int_equal(allocator.live, 0);
    assert_true(allocator.peak_bytes <= file_bytes + HOSTILE_EXTRA_BYTES);
}

/* The first file, with `size` bytes, in a block of exactly that size, so that one byte past the end
 * is found. */
static inline void judge_exact(const memory_file *files, size_t count, const uint8_t *bytes,
                               size_t size, hostile_counts *counts) {
    memory_file copies[8];
    memcpy(copies, files, count * sizeof(*files));
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    copies[0].bytes = (bytes_view){copy, size};
    judge(copies, count, counts);
    free(copy);
}

static inline void judge_truncations(const memory_file *files, size_t count,
                                     hostile_counts *counts) {
    for (size_t size = 0; size < files[0].bytes.size; size++)
        judge_exact(files, count, files[0].bytes.data, size, counts);
}

/* Every bit of the first `header` bytes. */
static inline void judge_flips(const memory_file *files, size_t count, size_t header,
                               hostile_counts *counts) {
    uint8_t *copy = malloc(files[0].bytes.size);
    assert_non_null(copy);
    memcpy(copy, files[0].bytes.data, files[0].bytes.size);
    memory_file changed[8];
    memcpy(changed, files, count * sizeof(*files));
    changed[0].bytes.data = copy;
    for (size_t bit = 0; bit < header * 8; bit++) {
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        judge(changed, count, counts);
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    free(copy);
}

/* An integer of the header at 0, ±1, 2^31, 2^32, 2^63, the size of the file ± 1, and its own ± 1.
 */
static inline void judge_extremes(const memory_file *files, size_t count, size_t offset,
                                  size_t bytes, hostile_counts *counts) {
    uint8_t *copy = malloc(files[0].bytes.size);
    assert_non_null(copy);
    memcpy(copy, files[0].bytes.data, files[0].bytes.size);
    memory_file changed[8];
    memcpy(changed, files, count * sizeof(*files));
    changed[0].bytes.data = copy;
    uint64_t own = 0;
    memcpy(&own, copy + offset, bytes);
    uint64_t size = files[0].bytes.size;
    const uint64_t extremes[] = {0,
                                 1,
                                 UINT64_MAX,
                                 ((uint64_t)1 << 31) - 1,
                                 (uint64_t)1 << 31,
                                 UINT32_MAX,
                                 (uint64_t)1 << 32,
                                 INT64_MAX,
                                 (uint64_t)1 << 63,
                                 size - 1,
                                 size,
                                 size + 1,
                                 own - 1,
                                 own + 1,
                                 UINT64_MAX / 8,
                                 UINT64_MAX / 32 + 1};
    for (size_t i = 0; i < sizeof(extremes) / sizeof(extremes[0]); i++) {
        memcpy(copy + offset, &extremes[i], bytes);
        judge(changed, count, counts);
        memcpy(copy + offset, &own, bytes);
    }
    free(copy);
}

/* Every allocation on the way of a file that opens fails once. */
static inline void judge_allocations(const memory_file *files, size_t count) {
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        model_source *source;
        avo_error error = {0};
        avo_status status = source_open_memory(files, count, &allocator.allocator, &source, &error);
        if (status == AVO_OK) {
            assert_true(allocator.allocations < fail_at);
            assert_true(fail_at > 2);
            source_close(source);
            assert_int_equal(allocator.live, 0);
            return;
        }
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_null(source);
        assert_int_equal(allocator.live, 0);
    }
}

#endif
