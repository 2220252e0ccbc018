/* What a key may still use, in the headers that OpenAI's clients read. */
#include "server/server_int.h"

#include <stdio.h>

/* As Go writes durations, which is how OpenAI sends them: "1s", "6m0s", "24h0m0s", "120ms". */
static void write_duration(double seconds, char text[static 48]) {
    if (!(seconds > 0.0))
        seconds = 0.0;
    if (seconds > 1e9)
        seconds = 1e9;
    if (seconds < 1.0) {
        snprintf(text, 48, "%ums", (unsigned)(seconds * 1e3));
        return;
    }
    unsigned whole = (unsigned)seconds;
    unsigned hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
    if (hours > 0)
        snprintf(text, 48, "%uh%um%us", hours, minutes, rest);
    else if (minutes > 0)
        snprintf(text, 48, "%um%us", minutes, rest);
    else
        snprintf(text, 48, "%us", rest);
}

static void tell(exchange *exchange, const char *what, uint64_t limit, uint64_t left,
                 double reset_seconds) {
    char name[64], text[48];
    snprintf(name, sizeof(name), "x-ratelimit-limit-%s", what);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)limit);
    exchange_set_header(exchange, name, text);
    snprintf(name, sizeof(name), "x-ratelimit-remaining-%s", what);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)left);
    exchange_set_header(exchange, name, text);
    snprintf(name, sizeof(name), "x-ratelimit-reset-%s", what);
    write_duration(reset_seconds, text);
    exchange_set_header(exchange, name, text);
}

void rates_tell(exchange *exchange, const ledger_limits *limits, const ledger_headroom *left) {
    if (limits->requests_per_minute > 0.0)
        tell(exchange, "requests", (uint64_t)limits->requests_per_minute, left->requests,
             left->requests_reset_seconds);
    if (limits->token_quota > 0)
        tell(exchange, "tokens", limits->token_quota, left->tokens, left->tokens_reset_seconds);
}
