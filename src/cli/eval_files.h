/* Tasks and their data for `avocet eval TASK`: finds the file of a name and reads it. Errors
 * name the file and the option that would give it. */
#ifndef AVO_CLI_EVAL_FILES_H
#define AVO_CLI_EVAL_FILES_H

#include "cli/cli.h"
#include "eval/task.h"

/* Tasks that come with the program: configs/tasks/, made into a table by the build. */
typedef struct eval_builtin {
    const char *name; /* "arc_easy" */
    text_view text;   /* JSON */
} eval_builtin;
extern const eval_builtin eval_builtins[];
extern const size_t eval_builtin_count;

/* Whether `name` is a task: of the program, a file by its ending, or a mistyped one of these. */
bool eval_names_task(const char *name);
/* Opens it. "lambada" is short for "lambada_openai". */
AVO_MUST_USE avo_status eval_task_find(text_view name, eval_task **task, avo_error *error);

/* The whole file, unpacked where it is gzip. */
#define EVAL_DATA_BYTES_MAX ((size_t)1 << 30)
AVO_MUST_USE avo_status eval_file_read(const char *path, buffer *text, avo_error *error);
/* The path of a task's file: `given` itself where it is a file, else `name` in that folder, or the
 * last part of `name` there. */
AVO_MUST_USE avo_status eval_data_path(const char *given, text_view name, const char *option,
                                       char *path, size_t capacity, avo_error *error);

#endif
