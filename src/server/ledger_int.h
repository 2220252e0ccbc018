/* The ledger between its files: accounts (ledger.c), the log on disk (ledger_disk.c), reports
 * (ledger_report.c). One lock for all of it: what is done with it held takes microseconds. */
#ifndef AVO_SERVER_LEDGER_INT_H
#define AVO_SERVER_LEDGER_INT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/name_index.h"
#include "server/ledger.h"

#include <pthread.h>

typedef struct ledger_day {
    uint32_t day;
    bool dirty;
    ledger_totals totals;
} ledger_day;

struct ledger_account {
    ledger *ledger;
    text_view name; /* of `text` */
    char text[LEDGER_NAME_MAX + 1];
    bool labelled; /* has metrics of its own */

    double allowance; /* requests that may come at once; negative: full */
    uint64_t refilled_ns;
    uint32_t concurrent;
    ledger_totals since_start;
    uint64_t refused[4];

    int64_t window_ms; /* when the quota's window began; 0: not yet */
    uint64_t window_tokens;
    ledger_day *days; /* [day_count] ascending */
    uint32_t day_count, day_capacity;

    bool dirty, window_dirty; /* not on disk yet; `dirty`: in the ledger's list */
    ledger_account *next_dirty;
};

struct ledger {
    pthread_mutex_t lock;
    pthread_cond_t work, written;
    pthread_t thread;
    bool runs, ends;
    arena arena;
    name_index index;
    ledger_account *accounts; /* [LEDGER_ACCOUNTS_MAX], of which account_count */
    uint32_t account_count, labels;
    uint32_t rows; /* days of all accounts */
    ledger_account *dirty;
    uint64_t changes, changes_written; /* counted by ledger_touch */

    /* The thread's own, once it runs. */
    char *path; /* NULL: in memory only */
    int descriptor;
    uint64_t file_bytes, live_bytes; /* live: when it was last written as a whole */
    bool failed;                     /* the last write */
    ledger_say say;
};

/* ---- ledger.c; the lock is held ---- */
/* The totals of a day, made if needed; NULL without memory: the day is not counted. */
ledger_day *ledger_day_at(ledger_account *account, uint32_t day);
/* Something of the account is to be written. */
void ledger_touch(ledger_account *account);

/* ---- ledger_disk.c ---- */
/* Reads the file, or makes it, and starts the thread. */
AVO_MUST_USE avo_status ledger_disk_open(ledger *ledger, const char *path, avo_error *error);
/* The thread writes what is left and ends. */
void ledger_disk_close(ledger *ledger);

#endif
