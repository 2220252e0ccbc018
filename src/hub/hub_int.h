/* What the files of hub/ share: limits, checked names and paths, the models' folder, manifests,
 * sums, and the state of one pull. */
#ifndef AVO_HUB_HUB_INT_H
#define AVO_HUB_HUB_INT_H

#include "base/cursor.h"
#include "base/file.h"
#include "hub/hub.h"

#define HUB_FILES_MAX      10000 /* in one list, one package, one model */
#define HUB_NAME_MAX       200   /* of a model's name */
#define HUB_FILE_PATH_MAX  512   /* of a file's path inside its model */
#define HUB_FILE_BYTES_MAX ((uint64_t)1 << 42)
#define HUB_ARENA_LIMIT    ((size_t)128 << 20)

/* ---- names.c: what may be a name, a path, a pattern ---- */

/* "smollm2", "owner/name", "owner/name@revision"; nothing else can become a folder. */
AVO_MUST_USE avo_status hub_name_check(const char *name, avo_error *error);
/* A name's folder below the models' folder: '/' becomes "--". `name` was checked. */
void hub_name_to_folder(const char *name, char *folder, size_t capacity);
void hub_folder_to_name(const char *folder, char *name, size_t capacity);
/* A path from a list or an archive: relative, no "..", no control characters, bounded. */
AVO_MUST_USE avo_status hub_path_check(text_view path, avo_error *error);
/* True for names that hub/ itself uses inside a model's folder. */
bool hub_path_reserved(text_view path);
/* '*', '?', '[a-z]', '[!x]'; '*' crosses '/'. A pattern without '/' also matches the last part. */
bool hub_glob_match(text_view pattern, text_view path);
/* Names that are nearly `name` (at most `limit` edits), for suggestions. */
size_t hub_name_distance(const char *a, const char *b);
bool hub_is_hex(text_view text, size_t digits);
text_view hub_path_base(text_view path);

/* ---- home.c: the models' folder ---- */

#define HUB_MANIFEST_NAME "avocet-manifest.json"
#define HUB_PIP_FOLDER    ".pip"

AVO_MUST_USE avo_status hub_home(char *path, size_t capacity, avo_error *error);
/* The folder of a model, whether it exists or not. */
AVO_MUST_USE avo_status hub_model_folder(const char *name, char *path, size_t capacity,
                                         avo_error *error);
/* The folder of models that come with the program, whether it exists or not. */
AVO_MUST_USE avo_status hub_bundle(char *path, size_t capacity, avo_error *error);
/* Creates a folder and those above it. */
AVO_MUST_USE avo_status hub_make_folder(const char *path, avo_error *error);
/* Creates the folders above `path`. */
AVO_MUST_USE avo_status hub_make_parent(const char *path, avo_error *error);
/* Deletes a folder and all in it, following no links; freed_bytes may be NULL. A missing folder is
 * no error. */
AVO_MUST_USE avo_status hub_delete_folder(const char *path, uint64_t *freed_bytes,
                                          avo_error *error);
/* The failure of a write, with advice for a full disk or a folder without permission. */
AVO_MUST_USE avo_status hub_write_failed(const char *path, int number, avo_error *error);
/* AVO_ERROR_FULL when the file system of `folder` has less room than `bytes`. */
AVO_MUST_USE avo_status hub_check_room(const char *folder, uint64_t bytes, avo_error *error);

/* One process at a time works on a model. *lock is a descriptor to hub_unlock, or −1 when
 * another has it (still AVO_OK). */
AVO_MUST_USE avo_status hub_try_lock(const char *name, int *lock, avo_error *error);
void hub_unlock(int lock);

/* ---- manifest.c ---- */

/* Strings and files lie in the arena. */
AVO_MUST_USE avo_status hub_manifest_parse(arena *arena, text_view text, const char *where,
                                           hub_model *model, avo_error *error);
/* The manifest of a folder; AVO_ERROR_NOT_FOUND where there is none. */
AVO_MUST_USE avo_status hub_manifest_read(arena *arena, const char *folder, hub_model *model,
                                          avo_error *error);
