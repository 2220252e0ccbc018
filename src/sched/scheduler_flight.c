/* Flights: a chunk of prompts is computed by a thread of its own, in the engine's second stream,
 * while the engine thread decodes in the first. The engine thread does everything but the
 * computing: plans it, lays it into the lane's batch, and draws from it when it has landed. */
#include "sched/scheduler_int.h"

#include "base/clock.h"

void *flight_main(void *context) {
    avo_scheduler *s = context;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->flight != FLIGHT_COMPUTED && !s->engine_done)
            pthread_cond_wait(&s->flight_cond, &s->lock);
        if (s->flight != FLIGHT_COMPUTED)
            break;
        pthread_mutex_unlock(&s->lock);
        uint64_t begin = clock_now_ns();
        avo_status status = engine_step_compute(s->lane[1].batch);
        uint64_t ns = clock_now_ns() - begin;
        pthread_mutex_lock(&s->lock);
        s->flight_failed = status != AVO_OK;
        s->flight_ns = ns;
        s->flight = FLIGHT_LANDED;
        pthread_cond_broadcast(&s->engine_cond);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Draws from it, as from any step. */
static void land(avo_scheduler *s, uint64_t ns, bool failed) {
    serve_lane *lane = &s->lane[1];
    s->flying = false;
    if (failed) {
        step_fail(s, lane, &lane->plan);
        step_done(s, lane, &lane->plan);
        return;
    }
    engine_step_end(lane->batch);
    step_draw(s, lane, &lane->plan);
    uint64_t begin = clock_now_ns();
    step_score(s, lane, &lane->plan);
    step_learn(s, &lane->plan, ns + clock_now_ns() - begin);
    step_done(s, lane, &lane->plan);
}

static void take_off(avo_scheduler *s, uint32_t threads) {
    serve_lane *lane = &s->lane[1];
    sched_plan *plan = &lane->plan;
    uint64_t now = clock_now_ns();
    sched_plan_side(s->core, SCHED_PREFILL, now, plan);
    plan_publish(s, plan);
    if (plan->entry_count == 0)
        return;
    bool good = step_build(s, lane, plan, now);
    if (good && engine_step_begin(lane->batch) != AVO_OK) {
        step_fail(s, lane, plan);
        good = false;
    }
    if (!good) {
        step_done(s, lane, plan);
        return;
    }
    note_stage(s, SPAN_PLAN, now, 0);
    engine_stream_resize(s->engine, 1, threads);
    s->flying = true;
    pthread_mutex_lock(&s->lock);
    s->flight = FLIGHT_COMPUTED;
    pthread_cond_signal(&s->flight_cond);
    pthread_mutex_unlock(&s->lock);
}

void flight_turn(avo_scheduler *s) {
    if (s->cores.mode == CORES_MIXED)
        return;
    pthread_mutex_lock(&s->lock);
    bool landed = s->flight == FLIGHT_LANDED;
    if (landed)
        s->flight = FLIGHT_NONE;
    uint64_t ns = s->flight_ns;
    bool failed = s->flight_failed;
    pthread_mutex_unlock(&s->lock);
    if (landed)
        land(s, ns, failed);
    if (s->flying)
        return;
    uint32_t threads = cores_choose(&s->cores, s->core);
    if (threads > 0)
        take_off(s, threads);
}

sched_side flight_side(avo_scheduler *s) {
    const cores *cores = &s->cores;
    if (cores->mode == CORES_MIXED)
        return SCHED_BOTH;
    bool apart = s->flying || cores->mode == CORES_STATIC;
    engine_stream_resize(s->engine, 0, cores->threads - (apart ? cores->prompts : 0));
    return apart ? SCHED_DECODE : SCHED_BOTH;
}
