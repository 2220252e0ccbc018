/* Which tokens of a text are scored: windows side by side or sliding. eval.h says how and why. */
#include "eval/eval_int.h"

#include "base/allocator.h"

#include <string.h>

typedef struct walk {
    const int32_t *tokens;
    size_t count;
    const eval_options *options;
    const char *what; /* for progress */
    window_function score;
    void *context;
    uint64_t windows;
    avo_error *error;
} walk;

static avo_status report(const walk *walk, uint64_t done, uint64_t total) {
    const eval_options *options = walk->options;
    if (options->progress == NULL ||
        options->progress(options->progress_context, walk->what, done, total))
        return AVO_OK;
    return status_fail(walk->error, AVO_ERROR_CANCELLED, "cancelled after %llu of %llu windows",
                       (unsigned long long)done, (unsigned long long)total);
}

static uint64_t at_most(uint64_t count, uint32_t maximum) {
    return maximum != 0 && count > maximum ? maximum : count;
}

/* The window is copied, because its first token may be replaced; the last token is only predicted,
 * never computed. */
static avo_status side_by_side(walk *walk, int32_t *window) {
    const eval_options *options = walk->options;
    size_t context = options->context;
    walk->windows = at_most(walk->count / context, options->windows_max);
    for (uint64_t w = 0; w < walk->windows; w++) {
        AVO_TRY(report(walk, w, walk->windows));
        memcpy(window, walk->tokens + w * context, context * sizeof(*window));
        if (options->begin >= 0)
            window[0] = options->begin;
        AVO_TRY(walk->score(walk->context, window, context - 1, context / 2, walk->error));
    }
    return report(walk, walk->windows, walk->windows);
}

static avo_status sliding(walk *walk) {
    const eval_options *options = walk->options;
    size_t context = options->context;
    size_t stride = options->stride;
    uint64_t all = walk->count <= context ? 1 : (walk->count - context + stride - 1) / stride + 1;
    walk->windows = at_most(all, options->windows_max);
    size_t scored = 1; /* tokens before this one need no more scoring */
    for (uint64_t w = 0; w < walk->windows; w++) {
        AVO_TRY(report(walk, w, walk->windows));
        size_t begin = w * stride;
        size_t end = begin + context < walk->count ? begin + context : walk->count;
        AVO_TRY(walk->score(walk->context, walk->tokens + begin, end - begin - 1,
                            scored - 1 - begin, walk->error));
        scored = end;
    }
    return report(walk, walk->windows, walk->windows);
}

avo_status windows_check(size_t count, const eval_options *options, avo_error *error) {
    if (options->context < 4)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the window has %u tokens, must have at least 4", options->context);
    if (options->stride >= options->context)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the stride is %u tokens, must be smaller than the window (%u)",
                           options->stride, options->context);
    size_t needed = options->stride == 0 ? options->context : 2;
    if (count < needed)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the text has %zu tokens, must have at least %zu; use a longer text or "
                           "a smaller window",
                           count, needed);
    return AVO_OK;
}

avo_status windows_walk(const int32_t *tokens, size_t count, const eval_options *options,
                        const char *what, window_function score, void *context, uint64_t *windows,
                        avo_error *error) {
    AVO_TRY(windows_check(count, options, error));
    walk walk = {.tokens = tokens,
                 .count = count,
                 .options = options,
                 .what = what,
                 .score = score,
                 .context = context,
                 .error = error};
    avo_status status;
    if (options->stride != 0) {
        status = sliding(&walk);
    } else {
        size_t bytes = options->context * sizeof(int32_t);
        int32_t *window = allocator_take(NULL, bytes);
        status = window == NULL ? status_no_memory(error, "a window of tokens", bytes)
                                : side_by_side(&walk, window);
        allocator_give(NULL, window, bytes);
    }
    *windows = walk.windows;
    return status;
}
