/* The downloads of one pull.
 *
 * A file's way: begin (what is in the part already?) → request (Range from there, If-Range with
 * the ETag that part belongs to) → accept the response's head → append bytes, summing → verify.
 * What can go wrong and what follows:
 *   dropped, 5xx, 429, stalled     the same again after a while, from where it stopped
 *   200 instead of 206             the file changed or ranges are ignored: from zero
 *   a Content-Range not asked for  refused, from zero
 *   too long, wrong sum            thrown away, from zero, at most RESTARTS_MAX times
 *   4xx, no room, bad certificate  the pull ends; parts stay */
#include "hub/transfer.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARALLEL_MAX 32
#define RESTARTS_MAX 2
#define ATTEMPTS_MAX 1000 /* a server that gives one byte per connection has an end */
#define READ_BYTES   ((size_t)1 << 20)

typedef enum slot_state { SLOT_FREE, SLOT_RUNNING, SLOT_WAITING } slot_state;

typedef struct slot {
    http_client *client;
    http_exchange exchange;
    slot_state state;
    pull_file *file;
    int descriptor;
    hub_digest digest;
    char etag[HTTP_TEXT_MAX]; /* of what is in the part */
    uint64_t bytes;           /* in the part */
    uint64_t bytes_at_failure;
    bool accepted;   /* this response's head was looked at and is good */
    bool want_fresh; /* the part is worth nothing: from zero */
    uint32_t failures, restarts, attempts;
    uint64_t not_before_ns;
    avo_error refusal; /* why a callback stopped the transfer; status AVO_OK: it did not */
} slot;

/* ---- The part on disk ---- */

/* ".etag" holds two lines: the ETag of the part's bytes, and the sum that the file should have.
 * False when the part is not known to be a part of this file. */
static bool read_etag(slot *slot) {
    file_map map;
    bool belongs = false;
    slot->etag[0] = '\0';
    if (file_map_open(slot->file->etag_path, &map, NULL) != AVO_OK)
        return false;
    const char *data = (const char *)map.bytes.data;
    const char *newline = data == NULL ? NULL : memchr(data, '\n', map.bytes.size);
    size_t bytes = newline == NULL ? 0 : (size_t)(newline - data);
    if (newline != NULL && bytes < sizeof(slot->etag)) {
        text_view sum = {newline + 1, map.bytes.size - bytes - 1};
        belongs = text_is(sum, slot->file->file.sha256);
        for (size_t i = 0; i < bytes; i++)
            belongs = belongs && data[i] >= 0x20 && data[i] < 0x7F;
        if (belongs) {
            memcpy(slot->etag, data, bytes);
            slot->etag[bytes] = '\0';
        }
    }
    file_map_close(&map);
    return belongs;
}

static void write_etag(const slot *slot) {
    FILE *file = fopen(slot->file->etag_path, "we");
    if (file == NULL)
        return; /* then it cannot be resumed, that is all */
    fprintf(file, "%s\n%s", slot->etag, slot->file->file.sha256);
    fclose(file);
}

static uint64_t git_bytes(const pull_file *file) {
    return file->git_sha1[0] != '\0' && file->size_known ? file->file.bytes : UINT64_MAX;
}

static avo_status empty_part(slot *slot, avo_error *error) {
    slot->bytes = 0;
    slot->file->have_bytes = 0;
    hub_digest_close(&slot->digest);
    if (ftruncate(slot->descriptor, 0) != 0 || lseek(slot->descriptor, 0, SEEK_SET) != 0)
        return hub_write_failed(slot->file->part_path, errno, error);
    return hub_digest_open(&slot->digest, git_bytes(slot->file), error);
}

