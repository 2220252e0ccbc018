/* Tools and tool_choice, in each dialect's form; and the prompt: what the template gets. */
#include "chat/chat_int.h"
#include "chat/tool_int.h"

#include <stdio.h>
#include <string.h>

static bool is_absent(const json_value *value) {
    return value == NULL || value->kind == JSON_NULL;
}

/* ---- Tools ---- */

static bool check_function(const json_value *function, const char *schema_key, const char *param,
                           chat_fault *fault) {
    const json_value *name = json_find(function, "name");
    const json_value *description = json_find(function, "description");
    const json_value *schema = json_find(function, schema_key);
    const json_value *strict = json_find(function, "strict");
    if (name == NULL || name->kind != JSON_STRING || !tool_name_good(name->string) ||
        name->string.size > CHAT_TOOL_NAME_MAX)
        return chat_fail(fault, param, "invalid_value",
                         "%s: a function needs a name of 1 to %d letters, digits, _, - and .",
                         param, CHAT_TOOL_NAME_MAX);
    if (!is_absent(description) && description->kind != JSON_STRING)
        return chat_fail(fault, param, "invalid_type", "%s: the description must be a string",
                         param);
    if (!is_absent(schema) && schema->kind != JSON_OBJECT)
        return chat_fail(fault, param, "invalid_type", "%s: %s must be an object", param,
                         schema_key);
    if (!is_absent(strict) && strict->kind != JSON_BOOLEAN)
        return chat_fail(fault, param, "invalid_type", "%s: strict must be true or false", param);
    return true;
}

/* {"type":"object","properties":{}} */
static bool empty_schema(arena *arena, json_value *out, chat_fault *fault) {
    json_member *members = arena_take_array(arena, 2, sizeof(*members));
    if (members == NULL)
        return chat_fail_memory(fault);
    members[0] = (json_member){TEXT_LITERAL("type"), json_string_of(TEXT_LITERAL("object"))};
    members[1] = (json_member){TEXT_LITERAL("properties"), json_object_of(NULL, 0)};
    *out = json_object_of(members, 2);
    return true;
}

/* As OpenAI has it: {"type":"function","function":{…}}. */
static bool make_tool(const json_value *function, const char *schema_key, const char *param,
                      arena *arena, json_value *out, chat_fault *fault) {
    if (!check_function(function, schema_key, param, fault))
        return false;
    const json_value *description = json_find(function, "description");
    const json_value *schema = json_find(function, schema_key);
    const json_value *strict = json_find(function, "strict");
    json_member *members = arena_take_array(arena, 6, sizeof(*members));
    if (members == NULL)
        return chat_fail_memory(fault);
    json_member *inner = members + 2;
    size_t count = 0;
    inner[count++] = (json_member){TEXT_LITERAL("name"), *json_find(function, "name")};
    if (!is_absent(description))
        inner[count++] = (json_member){TEXT_LITERAL("description"), *description};
    inner[count].key = TEXT_LITERAL("parameters");
    if (!is_absent(schema))
        inner[count].value = *schema;
    else if (!empty_schema(arena, &inner[count].value, fault))
        return false;
    count++;
    if (!is_absent(strict) && strict->boolean)
        inner[count++] = (json_member){TEXT_LITERAL("strict"), *strict};
    members[0] = (json_member){TEXT_LITERAL("type"), json_string_of(TEXT_LITERAL("function"))};
    members[1] = (json_member){TEXT_LITERAL("function"), json_object_of(inner, count)};
    *out = json_object_of(members, 2);
    return true;
}

static bool read_tool(const json_value *tool, size_t index, chat_dialect dialect, arena *arena,
                      json_value *out, chat_fault *fault) {
    char param[32];
    snprintf(param, sizeof(param), "tools[%zu]", index);
    const json_value *type = json_find(tool, "type");
    if (tool->kind != JSON_OBJECT)
        return chat_fail(fault, param, "invalid_type", "%s must be an object", param);
    bool function =
        type == NULL || (type->kind == JSON_STRING &&
                         (text_is(type->string, "function") ||
                          (dialect == CHAT_MESSAGES && text_is(type->string, "custom"))));
    if (!function)
        return chat_fail(fault, param, "unsupported_parameter",
                         "%s: only tools of type function are supported", param);
    if (dialect == CHAT_MESSAGES)
        return make_tool(tool, "input_schema", param, arena, out, fault);
    const json_value *inner = json_find(tool, "function");
    return make_tool(dialect == CHAT_COMPLETIONS && inner != NULL ? inner : tool, "parameters",
                     param, arena, out, fault);
}

