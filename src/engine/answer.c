/* Drawing, ends and text of an answer. */
#include "engine/answer.h"

#include "engine/engine_int.h"

/* ---- Drawing ---- */

void batch_want_nothing(avo_batch *batch) {
    batch->top = 0;
    batch->whole = false;
}

void batch_want(avo_batch *batch, const sampler *sampler) {
    uint32_t top = sampler_top(sampler);
    /* A grammar may allow none of the highest, and computing the head again costs far more than
     * keeping what it gave. */
    batch->whole = batch->whole || top == 0 || sampler_constrained(sampler);
    batch->top = top > batch->top ? top : batch->top;
}

/* Whoever can draw from the highest does so even where all are at hand: what else is in the batch
 * must not change the last bit of a logprob. */
avo_status batch_draw(avo_batch *batch, const avo_session *session, sampler *sampler,
                      uint64_t position, sample_choice *choice, avo_error *error) {
    const float *logits;
    if (sampler_top(sampler) > 0) {
        bool undecided;
        const logit_top *top;
        AVO_TRY(batch_top(batch, session, 0, &top, error));
        sampler_draw_top(sampler, top, position, choice, &undecided);
        if (!undecided)
            return AVO_OK;
        AVO_TRY(batch_logits(batch, session, 0, &logits, error));
        AVO_TRY(batch_top(batch, session, 0, &top, error));
        if (sampler_draw_allowed(sampler, top, logits, position, choice))
            return AVO_OK;
    }
    AVO_TRY(batch_logits(batch, session, 0, &logits, error));
    avo_status status = sampler_draw(sampler, logits, position, choice, error);
    /* The base was opened and served before: an adapter is the likelier one to be broken. */
    for (uint32_t i = session->adapter_count; status != AVO_OK && i-- > 0;)
        status =
            status_prefix(error, status, "with adapter %s", session->adapters[i].adapter->path);
    return status;
}

avo_status answer_constrain(grammar_matcher *matcher, sampler *sampler, avo_error *error) {
    const uint64_t *allowed = NULL;
    if (matcher == NULL)
        return AVO_OK;
    AVO_TRY(grammar_matcher_mask(matcher, &allowed, error));
    sampler_allow(sampler, allowed);
    return AVO_OK;
}

avo_status answer_follow(grammar_matcher *matcher, int32_t token, answer_state *state,
                         avo_error *error) {
    if (matcher == NULL || state->ended)
        return AVO_OK;
    AVO_TRY(grammar_matcher_follow(matcher, token, error));
    state->ended = grammar_matcher_over(matcher);
    return AVO_OK;
}

bool answer_token_stops(const answer_limits *limits, int32_t token) {
    for (size_t i = 0; i < limits->stop_token_count; i++)
        if (limits->stop_tokens[i] == token)
            return true;
    return !limits->ignore_end && avo_model_token_ends(limits->model, token);
}

bool answer_ends(const answer_limits *limits, const answer_state *state, avo_finish *finish) {
    if (state->ended)
        *finish = AVO_FINISH_STOP_TOKEN;
    else if (state->stopped)
        *finish = AVO_FINISH_STOP_STRING;
    else if (state->unwanted)
        *finish = AVO_FINISH_CANCELLED;
    else if (limits->max_new_tokens > 0 && state->drawn >= limits->max_new_tokens)
        *finish = AVO_FINISH_LENGTH;
    else if (state->computed >= limits->context_max)
        *finish = AVO_FINISH_CONTEXT;
    else
        return false;
    return true;
}

/* ---- Text ---- */

avo_status answer_text_open(answer_text *text, const avo_model *model, const char *const *stop,
                            size_t stop_count, buffer *room, const avo_allocator *allocator,
                            avo_error *error) {
    *text = (answer_text){.exists = model->tokenizer != NULL, .room = room};
    if (stop_count > 0 && !text->exists)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "stop strings need a tokenizer, the model has none");
    if (text->exists) {
        decode_stream_init(&text->stream, model->tokenizer, false);
        decode_stream_continue(&text->stream); /* the prompt came before */
    }
    if (stop_count > 0)
        return stop_matcher_open(stop, stop_count, allocator, &text->stops, error);
    return AVO_OK;
}

void answer_text_close(answer_text *text) {
    stop_matcher_close(text->stops);
    text->stops = NULL;
}

static avo_status release(answer_text *text, text_view *shown, bool *stopped, avo_error *error) {
    *stopped = false;
    *shown = buffer_text(text->room);
    if (text->stops == NULL)
        return AVO_OK;
    return stop_matcher_push(text->stops, shown->data, shown->size, &shown->data, &shown->size,
                             stopped, error);
}

avo_status answer_text_push(answer_text *text, int32_t token, bool ended, text_view *shown,
                            bool *stopped, avo_error *error) {
    text->room->size = 0;
    if (text->exists && !ended)
        AVO_TRY(decode_stream_push(&text->stream, token, text->room, error));
    return release(text, shown, stopped, error);
}

avo_status answer_text_finish(answer_text *text, text_view *shown, bool *stopped,
                              avo_error *error) {
    text->room->size = 0;
    if (text->exists)
        AVO_TRY(decode_stream_finish(&text->stream, text->room, error));
    return release(text, shown, stopped, error);
}

text_view answer_text_rest(answer_text *text) {
    text_view rest = {"", 0};
    if (text->stops != NULL)
        stop_matcher_finish(text->stops, &rest.data, &rest.size);
    return rest;
}
