/* The program of a step: its phases in order, each with what it computes and how many items that
 * is. Built by the thread that leads, before the team begins. */
#ifndef AVO_DEVICE_CPU_PHASES_PROGRAM_H
#define AVO_DEVICE_CPU_PHASES_PROGRAM_H

#include "device/cpu/backend.h"

/* Which matrices' input a phase is about. */
typedef enum phase_place {
    PLACE_NONE,
    PLACE_QUERY_KEY_VALUE,
    PLACE_OUTPUT,
    PLACE_GATE_UP,
    PLACE_DOWN,
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
};

typedef struct phase_list {
    const step_view *step;
    uint32_t count, most;
    phase_entry *entry; /* [most] */
    team_phase *phase;  /* [most] */
    span_kind span;     /* of the phases that are added from now on */
    uint32_t layer;
} phase_list;

/* The leader has computed something by itself since *begin, where somebody counts; begins anew. */
uint64_t step_clock(const step_view *step);
void step_note(const step_view *step, span_kind kind, uint32_t layer, uint64_t *begin);

size_t phase_list_bytes(uint32_t most);
/* `memory`: that many bytes. */
void phase_list_init(phase_list *list, uint32_t most, void *memory);
void phase_list_begin(phase_list *list, const step_view *step);
/* Nothing is added where there are no items. */
void phase_list_add(phase_list *list, phase_place place, phase_compute compute, size_t items);
/* Adds phases [first, first + count) once more, for the list's layer. */
void phase_list_repeat(phase_list *list, uint32_t first, uint32_t count);
void phase_list_run(phase_list *list);

#endif
