/* Which members of an item hold what: the first item of a file decides, all others must agree. */
#include "train/data_int.h"

#include <stdio.h>
#include <string.h>

#define KEYS_TEXT 160

static bool has(const json_value *item, const char *key) {
    const json_value *value = json_find(item, key);
    return value != NULL && value->kind != JSON_NULL;
}

/* The first of the names that the item has; NULL: none. `names` ends with NULL. */
static const char *first_of(const json_value *item, const char *const *names) {
    for (; *names != NULL; names++)
        if (has(item, *names))
            return *names;
    return NULL;
}

static const char *const message_names[] = {"messages", "conversations", "conversation", NULL};
static const char *const text_names[] = {"text", "content", "story", "document", NULL};
static const char *const prompt_names[] = {"prompt", "instruction", "question",
                                           "query",  "input",       NULL};
/* Prompts and what answers to them are called; with both, the first pair counts. */
static const struct {
    const char *prompt;
    const char *answers[6];
} pairs[] = {
    {"prompt", {"completion", "response", "answer", "output", NULL}},
    {"instruction", {"output", "response", "completion", "answer", NULL}},
    {"question", {"answer", "response", "output", "completion", NULL}},
    {"query", {"response", "answer", "output", NULL}},
    {"input", {"output", "response", "answer", "target", NULL}},
};

static bool find_pair(const json_value *item, data_form *form) {
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const char *answer = has(item, pairs[i].prompt) ? first_of(item, pairs[i].answers) : NULL;
        if (answer == NULL)
            continue;
        bool input =
            strcmp(pairs[i].prompt, "instruction") == 0 && json_find(item, "input") != NULL;
        *form = (data_form){.kind = TRAIN_DATA_COMPLETION,
                            .prompt = pairs[i].prompt,
                            .input = input ? "input" : NULL,
                            .answer = answer};
        return true;
    }
    return false;
}

static bool find_preference(const json_value *item, data_form *form) {
    if (!has(item, "chosen") || !has(item, "rejected"))
        return false;
    *form = (data_form){.kind = TRAIN_DATA_PREFERENCE,
                        .prompt = first_of(item, prompt_names),
                        .answer = "chosen",
                        .rejected = "rejected"};
    return true;
}

static bool find_prompt(const json_value *item, data_form *form) {
    const char *prompt = first_of(item, prompt_names);
    const char *messages = first_of(item, message_names);
    if (prompt == NULL && messages == NULL)
        return false;
    bool input =
        prompt != NULL && strcmp(prompt, "instruction") == 0 && json_find(item, "input") != NULL;
    *form = (data_form){.kind = TRAIN_DATA_PROMPT,
                        .prompt = prompt,
                        .input = input ? "input" : NULL,
                        .messages = prompt != NULL ? NULL : messages};
    return true;
}

static bool find_supervised(const json_value *item, data_form *form) {
    const char *messages = first_of(item, message_names);
    const char *text = first_of(item, text_names);
    if (messages != NULL) {
        *form = (data_form){.kind = TRAIN_DATA_CHAT, .messages = messages};
        return true;
    }
    if (find_pair(item, form))
        return true;
    *form = (data_form){.kind = TRAIN_DATA_TEXT, .text = text};
    return text != NULL;
}

/* A conversation whose last message is not the assistant's, or a prompt alone. */
static bool waits(const json_value *item) {
    static const char *const answers[] = {"assistant", "gpt", "model", "bot", "chatgpt"};
    const char *messages = first_of(item, message_names);
    data_form form;
    if (messages == NULL)
        return !find_pair(item, &form) && first_of(item, text_names) == NULL;
    const json_value *list = json_find(item, messages);
    if (list->kind != JSON_ARRAY || list->array.count == 0)
        return false; /* what it is will be said when it is read */
    const json_value *last = json_item(list, (uint32_t)list->array.count - 1);
    const json_value *role = json_find(last, has(last, "role") ? "role" : "from");
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (role == NULL || role->kind != JSON_STRING || text_is(role->string, answers[i]))
            return false;
    return true;
}

