/* UTF-8, strictly: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef AVO_BASE_UTF8_H
#define AVO_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu

/* The bytes (1…4) of the valid character at `text`, with its code point; 0 when what stands there
 * is invalid or cut off. `size` > 0. */
size_t utf8_decode(const char *text, size_t size, uint32_t *code_point);

/* Writes 1…4 bytes and returns how many; `code_point` must be valid. */
size_t utf8_encode(uint32_t code_point, char *out);

/* How many bytes at the front are valid. */
size_t utf8_valid_prefix(const char *text, size_t size);

/* At an invalid position: how many bytes one replacement character stands for (the longest prefix
 * of a valid sequence, at least one byte: the Unicode standard's recommended practice, and what
 * Python and Rust do). */
size_t utf8_invalid_length(const char *text, size_t size);

/* How many bytes at the end form the beginning of a character that may still be completed (0…3). */
size_t utf8_incomplete_suffix(const char *text, size_t size);

#endif
