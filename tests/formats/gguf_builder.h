/* Writes small GGUF files in memory and remembers where every integer of the header lies. */
#ifndef AVO_TESTS_FORMATS_GGUF_BUILDER_H
#define AVO_TESTS_FORMATS_GGUF_BUILDER_H

#include "formats/formats_int.h"

#define BUILDER_BYTES_MAX  16384
#define BUILDER_FIELDS_MAX 512

typedef struct builder_field {
    size_t offset;
    size_t bytes;
} builder_field;

typedef struct gguf_builder {
    uint8_t bytes[BUILDER_BYTES_MAX];
    size_t size;
    size_t header; /* bytes before the data */
    builder_field fields[BUILDER_FIELDS_MAX];
    size_t field_count;
} gguf_builder;

static inline void build_bytes(gguf_builder *b, const void *data, size_t bytes) {
    assert_true(b->size + bytes <= BUILDER_BYTES_MAX);
    memcpy(b->bytes + b->size, data, bytes);
    b->size += bytes;
}

static inline void build_integer(gguf_builder *b, uint64_t number, size_t bytes) {
    assert_true(b->field_count < BUILDER_FIELDS_MAX);
    b->fields[b->field_count++] = (builder_field){b->size, bytes};
    build_bytes(b, &number, bytes);
}

static inline void build_u32(gguf_builder *b, uint32_t number) {
    build_integer(b, number, 4);
}

static inline void build_u64(gguf_builder *b, uint64_t number) {
    build_integer(b, number, 8);
}

static inline void build_string(gguf_builder *b, const char *text) {
    build_u64(b, strlen(text));
    build_bytes(b, text, strlen(text));
}

/* Counts are patched in where they are not known yet. */
static inline void build_begin(gguf_builder *b, uint32_t version, uint64_t tensors,
                               uint64_t values) {
    b->size = 0;
    b->field_count = 0;
    build_bytes(b, "GGUF", 4);
    build_u32(b, version);
    build_u64(b, tensors);
    build_u64(b, values);
}

static inline void build_key(gguf_builder *b, const char *key, gguf_type type) {
    build_string(b, key);
    build_u32(b, (uint32_t)type);
}

static inline void build_value_u32(gguf_builder *b, const char *key, uint32_t number) {
    build_key(b, key, GGUF_U32);
    build_u32(b, number);
}

static inline void build_value_f32(gguf_builder *b, const char *key, float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    build_key(b, key, GGUF_F32);
    build_u32(b, bits);
}

static inline void build_value_string(gguf_builder *b, const char *key, const char *text) {
    build_key(b, key, GGUF_STRING);
    build_string(b, text);
}

static inline void build_value_array(gguf_builder *b, const char *key, gguf_type type,
                                     uint64_t count) {
    build_key(b, key, GGUF_ARRAY);
    build_u32(b, (uint32_t)type);
    build_u64(b, count);
}

/* A tensor info; `inner` is the fast dimension, `outer` 0 for a vector. */
static inline void build_tensor(gguf_builder *b, const char *name, uint64_t inner, uint64_t outer,
                                uint32_t type, uint64_t offset) {
    build_string(b, name);
    build_u32(b, outer == 0 ? 1 : 2);
    build_u64(b, inner);
    if (outer != 0)
        build_u64(b, outer);
    build_u32(b, type);
    build_u64(b, offset);
}

static inline void build_data(gguf_builder *b, size_t alignment, size_t bytes) {
    b->header = b->size;
    while (b->size % alignment != 0)
        build_bytes(b, "", 1);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(i * 7);
        build_bytes(b, &byte, 1);
    }
}

/* A llama of one layer's metadata: 16 keys. Tokens, scores and types of a four-token vocabulary,
 * and every type of metadata. */
#define BUILD_LLAMA_VALUES 24
static inline void build_llama_values(gguf_builder *b) {
    build_value_string(b, "general.architecture", "llama");
    build_value_string(b, "general.name", "tiny");
    build_value_u32(b, "general.alignment", 32);
    build_value_u32(b, "llama.block_count", 1);
    build_value_u32(b, "llama.context_length", 16);
    build_value_u32(b, "llama.embedding_length", 32);
    build_value_u32(b, "llama.feed_forward_length", 32);
    build_value_u32(b, "llama.attention.head_count", 2);
    build_value_u32(b, "llama.attention.head_count_kv", 1);
    build_value_u32(b, "llama.rope.dimension_count", 16);
    build_value_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    build_value_f32(b, "llama.rope.freq_base", 10000.0f);
    build_value_string(b, "tokenizer.ggml.model", "llama");
    build_value_array(b, "tokenizer.ggml.tokens", GGUF_STRING, 4);
    build_string(b, "<s>");
    build_string(b, "</s>");
    build_string(b, "<|im_end|>");
    build_string(b, "a");
    build_value_array(b, "tokenizer.ggml.scores", GGUF_F32, 4);
    for (uint32_t i = 0; i < 4; i++)
        build_u32(b, 0xC0000000u + i); /* floats near −2 */
    build_value_array(b, "tokenizer.ggml.token_type", GGUF_I32, 4);
    static const uint32_t types[] = {3, 3, 3, 1};
    for (size_t i = 0; i < 4; i++)
        build_u32(b, types[i]);
    build_value_u32(b, "tokenizer.ggml.bos_token_id", 0);
    build_value_u32(b, "tokenizer.ggml.eos_token_id", 1);
    build_value_string(b, "tokenizer.chat_template", "{{ messages }}");
    build_key(b, "test.bool", GGUF_BOOL);
    build_integer(b, 1, 1);
    build_key(b, "test.i8", GGUF_I8);
    build_integer(b, 0xFE, 1);
    build_key(b, "test.u16", GGUF_U16);
    build_integer(b, 65535, 2);
    build_key(b, "test.f64", GGUF_F64);
    build_integer(b, 0x3FF8000000000000u, 8);
    build_value_array(b, "test.nested", GGUF_ARRAY, 2);
    build_u32(b, GGUF_U8);
    build_u64(b, 3);
    build_bytes(b, "\1\2\3", 3);
    build_u32(b, GGUF_STRING);
    build_u64(b, 1);
    build_string(b, "deep");
}

/* The whole small model: six tensors of different types. */
static inline void build_llama(gguf_builder *b, uint32_t version) {
    build_begin(b, version, 4, BUILD_LLAMA_VALUES);
    build_llama_values(b);
    build_tensor(b, "token_embd.weight", 32, 4, 8, 0);        /* q8_0: 4 × 34 = 136 */
    build_tensor(b, "output_norm.weight", 32, 0, 0, 160);     /* f32: 128 */
    build_tensor(b, "blk.0.attn_q.weight", 32, 2, 1, 288);    /* f16: 128 */
    build_tensor(b, "blk.0.ffn_down.weight", 32, 1, 39, 416); /* mxfp4: 17 */
    build_data(b, 32, 433);
}

#endif
