/* The thread of batches: what is begun, written and ended when. */
#include "server/api/batch.h"

#include "base/clock.h"
#include "base/hash.h"
#include "server/api/helpers.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TICK_SECONDS  0.02   /* between two looks whether the scheduler has room */
#define QUOTA_SECONDS 1.0    /* the same of quotas */
#define IDLE_SECONDS  3600.0 /* and of what expires */

/* ---- State ---- */

void batches_wake(batches *batches) {
    pthread_mutex_lock(&batches->lines_lock);
    batches->woken = true;
    pthread_cond_signal(&batches->work);
    pthread_mutex_unlock(&batches->lines_lock);
}

batch *batches_find(batches *batches, const char *owner, const char *id) {
    for (size_t i = 0; i < batches->count; i++)
        if (strcmp(batches->items[i]->id, id) == 0 && strcmp(batches->items[i]->owner, owner) == 0)
            return batches->items[i];
    return NULL;
}

static void say(const batches *batches, const char *text) {
    const api_host *host = &batches->api->host;
    host->say(host->context, text);
}

/* A record that cannot be written is written at the next change; the outputs say what is done. */
void batch_set(batches *batches, batch *batch, batch_status status) {
    avo_error error = {0};
    batch->status = status;
    batch->at[status] = api_now();
    if (batch_save(batches->store, batch, &error) != AVO_OK)
        say(batches, error.text);
}

/* ---- Ends ---- */

/* Files without a line are removed. */
static void settle_file(batches *batches, batch *batch, char *id) {
    store_file file;
    if (id[0] == '\0' || (store_find(batches->store, batch->owner, id, &file) && file.bytes > 0))
        return;
    (void)store_remove(batches->store, batch->owner, id);
    id[0] = '\0';
}

/* The lock is held. */
static void finish(batches *batches, batch *batch, batch_status status) {
    if (batch->loaded)
        batches->loaded--;
    settle_file(batches, batch, batch->output);
    settle_file(batches, batch, batch->errors);
    batch_unload(batch);
    if (batch->found != NULL) {
        free(batch->problems);
        batch->problems = batch->found;
        batch->found = NULL;
    }
    batch_set(batches, batch, status);
}

/* Those of a batch, NULL: of all; what they come to is not told. */
static void drop_lines(batches *batches, const batch *batch) {
    pthread_mutex_lock(&batches->lines_lock);
    for (batch_line *line = batches->flying; line != NULL; line = batch_line_next(line))
        if (batch == NULL || batch_line_batch(line) == batch)
            batch_line_cancel(line);
    pthread_mutex_unlock(&batches->lines_lock);
}

/* Lines that were never answered, into the error file. */
static void write_missed(batches *batches, batch *batch) {
    buffer out;
    avo_error error = {0};
    buffer_init(&out, NULL, 4 * BATCH_LINE_BYTES_MAX);
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->over[i] != LINE_WAITS)
            continue;
        out.size = 0;
        if (batch_line_missed(batch, i, "batch_expired",
                              "the batch expired before this request was answered",
                              &out) != AVO_OK ||
            store_append(batches->store, batch->errors, buffer_text(&out), &error) != AVO_OK)
            break;
        batch->over[i] = LINE_ANSWERED;
        batch->failed++;
    }
    buffer_free(&out);
}

/* ---- Beginnings ---- */

static bool open_output(batches *batches, const batch *batch, const char *what, char *id) {
    avo_error error = {0};
    store_file file = {.created = api_now()};
    if (id[0] != '\0')
        return true;
    file.expires = file.created + batch->output_seconds;
    api_make_id(batches->api, "file-", file.id, sizeof(file.id));
    snprintf(file.owner, sizeof(file.owner), "%s", batch->owner);
    snprintf(file.name, sizeof(file.name), "%s_%s.jsonl", batch->id, what);
    snprintf(file.purpose, sizeof(file.purpose), "batch_output");
    if (store_add(batches->store, &file, (text_view){"", 0}, &error) != AVO_OK)
        return false;
    memcpy(id, file.id, sizeof(file.id));
    return true;
}

