/* What an engine tells telemetry: what it is, its steps, its pages. */
#include "engine/engine_int.h"

#include "base/clock.h"
#include "device/kv_tile.h"

#include <string.h>

static uint64_t matrix_bytes(const weight_view *weight) {
    uint64_t bytes;
    if (weight->data == NULL ||
        !weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes))
        return 0;
    return bytes;
}

/* Layers that see equally far are counted together; kinds beyond the last as the last. */
static void count_seen(const avo_engine *engine, const layer_view *layer, telemetry_facts *facts) {
    uint64_t bytes = layer->kv_heads *
                     (uint64_t)kv_head_bytes(engine->plan.kv_type, layer->head_size) /
                     KV_PAGE_TOKENS;
    size_t at = 0;
    while (at + 1 < TELEMETRY_WINDOWS_MAX && facts->seen[at].position_bytes > 0 &&
           facts->seen[at].window != layer->window)
        at++;
    facts->seen[at].window = layer->window;
    facts->seen[at].position_bytes += bytes;
}

/* What one row reads of a layer's experts. */
static uint64_t experts_bytes(const experts_view *experts) {
    if (experts->count == 0)
        return 0;
    const expert_view *of[] = {&experts->expert[0], &experts->shared};
    uint64_t bytes = matrix_bytes(&experts->router.weight);
    for (uint32_t i = 0; i < 2; i++)
        bytes += (i == 0 ? experts->used : 1) *
                 (matrix_bytes(&of[i]->gate.weight) + matrix_bytes(&of[i]->up.weight) +
                  matrix_bytes(&of[i]->down.weight));
    return bytes;
}

static void count_step(const avo_engine *engine, telemetry_facts *facts) {
    const model_view *model = &engine->view;
    for (uint32_t i = 0; i < model->layers; i++) {
        const layer_view *layer = &model->layer[i];
        const linear_view *matrices[] = {&layer->query, &layer->key, &layer->value, &layer->output,
                                         &layer->gate,  &layer->up,  &layer->down};
        for (size_t j = 0; j < sizeof(matrices) / sizeof(matrices[0]); j++)
            facts->step_bytes += matrix_bytes(&matrices[j]->weight);
        facts->step_bytes += experts_bytes(&layer->experts);
        count_seen(engine, layer, facts);
    }
    facts->step_bytes += matrix_bytes(&model->embedding_project.weight);
    facts->head_bytes =
        matrix_bytes(&model->head_project.weight) + matrix_bytes(&model->head.weight);
}

/* Facts about the whole engine are reported by its first stream. */
static telemetry_facts facts_of(const avo_engine *engine, uint32_t stream) {
    const engine_plan *plan = &engine->plan;
    telemetry_facts facts = {.isa = plan->device.name,
                             .workers = device_stream_workers(engine->stream[stream].stream),
                             .context_max = plan->context_max,
                             .lane = stream};
    if (stream == 0) {
        facts.model_path = engine->model->source->path;
        facts.threads = plan->threads;
        facts.pages = plan->kv_pages;
        facts.page_tokens = KV_PAGE_TOKENS;
        facts.weight_bytes =
            plan->weights.mapped_bytes + plan->converted_bytes + plan->weights.copied_bytes;
        facts.kv_bytes = plan->kv_bytes;
        facts.scratch_bytes = plan->scratch_bytes;
    }
    count_step(engine, &facts);
    return facts;
}

avo_status engine_telemetry_open(avo_engine *engine, avo_error *error) {
    for (uint32_t i = 0; i < engine->plan.streams; i++) {
        engine_stream *stream = &engine->stream[i];
        telemetry_facts facts = facts_of(engine, i);
        AVO_TRY(telemetry_engine_open(engine->plan.telemetry, &facts, &stream->telemetry, error));
        if (stream->telemetry != NULL)
            device_stream_report(stream->stream, stream->telemetry);
    }
    return AVO_OK;
}

void engine_telemetry_close(avo_engine *engine) {
    for (uint32_t i = DEVICE_STREAMS_MAX; i-- > 0;) {
        if (engine->stream[i].telemetry == NULL)
            continue;
        device_stream_report(engine->stream[i].stream, NULL);
        telemetry_engine_close(engine->stream[i].telemetry);
    }
}

void engine_telemetry_pages(avo_engine *engine) {
    if (engine->stream[0].telemetry == NULL)
        return;
    pages_counts counts = pages_count(kv_pool_pages(engine->kv));
    telemetry_pages pages = {.free = counts.free,
                             .cached = counts.cached,
                             .used = counts.used,
                             .queried_tokens = counts.queried_tokens,
                             .hit_tokens = counts.hit_tokens,
                             .host = counts.host_cached,
                             .moved_out = counts.moved_out,
                             .moved_in = counts.moved_in};
    telemetry_engine_pages(engine->stream[0].telemetry, &pages);
}

