/* The matrices of a model in the order of the forward pass. */
#ifndef AVO_DEVICE_MATRICES_H
#define AVO_DEVICE_MATRICES_H

#include "device/layer.h"

/* Of a dense layer: query, key, value, output, gate, up, down. */
#define MATRICES_DENSE 7

/* Of every layer, whether or not it has them all. In models with experts the dense ones are
 * followed by the router's, the shared expert's, then each expert's. */
size_t matrices_of_layer(const model_view *model);
/* The projection behind the embedding, those of every layer, the one before the head, the head. A
 * matrix that the model does not have is counted, too: its data is NULL. */
size_t matrices_count(const model_view *model);
const weight_view *matrices_at(const model_view *model, size_t index);
/* Bytes as stored; 0: there is no such matrix. */
uint64_t matrices_bytes_of(const weight_view *weight);
/* Of all matrices and both embeddings; a head that is the embedding is counted once. */
uint64_t matrices_bytes(const model_view *model);

#endif
