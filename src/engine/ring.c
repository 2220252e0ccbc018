/* Ring mode: conversations without end in a window of fixed size. When the window is full and one
 * more token comes, the first `ring_keep` tokens stay, of the others the older half is forgotten,
 * and K and V of what is left are computed again at their new positions: that is a timeline like
 * any other, equal to one that never had more text.
 *
 * When a turn happens depends on the tokens alone, never on how many are added at once: adding many
 * gives the timeline that adding them one by one would have given.
 */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include <assert.h>
#include <string.h>

avo_status ring_check(const avo_engine *engine, const avo_session_options *options,
                      avo_error *error) {
    uint32_t window = options->ring_window;
    if (window == 0 && options->ring_keep == 0)
        return AVO_OK;
    if (window > engine->plan.context_max)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "ring_window is %u, must be at most the context (%u tokens)", window,
                           engine->plan.context_max);
    if (options->ring_keep >= window || window - options->ring_keep < 2)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "ring_keep is %u of a window of %u, must leave at least two tokens",
                           options->ring_keep, window);
    return AVO_OK;
}

ring_turn ring_measure(const avo_session *session, size_t count) {
    uint32_t window = session->ring_window;
    ring_turn turn = {.length = session->count, .since = count};
    if (window == 0) {
        turn.length += (uint32_t)count; /* the caller has seen that this fits */
        return turn;
    }
    while (turn.since > window - turn.length) {
        turn.since -= window - turn.length;
        uint32_t forgotten = (window - session->ring_keep) / 2;
        turn.length = window - forgotten;
        turn.forgotten += forgotten;
    }
    turn.length += (uint32_t)turn.since;
    return turn;
}

uint32_t ring_lay(avo_session *session, const int32_t *tokens, size_t count,
                  const ring_turn *turn) {
    uint32_t old = session->count;
    if (turn->forgotten == 0) {
        if (count > 0)
            memcpy(session->tokens + old, tokens, count * sizeof(*tokens));
        return (uint32_t)count;
    }
    uint32_t keep = session->ring_keep;
    session->forgotten += turn->forgotten;
    uint32_t stays = 0; /* of the tokens it had */
    /* Timeline and new tokens make one sequence, of which the part behind `keep` is left out. */
    for (uint32_t i = 0; i < turn->length; i++) {
        uint64_t from = i < keep ? i : i + turn->forgotten;
        session->tokens[i] = from < old ? session->tokens[from] : tokens[from - old];
        stays += from < old;
    }
    session->count = stays;
    uint32_t same = keep < stays ? keep : stays; /* tokens at the positions they had */
    if (session->computed > same)
        session->computed = same;
    pages_shrink(kv_pool_pages(session->engine->kv), &session->table, session->computed);
    return turn->length - stays;
}

void session_append(avo_session *session, const int32_t *tokens, size_t count) {
    assert(session->batch == NULL);
    ring_turn turn = ring_measure(session, count);
    session->count += ring_lay(session, tokens, count, &turn);
}
