/* What writers of all families share: ends, usage, log-probabilities. */
#include "server/api/answer.h"

#include "base/random.h"

#include <math.h>
#include <stdio.h>

/* ---- Ends ---- */

size_t choice_calls(const choice *c) {
    size_t count = c->parser == NULL ? 0 : chat_parser_count(c->parser);
    return count > 1 && !c->answer->request->parallel_calls ? 1 : count;
}

const tool_call *choice_call(const choice *c, size_t index) {
    return chat_parser_call(c->parser, index);
}

void choice_call_id(const choice *c, size_t index, const char *prefix, char *id, size_t capacity) {
    const answer *a = c->answer;
    random_block block = random_at(a->api->secret, a->number, (uint64_t)c->index << 32 | index);
    snprintf(id, capacity, "%s%08x%08x%08x", prefix, block.words[0], block.words[1],
             block.words[2]);
}

bool ends_in_calls(const choice *c) {
    size_t calls = choice_calls(c);
    return calls > 0 && !choice_call(c, calls - 1)->cut;
}

const char *finish_name(const choice *c) {
    bool stopped =
        c->result.finish == AVO_FINISH_STOP_TOKEN || c->result.finish == AVO_FINISH_STOP_STRING;
    if (ends_in_calls(c))
        return "tool_calls";
    if (c->result.finish == AVO_FINISH_REPETITION)
        return "repetition";
    return stopped ? "stop" : "length";
}

const char *finish_detail(const choice *c) {
    switch (c->result.finish) {
    case AVO_FINISH_DEADLINE:
        return "deadline";
    case AVO_FINISH_CONTEXT:
        return "context";
    default:
        return NULL;
    }
}

const char *stopped_by(const choice *c) {
    int32_t index = c->result.stop_index;
    bool stopped = c->result.finish == AVO_FINISH_STOP_STRING && index >= 0;
    return stopped ? c->answer->request->submit.stop[index] : NULL;
}

void write_choice_end(json_writer *w, const choice *c) {
    const api_request *r = c->answer->request;
    const char *detail = finish_detail(c);
    json_member_string(w, "finish_reason", finish_name(c));
    /* A token id where the request named it; the model's own end is null, as in vLLM. */
    if (c->result.finish == AVO_FINISH_STOP_TOKEN && c->result.stop_index >= 0)
        json_member_i64(w, "stop_reason", c->result.stop_token);
    else
        json_member_string(w, "stop_reason", detail == NULL ? stopped_by(c) : detail);
    json_member_i64(w, "seed", (int64_t)(r->sampling.seed + c->index % r->best_of));
}

/* ---- Usage ---- */

answer_usage usage_of(const answer *a) {
    answer_usage usage = {0};
    uint32_t told = 0;
    for (uint32_t i = 0; i < a->choice_count; i++) {
        const choice *c = &a->choices[i];
        const avo_result *result = &c->result;
        if (i % a->request->best_of == 0) {
            usage.prompt_tokens += result->prompt_tokens;
            usage.cached_tokens += result->reused_tokens;
        }
        usage.new_tokens += result->new_tokens;
        usage.reasoning_tokens += c->reasoning_tokens;
        usage.drafted_tokens += result->drafted_tokens;
        usage.accepted_tokens += result->accepted_tokens;
        if (i == 0)
            usage.queue_seconds = result->queue_seconds;
        if (result->new_tokens > 0) {
            usage.first_token_seconds =
                told == 0 ? result->first_token_seconds
                          : fmin(usage.first_token_seconds, result->first_token_seconds);
            told++;
        }
        usage.total_seconds = fmax(usage.total_seconds, result->total_seconds);
    }
    double seconds = usage.total_seconds - usage.first_token_seconds;
    if (usage.new_tokens > told && seconds > 0.0)
        usage.tokens_per_second = (double)(usage.new_tokens - told) / seconds;
    return usage;
}

void write_drafts(json_writer *w, const answer_usage *usage) {
    if (usage->drafted_tokens == 0)
        return;
    json_member_u64(w, "accepted_prediction_tokens", usage->accepted_tokens);
    json_member_u64(w, "rejected_prediction_tokens",
                    usage->drafted_tokens - usage->accepted_tokens);
}

void write_timings(json_writer *w, const answer_usage *usage) {
    json_member_object_begin(w, "timings");
    json_member_fixed(w, "queue_ms", usage->queue_seconds * 1e3, 3);
    json_member_fixed(w, "first_token_ms", usage->first_token_seconds * 1e3, 3);
    json_member_fixed(w, "total_ms", usage->total_seconds * 1e3, 3);
    json_member_fixed(w, "tokens_per_second", usage->tokens_per_second, 3);
    json_end(w);
}

void write_usage(json_writer *w, const answer *a) {
    answer_usage usage = usage_of(a);
    json_member_object_begin(w, "usage");
    json_member_u64(w, "prompt_tokens", usage.prompt_tokens);
    json_member_u64(w, "completion_tokens", usage.new_tokens);
    json_member_u64(w, "total_tokens", usage.prompt_tokens + usage.new_tokens);
    json_member_object_begin(w, "prompt_tokens_details");
    json_member_u64(w, "cached_tokens", usage.cached_tokens);
    json_end(w);
    json_member_object_begin(w, "completion_tokens_details");
    json_member_u64(w, "reasoning_tokens", usage.reasoning_tokens);
    write_drafts(w, &usage);
    json_end(w);
    write_timings(w, &usage);
    json_end(w);
}