void engine_telemetry_step(const avo_batch *batch, uint64_t begin_ns) {
    telemetry_engine *telemetry = batch->stream->telemetry;
    if (telemetry == NULL)
        return;
    telemetry_step step = {.begin_ns = begin_ns,
                           .end_ns = clock_now_ns(),
                           .rows = batch->rows,
                           .read_bytes =
                               telemetry_engine_weights(telemetry, batch->logit_rows > 0) +
                               batch->adapter_bytes};
    for (uint32_t i = 0; i < batch->entry_count; i++) {
        const batch_entry *entry = &batch->entries[i];
        /* Rows that somebody draws from, all of them: tokens of an answer, and drafts of such. */
        if (entry->rows == 1 + entry->drafts && entry->logit_count == entry->rows)
            step.decode_rows += entry->rows;
        step.read_bytes +=
            telemetry_engine_reads(telemetry, entry->session->computed + entry->rows, entry->rows);
    }
    telemetry_engine_step(telemetry, &step);
    telemetry_engine_count(telemetry, 0);
}

/* ---- Answers without a scheduler ---- */

static const char *adapter_name(const avo_session *session) {
    const char *path = session->adapter_count == 0 ? NULL : session->adapters[0].adapter->path;
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void answer_notes_begin(answer_notes *notes, const avo_session *session, size_t prompt_tokens) {
    const avo_engine *engine = session->engine;
    *notes = (answer_notes){.telemetry = engine->plan.telemetry,
                            .track = telemetry_engine_track(engine->stream[0].telemetry)};
    if (notes->telemetry == NULL)
        return;
    uint64_t now = clock_now_ns();
    uint32_t tokens = (uint32_t)prompt_tokens;
    notes->request =
        (telemetry_request){.number = telemetry_alone_begin(notes->telemetry, tokens),
                            .submitted_ns = now,
                            .begun_ns = now,
                            .prompt_tokens = tokens,
                            .adapter = telemetry_adapter(notes->telemetry, adapter_name(session))};
    telemetry_rate_add(notes->telemetry, RATE_PROMPT_TOKENS, tokens, now);
    telemetry_running_add(notes->telemetry, notes->request.adapter, 1);
}

void answer_notes_stage(answer_notes *notes, span_kind kind, uint64_t begin_ns) {
    if (notes->telemetry == NULL)
        return;
    uint64_t now = clock_now_ns();
    telemetry_stage_add(notes->telemetry, kind == SPAN_SAMPLE ? STAGE_SAMPLE : STAGE_DELIVER,
                        now - begin_ns, 1);
    telemetry_track_add(notes->track, &(telemetry_span){.kind = kind,
                                                        .begin_ns = begin_ns,
                                                        .end_ns = now,
                                                        .id = notes->request.number,
                                                        .a = 1});
}

static void request_span(answer_notes *notes, span_kind kind, uint64_t begin_ns, uint64_t end_ns,
                         uint32_t tokens) {
    telemetry_track_add(notes->track, &(telemetry_span){.kind = kind,
                                                        .begin_ns = begin_ns,
                                                        .end_ns = end_ns,
                                                        .id = notes->request.number,
                                                        .a = telemetry_track_number(notes->track),
                                                        .b = tokens});
}

void answer_notes_token(answer_notes *notes) {
    avo_telemetry *t = notes->telemetry;
    if (t == NULL)
        return;
    telemetry_request *request = &notes->request;
    uint64_t now = clock_now_ns();
    telemetry_alone_token(t);
    telemetry_rate_add(t, RATE_NEW_TOKENS, 1, now);
    if (request->new_tokens++ == 0) {
        request->first_ns = now;
        telemetry_time_add(t, TIME_FIRST_TOKEN, now - request->submitted_ns, now);
        telemetry_time_add(t, TIME_PREFILL, now - request->begun_ns, now);
        request_span(notes, SPAN_PREFILL, request->begun_ns, now, request->prompt_tokens);
    } else {
        telemetry_time_add(t, TIME_INTER_TOKEN, now - notes->last_ns, now);
    }
    notes->last_ns = now;
}

void answer_notes_end(answer_notes *notes, avo_finish finish, bool failed) {
    if (notes->telemetry == NULL)
        return;
    telemetry_request *request = &notes->request;
    request->over_ns = clock_now_ns();
    request->finish = finish;
    request->failed = failed;
    if (request->first_ns > 0)
        request_span(notes, SPAN_DECODE, request->first_ns, request->over_ns, request->new_tokens);
    telemetry_running_add(notes->telemetry, request->adapter, -1);
    telemetry_alone_end(notes->telemetry, request);
}
