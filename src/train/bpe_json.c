/* tokenizer.json as Hugging Face `tokenizers` writes it. */
#include "train/bpe_int.h"

#include "base/json_writer.h"
#include "base/utf8.h"

#define CHARACTERS_MAX (TRAIN_BPE_TOKEN_MAX * 2)

/* A token as the vocabulary writes it: special ones as they are, others in the alphabet. */
static text_view written(const train_bpe *bpe, uint32_t id, char text[CHARACTERS_MAX]) {
    text_view bytes = bpe->tokens[id].text;
    if (id < bpe->options.special_count)
        return bytes;
    size_t size = 0;
    for (size_t i = 0; i < bytes.size; i++)
        size += utf8_encode(word_byte_character((uint8_t)bytes.data[i]), text + size);
    return (text_view){text, size};
}

static void write_added(json_writer *w, const train_bpe *bpe) {
    json_member_array_begin(w, "added_tokens");
    for (uint32_t id = 0; id < bpe->options.special_count; id++) {
        json_object_begin(w);
        json_member_u64(w, "id", id);
        json_member_text(w, "content", bpe->tokens[id].text);
        json_member_boolean(w, "single_word", false);
        json_member_boolean(w, "lstrip", false);
        json_member_boolean(w, "rstrip", false);
        json_member_boolean(w, "normalized", false);
        json_member_boolean(w, "special", true);
        json_end(w);
    }
    json_end(w);
}

static void write_byte_level(json_writer *w, bool regex) {
    json_object_begin(w);
    json_member_string(w, "type", "ByteLevel");
    json_member_boolean(w, "add_prefix_space", false);
    json_member_boolean(w, "trim_offsets", true);
    json_member_boolean(w, "use_regex", regex);
    json_end(w);
}

static void write_pretokenizer(json_writer *w, word_pattern pattern) {
    json_key(w, "pre_tokenizer");
    if (pattern == WORD_PATTERN_GPT2) {
        write_byte_level(w, true);
        return;
    }
    json_object_begin(w);
    json_member_string(w, "type", "Sequence");
    json_member_array_begin(w, "pretokenizers");
    json_object_begin(w);
    json_member_string(w, "type", "Split");
    json_member_object_begin(w, "pattern");
    json_member_string(w, "Regex", word_pattern_expression(pattern));
    json_end(w);
    json_member_string(w, "behavior", "Isolated");
    json_member_boolean(w, "invert", false);
    json_end(w);
    write_byte_level(w, false);
    json_end(w);
    json_end(w);
}

static void write_model(json_writer *w, const train_bpe *bpe) {
    char text[CHARACTERS_MAX], other[CHARACTERS_MAX];
    json_member_object_begin(w, "model");
    json_member_string(w, "type", "BPE");
    json_member_null(w, "dropout");
    json_member_null(w, "unk_token");
    json_member_null(w, "continuing_subword_prefix");
    json_member_null(w, "end_of_word_suffix");
    json_member_boolean(w, "fuse_unk", false);
    json_member_boolean(w, "byte_fallback", false);
    json_member_boolean(w, "ignore_merges", false);
    json_member_object_begin(w, "vocab");
    for (uint32_t id = 0; id < bpe->token_count; id++) {
        json_key_text(w, written(bpe, id, text));
        json_u64(w, id);
    }
    json_end(w);
    json_member_array_begin(w, "merges");
    for (size_t i = 0; i < bpe->merges.count; i++) {
        const bpe_merge *merge = (const bpe_merge *)bpe->merges.items + i;
        json_array_begin(w);
        json_text(w, written(bpe, merge->left, text));
        json_text(w, written(bpe, merge->right, other));
        json_end(w);
    }
    json_end(w);
    json_end(w);
}

avo_status train_bpe_json(const train_bpe *bpe, buffer *out, avo_error *error) {
    json_writer w = json_writer_indented(out, 3);
    json_object_begin(&w);
    json_member_string(&w, "version", "1.0");
    json_member_null(&w, "truncation");
    json_member_null(&w, "padding");
    write_added(&w, bpe);
    json_member_null(&w, "normalizer");
    write_pretokenizer(&w, bpe->options.pattern);
    json_member_null(&w, "post_processor");
    json_key(&w, "decoder");
    write_byte_level(&w, true);
    write_model(&w, bpe);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    return status == AVO_OK ? AVO_OK
                            : status_fail(error, status, "tokenizer.json does not fit its buffer");
}