static int by_sum(const void *a, const void *b) {
    return memcmp(a, b, 2 * sizeof(uint64_t));
}

/* Every line is a request of this endpoint, and no two have one custom_id. */
static bool validate(batch *batch) {
    uint64_t(*sums)[2] = malloc(batch->count * sizeof(*sums));
    uint32_t problems = 0;
    if (sums == NULL) {
        batch_problem(batch, "out_of_memory", 0, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < batch->count && problems < BATCH_PROBLEMS_MAX; i++) {
        arena arena;
        batch_text text;
        api_fault fault = {0};
        const char *data = (const char *)batch->map.bytes.data;
        text_view line = {data + batch->lines[i], (size_t)(batch->lines[i + 1] - batch->lines[i])};
        bool good = batch_text_read(batch->endpoint, line, &arena, &text, &fault);
        if (good)
            hash_key_wide(text.custom_id.data, text.custom_id.size, sums[i]);
        arena_free(&arena);
        if (!good) {
            batch_problem(batch, "invalid_line", i + 1, fault.text);
            problems++;
        }
    }
    if (problems == 0) {
        qsort(sums, batch->count, sizeof(*sums), by_sum);
        for (uint32_t i = 1; i < batch->count && problems == 0; i++)
            if (by_sum(sums[i - 1], sums[i]) == 0) {
                batch_problem(batch, "duplicate_custom_id", 0, "two lines have the same custom_id");
                problems++;
            }
    }
    free(sums);
    return problems == 0;
}

/* Without the lock: an input is long. Nobody else touches a batch that is not over, but for its
 * wish to be cancelled. */
static void begin(batches *batches, batch *batch) {
    bool good = batch_load(batches, batch) && validate(batch);
    if (good && (!open_output(batches, batch, "output", batch->output) ||
                 !open_output(batches, batch, "errors", batch->errors))) {
        batch_problem(batch, "storage_full", 0, "there is no room for the outputs");
        good = false;
    }
    pthread_mutex_lock(&batches->lock);
    batches->loaded += batch->loaded;
    batch->total = batch->count;
    batch->done = batch->was_done;
    batch->failed = batch->was_failed;
    if (!good)
        finish(batches, batch, BATCH_FAILED);
    else if (batch->status == BATCH_VALIDATING)
        batch_set(batches, batch, BATCH_IN_PROGRESS);
    pthread_mutex_unlock(&batches->lock);
}

/* The oldest that waits, of the owner with the fewest that are worked on. The lock is held. */
static batch *next_to_load(const batches *batches) {
    batch *best = NULL;
    uint32_t least = UINT32_MAX;
    if (batches->loaded >= BATCHES_LOADED_MAX)
        return NULL;
    for (size_t i = 0; i < batches->count; i++) {
        batch *one = batches->items[i];
        uint32_t own = 0;
        if (one->loaded || batch_is_over(one) || one->ends_early)
            continue;
        for (size_t k = 0; k < batches->count; k++)
            own += batches->items[k]->loaded && strcmp(batches->items[k]->owner, one->owner) == 0;
        if (own < least) {
            least = own;
            best = one;
        }
    }
    return best;
}

/* ---- Lines ---- */

static bool has_room(const batches *batches) {
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(batches->api->scheduler, &info);
    const api_host *host = &batches->api->host;
    return info.waiting == 0 && !host->draining(host->context);
}

static bool wants_lines(const batch *batch) {
    return batch->loaded && !batch->ends_early && batch->status == BATCH_IN_PROGRESS &&
           batch->next < batch->count;
}

/* The next batch in turn that has lines to be begun; the lock is held. */
static batch *next_in_turn(batches *batches) {
    for (size_t i = 0; i < batches->count; i++) {
        batch *one = batches->items[(batches->turn + i) % batches->count];
        if (wants_lines(one) && !one->quota) {
            batches->turn = (uint32_t)((batches->turn + i + 1) % batches->count);
            return one;
        }
    }
    return NULL;
}

/* Whose tokens it takes. False: there is no such key any more. */
static bool find_key(const batches *batches, const batch *batch, server_keys **keys,
                     const server_key **key) {
    const api_host *host = &batches->api->host;
    *keys = host->keys == NULL ? NULL : host->keys(host->context);
    *key = *keys == NULL ? NULL : server_keys_named(*keys, batch->owner);
    return (*keys == NULL && batch->owner[0] == '\0') || *key != NULL;
}

/* One line of it. Without the lock. False: it found nothing to do. */
static bool begin_line(batches *batches, batch *batch) {
    server_keys *keys = NULL;
    const server_key *key = NULL;
    double seconds = 0.0;
    ledger_time now = ledger_now();
    while (batch->next < batch->count && batch->over[batch->next] != LINE_WAITS)
        batch->next++;
    if (batch->next == batch->count)
        return true;
    bool known = find_key(batches, batch, &keys, &key);
    bool quota = known && key != NULL && !server_key_has_tokens(key, &now, &seconds);
    bool begun = known && !quota && batch_line_start(batches, batch, batch->next, keys, key);
    server_keys_release(keys);
    pthread_mutex_lock(&batches->lock);
    batch->quota = quota;
    if (!known && !batch->ends_early) {
        batch_problem(batch, "key_removed", 0, "the key of this batch no longer exists");
        batch->ends_early = true;
        batch->status = BATCH_FAILED;
    }
    pthread_mutex_unlock(&batches->lock);
    batch->next += begun;
    return begun;
}

static void begin_lines(batches *batches) {
    while (has_room(batches)) {
        pthread_mutex_lock(&batches->lock);
        batch *one = batches->in_flight < batches->lines_max ? next_in_turn(batches) : NULL;
        pthread_mutex_unlock(&batches->lock);
        if (one == NULL || (!begin_line(batches, one) && !one->quota))
            return;
    }
}

/* An answer has come: to its file, or it is begun again. */
static void take_line(batches *batches, batch_line *line, buffer *out) {
    batch *batch = batch_line_batch(line);
    uint32_t index = batch_line_index(line);
    avo_error error = {0};
    bool good = false, again = false;
    out->size = 0;
    avo_status status = batch_line_write(line, out, &good, &again);
    batch_line_free(line);
    if (status == AVO_OK && !again)
        status = store_append(batches->store, good ? batch->output : batch->errors,
                              buffer_text(out), &error);
    batches->in_flight--;
    batch->in_flight--;
    pthread_mutex_lock(&batches->lock);
    if (again) {
        batch->over[index] = LINE_WAITS;
        batch->next = index < batch->next ? index : batch->next;
    } else if (status == AVO_OK) {
        batch->over[index] = LINE_ANSWERED;
        *(good ? &batch->done : &batch->failed) += 1;
    } else if (!batch->ends_early) {
        batch_problem(batch, "storage_failed", 0,
                      status == AVO_ERROR_MEMORY ? "out of memory" : error.text);
        batch->ends_early = true;
        batch->status = BATCH_FAILED;
    }
    pthread_mutex_unlock(&batches->lock);
}

static void take_lines(batches *batches) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    for (;;) {
        pthread_mutex_lock(&batches->lines_lock);
        batch_line *line = batches->finished;
        if (line != NULL)
            batches->finished = batch_line_next(line);
        pthread_mutex_unlock(&batches->lines_lock);
        if (line == NULL)
            break;
        take_line(batches, line, &out);
    }
    buffer_free(&out);
}

