/* The memory plan: what an engine takes, computed before anything is allocated. */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include "engine/draft_heads.h"
#include "engine/draft_text.h"
#include "engine/drafting.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/options.h"
#include "device/kv_tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_FITTED_MIN 256 /* a default context is never fitted below this */
#define DIVIDED_SPARE      32  /* of a card's free memory, what chosen layers leave: a part */
#define DEVICE_NAME_MAX    256

stream_shape engine_stream_shape(const avo_model *model, const engine_plan *plan, uint32_t index) {
    stream_shape shape = {.model = &model->view,
                          .index = index,
                          .rows_max = plan->rows_max,
                          .logits_max = plan->logits_max,
                          .head_rows = plan->head_rows,
                          .context_max = plan->context_max,
                          .adapter_rank_max = plan->adapter_rank_max,
                          .pairs_max = model->source->config.rotary_dims / 2,
                          .taps = plan->taps};
    memcpy(shape.tap, plan->tap, sizeof(shape.tap));
    return shape;
}

/* Scratch of all streams; false when it wraps. */
static bool plan_scratch(const avo_model *model, const device *device, engine_plan *plan) {
    plan->scratch_bytes = plan->stream_bytes = 0;
    for (uint32_t i = 0; i < plan->streams; i++) {
        stream_shape shape = engine_stream_shape(model, plan, i);
        uint64_t bytes;
        if (!device_stream_bytes(device, &shape, &bytes) ||
            !u64_add(plan->scratch_bytes, bytes, &plan->scratch_bytes))
            return false;
        plan->stream_bytes = i > 0 ? bytes : 0;
    }
    return true;
}

/* The parts of a model on two devices, in figures of the device itself and of the host. */
static bool plan_parts(const avo_model *model, device *device, engine_plan *plan) {
    stream_shape shape[DEVICE_STREAMS_MAX];
    for (uint32_t i = 0; i < plan->streams; i++)
        shape[i] = engine_stream_shape(model, plan, i);
    weights_source source = model_weights(model, &model->view);
    uint64_t kept = plan->adapter_bytes + plan->available_bytes / DIVIDED_SPARE;
    device_division division = {.source = &source,
                                .shape = shape,
                                .streams = plan->streams,
                                .kv_type = plan->kv_type,
                                .kv_pages = plan->kv_pages,
                                .bytes_max = plan->available_bytes - kept};
    avo_error error;
    device_part part[DEVICE_PARTS];
    if (device_divide(device, &division, part, &error) != AVO_OK)
        return false;
    for (uint32_t i = 0; i < DEVICE_PARTS; i++)
        plan->part[i] = (engine_part){.device = part[i].name,
                                      .first_layer = part[i].first_layer,
                                      .layers = part[i].layers,
                                      .mapped_bytes = part[i].weights.mapped_bytes,
                                      .copied_bytes = part[i].weights.copied_bytes,
                                      .missing_bytes = part[i].weights.missing_bytes,
                                      .kv_bytes = part[i].kv_bytes,
                                      .scratch_bytes = part[i].scratch_bytes};
    const device_part *first = &part[0], *own = &part[1];
    plan->kv_bytes = own->kv_bytes;
    plan->weights = own->weights;
    plan->weights.mapped_bytes += first->weights.mapped_bytes;
    plan->weights.kept_bytes += first->weights.kept_bytes;
    for (uint32_t i = 0; i < first->weights.groups; i++)
        weights_plan_join(&plan->weights, &first->weights.group[i]);
    return true;
}

/* Of the host's memory, for the layers that the device itself does not compute. */
static bool plan_first_part(const engine_plan *plan, uint64_t *bytes) {
    const engine_part *first = &plan->part[0];
    return u64_add(first->missing_bytes, first->kv_bytes, bytes) &&
           u64_add(*bytes, first->scratch_bytes, bytes);
}

static void plan_drafters(const avo_model *model, engine_plan *plan) {
    speculation_options *own = &plan->speculation;
    own->context_max = plan->context_max;
    own->corpus.vocabulary = model->view.vocabulary;
    own->drafters = plan->sessions_max < DRAFTERS_MAX ? plan->sessions_max : DRAFTERS_MAX;
}

