/* Texts as tokens, for the commands that measure or calibrate on one. */
#include "cli/text_tokens.h"

#include "base/file.h"

avo_status cli_text_tokens(const avo_model *model, const char *path, buffer *ids,
                           avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    size_t bytes = map.bytes.size;
    const char *text = bytes > 0 ? (const char *)map.bytes.data : "";
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    /* One try with a good guess, and a second one with the count that the first has found. */
    size_t capacity = bytes + 2;
    size_t count = 0;
    avo_status status;
    for (;;) {
        if (buffer_reserve(ids, capacity * sizeof(int32_t)) != AVO_OK) {
            status = status_no_memory(error, "the tokens of the text", capacity * sizeof(int32_t));
            break;
        }
        status = avo_tokenize(model, text, bytes, AVO_TOKENIZE_BEGIN, (int32_t *)(void *)ids->data,
                              capacity, &count, error);
        if (status != AVO_ERROR_LIMIT || count <= capacity)
            break;
        capacity = count;
    }
    file_map_close(&map);
    AVO_TRY(status);
    ids->size = count * sizeof(int32_t);
    return AVO_OK;
}

avo_status cli_spare_input(const char *input, const char *output, avo_error *error) {
    if (input != NULL && file_is_same(input, output))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: is also the input file; choose another output", output);
    return AVO_OK;
}

int32_t cli_begin_token(const avo_model *model, const int32_t *tokens, size_t count) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    bool begins = count > 0 && info.token_begin >= 0 && tokens[0] == info.token_begin;
    return begins ? info.token_begin : -1;
}

uint32_t cli_window(const avo_model *model, uint32_t wanted) {
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(model, &info);
    if (wanted == 0)
        return info.context < CLI_WINDOW ? info.context : CLI_WINDOW;
    if (wanted > info.context)
        cli_warn("windows have %u tokens, but the model was trained for %u", wanted, info.context);
    return wanted;
}
