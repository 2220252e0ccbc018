/* A scheduler with a memory that only counts pages; every call is followed by sched_check. */
#ifndef AVO_TESTS_SCHED_WORLD_H
#define AVO_TESTS_SCHED_WORLD_H

#include "support/support.h"

#include "sched/core.h"

#include <string.h>

#define WORLD_SLOTS 64
#define WORLD_PAGE  16
#define MS          1000000ull

typedef struct world {
    sched *sched;
    test_allocator allocator;
    sched_plan plan;
    const sched_end *ends; /* of the last step */
    uint32_t end_count;
    uint64_t now;
    uint32_t pages, used;
    uint32_t held[WORLD_SLOTS]; /* pages */
    bool open[WORLD_SLOTS];
    uint32_t reused; /* what begin answers */
    uint32_t begins;
    uint32_t drafts; /* that there are for whoever decodes */
    uint32_t draft_asks;
} world;

static uint32_t world_begin(void *context, uint32_t sequence, uint64_t request) {
    world *world = context;
    (void)request;
    assert_false(world->open[sequence]);
    world->open[sequence] = true;
    world->begins++;
    return world->reused;
}

static bool world_reserve(void *context, uint32_t sequence, uint32_t length) {
    world *world = context;
    uint32_t wanted = (length + WORLD_PAGE - 1) / WORLD_PAGE;
    assert_true(world->open[sequence]);
    if (wanted <= world->held[sequence])
        return true;
    if (wanted - world->held[sequence] > world->pages - world->used)
        return false;
    world->used += wanted - world->held[sequence];
    world->held[sequence] = wanted;
    return true;
}

static void world_end(void *context, uint32_t sequence) {
    world *world = context;
    assert_true(world->open[sequence]);
    world->open[sequence] = false;
    world->used -= world->held[sequence];
    world->held[sequence] = 0;
}

static uint32_t world_available(void *context) {
    world *world = context;
    return world->pages - world->used;
}

static void world_drafts(void *context, sched_wish *wishes, uint32_t count,
                         const sched_time *time) {
    static const float sure[DRAFTS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    world *world = context;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(world->open[wishes[i].sequence] && wishes[i].most > 0);
        world->draft_asks++;
        wishes[i].count = world->drafts < wishes[i].most ? world->drafts : wishes[i].most;
        wishes[i].survival = sure;
        wishes[i].always = true;
    }
    assert_true(time->token_ns > 0);
}

/* 1 ms a step, 0.1 ms each row up to 16, 0.2 ms each beyond. */
static inline sched_options world_options(void) {
    step_cost cost = {.adapter = 1e5};
    step_cost_line(&cost, 1e6, 1e5, 2e5);
    return (sched_options){.running_max = 8,
                           .rows_max = 64,
                           .waiting_max = 64,
                           .waiting_tokens_max = 100000,
                           .pages = 1000,
                           .context_max = 4096,
                           .target_ns = 0,
                           .ageing_ns = 1000 * MS,
                           .chunk_min = 4,
                           .adapters_max = 0,
                           .cost = cost};
}

static inline sched_memory world_memory(world *world) {
    return (sched_memory){.context = world,
                          .begin = world_begin,
                          .reserve = world_reserve,
                          .end = world_end,
                          .available = world_available,
                          .page_tokens = WORLD_PAGE,
                          .drafts = world_drafts};
}

static inline void world_check(const world *world) {
    const char *wrong = sched_check(world->sched);
    if (wrong != NULL)
        fail_msg("sched_check: %s", wrong);
}

static inline void world_open(world *world, const sched_options *options) {
    avo_error error = {0};
    memset(world, 0, sizeof(*world));
    test_allocator_init(&world->allocator);
    world->pages = options->pages;
    sched_memory memory = world_memory(world);
    assert_ok_error(
        sched_open(options, &memory, &world->allocator.allocator, &world->sched, &error), &error);
    world_check(world);
}

static inline void world_close(world *world) {
    sched_close(world->sched);
    assert_int_equal(world->allocator.live, 0);
}

static inline sched_request world_request(uint64_t id, uint32_t prompt, uint32_t tokens) {
    return (sched_request){
        .id = id, .priority = 8, .weight = 1, .prompt_tokens = prompt, .new_tokens_max = tokens};
}

static inline avo_status world_submit(world *world, sched_request request, uint64_t *retry,
                                      avo_error *error) {
    request.arrival_ns = world->now;
    avo_status status = sched_submit(world->sched, &request, world->now, retry, error);
    world_check(world);
    return status;
}

static inline void world_add(world *world, sched_request request) {
    avo_error error = {0};
    assert_ok_error(world_submit(world, request, NULL, &error), &error);
}

static inline void world_plan(world *world) {
    sched_plan_side(world->sched, SCHED_BOTH, world->now, &world->plan);
    world_check(world);
}

/* The planned step takes as long as predicted. */
static inline void world_results(world *world, const sched_result *results) {
    world->now += (uint64_t)world->plan.predicted_ns;
    sched_step_done(world->sched, &world->plan, results, world->now, &world->ends,
                    &world->end_count);
    world_check(world);
}

/* Whoever draws gets a token, and no draft is right; entry `stop` draws its last one (UINT32_MAX:
 * nobody does). */
static inline void world_done(world *world, uint32_t stop) {
    sched_result results[WORLD_SLOTS] = {0};
    for (uint32_t i = 0; i < world->plan.entry_count; i++)
        results[i].accepted = world->plan.entries[i].draws;
    if (stop != UINT32_MAX)
        results[stop].finished = true;
    world_results(world, results);
}

static inline void world_step(world *world) {
    world_plan(world);
    if (world->plan.entry_count > 0)
        world_done(world, UINT32_MAX);
}

static inline const sched_entry *world_entry(const world *world, uint64_t id) {
    for (uint32_t i = 0; i < world->plan.entry_count; i++)
        if (world->plan.entries[i].request == id)
            return &world->plan.entries[i];
    return NULL;
}

/* Steps until everything has ended, at most `steps`. */
static inline void world_drain(world *world, uint32_t steps) {
    while (!sched_idle(world->sched) && steps-- > 0)
        world_step(world);
    assert_true(sched_idle(world->sched));
    assert_int_equal(world->used, 0);
}

#endif
