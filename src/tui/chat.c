/* Asking and collecting. */
#include "tui/chat.h"

#include "base/clock.h"
#include "base/cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INCOMING_BYTES_MAX ((size_t)16 << 20)
#define RATE_NS            500000000u
#define NOTE_BYTES_MAX     2048u
#define LIMIT_SECONDS      0.5 /* of an answer from which on its rate is taken for a limit */

avo_status chat_open(chat *chat, const tui_options *options, avo_error *error) {
    memset(chat, 0, sizeof(*chat));
    chat->options = *options;
    chat->sampling = options->sampling;
    chat->max_new_tokens = options->max_new_tokens;
    chat->adapter.weight = options->adapter_weight;
    if (options->adapter != NULL)
        snprintf(chat->adapter.name, sizeof(chat->adapter.name), "%s", options->adapter);
    conversation_init(&chat->conversation);
    buffer_init(&chat->incoming, NULL, INCOMING_BYTES_MAX);
    buffer_init(&chat->incoming_spans, NULL, INCOMING_BYTES_MAX);
    chat->show_drafts = options->show_drafts;
    pthread_mutex_init(&chat->lock, NULL);
    avo_error why = {0};
    avo_status template = avo_chat_check(options->model, &why);
    chat->templated = template == AVO_OK;
    if (template != AVO_OK && template != AVO_ERROR_NOT_FOUND)
        return status_fail(error, template, "%s", why.text);
    AVO_TRY(chat_format_open(options->model, &chat->format, error));
    if (options->load != NULL)
        AVO_TRY(conversation_load(&chat->conversation, options->load, error));
    if (options->system != NULL &&
        conversation_set_system(&chat->conversation, text_from(options->system)) != AVO_OK)
        return status_no_memory(error, "the system message", strlen(options->system));
    return AVO_OK;
}

void chat_close(chat *chat) {
    chat_stop(chat);
    while (chat->busy) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        chat_collect(chat);
    }
    conversation_free(&chat->conversation);
    chat_format_close(chat->format);
    buffer_free(&chat->incoming);
    buffer_free(&chat->incoming_spans);
    pthread_mutex_destroy(&chat->lock);
}

