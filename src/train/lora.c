/* LoRA and DoRA: parameters of the chosen modules, their first values, and what the engine's
 * adapter is made of.
 *
 * DoRA's gain is magnitude ÷ ‖W + s·B·A‖ by rows. With P = W·Aᵀ, G = A·Aᵀ and w² = ‖W‖² (once),
 *   ‖W + s·B·A‖² = w² + 2·s·B·P + s²·B·G·Bᵀ
 * so that a change of A and B costs a product with `rank` columns, not one with all of W. */
#include "train/core_int.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/random.h"
#include "formats/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "base_model.model."

/* One module's parameters, and what is derived from them. */
typedef struct lora_module {
    const adapter_live_module *live;
    train_parameter *a, *b, *magnitude; /* magnitude NULL: no DoRA */
    float *b_ordered; /* [rows][rank] in the base's order of rows; NULL: the same as b */
    float *gain;      /* [rows] in the base's order */
    double *square;   /* [rows] w² */
    float *product;   /* [rows][rank] P */
} lora_module;

struct train_lora {
    lora_module *module; /* [count] */
    uint32_t count;
    float *gram;  /* [rank][rank] G */
    float *panel; /* [16][longest k] */
};

/* ---- The list of parameters ---- */

static avo_status take(train_core *core, size_t count, size_t size, const char *what, void **out,
                       avo_error *error) {
    *out = arena_take_array(&core->arena, count, size);
    return *out == NULL ? status_no_memory(error, what, count * size) : AVO_OK;
}

static avo_status add_parameter(train_core *core, const adapter_live_module *live,
                                const char *ending, train_role role, uint32_t rows, uint32_t k,
                                train_parameter **out, avo_error *error) {
    char name[TRAIN_NAME_MAX];
    int length = snprintf(name, sizeof(name), PREFIX "%s.%s", live->name, ending);
    if (length < 0 || (size_t)length >= sizeof(name))
        return status_fail(error, AVO_ERROR_LIMIT, "module %s: the name is too long", live->name);
    train_parameter *parameter = &core->parameters.item[core->parameters.count++];
    *parameter = (train_parameter){.name = arena_copy_text(&core->arena, name, (size_t)length),
                                   .role = role,
                                   .rows = rows,
                                   .k = k};
    *out = parameter;
    return parameter->name == NULL ? status_no_memory(error, "a name", (size_t)length) : AVO_OK;
}

static avo_status add_module(train_core *core, lora_module *module, avo_error *error) {
    const adapter_live_module *live = module->live;
    uint32_t rank = core->options.rank;
    AVO_TRY(
        add_parameter(core, live, "lora_A.weight", TRAIN_LORA_A, rank, live->k, &module->a, error));
    AVO_TRY(add_parameter(core, live, "lora_B.weight", TRAIN_LORA_B, live->rows, rank, &module->b,
                          error));
    if (live->order != NULL)
        AVO_TRY(take(core, (size_t)live->rows * rank, sizeof(float), "rows of B",
                     (void **)&module->b_ordered, error));
    if (!core->options.dora)
        return AVO_OK;
    if (live->matrix[0] == ADAPTER_HEAD)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "DoRA of %s cannot be trained; leave it out of the targets or train it "
                           "with plain LoRA",
                           live->name);
    AVO_TRY(add_parameter(core, live, "lora_magnitude_vector", TRAIN_MAGNITUDE, 1, live->rows,
                          &module->magnitude, error));
    AVO_TRY(take(core, live->rows, sizeof(float), "gains", (void **)&module->gain, error));
    AVO_TRY(take(core, live->rows, sizeof(double), "norms", (void **)&module->square, error));
    return take(core, (size_t)live->rows * rank, sizeof(float), "products of DoRA",
                (void **)&module->product, error);
}

