/* An early exit: the first layers of a model, its final norm and its output head, as a model of its
 * own that drafts for the whole. It owns nothing but its own description. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#define EXIT_PREFIX "exit:"

bool model_is_exit(const char *path) {
    return strncmp(path, EXIT_PREFIX, strlen(EXIT_PREFIX)) == 0;
}

/* Digits alone, 1 to `most`; 0: something else. */
static uint32_t read_layers(const char *text, uint32_t most) {
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 6 || text[digits] != '\0')
        return 0;
    unsigned long layers = strtoul(text, NULL, 10);
    return layers <= most ? (uint32_t)layers : 0;
}

static uint64_t linear_bytes(const linear_view *linear, uint64_t *parameters) {
    uint64_t bytes;
    const weight_view *weight = &linear->weight;
    if (weight->data == NULL ||
        !weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes))
        return 0;
    *parameters += (uint64_t)weight->rows * weight->k;
    return bytes;
}

/* Of the layers that it leaves out. Norms and biases are too small to matter. */
static void leave_out(avo_model *model, const model_view *whole) {
    for (uint32_t i = model->view.layers; i < whole->layers; i++) {
        const layer_view *layer = &whole->layer[i];
        const linear_view *const linears[] = {&layer->query,  &layer->key,  &layer->value,
                                              &layer->output, &layer->gate, &layer->up,
                                              &layer->down};
        for (size_t n = 0; n < sizeof(linears) / sizeof(linears[0]); n++) {
            uint64_t parameters = 0;
            model->weight_bytes -= linear_bytes(linears[n], &parameters);
            model->parameters -= parameters;
        }
        for (uint32_t e = 0; e < layer->experts.count; e++) {
            const expert_view *expert = &layer->experts.expert[e];
            uint64_t parameters = 0;
            model->weight_bytes -= linear_bytes(&expert->gate, &parameters) +
                                   linear_bytes(&expert->up, &parameters) +
                                   linear_bytes(&expert->down, &parameters);
            model->parameters -= parameters;
        }
    }
}

avo_status model_bind_exit(avo_model *model, const avo_model *target, const char *path,
                           avo_error *error) {
    if (target == NULL || target->borrows_source)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%.40s is the early exit of another model; open it as a draft model of "
                           "that model (--draft-model)",
                           path);
    uint32_t most = target->view.layers - 1;
    uint32_t layers = read_layers(path + strlen(EXIT_PREFIX), most);
    if (layers == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%.40s: an early exit is exit:N with N from 1 to %u, one below the "
                           "number of layers of %s",
                           path, most, target->source->path);
    model->borrows_text = true;
    model->borrows_source = true;
    model->source = target->source;
    model->store = target->store;
    model->panels = target->panels;
    model->tokenizer = target->tokenizer;
    model->tokenizer_error = target->tokenizer_error;
    model->view = target->view;
    model->view.layers = layers;
    model->parameters = target->parameters;
    model->weight_bytes = target->weight_bytes;
    leave_out(model, &target->view);
    return AVO_OK;
}
