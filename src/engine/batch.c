/* Batches: rows of any number of sessions, checked when they are added, so that a step cannot fail
 * half-way. */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/checked.h"

#include <assert.h>
#include <string.h>

/* Bytes of a batch's arrays. The plan's limits keep them far below what would wrap. */
typedef struct batch_sizes {
    size_t entries, segments, row, logit_row, run, factor;
} batch_sizes;

static batch_sizes batch_measure(const engine_plan *plan) {
    size_t sessions = plan->sessions_max, rows = plan->rows_max;
    return (batch_sizes){.entries = sessions * sizeof(batch_entry),
                         .segments = sessions * sizeof(batch_segment),
                         .row = rows * sizeof(uint32_t),
                         .logit_row = plan->logits_max * sizeof(uint32_t),
                         .run = sessions * AVO_ADAPTERS_MAX * sizeof(adapter_run),
                         .factor = rows * AVO_ADAPTERS_MAX * sizeof(float)};
}

uint64_t batch_bytes(const engine_plan *plan) {
    batch_sizes sizes = batch_measure(plan);
    return sizeof(avo_batch) + 2 * sizes.entries + sizes.segments + 4 * sizes.row +
           sizes.logit_row + sizes.run + sizes.factor;
}

avo_status engine_batch_open(avo_engine *engine, uint32_t stream, avo_batch **out,
                             avo_error *error) {
    *out = NULL;
    assert(stream < engine->plan.streams);
    const avo_allocator *allocator = engine->allocator;
    avo_batch *batch = allocator_take_array(allocator, 1, sizeof(*batch));
    if (batch == NULL)
        return status_no_memory(error, "a batch", sizeof(*batch));
    batch_sizes sizes = batch_measure(&engine->plan);
    batch->engine = engine;
    batch->stream = &engine->stream[stream];
    batch->entries = allocator_take_array(allocator, 1, sizes.entries);
    batch->sorted = allocator_take_array(allocator, 1, sizes.entries);
    batch->segments = allocator_take_array(allocator, 1, sizes.segments);
    batch->token = allocator_take_array(allocator, 1, sizes.row);
    batch->position = allocator_take_array(allocator, 1, sizes.row);
    batch->row_segment = allocator_take_array(allocator, 1, sizes.row);
    batch->score_row = allocator_take_array(allocator, 1, sizes.row);
    batch->logit_row = allocator_take_array(allocator, 1, sizes.logit_row);
    batch->run = allocator_take_array(allocator, 1, sizes.run);
    batch->factor = allocator_take_array(allocator, 1, sizes.factor);
    if (batch->entries == NULL || batch->sorted == NULL || batch->segments == NULL ||
        batch->token == NULL || batch->position == NULL || batch->row_segment == NULL ||
        batch->logit_row == NULL || batch->score_row == NULL || batch->run == NULL ||
        batch->factor == NULL) {
        avo_batch_close(batch);
        return status_no_memory(error, "a batch", (size_t)batch_bytes(&engine->plan));
    }
    *out = batch;
    return AVO_OK;
}

avo_status avo_batch_open(avo_engine *engine, avo_batch **out, avo_error *error) {
    *out = NULL;
    AVO_TRY(engine_check_free(engine, error));
    AVO_TRY(engine_batch_open(engine, 0, out, error));
    (*out)->counted = true;
    engine->batches++;
    return AVO_OK;
}

void avo_batch_close(avo_batch *batch) {
    if (batch == NULL)
        return;
    avo_batch_clear(batch);
    avo_engine *engine = batch->engine;
    const avo_allocator *allocator = engine->allocator;
    batch_sizes sizes = batch_measure(&engine->plan);
    engine->batches -= batch->counted;
    allocator_give(allocator, batch->entries, sizes.entries);
    allocator_give(allocator, batch->sorted, sizes.entries);
    allocator_give(allocator, batch->segments, sizes.segments);
    allocator_give(allocator, batch->token, sizes.row);
    allocator_give(allocator, batch->position, sizes.row);
    allocator_give(allocator, batch->row_segment, sizes.row);
    allocator_give(allocator, batch->score_row, sizes.row);
    allocator_give(allocator, batch->logit_row, sizes.logit_row);
    allocator_give(allocator, batch->run, sizes.run);
    allocator_give(allocator, batch->factor, sizes.factor);
    allocator_give(allocator, batch, sizeof(*batch));
}