/* ---- What is over ---- */

static bool is_input(void *context, const char *id) {
    const batches *batches = context;
    for (size_t i = 0; i < batches->count; i++) {
        const batch *one = batches->items[i];
        if (!batch_is_over(one) && (strcmp(one->input, id) == 0 || strcmp(one->output, id) == 0 ||
                                    strcmp(one->errors, id) == 0))
            return true;
    }
    return false;
}

/* The lock is held. */
static void look_at(batches *batches, batch *batch, int64_t now) {
    if (batch_is_over(batch) && !batch->loaded)
        return;
    if (!batch->loaded && batch->output[0] != '\0')
        return; /* first it is seen what an earlier run has answered */
    if (!batch->ends_early && (batch->status == BATCH_CANCELLING || batch->expires <= now)) {
        batch->ends_early = true;
        drop_lines(batches, batch);
    }
    if (batch->ends_early && batch->in_flight == 0) {
        batch_status end = batch->status == BATCH_CANCELLING ? BATCH_CANCELLED
                           : batch->status == BATCH_FAILED   ? BATCH_FAILED
                                                             : BATCH_EXPIRED;
        if (end == BATCH_EXPIRED && batch->loaded)
            write_missed(batches, batch);
        finish(batches, batch, end);
    } else if (batch->loaded && !batch->ends_early && batch->in_flight == 0 &&
               batch->next == batch->count) {
        batch_set(batches, batch, BATCH_FINALIZING);
        finish(batches, batch, BATCH_COMPLETED);
    }
}

