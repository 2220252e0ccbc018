/* Batches of KV events as vLLM's subscribers read them: msgpack arrays
 *
 *   [time, [event, …], 0]
 *   ["BlockStored", [block, …], parent or nil, [token, …], tokens of a block, nil, "GPU",
 *    adapter or nil]
 *   ["BlockRemoved", [block, …], "GPU"]
 *   ["AllBlocksCleared"]
 *
 * The last element of a batch is vLLM's rank of data parallelism, the first nil of BlockStored its
 * deprecated number of an adapter. "GPU" is vLLM's name of the memory that attention reads. */
#ifndef AVO_SERVER_KV_FORMAT_H
#define AVO_SERVER_KV_FORMAT_H

#include "base/buffer.h"
#include "memory/kv_events.h"

/* Appends one batch. Neighbours become one event where they are a chain, or are all removed. */
AVO_MUST_USE avo_status kv_format_batch(const kv_events *log, const kv_event *events,
                                        uint32_t count, double time, buffer *out);

#endif
