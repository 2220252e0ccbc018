/* base/team: the protocol of src/base/team.c as a model, explored exhaustively for small teams.
 * Each transition is one access to one shared word, in any interleaving, with workers stopped
 * anywhere for any time. In no state that can be reached
 *   - is an item computed twice, in a phase that has not begun, or after its program has ended;
 *   - does a phase or a program end with items that are not computed;
 *   - do all wait for one another: a wake-up is never lost, also of a worker that is late for a
 *     program, that sleeps inside one, or that is asked to stop.
 * Loads and stores are sequentially consistent here, as they are in team.c where it matters; sleeps
 * inside a program never time out here, so that nothing depends on it. */
#include "support/support.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS_MAX  3
#define PROGRAMS_MAX 3
#define PHASES_MAX   3
#define ITEMS_MAX    3

/* ---- The case that is explored ---- */

typedef struct model_case {
    const char *name;
    uint8_t workers; /* threads of the team */
    uint8_t programs;
    uint8_t active[PROGRAMS_MAX]; /* workers that take part: the team is resized in between */
    uint8_t phases[PROGRAMS_MAX];
    uint8_t items[PROGRAMS_MAX][PHASES_MAX];
    bool gathers; /* as a large team does */
} model_case;

/* ---- A state ---- */

typedef struct pair {
    uint8_t phase, count;
} pair;

/* Where a worker stands: the next access that it makes. */
typedef enum place {
    AT_CALL,      /* waits for a call */
    AT_PROGRAM,   /* reads the program's number */
    AT_HEADER,    /* reads first phase, count and workers */
    AT_CHECK,     /* reads the number again */
    AT_ITEMS,     /* reads the items of the phase */
    AT_ITEMS_OK,  /* reads the number again */
    AT_CLAIM,     /* looks at a share's claim word */
    AT_SWAP,      /* compares and swaps it */
    AT_COMPUTE,   /* computes the item */
    AT_DONE,      /* writes its done word */
    AT_WAKE,      /* looks for sleepers */
    AT_ALARM,     /* raises the alarm */
    AT_LOOK,      /* begins to look whether the phase is over */
    AT_SCAN,      /* reads the next done word */
    AT_REACHED,   /* raises the word that the others look at */
    AT_SLEEPY,    /* reads the alarm before it sleeps */
    AT_COUNTED,   /* counts itself among the sleepers */
    AT_ASLEEP,    /* until the alarm is another */
    AT_AWAKE,     /* counts itself out */
    AT_PUBLISH,   /* leader: takes the number away */
    AT_WRITE,     /* leader: writes items, one at a time */
    AT_WRITE_END, /* leader: header and number */
    AT_CALLING,   /* leader: calls the next worker */
    AT_STOP,      /* leader: says that it is over */
    AT_END
} place;

typedef struct worker_state {
    uint8_t at;
    uint8_t calls;   /* seen */
    uint8_t program; /* that it walks through */
    uint8_t first, count, workers;
    uint8_t phase; /* index */
    uint8_t items; /* of the phase */
    uint8_t helped, taken;
    pair seen; /* of the claim word */
    uint8_t item;
    uint8_t scan, sum;
    uint8_t alarm; /* seen */
    bool again;    /* the look before the sleep */
    bool back;     /* where AT_WAKE goes on: to the next phase */
} worker_state;

typedef struct model_state {
    worker_state worker[WORKERS_MAX];
    uint8_t called[WORKERS_MAX];
    pair claim[WORKERS_MAX], done[WORKERS_MAX];
    uint8_t program, first, count, active;
    uint8_t items[PHASES_MAX];
    uint8_t reached, alarm, sleepers;
    bool stop;
    uint8_t written;                            /* leader: items of the next program so far */
    uint8_t running;                            /* leader: number of the program, from 1 */
    uint8_t computed[PROGRAMS_MAX][PHASES_MAX]; /* bits */
} model_state;

/* The half of a hash that is stored saves reading most states that are others, and all of them when
 * the table grows. */
typedef struct entry {
    uint32_t number; /* of a state, from 1; 0: free */
    uint32_t hash;
} entry;

typedef struct explorer {
    const model_case *model;
    model_state *states; /* every state once, in the order of discovery */
    size_t count, capacity;
    entry *table;
    size_t table_size;
} explorer;

static size_t place_of(const explorer *e, uint32_t hash) {
    return (size_t)hash & (e->table_size - 1); /* a power of two, at most 2^32 */
}

