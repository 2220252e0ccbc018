/* How a model writes tool calls and reasoning, from what its template renders. */
#include "chat/tool_int.h"

#include "base/json_writer.h"
#include "model/model.h"

#include <string.h>

#define PROBE_NAME "look_up"
#define BEFORE_MAX 400 /* bytes before the argument in which a call may have begun */

static const tool_form *form_named(const char *name) {
    for (size_t i = 0; i < tool_form_count; i++)
        if (strcmp(tool_forms[i].name, name) == 0)
            return &tool_forms[i];
    return NULL;
}

/* ---- The form ---- */

static const char *find_last(const char *text, const char *part) {
    const char *found = NULL;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        found = at;
    return found;
}

/* By what stands before the argument of a call, or in what the template tells the model to do. */
static const char *form_in(const char *text) {
    static const struct {
        const char *text, *form;
    } signs[] = {{"[TOOL_CALLS]", "mistral"},
                 {"<|tool_call|>", "granite"},
                 {"<tool_call>", "hermes"},
                 {"<|python_tag|>", "llama3"},
                 {"functools[", "functools"},
                 {"```tool_code", "fenced"},
                 {"<\xef\xbd\x9ctool\xe2\x96\x81"
                  "call\xe2\x96\x81"
                  "begin\xef\xbd\x9c>",
                  "deepseek"},
                 {"<|tool_call_begin|>", "kimi"},
                 {"<|START_ACTION|>", "command"},
                 {"<|tools_prefix|>", "apertus"},
                 {"<|function_call|>", "gigachat"},
                 {"<TOOLCALL>", "nemotron"},
                 {"<minimax:tool_call>", "minimax"},
                 {"<\xef\xbd\x9c"
                  "DSML\xef\xbd\x9c"
                  "invoke",
                  "deepseek_dsml"},
                 {"<atem:function_calls>", "atem"},
                 {"<function name=\"", "minicpm"},
                 {"<tool_call:opensource>", "hunyuan"},
                 {"<|tool_call>call:", "gemma4"},
                 {"<|tool_call_start|>[", "lfm"},
                 {">>>", "functionary"},
                 {"<|open|>call tool=", NULL}};
    const char *best = NULL, *form = NULL;
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        const char *at = find_last(text, signs[i].text);
        if (at != NULL && (best == NULL || at > best)) {
            best = at;
            form = signs[i].form;
        }
    }
    if (best == NULL || form == NULL || strcmp(form, "hermes") != 0)
        return form;
    if (strstr(best, "<function=") != NULL)
        return "qwen3_coder";
    return strstr(best, "<arg_key>") != NULL ? "glm" : form;
}

static const char *form_around(const char *call) {
    const char *form = form_in(call);
    if (form != NULL || strstr(call, "<|open|>call tool=") != NULL)
        return form;
    if (strstr(call, "<function=") != NULL)
        return "qwen3_coder";
    if (strstr(call, "[" PROBE_NAME "(") != NULL)
        return "pythonic";
    const char *name = find_last(call, "\"name\"");
    if (name == NULL)
        return NULL;
    return strstr(name, "\"parameters\"") != NULL ? "llama3" : "json";
}

const char *tool_form_seen(text_view rendered, const char *value, const avo_allocator *allocator) {
    buffer copy;
    buffer_init(&copy, allocator, SIZE_MAX);
    const char *form = NULL;
    if (buffer_append(&copy, rendered.data, rendered.size) == AVO_OK &&
        buffer_terminate(&copy) == AVO_OK) {
        for (size_t i = 0; i < copy.size; i++)
            copy.data[i] = copy.data[i] == '\0' ? ' ' : copy.data[i];
        char *argument = (char *)(uintptr_t)find_last(copy.data, value);
        if (argument != NULL) {
            *argument = '\0';
            size_t before = (size_t)(argument - copy.data);
            form = form_around(copy.data + (before > BEFORE_MAX ? before - BEFORE_MAX : 0));
        } else {
            form = form_in(copy.data);
        }
    }
    buffer_free(&copy);
    return form;
}

#define PROBE_VALUE "oXq7Zk2"

