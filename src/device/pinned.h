/* Memory of the host that a device copies to and from without a copy in between, where it can. */
#ifndef AVO_DEVICE_PINNED_H
#define AVO_DEVICE_PINNED_H

#include "device/device.h"

typedef struct device_pinned {
    uint8_t *data; /* at a multiple of 64 */
    size_t bytes;
} device_pinned;

AVO_MUST_USE avo_status device_pinned_take(device *device, size_t bytes, const char *what,
                                           device_pinned *out, avo_error *error);
/* {0} may be given, too. */
void device_pinned_give(device *device, device_pinned *pinned);

#endif
