/* Names for the scanners, for those outside the module. */
#include "tokenizer/words.h"

#include "tokenizer/draft_int.h"
#include "tokenizer/scan_int.h"

_Static_assert((int)WORD_PATTERN_GPT2 == (int)SCANNER_GPT2 &&
                   (int)WORD_PATTERN_LLAMA3 == (int)SCANNER_LLAMA3 &&
                   (int)WORD_PATTERN_QWEN2 == (int)SCANNER_QWEN2 &&
                   (int)WORD_PATTERN_COUNT == (int)SCANNER_COUNT,
               "patterns are scanners");

const char *word_pattern_name(word_pattern pattern) {
    static const char *const names[] = {"gpt2", "llama3", "qwen2"};
    return names[pattern];
}

const char *word_pattern_expression(word_pattern pattern) {
    return scanner_pattern((scanner)pattern);
}

size_t word_pattern_next(word_pattern pattern, text_view text) {
    return scanner_function((scanner)pattern)(text.data, text.size);
}

uint32_t word_byte_character(uint8_t byte) {
    return alphabet_character(byte);
}
