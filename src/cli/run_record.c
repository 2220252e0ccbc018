/* What a request gave, and its JSON. */
#include "cli/run_int.h"

#include "base/clock.h"
#include "base/json.h"

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
}

/* ,"token":"…" of one id. */
static avo_status write_piece(const run_record *record, int32_t token, buffer *out) {
    char piece[512];
    size_t bytes = 0;
    avo_status status =
        avo_detokenize(record->model, &token, 1, AVO_TOKENIZE_SPECIAL | AVO_TOKENIZE_CONTINUE,
                       piece, sizeof(piece), &bytes, NULL);
    if (status != AVO_OK)
        bytes = 0; /* a piece is a comfort for readers; the id is what counts */
    AVO_TRY(buffer_append_text(out, ",\"token\":"));
    return json_write_string(out, (text_view){piece, bytes});
}

static avo_status write_logprob(const run_record *record, int32_t token, float logprob,
                                buffer *out) {
    AVO_TRY(buffer_format(out, "{\"id\":%d", token));
    AVO_TRY(write_piece(record, token, out));
    AVO_TRY(buffer_append_text(out, ",\"logprob\":"));
    return json_write_number(out, (double)logprob);
}

static avo_status note_logprobs(const run_record *record, const avo_token_event *event,
                                buffer *out) {
    if (out->size > 0)
        AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_logprob(record, event->token, event->logprob, out));
    AVO_TRY(buffer_append_text(out, ",\"top\":["));
    for (uint32_t i = 0; i < event->top_count; i++) {
        if (i > 0)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(write_logprob(record, event->top[i].token, event->top[i].logprob, out));
        AVO_TRY(buffer_append_text(out, "}"));
    }
    return buffer_append_text(out, "]}");
}

avo_status run_record_token(run_record *record, const avo_token_event *event) {
    uint64_t now = clock_now_ns();
    AVO_TRY(buffer_append(&record->text, event->text, event->text_bytes));
    if (event->token < 0) /* no token, only text that had been held back */
        return AVO_OK;
    AVO_TRY(buffer_append(&record->arrivals, &now, sizeof(now)));
    AVO_TRY(buffer_append(&record->ids, &event->token, sizeof(event->token)));
    return record->wants_logprobs ? note_logprobs(record, event, &record->logprobs) : AVO_OK;
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

static avo_status write_ids(const run_record *record, buffer *out) {
    size_t count = record->ids.size / sizeof(int32_t);
    AVO_TRY(buffer_append_text(out, "["));
    for (size_t i = 0; i < count; i++) {
        int32_t id;
        memcpy(&id, record->ids.data + i * sizeof(id), sizeof(id));
        AVO_TRY(buffer_format(out, i > 0 ? ",%d" : "%d", id));
    }
    return buffer_append_text(out, "]");
}

/* Milliseconds and rates to three decimals: more is noise. */
static avo_status write_timing(buffer *out, const char *name, double value, const char *separator) {
    return buffer_format(out, "%s\"%s\":%.3f", separator, name, value);
}

avo_status run_write_answer(const run_record *record, buffer *out) {
    const avo_result *result = &record->result;
    AVO_TRY(buffer_append_text(out, "\"text\":"));
    AVO_TRY(json_write_string(out, buffer_text(&record->text)));
    AVO_TRY(buffer_append_text(out, ",\"ids\":"));
    AVO_TRY(write_ids(record, out));
    if (record->wants_logprobs) {
        AVO_TRY(buffer_append_text(out, ",\"logprobs\":["));
        AVO_TRY(buffer_append(out, record->logprobs.data, record->logprobs.size));
        AVO_TRY(buffer_append_text(out, "]"));
    }
    if (record->prompt_logprobs.size > 0) {
        AVO_TRY(buffer_append_text(out, ",\"prompt_logprobs\":["));
        AVO_TRY(buffer_append(out, record->prompt_logprobs.data, record->prompt_logprobs.size));
        AVO_TRY(buffer_append_text(out, "]"));
    }
    if (record->embedding.size > 0) {
        AVO_TRY(buffer_append_text(out, ",\"embedding\":["));
        AVO_TRY(buffer_append(out, record->embedding.data, record->embedding.size));
        AVO_TRY(buffer_append_text(out, "]"));
    }
    AVO_TRY(buffer_format(out,
                          ",\"finish_reason\":\"%s\",\"usage\":{\"prompt_tokens\":%u,"
                          "\"completion_tokens\":%u,\"total_tokens\":%u}",
                          finish_text(result->finish), result->prompt_tokens, result->new_tokens,
                          result->prompt_tokens + result->new_tokens));
    if (record->use_count == 0)
        return AVO_OK;
    return run_adapters_write(record->adapters, record->uses, record->use_count, out);
}

avo_status run_write_json(const run_record *record, buffer *out) {
    const avo_result *result = &record->result;
    AVO_TRY(buffer_append_text(out, "{\"model\":"));
    AVO_TRY(json_write_string(out, text_from(record->model_name)));
    AVO_TRY(buffer_append_text(out, ",\"prompt\":"));
    AVO_TRY(json_write_string(out, record->prompt));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(run_write_answer(record, out));
    AVO_TRY(buffer_append_text(out, ",\"timings\":{"));
    AVO_TRY(write_timing(out, "load_ms", record->load_seconds * 1e3, ""));
    AVO_TRY(write_timing(out, "ttft_ms", result->first_token_seconds * 1e3, ","));
    AVO_TRY(write_timing(out, "prefill_tps", run_prefill_rate(record), ","));
    AVO_TRY(write_timing(out, "decode_tps", run_decode_rate(record), ","));
    return buffer_append_text(out, "}}");
}
