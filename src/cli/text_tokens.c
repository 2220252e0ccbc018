/* Texts as tokens, for the commands that measure or calibrate on one. */
#include "cli/text_tokens.h"

#include "base/file.h"
#include "model/model.h"

avo_status cli_text_tokens(const avo_model *model, const char *path, buffer *ids,
                           avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    size_t bytes = map.bytes.size;
    const char *text = bytes > 0 ? (const char *)map.bytes.data : "";
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    id_list list;
    id_list_init(&list, NULL);
    avo_status status =
        model_encode_text(model, NULL, (text_view){text, bytes}, AVO_TOKENIZE_BEGIN, &list, error);
    if (status == AVO_OK && buffer_append(ids, list.ids, list.count * sizeof(*list.ids)) != AVO_OK)
        status = status_no_memory(error, "the tokens of the text", list.count * sizeof(*list.ids));
    id_list_free(&list);
    file_map_close(&map);
    return status;
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
