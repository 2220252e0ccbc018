/* Drawing, ends and text of an answer. */
#include "engine/sequence.h"

#include "engine/draft_policy.h"
#include "engine/engine_int.h"
#include "engine/sequence_int.h"

#include <string.h>

/* ---- Opening ---- */

avo_status sequence_open(sequence *sequence, const sequence_options *options, avo_error *error) {
    const avo_request *request = options->request;
    const tokenizer *tokenizer = options->model->tokenizer;
    *sequence = (struct sequence){.options = *options, .stop_token = -1};
    if (request->stop_count == 0)
        return AVO_OK;
    if (tokenizer == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "stop strings need a tokenizer, the model has none");
    decode_stream_init(&sequence->stream, tokenizer, false);
    decode_stream_continue(&sequence->stream); /* the prompt came before */
    return stop_matcher_open(request->stop, request->stop_count, options->allocator,
                             &sequence->stops, error);
}

void sequence_close(sequence *sequence) {
    sequence_end(sequence);
    stop_matcher_close(sequence->stops);
    sequence->stops = NULL;
}

static avo_status open_sampler(sequence *sequence, avo_error *error) {
    const sequence_options *options = &sequence->options;
    if (options->sampler_room != NULL)
        return sampler_open_in(options->sampler_room, options->sampling, options->allocator,
                               &sequence->sampler, error);
    return sampler_open(options->sampling, options->model->view.vocabulary, options->allocator,
                        &sequence->sampler, error);
}

/* At the place of the grammar that the answer has reached. */
static avo_status open_matcher(sequence *sequence, const int32_t *answer, avo_error *error) {
    const avo_request *request = sequence->options.request;
    if (request->grammar == NULL)
        return AVO_OK;
    AVO_TRY(grammar_matcher_open(request->grammar, request->stop_tokens, request->stop_token_count,
                                 sequence->options.allocator, &sequence->matcher, error));
    sampler_constrain(sequence->sampler);
    for (uint32_t i = 0; i < sequence->drawn; i++)
        AVO_TRY(grammar_matcher_follow(sequence->matcher, answer[i], error));
    return AVO_OK;
}

avo_status sequence_begin(sequence *sequence, avo_session *session, const int32_t *timeline,
                          size_t prompt, avo_error *error) {
    sequence->session = session;
    AVO_TRY(open_sampler(sequence, error));
    AVO_TRY(sequence_hold(sequence, error));
    AVO_TRY(open_matcher(sequence, timeline + prompt, error));
    sampler_see_prompt(sequence->sampler, timeline, prompt);
    for (uint32_t i = 0; i < sequence->drawn; i++)
        sampler_see_output(sequence->sampler, timeline[prompt + i]);
    return AVO_OK;
}

void sequence_see_prompt(sequence *sequence, const int32_t *tokens, size_t count) {
    sampler_see_prompt(sequence->sampler, tokens, count);
}

void sequence_end(sequence *sequence) {
    sequence_let_go(sequence);
    sampler_close(sequence->sampler);
    grammar_matcher_close(sequence->matcher);
    sequence->session = NULL;
    sequence->sampler = NULL;
    sequence->matcher = NULL;
}

/* ---- Drawing ---- */

void batch_want_nothing(avo_batch *batch) {
    batch->top = 0;
    batch->whole = false;
}

void sequence_want(const sequence *sequence, avo_batch *batch) {
    uint32_t top = sampler_top(sequence->sampler);
    /* A grammar may allow none of the highest, and computing the head again costs far more than
     * keeping what it gave. */
    batch->whole = batch->whole || top == 0 || sampler_constrained(sequence->sampler);
    if (top == 0)
        top = sampler_likely_top(sequence->sampler);
    if (top == 0)
        top = 1; /* for the sum that log-probabilities need */
    batch->top = top > batch->top ? top : batch->top;
}

/* From the tokens that a grammar allows, whose logits alone are read. *drawn: there was one. */
static avo_status draw_allowed(const sequence *sequence, const avo_session *session,
                               avo_batch *batch, size_t row, uint64_t position,
                               sample_choice *choice, bool *drawn, avo_error *error) {
    const int32_t *tokens;
    float *logits;
    const logit_top *top;
    uint32_t count = sampler_list_allowed(sequence->sampler, &tokens, &logits);
    *drawn = false;
    if (count == 0)
        return AVO_OK;
    AVO_TRY(batch_chosen(batch, session, row, tokens, count, logits, error));
    AVO_TRY(batch_top(batch, session, row, &top, error));
    *drawn = sampler_draw_allowed(sequence->sampler, top, position, choice);
    return AVO_OK;
}

