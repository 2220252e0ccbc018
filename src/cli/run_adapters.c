/* `--adapter NAME=PATH[:SCALE]`: opened once, applied to the prompt or chosen by a line. */
#include "cli/run_int.h"

#include <math.h>
#include <string.h>

const char *run_adapters_malformed(const option_list *specs) {
    for (size_t i = 0; i < specs->count; i++)
        if (!cli_adapter_spec_good(specs->items[i]))
            return specs->items[i];
    return NULL;
}

/* None of `specs` is malformed. */
static avo_status open_one(const char *spec, const avo_adapter_options *options,
                           const avo_model *model, run_adapter *adapter, avo_error *error) {
    cli_adapter_spec read;
    AVO_TRY(cli_adapter_spec_read(spec, &read, error));
    memcpy(adapter->name, read.name, sizeof(adapter->name));
    adapter->scale = read.weight;
    return cli_adapter_open(model, read.path, options->type, &adapter->adapter, error);
}

avo_status run_adapters_open(const option_list *specs, const char *type, const avo_model *model,
                             run_adapters *adapters, avo_error *error) {
    avo_adapter_options options = AVO_ADAPTER_OPTIONS_INIT;
    options.type = type;
    for (size_t i = 0; i < specs->count; i++) {
        run_adapter *adapter = &adapters->item[adapters->count];
        AVO_TRY(open_one(specs->items[i], &options, model, adapter, error));
        adapters->count++;
        for (size_t n = 0; n + 1 < adapters->count; n++)
            if (strcmp(adapters->item[n].name, adapter->name) == 0)
                return status_fail(error, AVO_ERROR_ARGUMENT, "--adapter: \"%s\" is given twice",
                                   adapter->name);
    }
    return AVO_OK;
}

void run_adapters_close(run_adapters *adapters) {
    for (size_t i = 0; i < adapters->count; i++)
        avo_adapter_close(adapters->item[i].adapter);
    adapters->count = 0;
}

avo_status run_adapters_all(const run_adapters *adapters, avo_adapter_use *uses, size_t *count,
                            avo_error *error) {
    if (adapters->count > AVO_ADAPTERS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%zu adapters, but at most %d can apply together; select with "
                           "\"adapters\" in the lines of --prompts",
                           adapters->count, AVO_ADAPTERS_MAX);
    for (size_t i = 0; i < adapters->count; i++)
        uses[i] = (avo_adapter_use){adapters->item[i].adapter, adapters->item[i].scale};
    *count = adapters->count;
    return AVO_OK;
}

static const char *name_of(const run_adapters *adapters, const avo_adapter *adapter) {
    for (size_t i = 0; i < adapters->count; i++)
        if (adapters->item[i].adapter == adapter)
            return adapters->item[i].name;
    return "";
}

void run_adapters_write(json_writer *w, const run_adapters *adapters, const avo_adapter_use *uses,
                        size_t count) {
    json_member_array_begin(w, "adapters");
    for (size_t i = 0; i < count; i++) {
        avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
        avo_adapter_describe(uses[i].adapter, &info);
        json_object_begin(w);
        json_member_string(w, "name", name_of(adapters, uses[i].adapter));
        json_member_number(w, "weight", (double)uses[i].weight);
        json_member_string(w, "digest", info.digest);
        json_member_u64(w, "modules_matched", info.modules_matched);
        json_member_u64(w, "modules_expected", info.modules_expected);
        json_end(w);
    }
    json_end(w);
}
