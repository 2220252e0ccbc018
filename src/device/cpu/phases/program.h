/* The program of a step: its phases in order, each with what it computes and how many items that
 * is. Built by the thread that leads, before the team begins. */
#ifndef AVO_DEVICE_CPU_PHASES_PROGRAM_H
#define AVO_DEVICE_CPU_PHASES_PROGRAM_H

#include "device/cpu/backend.h"

#include <stdatomic.h>

/* Which matrices' input a phase is about. */
typedef enum phase_place {
    PLACE_NONE,
    PLACE_QUERY_KEY_VALUE,
    PLACE_OUTPUT,
    PLACE_GATE_UP,
    PLACE_DOWN,
    PLACE_EXPERTS, /* router, gate and up of experts */
    PLACE_HEAD_PROJECT,
    PLACE_HEAD
} phase_place;

typedef struct phase_entry phase_entry;
/* Computes the items that it takes. */
typedef void (*phase_compute)(const step_view *step, const phase_entry *at, team_items *items);

struct phase_entry {
    phase_compute compute;
    uint32_t layer;
    phase_place place;
    span_kind span;
    /* What several items contribute to is finished by the worker that comes last, inside the same
     * phase: phase_last counts them here. */
    atomic_uint *count;
    uint32_t counts;
    bool notes; /* it tells telemetry about its parts itself */
};

typedef struct phase_list {
    const step_view *step;
    uint32_t count, most;
    phase_entry *entry;   /* [most] */
    team_phase *phase;    /* [most] */
    atomic_uint *counter; /* [most · PHASE_COUNTS] for the entries that need some */
    uint32_t counted;     /* of these, in use */
    bool added;           /* the last phase_list_add had items */
    span_kind span;       /* of the phases that are added from now on */
    uint32_t layer;
} phase_list;

#define PHASE_COUNTS 16 /* of a phase, on average */

/* The time, where somebody counts. */
uint64_t step_clock(const step_view *step);
/* A worker has computed something since *begin, where somebody counts; begins anew. */
void step_note(const step_view *step, span_kind kind, uint32_t layer, uint32_t worker,
               uint64_t *begin);

size_t phase_list_bytes(uint32_t most);
/* `memory`: that many bytes. */
void phase_list_init(phase_list *list, uint32_t most, void *memory);
void phase_list_begin(phase_list *list, const step_view *step);
/* Nothing is added where there are no items. */
void phase_list_add(phase_list *list, phase_place place, phase_compute compute, size_t items);
/* A phase that the leading thread alone computes, while the others wait. */
void phase_list_lead(phase_list *list, phase_place place, phase_compute compute);
/* Whether a phase of every layer can have so many counters; two phases can. */
bool phase_list_counts(const phase_list *list, size_t counts);
/* Gives the phase that was added last so many; nothing where it had no items. */
void phase_list_count(phase_list *list, size_t counts);
/* Counts one of `items` contributions to `which`. True for the last one, which sees what all others
 * have written. */
static inline bool phase_last(const phase_entry *at, uint32_t which, uint32_t items) {
    return atomic_fetch_add_explicit(&at->count[which], 1, memory_order_acq_rel) + 1 == items;
}
/* Work inside a phase that several items need and one worker does, counters of the entry again:
 * whoever is first does it between phase_claim (true) and phase_finish; the others wait. As at the
 * end of a phase, only a worker that is stopped within such work delays them. */
static inline bool phase_claim(const phase_entry *at, uint32_t which) {
    unsigned none = 0;
    return atomic_load_explicit(&at->count[which], memory_order_relaxed) == 0 &&
           atomic_compare_exchange_strong_explicit(&at->count[which], &none, 1,
                                                   memory_order_relaxed, memory_order_relaxed);
}
static inline void phase_finish(const phase_entry *at, uint32_t which) {
    atomic_store_explicit(&at->count[which], 2, memory_order_release);
}
void phase_await(const phase_entry *at, uint32_t which);
/* Adds phases [first, first + count) once more, for the list's layer. */
void phase_list_repeat(phase_list *list, uint32_t first, uint32_t count);
void phase_list_run(phase_list *list);

#endif
