/* Sessions into files and back. */
#include "engine/session_file.h"

#include "engine/engine_int.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/hash.h"
#include "device/kv_tile.h"

#include <stdio.h>
#include <string.h>

/* Offsets of a file's parts, from the counts in its header. */
typedef struct file_parts {
    size_t adapters, tokens, pages;
    size_t page_count;
    size_t end;
} file_parts;

static bool measure_parts(const session_header *header, file_parts *parts) {
    size_t bytes;
    parts->adapters = sizeof(*header);
    parts->page_count = kv_pages_for(header->computed);
    return size_multiply(header->adapters, sizeof(session_file_adapter), &bytes) &&
           size_add(parts->adapters, bytes, &parts->tokens) &&
           size_multiply(header->tokens, sizeof(int32_t), &bytes) &&
           size_add(parts->tokens, bytes, &bytes) && size_round_up(bytes, 64, &parts->pages) &&
           size_multiply(parts->page_count, header->page_bytes, &bytes) &&
           size_add(parts->pages, bytes, &parts->end);
}

static uint64_t header_sum(const session_header *header) {
    return hash_bytes(header, offsetof(session_header, header_sum));
}

_Static_assert(sizeof(((session_header *)NULL)->arithmetic) == DEVICE_ARITHMETIC_MAX,
               "every device's arithmetic can be stored");

/* What a file of this session says about everything but its contents. */
static void describe(const avo_session *session, session_header *header) {
    const avo_engine *engine = session->engine;
    *header = (session_header){.magic = SESSION_FILE_MAGIC,
                               .version = SESSION_FILE_VERSION,
                               .header_bytes = sizeof(*header),
                               .model_digest = source_digest(engine->model->source),
                               .rope_context = engine->plan.rope_context,
                               .page_tokens = KV_PAGE_TOKENS,
                               .page_bytes = kv_pool_view(engine->kv)->page_bytes,
                               .tokens = session->count,
                               .computed = session->computed,
                               .adapters = session->adapter_count,
                               .forgotten = session->forgotten};
    snprintf(header->kv_type, sizeof(header->kv_type), "%s", kv_type_name(engine->plan.kv_type));
    snprintf(header->arithmetic, sizeof(header->arithmetic), "%s", engine->plan.device.bits);
}

static session_file_adapter adapter_of(const avo_session *session, uint32_t index) {
    const session_adapter *own = &session->adapters[index];
    return (session_file_adapter){
        .digest = {own->adapter->view.digest[0], own->adapter->view.digest[1]},
        .weight = own->weight};
}

/* ---- Saving ---- */

typedef struct saving {
    const avo_session *session;
    session_header header;
    file_writer writer;
    hash_stream sum;
    avo_error *error;
} saving;

static avo_status append(saving *s, const void *data, size_t bytes) {
    hash_stream_add(&s->sum, data, bytes);
    return file_writer_append(&s->writer, data, bytes, s->error);
}

static avo_status append_pages(saving *s, uint8_t *page) {
    const avo_session *session = s->session;
    const kv_pool *pool = session->engine->kv;
    size_t bytes = (size_t)s->header.page_bytes;
    for (uint32_t i = 0; i < kv_pages_for(session->computed); i++) {
        uint32_t written = session->computed - i * KV_PAGE_TOKENS;
        AVO_TRY(kv_pool_page_read(pool, session->table.pages[i], written, page, s->error));
        AVO_TRY(append(s, page, bytes));
    }
    return AVO_OK;
}

static avo_status append_all(saving *s, uint8_t *page) {
    static const uint8_t zeros[64];
    const avo_session *session = s->session;
    file_parts parts;
    if (!measure_parts(&s->header, &parts))
        return status_fail(s->error, AVO_ERROR_LIMIT, "the session is too large for a file");
    AVO_TRY(file_writer_append(&s->writer, &s->header, sizeof(s->header), s->error));
    hash_stream_begin(&s->sum);
    for (uint32_t i = 0; i < session->adapter_count; i++) {
        session_file_adapter adapter = adapter_of(session, i);
        AVO_TRY(append(s, &adapter, sizeof(adapter)));
    }
    AVO_TRY(append(s, session->tokens, session->count * sizeof(int32_t)));
    AVO_TRY(append(s, zeros, parts.pages - parts.tokens - session->count * sizeof(int32_t)));
    AVO_TRY(append_pages(s, page));
    s->header.file_bytes = parts.end;
    s->header.body_sum = hash_stream_sum(&s->sum);
    s->header.header_sum = header_sum(&s->header);
    AVO_TRY(file_writer_patch(&s->writer, 0, &s->header, sizeof(s->header), s->error));
    return file_writer_commit(&s->writer, s->error);
}

