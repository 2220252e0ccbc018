/* Files that clients upload and that batches write, on disk below --state: FOLDER/file-ID with the
 * bytes and FOLDER/file-ID.json with what is known of them. Both survive restarts; a file without
 * its description, or the other way round, is what an interrupted upload left, and is removed.
 *
 * A file belongs to the key that made it, by name; others are told that it does not exist. Names of
 * files on disk are made here: no text of a client becomes part of a path. Thread-safe.
 */
#ifndef AVO_SERVER_STORE_H
#define AVO_SERVER_STORE_H

#include "base/file.h"
#include "base/status.h"
#include "server/keys.h"

#define STORE_FILES_MAX      4096 /* of all keys together */
#define STORE_KEY_FILES_MAX  1024
#define STORE_FILE_BYTES_MAX ((uint64_t)64 << 20)
#define STORE_ID_MAX         48
#define STORE_NAME_MAX       255
#define STORE_PURPOSE_MAX    32
#define STORE_SECONDS        (30 * 86400) /* a file's life, unless it was asked for otherwise */
#define STORE_SECONDS_MIN    3600

typedef struct store store;

typedef struct store_file {
    char id[STORE_ID_MAX];
    char owner[KEY_NAME_MAX + 1]; /* "" without keys */
    char name[STORE_NAME_MAX + 1];
    char purpose[STORE_PURPOSE_MAX];
    uint64_t bytes;
    int64_t created, expires; /* Unix seconds */
} store_file;

/* `bytes_max` of all files together; one key has at most half of it. Damaged descriptions are
 * passed over and counted. */
AVO_MUST_USE avo_status store_open(const char *folder, uint64_t bytes_max, store **out,
                                   uint32_t *damaged, avo_error *error);
void store_close(store *store);
const char *store_folder(const store *store);

/* A file with these bytes; `facts` has everything but `bytes`. AVO_ERROR_FULL: too many files or
 * bytes. */
AVO_MUST_USE avo_status store_add(store *store, const store_file *facts, text_view data,
                                  avo_error *error);
/* More bytes behind a file's own; AVO_ERROR_FULL as above. */
AVO_MUST_USE avo_status store_append(store *store, const char *id, text_view data,
                                     avo_error *error);
/* Cuts a file to its first `bytes`. */
AVO_MUST_USE avo_status store_cut(store *store, const char *id, uint64_t bytes, avo_error *error);
/* False: there is none of this owner. */
bool store_find(store *store, const char *owner, const char *id, store_file *found);
AVO_MUST_USE avo_status store_map(store *store, const char *id, file_map *map, avo_error *error);
/* False: there was none of this owner. */
bool store_remove(store *store, const char *owner, const char *id);
/* Removes what has expired, except files that `keep` wants kept; when the next one does (0: none).
 */
int64_t store_expire(store *store, int64_t now, bool (*keep)(void *context, const char *id),
                     void *context);
/* The index-th newest of an owner (and purpose, unless NULL), behind the file `after` unless NULL.
 * False: there are no more. */
bool store_list(store *store, const char *owner, const char *purpose, const char *after,
                size_t index, store_file *found);

#endif
