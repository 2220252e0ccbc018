/* adapter_config.json: what we honour, what is harmless, and what is refused by name. */
#include "adapters/adapters_int.h"

#include <math.h>

#define CONFIG_TREE_MAX ((size_t)32 << 20)
#define PATTERNS_MAX    1024
#define NAMES_MAX       4096 /* each is compared with every module */
#define ALPHA_MAX       1e9

typedef struct config_reader {
    const json_value *root;
    const char *path;
    avo_error *error;
} config_reader;

static avo_status bad(const config_reader *reader, const char *key, const char *what) {
    return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s %s", reader->path, key, what);
}

/* null, false, 0, "", [] and {} say nothing. */
static bool says_something(const json_value *value) {
    if (value == NULL)
        return false;
    switch (value->kind) {
    case JSON_NULL:
        return false;
    case JSON_BOOLEAN:
        return value->boolean;
    case JSON_INTEGER:
        return value->integer != 0;
    case JSON_NUMBER:
        return true;
    case JSON_STRING:
        return value->string.size > 0;
    case JSON_ARRAY:
        return value->array.count > 0;
    case JSON_OBJECT:
        return value->object.count > 0;
    }
    return true;
}

/* ---- What is not supported ---- */

static avo_status check_type(const config_reader *reader) {
    text_view type = TEXT_LITERAL("");
    AVO_TRY(json_get_string(reader->root, "peft_type", &type, reader->error));
    if (text_is(type, "LORA"))
        return AVO_OK;
    if (type.size == 0)
        return bad(reader, "peft_type", "is missing; this is not a PEFT adapter");
    return status_fail(
        reader->error, AVO_ERROR_UNSUPPORTED,
        "%s: peft_type \"%.*s\" is not supported; supported: LORA (with rsLoRA and DoRA)",
        reader->path, TEXT_ARGUMENT(type));
}

