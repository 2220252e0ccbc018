/* What begins with a slash. */
#include "tui/chat.h"

#include "base/number.h"
#include "engine/request.h"
#include "sample/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat_command {
    const char *name, *arguments, *help;
    void (*run)(chat *chat, text_view argument);
} chat_command;

static text_view trim(text_view text) {
    while (text.size > 0 && strchr(" \t\n", text.data[0]) != NULL)
        text = (text_view){text.data + 1, text.size - 1};
    while (text.size > 0 && strchr(" \t\n", text.data[text.size - 1]) != NULL)
        text.size--;
    return text;
}

/* The first word; the rest stays in *text. */
static text_view take_word(text_view *text) {
    size_t bytes = 0;
    while (bytes < text->size && strchr(" \t\n", text->data[bytes]) == NULL)
        bytes++;
    text_view word = {text->data, bytes};
    *text = trim((text_view){text->data + bytes, text->size - bytes});
    return word;
}

/* A terminated copy, or a note that it is too long. */
static bool copy_text(chat *chat, text_view text, char *copy, size_t capacity) {
    if (text.size >= capacity || memchr(text.data, 0, text.size) != NULL) {
        chat_note(chat, "The text is too long.");
        return false;
    }
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    return true;
}

static bool number_parse(text_view text, double *value) {
    char copy[64], *end;
    if (text.size == 0 || text.size >= sizeof(copy))
        return false;
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    *value = number_from_text(copy, &end);
    return *end == '\0' && *value == *value;
}

static bool idle(chat *chat) {
    if (chat->busy)
        chat_note(chat, "An answer is being generated; Ctrl-C stops it.");
    return !chat->busy;
}

/* ---- Adapters ---- */

typedef struct adapter_names {
    buffer text;
    size_t count;
} adapter_names;

static void see_adapter(void *context, const avo_registry_entry *entry) {
    adapter_names *names = context;
    names->count++;
    (void)!buffer_format(&names->text, "%s%s", names->count > 1 ? ", " : "", entry->name);
}

static void list_adapters(chat *chat) {
    adapter_names names = {.count = 0};
    buffer_init(&names.text, NULL, 4096);
    avo_registry_list(chat->options.registry, see_adapter, &names);
    char now[CHAT_ADAPTER_TEXT];
    chat_adapter_text(chat, now);
    if (names.count == 0)
        chat_note(chat, "Adapter: %s. None is loaded: /adapter load NAME PATH.", now);
    else
        chat_note(chat, "Adapter: %s. Loaded: %.*s. /adapter NAME [WEIGHT], /adapter none.", now,
                  (int)names.text.size, names.text.data);
    buffer_free(&names.text);
}

void chat_adapter_text(const chat *chat, char text[CHAT_ADAPTER_TEXT]) {
    const chat_adapter *adapter = &chat->adapter;
    if (adapter->name[0] == '\0')
        snprintf(text, CHAT_ADAPTER_TEXT, "none");
    else if (adapter->weight == 1.0f)
        snprintf(text, CHAT_ADAPTER_TEXT, "%s", adapter->name);
    else
        snprintf(text, CHAT_ADAPTER_TEXT, "%s × %g", adapter->name, (double)adapter->weight);
}

static void load_adapter(chat *chat, text_view rest) {
    char name[128], path[4096];
    avo_error error = {0};
    text_view word = take_word(&rest);
    if (word.size == 0 || rest.size == 0) {
        chat_note(chat, "/adapter load NAME PATH");
        return;
    }
    if (!copy_text(chat, word, name, sizeof(name)) || !copy_text(chat, rest, path, sizeof(path)))
        return;
    if (avo_registry_load(chat->options.registry, name, path, 0, &error) != AVO_OK) {
        chat_note(chat, "%s", error.text);
        return;
    }
    memcpy(chat->adapter.name, name, sizeof(name));
    chat->adapter.weight = 1.0f;
    chat_note(chat, "%s is loaded and applies to the next answer.", name);
}

static void run_adapter(chat *chat, text_view rest) {
    text_view word = take_word(&rest);
    if (word.size == 0) {
        list_adapters(chat);
        return;
    }
    if (!idle(chat))
        return;
    if (text_equal(word, text_from("load"))) {
        load_adapter(chat, rest);
        return;
    }
    if (text_equal(word, text_from("none"))) {
        chat->adapter = (chat_adapter){.weight = 1.0f};
        chat_note(chat, "The base model answers, without an adapter.");
        return;
    }
    char name[128];
    double weight = 1.0;
    if (!copy_text(chat, word, name, sizeof(name)))
        return;
    if (rest.size > 0 && !number_parse(rest, &weight)) {
        chat_note(chat, "\"%.*s\" is not a weight.", TEXT_ARGUMENT(rest));
        return;
    }
    avo_adapter *adapter;
    avo_error error = {0};
    if (avo_registry_take(chat->options.registry, name, &adapter, &error) != AVO_OK) {
        chat_note(chat, "%s", error.text);
        return;
    }
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    avo_adapter_describe(adapter, &info);
    chat_note(chat, "%s: %u of %u modules, rank %u, weight %g, digest %.8s.", name,
              info.modules_matched, info.modules_expected, info.rank_max, weight, info.digest);
    avo_adapter_close(adapter);
    memcpy(chat->adapter.name, name, sizeof(name));
    chat->adapter.weight = (float)weight;
}

