/* A session of any length at once, and views of an engine's parts: for measurements. */
#include "engine/engine.h"

#include "engine/engine_int.h"

#include <string.h>

const model_view *engine_model_view(const avo_engine *engine) {
    return &engine->view;
}

const backend *engine_backend(const avo_engine *engine) {
    return (&engine->choice.backend);
}

const kv_view *engine_kv_view(const avo_engine *engine) {
    return kv_pool_view(engine->kv);
}

avo_status engine_session_fill(avo_session *session, uint32_t length, avo_error *error) {
    const avo_engine *engine = session->engine;
    uint32_t from = session->count;
    if (session->batch != NULL || session->computed != from || from == 0 ||
        from % KV_PAGE_TOKENS != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a session is filled from whole pages of %d computed tokens; it has %u",
                           KV_PAGE_TOKENS, session->computed);
    if (length <= from || length > engine->plan.context_max)
        return status_fail(error, AVO_ERROR_ARGUMENT, "length: %u is not in (%u, %u]", length, from,
                           engine->plan.context_max);
    avo_status status = pages_grow(kv_pool_pages(engine->kv), &session->table, length);
    if (status != AVO_OK)
        return status_fail(error, status, "no pages left for %u tokens", length);
    const kv_view *kv = kv_pool_view(engine->kv);
    const uint8_t *first = kv->pool + session->table.pages[0] * kv->page_bytes;
    for (uint32_t page = kv_pages_for(from); page < session->table.count; page++)
        memcpy(kv->pool + session->table.pages[page] * kv->page_bytes, first, kv->page_bytes);
    for (uint32_t i = from; i < length; i++)
        session->tokens[i] = session->tokens[i % KV_PAGE_TOKENS];
    session->alone = true; /* nobody has computed these */
    session->count = length;
    session->computed = length;
    return AVO_OK;
}
