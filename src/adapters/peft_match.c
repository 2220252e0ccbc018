/* Which modules a PEFT configuration means, as PEFT itself decides it (0.21):
 *
 *   exclude_modules   a string matches the whole name; a list holds names or their last parts
 *   modules_to_save   never LoRA; as whole modules: every module whose name ends with the entry
 *   target_modules    a string matches the whole name; a list holds names, or last parts, which
 *                     alone are subject to layers_to_transform
 *   rank_pattern, alpha_pattern   the first key that matches "(.*\.)?(key)$" from the start
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "adapters/adapters_int.h"
#include "base/buffer.h"

#include <math.h>

#define MATCH_LIMIT   100000 /* steps of one match: what hostile patterns may cost */
#define PATTERN_MAX   4096
#define HEAP_LIMIT_KB 4096

struct peft_matcher {
    const avo_allocator *allocator;
    const peft_config *config;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *data;
    pcre2_code *target, *exclude;
    pcre2_code **save; /* [saves]: what keeps a module from being a target */
    size_t saves;
    pcre2_code **rank, **alpha; /* [members of the patterns] */
    pcre2_code **layer;         /* [layers_pattern] */
    size_t ranks, alphas, layers;
};

/* ---- Compiling ---- */

static avo_status compile(peft_matcher *matcher, const char *before, text_view pattern,
                          const char *behind, pcre2_code **out, avo_error *error) {
    if (pattern.size > PATTERN_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "a pattern of %zu bytes, at most %d",
                           pattern.size, PATTERN_MAX);
    buffer text;
    buffer_init(&text, matcher->allocator, PATTERN_MAX + 64);
    avo_status status = buffer_append_text(&text, before);
    if (status == AVO_OK)
        status = buffer_append(&text, pattern.data, pattern.size);
    if (status == AVO_OK)
        status = buffer_append_text(&text, behind);
    pcre2_compile_context *context =
        status == AVO_OK ? pcre2_compile_context_create(matcher->memory) : NULL;
    if (context == NULL) {
        buffer_free(&text);
        return status_no_memory(error, "a pattern", pattern.size);
    }
    pcre2_set_parens_nest_limit(context, 100);
    int code = 0;
    PCRE2_SIZE at = 0;
    text_view whole = buffer_text(&text);
    *out = pcre2_compile((PCRE2_SPTR)whole.data, whole.size, PCRE2_NEVER_BACKSLASH_C, &code, &at,
                         context);
    pcre2_compile_context_free(context);
    buffer_free(&text);
    if (*out != NULL)
        return AVO_OK;
    PCRE2_UCHAR why[120] = {0};
    (void)pcre2_get_error_message(code, why, sizeof(why));
    return status_fail(error, code == PCRE2_ERROR_HEAP_FAILED ? AVO_ERROR_MEMORY : AVO_ERROR_FORMAT,
                       "pattern \"%.*s\": %s", TEXT_ARGUMENT(pattern), (const char *)why);
}

static avo_status take_codes(peft_matcher *matcher, size_t count, pcre2_code ***codes,
                             size_t *stored, avo_error *error) {
    if (count == 0)
        return AVO_OK;
    *codes = allocator_take_array(matcher->allocator, count, sizeof(**codes));
    if (*codes == NULL)
        return status_no_memory(error, "patterns", count * sizeof(**codes));
    *stored = count;
    return AVO_OK;
}

static avo_status compile_list(peft_matcher *matcher, const json_value *list, const char *before,
                               const char *behind, pcre2_code ***codes, size_t *count,
                               avo_error *error) {
    if (list == NULL)
        return AVO_OK;
    AVO_TRY(take_codes(matcher, list->array.count, codes, count, error));
    for (size_t i = 0; i < *count; i++)
        AVO_TRY(compile(matcher, before, list->array.items[i].string, behind, &(*codes)[i], error));
    return AVO_OK;
}

static avo_status compile_keys(peft_matcher *matcher, const json_value *object, pcre2_code ***codes,
                               size_t *count, avo_error *error) {
    if (object == NULL)
        return AVO_OK;
    AVO_TRY(take_codes(matcher, object->object.count, codes, count, error));
    for (size_t i = 0; i < *count; i++)
        AVO_TRY(compile(matcher, "(.*\\.)?(", object->object.members[i].key, ")$", &(*codes)[i],
                        error));
    return AVO_OK;
}

