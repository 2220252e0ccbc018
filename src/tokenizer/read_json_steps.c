/* The named pieces of tokenizer.json: normalizers, pre-tokenizers, decoders, post-processors. A
 * piece that is not known here is refused by its name: guessing would give wrong ids silently. */
#include "tokenizer/draft_int.h"

#include "base/json.h"
#include "tokenizer/scan_int.h"

#define SEQUENCE_DEPTH_MAX 8

static const text_view none = {"", 0};

static avo_status with_name(draft *draft, avo_status status) {
    return status == AVO_OK ? AVO_OK : status_prefix(draft->error, status, "%s", draft->name);
}

static avo_status get_boolean(draft *draft, const json_value *value, const char *key, bool *flag) {
    return with_name(draft, json_get_boolean(value, key, flag, draft->error));
}

static avo_status get_string(draft *draft, const json_value *value, const char *key,
                             text_view *text) {
    return with_name(draft, json_get_string(value, key, text, draft->error));
}

/* The piece's type; empty for an absent or null piece. */
static avo_status piece_type(draft *draft, const json_value *value, const char *what,
                             uint32_t depth, text_view *type) {
    *type = none;
    if (value == NULL || value->kind == JSON_NULL)
        return AVO_OK;
    if (depth > SEQUENCE_DEPTH_MAX)
        return draft_fail(draft, AVO_ERROR_LIMIT, "%s: sequences nested too deeply", what);
    AVO_TRY(get_string(draft, value, "type", type));
    if (type->size == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "%s lacks a type", what);
    return AVO_OK;
}

static avo_status refuse(draft *draft, const char *what, text_view type) {
    return draft_fail(draft, AVO_ERROR_UNSUPPORTED, "%s \"%.*s\" is not supported", what,
                      TEXT_ARGUMENT(type));
}

typedef avo_status (*piece_reader)(draft *draft, const json_value *value, uint32_t depth);

static avo_status read_sequence(draft *draft, const json_value *value, const char *key,
                                uint32_t depth, piece_reader reader) {
    const json_value *items = json_find(value, key);
    if (items == NULL || items->kind != JSON_ARRAY)
        return draft_fail(draft, AVO_ERROR_FORMAT, "a Sequence lacks %s", key);
    for (size_t i = 0; i < items->array.count; i++)
        AVO_TRY(reader(draft, json_item(items, i), depth + 1));
    return AVO_OK;
}

/* {"String": …} or {"Regex": …}. */
static avo_status read_pattern(draft *draft, const json_value *value, text_view *pattern,
                               bool *regex) {
    const json_value *object = json_find(value, "pattern");
    const json_value *text = json_find(object, "String");
    const json_value *expression = json_find(object, "Regex");
    *regex = text == NULL;
    if (text == NULL)
        text = expression;
    if (text == NULL || text->kind != JSON_STRING)
        return draft_fail(draft, AVO_ERROR_FORMAT, "a pattern must be String or Regex");
    *pattern = text->string;
    return AVO_OK;
}

/* ---- Normalizers ---- */

static avo_status read_replace(draft *draft, const json_value *value) {
    text_view pattern;
    text_view content = none;
    bool regex;
    AVO_TRY(read_pattern(draft, value, &pattern, &regex));
    AVO_TRY(get_string(draft, value, "content", &content));
    if (pattern.size == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "Replace has an empty pattern");
    return draft_step(draft, STAGE_NORMALISE,
                      (image_step){.kind = regex ? STEP_REPLACE_REGEX : STEP_REPLACE}, pattern,
                      content);
}

static avo_status read_strip(draft *draft, const json_value *value) {
    bool left = true;
    bool right = true;
    AVO_TRY(get_boolean(draft, value, "strip_left", &left));
    AVO_TRY(get_boolean(draft, value, "strip_right", &right));
    uint32_t flags = (left ? STEP_LEFT : 0u) | (right ? STEP_RIGHT : 0u);
    return draft_step(draft, STAGE_NORMALISE, (image_step){.kind = STEP_STRIP, .flags = flags},
                      none, none);
}