/* Batches and files whose time is over. */
static void look_at_all(batches *batches) {
    int64_t now = api_now();
    pthread_mutex_lock(&batches->lock);
    for (size_t i = 0; i < batches->count; i++)
        look_at(batches, batches->items[i], now);
    for (size_t i = 0; i < batches->count;) {
        batch *one = batches->items[i];
        if (!batch_is_over(one) || one->loaded || one->created + BATCH_KEPT_SECONDS > now) {
            i++;
            continue;
        }
        batch_erase(batches->store, one);
        batch_free(one);
        batches->count--;
        memmove(&batches->items[i], &batches->items[i + 1],
                (batches->count - i) * sizeof(batches->items[0]));
    }
    batches->expire_next = store_expire(batches->store, now, is_input, batches);
    pthread_mutex_unlock(&batches->lock);
}

/* ---- The thread ---- */

/* `seconds`, or less where something expires before; 0: nothing does. */
static double sooner(double seconds, int64_t expires, int64_t now) {
    if (expires == 0 || (double)(expires - now) >= seconds)
        return seconds;
    return expires > now ? (double)(expires - now) : 1.0;
}

/* The lock is held. Seconds until there may be something to do that nobody wakes us for. */
static double next_look(const batches *batches) {
    double seconds = IDLE_SECONDS;
    int64_t now = api_now();
    seconds = sooner(seconds, batches->expire_next, now);
    for (size_t i = 0; i < batches->count; i++) {
        const batch *one = batches->items[i];
        if (!batch_is_over(one) && !one->ends_early)
            seconds = sooner(seconds, one->expires, now);
        if (wants_lines(one) && batches->in_flight < batches->lines_max)
            seconds = one->quota && seconds > QUOTA_SECONDS ? QUOTA_SECONDS
                      : one->quota                          ? seconds
                                                            : TICK_SECONDS;
    }
    return seconds;
}

static void wait_for_work(batches *batches) {
    struct timespec until;
    pthread_mutex_lock(&batches->lock);
    double seconds = next_look(batches);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)((seconds - (double)(long)seconds) * 1e9);
    until.tv_sec += (time_t)seconds + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    for (size_t i = 0; i < batches->count; i++)
        batches->items[i]->quota = false; /* to be asked again */
    pthread_mutex_unlock(&batches->lock);
    pthread_mutex_lock(&batches->lines_lock);
    while (!batches->woken &&
           pthread_cond_timedwait(&batches->work, &batches->lines_lock, &until) == 0)
        ;
    batches->woken = false;
    pthread_mutex_unlock(&batches->lines_lock);
}

