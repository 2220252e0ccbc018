/* Prefill steps beside decoding: a thread of its own computes a chunk of prompts in the engine's
 * second stream while the engine thread decodes in the first. The engine thread does everything
 * else: it plans the chunk, fills the stream's batch, and draws from it when it is computed. */
#include "sched/scheduler_int.h"

#include "base/clock.h"

void *prefill_main(void *context) {
    avo_scheduler *s = context;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->prefill != PREFILL_COMPUTING && !s->engine_done)
            pthread_cond_wait(&s->prefill_cond, &s->lock);
        if (s->prefill != PREFILL_COMPUTING)
            break;
        pthread_mutex_unlock(&s->lock);
        uint64_t begin = clock_now_ns();
        avo_status status = engine_step_compute(s->stream[1].batch);
        uint64_t ns = clock_now_ns() - begin;
        pthread_mutex_lock(&s->lock);
        s->prefill_failed = status != AVO_OK;
        s->prefill_ns = ns;
        s->prefill = PREFILL_COMPUTED;
        pthread_cond_broadcast(&s->engine_cond);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Draws from it, as from any step. */
static void finish_prefill(avo_scheduler *s, uint64_t ns, bool failed) {
    serve_stream *stream = &s->stream[1];
    s->prefill_in_flight = false;
    if (failed) {
        step_fail(s, stream, &stream->plan);
        step_done(s, stream, &stream->plan);
        return;
    }
    engine_step_end(stream->batch);
    step_draw(s, stream, &stream->plan);
    uint64_t begin = clock_now_ns();
    step_score(s, stream, &stream->plan);
    step_learn(s, &stream->plan, ns + clock_now_ns() - begin);
    step_done(s, stream, &stream->plan);
}

static void start_prefill(avo_scheduler *s, uint32_t threads) {
    serve_stream *stream = &s->stream[1];
    sched_plan *plan = &stream->plan;
    uint64_t now = clock_now_ns();
    sched_plan_side(s->core, SCHED_PREFILL, now, plan);
    plan_publish(s, plan);
    if (plan->entry_count == 0)
        return;
    bool good = step_build(s, stream, plan, now);
    if (good && engine_step_begin(stream->batch) != AVO_OK) {
        step_fail(s, stream, plan);
        good = false;
    }
    if (!good) {
        step_done(s, stream, plan);
        return;
    }
    note_stage(s, SPAN_PLAN, now, 0);
    engine_stream_resize(s->engine, 1, threads);
    s->prefill_in_flight = true;
    pthread_mutex_lock(&s->lock);
    s->prefill = PREFILL_COMPUTING;
    pthread_cond_signal(&s->prefill_cond);
    pthread_mutex_unlock(&s->lock);
}

void prefill_advance(avo_scheduler *s) {
    if (s->cores.mode == CORES_MIXED)
        return;
    pthread_mutex_lock(&s->lock);
    bool computed = s->prefill == PREFILL_COMPUTED;
    if (computed)
        s->prefill = PREFILL_NONE;
    uint64_t ns = s->prefill_ns;
    bool failed = s->prefill_failed;
    pthread_mutex_unlock(&s->lock);
    if (computed)
        finish_prefill(s, ns, failed);
    if (s->prefill_in_flight)
        return;
    uint32_t threads = cores_choose(&s->cores, s->core);
    if (threads > 0)
        start_prefill(s, threads);
}

sched_side prefill_side(avo_scheduler *s) {
    const cores *cores = &s->cores;
    if (cores->mode == CORES_MIXED)
        return SCHED_BOTH;
    bool apart = s->prefill_in_flight || cores->mode == CORES_STATIC;
    engine_stream_resize(s->engine, 0, cores->threads - (apart ? cores->prompts : 0));
    return apart ? SCHED_DECODE : SCHED_BOTH;
}
