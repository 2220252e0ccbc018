/* What the scheduler tells telemetry: stages of requests, and its counts to whoever exports. */
#include "sched/scheduler_int.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* ---- Opening and closing ---- */

static void read_counts(void *context, telemetry_counts *counts) {
    const avo_scheduler *s = context;
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(context, &info);
    uint32_t most = s->options.adapters_max, running_max = s->options.running_max;
    *counts =
        (telemetry_counts){.running = info.running,
                           .adapters_max = most > 0 && most < running_max ? most : running_max,
                           .waiting = info.waiting,
                           .submitted = info.submitted,
                           .finished = info.finished,
                           .failed = info.failed,
                           .cancelled = info.cancelled,
                           .refused = info.refused,
                           .expired = info.expired,
                           .preemptions = info.preemptions,
                           .prompt_tokens = info.prompt_tokens,
                           .new_tokens = info.new_tokens,
                           .reused_tokens = info.reused_tokens,
                           .recomputed_tokens = info.recomputed_tokens};
}

avo_status scheduler_telemetry_open(avo_scheduler *s, avo_error *error) {
    avo_telemetry *t = s->engine_limits.telemetry;
    if (t == NULL)
        return AVO_OK;
    AVO_TRY(telemetry_track_open(t, "requests", &s->requests_track, error));
    AVO_TRY(telemetry_track_open(t, "delivery", &s->delivery_track, error));
    for (uint32_t i = 0; i < s->options.tokenizer_threads; i++) {
        char name[32];
        snprintf(name, sizeof(name), "tokenizer %u", i);
        AVO_TRY(telemetry_track_open(t, name, &s->tokenizer_track[i], error));
    }
    return telemetry_source_open(t, read_counts, s, &s->source, error);
}

void scheduler_telemetry_close(avo_scheduler *s) {
    telemetry_source_close(s->source);
    telemetry_track_close(s->requests_track);
    telemetry_track_close(s->delivery_track);
    for (uint32_t i = 0; i < SCHEDULER_TOKENIZERS_MAX; i++)
        telemetry_track_close(s->tokenizer_track[i]);
}

/* ---- Adapters ---- */