static void table_grow(explorer *e) {
    entry *before = e->table;
    size_t size = e->table_size;
    e->table_size *= 2;
    e->table = calloc(e->table_size, sizeof(*e->table));
    assert_non_null(e->table);
    for (size_t i = 0; i < size; i++) {
        if (before[i].number == 0)
            continue;
        size_t at = place_of(e, before[i].hash);
        while (e->table[at].number != 0)
            at = (at + 1) & (e->table_size - 1);
        e->table[at] = before[i];
    }
    free(before);
}

static void add_state(explorer *e, const model_state *state) {
    if (2 * e->count >= e->table_size)
        table_grow(e);
    uint32_t hash = (uint32_t)hash_bytes(state, sizeof(*state));
    size_t at = place_of(e, hash);
    for (; e->table[at].number != 0; at = (at + 1) & (e->table_size - 1))
        if (e->table[at].hash == hash &&
            memcmp(&e->states[e->table[at].number - 1], state, sizeof(*state)) == 0)
            return;
    if (e->count == e->capacity) {
        e->capacity *= 2;
        e->states = realloc(e->states, e->capacity * sizeof(*e->states));
        assert_non_null(e->states);
    }
    e->states[e->count] = *state;
    e->table[at] = (entry){(uint32_t)++e->count, hash};
}

/* ---- Shares ---- */

static void share_of(const worker_state *self, uint8_t owner, uint8_t *begin, uint8_t *items) {
    uint8_t base = self->items / self->workers, rest = self->items % self->workers;
    *begin = (uint8_t)(owner * base + (owner < rest ? owner : rest));
    *items = (uint8_t)(base + (owner < rest));
}

static uint8_t owner_of(const worker_state *self, uint8_t index) {
    return (uint8_t)((index + self->helped) % self->workers);
}

/* ---- What must hold ---- */

static void compute_item(const model_case *model, model_state *s, const worker_state *self,
                         uint8_t item) {
    assert_int_equal(self->program, s->running); /* the caller's memory is still that program's */
    uint8_t program = (uint8_t)(self->program - 1);
    for (uint8_t i = 0; i < self->phase; i++)
        assert_int_equal(s->computed[program][i], (1 << model->items[program][i]) - 1);
    assert_true(item < model->items[program][self->phase]);
    assert_int_equal(s->computed[program][self->phase] >> item & 1, 0);
    s->computed[program][self->phase] |= (uint8_t)(1 << item);
}

static void program_ended(const model_case *model, const model_state *s) {
    uint8_t program = (uint8_t)(s->running - 1);
    for (uint8_t i = 0; i < model->phases[program]; i++)
        assert_int_equal(s->computed[program][i], (1 << model->items[program][i]) - 1);
}

/* ---- Transitions ---- */

static void next_phase(const model_case *model, model_state *s, uint8_t index) {
    worker_state *self = &s->worker[index];
    self->phase++;
    self->at = AT_ITEMS;
    if (self->phase < self->count)
        return;
    self->at = AT_CALL;
    if (index > 0)
        return;
    program_ended(model, s);
    s->written = 0;
    if (s->running == model->programs) {
        self->at = AT_STOP;
        return;
    }
    s->running++;
    self->at = AT_PUBLISH;
}

/* After a look: the phase is over or not. */
static void looked(const model_case *model, model_state *s, uint8_t index, bool over) {
    worker_state *self = &s->worker[index];
    if (self->again) { /* it has counted itself among the sleepers */
        self->at = over ? AT_AWAKE : AT_ASLEEP;
        self->back = over;
    } else if (over) {
        next_phase(model, s, index);
    } else {
        self->at = AT_SLEEPY;
    }
}

/* The leader; false: it waits. */
static void step_leader(const model_case *model, model_state *s) {
    worker_state *self = &s->worker[0];
    uint8_t program = (uint8_t)(s->running - 1);
    switch ((place)self->at) {
    case AT_PUBLISH: {
        uint8_t before = s->first + s->count;
        for (uint8_t i = s->active; i < model->active[program]; i++) { /* team_resize */
            s->claim[i] = (pair){(uint8_t)(before - 1), 255};
            s->done[i] = (pair){(uint8_t)(before - 1), 0};
        }
        s->program = 0;
        self->at = AT_WRITE;
        break;
    }
    case AT_WRITE:
        s->items[s->written] = model->items[program][s->written];
        if (++s->written == model->phases[program])
            self->at = AT_WRITE_END;
        break;
    case AT_WRITE_END: /* who reads the header reads the number before and behind */
        s->first = (uint8_t)(s->first + s->count);
        s->count = model->phases[program];
        s->active = model->active[program];
        s->program = s->running;
        *self = (worker_state){.at = AT_CALLING,
                               .program = s->running,
                               .first = s->first,
                               .count = s->count,
                               .workers = s->active,
                               .scan = 1};
        break;
    case AT_CALLING:
        if (self->scan < self->workers)
            s->called[self->scan++]++;
        if (self->scan >= self->workers) {
            self->scan = 0;
            self->at = AT_ITEMS;
        }
        break;
    default: /* AT_STOP */
        s->stop = true;
        for (uint8_t i = 1; i < model->workers; i++)
            s->called[i]++;
        self->at = AT_END;
        break;
    }
}

