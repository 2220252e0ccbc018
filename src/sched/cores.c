/* Which threads compute what. */
#include "sched/cores.h"

#include <math.h>
#include <string.h>

/* A step of both sides may take this much longer than one of decoding beside prompts would: it
 * computes prompts as well. */
#define TOGETHER 1.25
/* A prefill step runs beside decoding while at most one prompt for so many threads waits. Where
 * more do, there is more work than time, and steps of both sides do the most of it: they read the
 * weights once. */
#define THREADS_OF_PROMPT 4
/* The part of the wanted time between tokens that a step of decoding beside prompts may take: steps
 * vary, and one may come between that holds rows of prompts. */
#define DECODE_PART 0.25

static const char *const mode_names[] = {"mixed", "static", "adaptive"};

bool cores_mode_named(const char *name, cores_mode *mode) {
    *mode = CORES_MIXED;
    if (name == NULL)
        return true;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, mode_names[i]) == 0) {
            *mode = (cores_mode)i;
            return true;
        }
    return false;
}

const char *cores_mode_name(cores_mode mode) {
    return mode_names[mode];
}

avo_status cores_open(cores *cores, cores_mode mode, uint32_t threads, uint32_t most,
                      uint64_t target_ns, avo_error *error) {
    *cores = (struct cores){.mode = mode, .threads = threads, .target_ns = target_ns};
    if (mode == CORES_MIXED) {
        if (most > 0)
            return status_fail(
                error, AVO_ERROR_ARGUMENT,
                "prefill_threads is %u, but with cores \"mixed\" there are no prefill threads",
                most);
        return AVO_OK;
    }
    if (threads == 0) {
        if (most > 0)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "prefill_threads is %u, but the device has no threads", most);
        cores->threads = threads = 2;
    }
    if (threads < 2)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "cores \"%s\" needs at least two threads, one for decode and one for "
                           "prefill; threads is %u",
                           cores_mode_name(mode), threads);
    if (most >= threads)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "prefill_threads is %u of %u, must leave at least one for decode", most,
                           threads);
    cores->most = most > 0 ? most : mode == CORES_STATIC ? threads / 2 : threads - 1;
    cores->prompts = mode == CORES_STATIC ? cores->most : (threads + 1) / 2;
    cores->prompts = cores->prompts < cores->most ? cores->prompts : cores->most;
    return AVO_OK;
}

void cores_guess(const cores *cores, sched *sched) {
    if (cores->mode == CORES_MIXED)
        return;
    double all = cores->threads;
    step_cost_scale(sched_cost_model(sched, SCHED_PREFILL), all / cores->prompts);
    step_cost_scale(sched_cost_model(sched, SCHED_DECODE), all / (cores->threads - cores->prompts));
}

/* Whether a step of both sides would hide the rows of the prompts. */
static bool together(sched *sched, const sched_demand *demand) {
    step_load decode = {.decode_rows = demand->decoding};
    step_load both = {.decode_rows = demand->decoding, .prefill_rows = UINT32_MAX};
    if (demand->prompt_rows < both.prefill_rows)
        both.prefill_rows = (uint32_t)demand->prompt_rows;
    return step_cost_of(sched_cost_model(sched, SCHED_BOTH), &both) <=
           TOGETHER * step_cost_of(sched_cost_model(sched, SCHED_DECODE), &decode);
}

/* Decoding gets the fewest threads with which its step should keep its part of the target; half of
 * them where there is none. */
static uint32_t share_of(const cores *cores, sched *sched, const sched_demand *demand) {
    uint32_t decode = cores->threads / 2;
    if (cores->target_ns > 0) {
        step_load load = {.decode_rows = demand->decoding};
        double now = step_cost_of(sched_cost_model(sched, SCHED_DECODE), &load);
        double wanted =
            now * (cores->threads - cores->prompts) / (DECODE_PART * (double)cores->target_ns);
        decode = wanted < cores->threads ? (uint32_t)ceil(wanted) : cores->threads;
    }
    decode = decode < 1 ? 1 : decode;
    uint32_t share = decode < cores->threads ? cores->threads - decode : 1;
    return share < cores->most ? share : cores->most;
}

uint32_t cores_choose(cores *cores, sched *sched) {
    if (cores->mode != CORES_ADAPTIVE)
        return cores->mode == CORES_STATIC ? cores->most : 0;
    sched_demand demand = sched_demands(sched);
    uint32_t prompts = demand.prompts + demand.waiting;
    if (demand.decoding == 0 || prompts == 0 ||
        prompts > (cores->threads + THREADS_OF_PROMPT - 1) / THREADS_OF_PROMPT ||
        together(sched, &demand))
        return 0;
    uint32_t share = share_of(cores, sched, &demand);
    if (share != cores->prompts) {
        step_cost_scale(sched_cost_model(sched, SCHED_PREFILL), (double)cores->prompts / share);
        step_cost_scale(sched_cost_model(sched, SCHED_DECODE),
                        (double)(cores->threads - cores->prompts) / (cores->threads - share));
        cores->prompts = share;
    }
    return share;
}