/* These starts change the base model's weights as well, so that A and B alone are half of it. */
static avo_status check_start(const config_reader *reader) {
    static const char *const residual[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    static const char *const own[] = {"", "default", "gaussian", "eva", "orthogonal", "mica"};
    const json_value *start = json_find(reader->root, "init_lora_weights");
    if (start == NULL || start->kind != JSON_STRING)
        return AVO_OK;
    for (size_t i = 0; i < sizeof(residual) / sizeof(residual[0]); i++)
        if (text_starts(start->string, text_from(residual[i])))
            return status_fail(
                reader->error, AVO_ERROR_UNSUPPORTED,
                "%s: init_lora_weights \"%.*s\" also changed the base model; save the adapter with "
                "path_initial_model_for_weight_conversion, which makes it plain LoRA",
                reader->path, TEXT_ARGUMENT(start->string));
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (text_is(start->string, own[i]))
            return AVO_OK;
    return status_fail(
        reader->error, AVO_ERROR_UNSUPPORTED,
        "%s: unknown init_lora_weights \"%.*s\", which may have changed the base model too",
        reader->path, TEXT_ARGUMENT(start->string));
}

static avo_status check_options(const config_reader *reader) {
    static const char *const refused[] = {
        "alora_invocation_tokens", "arrow_config",      "kasa_config", "layer_replication",
        "monteclora_config",       "target_parameters", "use_bdlora",  "use_qalora",
        "velora_config",
    };
    /* Of training or of how it is computed, not of the result. */
    static const char *const harmless[] = {
        "corda_config",    "eva_config", "loftq_config",   "lora_ga_config",
        "megatron_config", "use_dora",   "runtime_config", "use_rslora",
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (says_something(json_find(reader->root, refused[i])))
            return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                               "%s: option %s is not supported", reader->path, refused[i]);
    /* Later versions of PEFT call new ways to compute so. */
    for (size_t i = 0; i < reader->root->object.count; i++) {
        const json_member *member = &reader->root->object.members[i];
        if (!text_starts(member->key, TEXT_LITERAL("use_")) &&
            !text_ends(member->key, TEXT_LITERAL("_config")))
            continue;
        bool known = false;
        for (size_t j = 0; j < sizeof(harmless) / sizeof(harmless[0]); j++)
            known = known || text_is(member->key, harmless[j]);
        if (!known && says_something(&member->value))
            return status_fail(reader->error, AVO_ERROR_UNSUPPORTED, "%s: unknown option %.*s",
                               reader->path, TEXT_ARGUMENT(member->key));
    }
    AVO_TRY(check_type(reader));
    return check_start(reader);
}

/* ---- What is ---- */

static avo_status check_strings(const config_reader *reader, const char *key,
                                const json_value *list) {
    if (list->array.count > NAMES_MAX)
        return status_fail(reader->error, AVO_ERROR_LIMIT,
                           "%s: %s has %zu entries, must have at most %d", reader->path, key,
                           list->array.count, NAMES_MAX);
    for (size_t i = 0; i < list->array.count; i++)
        if (list->array.items[i].kind != JSON_STRING)
            return bad(reader, key, "has an entry that is not a string");
    return AVO_OK;
}

/* A string (a pattern) or a list of strings. */
static avo_status read_names(const config_reader *reader, const char *key, peft_names *names) {
    const json_value *value = json_find(reader->root, key);
    if (!says_something(value))
        return AVO_OK;
    names->given = true;
    if (value->kind == JSON_STRING) {
        names->pattern = true;
        names->text = value->string;
        return AVO_OK;
    }
    if (value->kind != JSON_ARRAY)
        return bad(reader, key, "must be a string or a list of strings");
    names->list = value;
    return check_strings(reader, key, value);
}

static bool is_alpha(const json_value *value) {
    double number = value->kind == JSON_INTEGER  ? (double)value->integer
                    : value->kind == JSON_NUMBER ? value->number
                                                 : NAN;
    return fabs(number) <= ALPHA_MAX;
}

static avo_status read_patterns(const config_reader *reader, const char *key,
                                const json_value **object) {
    const json_value *value = json_find(reader->root, key);
    if (!says_something(value))
        return AVO_OK;
    if (value->kind != JSON_OBJECT)
        return bad(reader, key, "is not an object");
    if (value->object.count > PATTERNS_MAX)
        return status_fail(reader->error, AVO_ERROR_LIMIT,
                           "%s: %s has %zu entries, must have at most %d", reader->path, key,
                           value->object.count, PATTERNS_MAX);
    bool whole = strcmp(key, "rank_pattern") == 0;
    for (size_t i = 0; i < value->object.count; i++) {
        const json_value *entry = &value->object.members[i].value;
        bool good = whole ? entry->kind == JSON_INTEGER && entry->integer >= 1 &&
                                entry->integer <= ADAPTER_RANK_MAX
                          : is_alpha(entry);
        if (!good)
            return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: %s[\"%.*s\"] must be a %s",
                               reader->path, key, TEXT_ARGUMENT(value->object.members[i].key),
                               whole ? "rank from 1 to 256" : "number from -1e9 to 1e9");
    }
    *object = value;
    return AVO_OK;
}

static avo_status read_bias(const config_reader *reader, peft_config *config) {
    text_view bias = TEXT_LITERAL("none");
    AVO_TRY(json_get_string(reader->root, "bias", &bias, reader->error));
    if (text_is(bias, "none"))
        config->bias = PEFT_BIAS_NONE;
    else if (text_is(bias, "all"))
        config->bias = PEFT_BIAS_ALL;
    else if (text_is(bias, "lora_only"))
        config->bias = PEFT_BIAS_LORA;
    else
        return bad(reader, "bias", "must be \"none\", \"all\" or \"lora_only\"");
    return AVO_OK;
}

static avo_status read_layers(const config_reader *reader, peft_config *config) {
    const json_value *layers = json_find(reader->root, "layers_to_transform");
    if (layers == NULL || layers->kind == JSON_NULL ||
        (layers->kind == JSON_ARRAY && layers->array.count == 0))
        return AVO_OK;
    bool good = layers->kind == JSON_INTEGER || layers->kind == JSON_ARRAY;
    for (size_t i = 0; good && layers->kind == JSON_ARRAY && i < layers->array.count; i++)
        good = layers->array.items[i].kind == JSON_INTEGER;
    if (!good || (layers->kind == JSON_ARRAY && layers->array.count > SOURCE_LAYERS_MAX))
        return bad(reader, "layers_to_transform", "must be a number or a list of numbers");
    config->layers = layers;
    return read_names(reader, "layers_pattern", &config->layers_pattern);
}

/* A list, of the embedding, or an object with the list of one module. */
static avo_status read_tokens(const config_reader *reader, peft_config *config) {
    static const char key[] = "trainable_token_indices";
    const json_value *value = json_find(reader->root, key);
    if (!says_something(value))
        return AVO_OK;
    if (value->kind == JSON_OBJECT && value->object.count == 1) {
        config->tokens_of = value->object.members[0].key;
        value = &value->object.members[0].value;
    } else if (value->kind == JSON_OBJECT) {
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s for several modules is not supported", reader->path, key);
    }
    bool good = value->kind == JSON_ARRAY && value->array.count > 0;
    for (size_t i = 0; good && i < value->array.count; i++)
        good = value->array.items[i].kind == JSON_INTEGER && value->array.items[i].integer >= 0;
    if (!good)
        return bad(reader, key, "is not a list of tokens");
    config->tokens = value;
    return AVO_OK;
}

static bool is_all_linear(text_view text) {
    static const char wanted[] = "all-linear";
    if (text.size != sizeof(wanted) - 1)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        char letter = text.data[i];
        if (letter >= 'A' && letter <= 'Z')
            letter = (char)(letter + 'a' - 'A');
        if (letter != wanted[i])
            return false;
    }
    return true;
}

