/* Between the files of rewards. */
#ifndef AVO_EVAL_REWARD_INT_H
#define AVO_EVAL_REWARD_INT_H

#include "eval/pattern.h"
#include "eval/reward.h"

#define REWARD_FIELD_DEFAULT "answer"
#define REWARD_FILE_MAX      ((size_t)1 << 20)
#define REWARD_SECONDS       60 /* for one call of a program, unless the description says more */
#define REWARD_SECONDS_MAX   86400
#define REWARD_PATTERN_STEPS 1000000 /* of patterns, for one completion: tens of milliseconds */
#define REWARD_SCORE_TEXT    64      /* bytes that a program may write for one score */

typedef enum reward_kind {
    REWARD_EXACT_MATCH,
    REWARD_CONTAINS,
    REWARD_REGEX,
    REWARD_LENGTH,
    REWARD_NUMBER,
    REWARD_JSON_SCHEMA,
    REWARD_PYTHON,
    REWARD_COMMAND,
    REWARD_KINDS
} reward_kind;

typedef struct reward_schema reward_schema;

struct reward {
    arena arena; /* all texts; terminated */
    reward_options options;
    reward_kind kind;
    double weight;
    text_view field;         /* exact_match, number */
    text_view text;          /* what is contained, a pattern, a command, the text of a program */
    text_view file;          /* python, json_schema: its name for errors; may be empty */
    bool ignore_case;        /* exact_match, contains, regex */
    bool tokens;             /* length */
    uint64_t least, most;    /* length */
    uint32_t seconds;        /* python, command */
    const json_value *given; /* json_schema: the schema itself */
    eval_pattern *pattern;
    reward_schema *schema;
};

/* ---- reward_describe.c ---- */

const char *reward_kind_name(reward_kind kind);
/* Fills a reward whose arena and options are set. */
AVO_MUST_USE avo_status reward_describe(reward *reward, const json_value *description,
                                        avo_error *error);
AVO_MUST_USE avo_status reward_describe_text(reward *reward, text_view description,
                                             avo_error *error);

/* ---- reward_text.c ---- */

/* Writes the text of an item's field; numbers and booleans as JSON writes them. */
AVO_MUST_USE avo_status reward_score_text(const reward *reward, const reward_item *item,
                                          float *score, avo_error *error);
/* The last number of a text, as GSM8K's evaluation finds it; false: there is none. */
bool reward_last_number(text_view text, double *number);
/* Whether `text` contains `part`. ASCII letters alone know case. */
bool reward_text_contains(text_view text, text_view part, bool ignore_case);

/* ---- reward_schema.c, reward_schema_open.c ---- */

/* The schema must outlive it. */
AVO_MUST_USE avo_status reward_schema_open(const json_value *schema, const avo_allocator *allocator,
                                           reward_schema **out, avo_error *error);
void reward_schema_close(reward_schema *schema);
/* AVO_OK with *valid false: `text` is no JSON, or not what the schema describes. */
AVO_MUST_USE avo_status reward_schema_check(const reward_schema *schema, text_view text,
                                            bool *valid, avo_error *error);

/* ---- reward_python.c, reward_command.c ---- */

AVO_MUST_USE avo_status reward_score_python(const reward *reward, const reward_item *items,
                                            size_t count, float *scores, avo_error *error);
AVO_MUST_USE avo_status reward_score_command(const reward *reward, const reward_item *items,
                                             size_t count, float *scores, avo_error *error);
/* One item as JSON: prompt, completion, fields. */
AVO_MUST_USE avo_status reward_write_item(buffer *out, const reward_item *item);
/* One finite number a line, `count` of them; `source` is where they come from, for errors. */
AVO_MUST_USE avo_status reward_read_scores(text_view text, size_t count, const char *source,
                                           float *scores, avo_error *error);

#endif