/* Bytes of a plan whose counts are set; false when they wrap. */
static bool plan_measure(const avo_model *model, uint64_t kv_tokens, device *device,
                         engine_plan *plan) {
    uint64_t tokens = kv_tokens;
    if (tokens == 0) {
        /* Every session may end inside a page of its own. */
        uint64_t per_session = (uint64_t)kv_pages_for(plan->context_max) * KV_PAGE_TOKENS;
        if (!u64_multiply(per_session, plan->sessions_max, &tokens))
            return false;
    }
    plan->kv_bytes = plan->scratch_bytes = plan->session_bytes = plan->draft_bytes = 0;
    plan_drafters(model, plan);
    if (plan->speculation.kinds != DRAFTS_OFF)
        plan->draft_bytes = speculation_bytes(&plan->speculation);
    if (tokens / KV_PAGE_TOKENS >= PAGES_MAX)
        return false;
    plan->kv_pages = kv_pages_for(tokens);
    bool known = plan->device.divides ? plan_parts(model, device, plan)
                                      : kv_pool_bytes(device, &model->view, plan->kv_type,
                                                      plan->kv_pages, &plan->kv_bytes);
    return known && plan_scratch(model, device, plan) &&
           sessions_bytes(plan, &plan->session_bytes) &&
           u64_add(plan->session_bytes, pages_bytes(plan->kv_pages + plan->kv_host_pages),
                   &plan->session_bytes) &&
           u64_add(plan->session_bytes, plan->kv_host_bytes, &plan->session_bytes) &&
           u64_add(plan->session_bytes, batch_bytes(plan), &plan->session_bytes) &&
           u64_add(plan->session_bytes, plan->draft_bytes, &plan->session_bytes);
}

/* What is still to be taken: of the device, and of the host, which is 0 where both share memory.
 * False when it wraps. */
static bool plan_needs(const engine_plan *plan, uint64_t *device, uint64_t *host) {
    uint64_t first = 0;
    *host = plan->device.host ? 0 : plan->session_bytes;
    return plan_first_part(plan, &first) && u64_add(*host, first, host) &&
           u64_add(plan->kv_bytes, plan->scratch_bytes, device) &&
           u64_add(*device, plan->weights.missing_bytes, device) &&
           u64_add(*device, plan->adapter_bytes, device) &&
           (!plan->device.host || u64_add(*device, plan->session_bytes, device));
}

/* What a draft model will take, as drafts: an engine of its own with as many tokens of KV. One that
 * cannot be planned fails when it is opened, with its reason. */
static bool plan_draft_model(const avo_model *target, const avo_engine_options *options,
                             engine_plan *plan) {
    const avo_model *model = options->draft_model;
    if (model == NULL || (plan->speculation.kinds & DRAFT_BIT(DRAFT_MODEL)) == 0)
        return true;
    avo_engine_options own =
        draft_model_engine(options, model, plan->context_max,
                           (uint64_t)plan->kv_pages * KV_PAGE_TOKENS, plan->speculation.drafters);
    engine_plan draft;
    device *device;
    avo_error error;
    uint64_t needed, host;
    if (engine_plan_make(model, &own, &device, &draft, &error) != AVO_OK)
        return true;
    device_close(device);
    if (model->store == target->store && draft.device.host)
        draft.weights.missing_bytes = 0; /* an early exit uses what the target prepares */
    uint64_t text = draft_model_by_text(target, model)
                        ? draft_text_bytes(plan->speculation.drafters, draft.context_max)
                        : 0;
    return plan_needs(&draft, &needed, &host) && u64_add(needed, host, &needed) &&
           u64_add(needed, text, &needed) &&
           u64_add(plan->draft_bytes, needed, &plan->draft_bytes) &&
           u64_add(plan->session_bytes, needed, &plan->session_bytes);
}

/* The same of draft heads; no bytes that cannot be told. */
static bool plan_draft_heads(const avo_model *model, const avo_engine_options *options,
                             const device *device, engine_plan *plan) {
    stream_shape lender = engine_stream_shape(model, plan, 0);
    draft_heads_options own = {.engine = options,
                               .drafters = plan->speculation.drafters,
                               .device = device,
                               .lender = &lender};
    avo_error error;
    if (draft_heads_choose(model, options, plan->speculation.kinds, &own.heads, &error) != AVO_OK ||
        !heads_chosen(&own.heads))
        return true;
    uint64_t needed = draft_heads_bytes(model, &own);
    return u64_add(plan->draft_bytes, needed, &plan->draft_bytes) &&
           u64_add(plan->session_bytes, needed, &plan->session_bytes);
}

