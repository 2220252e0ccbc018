/* A new model: from a configuration to a folder with random weights, config.json, a tokenizer that
 * is trained from the data, and a chat template, which avo_model_open and transformers load. Called
 * by `avocet train pretrain` where MODEL is a configuration.
 *
 * The configuration is a JSON file with the names of a Llama config.json; the model has that shape
 * (SmolLM2, Llama 3 and others are served by the same code):
 *
 *   hidden_size, intermediate_size, num_hidden_layers, num_attention_heads    required
 *   num_key_value_heads   num_attention_heads       head_dim    hidden_size / num_attention_heads
 *   vocab_size            1024, tokens in all       max_position_embeddings    512
 *   rope_theta 10000      rms_norm_eps 1e-5         tie_word_embeddings        true
 *   initializer_range 0.02                          torch_dtype    "float32", or "bfloat16"
 *   tokenizer        an object: "pattern" ("gpt2", "llama3", "qwen2"), "special" (a list of texts),
 *                    "end", "begin", "padding" (special tokens); or the path of a folder or
 *                    tokenizer.json to copy, from the configuration's folder on
 *   chat_template    the template; or chat_template_file, a path from the configuration's folder on
 *   generation       an object: temperature, top_k, top_p, … for generation_config.json
 *
 * The same configuration, data and seed give the same files, bit for bit: weights are normal
 * numbers of deviation initializer_range, and of that ÷ √(2 · layers) in the matrices that add to
 * the hidden state (o_proj, down_proj), drawn from counters. */
#ifndef AVO_TRAIN_INIT_H
#define AVO_TRAIN_INIT_H

#include "base/status.h"

typedef struct train_init_options {
    const avo_allocator *allocator;
    const char *config;      /* path of the configuration */
    const char *const *data; /* files or folders with training data */
    uint32_t data_count;     /* 0: the tokenizer must be a path */
    uint64_t seed;
    avo_progress_function progress;
    void *progress_context;
} train_init_options;

typedef struct train_init_info {
    uint64_t parameters;
    uint32_t vocabulary, merges;
} train_init_info;

/* Refuses a folder that exists and is not empty. */
AVO_MUST_USE avo_status train_init(const train_init_options *options, const char *folder,
                                   train_init_info *info, avo_error *error);
/* Refuses a folder that train_init has made of another configuration, data or seed; the error names
 * the difference. */
AVO_MUST_USE avo_status train_init_compare(const train_init_options *options, const char *folder,
                                           avo_error *error);
/* Whether MODEL is a configuration (a file that ends in .json) and not a model. */
bool train_init_is_config(const char *path);

#endif
