/* Adapters of sessions, and the order of a batch's rows under them. */
#include "engine/engine_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

_Static_assert(AVO_ADAPTERS_MAX == ADAPTERS_OF_ROW, "one limit under two names");

/* ---- As the device reads them ---- */

avo_status engine_adapters_open(avo_engine *engine, avo_error *error) {
    if (device_adapters_in_place(engine->device))
        return AVO_OK;
    engine->adapters_max = engine->plan.sessions_max * AVO_ADAPTERS_MAX + ENGINE_ADAPTERS_IDLE + 1;
    engine->adapters =
        allocator_take_array(engine->allocator, engine->adapters_max, sizeof(*engine->adapters));
    if (engine->adapters == NULL)
        return status_no_memory(error, "the list of prepared adapters",
                                engine->adapters_max * sizeof(*engine->adapters));
    return AVO_OK;
}

void engine_adapters_close(avo_engine *engine) {
    for (uint32_t i = 0; engine->adapters != NULL && i < engine->adapters_max; i++)
        device_adapter_close(engine->device, &engine->adapters[i].prepared);
    allocator_give(engine->allocator, engine->adapters,
                   engine->adapters_max * sizeof(*engine->adapters));
}

/* The adapter's entry, else a free one; NULL: in place. There are as many entries as sessions can
 * have adapters, and those that may be idle. */
static engine_adapter *entry_of(avo_engine *engine, const avo_adapter *adapter) {
    engine_adapter *free_entry = NULL;
    for (uint32_t i = 0; i < engine->adapters_max; i++) {
        engine_adapter *entry = &engine->adapters[i];
        if (entry->prepared.view == NULL)
            free_entry = free_entry == NULL ? entry : free_entry;
        else if (memcmp(entry->digest, adapter->view.digest, sizeof(entry->digest)) == 0 &&
                 entry->map_key == adapter->map_key)
            return entry;
    }
    assert(free_entry != NULL || engine->adapters_max == 0);
    return free_entry;
}

/* Closes idle adapters, the one that was used longest ago first, until at most `most` are left and
 * all prepared ones together take at most `bytes`. False: there was none to close. */
static bool close_idle(avo_engine *engine, uint32_t most, uint64_t bytes) {
    for (bool closed = false;; closed = true) {
        engine_adapter *oldest = NULL;
        uint32_t idle = 0;
        uint64_t taken = 0;
        for (uint32_t i = 0; i < engine->adapters_max; i++) {
            engine_adapter *entry = &engine->adapters[i];
            taken += entry->prepared.bytes;
            if (entry->prepared.view == NULL || entry->sessions > 0)
                continue;
            idle++;
            if (oldest == NULL || entry->idle_since < oldest->idle_since)
                oldest = entry;
        }
        if (oldest == NULL || (idle <= most && taken <= bytes))
            return closed;
        device_adapter_close(engine->device, &oldest->prepared);
    }
}

/* The view that steps use: the adapter's own where the device uses it in place, else a copy on the
 * device that all sessions with the adapter share. */
static avo_status prepare(avo_engine *engine, const avo_adapter *adapter, const adapter_view **view,
                          avo_error *error) {
    engine_adapter *entry = entry_of(engine, adapter);
    *view = &adapter->view;
    if (entry == NULL)
        return AVO_OK;
    if (entry->prepared.view == NULL) {
        avo_status status = device_adapter_open(engine->device, &adapter->view, &engine->view,
                                                &entry->prepared, error);
        if (status == AVO_ERROR_MEMORY && close_idle(engine, 0, 0))
            status = device_adapter_open(engine->device, &adapter->view, &engine->view,
                                         &entry->prepared, error);
        if (status != AVO_OK)
            return status;
        memcpy(entry->digest, adapter->view.digest, sizeof(entry->digest));
        entry->map_key = adapter->map_key;
        entry->sessions = 0;
    }
    entry->sessions++;
    *view = entry->prepared.view;
    close_idle(engine, ENGINE_ADAPTERS_IDLE, engine->plan.adapter_bytes);
    return AVO_OK;
}

static void release(avo_engine *engine, const avo_adapter *adapter) {
    engine_adapter *entry = entry_of(engine, adapter);
    if (entry == NULL)
        return;
    assert(entry->prepared.view != NULL && entry->sessions > 0);
    if (--entry->sessions > 0)
        return;
    entry->idle_since = ++engine->adapter_releases;
    close_idle(engine, ENGINE_ADAPTERS_IDLE, engine->plan.adapter_bytes);
}

/* ---- Of a session ---- */

