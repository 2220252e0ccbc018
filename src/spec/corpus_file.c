/* The corpus into a file and back. */
#include "spec/corpus_file.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/hash.h"
#include "spec/corpus_int.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t header_sum(const corpus_header *header) {
    return hash_bytes(header, offsetof(corpus_header, header_sum));
}

/* ---- Saving ---- */

typedef struct saving {
    corpus *corpus;
    corpus_header header;
    buffer *out;
} saving;

static avo_status append_keys(saving *s) {
    corpus_entry *entries = s->corpus->entries;
    for (uint32_t at = s->corpus->oldest; at != CORPUS_NONE; at = entries[at].newer) {
        entries[at].rank = s->header.keys++;
        AVO_TRY(buffer_append(s->out, &entries[at].key, sizeof(entries[at].key)));
    }
    return AVO_OK;
}

/* Tokens from `position` on that belong to one text. */
static uint32_t text_length(const suffix_index *index, uint32_t position) {
    uint32_t end = position;
    while (end < index->end && index->tokens[suffix_slot(index, end)] != SUFFIX_BREAK)
        end++;
    return end - position;
}

static avo_status append_text(saving *s, uint32_t position, uint32_t count) {
    const suffix_index *index = s->corpus->index;
    uint32_t owner = index->owners[suffix_slot(index, position)];
    const corpus_entry *entry = &s->corpus->entries[owner % s->corpus->options.keys_max];
    if (count == 0 || entry->owner != owner) /* its key was forgotten */
        return AVO_OK;
    corpus_file_text text = {.key = entry->rank, .tokens = count};
    AVO_TRY(buffer_append(s->out, &text, sizeof(text)));
    for (uint32_t i = 0; i < count; i++) {
        int32_t token = index->tokens[suffix_slot(index, position + i)];
        AVO_TRY(buffer_append(s->out, &token, sizeof(token)));
    }
    s->header.texts++;
    s->header.tokens += count;
    return AVO_OK;
}

size_t corpus_encoded_max(const corpus *corpus) {
    /* Every text has a token at least, and each takes its place in the window. */
    return sizeof(corpus_header) + corpus->options.keys_max * sizeof(corpus_key) +
           (size_t)corpus->options.tokens_max * (sizeof(corpus_file_text) + sizeof(int32_t));
}

avo_status corpus_encode(corpus *corpus, buffer *out) {
    const suffix_index *index = corpus->index;
    size_t begin = out->size;
    saving s = {.corpus = corpus,
                .header = {.magic = CORPUS_FILE_MAGIC,
                           .version = CORPUS_FILE_VERSION,
                           .header_bytes = sizeof(corpus_header),
                           .model_digest = corpus->options.model_digest,
                           .key_seed = corpus->key_seed},
                .out = out};
    AVO_TRY(buffer_append(out, &s.header, sizeof(s.header)));
    AVO_TRY(append_keys(&s));
    for (uint32_t position = suffix_oldest(index); position < index->end;) {
        uint32_t count = text_length(index, position);
        AVO_TRY(append_text(&s, position, count));
        position += count + 1;
    }
    size_t body = begin + sizeof(s.header);
    s.header.file_bytes = out->size - begin;
    s.header.body_sum = hash_bytes(out->data + body, out->size - body);
    s.header.header_sum = header_sum(&s.header);
    memcpy(out->data + begin, &s.header, sizeof(s.header));
    return AVO_OK;
}

avo_status corpus_write(bytes_view bytes, const char *path, avo_error *error) {
    file_writer writer;
    AVO_TRY(file_writer_open(&writer, path, error));
    avo_status status = AVO_OK;
    if (fchmod(writer.descriptor, S_IRUSR | S_IWUSR) != 0)
        status = status_fail(error, AVO_ERROR_IO, "%s: cannot make it private: %s", path,
                             strerror(errno));
    AVO_THEN(status, file_writer_append(&writer, bytes.data, bytes.size, error));
    AVO_THEN(status, file_writer_commit(&writer, error));
    if (status != AVO_OK)
        file_writer_abort(&writer);
    return status;
}

avo_status corpus_save(corpus *corpus, const char *path, avo_error *error) {
    buffer bytes;
    buffer_init(&bytes, corpus->allocator, corpus_encoded_max(corpus));
    avo_status status = corpus_encode(corpus, &bytes);
    if (status != AVO_OK)
        status = status_no_memory(error, "the corpus", corpus_encoded_max(corpus));
    else
        status = corpus_write((bytes_view){(const uint8_t *)bytes.data, bytes.size}, path, error);
    buffer_free(&bytes);
    return status;
}

/* ---- Loading ---- */

