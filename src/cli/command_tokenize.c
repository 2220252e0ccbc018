/* `avocet tokenize`: text to ids and pieces, and back again. */
#include "cli/tokenize_int.h"
#include "cli/tokenizer_open.h"

#include <string.h>
#include <unistd.h>

extern const cli_command command_tokenize;

/* ---- What is printed ---- */

static avo_status write_object(buffer *out, const tokenizer *tokenizer, const id_list *ids) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_array_begin(&w, "ids");
    for (size_t i = 0; i < ids->count; i++)
        json_i64(&w, ids->ids[i]);
    json_end(&w);
    json_member_array_begin(&w, "pieces");
    for (size_t i = 0; i < ids->count; i++)
        json_text(&w, tokenizer_piece(tokenizer, ids->ids[i]));
    json_end(&w);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append(out, "\n", 1);
}

static int print_text(text_view text) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_text(w, "text", text);
    json_end(w);
    return cli_json_print(&json);
}

static avo_status write_lines(buffer *out, const tokenizer *tokenizer, const id_list *ids) {
    for (size_t i = 0; i < ids->count; i++) {
        AVO_TRY(buffer_format(out, "%7d  ", ids->ids[i]));
        AVO_TRY(json_write_string(out, tokenizer_piece(tokenizer, ids->ids[i])));
        AVO_TRY(buffer_append(out, "\n", 1));
    }
    return AVO_OK;
}

/* ---- One text ---- */

static avo_status one_text(const tokenizer *tokenizer, const tokenize_options *options,
                           text_view text, buffer *out, avo_error *error) {
    id_list ids;
    id_list_init(&ids, NULL);
    avo_status status;
    if (options->decode) {
        status = tokenize_decode(tokenizer, options, text, &ids, out, error);
    } else {
        status = tokenize_encode(tokenizer, options, text, &ids, error);
        AVO_THEN(status, options->json ? write_object(out, tokenizer, &ids)
                                       : write_lines(out, tokenizer, &ids));
    }
    id_list_free(&ids);
    return status;
}

static int whole_text(const tokenizer *tokenizer, const tokenize_options *options,
                      const char *given) {
    buffer text;
    buffer out;
    avo_error error = {0};
    buffer_init(&text, NULL, CLI_INPUT_BYTES_MAX);
    buffer_init(&out, NULL, SIZE_MAX);
    bool input = given == NULL || strcmp(given, "-") == 0;
    avo_status status =
        input ? cli_read_input(STDIN_FILENO, "standard input", &text, &error) : AVO_OK;
    AVO_THEN(status, one_text(tokenizer, options, input ? buffer_text(&text) : text_from(given),
                              &out, &error));
    int exit_status = EXIT_GOOD;
    if (status == AVO_OK && options->decode && options->json) {
        exit_status = print_text(buffer_text(&out));
    } else if (status == AVO_OK) {
        cli_print_untrusted(stdout, buffer_text(&out));
        if (options->decode && out.size > 0 && out.data[out.size - 1] != '\n')
            fputc('\n', stdout);
    }
    buffer_free(&out);
    buffer_free(&text);
    if (status == AVO_OK)
        return exit_status;
    /* Ids that were typed are as wrong as any other argument that is no good. */
    if (status == AVO_ERROR_ARGUMENT && options->decode && !input)
        return cli_usage(&command_tokenize, "%s", error.text);
    return error.text[0] == '\0' ? cli_fail_text("%s", avo_status_text(status)) : cli_fail(&error);
}

static int run(int argc, char **argv) {
    tokenize_options options = {0};
    const option_spec specs[] = {
        {"json", 0, OPTION_FLAG, &options.json, NULL, "print {\"ids\":[…],\"pieces\":[…]}", 0, 0},
        {"jsonl", 0, OPTION_FLAG, &options.jsonl, NULL,
         "read one JSON string per line, print one JSON array of ids per line", 0, 0},
        {"decode", 0, OPTION_FLAG, &options.decode, NULL,
         "ids to text: 1,2,3 or [1, 2, 3] or the output of this command", 0, 0},
        {"special", 0, OPTION_FLAG, &options.special, NULL,
         "recognise special tokens in the text (and show them when decoding)", 0, 0},
        {"begin", 0, OPTION_FLAG, &options.begin, NULL,
         "add the BOS token if the tokenizer uses one", 0, 0},
        {0},
    };
    int words = 0;
    options_result result = options_parse(&command_tokenize, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        return options_exit(result);
    if (words < 1 || words > 2)
        return cli_usage(&command_tokenize, "needs a MODEL and at most one TEXT");
    if (options.jsonl && words == 2 && strcmp(argv[2], "-") != 0)
        return cli_usage(&command_tokenize, "--jsonl reads standard input, not a TEXT");
    avo_error error = {0};
    cli_tokenizer opened;
    if (cli_tokenizer_open(argv[1], &opened, &error) != AVO_OK)
        return cli_fail(&error);
    int code = options.jsonl ? tokenize_lines(opened.tokenizer, &options)
                             : whole_text(opened.tokenizer, &options, words == 2 ? argv[2] : NULL);
    cli_tokenizer_close(&opened);
    return code;
}

const cli_command command_tokenize = {
    .name = "tokenize",
    .summary = "convert text to token ids, and back",
    .usage = "avocet tokenize MODEL [TEXT|-] [--json|--jsonl] [--decode] [--special] [--begin]",
    .examples = "avocet tokenize smollm2 \"Hello world\"\n"
                "avocet tokenize tokenizer.json - --json < text.txt\n"
                "avocet tokenize smollm2 --decode 19556,905\n"
                "avocet tokenize smollm2 \"Hello world\" | avocet tokenize smollm2 --decode -",
    .run = run,
};
