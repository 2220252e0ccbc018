/* Which modules a PEFT configuration means, as PEFT itself decides it (0.21):
 *
 *   exclude_modules   a string matches the whole name; a list holds names or their last parts
 *   modules_to_save   never LoRA; as whole modules: every module whose name ends with the entry
 *   target_modules    a string matches the whole name; a list holds names, or last parts, which
 *                     alone are subject to layers_to_transform
 *   rank_pattern, alpha_pattern   the first key that matches "(.*\.)?(key)$" from the start
 *
 * Files come from strangers: names that are plain are compared as such, there are few expressions,
 * and all matches of one file share a number of steps, which callouts between their parts count.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "adapters/adapters_int.h"
#include "base/buffer.h"

#include <math.h>

#define MATCH_LIMIT   100000   /* of the library's own steps, for one match */
#define STEPS_MAX     10000000 /* of all matches: some tenths of a second */
#define CODES_MAX     64       /* expressions; of models' names thousands are plain */
#define PATTERN_MAX   4096
#define HEAP_LIMIT_KB 4096

/* A key of a pattern, or an entry of modules_to_save. */
typedef struct match_rule {
    pcre2_code *code; /* NULL: plain, names and dots, each of which stands for any character */
    text_view plain;
} match_rule;

struct peft_matcher {
    const avo_allocator *allocator;
    const peft_config *config;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *data;
    pcre2_code *target, *exclude;
    match_rule *save; /* [saves]: what keeps a module from being a target */
    size_t saves;
    match_rule *rank, *alpha; /* [members of the patterns] */
    match_rule *layer;        /* [layers_pattern]: never plain */
    size_t ranks, alphas, layers;
    uint32_t codes;
    uint32_t *steps; /* that are left, in the matcher's own memory */
    uint32_t steps_left;
};

/* ---- Steps ---- */

static bool take_step(const peft_matcher *matcher) {
    if (*matcher->steps == 0)
        return false;
    (*matcher->steps)--;
    return true;
}

static int count_step(pcre2_callout_block *block, void *context) {
    (void)block;
    return take_step(context) ? 0 : PCRE2_ERROR_MATCHLIMIT;
}

/* ---- Compiling ---- */

static avo_status compile(peft_matcher *matcher, const char *before, text_view pattern,
                          const char *behind, pcre2_code **out, avo_error *error) {
    if (pattern.size > PATTERN_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "a pattern has %zu bytes, must have at most %d",
                           pattern.size, PATTERN_MAX);
    buffer text;
    buffer_init(&text, matcher->allocator, PATTERN_MAX + 64);
    avo_status status = buffer_append_text(&text, before);
    AVO_THEN(status, buffer_append(&text, pattern.data, pattern.size));
    AVO_THEN(status, buffer_append_text(&text, behind));
    pcre2_compile_context *context =
        status == AVO_OK ? pcre2_compile_context_create(matcher->memory) : NULL;
    if (context == NULL) {
        buffer_free(&text);
        return status_no_memory(error, "a pattern", pattern.size);
    }
    if (++matcher->codes > CODES_MAX) {
        pcre2_compile_context_free(context);
        buffer_free(&text);
        return status_fail(error, AVO_ERROR_LIMIT,
                           "more than %d regular expressions (plain names do not count)",
                           CODES_MAX);
    }
    pcre2_set_parens_nest_limit(context, 100);
    int code = 0;
    PCRE2_SIZE at = 0;
    text_view whole = buffer_text(&text);
    *out = pcre2_compile((PCRE2_SPTR)whole.data, whole.size,
                         PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT, &code, &at, context);
    pcre2_compile_context_free(context);
    buffer_free(&text);
    if (*out != NULL)
        return AVO_OK;
    PCRE2_UCHAR why[120] = {0};
    (void)pcre2_get_error_message(code, why, sizeof(why));
    return status_fail(error, code == PCRE2_ERROR_HEAP_FAILED ? AVO_ERROR_MEMORY : AVO_ERROR_FORMAT,
                       "pattern \"%.*s\": %s", TEXT_ARGUMENT(pattern), (const char *)why);
}

