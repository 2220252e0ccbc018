/* PCRE2 behind our allocator and with limits. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer/regex_int.h"

#include "base/allocator.h"
#include "base/utf8.h"
#include "tokenizer/unicode_int.h"

#define STACK_BYTES_MAX ((size_t)8 << 20)
#define TRANSLATED_MAX  ((size_t)1 << 20)

struct regex {
    const avo_allocator *allocator;
    pcre2_general_context *memory;
    pcre2_code *code;
    bool jit;
};

avo_status regex_compile(text_view pattern, const avo_allocator *allocator, regex **out,
                         avo_error *error) {
    *out = NULL;
    if (pattern.size > REGEX_PATTERN_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "a pattern of %zu bytes (at most %u)",
                           pattern.size, REGEX_PATTERN_MAX);
    regex *fresh = allocator_take_array(allocator, 1, sizeof(regex));
    if (fresh == NULL)
        return status_no_memory(error, "a pattern", sizeof(regex));
    fresh->allocator = allocator;
    fresh->memory = pcre2_general_context_create(allocator_take_sized, allocator_give_sized,
                                                 (void *)(uintptr_t)allocator);
    pcre2_compile_context *context =
        fresh->memory == NULL ? NULL : pcre2_compile_context_create(fresh->memory);
    if (context == NULL) {
        regex_free(fresh);
        return status_no_memory(error, "a pattern", pattern.size);
    }
    pcre2_set_parens_nest_limit(context, 250);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE at = 0;
    buffer translated;
    buffer_init(&translated, allocator, TRANSLATED_MAX);
    avo_status status = regex_translate(pattern, &translated, error);
    if (status == AVO_OK)
        fresh->code = pcre2_compile(
            (PCRE2_SPTR)buffer_text(&translated).data, translated.size,
            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    buffer_free(&translated);
    pcre2_compile_context_free(context);
    if (status != AVO_OK) {
        regex_free(fresh);
        if (status == AVO_ERROR_MEMORY)
            return status_no_memory(error, "a pattern", pattern.size);
        return status == AVO_ERROR_LIMIT
                   ? status_fail(error, status, "a pattern that is too long when translated")
                   : status;
    }
    if (fresh->code == NULL) {
        regex_free(fresh);
        if (code == PCRE2_ERROR_NOMEMORY || code == 121 /* PCRE2_ERROR_HEAP_FAILED */)
            return status_no_memory(error, "a pattern", pattern.size);
        PCRE2_UCHAR text[120];
        pcre2_get_error_message(code, text, sizeof(text));
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "pattern \"%.*s\": %s at byte %zu",
                           TEXT_ARGUMENT(pattern), (const char *)text, (size_t)at);
    }
    fresh->jit = pcre2_jit_compile(fresh->code, PCRE2_JIT_COMPLETE) == 0;
    *out = fresh;
    return AVO_OK;
}

void regex_free(regex *regex) {
    if (regex == NULL)
        return;
    pcre2_code_free(regex->code);
    pcre2_general_context_free(regex->memory);
    allocator_give(regex->allocator, regex, sizeof(*regex));
}

void regex_match_free(regex_match *match) {
    pcre2_match_data_free(match->data);
    pcre2_match_context_free(match->context);
    pcre2_jit_stack_free(match->stack);
    *match = (regex_match){0};
}

static avo_status prepare(const regex *regex, regex_match *match, avo_error *error) {
    if (match->context == NULL)
        match->context = pcre2_match_context_create(regex->memory);
    if (match->data == NULL)
        match->data = pcre2_match_data_create(1, regex->memory); /* only the whole match */
    if (match->stack == NULL && regex->jit)
        match->stack = pcre2_jit_stack_create((size_t)32 << 10, STACK_BYTES_MAX, regex->memory);
    if (match->context == NULL || match->data == NULL || (match->stack == NULL && regex->jit))
        return status_no_memory(error, "matching a pattern", STACK_BYTES_MAX);
    pcre2_jit_stack_assign(match->context, NULL, match->stack);
    return AVO_OK;
}

avo_status regex_find(const regex *regex, regex_match *match, text_view text, size_t at,
                      bool *found, size_t *begin, size_t *end, avo_error *error) {
    AVO_TRY(prepare(regex, match, error));
    /* Backtracking over a long run is honest work once; more of it is a trap. */
    size_t limit = ((size_t)1 << 20) + 16 * (text.size - at);
    pcre2_set_match_limit(match->context, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    pcre2_set_heap_limit(match->context, (uint32_t)(((size_t)64 << 10) + text.size / 8));
    int result = pcre2_match(regex->code, (PCRE2_SPTR)text.data, text.size, at, PCRE2_NO_UTF_CHECK,
                             match->data, match->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = pcre2_match(regex->code, (PCRE2_SPTR)text.data, text.size, at,
                             PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match->data, match->context);
    *found = result >= 0;
    if (result == PCRE2_ERROR_NOMATCH)
        return AVO_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return status_no_memory(error, "matching a pattern", text.size);
    if (result < 0) {
        PCRE2_UCHAR what[120];
        pcre2_get_error_message(result, what, sizeof(what));
        return status_fail(error, AVO_ERROR_LIMIT, "the tokenizer's pattern: %s on %zu bytes",
                           (const char *)what, text.size - at);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(match->data);
    *begin = ends[0];
    *end = ends[1];
    /* \K in a lookahead can put the end before the beginning, or both before `at`. */
    if (*begin < at || *end < *begin || *end > text.size)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "the tokenizer's pattern uses \\K");
    return AVO_OK;
}

static const regex_stand_in *find_stand_in(uint32_t code_point) {
    uint32_t low = 0;
    uint32_t high = regex_stand_in_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (regex_stand_ins[middle].end < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < regex_stand_in_count && regex_stand_ins[low].begin <= code_point
               ? &regex_stand_ins[low]
               : NULL;
}

avo_status regex_subject(text_view text, buffer *copy, text_view *subject) {
    *subject = text;
    for (size_t at = 0; at < text.size;) {
        uint32_t code_point;
        uint32_t length = unicode_take(text.data + at, &code_point);
        const regex_stand_in *other =
            code_point < regex_stand_ins[0].begin ? NULL : find_stand_in(code_point);
        if (other != NULL) {
            if (subject->data == text.data) {
                copy->size = 0;
                AVO_TRY(buffer_append(copy, text.data, text.size));
                *subject = buffer_text(copy);
            }
            utf8_encode(other->other, copy->data + at);
        }
        at += length;
    }
    return AVO_OK;
}