void avo_batch_clear(avo_batch *batch) {
    /* Sessions that were not computed give back the pages taken for them. */
    for (uint32_t i = 0; !batch->computed && i < batch->entry_count; i++) {
        avo_session *session = batch->entries[i].session;
        if (session == NULL)
            continue;
        pages_shrink(kv_pool_pages(batch->engine->kv), &session->table, session->computed);
        session->batch = NULL;
    }
    batch->entry_count = 0;
    batch->rows = 0;
    batch->logit_rows = 0;
    batch->computed = false;
    batch->scored = false;
    batch->session_closed = false;
    batch->error.status = AVO_OK;
    batch->error.text[0] = '\0';
}

const avo_error *avo_batch_error(const avo_batch *batch) {
    return &batch->error;
}

static avo_status check_session(avo_batch *batch, const avo_session *session) {
    avo_error *error = &batch->error;
    if (batch->computed)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the batch has been computed; clear it first");
    if (batch->session_closed)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a session of the batch was closed; clear the batch first");
    if (session->engine != batch->engine)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the session belongs to another engine");
    if (session->batch != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the session is already in a batch");
    return AVO_OK;
}

/* `rows` counts what is appended and what the timeline still owes. */
static avo_status check_room(avo_batch *batch, const avo_session *session, size_t count,
                             size_t rows, size_t logits) {
    const engine_plan *plan = &batch->engine->plan;
    avo_error *error = &batch->error;
    if (rows == 0 || logits > rows)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%zu tokens with %zu rows of logits; there must be tokens, and at most "
                           "one row of logits for each",
                           rows, logits);
    if (session->ring_window == 0 && count > plan->context_max - session->count)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "%zu tokens do not fit: the context is %u, the session has %u", count,
                           plan->context_max, session->count);
    if (rows > plan->rows_max - batch->rows)
        return status_fail(error, AVO_ERROR_FULL, "%zu rows do not fit: a step has %u, %u are used",
                           rows, plan->rows_max, batch->rows);
    if (logits > plan->logits_max - batch->logit_rows)
        return status_fail(error, AVO_ERROR_FULL,
                           "%zu rows of logits do not fit: a step has %u, %u are used", logits,
                           plan->logits_max, batch->logit_rows);
    return AVO_OK;
}

avo_status batch_check_tokens(avo_batch *batch, const int32_t *tokens, size_t count) {
    uint32_t vocabulary = batch->engine->view.vocabulary;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocabulary)
            return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                               "token %zu: id is %d, must be 0 to %u", i, tokens[i],
                               vocabulary - 1);
    return AVO_OK;
}

void batch_lay_rows(avo_batch *batch, uint32_t number) {
    batch_entry *entry = &batch->entries[number];
    const avo_session *session = entry->session;
    entry->logit_first = batch->logit_rows;
    batch->segments[number] =
        (batch_segment){.first = batch->rows, .rows = entry->rows, .pages = session->table.pages};
    for (uint32_t i = 0; i < entry->rows; i++) {
        uint32_t row = batch->rows++;
        batch->position[row] = session->computed + i;
        batch->token[row] = session->tokens[session->computed + i];
        batch->row_segment[row] = number;
        if (i >= entry->rows - entry->logit_count)
            batch->logit_row[batch->logit_rows++] = row;
    }
}

/* Rows for the tokens [computed, computed + rows) of the timeline. */
static void append_rows(avo_batch *batch, avo_session *session, uint32_t rows, uint32_t drafts,
                        uint32_t logits) {
    uint32_t entry = batch->entry_count++;
    batch->entries[entry] = (batch_entry){.session = session,
                                          .serial = session->serial,
                                          .rows = rows,
                                          .drafts = drafts,
                                          .logit_count = logits};
    batch_lay_rows(batch, entry);
    session->batch = batch;
}

