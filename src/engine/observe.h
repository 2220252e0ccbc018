/* Engines for those who want to see what every matrix is given: calibration. */
#ifndef AVO_ENGINE_OBSERVE_H
#define AVO_ENGINE_OBSERVE_H

#include "device/device.h"

/* As avo_engine_open, on the reference back end, whatever else there is; every step shows the
 * observer, which outlives the engine, what it computes. */
AVO_MUST_USE avo_status engine_open_observed(const avo_model *model,
                                             const avo_engine_options *options,
                                             const step_observer *observer, avo_engine **out,
                                             avo_error *error);
/* The workers that will call the observer. */
uint32_t engine_workers(const avo_engine *engine);

#endif