static avo_status list_modules(train_core *core, avo_error *error) {
    struct train_lora *lora = core->lora;
    const adapter_live_module *live = adapter_live_modules(core->adapter, &lora->count);
    size_t most = (size_t)lora->count * 3, rank = core->options.rank;
    if (most > TRAIN_PARAMETERS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%u modules, must be at most %d", lora->count,
                           TRAIN_PARAMETERS_MAX / 3);
    AVO_TRY(take(core, most, sizeof(train_parameter), "parameters", (void **)&core->parameters.item,
                 error));
    AVO_TRY(
        take(core, lora->count, sizeof(*lora->module), "modules", (void **)&lora->module, error));
    size_t longest = size_max(core->model->view.k_max, core->model->view.width);
    AVO_TRY(take(core, rank * rank, sizeof(float), "products of A", (void **)&lora->gram, error));
    AVO_TRY(take(core, longest * QUANT_PANEL_ROWS, sizeof(float), "rows of a matrix",
                 (void **)&lora->panel, error));
    for (uint32_t i = 0; i < lora->count; i++) {
        lora->module[i].live = &live[i];
        AVO_TRY(add_module(core, &lora->module[i], error));
    }
    return AVO_OK;
}

static float scale_of(const train_core_options *options) {
    double rank = (double)options->rank;
    return (float)(options->alpha / (options->rslora ? sqrt(rank) : rank));
}

avo_status train_lora_open(train_core *core, avo_error *error) {
    const train_core_options *o = &core->options;
    if (!isfinite(o->alpha) || o->alpha <= 0.0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "alpha is %g, must be above 0", o->alpha);
    core->scale = scale_of(o);
    core->rank = o->rank;
    adapter_base base = {.config = &core->model->source->config,
                         .view = &core->model->view,
                         .digest = 0,
                         .source = core->model->source};
    adapter_live_options live = {.rank = o->rank,
                                 .scale = core->scale,
                                 .gains = o->dora,
                                 .targets = o->targets,
                                 .target_count = o->target_count};
    AVO_TRY(adapter_live_open(&base, &live, core->allocator, &core->adapter, error));
    AVO_TRY(take(core, 1, sizeof(*core->lora), "LoRA", (void **)&core->lora, error));
    return list_modules(core, error);
}

void train_lora_close(train_core *core) {
    if (core->adapter != NULL)
        adapter_release(core->adapter);
    core->adapter = NULL;
}

/* ---- First values ---- */

/* PEFT's: uniform in ±1 ÷ √k. */
static void draw_a(const train_core *core, uint32_t stream, train_parameter *a) {
    double bound = 1.0 / sqrt((double)a->k);
    for (size_t i = 0; i < (size_t)a->rows * a->k; i++) {
        double uniform = random_uniform_at(core->options.seed, stream, i);
        a->value[i] = (float)((2.0 * uniform - 1.0) * bound);
    }
}

static avo_status read_tensor(const model_source *source, const char *path,
                              const train_parameter *parameter, avo_error *error) {
    const source_tensor *tensor = source_find(source, text_from(parameter->name));
    if (tensor == NULL)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %s is missing; continue with the targets and options that "
                           "the adapter was made with",
                           path, parameter->name);
    bool vector = parameter->rows == 1 && tensor->rank == 1 && tensor->shape[0] == parameter->k;
    bool matrix = tensor->rank == 2 && tensor->shape[0] == parameter->rows &&
                  tensor->shape[1] == parameter->k;
    bool floats =
        tensor->type == QUANT_F32 || tensor->type == QUANT_F16 || tensor->type == QUANT_BF16;
    if (!floats || (!vector && !matrix))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %s has shape [%llu, %llu] and type %s, must have [%u, %u] "
                           "in f32, f16 or bf16",
                           path, parameter->name, (unsigned long long)tensor->shape[0],
                           (unsigned long long)tensor->shape[1], quant_name(tensor->type),
                           parameter->rows, parameter->k);
    size_t count = (size_t)parameter->rows * parameter->k;
    quant_decode(tensor->type, tensor->data, count, parameter->value);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(parameter->value[i]))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: tensor %s contains NaN or Inf; the adapter is damaged", path,
                               parameter->name);
    return AVO_OK;
}

/* Every tensor must have its parameter, too: else something that the adapter has would be lost. */
static avo_status read_source(train_core *core, const model_source *source, const char *path,
                              avo_error *error) {
    for (uint32_t i = 0; i < core->parameters.count; i++)
        AVO_TRY(read_tensor(source, path, &core->parameters.item[i], error));
    if (source->tensor_count != core->parameters.count)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s has %u tensors, training has %u parameters; continue with the "
                           "targets and options that the adapter was made with",
                           path, source->tensor_count, core->parameters.count);
    return AVO_OK;
}