static avo_status fail_pages(avo_batch *batch, uint32_t length) {
    return status_fail(&batch->error, AVO_ERROR_FULL,
                       "no KV pages left for %u tokens: %u pages of %u tokens are free", length,
                       pages_available(kv_pool_pages(batch->engine->kv)), (unsigned)KV_PAGE_TOKENS);
}

static avo_status take_pages(avo_batch *batch, avo_session *session, uint32_t length) {
    avo_status status = session_take_pages(session, length, &batch->error);
    return status == AVO_ERROR_FULL ? fail_pages(batch, length) : status;
}

/* Before it turns: what is left is computed from the first token that moves, and has its pages. */
static avo_status check_turn(avo_batch *batch, const avo_session *session, const ring_turn *turn) {
    uint32_t from = session->computed;
    if (turn->forgotten > 0 && from > session->ring_keep)
        from = session->ring_keep;
    if (pages_could_write(kv_pool_pages(batch->engine->kv), &session->table, from, turn->length))
        return AVO_OK;
    return fail_pages(batch, turn->length);
}

avo_status session_catch_up(avo_session *session, uint32_t rows, avo_error *error) {
    avo_engine *engine = session->engine;
    avo_batch *batch = engine->ring_batch;
    uint32_t owed = session->count - session->computed;
    rows = rows < owed ? rows : owed;
    if (rows > engine->plan.rows_max)
        rows = engine->plan.rows_max;
    avo_batch_clear(batch);
    avo_status status = take_pages(batch, session, session->computed + rows);
    if (status == AVO_OK) {
        append_rows(batch, session, rows, 0, 0);
        status = avo_step(engine, batch);
    }
    if (status == AVO_OK)
        return AVO_OK;
    return status_fail(error, status, "%s", batch->error.text);
}

/* A ring: the timeline as it is with the new tokens. Those that stay lie behind its end, *count
 * becomes their number, and what the timeline owes beyond the batch's room is computed now. */
static avo_status add_to_ring(avo_batch *batch, avo_session *session, const int32_t *tokens,
                              size_t *count, size_t logits) {
    avo_error *error = &batch->error;
    const engine_plan *plan = &batch->engine->plan;
    uint32_t room = plan->rows_max - batch->rows;
    ring_turn turn = ring_measure(session, *count);
    if (turn.forgotten > 0 &&
        (logits > turn.since || logits > plan->logits_max - batch->logit_rows))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the ring shifts %zu tokens before the end and a step has %u rows of "
                           "logits; %zu rows of logits are not possible",
                           turn.since, plan->logits_max - batch->logit_rows, logits);
    size_t most = *count < turn.length ? *count : turn.length;
    if (most > room)
        return status_fail(error, AVO_ERROR_FULL, "%zu rows do not fit: a step has %u, %u are used",
                           most, plan->rows_max, batch->rows);
    AVO_TRY(batch_check_tokens(batch, tokens, *count));
    AVO_TRY(check_turn(batch, session, &turn));
    uint32_t added = ring_lay(session, tokens, *count, &turn);
    *count = added;
    while (session->count - session->computed > room - added)
        AVO_TRY(session_catch_up(session, UINT32_MAX, error));
    return AVO_OK;
}

static avo_status add_rows(avo_batch *batch, avo_session *session, const int32_t *tokens,
                           size_t count, uint32_t drafts, size_t logits) {
    AVO_TRY(check_session(batch, session));
    if (session->ring_window > 0)
        AVO_TRY(add_to_ring(batch, session, tokens, &count, logits));
    size_t rows = session->count - session->computed;
    if (!size_add(rows, count, &rows))
        rows = SIZE_MAX;
    AVO_TRY(check_room(batch, session, count, rows, logits));
    if (session->ring_window == 0)
        AVO_TRY(batch_check_tokens(batch, tokens, count));
    AVO_TRY(take_pages(batch, session, session->computed + (uint32_t)rows));
    /* Behind the timeline's end until the step makes them part of it. */
    if (count > 0 && session->ring_window == 0)
        memcpy(session->tokens + session->count, tokens, count * sizeof(*tokens));
    append_rows(batch, session, (uint32_t)rows, drafts, (uint32_t)logits);
    return AVO_OK;
}