avo_status read_json_normaliser(draft *draft, const json_value *value, uint32_t depth) {
    static const struct {
        const char *name;
        uint32_t kind;
    } plain[] = {{"NFC", STEP_NFC},
                 {"NFD", STEP_NFD},
                 {"NFKC", STEP_NFKC},
                 {"NFKD", STEP_NFKD},
                 {"Lowercase", STEP_LOWERCASE},
                 {"StripAccents", STEP_STRIP_ACCENTS}};
    text_view type;
    AVO_TRY(piece_type(draft, value, "normalizer", depth, &type));
    if (type.size == 0)
        return AVO_OK;
    if (text_is(type, "Sequence"))
        return read_sequence(draft, value, "normalizers", depth, read_json_normaliser);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (text_is(type, plain[i].name))
            return draft_step(draft, STAGE_NORMALISE, (image_step){.kind = plain[i].kind}, none,
                              none);
    if (text_is(type, "Strip"))
        return read_strip(draft, value);
    if (text_is(type, "Replace"))
        return read_replace(draft, value);
    if (!text_is(type, "Prepend"))
        return refuse(draft, "normalizer", type);
    text_view prepend = none;
    AVO_TRY(get_string(draft, value, "prepend", &prepend));
    return draft_step(draft, STAGE_NORMALISE, (image_step){.kind = STEP_PREPEND}, prepend, none);
}

/* ---- Pre-tokenizers ---- */

static avo_status read_behaviour(draft *draft, const json_value *value, uint32_t *behaviour) {
    static const struct {
        const char *name;
        uint32_t behaviour;
    } names[] = {{"Removed", SPLIT_REMOVED},
                 {"Isolated", SPLIT_ISOLATED},
                 {"MergedWithPrevious", SPLIT_WITH_PREVIOUS},
                 {"MergedWithNext", SPLIT_WITH_NEXT},
                 {"Contiguous", SPLIT_CONTIGUOUS}};
    text_view name = none;
    AVO_TRY(get_string(draft, value, "behavior", &name));
    if (name.size == 0)
        return AVO_OK;
    for (size_t i = 0; i < 5; i++)
        if (text_is(name, names[i].name)) {
            *behaviour = names[i].behaviour;
            return AVO_OK;
        }
    return refuse(draft, "split behavior", name);
}

static avo_status read_split(draft *draft, const json_value *value) {
    text_view pattern;
    bool regex;
    bool invert = false;
    uint32_t flags = SPLIT_ISOLATED;
    AVO_TRY(read_pattern(draft, value, &pattern, &regex));
    AVO_TRY(read_behaviour(draft, value, &flags));
    AVO_TRY(get_boolean(draft, value, "invert", &invert));
    flags |= invert ? STEP_INVERT : 0u;
    if (pattern.size == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "Split has an empty pattern");
    if (regex)
        return draft_split(draft, pattern, flags);
    return draft_step(draft, STAGE_PRETOKENISE,
                      (image_step){.kind = STEP_SPLIT_TEXT, .flags = flags}, pattern, none);
}

static avo_status read_byte_level(draft *draft, const json_value *value) {
    bool prefix = true;
    bool split = true;
    AVO_TRY(get_boolean(draft, value, "add_prefix_space", &prefix));
    AVO_TRY(get_boolean(draft, value, "use_regex", &split));
    draft->kind = IMAGE_BYTE_LEVEL;
    draft->closed = true;
    if (prefix)
        AVO_TRY(draft_step(draft, STAGE_PRETOKENISE, (image_step){.kind = STEP_PREFIX_SPACE}, none,
                           none));
    if (!split)
        return AVO_OK;
    return draft_split(draft, text_from(scanner_pattern(SCANNER_GPT2)), SPLIT_ISOLATED);
}

static avo_status read_scheme(draft *draft, const json_value *value, uint32_t *scheme) {
    text_view name = none;
    bool prefix = true;
    AVO_TRY(get_boolean(draft, value, "add_prefix_space", &prefix));
    AVO_TRY(get_string(draft, value, "prepend_scheme", &name));
    *scheme = prefix ? METASPACE_ALWAYS : METASPACE_NEVER;
    if (text_is(name, "first"))
        *scheme = METASPACE_FIRST;
    else if (text_is(name, "never"))
        *scheme = METASPACE_NEVER;
    else if (text_is(name, "always"))
        *scheme = METASPACE_ALWAYS;
    else if (name.size > 0)
        return refuse(draft, "prepend_scheme", name);
    return AVO_OK;
}

