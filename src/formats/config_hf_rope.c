/* Rotary positions of config.json, in the spelling before transformers 5 (`rope_theta`,
 * `rope_scaling`, `rope_local_base_freq`) and in its own (`rope_parameters`, for Gemma 3 one set
 * per kind of layer). */
#include "formats/config_hf_int.h"

/* The object with the scaling's numbers; NULL: plain. */
static avo_status find_object(const hf_reader *reader, const json_value *parent, const char *key,
                              const json_value **object) {
    *object = hf_find(parent, key);
    if (*object == NULL)
        return AVO_OK;
    if ((*object)->kind != JSON_OBJECT)
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s (line %u) is not an object",
                           reader->file, key, (*object)->line);
    if ((*object)->object.count == 0)
        *object = NULL;
    return AVO_OK;
}

static avo_status read_kind(const hf_reader *reader, const json_value *object,
                            rope_scaling_kind *kind) {
    static const struct {
        const char *name;
        rope_scaling_kind kind;
    } names[] = {
        {"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
        {"yarn", ROPE_YARN},     {"llama3", ROPE_LLAMA3}, {"longrope", ROPE_LONGROPE},
    };
    text_view name = TEXT_LITERAL("default");
    AVO_TRY(hf_string(reader, object, "type", &name));
    AVO_TRY(hf_string(reader, object, "rope_type", &name));
    /* Phi-3's first files called it so. */
    if (reader->config->architecture == ARCHITECTURE_PHI3 &&
        (text_is(name, "su") || text_is(name, "yarn")))
        name = TEXT_LITERAL("longrope");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (text_is(name, names[i].name)) {
            *kind = names[i].kind;
            return AVO_OK;
        }
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: rope type \"%.*s\" (line %u) is not supported; supported: default, "
                       "linear, dynamic, yarn, llama3, longrope",
                       reader->file, TEXT_ARGUMENT(name), object->line);
}

static avo_status read_factors(const hf_reader *reader, const json_value *object, const char *key,
                               const double **factors, uint32_t *count) {
    const json_value *list = hf_find(object, key);
    if (list == NULL || list->kind != JSON_ARRAY || list->array.count == 0 ||
        list->array.count > SOURCE_HEAD_SIZE_MAX)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: %s is missing or not an array of 1 to %d numbers", reader->file,
                           key, SOURCE_HEAD_SIZE_MAX);
    void *numbers;
    AVO_TRY(source_take(reader->source, list->array.count, sizeof(double), key, &numbers,
                        reader->error));
    for (size_t i = 0; i < list->array.count; i++) {
        const json_value *item = &list->array.items[i];
        if (item->kind != JSON_INTEGER && item->kind != JSON_NUMBER)
            return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s[%zu] is not a number",
                               reader->file, key, i);
        double number = item->kind == JSON_INTEGER ? (double)item->integer : item->number;
        ((double *)numbers)[i] = (double)(float)number; /* transformers makes them f32 */
    }
    *factors = numbers;
    *count = (uint32_t)list->array.count;
    return AVO_OK;
}

static avo_status read_longrope(const hf_reader *reader, const json_value *object,
                                rope_scaling *rope) {
    uint32_t short_count, long_count;
    AVO_TRY(read_factors(reader, object, "short_factor", &rope->short_factor, &short_count));
    AVO_TRY(read_factors(reader, object, "long_factor", &rope->long_factor, &long_count));
    if (short_count != long_count)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: short_factor has %u values and long_factor %u, must be equal",
                           reader->file, short_count, long_count);
    rope->factor_count = long_count;
    return AVO_OK;
}

static avo_status need(const hf_reader *reader, const json_value *object, const char *key) {
    if (hf_find(object, key) != NULL)
        return AVO_OK;
    return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: RoPE scaling (line %u) lacks %s",
                       reader->file, object->line, key);
}

/* The context before scaling: beside the object (Phi-3), in it, or the model's own. */
static avo_status read_original(const hf_reader *reader, const json_value *object,
                                rope_scaling *rope) {
    static const char key[] = "original_max_position_embeddings";
    rope->original_context = reader->config->context;
    if (reader->config->architecture == ARCHITECTURE_PHI3 && hf_find(reader->root, key) == NULL)
        rope->original_context = 4096;
    else
        AVO_TRY(hf_u32(reader, object, key, 2, SOURCE_CONTEXT_MAX, &rope->original_context));
    return hf_u32(reader, reader->root, key, 2, SOURCE_CONTEXT_MAX, &rope->original_context);
}