avo_status avo_batch_add_scored(avo_batch *batch, avo_session *session, const int32_t *tokens,
                                size_t count, size_t logits) {
    return add_rows(batch, session, tokens, count, 0, logits);
}

avo_status engine_batch_add_drafts(avo_batch *batch, avo_session *session, const int32_t *tokens,
                                   size_t count, uint32_t drafts) {
    assert(drafts <= count);
    return add_rows(batch, session, tokens, count, drafts, (size_t)drafts + 1);
}

avo_status avo_batch_add(avo_batch *batch, avo_session *session, const int32_t *tokens,
                         size_t count) {
    return avo_batch_add_scored(batch, session, tokens, count, 1);
}

/* The row of the step's logits that belongs to a session's `index`-th scored token. */
static bool find_logits(const avo_batch *batch, const avo_session *session, size_t index,
                        size_t *row) {
    if (!batch->computed || batch->scored || batch->step_serial != batch->stream->step_serial)
        return false;
    for (uint32_t i = 0; i < batch->entry_count; i++) {
        const batch_entry *entry = &batch->entries[i];
        *row = entry->logit_first + index;
        if (entry->serial == session->serial && index < entry->logit_count)
            return true;
    }
    return false;
}

static avo_status read_logits(avo_batch *batch, const avo_session *session, size_t index,
                              const float **logits) {
    size_t row;
    if (!batch->logits_whole || !find_logits(batch, session, index, &row))
        return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                           "the last step has no row %zu of logits of this session", index);
    AVO_TRY(batch_results(batch, &batch->error));
    return device_read_logits(batch->stream->stream, (uint32_t)row, logits, &batch->error);
}

const float *avo_batch_logits(avo_batch *batch, const avo_session *session, size_t index) {
    const float *logits;
    return read_logits(batch, session, index, &logits) == AVO_OK ? logits : NULL;
}

avo_status batch_top(const avo_batch *batch, const avo_session *session, size_t index,
                     const logit_top **top, avo_error *error) {
    size_t row = 0;
    bool found = find_logits(batch, session, index, &row);
    assert(found && batch->top > 0);
    (void)found;
    AVO_TRY(batch_results(batch, error));
    AVO_TRY(device_read_top(batch->stream->stream, top, error));
    *top += row;
    return AVO_OK;
}

/* The row whose logits are wanted; the head has written all of them. */
static avo_status whole_row(avo_batch *batch, const avo_session *session, size_t index,
                            uint32_t *found, avo_error *error) {
    size_t row = 0;
    bool there = find_logits(batch, session, index, &row);
    assert(there);
    (void)there;
    *found = (uint32_t)row;
    AVO_TRY(batch_results(batch, error));
    if (batch->logits_whole)
        return AVO_OK;
    batch->logits_whole = true;
    batch_view rows = batch_rows(batch);
    avo_status status = batch_compute(batch, DEVICE_HEAD, &rows, batch->engine->observer);
    return status == AVO_OK ? AVO_OK : status_fail(error, status, "%s", batch->error.text);
}

avo_status batch_logits(avo_batch *batch, const avo_session *session, size_t index,
                        const float **logits, avo_error *error) {
    uint32_t row;
    AVO_TRY(whole_row(batch, session, index, &row, error));
    return device_read_logits(batch->stream->stream, row, logits, error);
}

avo_status batch_chosen(avo_batch *batch, const avo_session *session, size_t index,
                        const int32_t *tokens, uint32_t count, float *chosen, avo_error *error) {
    uint32_t row;
    AVO_TRY(whole_row(batch, session, index, &row, error));
    return device_read_chosen(batch->stream->stream, row, tokens, count, chosen, error);
}
