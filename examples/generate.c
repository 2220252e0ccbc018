/* Continues a text: ./generate MODEL "Once upon a time"
 * cc generate.c $(pkg-config --cflags --libs avocet) -o generate */
#include <avocet.h>
#include <stdio.h>
#include <string.h>

static bool print_token(void *context, const avo_token_event *event) {
    (void)context;
    fwrite(event->text, 1, event->text_bytes, stdout);
    return fflush(stdout) == 0; /* false ends the generation */
}

int main(int argc, char **argv) {
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
    avo_error error = {0};
    avo_model *model = NULL;
    avo_engine *engine = NULL;
    avo_session *session = NULL;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_generate_request request = AVO_GENERATE_REQUEST_INIT;
    avo_generate_result result = AVO_GENERATE_RESULT_INIT;
    int32_t tokens[512];

    options.context_max = 256;
    request.tokens = tokens;
    request.max_new_tokens = 64;
    request.on_token = print_token;
    bool good = avo_model_open(argc > 1 ? argv[1] : "model.gguf", NULL, &model, &error) == AVO_OK &&
                avo_engine_open(model, &options, &engine, &error) == AVO_OK &&
                avo_session_open(engine, NULL, &session, &error) == AVO_OK &&
                avo_tokenize(model, prompt, strlen(prompt), AVO_TOKENIZE_BEGIN, tokens, 512,
                             &request.token_count, &error) == AVO_OK &&
                avo_generate(engine, session, &request, &result, &error) == AVO_OK;
    if (!good)
        fprintf(stderr, "generate: %s\n", error.text);
    avo_session_close(session);
    avo_engine_close(engine);
    avo_model_close(model);
    return good ? 0 : 1;
}
