/* Accounts: what a name has used, and whether it may use more. */
#include "server/ledger_int.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_MS INT64_C(86400000)

ledger_time ledger_now(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (ledger_time){clock_now_ns(), (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000};
}

uint32_t ledger_day_of(int64_t unix_ms) {
    return unix_ms < 0 ? 0 : (uint32_t)(unix_ms / DAY_MS);
}

/* ---- Opening ---- */

avo_status ledger_open(const char *path, uint32_t labels, ledger_say say, ledger **out,
                       avo_error *error) {
    *out = NULL;
    ledger *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "the ledger", sizeof(*opened));
    opened->descriptor = -1;
    opened->labels = labels;
    opened->say = say;
    pthread_mutex_init(&opened->lock, NULL);
    pthread_condattr_t steady; /* the thread waits by a clock that does not jump */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&opened->work, &steady);
    pthread_condattr_destroy(&steady);
    pthread_cond_init(&opened->written, NULL);
    arena_init(&opened->arena, NULL, SIZE_MAX);
    opened->accounts = calloc(LEDGER_ACCOUNTS_MAX, sizeof(*opened->accounts));
    avo_status status = opened->accounts == NULL ? AVO_ERROR_MEMORY : AVO_OK;
    AVO_THEN(status, name_index_open(&opened->index, &opened->arena, LEDGER_ACCOUNTS_MAX));
    if (status != AVO_OK)
        status =
            status_no_memory(error, "the ledger", LEDGER_ACCOUNTS_MAX * sizeof(*opened->accounts));
    else if (path != NULL)
        status = ledger_disk_open(opened, path, error);
    if (status != AVO_OK) {
        ledger_close(opened);
        return status;
    }
    *out = opened;
    return AVO_OK;
}

void ledger_close(ledger *ledger) {
    if (ledger == NULL)
        return;
    ledger_disk_close(ledger);
    for (uint32_t i = 0; i < ledger->account_count; i++)
        free(ledger->accounts[i].days);
    free(ledger->accounts);
    arena_free(&ledger->arena);
    pthread_cond_destroy(&ledger->written);
    pthread_cond_destroy(&ledger->work);
    pthread_mutex_destroy(&ledger->lock);
    free(ledger);
}

/* ---- Accounts ---- */

static name_column names_of(const ledger *ledger) {
    return NAME_COLUMN(ledger->accounts, ledger_account, name);
}

static ledger_account *account_make(ledger *ledger, text_view name) {
    if (ledger->account_count == LEDGER_ACCOUNTS_MAX || name.size == 0 ||
        name.size > LEDGER_NAME_MAX)
        return NULL;
    ledger_account *account = &ledger->accounts[ledger->account_count];
    memcpy(account->text, name.data, name.size);
    account->name = (text_view){account->text, name.size};
    account->ledger = ledger;
    account->allowance = -1.0;
    if (!name_index_add(&ledger->index, names_of(ledger), ledger->account_count))
        return NULL;
    ledger->account_count++;
    return account;
}

ledger_account *ledger_account_of(ledger *ledger, text_view name) {
    pthread_mutex_lock(&ledger->lock);
    size_t place = name_index_find(&ledger->index, names_of(ledger), name);
    ledger_account *account =
        place != NAME_INDEX_NONE ? &ledger->accounts[place] : account_make(ledger, name);
    pthread_mutex_unlock(&ledger->lock);
    return account;
}

const char *ledger_account_name(const ledger_account *account) {
    return account->text;
}

void ledger_touch(ledger_account *account) {
    ledger *ledger = account->ledger;
    ledger->changes++;
    if (ledger->path == NULL || account->dirty)
        return;
    account->dirty = true;
    account->next_dirty = ledger->dirty;
    ledger->dirty = account;
    pthread_cond_signal(&ledger->work);
}

/* ---- Days ---- */

/* The oldest day of all accounts is forgotten; its records leave the file when it is next written
 * as a whole. */
static void forget_oldest(ledger *ledger) {
    uint32_t oldest = UINT32_MAX;
    for (uint32_t i = 0; i < ledger->account_count; i++)
        if (ledger->accounts[i].day_count > 0 && ledger->accounts[i].days[0].day < oldest)
            oldest = ledger->accounts[i].days[0].day;
    for (uint32_t i = 0; i < ledger->account_count; i++) {
        ledger_account *account = &ledger->accounts[i];
        if (account->day_count == 0 || account->days[0].day != oldest)
            continue;
        account->day_count--;
        ledger->rows--;
        memmove(account->days, account->days + 1, account->day_count * sizeof(ledger_day));
    }
}

static bool day_room(ledger_account *account) {
    if (account->day_count < account->day_capacity)
        return true;
    uint32_t larger = account->day_capacity == 0 ? 4 : account->day_capacity * 2;
    ledger_day *moved = realloc(account->days, larger * sizeof(*moved));
    if (moved == NULL)
        return false;
    account->days = moved;
    account->day_capacity = larger;
    return true;
}

ledger_day *ledger_day_at(ledger_account *account, uint32_t day) {
    uint32_t at = account->day_count; /* the last one as a rule */
    while (at > 0 && account->days[at - 1].day > day)
        at--;
    if (at > 0 && account->days[at - 1].day == day)
        return &account->days[at - 1];
    if (account->ledger->rows >= LEDGER_DAYS_MAX) {
        forget_oldest(account->ledger);
        return ledger_day_at(account, day);
    }
    if (!day_room(account))
        return NULL;
    memmove(account->days + at + 1, account->days + at,
            (account->day_count - at) * sizeof(ledger_day));
    account->days[at] = (ledger_day){.day = day};
    account->day_count++;
    account->ledger->rows++;
    return &account->days[at];
}

