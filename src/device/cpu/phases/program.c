/* Lists of phases, and what a worker does in one: the phase's computation, timed where somebody
 * counts. */
#include "device/cpu/phases/program.h"

#include "base/clock.h"
#include "base/cpu.h"

#include <assert.h>
#include <sched.h>

#define AWAIT_SPINS 4096 /* before the processor is offered to others */

uint64_t step_clock(const step_view *step) {
    return step->telemetry == NULL ? 0 : clock_now_ns();
}

static void note(const step_view *step, const phase_entry *at, uint32_t worker, uint64_t begin) {
    telemetry_engine_phase(step->telemetry,
                           &(telemetry_phase){.kind = at->span,
                                              .layer = at->layer,
                                              .worker = worker,
                                              .begin_ns = begin,
                                              .waited_ns = team_waited_ns(step->team, worker),
                                              .tracing = step->tracing});
}

void step_note(const step_view *step, span_kind kind, uint32_t layer, uint32_t worker,
               uint64_t *begin) {
    if (step->telemetry == NULL)
        return;
    note(step, &(phase_entry){.span = kind, .layer = layer}, worker, *begin);
    *begin = clock_now_ns();
}

size_t phase_list_bytes(uint32_t most) {
    return most * (sizeof(phase_entry) + sizeof(team_phase) + PHASE_COUNTS * sizeof(atomic_uint));
}

void phase_list_init(phase_list *list, uint32_t most, void *memory) {
    *list = (phase_list){.most = most, .entry = memory};
    list->phase = (team_phase *)(void *)(list->entry + most);
    list->counter = (atomic_uint *)(void *)(list->phase + most);
}

void phase_list_begin(phase_list *list, const step_view *step) {
    list->step = step;
    list->count = 0;
    list->counted = 0;
}

static void compute_entry(const void *context, uint32_t index, team_items *items) {
    const phase_list *list = context;
    const phase_entry *entry = &list->entry[index];
    const step_view *step = list->step;
    if (step->group != NULL && atomic_load_explicit(&step->group->failed, memory_order_relaxed)) {
        for (uint32_t item; team_take(items, &item);)
            continue;
        return;
    }
    if (step->telemetry == NULL || entry->notes) {
        entry->compute(step, entry, items);
        return;
    }
    uint64_t begin = clock_now_ns();
    entry->compute(step, entry, items);
    note(step, entry, items->worker, begin);
}

void phase_list_add(phase_list *list, phase_place place, phase_compute compute, size_t items) {
    list->added = items > 0;
    if (items == 0)
        return;
    assert(list->count < list->most && items <= TEAM_ITEMS_MAX);
    list->entry[list->count] =
        (phase_entry){.compute = compute, .layer = list->layer, .place = place, .span = list->span};
    list->phase[list->count] =
        (team_phase){.compute = compute_entry, .argument = list->count, .items = (uint32_t)items};
    list->count++;
}

void phase_list_lead(phase_list *list, phase_place place, phase_compute compute) {
    phase_list_add(list, place, compute, 1);
    list->phase[list->count - 1].own = true; /* worker 0's, who is the caller */
}

bool phase_list_counts(const phase_list *list, size_t counts) {
    uint32_t layers = list->step->model->layers;
    size_t left = (size_t)list->most * PHASE_COUNTS - list->counted;
    return counts <= left && counts <= list->most / (layers + 1) * (size_t)PHASE_COUNTS / 2;
}

void phase_list_count(phase_list *list, size_t counts) {
    if (!list->added)
        return;
    assert(counts + list->counted <= (size_t)list->most * PHASE_COUNTS);
    phase_entry *entry = &list->entry[list->count - 1];
    entry->count = list->counter + list->counted;
    entry->counts = (uint32_t)counts;
    for (size_t i = 0; i < counts; i++)
        atomic_init(&entry->count[i], 0);
    list->counted += (uint32_t)counts;
}

void phase_await(const phase_entry *at, uint32_t which) {
    for (uint32_t spins = 0; atomic_load_explicit(&at->count[which], memory_order_acquire) != 2;
         spins++) {
        if (spins < AWAIT_SPINS)
            cpu_pause();
        else
            sched_yield();
    }
}

void phase_list_repeat(phase_list *list, uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; i++) {
        const phase_entry *entry = &list->entry[i];
        list->span = entry->span;
        phase_list_add(list, entry->place, entry->compute, list->phase[i].items);
        list->entry[list->count - 1].notes = entry->notes;
        list->phase[list->count - 1].own = list->phase[i].own;
        phase_list_count(list, entry->counts);
    }
}

void phase_list_run(phase_list *list) {
    team_run(list->step->team, list->phase, list->count, list);
}
