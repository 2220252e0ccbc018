/* Opening, describing and closing a tokenizer. */
#include "tokenizer/tokenizer.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/file.h"
#include "tokenizer/encode_int.h"

#include <stdio.h>

/* ---- Lists of ids ---- */

void id_list_init(id_list *list, const avo_allocator *allocator) {
    *list = (id_list){.allocator = allocator};
}

void id_list_free(id_list *list) {
    allocator_give(list->allocator, list->ids, list->capacity * sizeof(int32_t));
    *list = (id_list){.allocator = list->allocator};
}

avo_status id_list_reserve(id_list *list, size_t more) {
    size_t needed;
    if (!size_add(list->count, more, &needed) || needed > SIZE_MAX / 8)
        return AVO_ERROR_LIMIT;
    if (needed <= list->capacity)
        return AVO_OK;
    size_t capacity = size_max(size_max(list->capacity * 2, 64), needed);
    int32_t *ids = allocator_take(list->allocator, capacity * sizeof(int32_t));
    if (ids == NULL)
        return AVO_ERROR_MEMORY;
    if (list->count > 0)
        memcpy(ids, list->ids, list->count * sizeof(int32_t));
    allocator_give(list->allocator, list->ids, list->capacity * sizeof(int32_t));
    list->ids = ids;
    list->capacity = capacity;
    return AVO_OK;
}

avo_status id_list_append(id_list *list, int32_t id) {
    AVO_TRY(id_list_reserve(list, 1));
    list->ids[list->count++] = id;
    return AVO_OK;
}

/* ---- Opening ---- */

static avo_status compile(tokenizer *tokenizer, const tokenizer_source *source, const char *name,
                          avo_error *error) {
    arena arena;
    arena_init(&arena, tokenizer->allocator, DRAFT_BYTES_MAX);
    draft draft;
    draft_init(&draft, &arena, name, error);
    avo_status status;
    switch (source->kind) {
    case TOKENIZER_SOURCE_JSON:
        status = read_tokenizer_json(&draft, source);
        break;
    case TOKENIZER_SOURCE_SENTENCEPIECE:
        status = read_tokenizer_sentencepiece(&draft, source);
        break;
    case TOKENIZER_SOURCE_GGUF:
        status = read_tokenizer_gguf(&draft, source);
        break;
    case TOKENIZER_SOURCE_LLAMA2C:
        status = read_tokenizer_llama2c(&draft, source);
        break;
    default:
        status = draft_fail(&draft, AVO_ERROR_NOT_FOUND, "the model has no tokenizer");
    }
    if (status == AVO_OK)
        status = compile_image(&draft, tokenizer->allocator, &tokenizer->owned,
                               &tokenizer->owned_bytes, &tokenizer->image);
    buffer_free(&draft.texts);
    arena_free(&arena);
    return status;
}

/* Patterns without a scanner are compiled here, once. */
static avo_status compile_patterns(tokenizer *tokenizer, const char *name, avo_error *error) {
    const image *image = &tokenizer->image;
    uint32_t count = image->header->normalise_count + image->header->pretokenise_count;
    bool needed = false;
    for (uint32_t i = 0; i < count; i++)
        needed = needed || image->steps[i].kind == STEP_SPLIT_REGEX ||
                 image->steps[i].kind == STEP_REPLACE_REGEX;
    if (!needed)
        return AVO_OK;
    tokenizer->regexes = allocator_take_array(tokenizer->allocator, count, sizeof(regex *));
    if (tokenizer->regexes == NULL)
        return status_no_memory(error, "patterns", count * sizeof(regex *));
    tokenizer->regex_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const image_step *step = &image->steps[i];
        if (step->kind != STEP_SPLIT_REGEX && step->kind != STEP_REPLACE_REGEX)
            continue;
        avo_status status = regex_compile(image_text(image, step->first, step->first_bytes),
                                          tokenizer->allocator, &tokenizer->regexes[i], error);
        if (status != AVO_OK)
            return status_prefix(error, status, "%s", name);
    }
    return AVO_OK;
}

avo_status tokenizer_open(const tokenizer_source *source, const avo_allocator *allocator,
                          tokenizer **out, avo_error *error) {
    const char *name = source->name == NULL ? "tokenizer" : source->name;
    *out = NULL;
    tokenizer *fresh = allocator_take_array(allocator, 1, sizeof(tokenizer));
    if (fresh == NULL)
        return status_no_memory(error, "a tokenizer", sizeof(tokenizer));
    fresh->allocator = allocator;
    avo_status status = AVO_OK;
    fresh->trie = trie_keeper_open(allocator);
    if (fresh->trie == NULL)
        status = status_no_memory(error, "a tokenizer", sizeof(tokenizer));
    if (source->kind != TOKENIZER_SOURCE_IMAGE)
        AVO_THEN(status, compile(fresh, source, name, error));
    else
        AVO_THEN(status, image_open(&fresh->image, source->data, name, error));
    AVO_THEN(status, compile_patterns(fresh, name, error));
    if (status != AVO_OK) {
        tokenizer_close(fresh);
        return status;
    }
    fresh->by_bytes = fresh->image.header->kind == IMAGE_BYTE_LEVEL;
    *out = fresh;
    return AVO_OK;
}

