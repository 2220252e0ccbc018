/* The ledger's log: read and written anew at the start, appended to by a thread.
 *
 * The thread takes what has changed, appends it, and syncs about once a second while there is
 * something to sync. When the log is much longer than what is in it, or a write has failed and may
 * have left half a record, the whole is written beside it and renamed (base/file.h). */
#include "server/ledger_int.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BATCH_BYTES    ((size_t)1 << 20) /* written at once */
#define TORN_BYTES_MAX ((size_t)4 << 20) /* that an interrupted write can leave behind */
#define FILE_BYTES_MAX ((size_t)256 << 20)
#define SPARE_BYTES    ((uint64_t)1 << 20) /* that a log may have beyond twice what is in it */
#define SYNC_SECONDS   1.0
#define RETRY_SECONDS  5.0
#define WHOLE_BYTES_MAX                                                                            \
    ((size_t)(LEDGER_DAYS_MAX + LEDGER_ACCOUNTS_MAX) * LEDGER_RECORD_MAX + LEDGER_HEADER_BYTES)

/* ---- Records ---- */

static avo_status append_record(buffer *out, const ledger_record *record) {
    uint8_t bytes[LEDGER_RECORD_MAX];
    return buffer_append(out, bytes, ledger_format_write(record, bytes));
}

static avo_status append_day(buffer *out, const ledger_account *account, const ledger_day *day) {
    return append_record(out, &(ledger_record){.kind = LEDGER_DAY,
                                               .name = account->name,
                                               .day = day->day,
                                               .totals = day->totals});
}

static avo_status append_window(buffer *out, const ledger_account *account) {
    return append_record(out, &(ledger_record){.kind = LEDGER_WINDOW,
                                               .name = account->name,
                                               .window_ms = account->window_ms,
                                               .window_tokens = account->window_tokens});
}

/* `all`: whether it has changed or not. */
static avo_status append_account(buffer *out, ledger_account *account, bool all) {
    for (uint32_t d = 0; d < account->day_count; d++)
        if (all || account->days[d].dirty) {
            AVO_TRY(append_day(out, account, &account->days[d]));
            account->days[d].dirty = false;
        }
    if (all ? account->window_ms != 0 : account->window_dirty)
        AVO_TRY(append_window(out, account));
    account->window_dirty = false;
    return AVO_OK;
}

static bool take_record(void *context, const ledger_record *record) {
    ledger *ledger = context;
    ledger_account *account = ledger_account_of(ledger, record->name);
    if (account == NULL) /* more names than a server can have: the first ones count */
        return true;
    pthread_mutex_lock(&ledger->lock);
    if (record->kind == LEDGER_WINDOW) {
        account->window_ms = record->window_ms;
        account->window_tokens = record->window_tokens;
    } else {
        ledger_day *day = ledger_day_at(account, record->day);
        if (day != NULL)
            day->totals = record->totals;
    }
    pthread_mutex_unlock(&ledger->lock);
    return true;
}

/* ---- The file as a whole ---- */

