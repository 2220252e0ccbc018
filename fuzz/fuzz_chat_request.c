/* Requests of `run --prompts`, C and Python on any bytes: what opens keeps the limits of a request,
 * and an answer to it can be split into content and calls. The model is a corpus file without a
 * tokenizer, so calls have a form that is named here. */
#include "chat/chat_int.h"

#include <math.h>
#include <stdlib.h>

static struct {
    avo_model *model;
    avo_chat *chat;
    uint32_t vocabulary;
} fuzz;

static void open_once(void) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    if (fuzz.chat != NULL)
        return;
    if (avo_model_open(AVO_FUZZ_FOLDER "/corpus/model/llama.gguf", NULL, &fuzz.model, NULL) !=
            AVO_OK ||
        avo_chat_open(fuzz.model, &fuzz.chat, NULL) != AVO_OK)
        abort();
    chat_format_close(fuzz.chat->format);
    if (chat_format_named("hermes", &fuzz.chat->format, NULL) != AVO_OK)
        abort();
    avo_model_describe(fuzz.model, &info);
    fuzz.vocabulary = info.vocabulary;
}

static void check(const avo_request *request) {
    if (request->adapter_count > AVO_ADAPTERS_MAX || request->sampling == NULL ||
        isnan(request->sampling->temperature) || isnan(request->deadline))
        abort();
    for (size_t i = 0; i < request->token_count; i++)
        if (request->tokens[i] < 0 || (uint32_t)request->tokens[i] >= fuzz.vocabulary)
            abort();
}

static void split(const avo_chat_request *opened, text_view answer) {
    avo_chat_parser *parser = NULL;
    avo_chat_delta delta = AVO_CHAT_DELTA_INIT;
    avo_token_event event = {
        .token = 1, .text = answer.size > 0 ? answer.data : "", .text_bytes = answer.size};
    if (avo_chat_parser_open(opened, 0, &parser, NULL) != AVO_OK ||
        avo_chat_parser_push(parser, &event, &delta, NULL) != AVO_OK ||
        avo_chat_parser_push(parser, NULL, &delta, NULL) != AVO_OK)
        abort();
    avo_chat_parser_close(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    avo_chat_request *opened = NULL;
    avo_error error = {0};
    const char *text = size > 0 ? (const char *)data : "";
    open_once();
    avo_status status = avo_chat_request_open(fuzz.chat, text, size, NULL, &opened, &error);
    if ((status == AVO_OK) != (opened != NULL) || (status != AVO_OK && error.text[0] == '\0'))
        abort();
    if (opened != NULL) {
        check(avo_chat_request_get(opened));
        split(opened, (text_view){text, size});
    }
    avo_chat_request_close(opened);
    return 0;
}
