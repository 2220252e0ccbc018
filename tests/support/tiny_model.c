/* Writes a tiny llama2.c model with its tokenizer. */
#include "support/tiny_model.h"
#include "support/support.h"

#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 32, FEED_FORWARD = 64, LAYERS = 2, HEADS = 4, KV_HEADS = 2 };

typedef struct writer {
    FILE *file;
    uint64_t seed, at;
} writer;

/* Nearly normal: the sum of four uniform numbers. */
static void put_weights(writer *writer, size_t count, double scale) {
    for (size_t i = 0; i < count; i++) {
        double sum = -2.0;
        for (int n = 0; n < 4; n++)
            sum += random_uniform_at(writer->seed, 7, writer->at++);
        float weight = (float)(sum * scale * 1.7);
        assert_int_equal(fwrite(&weight, sizeof(weight), 1, writer->file), 1);
    }
}

static void put_ones(writer *writer, size_t count) {
    const float one = 1.0f;
    for (size_t i = 0; i < count; i++)
        assert_int_equal(fwrite(&one, sizeof(one), 1, writer->file), 1);
}

static void write_model(const char *path, uint64_t seed) {
    writer w = {fopen(path, "wb"), seed, 0};
    assert_non_null(w.file);
    const int32_t head[7] = {WIDTH,    FEED_FORWARD,    LAYERS,      HEADS,
                             KV_HEADS, TINY_VOCABULARY, TINY_CONTEXT};
    const size_t kv_width = WIDTH / HEADS * KV_HEADS;
    assert_int_equal(fwrite(head, sizeof(head), 1, w.file), 1);
    put_weights(&w, (size_t)TINY_VOCABULARY * WIDTH, 0.5); /* embedding, and head */
    put_ones(&w, LAYERS * WIDTH);
    put_weights(&w, LAYERS * WIDTH * WIDTH, 0.3);    /* query */
    put_weights(&w, LAYERS * WIDTH * kv_width, 0.3); /* key */
    put_weights(&w, LAYERS * WIDTH * kv_width, 0.3); /* value */
    put_weights(&w, LAYERS * WIDTH * WIDTH, 0.3);    /* output */
    put_ones(&w, LAYERS * WIDTH);
    put_weights(&w, 3 * LAYERS * WIDTH * FEED_FORWARD, 0.3); /* gate, down, up */
    put_ones(&w, WIDTH);
    put_ones(&w, TINY_CONTEXT * (WIDTH / HEADS)); /* old tables of angles */
    assert_int_equal(fclose(w.file), 0);
}

static void put_token(FILE *file, const char *text, int number) {
    float score = (float)-number;
    int32_t bytes = (int32_t)strlen(text);
    assert_int_equal(fwrite(&score, sizeof(score), 1, file), 1);
    assert_int_equal(fwrite(&bytes, sizeof(bytes), 1, file), 1);
    assert_int_equal(fwrite(text, 1, (size_t)bytes, file), bytes);
}

static void write_tokenizer(const char *path, const char *const words[10]) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const int32_t longest = 8;
    assert_int_equal(fwrite(&longest, sizeof(longest), 1, file), 1);
    int number = 0;
    char text[16];
    put_token(file, "<unk>", number++);
    put_token(file, "\n<s>\n", number++);
    put_token(file, "\n</s>\n", number++);
    for (unsigned byte = 0; byte < 256; byte++) {
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        put_token(file, text, number++);
    }
    for (int code = 32; code < 127; code++) {
        snprintf(text, sizeof(text), "%c", code);
        put_token(file, text, number++);
    }
    for (int i = 0; i < 10; i++)
        put_token(file, words[i], number++);
    assert_int_equal(number, TINY_VOCABULARY);
    assert_int_equal(fclose(file), 0);
}

const char *tiny_model_write(const char *folder, uint64_t seed) {
    static const char *const words[10] = {" the", " a",  "once", "upon", " time",
                                          "and",  " of", " is",  "in",   " to"};
    return tiny_model_write_words(folder, seed, words);
}

const char *tiny_model_write_words(const char *folder, uint64_t seed, const char *const words[10]) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/tokenizer.bin", folder);
    write_tokenizer(path, words);
    snprintf(path, sizeof(path), "%s/model.bin", folder);
    write_model(path, seed);
    return path;
}

/* ---- An adapter for it ---- */

enum { RANK = 4 };

static void put_tensor(FILE *file, writer *writer, uint32_t layer, const char *module,
                       const char *half, int rows, int columns, bool head, size_t *offset) {
    size_t bytes = (size_t)rows * (size_t)columns * sizeof(float);
    if (head)
        fprintf(file,
                "%s\"base_model.model.model.layers.%u.self_attn.%s.%s.weight\":{\"dtype\":\"F32\","
                "\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}",
                *offset == 0 ? "{" : ",", layer, module, half, rows, columns, *offset,
                *offset + bytes);
    else
        put_weights(writer, (size_t)rows * (size_t)columns, 0.4);
    *offset += bytes;
}

static void put_tensors(FILE *file, writer *writer, bool head) {
    static const char *const modules[] = {"q_proj", "o_proj"};
    size_t offset = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < 2; i++) {
            put_tensor(file, writer, layer, modules[i], "lora_A", RANK, WIDTH, head, &offset);
            put_tensor(file, writer, layer, modules[i], "lora_B", WIDTH, RANK, head, &offset);
        }
}

void tiny_adapter_write(const char *folder, uint64_t seed) {
    char path[4096], text[8192];
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fprintf(file,
            "{\"peft_type\":\"LORA\",\"r\":%d,\"lora_alpha\":%d,\"target_modules\":[\"q_proj\","
            "\"o_proj\"],\"bias\":\"none\"}",
            RANK, 2 * RANK);
    assert_int_equal(fclose(file), 0);
    FILE *header = fmemopen(text, sizeof(text), "w");
    assert_non_null(header);
    put_tensors(header, NULL, true);
    fputs("}", header);
    uint64_t bytes = (uint64_t)ftell(header);
    assert_int_equal(fclose(header), 0);
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
    writer w = {fopen(path, "wb"), seed, 0};
    assert_non_null(w.file);
    assert_int_equal(fwrite(&bytes, sizeof(bytes), 1, w.file), 1);
    assert_int_equal(fwrite(text, 1, bytes, w.file), bytes);
    put_tensors(NULL, &w, false);
    assert_int_equal(fclose(w.file), 0);
}