avo_status avo_session_save(const avo_session *session, const char *path, avo_error *error) {
    AVO_TRY(session_check_idle(session, error));
    const avo_allocator *allocator = session->engine->allocator;
    saving s = {.session = session, .error = error};
    describe(session, &s.header);
    size_t bytes = (size_t)s.header.page_bytes;
    uint8_t *page = allocator_take(allocator, bytes);
    if (page == NULL)
        return status_no_memory(error, "a page to save", bytes);
    avo_status status = file_writer_open(&s.writer, path, error);
    if (status == AVO_OK) {
        status = append_all(&s, page);
        if (status != AVO_OK)
            file_writer_abort(&s.writer);
    }
    allocator_give(allocator, page, bytes);
    return status;
}

/* ---- Restoring ---- */

static avo_status check_form(const session_header *header, size_t bytes, const char *path,
                             avo_error *error) {
    if (memcmp(header->magic, SESSION_FILE_MAGIC, sizeof(header->magic)) != 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: not a session file", path);
    if (header->version != SESSION_FILE_VERSION)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: session file version is %u, must be %d", path, header->version,
                           SESSION_FILE_VERSION);
    if (header->header_bytes != sizeof(*header) || header->header_sum != header_sum(header))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the header is damaged", path);
    if (header->file_bytes != bytes)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: truncated: %zu of %llu bytes", path, bytes,
                           (unsigned long long)header->file_bytes);
    return AVO_OK;
}

/* What K and V were made with. */
/* How an arithmetic that a file names is called now. */
static void arithmetic_text(const char *bits, char *text, size_t bytes) {
    if (strncmp(bits, "tc", 2) == 0)
        snprintf(text, bytes, "fast arithmetic (on compute capability %.6s)", bits + 2);
    else
        snprintf(text, bytes, "%.8s arithmetic", strcmp(bits, "fast") == 0 ? "exact" : bits);
}

static avo_status refuse_bits(const session_header *header, const session_header *own,
                              const char *path, avo_error *error) {
    char theirs[64], ours[64], bits[sizeof(header->arithmetic) + 1] = {0};
    memcpy(bits, header->arithmetic, sizeof(header->arithmetic));
    arithmetic_text(bits, theirs, sizeof(theirs));
    arithmetic_text(own->arithmetic, ours, sizeof(ours));
    return status_fail(
        error, AVO_ERROR_ARGUMENT,
        "%s: computed with %s, this engine uses %s; open it on a device that computes "
        "as the file was computed (--device, --arithmetic)",
        path, theirs, ours);
}

static avo_status check_origin(const session_header *header, const session_header *own,
                               const char *path, avo_error *error) {
    if (header->model_digest != own->model_digest)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: saved with another model (%016llx, this one is %016llx)", path,
                           (unsigned long long)header->model_digest,
                           (unsigned long long)own->model_digest);
    if (memcmp(header->kv_type, own->kv_type, sizeof(own->kv_type)) != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: K and V have type %.8s, this engine uses %s", path, header->kv_type,
                           own->kv_type);
    if (memcmp(header->arithmetic, own->arithmetic, sizeof(own->arithmetic)) != 0)
        return refuse_bits(header, own, path, error);
    if (header->rope_context != own->rope_context)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: saved with rope_context %u, this engine has %u", path,
                           header->rope_context, own->rope_context);
    if (header->page_tokens != own->page_tokens || header->page_bytes != own->page_bytes)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "%s: KV pages have %u tokens and %llu bytes, this engine's have %u and %llu", path,
            header->page_tokens, (unsigned long long)header->page_bytes, own->page_tokens,
            (unsigned long long)own->page_bytes);
    return AVO_OK;
}

static avo_status check_counts(const avo_session *session, const session_header *header,
                               const char *path, avo_error *error) {
    uint32_t most =
        session->ring_window > 0 ? session->ring_window : session->engine->plan.context_max;
    if (header->computed > header->tokens)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: damaged: %u of %u tokens are computed",
                           path, header->computed, header->tokens);
    if (header->tokens > most)
        return status_fail(error, AVO_ERROR_CONTEXT, "%s: has %u tokens, this session can hold %u",
                           path, header->tokens, most);
    return AVO_OK;
}

