/* The cache of repacked panels of one model: finds the file that an earlier process has left, and
 * writes it where there is none (docs/placement.md). One file a model, named after its path.
 * Nothing here fails a run: what cannot be used or written is logged, and the model is repacked.
 *
 * The file is opened with the model, before a server confines itself. It is written by a thread
 * that the kernel runs when nothing else wants the processor, from the first logits on; what is
 * left when the model closes is written then. */
#ifndef AVO_MODEL_PANEL_CACHE_H
#define AVO_MODEL_PANEL_CACHE_H

#include "formats/source.h"
#include "model/panel_file.h"

/* Models with fewer bytes of panels are repacked sooner than a file would be looked after. */
#define PANEL_CACHE_BYTES_MIN ((uint64_t)16 << 20)
#define PANEL_CACHE_ENDING    ".panels"

typedef struct panel_cache_options {
    const char *folder;   /* made when something is written */
    uint64_t bytes_max;   /* of all files in it; 0: files are used, and none is written */
    uint64_t bytes_min;   /* of panels: fewer are not written */
    avo_log_function log; /* any thread; NULL: silent */
    void *log_context;
} panel_cache_options;

typedef struct panel_cache panel_cache;

/* NULL where there is no memory or no path for it. The source outlives it. */
panel_cache *panel_cache_open(const avo_allocator *allocator, const model_source *source,
                              const panel_cache_options *options);
/* For devices; NULL for a cache of NULL. As long as the cache is open. */
const weights_keeper *panel_cache_keeper(const panel_cache *cache);
/* The first answer has begun: from now on files may be written. Cheap when called again. */
void panel_cache_begin(panel_cache *cache);
/* Writes what was begun; NULL is closed, too. Before the model's store. */
void panel_cache_close(panel_cache *cache);

/* The name of a model's file: 32 hexadecimal digits and the ending. `path` is absolute. */
void panel_cache_name(const char *path, char name[48]);
/* Deletes files that were used longest ago until `bytes` more fit below `bytes_max`, and what
 * killed writers have left; `name` is not counted, because it is replaced. False: they cannot fit,
 * or would take more than half of what is free on the disk. */
bool panel_cache_trim(const char *folder, const char *name, uint64_t bytes, uint64_t bytes_max);

#endif