/* Draws from the logits of the session's `row`-th scored token. A sampler that needs the highest
 * logits alone draws from those even where all are at hand. Log-probabilities use the device's sum
 * in both cases: neither the options nor what else is in the batch change their last bit. */
static avo_status draw(const sequence *sequence, const avo_session *session, avo_batch *batch,
                       size_t row, uint64_t position, sample_choice *choice, avo_error *error) {
    sampler *sampler = sequence->sampler;
    const float *logits;
    const logit_top *top;
    AVO_TRY(batch_top(batch, session, row, &top, error));
    if (sampler_top(sampler) > 0) {
        bool undecided, drawn;
        sampler_draw_top(sampler, top, position, choice, &undecided);
        if (!undecided)
            return AVO_OK;
        AVO_TRY(draw_allowed(sequence, session, batch, row, position, choice, &drawn, error));
        if (drawn)
            return AVO_OK;
    } else if (sampler_likely_top(sampler) > 0) { /* few logits instead of a whole row's */
        bool undecided;
        sampler_try_top(sampler, top, position, choice, &undecided);
        if (!undecided)
            return AVO_OK;
    }
    AVO_TRY(batch_logits(batch, session, row, &logits, error));
    AVO_TRY(batch_top(batch, session, row, &top, error)); /* the head may have run again */
    avo_status status = sampler_draw_found(sampler, logits, top, position, choice, error);
    /* The base was opened and served before: an adapter is the likelier one to be broken. */
    for (uint32_t i = session->adapter_count; status != AVO_OK && i-- > 0;)
        status =
            status_prefix(error, status, "with adapter %s", session->adapters[i].adapter->path);
    return status;
}

avo_status sequence_sample(const sequence *sequence, const avo_session *session, avo_batch *batch,
                           size_t row, uint64_t position, sample_choice *choice, avo_error *error) {
    sampler_allow(sequence->sampler, NULL); /* the mask is that of another position */
    return draw(sequence, session, batch, row, position, choice, error);
}

/* The token's place among the stop tokens of the request; -1: it is none of them. */
static int32_t stop_token_index(const avo_request *request, int32_t token) {
    for (size_t i = 0; i < request->stop_token_count; i++)
        if (request->stop_tokens[i] == token)
            return (int32_t)i;
    return -1;
}

bool sequence_stops_at(const sequence *sequence, int32_t token) {
    const avo_request *request = sequence->options.request;
    if (stop_token_index(request, token) >= 0)
        return true;
    return !request->ignore_end && avo_model_token_ends(sequence->options.model, token);
}

/* A ring has turned: penalties see what is left of the timeline, and of the answer in it. */
static void see_again(sequence *sequence) {
    const avo_session *session = sequence->session;
    sampler_see_nothing(sequence->sampler);
    for (uint32_t i = 0; i < session->count; i++) {
        uint64_t position = i < session->ring_keep ? i : i + session->forgotten;
        if (position < sequence->answer_from)
            sampler_see_prompt(sequence->sampler, &session->tokens[i], 1);
        else
            sampler_see_output(sequence->sampler, session->tokens[i]);
    }
}

/* The timeline has the token now, not computed yet; one that the context has no place for ends the
 * answer. */
static void keep_token(sequence *sequence, int32_t token) {
    avo_session *session = sequence->session;
    uint64_t forgotten = session->forgotten;
    if (session->count < sequence->options.context_max)
        session_append(session, &token, 1);
    if (session->forgotten == forgotten)
        sampler_see_output(sequence->sampler, token);
    else
        see_again(sequence);
}