/* ---- Log-probabilities ---- */

void write_logprob(json_writer *w, float value) {
    if (isinf(value))
        json_raw(w, value < 0.0f ? TEXT_LITERAL("-9999.0") : TEXT_LITERAL("9999.0"));
    else
        json_float(w, value);
}

static void write_token(json_writer *w, const answer *a, int32_t token, float logprob,
                        buffer *piece) {
    json_writer_note(w, api_piece(a->api->model, token, piece));
    json_member_text(w, "token", buffer_text(piece));
    json_key(w, "logprob");
    write_logprob(w, logprob);
    json_member_array_begin(w, "bytes");
    for (size_t i = 0; i < piece->size; i++)
        json_u64(w, (unsigned char)piece->data[i]);
    json_end(w);
}

avo_status entries_begin(buffer *entries) {
    return entries->size > 0 ? buffer_append_text(entries, ",") : AVO_OK;
}

avo_status write_logprob_entry(const answer *a, const avo_token_event *token, buffer *entries) {
    AVO_TRY(entries_begin(entries));
    buffer piece;
    buffer_init(&piece, NULL, API_TEXT_BYTES_MAX);
    json_writer w = json_writer_of(entries);
    json_object_begin(&w);
    write_token(&w, a, token->token, token->logprob, &piece);
    json_member_array_begin(&w, "top_logprobs");
    for (uint32_t i = 0; i < token->top_count; i++) {
        json_object_begin(&w);
        write_token(&w, a, token->top[i].token, token->top[i].logprob, &piece);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    buffer_free(&piece);
    return json_writer_status(&w);
}

/* ---- Log-probabilities of prompts ---- */

/* The text of a token is its bytes where they are one; the rank is known of the highest alone. */
static void write_prompt_token(json_writer *w, const answer *a, int32_t token, float logprob,
                               uint32_t rank, buffer *piece) {
    char id[16];
    snprintf(id, sizeof(id), "%d", token);
    json_member_object_begin(w, id);
    json_key(w, "logprob");
    write_logprob(w, logprob);
    json_key(w, "rank");
    if (rank > 0)
        json_u64(w, rank);
    else
        json_null(w);
    json_writer_note(w, api_piece(a->api->model, token, piece));
    json_member_text(w, "decoded_token", buffer_text(piece));
    json_end(w);
}

avo_status write_prompt_entry(choice *c, const avo_token_event *token) {
    const answer *a = c->answer;
    buffer *out = &c->prompt_entries;
    AVO_TRY(entries_begin(out));
    if (isnan(token->logprob)) /* the first */
        return buffer_append_text(out, "null");
    buffer piece;
    buffer_init(&piece, NULL, API_TEXT_BYTES_MAX);
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    uint32_t own = 0;
    for (uint32_t i = 0; i < token->top_count; i++)
        if (token->top[i].token == token->token)
            own = i + 1;
    write_prompt_token(&w, a, token->token, token->logprob, own, &piece);
    for (uint32_t i = 0; i < token->top_count && i < a->request->prompt_tops; i++)
        if (i + 1 != own)
            write_prompt_token(&w, a, token->top[i].token, token->top[i].logprob, i + 1, &piece);
    json_end(&w);
    buffer_free(&piece);
    return json_writer_status(&w);
}

void write_prompt_logprobs(json_writer *w, const choice *c) {
    const answer *a = c->answer;
    if (a->request->prompt_tops == PROMPT_TOPS_NONE)
        return;
    const choice *first = &a->choices[c->index - c->index % a->request->best_of];
    json_member_array_begin(w, "prompt_logprobs");
    json_raw_items(w, buffer_text(&first->prompt_entries));
    json_end(w);
}

/* ---- Events of streams ---- */

avo_status event_begin(buffer *out, const char *name) {
    return name == NULL ? buffer_append_text(out, "data: ")
                        : buffer_format(out, "event: %s\ndata: ", name);
}

avo_status event_end(const json_writer *w) {
    AVO_TRY(json_writer_status(w));
    return buffer_append_text(w->out, "\n\n");
}

avo_status stream_begin(answer *a, buffer *out) {
    (void)a;
    (void)out;
    return AVO_OK;
}

void write_openai_head(json_writer *w, const answer *a, const char *object) {
    json_member_string(w, "id", a->id);
    json_member_string(w, "object", object);
    json_member_i64(w, "created", a->created);
    json_member_string(w, "model", a->request->model);
    json_member_string(w, "system_fingerprint", "avocet-" AVO_VERSION_TEXT);
}

avo_status stream_end(answer *a, buffer *out) {
    if (a->request->include_usage) {
        AVO_TRY(event_begin(out, NULL));
        json_writer w = json_writer_of(out);
        json_object_begin(&w);
        write_openai_head(&w, a, a->writer->chunk);
        json_member_array_begin(&w, "choices");
        json_end(&w);
        write_usage(&w, a);
        json_end(&w);
        AVO_TRY(event_end(&w));
    }
    return buffer_append_text(out, "data: [DONE]\n\n");
}

avo_status stream_error(answer *a, const api_fault *fault, buffer *out) {
    AVO_TRY(event_begin(out, NULL));
    AVO_TRY(exchange_write_error(out, exchange_asked(a->exchange), fault->status,
                                 fault->param[0] == '\0' ? NULL : fault->param, fault->code,
                                 fault->text));
    return buffer_append_text(out, "\n\n");
}