static avo_status read_metaspace(draft *draft, const json_value *value) {
    text_view mark = TEXT_LITERAL(SPACE_MARK);
    uint32_t scheme;
    bool split = true;
    AVO_TRY(get_string(draft, value, "replacement", &mark));
    AVO_TRY(read_scheme(draft, value, &scheme));
    AVO_TRY(get_boolean(draft, value, "split", &split));
    if (mark.size == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "Metaspace lacks a replacement");
    return draft_step(
        draft, STAGE_PRETOKENISE,
        (image_step){.kind = STEP_METASPACE, .number = scheme, .flags = split ? STEP_SPLIT : 0},
        mark, none);
}

avo_status read_json_pretokeniser(draft *draft, const json_value *value, uint32_t depth) {
    text_view type;
    AVO_TRY(piece_type(draft, value, "pre_tokenizer", depth, &type));
    if (type.size == 0)
        return AVO_OK;
    if (text_is(type, "Sequence"))
        return read_sequence(draft, value, "pretokenizers", depth, read_json_pretokeniser);
    if (draft->closed)
        return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                          "pre_tokenizer \"%.*s\" after ByteLevel is not supported",
                          TEXT_ARGUMENT(type));
    if (text_is(type, "Split"))
        return read_split(draft, value);
    if (text_is(type, "ByteLevel"))
        return read_byte_level(draft, value);
    if (text_is(type, "Metaspace"))
        return read_metaspace(draft, value);
    image_step step = {.flags = SPLIT_ISOLATED};
    if (text_is(type, "Digits")) {
        bool individual = false;
        AVO_TRY(get_boolean(draft, value, "individual_digits", &individual));
        step = (image_step){.kind = STEP_DIGITS, .flags = individual ? STEP_INDIVIDUAL : 0};
    } else if (text_is(type, "Punctuation")) {
        step.kind = STEP_PUNCTUATION;
        AVO_TRY(read_behaviour(draft, value, &step.flags));
    } else if (text_is(type, "Whitespace")) {
        step.kind = STEP_WORDS;
    } else if (text_is(type, "WhitespaceSplit")) {
        step.kind = STEP_SPACE_SPLIT;
    } else {
        return refuse(draft, "pre_tokenizer", type);
    }
    return draft_step(draft, STAGE_PRETOKENISE, step, none, none);
}

/* ---- Decoders ---- */

static avo_status read_decoder_strip(draft *draft, const json_value *value) {
    text_view content = TEXT_LITERAL(" ");
    int64_t start = 0;
    int64_t stop = 0;
    AVO_TRY(get_string(draft, value, "content", &content));
    AVO_TRY(with_name(draft, json_get_integer(value, "start", 0, 1024, &start, draft->error)));
    AVO_TRY(with_name(draft, json_get_integer(value, "stop", 0, 1024, &stop, draft->error)));
    if (content.size == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "decoder Strip lacks content");
    if (draft->fused && stop > 0)
        return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                          "decoder Strip at the end of a text is not supported");
    image_step step = {.kind = draft->fused ? STEP_DECODE_STRIP_TEXT : STEP_DECODE_STRIP,
                       .number = (uint32_t)start,
                       .number2 = (uint32_t)stop};
    return draft_step(draft, STAGE_DECODE, step, content, none);
}