static void add_totals(ledger_totals *sum, const ledger_totals *more) {
    sum->requests += more->requests;
    sum->refused += more->refused;
    sum->prompt_tokens += more->prompt_tokens;
    sum->cached_tokens += more->cached_tokens;
    sum->new_tokens += more->new_tokens;
}

static void count(ledger_account *account, const ledger_time *now, const ledger_totals *more) {
    ledger_day *day = ledger_day_at(account, ledger_day_of(now->unix_ms));
    if (day != NULL) {
        add_totals(&day->totals, more);
        day->dirty = true;
    }
    add_totals(&account->since_start, more);
    ledger_touch(account);
}

/* ---- Rates and quotas ---- */

/* A minute's worth may come at once; after that as fast as the rate. */
static void refill(ledger_account *account, double most, uint64_t now_ns) {
    if (account->allowance < 0.0)
        account->allowance = most;
    else if (now_ns > account->refilled_ns)
        account->allowance += (double)(now_ns - account->refilled_ns) * 1e-9 * most / 60.0;
    account->refilled_ns = now_ns;
    account->allowance = account->allowance > most ? most : account->allowance;
}

/* A window that lies further ahead than its own length was written under another clock. */
static void turn_window(ledger_account *account, const ledger_limits *limits, int64_t now_ms) {
    double age = (double)(now_ms - account->window_ms) * 1e-3;
    if (account->window_ms != 0 && age < limits->quota_seconds && age > -limits->quota_seconds)
        return;
    account->window_ms = now_ms;
    account->window_tokens = 0;
    account->window_dirty = true;
    ledger_touch(account);
}

static double window_left(const ledger_account *account, const ledger_limits *limits,
                          int64_t now_ms) {
    return limits->quota_seconds - (double)(now_ms - account->window_ms) * 1e-3;
}

static bool quota_used(ledger_account *account, const ledger_limits *limits, int64_t now_ms) {
    if (limits->token_quota == 0)
        return false;
    turn_window(account, limits, now_ms);
    return account->window_tokens >= limits->token_quota;
}

static ledger_headroom headroom(const ledger_account *account, const ledger_limits *limits,
                                const ledger_time *now) {
    ledger_headroom left = {UINT64_MAX, UINT64_MAX, 0.0, 0.0};
    if (limits->requests_per_minute > 0.0) {
        double missing = limits->requests_per_minute - account->allowance;
        left.requests = (uint64_t)account->allowance;
        left.requests_reset_seconds = missing * 60.0 / limits->requests_per_minute;
    }
    if (limits->token_quota > 0) {
        bool over = account->window_tokens >= limits->token_quota;
        left.tokens = over ? 0 : limits->token_quota - account->window_tokens;
        left.tokens_reset_seconds = window_left(account, limits, now->unix_ms);
    }
    return left;
}

/* A refusal takes nothing. */
static ledger_refusal judge(ledger_account *account, const ledger_limits *limits,
                            const ledger_time *now, double *retry_seconds) {
    double most = limits->requests_per_minute;
    if (most > 0.0)
        refill(account, most, now->steady_ns);
    if (quota_used(account, limits, now->unix_ms)) {
        *retry_seconds = window_left(account, limits, now->unix_ms);
        return LEDGER_QUOTA;
    }
    if (limits->concurrent_max > 0 && account->concurrent >= limits->concurrent_max) {
        *retry_seconds = 1.0; /* when one ends, which nobody knows */
        return LEDGER_CONCURRENT;
    }
    if (most > 0.0 && account->allowance < 1.0) {
        *retry_seconds = (1.0 - account->allowance) * 60.0 / most;
        return LEDGER_RATE;
    }
    if (most > 0.0)
        account->allowance -= 1.0;
    return LEDGER_ADMITTED;
}

bool ledger_enter(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                  ledger_verdict *verdict) {
    static const ledger_totals one = {.requests = 1}, none = {.refused = 1};
    *verdict = (ledger_verdict){0};
    pthread_mutex_lock(&account->ledger->lock);
    verdict->refusal = judge(account, limits, now, &verdict->retry_seconds);
    verdict->left = headroom(account, limits, now);
    bool admitted = verdict->refusal == LEDGER_ADMITTED;
    account->concurrent += admitted;
    account->refused[verdict->refusal] += !admitted;
    count(account, now, admitted ? &one : &none);
    pthread_mutex_unlock(&account->ledger->lock);
    return admitted;
}

void ledger_leave(ledger_account *account) {
    pthread_mutex_lock(&account->ledger->lock);
    account->concurrent--;
    pthread_mutex_unlock(&account->ledger->lock);
}

bool ledger_has_tokens(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                       double *retry_seconds) {
    pthread_mutex_lock(&account->ledger->lock);
    bool used = quota_used(account, limits, now->unix_ms);
    *retry_seconds = used ? window_left(account, limits, now->unix_ms) : 0.0;
    pthread_mutex_unlock(&account->ledger->lock);
    return !used;
}

void ledger_charge(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                   const ledger_totals *usage) {
    pthread_mutex_lock(&account->ledger->lock);
    if (limits->token_quota > 0) {
        turn_window(account, limits, now->unix_ms);
        account->window_tokens += usage->prompt_tokens + usage->new_tokens;
        account->window_dirty = true;
    }
    count(account, now, usage);
    pthread_mutex_unlock(&account->ledger->lock);
}

void ledger_window(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                   int64_t *begin_ms, uint64_t *tokens) {
    pthread_mutex_lock(&account->ledger->lock);
    if (limits->token_quota > 0)
        turn_window(account, limits, now->unix_ms);
    *begin_ms = account->window_ms;
    *tokens = account->window_tokens;
    pthread_mutex_unlock(&account->ledger->lock);
}