static bool plan_fits(const avo_model *model, const avo_engine_options *options, device *device,
                      engine_plan *plan) {
    uint64_t needed, host;
    return plan_measure(model, options->kv_tokens, device, plan) &&
           plan_draft_model(model, options, plan) &&
           plan_draft_heads(model, options, device, plan) && plan_needs(plan, &needed, &host) &&
           needed <= plan->available_bytes && host <= plan->host_available_bytes;
}

static avo_status check_range(const char *name, uint64_t value, uint64_t maximum,
                              avo_error *error) {
    if (value <= maximum)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s is %llu, must be at most %llu", name,
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
                           "context is %u tokens, but the model has %u learned positions", asked,
                           longest);
    if (plan->context_max > longest)
        plan->context_max = longest;
    return AVO_OK;
}

static avo_status plan_kv_type(const char *name, engine_plan *plan, avo_error *error) {
    plan->kv_type = plan->device.kv_default;
    if (name == NULL)
        return AVO_OK;
    plan->kv_type = kv_type_named(name);
    if (plan->kv_type != KV_TYPE_COUNT)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "kv_type is \"%.40s\", must be f32, f16, bf16, int8 or fp8", name);
}

/* One row of logits for each session, and some for its drafts. */
static void plan_logits(const avo_engine_options *options, engine_plan *plan) {
    uint64_t drafts = 0;
    if (plan->speculation.kinds != DRAFTS_OFF)
        drafts = (uint64_t)plan->sessions_max * plan->speculation.draft_tokens;
    if (drafts > DRAFT_LOGITS_MAX)
        drafts = DRAFT_LOGITS_MAX;
    uint64_t logits = options->logits_max == 0 ? plan->sessions_max + drafts : options->logits_max;
    plan->logits_max = logits < plan->rows_max ? (uint32_t)logits : plan->rows_max;
}

static avo_status plan_counts(const avo_model *model, const avo_engine_options *options,
                              engine_plan *plan, avo_error *error) {
    AVO_TRY(check_range("context_max", options->context_max, SOURCE_CONTEXT_MAX, error));
    AVO_TRY(check_range("sessions_max", options->sessions_max, ENGINE_SESSIONS_MAX, error));
    AVO_TRY(check_range("rows_max", options->rows_max, ENGINE_ROWS_MAX, error));
    AVO_TRY(check_range("streams", options->streams, DEVICE_STREAMS_MAX, error));
    AVO_TRY(drafting_plan(options, &plan->speculation, error));
    plan->streams = options->streams == 0 ? 1 : options->streams;
    plan->context_max =
        options->context_max == 0 ? model->source->config.context : options->context_max;
    plan->rope_context = options->rope_context;
    plan->sessions_max = options->sessions_max == 0 ? 1 : options->sessions_max;
    plan->rows_max = options->rows_max == 0 ? ENGINE_ROWS_DEFAULT : options->rows_max;
    if (plan->rows_max < plan->sessions_max)
        plan->rows_max = plan->sessions_max;
    plan_logits(options, plan);
    uint32_t scored = plan->rows_max < ENGINE_HEAD_ROWS ? plan->rows_max : ENGINE_HEAD_ROWS;
    plan->head_rows = plan->logits_max > scored ? plan->logits_max : scored;
    AVO_TRY(check_range("adapter_rank_max", options->adapter_rank_max, ENGINE_RANK_MAX, error));
    plan->adapter_rank_max =
        options->adapter_rank_max == 0 ? ENGINE_RANK_DEFAULT : options->adapter_rank_max;
    return limit_positions(model, options->context_max, plan, error);
}

