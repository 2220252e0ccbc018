/* Between the files of error feedback. */
#ifndef AVO_QUANT_FEEDBACK_INT_H
#define AVO_QUANT_FEEDBACK_INT_H

#include "quant/feedback.h"

#define LANES              QUANT_PANEL_ROWS
#define FEEDBACK_GROUP_MAX 64

/* A panel under way, all arrays [k][16]: lane = row. */
typedef struct feedback_panel {
    const feedback_factor *factor; /* NULL: none */
    bool quick;                    /* the first candidate will do */
    size_t k;                      /* padded */
    size_t rows;                   /* lanes that count */
    float *weight;                 /* rotated where the type is */
    float *left;                   /* weight − what it became, of columns that are done */
    float *target;                 /* [256] the block's t without feedback from inside it */
    double error;
} feedback_panel;

/* target = weight + feedback of all columns before `begin`, for columns [begin, begin + count),
 * multiples of 16. */
void feedback_target(feedback_panel *panel, size_t begin, size_t count);
/* Adds to the tile of 16 columns at `column` the feedback of columns [from, to). */
void feedback_tile(const feedback_panel *panel, size_t column, size_t from, size_t to,
                   float *target);

/* A block of at most 64 columns that share one scale (and minimum) per lane. */
typedef struct feedback_group {
    size_t begin, count;
    const float *target; /* [count][16] */
    float lowest, highest;
    /* the best so far */
    float scale[LANES], minimum[LANES], cost[LANES];
    float number[FEEDBACK_GROUP_MAX][LANES];
    float left[FEEDBACK_GROUP_MAX][LANES];
} feedback_group;

void feedback_group_begin(feedback_group *group, size_t begin, size_t count, const float *target,
                          float lowest, float highest);
/* Rounds the group with these scales and minima (NULL: none), and keeps what is better, lane by
 * lane. */
void feedback_group_try(const feedback_panel *panel, feedback_group *group, const float *scale,
                        const float *minimum);
/* The group is done: what it has left goes into the panel. */
void feedback_group_end(const feedback_panel *panel, const feedback_group *group);

/* feedback_q4r.c */
void feedback_q4r(feedback_panel *panel, uint8_t *out);

#endif