static avo_status check_flag(const char *path, const char *key, bool folder, const char *option,
                             bool own, avo_error *error) {
    if (folder == own)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s: %s is %s, but %s is %s; %s", path, key,
                       folder ? "true" : "false", option, own ? "given" : "not given",
                       own ? "leave it out" : "give it");
}

/* With another scale, the adapter's numbers would mean another change of the model. */
static avo_status check_config(const train_core *core, const char *path, avo_error *error) {
    const train_core_options *o = &core->options;
    adapter_live_config config;
    AVO_TRY(adapter_live_read_config(path, core->allocator, &config, error));
    if (config.rank != o->rank)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: r is %u, but --rank is %u; give --rank %u", path, config.rank,
                           o->rank, config.rank);
    if (config.alpha <= 0.0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: lora_alpha is %.17g; only adapters with an alpha above 0 can be "
                           "trained",
                           path, config.alpha);
    if (config.alpha < o->alpha || config.alpha > o->alpha)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: lora_alpha is %.17g, but --alpha is %.17g; give --alpha %.17g",
                           path, config.alpha, o->alpha, config.alpha);
    AVO_TRY(check_flag(path, "use_rslora", config.rslora, "--rslora", o->rslora, error));
    return check_flag(path, "use_dora", config.dora, "--dora", o->dora, error);
}

static avo_status read_folder(train_core *core, avo_error *error) {
    char path[4096];
    file_map map;
    model_source *source = NULL;
    AVO_TRY(file_join(path, sizeof(path), core->options.resume, "adapter_config.json", error));
    AVO_TRY(check_config(core, path, error));
    AVO_TRY(
        file_join(path, sizeof(path), core->options.resume, "adapter_model.safetensors", error));
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = source_open_tensors(map.bytes, path, core->allocator, &source, error);
    AVO_THEN(status, read_source(core, source, path, error));
    source_close(source);
    file_map_close(&map);
    return status;
}

/* The row of a module's matrices, as one row of PEFT's tensors. */
static size_t file_row(const lora_module *module, size_t row) {
    return module->live->order == NULL ? row : module->live->order[row];
}

/* w² of every row. */
static void sum_squares(train_core *core, lora_module *module) {
    const adapter_live_module *live = module->live;
    for (uint32_t m = 0; m < live->matrices; m++) {
        const weight_view *weight = &train_matrix(core, live, m)->base->weight;
        for (size_t panel = 0; panel < weight_panels(weight); panel++) {
            weight_decode_panel(weight, panel, core->lora->panel);
            for (size_t lane = 0; lane < QUANT_PANEL_ROWS; lane++) {
                size_t row = panel * QUANT_PANEL_ROWS + lane;
                double sum = 0.0;
                for (size_t i = 0; row < weight->rows && i < weight->k; i++) {
                    double w = (double)core->lora->panel[i * QUANT_PANEL_ROWS + lane];
                    sum += w * w;
                }
                if (row < weight->rows)
                    module->square[live->first[m] + row] = sum;
            }
        }
    }
}

static avo_status first_values(train_core *core, avo_error *error) {
    for (uint32_t i = 0; i < core->lora->count; i++) {
        lora_module *module = &core->lora->module[i];
        draw_a(core, i, module->a);
        if (module->magnitude == NULL)
            continue;
        sum_squares(core, module);
        for (size_t row = 0; row < module->live->rows; row++)
            module->magnitude->value[file_row(module, row)] = (float)sqrt(module->square[row]);
    }
    return core->options.resume == NULL ? AVO_OK : read_folder(core, error);
}

/* ---- Places ---- */

train_linear *train_matrix(train_core *core, const adapter_live_module *live, uint32_t index) {
    train_layer *layer = &core->net.layer[live->layer];
    train_linear *const all[] = {&layer->query, &layer->key, &layer->value, &layer->output,
                                 &layer->gate,  &layer->up,  &layer->down,  &core->net.head};
    return all[live->matrix[index]];
}