static int compare_digests(const adapter_view *a, const adapter_view *b) {
    for (int i = 0; i < 2; i++)
        if (a->digest[i] != b->digest[i])
            return a->digest[i] < b->digest[i] ? -1 : 1;
    return 0;
}

static avo_status check_use(const avo_session *session, const avo_adapter_use *use, size_t index,
                            avo_error *error) {
    if (use->adapter == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "adapters[%zu] is NULL", index);
    if (use->adapter->config != &session->engine->model->source->config)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "adapters[%zu]: %s was opened for another model", index,
                           use->adapter->path);
    if (!isfinite(use->weight))
        return status_fail(error, AVO_ERROR_ARGUMENT, "adapters[%zu].weight is %g, must be finite",
                           index, (double)use->weight);
    return AVO_OK;
}

/* Into its place by digest. */
static avo_status list_one(avo_session *session, const avo_adapter_use *use, avo_error *error) {
    uint32_t at = session->adapter_count;
    const adapter_view *view = &use->adapter->view;
    while (at > 0) {
        int order = compare_digests(view, &session->adapters[at - 1].adapter->view);
        if (order == 0)
            return status_fail(error, AVO_ERROR_ARGUMENT, "adapter %s is given twice",
                               use->adapter->path);
        if (order > 0)
            break;
        at--;
    }
    memmove(session->adapters + at + 1, session->adapters + at,
            (session->adapter_count - at) * sizeof(*session->adapters));
    session->adapters[at] = (session_adapter){.adapter = use->adapter, .weight = use->weight};
    session->adapter_count++;
    return AVO_OK;
}

avo_status session_adapters_list(avo_session *session, const avo_session_options *options,
                                 avo_error *error) {
    if (options->adapter_count > AVO_ADAPTERS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "adapter_count is %zu, must be at most %d",
                           options->adapter_count, AVO_ADAPTERS_MAX);
    uint64_t ranks = 0;
    for (size_t i = 0; i < options->adapter_count; i++)
        AVO_TRY(check_use(session, &options->adapters[i], i, error));
    for (size_t i = 0; i < options->adapter_count; i++)
        AVO_TRY(list_one(session, &options->adapters[i], error));
    for (uint32_t i = 0; i < session->adapter_count; i++)
        ranks += session->adapters[i].adapter->view.rank;
    if (ranks > session->engine->plan.adapter_rank_max)
        return status_fail(
            error, AVO_ERROR_LIMIT,
            "the ranks of the adapters add up to %llu, must be at most %u (adapter_rank_max)",
            (unsigned long long)ranks, session->engine->plan.adapter_rank_max);
    return AVO_OK;
}

avo_status session_adapters_take(avo_session *session, const avo_session_options *options,
                                 avo_error *error) {
    avo_status status = session_adapters_list(session, options, error);
    uint32_t count = session->adapter_count;
    session->adapter_count = 0; /* that it holds */
    for (uint32_t i = 0; i < count && status == AVO_OK; i++) {
        session_adapter *own = &session->adapters[i];
        status = prepare(session->engine, own->adapter, &own->view, error);
        if (status != AVO_OK)
            break;
        adapter_share(own->adapter);
        session->adapter_count++;
    }
    return status;
}

void session_adapters_share(const avo_session *from, avo_session *to) {
    memcpy(to->adapters, from->adapters, sizeof(to->adapters));
    to->adapter_count = from->adapter_count;
    for (uint32_t i = 0; i < to->adapter_count; i++) {
        const adapter_view *view;
        avo_status status = prepare(to->engine, to->adapters[i].adapter, &view, NULL);
        assert(status == AVO_OK && view == to->adapters[i].view); /* `from` has it prepared */
        (void)status;
        adapter_share(to->adapters[i].adapter);
    }
}

void session_adapters_give(avo_session *session) {
    for (uint32_t i = 0; i < session->adapter_count; i++) {
        release(session->engine, session->adapters[i].adapter);
        adapter_release(session->adapters[i].adapter);
    }
    session->adapter_count = 0;
}

size_t session_adapters_key(const avo_session *session, uint8_t *key) {
    uint8_t *at = key;
    for (uint32_t i = 0; i < session->adapter_count; i++) {
        const session_adapter *own = &session->adapters[i];
        memcpy(at, own->adapter->view.digest, sizeof(own->adapter->view.digest));
        at += sizeof(own->adapter->view.digest);
        memcpy(at, &own->adapter->map_key, sizeof(own->adapter->map_key));
        at += sizeof(own->adapter->map_key);
        memcpy(at, &own->weight, sizeof(own->weight));
        at += sizeof(own->weight);
    }
    return (size_t)(at - key);
}

