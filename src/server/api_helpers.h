/* Helpers: threads for the few endpoints that must wait or compute for long (files of adapters, the
 * time of a trace, tokens of long texts). */
#ifndef AVO_SERVER_API_HELPERS_H
#define AVO_SERVER_API_HELPERS_H

#include "server/api_int.h"

/* False: there are API_HELPERS_MAX already, or no thread could be made; `run` is not called then.
 * api_close waits for those that run. */
bool helper_start(api *api, void (*run)(struct api *api, void *context), void *context);

/* Answers at once where the body is short, else on a helper: the streams of a connections' thread
 * stand still while it computes. 503 where there is no helper left. */
void helper_answer(api *api, exchange *exchange,
                   void (*answer)(struct api *api, struct exchange *exchange));

#endif
