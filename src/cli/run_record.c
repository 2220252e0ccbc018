/* What a request gave, and its JSON. */
#include "cli/run_int.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void run_record_init(run_record *record) {
    memset(record, 0, sizeof(*record));
    record->result = (avo_result)AVO_RESULT_INIT;
    buffer_init(&record->text, NULL, SIZE_MAX);
    buffer_init(&record->ids, NULL, SIZE_MAX);
    buffer_init(&record->logprobs, NULL, SIZE_MAX);
    buffer_init(&record->prompt_logprobs, NULL, SIZE_MAX);
    buffer_init(&record->embedding, NULL, SIZE_MAX);
    buffer_init(&record->arrivals, NULL, SIZE_MAX);
}

void run_record_free(run_record *record) {
    buffer_free(&record->text);
    buffer_free(&record->ids);
    buffer_free(&record->logprobs);
    buffer_free(&record->prompt_logprobs);
    buffer_free(&record->embedding);
    buffer_free(&record->arrivals);
    avo_chat_parser_close(record->parser);
}

/* Opens an object that the caller closes. */
static void begin_logprob(json_writer *w, const run_record *record, int32_t token, float logprob) {
    char piece[512];
    size_t bytes = 0;
    avo_status status =
        avo_detokenize(record->model, &token, 1, AVO_TOKENIZE_SPECIAL | AVO_TOKENIZE_CONTINUE,
                       piece, sizeof(piece), &bytes, NULL);
    if (status != AVO_OK)
        bytes = 0; /* a piece is a comfort for readers; the id is what counts */
    json_object_begin(w);
    json_member_i64(w, "id", token);
    json_member_text(w, "token", (text_view){piece, bytes});
    json_member_number(w, "logprob", (double)logprob);
}