static avo_status compile_layers(peft_matcher *matcher, avo_error *error) {
    const peft_names *names = &matcher->config->layers_pattern;
    if (matcher->config->layers == NULL)
        return AVO_OK;
    if (names->given && !names->pattern)
        return compile_list(matcher, names->list, "(?:^|.*?\\.)", "\\.(?P<idx>\\d+)\\.",
                            &matcher->layer, &matcher->layers, error);
    AVO_TRY(take_codes(matcher, 1, &matcher->layer, &matcher->layers, error));
    if (names->given)
        return compile(matcher, "(?:^|.*?\\.)", names->text, "\\.(?P<idx>\\d+)\\.",
                       &matcher->layer[0], error);
    return compile(matcher, "", TEXT_LITERAL(".*?\\.[^.]*\\.(?P<idx>\\d+)\\."), "",
                   &matcher->layer[0], error);
}

static avo_status compile_all(peft_matcher *matcher, avo_error *error) {
    const peft_config *config = matcher->config;
    matcher->memory = pcre2_general_context_create(allocator_take_sized, allocator_give_sized,
                                                   (void *)(uintptr_t)matcher->allocator);
    if (matcher->memory != NULL) {
        matcher->limits = pcre2_match_context_create(matcher->memory);
        matcher->data = pcre2_match_data_create(32, matcher->memory);
    }
    if (matcher->limits == NULL || matcher->data == NULL)
        return status_no_memory(error, "patterns", 0);
    pcre2_set_match_limit(matcher->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(matcher->limits, HEAP_LIMIT_KB);
    if (config->targets.pattern && !config->all_linear)
        AVO_TRY(compile(matcher, "", config->targets.text, "", &matcher->target, error));
    if (config->excludes.pattern)
        AVO_TRY(compile(matcher, "", config->excludes.text, "", &matcher->exclude, error));
    AVO_TRY(compile_list(matcher, config->saves, "(^|.*\\.)", "($|\\..*)", &matcher->save,
                         &matcher->saves, error));
    AVO_TRY(compile_keys(matcher, config->ranks, &matcher->rank, &matcher->ranks, error));
    AVO_TRY(compile_keys(matcher, config->alphas, &matcher->alpha, &matcher->alphas, error));
    return compile_layers(matcher, error);
}

avo_status peft_matcher_open(const peft_config *config, const avo_allocator *allocator,
                             peft_matcher **out, avo_error *error) {
    *out = NULL;
    peft_matcher *matcher = allocator_take_array(allocator, 1, sizeof(*matcher));
    if (matcher == NULL)
        return status_no_memory(error, "patterns", sizeof(*matcher));
    matcher->allocator = allocator;
    matcher->config = config;
    avo_status status = compile_all(matcher, error);
    if (status != AVO_OK) {
        peft_matcher_close(matcher);
        return status;
    }
    *out = matcher;
    return AVO_OK;
}

static void close_codes(const peft_matcher *matcher, pcre2_code **codes, size_t count) {
    for (size_t i = 0; i < count; i++)
        pcre2_code_free(codes[i]);
    allocator_give(matcher->allocator, codes, count * sizeof(*codes));
}

void peft_matcher_close(peft_matcher *matcher) {
    if (matcher == NULL)
        return;
    pcre2_code_free(matcher->target);
    pcre2_code_free(matcher->exclude);
    close_codes(matcher, matcher->save, matcher->saves);
    close_codes(matcher, matcher->rank, matcher->ranks);
    close_codes(matcher, matcher->alpha, matcher->alphas);
    close_codes(matcher, matcher->layer, matcher->layers);
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->limits);
    pcre2_general_context_free(matcher->memory);
    allocator_give(matcher->allocator, matcher, sizeof(*matcher));
}

/* ---- Matching ---- */

/* From the start; `whole`: up to the end as well. */
static avo_status run(const peft_matcher *matcher, const pcre2_code *code, text_view text,
                      bool whole, bool *matched, avo_error *error) {
    uint32_t options = PCRE2_ANCHORED | (whole ? PCRE2_ENDANCHORED : 0);
    int found = pcre2_match(code, (PCRE2_SPTR)text.data, text.size, 0, options, matcher->data,
                            matcher->limits);
    *matched = found >= 0;
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH)
        return AVO_OK;
    return status_fail(error, found == PCRE2_ERROR_NOMEMORY ? AVO_ERROR_MEMORY : AVO_ERROR_LIMIT,
                       "a pattern of adapter_config.json takes too long on \"%.*s\"",
                       TEXT_ARGUMENT(text));
}

static bool is_last_part(text_view name, text_view part) {
    return name.size > part.size && text_ends(name, part) &&
           name.data[name.size - part.size - 1] == '.';
}

