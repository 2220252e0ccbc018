/* The memory plan: what an engine takes, computed before anything is allocated. */
#include "engine/engine_int.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/options.h"
#include "device/kv_tile.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT_FITTED_MIN 256 /* a default context is never fitted below this */

/* Count × size bytes, rounded to cache lines; adds to the total. */
static bool measure_part(scratch_sizes *sizes, size_t index, size_t count, size_t size) {
    size_t bytes;
    if (!size_multiply(count, size, &bytes) || !size_round_up(bytes, 64, &bytes))
        return false;
    sizes->part[index] = bytes;
    return size_add(sizes->total, bytes, &sizes->total);
}

bool scratch_measure(const avo_model *model, const engine_plan *plan, uint32_t workers,
                     const backend *backend, scratch_sizes *sizes) {
    const model_view *view = &model->view;
    memset(sizes, 0, sizeof(*sizes));
    size_t rows = plan->rows_max;
    size_t wide = size_max(view->width, view->embedding.k);
    sizes->pairs_max = model->source->config.rotary_dims / 2;
    scratch_shape shape = {.model = view,
                           .rows_max = plan->rows_max,
                           .logits_max = plan->head_rows,
                           .workers = workers,
                           .context_max = plan->context_max,
                           .adapter_rank_max = plan->adapter_rank_max};
    size_t shared;
    size_t adapted = adapter_row_room(plan->adapter_rank_max);
    size_t angles = (size_t)sizes->pairs_max * 2; /* two tables at most */
    size_t number = sizeof(float);
    return backend->scratch_bytes(&shape, &sizes->worker_bytes, &shared) &&
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
           measure_part(sizes, 10, backend->panels ? plan->logits_max : plan->head_rows,
                        view->vocabulary * number) &&
           measure_part(sizes, 11, plan->head_rows, sizeof(logit_top)) &&
           measure_part(sizes, 12, workers, sizes->worker_bytes) &&
           measure_part(sizes, 13, 1, shared) && measure_part(sizes, 14, rows, adapted * number);
}

void scratch_cut(const scratch_sizes *sizes, const engine_plan *plan, uint8_t *block,
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
                              .worker = part[12],
                              .worker_bytes = sizes->worker_bytes,
                              .shared = part[13],
                              .pairs_max = sizes->pairs_max,
                              .rows_max = plan->rows_max,
                              .logits_max = plan->head_rows,
                              .context_max = plan->context_max,
                              .adapted = part[14],
                              .adapter_rank_max = plan->adapter_rank_max};
}

/* Scratch of all lanes; false when it wraps. */
static bool plan_scratch(const avo_model *model, const backend *backend, engine_plan *plan) {
    plan->scratch_bytes = plan->lane_bytes = 0;
    for (uint32_t lane = 0; lane < plan->lanes; lane++) {
        scratch_sizes sizes;
        size_t bytes;
        if (!scratch_measure(model, plan, lane_threads(plan, lane), backend, &sizes) ||
            !region_round(sizes.total, plan->panels.region.huge, &bytes) ||
            !u64_add(plan->scratch_bytes, bytes, &plan->scratch_bytes))
            return false;
        plan->lane_bytes = lane > 0 ? bytes : 0;
    }
    return true;
}

/* Bytes of a plan whose counts are set; false when they wrap. */
static bool plan_measure(const avo_model *model, uint64_t kv_tokens, const backend *backend,
                         engine_plan *plan) {
    uint64_t tokens = kv_tokens;
    if (tokens == 0) {
        /* Every session may end inside a page of its own. */
        uint64_t per_session = (uint64_t)kv_pages_for(plan->context_max) * KV_PAGE_TOKENS;
        if (!u64_multiply(per_session, plan->sessions_max, &tokens))
            return false;
    }
    plan->kv_bytes = plan->scratch_bytes = plan->session_bytes = 0;
    if (tokens / KV_PAGE_TOKENS >= PAGES_MAX)
        return false;
    plan->kv_pages = kv_pages_for(tokens);
    size_t kv_bytes;
    if (!kv_pool_bytes(&model->view, plan->kv_type, plan->kv_pages, &plan->kv_bytes) ||
        !region_round((size_t)plan->kv_bytes, plan->panels.region.huge, &kv_bytes) ||
        !plan_scratch(model, backend, plan))
        return false;
    plan->kv_bytes = kv_bytes;
    return sessions_bytes(plan, &plan->session_bytes) &&
           u64_add(plan->session_bytes, pages_bytes(plan->kv_pages), &plan->session_bytes) &&
           u64_add(plan->session_bytes, batch_bytes(plan), &plan->session_bytes);
}

