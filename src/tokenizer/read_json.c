/* tokenizer.json: the model (BPE), the added tokens, and the special ids from
 * tokenizer_config.json. The sequences of pieces are read by read_json_steps.c. */
#include "tokenizer/sentencepiece_int.h"

#include "base/json.h"

static avo_status fail_text(draft *draft, avo_status status) {
    return status_prefix(draft->error, status, "%s", draft->name);
}

static avo_status get_integer(draft *draft, const json_value *object, const char *key,
                              int64_t maximum, int64_t *value) {
    avo_status status = json_get_integer(object, key, 0, maximum, value, draft->error);
    return status == AVO_OK ? AVO_OK : fail_text(draft, status);
}

static avo_status get_boolean(draft *draft, const json_value *object, const char *key,
                              bool *value) {
    avo_status status = json_get_boolean(object, key, value, draft->error);
    return status == AVO_OK ? AVO_OK : fail_text(draft, status);
}

static avo_status get_string(draft *draft, const json_value *object, const char *key,
                             text_view *value) {
    avo_status status = json_get_string(object, key, value, draft->error);
    return status == AVO_OK ? AVO_OK : fail_text(draft, status);
}

/* ---- Vocabulary and added tokens ---- */

typedef struct json_parts {
    const json_value *model, *vocabulary, *merges, *added;
} json_parts;

/* Ids may leave gaps, but not absurd ones: the largest decides the size of every table. */
static avo_status count_ids(draft *draft, const json_parts *parts, uint64_t *count) {
    uint64_t largest = 0;
    uint64_t known = parts->vocabulary->object.count;
    for (size_t i = 0; i < parts->vocabulary->object.count; i++) {
        const json_member *member = &parts->vocabulary->object.members[i];
        if (member->value.kind != JSON_INTEGER || member->value.integer < 0 ||
            member->value.integer >= TOKENIZER_VOCABULARY_MAX)
            return draft_fail(draft, AVO_ERROR_FORMAT,
                              "the id of token \"%.*s\" must be an integer below %u",
                              TEXT_ARGUMENT(member->key), TOKENIZER_VOCABULARY_MAX);
        if ((uint64_t)member->value.integer > largest)
            largest = (uint64_t)member->value.integer;
    }
    size_t added = parts->added == NULL ? 0 : parts->added->array.count;
    if (added > TOKENIZER_ADDED_MAX)
        return draft_fail(draft, AVO_ERROR_LIMIT, "%zu added tokens, must be at most %u", added,
                          TOKENIZER_ADDED_MAX);
    for (size_t i = 0; i < added; i++) {
        int64_t id = -1;
        AVO_TRY(get_integer(draft, json_item(parts->added, i), "id", TOKENIZER_VOCABULARY_MAX - 1,
                            &id));
        if (id < 0)
            return draft_fail(draft, AVO_ERROR_FORMAT, "added token %zu lacks an id", i);
        if ((uint64_t)id > largest)
            largest = (uint64_t)id;
    }
    if (known + added == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "the vocabulary is empty");
    if (largest >= (known + added) * 4 + 65536)
        return draft_fail(draft, AVO_ERROR_FORMAT,
                          "token ids go up to %llu, but there are only %llu tokens",
                          (unsigned long long)largest, (unsigned long long)(known + added));
    *count = largest + 1;
    return AVO_OK;
}

static avo_status read_vocabulary(draft *draft, const json_parts *parts) {
    uint64_t count = 0;
    AVO_TRY(count_ids(draft, parts, &count));
    AVO_TRY(draft_vocabulary(draft, count));
    for (size_t i = 0; i < parts->vocabulary->object.count; i++) {
        const json_member *member = &parts->vocabulary->object.members[i];
        draft_token *token = &draft->tokens[member->value.integer];
        if (token->flags & TOKEN_KNOWN)
            return draft_fail(draft, AVO_ERROR_FORMAT, "two tokens have id %lld",
                              (long long)member->value.integer);
        *token = (draft_token){.text = member->key, .flags = TOKEN_KNOWN, .mergeable = true};
    }
    return AVO_OK;
}

static avo_status read_added_flags(draft *draft, const json_value *value, draft_added *added) {
    static const struct {
        const char *key;
        uint32_t flag;
    } flags[] = {{"special", ADDED_SPECIAL},
                 {"lstrip", ADDED_LEFT},
                 {"rstrip", ADDED_RIGHT},
                 {"single_word", ADDED_SINGLE}};
    for (size_t i = 0; i < 4; i++) {
        bool set = false;
        AVO_TRY(get_boolean(draft, value, flags[i].key, &set));
        added->flags |= set ? flags[i].flag : 0;
    }
    added->late = !(added->flags & ADDED_SPECIAL);
    return get_boolean(draft, value, "normalized", &added->late);
}

