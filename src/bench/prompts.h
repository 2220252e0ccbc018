/* Prompts for measurements of speculation, by kind of text: what drafts gain depends on the text
 * more than on anything else. The texts of the sets are ours (prompt_sets.c); a file may bring
 * others. */
#ifndef AVO_BENCH_PROMPTS_H
#define AVO_BENCH_PROMPTS_H

#include "base/arena.h"
#include "base/cursor.h"

#define BENCH_PROMPTS_MAX      4096
#define BENCH_PROMPT_BYTES_MAX ((size_t)1 << 20)
#define BENCH_PROMPT_SETS      "chat,code,summarise,json,editing,story,random"
#define BENCH_SET_SIZE         8 /* prompts of each set */
#define BENCH_CATEGORY_MAX     40

typedef struct bench_prompt {
    const char *category; /* name of its set, or what the file says */
    const char *text;     /* what the user asks */
    const char *schema;   /* JSON schema of the answer; NULL: any answer */
    float temperature;    /* that it is asked with; negative: the caller's */
} bench_prompt;

typedef struct bench_prompts {
    bench_prompt *item; /* [count], those of one category one behind the other for the sets */
    size_t count;
    arena arena;
} bench_prompts;

/* Sets by name, separated by commas. `limit`: prompts of each, 0: all. Free it also after a
 * failure. */
AVO_MUST_USE avo_status bench_prompts_sets(const char *names, uint32_t limit,
                                           bench_prompts *prompts, avo_error *error);
/* A file. Lines that begin with "{" are JSON objects with "prompt" (text), "turns" (of which the
 * first is taken, as in Spec-Bench's question.jsonl) or "messages" (the first of role user), and
 * optionally "category"; other lines are prompts as they are. Blank lines are skipped. `limit`:
 * prompts of each category, 0: all. */
AVO_MUST_USE avo_status bench_prompts_file(const char *path, uint32_t limit, bench_prompts *prompts,
                                           avo_error *error);
/* The same of text in memory; `path` is for errors. */
AVO_MUST_USE avo_status bench_prompts_text(text_view text, const char *path, uint32_t limit,
                                           bench_prompts *prompts, avo_error *error);
void bench_prompts_free(bench_prompts *prompts);

/* ---- The texts (prompt_sets.c) ---- */

typedef struct bench_set_text {
    const char *text, *schema;
} bench_set_text;
typedef struct bench_set {
    const char *name;
    float temperature;           /* negative: the caller's */
    const bench_set_text *texts; /* [BENCH_SET_SIZE]; NULL: random words */
} bench_set;
extern const bench_set bench_sets[];
extern const size_t bench_set_count;

#endif
