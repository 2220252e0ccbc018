/* The forward pass: one step of the engine with a session for each sequence, then the head for the
 * rows whose next tokens are wanted. */
#include "train/core_int.h"

#include "base/checked.h"

#include <string.h>

/* ---- The rows of a call ---- */

static avo_status check_sequence(const train_core *core, const train_sequence *sequence,
                                 size_t index, uint32_t *rows, avo_error *error) {
    uint32_t most = core->options.context_max;
    if (sequence->count < 2 || sequence->count > most)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "sequence %zu has %u tokens, must have 2 to %u", index, sequence->count,
                           most);
    if (sequence->wanted[0] != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "sequence %zu: the first token has no log-probability: nothing is "
                           "before it",
                           index);
    uint32_t last = sequence->count;
    while (last > 1 && sequence->wanted[last - 1] == 0)
        last--;
    *rows = last - 1; /* the last wanted token is not computed itself */
    uint32_t vocabulary = core->net.view->vocabulary;
    for (uint32_t i = 0; i < last; i++)
        if (sequence->tokens[i] < 0 || (uint32_t)sequence->tokens[i] >= vocabulary)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "sequence %zu: token %u is %d, must be 0 to %u", index, i,
                               sequence->tokens[i], vocabulary - 1);
    return AVO_OK;
}

static void add_rows(train_call *call, const train_span *span) {
    const train_sequence *sequence = span->sequence;
    for (uint32_t i = 0; i < span->rows; i++) {
        call->token[span->first + i] = sequence->tokens[i];
        call->position[span->first + i] = i;
        if (sequence->wanted[i + 1] != 0)
            call->want[call->wants++] = (train_want){.row = span->first + i,
                                                     .next = sequence->tokens[i + 1],
                                                     .at = span->token + i + 1,
                                                     .span = call->spans};
    }
}

/* Sequences of which nothing is wanted have no rows and no span. */
static avo_status lay_rows(train_core *core, const train_sequence *sequences, size_t count,
                           size_t *tokens, avo_error *error) {
    train_call *call = &core->call;
    *tokens = 0;
    call->spans = call->rows = call->wants = 0;
    call->ready = false;
    if (count == 0 || count > core->options.sequences_max)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%zu sequences, must be 1 to %u", count,
                           core->options.sequences_max);
    for (size_t i = 0; i < count; i++) {
        train_span span = {&sequences[i], call->rows, 0, *tokens};
        AVO_TRY(check_sequence(core, &sequences[i], i, &span.rows, error));
        if (span.rows > core->options.rows_max - call->rows)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "the sequences have more than %u tokens together; divide them into "
                               "several calls",
                               core->options.rows_max);
        *tokens += sequences[i].count;
        if (span.rows == 0)
            continue;
        call->span[call->spans] = span;
        call->part[call->spans] = (train_part){span.first, span.rows};
        add_rows(call, &span);
        call->spans++;
        call->rows += span.rows;
    }
    return AVO_OK;
}

/* ---- The step ---- */

void train_close_sessions(train_core *core) {
    while (core->sessions > 0)
        avo_session_close(core->session[--core->sessions]);
}

static avo_status add_session(train_core *core, const train_span *span, bool base,
                              avo_error *error) {
    avo_adapter_use use = {core->adapter, 1.0f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    if (core->adapter != NULL && !base) {
        options.adapters = &use;
        options.adapter_count = 1;
    }
    avo_session **session = &core->session[core->sessions];
    AVO_TRY(engine_session_open(core->engine, &options, session, error));
    core->sessions++;
    engine_session_keep_private(*session);
    if (avo_batch_add_scored(core->batch, *session, span->sequence->tokens, span->rows, 0) ==
        AVO_OK)
        return AVO_OK;
    const avo_error *why = avo_batch_error(core->batch);
    return status_fail(error, why->status, "%s", why->text);
}

static avo_status compute(train_core *core, bool base, avo_error *error) {
    avo_batch_clear(core->batch);
    for (uint32_t i = 0; i < core->call.spans; i++)
        AVO_TRY(add_session(core, &core->call.span[i], base, error));
    if (avo_step(core->engine, core->batch) == AVO_OK)
        return AVO_OK;
    const avo_error *why = avo_batch_error(core->batch);
    return status_fail(error, why->status, "%s", why->text);
}

avo_status train_compute(train_core *core, const train_sequence *sequences, size_t count,
                         avo_error *error) {
    size_t tokens;
    train_close_sessions(core);
    AVO_TRY(lay_rows(core, sequences, count, &tokens, error));
    if (core->call.rows == 0)
        return AVO_OK;
    avo_status status = compute(core, true, error);
    if (status != AVO_OK) {
        train_close_sessions(core);
        avo_batch_clear(core->batch);
    }
    return status;
}

avo_status train_forward(train_core *core, const train_sequence *sequences, size_t count,
                         train_pass pass, const train_scores *scores, avo_error *error) {
    size_t tokens;
    bool base = pass == TRAIN_PASS_BASE, learns = pass == TRAIN_PASS_LEARN;
    if (base && core->adapter == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "full tuning has no base to compare with; open the model a second time");
    train_close_sessions(core);
    AVO_TRY(lay_rows(core, sequences, count, &tokens, error));
    memset(scores->logprobs, 0, tokens * sizeof(*scores->logprobs));
    if (scores->entropies != NULL)
        memset(scores->entropies, 0, tokens * sizeof(*scores->entropies));
    if (scores->likeliest != NULL)
        memset(scores->likeliest, 0, tokens);
    if (core->call.rows == 0) {
        core->call.ready = learns;
        return AVO_OK;
    }
    avo_status status = compute(core, base, error);
    AVO_THEN(status, train_head_score(core, learns, scores, error));
    /* Where the head is trained, the backward pass computes it once more, with what a device may
     * have copied of the adapter. */
    bool again = core->net.head_trained && !engine_adapters_in_place(core->engine);
    if (status != AVO_OK || !learns || !again)
        train_close_sessions(core);
    if (status != AVO_OK)
        avo_batch_clear(core->batch);
    core->call.ready = status == AVO_OK && learns;
    return status;
}
