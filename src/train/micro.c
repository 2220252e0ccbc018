/* Micro-batches, and what ranks exchange: see micro.h. */
#include "train/micro.h"

#include "base/hash.h"

#include <string.h>

#define GATHER_FLOATS 65536 /* of a gradient that are sent at a time */

static uint32_t rank_of(const train_run_state *run) {
    return run->options->transport == NULL ? 0 : run->options->transport->rank;
}

/* ---- Scratch ---- */

static size_t gather_floats(const train_run_state *run) {
    return (size_t)micro_count(run) * GATHER_FLOATS;
}

uint64_t micro_bytes(const train_run_state *run) {
    size_t count = 0;
    if (run->settings->micro_batch == 0)
        return 0;
    (void)train_core_gradients(run->core, &count);
    return (count + gather_floats(run)) * sizeof(float);
}

avo_status micro_open(train_run_state *run) {
    train_task task = run->settings->task;
    size_t count = 0;
    if (micro_count(run) > 1 && task != TRAIN_SFT && task != TRAIN_PRETRAIN)
        return status_fail(run->error, AVO_ERROR_UNSUPPORTED,
                           "%s is not divided among ranks: start it without mpirun, or train with "
                           "sft or pretrain",
                           train_task_name(task));
    if (run->settings->micro_batch == 0)
        return AVO_OK;
    (void)train_core_gradients(run->core, &count);
    run->total_floats = count;
    run->total = allocator_take_array(run->allocator, count, sizeof(float));
    run->gathered = allocator_take_array(run->allocator, gather_floats(run), sizeof(float));
    if (run->total == NULL || run->gathered == NULL)
        return status_no_memory(run->error, "gradients of micro-batches",
                                (count + gather_floats(run)) * sizeof(float));
    return AVO_OK;
}

void micro_close(train_run_state *run) {
    allocator_give(run->allocator, run->total, run->total_floats * sizeof(float));
    allocator_give(run->allocator, run->gathered, gather_floats(run) * sizeof(float));
}

/* ---- Exchanges ---- */

/* Ranks 0…active − 1 each send `bytes` bytes to all others: those of rank r are at r · bytes of
 * `all`. */
static avo_status gather(const train_run_state *run, void *own, size_t bytes, uint32_t active,
                         void *all) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    uint32_t rank = rank_of(run), ranks = micro_count(run);
    if (rank < active)
        memcpy((uint8_t *)all + rank * bytes, own, bytes);
    if (ranks == 1)
        return AVO_OK;
    for (uint32_t r = 0; r < ranks; r++) {
        if (r == rank)
            continue;
        if (rank < active)
            send[r] = (group_part){own, bytes};
        if (r < active)
            receive[r] = (group_part){(uint8_t *)all + r * bytes, bytes};
    }
    return transport_exchange(run->options->transport, send, receive, run->options->rank_timeout_ns,
                              run->error);
}

avo_status micro_tell(const train_run_state *run, uint64_t *number) {
    if (micro_count(run) == 1)
        return AVO_OK;
    return transport_spread(run->options->transport, number, sizeof(*number),
                            run->options->rank_timeout_ns, run->error);
}

/* ---- Micro-batches ---- */

static avo_status gather_sums(const train_run_state *run, const micro_work *work, double *own,
                              uint32_t active) {
    double all[GROUP_RANKS_MAX * MICRO_SUMS_MAX];
    uint32_t count = work->sum_count;
    AVO_TRY(gather(run, own, count * sizeof(double), active, all));
    for (uint32_t r = 0; r < active; r++)
        for (uint32_t i = 0; i < count; i++)
            work->sums[i] += all[r * count + i];
    return AVO_OK;
}

static avo_status gather_gradients(const train_run_state *run, uint32_t active) {
    size_t count;
    float *own = train_core_gradients(run->core, &count);
    for (size_t at = 0; at < count; at += GATHER_FLOATS) {
        size_t floats = count - at < GATHER_FLOATS ? count - at : GATHER_FLOATS;
        AVO_TRY(gather(run, own + at, floats * sizeof(float), active, run->gathered));
        for (uint32_t r = 0; r < active; r++)
            for (size_t i = 0; i < floats; i++)
                run->total[at + i] += run->gathered[r * floats + i];
    }
    train_core_clear(run->core);
    return AVO_OK;
}

