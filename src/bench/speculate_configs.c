/* What the laboratory runs: lists of K, sources, controllers and policies, and all combinations. */
#include "bench/speculate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

static bool read_number(const char **at, uint32_t *value) {
    if (**at < '0' || **at > '9')
        return false;
    char *end;
    unsigned long number = strtoul(*at, &end, 10);
    *at = end;
    *value = (uint32_t)number;
    return number <= DRAFTS_MAX;
}

static bool read_range(const char **at, bool *wanted) {
    uint32_t from, to;
    if (!read_number(at, &from))
        return false;
    to = from;
    if (strncmp(*at, "..", 2) == 0) {
        *at += 2;
        if (!read_number(at, &to) || to < from)
            return false;
    }
    for (uint32_t i = from; i <= to; i++)
        wanted[i] = true;
    return true;
}

avo_status lab_parse_k(const char *text, uint32_t k[DRAFTS_MAX + 1], uint32_t *count,
                       avo_error *error) {
    bool wanted[DRAFTS_MAX + 1] = {true};
    bool good = true;
    for (const char *at = text; good;) {
        good = read_range(&at, wanted) && (*at == ',' || *at == '\0');
        if (!good || *at == '\0')
            break;
        at++;
    }
    if (!good)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "k is \"%.40s\", must be numbers from 0 to %d or ranges of them, such "
                           "as 0..8 or 0,3,7",
                           text, DRAFTS_MAX);
    *count = 0;
    for (uint32_t i = 0; i <= DRAFTS_MAX; i++)
        if (wanted[i])
            k[(*count)++] = i;
    return AVO_OK;
}

/* ---- Combinations ---- */

/* The next of a list; false: there is none. */
static bool next_word(const char **rest, text_view *word) {
    if (*rest == NULL)
        return false;
    size_t bytes = strcspn(*rest, ",");
    *word = (text_view){*rest, bytes};
    *rest = (*rest)[bytes] == ',' ? *rest + bytes + 1 : NULL;
    return true;
}

static avo_status take_word(text_view word, const char *what, char *room, size_t capacity,
                            avo_error *error) {
    if (word.size == 0 || word.size >= capacity)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s \"%.*s\" must have 1 to %zu letters",
                           what, word.size < 40 ? (int)word.size : 40, word.data, capacity - 1);
    memcpy(room, word.data, word.size);
    room[word.size] = '\0';
    return AVO_OK;
}

/* "suffix+corpus" is one configuration with two kinds. */
static avo_status read_source(text_view word, char source[LAB_SOURCE_MAX], avo_error *error) {
    draft_kinds kinds;
    AVO_TRY(take_word(word, "source", source, LAB_SOURCE_MAX, error));
    for (char *at = source; *at != '\0'; at++)
        *at = *at == '+' ? ',' : *at;
    AVO_TRY(draft_kinds_parse(source, &kinds, error));
    if (kinds == DRAFTS_OFF)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "source off is what K = 0 measures, which is always included");
    return AVO_OK;
}

typedef struct configs {
    lab_config *config;
    uint32_t count;
    const uint32_t *k;
    uint32_t k_count;
} configs;

static avo_status add(configs *all, const lab_config *like, avo_error *error) {
    for (uint32_t i = 0; i < all->k_count; i++) {
        if (all->k[i] == 0)
            continue;
        if (all->count == LAB_CONFIGS_MAX)
            return status_fail(error, AVO_ERROR_LIMIT,
                               "these lists give more than %d configurations", LAB_CONFIGS_MAX);
        all->config[all->count] = *like;
        all->config[all->count++].k = all->k[i];
    }
    return AVO_OK;
}

static avo_status add_policies(configs *all, lab_config *like, const char *policies,
                               avo_error *error) {
    text_view word;
    while (next_word(&policies, &word)) {
        AVO_TRY(draft_policy_parse(word, &like->policy, error));
        AVO_TRY(add(all, like, error));
    }
    return AVO_OK;
}

static avo_status add_controllers(configs *all, lab_config *like, const char *controllers,
                                  const char *policies, avo_error *error) {
    text_view word;
    char name[32];
    while (next_word(&controllers, &word)) {
        AVO_TRY(take_word(word, "controller", name, sizeof(name), error));
        AVO_TRY(draft_controller_parse(name, &like->controller, error));
        AVO_TRY(add_policies(all, like, policies, error));
    }
    return AVO_OK;
}

avo_status lab_configs(const char *k, const char *sources, const char *controllers,
                       const char *policies, lab_config config[LAB_CONFIGS_MAX], uint32_t *count,
                       avo_error *error) {
    uint32_t numbers[DRAFTS_MAX + 1];
    configs all = {.config = config, .count = 1, .k = numbers};
    text_view word;
    AVO_TRY(lab_parse_k(k, numbers, &all.k_count, error));
    config[0] = (lab_config){.source = "off"};
    while (next_word(&sources, &word)) {
        lab_config like = {.k = 0};
        AVO_TRY(read_source(word, like.source, error));
        AVO_TRY(add_controllers(&all, &like, controllers, policies, error));
    }
    *count = all.count;
    return AVO_OK;
}

void lab_config_name(const lab_config *config, char *text, size_t capacity) {
    if (config->k == 0) {
        snprintf(text, capacity, "K 0");
        return;
    }
    char policy[40] = "";
    if (draft_policy_lossy(&config->policy))
        snprintf(policy, sizeof(policy), " %s:%g (lossy)", draft_policy_name(config->policy.kind),
                 config->policy.value);
    snprintf(text, capacity, "%s %s%s K %u", config->source,
             draft_controller_name(config->controller), policy, config->k);
    for (char *at = text; *at != '\0'; at++)
        *at = *at == ',' ? '+' : *at;
}
