/* One model split over several CPU devices, its ranks. Each is in a process (or thread) of its own
 * and computes the same steps, each its part, and what the others need of it is exchanged between
 * the phases. This is the CPU device's side: who computes what, and the call that exchanges.
 * device/ranks/ has the other side, which starts the ranks and carries the bytes.
 *
 *   by rows    every matrix is split by output rows, so each output is summed on one rank in the
 *              order of one process: the number of ranks changes no bit. After each of the four
 *              groups of products of a layer, all ranks get the outputs of all. Queries, keys and
 *              values go by whole KV heads, so that attention needs no exchange of its own.
 *   by layers  every rank has some of the layers, and rows go from rank to rank and back to rank 0,
 *              which has the head.
 *
 * Rank 0 leads: it has the front end, and only it has the results of a step. Embeddings, norms and
 * the projections before and behind the layers are computed by all.
 */
#ifndef AVO_DEVICE_CPU_GROUP_H
#define AVO_DEVICE_CPU_GROUP_H

#include "device/device.h"
#include "quant/panels.h"

#define GROUP_RANKS_MAX DEVICE_RANKS_MAX

typedef struct group_part {
    uint8_t *data;
    size_t bytes; /* 0: nothing */
} group_part;

typedef struct cpu_group {
    uint32_t rank, ranks;
    bool by_layers;
    /* Sends send[r] to every rank r and receives receive[r] from it; both are [ranks], a rank's
     * entries for itself are not read. Called by the thread that leads a step. After a failure the
     * group is of no use any more. */
    avo_status (*exchange)(void *context, const group_part *send, const group_part *receive,
                           avo_error *error);
    void *context;
} cpu_group;

/* ---- Who computes what. All ranks come to the same, from shapes and types alone. ---- */

typedef struct group_range {
    size_t first, end;
} group_range;

/* KV heads of a layer. */
group_range group_heads(const cpu_group *group, const layer_view *layer, uint32_t rank);
/* Outputs of the layer's attention: those of the queries of its KV heads. */
group_range group_attended(const cpu_group *group, const layer_view *layer, uint32_t rank);
/* Rows of a matrix whose outputs join the residual. */
group_range group_width(const cpu_group *group, uint32_t width, uint32_t rank);
/* Rows of gate and up. */
group_range group_feed_forward(const cpu_group *group, const layer_view *layer, uint32_t rank);
/* Pieces of GROUP_PIECE tokens of the vocabulary, of `count`. */
#define GROUP_PIECE 512
group_range group_pieces(const cpu_group *group, size_t count, uint32_t rank);
/* Layers; by_layers alone. The last ranks may have none. */
group_range group_layers(const cpu_group *group, const model_view *model, uint32_t rank);

/* In whole panels. */
static inline group_range group_panels(group_range rows) {
    return (group_range){rows.first / QUANT_PANEL_ROWS * QUANT_PANEL_ROWS,
                         (rows.end + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS * QUANT_PANEL_ROWS};
}

/* Whether the ranks' parts of a product's input begin where blocks of its form do, so that each
 * rank can send its own in that form. `part`: of one rank. */
typedef group_range group_part_of(const cpu_group *group, const layer_view *layer, uint32_t rank);
bool group_aligned(const cpu_group *group, const layer_view *layer, group_part_of *part,
                   product_form form);

/* ---- A rank's weights ---- */

/* `model` with those rows or layers alone that the group's rank computes. `layers`: room for
 * model->layers of them. Embeddings and projections before and behind the layers stay whole. */
void group_model(const cpu_group *group, const model_view *model, layer_view *layers,
                 model_view *out);

#endif
