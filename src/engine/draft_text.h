/* Timelines in the tokens of a draft model that has another vocabulary.
 *
 * Both models share the text. A follower turns the target's tokens into text and the text into the
 * draft model's tokens; only its newest words are tokenized again when text is added, and
 * everything before them keeps its tokens. Guessed text goes the other way: more
 * text could make its last token a longer one, so that token counts as less likely unless the text
 * has ended. Leaving it out costs a step of the draft model and hardly raises acceptance
 * (measured).
 *
 * What a tokenizer would have made of the whole text at once can differ from this. That makes
 * drafts worse, never answers. The first text of a follower, and words longer than any before,
 * allocate. */
#ifndef AVO_ENGINE_DRAFT_TEXT_H
#define AVO_ENGINE_DRAFT_TEXT_H

#include "spec/spec.h"
#include "tokenizer/tokenizer.h"

#define DRAFT_TEXT_GUESSES (DRAFTS_MAX + 4) /* tokens of the draft model behind one timeline */

typedef struct draft_text draft_text;

uint64_t draft_text_bytes(uint32_t followers, uint32_t context_max);
/* `context_max`: tokens of the draft model. Both tokenizers outlive it. */
AVO_MUST_USE avo_status draft_text_open(const tokenizer *target, const tokenizer *own,
                                        uint32_t followers, uint32_t context_max,
                                        const avo_allocator *allocator, draft_text **out,
                                        avo_error *error);
void draft_text_close(draft_text *text);
/* The follower begins with an empty timeline. */
void draft_text_clear(draft_text *text, uint32_t follower);

/* The target's timeline, which has grown since the last call, in the draft model's tokens; count 0:
 * it does not fit, or is not text. Lives until the next call for this follower. */
draft_timeline draft_text_follow(draft_text *text, uint32_t follower,
                                 const draft_timeline *timeline);

/* The draft model guesses `token`, with this probability, behind the guesses since
 * draft_text_follow. Fills out->tokens, grade and count, up to `most`. False: no guess can follow.
 */
bool draft_text_guess(draft_text *text, uint32_t follower, int32_t token, float probability,
                      uint32_t most, draft *out);
/* Guesses since draft_text_follow, and the last of them. */
uint32_t draft_text_guesses(const draft_text *text, uint32_t follower, int32_t *last);

#endif
