/* Conversations in lines of `--prompts`: the same messages, tools and formats as over HTTP. */
#include "cli/run_int.h"

#include "base/value.h"

#include <string.h>

static bool add(chat_turns *turns, const char *role, const char *text, chat_fault *fault) {
    chat_turn turn = {.role = role, .content = text_from(text)};
    return text == NULL || chat_turn_add(turns, turn, fault);
}

/* NULL: absent, or null. */
static const json_value *given(const json_value *root, const char *key) {
    const json_value *value = json_find(root, key);
    return value == NULL || value->kind == JSON_NULL ? NULL : value;
}

static bool read_chat(prompt_line *line, chat_turns *turns, const json_value *root,
                      const prompt_defaults *defaults, chat_fault *fault) {
    const json_value *parallel = given(root, "parallel_tool_calls");
    chat_settings settings = {.dialect = CHAT_COMPLETIONS,
                              .tools = given(root, "tools"),
                              .tool_choice = given(root, "tool_choice"),
                              .variables = given(root, "chat_template_kwargs"),
                              .parallel_calls = true,
                              .constraint = line->prompt.constraint};
    if (parallel != NULL && parallel->kind != JSON_BOOLEAN)
        return chat_fail_kind(fault, "parallel_tool_calls", "true or false", parallel);
    if (parallel != NULL)
        settings.parallel_calls = parallel->boolean;
    return chat_prompt_read(defaults->format, turns, &settings, &line->arena, &line->prompt, fault);
}

avo_status prompt_line_chat(prompt_line *line, const json_value *root, const json_value *messages,
                            const char *system, const char *user, const prompt_defaults *defaults) {
    chat_fault fault = {0};
    chat_turns turns = {.arena = &line->arena, .arguments_left = SIZE_MAX, .any_role = true};
    bool good = messages != NULL
                    ? chat_turns_read(&turns, CHAT_COMPLETIONS, messages, &fault)
                    : add(&turns, "system", system, &fault) && add(&turns, "user", user, &fault);
    if (!good || !read_chat(line, &turns, root, defaults, &fault))
        return status_fail(&line->error, fault.status, "%s", fault.text);
    line->request.chat = &line->chat;
    return value_copy(&line->prompt.variables, NULL, SIZE_MAX, NULL, &line->chat.variables,
                      &line->error);
}