/* What says the same as an expression and as a name, but for dots. */
static bool is_plain(text_view text) {
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '.' || c == '-'))
            return false;
    }
    return text.size > 0;
}

static avo_status take_rules(peft_matcher *matcher, size_t count, match_rule **rules,
                             size_t *stored, avo_error *error) {
    if (count == 0)
        return AVO_OK;
    *rules = allocator_take_array(matcher->allocator, count, sizeof(**rules));
    if (*rules == NULL)
        return status_no_memory(error, "patterns", count * sizeof(**rules));
    *stored = count;
    return AVO_OK;
}

static avo_status compile_saves(peft_matcher *matcher, const json_value *list, avo_error *error) {
    if (list == NULL)
        return AVO_OK;
    AVO_TRY(take_rules(matcher, list->array.count, &matcher->save, &matcher->saves, error));
    for (size_t i = 0; i < matcher->saves; i++) {
        matcher->save[i].plain = list->array.items[i].string;
        if (!is_plain(matcher->save[i].plain))
            AVO_TRY(compile(matcher, "(^|.*\\.)", matcher->save[i].plain, "($|\\..*)",
                            &matcher->save[i].code, error));
    }
    return AVO_OK;
}

static avo_status compile_keys(peft_matcher *matcher, const json_value *object, match_rule **rules,
                               size_t *count, avo_error *error) {
    if (object == NULL)
        return AVO_OK;
    AVO_TRY(take_rules(matcher, object->object.count, rules, count, error));
    for (size_t i = 0; i < *count; i++) {
        match_rule *rule = &(*rules)[i];
        rule->plain = object->object.members[i].key;
        if (!is_plain(rule->plain))
            AVO_TRY(compile(matcher, "(.*\\.)?(", rule->plain, ")$", &rule->code, error));
    }
    return AVO_OK;
}

static avo_status compile_layers(peft_matcher *matcher, avo_error *error) {
    const peft_names *names = &matcher->config->layers_pattern;
    if (matcher->config->layers == NULL)
        return AVO_OK;
    size_t count = names->given && !names->pattern ? names->list->array.count : 1;
    AVO_TRY(take_rules(matcher, count, &matcher->layer, &matcher->layers, error));
    if (!names->given)
        return compile(matcher, "", TEXT_LITERAL(".*?\\.[^.]*\\.(?P<idx>\\d+)\\."), "",
                       &matcher->layer[0].code, error);
    for (size_t i = 0; i < count; i++)
        AVO_TRY(compile(matcher, "(?:^|.*?\\.)",
                        names->pattern ? names->text : names->list->array.items[i].string,
                        "\\.(?P<idx>\\d+)\\.", &matcher->layer[i].code, error));
    return AVO_OK;
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
    pcre2_set_callout(matcher->limits, count_step, matcher);
    pcre2_set_heap_limit(matcher->limits, HEAP_LIMIT_KB);
    if (config->targets.pattern && !config->all_linear)
        AVO_TRY(compile(matcher, "", config->targets.text, "", &matcher->target, error));
    if (config->excludes.pattern)
        AVO_TRY(compile(matcher, "", config->excludes.text, "", &matcher->exclude, error));
    AVO_TRY(compile_saves(matcher, config->saves, error));
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
    matcher->steps_left = STEPS_MAX;
    matcher->steps = &matcher->steps_left;
    avo_status status = compile_all(matcher, error);
    if (status != AVO_OK) {
        peft_matcher_close(matcher);
        return status;
    }
    *out = matcher;
    return AVO_OK;
}

