/* Scanners: the common pre-tokenizer patterns written by hand. Each cuts one piece off the front of
 * valid UTF-8, as the regular expression would match it there; together the pieces cover the text.
 */
#ifndef AVO_TOKENIZER_SCAN_INT_H
#define AVO_TOKENIZER_SCAN_INT_H

#include "base/cursor.h"

typedef enum scanner { SCANNER_GPT2, SCANNER_LLAMA3, SCANNER_QWEN2, SCANNER_COUNT } scanner;

/* The pattern a scanner stands for. */
const char *scanner_pattern(scanner scanner);
/* The scanner for exactly this pattern; SCANNER_COUNT when there is none. */
scanner scanner_find(text_view pattern);

/* The bytes of the first piece; `size` > 0. */
typedef size_t (*scan_function)(const char *text, size_t size);
scan_function scanner_function(scanner scanner);

#endif
