/* Searching with PCRE2. Texts are model output and may be any bytes: a text that is no UTF-8 is
 * searched as far as it is, or tested around what is wrong. Callouts between the parts of a pattern
 * count its steps, so that the many matches of one schema share a limit. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "eval/pattern.h"

#include "base/allocator.h"
#include "base/utf8.h"

#include <pcre2.h>

#define HEAP_FAILED   121      /* PCRE2_ERROR_HEAP_FAILED, which not every version names */
#define MATCH_LIMIT   1000000u /* calls of the matcher; far more than any filter of lm-eval needs */
#define COUNTED_LIMIT 10000000u /* … where steps are counted, too */
#define NESTING_MAX   100
#define HEAP_LIMIT_KB 16384 /* for the steps that the matcher may take back */

struct eval_pattern {
    const avo_allocator *allocator;
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

void pattern_close(eval_pattern *pattern) {
    if (pattern == NULL)
        return;
    pcre2_match_data_free(pattern->match);
    pcre2_match_context_free(pattern->limits);
    pcre2_code_free(pattern->code);
    pcre2_general_context_free(pattern->memory);
    allocator_give(pattern->allocator, pattern, sizeof(*pattern));
}

static avo_status refuse_pattern(text_view source, int code, PCRE2_SIZE at, avo_error *error) {
    PCRE2_UCHAR text[120];
    if (code == PCRE2_ERROR_NOMEMORY || code == HEAP_FAILED)
        return status_no_memory(error, "a pattern", source.size);
    (void)pcre2_get_error_message(code, text, sizeof(text));
    return status_fail(error, AVO_ERROR_ARGUMENT, "the pattern \"%.*s\" is wrong: %s at byte %zu",
                       TEXT_ARGUMENT(source), (const char *)text, (size_t)at);
}

static avo_status compile(eval_pattern *pattern, text_view source, const pattern_options *options,
                          avo_error *error) {
    int code = 0;
    PCRE2_SIZE at = 0;
    uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    flags |= options->ignore_case ? PCRE2_CASELESS : 0u;
    flags |= options->counts ? PCRE2_AUTO_CALLOUT | PCRE2_MATCH_INVALID_UTF : 0u;
    pcre2_compile_context *context = pcre2_compile_context_create(pattern->memory);
    if (context == NULL)
        return status_no_memory(error, "a pattern", source.size);
    pcre2_set_parens_nest_limit(context, NESTING_MAX);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pattern->code = pcre2_compile((PCRE2_SPTR)source.data, source.size, flags, &code, &at, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL)
        return refuse_pattern(source, code, at, error);
    uint32_t groups = 0;
    (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    if (groups > PATTERN_GROUPS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the pattern \"%.*s\" has %u groups, must have at most %d",
                           TEXT_ARGUMENT(source), groups, PATTERN_GROUPS_MAX);
    pattern->match = pcre2_match_data_create_from_pattern(pattern->code, pattern->memory);
    pattern->limits = pcre2_match_context_create(pattern->memory);
    if (pattern->match == NULL || pattern->limits == NULL)
        return status_no_memory(error, "a pattern", source.size);
    pcre2_set_match_limit(pattern->limits, options->counts ? COUNTED_LIMIT : MATCH_LIMIT);
    pcre2_set_heap_limit(pattern->limits, HEAP_LIMIT_KB);
    return AVO_OK;
}

avo_status pattern_open(text_view source, const pattern_options *options, eval_pattern **out,
                        avo_error *error) {
    const avo_allocator *allocator = options->allocator;
    *out = NULL;
    if (source.size > PATTERN_BYTES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "a pattern has %zu bytes, must have at most %d",
                           source.size, PATTERN_BYTES_MAX);
    eval_pattern *pattern = allocator_take_array(allocator, 1, sizeof(*pattern));
    if (pattern == NULL)
        return status_no_memory(error, "a pattern", sizeof(*pattern));
    pattern->allocator = allocator;
    pattern->memory = pcre2_general_context_create(allocator_take_sized, allocator_give_sized,
                                                   (void *)(uintptr_t)allocator);
    avo_status status = pattern->memory == NULL ? status_no_memory(error, "a pattern", source.size)
                                                : compile(pattern, source, options, error);
    if (status != AVO_OK) {
        pattern_close(pattern);
        return status;
    }
    *out = pattern;
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

avo_status pattern_test(const eval_pattern *pattern, text_view text, uint32_t *steps_left,
                        bool *found, avo_error *error) {
    pcre2_set_callout(pattern->limits, count_step, steps_left);
    int result = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.size, 0, 0, pattern->match,
                             pattern->limits);
    *found = result >= 0;
    if (result >= 0 || result == PCRE2_ERROR_NOMATCH)
        return AVO_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return status_no_memory(error, "matching a pattern", text.size);
    PCRE2_UCHAR why[120] = {0};
    (void)pcre2_get_error_message(result, why, sizeof(why));
    return status_fail(error, AVO_ERROR_LIMIT,
                       "the pattern takes too long on a completion of %zu bytes (%s); write one "
                       "that backtracks less",
                       text.size, (const char *)why);
}

/* The next match from *at on, as Python's finditer steps: an empty match is passed over by one
 * character. */
static avo_status next_match(const eval_pattern *pattern, text_view text, size_t *at, bool *found,
                             avo_error *error) {
    *found = false;
    if (*at > text.size)
        return AVO_OK;
    int count = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.size, *at, 0, pattern->match,
                            pattern->limits);
    if (count == PCRE2_ERROR_NOMATCH)
        return AVO_OK;
    if (count == PCRE2_ERROR_NOMEMORY)
        return status_no_memory(error, "a search", text.size);
    if (count < 0)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "a pattern of the task needs too %s for an answer of %zu bytes; write "
                           "one that backtracks less",
                           count == PCRE2_ERROR_HEAPLIMIT ? "much memory" : "many steps",
                           text.size);
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(pattern->match);
    *found = true;
    *at = bounds[1];
    if (bounds[0] == bounds[1]) {
        uint32_t code_point;
        size_t bytes =
            *at < text.size ? utf8_decode(text.data + *at, text.size - *at, &code_point) : 1;
        *at += bytes > 0 ? bytes : 1;
    }
    return AVO_OK;
}