/* {"type":"function","function":{"name":…}}, up to where the function has more members. */
static void function_begin(json_writer *w) {
    json_member_string(w, "type", "function");
    json_member_object_begin(w, "function");
    json_member_string(w, "name", PROBE_NAME);
}

static void write_tools(json_writer *w) {
    json_member_array_begin(w, "tools");
    json_object_begin(w);
    function_begin(w);
    json_member_string(w, "description", "Looks up.");
    json_member_object_begin(w, "parameters");
    json_member_string(w, "type", "object");
    json_member_object_begin(w, "properties");
    json_member_object_begin(w, "what");
    json_member_string(w, "type", "string");
    json_member_string(w, "description", "What.");
    json_end(w);
    json_end(w);
    json_member_array_begin(w, "required");
    json_string(w, "what");
    for (int open = 0; open < 5; open++)
        json_end(w);
}

static void write_arguments(json_writer *w) {
    json_object_begin(w);
    json_member_string(w, "what", PROBE_VALUE);
    json_end(w);
}

static void message_begin(json_writer *w, const char *role, const char *content) {
    json_object_begin(w);
    json_member_string(w, "role", role);
    json_member_string(w, "content", content);
}

/* A conversation in which a function was called, with its arguments as an object or as text. */
static avo_status write_probe(buffer *out, const buffer *arguments) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    write_tools(&w);
    json_member_array_begin(&w, "messages");
    message_begin(&w, "user", "Look.");
    json_end(&w);
    message_begin(&w, "assistant", "");
    json_member_array_begin(&w, "tool_calls");
    json_object_begin(&w);
    json_member_string(&w, "id", "abcdefghi");
    function_begin(&w);
    json_key(&w, "arguments");
    if (arguments != NULL)
        json_text(&w, buffer_text(arguments));
    else
        write_arguments(&w);
    for (int open = 0; open < 6; open++)
        json_end(&w);
    return json_writer_status(&w);
}

static avo_status render(const avo_model *model, bool as_text, chat_template_output *out) {
    arena arena;
    buffer text, arguments;
    json_value given;
    arena_init(&arena, model->allocator, SIZE_MAX);
    buffer_init(&text, model->allocator, SIZE_MAX);
    buffer_init(&arguments, model->allocator, SIZE_MAX);
    json_writer w = json_writer_of(&arguments);
    write_arguments(&w);
    avo_status status = json_writer_status(&w);
    if (status == AVO_OK)
        status = write_probe(&text, as_text ? &arguments : NULL);
    if (status == AVO_OK)
        status = json_parse(&arena, buffer_text(&text), &given, NULL);
    model_chat chat = {.variables = &given, .no_generation_prompt = true};
    if (status == AVO_OK)
        status = model_render_chat(model, &chat, out, NULL);
    buffer_free(&arguments);
    buffer_free(&text);
    arena_free(&arena);
    return status;
}

/* NULL with AVO_OK: the template shows tools, but no call that is known. */
static avo_status find_form(const avo_model *model, const tool_form **form) {
    const char *name = NULL;
    avo_status status = AVO_OK;
    chat_template_output rendered;
    chat_template_output_init(&rendered, model->allocator);
    bool listed = false;
    for (int i = 0; i < 2 && name == NULL && status != AVO_ERROR_MEMORY; i++) {
        status = render(model, i == 1, &rendered);
        text_view text = buffer_text(&rendered.text);
        if (status != AVO_OK || text.size == 0)
            continue;
        listed = listed || memmem(text.data, text.size, PROBE_NAME, strlen(PROBE_NAME)) != NULL;
        name = tool_form_seen(text, PROBE_VALUE, model->allocator);
    }
    chat_template_output_free(&rendered);
    if (status == AVO_ERROR_MEMORY)
        return status;
    *form = name != NULL ? form_named(name) : listed ? NULL : form_named("described");
    return AVO_OK;
}

