/* A model that has a tokenizer and a chat template and nothing else: for tests of what happens to
 * texts. */
#ifndef AVO_TESTS_TEXT_MODEL_H
#define AVO_TESTS_TEXT_MODEL_H

#include "model/model.h"

typedef struct text_model {
    avo_model model;
    model_source source;
} text_model;

/* `tokenizer`: of tests/fixtures/tokenizer ("qwen2"). `chat`: NULL, none. `stop`: a token that ends
 * answers; NULL: none. */
void text_model_open(text_model *model, const char *tokenizer, const char *chat, const char *stop);
void text_model_close(text_model *model);

/* Templates in the style of ChatML and of [INST], without generation blocks. */
extern const char text_model_chatml[];
extern const char text_model_inst[];

#endif
