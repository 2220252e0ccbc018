/* Hugging Face configurations: what config_hf.c and config_hf_rope.c share. */
#ifndef AVO_FORMATS_CONFIG_HF_INT_H
#define AVO_FORMATS_CONFIG_HF_INT_H

#include "formats/formats_int.h"

/* One model_type: its keys where they differ, and what transformers takes for keys that are absent
 * (files leave out what equals the default). */
typedef struct hf_family {
    const char *model_type;
    source_architecture architecture;
    struct {
        const char *layers, *width, *feed_forward, *heads, *context, *epsilon, *activation;
    } keys;
    uint32_t vocabulary, width, feed_forward, layers, heads, context;
    uint32_t kv_heads;           /* 0: as heads */
    uint32_t head_size;          /* 0: width / heads */
    uint32_t feed_forward_times; /* of the width, when feed_forward is null */
    double epsilon, rope_base;
    const char *activation;
    bool tied;
    int32_t token_begin, token_end; /* −1: none */
} hf_family;

typedef struct hf_reader {
    model_source *source;
    model_config *config;
    const json_value *root; /* where the language model's keys are: text_config for Gemma 3 */
    const char *file;
    const hf_family *family;
    avo_error *error;
} hf_reader;

/* Optional members; absent and null leave *value as it is. Errors name the file. */
AVO_MUST_USE avo_status hf_u32(const hf_reader *reader, const json_value *object, const char *key,
                               uint32_t minimum, uint32_t maximum, uint32_t *value);
AVO_MUST_USE avo_status hf_number(const hf_reader *reader, const json_value *object,
                                  const char *key, double minimum, double maximum, double *value);
AVO_MUST_USE avo_status hf_boolean(const hf_reader *reader, const char *key, bool *value);
AVO_MUST_USE avo_status hf_string(const hf_reader *reader, const json_value *object,
                                  const char *key, text_view *value);
/* NULL when absent or null. */
const json_value *hf_find(const json_value *object, const char *key);

/* Of mixtures of experts: all fields about experts, and Granite's multipliers. Else nothing. */
bool hf_has_experts(source_architecture architecture);
AVO_MUST_USE avo_status hf_experts(const hf_reader *reader);

/* rope_base, rope_base_local, rotary_dims and rope, from `rope_scaling` or `rope_parameters`. */
AVO_MUST_USE avo_status hf_rope(const hf_reader *reader);

#endif
