/* Constrained output: what an answer may be, as masks over the model's tokens. */
#ifndef AVO_SAMPLE_GRAMMAR_H
#define AVO_SAMPLE_GRAMMAR_H

#include "base/status.h"

#endif
