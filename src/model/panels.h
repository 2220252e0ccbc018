/* The weights as fast back ends read them: every matrix in PANELS. What a file holds in PANELS
 * stays where it lies; the rest is repacked, exact in value, into one region of huge pages. Built
 * once per model by the first engine that needs it, shared by all, closed with the model.
 *
 * How an engine uses it (the reference back end reads any layout and needs none of this):
 * model_panels_plan in the memory plan, before anything is taken; its missing_bytes count against
 * the limit. Once the team is open, model_panels with it; the engine copies the view that it gets
 * and puts its own rotation tables there.
 *
 * Each worker repacks the panels that team_share gives it of a matrix, of q, k and v together, in
 * the order of the forward pass. A step of few rows cuts its products in the same way, so that a
 * worker finds its pages on its own NUMA node; many rows are cut too, and whoever has time takes
 * the next part (device/cpu/phases/products.c), wherever its panels lie. (Another team size later
 * computes the same, from where the pages are.)
 */
#ifndef AVO_MODEL_PANELS_H
#define AVO_MODEL_PANELS_H

#include "base/region.h"
#include "model/model.h"

typedef struct panels_options {
    region_options region; /* huge, lock: of what stays mapped, too */
    bool copy_mapped;      /* take what the file holds in PANELS into the region too */
    avo_progress_function
        progress; /* "repack", bytes; called by the caller's thread. May be NULL */
    void *progress_context;
} panels_options;

/* Matrices that are treated alike. */
typedef struct panels_group {
    quant_type from, to;
    quant_layout layout; /* of `from` */
    bool repacked;       /* else used where it lies */
    uint32_t matrices;
    uint64_t bytes; /* as computed with */
} panels_group;
#define PANELS_GROUPS_MAX 32

typedef struct panels_plan {
    uint64_t mapped_bytes;  /* of the file, still read by steps: matrices, embeddings, norms */
    uint64_t repack_bytes;  /* of the region; 0: none is needed */
    uint64_t missing_bytes; /* of these, what is not there yet: 0 once they are built */
    uint32_t groups;
    panels_group group[PANELS_GROUPS_MAX];
} panels_plan;

/* What the view will take: computed from shapes, nothing is read. Fails for a type that cannot be
 * repacked. */
AVO_MUST_USE avo_status model_panels_plan(const avo_model *model, const panels_options *options,
                                          panels_plan *plan, avo_error *error);

/* The view, without rotation tables. Whoever comes first builds it with its team and its options;
 * others wait and share. A failure (memory, or `progress` said no) leaves nothing behind, and the
 * next one may try again. The model does not change in any other way. */
AVO_MUST_USE avo_status model_panels(const avo_model *model, team *team,
                                     const panels_options *options, const model_view **out,
                                     avo_error *error);

/* The region, for those who show it; NULL while nothing was built or nothing was repacked. */
const region *model_panels_region(const avo_model *model);

/* For model/open.c. */
AVO_MUST_USE avo_status model_panels_init(avo_model *model, avo_error *error);
void model_panels_close(avo_model *model);

#endif
