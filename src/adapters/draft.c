/* What must hold of a draft, whoever has read it: halves, shapes, ranks, types. Nothing later
 * checks shapes again. */
#include "adapters/adapters_int.h"

#include <math.h>

typedef struct module_shape {
    uint64_t rows, k;
} module_shape;

/* The shape of the base's module. False: the model has no such matrix. */
static bool shape_of(const adapter_draft *draft, uint32_t layer, module_role role,
                     module_shape *shape) {
    const model_view *view = draft->base->view;
    const linear_view *linear = NULL;
    switch (role) {
    case MODULE_EMBEDDING:
        *shape = (module_shape){view->embedding.rows, view->embedding.k};
        return true;
    case MODULE_QKV: {
        const layer_view *l = &view->layer[layer];
        *shape = (module_shape){(uint64_t)l->query.weight.rows + l->key.weight.rows +
                                    l->value.weight.rows,
                                l->query.weight.k};
        return true;
    }
    case MODULE_GATE_UP: {
        const layer_view *l = &view->layer[layer];
        *shape =
            (module_shape){(uint64_t)l->gate.weight.rows + l->up.weight.rows, l->gate.weight.k};
        return l->gate.weight.data != NULL;
    }
    case MODULE_QUERY:
        linear = site_linear(view, layer, SITE_QUERY);
        break;
    case MODULE_KEY:
        linear = site_linear(view, layer, SITE_KEY);
        break;
    case MODULE_VALUE:
        linear = site_linear(view, layer, SITE_VALUE);
        break;
    case MODULE_OUTPUT:
        linear = site_linear(view, layer, SITE_OUTPUT);
        break;
    case MODULE_GATE:
        linear = site_linear(view, layer, SITE_GATE);
        break;
    case MODULE_UP:
        linear = site_linear(view, layer, SITE_UP);
        break;
    case MODULE_DOWN:
        linear = site_linear(view, layer, SITE_DOWN);
        break;
    case MODULE_HEAD:
        linear = site_linear(view, layer, SITE_HEAD);
        break;
    default:
        break;
    }
    if (linear == NULL)
        return false;
    *shape = (module_shape){linear->weight.rows, linear->weight.k};
    return true;
}

static avo_status bad_shape(const adapter_draft *draft, const source_tensor *tensor, uint64_t rows,
                            uint64_t k, avo_error *error) {
    return status_fail(error, AVO_ERROR_FORMAT,
                       "%s: tensor %.*s has shape [%llu, %llu], the model needs [%llu, %llu]; the "
                       "adapter was probably trained on another model",
                       draft->path, TEXT_ARGUMENT(tensor->name),
                       (unsigned long long)tensor->shape[0], (unsigned long long)tensor->shape[1],
                       (unsigned long long)rows, (unsigned long long)k);
}

static avo_status check_type(const adapter_draft *draft, const source_tensor *tensor,
                             avo_error *error) {
    bool known = tensor->type == QUANT_F32 || tensor->type == QUANT_F16 ||
                 tensor->type == QUANT_BF16 || tensor->type == QUANT_Q8_0;
    if (known && tensor->layout == QUANT_LAYOUT_ROWS)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s: tensor %.*s has type %s, must be F32, F16 or BF16", draft->path,
                       TEXT_ARGUMENT(tensor->name), quant_name(tensor->type));
}

static avo_status check_matrix(const adapter_draft *draft, const source_tensor *tensor,
                               uint64_t rows, uint64_t k, avo_error *error) {
    AVO_TRY(check_type(draft, tensor, error));
    if (tensor->rank != 2 || tensor->shape[0] != rows || tensor->shape[1] != k)
        return bad_shape(draft, tensor, rows, k, error);
    return AVO_OK;
}

static avo_status check_vector(const adapter_draft *draft, const source_tensor *tensor,
                               uint64_t count, avo_error *error) {
    AVO_TRY(check_type(draft, tensor, error));
    if (tensor->type == QUANT_Q8_0 || source_tensor_elements(tensor) != count)
        return bad_shape(draft, tensor, count, 1, error);
    return AVO_OK;
}

static avo_status check_low_rank(const adapter_draft *draft, const module_draft *module,
                                 module_role role, module_shape shape, avo_error *error) {
    if (module->down == NULL || module->up == NULL)
        return status_fail(
            error, AVO_ERROR_FORMAT, "%s: module %s has only one matrix of its low-rank pair, %s",
            draft->path, module->name, module->down == NULL ? "B without A" : "A without B");
    if (module->rank < 1 || module->rank > ADAPTER_RANK_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: module %s: rank is %u, must be 1 to %d",
                           draft->path, module->name, module->rank, ADAPTER_RANK_MAX);
    bool embedding = role == MODULE_EMBEDDING;
    uint64_t rank = embedding && draft->look_rows ? module->down->shape[1] : module->down->shape[0];
    if (module->down->rank == 2 && rank != module->rank)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor %.*s has rank %llu, the %s says %u",
                           draft->path, TEXT_ARGUMENT(module->down->name), (unsigned long long)rank,
                           embedding && draft->look_rows ? "other matrix" : "configuration",
                           module->rank);
    if (embedding && draft->look_rows)
        AVO_TRY(check_matrix(draft, module->down, shape.rows, module->rank, error));
    else
        AVO_TRY(check_matrix(draft, module->down, module->rank, embedding ? shape.rows : shape.k,
                             error));
    if (!isfinite((float)module->scale))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: module %s: scale is %g, must be finite",
                           draft->path, module->name, module->scale);
    return check_matrix(draft, module->up, embedding ? shape.k : shape.rows, module->rank, error);
}

