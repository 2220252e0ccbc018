/* What one token reads of a model's weights: all of a dense model's but its table of embeddings, of
 * a mixture of experts only those that it uses. */
#ifndef AVO_MODEL_READS_H
#define AVO_MODEL_READS_H

#include "model/model.h"

typedef struct model_reads {
    uint64_t bytes;         /* of matrices as stored */
    uint64_t parameters;    /* in these */
    uint64_t expert_bytes;  /* of all experts, whether or not a token uses them; 0: dense */
    uint32_t experts, used; /* of a layer */
} model_reads;

model_reads model_reads_of(const model_view *view);

#endif
