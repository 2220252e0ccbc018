/* Conversations with tools for a template that knows none: what it would write stands in the texts
 * of messages. */
#include "server/api_int.h"

static bool give(buffer *text, avo_status status, arena *arena, const char **out,
                 api_fault *fault) {
    *out = status != AVO_OK
               ? NULL
               : arena_copy_text(arena, text->data == NULL ? "" : text->data, text->size);
    buffer_free(text);
    return *out != NULL || fault_no_memory(fault);
}

static avo_status join(const char *first, const char *between, buffer *text) {
    if (first != NULL && first[0] != '\0') {
        AVO_TRY(buffer_append_text(text, first));
        AVO_TRY(buffer_append_text(text, between));
    }
    return AVO_OK;
}

static bool describe_system(turn_list *list, const char *tools, api_fault *fault) {
    json_value value;
    if (json_parse(list->arena, text_from(tools), &value, NULL) != AVO_OK)
        return fault_no_memory(fault);
    bool there = list->count > 0 && strcmp(list->turns[0].role, "system") == 0;
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    avo_status status = there ? join(list->turns[0].content, "\n\n", &text) : AVO_OK;
    if (status == AVO_OK)
        status = tool_describe(&value, &text);
    const char *content;
    if (!give(&text, status, list->arena, &content, fault))
        return false;
    if (there) {
        list->turns[0].content = content;
        return true;
    }
    turn system = {.role = "system", .content = content};
    if (!turn_add(list, system, fault))
        return false;
    memmove(list->turns + 1, list->turns, (list->count - 1) * sizeof(*list->turns));
    list->turns[0] = system;
    return true;
}

static bool describe_turn(turn *turn, arena *arena, api_fault *fault) {
    bool result = strcmp(turn->role, "tool") == 0;
    json_value calls = {0};
    if (!result && turn->calls == NULL)
        return true;
    if (!result && json_parse(arena, text_from(turn->calls), &calls, NULL) != AVO_OK)
        return fault_no_memory(fault);
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    avo_status status;
    if (result) {
        status = buffer_append_text(&text, "<tool_response>\n");
        if (status == AVO_OK)
            status = join(turn->content, "\n", &text);
        if (status == AVO_OK)
            status = buffer_append_text(&text, "</tool_response>");
        turn->role = "user";
    } else {
        status = join(turn->content, "", &text);
        if (status == AVO_OK)
            status = tool_describe_calls(&calls, &text);
    }
    turn->calls = turn->call_id = turn->name = NULL;
    return give(&text, status, arena, &turn->content, fault);
}

bool turns_describe(turn_list *list, const char **tools, api_fault *fault) {
    for (size_t i = 0; i < list->count; i++)
        if (!describe_turn(&list->turns[i], list->arena, fault))
            return false;
    if (*tools != NULL && !describe_system(list, *tools, fault))
        return false;
    *tools = NULL;
    return true;
}