/* Where host and device have memory of their own: names the one that lacks it. */
static avo_status too_large_apart(const engine_plan *plan, avo_error *error) {
    uint64_t needed, host = 0;
    if (plan->device.divides && plan_needs(plan, &needed, &host)) {
        bool own = needed > plan->available_bytes;
        const engine_part *part = &plan->part[own ? 1 : 0];
        return status_fail(
            error, AVO_ERROR_MEMORY,
            "device %s: %u layers%s need %llu MiB with a context of %u tokens, %llu MiB are "
            "available (%s); %s or a shorter context",
            part->device, part->layers, own ? " and the output head" : ", with sessions,",
            (unsigned long long)(own ? needed : host) >> 20, plan->context_max,
            (unsigned long long)(own ? plan->available_bytes : plan->host_available_bytes) >> 20,
            own ? plan->limit : plan->host_limit,
            own ? "use fewer gpu_layers (auto: as many as fit)" : "use more gpu_layers");
    }
    if (plan->session_bytes > plan->host_available_bytes)
        return status_fail(error, AVO_ERROR_MEMORY,
                           "%u sessions of %u tokens need %llu MiB of the host's memory, %llu MiB "
                           "are available (%s); use fewer sessions or a shorter context",
                           plan->sessions_max, plan->context_max,
                           (unsigned long long)plan->session_bytes >> 20,
                           (unsigned long long)plan->host_available_bytes >> 20, plan->host_limit);
    return status_fail(
        error, AVO_ERROR_MEMORY,
        "device %s: KV pages of %u tokens need %llu MiB, scratch %llu MiB, weights "
        "%llu MiB, adapters %llu MiB; the device has %llu MiB (%s); use a shorter context, fewer "
        "kv_tokens or fewer rows",
        plan->device.name, plan->kv_pages * (unsigned)KV_PAGE_TOKENS,
        (unsigned long long)plan->kv_bytes >> 20, (unsigned long long)plan->scratch_bytes >> 20,
        (unsigned long long)plan->weights.missing_bytes >> 20,
        (unsigned long long)plan->adapter_bytes >> 20,
        (unsigned long long)plan->available_bytes >> 20, plan->limit);
}

static avo_status too_large(const engine_plan *plan, uint64_t kv_tokens, avo_error *error) {
    if (kv_tokens / KV_PAGE_TOKENS >= PAGES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "kv_tokens is %llu, must be at most %llu",
                           (unsigned long long)kv_tokens,
                           (unsigned long long)PAGES_MAX * KV_PAGE_TOKENS - 1);
    if (!plan->device.host)
        return too_large_apart(plan, error);
    if (kv_tokens > 0)
        return status_fail(
            error, AVO_ERROR_MEMORY,
            "a KV pool of %llu tokens needs %llu MiB, rows and sessions %llu MiB, repacked weights "
            "%llu MiB; %llu MiB are available (%s); use fewer kv_tokens",
            (unsigned long long)kv_tokens, (unsigned long long)plan->kv_bytes >> 20,
            (unsigned long long)(plan->scratch_bytes + plan->session_bytes) >> 20,
            (unsigned long long)plan->weights.missing_bytes >> 20,
            (unsigned long long)plan->available_bytes >> 20, plan->limit);
    unsigned long long context_mib =
        (plan->kv_bytes + plan->scratch_bytes + plan->session_bytes) >> 20;
    unsigned long long available_mib = plan->available_bytes >> 20;
    if (plan->weights.missing_bytes == 0)
        return status_fail(error, AVO_ERROR_MEMORY,
                           "a context of %u tokens needs %llu MiB, %llu MiB are available (%s); "
                           "use a shorter context or fewer rows",
                           plan->context_max, context_mib, available_mib, plan->limit);
    return status_fail(error, AVO_ERROR_MEMORY,
                       "a context of %u tokens takes %llu MiB and weights repacked at load %llu "
                       "MiB, %llu MiB are available (%s); use a shorter context or fewer rows, "
                       "or pack the model (`avocet pack`) into a file that needs no repacking",
                       plan->context_max, context_mib,
                       (unsigned long long)(plan->weights.missing_bytes >> 20), available_mib,
                       plan->limit);
}

typedef struct plan_model {
    const avo_model *model;
    engine_plan *plan;
} plan_model;

