/* Any text on fixed small tokenizers, byte-level with NFC-free steps and SentencePiece-like: what
 * was encoded decodes to itself, byte for byte, and user text never becomes a special token. */
#include "fuzz_tokenizer.h"

#include <stdio.h>

static tokenizer *byte_level;
static tokenizer *scored;

static void must(avo_status status) {
    if (status != AVO_OK)
        abort();
}

/* The byte-level alphabet, in the order of bytes. */
static uint32_t letter(uint32_t byte) {
    if ((byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE)
        return byte;
    return byte <= 0x20 ? 0x100 + byte : byte <= 0xA0 ? 0x121 + byte - 0x7F : 0x143;
}

static void open_byte_level(void) {
    buffer json;
    avo_error error;
    buffer_init(&json, NULL, SIZE_MAX);
    must(buffer_append_text(
        &json, "{\"added_tokens\":[{\"id\":300,\"content\":\"<|x|>\",\"special\":true,"
               "\"normalized\":false},{\"id\":301,\"content\":\"AB\",\"special\":false,"
               "\"normalized\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\","
               "\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
               "\"model\":{\"type\":\"BPE\",\"vocab\":{"));
    for (uint32_t byte = 0; byte < 256; byte++) {
        char text[8] = {0};
        utf8_encode(letter(byte), text);
        must(byte == '"' || byte == '\\' ? buffer_format(&json, "\"\\%s\":%u,", text, byte)
                                         : buffer_format(&json, "\"%s\":%u,", text, byte));
    }
    must(buffer_append_text(&json,
                            "\"aa\":256,\"aaa\":257,\"aaaa\":258,\"ab\":259,\"ba\":260,"
                            "\"\xC4\xA0"
                            "a\":261,\"\xC3\xB0\xC5\x81\":262},\"merges\":[\"a a\",\"aa aa\","
                            "\"aa a\",\"a b\",\"\xC4\xA0 a\",\"\xC3\xB0 \xC5\x81\",\"b a\"]}}"));
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON,
                               .data = {(const uint8_t *)json.data, json.size}};
    must(tokenizer_open(&source, &fuzz_allocator, &byte_level, &error));
    buffer_free(&json);
}

static void put_token(buffer *out, float score, const char *text) {
    uint32_t size = (uint32_t)strlen(text);
    must(buffer_append(out, &score, 4));
    must(buffer_append(out, &size, 4));
    must(buffer_append(out, text, size));
}

static void open_scored(void) {
    static const char *const pieces[] = {" ",  "a",  "b",   "c",   "aa",
                                         "ab", " a", "aab", "abc", "\xC3\xA9"};
    buffer file;
    avo_error error;
    uint32_t longest = 8;
    buffer_init(&file, NULL, SIZE_MAX);
    must(buffer_append(&file, &longest, 4));
    put_token(&file, 0, "<unk>");
    put_token(&file, 0, "\n<s>\n");
    put_token(&file, 0, "\n</s>\n");
    for (uint32_t byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        put_token(&file, 0, text);
    }
    for (uint32_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        put_token(&file, -(float)i, pieces[i]);
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_LLAMA2C,
                               .data = {(const uint8_t *)file.data, file.size}};
    must(tokenizer_open(&source, &fuzz_allocator, &scored, &error));
    buffer_free(&file);
}

static void round_trip(const tokenizer *tokenizer, text_view text, const encode_options *options) {
    avo_error error;
    id_list ids;
    buffer out;
    id_list_init(&ids, &fuzz_allocator);
    buffer_init(&out, &fuzz_allocator, SIZE_MAX);
    must(tokenizer_encode(tokenizer, text, options, &ids, &error));
    must(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &out, &error));
    if (!text_equal(buffer_text(&out), text))
        abort();
    buffer_free(&out);
    id_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (byte_level == NULL) {
        open_byte_level();
        open_scored();
    }
    if (size < 2)
        return 0;
    text_view text = {(const char *)data + 2, size - 2};
    text_span span = {data[1] % (text.size + 1), text.size};
    encode_options options = {.special = data[0] & 1,
                              .trusted_given = data[0] & 2,
                              .trusted = &span,
                              .trusted_count = data[0] & 4 ? 1 : 0};
    fuzz_text(byte_level, text, &options, true);
    fuzz_text(scored, text, &options, true);
    round_trip(byte_level, text, &options);
    round_trip(scored, text, &options);
    return 0;
}
