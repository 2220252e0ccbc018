/* Sampling completions through the scheduler, which serves requests the same way: completions of
 * one prompt share its pages, and each has a seed of its own. */
#include "train/rl.h"

#include "base/clock.h"
#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STREAM_OF_SEEDS 0x524c /* of base/random.h: "RL" */

/* ---- What arrives ---- */

typedef struct rollout {
    rl_completion *items;
    uint32_t context_max;
} rollout;

/* Calls of one request come one at a time and in order; each request has its own item. */
static bool on_event(void *context, const avo_event *event) {
    rollout *r = context;
    rl_completion *item = &r->items[event->index];
    if (event->kind == AVO_EVENT_TOKEN && event->token->token >= 0) {
        if (item->count >= r->context_max)
            return false; /* more tokens than asked for: check sees that it did not finish */
        item->tokens[item->count] = event->token->token;
        item->logprobs[item->count] = event->token->logprob;
        item->wanted[item->count] = 1;
        item->count++;
    } else if (event->kind == AVO_EVENT_FINISHED) {
        item->ended = event->result->finish == AVO_FINISH_STOP_TOKEN;
        item->finished = true;
    } else if (event->kind == AVO_EVENT_FAILED) {
        item->error = *event->error;
    }
    return true;
}

/* ---- Requests ---- */

avo_status rollout_take(train_run_state *run, arena *arena, rl_completion *item) {
    item->tokens = arena_take_array(arena, run->context_max, sizeof(int32_t));
    item->wanted = arena_take_array(arena, run->context_max, 1);
    item->logprobs = arena_take_array(arena, run->context_max, sizeof(float));
    if (item->tokens == NULL || item->wanted == NULL || item->logprobs == NULL)
        return status_no_memory(run->error, "completions", (size_t)run->context_max * 9);
    return AVO_OK;
}

void rollout_begin(const train_data *data, uint64_t index, rl_completion *item) {
    item->sample = train_data_at(data, index);
    item->prompt_count = item->count = item->sample.text.count;
    memcpy(item->tokens, item->sample.text.tokens, item->count * sizeof(int32_t));
    memset(item->wanted, 0, item->count);
    memset(item->logprobs, 0, item->count * sizeof(float));
    item->ended = item->finished = false;
    item->error.status = AVO_OK;
}

static avo_status check(const train_run_state *run, const rl_completion *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const rl_completion *item = &items[i];
        if (item->error.status != AVO_OK)
            return status_fail(run->error, item->error.status, "sampling completion %zu: %s", i + 1,
                               item->error.text);
        if (!item->finished || item->count == item->prompt_count)
            return status_fail(run->error, AVO_ERROR_DEVICE,
                               "sampling completion %zu was cut short", i + 1);
    }
    return AVO_OK;
}

static avo_status sample_all(train_run_state *run, const rollout_options *o, arena *arena,
                             avo_scheduler *scheduler) {
    size_t n = o->count;
    avo_request *requests = arena_take_array(arena, n, sizeof(*requests));
    avo_sampling *sampling = arena_take_array(arena, n, sizeof(*sampling));
    if (requests == NULL || sampling == NULL)
        return status_no_memory(run->error, "requests", n * sizeof(*requests));
    avo_adapter_use use = {train_core_adapter(run->core), 1.0f};
    for (size_t i = 0; i < n; i++) {
        const rl_completion *item = &o->items[i];
        random_block seed = random_at(run->settings->seed, o->stream, o->first + i);
        sampling[i] = (avo_sampling)AVO_SAMPLING_INIT;
        sampling[i].temperature = o->temperature;
        sampling[i].seed = (uint64_t)seed.words[0] << 32 | seed.words[1];
        requests[i] = (avo_request)AVO_REQUEST_INIT;
        requests[i].tokens = item->tokens;
        requests[i].token_count = item->prompt_count;
        requests[i].adapters = &use;
        requests[i].adapter_count = use.adapter != NULL ? 1 : 0;
        requests[i].max_new_tokens = run->settings->answer;
        requests[i].sampling = &sampling[i];
    }
    rollout r = {.items = o->items, .context_max = run->context_max};
    AVO_TRY(avo_scheduler_batch(scheduler, requests, n, NULL, on_event, &r, run->error));
    return check(run, o->items, n);
}

avo_status rollout_run(train_run_state *run, const rollout_options *o, arena *arena) {
    avo_scheduler_options options = AVO_SCHEDULER_OPTIONS_INIT;
    avo_scheduler *scheduler;
    options.token_seconds = -1.0; /* nobody waits for single tokens */
    options.tokenizer_threads = 1;
    options.waiting_max = (uint32_t)o->count;
    options.waiting_tokens_max = (uint64_t)o->count * run->context_max;
    AVO_TRY(avo_scheduler_open(train_core_engine(run->core), &options, &scheduler, run->error));
    avo_status status = sample_all(run, o, arena, scheduler);
    avo_scheduler_close(scheduler);
    return status;
}

/* ---- Reinforcement learning ---- */

avo_status rl_rollout(train_run_state *run, rl_state *s, uint64_t step) {
    uint32_t group = run->settings->group;
    uint64_t begin = clock_now_ns();
    for (size_t i = 0; i < s->completions; i++)
        rollout_begin(run->data, run_sample_index(run, (step - 1) * s->prompts + i / group),
                      &s->items[i]);
    rollout_options options = {.items = s->items,
                               .count = s->completions,
                               .temperature = 1.0f,
                               .stream = STREAM_OF_SEEDS,
                               .first = (step - 1) * s->completions};
    arena_reset(&s->texts);
    avo_status status = rollout_run(run, &options, &s->texts);
    s->rollout_seconds = clock_seconds(begin, clock_now_ns());
    return status;
}

avo_status rl_text(train_run_state *run, arena *arena, const rl_completion *item,
                   const char **text) {
    size_t bytes = 0, count = item->count - item->prompt_count - (item->ended ? 1 : 0);
    const int32_t *tokens = item->tokens + item->prompt_count;
    *text = "";
    if (count == 0)
        return AVO_OK;
    avo_status status = avo_detokenize(run->model, tokens, count, AVO_TOKENIZE_CONTINUE, NULL, 0,
                                       &bytes, run->error);
    if (status != AVO_OK && status != AVO_ERROR_LIMIT)
        return status;
    char *room = arena_take(arena, bytes + 1);
    if (room == NULL)
        return status_no_memory(run->error, "the text of a completion", bytes + 1);
    AVO_TRY(avo_detokenize(run->model, tokens, count, AVO_TOKENIZE_CONTINUE, room, bytes, &bytes,
                           run->error));
    room[bytes] = '\0';
    *text = room;
    return AVO_OK;
}
