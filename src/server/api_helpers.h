/* Helpers: threads for the few endpoints that must wait (files of adapters, the time of a trace).
 */
#ifndef AVO_SERVER_API_HELPERS_H
#define AVO_SERVER_API_HELPERS_H

#include "server/api_int.h"

/* False: there are API_HELPERS_MAX already, or no thread could be made; `run` is not called then.
 * api_close waits for those that run. */
bool helper_start(api *api, void (*run)(struct api *api, void *context), void *context);

#endif
