/* What the ledger tells: rows of days, sums for metrics, and days as text. */
#include "server/ledger_int.h"

#include <stdio.h>
#include <time.h>

void ledger_rows(ledger *ledger, const ledger_account *account, uint32_t first, uint32_t last,
                 ledger_see_row see, void *context) {
    bool more = true;
    for (uint32_t i = 0; more; i++) {
        pthread_mutex_lock(&ledger->lock); /* for one account: requests do not wait for a report */
        bool there = i < ledger->account_count;
        const ledger_account *one = &ledger->accounts[i];
        bool wanted = there && (account == NULL || one == account);
        for (uint32_t d = 0; more && wanted && d < one->day_count; d++) {
            ledger_row row = {one->text, one->days[d].day, one->days[d].totals};
            if (row.day >= first && row.day <= last)
                more = see(context, &row);
        }
        pthread_mutex_unlock(&ledger->lock);
        more = more && there;
    }
}

void ledger_label(ledger_account *account) {
    pthread_mutex_lock(&account->ledger->lock);
    if (!account->labelled && account->ledger->labels > 0) {
        account->labelled = true;
        account->ledger->labels--;
    }
    pthread_mutex_unlock(&account->ledger->lock);
}

static void add_metric(ledger_metric *sum, const ledger_account *account) {
    const ledger_totals *more = &account->since_start;
    sum->totals.requests += more->requests;
    sum->totals.prompt_tokens += more->prompt_tokens;
    sum->totals.cached_tokens += more->cached_tokens;
    sum->totals.new_tokens += more->new_tokens;
    for (size_t i = 0; i < 4; i++)
        sum->refused[i] += account->refused[i];
    sum->concurrent += account->concurrent;
}

void ledger_metrics(ledger *ledger, ledger_see_metric see, void *context) {
    ledger_metric others = {.name = "other"};
    bool any = false;
    pthread_mutex_lock(&ledger->lock);
    for (uint32_t i = 0; i < ledger->account_count; i++) {
        const ledger_account *account = &ledger->accounts[i];
        ledger_metric own = {.name = account->text};
        any = any || !account->labelled;
        add_metric(account->labelled ? &own : &others, account);
        if (account->labelled)
            see(context, &own);
    }
    pthread_mutex_unlock(&ledger->lock);
    if (any)
        see(context, &others);
}

void ledger_day_text(uint32_t day, char text[static 16]) {
    time_t seconds = (time_t)day * 86400;
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL || strftime(text, 16, "%Y-%m-%d", &parts) == 0)
        snprintf(text, 16, "day %u", day);
}

/* Days before `year`-03-01, counted from a year 0 that begins in March: leap days come last. */
static int64_t days_of(int64_t year, int64_t month, int64_t day) {
    year -= month <= 2;
    int64_t era = year / 400, of_era = year % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool read_digits(text_view text, size_t at, size_t count, int64_t *value) {
    *value = 0;
    for (size_t i = at; i < at + count; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        *value = *value * 10 + (text.data[i] - '0');
    }
    return true;
}

bool ledger_day_read(text_view text, uint32_t *day) {
    int64_t year = 0, month = 0, number = 0;
    if (text.size != 10 || text.data[4] != '-' || text.data[7] != '-' ||
        !read_digits(text, 0, 4, &year) || !read_digits(text, 5, 2, &month) ||
        !read_digits(text, 8, 2, &number) || year < 1970 || month < 1 || month > 12)
        return false;
    *day = (uint32_t)days_of(year, month, number);
    char back[16]; /* 2026-02-30 is another day when it is written again */
    ledger_day_text(*day, back);
    return memcmp(back, text.data, 10) == 0;
}
