/* The classes of code points, as Hugging Face `tokenizers` sees them (unicode_table.c). */
#ifndef AVO_TOKENIZER_UNICODE_INT_H
#define AVO_TOKENIZER_UNICODE_INT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    UNICODE_LETTER = 1 << 0,      /* \p{L} */
    UNICODE_NUMBER = 1 << 1,      /* \p{N} */
    UNICODE_SPACE = 1 << 2,       /* \s */
    UNICODE_WORD = 1 << 3,        /* \w in a regular expression */
    UNICODE_NUMERIC = 1 << 4,     /* what the piece Digits calls a digit */
    UNICODE_PUNCTUATION = 1 << 5, /* what the piece Punctuation calls so */
    UNICODE_WORD_ALONE = 1 << 6,  /* \w where an added token wants to stand alone */
    UNICODE_MARK = 1 << 7,        /* dropped by StripAccents */
    UNICODE_OPAQUE = 1 << 8,      /* newer than the original's normaliser: left as it is */
    UNICODE_NFC_ACTIVE = 1 << 9   /* changes by NFC, or may change what stands before it */
};

/* Three levels: 512 code points, 8 code points, one. */
extern const uint16_t unicode_kinds[];
extern const uint8_t unicode_top[];
extern const uint16_t unicode_groups[];
extern const uint8_t unicode_leaves[];

/* `code_point` ≤ 0x10FFFF. */
static inline uint32_t unicode_class(uint32_t code_point) {
    uint32_t group = unicode_top[code_point >> 9];
    uint32_t leaf = unicode_groups[group * 64 + (code_point >> 3 & 63)];
    return unicode_kinds[unicode_leaves[leaf * 8 + (code_point & 7)]];
}

/* The code point of a character in valid UTF-8, and its bytes. */
static inline uint32_t unicode_take(const char *text, uint32_t *code_point) {
    const uint8_t *b = (const uint8_t *)text;
    if (b[0] < 0x80) {
        *code_point = b[0];
        return 1;
    }
    if (b[0] < 0xE0) {
        *code_point = (uint32_t)(b[0] & 0x1F) << 6 | (uint32_t)(b[1] & 0x3F);
        return 2;
    }
    if (b[0] < 0xF0) {
        *code_point =
            (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (uint32_t)(b[2] & 0x3F);
        return 3;
    }
    *code_point = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 |
                  (uint32_t)(b[2] & 0x3F) << 6 | (uint32_t)(b[3] & 0x3F);
    return 4;
}

#endif
