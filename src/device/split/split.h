/* One model on two devices: its first layers, with the embedding, on a CPU device, and the others,
 * with the head, on a device with memory of its own. Hidden rows go from the one to the other
 * through the host's memory in each step, and K and V of a layer are where the layer is. Both
 * devices compute the same bits, so the number of layers changes none.
 *
 * Composed from device.h alone, so any two registered devices do: "split:LAYERS:CPU+DEVICE".
 * LAYERS are the second device's; "auto" are as many as its memory holds. */
#ifndef AVO_DEVICE_SPLIT_SPLIT_H
#define AVO_DEVICE_SPLIT_SPLIT_H

#include "device/driver.h"

extern const device_driver device_split;

#endif