static bool list_has(const json_value *list, text_view name, bool parts) {
    for (size_t i = 0; list != NULL && i < list->array.count; i++) {
        text_view entry = list->array.items[i].string;
        if (parts ? is_last_part(name, entry) : text_equal(name, entry))
            return true;
    }
    return false;
}

/* Whether the layer that the name holds is among layers_to_transform. */
static avo_status layer_matches(const peft_matcher *matcher, text_view name, bool *matches,
                                avo_error *error) {
    *matches = false;
    for (size_t i = 0; i < matcher->layers; i++) {
        bool found;
        AVO_TRY(run(matcher, matcher->layer[i], name, false, &found, error));
        if (!found)
            continue;
        int group = pcre2_substring_number_from_name(matcher->layer[i], (PCRE2_SPTR) "idx");
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(matcher->data);
        if (group < 1 || (uint32_t)group >= pcre2_get_ovector_count(matcher->data))
            return AVO_OK;
        int64_t layer = 0;
        for (PCRE2_SIZE j = at[2 * group]; j < at[2 * group + 1] && layer < 1000000; j++)
            layer = layer * 10 + (name.data[j] - '0');
        const json_value *wanted = matcher->config->layers;
        if (wanted->kind == JSON_INTEGER)
            *matches = wanted->integer == layer;
        for (size_t j = 0; wanted->kind == JSON_ARRAY && j < wanted->array.count; j++)
            *matches = *matches || wanted->array.items[j].integer == layer;
        return AVO_OK;
    }
    return AVO_OK;
}

static avo_status is_excluded(const peft_matcher *matcher, text_view name, bool *excluded,
                              avo_error *error) {
    const peft_names *excludes = &matcher->config->excludes;
    *excluded = false;
    if (matcher->exclude != NULL)
        AVO_TRY(run(matcher, matcher->exclude, name, true, excluded, error));
    else
        *excluded = list_has(excludes->list, name, false) || list_has(excludes->list, name, true);
    for (size_t i = 0; i < matcher->saves && !*excluded; i++)
        AVO_TRY(run(matcher, matcher->save[i], name, false, excluded, error));
    return AVO_OK;
}

static avo_status is_target(const peft_matcher *matcher, text_view name, bool linear, bool head,
                            bool *target, avo_error *error) {
    const peft_config *config = matcher->config;
    bool excluded;
    *target = false;
    AVO_TRY(is_excluded(matcher, name, &excluded, error));
    if (excluded)
        return AVO_OK;
    if (config->all_linear) {
        *target = linear && !head;
        return AVO_OK;
    }
    if (matcher->target != NULL)
        return run(matcher, matcher->target, name, true, target, error);
    *target = list_has(config->targets.list, name, false);
    if (*target || !list_has(config->targets.list, name, true))
        return AVO_OK;
    *target = true;
    return config->layers == NULL ? AVO_OK : layer_matches(matcher, name, target, error);
}

/* The module itself, or one that it is part of, ends with an entry. */
static bool is_saved(const json_value *saves, text_view name) {
    for (size_t i = 0; saves != NULL && i < saves->array.count; i++) {
        text_view entry = saves->array.items[i].string;
        for (size_t end = name.size; end > 0; end--)
            if ((end == name.size || name.data[end] == '.') && entry.size > 0 &&
                text_ends((text_view){name.data, end}, entry))
                return true;
    }
    return false;
}

avo_status peft_matcher_ask(const peft_matcher *matcher, text_view module, bool linear, bool head,
                            peft_match *match, avo_error *error) {
    const peft_config *config = matcher->config;
    *match = (peft_match){.rank = config->rank, .alpha = config->alpha};
    match->saved = is_saved(config->saves, module);
    AVO_TRY(is_target(matcher, module, linear, head, &match->targeted, error));
    bool found = false;
    for (size_t i = 0; i < matcher->ranks && match->targeted && !found; i++) {
        AVO_TRY(run(matcher, matcher->rank[i], module, false, &found, error));
        if (found)
            match->rank = (uint32_t)config->ranks->object.members[i].value.integer;
    }
    found = false;
    for (size_t i = 0; i < matcher->alphas && match->targeted && !found; i++) {
        AVO_TRY(run(matcher, matcher->alpha[i], module, false, &found, error));
        const json_value *value = &config->alphas->object.members[i].value;
        if (found)
            match->alpha = value->kind == JSON_INTEGER ? (double)value->integer : value->number;
    }
    return AVO_OK;
}