void chat_note(chat *chat, const char *format, ...) {
    char text[NOTE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    message *note = conversation_add(&chat->conversation, SPEAKER_NOTE);
    if (note != NULL && message_append(note, text_from(text)) != AVO_OK)
        conversation_cut(&chat->conversation, chat->conversation.count - 1);
}

/* ---- What the delivery thread brings ---- */

/* The lock is held. */
static avo_status take_text(chat *chat, const avo_token_event *token) {
    AVO_TRY(buffer_append(&chat->incoming, token->text, token->text_bytes));
    message_span span = {chat->incoming.size, token->drafted};
    return buffer_append(&chat->incoming_spans, &span, sizeof(span));
}

static bool on_event(void *context, const avo_event *event) {
    chat *chat = context;
    pthread_mutex_lock(&chat->lock);
    if (event->kind == AVO_EVENT_TOKEN) {
        chat->last_ns = clock_now_ns();
        if (chat->tokens == 0)
            chat->first_ns = chat->last_ns;
        chat->tokens += event->token->token >= 0;
        if (take_text(chat, event->token) != AVO_OK)
            chat->full = true;
    } else if (event->kind == AVO_EVENT_FINISHED) {
        chat->result = *event->result;
        chat->over = true;
    } else if (event->kind == AVO_EVENT_FAILED) {
        chat->failure = *event->error;
        chat->over = true;
    }
    bool more = !chat->full;
    pthread_mutex_unlock(&chat->lock);
    return more;
}

/* Tokens a second of every half second, for the small graph. */
static void note_rate(chat *chat, uint32_t tokens, uint64_t now) {
    if (chat->rates_ns == 0)
        chat->rates_ns = now;
    while (now - chat->rates_ns >= RATE_NS) {
        memmove(chat->rates, chat->rates + 1, sizeof(chat->rates) - sizeof(chat->rates[0]));
        chat->rates[CHAT_RATES - 1] =
            (float)(tokens - chat->rates_tokens) / ((float)RATE_NS * 1e-9f);
        chat->rates_tokens = tokens;
        chat->rates_ns += RATE_NS;
    }
}

static void conclude(chat *chat) {
    chat->busy = false;
    chat->ended_ns = chat->result.finish == AVO_FINISH_CANCELLED ? 0 : clock_now_ns();
    if (chat->conversation.messages[chat->answer].text.size == 0 && chat->failure.status != AVO_OK)
        conversation_remove(&chat->conversation, chat->answer);
    if (chat->failure.status != AVO_OK) {
        chat_note(chat, "The request failed: %s", chat->failure.text);
        return;
    }
    chat->context_used = chat->result.prompt_tokens + chat->result.new_tokens;
    if (chat->retry_temperature > 0.0f)
        chat_note(chat,
                  "Sampled with temperature %g, seed %llu; with temperature 0 every answer is the "
                  "same (/set temperature).",
                  (double)chat->retry_temperature, (unsigned long long)chat->sampling.seed);
    switch (chat->result.finish) {
    case AVO_FINISH_CANCELLED:
        chat_note(chat, chat->full ? "Stopped: the answer is longer than 16 MiB."
                                   : "Stopped. /retry asks again.");
        break;
    case AVO_FINISH_CONTEXT:
        chat_note(
            chat,
            "The context of %u tokens is full. /clear starts over, /save keeps this conversation.",
            chat->options.context_max);
        break;
    case AVO_FINISH_LENGTH:
        chat_note(chat, "Stopped after %u tokens (/set max_tokens).", chat->result.new_tokens);
        break;
    case AVO_FINISH_REPETITION:
        chat_note(chat, "Stopped: the answer repeats itself. /retry asks again.");
        break;
    default:
        break;
    }
}

/* The lock is held. */
static avo_status append_incoming(chat *chat, message *message) {
    const message_span *spans = (const message_span *)(const void *)chat->incoming_spans.data;
    size_t count = chat->incoming_spans.size / sizeof(*spans), at = 0;
    for (size_t i = 0; i < count; at = spans[i++].end)
        AVO_TRY(message_append_tokens(
            message, (text_view){chat->incoming.data + at, spans[i].end - at}, spans[i].drafted));
    return AVO_OK;
}

bool chat_collect(chat *chat) {
    if (!chat->busy) {
        note_rate(chat, chat->rates_tokens, clock_now_ns());
        return false;
    }
    pthread_mutex_lock(&chat->lock);
    message *last = &chat->conversation.messages[chat->answer]; /* notes may stand behind it */
    bool changed = chat->incoming.size > 0;
    bool over = chat->over;
    if (changed && append_incoming(chat, last) != AVO_OK)
        chat->full = true;
    chat->incoming.size = chat->incoming_spans.size = 0;
    uint32_t tokens = chat->tokens;
    if (tokens > 0)
        chat->first_token_seconds = clock_seconds(chat->asked_ns, chat->first_ns);
    if (tokens > 1 && chat->last_ns > chat->first_ns) {
        chat->rate_seconds = clock_seconds(chat->first_ns, chat->last_ns);
        chat->rate = (double)(tokens - 1) / chat->rate_seconds;
    }
    pthread_mutex_unlock(&chat->lock);
    chat->context_used = chat->prompt_tokens + tokens;
    note_rate(chat, tokens, clock_now_ns());
    if (over)
        conclude(chat);
    return changed || over;
}

/* ---- Asking ---- */

/* All that was said as one text, for models without a template. */
static avo_status whole_text(const chat *chat, buffer *text) {
    const conversation *said = &chat->conversation;
    AVO_TRY(buffer_append(text, said->system.data, said->system.size));
    for (size_t i = 0; i < said->count; i++)
        if (said->messages[i].speaker != SPEAKER_NOTE)
            AVO_TRY(buffer_append(text, said->messages[i].text.data, said->messages[i].text.size));
    return buffer_terminate(text);
}

static avo_status count_tokens(const chat *chat, const avo_request *request, uint32_t *tokens,
                               avo_error *error) {
    size_t count = 0;
    avo_status status =
        request->chat != NULL
            ? avo_chat_tokenize(chat->options.model, NULL, 0, request->chat, NULL, 0, &count, error)
            : avo_tokenize(chat->options.model, request->text, strlen(request->text),
                           request->text_flags, NULL, 0, &count, error);
    if (status != AVO_OK && status != AVO_ERROR_LIMIT)
        return status;
    if (count >= chat->options.context_max)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "the conversation has %zu tokens, the context holds %u; /clear starts "
                           "over, /save keeps this conversation",
                           count, chat->options.context_max);
    *tokens = (uint32_t)count;
    return AVO_OK;
}