/* Bytes of text that the token releases, and whether a stop string is complete. */
static avo_status match_stops(sequence *sequence, int32_t token, bool ends, uint32_t *released,
                              bool *stopped, avo_error *error) {
    buffer *out = sequence->options.text_buffer;
    const char *text;
    size_t bytes = 0;
    *released = 0;
    *stopped = false;
    if (sequence->stops == NULL)
        return AVO_OK;
    out->size = 0;
    if (!ends)
        AVO_TRY(decode_stream_push(&sequence->stream, token, out, error));
    if (sequence->drawn < sequence->options.request->min_new_tokens) {
        *released = (uint32_t)out->size; /* no stop string counts yet, or begins here */
        return AVO_OK;
    }
    AVO_TRY(
        stop_matcher_push(sequence->stops, out->data, out->size, &text, &bytes, stopped, error));
    *released = (uint32_t)bytes;
    return AVO_OK;
}

/* The grammar follows the token; *ends where nothing may come behind it. */
static avo_status follow(sequence *sequence, int32_t token, bool *ends, avo_error *error) {
    if (sequence->matcher == NULL || *ends)
        return AVO_OK;
    AVO_TRY(grammar_matcher_follow(sequence->matcher, token, error));
    *ends = grammar_matcher_over(sequence->matcher);
    return AVO_OK;
}

static avo_status constrain(sequence *sequence, avo_error *error) {
    const uint64_t *allowed = NULL;
    if (sequence->matcher == NULL && sequence->going_on == NULL)
        return AVO_OK;
    if (sequence->matcher != NULL)
        AVO_TRY(grammar_matcher_mask(sequence->matcher, &allowed, error));
    sampler_allow(sequence->sampler, sequence_without_ends(sequence, allowed));
    return AVO_OK;
}

/* The first reason to end; false: the answer goes on. */
static bool is_over(sequence *sequence, bool ends, bool stopped, bool unwanted) {
    const avo_request *request = sequence->options.request;
    if (ends)
        sequence->finish = AVO_FINISH_STOP_TOKEN;
    else if (stopped)
        sequence->finish = AVO_FINISH_STOP_STRING;
    else if (unwanted)
        sequence->finish = AVO_FINISH_CANCELLED;
    else if (request->max_new_tokens > 0 && sequence->drawn >= request->max_new_tokens)
        sequence->finish = AVO_FINISH_LENGTH;
    else if (sequence->drawn >= request->min_new_tokens && sequence_repeats(sequence))
        sequence->finish = AVO_FINISH_REPETITION;
    else if (sequence->session->computed >= sequence->options.context_max)
        sequence->finish = AVO_FINISH_CONTEXT;
    else
        return false;
    return true;
}

/* A lossy policy accepts the draft behind this row, though it may not be the token that would be
 * sampled. What a grammar forbids is never accepted. */
static avo_status accept_lossy(const sequence *sequence, const sequence_step *step, uint32_t row,
                               sample_choice *choice, bool *accepted, avo_error *error) {
    const uint64_t *allowed = NULL;
    const float *logits;
    *accepted = false;
    if (step->policy == NULL || row >= step->draft_count)
        return AVO_OK;
    uint32_t token = (uint32_t)step->drafts[row];
    if (sequence->matcher != NULL)
        AVO_TRY(grammar_matcher_mask(sequence->matcher, &allowed, error));
    allowed = sequence_without_ends(sequence, allowed);
    if (allowed != NULL && (allowed[token / 64] >> token % 64 & 1) == 0)
        return AVO_OK;
    AVO_TRY(batch_logits(step->batch, sequence->session, row, &logits, error));
    *choice = (sample_choice){.token = (int32_t)token};
    *accepted = draft_policy_allows(step->policy, logits, sequence->options.model->view.vocabulary,
                                    (double)sequence->options.sampling->temperature, choice->token,
                                    &choice->logprob);
    return AVO_OK;
}

/* One token from one row; *agrees: the next row was computed for this very token. The position that
 * keys a draw never comes again, however often a ring turns. */