/* The array as templates want it. */
static bool read_tools(const json_value *list, chat_dialect dialect, arena *arena,
                       const json_value **out, chat_fault *fault) {
    if (list->kind != JSON_ARRAY)
        return chat_fail(fault, "tools", "invalid_type", "tools must be an array, found %s",
                         json_kind_name(list->kind));
    size_t count = list->array.count;
    if (count > CHAT_TOOLS_MAX)
        return chat_fail(fault, "tools", "invalid_value", "%zu tools, must be at most %d", count,
                         CHAT_TOOLS_MAX);
    json_value *array = arena_take_array(arena, count + 1, sizeof(*array));
    if (array == NULL)
        return chat_fail_memory(fault);
    array[0] = json_array_of(array + 1, count);
    for (size_t i = 0; i < count; i++)
        if (!read_tool(&list->array.items[i], i, dialect, arena, &array[i + 1], fault))
            return false;
    *out = array;
    return true;
}

/* ---- tool_choice ---- */

typedef struct choice_read {
    bool none;
    tool_choice choice;
} choice_read;

static bool read_word(text_view word, choice_read *out, chat_fault *fault) {
    if (text_is(word, "none"))
        out->none = true;
    else if (text_is(word, "required") || text_is(word, "any"))
        out->choice.required = true;
    else if (!text_is(word, "auto"))
        return chat_fail(fault, "tool_choice", "invalid_value",
                         "tool_choice is \"%.*s\", must be none, auto or required",
                         TEXT_ARGUMENT(word));
    return true;
}

static bool read_choice(const json_value *value, choice_read *out, chat_fault *fault) {
    if (value == NULL)
        return true;
    if (value->kind == JSON_STRING)
        return read_word(value->string, out, fault);
    const json_value *type = json_find(value, "type");
    if (value->kind != JSON_OBJECT || type == NULL || type->kind != JSON_STRING)
        return chat_fail(fault, "tool_choice", "invalid_type",
                         "tool_choice must be a string or an object with a type");
    const json_value *single = json_find(value, "disable_parallel_tool_use");
    if (single != NULL && single->kind == JSON_BOOLEAN && single->boolean)
        out->choice.parallel = false;
    if (!text_is(type->string, "function") && !text_is(type->string, "tool"))
        return read_word(type->string, out, fault);
    const json_value *inner = json_find(value, "function");
    const json_value *name = json_find(inner != NULL ? inner : value, "name");
    if (name == NULL)
        return chat_fail(fault, "tool_choice", "missing_required_parameter",
                         "tool_choice: the name of the function is missing");
    out->choice.required = true;
    return chat_string_read(name, "tool_choice", CHAT_TOOL_NAME_MAX, &out->choice.function, fault);
}

/* A grammar for what was asked: for calls that are demanded, and for those of strict functions. */
static bool constrain(const chat_format *format, const tool_choice *choice, arena *arena,
                      chat_prompt *prompt, chat_fault *fault) {
    chat_constraint constraint;
    avo_error error = {0};
    avo_status status =
        tool_grammar_write(format, prompt->tools, choice, arena, &constraint, &error);
    if (status == AVO_ERROR_UNSUPPORTED && !choice->required)
        return true; /* free to call, as well as the model can */
    if (status == AVO_ERROR_MEMORY)
        return chat_fail_memory(fault);
    if (status != AVO_OK)
        return chat_fail(fault, "tools", "invalid_value", "tools: %s", error.text);
    if (!constraint_fits(text_from(constraint.text), "tools", fault))
        return false;
    prompt->constraint = constraint;
    if (!choice->required) /* a call in another form would be free of what was promised */
        prompt->only_opener = constraint.trigger == NULL ? "" : constraint.trigger;
    return true;
}

static bool offer(const chat_format *format, const tool_choice *choice, arena *arena,
                  chat_prompt *prompt, chat_fault *fault) {
    if (chat_format_name(format) == NULL)
        return chat_fail(fault, "tools", "unsupported_parameter",
                         "tools: this model cannot call functions: %s",
                         chat_format_why_not(format));
    if (choice->function.data != NULL && !tool_known(prompt->tools, choice->function))
        return chat_fail(fault, "tool_choice", "invalid_value",
                         "tool_choice: no tool is named \"%.*s\"", TEXT_ARGUMENT(choice->function));
    bool constrained = prompt->constraint.param != NULL;
    if (constrained && choice->required)
        return chat_fail(
            fault, "tool_choice", "invalid_value",
            "tool_choice: an answer cannot be a call and also follow response_format or grammar");
    prompt->calls = !constrained; /* the format decides, so there is no room for calls */
    return constrained || constrain(format, choice, arena, prompt, fault);
}

