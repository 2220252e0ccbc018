/* Sessions: one timeline of tokens each, its K and V in pages of the engine's pool. */
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/options.h"

static void session_free(avo_session *session) {
    const avo_allocator *allocator = session->engine->allocator;
    session_adapters_give(session);
    allocator_give(allocator, session->table.pages, session->table.capacity * sizeof(uint32_t));
    allocator_give(allocator, session->tokens, session->engine->plan.context_max * sizeof(int32_t));
    allocator_give(allocator, session, sizeof(*session));
}

avo_status avo_session_open(avo_engine *engine, const avo_session_options *options,
                            avo_session **out, avo_error *error) {
    *out = NULL;
    avo_session_options own = AVO_SESSION_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_session_options", error));
    if (engine->sessions >= engine->plan.sessions_max)
        return status_fail(error, AVO_ERROR_FULL,
                           "%u sessions are open, the engine has room for %u", engine->sessions,
                           engine->plan.sessions_max);
    avo_session *session = allocator_take_array(engine->allocator, 1, sizeof(*session));
    if (session == NULL)
        return status_no_memory(error, "a session", sizeof(*session));
    session->engine = engine;
    session->serial = ++engine->session_serial;
    session->table.capacity = kv_pages_for(engine->plan.context_max);
    session->table.pages =
        allocator_take_array(engine->allocator, session->table.capacity, sizeof(uint32_t));
    session->tokens =
        allocator_take_array(engine->allocator, engine->plan.context_max, sizeof(int32_t));
    if (session->table.pages == NULL || session->tokens == NULL) {
        session_free(session);
        return status_no_memory(error, "a session's timeline",
                                engine->plan.context_max * sizeof(int32_t));
    }
    avo_status status = session_adapters_take(session, &own, error);
    if (status != AVO_OK) {
        session_free(session);
        return status;
    }
    engine->sessions++;
    *out = session;
    return AVO_OK;
}

/* A batch that waits for this session must neither compute nor touch it again. */
static void leave_batch(avo_session *session) {
    avo_batch *batch = session->batch;
    if (batch == NULL)
        return;
    for (uint32_t i = 0; i < batch->entry_count; i++)
        if (batch->entries[i].session == session)
            batch->entries[i].session = NULL;
    batch->session_closed = true;
}

void avo_session_close(avo_session *session) {
    if (session == NULL)
        return;
    avo_engine *engine = session->engine;
    leave_batch(session);
    pages_shrink(kv_pool_pages(engine->kv), &session->table, 0);
    session_free(session);
    engine->sessions--;
}

uint32_t avo_session_length(const avo_session *session) {
    return session->count;
}

avo_status avo_session_truncate(avo_session *session, uint32_t length, avo_error *error) {
    if (session->batch != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the session waits in a batch: compute or clear that first");
    if (length > session->count)
        return status_fail(error, AVO_ERROR_ARGUMENT, "length: %u is more than the session's %u",
                           length, session->count);
    session->count = length;
    if (session->computed > length)
        session->computed = length;
    pages_shrink(kv_pool_pages(session->engine->kv), &session->table, session->computed);
    return AVO_OK;
}
