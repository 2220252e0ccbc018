/* `avocet chat`: a conversation in the terminal. Full screen where there is one, plain lines where
 * there is none. */
#ifndef AVO_TUI_TUI_H
#define AVO_TUI_TUI_H

#include "base/status.h"

typedef struct tui_options {
    /* All outlive the chat. */
    const avo_model *model;
    avo_scheduler *scheduler;
    avo_registry *registry;
    const char *model_name;
    avo_sampling sampling;
    avo_repetition repetition;
    const char *const *stop;
    size_t stop_count;
    uint32_t max_new_tokens;
    const char *system;  /* NULL: none */
    const char *adapter; /* name in the registry to begin with; NULL: none */
    float adapter_weight;
    const char *load; /* a conversation to go on with; NULL: none */
    uint32_t threads, context_max;
    const char *device;
    uint64_t step_bytes; /* that every step reads at least */
    double read_limit;   /* bytes a second that this machine reads; 0: not measured */
    bool show_drafts;    /* accepted draft tokens in another shade */
} tui_options;

/* Whether this terminal can have the full screen; the error says why not. */
AVO_MUST_USE avo_status tui_screen_check(avo_error *error);
/* Full screen; returns when the user leaves. AVO_ERROR_UNSUPPORTED where the terminal cannot. */
AVO_MUST_USE avo_status tui_chat(const tui_options *options, avo_error *error);
/* Lines from standard input, answers to standard output. `interrupted` says whether Ctrl-C was
 * pressed since it was last asked; AVO_ERROR_CANCELLED after one at the prompt. */
AVO_MUST_USE avo_status tui_chat_plain(const tui_options *options, bool (*interrupted)(void),
                                       avo_error *error);

#endif