/* Writes it beside; file_writer_commit makes it the folder's manifest. model->path is a file's path
 * inside the folder, or "". */
AVO_MUST_USE avo_status hub_manifest_prepare(const char *folder, const hub_model *model,
                                             file_writer *writer, avo_error *error);
/* The file of `files` that is the model by itself, or NULL when the folder is the model. */
const char *hub_choose_model_file(const hub_file *files, size_t count);

/* ---- digest.c: SHA-256, and the SHA-1 that git gives a file ---- */

typedef struct hub_digest {
    void *sha256;
    void *git_sha1; /* NULL unless asked for */
} hub_digest;

/* `git_bytes`: the file's size when its git sum is wanted too, else UINT64_MAX. */
AVO_MUST_USE avo_status hub_digest_open(hub_digest *digest, uint64_t git_bytes, avo_error *error);
AVO_MUST_USE avo_status hub_digest_add(hub_digest *digest, const void *data, size_t bytes,
                                       avo_error *error);
/* Hexadecimal; git_sha1 may be NULL. Closes. */
AVO_MUST_USE avo_status hub_digest_end(hub_digest *digest, char sha256[65], char git_sha1[41],
                                       avo_error *error);
void hub_digest_close(hub_digest *digest);

/* ---- pull.c: one pull ---- */

/* A file on its way: downloaded or unpacked to `part_path`, renamed at the end. */
typedef struct pull_file {
    hub_file file;     /* sha256 is what it must be ("" unknown) and, once done, what it is */
    char git_sha1[41]; /* what it must be, or "" */
    const char *url;   /* downloads only */
    char *final_path;  /* in the model's folder */
    char *part_path;   /* final_path + ".part" */
    char *etag_path;   /* final_path + ".etag": whose part that is */
    bool present;      /* already there with the right sum: nothing to do */
    bool size_known;
    uint64_t have_bytes; /* in the part so far */
} pull_file;

typedef struct pull {
    const hub_pull_options *options;
    arena arena;
    char name[HUB_NAME_MAX + 8];
    char folder[HUB_PATH_MAX];
    int lock;
    bool has_old;  /* a whole model of this name is there */
    hub_model old; /* its manifest */
    pull_file *files;
    size_t file_count;
    const char *source; /* for the manifest */
    const char *revision;
    const char *licence;
    uint64_t fetched_bytes;
    size_t pip; /* which of pip.c's programs runs here, plus one; 0: not tried yet */
    /* The bar. */
    uint64_t shown_bytes;
    uint64_t total_bytes;
} pull;

/* Tells the caller how far it is; what was shown once is never taken back. */
AVO_MUST_USE avo_status pull_report(pull *pull, const char *what, uint64_t done, avo_error *error);
void pull_note(pull *pull, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Room for the list of files, and the paths of one of them. */
AVO_MUST_USE avo_status pull_take_files(pull *pull, size_t count, avo_error *error);
AVO_MUST_USE avo_status pull_set_file(pull *pull, pull_file *file, text_view path,
                                      avo_error *error);
/* Takes the name's lock (waiting for another pull to end), makes the folder, reads what is there.
 */
AVO_MUST_USE avo_status pull_enter(pull *pull, const char *name, avo_error *error);
/* True when this file is there with this sum. The old manifest is believed unless `verify` asks for
 * the sum to be recomputed; without a manifest it always is. Fills in the SHA-256 where only git's
 * sum was known. */
AVO_MUST_USE avo_status pull_is_present(pull *pull, pull_file *file, bool *present,
                                        avo_error *error);

/* commit.c: all files are there and verified. Puts them in their places with a new manifest and
 * drops what the old model had more; on failure the old model is as it was. */
AVO_MUST_USE avo_status pull_commit(pull *pull, avo_error *error);

/* ---- The sources ---- */
AVO_MUST_USE avo_status pull_from_package(pull *pull, const char *specification,
                                          const hub_known *known, avo_error *error);
AVO_MUST_USE avo_status pull_from_hub(pull *pull, const char *source, avo_error *error);
AVO_MUST_USE avo_status pull_from_url(pull *pull, const char *url, avo_error *error);

#endif