static avo_status read_scaling(const hf_reader *reader, const json_value *object) {
    rope_scaling *rope = &reader->config->rope;
    AVO_TRY(read_kind(reader, object, &rope->kind));
    if (rope->kind == ROPE_PLAIN)
        return AVO_OK;
    if (rope->kind != ROPE_YARN && rope->kind != ROPE_LONGROPE)
        AVO_TRY(need(reader, object, "factor"));
    if (rope->kind == ROPE_LLAMA3) {
        AVO_TRY(need(reader, object, "low_freq_factor"));
        AVO_TRY(need(reader, object, "high_freq_factor"));
    }
    if (rope->kind == ROPE_DYNAMIC)
        rope->original_context = reader->config->context;
    else if (rope->kind != ROPE_LINEAR)
        AVO_TRY(read_original(reader, object, rope));
    if (rope->original_context > 0)
        rope->factor = (double)reader->config->context / rope->original_context;
    const struct {
        const char *key;
        double *number;
    } numbers[] = {
        {"factor", &rope->factor},
        {"low_freq_factor", &rope->low_frequency_factor},
        {"high_freq_factor", &rope->high_frequency_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"attention_factor", &rope->attention_factor},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        AVO_TRY(hf_number(reader, object, numbers[i].key, 0, 1e6, numbers[i].number));
    avo_status status = json_get_boolean(object, "truncate", &rope->truncate, reader->error);
    if (status != AVO_OK)
        return status_prefix(reader->error, status, "%s", reader->file);
    return rope->kind == ROPE_LONGROPE ? read_longrope(reader, object, rope) : AVO_OK;
}

/* Of the head's dimensions, how many rotate. Only Phi-3's computation knows parts. */
static avo_status read_partial(const hf_reader *reader, const json_value *object) {
    model_config *c = reader->config;
    double part = 1;
    AVO_TRY(hf_number(reader, reader->root, "partial_rotary_factor", 0, 1, &part));
    AVO_TRY(hf_number(reader, object, "partial_rotary_factor", 0, 1, &part));
    if (part != 1 && c->architecture != ARCHITECTURE_PHI3)
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: partial_rotary_factor is %g, must be 1 for %s", reader->file, part,
                           reader->family->model_type);
    c->rotary_dims = (uint32_t)(c->head_size * part);
    if (c->rotary_dims < 2)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: partial_rotary_factor %g of %u dimensions leaves none to rotate",
                           reader->file, part, c->head_size);
    return AVO_OK;
}

/* Gemma 3: the windowed layers' own base, never scaled. */
static avo_status read_local(const hf_reader *reader, const json_value *nested) {
    model_config *c = reader->config;
    c->rope_base_local = 1e4;
    AVO_TRY(
        hf_number(reader, reader->root, "rope_local_base_freq", 1.0001, 1e12, &c->rope_base_local));
    const json_value *local;
    AVO_TRY(find_object(reader, nested, "sliding_attention", &local));
    if (local == NULL)
        return AVO_OK;
    rope_scaling_kind kind;
    AVO_TRY(read_kind(reader, local, &kind));
    if (kind != ROPE_PLAIN)
        return status_fail(
            reader->error, AVO_ERROR_UNSUPPORTED,
            "%s: RoPE scaling of sliding_attention layers (line %u) is not supported", reader->file,
            local->line);
    return hf_number(reader, local, "rope_theta", 1.0001, 1e12, &c->rope_base_local);
}

avo_status hf_rope(const hf_reader *reader) {
    model_config *c = reader->config;
    c->rope = (rope_scaling){
        .kind = ROPE_PLAIN, .factor = 1, .beta_fast = 32, .beta_slow = 1, .truncate = true};
    if (c->architecture == ARCHITECTURE_GPT2 || c->architecture == ARCHITECTURE_OPT)
        return AVO_OK;
    const json_value *parameters, *scaling;
    AVO_TRY(find_object(reader, reader->root, "rope_parameters", &parameters));
    AVO_TRY(find_object(reader, reader->root, "rope_scaling", &scaling));
    const json_value *nested = NULL;
    if (hf_find(parameters, "full_attention") != NULL ||
        hf_find(parameters, "sliding_attention") != NULL) {
        nested = parameters;
        AVO_TRY(find_object(reader, nested, "full_attention", &parameters));
        if (c->architecture != ARCHITECTURE_GEMMA3)
            return status_fail(
                reader->error, AVO_ERROR_UNSUPPORTED,
                "%s: rope_parameters (line %u) per layer type are not supported for %s",
                reader->file, nested->line, reader->family->model_type);
    } else if (parameters != NULL && c->architecture == ARCHITECTURE_GEMMA3) {
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: rope_parameters (line %u) of gemma3 must have full_attention and "
                           "sliding_attention",
                           reader->file, parameters->line);
    } else if (scaling != NULL) {
        parameters = NULL; /* the older key wins where both are given */
    }
    if (scaling == NULL)
        scaling = parameters;
    AVO_TRY(read_partial(reader, scaling));
    c->rope_base = reader->family->rope_base;
    AVO_TRY(hf_number(reader, reader->root, "rope_theta", 1.0001, 1e12, &c->rope_base));
    AVO_TRY(hf_number(reader, parameters, "rope_theta", 1.0001, 1e12, &c->rope_base));
    AVO_TRY(hf_number(reader, scaling, "rope_theta", 1.0001, 1e12, &c->rope_base));
    if (c->architecture == ARCHITECTURE_GEMMA3)
        AVO_TRY(read_local(reader, nested));
    return scaling == NULL ? AVO_OK : read_scaling(reader, scaling);
}
