/* Regular expressions of rewards: PCRE2 behind our allocator, with limits. A completion may be any
 * text, and so may a pattern; what takes too many steps is an error, never a long wait. Callouts
 * between the parts of a pattern count the steps, so that the many matches of one schema share a
 * limit. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "eval/reward_int.h"

#define PATTERN_MAX   4096
#define NESTING_MAX   100
#define MATCH_LIMIT   10000000 /* of the library's own steps, for one match */
#define HEAP_LIMIT_KB 16384

struct reward_pattern {
    const avo_allocator *allocator;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *data;
    pcre2_code *code;
};

void reward_pattern_close(reward_pattern *pattern) {
    if (pattern == NULL)
        return;
    pcre2_code_free(pattern->code);
    pcre2_match_data_free(pattern->data);
    pcre2_match_context_free(pattern->limits);
    pcre2_general_context_free(pattern->memory);
    allocator_give(pattern->allocator, pattern, sizeof(*pattern));
}

static avo_status compile(reward_pattern *pattern, text_view text, bool ignore_case,
                          avo_error *error) {
    pcre2_compile_context *context = pcre2_compile_context_create(pattern->memory);
    if (context == NULL)
        return status_no_memory(error, "a pattern", text.size);
    pcre2_set_parens_nest_limit(context, NESTING_MAX);
    int code = 0;
    PCRE2_SIZE at = 0;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C |
                       PCRE2_AUTO_CALLOUT | (ignore_case ? PCRE2_CASELESS : 0u);
    pattern->code = pcre2_compile((PCRE2_SPTR)text.data, text.size, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (pattern->code != NULL)
        return AVO_OK;
    PCRE2_UCHAR why[120] = {0};
    (void)pcre2_get_error_message(code, why, sizeof(why));
    return status_fail(
        error, code == PCRE2_ERROR_HEAP_FAILED ? AVO_ERROR_MEMORY : AVO_ERROR_ARGUMENT,
        "pattern \"%.*s\": %s at byte %zu", TEXT_ARGUMENT(text), (const char *)why, (size_t)at);
}

avo_status reward_pattern_open(text_view text, bool ignore_case, const avo_allocator *allocator,
                               reward_pattern **out, avo_error *error) {
    *out = NULL;
    if (text.size > PATTERN_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "a pattern has %zu bytes, must have at most %d",
                           text.size, PATTERN_MAX);
    reward_pattern *fresh = allocator_take_array(allocator, 1, sizeof(*fresh));
    if (fresh == NULL)
        return status_no_memory(error, "a pattern", sizeof(*fresh));
    fresh->allocator = allocator;
    fresh->memory = pcre2_general_context_create(allocator_take_sized, allocator_give_sized,
                                                 (void *)(uintptr_t)allocator);
    if (fresh->memory != NULL) {
        fresh->limits = pcre2_match_context_create(fresh->memory);
        fresh->data = pcre2_match_data_create(1, fresh->memory);
    }
    avo_status status = fresh->limits == NULL || fresh->data == NULL
                            ? status_no_memory(error, "a pattern", text.size)
                            : compile(fresh, text, ignore_case, error);
    if (status != AVO_OK) {
        reward_pattern_close(fresh);
        return status;
    }
    pcre2_set_match_limit(fresh->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(fresh->limits, HEAP_LIMIT_KB);
    *out = fresh;
    return AVO_OK;
}

static int count_step(pcre2_callout_block *block, void *context) {
    uint32_t *left = context;
    (void)block;
    if (*left == 0)
        return PCRE2_ERROR_MATCHLIMIT;
    (*left)--;
    return 0;
}

avo_status reward_pattern_find(const reward_pattern *pattern, text_view text, uint32_t *steps_left,
                               bool *found, avo_error *error) {
    pcre2_set_callout(pattern->limits, count_step, steps_left);
    int result = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.size, 0, 0, pattern->data,
                             pattern->limits);
    *found = result >= 0;
    if (result >= 0 || result == PCRE2_ERROR_NOMATCH)
        return AVO_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return status_no_memory(error, "matching a pattern", text.size);
    PCRE2_UCHAR why[120] = {0};
    (void)pcre2_get_error_message(result, why, sizeof(why));
    return status_fail(error, AVO_ERROR_LIMIT,
                       "the pattern takes too long on a completion of %zu bytes (%s, %d steps); "
                       "write one that backtracks less",
                       text.size, (const char *)why, REWARD_PATTERN_STEPS);
}
