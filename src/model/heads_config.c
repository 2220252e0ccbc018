/* The fields of draft heads. */
#include "model/heads_int.h"

#include <math.h>
#include <string.h>

#define TREE_MAX ((size_t)1 << 20)

static const char *const kind_names[HEADS_KINDS] = {"medusa", "eagle", "layers"};

const char *heads_kind_name(heads_kind kind) {
    return kind_names[kind];
}

static const char *const form_names[HEADS_FORMS] = {"avocet", "eagle", "eagle3"};

const char *heads_form_name(heads_form form) {
    return form_names[form];
}

/* The text of avocet.heads while it is read. */
typedef struct fields {
    const json_value *root;
    const char *path;
    avo_error *error;
} fields;

static avo_status named(const fields *f, avo_status status) {
    return status == AVO_OK ? AVO_OK : status_prefix(f->error, status, "%s: avocet.heads", f->path);
}

static avo_status missing(const fields *f, const char *key) {
    return status_fail(f->error, AVO_ERROR_FORMAT, "%s: avocet.heads has no %s", f->path, key);
}

static avo_status take_integer(const fields *f, const char *key, uint32_t least, uint32_t most,
                               uint32_t *out) {
    int64_t value = -1;
    AVO_TRY(named(f, json_get_integer(f->root, key, least, most, &value, f->error)));
    if (value < 0)
        return missing(f, key);
    *out = (uint32_t)value;
    return AVO_OK;
}

static avo_status take_optional(const fields *f, const char *key, uint32_t least, uint32_t most,
                                uint32_t absent, uint32_t *out) {
    int64_t value = absent;
    AVO_TRY(named(f, json_get_integer(f->root, key, least, most, &value, f->error)));
    *out = (uint32_t)value;
    return AVO_OK;
}

static avo_status take_number(const fields *f, const char *key, double least, double most,
                              double *out) {
    *out = NAN;
    AVO_TRY(named(f, json_get_number(f->root, key, least, most, out, f->error)));
    return isnan(*out) ? missing(f, key) : AVO_OK;
}

/* Hexadecimal digits, `digits` of them; absent: empty. */
static avo_status take_digest(const fields *f, const char *key, size_t digits, char *out) {
    text_view text = {NULL, 0};
    out[0] = '\0';
    AVO_TRY(named(f, json_get_string(f->root, key, &text, f->error)));
    if (text.size == 0)
        return AVO_OK;
    bool good = text.size == digits;
    for (size_t i = 0; good && i < digits; i++)
        good = strchr("0123456789abcdef", text.data[i]) != NULL && text.data[i] != '\0';
    if (!good)
        return status_fail(f->error, AVO_ERROR_FORMAT,
                           "%s: avocet.heads: %s is \"%.*s\", must be %zu hexadecimal digits",
                           f->path, key, TEXT_ARGUMENT(text), digits);
    memcpy(out, text.data, digits);
    out[digits] = '\0';
    return AVO_OK;
}

static avo_status take_boolean(const fields *f, const char *key, bool *out) {
    *out = false;
    return named(f, json_get_boolean(f->root, key, out, f->error));
}

static avo_status take_kind(const fields *f, heads_kind *kind) {
    text_view text = {NULL, 0}, version = {NULL, 0};
    AVO_TRY(named(f, json_get_string(f->root, "version", &version, f->error)));
    if (!text_is(version, "1"))
        return status_fail(f->error, AVO_ERROR_UNSUPPORTED,
                           "%s: avocet.heads: version is \"%.*s\", must be \"1\"", f->path,
                           TEXT_ARGUMENT(version));
    AVO_TRY(named(f, json_get_string(f->root, "kind", &text, f->error)));
    for (uint32_t i = 0; i < HEADS_KINDS; i++)
        if (text_is(text, kind_names[i])) {
            *kind = (heads_kind)i;
            return AVO_OK;
        }
    return status_fail(f->error, AVO_ERROR_UNSUPPORTED,
                       "%s: avocet.heads: kind is \"%.*s\", must be medusa, eagle or layers",
                       f->path, TEXT_ARGUMENT(text));
}

static avo_status take_taps(const fields *f, heads_config *config) {
    const json_value *taps = json_find(f->root, "taps");
    if (taps == NULL || taps->kind != JSON_ARRAY || taps->array.count == 0 ||
        taps->array.count > HEADS_TAPS_MAX)
        return status_fail(f->error, AVO_ERROR_FORMAT,
                           "%s: avocet.heads: taps must be a list of 1 to %d layers", f->path,
                           HEADS_TAPS_MAX);
    config->taps = (uint32_t)taps->array.count;
    for (uint32_t i = 0; i < config->taps; i++) {
        const json_value *tap = json_item(taps, i);
        int64_t least = i == 0 ? 0 : (int64_t)config->tap[i - 1] + 1;
        if (tap->kind != JSON_INTEGER || tap->integer < least || tap->integer > config->layers)
            return status_fail(f->error, AVO_ERROR_FORMAT,
                               "%s: avocet.heads: taps[%u] must be a layer from %lld to %u; taps "
                               "ascend",
                               f->path, i, (long long)least, config->layers);
        config->tap[i] = (uint32_t)tap->integer;
    }
    if (config->form != HEADS_FORM_EAGLE3 && config->tap[config->taps - 1] != config->layers)
        return status_fail(f->error, AVO_ERROR_FORMAT,
                           "%s: avocet.heads: the last of taps is %u, must be layers (%u)", f->path,
                           config->tap[config->taps - 1], config->layers);
    if (config->form == HEADS_FORM_EAGLE && config->taps != 1)
        return status_fail(f->error, AVO_ERROR_FORMAT,
                           "%s: avocet.heads: taps has %u layers, form \"eagle\" has one", f->path,
                           config->taps);
    return AVO_OK;
}

