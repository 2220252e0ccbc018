/* Models from a hub (the API that huggingface.co has: facts, file list, files) and from URLs. */
#include "base/file.h"
#include "base/json.h"
#include "hub/listing.h"
#include "hub/transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define PAGE_BYTES_MAX   ((size_t)16 << 20)
#define PAGES_MAX        256

typedef struct hub_source {
    char endpoint[1024];
    char repository[HUB_NAME_MAX + 8]; /* OWNER/NAME */
    char revision[HUB_NAME_MAX + 8];   /* as asked for; then the commit */
    char licence[96];
} hub_source;

/* Percent-encodes all but what RFC 3986 leaves alone; `keep` too. False: no room. */
static bool append_encoded(char *out, size_t capacity, size_t *at, text_view text, char keep) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '.' || c == '_' || c == '~' || c == (unsigned char)keep;
        if (*at + 4 > capacity)
            return false;
        if (plain) {
            out[(*at)++] = (char)c;
        } else {
            out[(*at)++] = '%';
            out[(*at)++] = digits[c >> 4];
            out[(*at)++] = digits[c & 15];
        }
    }
    out[*at] = '\0';
    return true;
}

/* ENDPOINT + before + REPOSITORY + between + REVISION + "/" + PATH + after; path may be empty. */
static avo_status make_url(const hub_source *source, const char *before, const char *between,
                           text_view path, const char *after, char *url, size_t capacity,
                           avo_error *error) {
    int head =
        snprintf(url, capacity, "%s%s%s%s", source->endpoint, before, source->repository, between);
    bool fits = head > 0 && (size_t)head < capacity;
    size_t at = fits ? (size_t)head : 0;
    fits = fits && append_encoded(url, capacity, &at, text_from(source->revision), '\0');
    if (fits && path.size > 0)
        fits = append_encoded(url, capacity, &at, TEXT_LITERAL("/"), '/') &&
               append_encoded(url, capacity, &at, path, '/');
    if (!fits || at + strlen(after) >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "the URL is longer than %zu bytes", capacity);
    memcpy(url + at, after, strlen(after) + 1);
    return AVO_OK;
}

