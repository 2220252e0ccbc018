/* A tiny llama2.c model with a tokenizer of bytes and a few words, random weights: text without
 * shared data. */
#ifndef AVO_TESTS_SUPPORT_TINY_MODEL_H
#define AVO_TESTS_SUPPORT_TINY_MODEL_H

#include <stdint.h>

#define TINY_CONTEXT    192
#define TINY_VOCABULARY 364 /* 3 special, 256 bytes, 95 characters, 10 words */

/* Writes both files into a folder and returns the model's path, in a static buffer. */
const char *tiny_model_write(const char *folder, uint64_t seed);
/* With other words, of at most 15 bytes each. */
const char *tiny_model_write_words(const char *folder, uint64_t seed, const char *const words[10]);
/* A PEFT folder for it, which must be there: LoRA of q_proj and o_proj, random numbers. */
void tiny_adapter_write(const char *folder, uint64_t seed);

#endif