/* A device will do if it can compute the model's weights and hold them. */
static avo_status accept_device(void *context, const device *device, avo_error *error) {
    plan_model *p = context;
    const device_info *info = device_describe(device);
    weights_source source = model_weights(p->model, &p->model->view);
    weights_plan weights;
    AVO_TRY(device_weights_plan(device, &source, &weights, error));
    if (!info->host && !info->divides && weights.missing_bytes > info->memory_available)
        return status_fail(error, AVO_ERROR_MEMORY,
                           "%s: the weights need %llu MiB, device %s has %llu MiB (%s)",
                           source.path, (unsigned long long)weights.missing_bytes >> 20, info->name,
                           (unsigned long long)info->memory_available >> 20, info->memory_limit);
    p->plan->weights = weights;
    return AVO_OK;
}

/* Most bytes of the layers' matrices are 16-bit floats. */
static bool has_float_matrices(const model_view *view) {
    uint64_t floats = 0, all = 0;
    for (uint32_t i = 0; i < view->layers; i++) {
        const layer_view *layer = &view->layer[i];
        const weight_view *weights[] = {
            &layer->query.weight, &layer->key.weight, &layer->value.weight, &layer->output.weight,
            &layer->gate.weight,  &layer->up.weight,  &layer->down.weight};
        for (size_t j = 0; j < sizeof(weights) / sizeof(weights[0]); j++) {
            uint64_t bytes = 0;
            if (weights[j]->data == NULL || !weight_bytes(weights[j]->type, weights[j]->layout,
                                                          weights[j]->rows, weights[j]->k, &bytes))
                continue;
            all += bytes;
            floats += weights[j]->type == QUANT_F16 || weights[j]->type == QUANT_BF16 ? bytes : 0;
        }
    }
    return floats > all / 2;
}

static const char *arithmetic_why(const device_info *info, const char *asked, bool from_variable,
                                  bool floats) {
    if (asked != NULL)
        return from_variable ? "AVO_ARITHMETIC" : "requested";
    if (info->host)
        return "device's only one";
    if (info->divides)
        return "layers on two devices need the same bits";
    return floats ? "most matrices are 16-bit floats" : "matrices are not 16-bit floats";
}

/* "split:20:cpu+cuda:0" where some layers shall be the CPU's, else what was asked for. */
static avo_status plan_device_name(const char *layers, const char **asked,
                                   char name[DEVICE_NAME_MAX], avo_error *error) {
    if (layers == NULL)
        return AVO_OK;
    if (layers[0] == '\0' ||
        (strcmp(layers, "auto") != 0 && strspn(layers, "0123456789") != strlen(layers)) ||
        strlen(layers) > 9)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "gpu_layers is \"%.40s\", must be a number of layers or \"auto\"",
                           layers);
    const char *device = strcmp(*asked, "auto") == 0 ? "cuda" : *asked;
    int length = snprintf(name, DEVICE_NAME_MAX, "split:%s:cpu+%s", layers, device);
    if (length < 0 || length >= DEVICE_NAME_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "device '%.40s…': the name is too long",
                           device);
    *asked = name;
    return AVO_OK;
}

static avo_status check_device(const avo_model *model, const engine_plan *plan, avo_error *error) {
    uint32_t layers = model->source->config.layers, own = plan->device.layers_asked;
    if (plan->device.divides && own != LAYERS_FITTING && own > layers)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "gpu_layers is %u, the model has %u layers; must be at most %u, or "
                           "\"auto\"",
                           own, layers, layers);
    if (plan->streams == 1 || plan->device.parallel)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "device %s computes one step at a time, streams is %u; use one stream "
                       "(cores \"mixed\")",
                       plan->device.name, plan->streams);
}

static avo_status plan_device(const avo_model *model, const avo_engine_options *options,
                              device **device, engine_plan *plan, avo_error *error) {
    const char *asked = device_asked(options->device, &plan->device_from);
    char name[DEVICE_NAME_MAX];
    AVO_TRY(plan_device_name(options->gpu_layers, &asked, name, error));
    const char *arithmetic = options->arithmetic, *variable = getenv("AVO_ARITHMETIC");
    bool from_variable = arithmetic == NULL && variable != NULL && variable[0] != '\0';
    bool floats = has_float_matrices(&model->view);
    plan_model accepted = {model, plan};
    device_options own = {.allocator = model->allocator,
                          .name = asked,
                          .threads = options->threads,
                          .streams = plan->streams,
                          .huge_pages = options->huge_pages,
                          .numa = options->numa,
                          .pin = options->pin,
                          .lock = options->lock,
                          .arithmetic = from_variable ? variable : arithmetic,
                          .floats = floats,
                          .accept = accept_device,
                          .accept_context = &accepted,
                          .log = options->log,
                          .log_context = options->log_context};
    avo_error why = {0};
    avo_status status = device_open(&own, device, &why);
    if (status != AVO_OK) /* a name from the environment may be news to who reads this */
        return strncmp(plan->device_from, "AVO_", 4) == 0
                   ? status_fail(error, status, "%s: %s", plan->device_from, why.text)
                   : status_fail(error, status, "%s", why.text);
    plan->device = *device_describe(*device);
    plan->arithmetic_why = arithmetic_why(&plan->device, own.arithmetic, from_variable, floats);
    plan->threads = plan->device.cpu.threads;
    AVO_TRY(check_device(model, plan, error));
    return plan_kv_type(options->kv_type, plan, error);
}