/* ---- Of a batch ---- */

/* The same numbers: of one content and, where a file is mapped, of that very file. */
static int compare_adapters(const avo_adapter *a, const avo_adapter *b) {
    int order = compare_digests(&a->view, &b->view);
    if (order != 0 || a->map_key == b->map_key)
        return order;
    return a->map_key < b->map_key ? -1 : 1;
}

/* Adapters that both have, from the first on. */
static uint32_t common_adapters(const avo_session *a, const avo_session *b) {
    uint32_t most = a->adapter_count < b->adapter_count ? a->adapter_count : b->adapter_count;
    for (uint32_t i = 0; i < most; i++)
        if (compare_adapters(a->adapters[i].adapter, b->adapters[i].adapter) != 0)
            return i;
    return most;
}

/* As words are ordered, digests being the letters: those without adapters come first, and whoever
 * begins with the same adapters stands together. */
static bool stands_before(const avo_session *a, const avo_session *b) {
    uint32_t common = common_adapters(a, b);
    if (common == a->adapter_count || common == b->adapter_count)
        return a->adapter_count < b->adapter_count;
    return compare_adapters(a->adapters[common].adapter, b->adapters[common].adapter) < 0;
}

/* Two neighbours of `width` entries become one, in the other array. */
static void merge_entries(avo_batch *batch, uint32_t begin, uint32_t width) {
    uint32_t count = batch->entry_count;
    uint32_t middle = count - begin < width ? count : begin + width;
    uint32_t end = count - middle < width ? count : middle + width;
    uint32_t left = begin, right = middle;
    for (uint32_t at = begin; at < end; at++) {
        bool takes_right =
            right < end && (left == middle || stands_before(batch->entries[right].session,
                                                            batch->entries[left].session));
        batch->sorted[at] = batch->entries[takes_right ? right++ : left++];
    }
}

/* Stable, O(n log n): whoever fills a batch knows nothing of digests, so any order comes. */
static void sort_entries(avo_batch *batch) {
    for (uint32_t width = 1; width < batch->entry_count; width *= 2) {
        for (uint32_t begin = 0; begin < batch->entry_count; begin += 2 * width)
            merge_entries(batch, begin, width);
        batch_entry *entries = batch->entries;
        batch->entries = batch->sorted;
        batch->sorted = entries;
    }
}

/* The run of the entry's adapter number `depth`, over all entries behind it that begin with the
 * same adapters up to that one. */
static void make_run(avo_batch *batch, uint32_t entry, uint32_t depth, uint32_t parent,
                     size_t *factors) {
    const avo_session *session = batch->entries[entry].session;
    const session_adapter *own = &session->adapters[depth];
    adapter_run *run = &batch->run[batch->runs++];
    *run = (adapter_run){.adapter = own->view,
                         .first = batch->segments[entry].first,
                         .factor = batch->factor + *factors,
                         .parent = parent};
    for (uint32_t i = entry; i < batch->entry_count; i++) {
        const avo_session *other = batch->entries[i].session;
        if (common_adapters(session, other) <= depth)
            break;
        for (uint32_t row = 0; row < batch->entries[i].rows; row++)
            batch->factor[(*factors)++] = other->adapters[depth].weight;
        run->rows += batch->entries[i].rows;
    }
    batch->adapter_bytes += own->adapter->bytes;
}

void batch_arrange(avo_batch *batch) {
    bool any = false;
    batch->runs = 0;
    batch->gains = false;
    batch->adapter_bytes = 0;
    for (uint32_t i = 0; i < batch->entry_count; i++)
        any = any || batch->entries[i].session->adapter_count > 0;
    if (!any)
        return;
    sort_entries(batch);
    batch->rows = 0;
    batch->logit_rows = 0;
    for (uint32_t i = 0; i < batch->entry_count; i++)
        batch_lay_rows(batch, i);
    size_t factors = 0;
    uint32_t open[AVO_ADAPTERS_MAX]; /* runs of the entry's adapters, by depth */
    for (uint32_t i = 0; i < batch->entry_count; i++) {
        const avo_session *session = batch->entries[i].session;
        uint32_t depth = i == 0 ? 0 : common_adapters(batch->entries[i - 1].session, session);
        for (; depth < session->adapter_count; depth++) {
            open[depth] = batch->runs;
            make_run(batch, i, depth, depth == 0 ? ADAPTER_RUN_NONE : open[depth - 1], &factors);
            batch->gains = batch->gains || session->adapters[depth].adapter->view.gains;
        }
    }
}
