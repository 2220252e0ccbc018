/* Files of evaluations. */
#include "cli/eval_files.h"

#include "base/allocator.h"
#include "base/file.h"

#include <limits.h>
#include <string.h>
#include <zlib.h>

static const eval_builtin *find_builtin(text_view name) {
    if (text_is(name, "lambada"))
        name = TEXT_LITERAL("lambada_openai");
    for (size_t i = 0; i < eval_builtin_count; i++)
        if (text_is(name, eval_builtins[i].name))
            return &eval_builtins[i];
    return NULL;
}

static const char *nearest_task(const char *wanted) {
    nearest near = {.wanted = wanted};
    for (size_t i = 0; i < eval_builtin_count; i++)
        nearest_consider(&near, eval_builtins[i].name);
    return near.best;
}

bool eval_names_task(const char *name) {
    text_view first = {name, strcspn(name, ",")};
    return find_builtin(first) != NULL || text_ends(first, TEXT_LITERAL(".json")) ||
           name[first.size] == ',' || nearest_task(name) != NULL;
}

static avo_status unknown_task(text_view name, avo_error *error) {
    char wanted[TASK_NAME_MAX + 1];
    snprintf(wanted, sizeof(wanted), "%.*s",
             (int)(name.size < TASK_NAME_MAX ? name.size : TASK_NAME_MAX), name.data);
    const char *best = nearest_task(wanted);
    if (best != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "unknown task \"%s\"; did you mean %s?",
                           wanted, best);
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "unknown task \"%s\"; avocet eval tasks lists them, a file ends in .json",
                       wanted);
}

avo_status eval_task_find(text_view name, eval_task **task, avo_error *error) {
    const eval_builtin *builtin = find_builtin(name);
    char path[CLI_PATH_MAX];
    if (builtin != NULL)
        return task_open(builtin->text, builtin->name, NULL, task, error);
    if (!text_ends(name, TEXT_LITERAL(".json")) || name.size >= sizeof(path))
        return unknown_task(name, error);
    memcpy(path, name.data, name.size);
    path[name.size] = '\0';
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    text_view text = {map.bytes.data == NULL ? "" : (const char *)map.bytes.data, map.bytes.size};
    avo_status status = task_open(text, path, NULL, task, error);
    file_map_close(&map);
    return status;
}

static avo_status inflate_all(bytes_view packed, const char *path, buffer *text, avo_error *error) {
    z_stream stream = {0};
    if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK)
        return status_no_memory(error, "unpacking", packed.size);
    stream.next_in = (z_const Bytef *)(uintptr_t)packed.data;
    stream.avail_in = packed.size < UINT_MAX ? (uInt)packed.size : UINT_MAX;
    int result = Z_OK;
    avo_status status = AVO_OK;
    unsigned char block[65536];
    while (result == Z_OK && status == AVO_OK) {
        stream.next_out = block;
        stream.avail_out = sizeof(block);
        result = inflate(&stream, Z_NO_FLUSH);
        status = buffer_append(text, block, sizeof(block) - stream.avail_out);
        if (result == Z_STREAM_END &&
            stream.avail_in > 0) /* files may be packed in several parts */
            result = inflateReset(&stream);
    }
    inflateEnd(&stream);
    if (status != AVO_OK)
        return status_fail(error, status, "%s: has more than %zu bytes when unpacked", path,
                           text->limit);
    if (result != Z_STREAM_END)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: is damaged and cannot be unpacked", path);
    return AVO_OK;
}

avo_status eval_file_read(const char *path, buffer *text, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    bytes_view bytes = map.bytes;
    avo_status status = AVO_OK;
    if (bytes.size >= 2 && bytes.data[0] == 0x1f && bytes.data[1] == 0x8b)
        status = inflate_all(bytes, path, text, error);
    else if (bytes.size > 0 && buffer_append(text, bytes.data, bytes.size) != AVO_OK)
        status = status_fail(error, AVO_ERROR_LIMIT, "%s: has %zu bytes, must have at most %zu",
                             path, bytes.size, text->limit);
    file_map_close(&map);
    return status;
}

avo_status eval_data_path(const char *given, text_view name, const char *option, char *path,
                          size_t capacity, avo_error *error) {
    char whole[CLI_PATH_MAX];
    if (given == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the task needs the file %.*s: give it, or a folder with it, by %s",
                           TEXT_ARGUMENT(name), option);
    if (file_kind_of(given) != FILE_FOLDER) {
        if ((size_t)snprintf(path, capacity, "%s", given) >= capacity)
            return status_fail(error, AVO_ERROR_LIMIT, "%s is too long a path", option);
        return AVO_OK;
    }
    if (name.size == 0 || name.size >= sizeof(whole) || memchr(name.data, '\0', name.size) != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the task does not say which file its data is in: give the file itself "
                           "by %s",
                           option);
    snprintf(whole, sizeof(whole), "%.*s", (int)name.size, name.data);
    AVO_TRY(file_join(path, capacity, given, whole, error));
    if (file_kind_of(path) == FILE_REGULAR)
        return AVO_OK;
    char last[CLI_PATH_MAX];
    text_view part = file_last_part(whole);
    snprintf(last, sizeof(last), "%.*s", (int)part.size, part.data);
    AVO_TRY(file_join(path, capacity, given, last, error));
    if (file_kind_of(path) == FILE_REGULAR)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_NOT_FOUND, "%s: neither %s nor %s is there", given, whole,
                       last);
}