/* Whole pages of the host's memory. */
static avo_status plan_kv_host(const avo_model *model, const avo_engine_options *options,
                               engine_plan *plan, avo_error *error) {
    size_t page;
    uint64_t pages;
    if (options->kv_host_bytes == 0)
        return AVO_OK;
    if (plan->device.host)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "device %s has its KV pages in the host's memory; kv_host_bytes is for "
                           "devices with memory of their own, such as cuda",
                           plan->device.name);
    if (!kv_page_bytes(&model->view, plan->kv_type, &page) || page == 0)
        return status_fail(error, AVO_ERROR_LIMIT, "KV pages are too large");
    pages = options->kv_host_bytes / page;
    if (pages == 0 || pages > PAGES_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "kv_host_bytes is %llu: must be at least one KV page, %zu bytes, and at "
                           "most %u of them",
                           (unsigned long long)options->kv_host_bytes, page, PAGES_MAX);
    plan->kv_host_pages = (uint32_t)pages;
    plan->kv_host_bytes = pages * page;
    return AVO_OK;
}

static avo_status plan_taps(const avo_model *model, const avo_engine_options *options,
                            engine_plan *plan, avo_error *error) {
    if (options->tap_count > DEVICE_TAPS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "tap_count is %zu, must be at most %d",
                           options->tap_count, DEVICE_TAPS_MAX);
    plan->taps = (uint32_t)options->tap_count;
    for (uint32_t i = 0; i < plan->taps; i++) {
        plan->tap[i] = options->taps[i];
        if (plan->tap[i] > model->view.layers || (i > 0 && plan->tap[i] <= plan->tap[i - 1]))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "taps[%u] is %u: taps must ascend and be at most %u, the number of "
                               "layers",
                               i, plan->tap[i], model->view.layers);
    }
    heads_choice heads;
    AVO_TRY(draft_heads_choose(model, options, plan->speculation.kinds, &heads, error));
    if (draft_heads_taps(&heads, plan->tap, &plan->taps))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_LIMIT,
                       "tap_count is %zu: with the taps of the draft heads there are more than %d",
                       options->tap_count, DEVICE_TAPS_MAX);
}

static void plan_limits(const avo_engine_options *options, const device *device,
                        engine_plan *plan) {
    plan->available_bytes = plan->device.memory_available;
    plan->limit = plan->device.memory_limit;
    memory_limit host = memory_limit_detect();
    plan->host_available_bytes = host.available_bytes;
    plan->host_limit = host.source;
    if (options->memory_max > 0 && options->memory_max < plan->available_bytes) {
        plan->available_bytes = options->memory_max;
        plan->limit = "the limit that was asked for";
    }
    if (device_adapters_in_place(device))
        return;
    plan->adapter_bytes = plan->available_bytes / ENGINE_ADAPTERS_PART;
    if (plan->adapter_bytes > ENGINE_ADAPTERS_BYTES)
        plan->adapter_bytes = ENGINE_ADAPTERS_BYTES;
}

