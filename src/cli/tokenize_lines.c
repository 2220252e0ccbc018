/* `avocet tokenize --jsonl`: one JSON value per line in, one per line out.
 *
 * Made to cost little beside the tokenizer: input is read in large blocks and lines are looked at
 * where they lie, all memory is used again for the next line, and output is written when much of it
 * has gathered or when the next read may have to wait, so that whoever writes a line and reads the
 * answer before the next one never hangs. */
#include "base/json.h"
#include "cli/tokenize_int.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)1 << 20) /* of a read and of a write */

typedef struct line_work {
    const tokenizer *tokenizer;
    const tokenize_options *options;
    encoder *encoder;
    buffer input; /* what was read; `begin` is where the next line begins */
    size_t begin;
    bool at_end;
    uint64_t number; /* of the line, from 1 */
    arena arena;     /* strings with escapes in them */
    id_list ids;
    buffer text, out;
} line_work;

static void flush_lines(line_work *work) {
    fwrite(work->out.data, 1, work->out.size, stdout);
    fflush(stdout);
    work->out.size = 0;
}

/* Another block behind what is left of the one before. */
static avo_status read_more(line_work *work, avo_error *error) {
    buffer *input = &work->input;
    if (work->begin > 0) {
        memmove(input->data, input->data + work->begin, input->size - work->begin);
        input->size -= work->begin;
        work->begin = 0;
    }
    avo_status status = buffer_reserve(input, BLOCK_BYTES);
    if (status != AVO_OK)
        return status_fail(error, status, "the line is too long (more than %zu bytes)",
                           input->size);
    ssize_t got;
    do
        got = read(STDIN_FILENO, input->data + input->size, BLOCK_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return status_fail(error, AVO_ERROR_IO, "cannot read standard input: %s", strerror(errno));
    input->size += (size_t)got;
    work->at_end = got == 0;
    return AVO_OK;
}

/* The next line without its newline; `*found` is false at the end. */
static avo_status next_line(line_work *work, text_view *line, bool *found, avo_error *error) {
    size_t searched = 0;
    for (;;) {
        const char *begin = work->input.size > 0 ? work->input.data + work->begin : "";
        size_t left = work->input.size - work->begin;
        const char *end = left > searched ? memchr(begin + searched, '\n', left - searched) : NULL;
        *found = end != NULL || (work->at_end && left > 0);
        if (*found) {
            *line = (text_view){begin, end != NULL ? (size_t)(end - begin) : left};
            work->begin += line->size + (end != NULL);
            return AVO_OK;
        }
        if (work->at_end)
            return AVO_OK;
        searched = left;
        if (work->out.size > 0)
            flush_lines(work);
        AVO_TRY(read_more(work, error));
    }
}

static avo_status one_line(line_work *work, text_view line, avo_error *error) {
    if (work->options->decode) {
        AVO_TRY(
            tokenize_decode(work->tokenizer, work->options, line, &work->ids, &work->text, error));
        return json_write_string(&work->out, buffer_text(&work->text));
    }
    json_value value;
    arena_reset(&work->arena);
    AVO_TRY(json_parse(&work->arena, line, &value, error));
    if (value.kind != JSON_STRING)
        return status_fail(error, AVO_ERROR_ARGUMENT, "every line must be a JSON string");
    encode_options how = {.special = work->options->special, .add_begin = work->options->begin};
    work->ids.count = 0;
    AVO_TRY(encoder_run(work->encoder, value.string, &how, &work->ids, error));
    return tokenize_write_ids(&work->ids, &work->out);
}

/* All lines; after a failure `out` ends with the last good one. */
static avo_status all_lines(line_work *work, avo_error *error) {
    for (;;) {
        text_view line;
        bool found;
        work->number++;
        AVO_TRY(next_line(work, &line, &found, error));
        if (!found || ferror(stdout))
            return AVO_OK;
        size_t written = work->out.size;
        avo_status status = one_line(work, line, error);
        AVO_THEN(status, buffer_append(&work->out, "\n", 1));
        if (status != AVO_OK) {
            work->out.size = written;
            return status;
        }
        if (work->out.size >= BLOCK_BYTES)
            flush_lines(work);
    }
}

int tokenize_lines(const tokenizer *tokenizer, const tokenize_options *options) {
    line_work work = {.tokenizer = tokenizer, .options = options};
    avo_error error = {0};
    arena_init(&work.arena, NULL, CLI_INPUT_BYTES_MAX);
    id_list_init(&work.ids, NULL);
    buffer_init(&work.input, NULL, CLI_INPUT_BYTES_MAX);
    buffer_init(&work.text, NULL, SIZE_MAX);
    buffer_init(&work.out, NULL, SIZE_MAX);
    avo_status status = encoder_open(tokenizer, &work.encoder, &error);
    AVO_THEN(status, all_lines(&work, &error));
    if (work.out.size > 0)
        flush_lines(&work);
    encoder_close(work.encoder);
    buffer_free(&work.out);
    buffer_free(&work.text);
    buffer_free(&work.input);
    id_list_free(&work.ids);
    arena_free(&work.arena);
    if (status == AVO_OK)
        return EXIT_GOOD;
    return cli_fail_text("line %llu: %s", (unsigned long long)work.number,
                         error.text[0] == '\0' ? avo_status_text(status) : error.text);
}