/* "id, prompt, text" */
static void list_keys(const json_value *item, char text[KEYS_TEXT]) {
    size_t at = 0;
    snprintf(text, KEYS_TEXT, "none");
    for (size_t i = 0; i < item->object.count && at + 48 < KEYS_TEXT; i++) {
        char shown[JSON_SHOWN_KEY_MAX];
        at += (size_t)snprintf(text + at, KEYS_TEXT - at, "%s%.40s", i == 0 ? "" : ", ",
                               json_shown_key(item->object.members[i].key, shown));
    }
}

avo_status data_form_find(train_data_use use, const json_value *item, data_form *form,
                          avo_error *error) {
    static const char *const wanted[] = {
        [TRAIN_FOR_SFT] = "messages, prompt and completion, or text",
        [TRAIN_FOR_DPO] = "chosen and rejected (and prompt)",
        [TRAIN_FOR_RL] = "prompt or messages",
        [TRAIN_FOR_HEADS] = "messages, prompt (and completion), or text",
        [TRAIN_FOR_PRETRAIN] = "text, messages, or prompt and completion",
    };
    *form = (data_form){0};
    bool preference = find_preference(item, form);
    bool prompts = use == TRAIN_FOR_RL || (use == TRAIN_FOR_HEADS && waits(item));
    bool found = use == TRAIN_FOR_DPO ? preference
                 : prompts            ? find_prompt(item, form)
                                      : !preference && find_supervised(item, form);
    if (found)
        return AVO_OK;
    char keys[KEYS_TEXT];
    list_keys(item, keys);
    return status_fail(error, AVO_ERROR_FORMAT, "the item has the keys %s; expected %s%s", keys,
                       wanted[use], preference ? "; chosen and rejected are for train dpo" : "");
}

void data_form_keys(const data_form *form, char *text, size_t capacity) {
    const char *const keys[] = {form->messages, form->prompt,   form->input,
                                form->answer,   form->rejected, form->text};
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i] != NULL && at < capacity)
            at += (size_t)snprintf(text + at, capacity - at, "%s%s", at == 0 ? "" : ", ", keys[i]);
}

/* ---- Items ---- */

static avo_status need(const json_value *item, const char *key, const json_value **value,
                       avo_error *error) {
    *value = json_find(item, key);
    if (*value != NULL && (*value)->kind != JSON_NULL)
        return AVO_OK;
    char keys[KEYS_TEXT];
    list_keys(item, keys);
    return status_fail(error, AVO_ERROR_FORMAT,
                       "the key \"%s\" is missing (the file's first item has it); found: %s", key,
                       keys);
}

static avo_status need_string(const json_value *item, const char *key, text_view *text,
                              avo_error *error) {
    const json_value *value;
    AVO_TRY(need(item, key, &value, error));
    if (value->kind != JSON_STRING)
        return status_fail(error, AVO_ERROR_FORMAT, "%s is %s, must be a string", key,
                           json_kind_name(value->kind));
    *text = value->string;
    return AVO_OK;
}

/* The prompt's text, with the input behind it. */
static avo_status read_prompt_text(const data_form *form, arena *arena, const json_value *item,
                                   text_view *text, avo_error *error) {
    AVO_TRY(need_string(item, form->prompt, text, error));
    text_view input = {"", 0};
    if (form->input != NULL && has(item, form->input))
        AVO_TRY(need_string(item, form->input, &input, error));
    if (input.size == 0)
        return AVO_OK;
    size_t bytes = text->size + 2 + input.size;
    char *joined = arena_take(arena, bytes);
    if (joined == NULL)
        return status_no_memory(error, "a prompt", bytes);
    memcpy(joined, text->data, text->size);
    memcpy(joined + text->size, "\n\n", 2);
    memcpy(joined + text->size + 2, input.data, input.size);
    *text = (text_view){joined, bytes};
    return AVO_OK;
}

