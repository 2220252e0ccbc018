/* The cost of a step from measurements: the JSON of `avocet bench`.
 *
 *   step         one sequence decodes at depth 0
 *   decode_row   the difference to the largest batch up to 16, over the rows between
 *   context      the difference to the greatest depth, over the depth
 *   prefill_row  the longest prompt, less its step and its context, over its tokens */
#include "cli/simulate_int.h"

#include "base/file.h"
#include "base/json.h"

typedef struct point {
    double ns; /* of a step */
    int64_t size;
} point;

typedef struct points {
    point alone, batch, deep, prompt;
} points;

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
    if (decode && batch == 1 && depth == 0)
        points->alone = (point){ns, 1};
    else if (decode && batch == 1 && depth > points->deep.size)
        points->deep = (point){ns, depth};
    else if (decode && depth == 0 && batch <= 16 && batch > points->batch.size)
        points->batch = (point){ns, batch};
    else if (text_is(kind, "prefill") && depth == 0 && tokens > points->prompt.size)
        points->prompt = (point){ns, tokens};
    return AVO_OK;
}

static double positive(double number) {
    return number > 0 ? number : 0;
}

static avo_status cost_of(const points *points, const char *path, sched_cost *cost,
                          avo_error *error) {
    if (points->alone.size == 0 || points->prompt.size == 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: one decode of batch 1 at depth 0 and one prefill are needed "
                           "(avocet bench MODEL -p 512 -n 32 -b 1,8,16 -d 0,4096 --json)",
                           path);
    cost->step = points->alone.ns;
    if (points->batch.size > 1)
        cost->decode_row =
            positive(points->batch.ns - cost->step) / (double)(points->batch.size - 1);
    if (points->deep.size > 0)
        cost->context_token = positive(points->deep.ns - cost->step) / (double)points->deep.size;
    double rows = (double)points->prompt.size;
    double context = cost->context_token * rows * (rows + 1) / 2;
    double left = points->prompt.ns - cost->step;
    cost->prefill_row = positive(left - context) / rows;
    if (left <
        context) { /* rows of a prompt share what they read: attention is not what decode pays */
        cost->context_token = 0;
        cost->prefill_row = positive(left) / rows;
    }
    return AVO_OK;
}

avo_status simulate_cost_read(const char *path, sched_cost *cost, avo_error *error) {
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
        status = status_fail(error, AVO_ERROR_FORMAT, "results: an array is expected");
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
