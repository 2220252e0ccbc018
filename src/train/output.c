/* Adapters and models as folders. */
#include "train/output.h"

#include "adapters/live.h"
#include "base/file.h"
#include "base/json_file.h"
#include "formats/safetensors.h"
#include "pack/beside.h"
#include "train/heads.h"

#include <stdio.h>
#include <string.h>

#define ADAPTER_FILE "adapter_model.safetensors"
#define MODEL_FILE   "model.safetensors"
#define HEADS_FILE   "heads.safetensors"

/* ---- Arrays ---- */

static void describe(const output_array *array, safetensors_tensor *tensor) {
    *tensor = (safetensors_tensor){.name = text_from(array->name), .type = QUANT_F32};
    tensor->rank = array->vector ? 1 : 2;
    tensor->shape[0] = array->vector ? array->k : array->rows;
    tensor->shape[1] = array->k;
}

static uint32_t count_arrays(output_next next, const void *context) {
    output_array array;
    uint32_t count = 0;
    while (next(context, count, &array))
        count++;
    return count;
}

static avo_status append_arrays(safetensors_writer *writer, output_next next, const void *context,
                                avo_error *error) {
    output_array array;
    avo_status status = AVO_OK;
    for (uint32_t i = 0; status == AVO_OK && next(context, i, &array); i++)
        status = safetensors_writer_append(writer, array.data,
                                           (size_t)array.rows * array.k * sizeof(float), error);
    return status;
}

avo_status output_write_arrays(const char *path, output_next next, const void *context,
                               avo_error *error) {
    static const safetensors_entry metadata = {TEXT_LITERAL("format"), TEXT_LITERAL("pt")};
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    uint32_t count = count_arrays(next, context);
    output_array *arrays = arena_take_array(&arena, count, sizeof(*arrays));
    safetensors_tensor *tensors = arena_take_array(&arena, count, sizeof(*tensors));
    avo_status status = AVO_OK;
    if (arrays == NULL || tensors == NULL)
        status = status_no_memory(error, "a list of tensors", count * sizeof(*arrays));
    for (uint32_t i = 0; i < count && status == AVO_OK; i++) {
        (void)next(context, i, &arrays[i]);
        describe(&arrays[i], &tensors[i]);
    }
    safetensors_content content = {
        .tensors = tensors, .tensor_count = count, .metadata = &metadata, .metadata_count = 1};
    safetensors_writer *writer = NULL;
    AVO_THEN(status, safetensors_writer_open(NULL, path, &content, &writer, error));
    if (status == AVO_OK) {
        status = append_arrays(writer, next, context, error);
        if (status == AVO_OK)
            status = safetensors_writer_commit(writer, error);
        else
            safetensors_writer_abort(writer);
    }
    arena_free(&arena);
    return status;
}

static avo_status take_array(const model_source *source, const output_array *array,
                             avo_error *error) {
    const source_tensor *tensor = source_find(source, text_from(array->name));
    if (tensor == NULL)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor %s is missing", source->path,
                           array->name);
    bool fits = tensor->type == QUANT_F32 && tensor->rank == (array->vector ? 1 : 2) &&
                tensor->shape[0] == (array->vector ? array->k : array->rows) &&
                (array->vector || tensor->shape[1] == array->k);
    if (!fits)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %s must be float32 of %u × %u, is %s of %llu × %llu",
                           source->path, array->name, array->rows, array->k,
                           quant_name(tensor->type), (unsigned long long)tensor->shape[0],
                           (unsigned long long)tensor->shape[1]);
    memcpy(array->data, tensor->data, (size_t)array->rows * array->k * sizeof(float));
    return AVO_OK;
}

avo_status output_read_arrays(const char *path, output_next next, const void *context,
                              avo_error *error) {
    file_map map;
    model_source *source = NULL;
    output_array array;
    AVO_TRY(file_map_open(path, &map, error));
    bytes_view bytes = map.bytes;
    avo_status status = source_open_tensors(bytes, path, NULL, &source, error);
    for (uint32_t i = 0; status == AVO_OK && next(context, i, &array); i++)
        status = take_array(source, &array, error);
    source_close(source);
    file_map_close(&map);
    return status;
}

/* ---- Parameters ---- */

static bool next_parameter(const void *context, uint32_t index, output_array *array) {
    const train_parameters *parameters = context;
    if (index >= parameters->count)
        return false;
    const train_parameter *p = &parameters->item[index];
    *array = (output_array){.rows = p->rows,
                            .k = p->k,
                            .vector = p->rows == 1 &&
                                      (p->role == TRAIN_VECTOR || p->role == TRAIN_MAGNITUDE),
                            .data = p->value};
    snprintf(array->name, sizeof(array->name), "%s", p->name);
    return true;
}

/* ---- adapter_config.json ---- */

/* "model.layers.0.self_attn.q_proj" of
 * "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"; empty: of no A. */
static text_view module_of(const char *name) {
    static const char prefix[] = "base_model.model.", ending[] = ".lora_A.weight";
    text_view text = text_from(name);
    if (!text_starts(text, TEXT_LITERAL(prefix)) || !text_ends(text, TEXT_LITERAL(ending)))
        return (text_view){"", 0};
    size_t around = sizeof(prefix) - 1 + sizeof(ending) - 1;
    return (text_view){name + sizeof(prefix) - 1, text.size - around};
}