/* A value is a list of messages: in the file, or as JSON in a field of a table. */
static bool is_messages(arena *arena, const json_value *value) {
    json_value list;
    avo_error ignored;
    return value != NULL && data_unwrap(arena, value, "", &list, &ignored) == AVO_OK &&
           list.kind == JSON_ARRAY && list.array.count > 0 &&
           list.array.items[0].kind == JSON_OBJECT;
}

static avo_status one_message(arena *arena, const char *role, text_view text, json_value *list,
                              avo_error *error) {
    json_value *message = arena_take_array(arena, 1, sizeof(*message));
    if (message == NULL)
        return status_no_memory(error, "a message", sizeof(*message));
    *list = (json_value){.kind = JSON_ARRAY, .array = {.items = message, .count = 1}};
    return data_message_make(arena, role, text, message, error);
}

/* A string or a list of messages into `text` or `list`. */
static avo_status read_part(arena *arena, const json_value *item, const char *key, bool plain,
                            bool chat, const char *role, text_view *text, json_value *list,
                            avo_error *error) {
    const json_value *value;
    AVO_TRY(need(item, key, &value, error));
    if (!plain)
        return data_messages_read(arena, value, key, list, error);
    AVO_TRY(need_string(item, key, text, error));
    return chat ? one_message(arena, role, *text, list, error) : AVO_OK;
}

static bool same_string(const json_value *a, const json_value *b, const char *key) {
    const json_value *left = json_find(a, key), *right = json_find(b, key);
    return left != NULL && right != NULL && left->kind == JSON_STRING &&
           right->kind == JSON_STRING && text_equal(left->string, right->string);
}

static void drop_front(json_value *list, size_t count) {
    list->array.items += count;
    list->array.count -= count;
}

/* Conversations without a prompt: the messages that both begin with are the prompt. */
static void split_messages(data_words *words) {
    const json_value *chosen = &words->answer, *rejected = &words->rejected;
    size_t count = 0;
    while (count + 1 < chosen->array.count && count + 1 < rejected->array.count &&
           same_string(&chosen->array.items[count], &rejected->array.items[count], "role") &&
           same_string(&chosen->array.items[count], &rejected->array.items[count], "content"))
        count++;
    words->prompt =
        (json_value){.kind = JSON_ARRAY, .array = {.items = chosen->array.items, .count = count}};
    drop_front(&words->answer, count);
    drop_front(&words->rejected, count);
}

/* Strings without a prompt: up to the last white space of what both begin with. */
static avo_status split_strings(data_words *words, avo_error *error) {
    text_view a = words->answer_text, b = words->rejected_text;
    size_t count = 0, end = 0;
    for (; count < a.size && count < b.size && a.data[count] == b.data[count]; count++)
        if (a.data[count] == ' ' || a.data[count] == '\n')
            end = count;
    if (end == 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "the key \"prompt\" is missing, and chosen and rejected do not begin "
                           "with the same text");
    words->prompt_text = (text_view){a.data, end};
    words->answer_text = (text_view){a.data + end, a.size - end};
    words->rejected_text = (text_view){b.data + end, b.size - end};
    return AVO_OK;
}

static avo_status read_preference(const data_form *form, arena *arena, const json_value *item,
                                  bool chat, data_words *words, avo_error *error) {
    bool prompted = form->prompt != NULL && has(item, form->prompt);
    bool messages = prompted && is_messages(arena, json_find(item, form->prompt));
    bool answers = is_messages(arena, json_find(item, form->answer));
    words->plain = !answers && !messages && !(chat && prompted);
    AVO_TRY(read_part(arena, item, form->answer, !answers, !words->plain, "assistant",
                      &words->answer_text, &words->answer, error));
    AVO_TRY(read_part(arena, item, form->rejected, !answers, !words->plain, "assistant",
                      &words->rejected_text, &words->rejected, error));
    if (prompted)
        return read_part(arena, item, form->prompt, !messages, !words->plain, "user",
                         &words->prompt_text, &words->prompt, error);
    if (words->plain)
        return split_strings(words, error);
    split_messages(words);
    return AVO_OK;
}

