/* The scratch of a stream: one block, cut into the buffers of a step. */
#include "base/checked.h"
#include "device/cpu/cpu.h"

#include <string.h>

#define PART_WORKER   12
#define PART_SHARED   13
#define PART_SENT     17
#define PART_RECEIVED 18

/* Count × size bytes, rounded to cache lines; adds to the total. */
static bool measure_part(scratch_sizes *sizes, size_t index, size_t count, size_t size) {
    size_t bytes;
    if (!size_multiply(count, size, &bytes) || !size_round_up(bytes, 64, &bytes))
        return false;
    sizes->part[index] = bytes;
    return size_add(sizes->total, bytes, &sizes->total);
}

bool cpu_scratch_measure(const stream_shape *shape, uint32_t workers, const backend *backend,
                         const cpu_group *group, scratch_sizes *sizes) {
    const model_view *view = shape->model;
    memset(sizes, 0, sizeof(*sizes));
    size_t rows = shape->rows_max;
    size_t wide = size_max(view->width, view->embedding.k);
    scratch_shape own = {.model = view,
                         .rows_max = shape->rows_max,
                         .logits_max = shape->head_rows,
                         .workers = workers,
                         .context_max = shape->context_max,
                         .adapter_rank_max = shape->adapter_rank_max};
    size_t shared;
    size_t adapted = adapter_row_room(shape->adapter_rank_max);
    size_t angles = (size_t)shape->pairs_max * 2; /* two tables at most */
    size_t number = sizeof(float), sent = 0, received = 0;
    if (group != NULL && !fast_exchange_bytes(group, &own, &sent, &received))
        return false;
    return backend->scratch_bytes(&own, &sizes->worker_bytes, &shared) &&
           measure_part(sizes, 0, rows, view->width * number) &&           /* hidden */
           measure_part(sizes, 1, rows, wide * number) &&                  /* normed */
           measure_part(sizes, 2, rows, view->query_width_max * number) && /* query */
           measure_part(sizes, 3, rows, view->kv_width_max * number) &&    /* key */
           measure_part(sizes, 4, rows, view->kv_width_max * number) &&    /* value */
           measure_part(sizes, 5, rows, view->query_width_max * number) && /* attended */
           measure_part(sizes, 6, backend->panels ? 0 : rows,
                        view->feed_forward_max * number) &&                 /* gated */
           measure_part(sizes, 7, rows, view->feed_forward_max * number) && /* up */
           measure_part(sizes, 8, rows, wide * number) &&                   /* projected */
           measure_part(sizes, 9, rows * 2, angles * number) &&             /* cosine, sine */
           /* logits, which the reference always writes as a whole */
           measure_part(sizes, 10, backend->panels ? shape->logits_max : shape->head_rows,
                        view->vocabulary * number) &&
           measure_part(sizes, 11, shape->head_rows, sizeof(logit_top)) &&
           measure_part(sizes, PART_WORKER, workers, sizes->worker_bytes) &&
           measure_part(sizes, PART_SHARED, 1, shared) &&
           measure_part(sizes, 14, rows, adapted * number) &&
           measure_part(sizes, 15, rows * shape->taps, view->width * number) &&
           measure_part(sizes, 16, rows * ADAPTERS_OF_ROW, sizeof(run_place)) &&
           measure_part(sizes, PART_SENT, 1, sent) &&
           measure_part(sizes, PART_RECEIVED, 1, received);
}

bool cpu_scratch_borrow(scratch_sizes *sizes, const scratch_sizes *lender) {
    static const size_t parts[] = {PART_WORKER, PART_SHARED};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (sizes->part[parts[i]] > lender->part[parts[i]])
            return false;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        sizes->total -= sizes->part[parts[i]];
        sizes->part[parts[i]] = 0;
    }
    return true;
}

void cpu_scratch_cut(const scratch_sizes *sizes, const stream_shape *shape, uint8_t *block,
                     scratch_view *scratch) {
    void *part[SCRATCH_PARTS];
    for (size_t i = 0; i < SCRATCH_PARTS; i++) {
        part[i] = block;
        block += sizes->part[i];
    }
    *scratch = (scratch_view){.hidden = part[0],
                              .normed = part[1],
                              .query = part[2],
                              .key = part[3],
                              .value = part[4],
                              .attended = part[5],
                              .gated = part[6],
                              .up = part[7],
                              .projected = part[8],
                              .cosine = part[9],
                              .sine = (float *)part[9] + sizes->part[9] / sizeof(float) / 2,
                              .logits = part[10],
                              .top = part[11],
                              .worker = part[PART_WORKER],
                              .worker_bytes = sizes->worker_bytes,
                              .shared = part[PART_SHARED],
                              .adapted = part[14],
                              .tap = part[15],
                              .place = part[16],
                              .sent = part[PART_SENT],
                              .received = part[PART_RECEIVED],
                              .pairs_max = shape->pairs_max,
                              .rows_max = shape->rows_max,
                              .logits_max = shape->head_rows,
                              .context_max = shape->context_max,
                              .adapter_rank_max = shape->adapter_rank_max};
}
