/* llama2.c's .bin, version 0: seven int32, then float32 arrays in a fixed order.
 *
 *   int32 dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size (negative: the head is a
 *         matrix of its own), seq_len
 *   float token_embedding[vocab][dim]
 *         rms_att[layers][dim], wq[layers][dim][dim], wk, wv[layers][kv][dim], wo[layers][dim][dim]
 *         rms_ffn[layers][dim], w1[layers][hidden][dim], w2[layers][dim][hidden], w3 as w1
 *         rms_final[dim], freq_cis_real, freq_cis_imag[seq_len][head / 2] (not used)
 *         wcls[vocab][dim] when vocab_size is negative
 *
 * There is no magic: a file is one of these when its size is exactly what the header says. The
 * tensors become slices under GGUF's names.
 */
#include "base/checked.h"
#include "formats/formats_int.h"

#include <stdio.h>

#define HEADER_BYTES 28

typedef struct array_spec {
    const char *name; /* behind "blk.N." for per-layer ones */
    bool per_layer;
    bool skipped;           /* bytes that are there and not used */
    uint64_t rows, columns; /* columns 0: a vector of `rows` */
} array_spec;

#define ARRAY_COUNT 13

static avo_status read_header(const model_source *source, cursor *at, model_config *config,
                              avo_error *error) {
    static const struct {
        const char *name;
        int32_t maximum;
    } fields[] = {
        {"dim", SOURCE_WIDTH_MAX},        {"hidden_dim", SOURCE_FEED_FORWARD_MAX},
        {"n_layers", SOURCE_LAYERS_MAX},  {"n_heads", SOURCE_HEADS_MAX},
        {"n_kv_heads", SOURCE_HEADS_MAX}, {"vocab_size", SOURCE_VOCABULARY_MAX},
        {"seq_len", SOURCE_CONTEXT_MAX},
    };
    uint32_t values[7];
    config->tied_head = true;
    for (size_t i = 0; i < 7; i++) {
        int32_t value;
        if (!cursor_read_i32(at, &value))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: not a model file: no GGUF, safetensors or .avo header, and too "
                               "short (%zu bytes) for llama2.c",
                               source->path, at->size);
        int64_t size = value;
        if (i == 5 && size < 0) {
            config->tied_head = false;
            size = -size;
        }
        if (size < 1 || size > fields[i].maximum)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: not a model file: no GGUF, safetensors or .avo header, and "
                               "read as llama2.c %s is %d, must be 1 to %d",
                               source->path, fields[i].name, value, fields[i].maximum);
        values[i] = (uint32_t)size;
    }
    config->width = values[0];
    config->feed_forward = values[1];
    config->layers = values[2];
    config->heads = values[3];
    config->kv_heads = values[4];
    config->vocabulary = values[5];
    config->context = values[6];
    if (config->width % config->heads != 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: read as llama2.c, dim (%u) must be a multiple of n_heads (%u)",
                           source->path, config->width, config->heads);
    config->head_size = config->width / config->heads;
    return AVO_OK;
}

static void config_fill(model_config *config) {
    config->architecture = ARCHITECTURE_LLAMA;
    config->embedding_width = config->width;
    config->norm_epsilon = 1e-5;
    config->activation = SOURCE_ACTIVATION_SILU;
    config->rotary_dims = config->head_size;
    config->rope_interleaved = true;
    config->rope_base = 10000.0;
    config->rope = (rope_scaling){.kind = ROPE_PLAIN, .factor = 1.0, .truncate = true};
}

static void arrays_describe(const model_config *c, array_spec arrays[ARRAY_COUNT]) {
    uint64_t width = c->width;
    uint64_t kv = (uint64_t)c->kv_heads * c->head_size;
    uint64_t half = c->head_size / 2;
    array_spec table[ARRAY_COUNT] = {
        {"token_embd.weight", false, false, c->vocabulary, width},
        {"attn_norm.weight", true, false, width, 0},
        {"attn_q.weight", true, false, width, width},
        {"attn_k.weight", true, false, kv, width},
        {"attn_v.weight", true, false, kv, width},
        {"attn_output.weight", true, false, width, width},
        {"ffn_norm.weight", true, false, width, 0},
        {"ffn_gate.weight", true, false, c->feed_forward, width},
        {"ffn_down.weight", true, false, width, c->feed_forward},
        {"ffn_up.weight", true, false, c->feed_forward, width},
        {"output_norm.weight", false, false, width, 0},
        {"freq_cis", false, true, (uint64_t)c->context * 2, half},
        {"output.weight", false, c->tied_head, c->tied_head ? 0 : c->vocabulary, width},
    };
    memcpy(arrays, table, sizeof(table));
}

