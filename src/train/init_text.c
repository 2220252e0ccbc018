/* Tokenizer and chat template of a new model. */
#include "base/file.h"
#include "base/json_writer.h"
#include "tokenizer/template/template.h"
#include "tokenizer/tokenizer.h"
#include "train/data_int.h"
#include "train/init_int.h"

#include <string.h>

/* ---- A trained tokenizer ---- */

static avo_status train(init_state *state, train_bpe *bpe, buffer *out, avo_error *error) {
    char path[INIT_PATH_MAX];
    for (uint32_t i = 0; i < state->options->data_count; i++) {
        AVO_TRY(data_find_split(state->options->data[i], "train", path, sizeof(path), error));
        AVO_TRY(train_bpe_add_file(bpe, path, error));
    }
    AVO_TRY(train_bpe_run(bpe, error));
    state->info.merges = train_bpe_describe(bpe).merges;
    return train_bpe_json(bpe, out, error);
}

static void write_token(json_writer *w, const char *key, text_view token) {
    json_key(w, key);
    if (token.size == 0)
        json_null(w);
    else
        json_text(w, token);
}

static avo_status write_tokenizer_config(init_state *state, avo_error *error) {
    const init_config *c = &state->config;
    buffer out;
    buffer_init(&out, state->options->allocator, INIT_JSON_MAX);
    json_writer w = json_writer_indented(&out, 1);
    json_object_begin(&w);
    json_member_string(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    write_token(&w, "bos_token", c->begin);
    write_token(&w, "eos_token", c->end);
    write_token(&w, "pad_token", c->padding);
    json_member_u64(&w, "model_max_length", c->context);
    json_member_boolean(&w, "clean_up_tokenization_spaces", false);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    AVO_THEN(status, buffer_append(&out, "\n", 1));
    if (status != AVO_OK)
        status = status_no_memory(error, "tokenizer_config.json", out.size);
    AVO_THEN(status, init_write_file(state, "tokenizer_config.json", buffer_text(&out), error));
    buffer_free(&out);
    return status;
}

static avo_status check_named(const init_config *c, const char *key, text_view token,
                              avo_error *error) {
    bool found = token.size == 0;
    for (size_t i = 0; i < c->special_count; i++)
        found = found || text_is(token, c->special[i]);
    return found ? AVO_OK
                 : status_fail(error, AVO_ERROR_ARGUMENT,
                               "tokenizer.%s is \"%.*s\", which is not in tokenizer.special", key,
                               TEXT_ARGUMENT(token));
}

static avo_status make_tokenizer(init_state *state, avo_error *error) {
    const init_config *c = &state->config;
    if (state->options->data_count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a tokenizer is trained from data, and none is given");
    AVO_TRY(check_named(c, "begin", c->begin, error));
    AVO_TRY(check_named(c, "end", c->end, error));
    AVO_TRY(check_named(c, "padding", c->padding, error));
    train_bpe_options options = {.allocator = state->options->allocator,
                                 .vocabulary = c->vocabulary,
                                 .pattern = c->pattern,
                                 .special = c->special,
                                 .special_count = c->special_count,
                                 .progress = state->options->progress,
                                 .progress_context = state->options->progress_context};
    train_bpe *bpe;
    buffer out;
    AVO_TRY(train_bpe_open(&options, &bpe, error));
    buffer_init(&out, state->options->allocator, INIT_JSON_MAX);
    avo_status status = train(state, bpe, &out, error);
    AVO_THEN(status, init_write_file(state, "tokenizer.json", buffer_text(&out), error));
    AVO_THEN(status, write_tokenizer_config(state, error));
    buffer_free(&out);
    train_bpe_close(bpe);
    return status;
}

/* ---- A tokenizer that is there ---- */

static avo_status copy_tokenizer(init_state *state, avo_error *error) {
    const char *path = state->config.tokenizer;
    char folder[INIT_PATH_MAX], beside[INIT_PATH_MAX];
    text_view text;
    AVO_TRY(init_read_file(state, path, &text, error));
    AVO_TRY(init_write_file(state, "tokenizer.json", text, error));
    text_view name = file_last_part(path);
    size_t bytes = (size_t)(name.data - path);
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
    AVO_TRY(file_join(beside, sizeof(beside), bytes == 0 ? "." : folder, "tokenizer_config.json",
                      error));
    if (file_kind_of(beside) != FILE_REGULAR)
        return AVO_OK;
    AVO_TRY(init_read_file(state, beside, &text, error));
    return init_write_file(state, "tokenizer_config.json", text, error);
}

/* ---- Both ---- */

/* The file that was written is what the model will have: its size and special tokens count. */
static avo_status read_back(init_state *state, avo_error *error) {
    char path[INIT_PATH_MAX];
    tokenizer *tokenizer;
    AVO_TRY(file_join(path, sizeof(path), state->folder, "tokenizer.json", error));
    AVO_TRY(tokenizer_open_file(path, state->options->allocator, &tokenizer, error));
    tokenizer_info info = tokenizer_describe(tokenizer);
    state->info.vocabulary = info.vocabulary;
    state->info.merges = info.merges;
    state->begin_id = info.begin;
    state->end_id = info.end;
    state->padding_id = info.padding;
    tokenizer_close(tokenizer);
    return AVO_OK;
}

static avo_status write_template(init_state *state, avo_error *error) {
    text_view text = state->config.chat_template;
    chat_template *chat;
    if (text.size == 0)
        return AVO_OK;
    avo_status status = chat_template_open(text, state->options->allocator, &chat, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "%s: chat_template", state->options->config);
    chat_template_close(chat);
    return init_write_file(state, "chat_template.jinja", text, error);
}

avo_status init_write_text(init_state *state, avo_error *error) {
    AVO_TRY(state->config.tokenizer[0] == '\0' ? make_tokenizer(state, error)
                                               : copy_tokenizer(state, error));
    AVO_TRY(read_back(state, error));
    return write_template(state, error);
}