avo_status read_json_decoder(draft *draft, const json_value *value, uint32_t depth) {
    text_view type;
    AVO_TRY(piece_type(draft, value, "decoder", depth, &type));
    if (text_is(type, "Fuse"))
        draft->fused = true;
    if (type.size == 0 || text_is(type, "ByteLevel") || text_is(type, "ByteFallback") ||
        text_is(type, "Fuse"))
        return AVO_OK; /* bytes and joining are what decoding does anyway */
    if (text_is(type, "Sequence"))
        return read_sequence(draft, value, "decoders", depth, read_json_decoder);
    if (text_is(type, "Strip"))
        return read_decoder_strip(draft, value);
    if (text_is(type, "Replace")) {
        text_view pattern;
        text_view content = none;
        bool regex;
        AVO_TRY(read_pattern(draft, value, &pattern, &regex));
        AVO_TRY(get_string(draft, value, "content", &content));
        if (regex || pattern.size == 0 || draft->fused)
            return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                              "decoder Replace with a Regex or after Fuse is not supported");
        return draft_step(draft, STAGE_DECODE, (image_step){.kind = STEP_DECODE_REPLACE}, pattern,
                          content);
    }
    if (!text_is(type, "Metaspace"))
        return refuse(draft, "decoder", type);
    text_view mark = TEXT_LITERAL(SPACE_MARK);
    uint32_t scheme;
    AVO_TRY(get_string(draft, value, "replacement", &mark));
    AVO_TRY(read_scheme(draft, value, &scheme));
    if (mark.size == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "Metaspace lacks a replacement");
    return draft_step(
        draft, STAGE_DECODE,
        (image_step){.kind = STEP_DECODE_METASPACE, .number = scheme == METASPACE_NEVER}, mark,
        none);
}

/* ---- Post-processors: tokens around a text ---- */

static avo_status add_frame(draft *draft, bool before, int64_t id) {
    uint32_t *count = before ? &draft->prefix_count : &draft->suffix_count;
    if (id < 0 || id >= draft->vocabulary || *count == TOKENIZER_FRAME_MAX)
        return draft_fail(draft, AVO_ERROR_FORMAT,
                          "token %lld of the post_processor is out of range", (long long)id);
    (before ? draft->prefix : draft->suffix)[(*count)++] = (uint32_t)id;
    return AVO_OK;
}

static avo_status read_template(draft *draft, const json_value *value) {
    const json_value *items = json_find(value, "single");
    const json_value *known = json_find(value, "special_tokens");
    if (items == NULL || items->kind != JSON_ARRAY)
        return draft_fail(draft, AVO_ERROR_FORMAT, "TemplateProcessing lacks \"single\"");
    bool before = true;
    for (size_t i = 0; i < items->array.count; i++) {
        const json_value *item = json_item(items, i);
        const json_value *token = json_find(item, "SpecialToken");
        if (json_find(item, "Sequence") != NULL) {
            if (!before)
                return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                                  "TemplateProcessing with two sequences is not supported");
            before = false;
            continue;
        }
        text_view name = none;
        AVO_TRY(get_string(draft, token, "id", &name));
        const json_value *ids = json_find(json_find_text(known, name), "ids");
        if (ids == NULL || ids->kind != JSON_ARRAY)
            return draft_fail(draft, AVO_ERROR_FORMAT,
                              "TemplateProcessing lacks the ids of \"%.*s\"", TEXT_ARGUMENT(name));
        for (size_t k = 0; k < ids->array.count; k++)
            AVO_TRY(add_frame(draft, before,
                              json_item(ids, k)->kind == JSON_INTEGER ? json_item(ids, k)->integer
                                                                      : -1));
    }
    return AVO_OK;
}

avo_status read_json_postprocessor(draft *draft, const json_value *value, uint32_t depth) {
    text_view type;
    AVO_TRY(piece_type(draft, value, "post_processor", depth, &type));
    if (type.size == 0 || text_is(type, "ByteLevel"))
        return AVO_OK;
    if (text_is(type, "Sequence"))
        return read_sequence(draft, value, "processors", depth, read_json_postprocessor);
    if (text_is(type, "TemplateProcessing"))
        return read_template(draft, value);
    if (!text_is(type, "RobertaProcessing") && !text_is(type, "BertProcessing"))
        return refuse(draft, "post_processor", type);
    const json_value *first = json_item(json_find(value, "cls"), 1);
    const json_value *last = json_item(json_find(value, "sep"), 1);
    if (first == NULL || last == NULL || first->kind != JSON_INTEGER || last->kind != JSON_INTEGER)
        return draft_fail(draft, AVO_ERROR_FORMAT, "%.*s lacks \"cls\" and \"sep\"",
                          TEXT_ARGUMENT(type));
    AVO_TRY(add_frame(draft, true, first->integer));
    return add_frame(draft, false, last->integer);
}