static avo_status check_adapters(const avo_session *session, const session_header *header,
                                 const uint8_t *data, const char *path, avo_error *error) {
    if (header->adapters != session->adapter_count)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: saved with %u adapters, this session has %u", path,
                           header->adapters, session->adapter_count);
    for (uint32_t i = 0; i < header->adapters; i++) {
        session_file_adapter wanted;
        session_file_adapter own = adapter_of(session, i);
        memcpy(&wanted, data + i * sizeof(wanted), sizeof(wanted));
        if (memcmp(wanted.digest, own.digest, sizeof(own.digest)) != 0)
            return status_fail(
                error, AVO_ERROR_ARGUMENT, "%s: saved with another adapter (%016llx…) than %s",
                path, (unsigned long long)wanted.digest[1], session->adapters[i].adapter->path);
        if (memcmp(&wanted.weight, &own.weight, sizeof(own.weight)) != 0)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "%s: saved with weight %g of adapter %s, this session has %g", path,
                               (double)wanted.weight, session->adapters[i].adapter->path,
                               (double)own.weight);
    }
    return AVO_OK;
}

static avo_status check_tokens(const avo_session *session, const session_header *header,
                               const uint8_t *data, const char *path, avo_error *error) {
    uint32_t vocabulary = session->engine->view.vocabulary;
    for (uint32_t i = 0; i < header->tokens; i++) {
        uint32_t token;
        memcpy(&token, data + i * sizeof(token), sizeof(token));
        if (token >= vocabulary)
            return status_fail(error, AVO_ERROR_FORMAT, "%s: token %u: id is %d, must be 0 to %u",
                               path, i, (int32_t)token, vocabulary - 1);
    }
    return AVO_OK;
}

/* All that was checked becomes the session's. */
static avo_status take(avo_session *session, const session_header *header, const file_parts *parts,
                       const uint8_t *data, const char *path, avo_error *error) {
    kv_pool *pool = session->engine->kv;
    if (pages_grow(kv_pool_pages(pool), &session->table, header->computed) != AVO_OK)
        return status_fail(error, AVO_ERROR_FULL, "%s: needs %zu KV pages, %u are free", path,
                           parts->page_count, pages_available(kv_pool_pages(pool)));
    size_t bytes = (size_t)header->page_bytes;
    avo_status status = AVO_OK;
    for (size_t i = 0; status == AVO_OK && i < parts->page_count; i++)
        status = kv_pool_page_write(pool, session->table.pages[i], data + parts->pages + i * bytes,
                                    error);
    if (status != AVO_OK) {
        pages_shrink(kv_pool_pages(pool), &session->table, 0);
        return status;
    }
    memcpy(session->tokens, data + parts->tokens, header->tokens * sizeof(int32_t));
    session->count = header->tokens;
    session->computed = header->computed;
    session->forgotten = header->forgotten;
    /* A sum is no proof of who computed this: nobody else gets pages that come from a file. */
    session->alone = true;
    return AVO_OK;
}

avo_status session_file_load(avo_session *session, bytes_view bytes, const char *path,
                             avo_error *error) {
    AVO_TRY(session_check_empty(session, error));
    session_header header, own;
    if (bytes.size < sizeof(header))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %zu bytes is too short for a session file",
                           path, bytes.size);
    memcpy(&header, bytes.data, sizeof(header));
    AVO_TRY(check_form(&header, bytes.size, path, error));
    describe(session, &own);
    AVO_TRY(check_origin(&header, &own, path, error));
    AVO_TRY(check_counts(session, &header, path, error));
    file_parts parts;
    if (!measure_parts(&header, &parts) || parts.end != bytes.size)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %zu bytes do not match %u tokens and %u adapters", path, bytes.size,
                           header.tokens, header.adapters);
    if (header.body_sum != hash_bytes(bytes.data + sizeof(header), bytes.size - sizeof(header)))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: checksum mismatch; the file is damaged",
                           path);
    AVO_TRY(check_adapters(session, &header, bytes.data + parts.adapters, path, error));
    AVO_TRY(check_tokens(session, &header, bytes.data + parts.tokens, path, error));
    return take(session, &header, &parts, bytes.data, path, error);
}

avo_status avo_session_restore(avo_session *session, const char *path, avo_error *error) {
    AVO_TRY(session_check_empty(session, error));
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = session_file_load(session, map.bytes, path, error);
    file_map_close(&map);
    return status;
}