static avo_status check_header(const corpus *corpus, const corpus_header *header, bytes_view bytes,
                               const char *path, avo_error *error) {
    if (memcmp(header->magic, CORPUS_FILE_MAGIC, sizeof(header->magic)) != 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: not a corpus file", path);
    if (header->version != CORPUS_FILE_VERSION)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: corpus file version is %u, must be %d", path, header->version,
                           CORPUS_FILE_VERSION);
    if (header->header_bytes != sizeof(*header) || header->header_sum != header_sum(header))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the header is damaged", path);
    if (header->file_bytes != bytes.size)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: has %zu bytes, must have %llu", path,
                           bytes.size, (unsigned long long)header->file_bytes);
    if (header->model_digest != corpus->options.model_digest)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: saved with another model (%016llx, this one is %016llx)", path,
                           (unsigned long long)header->model_digest,
                           (unsigned long long)corpus->options.model_digest);
    if (header->keys > CORPUS_KEYS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: has %u keys, at most %u", path,
                           header->keys, CORPUS_KEYS_MAX);
    if (header->body_sum != hash_bytes(bytes.data + sizeof(*header), bytes.size - sizeof(*header)))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: checksum mismatch; the file is damaged",
                           path);
    return AVO_OK;
}

/* The next text of a file: its tokens are at *data, not aligned. */
static bool read_text(cursor *cursor, corpus_file_text *text, const uint8_t **data) {
    size_t bytes;
    return cursor_read_u32(cursor, &text->key) && cursor_read_u32(cursor, &text->tokens) &&
           size_multiply(text->tokens, sizeof(int32_t), &bytes) && cursor_take(cursor, bytes, data);
}

static int32_t token_at(const uint8_t *data, uint32_t index) {
    int32_t token;
    memcpy(&token, data + (size_t)index * sizeof(token), sizeof(token));
    return token;
}

static avo_status check_texts(const corpus *corpus, const corpus_header *header, cursor cursor,
                              const char *path, avo_error *error) {
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < header->texts; i++) {
        corpus_file_text text;
        const uint8_t *data;
        if (!read_text(&cursor, &text, &data))
            return status_fail(error, AVO_ERROR_FORMAT, "%s: text %u of %u is truncated", path, i,
                               header->texts);
        if (text.key >= header->keys || text.tokens == 0)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: text %u has key %u of %u and %u tokens", path, i, text.key,
                               header->keys, text.tokens);
        for (uint32_t k = 0; k < text.tokens; k++)
            if ((uint32_t)token_at(data, k) >= corpus->options.vocabulary)
                return status_fail(error, AVO_ERROR_FORMAT,
                                   "%s: text %u: token %u: id is %d, must be 0 to %u", path, i, k,
                                   token_at(data, k), corpus->options.vocabulary - 1);
        tokens += text.tokens; /* each of them is in the file: no overflow */
    }
    if (cursor_left(&cursor) != 0 || tokens != header->tokens)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: has %llu tokens and %zu bytes behind them, must have %llu and 0",
                           path, (unsigned long long)tokens, cursor_left(&cursor),
                           (unsigned long long)header->tokens);
    return AVO_OK;
}

static corpus_key key_at(const uint8_t *keys, uint32_t index) {
    corpus_key key;
    memcpy(&key, keys + (size_t)index * sizeof(key), sizeof(key));
    return key;
}

/* Everything was checked. The keys that are used first are those to be forgotten first. */
static void take(corpus *corpus, const corpus_header *header, const uint8_t *keys, cursor cursor) {
    corpus_clear(corpus);
    corpus->key_seed = header->key_seed;
    uint32_t most = corpus->options.keys_max;
    uint32_t first = header->keys > most ? header->keys - most : 0;
    for (uint32_t i = first; i < header->keys; i++)
        (void)corpus_make(corpus, key_at(keys, i));
    corpus_file_text text;
    const uint8_t *data;
    while (read_text(&cursor, &text, &data)) {
        if (text.key < first)
            continue;
        uint32_t number = corpus_use(corpus, key_at(keys, text.key));
        suffix_index_begin(corpus->index, corpus->entries[number].owner);
        for (uint32_t k = 0; k < text.tokens; k++)
            suffix_index_push(corpus->index, token_at(data, k));
    }
    for (uint32_t i = first; i < header->keys; i++) /* the order of use is the file's again */
        (void)corpus_use(corpus, key_at(keys, i));
}

avo_status corpus_load_bytes(corpus *corpus, bytes_view bytes, const char *path, avo_error *error) {
    if (corpus->key_count > 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: the corpus already has texts; load before adding", path);
    corpus_header header;
    cursor cursor = cursor_over(bytes);
    const uint8_t *data, *keys;
    if (!cursor_take(&cursor, sizeof(header), &data))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %zu bytes is too short for a corpus file",
                           path, bytes.size);
    memcpy(&header, data, sizeof(header));
    AVO_TRY(check_header(corpus, &header, bytes, path, error));
    if (!cursor_take(&cursor, header.keys * sizeof(corpus_key), &keys))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %zu bytes are too few for %u keys", path,
                           bytes.size, header.keys);
    AVO_TRY(check_texts(corpus, &header, cursor, path, error));
    take(corpus, &header, keys, cursor);
    return AVO_OK;
}

avo_status corpus_load(corpus *corpus, const char *path, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = corpus_load_bytes(corpus, map.bytes, path, error);
    file_map_close(&map);
    return status;
}
