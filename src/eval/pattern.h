/* Regular expressions of tasks, as Python's `re` reads them: one search after the other, and
 * replacing every match by nothing. PCRE2 with limits on backtracking and its memory, because
 * tasks come from users. Owned by the task; used by one thread at a time. */
#ifndef AVO_EVAL_PATTERN_H
#define AVO_EVAL_PATTERN_H

#include "base/buffer.h"
#include "base/status.h"

#define PATTERN_BYTES_MAX  4096
#define PATTERN_GROUPS_MAX 16

typedef struct eval_pattern eval_pattern;

AVO_MUST_USE avo_status pattern_open(text_view source, const avo_allocator *allocator,
                                     eval_pattern **out, avo_error *error);
void pattern_close(eval_pattern *pattern);

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
