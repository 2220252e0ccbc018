/* What the tokenizer's tests share: opening fixtures of every kind, and hashes of ids. */
#ifndef AVO_TESTS_TOKENIZER_FIXTURES_H
#define AVO_TESTS_TOKENIZER_FIXTURES_H

#include "support/support.h"

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "formats/formats_int.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    tokenizer *tokenizer;
    file_map map;
    arena arena; /* a GGUF's metadata */
} fixture;

static inline uint64_t fnv(uint64_t hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001B3ull;
    return hash;
}
#define FNV_BEGIN 0xCBF29CE484222325ull

static inline uint64_t fnv_ids(const id_list *ids) {
    return fnv(FNV_BEGIN, ids->ids, ids->count * sizeof(int32_t));
}

/* The metadata of a GGUF file that may have nothing else. */
static inline avo_status read_metadata(bytes_view bytes, arena *arena, gguf_metadata *metadata,
                                       avo_error *error) {
    cursor cursor = cursor_over(bytes);
    uint32_t magic;
    uint64_t tensors;
    uint64_t count;
    if (!cursor_read_u32(&cursor, &magic) || !cursor_read_u32(&cursor, &metadata->version) ||
        !cursor_read_u64(&cursor, &tensors) || !cursor_read_u64(&cursor, &count))
        return status_fail(error, AVO_ERROR_FORMAT, "too short");
    return gguf_metadata_read(arena, &cursor, count, "fixture", metadata, error);
}

static inline avo_status fixture_open(fixture *fixture, const char *path,
                                      const avo_allocator *allocator, avo_error *error) {
    *fixture = (struct fixture){0};
    arena_init(&fixture->arena, NULL, SIZE_MAX);
    if (!text_ends(text_from(path), TEXT_LITERAL(".gguf")))
        return tokenizer_open_file(path, allocator, &fixture->tokenizer, error);
    gguf_metadata *metadata = arena_take(&fixture->arena, sizeof(gguf_metadata));
    AVO_TRY(file_map_open(path, &fixture->map, error));
    AVO_TRY(read_metadata(fixture->map.bytes, &fixture->arena, metadata, error));
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_GGUF, .metadata = metadata, .name = path};
    return tokenizer_open(&source, allocator, &fixture->tokenizer, error);
}

static inline void fixture_close(fixture *fixture) {
    tokenizer_close(fixture->tokenizer);
    arena_free(&fixture->arena);
    file_map_close(&fixture->map);
}

/* A fixture by its name in tests/fixtures/tokenizer/; it must open. */
static inline void fixture_named(fixture *fixture, const char *name) {
    char relative[128];
    avo_error error = {0};
    snprintf(relative, sizeof(relative), "tokenizer/%s", name);
    assert_ok_error(fixture_open(fixture, test_fixture_path(relative), NULL, &error), &error);
}

static inline void encode_into(const tokenizer *tokenizer, text_view text, bool special,
                               id_list *ids) {
    encode_options options = {.special = special};
    avo_error error = {0};
    assert_ok_error(tokenizer_encode(tokenizer, text, &options, ids, &error), &error);
}

/* A JSON file as a tree; the map must stay open with it. */
static inline void read_json_file(const char *path, file_map *map, arena *arena, json_value *root) {
    avo_error error = {0};
    arena_init(arena, NULL, SIZE_MAX);
    assert_ok_error(file_map_open(path, map, &error), &error);
    assert_ok_error(json_parse(arena, (text_view){(const char *)map->bytes.data, map->bytes.size},
                               root, &error),
                    &error);
}

/* Fixtures keep the upper 40 bits of a hash. */
static inline uint64_t hash_value(const json_value *value) {
    char text[32] = {0};
    assert_true(value != NULL && value->kind == JSON_STRING && value->string.size == 10);
    memcpy(text, value->string.data, 10);
    return strtoull(text, NULL, 16);
}

#endif
