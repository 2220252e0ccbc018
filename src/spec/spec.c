/* Names of draft sources and controllers. */
#include "spec/spec.h"

#include <string.h>

static const char *const kind_names[DRAFT_KINDS] = {
#define DRAFT_SOURCE_NAME(name, text, help) [DRAFT_##name] = text,
    DRAFT_SOURCE_TABLE(DRAFT_SOURCE_NAME)
#undef DRAFT_SOURCE_NAME
};
#define DRAFT_SOURCE_LIST(name, text, help) " " text

static const char *const controller_names[CONTROLLERS] = {
#define DRAFT_CONTROLLER_NAME(name, text, help) [CONTROLLER_##name] = text,
    DRAFT_CONTROLLER_TABLE(DRAFT_CONTROLLER_NAME)
#undef DRAFT_CONTROLLER_NAME
};
#define DRAFT_CONTROLLER_LIST(name, text, help) " " text

const char *draft_kind_name(draft_kind kind) {
    return kind_names[kind];
}

const char *draft_controller_name(draft_controller controller) {
    return controller_names[controller];
}

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static bool find_kind(const char *text, size_t length, draft_kinds *kinds) {
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++) {
        if (!is_word(text, length, kind_names[kind]))
            continue;
        *kinds |= DRAFT_BIT(kind);
        return true;
    }
    return false;
}

avo_status draft_kinds_parse(const char *text, draft_kinds *kinds, avo_error *error) {
    return draft_kinds_read("speculate", text, kinds, error);
}

avo_status draft_kinds_read(const char *field, const char *text, draft_kinds *kinds,
                            avo_error *error) {
    *kinds = DRAFTS_AUTO;
    if (text == NULL || strcmp(text, "auto") == 0)
        return AVO_OK;
    *kinds = DRAFTS_OFF;
    if (strcmp(text, "off") == 0)
        return AVO_OK;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (!find_kind(at, length, kinds))
            return status_fail(
                error, AVO_ERROR_ARGUMENT,
                "%s is \"%.60s\", must be off, auto or a list of sources with commas "
                "between them:" DRAFT_OFFERED_TABLE(DRAFT_SOURCE_LIST),
                field, text);
        at += length;
        if (*at == '\0')
            return AVO_OK;
    }
}

avo_status draft_controller_parse(const char *text, draft_controller *controller,
                                  avo_error *error) {
    *controller = CONTROLLER_COST;
    if (text == NULL)
        return AVO_OK;
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        *controller = (draft_controller)i;
        if (strcmp(text, controller_names[i]) == 0)
            return AVO_OK;
    }
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "controller is \"%.40s\", must be one "
                       "of" DRAFT_CONTROLLER_TABLE(DRAFT_CONTROLLER_LIST),
                       text);
}

uint8_t draft_grade(float probability) {
    static const float least[DRAFT_GRADES - 1] = {.15f, .3f, .45f, .6f, .75f, .9f, .97f};
    uint8_t grade = 0;
    while (grade < DRAFT_GRADES - 1 && probability >= least[grade])
        grade++;
    return grade;
}