void tokenizer_close(tokenizer *tokenizer) {
    if (tokenizer == NULL)
        return;
    for (uint32_t i = 0; i < tokenizer->regex_count; i++)
        regex_free(tokenizer->regexes[i]);
    allocator_give(tokenizer->allocator, tokenizer->regexes,
                   tokenizer->regex_count * sizeof(regex *));
    allocator_give(tokenizer->allocator, tokenizer->owned, tokenizer->owned_bytes);
    trie_keeper_close(tokenizer->trie);
    allocator_give(tokenizer->allocator, tokenizer, sizeof(*tokenizer));
}

/* By content: JSON begins with a brace; SentencePiece's first field is a message of pieces (0x0A);
 * what is left is llama2.c's, which begins with a small number. */
static tokenizer_source_kind kind_of(bytes_view bytes) {
    size_t at = 0;
    while (at < bytes.size && (bytes.data[at] == ' ' || bytes.data[at] == '\n' ||
                               bytes.data[at] == '\r' || bytes.data[at] == '\t'))
        at++;
    if (at < bytes.size && bytes.data[at] == '{')
        return TOKENIZER_SOURCE_JSON;
    uint32_t number = 0;
    if (bytes.size >= 12)
        memcpy(&number, bytes.data, 4);
    if (bytes.size >= 8) {
        uint64_t magic;
        memcpy(&magic, bytes.data, 8);
        if (magic == IMAGE_MAGIC)
            return TOKENIZER_SOURCE_IMAGE;
    }
    if (number > 0 && number <= TOKENIZER_PIECE_MAX)
        return TOKENIZER_SOURCE_LLAMA2C;
    return TOKENIZER_SOURCE_SENTENCEPIECE;
}

avo_status tokenizer_open_file(const char *path, const avo_allocator *allocator, tokenizer **out,
                               avo_error *error) {
    *out = NULL;
    file_map map;
    file_map config = {0};
    AVO_TRY(file_map_open(path, &map, error));
    const char *slash = strrchr(path, '/');
    char beside[4096];
    int folder = slash == NULL ? 0 : (int)(slash - path) + 1;
    int length = snprintf(beside, sizeof(beside), "%.*stokenizer_config.json", folder, path);
    avo_status status = AVO_OK;
    if (length > 0 && (size_t)length < sizeof(beside) && file_kind_of(beside) == FILE_REGULAR)
        status = file_map_open(beside, &config, error);
    tokenizer_source source = {
        .kind = kind_of(map.bytes), .data = map.bytes, .config = config.bytes, .name = path};
    if (source.kind == TOKENIZER_SOURCE_IMAGE)
        status = status_fail(error, AVO_ERROR_UNSUPPORTED,
                             "%s: a compiled tokenizer cannot be opened by itself", path);
    AVO_THEN(status, tokenizer_open(&source, allocator, out, error));
    file_map_close(&config);
    file_map_close(&map);
    return status;
}

/* ---- Describing ---- */

bytes_view tokenizer_image(const tokenizer *tokenizer) {
    return (bytes_view){(const uint8_t *)tokenizer->image.header, tokenizer->image.header->bytes};
}

tokenizer_info tokenizer_describe(const tokenizer *tokenizer) {
    const image_header *header = tokenizer->image.header;
    return (tokenizer_info){
        .kind = header->kind == IMAGE_BYTE_LEVEL ? "byte-level BPE" : "SentencePiece BPE",
        .vocabulary = header->vocabulary,
        .merges = header->merges,
        .added = header->added,
        .begin = header->begin,
        .end = header->end,
        .unknown = header->unknown,
        .padding = header->padding,
        .adds_begin = header->prefix_count > 0,
        .adds_end = header->suffix_count > 0,
    };
}

text_view tokenizer_piece(const tokenizer *tokenizer, int32_t id) {
    if (id < 0 || (uint32_t)id >= tokenizer->image.header->vocabulary)
        return (text_view){"", 0};
    return image_piece(&tokenizer->image, (uint32_t)id);
}

int32_t tokenizer_find_piece(const tokenizer *tokenizer, text_view piece) {
    return (int32_t)image_find_piece(&tokenizer->image, piece);
}

bool tokenizer_is_special(const tokenizer *tokenizer, int32_t id) {
    return id >= 0 && (uint32_t)id < tokenizer->image.header->vocabulary &&
           (tokenizer->image.flags[id] & TOKEN_SPECIAL) != 0;
}