static avo_status read_completion(const data_form *form, arena *arena, const json_value *item,
                                  bool chat, data_words *words, avo_error *error) {
    const json_value *prompt, *answer;
    AVO_TRY(need(item, form->prompt, &prompt, error));
    AVO_TRY(need(item, form->answer, &answer, error));
    bool messages = is_messages(arena, prompt), answers = is_messages(arena, answer);
    words->plain = !chat && !messages && !answers;
    if (messages) {
        AVO_TRY(data_messages_read(arena, prompt, form->prompt, &words->prompt, error));
    } else {
        AVO_TRY(read_prompt_text(form, arena, item, &words->prompt_text, error));
        if (!words->plain)
            AVO_TRY(one_message(arena, "user", words->prompt_text, &words->prompt, error));
    }
    return read_part(arena, item, form->answer, !answers, !words->plain, "assistant",
                     &words->answer_text, &words->answer, error);
}

static avo_status read_prompt(const data_form *form, arena *arena, const json_value *item,
                              bool chat, data_words *words, avo_error *error) {
    const char *key = form->prompt != NULL ? form->prompt : form->messages;
    const json_value *value;
    AVO_TRY(need(item, key, &value, error));
    words->fields = item;
    bool messages = form->messages != NULL || is_messages(arena, value);
    words->plain = !messages && !chat;
    if (!messages) {
        AVO_TRY(read_prompt_text(form, arena, item, &words->prompt_text, error));
        return words->plain ? AVO_OK
                            : one_message(arena, "user", words->prompt_text, &words->prompt, error);
    }
    AVO_TRY(data_messages_read(arena, value, key, &words->prompt, error));
    size_t *count = &words->prompt.array.count;
    if (*count > 1 && data_message_is(&words->prompt.array.items[*count - 1], "assistant"))
        (*count)--; /* an answer of the file's: rewards find it in the fields */
    if (data_message_is(&words->prompt.array.items[*count - 1], "assistant"))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: the last message is the assistant's, nothing is left to answer",
                           key);
    return AVO_OK;
}

/* Puts a system message in front of a conversation that has none. */
static avo_status add_system(arena *arena, const json_value *item, const char *given,
                             data_words *words, avo_error *error) {
    json_value *list = words->prompt.array.count > 0 ? &words->prompt : &words->answer;
    text_view text = text_from(given);
    if (has(item, "system") && json_find(item, "system")->kind == JSON_STRING)
        text = json_find(item, "system")->string;
    if (text.size == 0 || words->plain || data_message_is(&list->array.items[0], "system") ||
        data_message_is(&list->array.items[0], "developer"))
        return AVO_OK;
    json_value front;
    AVO_TRY(one_message(arena, "system", text, &front, error));
    return data_messages_join(arena, &front, list, list, error);
}

avo_status data_form_read(const data_form *form, arena *arena, const json_value *item, bool chat,
                          const char *system, data_words *words, avo_error *error) {
    const json_value none = {.kind = JSON_ARRAY};
    *words = (data_words){.prompt = none, .answer = none, .rejected = none};
    const json_value *value;
    if (has(item, "tools"))
        AVO_TRY(data_unwrap(arena, json_find(item, "tools"), "tools", &words->tools, error));
    switch (form->kind) {
    case TRAIN_DATA_TEXT:
        words->plain = true;
        return need_string(item, form->text, &words->text, error);
    case TRAIN_DATA_CHAT:
        AVO_TRY(need(item, form->messages, &value, error));
        AVO_TRY(data_messages_read(arena, value, form->messages, &words->answer, error));
        break;
    case TRAIN_DATA_COMPLETION:
        AVO_TRY(read_completion(form, arena, item, chat, words, error));
        break;
    case TRAIN_DATA_PREFERENCE:
        AVO_TRY(read_preference(form, arena, item, chat, words, error));
        break;
    case TRAIN_DATA_PROMPT:
        AVO_TRY(read_prompt(form, arena, item, chat, words, error));
        break;
    }
    return add_system(arena, item, system, words, error);
}
