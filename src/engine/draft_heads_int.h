/* Inside the draft heads: draft_heads.c opens them and keeps taps, draft_heads_run.c computes. */
#ifndef AVO_ENGINE_DRAFT_HEADS_INT_H
#define AVO_ENGINE_DRAFT_HEADS_INT_H

#include "engine/draft_heads.h"
#include "engine/engine_int.h"
#include "engine/head_program.h"

#define HEADS_FEED_MAX                                                                             \
    128 /* rows that layers are fed at once: of a prompt, or when they begin anew */
/* With which layers begin: more make drafts a little better and the first one late. */
#define HEADS_BEGIN_ROWS  32
#define HEADS_ROWS_MIN    32 /* of one pass, of all drafters together; more where there are many */
#define HEADS_FEED_PASSES 2  /* before the one with a draft, of each request */
#define HEADS_ROWS_MAX    256
#define HEADS_GATHER_ROWS 1024 /* of the output matrix, behind each of the first steps */
#define HEADS_CONTEXT     1024 /* rows that layers keep K and V of; then they begin anew */

/* Classes of passes: of 1, 2, up to 4, 8, 16 requests, and more. */
#define HEADS_PASSES 6
static inline uint32_t heads_pass_class(uint32_t requests) {
    uint32_t class = 0;
    while (class < HEADS_PASSES - 1 && requests > 1u << class)
        class ++;
    return class;
}

/* The taps of one drafter's newest rows. */
typedef struct head_feed {
    uint64_t serial;     /* of the session whose steps it follows; 0: none */
    uint32_t begin, end; /* positions that are there */
} head_feed;

/* What the layers of one drafter have computed from true taps: rows [base, base + count). */
typedef struct head_rows {
    uint32_t base, count;
    bool begun;
} head_rows;

/* One kind of heads. */
typedef struct head_unit {
    const avo_heads *heads;           /* NULL: none of this kind */
    uint32_t tap[HEADS_TAPS_MAX];     /* their places among those that are kept */
    head_program fuse, input, layers; /* Medusa: `input` has all states, `layers` the logits */
    head_program block[HEADS_BLOCKS_MAX], output[HEADS_MEDUSA_MAX]; /* of heads that have them */
    head_rows *rows;                                                /* [drafters]; NULL: Medusa */
    double pass_ns[HEADS_PASSES]; /* one row for each request, learned by their number */
} head_unit;

/* Rows of the pass at hand. */
typedef struct head_batch {
    uint32_t rows;
    float *fused;   /* [rows_max][taps · width] */
    float *joined;  /* [rows_max][2 · width] */
    float *x;       /* [rows_max][width], Medusa: [rows_max][heads · width] */
    int32_t *token; /* [rows_max] of the row; its embedding */
    uint32_t *position, *row_segment, *logit_row;
    batch_segment *segment; /* [drafters] */
    uint32_t *request;      /* [drafters] of each segment */
    uint32_t segments;
} head_batch;

/* The programs of a unit, and what they compute; views are NULL where there is none. */
#define HEAD_PROGRAMS (3 + HEADS_BLOCKS_MAX + HEADS_MEDUSA_MAX)
void head_unit_programs(head_unit *unit, head_program *programs[HEAD_PROGRAMS]);

struct draft_heads {
    const avo_allocator *allocator;
    avo_engine *target;
    uint32_t drafters, width;
    uint32_t rows_max;             /* of one pass */
    uint32_t taps;                 /* kept of each row */
    uint32_t tap[DEVICE_TAPS_MAX]; /* their numbers among the target's */
    uint32_t kept;                 /* rows of each drafter */
    float *ring;                   /* [drafters][kept][taps][width]; NULL: no heads read taps */
    head_feed *feed;               /* [drafters] */
    uint32_t *pages;               /* [drafters][pages of HEADS_CONTEXT], the same for all layers */
    head_unit unit[HEADS_KINDS];
    head_batch batch;
    arena arena;       /* all arrays */
    double assumed_ns; /* tests: of a pass; 0: learned */
    bool whole;        /* tests: all logits are wanted */
};

static inline float *head_ring_row(const draft_heads *own, uint32_t drafter, uint32_t position) {
    return own->ring +
           ((size_t)drafter * own->kept + position % own->kept) * own->taps * own->width;
}

#endif
