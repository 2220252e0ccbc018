/* What neighbours may ask of an engine beyond the public interface: for measurements only. */
#ifndef AVO_ENGINE_ENGINE_H
#define AVO_ENGINE_ENGINE_H

#include "kernels/backend.h"

/* The model as this engine computes it, the back end that does, and where K and V lie. */
const model_view *engine_model_view(const avo_engine *engine);
const backend *engine_backend(const avo_engine *engine);
const kv_view *engine_kv_view(const avo_engine *engine);

/* Extends a timeline of computed tokens, whole pages of them, to `length` tokens: tokens and pages
 * are copies of the first page, so that memory is really taken and written and a step has as much
 * to read as after a prompt of that length, without the time that this would take. What is computed
 * from it makes no sense. AVO_ERROR_FULL where the pool is too small. */
AVO_MUST_USE avo_status engine_session_fill(avo_session *session, uint32_t length,
                                            avo_error *error);

#endif