/* Sums what is in the part already and leaves the descriptor at its end. */
static avo_status sum_part(slot *slot, uint64_t bytes, avo_error *error) {
    uint8_t *block = allocator_take(NULL, READ_BYTES);
    if (block == NULL)
        return status_no_memory(error, "a read buffer", READ_BYTES);
    avo_status status = AVO_OK;
    uint64_t done = 0;
    while (status == AVO_OK && done < bytes) {
        ssize_t got = read(slot->descriptor, block, READ_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            status = status_fail(error, AVO_ERROR_IO, "%s: cannot read: %s", slot->file->part_path,
                                 got < 0 ? strerror(errno) : "the file was truncated");
            break;
        }
        done += (uint64_t)got;
        status = hub_digest_add(&slot->digest, block, (size_t)got, error);
        AVO_THEN(status, pull_report(slot->client->pull, "pulling", 0, error));
    }
    allocator_give(NULL, block, READ_BYTES);
    slot->bytes = done;
    slot->file->have_bytes = done;
    return status;
}

/* Opens the part and finds out how much of it can be used. */
static avo_status open_part(slot *slot, avo_error *error) {
    pull_file *file = slot->file;
    AVO_TRY(hub_make_parent(file->part_path, error));
    slot->descriptor = open(file->part_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    struct stat info;
    if (slot->descriptor < 0 || fstat(slot->descriptor, &info) != 0)
        return hub_write_failed(file->part_path, errno, error);
    if (!S_ISREG(info.st_mode))
        return status_fail(error, AVO_ERROR_IO, "%s: not a regular file", file->part_path);
    uint64_t bytes = (uint64_t)info.st_size;
    bool same_file = read_etag(slot) && (slot->etag[0] == '"' || file->file.sha256[0] != '\0');
    bool fits = !file->size_known || bytes <= file->file.bytes;
    AVO_TRY(hub_digest_open(&slot->digest, git_bytes(file), error));
    if (bytes == 0 || !same_file || !fits)
        return empty_part(slot, error);
    return sum_part(slot, bytes, error);
}

static void close_slot(slot *slot) {
    http_exchange_stop(&slot->exchange);
    hub_digest_close(&slot->digest);
    if (slot->descriptor >= 0)
        close(slot->descriptor);
    slot->descriptor = -1;
    slot->state = SLOT_FREE;
    slot->file = NULL;
}

/* ---- The response ---- */

/* Notes why this response is of no use; the transfer then ends with CURLE_WRITE_ERROR. */
static bool refuse(slot *slot, bool fresh) {
    slot->want_fresh = fresh;
    return false;
}

static bool accept_rest(slot *slot) {
    const http_response *response = &slot->exchange.response;
    const char *path = slot->file->file.path;
    uint64_t begin, end, total;
    if (slot->bytes == 0 || !http_parse_range(response->range, &begin, &end, &total) ||
        begin != slot->bytes || end + 1 != total ||
        (slot->file->size_known && total != slot->file->file.bytes)) {
        (void)!status_fail(&slot->refusal, AVO_ERROR_NETWORK,
                           "%s: the server sent range \"%s\", requested was byte %llu to the end",
                           path, response->range, (unsigned long long)slot->bytes);
        return refuse(slot, true);
    }
    if (slot->etag[0] != '\0' && response->etag[0] != '\0' &&
        strcmp(slot->etag, response->etag) != 0) {
        (void)!status_fail(&slot->refusal, AVO_ERROR_NETWORK,
                           "%s: the file changed on the server during the download", path);
        return refuse(slot, true);
    }
    return true;
}

/* A size that was not known before: is there a limit, is there room? */
static bool learn_size(slot *slot, uint64_t bytes) {
    pull *pull = slot->client->pull;
    pull_file *file = slot->file;
    if (bytes > HUB_FILE_BYTES_MAX) {
        (void)!status_fail(&slot->refusal, AVO_ERROR_LIMIT,
                           "%s: the file has %llu bytes, must have at most %llu", file->file.path,
                           (unsigned long long)bytes, (unsigned long long)HUB_FILE_BYTES_MAX);
        return false;
    }
    if (hub_check_room(pull->folder, bytes, &slot->refusal) != AVO_OK)
        return false;
    file->file.bytes = bytes;
    file->size_known = true;
    pull->total_bytes = 0;
    for (size_t i = 0; i < pull->file_count; i++)
        pull->total_bytes += pull->files[i].present ? 0 : pull->files[i].file.bytes;
    return true;
}

static bool accept_whole(slot *slot) {
    const http_response *response = &slot->exchange.response;
    pull_file *file = slot->file;
    if (slot->bytes > 0 && empty_part(slot, &slot->refusal) != AVO_OK)
        return false;
    if (response->length >= 0 && file->size_known &&
        (uint64_t)response->length != file->file.bytes) {
        (void)!status_fail(&slot->refusal, AVO_ERROR_NETWORK,
                           "%s: the server sends %lld bytes, the file has %llu", file->file.path,
                           (long long)response->length, (unsigned long long)file->file.bytes);
        return refuse(slot, true);
    }
    if (response->length >= 0 && !file->size_known && !learn_size(slot, (uint64_t)response->length))
        return false;
    memcpy(slot->etag, response->etag, sizeof(slot->etag));
    write_etag(slot);
    return true;
}

/* Looks at the head of a response before its first byte is taken. False: stop. */
static bool accept_response(slot *slot) {
    const http_response *response = &slot->exchange.response;
    if (slot->accepted)
        return true;
    if (response->encoding[0] != '\0' && strcmp(response->encoding, "identity") != 0) {
        (void)!status_fail(&slot->refusal, AVO_ERROR_UNSUPPORTED,
                           "%s: the server sends the file encoded (%s), which was not requested",
                           slot->file->file.path, response->encoding);
        return false;
    }
    if (slot->file->file.sha256[0] == '\0' && slot->file->git_sha1[0] == '\0' &&
        strncmp(response->type, "text/html", 9) == 0) {
        (void)!status_fail(
            &slot->refusal, AVO_ERROR_FORMAT,
            "%s: the server sent a web page instead of a file; give the URL of the file itself",
            slot->file->file.path);
        return false;
    }
    slot->accepted = response->status == 206 ? accept_rest(slot) : accept_whole(slot);
    return slot->accepted;
}

static bool write_bytes(slot *slot, const char *data, size_t bytes) {
    if (hub_digest_add(&slot->digest, data, bytes, &slot->refusal) != AVO_OK)
        return false;
    while (bytes > 0) {
        ssize_t done = write(slot->descriptor, data, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            (void)!hub_write_failed(slot->file->part_path, errno, &slot->refusal);
            return false;
        }
        data += done;
        bytes -= (size_t)done;
        slot->bytes += (uint64_t)done;
    }
    slot->file->have_bytes = slot->bytes;
    return true;
}

static size_t on_data(char *data, size_t size, size_t count, void *context) {
    slot *slot = context;
    size_t bytes = size * count;
    long status = slot->exchange.response.status;
    if (status != 200 && status != 206)
        return bytes; /* the page of a redirect or an error */
    if (!accept_response(slot))
        return 0;
    uint64_t limit = slot->file->size_known ? slot->file->file.bytes : HUB_FILE_BYTES_MAX;
    if (bytes > limit - slot->bytes) {
        (void)!status_fail(&slot->refusal, AVO_ERROR_NETWORK,
                           "%s: the server sends more than %llu bytes", slot->file->file.path,
                           (unsigned long long)limit);
        slot->want_fresh = true;
        return 0;
    }
    if (!write_bytes(slot, data, bytes))
        return 0;
    slot->client->pull->fetched_bytes += bytes;
    return bytes;
}

/* ---- The way of a file ---- */

static avo_status request(slot *slot, avo_error *error) {
    slot->accepted = false;
    slot->want_fresh = false;
    slot->refusal = (avo_error){0};
    slot->state = SLOT_RUNNING;
    return http_exchange_start(&slot->exchange, slot->file->url, slot->bytes, slot->etag, error);
}

/* Tries again, or gives up with the reason. `fresh`: what is there is worth nothing. */
static avo_status try_again(slot *slot, bool fresh, uint64_t asked_ms, const avo_error *reason,
                            avo_error *error) {
    const hub_pull_options *options = slot->client->pull->options;
    bool moved = slot->bytes > slot->bytes_at_failure;
    slot->failures = moved && !fresh ? 1 : slot->failures + 1;
    slot->bytes_at_failure = slot->bytes;
    slot->restarts += fresh;
    slot->attempts++;
    if (slot->failures > options->retries || slot->restarts > RESTARTS_MAX ||
        slot->attempts > ATTEMPTS_MAX)
        return status_fail(error, reason->status, "%s (tried %u times)", reason->text,
                           slot->attempts);
    if (fresh) {
        AVO_TRY(empty_part(slot, error));
        slot->bytes_at_failure = 0;
        slot->etag[0] = '\0';
        write_etag(slot);
    }
    slot->not_before_ns =
        clock_now_ns() + http_delay_ms(options, slot->failures, asked_ms) * 1000000u;
    slot->state = SLOT_WAITING;
    return AVO_OK;
}

/* The hub names the sum of large files in a header; a plain URL may have one there. */
static void adopt_linked_sum(slot *slot) {
    const char *etag = slot->exchange.linked_etag;
    text_view sum = {etag + 1, 64};
    if (slot->file->file.sha256[0] == '\0' && slot->file->git_sha1[0] == '\0' &&
        strlen(etag) == 66 && etag[0] == '"' && etag[65] == '"' && hub_is_hex(sum, 64))
        memcpy(slot->file->file.sha256, sum.data, 64);
}

static avo_status finish(slot *slot, avo_error *error) {
    pull_file *file = slot->file;
    char sha256[65], git_sha1[41];
    adopt_linked_sum(slot);
    AVO_TRY(hub_digest_end(&slot->digest, sha256, git_sha1, error));
    bool sha256_wrong = file->file.sha256[0] != '\0' && strcmp(file->file.sha256, sha256) != 0;
    bool git_wrong = git_bytes(file) != UINT64_MAX && strcmp(file->git_sha1, git_sha1) != 0;
    if (sha256_wrong || git_wrong) {
        avo_error reason = {0};
        (void)!status_fail(&reason, AVO_ERROR_FORMAT,
                           "%s: %s is %s, expected %s; the file was discarded", file->file.path,
                           sha256_wrong ? "SHA-256" : "git SHA-1", sha256_wrong ? sha256 : git_sha1,
                           sha256_wrong ? file->file.sha256 : file->git_sha1);
        avo_status status = try_again(slot, true, 0, &reason, error);
        if (status != AVO_OK) {
            unlink(file->part_path);
            unlink(file->etag_path);
        }
        return status;
    }
    memcpy(file->file.sha256, sha256, sizeof(sha256));
    file->file.bytes = slot->bytes;
    file->size_known = true;
    close_slot(slot);
    return AVO_OK;
}

static avo_status begin(slot *slot, pull_file *file, avo_error *error) {
    slot->file = file;
    slot->failures = slot->restarts = slot->attempts = 0;
    slot->bytes_at_failure = 0;
    AVO_TRY(open_part(slot, error));
    if (file->size_known && slot->bytes == file->file.bytes && slot->bytes > 0)
        return finish(slot, error); /* it was all there */
    return request(slot, error);
}

static avo_status on_end(slot *slot, CURLcode code, avo_error *error) {
    uint64_t wait_ms = 0;
    avo_error reason = {0};
    http_verdict verdict =
        http_judge(&slot->exchange, code, slot->file->file.path, &wait_ms, &reason);
    if (slot->refusal.status == AVO_OK && verdict == HTTP_GOOD && !accept_response(slot))
        verdict = HTTP_FAILED; /* an empty body never reached on_data */
    if (slot->refusal.status != AVO_OK) {
        if (slot->refusal.status == AVO_ERROR_NETWORK)
            return try_again(slot, slot->want_fresh, 0, &slot->refusal, error);
        *error = slot->refusal;
        return slot->refusal.status;
    }
    switch (verdict) {
    case HTTP_FOLLOWED:
        return AVO_OK;
    case HTTP_GOOD:
        if (!slot->file->size_known || slot->bytes == slot->file->file.bytes)
            return finish(slot, error);
        (void)!status_fail(&reason, AVO_ERROR_NETWORK, "%s: the connection closed after %llu bytes",
                           slot->file->file.path, (unsigned long long)slot->bytes);
        return try_again(slot, false, 0, &reason, error);
    case HTTP_RETRY:
        return try_again(slot, false, wait_ms, &reason, error);
    case HTTP_FAILED:
        break;
    }
    if (slot->exchange.response.status == 416 && slot->bytes > 0)
        return try_again(slot, true, 0, &reason, error);
    *error = reason;
    return reason.status != AVO_OK ? reason.status : AVO_ERROR_NETWORK;
}

/* ---- All of them ---- */

typedef struct transfers {
    http_client *client;
    slot *slots;
    size_t slot_count;
    size_t next; /* file to begin */
} transfers;

static avo_status fill_slots(transfers *all, bool *busy, avo_error *error) {
    pull *pull = all->client->pull;
    *busy = false;
    for (size_t i = 0; i < all->slot_count; i++) {
        slot *slot = &all->slots[i];
        while (slot->state == SLOT_FREE && all->next < pull->file_count) {
            pull_file *file = &pull->files[all->next++];
            if (!file->present)
                AVO_TRY(begin(slot, file, error));
        }
        if (slot->state == SLOT_WAITING && clock_now_ns() >= slot->not_before_ns)
            AVO_TRY(request(slot, error));
        *busy = *busy || slot->state != SLOT_FREE;
    }
    return AVO_OK;
}

static avo_status report(transfers *all, avo_error *error) {
    pull *pull = all->client->pull;
    uint64_t done = 0;
    for (size_t i = 0; i < pull->file_count; i++)
        done += pull->files[i].have_bytes;
    return pull_report(pull, "pulling", done, error);
}

static avo_status run(transfers *all, avo_error *error) {
    CURLM *multi = all->client->multi;
    for (;;) {
        bool busy;
        int running, left;
        AVO_TRY(fill_slots(all, &busy, error));
        AVO_TRY(report(all, error));
        if (!busy)
            return AVO_OK;
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return status_fail(error, AVO_ERROR_NETWORK, "libcurl failed");
        bool ended = false;
        for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;) {
            if (message->msg != CURLMSG_DONE)
                continue;
            char *owner = NULL;
            CURLcode code = message->data.result; /* gone once the handle is removed */
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
            AVO_TRY(on_end((slot *)(void *)owner, code, error));
            ended = true;
        }
        if (!ended)
            curl_multi_poll(multi, NULL, 0, 50, NULL);
    }
}

avo_status transfer_files(http_client *client, avo_error *error) {
    uint32_t parallel = client->pull->options->parallel;
    transfers all = {.client = client};
    all.slot_count = parallel == 0 ? 1 : parallel > PARALLEL_MAX ? PARALLEL_MAX : parallel;
    all.slots = allocator_take_array(NULL, all.slot_count, sizeof(slot));
    if (all.slots == NULL)
        return status_no_memory(error, "downloads", all.slot_count * sizeof(slot));
    avo_status status = AVO_OK;
    for (size_t i = 0; i < all.slot_count; i++) {
        all.slots[i].client = client;
        all.slots[i].descriptor = -1;
        if (status == AVO_OK)
            status =
                http_exchange_open(&all.slots[i].exchange, client, on_data, &all.slots[i], error);
    }
    AVO_THEN(status, run(&all, error));
    for (size_t i = 0; i < all.slot_count; i++) {
        close_slot(&all.slots[i]);
        http_exchange_close(&all.slots[i].exchange);
    }
    allocator_give(NULL, all.slots, all.slot_count * sizeof(slot));
    return status;
}
