/* A session of any length at once, and views of an engine's parts: for measurements. */
#include "engine/engine.h"

#include "engine/engine_int.h"

const model_view *engine_model_view(const avo_engine *engine) {
    return &engine->view;
}

const device_info *engine_device(const avo_engine *engine) {
    return &engine->plan.device;
}

kv_pool *engine_kv(const avo_engine *engine) {
    return engine->kv;
}

avo_status engine_session_fill(avo_session *session, uint32_t length, avo_error *error) {
    const avo_engine *engine = session->engine;
    uint32_t from = session->count;
    if (session->batch != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the session is in a batch that is not computed yet");
    if (session->computed != from || from == 0 || from % KV_PAGE_TOKENS != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the session has %u computed tokens, must be a multiple of %d (a KV "
                           "page) and at least one "
                           "page",
                           session->computed, KV_PAGE_TOKENS);
    if (length <= from || length > engine->plan.context_max)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "length is %u, must be more than %u and at most %u", length, from,
                           engine->plan.context_max);
    avo_status status = pages_grow(kv_pool_pages(engine->kv), &session->table, length);
    if (status != AVO_OK)
        return status_fail(error, status, "no KV pages left for %u tokens", length);
    const uint32_t *pages = session->table.pages;
    for (uint32_t i = kv_pages_for(from); status == AVO_OK && i < session->table.count; i++)
        status = kv_pool_page_copy(engine->kv, pages[i], pages[0], error);
    if (status != AVO_OK) {
        pages_shrink(kv_pool_pages(engine->kv), &session->table, from);
        return status;
    }
    for (uint32_t i = from; i < length; i++)
        session->tokens[i] = session->tokens[i % KV_PAGE_TOKENS];
    session->alone = true; /* nobody has computed these */
    session->count = length;
    session->computed = length;
    return AVO_OK;
}
