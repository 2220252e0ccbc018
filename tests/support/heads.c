/* Files of random draft heads. */
#include "support/heads.h"

#include "base/buffer.h"
#include "base/random.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>

#define TENSORS_MAX  64
#define HEADER_BYTES 8192
#define HEADS        3
#define DEPTH        2

typedef struct writer {
    char header[HEADER_BYTES];
    size_t header_bytes;
    float *data;
    size_t count, capacity;
    uint64_t seed;
} writer;

static void say(writer *w, const char *name, const char *type, uint32_t rows, uint32_t columns) {
    size_t begin = w->count * sizeof(float);
    size_t end = begin + (size_t)rows * columns * sizeof(float);
    char shape[32];
    snprintf(shape, sizeof(shape), rows == 1 ? "%.0u%u" : "%u,%u", rows == 1 ? 0 : rows, columns);
    w->header_bytes +=
        (size_t)snprintf(w->header + w->header_bytes, HEADER_BYTES - w->header_bytes,
                         ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         name, type, shape, begin, end);
    assert_true(w->header_bytes < HEADER_BYTES);
    while (end / sizeof(float) > w->capacity) {
        w->capacity = w->capacity * 2 + 4096;
        w->data = realloc(w->data, w->capacity * sizeof(float));
        assert_non_null(w->data);
    }
}

static void add(writer *w, const char *name, uint32_t rows, uint32_t columns, float centre) {
    say(w, name, "F32", rows, columns);
    for (size_t i = 0; i < (size_t)rows * columns; i++, w->count++)
        w->data[w->count] = centre + 0.3f * ((float)random_uniform_at(w->seed, 0, w->count) - 0.5f);
}

static void add_frequent(writer *w, uint32_t count) {
    say(w, "frequent", "I32", 1, count);
    for (int32_t i = 0; i < (int32_t)count; i++, w->count++)
        memcpy(&w->data[w->count], &i, sizeof(i));
}

static void add_layers(writer *w, const char *prefix, uint32_t width) {
    static const struct {
        const char *name;
        uint32_t rows, columns; /* in widths; 3: of the feed-forward part */
    } matrices[] = {{"attn_q", 1, 1},   {"attn_k", 1, 1}, {"attn_v", 1, 1},  {"attn_output", 1, 1},
                    {"ffn_gate", 3, 1}, {"ffn_up", 3, 1}, {"ffn_down", 1, 3}};
    char name[64];
    for (uint32_t layer = 0; layer < DEPTH; layer++) {
        for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
            snprintf(name, sizeof(name), "%s.%u.%s.weight", prefix, layer, matrices[i].name);
            add(w, name, matrices[i].rows * width, matrices[i].columns * width, 0.0f);
        }
        snprintf(name, sizeof(name), "%s.%u.attn_norm.weight", prefix, layer);
        add(w, name, 1, width, 1.0f);
        snprintf(name, sizeof(name), "%s.%u.ffn_norm.weight", prefix, layer);
        add(w, name, 1, width, 1.0f);
    }
}

static void add_all(writer *w, heads_kind kind, uint32_t width, uint32_t frequent) {
    char name[64];
    add_frequent(w, frequent);
    for (uint32_t i = 0; kind == HEADS_MEDUSA && i < HEADS; i++) {
        snprintf(name, sizeof(name), "medusa.%u.state.weight", i);
        add(w, name, width, width, 0.0f);
    }
    if (kind == HEADS_MEDUSA)
        return;
    if (kind == HEADS_LAYERS) {
        add_layers(w, "layers", width);
        add(w, "output_norm.weight", 1, width, 1.0f);
        return;
    }
    add(w, "eagle.tap_norm.weight", 2, width, 1.0f);
    add(w, "eagle.fuse.weight", width, 2 * width, 0.0f);
    add(w, "eagle.state_norm.weight", 1, width, 1.0f);
    add(w, "eagle.token_norm.weight", 1, width, 1.0f);
    add(w, "eagle.input.weight", width, 2 * width, 0.0f);
    add_layers(w, "eagle.layer", width);
    add(w, "eagle.output_norm.weight", 1, width, 1.0f);
}

avo_heads *test_heads_make(const avo_model *model, heads_kind kind, uint64_t seed) {
    writer w = {.seed = seed};
    const model_view *view = &model->view;
    uint32_t width = view->width, frequent = view->vocabulary * 3 / 4;
    avo_heads *heads = NULL;
    avo_error error;
    w.header_bytes = (size_t)snprintf(
        w.header, HEADER_BYTES,
        "{\"__metadata__\":{\"avocet.heads\":\"{\\\"version\\\":\\\"1\\\",\\\"kind\\\":\\\"%s\\\","
        "\\\"width\\\":%u,\\\"layers\\\":%u,\\\"vocabulary\\\":%u,\\\"frequent\\\":%u,"
        "\\\"norm_epsilon\\\":1e-5,\\\"heads\\\":%d,\\\"taps\\\":[0,%u],\\\"depth\\\":%d,"
        "\\\"window\\\":5,\\\"attention_heads\\\":2,\\\"kv_heads\\\":2,\\\"head_size\\\":%u,"
        "\\\"feed_forward\\\":%u,\\\"rope_base\\\":10000}\"}",
        heads_kind_name(kind), width, view->layers, view->vocabulary, frequent, HEADS, view->layers,
        DEPTH, width / 2, width * 3);
    add_all(&w, kind, width, frequent);
    w.header[w.header_bytes++] = '}';
    uint64_t header = w.header_bytes;
    size_t bytes = sizeof(header) + w.header_bytes + w.count * sizeof(float);
    uint8_t *file = test_take_exact(bytes, 64);
    memcpy(file, &header, sizeof(header));
    memcpy(file + sizeof(header), w.header, w.header_bytes);
    memcpy(file + sizeof(header) + w.header_bytes, w.data, w.count * sizeof(float));
    assert_ok_error(heads_open_memory(model, (bytes_view){file, bytes}, "random", &heads, &error),
                    &error);
    free(file);
    free(w.data);
    return heads;
}
