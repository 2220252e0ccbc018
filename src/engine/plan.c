/* The memory plan: what an engine takes, computed before anything is allocated. */
#include "engine/engine_int.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/options.h"
#include "kernels/kv_tile.h"

#include <string.h>

#define CONTEXT_FITTED_MIN 256 /* a default context is never fitted below this */

/* Rows × width, rounded to cache lines; adds to the total. */
static bool measure_part(scratch_sizes *sizes, size_t index, size_t count, size_t width) {
    size_t floats;
    if (!size_multiply(count, width, &floats) || !size_round_up(floats, 16, &floats))
        return false;
    sizes->part[index] = floats;
    return size_add(sizes->total, floats, &sizes->total);
}

bool scratch_measure(const avo_model *model, const engine_plan *plan, scratch_sizes *sizes) {
    const model_view *view = &model->view;
    memset(sizes, 0, sizeof(*sizes));
    size_t rows = plan->rows_max;
    size_t wide = size_max(view->width, view->embedding.k);
    sizes->pairs_max = model->source->config.rotary_dims / 2;
    sizes->worker_floats = backend_worker_floats(view, plan->context_max);
    size_t angles = (size_t)sizes->pairs_max * 2;                  /* two tables at most */
    return measure_part(sizes, 0, rows, view->width) &&            /* hidden */
           measure_part(sizes, 1, rows, wide) &&                   /* normed */
           measure_part(sizes, 2, rows, view->query_width_max) &&  /* query */
           measure_part(sizes, 3, rows, view->kv_width_max) &&     /* key */
           measure_part(sizes, 4, rows, view->kv_width_max) &&     /* value */
           measure_part(sizes, 5, rows, view->query_width_max) &&  /* attended */
           measure_part(sizes, 6, rows, view->feed_forward_max) && /* gated */
           measure_part(sizes, 7, rows, view->feed_forward_max) && /* up */
           measure_part(sizes, 8, rows, wide) &&                   /* projected */
           measure_part(sizes, 9, rows * 2, angles) &&             /* cosine, sine */
           measure_part(sizes, 10, plan->logits_max, view->vocabulary) &&
           measure_part(sizes, 11, plan->threads, sizes->worker_floats);
}

void scratch_cut(const scratch_sizes *sizes, uint32_t rows_max, float *block,
                 scratch_view *scratch) {
    float *part[SCRATCH_PARTS];
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
                              .sine = part[9] + sizes->part[9] / 2,
                              .logits = part[10],
                              .worker = part[11],
                              .worker_floats = sizes->worker_floats,
                              .pairs_max = sizes->pairs_max,
                              .rows_max = rows_max};
}

/* Bytes of a plan whose counts are set; false when they wrap. */
static bool plan_measure(const avo_model *model, uint64_t kv_tokens, engine_plan *plan) {
    uint64_t tokens = kv_tokens;
    if (tokens == 0) {
        /* Every session may end inside a page of its own. */
        uint64_t per_session = (uint64_t)kv_pages_for(plan->context_max) * KV_PAGE_TOKENS;
        if (!u64_multiply(per_session, plan->sessions_max, &tokens))
            return false;
    }
    if (tokens / KV_PAGE_TOKENS >= UINT32_MAX)
        return false;
    plan->kv_pages = kv_pages_for(tokens);
    scratch_sizes sizes;
    size_t bytes;
    if (!kv_pool_bytes(&model->view, plan->kv_type, plan->kv_pages, &plan->kv_bytes) ||
        !scratch_measure(model, plan, &sizes) || !size_multiply(sizes.total, sizeof(float), &bytes))
        return false;
    plan->scratch_bytes = bytes;
    return true;
}

static bool plan_fits(const avo_model *model, uint64_t kv_tokens, engine_plan *plan) {
    uint64_t total;
    return plan_measure(model, kv_tokens, plan) &&
           u64_add(plan->kv_bytes, plan->scratch_bytes, &total) && total <= plan->available_bytes;
}

static avo_status check_range(const char *name, uint64_t value, uint64_t maximum,
                              avo_error *error) {
    if (value <= maximum)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s: %llu is more than %llu", name,
                       (unsigned long long)value, (unsigned long long)maximum);
}

/* Learned positions end where their table ends, whatever is asked for. */
static avo_status limit_positions(const avo_model *model, uint32_t asked, engine_plan *plan,
                                  avo_error *error) {
    const model_config *config = &model->source->config;
    if (config->positions == 0)
        return AVO_OK;
    uint32_t longest = config->positions - config->position_offset;
    if (asked > longest)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "context of %u tokens: the model has learned %u positions", asked,
                           longest);
    if (plan->context_max > longest)
        plan->context_max = longest;
    return AVO_OK;
}