/* Whether the prompt of an answer ends behind <think>. */
static avo_status find_reasoning(const avo_model *model, bool *reasons) {
    avo_message message = {"user", "Look."};
    model_chat chat = {.messages = &message, .message_count = 1};
    chat_template_output rendered;
    chat_template_output_init(&rendered, model->allocator);
    avo_status status = model_render_chat(model, &chat, &rendered, NULL);
    text_view text = tool_trim(buffer_text(&rendered.text));
    *reasons = status == AVO_OK && text_ends(text, text_from(reasoning_known[0].open));
    chat_template_output_free(&rendered);
    return status == AVO_ERROR_MEMORY ? status : AVO_OK;
}

/* The id of a token that an answer does not show; −1: the text is no such token. */
static int32_t hidden_token(const avo_model *model, const char *text) {
    int32_t ids[2];
    size_t found = 0, bytes = 0;
    char shown[8];
    if (avo_tokenize(model, text, strlen(text), AVO_TOKENIZE_SPECIAL, ids, 2, &found, NULL) !=
            AVO_OK ||
        found != 1 || avo_detokenize(model, ids, 1, 0, shown, 8, &bytes, NULL) != AVO_OK ||
        bytes > 0)
        return -1;
    return ids[0];
}

static void add_marker(const avo_model *model, chat_format *format, tool_marker marker) {
    marker.token = hidden_token(model, marker.text);
    if (marker.token >= 0 && format->marker_count < TOOL_MARKERS_MAX)
        format->markers[format->marker_count++] = marker;
}

/* Tokens whose text an answer does not show: they are seen by their number. */
static void find_markers(const avo_model *model, chat_format *format) {
    const tool_form *form = format->form;
    for (size_t i = 0; form != NULL && i < 2 && form->marks[i] != NULL; i++)
        add_marker(model, format, (tool_marker){.text = form->marks[i]});
    for (size_t i = 0; form != NULL && i < TOOL_OPENERS_MAX && form->openers[i].text != NULL; i++) {
        add_marker(model, format, (tool_marker){.text = form->openers[i].text, .opens = true});
        if (form->openers[i].close != NULL)
            add_marker(model, format, (tool_marker){.text = form->openers[i].close});
    }
    for (size_t i = 0; i < REASONING_TAGS; i++) {
        const reasoning_tags *tags = &reasoning_known[i];
        add_marker(model, format, (tool_marker){.text = tags->open, .reasoning = true});
        add_marker(model, format, (tool_marker){.text = tags->close, .reasoning = true});
    }
}

static chat_format *take_format(const avo_allocator *allocator) {
    chat_format *format = allocator_take_array(allocator, 1, sizeof(*format));
    if (format != NULL)
        format->allocator = allocator;
    return format;
}

avo_status chat_format_open(const avo_model *model, chat_format **out, avo_error *error) {
    *out = NULL;
    chat_format *format = take_format(model->allocator);
    if (format == NULL)
        return status_no_memory(error, "the form of tool calls", sizeof(*format));
    if (avo_chat_check(model, &format->why_not) == AVO_OK) {
        avo_status status = find_form(model, &format->form);
        if (status == AVO_OK)
            status = find_reasoning(model, &format->reasons);
        if (status != AVO_OK) {
            chat_format_close(format);
            return status_no_memory(error, "a conversation", sizeof(*format));
        }
        if (format->form == NULL)
            (void)!status_fail(&format->why_not, AVO_ERROR_UNSUPPORTED,
                               "its template writes calls in an unknown form");
        find_markers(model, format);
    }
    *out = format;
    return AVO_OK;
}

avo_status chat_format_named(const char *name, chat_format **out, avo_error *error) {
    *out = NULL;
    const tool_form *form = form_named(name);
    if (form == NULL)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "unknown form of tool calls: %.40s", name);
    chat_format *format = take_format(NULL);
    if (format == NULL)
        return status_no_memory(error, "the form of tool calls", sizeof(*format));
    format->form = form;
    *out = format;
    return AVO_OK;
}

void chat_format_close(chat_format *format) {
    if (format != NULL)
        allocator_give(format->allocator, format, sizeof(*format));
}

const char *chat_format_name(const chat_format *format) {
    return format->form == NULL ? NULL : format->form->name;
}

const char *chat_format_why_not(const chat_format *format) {
    return format->why_not.text;
}