avo_status train_lora_bind(train_core *core, avo_error *error) {
    size_t rank = core->rank;
    core->net.first = core->net.view->layers;
    for (uint32_t i = 0; i < core->lora->count; i++) {
        const lora_module *module = &core->lora->module[i];
        const adapter_live_module *live = module->live;
        if (live->matrix[0] != ADAPTER_HEAD && live->layer < core->net.first)
            core->net.first = live->layer;
        core->net.head_trained = core->net.head_trained || live->matrix[0] == ADAPTER_HEAD;
        for (uint32_t m = 0; m < live->matrices; m++) {
            train_linear *linear = train_matrix(core, live, m);
            size_t first = live->first[m];
            linear->a = module->a->value;
            linear->da = module->a->gradient;
            linear->b =
                (module->b_ordered != NULL ? module->b_ordered : module->b->value) + first * rank;
            linear->db = module->b->gradient + first * rank;
            linear->order = live->order;
            if (module->magnitude == NULL)
                continue;
            linear->gain = module->gain + first;
            linear->magnitude = module->magnitude->value + first;
            linear->dmagnitude = module->magnitude->gradient + first;
        }
    }
    return first_values(core, error);
}

/* ---- Changes ---- */

/* P of all rows of the module, and G. */
static void make_products(train_core *core, const lora_module *module) {
    const adapter_live_module *live = module->live;
    size_t rank = core->rank, k = live->k;
    for (uint32_t m = 0; m < live->matrices; m++) {
        const weight_view *weight = &train_matrix(core, live, m)->base->weight;
        gemm_call calls[2] = {{.m = weight->rows,
                               .n = rank,
                               .k = k,
                               .a = {.weight = weight},
                               .b = train_floats(module->a->value, 1, k),
                               .c = module->product + live->first[m] * rank,
                               .c_stride = rank,
                               .scale = 1.0f},
                              {.m = rank,
                               .n = rank,
                               .k = k,
                               .a = train_floats(module->a->value, k, 1),
                               .b = train_floats(module->a->value, 1, k),
                               .c = core->lora->gram,
                               .c_stride = rank,
                               .scale = 1.0f}};
        gemm_run(core->gemm, calls, m == 0 ? 2 : 1);
    }
}

/* 2·s·b·p + s²·b·G·bᵀ of one row. */
static double row_change(const train_core *core, const float *b, const float *p) {
    size_t rank = core->rank;
    double scale = (double)core->scale, linear = 0.0, square = 0.0;
    for (size_t i = 0; i < rank; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < rank; j++)
            sum += (double)core->lora->gram[i * rank + j] * (double)b[j];
        linear += (double)b[i] * (double)p[i];
        square += (double)b[i] * sum;
    }
    return 2.0 * scale * linear + scale * scale * square;
}

static avo_status make_gains(train_core *core, const lora_module *module, avo_error *error) {
    size_t rank = core->rank;
    make_products(core, module);
    for (size_t row = 0; row < module->live->rows; row++) {
        size_t from = file_row(module, row);
        double square = module->square[row] + row_change(core, module->b->value + from * rank,
                                                         module->product + row * rank);
        module->gain[row] = (float)((double)module->magnitude->value[from] / sqrt(square));
        if (!isfinite(module->gain[row]))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "module %s: row %zu has norm %g; DoRA divides by the norm, so that "
                               "it cannot train this module: leave it out of the targets",
                               module->live->name, row, sqrt(square));
    }
    return AVO_OK;
}

avo_status train_lora_changed(train_core *core, avo_error *error) {
    size_t rank = core->rank;
    for (uint32_t i = 0; i < core->lora->count; i++) {
        const lora_module *module = &core->lora->module[i];
        for (size_t row = 0; module->b_ordered != NULL && row < module->live->rows; row++)
            memcpy(module->b_ordered + row * rank, module->b->value + file_row(module, row) * rank,
                   rank * sizeof(float));
        if (module->magnitude != NULL)
            AVO_TRY(make_gains(core, module, error));
        adapter_live_set(core->adapter, i, module->a->value, module->b->value, module->gain);
    }
    adapter_live_seal(core->adapter);
    return AVO_OK;
}
