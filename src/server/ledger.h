/* What every key has used and may still use, by name: rates, quotas, concurrent requests, totals
 * per day. The one place that counts, whatever carries the request: REST, batches or another
 * carrier call ledger_enter (through server/keys.h) before the work and ledger_charge after it.
 *
 * With a path, quota windows and totals survive restarts: a thread appends what has changed to a
 * log of records with checksums (ledger_format.h), so that no request waits for the disk. A process
 * that is killed loses what was charged since the thread's last write (milliseconds); a machine
 * that stops loses at most about a second, after which the log is synced. Rates and concurrent
 * requests are of the moment and begin anew.
 *
 * Why not SQLite: the data are a few thousand rows that fit into memory and are never queried on
 * disk, written by one process. A log that is replayed at the start is 400 lines with one
 * torn-write rule that a test tries at every byte; SQLite would add a library, two more files, and
 * its locks and synchronous commits to the threads of requests.
 *
 * Every account lives as long as the ledger. At most LEDGER_ACCOUNTS_MAX names; at most
 * LEDGER_DAYS_MAX days in all, after which the oldest day of all is forgotten.
 */
#ifndef AVO_SERVER_LEDGER_H
#define AVO_SERVER_LEDGER_H

#include "base/status.h"
#include "server/ledger_format.h"

#define LEDGER_ACCOUNTS_MAX 8192
#define LEDGER_DAYS_MAX     262144u /* rows of all accounts together */

typedef struct ledger ledger;
typedef struct ledger_account ledger_account;

/* Both clocks: rates follow the steady one, windows and days that of the calendar, which may jump
 * and outlives the process. */
typedef struct ledger_time {
    uint64_t steady_ns;
    int64_t unix_ms;
} ledger_time;
ledger_time ledger_now(void);

typedef struct ledger_limits {
    double requests_per_minute; /* 0: no limit, as below */
    uint64_t token_quota;
    double quota_seconds;
    uint32_t concurrent_max;
} ledger_limits;

typedef enum ledger_refusal {
    LEDGER_ADMITTED,
    LEDGER_QUOTA,
    LEDGER_RATE,
    LEDGER_CONCURRENT
} ledger_refusal;

/* What is left, for x-ratelimit-* headers. */
typedef struct ledger_headroom {
    uint64_t requests, tokens;                           /* that may come now */
    double requests_reset_seconds, tokens_reset_seconds; /* until all of them may again */
} ledger_headroom;

typedef struct ledger_verdict {
    ledger_refusal refusal;
    double retry_seconds; /* of a refusal */
    ledger_headroom left; /* after this request */
} ledger_verdict;

/* Lines to the operator about a disk that fails; called on the ledger's thread. */
typedef struct ledger_say {
    void (*say)(const void *context, const char *line);
    const void *context;
} ledger_say;

/* `path` NULL: in memory only; one process at a time has it. `labels`: so many accounts may have
 * metrics of their own. Refuses a file that is none, and one that is damaged further than a write
 * that was interrupted can explain.
 */
AVO_MUST_USE avo_status ledger_open(const char *path, uint32_t labels, ledger_say say, ledger **out,
                                    avo_error *error);
/* Writes and syncs what is left. NULL is ignored. */
void ledger_close(ledger *ledger);
/* Waits until everything so far has been written (not: synced). False: the disk failed. */
bool ledger_flush(ledger *ledger);

/* The account of a name, made if needed; NULL: there are too many, or no memory. */
ledger_account *ledger_account_of(ledger *ledger, text_view name);
const char *ledger_account_name(const ledger_account *account);

/* One more request: true where it is admitted, and then one ledger_leave is owed. */
bool ledger_enter(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                  ledger_verdict *verdict);
void ledger_leave(ledger_account *account);
/* Whether the token quota has something left; *retry_seconds: until it has. Takes nothing. */
bool ledger_has_tokens(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                       double *retry_seconds);
/* What a request has used. `usage->requests` and `refused` are added, too: work that did not come
 * through ledger_enter counts its own. */
void ledger_charge(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                   const ledger_totals *usage);

/* ---- Reports ---- */

typedef struct ledger_row {
    const char *name;
    uint32_t day;
    ledger_totals totals;
} ledger_row;
typedef bool (*ledger_see_row)(void *context, const ledger_row *row);
/* Days from `first` to `last` of one account (NULL: all), by name as accounts were made, then by
 * day, until `see` says false. Called with the ledger's lock. */
void ledger_rows(ledger *ledger, const ledger_account *account, uint32_t first, uint32_t last,
                 ledger_see_row see, void *context);
/* The window as it is now. */
void ledger_window(ledger_account *account, const ledger_limits *limits, const ledger_time *now,
                   int64_t *begin_ms, uint64_t *tokens);

/* Gives the account metrics of its own if any are left to give; it keeps them for good, so that no
 * counter falls when keys change. */
void ledger_label(ledger_account *account);
/* Since the start, for metrics: accounts with a label in the order in which they were made, then
 * the sum of all others (name "other", where there are any). */
typedef struct ledger_metric {
    const char *name;
    ledger_totals totals; /* but `refused`: */
    uint64_t refused[4];  /* by ledger_refusal */
    uint32_t concurrent;
} ledger_metric;
typedef void (*ledger_see_metric)(void *context, const ledger_metric *metric);
void ledger_metrics(ledger *ledger, ledger_see_metric see, void *context);

/* Days since 1970-01-01 of a time, and as "2026-11-19". */
uint32_t ledger_day_of(int64_t unix_ms);
void ledger_day_text(uint32_t day, char text[static 16]);
bool ledger_day_read(text_view text, uint32_t *day);

#endif