/* One micro-batch of every rank, from sample `first` on; the last ranks may have none. */
static avo_status compute_round(train_run_state *run, const micro_work *work, uint64_t first) {
    double own[MICRO_SUMS_MAX] = {0};
    uint64_t size = run->settings->micro_batch;
    uint64_t mine = first + rank_of(run) * size, left = work->count - first;
    uint64_t batches = (left + size - 1) / size;
    uint32_t active = batches < micro_count(run) ? (uint32_t)batches : micro_count(run);
    if (mine < work->count) {
        uint64_t count = work->count - mine < size ? work->count - mine : size;
        AVO_TRY(work->compute(run, work->context, mine, count, own));
    }
    AVO_TRY(gather_sums(run, work, own, active));
    return work->learns ? gather_gradients(run, active) : AVO_OK;
}

avo_status micro_compute(train_run_state *run, const micro_work *work) {
    uint64_t round = (uint64_t)run->settings->micro_batch * micro_count(run);
    if (round == 0)
        return work->compute(run, work->context, 0, work->count, work->sums);
    if (work->learns)
        memset(run->total, 0, run->total_floats * sizeof(float));
    for (uint64_t first = 0; first < work->count; first += round)
        AVO_TRY(compute_round(run, work, first));
    size_t count;
    float *gradients = train_core_gradients(run->core, &count);
    if (work->learns)
        memcpy(gradients, run->total, count * sizeof(float));
    return AVO_OK;
}

/* ---- Agreement ---- */

enum {
    SAME_BUILD,
    SAME_MODEL,
    SAME_DATA,
    SAME_DATA_MORE,
    SAME_SETTINGS,
    SAME_STEPS,
    SAME_WEIGHTS,
    SAME_COUNT
};

static avo_status settings_sum(const train_run_state *run, uint64_t *sum) {
    buffer text;
    buffer_init(&text, run->allocator, (size_t)1 << 20);
    json_writer w = json_writer_of(&text);
    json_object_begin(&w);
    train_settings_write(run->settings, true, &w);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    *sum = status == AVO_OK ? hash_bytes(text.data, text.size) : 0;
    buffer_free(&text);
    return status == AVO_OK
               ? AVO_OK
               : status_fail(run->error, status, "settings: %s", avo_status_text(status));
}

static uint64_t weights_sum(const train_run_state *run) {
    hash_stream stream;
    hash_stream_begin(&stream);
    for (uint32_t i = 0; i < run->parameters->count; i++) {
        const train_parameter *item = &run->parameters->item[i];
        hash_stream_add(&stream, item->value, (size_t)item->rows * item->k * sizeof(float));
    }
    return hash_stream_sum(&stream);
}

avo_status micro_compare(train_run_state *run) {
    static const char *const names[SAME_COUNT] = {
        "another build of Avocet", "another model", "other data",   "other data",
        "other settings",          "other steps",   "other weights"};
    uint64_t all[GROUP_RANKS_MAX * SAME_COUNT];
    uint64_t own[SAME_COUNT] = {[SAME_BUILD] = hash_bytes(avo_version(), strlen(avo_version())),
                                [SAME_MODEL] = run->model_digest,
                                [SAME_DATA] = run->info.digest[0],
                                [SAME_DATA_MORE] = run->info.digest[1],
                                [SAME_STEPS] = run->steps ^ run->state.step << 32,
                                [SAME_WEIGHTS] = weights_sum(run)};
    uint32_t ranks = micro_count(run);
    if (ranks == 1)
        return AVO_OK;
    AVO_TRY(settings_sum(run, &own[SAME_SETTINGS]));
    AVO_TRY(gather(run, own, sizeof(own), ranks, all));
    for (uint32_t r = 1; r < ranks; r++)
        for (uint32_t i = 0; i < SAME_COUNT; i++)
            if (all[r * SAME_COUNT + i] != all[i])
                return status_fail(run->error, AVO_ERROR_ARGUMENT,
                                   "rank %u has %s than rank 0: all ranks must see the same "
                                   "files and be given the same options",
                                   r, names[i]);
    return AVO_OK;
}
