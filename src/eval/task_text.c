/* What a task does with texts: templates, filters, comparing. */
#include "eval/task.h"

#include "base/utf8.h"
#include "tokenizer/template/template.h"

#include <string.h>
#include <utf8proc.h>

#define RENDER_STEPS_MAX 200000

/* The document's fields, and the answer where there is one. */
static avo_status with_response(arena *arena, const json_value *document, const text_view *response,
                                json_value *variables, avo_error *error) {
    size_t count = document->object.count;
    json_member *members = arena_take_array(arena, count + 1, sizeof(*members));
    if (members == NULL)
        return status_no_memory(error, "a document", count * sizeof(*members));
    if (count > 0)
        memcpy(members, document->object.members, count * sizeof(*members));
    members[count] =
        (json_member){TEXT_LITERAL("response"), {.kind = JSON_STRING, .string = *response}};
    *variables =
        (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = count + 1}};
    return AVO_OK;
}

avo_status task_render(const task_template *template, const json_value *document,
                       const text_view *response, buffer *out, avo_error *error) {
    arena arena;
    chat_template_output rendered;
    json_value variables = *document;
    arena_init(&arena, out->allocator, SIZE_MAX);
    chat_template_output_init(&rendered, out->allocator);
    avo_status status = AVO_OK;
    if (response != NULL)
        status = with_response(&arena, document, response, &variables, error);
    chat_template_input input = {.variables = &variables,
                                 .now = 1, /* the same in every run */
                                 .steps_max = RENDER_STEPS_MAX,
                                 .strict = true};
    AVO_THEN(status, chat_template_render(template->parsed, &input, &rendered, error));
    if (status == AVO_OK && rendered.text.size > TASK_RENDERED_MAX)
        status =
            status_fail(error, AVO_ERROR_LIMIT, "the text has %zu bytes, must have at most %zu",
                        rendered.text.size, TASK_RENDERED_MAX);
    else if (status == AVO_OK &&
             buffer_append(out, rendered.text.data, rendered.text.size) != AVO_OK)
        status = status_no_memory(error, "a rendered text", out->size + rendered.text.size);
    chat_template_output_free(&rendered);
    arena_free(&arena);
    if (status != AVO_OK)
        return status_prefix(error, status, "\"%s\"", template->key);
    return AVO_OK;
}

avo_status task_filter_apply(const task_filter *filter, text_view answer, text_view *result,
                             avo_error *error) {
    *result = answer;
    for (uint32_t i = 0; i < filter->steps; i++) {
        const task_step *step = &filter->step[i];
        const char *at;
        bool found;
        text_view match;
        switch (step->kind) {
        case STEP_STRIP:
            *result = text_strip(*result);
            break;
        case STEP_BEFORE:
            at = result->size == 0
                     ? NULL
                     : memmem(result->data, result->size, step->before.data, step->before.size);
            if (at != NULL)
                result->size = (size_t)(at - result->data);
            break;
        case STEP_REGEX:
            AVO_TRY(pattern_find(step->pattern, *result, step->which, &match, &found, error));
            *result = found ? text_strip(match) : step->fallback;
            break;
        }
    }
    return AVO_OK;
}

/* Character by character, as numpy's lower does it for texts without special cases. */
static avo_status lower(text_view text, buffer *out) {
    for (size_t at = 0; at < text.size;) {
        uint32_t code;
        char bytes[4];
        size_t size = utf8_decode(text.data + at, text.size - at, &code);
        if (size == 0) {
            AVO_TRY(buffer_append(out, text.data + at, 1));
            at++;
            continue;
        }
        utf8proc_int32_t small = utf8proc_tolower((utf8proc_int32_t)code);
        AVO_TRY(buffer_append(out, bytes, utf8_encode((uint32_t)small, bytes)));
        at += size;
    }
    return AVO_OK;
}

/* Leaves the text that counts in `a`; `b` is scratch. */
static avo_status normalise(const eval_task *task, text_view text, buffer *a, buffer *b,
                            avo_error *error) {
    a->size = 0;
    if (buffer_append(a, text.data, text.size) != AVO_OK)
        return status_no_memory(error, "an answer", text.size);
    for (uint32_t i = 0; i <= task->ignored_count; i++) {
        bool last = i == task->ignored_count;
        if (last && !task->ignore_case)
            break;
        b->size = 0;
        if (!last)
            AVO_TRY(pattern_remove(task->ignored[i], buffer_text(a), b, error));
        else if (lower(buffer_text(a), b) != AVO_OK)
            return status_no_memory(error, "an answer", text.size);
        buffer swapped = *a;
        *a = *b;
        *b = swapped;
    }
    return AVO_OK;
}

avo_status task_exact_match(const eval_task *task, text_view answer, text_view target, bool *same,
                            avo_error *error) {
    buffer own, wanted, scratch;
    buffer_init(&own, task->allocator, SIZE_MAX);
    buffer_init(&wanted, task->allocator, SIZE_MAX);
    buffer_init(&scratch, task->allocator, SIZE_MAX);
    avo_status status = normalise(task, answer, &own, &scratch, error);
    AVO_THEN(status, normalise(task, target, &wanted, &scratch, error));
    *same = status == AVO_OK && text_equal(buffer_text(&own), buffer_text(&wanted));
    buffer_free(&own);
    buffer_free(&wanted);
    buffer_free(&scratch);
    return status;
}