static avo_status plan_kv_type(const char *name, engine_plan *plan, avo_error *error) {
    plan->kv_type = backend_reference()->kv_default;
    if (name == NULL)
        return AVO_OK;
    plan->kv_type = kv_type_named(name);
    if (plan->kv_type != KV_TYPE_COUNT)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "kv_type: \"%.40s\" is none of f32, f16, bf16, int8, fp8", name);
}

static avo_status plan_counts(const avo_model *model, const avo_engine_options *options,
                              engine_plan *plan, avo_error *error) {
    AVO_TRY(check_range("threads", options->threads, TEAM_THREADS_MAX, error));
    AVO_TRY(check_range("context_max", options->context_max, SOURCE_CONTEXT_MAX, error));
    AVO_TRY(check_range("sessions_max", options->sessions_max, ENGINE_SESSIONS_MAX, error));
    AVO_TRY(check_range("rows_max", options->rows_max, ENGINE_ROWS_MAX, error));
    AVO_TRY(plan_kv_type(options->kv_type, plan, error));
    plan->threads = options->threads;
    if (plan->threads == 0) {
        uint32_t usable = cpu_usable_threads();
        plan->threads = usable < TEAM_THREADS_MAX ? usable : TEAM_THREADS_MAX;
    }
    plan->context_max =
        options->context_max == 0 ? model->source->config.context : options->context_max;
    plan->rope_context = options->rope_context;
    plan->sessions_max = options->sessions_max == 0 ? 1 : options->sessions_max;
    plan->rows_max = options->rows_max == 0 ? ENGINE_ROWS_DEFAULT : options->rows_max;
    if (plan->rows_max < plan->sessions_max)
        plan->rows_max = plan->sessions_max;
    plan->logits_max = options->logits_max == 0 ? plan->sessions_max : options->logits_max;
    if (plan->logits_max > plan->rows_max)
        plan->logits_max = plan->rows_max;
    return limit_positions(model, options->context_max, plan, error);
}

static avo_status too_large(const engine_plan *plan, avo_error *error) {
    return status_fail(error, AVO_ERROR_MEMORY,
                       "a context of %u tokens takes %llu MiB, %llu MiB are available (%s); ask "
                       "for a shorter context or fewer rows",
                       plan->context_max,
                       (unsigned long long)((plan->kv_bytes + plan->scratch_bytes) >> 20),
                       (unsigned long long)(plan->available_bytes >> 20), plan->limit);
}

avo_status engine_plan_make(const avo_model *model, const avo_engine_options *given,
                            engine_plan *plan, avo_error *error) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    memset(plan, 0, sizeof(*plan));
    AVO_TRY(options_take(&options, sizeof(options), given, "avo_engine_options", error));
    AVO_TRY(plan_counts(model, &options, plan, error));
    memory_limit limit = memory_limit_detect();
    plan->available_bytes = limit.available_bytes;
    plan->limit = limit.source;
    if (options.memory_max > 0 && options.memory_max < plan->available_bytes) {
        plan->available_bytes = options.memory_max;
        plan->limit = "memory_max";
    }
    /* The model's own context may be far beyond this machine: a default is fitted, a wish is not.
     */
    while (!plan_fits(model, options.kv_tokens, plan)) {
        if (options.context_max != 0 || plan->context_max <= CONTEXT_FITTED_MIN)
            return too_large(plan, error);
        plan->context_max /= 2;
    }
    return AVO_OK;
}

avo_status avo_engine_plan(const avo_model *model, const avo_engine_options *options, avo_plan *out,
                           avo_error *error) {
    engine_plan plan;
    AVO_TRY(engine_plan_make(model, options, &plan, error));
    avo_plan full = {.weight_bytes = model->weight_bytes,
                     .repack_bytes = model->repack_bytes,
                     .kv_bytes = plan.kv_bytes,
                     .scratch_bytes = plan.scratch_bytes,
                     .available_bytes = plan.available_bytes,
                     .limit = plan.limit,
                     .threads = plan.threads,
                     .context_max = plan.context_max,
                     .kv_pages = plan.kv_pages,
                     .kv_page_tokens = KV_PAGE_TOKENS,
                     .kv_type = kv_type_name(plan.kv_type)};
    options_give(out, &full, sizeof(full));
    return AVO_OK;
}