static avo_status read_added(draft *draft, const json_parts *parts) {
    size_t count = parts->added == NULL ? 0 : parts->added->array.count;
    draft->added = arena_take_array(draft->arena, count + 1, sizeof(draft_added));
    if (draft->added == NULL)
        return draft_no_memory(draft);
    for (size_t i = 0; i < count; i++) {
        const json_value *value = json_item(parts->added, i);
        draft_added added = {0};
        int64_t id = 0;
        AVO_TRY(get_integer(draft, value, "id", TOKENIZER_VOCABULARY_MAX - 1, &id));
        AVO_TRY(get_string(draft, value, "content", &added.text));
        AVO_TRY(read_added_flags(draft, value, &added));
        if (added.text.size > TOKENIZER_ADDED_BYTES)
            return draft_fail(draft, AVO_ERROR_FORMAT,
                              "added token %lld has %zu bytes, must have at most %u", (long long)id,
                              added.text.size, TOKENIZER_ADDED_BYTES);
        /* A token that the model has already keeps the model's id. */
        const json_value *known = json_find_text(parts->vocabulary, added.text);
        added.id = (uint32_t)(known != NULL ? known->integer : id);
        draft_token *token = &draft->tokens[added.id];
        if (!(token->flags & TOKEN_KNOWN))
            *token = (draft_token){.text = added.text, .flags = TOKEN_KNOWN};
        else if (!text_equal(token->text, added.text))
            return draft_fail(draft, AVO_ERROR_FORMAT,
                              "added token \"%.*s\" has id %u, which belongs to \"%.*s\"",
                              TEXT_ARGUMENT(added.text), added.id, TEXT_ARGUMENT(token->text));
        token->flags |= TOKEN_ADDED;
        if (added.flags & ADDED_SPECIAL) {
            token->flags |= TOKEN_SPECIAL;
            token->mergeable = false;
        }
        if (added.text.size > 0)
            draft->added[draft->added_count++] = added;
    }
    return AVO_OK;
}

/* ---- Merges ---- */

/* "left right", or ["left", "right"]. */
static avo_status read_merges(draft *draft, const json_parts *parts) {
    size_t count = parts->merges->array.count;
    draft->merges = arena_take_array(draft->arena, count + 1, sizeof(draft_merge));
    if (draft->merges == NULL)
        return draft_no_memory(draft);
    for (size_t i = 0; i < count; i++) {
        const json_value *merge = json_item(parts->merges, i);
        const json_value *left = json_item(merge, 0);
        const json_value *right = json_item(merge, 1);
        text_view texts[2];
        const char *space = merge->kind == JSON_STRING && merge->string.size > 0
                                ? memchr(merge->string.data, ' ', merge->string.size)
                                : NULL;
        if (left != NULL && right != NULL && merge->array.count == 2 && left->kind == JSON_STRING &&
            right->kind == JSON_STRING) {
            texts[0] = left->string;
            texts[1] = right->string;
        } else if (space != NULL) {
            size_t bytes = (size_t)(space - merge->string.data);
            texts[0] = (text_view){merge->string.data, bytes};
            texts[1] = (text_view){space + 1, merge->string.size - bytes - 1};
        } else {
            return draft_fail(draft, AVO_ERROR_FORMAT, "merge %zu is not a pair of tokens", i);
        }
        AVO_TRY(draft_add_merge(draft, texts[0], texts[1], (uint32_t)i));
    }
    return AVO_OK;
}

/* ---- Options ---- */

static avo_status refuse_options(draft *draft, const json_value *model) {
    double dropout = 0.0;
    avo_status status = json_get_number(model, "dropout", 0.0, 1.0, &dropout, draft->error);
    if (status != AVO_OK)
        return fail_text(draft, status);
    if (dropout > 0.0)
        return draft_fail(draft, AVO_ERROR_UNSUPPORTED, "BPE with dropout %g is not supported",
                          dropout);
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        text_view text = {"", 0};
        AVO_TRY(get_string(draft, model, empty[i], &text));
        if (text.size > 0)
            return draft_fail(draft, AVO_ERROR_UNSUPPORTED, "BPE with a %s is not supported",
                              empty[i]);
    }
    return AVO_OK;
}

static avo_status read_options(draft *draft, const json_value *model) {
    bool fuse = false;
    bool fallback = false;
    text_view unknown = {NULL, 0};
    AVO_TRY(refuse_options(draft, model));
    AVO_TRY(get_boolean(draft, model, "fuse_unk", &fuse));
    AVO_TRY(get_boolean(draft, model, "byte_fallback", &fallback));
    AVO_TRY(get_boolean(draft, model, "ignore_merges", &draft->ignore_merges));
    AVO_TRY(get_string(draft, model, "unk_token", &unknown));
    if (fuse)
        draft->flags |= IMAGE_FUSE_UNKNOWN;
    if (fallback && draft->kind == IMAGE_CHARACTERS)
        draft_mark_bytes(draft);
    if (unknown.data != NULL) {
        uint32_t id = draft_find(draft, unknown);
        if (id == IMAGE_NONE)
            return draft_fail(draft, AVO_ERROR_FORMAT, "unk_token \"%.*s\" is not a token",
                              TEXT_ARGUMENT(unknown));
        draft->unknown = (int32_t)id;
        draft->unknown_used = true;
    }
    return AVO_OK;
}

