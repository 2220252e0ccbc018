/* The runs in a folder, for a page that shows them: the folder itself where it is the output of
 * one, and its subfolders. Nothing outside is read: names have one part, links are not followed,
 * only regular files count. Called by server/. */
#ifndef AVO_TRAIN_RUNS_H
#define AVO_TRAIN_RUNS_H

#include "base/json_writer.h"

#define RUNS_SHOWN_MAX  100u               /* the newest */
#define RUNS_BYTES_MAX  ((size_t)8 << 20)  /* of metrics.jsonl: its end */
#define RUNS_OUTPUT_MAX ((size_t)16 << 20) /* more than any answer needs */

/* run_info.json: what a run is, for who reads its metrics while it goes on. */
typedef struct run_note {
    const char *task, *model;
    uint64_t steps, batch;
} run_note;
AVO_MUST_USE avo_status runs_note_write(const char *folder, const run_note *note, avo_error *error);

/* {"runs": [{"run", "title", "state", "step", "steps", …}], "more": how many are not shown} */
AVO_MUST_USE avo_status runs_list(const char *folder, json_writer *w, avo_error *error);
/* One of them, by its "run", with its curves. AVO_ERROR_NOT_FOUND: there is none. */
AVO_MUST_USE avo_status runs_show(const char *folder, const char *run, json_writer *w,
                                  avo_error *error);

#endif