static avo_status plan_all(const avo_model *model, const avo_engine_options *options,
                           device **device, engine_plan *plan, avo_error *error) {
    AVO_TRY(plan_counts(model, options, plan, error));
    AVO_TRY(plan_taps(model, options, plan, error));
    plan->log = options->log;
    plan->log_context = options->log_context;
    plan->telemetry = options->telemetry;
    plan->converted_bytes = model->repack_bytes;
    AVO_TRY(plan_device(model, options, device, plan, error));
    AVO_TRY(plan_kv_host(model, options, plan, error));
    plan_limits(options, *device, plan);
    /* The model's own context may be far beyond this machine: a default is fitted, a wish is not.
     */
    while (!plan_fits(model, options, *device, plan)) {
        if (options->context_max != 0 || plan->context_max <= CONTEXT_FITTED_MIN)
            return too_large(plan, options->kv_tokens, error);
        plan->context_max /= 2;
    }
    return AVO_OK;
}

avo_status engine_plan_make(const avo_model *model, const avo_engine_options *given,
                            device **device, engine_plan *plan, avo_error *error) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    *device = NULL;
    memset(plan, 0, sizeof(*plan));
    AVO_TRY(options_take(&options, sizeof(options), given, "avo_engine_options", error));
    avo_status status = plan_all(model, &options, device, plan, error);
    if (status == AVO_OK)
        return AVO_OK;
    device_close(*device);
    *device = NULL;
    return status;
}

/* Of the host and of the device, all that an engine uses, whether it is there already or not. */
static void add_up(const engine_plan *plan, engine_plan_details *details) {
    uint64_t device =
        plan->weights.copied_bytes + plan->kv_bytes + plan->scratch_bytes + plan->adapter_bytes;
    details->adapter_bytes = plan->adapter_bytes;
    details->host_bytes = plan->weights.mapped_bytes + plan->converted_bytes + plan->session_bytes;
    if (plan->device.host)
        details->host_bytes += device;
    else
        details->device_bytes = device;
    const engine_part *first = &plan->part[0];
    details->first_bytes = first->copied_bytes + first->kv_bytes + first->scratch_bytes;
    details->host_bytes += details->first_bytes;
    details->divides = plan->device.divides;
    memcpy(details->part, plan->part, sizeof(details->part));
}

avo_status engine_plan_describe(const avo_model *model, const avo_engine_options *options,
                                avo_plan *out, engine_plan_details *details, avo_error *error) {
    engine_plan plan;
    device *device;
    AVO_TRY(engine_plan_make(model, options, &device, &plan, error));
    device_close(device);
    avo_plan full = {.weight_bytes = plan.weights.mapped_bytes,
                     .repack_bytes = plan.converted_bytes + plan.weights.copied_bytes,
                     .kv_bytes = plan.kv_bytes,
                     .scratch_bytes = plan.scratch_bytes,
                     .available_bytes = plan.available_bytes,
                     .limit = plan.limit,
                     .threads = plan.threads,
                     .context_max = plan.context_max,
                     .kv_pages = plan.kv_pages,
                     .kv_page_tokens = KV_PAGE_TOKENS,
                     .kv_type = kv_type_name(plan.kv_type),
                     .device = plan.device.name,
                     .device_kind = plan.device.kind,
                     .arithmetic = plan.device.arithmetic,
                     .arithmetic_why = plan.arithmetic_why,
                     .host_memory = plan.device.host,
                     .host_available_bytes = plan.host_available_bytes,
                     .huge_pages = plan.device.cpu.huge_pages,
                     .numa = plan.device.cpu.numa,
                     .pin = plan.device.cpu.pin,
                     .numa_nodes = plan.device.cpu.numa_nodes,
                     .lock = plan.device.cpu.lock,
                     .device_from = plan.device_from,
                     .session_bytes = plan.session_bytes - plan.draft_bytes - plan.kv_host_bytes,
                     .kv_host_bytes = plan.kv_host_bytes,
                     .draft_bytes = plan.draft_bytes,
                     .streams = plan.streams,
                     .stream_bytes = plan.stream_bytes,
                     .cpu_layers = plan.part[0].layers};
    *details = (engine_plan_details){
        .weights = plan.weights, .host_limit = plan.host_limit, .speculation = plan.speculation};
    add_up(&plan, details);
    full.cpu_bytes = details->first_bytes;
    options_give(out, &full, sizeof(full));
    return AVO_OK;
}

avo_status avo_engine_plan(const avo_model *model, const avo_engine_options *options, avo_plan *out,
                           avo_error *error) {
    engine_plan_details details;
    return engine_plan_describe(model, options, out, &details, error);
}
