/* A model as adapters see it. */
#ifndef AVO_MODEL_ADAPTERS_H
#define AVO_MODEL_ADAPTERS_H

#include "adapters/adapters.h"
#include "model/model.h"

/* Views and digest of the model, which outlives what is opened with it. */
adapter_base model_adapter_base(const avo_model *model);

#endif