static avo_status submit(chat *chat, avo_request *request, avo_error *error) {
    avo_named_adapter adapter = {chat->adapter.name, chat->adapter.weight};
    if (chat->adapter.name[0] != '\0') {
        request->named_adapters = &adapter;
        request->named_adapter_count = 1;
    }
    avo_sampling sampling = chat->sampling;
    if (chat->retry_temperature > 0.0f)
        sampling.temperature = chat->retry_temperature;
    request->sampling = &sampling;
    request->max_new_tokens = chat->max_new_tokens;
    request->repetition = chat->options.repetition;
    request->stop = chat->options.stop;
    request->stop_count = chat->options.stop_count;
    request->on_event = on_event;
    request->on_event_context = chat;
    AVO_TRY(count_tokens(chat, request, &chat->prompt_tokens, error));
    chat->over = chat->full = false;
    chat->failure = (avo_error){0};
    chat->tokens = chat->rates_tokens = 0;
    chat->rates_ns = 0;
    chat->asked_ns = clock_now_ns();
    /* The answer's place is made first: events may come before this returns. */
    chat->answer = chat->conversation.count;
    if (conversation_add(&chat->conversation, SPEAKER_ASSISTANT) == NULL)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the conversation is full (%u messages); /clear starts over",
                           CONVERSATION_MESSAGES_MAX);
    avo_status status =
        avo_scheduler_submit(chat->options.scheduler, request, &chat->request, NULL, error);
    if (status != AVO_OK)
        conversation_cut(&chat->conversation, chat->conversation.count - 1);
    chat->busy = status == AVO_OK;
    return status;
}

/* Asks with what the conversation holds. */
static avo_status ask(chat *chat, avo_error *error) {
    avo_request request = AVO_REQUEST_INIT;
    avo_chat_options options = AVO_CHAT_OPTIONS_INIT;
    buffer text;
    buffer_init(&text, NULL, CONVERSATION_BYTES_MAX);
    avo_status status = AVO_OK;
    if (chat->templated) {
        status =
            conversation_variables(&chat->conversation, chat->format, &options.variables, error);
        request.chat = &options;
    } else {
        if (whole_text(chat, &text) != AVO_OK)
            status = status_no_memory(error, "the text", text.size);
        request.text = text.data;
        request.text_flags = AVO_TOKENIZE_BEGIN;
    }
    AVO_THEN(status, submit(chat, &request, error));
    avo_value_close(options.variables);
    buffer_free(&text);
    return status;
}

avo_status chat_ask(chat *chat, text_view text, avo_error *error) {
    if (chat->busy)
        return status_fail(error, AVO_ERROR_FULL, "an answer is being generated; Ctrl-C stops it");
    size_t before = chat->conversation.count;
    message *said = conversation_add(&chat->conversation, SPEAKER_USER);
    if (said == NULL)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the conversation is full (%u messages); /clear starts over",
                           CONVERSATION_MESSAGES_MAX);
    chat->retry_temperature = 0.0f;
    avo_status status = message_append(said, text);
    if (status != AVO_OK)
        status = status_no_memory(error, "the message", text.size);
    else
        status = ask(chat, error);
    if (status != AVO_OK)
        conversation_cut(&chat->conversation, before); /* the text goes back to the input */
    return status;
}

avo_status chat_retry(chat *chat, avo_error *error) {
    if (chat->busy)
        return status_fail(error, AVO_ERROR_FULL, "an answer is being generated; Ctrl-C stops it");
    size_t count = chat->conversation.count;
    while (count > 0 && chat->conversation.messages[count - 1].speaker != SPEAKER_USER)
        count--;
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "there is no question yet");
    for (size_t i = chat->conversation.count; i > count; i--) /* notes stay */
        if (chat->conversation.messages[i - 1].speaker != SPEAKER_NOTE)
            conversation_remove(&chat->conversation, i - 1);
    chat->sampling.seed++;
    chat->retry_temperature = chat->sampling.temperature > 0.0f ? 0.0f : CHAT_RETRY_TEMPERATURE;
    return ask(chat, error);
}

void chat_stop(chat *chat) {
    if (chat->busy)
        (void)avo_scheduler_cancel(chat->options.scheduler, chat->request);
}

/* ---- Figures ---- */

double chat_share(double bandwidth, double seconds, double *limit) {
    if (*limit <= 0.0)
        return -1.0;
    if (bandwidth > *limit && seconds >= LIMIT_SECONDS)
        *limit = bandwidth;
    return bandwidth < *limit ? bandwidth / *limit : 1.0;
}

void chat_measure(chat *chat, chat_figures *figures) {
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(chat->options.scheduler, &info);
    /* Tokens of accepted drafts take no step of their own. */
    double steps =
        info.new_tokens == 0 ? 1.0 : 1.0 - (double)info.accepted_tokens / (double)info.new_tokens;
    *figures = (chat_figures){.rate = chat->rate,
                              .first_token_seconds = chat->first_token_seconds,
                              .context_used = chat->context_used,
                              .context_max = chat->options.context_max,
                              .pages_used = info.pages_used,
                              .pages_cached = info.pages_cached,
                              .pages = info.pages_used + info.pages_cached + info.pages_free,
                              .resident_bytes = process_resident_bytes(),
                              .bandwidth = chat->rate * steps * (double)chat->options.step_bytes,
                              .drafted_tokens = info.drafted_tokens,
                              .accepted_tokens = info.accepted_tokens};
    figures->bandwidth_share =
        chat_share(figures->bandwidth, chat->rate_seconds, &chat->options.read_limit);
}