/* ---- Settings ---- */

typedef struct setting {
    const char *name;
    double minimum, maximum;
    float *number; /* one of these two */
    uint32_t *whole;
} setting;

#define SETTINGS 8
static void settings_of(chat *chat, setting *settings) {
    avo_sampling *sampling = &chat->sampling;
    const setting all[SETTINGS] = {
        {"temperature", SAMPLING_TEMPERATURE, &sampling->temperature, NULL},
        {"top_p", SAMPLING_PROBABILITY, &sampling->top_p, NULL},
        {"min_p", SAMPLING_PROBABILITY, &sampling->min_p, NULL},
        {"top_k", 0, SAMPLING_TOP_K_MAX, NULL, &sampling->top_k},
        {"repetition_penalty", SAMPLING_REPETITION, &sampling->repetition_penalty, NULL},
        {"presence_penalty", SAMPLING_PENALTY, &sampling->presence_penalty, NULL},
        {"frequency_penalty", SAMPLING_PENALTY, &sampling->frequency_penalty, NULL},
        {"max_tokens", 0, REQUEST_NEW_TOKENS_MAX, NULL, &chat->max_new_tokens},
    };
    memcpy(settings, all, sizeof(all));
}

static double setting_value(const setting *setting) {
    return setting->number != NULL ? (double)*setting->number : (double)*setting->whole;
}

static void list_settings(chat *chat) {
    setting settings[SETTINGS];
    buffer text;
    buffer_init(&text, NULL, 4096);
    settings_of(chat, settings);
    for (size_t i = 0; i < SETTINGS; i++)
        (void)!buffer_format(&text, "%s = %g, ", settings[i].name, setting_value(&settings[i]));
    chat_note(chat, "%.*sseed = %llu. /set NAME VALUE", (int)text.size, text.data,
              (unsigned long long)chat->sampling.seed);
    buffer_free(&text);
}

static void set_seed(chat *chat, double value) {
    if (!(value >= 0.0 && value < 9.0e15 && value == (double)(uint64_t)value)) {
        chat_note(chat, "A seed must be a non-negative integer.");
        return;
    }
    chat->sampling.seed = (uint64_t)value;
    chat_note(chat, "seed = %llu", (unsigned long long)chat->sampling.seed);
}

static void set_value(chat *chat, const setting *setting, double value) {
    bool fits = value >= setting->minimum && value <= setting->maximum &&
                (setting->number != NULL || value == (double)(uint32_t)value);
    if (!fits) {
        chat_note(chat, "%s must be %g to %g.", setting->name, setting->minimum, setting->maximum);
        return;
    }
    if (setting->number != NULL)
        *setting->number = (float)value;
    else
        *setting->whole = (uint32_t)value;
    chat_note(chat, "%s = %g", setting->name, setting_value(setting));
}

static void run_set(chat *chat, text_view rest) {
    text_view name = take_word(&rest);
    if (name.size > 0 && name.data[name.size - 1] == '=')
        name.size--;
    if (name.size == 0 || rest.size == 0) {
        list_settings(chat);
        return;
    }
    if (!idle(chat))
        return;
    setting settings[SETTINGS];
    settings_of(chat, settings);
    bool seed = text_equal(name, text_from("seed"));
    size_t found = 0;
    while (!seed && found < SETTINGS && !text_equal(name, text_from(settings[found].name)))
        found++;
    double value;
    if (found == SETTINGS)
        chat_note(chat, "Unknown setting \"%.*s\". /set lists them.", TEXT_ARGUMENT(name));
    else if (!number_parse(rest, &value))
        chat_note(chat, "%.*s: \"%.*s\" is not a number.", TEXT_ARGUMENT(name),
                  TEXT_ARGUMENT(rest));
    else if (seed)
        set_seed(chat, value);
    else
        set_value(chat, &settings[found], value);
}

/* ---- The others ---- */

static void run_help(chat *chat, text_view rest);

static void run_system(chat *chat, text_view rest) {
    conversation *said = &chat->conversation;
    if (rest.size == 0) {
        chat_note(chat,
                  said->system.size == 0 ? "No system message. /system TEXT sets one."
                                         : "System message: %s",
                  said->system.data);
        return;
    }
    if (!idle(chat))
        return;
    if (!chat->templated) {
        chat_note(chat, "This model has no chat template and cannot have a system message.");
        return;
    }
    bool none = text_equal(rest, text_from("none"));
    if (conversation_set_system(said, none ? (text_view){"", 0} : rest) != AVO_OK)
        chat_note(chat, "Out of memory.");
    else
        chat_note(chat,
                  none ? "The system message was removed." : "Set; it applies to the next answer.");
}

