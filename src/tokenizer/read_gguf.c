/* The tokenizer in GGUF metadata: tokenizer.ggml.model "llama" (SentencePiece BPE with scores) or
 * "gpt2" (byte-level BPE; tokenizer.ggml.pre names the pre-tokenizer). */
#include "tokenizer/scan_int.h"
#include "tokenizer/sentencepiece_int.h"

#include "formats/gguf.h"

#include <stdio.h>

#define KEY(name) "tokenizer.ggml." name

/* What a name of tokenizer.ggml.pre stands for: a scanner's pattern, or patterns one after the
 * other; all isolate what they match. */
typedef struct pre_rule {
    const char *name;
    scanner scanner;         /* SCANNER_COUNT: the patterns instead */
    const char *patterns[4]; /* NULL ends */
    bool single_digits;      /* digits alone first */
    bool nfc, ignore_merges, adds_begin;
} pre_rule;

static const pre_rule pre_rules[] = {
    {.name = "gpt-2", .scanner = SCANNER_GPT2},
    {.name = "phi-2", .scanner = SCANNER_GPT2},
    {.name = "mpt", .scanner = SCANNER_GPT2},
    {.name = "olmo", .scanner = SCANNER_GPT2},
    {.name = "llama-bpe", .scanner = SCANNER_LLAMA3, .ignore_merges = true, .adds_begin = true},
    {.name = "llama3", .scanner = SCANNER_LLAMA3, .ignore_merges = true, .adds_begin = true},
    {.name = "llama-v3", .scanner = SCANNER_LLAMA3, .ignore_merges = true, .adds_begin = true},
    {.name = "dbrx", .scanner = SCANNER_LLAMA3},
    {.name = "smaug-bpe", .scanner = SCANNER_LLAMA3},
    {.name = "qwen2", .scanner = SCANNER_QWEN2, .nfc = true},
    {.name = "deepseek-r1-qwen", .scanner = SCANNER_QWEN2},
    {.name = "stablelm2", .scanner = SCANNER_QWEN2},
    {.name = "smollm", .scanner = SCANNER_GPT2, .single_digits = true},
    {.name = "starcoder", .scanner = SCANNER_GPT2, .single_digits = true},
    {.name = "refact", .scanner = SCANNER_GPT2, .single_digits = true},
    {.name = "command-r", .scanner = SCANNER_GPT2, .single_digits = true},
    {.name = "codeshell", .scanner = SCANNER_GPT2, .single_digits = true},
    {.name = "default",
     .scanner = SCANNER_COUNT,
     .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|]+",
                  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
                  "\\p{N}+", "[0-9][0-9][0-9]"}},
};
#define PRE_RULE_COUNT (sizeof(pre_rules) / sizeof(pre_rules[0]))

static const gguf_value *find(const tokenizer_source *source, const char *key) {
    return gguf_find(source->metadata, key);
}

static avo_status read_texts(draft *draft, const tokenizer_source *source) {
    const gguf_value *tokens = find(source, KEY("tokens"));
    if (tokens == NULL || tokens->type != GGUF_ARRAY || tokens->item_type != GGUF_STRING)
        return draft_fail(draft, AVO_ERROR_FORMAT,
                          KEY("tokens") " is missing or not an array of strings");
    AVO_TRY(draft_vocabulary(draft, tokens->count));
    for (uint32_t id = 0; id < draft->vocabulary; id++)
        if (!gguf_string(tokens, id, &draft->tokens[id].text))
            return draft_fail(draft, AVO_ERROR_FORMAT, KEY("tokens") " lacks text %u", id);
    return AVO_OK;
}

static avo_status read_types(draft *draft, const tokenizer_source *source, uint8_t **types) {
    const gguf_value *value = find(source, KEY("token_type"));
    *types = arena_take(draft->arena, draft->vocabulary);
    if (*types == NULL)
        return draft_no_memory(draft);
    memset(*types, PIECE_NORMAL, draft->vocabulary);
    if (value == NULL)
        return AVO_OK;
    if (value->type != GGUF_ARRAY || value->count != draft->vocabulary)
        return draft_fail(
            draft, AVO_ERROR_FORMAT,
            KEY("token_type") " has %llu entries, must have one for each of the %u tokens",
            (unsigned long long)value->count, draft->vocabulary);
    for (uint32_t id = 0; id < draft->vocabulary; id++) {
        int64_t type;
        if (!gguf_integer(value, id, &type) || type < 0 || type > PIECE_BYTE)
            return draft_fail(draft, AVO_ERROR_FORMAT, KEY("token_type") "[%u] must be 0 to 6", id);
        (*types)[id] = (uint8_t)(type == 0 ? PIECE_NORMAL : type);
    }
    return AVO_OK;
}

