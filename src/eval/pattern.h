/* Regular expressions of tasks and rewards: PCRE2 with limits on backtracking and its memory, since
 * patterns come from users and texts from models. Tasks search as Python's `re` does, one match
 * after the other; rewards ask whether there is one. Owned by the task or reward; used by one
 * thread at a time. */
#ifndef AVO_EVAL_PATTERN_H
#define AVO_EVAL_PATTERN_H

#include "base/buffer.h"
#include "base/status.h"

#define PATTERN_BYTES_MAX  4096
#define PATTERN_GROUPS_MAX 16

typedef struct eval_pattern eval_pattern;

typedef struct pattern_options {
    const avo_allocator *allocator; /* NULL: malloc */
    bool ignore_case;
    bool counts; /* for pattern_test: the parts of the pattern that are tried are counted */
} pattern_options;

/* A pattern that is wrong is AVO_ERROR_ARGUMENT. */
AVO_MUST_USE avo_status pattern_open(text_view source, const pattern_options *options,
                                     eval_pattern **out, avo_error *error);
void pattern_close(eval_pattern *pattern);

/* Whether the pattern, opened with `counts`, is found. `text` may be any bytes. Counts down
 * *steps_left, which several calls may share; at 0 the match is an error. */
AVO_MUST_USE avo_status pattern_test(const eval_pattern *pattern, text_view text,
                                     uint32_t *steps_left, bool *found, avo_error *error);

/* What re.findall(pattern, text)[which] gives, −1: the last; of several groups the first that is
 * not empty. *found false: there is no such match, or all groups are empty. The result points into
 * `text`. */
AVO_MUST_USE avo_status pattern_find(const eval_pattern *pattern, text_view text, int32_t which,
                                     text_view *match, bool *found, avo_error *error);
/* re.sub(pattern, "", text), appended to `out`. */
AVO_MUST_USE avo_status pattern_remove(const eval_pattern *pattern, text_view text, buffer *out,
                                       avo_error *error);

/* str.strip(): without white space, as Python counts it, at both ends; text_strip_end: at the end
 * only. */
text_view text_strip(text_view text);
text_view text_strip_end(text_view text);

#endif