static const char *adapter_name(const request *request, size_t index) {
    size_t handles = request->given.adapter_count; /* these come first */
    if (index >= handles)
        return request->given.named_adapters[index - handles].name;
    const char *path = request->uses[index].adapter->path;
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void request_adapters_text(const request *request, char text[static REQUEST_ADAPTERS_TEXT]) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < request->use_count && used < REQUEST_ADAPTERS_TEXT; i++) {
        const char *name = adapter_name(request, i);
        int wrote = snprintf(text + used, REQUEST_ADAPTERS_TEXT - used, "%s%s", i > 0 ? "+" : "",
                             name == NULL ? "unnamed" : name);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

static uint32_t label_of(const request *request) {
    char text[REQUEST_ADAPTERS_TEXT];
    request_adapters_text(request, text);
    return telemetry_adapter(request->scheduler->engine_limits.telemetry, text);
}

/* ---- Stages ---- */

void note_tokenised(request *request, telemetry_track *track, uint64_t begin_ns) {
    avo_telemetry *t = request->scheduler->engine_limits.telemetry;
    if (t == NULL)
        return;
    uint64_t now = clock_now_ns();
    request->label = label_of(request);
    request->noted_waiting = true;
    telemetry_waiting_add(t, request->label, 1);
    telemetry_stage_add(t, STAGE_TOKENISE, request->prepare_ns + now - begin_ns, 1);
    telemetry_track_add(track, &(telemetry_span){.kind = SPAN_TOKENISE,
                                                 .begin_ns = begin_ns,
                                                 .end_ns = now,
                                                 .id = request->number,
                                                 .a = request->prompt_tokens});
}

/* Spans of requests come from several threads, all of which hold the lock. */
static void request_span(request *request, span_kind kind, uint64_t begin_ns, uint64_t end_ns,
                         uint32_t tokens) {
    avo_scheduler *s = request->scheduler;
    telemetry_track_add(s->requests_track,
                        &(telemetry_span){.kind = kind,
                                          .begin_ns = begin_ns,
                                          .end_ns = end_ns,
                                          .id = request->number,
                                          .a = telemetry_track_number(s->engine_limits.track),
                                          .b = tokens});
}

static void note_waits_no_more(request *request) {
    if (request->noted_waiting)
        telemetry_waiting_add(request->scheduler->engine_limits.telemetry, request->label, -1);
    request->noted_waiting = false;
}

void note_begun(request *request) {
    avo_telemetry *t = request->scheduler->engine_limits.telemetry;
    if (t == NULL)
        return;
    uint64_t waited = request->begun_ns - request->submitted_ns;
    telemetry_stage_add(t, STAGE_QUEUE, waited, 1);
    telemetry_time_add(t, TIME_QUEUE, waited, request->begun_ns);
    telemetry_running_add(t, request->label, 1);
    note_waits_no_more(request);
    request_span(request, SPAN_QUEUE, request->submitted_ns, request->begun_ns, 0);
}

void note_token(request *request, uint64_t now) {
    avo_telemetry *t = request->scheduler->engine_limits.telemetry;
    if (t == NULL)
        return;
    bool first = request->last_ns == 0;
    if (!first)
        telemetry_time_add(t, TIME_INTER_TOKEN, now - request->last_ns, now);
    request->last_ns = now;
    if (!first)
        return;
    telemetry_time_add(t, TIME_FIRST_TOKEN, request->first_ns - request->submitted_ns, now);
    telemetry_time_add(t, TIME_PREFILL, request->first_ns - request->begun_ns, now);
    request_span(request, SPAN_PREFILL, request->begun_ns, request->first_ns,
                 request->prompt_tokens);
}

void note_over(request *request) {
    avo_telemetry *t = request->scheduler->engine_limits.telemetry;
    if (t == NULL)
        return;
    telemetry_request told = {.number = request->number,
                              .submitted_ns = request->submitted_ns,
                              .begun_ns = request->begun_ns,
                              .first_ns = request->first_ns,
                              .over_ns = request->over_ns,
                              .prompt_tokens = request->prompt_tokens,
                              .new_tokens = request->sequence.drawn,
                              .new_tokens_max = request->given.max_new_tokens,
                              .adapter = request->label,
                              .finish = request->finish,
                              .failed = request->end != ENDED_FINISHED};
    telemetry_request_over(t, &told);
    note_waits_no_more(request);
    if (request->begun_ns > 0)
        telemetry_running_add(t, request->label, -1);
    if (request->first_ns > 0)
        request_span(request, SPAN_DECODE, request->first_ns, request->over_ns,
                     request->sequence.drawn);
}

/* ---- The engine thread and the delivery thread ---- */

void note_stage(avo_scheduler *s, span_kind kind, uint64_t begin_ns, uint32_t tokens) {
    avo_telemetry *t = s->engine_limits.telemetry;
    if (t == NULL)
        return;
    uint64_t now = clock_now_ns();
    if (kind == SPAN_SAMPLE)
        telemetry_stage_add(t, STAGE_SAMPLE, now - begin_ns, tokens);
    telemetry_track_add(
        s->engine_limits.track,
        &(telemetry_span){.kind = kind, .begin_ns = begin_ns, .end_ns = now, .a = tokens});
}

void note_delivered(avo_scheduler *s, uint64_t number, uint64_t begin_ns, uint32_t tokens) {
    avo_telemetry *t = s->engine_limits.telemetry;
    if (t == NULL)
        return;
    uint64_t now = clock_now_ns();
    telemetry_stage_add(t, STAGE_DELIVER, now - begin_ns, tokens);
    telemetry_track_add(
        s->delivery_track,
        &(telemetry_span){
            .kind = SPAN_DELIVER, .begin_ns = begin_ns, .end_ns = now, .id = number, .a = tokens});
}

void note_drafts(const avo_scheduler *s, uint32_t drafted, uint32_t accepted) {
    telemetry_drafts_add(s->engine_limits.telemetry, drafted, accepted);
}

void note_rates(avo_scheduler *s, const sched_counts *counts) {
    avo_telemetry *t = s->engine_limits.telemetry;
    if (t == NULL)
        return;
    uint64_t now = clock_now_ns();
    telemetry_rate_add(t, RATE_NEW_TOKENS, counts->new_tokens - s->info.new_tokens, now);
    telemetry_rate_add(t, RATE_PROMPT_TOKENS, counts->prompt_tokens - s->info.prompt_tokens, now);
}