static bool read_offer(const chat_format *format, const chat_settings *settings, arena *arena,
                       chat_prompt *prompt, chat_fault *fault) {
    choice_read read = {.choice.parallel = settings->parallel_calls};
    const json_value *list = settings->tools;
    if (!read_choice(settings->tool_choice, &read, fault))
        return false;
    prompt->parallel_calls = read.choice.parallel;
    if (list == NULL || (list->kind == JSON_ARRAY && list->array.count == 0))
        return !read.choice.required ||
               chat_fail(fault, "tool_choice", "invalid_value", "tool_choice needs tools");
    const json_value *tools = NULL;
    if (!read_tools(list, settings->dialect, arena, &tools, fault))
        return false;
    if (read.none)
        return true;
    prompt->tools = tools;
    return offer(format, &read.choice, arena, prompt, fault);
}

/* ---- The template's variables ---- */

/* {"role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content"} */
static bool make_message(const chat_turn *turn, arena *arena, json_value *out, chat_fault *fault) {
    json_member *members = arena_take_array(arena, 6, sizeof(*members));
    size_t count = 0;
    if (members == NULL)
        return chat_fail_memory(fault);
    members[count++] = (json_member){TEXT_LITERAL("role"), json_string_of(text_from(turn->role))};
    members[count++] = (json_member){TEXT_LITERAL("content"), json_string_of(turn->content)};
    if (turn->name.data != NULL)
        members[count++] = (json_member){TEXT_LITERAL("name"), json_string_of(turn->name)};
    if (turn->call_id.data != NULL)
        members[count++] =
            (json_member){TEXT_LITERAL("tool_call_id"), json_string_of(turn->call_id)};
    if (turn->reasoning.data != NULL)
        members[count++] =
            (json_member){TEXT_LITERAL("reasoning_content"), json_string_of(turn->reasoning)};
    if (turn->call_count > 0)
        members[count++] =
            (json_member){TEXT_LITERAL("tool_calls"), json_array_of(turn->calls, turn->call_count)};
    *out = json_object_of(members, count);
    return true;
}

/* Names that belong to the conversation cannot be set from outside. */
static bool own_name(text_view name) {
    return text_is(name, "messages") || text_is(name, "tools") ||
           text_is(name, "add_generation_prompt");
}

static bool make_variables(const chat_turns *turns, const json_value *tools,
                           const json_value *given, arena *arena, json_value *out,
                           chat_fault *fault) {
    size_t more = given == NULL ? 0 : given->object.count, count = 0;
    json_member *members = arena_take_array(arena, more + 2, sizeof(*members));
    json_value *messages = arena_take_array(arena, turns->count, sizeof(*messages));
    if (members == NULL || messages == NULL)
        return chat_fail_memory(fault);
    for (size_t i = 0; i < turns->count; i++)
        if (!make_message(&turns->items[i], arena, &messages[i], fault))
            return false;
    members[count++] =
        (json_member){TEXT_LITERAL("messages"), json_array_of(messages, turns->count)};
    if (tools != NULL)
        members[count++] = (json_member){TEXT_LITERAL("tools"), *tools};
    for (size_t i = 0; i < more; i++)
        if (!own_name(given->object.members[i].key))
            members[count++] = given->object.members[i];
    *out = json_object_of(members, count);
    return true;
}

bool chat_prompt_read(const chat_format *format, chat_turns *turns, const chat_settings *settings,
                      arena *arena, chat_prompt *out, chat_fault *fault) {
    *out = (chat_prompt){.constraint = settings->constraint};
    if (!read_offer(format, settings, arena, out, fault))
        return false;
    bool described = format->form != NULL && format->form->described;
    if (described && !turns_describe(turns, out->tools, fault))
        return false;
    if (turns->count == 0)
        return chat_fail(fault, "messages", "invalid_value", "there are no messages");
    const json_value *given = settings->variables;
    if (given != NULL && given->kind != JSON_OBJECT)
        return chat_fail(fault, "chat_template_kwargs", "invalid_type",
                         "chat_template_kwargs must be an object, found %s",
                         json_kind_name(given->kind));
    return make_variables(turns, described ? NULL : out->tools, given, arena, &out->variables,
                          fault);
}
