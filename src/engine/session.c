/* Sessions: one timeline of tokens each, its K and V in pages of the engine's pool. All there may
 * be are allocated with the engine, so that opening one under traffic takes nothing. */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/options.h"

#include <assert.h>
#include <string.h>

/* ---- The engine's sessions ---- */

bool sessions_bytes(const engine_plan *plan, uint64_t *bytes) {
    uint64_t one = sizeof(avo_session) + (uint64_t)plan->context_max * sizeof(int32_t) +
                   (uint64_t)kv_pages_for(plan->context_max) * sizeof(uint32_t);
    return u64_multiply(one, plan->sessions_max, bytes) && *bytes <= SIZE_MAX;
}

avo_status sessions_open(avo_engine *engine, avo_error *error) {
    const avo_allocator *allocator = engine->allocator;
    size_t count = engine->plan.sessions_max;
    size_t context = engine->plan.context_max;
    size_t pages = kv_pages_for(context);
    engine->session = allocator_take_array(allocator, count, sizeof(*engine->session));
    /* Neither is read before it is written: memory that no timeline reaches is never touched. */
    engine->session_tokens = allocator_take(allocator, count * context * sizeof(int32_t));
    engine->session_pages = allocator_take(allocator, count * pages * sizeof(uint32_t));
    if (engine->session == NULL || engine->session_tokens == NULL || engine->session_pages == NULL)
        return status_no_memory(error, "sessions", count * context * sizeof(int32_t));
    for (size_t i = count; i-- > 0;) {
        avo_session *session = &engine->session[i];
        session->engine = engine;
        session->tokens = engine->session_tokens + i * context;
        session->table.pages = engine->session_pages + i * pages;
        session->table.capacity = (uint32_t)pages;
        session->next_closed = engine->session_closed;
        engine->session_closed = session;
    }
    return AVO_OK;
}

void sessions_close(avo_engine *engine) {
    const avo_allocator *allocator = engine->allocator;
    size_t count = engine->plan.sessions_max;
    size_t context = engine->plan.context_max;
    allocator_give(allocator, engine->session, count * sizeof(*engine->session));
    allocator_give(allocator, engine->session_tokens, count * context * sizeof(int32_t));
    allocator_give(allocator, engine->session_pages,
                   count * kv_pages_for(context) * sizeof(uint32_t));
}

/* ---- Opening and closing ---- */

/* A closed session of the engine, empty. */
static avo_status session_take(avo_engine *engine, avo_session **out, avo_error *error) {
    avo_session *session = engine->session_closed;
    if (session == NULL)
        return status_fail(error, AVO_ERROR_FULL,
                           "%u sessions are open, the engine allows %u; close one, or open the "
                           "engine with a larger sessions_max",
                           engine->sessions, engine->plan.sessions_max);
    engine->session_closed = session->next_closed;
    avo_session fresh = {
        .engine = engine,
        .open = true,
        .serial = ++engine->session_serial,
        .table = {.pages = session->table.pages, .capacity = session->table.capacity},
        .tokens = session->tokens};
    *session = fresh;
    engine->sessions++;
    *out = session;
    return AVO_OK;
}

static void session_give(avo_session *session) {
    avo_engine *engine = session->engine;
    session_adapters_give(session);
    session->open = false;
    session->next_closed = engine->session_closed;
    engine->session_closed = session;
    engine->sessions--;
}

avo_status session_take_pages(avo_session *session, uint32_t length, avo_error *error) {
    avo_status status =
        kv_pool_write(session->engine->kv, &session->table, session->computed, length, error);
    uint32_t held = session->table.count * KV_PAGE_TOKENS;
    if (status != AVO_OK && session->computed > held)
        session->computed = held; /* a page was lost: its tokens are owed again */
    return status;
}

/* Everything that K and V depend on besides the tokens before them, and the tenant's salt. */
static prefix_root session_root(const avo_session *session, const char *salt) {
    struct {
        prefix_root salt;
        uint64_t salted;
        uint8_t adapters[SESSION_ADAPTERS_KEY_BYTES];
    } content = {0};
    if (salt != NULL) {
        content.salted = 1;
        content.salt = prefix_root_of(salt, strlen(salt));
    }
    size_t bytes = session_adapters_key(session, content.adapters);
    return prefix_root_of(&content, offsetof(__typeof__(content), adapters) + bytes);
}

avo_status engine_check_free(const avo_engine *engine, avo_error *error) {
    if (!engine->led)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "a scheduler uses the engine; close it first");
}

avo_status avo_session_open(avo_engine *engine, const avo_session_options *options,
                            avo_session **out, avo_error *error) {
    *out = NULL;
    AVO_TRY(engine_check_free(engine, error));
    AVO_TRY(engine_session_open(engine, options, out, error));
    avo_status status = AVO_OK;
    for (uint32_t i = 0; i < (*out)->adapter_count && status == AVO_OK; i++)
        status = adapter_check_file((*out)->adapters[i].adapter, error);
    if (status != AVO_OK) {
        avo_session_close(*out);
        *out = NULL;
    }
    return status;
}

avo_status engine_session_open(avo_engine *engine, const avo_session_options *options,
                               avo_session **out, avo_error *error) {
    *out = NULL;
    avo_session_options own = AVO_SESSION_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_session_options", error));
    AVO_TRY(ring_check(engine, &own, error));
    avo_session *session = NULL;
    AVO_TRY(session_take(engine, &session, error));
    avo_status status = session_adapters_take(session, &own, error);
    if (status != AVO_OK) {
        session_give(session);
        return status;
    }
    session->root = session_root(session, own.cache_salt);
    session->ring_window = own.ring_window;
    session->ring_keep = own.ring_keep;
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
    assert(session->open);
    leave_batch(session);
    pages_shrink(kv_pool_pages(session->engine->kv), &session->table, 0);
    engine_telemetry_pages(session->engine);
    session_give(session);
}

