/* The public side of adapters and their registry. */
#include "model/adapters.h"

#include "adapters/registry.h"
#include "base/allocator.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

/* ---- The base ---- */

adapter_base model_adapter_base(const avo_model *model) {
    return (adapter_base){&model->source->config, &model->view, source_digest(model->source),
                          model->source};
}

avo_status model_adapter_type(const char *name, quant_type *type, avo_error *error) {
    *type = QUANT_Q8C;
    if (name == NULL || strcmp(name, "q8") == 0)
        return AVO_OK;
    if (strcmp(name, "f16") == 0)
        *type = QUANT_F16;
    else if (strcmp(name, "f32") == 0)
        *type = QUANT_F32;
    else
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "adapter type is \"%s\", must be \"q8\", \"f16\" or \"f32\"", name);
    return AVO_OK;
}

/* ---- Adapters ---- */

avo_status avo_adapter_open(const avo_model *model, const char *path,
                            const avo_adapter_options *options, avo_adapter **adapter,
                            avo_error *error) {
    *adapter = NULL;
    avo_adapter_options own = AVO_ADAPTER_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_adapter_options", error));
    if (path == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "path must not be NULL");
    adapter_options inner = {0};
    AVO_TRY(model_adapter_type(own.type, &inner.type, error));
    adapter_base base = model_adapter_base(model);
    return adapter_open(&base, path, &inner, model->allocator, adapter, error);
}

avo_adapter *avo_adapter_share(avo_adapter *adapter) {
    return adapter_share(adapter);
}

void avo_adapter_close(avo_adapter *adapter) {
    adapter_release(adapter);
}

static void write_digest(const uint64_t digest[2], char text[33]) {
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)digest[1],
             (unsigned long long)digest[0]);
}

void avo_adapter_describe(const avo_adapter *adapter, avo_adapter_info *info) {
    avo_adapter_info full = {
        .path = adapter->path,
        .method = adapter->method,
        .type = adapter->type,
        .modules_matched = adapter->modules_matched,
        .modules_expected = adapter->modules_expected,
        .bytes = adapter->bytes,
        .memory_bytes = adapter->memory_bytes,
        .idle = adapter->idle,
    };
    for (uint32_t i = 0; i < adapter->modules_matched; i++)
        if (adapter->modules[i].rank > full.rank_max)
            full.rank_max = adapter->modules[i].rank;
    write_digest(adapter->view.digest, full.digest);
    options_give(info, &full, sizeof(full));
}

bool avo_adapter_module_at(const avo_adapter *adapter, size_t index, avo_adapter_module *module) {
    if (index >= adapter->modules_matched)
        return false;
    const adapter_module *found = &adapter->modules[index];
    avo_adapter_module full = {.name = found->name,
                               .kind = found->kind,
                               .rank = found->rank,
                               .scale = found->scale,
                               .norm = adapter_module_norm(adapter, (uint32_t)index)};
    options_give(module, &full, sizeof(full));
    return true;
}

avo_status avo_adapter_pack(const avo_adapter *adapter, const char *path, avo_error *error) {
    return adapter_write(adapter, path, error);
}

/* ---- The registry ---- */

struct avo_registry {
    const avo_allocator *allocator;
    adapter_registry *inner;
};

avo_status avo_registry_open(const avo_model *model, const avo_registry_options *options,
                             avo_registry **registry, avo_error *error) {
    *registry = NULL;
    avo_registry_options own = AVO_REGISTRY_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_registry_options", error));
    registry_options inner = {.root = own.root, .memory_max = own.memory_max};
    AVO_TRY(model_adapter_type(own.type, &inner.adapter.type, error));
    avo_registry *fresh = allocator_take_array(model->allocator, 1, sizeof(*fresh));
    if (fresh == NULL)
        return status_no_memory(error, "a registry", sizeof(*fresh));
    fresh->allocator = model->allocator;
    adapter_base base = model_adapter_base(model);
    avo_status status = registry_open(&base, &inner, model->allocator, &fresh->inner, error);
    if (status != AVO_OK) {
        allocator_give(fresh->allocator, fresh, sizeof(*fresh));
        return status;
    }
    *registry = fresh;
    return AVO_OK;
}

void avo_registry_close(avo_registry *registry) {
    if (registry == NULL)
        return;
    registry_close(registry->inner);
    allocator_give(registry->allocator, registry, sizeof(*registry));
}

avo_status avo_registry_load(avo_registry *registry, const char *name, const char *path,
                             uint32_t flags, avo_error *error) {
    if ((flags & ~(uint32_t)(AVO_REGISTRY_PINNED | AVO_REGISTRY_LAZY)) != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "flags %#x contain unknown bits", flags);
    return registry_load(registry->inner, name, path, (flags & AVO_REGISTRY_PINNED) != 0,
                         (flags & AVO_REGISTRY_LAZY) != 0, error);
}

avo_status avo_registry_unload(avo_registry *registry, const char *name, avo_error *error) {
    return registry_unload(registry->inner, name, error);
}

avo_status avo_registry_take(avo_registry *registry, const char *name, avo_adapter **adapter,
                             avo_error *error) {
    return registry_take(registry->inner, name, adapter, error);
}

avo_status model_registry_take_open(avo_registry *registry, const char *name, avo_adapter **adapter,
                                    avo_error *error) {
    return registry_take_open(registry->inner, name, adapter, error);
}

typedef struct list_context {
    void (*see)(void *context, const avo_registry_entry *entry);
    void *context;
} list_context;

static void see_entry(void *context, const registry_entry *entry) {
    const list_context *list = context;
    avo_registry_entry shown = {.size = sizeof(shown),
                                .name = entry->name,
                                .path = entry->path,
                                .open = entry->open,
                                .pinned = entry->pinned,
                                .memory_bytes = entry->memory_bytes,
                                .users = entry->users,
                                .version = entry->version};
    if (entry->digest[0] != 0 || entry->digest[1] != 0)
        write_digest(entry->digest, shown.digest);
    list->see(list->context, &shown);
}

void avo_registry_list(avo_registry *registry,
                       void (*see)(void *context, const avo_registry_entry *entry), void *context) {
    list_context list = {see, context};
    registry_list(registry->inner, see_entry, &list);
}