static uint32_t count_trained(const train_parameters *parameters, text_view parts) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < parameters->count; i++)
        count += adapter_name_ends(module_of(parameters->item[i].name), parts);
    return count;
}

/* The fewest last parts of the module's name that no module has which was not trained: readers of
 * the folder expect tensors of every module that an entry means. */
static text_view target_of(const model_config *config, const train_parameters *parameters,
                           text_view module) {
    for (size_t at = module.size; at-- > 0;) {
        text_view parts = {module.data + at, module.size - at};
        if (at > 0 && module.data[at - 1] != '.')
            continue;
        if (count_trained(parameters, parts) == adapter_names_ending(config, parts))
            return parts;
    }
    return module;
}

/* Each target once, in the order of the parameters. */
static avo_status write_modules(const model_config *config, const train_parameters *parameters,
                                arena *scratch, json_writer *w, avo_error *error) {
    text_view *targets = arena_take_array(scratch, parameters->count, sizeof(*targets));
    uint32_t count = 0;
    if (targets == NULL)
        return status_no_memory(error, "target modules", parameters->count * sizeof(*targets));
    json_member_array_begin(w, "target_modules");
    for (uint32_t i = 0; i < parameters->count; i++) {
        text_view module = module_of(parameters->item[i].name);
        bool known = module.size == 0;
        for (uint32_t t = 0; t < count && !known; t++)
            known = adapter_name_ends(module, targets[t]);
        if (known)
            continue;
        targets[count] = target_of(config, parameters, module);
        json_text(w, targets[count++]);
    }
    json_end(w);
    return AVO_OK;
}

static avo_status write_adapter_config(const avo_model *model, const train_settings *s,
                                       const train_parameters *parameters, const char *folder,
                                       avo_error *error) {
    char path[4200];
    buffer text;
    arena scratch;
    AVO_TRY(file_join(path, sizeof(path), folder, "adapter_config.json", error));
    arena_init(&scratch, NULL, SIZE_MAX);
    buffer_init(&text, NULL, (size_t)1 << 20);
    json_writer w = json_writer_indented(&text, 1);
    json_object_begin(&w);
    json_member_string(&w, "base_model_name_or_path", model->source->path);
    json_member_string(&w, "bias", "none");
    json_member_boolean(&w, "fan_in_fan_out",
                        model->source->config.architecture == ARCHITECTURE_GPT2);
    json_member_boolean(&w, "inference_mode", true);
    json_member_boolean(&w, "init_lora_weights", true);
    json_member_number(&w, "lora_alpha", s->alpha);
    json_member_fixed(&w, "lora_dropout", 0.0, 1);
    json_member_null(&w, "modules_to_save");
    json_member_string(&w, "peft_type", "LORA");
    json_member_u64(&w, "r", s->rank);
    avo_status status = write_modules(&model->source->config, parameters, &scratch, &w, error);
    json_member_string(&w, "task_type", "CAUSAL_LM");
    json_member_boolean(&w, "use_dora", s->dora);
    json_member_boolean(&w, "use_rslora", s->rslora);
    json_end(&w);
    AVO_THEN(status, json_file_write(&w, path, error));
    buffer_free(&text);
    arena_free(&scratch);
    return status;
}

/* ---- Folders ---- */

avo_status output_check(const avo_model *model, const train_settings *settings, avo_error *error) {
    const model_source *source = model->source;
    if (!settings->full || source->format == SOURCE_SAFETENSORS)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s: is %s; all weights can be trained of a folder with safetensors only, "
                       "other models with a LoRA adapter",
                       source->path, source_format_name(source->format));
}

const char *output_file(const train_settings *settings) {
    if (settings->task == TRAIN_HEADS)
        return HEADS_FILE;
    return settings->full ? MODEL_FILE : ADAPTER_FILE;
}

static avo_status write_heads(const train_settings *settings, const train_parameters *parameters,
                              bool exact, const char *path, avo_error *error) {
    quant_type type = strcmp(settings->type, "q4") == 0   ? QUANT_Q4_1
                      : strcmp(settings->type, "q8") == 0 ? QUANT_Q8_0
                                                          : QUANT_F32;
    return train_heads_write(parameters->heads, path, exact ? QUANT_F32 : type, error);
}

avo_status output_write(const avo_model *model, const train_settings *settings,
                        const train_parameters *parameters, bool exact, const char *folder,
                        avo_error *error) {
    char path[4200];
    AVO_TRY(file_join(path, sizeof(path), folder, output_file(settings), error));
    if (settings->task == TRAIN_HEADS)
        return write_heads(settings, parameters, exact, path, error);
    if (settings->full) {
        pack_beside beside = {.source = model->source, .dtype = "float32"};
        AVO_TRY(pack_write_beside(&beside, folder, error));
    } else {
        AVO_TRY(write_adapter_config(model, settings, parameters, folder, error));
    }
    return output_write_arrays(path, next_parameter, parameters, error);
}

avo_status output_read(const train_settings *settings, const train_parameters *parameters,
                       const char *folder, avo_error *error) {
    char path[4200];
    AVO_TRY(file_join(path, sizeof(path), folder, output_file(settings), error));
    return output_read_arrays(path, next_parameter, parameters, error);
}
