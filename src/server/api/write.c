/* What writers of all families share: ends, usage, log-probabilities. */
#include "server/api/answer.h"

#include "base/number.h"
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

avo_status write_choice_end(const choice *c, buffer *out) {
    const char *detail = finish_detail(c);
    const char *stop = detail == NULL ? stopped_by(c) : detail;
    AVO_TRY(buffer_format(out, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish_name(c)));
    AVO_TRY(stop == NULL ? buffer_append_text(out, "null")
                         : json_write_string(out, text_from(stop)));
    return buffer_format(
        out, ",\"seed\":%lld",
        (long long)(c->answer->request->sampling.seed + c->index % c->answer->request->best_of));
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

static avo_status write_rounded(buffer *out, const char *name, double value) {
    char text[NUMBER_TEXT_MAX * 2];
    number_to_text(text, sizeof(text), 'f', 3, value);
    return buffer_format(out, "\"%s\":%s", name, text);
}

avo_status write_timings(const answer_usage *usage, buffer *out) {
    AVO_TRY(buffer_append_text(out, "\"timings\":{"));
    AVO_TRY(write_rounded(out, "queue_ms", usage->queue_seconds * 1e3));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_rounded(out, "first_token_ms", usage->first_token_seconds * 1e3));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_rounded(out, "total_ms", usage->total_seconds * 1e3));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_rounded(out, "tokens_per_second", usage->tokens_per_second));
    return buffer_append_text(out, "}");
}

avo_status write_usage(const answer *a, buffer *out) {
    answer_usage usage = usage_of(a);
    AVO_TRY(buffer_format(out,
                          "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,"
                          "\"total_tokens\":%llu,\"prompt_tokens_details\":{\"cached_tokens\":"
                          "%llu},\"completion_tokens_details\":{\"reasoning_tokens\":0},",
                          (unsigned long long)usage.prompt_tokens,
                          (unsigned long long)usage.new_tokens,
                          (unsigned long long)(usage.prompt_tokens + usage.new_tokens),
                          (unsigned long long)usage.cached_tokens));
    AVO_TRY(write_timings(&usage, out));
    return buffer_append_text(out, "}");
}

/* ---- Log-probabilities ---- */

avo_status write_float(buffer *out, float value) {
    if (isnan(value))
        return buffer_append_text(out, "null");
    if (isinf(value))
        return buffer_append_text(out, value < 0.0f ? "-9999.0" : "9999.0");
    char text[NUMBER_TEXT_MAX];
    for (int precision = 6; precision <= 9; precision++) {
        number_to_text(text, sizeof(text), 'g', precision, (double)value);
        if ((float)number_from_text(text, NULL) == value)
            break;
    }
    return buffer_append_text(out, text);
}

static avo_status write_token(const answer *a, int32_t token, float logprob, buffer *piece,
                              buffer *out) {
    AVO_TRY(api_piece(a->api->model, token, piece));
    AVO_TRY(buffer_append_text(out, "{\"token\":"));
    AVO_TRY(json_write_string(out, buffer_text(piece)));
    AVO_TRY(buffer_append_text(out, ",\"logprob\":"));
    AVO_TRY(write_float(out, logprob));
    AVO_TRY(buffer_append_text(out, ",\"bytes\":["));
    for (size_t i = 0; i < piece->size; i++)
        AVO_TRY(buffer_format(out, i > 0 ? ",%u" : "%u", (unsigned char)piece->data[i]));
    return buffer_append_text(out, "]");
}

static avo_status write_entry(const answer *a, const avo_token_event *token, buffer *piece,
                              buffer *out) {
    AVO_TRY(write_token(a, token->token, token->logprob, piece, out));
    AVO_TRY(buffer_append_text(out, ",\"top_logprobs\":["));
    for (uint32_t i = 0; i < token->top_count; i++) {
        if (i > 0)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(write_token(a, token->top[i].token, token->top[i].logprob, piece, out));
        AVO_TRY(buffer_append_text(out, "}"));
    }
    return buffer_append_text(out, "]}");
}

avo_status write_logprob_entry(const answer *a, const avo_token_event *token, buffer *out) {
    buffer piece;
    buffer_init(&piece, NULL, API_TEXT_BYTES_MAX);
    avo_status status = write_entry(a, token, &piece, out);
    buffer_free(&piece);
    return status;
}

/* ---- Errors and small parts ---- */

avo_status write_error(const api_fault *fault, buffer *out) {
    AVO_TRY(buffer_append_text(out, "{\"error\":{\"message\":"));
    AVO_TRY(json_write_string(out, text_from(fault->text)));
    AVO_TRY(buffer_format(out, ",\"type\":\"%s\",\"param\":", exchange_error_type(fault->status)));
    AVO_TRY(fault->param[0] == '\0' ? buffer_append_text(out, "null")
                                    : json_write_string(out, text_from(fault->param)));
    AVO_TRY(buffer_append_text(out, ",\"code\":"));
    AVO_TRY(fault->code == NULL ? buffer_append_text(out, "null")
                                : json_write_string(out, text_from(fault->code)));
    return buffer_append_text(out, "}}");
}

avo_status write_member(buffer *out, const char *name, text_view text) {
    AVO_TRY(buffer_format(out, "\"%s\":", name));
    return json_write_string(out, text);
}

avo_status stream_begin(answer *a, buffer *out) {
    (void)a;
    (void)out;
    return AVO_OK;
}

avo_status stream_error(answer *a, const api_fault *fault, buffer *out) {
    (void)a;
    AVO_TRY(buffer_append_text(out, "data: "));
    AVO_TRY(write_error(fault, out));
    return buffer_append_text(out, "\n\n");
}
