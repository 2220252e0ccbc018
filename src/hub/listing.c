/* Reading a hub's list of files, and choosing from it. */
#include "hub/listing.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

static avo_status grow(listing *listing, avo_error *error) {
    if (listing->count >= HUB_FILES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the file list has more than %d files",
                           HUB_FILES_MAX);
    if (listing->count < listing->capacity)
        return AVO_OK;
    size_t capacity = listing->capacity == 0 ? 64 : listing->capacity * 2;
    listing_file *files = arena_take_array(listing->arena, capacity, sizeof(listing_file));
    if (files == NULL)
        return status_no_memory(error, "a list of files", capacity * sizeof(listing_file));
    if (listing->count > 0)
        memcpy(files, listing->files, listing->count * sizeof(listing_file));
    listing->files = files;
    listing->capacity = capacity;
    return AVO_OK;
}

static avo_status take_sum(text_view oid, text_view path, size_t digits, char *out,
                           avo_error *error) {
    if (text_starts(oid, TEXT_LITERAL("sha256:")))
        oid = (text_view){oid.data + 7, oid.size - 7};
    if (!hub_is_hex(oid, digits))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "file \"%.*s\": \"oid\" must be %zu hexadecimal digits, it is \"%.*s\"",
                           TEXT_ARGUMENT(path), digits, TEXT_ARGUMENT(oid));
    memcpy(out, oid.data, digits);
    return AVO_OK;
}

static avo_status read_entry(listing *listing, const json_value *entry, avo_error *error) {
    text_view type = {"", 0}, path = {"", 0}, oid = {"", 0}, large_oid = {"", 0};
    int64_t bytes = -1, large_bytes = -1;
    if (entry->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "an entry of the file list is not an object but %s",
                           json_kind_name(entry->kind));
    AVO_TRY(json_get_string(entry, "type", &type, error));
    AVO_TRY(json_get_string(entry, "path", &path, error));
    AVO_TRY(hub_path_check(path, error));
    if (!text_is(type, "file"))
        return AVO_OK; /* a folder: its files stand in the list themselves */
    AVO_TRY(json_get_integer(entry, "size", 0, (int64_t)HUB_FILE_BYTES_MAX, &bytes, error));
    AVO_TRY(json_get_string(entry, "oid", &oid, error));
    const json_value *large = json_find(entry, "lfs");
    if (large != NULL && large->kind != JSON_NULL) {
        AVO_TRY(json_get_string(large, "oid", &large_oid, error));
        AVO_TRY(
            json_get_integer(large, "size", 0, (int64_t)HUB_FILE_BYTES_MAX, &large_bytes, error));
    }
    if (large_bytes >= 0)
        bytes = large_bytes;
    if (bytes < 0)
        return status_fail(error, AVO_ERROR_FORMAT, "file \"%.*s\" lacks \"size\"",
                           TEXT_ARGUMENT(path));
    AVO_TRY(grow(listing, error));
    listing_file *file = &listing->files[listing->count];
    *file = (listing_file){.bytes = (uint64_t)bytes};
    if (large_oid.size > 0)
        AVO_TRY(take_sum(large_oid, path, 64, file->sha256, error));
    else if (oid.size > 0)
        AVO_TRY(take_sum(oid, path, 40, file->git_sha1, error));
    file->path = (text_view){arena_copy_text(listing->arena, path.data, path.size), path.size};
    if (file->path.data == NULL)
        return status_no_memory(error, "a list of files", path.size);
    listing->count++;
    return AVO_OK;
}

avo_status listing_parse(listing *listing, text_view page, avo_error *error) {
    json_value root;
    AVO_TRY(json_parse(listing->arena, page, &root, error));
    if (root.kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT, "the file list is not an array but %s",
                           json_kind_name(root.kind));
    for (size_t i = 0; i < root.array.count; i++)
        AVO_TRY(read_entry(listing, &root.array.items[i], error));
    return AVO_OK;
}

static int compare_files(const void *left, const void *right) {
    const listing_file *a = left, *b = right;
    size_t shorter = a->path.size < b->path.size ? a->path.size : b->path.size;
    int order = memcmp(a->path.data, b->path.data, shorter);
    return order != 0 ? order : (a->path.size > b->path.size) - (a->path.size < b->path.size);
}

avo_status listing_finish(listing *listing, avo_error *error) {
    if (listing->count == 0)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "the file list is empty");
    qsort(listing->files, listing->count, sizeof(listing_file), compare_files);
    for (size_t i = 1; i < listing->count; i++)
        if (text_equal(listing->files[i - 1].path, listing->files[i].path))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "file \"%.*s\" appears twice in the file list",
                               TEXT_ARGUMENT(listing->files[i].path));
    return AVO_OK;
}

/* ---- Choosing ---- */

static bool matches_any(const char *const *patterns, size_t count, text_view path) {
    for (size_t i = 0; i < count; i++)
        if (hub_glob_match(text_from(patterns[i]), path))
            return true;
    return false;
}

static bool is_at_root(text_view path) {
    return memchr(path.data, '/', path.size) == NULL;
}

static bool has_root_file(const listing *listing, const char *pattern) {
    for (size_t i = 0; i < listing->count; i++)
        if (is_at_root(listing->files[i].path) &&
            hub_glob_match(text_from(pattern), listing->files[i].path))
            return true;
    return false;
}

