/* Reading and checking template cases: what tools/oracle/template_*.py wrote. */
#ifndef AVO_TESTS_TEMPLATE_CASES_H
#define AVO_TESTS_TEMPLATE_CASES_H

#include "support/support.h"
#include "tokenizer/template/template.h"

#define CASES_NOW 1753280096 /* 2025-07-23 14:14:56 UTC: the clock of the oracle */

/* REFUSED: jinja2 renders it, we say by name that we do not support it. */
typedef enum case_result { CASE_GOOD, CASE_FAILED, CASE_REFUSED } case_result;

/* Renders and compares with `expected` (an error is expected when it is NULL); says what differs.
 * Checks the trusted spans too: ascending, disjoint, inside the text. */
case_result case_check(const char *name, text_view source, const json_value *variables,
                       const text_view *expected);
/* The number of cases in a file of cases; how many failed, how many were refused. */
size_t cases_check_file(const char *path, size_t *failed, size_t *refused);
/* A file that must exist, mapped for good. */
text_view cases_read_file(const char *path);
uint64_t cases_hash(text_view text); /* FNV-1a of 64 bits */

#endif
