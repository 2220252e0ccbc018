/* A model as adapters see it. */
#ifndef AVO_MODEL_ADAPTERS_H
#define AVO_MODEL_ADAPTERS_H

#include "adapters/adapters.h"
#include "model/model.h"

/* Views and digest of the model, which outlives what is opened with it. */
adapter_base model_adapter_base(const avo_model *model);

/* "q8" (NULL too), "f16" or "f32". */
AVO_MUST_USE avo_status model_adapter_type(const char *name, quant_type *type, avo_error *error);

/* Like avo_registry_take, never waiting for files that must be opened first: *adapter is NULL then.
 */
AVO_MUST_USE avo_status model_registry_take_open(avo_registry *registry, const char *name,
                                                 avo_adapter **adapter, avo_error *error);

#endif