static avo_status take_form(const fields *f, heads_config *config) {
    text_view text = text_from(form_names[0]);
    AVO_TRY(named(f, json_get_string(f->root, "form", &text, f->error)));
    uint32_t form = 0;
    while (form < HEADS_FORMS && !text_is(text, form_names[form]))
        form++;
    if (form == HEADS_FORMS)
        return status_fail(f->error, AVO_ERROR_UNSUPPORTED,
                           "%s: avocet.heads: form is \"%.*s\", must be avocet, eagle or eagle3",
                           f->path, TEXT_ARGUMENT(text));
    config->form = (heads_form)form;
    AVO_TRY(take_boolean(f, "bias", &config->bias));
    AVO_TRY(take_boolean(f, "norm_residual", &config->norm_residual));
    return take_boolean(f, "attention_bias", &config->attention_bias);
}

static avo_status take_eagle(const fields *f, heads_config *config) {
    AVO_TRY(take_form(f, config));
    AVO_TRY(take_taps(f, config));
    bool ours = config->form == HEADS_FORM_AVOCET;
    const char *wrong = NULL;
    if (config->norm_residual && config->form != HEADS_FORM_EAGLE3)
        wrong = "norm_residual";
    if (config->bias && config->form != HEADS_FORM_EAGLE)
        wrong = "bias";
    if (config->attention_bias && ours)
        wrong = "attention_bias";
    if (wrong == NULL)
        return AVO_OK;
    return status_fail(f->error, AVO_ERROR_FORMAT, "%s: avocet.heads: form \"%s\" has no %s",
                       f->path, form_names[config->form], wrong);
}

static avo_status take_layers(const fields *f, heads_config *config) {
    AVO_TRY(take_optional(f, "depth", 1, HEADS_DEPTH_MAX, 1, &config->depth));
    AVO_TRY(take_optional(f, "window", 0, HEADS_WINDOW_MAX, 0, &config->window));
    AVO_TRY(take_integer(f, "attention_heads", 1, SOURCE_HEADS_MAX, &config->attention_heads));
    AVO_TRY(take_integer(f, "kv_heads", 1, config->attention_heads, &config->kv_heads));
    AVO_TRY(take_integer(f, "head_size", 2, SOURCE_HEAD_SIZE_MAX, &config->head_size));
    AVO_TRY(take_integer(f, "feed_forward", 1, SOURCE_FEED_FORWARD_MAX, &config->feed_forward));
    AVO_TRY(take_number(f, "rope_base", 1.0, 1e12, &config->rope_base));
    if (config->attention_heads % config->kv_heads != 0)
        return status_fail(f->error, AVO_ERROR_FORMAT,
                           "%s: avocet.heads: attention_heads (%u) must be a multiple of kv_heads "
                           "(%u)",
                           f->path, config->attention_heads, config->kv_heads);
    if (config->head_size % 2 != 0)
        return status_fail(f->error, AVO_ERROR_FORMAT,
                           "%s: avocet.heads: head_size is %u, must be even", f->path,
                           config->head_size);
    return config->kind == HEADS_EAGLE ? take_eagle(f, config) : AVO_OK;
}

static avo_status take_medusa(const fields *f, heads_config *config) {
    config->taps = 1;
    config->tap[0] = config->layers;
    AVO_TRY(take_integer(f, "heads", 1, HEADS_MEDUSA_MAX, &config->heads));
    AVO_TRY(take_optional(f, "blocks", 1, HEADS_BLOCKS_MAX, 1, &config->blocks));
    AVO_TRY(take_boolean(f, "bias", &config->bias));
    AVO_TRY(take_boolean(f, "token", &config->token));
    if (config->token && config->blocks > 1)
        return status_fail(f->error, AVO_ERROR_FORMAT,
                           "%s: avocet.heads: blocks is %u, must be 1 where token is true", f->path,
                           config->blocks);
    return AVO_OK;
}

static avo_status take_fields(const fields *f, heads_config *config) {
    *config = (heads_config){0};
    if (f->root->kind != JSON_OBJECT)
        return status_fail(f->error, AVO_ERROR_FORMAT, "%s: avocet.heads is not a JSON object",
                           f->path);
    AVO_TRY(take_kind(f, &config->kind));
    AVO_TRY(take_integer(f, "width", 1, SOURCE_WIDTH_MAX, &config->width));
    AVO_TRY(take_integer(f, "layers", 1, SOURCE_LAYERS_MAX, &config->layers));
    AVO_TRY(take_integer(f, "vocabulary", 1, SOURCE_VOCABULARY_MAX, &config->vocabulary));
    AVO_TRY(take_integer(f, "frequent", 1, config->vocabulary, &config->frequent));
    AVO_TRY(take_number(f, "norm_epsilon", 0.0, 1.0, &config->norm_epsilon));
    AVO_TRY(take_digest(f, "base_sha256", 64, config->base_sha256));
    AVO_TRY(take_digest(f, "base_digest", 16, config->base_digest));
    AVO_TRY(take_boolean(f, "output", &config->output));
    return config->kind == HEADS_MEDUSA ? take_medusa(f, config) : take_layers(f, config);
}

avo_status heads_config_parse(text_view text, const char *path, const avo_allocator *allocator,
                              heads_config *config, avo_error *error) {
    if (text.size == 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: no draft heads: the metadata has no avocet.heads", path);
    arena tree;
    arena_init(&tree, allocator, TREE_MAX);
    json_value root;
    avo_status status = json_parse(&tree, text, &root, error);
    if (status != AVO_OK)
        status = status_prefix(error, status, "%s: avocet.heads", path);
    fields own = {&root, path, error};
    AVO_THEN(status, take_fields(&own, config));
    arena_free(&tree);
    return status;
}
