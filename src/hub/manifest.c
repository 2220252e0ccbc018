/* The manifest that makes a folder a model: where it came from and what must lie in it.
 *
 *   {"format": 1, "name": "owner/name", "source": "…", "revision": "…", "licence": "…",
 *    "date": "…", "model": "file to open, or empty: the folder",
 *    "files": [{"path": "…", "bytes": 1, "sha256": "…"}]}
 */
#include "base/file.h"
#include "base/json_writer.h"
#include "hub/hub_int.h"

#include <stdio.h>
#include <string.h>

#define MANIFEST_BYTES_MAX ((size_t)8 << 20)
#define MANIFEST_TEXT_MAX  1000

static avo_status get_text(arena *arena, const json_value *object, const char *key,
                           const char **text, avo_error *error) {
    text_view view = {"", 0};
    AVO_TRY(json_get_string(object, key, &view, error));
    if (view.size > MANIFEST_TEXT_MAX || memchr(view.data, '\0', view.size) != NULL)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "\"%s\" is longer than %d bytes or contains a zero byte", key,
                           MANIFEST_TEXT_MAX);
    char *copy = arena_copy_text(arena, view.data, view.size);
    if (copy == NULL)
        return status_no_memory(error, "a manifest", view.size);
    for (char *c = copy; *c != '\0'; c++) /* it will be printed */
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
    *text = copy;
    return AVO_OK;
}

static avo_status read_file(arena *arena, const json_value *value, hub_file *file,
                            avo_error *error) {
    text_view path = {"", 0}, sha256 = {"", 0};
    int64_t bytes = -1;
    AVO_TRY(json_get_string(value, "path", &path, error));
    AVO_TRY(json_get_integer(value, "bytes", 0, (int64_t)HUB_FILE_BYTES_MAX, &bytes, error));
    AVO_TRY(json_get_string(value, "sha256", &sha256, error));
    AVO_TRY(hub_path_check(path, error));
    if (bytes < 0)
        return status_fail(error, AVO_ERROR_FORMAT, "file \"%.*s\" lacks \"bytes\"",
                           TEXT_ARGUMENT(path));
    if (sha256.size != 0 && !hub_is_hex(sha256, 64))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "file \"%.*s\": \"sha256\" must be 64 hexadecimal digits",
                           TEXT_ARGUMENT(path));
    file->path = arena_copy_text(arena, path.data, path.size);
    if (file->path == NULL)
        return status_no_memory(error, "a manifest", path.size);
    file->bytes = (uint64_t)bytes;
    memcpy(file->sha256, sha256.data, sha256.size);
    return AVO_OK;
}

static avo_status read_manifest(arena *arena, text_view text, hub_model *model, avo_error *error) {
    json_value root;
    int64_t format = 0;
    AVO_TRY(json_parse(arena, text, &root, error));
    if (root.kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "the manifest must be an object, it is %s",
                           json_kind_name(root.kind));
    AVO_TRY(json_get_integer(&root, "format", 1, 1, &format, error));
    if (format != 1)
        return status_fail(error, AVO_ERROR_FORMAT, "\"format\" is missing");
    AVO_TRY(get_text(arena, &root, "name", &model->name, error));
    AVO_TRY(get_text(arena, &root, "source", &model->source, error));
    AVO_TRY(get_text(arena, &root, "revision", &model->revision, error));
    AVO_TRY(get_text(arena, &root, "licence", &model->licence, error));
    AVO_TRY(get_text(arena, &root, "date", &model->date, error));
    AVO_TRY(get_text(arena, &root, "model", &model->path, error));
    if (model->path[0] != '\0')
        AVO_TRY(hub_path_check(text_from(model->path), error));
    AVO_TRY(hub_name_check(model->name, error));
    const json_value *files = json_find(&root, "files");
    if (files == NULL || files->kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT, "\"files\" is missing or not an array");
    if (files->array.count == 0 || files->array.count > HUB_FILES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "\"files\" has %zu entries, must have 1 to %d",
                           files->array.count, HUB_FILES_MAX);
    model->files = arena_take_array(arena, files->array.count, sizeof(hub_file));
    if (model->files == NULL)
        return status_no_memory(error, "a manifest", files->array.count * sizeof(hub_file));
    model->file_count = files->array.count;
    for (size_t i = 0; i < model->file_count; i++) {
        AVO_TRY(read_file(arena, &files->array.items[i], &model->files[i], error));
        model->bytes += model->files[i].bytes; /* 10,000 × 2^42: cannot wrap */
    }
    model->complete = true;
    return AVO_OK;
}