/* A special token in tokenizer_config.json is a string, or an object with its content. */
static void config_id(const draft *draft, const json_value *config, const char *key, int32_t *id) {
    const json_value *value = json_find(config, key);
    if (value != NULL && value->kind == JSON_OBJECT)
        value = json_find(value, "content");
    if (value == NULL || value->kind != JSON_STRING)
        return;
    uint32_t found = draft_find(draft, value->string);
    if (found != IMAGE_NONE)
        *id = (int32_t)found;
}

/* Llama's and Gemma's classes put begin and end around a text as the configuration says, whatever
 * the post-processor in tokenizer.json. */
static avo_status read_config(draft *draft, bytes_view bytes) {
    json_value config;
    if (bytes.size == 0)
        return AVO_OK;
    avo_status status = json_parse(draft->arena, (text_view){(const char *)bytes.data, bytes.size},
                                   &config, draft->error);
    if (status != AVO_OK)
        return status_prefix(draft->error, status, "%s: tokenizer_config.json", draft->name);
    config_id(draft, &config, "bos_token", &draft->begin);
    config_id(draft, &config, "eos_token", &draft->end);
    config_id(draft, &config, "pad_token", &draft->padding);
    if (draft->unknown < 0)
        config_id(draft, &config, "unk_token", &draft->unknown);
    const json_value *class = json_find(&config, "tokenizer_class");
    const json_value *begin = json_find(&config, "add_bos_token");
    const json_value *end = json_find(&config, "add_eos_token");
    bool follows = class != NULL && class->kind == JSON_STRING &&
                   (text_starts(class->string, TEXT_LITERAL("LlamaTokenizer")) ||
                    text_starts(class->string, TEXT_LITERAL("GemmaTokenizer")));
    if (follows && begin != NULL && begin->kind == JSON_BOOLEAN && draft->begin >= 0) {
        draft->prefix_count = begin->boolean ? 1 : 0;
        draft->prefix[0] = (uint32_t)draft->begin;
    }
    if (follows && end != NULL && end->kind == JSON_BOOLEAN && draft->end >= 0) {
        draft->suffix_count = end->boolean ? 1 : 0;
        draft->suffix[0] = (uint32_t)draft->end;
    }
    return AVO_OK;
}

static avo_status find_parts(draft *draft, const json_value *root, json_parts *parts) {
    parts->model = json_find(root, "model");
    text_view type = {"", 0};
    AVO_TRY(get_string(draft, parts->model, "type", &type));
    parts->vocabulary = json_find(parts->model, "vocab");
    parts->merges = json_find(parts->model, "merges");
    parts->added = json_find(root, "added_tokens");
    /* Older files do not name the type; merges do. */
    if (type.size == 0 && parts->merges != NULL)
        type = TEXT_LITERAL("BPE");
    if (!text_is(type, "BPE"))
        return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                          "tokenizer model type \"%.*s\" is not supported; only BPE is",
                          TEXT_ARGUMENT(type));
    if (parts->vocabulary == NULL || parts->vocabulary->kind != JSON_OBJECT)
        return draft_fail(draft, AVO_ERROR_FORMAT, "model.vocab is not an object");
    if (parts->merges == NULL || parts->merges->kind != JSON_ARRAY ||
        parts->merges->array.count > TOKENIZER_VOCABULARY_MAX * 4ull)
        return draft_fail(draft, AVO_ERROR_FORMAT, "model.merges is not an array");
    if (parts->added != NULL && parts->added->kind == JSON_NULL)
        parts->added = NULL;
    if (parts->added != NULL && parts->added->kind != JSON_ARRAY)
        return draft_fail(draft, AVO_ERROR_FORMAT, "added_tokens is not an array");
    return AVO_OK;
}

avo_status read_tokenizer_json(draft *draft, const tokenizer_source *source) {
    json_value root;
    json_parts parts;
    avo_status status =
        json_parse(draft->arena, (text_view){(const char *)source->data.data, source->data.size},
                   &root, draft->error);
    if (status != AVO_OK)
        return fail_text(draft, status);
    AVO_TRY(find_parts(draft, &root, &parts));
    AVO_TRY(read_vocabulary(draft, &parts));
    AVO_TRY(read_added(draft, &parts));
    AVO_TRY(draft_index(draft));
    draft->kind = IMAGE_CHARACTERS; /* until a ByteLevel piece says otherwise */
    AVO_TRY(read_json_normaliser(draft, json_find(&root, "normalizer"), 0));
    AVO_TRY(read_json_pretokeniser(draft, json_find(&root, "pre_tokenizer"), 0));
    AVO_TRY(read_json_decoder(draft, json_find(&root, "decoder"), 0));
    AVO_TRY(read_options(draft, parts.model));
    AVO_TRY(read_merges(draft, &parts));
    AVO_TRY(read_json_postprocessor(draft, json_find(&root, "post_processor"), 0));
    if (draft->prefix_count > 0)
        draft->begin = (int32_t)draft->prefix[0];
    if (draft->suffix_count > 0)
        draft->end = (int32_t)draft->suffix[0];
    return read_config(draft, source->config);
}