static void step_claim(model_state *s, uint8_t index) {
    worker_state *self = &s->worker[index];
    uint8_t begin, items, owner = owner_of(self, index);
    uint8_t phase = (uint8_t)(self->first + self->phase);
    share_of(self, owner, &begin, &items);
    if (self->at == AT_SWAP) {
        pair *word = &s->claim[owner];
        if (word->phase != self->seen.phase || word->count != self->seen.count) {
            self->at = AT_CLAIM;
            return;
        }
        uint8_t taken = word->phase == phase ? word->count : 0;
        *word = (pair){phase, (uint8_t)(taken + 1)};
        self->item = (uint8_t)(begin + taken);
        self->taken++;
        self->at = AT_COMPUTE;
        return;
    }
    self->seen = s->claim[owner];
    uint8_t taken = self->seen.phase == phase ? self->seen.count : 0;
    bool over = self->seen.phase > phase;
    if (!over && taken < items) {
        self->at = AT_SWAP;
        return;
    }
    if (over || ++self->helped == self->workers)
        self->at = self->taken > 0 ? AT_DONE : AT_LOOK;
}

static void step_scan(const model_case *model, model_state *s, uint8_t index) {
    worker_state *self = &s->worker[index];
    uint8_t phase = (uint8_t)(self->first + self->phase);
    pair done = s->done[self->scan];
    bool over = done.phase > phase;
    self->sum = (uint8_t)(self->sum + (done.phase == phase ? done.count : 0));
    if (!over && ++self->scan < self->workers)
        return;
    over = over || self->sum == self->items;
    self->scan = self->sum = 0;
    if (over && model->gathers)
        self->at = AT_REACHED;
    else
        looked(model, s, index, over);
}

/* Reading what a program says of itself. */
static void step_read(model_state *s, uint8_t index) {
    worker_state *self = &s->worker[index];
    switch ((place)self->at) {
    case AT_PROGRAM:
        self->program = s->program;
        self->at = AT_HEADER;
        break;
    case AT_HEADER:
        self->first = s->first;
        self->count = s->count;
        self->workers = s->active;
        self->at = AT_CHECK;
        break;
    case AT_CHECK:
        self->phase = 0;
        self->at = self->program == 0 || s->program != self->program || index >= self->workers
                       ? AT_CALL
                       : AT_ITEMS;
        break;
    case AT_ITEMS:
        self->items = s->items[self->phase];
        self->at = AT_ITEMS_OK;
        break;
    default: /* AT_ITEMS_OK */
        self->helped = self->taken = 0;
        self->at = s->program == self->program ? AT_CLAIM : AT_CALL;
        break;
    }
}

static void step_sleep(const model_case *model, model_state *s, uint8_t index) {
    worker_state *self = &s->worker[index];
    switch ((place)self->at) {
    case AT_SLEEPY:
        self->alarm = s->alarm;
        self->at = AT_COUNTED;
        break;
    case AT_COUNTED:
        s->sleepers++;
        self->again = true;
        self->at = AT_LOOK;
        break;
    case AT_ASLEEP: /* woken */
        self->at = AT_AWAKE;
        break;
    default: /* AT_AWAKE */
        s->sleepers--;
        self->again = false;
        self->alarm = 0;
        if (self->back)
            next_phase(model, s, index);
        else
            self->at = AT_LOOK;
        self->back = false;
        break;
    }
}

static bool waits(const model_case *model, const model_state *s, uint8_t index) {
    const worker_state *self = &s->worker[index];
    (void)model;
    return self->at == AT_END || (self->at == AT_CALL && s->called[index] == self->calls) ||
           (self->at == AT_ASLEEP && s->alarm == self->alarm);
}

