/* Normalisation of a text by the image's steps. */
#ifndef AVO_TOKENIZER_NORMALISE_INT_H
#define AVO_TOKENIZER_NORMALISE_INT_H

#include "tokenizer/draft_int.h"
#include "tokenizer/regex_int.h"

typedef struct normaliser {
    const avo_allocator *allocator;
    buffer buffers[2]; /* the steps' results, in turn */
    buffer subject;    /* of a pattern */
    int32_t *points;   /* code points of a run, and room to sort them */
    size_t point_capacity;
    regex_match *match;
    regex *const *regexes; /* one per step, NULL where it has none; may be NULL */
    bool told;             /* the pattern's failure has its text already */
    size_t growth_left;    /* by how much steps may still make texts longer */
} normaliser;

void normaliser_init(normaliser *normaliser, const avo_allocator *allocator);
void normaliser_free(normaliser *normaliser);
/* Texts of `bytes` in all are to come: sets how much longer all steps together may make them, those
 * of pre-tokenisation included, so that a few steps that each multiply their text stay harmless. */
void normaliser_allow(normaliser *normaliser, size_t bytes);
/* Before and after a step writes what it makes of `bytes` into the empty `out`. */
void normaliser_bound(const normaliser *normaliser, size_t bytes, buffer *out);
void normaliser_charge(normaliser *normaliser, size_t bytes, const buffer *out);
/* The step would make its text too long. */
AVO_MUST_USE avo_status normaliser_refuse(const image_step *step, size_t bytes, size_t limit,
                                          avo_error *error);

/* `text` is valid UTF-8; so is *out, which is `text` itself where nothing changed and lives until
 * the next call otherwise. `continued`: the text goes on from an earlier part, so that nothing is
 * put in front of it. */
AVO_MUST_USE avo_status normalise(normaliser *normaliser, const image_step *steps, uint32_t count,
                                  const char *texts, text_view text, bool continued, text_view *out,
                                  avo_error *error);

/* One of the forms NFC, NFD, NFKC, NFKD. */
AVO_MUST_USE avo_status normalise_form(normaliser *normaliser, step_kind form, text_view text,
                                       buffer *out);

/* Added tokens that are sought in the normalised text are normalised themselves. */
AVO_MUST_USE avo_status normalise_added(draft *draft);

#endif
