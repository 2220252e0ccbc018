/* Traces of requests as CSV, as Azure publishes them:
 *
 *   TIMESTAMP,ContextTokens,GeneratedTokens
 *   2023-11-16 18:17:03.9799600,4808,10
 *
 * Times in order; up to nine digits of a second; lines end with \n or \r\n. */
#ifndef AVO_SCHED_TRACE_H
#define AVO_SCHED_TRACE_H

#include "base/cursor.h"
#include "sched/simulate.h"

#define TRACE_TOKENS_MAX 16777216 /* of a prompt, of an answer */

/* Lines behind the heading, at most SIMULATE_REQUESTS_MAX + 1. */
uint32_t trace_lines(text_view text);
/* The first `capacity` requests: arrival (from the first one on, beginning at 1 ns), prompt and
 * answer; priority 8, weight 1, the rest 0. An answer of no tokens counts as one. `name` is for
 * errors, which say line and field. */
AVO_MUST_USE avo_status trace_parse(text_view text, const char *name, simulate_item *items,
                                    uint32_t capacity, uint32_t *count, avo_error *error);

#endif