static void step(const model_case *model, model_state *s, uint8_t index) {
    worker_state *self = &s->worker[index];
    uint8_t phase = (uint8_t)(self->first + self->phase);
    switch ((place)self->at) {
    case AT_CALL:
        *self = (worker_state){.calls = s->called[index], .at = s->stop ? AT_END : AT_PROGRAM};
        break;
    case AT_PROGRAM:
    case AT_HEADER:
    case AT_CHECK:
    case AT_ITEMS:
    case AT_ITEMS_OK:
        step_read(s, index);
        if (self->at == AT_CLAIM && self->items == 0)
            next_phase(model, s, index);
        break;
    case AT_CLAIM:
    case AT_SWAP:
        step_claim(s, index);
        break;
    case AT_COMPUTE:
        compute_item(model, s, self, self->item);
        self->item = 0;
        self->at = AT_CLAIM;
        break;
    case AT_DONE:
        s->done[index] = (pair){phase, self->taken};
        self->at = AT_WAKE;
        break;
    case AT_WAKE:
        self->at = s->sleepers > 0 ? AT_ALARM : AT_LOOK;
        break;
    case AT_ALARM:
        s->alarm++;
        self->at = AT_LOOK;
        break;
    case AT_LOOK: /* a gathering team looks at one word, and somebody at all of them */
        self->seen = (pair){0, 0};
        if (model->gathers && s->reached > phase)
            looked(model, s, index, true);
        else
            self->at = AT_SCAN;
        break;
    case AT_SCAN:
        step_scan(model, s, index);
        break;
    case AT_REACHED:
        s->reached = s->reached > phase ? s->reached : (uint8_t)(phase + 1);
        if (s->sleepers > 0)
            s->alarm++;
        looked(model, s, index, true);
        break;
    case AT_SLEEPY:
    case AT_COUNTED:
    case AT_ASLEEP:
    case AT_AWAKE:
        step_sleep(model, s, index);
        break;
    default:
        step_leader(model, s);
        break;
    }
}

/* ---- Exploring ---- */

static void explore(const model_case *model) {
    explorer e = {.model = model, .capacity = 1024, .table_size = 4096};
    e.states = malloc(e.capacity * sizeof(*e.states));
    e.table = calloc(e.table_size, sizeof(*e.table));
    assert_true(e.states != NULL && e.table != NULL);
    model_state first;
    memset(&first, 0, sizeof(first));
    first.first = 1;
    first.active = model->workers;
    first.running = 1;
    first.worker[0].at = AT_PUBLISH;
    for (uint8_t i = 1; i < model->workers; i++)
        first.worker[i].at = AT_CALL;
    for (uint8_t i = model->workers; i < WORKERS_MAX; i++)
        first.worker[i].at = AT_END;
    add_state(&e, &first);
    size_t ends = 0;
    for (size_t i = 0; i < e.count; i++) {
        uint8_t stuck = 0, ended = 0;
        for (uint8_t index = 0; index < model->workers; index++) {
            model_state next;
            memcpy(&next, &e.states[i], sizeof(next));
            ended = (uint8_t)(ended + (next.worker[index].at == AT_END));
            if (waits(model, &next, index)) {
                stuck++;
                continue;
            }
            step(model, &next, index);
            add_state(&e, &next);
        }
        ends += ended == model->workers;
        if (stuck == model->workers && ended < model->workers)
            fail_msg("%s: all wait in state %zu", model->name, i);
    }
    print_message("%s: %zu states, %zu ends\n", model->name, e.count, ends);
    assert_true(ends > 0);
    free(e.states);
    free(e.table);
}

static void small_teams(void **state) {
    (void)state;
    static const model_case cases[] = {
        {"two workers, two programs", 2, 2, {2, 2}, {2, 2}, {{2, 1}, {1, 2}}, false},
        {"empty shares and phases", 2, 3, {2, 2, 2}, {2, 1, 2}, {{1, 0}, {1}, {0, 3}}, false},
        {"resized between programs", 2, 3, {2, 1, 2}, {1, 2, 1}, {{2}, {1, 1}, {2}}, false},
#ifndef __SANITIZE_ADDRESS__ /* half a gigabyte of states */
        {"three workers", 3, 1, {3}, {2}, {{2, 1}}, false},
        {"three workers, late for two programs", 3, 2, {3, 3}, {1, 1}, {{1}, {2}}, false},
#endif
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        explore(&cases[i]);
}

static void gathering_teams(void **state) {
    (void)state;
    static const model_case cases[] = {
        {"two workers gather", 2, 2, {2, 2}, {2, 2}, {{2, 1}, {1, 2}}, true},
#ifndef __SANITIZE_ADDRESS__
        {"three workers gather", 3, 1, {3}, {2}, {{1, 1}}, true},
#endif
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        explore(&cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_teams),
        cmocka_unit_test(gathering_teams),
    };
    return cmocka_run_group_tests_name("base/team_model", tests, NULL, NULL);
}