static avo_status parse_source(const char *text, hub_source *source, avo_error *error) {
    AVO_TRY(hub_name_check(text, error));
    const char *at = strchr(text, '@');
    size_t bytes = at == NULL ? strlen(text) : (size_t)(at - text);
    snprintf(source->repository, sizeof(source->repository), "%.*s", (int)bytes, text);
    snprintf(source->revision, sizeof(source->revision), "%s", at == NULL ? "main" : at + 1);
    if (strchr(source->repository, '/') == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s is not a model of the hub; use OWNER/NAME", text);
    const char *endpoint = getenv("HF_ENDPOINT");
    if (endpoint == NULL || endpoint[0] == '\0')
        endpoint = DEFAULT_ENDPOINT;
    size_t endpoint_bytes = strlen(endpoint);
    while (endpoint_bytes > 0 && endpoint[endpoint_bytes - 1] == '/')
        endpoint_bytes--;
    if (endpoint_bytes >= sizeof(source->endpoint))
        return status_fail(error, AVO_ERROR_LIMIT, "HF_ENDPOINT is too long");
    memcpy(source->endpoint, endpoint, endpoint_bytes);
    source->endpoint[endpoint_bytes] = '\0';
    char origin[512];
    avo_status status = http_origin(source->endpoint, origin, sizeof(origin), error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "HF_ENDPOINT");
}

/* ---- Facts: the commit and the licence ---- */

static void take_licence(hub_source *source, const json_value *root) {
    text_view licence = {"", 0};
    const json_value *card = json_find(root, "cardData");
    if (json_get_string(card, "license", &licence, NULL) != AVO_OK || licence.size == 0) {
        const json_value *tags = json_find(root, "tags");
        for (size_t i = 0; tags != NULL && tags->kind == JSON_ARRAY && i < tags->array.count; i++) {
            const json_value *tag = &tags->array.items[i];
            if (tag->kind == JSON_STRING && text_starts(tag->string, TEXT_LITERAL("license:")))
                licence = (text_view){tag->string.data + 8, tag->string.size - 8};
        }
    }
    if (licence.size < sizeof(source->licence) && memchr(licence.data, 0, licence.size) == NULL)
        snprintf(source->licence, sizeof(source->licence), "%.*s", (int)licence.size, licence.data);
}

static avo_status read_facts(http_client *client, hub_source *source, buffer *page,
                             avo_error *error) {
    char url[HTTP_URL_MAX];
    AVO_TRY(make_url(source, "/api/models/", "/revision/", (text_view){"", 0}, "", url, sizeof(url),
                     error));
    avo_status status = http_get_text(client, url, source->repository, page, NULL, 0, error);
    if (status == AVO_ERROR_NOT_FOUND)
        return AVO_OK; /* a mirror that has only the list; that will tell */
    AVO_TRY(status);
    arena arena;
    json_value root;
    arena_init(&arena, NULL, HUB_ARENA_LIMIT);
    status = json_parse(&arena, buffer_text(page), &root, error);
    if (status == AVO_OK) {
        text_view commit = {"", 0};
        if (json_get_string(&root, "sha", &commit, NULL) == AVO_OK && hub_is_hex(commit, 40))
            snprintf(source->revision, sizeof(source->revision), "%.40s", commit.data);
        take_licence(source, &root);
    }
    arena_free(&arena);
    return status == AVO_OK
               ? AVO_OK
               : status_prefix(error, status, "%s: response of the hub", source->repository);
}

/* ---- The list ---- */

static avo_status read_list(http_client *client, const hub_source *source, buffer *page,
                            listing *list, avo_error *error) {
    char url[HTTP_URL_MAX], next[HTTP_URL_MAX];
    AVO_TRY(make_url(source, "/api/models/", "/tree/", (text_view){"", 0}, "?recursive=true", url,
                     sizeof(url), error));
    for (unsigned pages = 0;; pages++) {
        if (pages == PAGES_MAX)
            return status_fail(error, AVO_ERROR_LIMIT, "the file list has more than %d pages",
                               PAGES_MAX);
        AVO_TRY(http_get_text(client, url, source->repository, page, next, sizeof(next), error));
        /* Strings of the page are copied, so the buffer may be used again. */
        AVO_TRY(listing_parse(list, buffer_text(page), error));
        if (next[0] == '\0')
            return listing_finish(list, error);
        memcpy(url, next, sizeof(url));
    }
}

static avo_status add_file(pull *pull, const hub_source *source, const listing_file *from,
                           avo_error *error) {
    pull_file *file = &pull->files[pull->file_count];
    char url[HTTP_URL_MAX];
    AVO_TRY(pull_set_file(pull, file, from->path, error));
    AVO_TRY(make_url(source, "/", "/resolve/", from->path, "", url, sizeof(url), error));
    file->url = arena_copy_text(&pull->arena, url, strlen(url));
    if (file->url == NULL)
        return status_no_memory(error, "a URL", strlen(url));
    file->file.bytes = from->bytes;
    file->size_known = true;
    memcpy(file->file.sha256, from->sha256, sizeof(from->sha256));
    memcpy(file->git_sha1, from->git_sha1, sizeof(from->git_sha1));
    AVO_TRY(pull_is_present(pull, file, &file->present, error));
    pull->file_count++;
    if (!file->present)
        pull->total_bytes += file->file.bytes; /* 10,000 × 2^42: cannot wrap */
    return AVO_OK;
}

static avo_status choose_files(pull *pull, const hub_source *source, listing *list,
                               avo_error *error) {
    char note[512];
    size_t chosen = 0;
    AVO_TRY(listing_choose(list, pull->options->patterns, pull->options->pattern_count, note,
                           sizeof(note), error));
    if (note[0] != '\0')
        pull_note(pull, "%s", note);
    for (size_t i = 0; i < list->count; i++)
        chosen += list->files[i].chosen;
    AVO_TRY(pull_take_files(pull, chosen, error));
    for (size_t i = 0; i < list->count; i++)
        if (list->files[i].chosen)
            AVO_TRY(add_file(pull, source, &list->files[i], error));
    return hub_check_room(pull->folder, pull->total_bytes, error);
}

/* True when every file is there already: nothing is rewritten then. */
static bool is_complete(const pull *pull) {
    if (!pull->has_old || pull->old.file_count != pull->file_count)
        return false;
    for (size_t i = 0; i < pull->file_count; i++)
        if (!pull->files[i].present)
            return false;
    return true;
}

static avo_status fetch_from_hub(http_client *client, pull *pull, hub_source *source,
                                 avo_error *error) {
    listing list = {.arena = &pull->arena};
    buffer page;
    buffer_init(&page, NULL, PAGE_BYTES_MAX);
    avo_status status = read_facts(client, source, &page, error);
    if (status == AVO_OK) {
        status = read_list(client, source, &page, &list, error);
        if (status == AVO_ERROR_FORMAT || status == AVO_ERROR_LIMIT)
            status = status_prefix(error, status, "%s", source->repository);
    }
    buffer_free(&page);
    AVO_TRY(status);
    status = choose_files(pull, source, &list, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "%s", source->repository);
    if (is_complete(pull) && strcmp(pull->old.revision, source->revision) == 0)
        return AVO_OK;
    pull_note(pull, "licence of %s: %s", source->repository,
              source->licence[0] != '\0' ? source->licence : "not stated, see its page");
    AVO_TRY(transfer_files(client, error));
    pull->source = pull->options->source;
    pull->revision = source->revision;
    pull->licence = source->licence;
    return pull_commit(pull, error);
}

avo_status pull_from_hub(pull *pull, const char *text, avo_error *error) {
    hub_source source = {.licence = ""};
    http_client client;
    AVO_TRY(parse_source(text, &source, error));
    AVO_TRY(pull_enter(pull, pull->options->name != NULL ? pull->options->name : text, error));
    AVO_TRY(http_open(&client, pull, source.endpoint, getenv("HF_TOKEN"), error));
    avo_status status = fetch_from_hub(&client, pull, &source, error);
    http_close(&client);
    return status;
}

/* ---- URLs ---- */

/* The last part of the URL's path, decoded. */
static avo_status file_of_url(const char *url, char *file, size_t capacity, avo_error *error) {
    size_t end = strcspn(url, "?#");
    size_t begin = end;
    while (begin > 0 && url[begin - 1] != '/')
        begin--;
    int bytes = 0;
    char *decoded =
        begin < 8 ? NULL : curl_easy_unescape(NULL, url + begin, (int)(end - begin), &bytes);
    bool good = decoded != NULL && bytes > 0 && (size_t)bytes < capacity &&
                memchr(decoded, '/', (size_t)bytes) == NULL &&
                hub_path_check((text_view){decoded, (size_t)bytes}, NULL) == AVO_OK;
    if (good)
        snprintf(file, capacity, "%.*s", bytes, decoded);
    curl_free(decoded);
    return good ? AVO_OK
                : status_fail(error, AVO_ERROR_ARGUMENT,
                              "%.200s does not name a file; give the URL of a model file, or "
                              "OWNER/NAME for the hub",
                              url);
}

/* "My Model.Q4.gguf" becomes "My-Model.Q4". */
static void name_of_file(const char *file, char *name, size_t capacity) {
    static const char *const endings[] = {".gguf", ".avo", ".bin", ".safetensors"};
    size_t bytes = strlen(file), at = 0;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (text_ends(text_from(file), text_from(endings[i])))
            bytes -= strlen(endings[i]);
    for (size_t i = 0; i < bytes && at + 1 < capacity; i++) {
        char c = file[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (plain || (at > 0 && (c == '_' || c == '+' || (c == '.' && name[at - 1] != '.'))))
            name[at++] = c;
        else if (at > 0 && name[at - 1] != '-')
            name[at++] = '-';
    }
    name[at] = '\0';
}

static avo_status set_expected_sum(pull *pull, pull_file *file, avo_error *error) {
    const char *sum = pull->options->sha256;
    if (sum == NULL)
        return AVO_OK;
    char lower[65] = "";
    for (size_t i = 0; i < 64 && sum[i] != '\0'; i++)
        lower[i] = (char)(sum[i] >= 'A' && sum[i] <= 'F' ? sum[i] + 32 : sum[i]);
    if (strlen(sum) != 64 || !hub_is_hex((text_view){lower, 64}, 64))
        return status_fail(error, AVO_ERROR_ARGUMENT, "--sha256 must be 64 hexadecimal digits");
    memcpy(file->file.sha256, lower, sizeof(lower));
    return AVO_OK;
}

/* The file as the manifest has it, when it came from this very URL. */
static avo_status is_url_present(pull *pull, const pull_file *file, bool *present,
                                 avo_error *error) {
    *present = false;
    if (!pull->has_old || strcmp(pull->old.source, pull->options->source) != 0)
        return AVO_OK;
    for (size_t i = 0; i < pull->old.file_count; i++) {
        pull_file copy = *file;
        const hub_file *old = &pull->old.files[i];
        bool right_sum = file->file.sha256[0] == '\0' || !strcmp(file->file.sha256, old->sha256);
        copy.file.bytes = old->bytes;
        memcpy(copy.file.sha256, old->sha256, sizeof(old->sha256));
        if (right_sum && strcmp(old->path, file->file.path) == 0)
            return pull_is_present(pull, &copy, present, error);
    }
    return AVO_OK;
}

avo_status pull_from_url(pull *pull, const char *url, avo_error *error) {
    char origin[512], path[HUB_FILE_PATH_MAX], name[HUB_NAME_MAX];
    AVO_TRY(http_origin(url, origin, sizeof(origin), error));
    AVO_TRY(file_of_url(url, path, sizeof(path), error));
    name_of_file(path, name, sizeof(name));
    AVO_TRY(pull_enter(pull, pull->options->name != NULL ? pull->options->name : name, error));
    AVO_TRY(pull_take_files(pull, 1, error));
    pull_file *file = &pull->files[0];
    AVO_TRY(pull_set_file(pull, file, text_from(path), error));
    AVO_TRY(set_expected_sum(pull, file, error));
    file->url = url;
    pull->file_count = 1;
    bool present = false;
    AVO_TRY(is_url_present(pull, file, &present, error));
    if (present)
        return AVO_OK;
    http_client client;
    AVO_TRY(http_open(&client, pull, NULL, NULL, error));
    avo_status status = transfer_files(&client, error);
    http_close(&client);
    AVO_TRY(status);
    pull->source = url;
    return pull_commit(pull, error);
}
