/* For devices with memory of their own: copies of a model's or an adapter's views in which every
 * pointer to numbers is a device address. The structures themselves stay in host memory. */
#ifndef AVO_DEVICE_UPLOAD_H
#define AVO_DEVICE_UPLOAD_H

#include "base/arena.h"
#include "device/layer.h"

/* Takes one array to the device; *address is where it is there. */
typedef avo_status (*upload_function)(void *context, const void *data, size_t bytes,
                                      const uint8_t **address, avo_error *error);

/* Walks everything that `from` points at, in the order of the forward pass. Arrays that several
 * views share in a layer, or that the head shares with the embedding, are taken once. A function
 * that only counts makes a plan. Structures come from `arena`, which may hold on to what was taken
 * when this fails. */
AVO_MUST_USE avo_status upload_model(const model_view *from, upload_function upload, void *context,
                                     arena *arena, model_view *to, avo_error *error);
AVO_MUST_USE avo_status upload_adapter(const adapter_view *from, const model_view *model,
                                       upload_function upload, void *context, arena *arena,
                                       adapter_view *to, avo_error *error);

#endif
