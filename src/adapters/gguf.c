/* llama.cpp's adapters: a GGUF with general.type "adapter", adapter.type "lora", one
 * adapter.lora.alpha for all, and for every matrix a pair NAME.lora_a [rank][k], NAME.lora_b
 * [rows][rank]. Names are GGUF's, rows of q and k lie as in GGUF's models; the embedding's A is
 * [vocabulary][rank]. The scale is alpha / rank, or 1 where alpha is 0.
 */
#include "adapters/adapters_int.h"

#include <stdio.h>

static avo_status expect_text(const adapter_draft *draft, const gguf_metadata *metadata,
                              const char *key, const char *wanted, avo_error *error) {
    text_view text = TEXT_LITERAL("");
    const gguf_value *value = gguf_find(metadata, key);
    if (value == NULL || !gguf_string(value, 0, &text))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: %s is missing; the file is a GGUF, but not an adapter", draft->path,
                           key);
    if (!text_is(text, wanted))
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: %s is \"%.*s\", must be \"%s\"",
                           draft->path, key, TEXT_ARGUMENT(text), wanted);
    return AVO_OK;
}

/* Mistral's models are llamas there. */
static const char *gguf_architecture(source_architecture architecture) {
    bool llama = architecture == ARCHITECTURE_MISTRAL || architecture == ARCHITECTURE_MIXTRAL;
    return source_architecture_name(llama ? ARCHITECTURE_LLAMA : architecture);
}

static bool rows_are_interleaved(source_architecture architecture) {
    return architecture == ARCHITECTURE_LLAMA || architecture == ARCHITECTURE_MISTRAL ||
           architecture == ARCHITECTURE_SMOLLM3 || architecture == ARCHITECTURE_MIXTRAL ||
           architecture == ARCHITECTURE_GRANITE_MOE;
}

static avo_status place_tensor(adapter_draft *draft, const source_tensor *tensor,
                               avo_error *error) {
    const model_config *config = draft->base->config;
    bool down = text_ends(tensor->name, TEXT_LITERAL(".weight.lora_a"));
    bool up = text_ends(tensor->name, TEXT_LITERAL(".weight.lora_b"));
    text_view name = tensor->name;
    uint32_t index = UINT32_MAX;
    if (down || up) {
        name.size -= sizeof(".weight.lora_a") - 1;
        index = module_find_gguf(config, name);
    }
    if (index == UINT32_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %.*s matches no part of the model (%s, %u layers); it "
                           "was probably trained on another model",
                           draft->path, TEXT_ARGUMENT(tensor->name),
                           source_architecture_name(config->architecture), config->layers);
    module_draft *module = &draft->modules[index];
    *(down ? &module->down : &module->up) = tensor; /* names are unique in a file */
    if (module->name != NULL)
        return AVO_OK;
    char shown[ADAPTER_NAME_MAX];
    module->targeted = true;
    draft->modules_expected++;
    if (!module_name(config, module_wrapper(config->architecture), index, shown, sizeof(shown)))
        snprintf(shown, sizeof(shown), "%.*s", TEXT_ARGUMENT(name));
    module->name = arena_copy_text(draft->arena, shown, strlen(shown));
    return module->name == NULL ? status_no_memory(error, "a name", strlen(shown)) : AVO_OK;
}

static void settle_scales(adapter_draft *draft, double alpha) {
    for (uint32_t i = 0; i < draft->module_count; i++) {
        module_draft *module = &draft->modules[i];
        if (module->up == NULL)
            continue;
        uint64_t rank = module->up->shape[1];
        module->rank = rank > UINT32_MAX ? UINT32_MAX : (uint32_t)rank;
        module->scale = alpha == 0.0 || rank == 0 ? 1.0 : alpha / (double)rank;
    }
}

avo_status gguf_adapter_read(adapter_draft *draft, const model_source *source, avo_error *error) {
    const gguf_metadata *metadata = source->gguf;
    source_architecture architecture = draft->base->config->architecture;
    AVO_TRY(expect_text(draft, metadata, "general.type", "adapter", error));
    AVO_TRY(expect_text(draft, metadata, "adapter.type", "lora", error));
    AVO_TRY(expect_text(draft, metadata, "general.architecture", gguf_architecture(architecture),
                        error));
    if (gguf_find(metadata, "adapter.alora.invocation_tokens") != NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: adapter.alora.invocation_tokens (activated LoRA) is not supported",
                           draft->path);
    double alpha = 0.0;
    const gguf_value *value = gguf_find(metadata, "adapter.lora.alpha");
    if (value == NULL || !gguf_number(value, 0, &alpha) || !(alpha > -1e9 && alpha < 1e9))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: adapter.lora.alpha is missing or not a number", draft->path);
    draft->method = "lora";
    draft->look_rows = true;
    draft->rows_interleaved = rows_are_interleaved(architecture);
    for (uint32_t i = 0; i < source->tensor_count; i++)
        AVO_TRY(place_tensor(draft, &source->tensors[i], error));
    if (draft->modules_expected == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the adapter has no tensors", draft->path);
    settle_scales(draft, alpha);
    return AVO_OK;
}
