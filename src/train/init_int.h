/* The parts of making a model: configuration (init_config.c), tokenizer and template (init_text.c),
 * weights (init_weights.c). */
#ifndef AVO_TRAIN_INIT_INT_H
#define AVO_TRAIN_INIT_INT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/json.h"
#include "tokenizer/words.h"
#include "train/bpe.h"
#include "train/init.h"

#define INIT_PATH_MAX 4096
#define INIT_JSON_MAX ((size_t)64 << 20)

typedef struct init_config {
    uint32_t width, feed_forward, layers, heads, kv_heads, head_size, vocabulary, context;
    double rope_base, norm_epsilon, deviation;
    bool tied, bfloat16;
    /* Tokenizer: a path, or what to train. */
    char tokenizer[INIT_PATH_MAX]; /* of tokenizer.json; empty: trained */
    word_pattern pattern;
    const char *special[TRAIN_BPE_SPECIAL_MAX];
    size_t special_count;
    text_view begin, end, padding; /* empty: none */
    text_view chat_template;       /* empty: none */
    const json_value *generation;  /* NULL: none */
} init_config;

/* What is read while a model is made. */
typedef struct init_state {
    const train_init_options *options;
    const char *folder; /* the files go here */
    arena arena;
    json_value root; /* the configuration as it is */
    init_config config;
    int32_t begin_id, end_id, padding_id; /* −1: none */
    train_init_info info;
} init_state;

AVO_MUST_USE avo_status init_config_read(init_state *state, avo_error *error);
/* A whole file into the arena. */
AVO_MUST_USE avo_status init_read_file(init_state *state, const char *path, text_view *text,
                                       avo_error *error);
/* tokenizer.json, tokenizer_config.json, chat_template.jinja; sets vocabulary and ids. */
AVO_MUST_USE avo_status init_write_text(init_state *state, avo_error *error);
/* config.json and generation_config.json. */
AVO_MUST_USE avo_status init_write_config(init_state *state, avo_error *error);
/* model.safetensors */
AVO_MUST_USE avo_status init_write_weights(init_state *state, avo_error *error);
/* origin.json: what the model is made of */
AVO_MUST_USE avo_status init_write_origin(init_state *state, avo_error *error);
AVO_MUST_USE avo_status init_write_file(init_state *state, const char *name, text_view text,
                                        avo_error *error);

#endif
