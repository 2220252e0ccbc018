/* A chat with a model through the scheduler: asking, collecting what comes, stopping; commands that
 * begin with a slash; and the figures that a reader likes to watch. No screen: that is tui.h's
 * business, which looks at it a few times a second.
 */
#ifndef AVO_TUI_CHAT_H
#define AVO_TUI_CHAT_H

#include "tui/conversation.h"
#include "tui/tui.h"

#include <pthread.h>

#define CHAT_RATES             48u /* half seconds of tokens a second, newest last */
#define CHAT_RETRY_TEMPERATURE 0.8f

typedef struct chat_adapter {
    char name[128]; /* empty: the base model */
    float weight;
} chat_adapter;

typedef struct chat {
    tui_options options;
    conversation conversation;
    avo_sampling sampling;
    uint32_t max_new_tokens; /* 0: until the context is full */
    chat_adapter adapter;
    bool templated; /* the model has a chat template */
    chat_format *format;
    bool show_drafts;

    /* The answer on its way. */
    bool busy;
    float retry_temperature; /* 0, or what it is sampled with because the setting is 0 */
    size_t answer;           /* the message that it becomes */
    uint64_t request;
    uint64_t asked_ns;
    uint64_t ended_ns;    /* when the last answer ended by itself; 0: it was stopped, or none yet */
    pthread_mutex_t lock; /* what follows: the delivery thread */
    buffer incoming;
    buffer incoming_spans; /* message_span each, of `incoming` */
    bool over;
    bool full; /* no memory for more text */
    avo_error failure;
    avo_result result;
    uint64_t first_ns, last_ns;
    uint32_t tokens;

    /* Figures, of the reader's thread. */
    uint32_t context_used, prompt_tokens;
    float rates[CHAT_RATES];
    uint64_t rates_ns;     /* the end of the newest */
    uint32_t rates_tokens; /* tokens by then */
    double first_token_seconds;
    double rate;         /* tokens a second of this answer, or of the last */
    double rate_seconds; /* that it was seen for */
    bool quit;
} chat;

AVO_MUST_USE avo_status chat_open(chat *chat, const tui_options *options, avo_error *error);
/* Stops what runs and waits for its last event. */
void chat_close(chat *chat);

/* Sends what the user has said; the answer becomes the last message. */
AVO_MUST_USE avo_status chat_ask(chat *chat, text_view text, avo_error *error);
/* Takes the last answer back and asks again, with the next seed. Where the temperature is 0 every
 * answer would be the same: this one is sampled with CHAT_RETRY_TEMPERATURE, and a note says so. */
AVO_MUST_USE avo_status chat_retry(chat *chat, avo_error *error);
/* The answer ends within a step and keeps what it has. */
void chat_stop(chat *chat);
/* Moves what has come into the last message; true: something has changed. */
bool chat_collect(chat *chat);
/* A line for the reader alone. */
void chat_note(chat *chat, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What the user has typed: a command, or something to send. */
void chat_enter(chat *chat, text_view text);
/* Whether that has to wait for the end of the answer; commands and leaving do not. */
bool chat_waits(const chat *chat, text_view text);
/* The commands that begin with `prefix`: for completion. NULL ends. */
const char *chat_command_name(size_t index);

/* ---- Figures ---- */
typedef struct chat_figures {
    double rate, first_token_seconds;
    uint32_t context_used, context_max;
    uint32_t pages_used, pages_cached, pages;
    uint64_t resident_bytes;
    double bandwidth_share;                   /* of what memory gives; negative: unknown */
    double bandwidth;                         /* bytes a second that decoding reads, at least */
    uint64_t drafted_tokens, accepted_tokens; /* draft tokens of all answers so far */
} chat_figures;
void chat_measure(chat *chat, chat_figures *figures);
/* The share of the limit, at most 1; negative without one. The limit was measured once, perhaps
 * while others read as well: who reads more for `seconds` has found a better one. Two tokens in a
 * row prove nothing, so a short reading leaves it. */
double chat_share(double bandwidth, double seconds, double *limit);
/* The adapter that answers and its weight, where that is not 1. */
#define CHAT_ADAPTER_TEXT 160u
void chat_adapter_text(const chat *chat, char text[CHAT_ADAPTER_TEXT]);

#endif