static bool plan_fits(const avo_model *model, uint64_t kv_tokens, const backend *backend,
                      engine_plan *plan) {
    uint64_t total;
    return plan_measure(model, kv_tokens, backend, plan) &&
           u64_add(plan->kv_bytes, plan->scratch_bytes, &total) &&
           u64_add(total, plan->session_bytes, &total) &&
           u64_add(total, plan->panel_bytes, &total) && total <= plan->available_bytes;
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

static avo_status plan_kv_type(const char *name, const backend *backend, engine_plan *plan,
                               avo_error *error) {
    plan->kv_type = backend->kv_default;
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
    plan->threads = options->threads;
    if (plan->threads == 0) {
        uint32_t usable = cpu_usable_threads();
        plan->threads = usable < TEAM_THREADS_MAX ? usable : TEAM_THREADS_MAX;
    }
    AVO_TRY(check_range("lanes", options->lanes, ENGINE_LANES_MAX, error));
    plan->lanes = options->lanes == 0 ? 1 : options->lanes;
    if (plan->lanes > plan->threads)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "lanes: %u need as many threads, and there %s %u%s: cores apart take "
                           "two, \"mixed\" takes any number",
                           plan->lanes, plan->threads == 1 ? "is" : "are", plan->threads,
                           options->threads == 0 ? " that this process may use" : "");
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
    uint32_t scored = plan->rows_max < ENGINE_HEAD_ROWS ? plan->rows_max : ENGINE_HEAD_ROWS;
    plan->head_rows = plan->logits_max > scored ? plan->logits_max : scored;
    AVO_TRY(check_range("adapter_rank_max", options->adapter_rank_max, ENGINE_RANK_MAX, error));
    plan->adapter_rank_max =
        options->adapter_rank_max == 0 ? ENGINE_RANK_DEFAULT : options->adapter_rank_max;
    return limit_positions(model, options->context_max, plan, error);
}

static avo_status too_large(const engine_plan *plan, uint64_t kv_tokens, avo_error *error) {
    if (kv_tokens / KV_PAGE_TOKENS >= PAGES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "kv_tokens: %llu, at most %llu",
                           (unsigned long long)kv_tokens,
                           (unsigned long long)PAGES_MAX * KV_PAGE_TOKENS - 1);
    if (kv_tokens > 0)
        return status_fail(
            error, AVO_ERROR_MEMORY,
            "a KV pool of %llu tokens takes %llu MiB, rows and sessions %llu MiB, weights repacked "
            "at load %llu MiB; %llu MiB are available (%s): ask for fewer kv_tokens",
            (unsigned long long)kv_tokens, (unsigned long long)plan->kv_bytes >> 20,
            (unsigned long long)(plan->scratch_bytes + plan->session_bytes) >> 20,
            (unsigned long long)plan->panel_bytes >> 20,
            (unsigned long long)plan->available_bytes >> 20, plan->limit);
    unsigned long long context_mib =
        (plan->kv_bytes + plan->scratch_bytes + plan->session_bytes) >> 20;
    unsigned long long available_mib = plan->available_bytes >> 20;
    if (plan->panel_bytes == 0)
        return status_fail(error, AVO_ERROR_MEMORY,
                           "a context of %u tokens takes %llu MiB, %llu MiB are available (%s); "
                           "ask for a shorter context or fewer rows",
                           plan->context_max, context_mib, available_mib, plan->limit);
    return status_fail(error, AVO_ERROR_MEMORY,
                       "a context of %u tokens takes %llu MiB and weights repacked at load %llu "
                       "MiB, %llu MiB are available (%s); ask for a shorter context or fewer rows, "
                       "or pack the model (`avocet pack`) into a file that needs no repacking",
                       plan->context_max, context_mib,
                       (unsigned long long)(plan->panel_bytes >> 20), available_mib, plan->limit);
}

