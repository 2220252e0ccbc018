/* Helpers: threads for the few endpoints that must wait for long (files of adapters, the time of a
 * trace); readers: those that read large bodies. */
#ifndef AVO_SERVER_API_HELPERS_H
#define AVO_SERVER_API_HELPERS_H

#include "server/api/api_int.h"

/* False: API_HELPERS_MAX are at work, or no thread could be made; `run` is not called then.
 * `run` calls helper_finished before it answers: a client that has its answer must find a place
 * free for the next request. api_close waits until every `run` has returned. */
bool helper_start(api *api, void (*run)(struct api *api, void *context), void *context);
void helper_finished(api *api);

/* A thread of its own that nobody waits for. */
bool thread_start(void *(*run)(void *context), void *context);

/* Answers at once where the body is short (API_AT_ONCE_BYTES_MAX), else on one of API_READERS_MAX
 * readers, in the order of their coming: the streams of a connections' thread, and everybody's
 * /health, stand still while it reads. 503 at once where API_UNREAD_MAX wait already. */
void helper_answer(api *api, exchange *exchange,
                   void (*answer)(struct api *api, struct exchange *exchange));

#endif