static avo_status read_id(draft *draft, const tokenizer_source *source, const char *key,
                          int32_t *id) {
    const gguf_value *value = find(source, key);
    int64_t number;
    if (value == NULL)
        return AVO_OK;
    if (!gguf_integer(value, 0, &number) || value->type == GGUF_ARRAY)
        return draft_fail(draft, AVO_ERROR_FORMAT, "%s is not an integer", key);
    /* Converters write all ones, or −1, for "none". */
    if (number == -1 || number == UINT32_MAX)
        return AVO_OK;
    if (number < 0 || number >= draft->vocabulary)
        return draft_fail(draft, AVO_ERROR_FORMAT, "%s is %lld, but the vocabulary has %u tokens",
                          key, (long long)number, draft->vocabulary);
    *id = (int32_t)number;
    return AVO_OK;
}

static avo_status read_flag(draft *draft, const tokenizer_source *source, const char *key,
                            bool *flag) {
    const gguf_value *value = find(source, key);
    if (value != NULL && (value->type == GGUF_ARRAY || !gguf_boolean(value, 0, flag)))
        return draft_fail(draft, AVO_ERROR_FORMAT, "%s is not a bool", key);
    return AVO_OK;
}

static avo_status read_ids(draft *draft, const tokenizer_source *source) {
    AVO_TRY(read_id(draft, source, KEY("bos_token_id"), &draft->begin));
    AVO_TRY(read_id(draft, source, KEY("eos_token_id"), &draft->end));
    AVO_TRY(read_id(draft, source, KEY("unknown_token_id"), &draft->unknown));
    return read_id(draft, source, KEY("padding_token_id"), &draft->padding);
}

/* Converters write user-defined pieces with spaces; SentencePiece seeks them in the escaped text.
 */
static avo_status escape_spaces(draft *draft, text_view *text) {
    size_t spaces = 0;
    for (size_t i = 0; i < text->size; i++)
        spaces += text->data[i] == ' ';
    if (spaces == 0)
        return AVO_OK;
    char *copy = arena_take(draft->arena, text->size + spaces * 2);
    if (copy == NULL)
        return draft_no_memory(draft);
    size_t size = 0;
    for (size_t i = 0; i < text->size; i++) {
        if (text->data[i] != ' ') {
            copy[size++] = text->data[i];
            continue;
        }
        memcpy(copy + size, SPACE_MARK, 3);
        size += 3;
    }
    *text = (text_view){copy, size};
    return AVO_OK;
}

static avo_status read_scored(draft *draft, const tokenizer_source *source) {
    uint8_t *types;
    sentencepiece_options options = {.add_prefix = true, .escape = true, .add_begin = true};
    AVO_TRY(read_types(draft, source, &types));
    const gguf_value *scores = find(source, KEY("scores"));
    if (scores == NULL || scores->type != GGUF_ARRAY || scores->count != draft->vocabulary)
        return draft_fail(draft, AVO_ERROR_FORMAT,
                          KEY("scores") " is missing or does not have %u entries",
                          draft->vocabulary);
    for (uint32_t id = 0; id < draft->vocabulary; id++) {
        double score;
        if (!gguf_number(scores, id, &score))
            return draft_fail(draft, AVO_ERROR_FORMAT, KEY("scores") "[%u] is not a number", id);
        draft->tokens[id].score = (float)score;
        if (types[id] == PIECE_USER_DEFINED)
            AVO_TRY(escape_spaces(draft, &draft->tokens[id].text));
    }
    if (draft->unknown < 0 && draft->vocabulary > 0 && types[0] == PIECE_UNKNOWN)
        draft->unknown = 0;
    AVO_TRY(read_flag(draft, source, KEY("add_space_prefix"), &options.add_prefix));
    AVO_TRY(read_flag(draft, source, KEY("remove_extra_whitespaces"), &options.squeeze));
    AVO_TRY(read_flag(draft, source, KEY("add_bos_token"), &options.add_begin));
    AVO_TRY(read_flag(draft, source, KEY("add_eos_token"), &options.add_end));
    return draft_sentencepiece(draft, types, &options);
}