/* As findall: the match itself, its only group, or, as lm-eval, the first group that is not empty.
 */
static bool chosen_part(const eval_pattern *pattern, text_view text, text_view *part) {
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(pattern->match);
    uint32_t groups = 0;
    (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    uint32_t first = groups == 0 ? 0 : 1;
    for (uint32_t i = first; i <= groups; i++) {
        PCRE2_SIZE begin = bounds[2 * i], end = bounds[2 * i + 1];
        bool set = begin != PCRE2_UNSET && end >= begin;
        *part = set ? (text_view){text.data + begin, end - begin} : (text_view){"", 0};
        if (part->size > 0 || groups <= 1)
            return true;
    }
    return false;
}

avo_status pattern_find(const eval_pattern *pattern, text_view text, int32_t which,
                        text_view *match, bool *found, avo_error *error) {
    text.size = utf8_valid_prefix(text.data, text.size);
    size_t at = 0;
    bool more;
    *found = false;
    for (int32_t index = 0;; index++) {
        AVO_TRY(next_match(pattern, text, &at, &more, error));
        if (!more)
            return AVO_OK;
        if (which >= 0 && index < which)
            continue;
        *found = chosen_part(pattern, text, match);
        if (which >= 0)
            return AVO_OK;
    }
}

avo_status pattern_remove(const eval_pattern *pattern, text_view text, buffer *out,
                          avo_error *error) {
    size_t valid = utf8_valid_prefix(text.data, text.size);
    text_view searched = {text.data, valid};
    size_t at = 0, kept = 0;
    bool more;
    for (;;) {
        AVO_TRY(next_match(pattern, searched, &at, &more, error));
        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(pattern->match);
        size_t end = more ? bounds[0] : text.size;
        if (end > kept && buffer_append(out, text.data + kept, end - kept) != AVO_OK)
            return status_no_memory(error, "an answer", text.size);
        if (!more)
            return AVO_OK;
        kept = bounds[1];
    }
}

/* ---- White space ---- */

/* str.isspace() of one character. */
static bool is_space(uint32_t code) {
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

text_view text_strip_end(text_view text) {
    while (text.size > 0) {
        size_t begin = text.size - 1;
        while (begin > 0 && text.size - begin < 4 &&
               ((unsigned char)text.data[begin] & 0xc0) == 0x80)
            begin--;
        uint32_t code;
        if (utf8_decode(text.data + begin, text.size - begin, &code) != text.size - begin ||
            !is_space(code))
            break;
        text.size = begin;
    }
    return text;
}

text_view text_strip(text_view text) {
    text = text_strip_end(text);
    while (text.size > 0) {
        uint32_t code;
        size_t bytes = utf8_decode(text.data, text.size, &code);
        if (bytes == 0 || !is_space(code))
            break;
        text.data += bytes;
        text.size -= bytes;
    }
    return text;
}