/* ---- The timeline ---- */

uint32_t avo_session_length(const avo_session *session) {
    return session->count;
}

const int32_t *avo_session_tokens(const avo_session *session) {
    return session->tokens;
}

avo_status session_check_idle(const avo_session *session, avo_error *error) {
    if (session->batch == NULL)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "the session is in a batch; compute or clear the batch first");
}

avo_status session_check_empty(const avo_session *session, avo_error *error) {
    AVO_TRY(session_check_idle(session, error));
    if (session->count == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "the session must be empty, it has %u tokens",
                       session->count);
}

avo_status avo_session_truncate(avo_session *session, uint32_t length, avo_error *error) {
    AVO_TRY(session_check_idle(session, error));
    if (length > session->count)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "length is %u, must be at most the session's %u", length,
                           session->count);
    session->count = length;
    if (length == 0)
        session->forgotten = 0; /* it begins anew */
    if (session->computed > length)
        session->computed = length;
    pages_shrink(kv_pool_pages(session->engine->kv), &session->table, session->computed);
    return AVO_OK;
}

avo_status avo_session_fork(const avo_session *session, avo_session **out, avo_error *error) {
    *out = NULL;
    AVO_TRY(session_check_idle(session, error));
    avo_session *fork = NULL;
    AVO_TRY(session_take(session->engine, &fork, error));
    session_adapters_share(session, fork);
    fork->root = session->root;
    fork->label = session->label;
    fork->alone = session->alone;
    fork->ring_window = session->ring_window;
    fork->ring_keep = session->ring_keep;
    fork->forgotten = session->forgotten;
    fork->count = session->count;
    fork->computed = session->computed;
    memcpy(fork->tokens, session->tokens, session->count * sizeof(int32_t));
    pages_fork(kv_pool_pages(session->engine->kv), &session->table, session->computed,
               &fork->table);
    *out = fork;
    return AVO_OK;
}

avo_status avo_session_reuse(avo_session *session, const int32_t *tokens, size_t count,
                             size_t *reused, avo_error *error) {
    if (reused != NULL)
        *reused = 0;
    AVO_TRY(session_check_empty(session, error));
    /* Of more than fit, the beginning may be known all the same; in ring mode no more than lies
     * before the first turn. */
    uint32_t most =
        session->ring_window > 0 ? session->ring_window : session->engine->plan.context_max;
    uint32_t asked = count < most ? (uint32_t)count : most;
    uint32_t found = pages_find(kv_pool_pages(session->engine->kv), session->root, tokens, asked,
                                &session->table);
    if (found > 0)
        memcpy(session->tokens, tokens, found * sizeof(*tokens));
    session->count = found;
    session->computed = found;
    if (reused != NULL)
        *reused = found;
    return AVO_OK;
}

uint32_t engine_prefix_peek(avo_engine *engine, const avo_session_options *options,
                            const int32_t *tokens, uint32_t count) {
    avo_session ghost = {.engine = engine}; /* none of those that the engine has room for */
    uint32_t found = 0;
    if (session_adapters_list(&ghost, options, NULL) == AVO_OK)
        found = pages_peek(kv_pool_pages(engine->kv), session_root(&ghost, options->cache_salt),
                           tokens, count);
    return found;
}

avo_status engine_kv_events_open(avo_engine *engine, avo_error *error) {
    assert(engine->kv_events == NULL && engine->sessions == 0);
    AVO_TRY(kv_events_open(KV_EVENTS_RING, engine->allocator, &engine->kv_events, error));
    pages_drop_cache(kv_pool_pages(engine->kv)); /* of measurements; events begin with nothing */
    pages_tell(kv_pool_pages(engine->kv), engine->kv_events);
    return AVO_OK;
}

kv_events *engine_kv_events(const avo_engine *engine) {
    return engine->kv_events;
}

void engine_session_label(avo_session *session, const char *adapters) {
    if (session->engine->kv_events != NULL)
        session->label = kv_events_label(session->engine->kv_events, adapters);
}

void session_publish(avo_session *session) {
    if (session->engine->kv_events != NULL)
        kv_events_use_label(session->engine->kv_events, session->label);
    if (!session->alone)
        pages_index(kv_pool_pages(session->engine->kv), session->root, session->tokens,
                    session->computed, &session->table);
}

void session_settle(avo_session *session) {
    pages_shrink(kv_pool_pages(session->engine->kv), &session->table, session->computed);
    session_publish(session);
}

void avo_engine_kv(const avo_engine *engine, avo_kv_info *info) {
    pages_counts counts = pages_count(kv_pool_pages(engine->kv));
    avo_kv_info full = {.page_tokens = KV_PAGE_TOKENS,
                        .pages = counts.pages,
                        .pages_free = counts.free,
                        .pages_cached = counts.cached,
                        .pages_used = counts.used,
                        .prefix_queried_tokens = counts.queried_tokens,
                        .prefix_hit_tokens = counts.hit_tokens,
                        .pages_host = counts.host,
                        .pages_host_cached = counts.host_cached,
                        .pages_moved_out = counts.moved_out,
                        .pages_moved_in = counts.moved_in};
    options_give(info, &full, sizeof(full));
}