static void *batches_main(void *context) {
    batches *batches = context;
    for (;;) {
        take_lines(batches);
        pthread_mutex_lock(&batches->lines_lock);
        bool ends = batches->ends;
        pthread_mutex_unlock(&batches->lines_lock);
        if (ends && batches->in_flight == 0)
            return NULL;
        if (ends)
            drop_lines(batches, NULL);
        pthread_mutex_lock(&batches->lock);
        batch *next = ends ? NULL : next_to_load(batches);
        pthread_mutex_unlock(&batches->lock);
        if (next != NULL)
            begin(batches, next);
        if (!ends) {
            begin_lines(batches);
            look_at_all(batches);
        }
        if (next == NULL)
            wait_for_work(batches);
    }
}

/* ---- Opening and closing ---- */

static int by_creation(const void *a, const void *b) {
    const batch *left = *(batch *const *)a, *right = *(batch *const *)b;
    if (left->created != right->created)
        return left->created < right->created ? -1 : 1;
    return strcmp(left->id, right->id);
}

/* What was being cancelled when the server ended goes on being cancelled. */
static avo_status read_batches(batches *batches, uint32_t *damaged, avo_error *error) {
    DIR *list = opendir(store_folder(batches->store));
    if (list == NULL)
        return status_fail(error, AVO_ERROR_IO, "%s: %s", store_folder(batches->store),
                           strerror(errno));
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (strncmp(entry->d_name, "batch_", strlen("batch_")) != 0)
            continue;
        batch *read =
            batches->count < BATCHES_MAX ? batch_read(batches->store, entry->d_name) : NULL;
        if (read != NULL)
            batches->items[batches->count++] = read;
        else
            ++*damaged;
    }
    closedir(list);
    qsort(batches->items, batches->count, sizeof(batches->items[0]), by_creation);
    return AVO_OK;
}

static avo_status open_all(batches *batches, avo_error *error) {
    const server_options *options = batches->api->options;
    uint32_t damaged = 0;
    char line[160];
    AVO_TRY(store_open(options->state, options->state_bytes_max, &batches->store, &damaged, error));
    AVO_TRY(read_batches(batches, &damaged, error));
    if (damaged > 0) {
        snprintf(line, sizeof(line), "--state: %u descriptions of files or batches are damaged",
                 damaged);
        say(batches, line);
    }
    if (pthread_create(&batches->thread, NULL, batches_main, batches) != 0)
        return status_fail(error, AVO_ERROR_MEMORY, "cannot start a thread for batches");
    batches->runs = true;
    return AVO_OK;
}

avo_status batches_open(api *api, batches **out, avo_error *error) {
    pthread_condattr_t steady;
    batches *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "batches", sizeof(*opened));
    opened->api = api;
    opened->lines_max = api->options->batch_lines;
    pthread_mutex_init(&opened->lock, NULL);
    pthread_mutex_init(&opened->lines_lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&opened->work, &steady);
    pthread_condattr_destroy(&steady);
    avo_status status = open_all(opened, error);
    if (status != AVO_OK) {
        batches_close(opened);
        return status;
    }
    *out = opened;
    return AVO_OK;
}

void batches_close(batches *batches) {
    if (batches == NULL)
        return;
    if (batches->runs) {
        pthread_mutex_lock(&batches->lines_lock);
        batches->ends = batches->woken = true;
        pthread_cond_signal(&batches->work);
        pthread_mutex_unlock(&batches->lines_lock);
        pthread_join(batches->thread, NULL);
    }
    for (size_t i = 0; i < batches->count; i++)
        batch_free(batches->items[i]);
    store_close(batches->store);
    pthread_cond_destroy(&batches->work);
    pthread_mutex_destroy(&batches->lines_lock);
    pthread_mutex_destroy(&batches->lock);
    free(batches);
}
