/* Continues a text: ./generate MODEL "Once upon a time"
 * cc generate.c $(pkg-config --cflags --libs avocet) -o generate */
#include <avocet.h>
#include <stdio.h>

static bool print_token(void *context, const avo_event *event) {
    (void)context;
    if (event->kind != AVO_EVENT_TOKEN)
        return true;
    fwrite(event->token->text, 1, event->token->text_bytes, stdout);
    return fflush(stdout) == 0; /* false ends the generation */
}

int main(int argc, char **argv) {
    avo_error error = {0};
    avo_model *model = NULL;
    avo_engine *engine = NULL;
    avo_session *session = NULL;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_request request = AVO_REQUEST_INIT;
    avo_result result = AVO_RESULT_INIT;

    options.context_max = 256;
    request.text = argc > 2 ? argv[2] : "Once upon a time";
    request.text_flags = AVO_TOKENIZE_BEGIN;
    request.max_new_tokens = 64;
    request.on_event = print_token;
    bool good = avo_model_open(argc > 1 ? argv[1] : "model.gguf", NULL, &model, &error) == AVO_OK &&
                avo_engine_open(model, &options, &engine, &error) == AVO_OK &&
                avo_session_open(engine, NULL, &session, &error) == AVO_OK &&
                avo_generate(engine, session, &request, &result, &error) == AVO_OK;
    if (!good)
        fprintf(stderr, "generate: %s\n", error.text);
    avo_session_close(session);
    avo_engine_close(engine);
    avo_model_close(model);
    return good ? 0 : 1;
}