static avo_status open_log(ledger *ledger, avo_error *error) {
    if (ledger->descriptor >= 0)
        close(ledger->descriptor);
    ledger->descriptor = open(ledger->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (ledger->descriptor >= 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_IO, "%s: cannot open: %s", ledger->path, strerror(errno));
}

/* Everything, beside the file and renamed; then it is appended to. */
static avo_status write_whole(ledger *ledger, avo_error *error) {
    buffer out;
    buffer_init(&out, NULL, WHOLE_BYTES_MAX);
    avo_status status = buffer_append(&out, LEDGER_HEADER, LEDGER_HEADER_BYTES);
    pthread_mutex_lock(&ledger->lock);
    for (uint32_t i = 0; i < ledger->account_count && status == AVO_OK; i++)
        status = append_account(&out, &ledger->accounts[i], true);
    for (; ledger->dirty != NULL; ledger->dirty = ledger->dirty->next_dirty)
        ledger->dirty->dirty = false;
    uint64_t changes = ledger->changes;
    pthread_mutex_unlock(&ledger->lock);
    status = status != AVO_OK ? status_no_memory(error, "the ledger's file", out.size)
                              : file_write(ledger->path, out.data, out.size, error);
    uint64_t bytes = out.size;
    buffer_free(&out);
    AVO_TRY(status);
    AVO_TRY(open_log(ledger, error));
    ledger->file_bytes = ledger->live_bytes = bytes;
    pthread_mutex_lock(&ledger->lock);
    ledger->changes_written = changes;
    pthread_cond_broadcast(&ledger->written);
    pthread_mutex_unlock(&ledger->lock);
    return AVO_OK;
}

static avo_status check_tail(const ledger *ledger, bytes_view file, size_t sound,
                             avo_error *error) {
    if (sound == 0 && file.size >= LEDGER_HEADER_BYTES)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: not a usage log (it does not begin with " LEDGER_HEADER
                           "); move it away to begin a new one",
                           ledger->path);
    if (file.size - sound > TORN_BYTES_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: damaged at byte %zu of %zu, more than an interrupted write can "
                           "leave; restore it, or cut it there (truncate -s %zu) to go on with "
                           "what is sound",
                           ledger->path, sound, file.size, sound);
    if (file.size > sound && ledger->say.say != NULL) {
        char line[256];
        snprintf(line, sizeof(line), "the usage log was cut off: dropped its last %zu bytes",
                 file.size - sound);
        ledger->say.say(ledger->say.context, line);
    }
    return AVO_OK;
}

/* *whole: the file is sound to its end, and not much longer than what is in it. */
static avo_status read_file(ledger *ledger, bool *whole, avo_error *error) {
    *whole = false;
    if (file_kind_of(ledger->path) == FILE_MISSING)
        return AVO_OK;
    file_map map = {0};
    AVO_TRY(file_map_open(ledger->path, &map, error));
    avo_status status = AVO_OK;
    if (map.bytes.size > FILE_BYTES_MAX)
        status = status_fail(error, AVO_ERROR_LIMIT, "%s: has %zu bytes, must have at most %zu",
                             ledger->path, map.bytes.size, FILE_BYTES_MAX);
    if (status == AVO_OK) {
        size_t sound = ledger_format_read(map.bytes, take_record, ledger);
        status = check_tail(ledger, map.bytes, sound, error);
        *whole = sound > 0 && sound == map.bytes.size && sound < SPARE_BYTES;
        ledger->file_bytes = ledger->live_bytes = sound;
    }
    file_map_close(&map);
    return status;
}

/* ---- The thread ---- */

static bool write_all(int descriptor, const buffer *out) {
    size_t at = 0;
    while (at < out->size) {
        ssize_t written = write(descriptor, out->data + at, out->size - at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        at += (size_t)written;
    }
    return true;
}

/* What has changed, up to a batch. The lock is held. */
static avo_status take_changes(ledger *ledger, buffer *out) {
    while (ledger->dirty != NULL && out->size < BATCH_BYTES) {
        ledger_account *account = ledger->dirty;
        AVO_TRY(append_account(out, account, false));
        ledger->dirty = account->next_dirty;
        account->dirty = false;
    }
    return AVO_OK;
}

static void tell_failure(ledger *ledger, const char *text) {
    char line[AVO_ERROR_TEXT_MAX + 64];
    if (!ledger->failed && ledger->say.say != NULL) {
        snprintf(line, sizeof(line), "usage is not written: %s; retrying every %g seconds", text,
                 RETRY_SECONDS);
        ledger->say.say(ledger->say.context, line);
    }
    pthread_mutex_lock(&ledger->lock);
    ledger->failed = true;
    pthread_cond_broadcast(&ledger->written);
    pthread_mutex_unlock(&ledger->lock);
}

/* Half a record may be in the file after a failure: the whole is written anew. */
static bool repair(ledger *ledger) {
    avo_error error = {0};
    if (write_whole(ledger, &error) != AVO_OK) {
        tell_failure(ledger, error.text);
        return false;
    }
    if (ledger->failed && ledger->say.say != NULL)
        ledger->say.say(ledger->say.context, "usage is written again");
    pthread_mutex_lock(&ledger->lock);
    ledger->failed = false;
    pthread_mutex_unlock(&ledger->lock);
    return true;
}

/* One batch. `whole` becomes true when the log must be written anew. */
static void write_batch(ledger *ledger, buffer *out, bool *whole) {
    out->size = 0;
    pthread_mutex_lock(&ledger->lock);
    avo_status status = take_changes(ledger, out);
    uint64_t changes = ledger->dirty == NULL ? ledger->changes : ledger->changes_written;
    pthread_mutex_unlock(&ledger->lock);
    if (status != AVO_OK || !write_all(ledger->descriptor, out)) {
        tell_failure(ledger, status != AVO_OK ? "out of memory" : strerror(errno));
        *whole = true;
        return;
    }
    ledger->file_bytes += out->size;
    *whole = ledger->file_bytes > 2 * ledger->live_bytes + SPARE_BYTES;
    pthread_mutex_lock(&ledger->lock);
    ledger->changes_written = changes;
    pthread_cond_broadcast(&ledger->written);
    pthread_mutex_unlock(&ledger->lock);
}

/* Until there is something to write, it is time to sync or to try again, or the end has come; the
 * lock is held. */
static void wait_for_work(ledger *ledger, double seconds) {
    struct timespec until;
    if (seconds < 0.0) {
        pthread_cond_wait(&ledger->work, &ledger->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&ledger->work, &ledger->lock, &until);
}

static void *disk_main(void *context) {
    ledger *ledger = context;
    buffer out;
    bool whole = false, unsynced = false;
    uint64_t synced_ns = clock_now_ns();
    buffer_init(&out, NULL, 2 * BATCH_BYTES);
    for (;;) {
        pthread_mutex_lock(&ledger->lock);
        if (ledger->failed && !ledger->ends)
            wait_for_work(ledger, RETRY_SECONDS);
        else if (ledger->dirty == NULL && !ledger->ends)
            wait_for_work(ledger, unsynced ? SYNC_SECONDS : -1.0);
        bool ends = ledger->ends && (ledger->dirty == NULL || ledger->failed);
        bool dirty = ledger->dirty != NULL;
        pthread_mutex_unlock(&ledger->lock);
        if (dirty && !whole)
            write_batch(ledger, &out, &whole);
        unsynced = unsynced || dirty;
        if (whole) {
            whole = !repair(ledger);
            unsynced = whole;
        }
        bool due = ends || clock_seconds(synced_ns, clock_now_ns()) >= SYNC_SECONDS;
        if (unsynced && due && !whole) {
            (void)fdatasync(ledger->descriptor);
            synced_ns = clock_now_ns();
            unsynced = false;
        }
        if (ends)
            break;
    }
    buffer_free(&out);
    return NULL;
}

/* ---- Opening and closing ---- */

avo_status ledger_disk_open(ledger *ledger, const char *path, avo_error *error) {
    ledger->path = strdup(path);
    if (ledger->path == NULL)
        return status_no_memory(error, "the ledger", strlen(path));
    bool whole = false;
    AVO_TRY(read_file(ledger, &whole, error));
    AVO_TRY(whole ? open_log(ledger, error) : write_whole(ledger, error));
    if (pthread_create(&ledger->thread, NULL, disk_main, ledger) != 0)
        return status_fail(error, AVO_ERROR_MEMORY, "cannot start a thread for the usage log");
    ledger->runs = true;
    return AVO_OK;
}

void ledger_disk_close(ledger *ledger) {
    if (ledger->runs) {
        pthread_mutex_lock(&ledger->lock);
        ledger->ends = true;
        pthread_cond_signal(&ledger->work);
        pthread_mutex_unlock(&ledger->lock);
        pthread_join(ledger->thread, NULL);
    }
    if (ledger->descriptor >= 0)
        close(ledger->descriptor);
    free(ledger->path);
}

bool ledger_flush(ledger *ledger) {
    if (ledger->path == NULL)
        return true;
    pthread_mutex_lock(&ledger->lock);
    uint64_t wanted = ledger->changes;
    while (ledger->changes_written < wanted && !ledger->failed)
        pthread_cond_wait(&ledger->written, &ledger->lock);
    bool good = ledger->changes_written >= wanted;
    pthread_mutex_unlock(&ledger->lock);
    return good;
}