/* Merges are written "left right". */
static avo_status read_merges(draft *draft, const tokenizer_source *source) {
    const gguf_value *merges = find(source, KEY("merges"));
    if (merges == NULL || merges->type != GGUF_ARRAY || merges->item_type != GGUF_STRING ||
        merges->count > TOKENIZER_VOCABULARY_MAX * 4ull)
        return draft_fail(draft, AVO_ERROR_FORMAT,
                          KEY("merges") " is missing or not an array of strings");
    draft->merges = arena_take_array(draft->arena, merges->count + 1, sizeof(draft_merge));
    if (draft->merges == NULL)
        return draft_no_memory(draft);
    for (uint64_t i = 0; i < merges->count; i++) {
        text_view text;
        if (!gguf_string(merges, i, &text))
            return draft_fail(draft, AVO_ERROR_FORMAT, KEY("merges") " lacks text %llu",
                              (unsigned long long)i);
        const char *space = text.size < 2 ? NULL : memchr(text.data + 1, ' ', text.size - 1);
        if (space == NULL)
            return draft_fail(draft, AVO_ERROR_FORMAT, KEY("merges") "[%llu] contains no space",
                              (unsigned long long)i);
        size_t left = (size_t)(space - text.data);
        AVO_TRY(draft_add_merge(draft, (text_view){text.data, left},
                                (text_view){space + 1, text.size - left - 1}, (uint32_t)i));
    }
    return AVO_OK;
}

static avo_status find_rule(draft *draft, const tokenizer_source *source, const pre_rule **rule) {
    const gguf_value *value = find(source, KEY("pre"));
    text_view name = TEXT_LITERAL("default");
    if (value != NULL && !gguf_string(value, 0, &name))
        return draft_fail(draft, AVO_ERROR_FORMAT, KEY("pre") " is not a string");
    char known[400];
    size_t size = 0;
    for (size_t i = 0; i < PRE_RULE_COUNT; i++) {
        if (text_is(name, pre_rules[i].name)) {
            *rule = &pre_rules[i];
            return AVO_OK;
        }
        int length = snprintf(known + size, sizeof(known) - size, " %s", pre_rules[i].name);
        size += length > 0 && (size_t)length < sizeof(known) - size ? (size_t)length : 0;
    }
    return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                      KEY("pre") " \"%.*s\" is not supported; supported:%s", TEXT_ARGUMENT(name),
                      known);
}

static avo_status add_rule_steps(draft *draft, const pre_rule *rule) {
    text_view none = TEXT_LITERAL("");
    if (rule->nfc)
        AVO_TRY(draft_step(draft, STAGE_NORMALISE, (image_step){.kind = STEP_NFC}, none, none));
    if (rule->single_digits)
        AVO_TRY(draft_step(draft, STAGE_PRETOKENISE,
                           (image_step){.kind = STEP_DIGITS, .flags = STEP_INDIVIDUAL}, none,
                           none));
    if (rule->scanner != SCANNER_COUNT)
        return draft_split(draft, text_from(scanner_pattern(rule->scanner)), SPLIT_ISOLATED);
    for (size_t i = 0; i < 4 && rule->patterns[i] != NULL; i++)
        AVO_TRY(draft_split(draft, text_from(rule->patterns[i]), SPLIT_ISOLATED));
    return AVO_OK;
}

static avo_status read_ranked(draft *draft, const tokenizer_source *source) {
    uint8_t *types;
    const pre_rule *rule = NULL;
    AVO_TRY(find_rule(draft, source, &rule));
    AVO_TRY(read_types(draft, source, &types));
    draft->kind = IMAGE_BYTE_LEVEL;
    AVO_TRY(draft_types(draft, types, false));
    AVO_TRY(draft_index(draft));
    AVO_TRY(read_merges(draft, source));
    bool prefix_space = false;
    bool add_begin = rule->adds_begin;
    bool add_end = false;
    AVO_TRY(read_flag(draft, source, KEY("add_space_prefix"), &prefix_space));
    AVO_TRY(read_flag(draft, source, KEY("add_bos_token"), &add_begin));
    AVO_TRY(read_flag(draft, source, KEY("add_eos_token"), &add_end));
    draft->ignore_merges = rule->ignore_merges;
    if (prefix_space)
        AVO_TRY(draft_step(draft, STAGE_PRETOKENISE, (image_step){.kind = STEP_PREFIX_SPACE},
                           TEXT_LITERAL(""), TEXT_LITERAL("")));
    AVO_TRY(add_rule_steps(draft, rule));
    draft_frame(draft, add_begin, add_end);
    return AVO_OK;
}

avo_status read_tokenizer_gguf(draft *draft, const tokenizer_source *source) {
    const gguf_value *model = find(source, KEY("model"));
    text_view name;
    if (model == NULL || !gguf_string(model, 0, &name))
        return draft_fail(draft, AVO_ERROR_NOT_FOUND,
                          "no tokenizer: key " KEY("model") " is missing");
    bool scored = text_is(name, "llama");
    if (!scored && !text_is(name, "gpt2"))
        return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                          KEY("model") " \"%.*s\" is not supported; supported: llama gpt2",
                          TEXT_ARGUMENT(name));
    AVO_TRY(read_texts(draft, source));
    AVO_TRY(read_ids(draft, source));
    return scored ? read_scored(draft, source) : read_ranked(draft, source);
}