/* An option, else the environment, else NULL: the best there is. */
static const char *isa_asked(const avo_engine_options *options, const char **from) {
    const char *environment = getenv("AVO_ISA");
    if (options->isa != NULL && options->isa[0] != '\0') {
        *from = "option";
        return options->isa;
    }
    *from = "best";
    if (environment == NULL || environment[0] == '\0')
        return NULL;
    *from = "AVO_ISA";
    return environment;
}

static avo_status plan_panels(const avo_model *model, const backend *backend, engine_plan *plan,
                              avo_error *error) {
    plan->mapped_bytes = model->weight_bytes;
    plan->repack_bytes = model->repack_bytes;
    if (!backend->panels)
        return AVO_OK;
    plan->panels.progress = model->progress;
    plan->panels.progress_context = model->progress_context;
    panels_plan panels;
    AVO_TRY(model_panels_plan(model, &plan->panels, &panels, error));
    plan->mapped_bytes = panels.mapped_bytes;
    plan->repack_bytes += panels.repack_bytes;
    plan->panel_bytes = panels.missing_bytes;
    return AVO_OK;
}

avo_status engine_plan_make(const avo_model *model, const avo_engine_options *given,
                            engine_plan *plan, avo_error *error) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    memset(plan, 0, sizeof(*plan));
    AVO_TRY(options_take(&options, sizeof(options), given, "avo_engine_options", error));
    AVO_TRY(plan_counts(model, &options, plan, error));
    backend_choice choice;
    AVO_TRY(backend_choose(isa_asked(&options, &plan->isa_from), &choice, error));
    plan->isa = choice.backend.name;
    plan->log = options.log;
    plan->log_context = options.log_context;
    plan->telemetry = options.telemetry;
    AVO_TRY(plan_kv_type(options.kv_type, &choice.backend, plan, error));
    AVO_TRY(placement_plan(&options, plan, error));
    AVO_TRY(plan_panels(model, &choice.backend, plan, error));
    memory_limit limit = memory_limit_detect();
    plan->available_bytes = limit.available_bytes;
    plan->limit = limit.source;
    if (options.memory_max > 0 && options.memory_max < plan->available_bytes) {
        plan->available_bytes = options.memory_max;
        plan->limit = "memory_max";
    }
    /* The model's own context may be far beyond this machine: a default is fitted, a wish is not.
     */
    while (!plan_fits(model, options.kv_tokens, &choice.backend, plan)) {
        if (options.context_max != 0 || plan->context_max <= CONTEXT_FITTED_MIN)
            return too_large(plan, options.kv_tokens, error);
        plan->context_max /= 2;
    }
    return AVO_OK;
}

avo_status avo_engine_plan(const avo_model *model, const avo_engine_options *options, avo_plan *out,
                           avo_error *error) {
    engine_plan plan;
    AVO_TRY(engine_plan_make(model, options, &plan, error));
    avo_plan full = {.weight_bytes = plan.mapped_bytes,
                     .repack_bytes = plan.repack_bytes,
                     .kv_bytes = plan.kv_bytes,
                     .scratch_bytes = plan.scratch_bytes,
                     .available_bytes = plan.available_bytes,
                     .limit = plan.limit,
                     .threads = plan.threads,
                     .context_max = plan.context_max,
                     .kv_pages = plan.kv_pages,
                     .kv_page_tokens = KV_PAGE_TOKENS,
                     .kv_type = kv_type_name(plan.kv_type),
                     .isa = plan.isa,
                     .huge_pages = plan.huge_pages,
                     .numa = plan.numa,
                     .pin = plan.pin,
                     .numa_nodes = plan.numa_nodes,
                     .lock = plan.panels.region.lock,
                     .isa_from = plan.isa_from,
                     .session_bytes = plan.session_bytes,
                     .lanes = plan.lanes,
                     .lane_bytes = plan.lane_bytes};
    options_give(out, &full, sizeof(full));
    return AVO_OK;
}
