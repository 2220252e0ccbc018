/* The rest of the public interface: a model's conversations, and answers as they come. */
#include "chat/chat_int.h"

#include "base/options.h"
#include "model/model.h"

#define GRAMMARS_BYTES_MAX ((uint64_t)256 << 20)

struct avo_chat_parser {
    const avo_allocator *allocator;
    chat_parser *parser; /* NULL: there is nothing to look for, and all text is content */
    bool parallel_calls; /* otherwise only the first call counts */
};

avo_status avo_chat_open(const avo_model *model, avo_chat **chat, avo_error *error) {
    *chat = NULL;
    avo_chat *opened = allocator_take_array(model->allocator, 1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "a chat", sizeof(*opened));
    opened->model = model;
    avo_status status = chat_format_open(model, &opened->format, error);
    if (status == AVO_OK)
        status = grammar_cache_open(model, GRAMMARS_BYTES_MAX, &opened->grammars, error);
    if (status != AVO_OK) {
        avo_chat_close(opened);
        return status;
    }
    *chat = opened;
    return AVO_OK;
}

void avo_chat_close(avo_chat *chat) {
    if (chat == NULL)
        return;
    grammar_cache_close(chat->grammars);
    chat_format_close(chat->format);
    allocator_give(chat->model->allocator, chat, sizeof(*chat));
}

avo_status avo_chat_parser_open(const avo_chat_request *request, uint32_t flags,
                                avo_chat_parser **parser, avo_error *error) {
    *parser = NULL;
    const uint32_t known = AVO_CHAT_REASONING | AVO_CHAT_EARLY_CALLS;
    if ((flags & ~known) != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "avo_chat_parser_open: unknown flags 0x%x",
                           flags & ~known);
    const avo_allocator *allocator = request->chat->model->allocator;
    avo_chat_parser *opened = allocator_take_array(allocator, 1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "a parser of answers", sizeof(*opened));
    opened->allocator = allocator;
    opened->parallel_calls = request->prompt.parallel_calls;
    chat_parser_options options = {.calls = request->prompt.calls,
                                   .tools = request->prompt.tools,
                                   .only = request->prompt.only_opener,
                                   .eager = (flags & AVO_CHAT_EARLY_CALLS) != 0,
                                   .reasoning = (flags & AVO_CHAT_REASONING) != 0 &&
                                                request->request.chat != NULL};
    avo_status status = AVO_OK;
    if (options.calls || options.reasoning)
        status = chat_parser_open(request->chat->format, &options, &opened->parser, error);
    if (status != AVO_OK) {
        avo_chat_parser_close(opened);
        return status;
    }
    *parser = opened;
    return AVO_OK;
}

void avo_chat_parser_close(avo_chat_parser *parser) {
    if (parser == NULL)
        return;
    chat_parser_close(parser->parser);
    allocator_give(parser->allocator, parser, sizeof(*parser));
}

static const tool_call *call_at(avo_chat_parser *parser, size_t index) {
    if (parser->parser == NULL || (index > 0 && !parser->parallel_calls))
        return NULL;
    return chat_parser_call(parser->parser, index);
}

avo_status avo_chat_parser_push(avo_chat_parser *parser, const avo_token_event *event,
                                avo_chat_delta *delta, avo_error *error) {
    chat_delta part = {0};
    avo_chat_delta now = AVO_CHAT_DELTA_INIT;
    text_view text =
        event == NULL ? (text_view){"", 0} : (text_view){event->text, event->text_bytes};
    if (parser->parser == NULL)
        part.text = text;
    else if (event == NULL)
        AVO_TRY(chat_parser_finish(parser->parser, &part, error));
    else
        AVO_TRY(chat_parser_push(parser->parser, event->token, text, &part, error));
    now.content = part.text.data;
    now.content_bytes = part.text.size;
    now.reasoning = part.reasoning.data;
    now.reasoning_bytes = part.reasoning.size;
    now.calls = parser->parser == NULL ? 0 : chat_parser_count(parser->parser);
    now.calls += call_at(parser, now.calls) != NULL;
    if (now.calls > 1 && !parser->parallel_calls)
        now.calls = 1;
    options_give(delta, &now, sizeof(now));
    return AVO_OK;
}

bool avo_chat_parser_call(avo_chat_parser *parser, size_t index, avo_tool_call *call) {
    const tool_call *found = call_at(parser, index);
    if (found == NULL)
        return false;
    avo_tool_call told = AVO_TOOL_CALL_INIT;
    told.name = found->name.data;
    told.name_bytes = found->name.size;
    told.arguments = found->arguments.data;
    told.arguments_bytes = found->arguments.size;
    told.complete = found->complete;
    options_give(call, &told, sizeof(told));
    return true;
}