static void close_rules(const peft_matcher *matcher, match_rule *rules, size_t count) {
    for (size_t i = 0; i < count; i++)
        pcre2_code_free(rules[i].code);
    allocator_give(matcher->allocator, rules, count * sizeof(*rules));
}

void peft_matcher_close(peft_matcher *matcher) {
    if (matcher == NULL)
        return;
    pcre2_code_free(matcher->target);
    pcre2_code_free(matcher->exclude);
    close_rules(matcher, matcher->save, matcher->saves);
    close_rules(matcher, matcher->rank, matcher->ranks);
    close_rules(matcher, matcher->alpha, matcher->alphas);
    close_rules(matcher, matcher->layer, matcher->layers);
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->limits);
    pcre2_general_context_free(matcher->memory);
    allocator_give(matcher->allocator, matcher, sizeof(*matcher));
}

/* ---- Matching ---- */

static avo_status too_long(avo_error *error) {
    return status_fail(error, AVO_ERROR_LIMIT,
                       "the patterns of adapter_config.json take too long: more than %d steps",
                       STEPS_MAX);
}

/* From the start; `whole`: up to the end as well. */
static avo_status run(const peft_matcher *matcher, const pcre2_code *code, text_view text,
                      bool whole, bool *matched, avo_error *error) {
    uint32_t options = PCRE2_ANCHORED | (whole ? PCRE2_ENDANCHORED : 0);
    int found = pcre2_match(code, (PCRE2_SPTR)text.data, text.size, 0, options, matcher->data,
                            matcher->limits);
    *matched = found >= 0;
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH)
        return AVO_OK;
    if (*matcher->steps == 0)
        return too_long(error);
    return status_fail(error, found == PCRE2_ERROR_NOMEMORY ? AVO_ERROR_MEMORY : AVO_ERROR_LIMIT,
                       "a pattern of adapter_config.json takes too long on \"%.*s\"",
                       TEXT_ARGUMENT(text));
}

static bool dots_match(text_view plain, const char *text) {
    for (size_t i = 0; i < plain.size; i++)
        if (plain.data[i] != '.' && plain.data[i] != text[i])
            return false;
    return true;
}

/* Whether a rule has whole parts of the name: its last ones, as keys of patterns have, or
 * `anywhere`, as entries of modules_to_save. */
static avo_status rule_matches(const peft_matcher *matcher, const match_rule *rule, text_view name,
                               bool anywhere, bool *matched, avo_error *error) {
    if (rule->code != NULL)
        return run(matcher, rule->code, name, false, matched, error);
    if (!take_step(matcher))
        return too_long(error);
    size_t size = rule->plain.size;
    *matched = false;
    if (size > name.size)
        return AVO_OK;
    for (size_t at = anywhere ? 0 : name.size - size; at + size <= name.size && !*matched; at++)
        *matched = (at == 0 || name.data[at - 1] == '.') &&
                   (at + size == name.size || name.data[at + size] == '.') &&
                   dots_match(rule->plain, name.data + at);
    return AVO_OK;
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
        AVO_TRY(run(matcher, matcher->layer[i].code, name, false, &found, error));
        if (!found)
            continue;
        int group = pcre2_substring_number_from_name(matcher->layer[i].code, (PCRE2_SPTR) "idx");
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
        AVO_TRY(rule_matches(matcher, &matcher->save[i], name, true, excluded, error));
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
        AVO_TRY(rule_matches(matcher, &matcher->rank[i], module, false, &found, error));
        if (found)
            match->rank = (uint32_t)config->ranks->object.members[i].value.integer;
    }
    found = false;
    for (size_t i = 0; i < matcher->alphas && match->targeted && !found; i++) {
        AVO_TRY(rule_matches(matcher, &matcher->alpha[i], module, false, &found, error));
        const json_value *value = &config->alphas->object.members[i].value;
        if (found)
            match->alpha = value->kind == JSON_INTEGER ? (double)value->integer : value->number;
    }
    return AVO_OK;
}