static void choose_safetensors(listing *listing) {
    static const char *const wanted[] = {
        "*.safetensors", "*.json",   "*.jinja",  "tokenizer.model", "*.tiktoken", "vocab.txt",
        "merges.txt",    "LICENSE*", "LICENCE*", "NOTICE*",         "USE_POLICY*"};
    /* "consolidated.safetensors" is the same weights once more. */
    bool has_model = has_root_file(listing, "model*.safetensors");
    for (size_t i = 0; i < listing->count; i++) {
        text_view path = listing->files[i].path;
        listing->files[i].chosen =
            is_at_root(path) && matches_any(wanted, sizeof(wanted) / sizeof(wanted[0]), path) &&
            !(has_model && hub_glob_match(TEXT_LITERAL("consolidated*.safetensors"), path));
    }
}

/* "x-00001-of-00003.gguf" is one model with its siblings: the name without the numbers. */
static text_view model_stem(text_view path) {
    static const char shape[] = "-#####-of-#####.gguf";
    size_t bytes = sizeof(shape) - 1;
    if (path.size > bytes) {
        const char *end = path.data + path.size - bytes;
        bool split = true;
        for (size_t i = 0; i < bytes; i++)
            split =
                split && (shape[i] == '#' ? end[i] >= '0' && end[i] <= '9' : end[i] == shape[i]);
        if (split)
            return (text_view){path.data, path.size - bytes};
    }
    return (text_view){path.data, path.size - 5};
}

static bool has_q4_k_m(text_view path) {
    static const char wanted[] = "q4_k_m";
    for (size_t i = 0; i + 6 <= path.size; i++) {
        size_t k = 0;
        while (k < 6 && (path.data[i + k] | 0x20) == (wanted[k] | 0x20))
            k++;
        if (k == 6)
            return true;
    }
    return false;
}

static avo_status fail_choice(const listing *listing, avo_error *error) {
    char names[700] = "";
    size_t at = 0;
    for (size_t i = 0; i < listing->count; i++) {
        text_view path = listing->files[i].path;
        if (!text_ends(path, TEXT_LITERAL(".gguf")))
            continue;
        int bytes = snprintf(names + at, sizeof(names) - at, " %.*s", TEXT_ARGUMENT(path));
        if (bytes < 0 || (size_t)bytes >= sizeof(names) - at)
            break;
        at += (size_t)bytes;
    }
    names[at] = '\0';
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "there are several models; choose one with --file:%s", names);
}

/* All pieces of the model that is alone, or of the only Q4_K_M one. */
static avo_status choose_gguf(listing *listing, char *note, size_t note_capacity,
                              avo_error *error) {
    text_view only = {NULL, 0}, middle = {NULL, 0};
    size_t models = 0, middles = 0;
    for (size_t i = 0; i < listing->count; i++) {
        text_view path = listing->files[i].path;
        if (!text_ends(path, TEXT_LITERAL(".gguf")) ||
            hub_glob_match(TEXT_LITERAL("mmproj*"), path))
            continue; /* the eyes of a model that sees */
        text_view stem = model_stem(path);
        if (only.data == NULL || !text_equal(stem, only))
            models++;
        only = stem; /* sorted: pieces stand together */
        if (has_q4_k_m(path) && (middle.data == NULL || !text_equal(stem, middle))) {
            middles++;
            middle = stem;
        }
    }
    if (models > 1 && middles != 1)
        return fail_choice(listing, error);
    if (models > 1) {
        snprintf(note, note_capacity,
                 "there are several models; using %.*s (choose another with --file)",
                 TEXT_ARGUMENT(middle));
        only = middle;
    }
    for (size_t i = 0; i < listing->count; i++) {
        text_view path = listing->files[i].path;
        listing->files[i].chosen =
            (text_ends(path, TEXT_LITERAL(".gguf")) && text_equal(model_stem(path), only)) ||
            (is_at_root(path) && (hub_glob_match(TEXT_LITERAL("LICEN[CS]E*"), path) ||
                                  hub_glob_match(TEXT_LITERAL("NOTICE*"), path)));
    }
    return AVO_OK;
}

static bool has_file(const listing *listing, const char *pattern) {
    for (size_t i = 0; i < listing->count; i++)
        if (hub_glob_match(text_from(pattern), listing->files[i].path))
            return true;
    return false;
}

avo_status listing_choose(listing *listing, const char *const *patterns, size_t pattern_count,
                          char *note, size_t note_capacity, avo_error *error) {
    note[0] = '\0';
    if (pattern_count > 0) {
        size_t found = 0;
        for (size_t i = 0; i < listing->count; i++) {
            listing_file *file = &listing->files[i];
            file->chosen = matches_any(patterns, pattern_count, file->path);
            found += file->chosen;
        }
        if (found == 0)
            return status_fail(error, AVO_ERROR_NOT_FOUND, "none of the %zu files matches %s%s",
                               listing->count, patterns[0], pattern_count > 1 ? " …" : "");
        return AVO_OK;
    }
    if (has_root_file(listing, "*.safetensors")) {
        choose_safetensors(listing);
        return AVO_OK;
    }
    if (has_file(listing, "*.gguf"))
        return choose_gguf(listing, note, note_capacity, error);
    if (has_file(listing, "*.bin") || has_file(listing, "*.pt") || has_file(listing, "*.pth"))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "there are no safetensors or GGUF files, only Python pickles, which "
                           "avocet does not read; use --file to download them anyway");
    return status_fail(error, AVO_ERROR_NOT_FOUND,
                       "none of the %zu files is a model file; name the files with --file",
                       listing->count);
}
