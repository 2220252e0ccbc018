/* Tokenizer source, chat template and generation defaults from GGUF metadata. */
#include "formats/formats_int.h"

/* Tokens that end an answer whatever the metadata's end token is; only where the vocabulary marks
 * them as control tokens. */
static const char *const end_of_turn_names[] = {
    "<|eot_id|>",    "<|im_end|>", "<|end|>",         "<end_of_turn>",
    "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>",
};

#define TOKEN_CONTROL 3

static avo_status read_id(const model_source *source, const char *key, int64_t *id,
                          avo_error *error) {
    const gguf_value *value = gguf_find(source->gguf, key);
    *id = -1;
    if (value == NULL)
        return AVO_OK;
    int64_t number;
    if (value->type == GGUF_ARRAY || !gguf_integer(value, 0, &number))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is not an integer", source->path, key);
    if (number == UINT32_MAX || number == -1)
        return AVO_OK; /* how some converters write "none" */
    if (number < 0 || number >= source->config.vocabulary)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is %lld, must be 0 to %u", source->path,
                           key, (long long)number, source->config.vocabulary - 1);
    *id = number;
    return AVO_OK;
}

static avo_status stop_tokens_by_name(model_source *source, avo_error *error) {
    const gguf_value *tokens = gguf_find(source->gguf, "tokenizer.ggml.tokens");
    const gguf_value *types = gguf_find(source->gguf, "tokenizer.ggml.token_type");
    if (tokens == NULL || types == NULL)
        return AVO_OK;
    uint64_t count = tokens->count < types->count ? tokens->count : types->count;
    for (uint64_t i = 0; i < count && i < source->config.vocabulary; i++) {
        int64_t type;
        text_view name;
        if (!gguf_integer(types, i, &type) || type != TOKEN_CONTROL ||
            !gguf_string(tokens, i, &name))
            continue;
        for (size_t j = 0; j < sizeof(end_of_turn_names) / sizeof(end_of_turn_names[0]); j++)
            if (text_is(name, end_of_turn_names[j]))
                AVO_TRY(generation_stop_add(&source->generation, (int64_t)i, source->path, error));
    }
    return AVO_OK;
}

static avo_status read_stop_tokens(model_source *source, avo_error *error) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t id;
    AVO_TRY(read_id(source, "tokenizer.ggml.bos_token_id", &id, error));
    source->generation.token_begin = (int32_t)id;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        AVO_TRY(read_id(source, keys[i], &id, error));
        AVO_TRY(generation_stop_add(&source->generation, id, source->path, error));
    }
    return stop_tokens_by_name(source, error);
}

static avo_status read_template(model_source *source, avo_error *error) {
    const gguf_value *value = gguf_find(source->gguf, "tokenizer.chat_template");
    if (value == NULL)
        return AVO_OK;
    text_view text;
    if (value->type != GGUF_STRING || !gguf_string(value, 0, &text))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: tokenizer.chat_template is not a string",
                           source->path);
    if (text.size > SOURCE_TEMPLATE_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%s: tokenizer.chat_template has %zu bytes, must have at most %zu",
                           source->path, text.size, SOURCE_TEMPLATE_MAX);
    source->chat_template = text;
    return AVO_OK;
}

/* Recommended sampling, where a converter wrote it. */
static avo_status read_sampling(model_source *source, avo_error *error) {
    static const struct {
        const char *key;
        generation_field field;
    } numbers[] = {
        {"general.sampling.temp", GENERATION_TEMPERATURE},
        {"general.sampling.top_p", GENERATION_TOP_P},
        {"general.sampling.min_p", GENERATION_MIN_P},
        {"general.sampling.penalty_repeat", GENERATION_REPETITION_PENALTY},
    };
    generation_defaults *defaults = &source->generation;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const char *key = numbers[i].key;
        const gguf_value *value = gguf_find(source->gguf, key);
        double number;
        if (value == NULL)
            continue;
        if (!gguf_number(value, 0, &number))
            return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is not a number", source->path,
                               key);
        AVO_TRY(
            generation_number_set(defaults, numbers[i].field, number, source->path, key, error));
    }
    static const char key[] = "general.sampling.top_k";
    const gguf_value *value = gguf_find(source->gguf, key);
    if (value == NULL)
        return AVO_OK;
    int64_t top_k;
    if (!gguf_integer(value, 0, &top_k))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s is not an integer", source->path, key);
    return generation_top_k_set(defaults, top_k, source->path, key, error);
}

avo_status gguf_tokenizer_source(model_source *source, avo_error *error) {
    source->tokenizer.vocabulary = source->config.vocabulary;
    const gguf_value *tokens = gguf_find(source->gguf, "tokenizer.ggml.tokens");
    if (tokens != NULL) {
        if (tokens->type != GGUF_ARRAY || tokens->item_type != GGUF_STRING)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: tokenizer.ggml.tokens is not an array of strings",
                               source->path);
        source->tokenizer.kind = TOKENIZER_SOURCE_GGUF;
        source->tokenizer.metadata = source->gguf;
        source->tokenizer.name = source->path;
    }
    AVO_TRY(read_stop_tokens(source, error));
    AVO_TRY(read_sampling(source, error));
    return read_template(source, error);
}
