/* The cost of a step from measurements: the JSON of `avocet bench`.
 *
 *   rows      one sequence that decodes at depth 0, every larger batch of them, and the longest
 *             prompt, less its context: a table over the rows of a step
 *   context   the difference to the greatest depth, over the depth */
#include "cli/simulate_int.h"

#include "base/file.h"
#include "base/json.h"

#include <string.h>

#define BATCHES_MAX 64

typedef struct points {
    step_cost_point batch[BATCHES_MAX + 1]; /* in order of rows, and room for the prompt */
    size_t batches;
    step_cost_point deep, prompt; /* rows: positions, tokens */
} points;

static void add_batch(points *points, step_cost_point point) {
    size_t at = points->batches;
    while (at > 0 && points->batch[at - 1].rows > point.rows)
        at--;
    if (points->batches == BATCHES_MAX || (at > 0 && points->batch[at - 1].rows == point.rows))
        return;
    memmove(points->batch + at + 1, points->batch + at,
            (points->batches++ - at) * sizeof(points->batch[0]));
    points->batch[at] = point;
}

static avo_status read_result(const json_value *result, points *points, avo_error *error) {
    text_view kind = {0};
    int64_t tokens = 0, batch = 0, depth = 0;
    double tps = 0;
    AVO_TRY(json_get_string(result, "kind", &kind, error));
    AVO_TRY(json_get_integer(result, "tokens", 0, INT32_MAX, &tokens, error));
    AVO_TRY(json_get_integer(result, "batch", 0, INT32_MAX, &batch, error));
    AVO_TRY(json_get_integer(result, "depth", 0, INT32_MAX, &depth, error));
    AVO_TRY(json_get_number(result, "tps", 0, 1e12, &tps, error));
    if (tps <= 0)
        return AVO_OK;
    bool decode = text_is(kind, "decode");
    double ns = 1e9 * (double)(decode ? batch : tokens) / tps;
    if (decode && depth == 0 && batch > 0)
        add_batch(points, (step_cost_point){(uint32_t)batch, ns});
    else if (decode && batch == 1 && depth > points->deep.rows)
        points->deep = (step_cost_point){(uint32_t)depth, ns};
    else if (text_is(kind, "prefill") && depth == 0 && tokens > points->prompt.rows)
        points->prompt = (step_cost_point){(uint32_t)tokens, ns};
    return AVO_OK;
}

static avo_status cost_of(points *points, const char *path, step_cost *cost, avo_error *error) {
    if (points->batches == 0 || points->batch[0].rows != 1 || points->prompt.rows == 0)
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: needs one decode measurement of batch 1 at depth 0 and one prefill measurement "
            "(avocet bench MODEL -p 512 -n 32 -b 1,8,16 -d 0,4096 --json)",
            path);
    double step = points->batch[0].ns, rows = points->prompt.rows;
    if (points->deep.rows > 0)
        cost->context_token =
            points->deep.ns > step ? (points->deep.ns - step) / points->deep.rows : 0;
    double context = cost->context_token * rows * (rows + 1) / 2;
    if (points->prompt.ns - step < context) /* rows of a prompt share what they read: attention is
                                               not what decode pays */
        cost->context_token = context = 0;
    if (points->prompt.rows > points->batch[points->batches - 1].rows)
        points->batch[points->batches++] =
            (step_cost_point){points->prompt.rows, points->prompt.ns - context};
    step_cost_fit(cost, points->batch, points->batches);
    return AVO_OK;
}

avo_status simulate_cost_read(const char *path, step_cost *cost, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    arena arena;
    arena_init(&arena, NULL, (size_t)64 << 20);
    json_value root;
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    points points = {0};
    avo_status status = json_parse(&arena, text, &root, error);
    const json_value *results = status == AVO_OK ? json_find(&root, "results") : NULL;
    if (status == AVO_OK && (results == NULL || results->kind != JSON_ARRAY))
        status = status_fail(error, AVO_ERROR_FORMAT, "results must be an array");
    for (size_t i = 0; status == AVO_OK && i < results->array.count; i++)
        status = read_result(json_item(results, i), &points, error);
    if (status != AVO_OK)
        status = status_prefix(error, status, "%s", path);
    else
        status = cost_of(&points, path, cost, error);
    arena_free(&arena);
    file_map_close(&map);
    return status;
}