static avo_status note_logprobs(const run_record *record, const avo_token_event *event,
                                buffer *out) {
    if (out->size > 0)
        AVO_TRY(buffer_append_text(out, ","));
    json_writer w = json_writer_of(out);
    begin_logprob(&w, record, event->token, event->logprob);
    json_member_array_begin(&w, "top");
    for (uint32_t i = 0; i < event->top_count; i++) {
        begin_logprob(&w, record, event->top[i].token, event->top[i].logprob);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}

/* The text of an event, NULL: what was held back at the end. */
static avo_status note_content(run_record *record, const avo_token_event *event) {
    avo_chat_delta delta = AVO_CHAT_DELTA_INIT;
    AVO_TRY(avo_chat_parser_push(record->parser, event, &delta, NULL));
    return buffer_append(&record->text, delta.content, delta.content_bytes);
}

avo_status run_record_token(run_record *record, const avo_token_event *event) {
    uint64_t now = clock_now_ns();
    text_view text = {event->text, event->text_bytes};
    AVO_TRY(record->parser != NULL ? note_content(record, event)
                                   : buffer_append(&record->text, text.data, text.size));
    if (event->token < 0) /* no token, only text that had been held back */
        return AVO_OK;
    AVO_TRY(buffer_append(&record->arrivals, &now, sizeof(now)));
    AVO_TRY(buffer_append(&record->ids, &event->token, sizeof(event->token)));
    return record->wants_logprobs ? note_logprobs(record, event, &record->logprobs) : AVO_OK;
}

avo_status run_record_end(run_record *record) {
    return record->parser == NULL ? AVO_OK : note_content(record, NULL);
}

avo_status run_record_prompt(run_record *record, const avo_token_event *event) {
    return note_logprobs(record, event, &record->prompt_logprobs);
}

avo_status run_record_embedding(run_record *record, const float *values, uint32_t count) {
    buffer *out = &record->embedding;
    for (uint32_t i = 0; i < count; i++) {
        AVO_TRY(buffer_append_text(out, i > 0 ? "," : ""));
        AVO_TRY(json_write_number(out, (double)values[i]));
    }
    return AVO_OK;
}

double run_prefill_rate(const run_record *record) {
    double seconds = record->result.prefill_seconds;
    return seconds > 0.0 ? (double)record->prefilled / seconds : 0.0;
}

double run_decode_rate(const run_record *record) {
    double seconds = record->result.decode_seconds;
    uint32_t tokens = record->result.new_tokens;
    return seconds > 0.0 && tokens > 1 ? (double)(tokens - 1) / seconds : 0.0;
}

static void write_items(json_writer *w, const char *key, const buffer *items) {
    json_member_array_begin(w, key);
    json_raw_items(w, buffer_text(items));
    json_end(w);
}

/* The same for the same answer to a prompt of the same length: one that follows it in a
 * conversation has another. */
static void write_call_id(json_writer *w, const run_record *record, size_t index) {
    char id[40];
    uint32_t word[2] = {record->result.prompt_tokens, (uint32_t)index};
    uint64_t sum = 0xcbf29ce484222325u; /* FNV-1a by words: Python's command computes the same */
    for (size_t i = 0; i < 2; i++)
        sum = (sum ^ word[i]) * 0x100000001b3u;
    for (size_t at = 0; at < record->ids.size; at += sizeof(word[0])) {
        memcpy(word, record->ids.data + at, sizeof(word[0]));
        sum = (sum ^ word[0]) * 0x100000001b3u;
    }
    snprintf(id, sizeof(id), "call_%016llx", (unsigned long long)sum);
    json_member_string(w, "id", id);
}

/* Calls with their arguments as text, as OpenAI has them; how many. */
static size_t write_calls(json_writer *w, const run_record *record) {
    size_t count = 0;
    avo_tool_call call = AVO_TOOL_CALL_INIT;
    for (; record->parser != NULL && avo_chat_parser_call(record->parser, count, &call); count++) {
        if (count == 0)
            json_member_array_begin(w, "tool_calls");
        json_object_begin(w);
        write_call_id(w, record, count);
        json_member_string(w, "type", "function");
        json_member_object_begin(w, "function");
        json_member_text(w, "name", (text_view){call.name, call.name_bytes});
        json_member_text(w, "arguments", (text_view){call.arguments, call.arguments_bytes});
        json_end(w);
        json_end(w);
    }
    if (count > 0)
        json_end(w);
    return count;
}

/* The stop of the request that ended the answer: a string, or a token id. The model's own end is
 * not one: null, as where something else ended it. */
static void write_stop_reason(json_writer *w, const avo_result *result) {
    if (result->finish == AVO_FINISH_STOP_TOKEN && result->stop_index >= 0)
        json_member_i64(w, "stop_reason", result->stop_token);
    else
        json_member_string(w, "stop_reason", result->stop_string);
}

void run_write_answer(json_writer *w, const run_record *record) {
    const avo_result *result = &record->result;
    json_member_text(w, "text", buffer_text(&record->text));
    size_t calls = write_calls(w, record);
    json_member_array_begin(w, "ids");
    for (size_t at = 0; at < record->ids.size; at += sizeof(int32_t)) {
        int32_t id;
        memcpy(&id, record->ids.data + at, sizeof(id));
        json_i64(w, id);
    }
    json_end(w);
    if (record->wants_logprobs)
        write_items(w, "logprobs", &record->logprobs);
    if (record->prompt_logprobs.size > 0)
        write_items(w, "prompt_logprobs", &record->prompt_logprobs);
    if (record->embedding.size > 0)
        write_items(w, "embedding", &record->embedding);
    json_member_string(w, "finish_reason", calls > 0 ? "tool_calls" : finish_text(result->finish));
    write_stop_reason(w, result);
    json_member_object_begin(w, "usage");
    json_member_u64(w, "prompt_tokens", result->prompt_tokens);
    json_member_u64(w, "completion_tokens", result->new_tokens);
    json_member_u64(w, "total_tokens", result->prompt_tokens + result->new_tokens);
    json_member_u64(w, "drafted", result->drafted_tokens);
    json_member_u64(w, "accepted", result->accepted_tokens);
    json_end(w);
    if (record->use_count > 0)
        run_adapters_write(w, record->adapters, record->uses, record->use_count);
}

/* Milliseconds and rates to three decimals: more is noise. */
void run_write_json(json_writer *w, const run_record *record) {
    json_object_begin(w);
    json_member_string(w, "model", record->model_name);
    json_member_text(w, "prompt", record->prompt);
    run_write_answer(w, record);
    json_member_object_begin(w, "timings");
    json_member_fixed(w, "load_ms", record->load_seconds * 1e3, 3);
    json_member_fixed(w, "ttft_ms", record->result.first_token_seconds * 1e3, 3);
    json_member_fixed(w, "prefill_tps", run_prefill_rate(record), 3);
    json_member_fixed(w, "decode_tps", run_decode_rate(record), 3);
    json_end(w);
    json_end(w);
}