static void run_save(chat *chat, text_view rest) {
    char path[4096];
    avo_error error = {0};
    if (rest.size == 0) {
        chat_note(chat, "/save FILE.json");
        return;
    }
    if (!copy_text(chat, rest, path, sizeof(path)))
        return;
    if (conversation_save(&chat->conversation, path, chat->options.model_name, &error) != AVO_OK)
        chat_note(chat, "%s", error.text);
    else
        chat_note(chat, "Saved to %s.", path);
}

static void run_load(chat *chat, text_view rest) {
    char path[4096];
    avo_error error = {0};
    if (rest.size == 0) {
        chat_note(chat, "/load FILE.json");
        return;
    }
    if (!idle(chat) || !copy_text(chat, rest, path, sizeof(path)))
        return;
    if (conversation_load(&chat->conversation, path, &error) != AVO_OK)
        chat_note(chat, "%s", error.text);
    else
        chat_note(chat, "Loaded %zu messages from %s.", chat->conversation.count, path);
}

static void run_retry(chat *chat, text_view rest) {
    (void)rest;
    avo_error error = {0};
    if (chat_retry(chat, &error) != AVO_OK)
        chat_note(chat, "%s", error.text);
}

static void run_clear(chat *chat, text_view rest) {
    (void)rest;
    if (!idle(chat))
        return;
    conversation_cut(&chat->conversation, 0);
    chat->context_used = 0;
}

/* The next answer, and those that are there. */
static void run_drafts(chat *chat, text_view rest) {
    bool on = text_equal(rest, text_from("on")), off = text_equal(rest, text_from("off"));
    if (on || off)
        chat->show_drafts = on;
    else if (rest.size > 0) {
        chat_note(chat, "/drafts on or /drafts off");
        return;
    }
    chat_figures figures;
    chat_measure(chat, &figures);
    chat_note(chat,
              chat->show_drafts
                  ? "Accepted draft tokens are shown in another shade, and answers as plain text. "
                    "%llu of %llu draft tokens were accepted."
                  : "Draft tokens are not shown. %llu of %llu draft tokens were accepted.",
              (unsigned long long)figures.accepted_tokens,
              (unsigned long long)figures.drafted_tokens);
}

static void run_quit(chat *chat, text_view rest) {
    (void)rest;
    chat->quit = true;
}

static const chat_command commands[] = {
    {"/help", "", "list the commands", run_help},
    {"/adapter", "[NAME [WEIGHT] | none | load NAME PATH]", "choose or load an adapter",
     run_adapter},
    {"/system", "[TEXT | none]", "show or set the system message", run_system},
    {"/set", "[NAME VALUE]", "temperature, top_p, top_k, min_p, seed, max_tokens …", run_set},
    {"/save", "FILE.json", "save the conversation", run_save},
    {"/load", "FILE.json", "load a conversation", run_load},
    {"/retry", "", "another answer with the next seed; sampled if the temperature is 0", run_retry},
    {"/drafts", "[on | off]", "show accepted draft tokens in another shade", run_drafts},
    {"/clear", "", "start over", run_clear},
    {"/quit", "", "quit (also exit and Ctrl-D)", run_quit},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

const char *chat_command_name(size_t index) {
    return index < COMMANDS ? commands[index].name : NULL;
}

static void run_help(chat *chat, text_view rest) {
    (void)rest;
    buffer text;
    buffer_init(&text, NULL, 4096);
    for (size_t i = 0; i < COMMANDS; i++)
        (void)!buffer_format(&text, "%s %s\n    %s\n", commands[i].name, commands[i].arguments,
                             commands[i].help);
    chat_note(chat,
              "%.*sEnter sends or queues; Alt-Enter or Ctrl-J: new line; Up: previous message; "
              "PgUp, PgDn: scroll. Ctrl-C stops the answer, then quits.",
              (int)text.size, text.data);
    buffer_free(&text);
}

/* Runs it; false: there is no such command. */
static bool run_command(chat *chat, text_view text) {
    text_view name = take_word(&text);
    for (size_t i = 0; i < COMMANDS; i++)
        if (text_equal(name, text_from(commands[i].name))) {
            commands[i].run(chat, text);
            return true;
        }
    return false;
}

static bool is_farewell(text_view trimmed) {
    return text_equal(trimmed, text_from("exit")) || text_equal(trimmed, text_from("quit"));
}

bool chat_waits(const chat *chat, text_view text) {
    text_view trimmed = trim(text);
    return chat->busy && trimmed.size > 0 && trimmed.data[0] != '/' && !is_farewell(trimmed);
}

void chat_enter(chat *chat, text_view text) {
    text_view trimmed = trim(text);
    avo_error error = {0};
    if (trimmed.size == 0)
        return;
    if (is_farewell(trimmed)) {
        chat->quit = true;
        return;
    }
    if (trimmed.data[0] == '/') {
        text_view name = trimmed;
        name = take_word(&name);
        if (!run_command(chat, trimmed))
            chat_note(chat, "Unknown command %.*s. /help lists them.", TEXT_ARGUMENT(name));
        return;
    }
    if (chat_ask(chat, trimmed, &error) != AVO_OK)
        chat_note(chat, "%s", error.text);
}
