/* The tokenizer's rates on one thread: opening, encoding a text line by line and whole, decoding.
 *
 *   bench_tokenizer TOKENIZER TEXT [REPEAT]
 *
 * TOKENIZER is a tokenizer.json, tokenizer.model or tokenizer.bin, or a .gguf. Prints one JSON
 * object with the best of REPEAT (3) runs; bench/tokenizer.py compares it with Hugging Face. */
#include "tokenizer/tokenizer.h"
#include "base/file.h"
#include "formats/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Of this thread on its processor, so that neighbours on a busy machine do not count. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Nothing is carried from one run to the next. */
static encoder *fresh_encoder(const tokenizer *tokenizer) {
    encoder *opened;
    avo_error error = {0};
    if (encoder_open(tokenizer, &opened, &error) == AVO_OK)
        return opened;
    fprintf(stderr, "%s\n", error.text);
    exit(1);
}

static size_t encode(encoder *encoder, text_view text, id_list *ids) {
    encode_options options = {0};
    avo_error error = {0};
    if (encoder_run(encoder, text, &options, ids, &error) != AVO_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    return ids->count;
}

static size_t encode_lines(encoder *encoder, text_view text, id_list *ids) {
    size_t tokens = 0;
    for (size_t at = 0; at < text.size;) {
        const char *end = memchr(text.data + at, '\n', text.size - at);
        size_t size = end == NULL ? text.size - at : (size_t)(end - text.data) - at + 1;
        ids->count = 0;
        tokens += encode(encoder, (text_view){text.data + at, size}, ids);
        at += size;
    }
    return tokens;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER TEXT [REPEAT]\n");
        return 2;
    }
    long repeat = argc > 3 ? strtol(argv[3], NULL, 10) : 3;
    avo_error error = {0};
    tokenizer *tokenizer = NULL;
    model_source *source = NULL;
    file_map map;
    double begin = seconds();
    avo_status status = text_ends(text_from(argv[1]), TEXT_LITERAL(".gguf"))
                            ? source_open(argv[1], NULL, &source, &error)
                            : tokenizer_open_file(argv[1], NULL, &tokenizer, &error);
    if (status == AVO_OK && source != NULL)
        status = tokenizer_open(&source->tokenizer, NULL, &tokenizer, &error);
    double open = seconds() - begin;
    if (status == AVO_OK)
        status = file_map_open(argv[2], &map, &error);
    if (status != AVO_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    struct tokenizer *again = NULL;
    tokenizer_source image = {.kind = TOKENIZER_SOURCE_IMAGE, .data = tokenizer_image(tokenizer)};
    begin = seconds();
    status = tokenizer_open(&image, NULL, &again, &error);
    double reopen = seconds() - begin;
    tokenizer_close(again);
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    id_list ids;
    id_list_init(&ids, NULL);
    double lines = 1e9;
    double whole = 1e9;
    double decoding = 1e9;
    size_t line_tokens = 0;
    for (long i = 0; i < repeat; i++) {
        begin = seconds();
        encoder *encoder = fresh_encoder(tokenizer);
        line_tokens = encode_lines(encoder, text, &ids);
        encoder_close(encoder);
        double took = seconds() - begin;
        lines = took < lines ? took : lines;
        ids.count = 0;
        begin = seconds();
        encoder = fresh_encoder(tokenizer);
        encode(encoder, text, &ids);
        encoder_close(encoder);
        took = seconds() - begin;
        whole = took < whole ? took : whole;
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        begin = seconds();
        status = tokenizer_decode(tokenizer, ids.ids, ids.count, true, &out, &error);
        took = seconds() - begin;
        decoding = took < decoding ? took : decoding;
        buffer_free(&out);
    }
    double megabytes = (double)text.size * 1e-6;
    printf("{\"bytes\":%zu,\"tokens_lines\":%zu,\"tokens_whole\":%zu,\"lines_mb_s\":%.2f,"
           "\"whole_mb_s\":%.2f,\"decode_mb_s\":%.2f,\"open_ms\":%.2f,\"image_open_ms\":%.3f,"
           "\"image_bytes\":%zu}\n",
           text.size, line_tokens, ids.count, megabytes / lines, megabytes / whole,
           megabytes / decoding, open * 1e3, reopen * 1e3, tokenizer_image(tokenizer).size);
    id_list_free(&ids);
    file_map_close(&map);
    tokenizer_close(tokenizer);
    source_close(source);
    return status == AVO_OK ? 0 : 1;
}
