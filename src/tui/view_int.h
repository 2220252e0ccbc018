/* The full screen, between its files: what is shown (view.c) and what keys do (keys.c). */
#ifndef AVO_TUI_VIEW_INT_H
#define AVO_TUI_VIEW_INT_H

#include "tui/chat.h"
#include "tui/editor.h"
#include "tui/layout.h"

/* A message as it is laid out; made anew when its text or the width has changed. */
typedef struct laid_message {
    layout layout;
    size_t bytes; /* of the text then */
    speaker speaker;
    const char *data;
    int columns;
    bool drafts; /* these are shown */
} laid_message;

typedef struct view {
    chat chat;
    editor editor;
    laid_message *laid;
    size_t laid_count;
    buffer taken;
    buffer waiting; /* messages that wait for the end of the answer, each with its 0 */
    size_t waiting_count;
    size_t scroll; /* lines between the end and what is shown */
    size_t lines;  /* of the transcript, when last drawn */
    bool colours, leaving, pasting;
    bool typed_before; /* keys come from before the screen: Enter is a newline there */
    int transcript_rows;
} view;

/* What function keys are called besides curses' own. */
#define KEY_PASTE     (KEY_MAX + 1) /* bracketed paste: what follows is text, newlines too */
#define KEY_PASTE_END (KEY_MAX + 2)

/* Waits a little for keys and does what those that are there say. */
void view_take_keys(view *view);
/* What was typed while the model was loaded. The terminal then still made a newline of Enter. */
void view_take_typed(view *view);
/* Sends the next message that waits, where no answer is on its way. */
void view_send_waiting(view *view);

#endif
