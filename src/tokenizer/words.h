/* Words: how the common pre-tokenizers divide a text, for training a byte-level vocabulary. */
#ifndef AVO_TOKENIZER_WORDS_H
#define AVO_TOKENIZER_WORDS_H

#include "base/cursor.h"

typedef enum word_pattern {
    WORD_PATTERN_GPT2,
    WORD_PATTERN_LLAMA3, /* numbers in groups of three digits */
    WORD_PATTERN_QWEN2,  /* digits alone */
    WORD_PATTERN_COUNT
} word_pattern;

/* "gpt2", "llama3", "qwen2" */
const char *word_pattern_name(word_pattern pattern);
/* The regular expression, as tokenizer.json has it. */
const char *word_pattern_expression(word_pattern pattern);
/* The bytes of the first word of valid UTF-8; `text` is not empty. Words cover the text. */
size_t word_pattern_next(word_pattern pattern, text_view text);

/* The character that stands for a byte in byte-level vocabularies. */
uint32_t word_byte_character(uint8_t byte);

#endif