static avo_status read_targets(const config_reader *reader, peft_config *config) {
    AVO_TRY(read_names(reader, "target_modules", &config->targets));
    AVO_TRY(read_names(reader, "exclude_modules", &config->excludes));
    if (!config->targets.given)
        return bad(reader, "target_modules", "is missing or empty");
    config->all_linear = config->targets.pattern && is_all_linear(config->targets.text);
    peft_names saves = {0};
    AVO_TRY(read_names(reader, "modules_to_save", &saves));
    if (saves.pattern)
        return bad(reader, "modules_to_save", "is not a list of strings");
    config->saves = saves.list;
    return AVO_OK;
}

static avo_status read_all(const config_reader *reader, peft_config *config) {
    if (reader->root->kind != JSON_OBJECT)
        return bad(reader, "the file", "is not a JSON object");
    AVO_TRY(check_options(reader));
    int64_t rank = 8;
    config->alpha = 8.0;
    AVO_TRY(json_get_integer(reader->root, "r", 1, ADAPTER_RANK_MAX, &rank, reader->error));
    AVO_TRY(json_get_number(reader->root, "lora_alpha", -ALPHA_MAX, ALPHA_MAX, &config->alpha,
                            reader->error));
    config->rank = (uint32_t)rank;
    AVO_TRY(json_get_boolean(reader->root, "use_rslora", &config->rslora, reader->error));
    AVO_TRY(json_get_boolean(reader->root, "use_dora", &config->dora, reader->error));
    AVO_TRY(json_get_boolean(reader->root, "lora_bias", &config->lora_bias, reader->error));
    AVO_TRY(
        json_get_boolean(reader->root, "ensure_weight_tying", &config->tie_ensured, reader->error));
    AVO_TRY(read_bias(reader, config));
    AVO_TRY(read_tokens(reader, config));
    AVO_TRY(read_targets(reader, config));
    AVO_TRY(read_layers(reader, config));
    AVO_TRY(read_patterns(reader, "rank_pattern", &config->ranks));
    return read_patterns(reader, "alpha_pattern", &config->alphas);
}

avo_status peft_config_read(arena *arena, bytes_view bytes, const char *path, peft_config *config,
                            avo_error *error) {
    memset(config, 0, sizeof(*config));
    json_value *root = arena_take(arena, sizeof(*root));
    if (root == NULL)
        return status_no_memory(error, "adapter_config.json", sizeof(*root));
    if (bytes.size > CONFIG_TREE_MAX / 8)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%s: the file has %zu bytes, must have at most %zu", path, bytes.size,
                           CONFIG_TREE_MAX / 8);
    avo_status status =
        json_parse(arena, (text_view){(const char *)bytes.data, bytes.size}, root, error);
    config_reader reader = {root, path, error};
    if (status != AVO_OK)
        return status_prefix(error, status, "%s", path);
    avo_error own = {0};
    reader.error = &own;
    status = read_all(&reader, config);
    if (status == AVO_OK)
        return AVO_OK;
    /* Those that know the field only do not name the file. */
    bool named = strncmp(own.text, path, strlen(path)) == 0;
    return named ? status_fail(error, status, "%s", own.text)
                 : status_fail(error, status, "%s: %s", path, own.text);
}
