/* Stop strings in a stream of text. Each string has a Knuth-Morris-Pratt automaton, so every byte
 * is looked at once per string, however the text is cut. The longest beginning of a string that the
 * text ends with is what must be held back. */
#include "sample/sample.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/utf8.h"

#include <string.h>

typedef struct stop_automaton {
    const char *text;
    uint32_t length;
    uint32_t matched;        /* bytes of the string that the text so far ends with */
    const uint32_t *borders; /* [length] longest proper border of the first i + 1 bytes */
} stop_automaton;

struct stop_matcher {
    const avo_allocator *allocator;
    arena arena;
    stop_automaton *automata;
    size_t count;
    buffer pending;       /* text that is held, behind what was released last */
    size_t released_size; /* of `pending`, handed out by the last push */
    bool stopped;
    size_t found; /* which string, once stopped */
};

static void compute_borders(const char *text, uint32_t length, uint32_t *borders) {
    borders[0] = 0;
    uint32_t border = 0;
    for (uint32_t i = 1; i < length; i++) {
        while (border > 0 && text[i] != text[border])
            border = borders[border - 1];
        if (text[i] == text[border])
            border++;
        borders[i] = border;
    }
}

static avo_status check_string(size_t index, const char *text, avo_error *error) {
    size_t length = text == NULL ? 0 : strnlen(text, STOP_STRING_BYTES_MAX + 1);
    if (length == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "stop string %zu is empty", index + 1);
    if (length > STOP_STRING_BYTES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "stop string %zu has more than %d bytes",
                           index + 1, STOP_STRING_BYTES_MAX);
    if (utf8_valid_prefix(text, length) != length)
        return status_fail(error, AVO_ERROR_ARGUMENT, "stop string %zu is not valid UTF-8",
                           index + 1);
    return AVO_OK;
}

static avo_status add_string(stop_matcher *matcher, stop_automaton *automaton, const char *text,
                             avo_error *error) {
    size_t length = strlen(text);
    char *copy = arena_copy_text(&matcher->arena, text, length);
    uint32_t *borders = arena_take_array(&matcher->arena, length, sizeof(*borders));
    if (copy == NULL || borders == NULL)
        return status_no_memory(error, "a stop string", length * 5);
    compute_borders(copy, (uint32_t)length, borders);
    *automaton = (stop_automaton){copy, (uint32_t)length, 0, borders};
    return AVO_OK;
}

avo_status stop_matcher_open(const char *const *strings, size_t count,
                             const avo_allocator *allocator, stop_matcher **out, avo_error *error) {
    *out = NULL;
    if (count > STOP_STRINGS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%zu stop strings, must be at most %d", count,
                           STOP_STRINGS_MAX);
    for (size_t i = 0; i < count; i++)
        AVO_TRY(check_string(i, strings[i], error));
    stop_matcher *matcher = allocator_take_array(allocator, 1, sizeof(*matcher));
    if (matcher == NULL)
        return status_no_memory(error, "the stop strings", sizeof(*matcher));
    matcher->allocator = allocator;
    arena_init(&matcher->arena, allocator, SIZE_MAX);
    buffer_init(&matcher->pending, allocator, SIZE_MAX);
    avo_status status = AVO_OK;
    if (count > 0) {
        matcher->automata = arena_take_array(&matcher->arena, count, sizeof(*matcher->automata));
        if (matcher->automata == NULL)
            status = status_no_memory(error, "the stop strings", count * sizeof(stop_automaton));
    }
    for (; status == AVO_OK && matcher->count < count; matcher->count++)
        status =
            add_string(matcher, &matcher->automata[matcher->count], strings[matcher->count], error);
    if (status == AVO_OK) {
        /* Room for what tokens bring, so that a push allocates only for a very long one. */
        status = buffer_reserve(&matcher->pending, STOP_STRING_BYTES_MAX + 4096);
        if (status != AVO_OK)
            status = status_no_memory(error, "the stop strings", STOP_STRING_BYTES_MAX + 4096);
    }
    if (status != AVO_OK) {
        stop_matcher_close(matcher);
        return status;
    }
    *out = matcher;
    return AVO_OK;
}

void stop_matcher_close(stop_matcher *matcher) {
    if (matcher == NULL)
        return;
    buffer_free(&matcher->pending);
    arena_free(&matcher->arena);
    allocator_give(matcher->allocator, matcher, sizeof(*matcher));
}

/* True when the string is complete with this byte. */
static bool automaton_step(stop_automaton *automaton, char byte) {
    uint32_t matched = automaton->matched;
    while (matched > 0 && automaton->text[matched] != byte)
        matched = automaton->borders[matched - 1];
    if (automaton->text[matched] == byte)
        matched++;
    automaton->matched = matched;
    return matched == automaton->length;
}

/* The length of the longest string that ends with this byte, which is `found`; 0: none does. */
static uint32_t step_all(stop_matcher *matcher, char byte) {
    uint32_t longest = 0;
    for (size_t i = 0; i < matcher->count; i++) {
        stop_automaton *automaton = &matcher->automata[i];
        if (!automaton_step(automaton, byte) || automaton->length <= longest)
            continue;
        longest = automaton->length;
        matcher->found = i;
    }
    return longest;
}

static size_t held_bytes(const stop_matcher *matcher) {
    size_t longest = 0;
    for (size_t i = 0; i < matcher->count; i++)
        if (matcher->automata[i].matched > longest)
            longest = matcher->automata[i].matched;
    return longest;
}

static void drop_released(stop_matcher *matcher) {
    buffer *pending = &matcher->pending;
    size_t held = pending->size - matcher->released_size;
    if (held > 0 && matcher->released_size > 0)
        memmove(pending->data, pending->data + matcher->released_size, held);
    pending->size = held;
    matcher->released_size = 0;
}

avo_status stop_matcher_push(stop_matcher *matcher, const char *text, size_t bytes,
                             const char **released, size_t *released_bytes, bool *stopped,
                             avo_error *error) {
    buffer *pending = &matcher->pending;
    drop_released(matcher);
    *released = "";
    *released_bytes = 0;
    *stopped = matcher->stopped;
    if (matcher->stopped || bytes == 0)
        return AVO_OK;
    size_t at = pending->size;
    avo_status status = buffer_append(pending, text, bytes);
    if (status != AVO_OK)
        return status_no_memory(error, "text held for a stop string", bytes);
    for (; at < pending->size; at++) {
        uint32_t length = step_all(matcher, pending->data[at]);
        if (length == 0)
            continue;
        matcher->stopped = true;
        *stopped = true;
        matcher->released_size = at + 1 - length;
        pending->size = matcher->released_size;
        break;
    }
    if (!matcher->stopped)
        matcher->released_size = pending->size - held_bytes(matcher);
    *released = pending->data;
    *released_bytes = matcher->released_size;
    return AVO_OK;
}

void stop_matcher_finish(stop_matcher *matcher, const char **released, size_t *released_bytes) {
    drop_released(matcher);
    *released = matcher->pending.size > 0 ? matcher->pending.data : "";
    *released_bytes = matcher->pending.size;
    matcher->released_size = matcher->pending.size;
}

const char *stop_matcher_found(const stop_matcher *matcher, size_t *index) {
    if (!matcher->stopped)
        return NULL;
    *index = matcher->found;
    return matcher->automata[matcher->found].text;
}
