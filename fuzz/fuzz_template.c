/* Any bytes as a chat template over a fixed conversation. What renders must have sound trusted
 * spans, what fails must say where; few steps, so that nothing takes long. */
#include "tokenizer/template/template.h"

#include <stdlib.h>
#include <string.h>

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"},"
    "{\"role\": \"user\", \"content\": \"Hi <|x|> \xC3\xA9"
    "\\n\", \"n\": 3},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"a\", \"function\":"
    "{\"name\": \"f\", \"arguments\": {\"k\": [1, 2.5, true, null, {\"z\": \"y\"}]}}}]}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}],"
    "\"add_generation_prompt\": true, \"x\": \"abc\", \"n\": 7, \"l\": [3, 1, 2], \"d\": {\"a\": "
    "1}}";

static void check(const chat_template_output *output) {
    size_t end = 0;
    for (size_t i = 0; i < output->trusted_count; i++) {
        text_span span = output->trusted[i];
        if (span.begin >= span.end || (i > 0 && span.begin <= end) || span.end > output->text.size)
            abort();
        end = span.end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    json_value root;
    avo_error error;
    chat_template *chat = NULL;
    arena_init(&arena, NULL, (size_t)1 << 20);
    if (json_parse(&arena, text_from(variables), &root, &error) != AVO_OK)
        abort();
    if (chat_template_open((text_view){(const char *)data, size}, NULL, &chat, &error) == AVO_OK) {
        chat_template_output output;
        chat_template_output_init(&output, NULL);
        chat_template_input input = {.variables = &root,
                                     .begin_token = TEXT_LITERAL("<s>"),
                                     .now = 1753280096,
                                     .steps_max = 200000};
        avo_status status = chat_template_render(chat, &input, &output, &error);
        if (status == AVO_OK)
            check(&output);
        else if (strstr(error.text, "line") == NULL)
            abort();
        chat_template_output_free(&output);
        chat_template_close(chat);
    }
    arena_free(&arena);
    return 0;
}