avo_status hub_manifest_parse(arena *arena, text_view text, const char *where, hub_model *model,
                              avo_error *error) {
    memset(model, 0, sizeof(*model));
    avo_status status = read_manifest(arena, text, model, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "%s", where);
    return AVO_OK;
}

avo_status hub_manifest_read(arena *arena, const char *folder, hub_model *model, avo_error *error) {
    char path[HUB_PATH_MAX];
    file_map map;
    memset(model, 0, sizeof(*model));
    AVO_TRY(file_join(path, sizeof(path), folder, HUB_MANIFEST_NAME, error));
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status;
    if (map.bytes.size > MANIFEST_BYTES_MAX) {
        status = status_fail(error, AVO_ERROR_LIMIT,
                             "%s: the manifest has %zu bytes, must have at most %zu", path,
                             map.bytes.size, MANIFEST_BYTES_MAX);
    } else {
        text_view text = {(const char *)map.bytes.data, map.bytes.size};
        status = hub_manifest_parse(arena, text, path, model, error);
    }
    file_map_close(&map);
    if (status != AVO_OK)
        return status;
    model->folder = arena_copy_text(arena, folder, strlen(folder));
    if (model->folder == NULL)
        return status_no_memory(error, "a manifest", strlen(folder));
    return AVO_OK;
}

static void member_or_empty(json_writer *w, const char *key, const char *text) {
    json_member_string(w, key, text == NULL ? "" : text);
}

static avo_status write_manifest(buffer *out, const hub_model *model) {
    json_writer w = json_writer_indented(out, 2);
    json_object_begin(&w);
    json_member_u64(&w, "format", 1);
    member_or_empty(&w, "name", model->name);
    member_or_empty(&w, "source", model->source);
    member_or_empty(&w, "revision", model->revision);
    member_or_empty(&w, "licence", model->licence);
    member_or_empty(&w, "date", model->date);
    member_or_empty(&w, "model", model->path);
    json_member_array_begin(&w, "files");
    for (size_t i = 0; i < model->file_count; i++) {
        const hub_file *file = &model->files[i];
        json_object_begin(&w);
        json_member_string(&w, "path", file->path);
        json_member_u64(&w, "bytes", file->bytes);
        json_member_string(&w, "sha256", file->sha256);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append(out, "\n", 1);
}

avo_status hub_manifest_prepare(const char *folder, const hub_model *model, file_writer *writer,
                                avo_error *error) {
    char path[HUB_PATH_MAX];
    AVO_TRY(file_join(path, sizeof(path), folder, HUB_MANIFEST_NAME, error));
    buffer out;
    buffer_init(&out, NULL, MANIFEST_BYTES_MAX);
    avo_status status = write_manifest(&out, model);
    if (status != AVO_OK) {
        status = status_fail(error, status, "%s: the manifest is too large", path);
    } else {
        status = file_writer_open(writer, path, error);
        if (status == AVO_OK) {
            status = file_writer_append(writer, out.data, out.size, error);
            if (status != AVO_OK)
                file_writer_abort(writer);
        }
    }
    buffer_free(&out);
    return status;
}

/* "-00002-of-00005.gguf": any but the first of a split file. */
static bool is_later_split(text_view path) {
    static const char shape[] = "-#####-of-#####.gguf";
    size_t bytes = sizeof(shape) - 1;
    if (path.size < bytes)
        return false;
    const char *end = path.data + path.size - bytes;
    for (size_t i = 0; i < bytes; i++)
        if (shape[i] == '#' ? end[i] < '0' || end[i] > '9' : end[i] != shape[i])
            return false;
    return memcmp(end + 1, "00001", 5) != 0;
}

const char *hub_choose_model_file(const hub_file *files, size_t count) {
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        text_view path = text_from(files[i].path);
        if (text_ends(path, TEXT_LITERAL(".safetensors")) &&
            memchr(path.data, '/', path.size) == NULL)
            return NULL; /* the folder, with its configuration and tokenizer */
        bool whole = text_ends(path, TEXT_LITERAL(".gguf")) ||
                     text_ends(path, TEXT_LITERAL(".avo")) || text_ends(path, TEXT_LITERAL(".bin"));
        if (!whole || is_later_split(path))
            continue;
        if (found != NULL)
            return NULL; /* several: the user names one */
        found = files[i].path;
    }
    return found;
}