/* Magnitudes and biases of B go with a low rank only: without one, nothing would write the gain. */
static avo_status check_extras(const adapter_draft *draft, const module_draft *module,
                               module_role role, module_shape shape, avo_error *error) {
    const source_tensor *extra = module->magnitude != NULL ? module->magnitude : module->up_bias;
    if (extra != NULL && (module->down == NULL || module->up == NULL))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %.*s needs LoRA matrices, module %s has none", draft->path,
                           TEXT_ARGUMENT(extra->name), module->name);
    if (module->up_bias != NULL)
        AVO_TRY(check_vector(draft, module->up_bias, shape.rows, error));
    if (module->magnitude != NULL)
        AVO_TRY(check_vector(draft, module->magnitude,
                             role == MODULE_EMBEDDING ? shape.k : shape.rows, error));
    return AVO_OK;
}

static avo_status check_whole(const adapter_draft *draft, const module_draft *module,
                              const source_tensor *tensor, module_role role, module_shape shape,
                              avo_error *error) {
    if (module->token_row != NULL)
        shape.rows = (uint32_t)tensor->shape[0]; /* as many as tokens: peft.c has looked */
    bool transposed = draft->transposed && role < MODULE_LAYER_ROLES;
    AVO_TRY(check_matrix(draft, tensor, transposed ? shape.k : shape.rows,
                         transposed ? shape.rows : shape.k, error));
    if (tensor->type == QUANT_Q8_0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor %.*s has type q8_0, which is not supported here",
                           draft->path, TEXT_ARGUMENT(tensor->name));
    return AVO_OK;
}

static avo_status check_norm(const adapter_draft *draft, const module_draft *module, uint32_t layer,
                             module_role role, avo_error *error) {
    uint32_t width = 0;
    adapter_site sites[MODULE_SITES_MAX];
    (void)module_sites(role, sites);
    const norm_view *norm = site_norm(draft->base->view, layer, sites[0], &width);
    if (norm == NULL)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the model has no norm %s", draft->path,
                           module->name);
    if (module->down != NULL || module->up != NULL || module->up_bias != NULL ||
        module->magnitude != NULL || module->copy != NULL)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: module %s is a norm, which can only have a weight and a bias",
                           draft->path, module->name);
    if (module->weight != NULL)
        AVO_TRY(check_vector(draft, module->weight, width, error));
    if (module->bias != NULL)
        AVO_TRY(check_vector(draft, module->bias, width, error));
    return AVO_OK;
}

static avo_status check_module(const adapter_draft *draft, uint32_t index, avo_error *error) {
    const module_draft *module = &draft->modules[index];
    uint32_t layer;
    module_role role = module_role_of(draft->base->config, index, &layer);
    if (module_is_norm(role))
        return check_norm(draft, module, layer, role, error);
    module_shape shape;
    if (!shape_of(draft, layer, role, &shape))
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the model has no matrix %s", draft->path,
                           module->name);
    bool low_rank = module->down != NULL || module->up != NULL;
    if (low_rank && module->weight != NULL)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: module %s has both LoRA matrices and a full weight", draft->path,
                           module->name);
    if (role == MODULE_EMBEDDING && draft->base->view->embedding_project.weight.data != NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: module %s: adapters of a projected embedding are not supported",
                           draft->path, module->name);
    if (low_rank)
        AVO_TRY(check_low_rank(draft, module, role, shape, error));
    AVO_TRY(check_extras(draft, module, role, shape, error));
    if (module->weight != NULL)
        AVO_TRY(check_whole(draft, module, module->weight, role, shape, error));
    if (module->copy != NULL)
        AVO_TRY(check_whole(draft, module, module->copy, role, shape, error));
    if (module->bias != NULL)
        AVO_TRY(check_vector(draft, module->bias, shape.rows, error));
    return AVO_OK;
}

avo_status draft_check(const adapter_draft *draft, avo_error *error) {
    for (uint32_t i = 0; i < draft->module_count; i++)
        if (draft->modules[i].name != NULL)
            AVO_TRY(check_module(draft, i, error));
    return AVO_OK;
}

/* In a head of d rows, GGUF's row 2i + j is Hugging Face's i + j · d / 2. */
uint32_t draft_row(const adapter_draft *draft, adapter_site site, uint32_t row) {
    const model_config *config = draft->base->config;
    if ((site != SITE_QUERY && site != SITE_KEY) ||
        draft->rows_interleaved == config->rope_interleaved)
        return row;
    uint32_t size = config->head_size, half = size / 2;
    uint32_t head = row / size * size, at = row % size;
    return config->rope_interleaved ? head + at / 2 + at % 2 * half
                                    : head + at % half * 2 + at / half;
}