static avo_status accept_row(sequence *sequence, const sequence_step *step, uint32_t row,
                             sequence_outcome *outcome, bool *agrees, avo_error *error) {
    const avo_session *session = sequence->session;
    uint64_t position = session->count + session->forgotten;
    sample_choice choice;
    uint32_t released;
    bool stopped;
    AVO_TRY(constrain(sequence, error));
    bool lossy;
    AVO_TRY(accept_lossy(sequence, step, row, &choice, &lossy, error));
    if (!lossy)
        AVO_TRY(draw(sequence, session, step->batch, row, position, &choice, error));
    *agrees = row < step->draft_count && step->drafts[row] == choice.token;
    if (sequence->drawn++ == 0)
        sequence->answer_from = position;
    keep_token(sequence, choice.token);
    bool ends = sequence_stops_at(sequence, choice.token);
    sequence->stop_token = ends ? choice.token : -1;
    AVO_TRY(match_stops(sequence, choice.token, ends, &released, &stopped, error));
    AVO_TRY(follow(sequence, choice.token, &ends, error));
    bool unwanted = !step->take(step->context, &choice, released);
    outcome->accepted++;
    outcome->finished = is_over(sequence, ends, stopped, unwanted);
    return AVO_OK;
}

avo_status sequence_accept(sequence *sequence, const sequence_step *step, sequence_outcome *outcome,
                           avo_error *error) {
    avo_status status = AVO_OK;
    bool agrees = true;
    *outcome = (sequence_outcome){0};
    for (uint32_t row = 0; agrees && status == AVO_OK && !outcome->finished; row++) {
        agrees = false;
        sequence->session->computed += row > 0; /* the row was computed for the token before */
        status = accept_row(sequence, step, row, outcome, &agrees, error);
    }
    if (step->draft_count > 0)
        session_settle(sequence->session);
    return status;
}

void sequence_name_stop(const sequence *sequence, avo_result *result) {
    size_t index = 0;
    if (result->finish == AVO_FINISH_STOP_TOKEN) {
        result->stop_token = sequence->stop_token;
        if (sequence->stop_token >= 0)
            result->stop_index = stop_token_index(sequence->options.request, sequence->stop_token);
    }
    if (result->finish != AVO_FINISH_STOP_STRING)
        return;
    result->stop_string = stop_matcher_found(sequence->stops, &index);
    result->stop_index = (int32_t)index;
}

/* ---- Text ---- */

void sequence_text_open(sequence_text *text, const avo_model *model, buffer *out, char *held) {
    *text = (sequence_text){.exists = model->tokenizer != NULL, .out = out, .held = held};
    if (!text->exists)
        return;
    decode_stream_init(&text->stream, model->tokenizer, false);
    decode_stream_continue(&text->stream);
}

avo_status sequence_text_push(sequence_text *text, int32_t token, bool ends, uint32_t released,
                              text_view *shown, avo_error *error) {
    buffer *out = text->out;
    out->size = 0;
    if (text->held_bytes > 0 && buffer_append(out, text->held, text->held_bytes) != AVO_OK)
        return status_no_memory(error, "text held for a stop string", text->held_bytes);
    if (text->exists && !ends)
        AVO_TRY(decode_stream_push(&text->stream, token, out, error));
    *shown = buffer_text(out);
    if (text->held == NULL)
        return AVO_OK;
    /* Behind a complete stop string there may be more than fits, and none of it is shown. */
    size_t rest = out->size - released;
    text->held_bytes = rest <= STOP_STRING_BYTES_MAX ? rest : 0;
    if (text->held_bytes > 0)
        memcpy(text->held, out->data + released, text->held_bytes);
    shown->size = released;
    return AVO_OK;
}

avo_status sequence_text_finish(sequence_text *text, stop_matcher *stops, avo_finish *finish,
                                sequence_show show, void *context, avo_error *error) {
    buffer *out = text->out;
    bool stopped = false;
    if (*finish == AVO_FINISH_STOP_STRING || *finish == AVO_FINISH_CANCELLED)
        return AVO_OK;
    out->size = 0;
    if (text->exists)
        AVO_TRY(decode_stream_finish(&text->stream, out, error));
    text_view shown = buffer_text(out);
    if (stops != NULL)
        AVO_TRY(stop_matcher_push(stops, out->data, out->size, &shown.data, &shown.size, &stopped,
                                  error));
    if (shown.size > 0)
        show(context, shown);
    if (stopped) {
        *finish = AVO_FINISH_STOP_STRING;
        return AVO_OK;
    }
    if (stops == NULL)
        return AVO_OK;
    stop_matcher_finish(stops, &shown.data, &shown.size);
    if (shown.size > 0)
        show(context, shown);
    return AVO_OK;
}