static uint64_t array_floats(const array_spec *array) {
    return array->rows * (array->columns == 0 ? 1 : array->columns);
}

/* The factors are within the limits of source.h, so nothing here wraps. */
static uint64_t expected_bytes(const array_spec *arrays, uint32_t layers) {
    uint64_t floats = 0;
    for (size_t i = 0; i < ARRAY_COUNT; i++)
        if (arrays[i].rows > 0)
            floats += (arrays[i].per_layer ? layers : 1) * array_floats(&arrays[i]);
    return HEADER_BYTES + 4 * floats;
}

static avo_status tensor_add(model_source *source, const array_spec *array, uint32_t layer,
                             const uint8_t *data, avo_error *error) {
    char name[64];
    if (array->per_layer)
        snprintf(name, sizeof(name), "blk.%u.%s", layer, array->name);
    else
        snprintf(name, sizeof(name), "%s", array->name);
    const char *copy;
    AVO_TRY(source_copy_text(source, text_from(name), &copy, error));
    source->tensors[source->tensor_count++] = (source_tensor){
        .name = text_from(copy),
        .type = QUANT_F32,
        .layout = QUANT_LAYOUT_ROWS,
        .rank = array->columns == 0 ? 1 : 2,
        .shape = {array->rows, array->columns == 0 ? 1 : array->columns, 1, 1},
        .data = data,
        .bytes = 4 * array_floats(array),
        .file = 0,
    };
    return AVO_OK;
}

static avo_status tensors_slice(model_source *source, const array_spec *arrays, cursor *at,
                                avo_error *error) {
    uint32_t layers = source->config.layers;
    AVO_TRY(source_tensors_reserve(source, 4 + 9 * (uint64_t)layers, error));
    for (size_t i = 0; i < ARRAY_COUNT; i++) {
        uint32_t slices = arrays[i].per_layer ? layers : 1;
        for (uint32_t layer = 0; layer < slices && arrays[i].rows > 0; layer++) {
            const uint8_t *data;
            if (!cursor_take(at, 4 * array_floats(&arrays[i]), &data))
                return status_fail(error, AVO_ERROR_FORMAT, "%s: %s passes the end of the file",
                                   source->path, arrays[i].name);
            if (!arrays[i].skipped)
                AVO_TRY(tensor_add(source, &arrays[i], layer, data, error));
        }
    }
    return source_tensors_index(source, error);
}

/* tok<vocabulary>.bin is the one made for this very vocabulary; tokenizer.bin the usual one. */
static avo_status tokenizer_find(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    char name[64];
    snprintf(name, sizeof(name), "tok%u.bin", source->config.vocabulary);
    uint32_t file;
    AVO_TRY(source_file_beside(loader, name, &file, error));
    if (file == SOURCE_NO_FILE)
        AVO_TRY(source_file_beside(loader, "tokenizer.bin", &file, error));
    source->tokenizer.vocabulary = source->config.vocabulary;
    if (file == SOURCE_NO_FILE)
        return AVO_OK;
    source->tokenizer.kind = TOKENIZER_SOURCE_LLAMA2C;
    source->tokenizer.data = source_file_bytes(source, file);
    source->tokenizer.name = source->files[file].path;
    return AVO_OK;
}

avo_status llama2c_source_open(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    model_config *config = &source->config;
    source->format = SOURCE_LLAMA2C;
    source->naming = SOURCE_NAMES_GGUF;
    cursor at = cursor_over(source_file_bytes(source, 0));
    AVO_TRY(read_header(source, &at, config, error));
    config_fill(config);
    array_spec arrays[ARRAY_COUNT];
    arrays_describe(config, arrays);
    uint64_t expected = expected_bytes(arrays, config->layers);
    if (expected != at.size)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: read as llama2.c (dim %u, %u layers, vocab_size %u) the file must "
                           "have %llu bytes, it has %zu",
                           source->path, config->width, config->layers, config->vocabulary,
                           (unsigned long long)expected, at.size);
    AVO_TRY(config_layers_fill(source, false, true, error));
    AVO_TRY(config_check(config, source->path, error));
    AVO_TRY(tensors_slice(source, arrays, &at, error));
    AVO_TRY(tokenizer_find(loader, error));
    /* Its training separates texts by the begin token, so that one ends a text too. A vocabulary
     * that has neither knows no such tokens. */
    if (config->vocabulary <= 2)
        return AVO_OK;
    source->generation.token_begin = 1;
    AVO_TRY(generation_stop_add(&source->generation, 2, source->path, error));
    return generation_stop_add(&source->generation, 1, source->path, error);
}
