/* Choosing the number of workers by measurement. */
#include "device/cpu/tuner.h"

#include <math.h>
#include <stdio.h>

/* A probe of short steps: the first wakes workers or leaves them asleep and is not measured, nor is
 * the first one afterwards. */
#define SHORT_STEP_NS 5e6
#define PROBE_STEPS   3
/* Steps between probes, and those that a level is known after. */
#define GAP_STEPS        12
#define GAP_STEPS_LONG   2
#define LEVEL_STEPS      6
#define LEVEL_STEPS_LONG 2
#define LEVEL_SPAN       16 /* steps of the mean */
/* A step that was stopped for long counts as this many: one alone must not decide. */
#define RATIO_MAX 8.0

/* When a number is better, and when it is not. */
#define PROBES_MIN   3
#define PROBES_SOME  6  /* by then they show their own noise */
#define PROBES_MAX   12 /* older ones fade */
#define DOUBT        2.0
#define NOISE        0.02 /* of one probe, at least */
#define MARGIN       0.02
#define PLAIN        0.75 /* two probes that are so much faster need no third */
#define REST_MAX     16   /* rounds */
#define CREDIT_STEPS 16   /* that probes may cost at once, however long there were none */
#define GUESS_MORE   0.25 /* what a first probe with more workers may cost */
#define CHANGED      0.2  /* by which levels differ when the machine has changed */
#define CHANGED_FOR  12   /* steps */

static double most_of(double a, double b) {
    return a > b ? a : b;
}

static double least_of(double a, double b) {
    return a < b ? a : b;
}

static uint32_t least_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- Candidates ---- */

enum { TRIAL_FEWER, TRIAL_MORE, TRIAL_HALF, TRIAL_TWICE };

static void set_trial(tuner_side *side, uint32_t index, uint32_t workers) {
    for (uint32_t i = 0; i < index; i++)
        if (side->trial[i].workers == workers)
            workers = 0;
    side->trial[index] =
        (tuner_trial){.workers = workers == side->workers ? 0 : workers, .rest_next = 1};
}

/* Numbers to compare the choice with. What was known of others is forgotten. */
static void make_trials(tuner_side *side, uint32_t most) {
    uint32_t now = side->workers, step = now / 4 > 1 ? now / 4 : 1;
    uint32_t absent = (uint32_t)lround(side->absent);
    uint32_t fewer = absent < step ? step : absent < now / 2 ? absent : now / 2;
    set_trial(side, TRIAL_FEWER, now > fewer ? now - fewer : 1);
    set_trial(side, TRIAL_MORE, now + step < most ? now + step : most);
    set_trial(side, TRIAL_HALF, now > 1 ? now / 2 : 1);
    set_trial(side, TRIAL_TWICE, now * 2 < most ? now * 2 : most);
    side->turn = absent > 0 ? TRIAL_FEWER : TRIAL_MORE;
}

static void change_workers(tuner *tuner, tuner_side *side, uint32_t workers) {
    side->workers = workers;
    side->absent = 0;
    for (uint32_t i = 0; i < TUNER_LEVELS; i++)
        side->level[i] = (tuner_level){0};
    make_trials(side, tuner->most);
}

void tuner_open(tuner *tuner, uint32_t most, uint32_t decode, uint32_t prefill) {
    *tuner = (struct tuner){.most = most};
    tuner->side[TUNER_DECODE].needed = tuner->side[TUNER_PREFILL].needed = PROBES_MIN;
    change_workers(tuner, &tuner->side[TUNER_DECODE], decode);
    change_workers(tuner, &tuner->side[TUNER_PREFILL], prefill);
}

/* ---- Levels ---- */

static tuner_kind kind_of(uint32_t rows) {
    return rows <= TUNER_DECODE_ROWS ? TUNER_DECODE : TUNER_PREFILL;
}

/* Prompts have chunks of all lengths: those of one level take about the same time per row. */
static tuner_level *level_at(tuner_side *side, uint32_t rows) {
    if (rows <= TUNER_DECODE_ROWS)
        return &side->level[rows];
    uint32_t power = 31 - (uint32_t)__builtin_clz(rows);
    return &side->level[least_u32(2 * (power - 4) + (rows >> (power - 1) & 1), TUNER_LEVELS - 1)];
}

/* NULL: steps of about so many rows were not measured yet. */
static tuner_level *level_of(tuner_side *side, uint32_t rows) {
    tuner_level *level = level_at(side, rows);
    return level->steps > 0 ? level : NULL;
}

static bool is_short(const tuner_level *level) {
    return level->row_ns * level->rows < SHORT_STEP_NS;
}

static bool level_known(const tuner_level *level) {
    return level->steps >= (is_short(level) ? LEVEL_STEPS : LEVEL_STEPS_LONG);
}

/* True: the machine is not what it was. */
static bool level_add(tuner_side *side, uint32_t rows, double ns) {
    double row_ns = ns / rows;
    tuner_level *level = level_of(side, rows);
    if (level == NULL) {
        level = level_at(side, rows);
        *level = (tuner_level){.rows = rows, .row_ns = row_ns, .fast = row_ns, .slow = row_ns};
    }
    level->steps++;
    row_ns = least_of(row_ns, level->row_ns * RATIO_MAX);
    double off = row_ns / level->row_ns - 1;
    side->noise += (off * off - side->noise) / 32;
    level->row_ns += (row_ns - level->row_ns) / least_of(level->steps, LEVEL_SPAN);
    level->fast += (row_ns - level->fast) / least_of(level->steps, 4);
    level->slow += (row_ns - level->slow) / least_of(level->steps, 64);
    bool apart = fabs(level->fast / level->slow - 1) > CHANGED + sqrt(side->noise);
    level->apart = apart ? level->apart + 1 : 0;
    if (level->apart < CHANGED_FOR)
        return false;
    level->apart = 0;
    level->slow = level->row_ns = level->fast;
    return true;
}

/* ---- Probes ---- */

static uint32_t probe_steps(const tuner_level *level) {
    return is_short(level) ? PROBE_STEPS + 1 : 1;
}

static double probe_cost(const tuner_side *side, const tuner_trial *trial,
                         const tuner_level *level) {
    double more =
        trial->workers > side->workers ? GUESS_MORE : (double)side->workers / trial->workers - 1;
    if (trial->count > 0)
        more = least_of(most_of(trial->mean - 1, 0), 1);
    return more * level->row_ns * level->rows * (probe_steps(level) + is_short(level));
}

/* Half as many workers may double the time of a step. One that is long anyway is spared that where
 * somewhat fewer are slower already. */
static bool too_slow(const tuner_side *side, uint32_t index, const tuner_level *level) {
    const tuner_trial *fewer = &side->trial[TRIAL_FEWER];
    return index == TRIAL_HALF && !is_short(level) && fewer->workers > 0 &&
           (fewer->count == 0 || fewer->mean > 1);
}

/* The candidate whose turn it is; NULL: all rest. */
static const tuner_trial *next_trial(tuner_side *side, const tuner_level *level) {
    for (uint32_t i = 0; i < TUNER_TRIALS; i++) {
        tuner_trial *trial = &side->trial[side->turn];
        if (trial->workers > 0 && trial->rest == 0 && !too_slow(side, side->turn, level))
            return trial;
        trial->rest -= trial->rest > 0;
        side->turn = (side->turn + 1) % TUNER_TRIALS;
    }
    return NULL;
}

/* Begins a probe if one is due. One that cannot be afforded yet is waited for: cheaper ones would
 * use up what it needs. */
static void begin_probe(tuner_side *side, const tuner_level *level) {
    uint32_t gap = is_short(level) ? GAP_STEPS : GAP_STEPS_LONG;
    if (!level_known(level) || side->since < gap)
        return;
    const tuner_trial *trial = next_trial(side, level);
    side->since = 0;
    if (trial == NULL || probe_cost(side, trial, level) > side->credit_ns)
        return;
    side->probe_left = probe_steps(level);
    side->probe_measured = 0;
    side->probe_sum = 0;
    side->settling = is_short(level) ? 1 : 0;
    side->probes++;
}

/* A few probes that agree by chance vary less than steps do. */
static double trial_doubt(const tuner_side *side, const tuner_trial *trial) {
    double steps = trial->count < PROBES_SOME ? PROBE_STEPS : LEVEL_SPAN;
    double variance = most_of(trial->variance, side->noise / steps);
    return DOUBT * sqrt(most_of(variance, NOISE * NOISE) / trial->count);
}

static bool trial_better(const tuner_side *side, const tuner_trial *trial) {
    bool plain = trial->count == 2 && trial->mean < PLAIN && side->needed == PROBES_MIN;
    bool enough = trial->count >= side->needed || plain;
    return enough && trial->mean + trial_doubt(side, trial) < 1 - MARGIN;
}

/* A probe that gains where others did not may be chance, or the load that they met is gone. */
static void trial_rest(const tuner_side *side, tuner_trial *trial, double last) {
    if (trial->count < PROBES_MIN || last < 1 - 2 * MARGIN)
        return;
    if (trial->mean - trial_doubt(side, trial) > 1 || trial->count == PROBES_MAX) {
        trial->rest = trial->rest_next;
        trial->rest_next = trial->rest_next * 2 < REST_MAX ? trial->rest_next * 2 : REST_MAX;
    }
}

static void end_probe(tuner *tuner, tuner_side *side) {
    tuner_trial *trial = &side->trial[side->turn];
    side->settling = 1;
    side->turn = (side->turn + 1) % TUNER_TRIALS;
    if (side->probe_measured == 0)
        return;
    double ratio = side->probe_sum / side->probe_measured, before = trial->mean;
    trial->count = trial->count < PROBES_MAX ? trial->count + 1 : PROBES_MAX;
    trial->mean += (ratio - before) / trial->count;
    trial->variance += ((ratio - before) * (ratio - trial->mean) - trial->variance) / trial->count;
    if (trial_better(side, trial)) {
        bool more = trial->workers > side->workers;
        bool back = side->changes > 0 && more != side->more;
        side->needed = !back ? PROBES_MIN : least_u32(side->needed * 2, PROBES_MAX);
        side->more = more;
        side->changes++;
        change_workers(tuner, side, trial->workers);
    } else {
        trial_rest(side, trial, ratio);
    }
}

/* A probe that gains pays for others: noise alone then costs nothing in the long run. */
static void charge(tuner_side *side, double ns) {
    side->cost_ns += ns;
    side->credit_ns = least_of(side->credit_ns - ns, TUNER_COST * side->total_ns);
}

static void learn_probe(tuner *tuner, tuner_side *side, uint32_t rows, double ns) {
    const tuner_level *level = level_of(side, rows);
    side->probe_left--;
    if (level != NULL) {
        double usual = level->row_ns * rows;
        charge(side, ns - usual);
        if (side->settling == 0) {
            side->probe_sum += least_of(ns / usual, RATIO_MAX);
            side->probe_measured++;
        }
    }
    side->settling -= side->settling > 0;
    if (side->probe_left == 0)
        end_probe(tuner, side);
}

/* ---- Steps ---- */

uint32_t tuner_choose(tuner *tuner, uint32_t rows) {
    tuner_side *side = &tuner->side[kind_of(rows)];
    tuner_level *level = level_of(side, rows);
    if (side->probe_left == 0 && level != NULL)
        begin_probe(side, level);
    return side->probe_left > 0 ? side->trial[side->turn].workers : side->workers;
}

void tuner_learn(tuner *tuner, uint32_t rows, uint64_t time_ns, uint32_t absent) {
    tuner_side *side = &tuner->side[kind_of(rows)];
    double ns = most_of((double)time_ns, 1);
    side->total_ns += ns;
    side->mean_ns += (ns - side->mean_ns) / 64;
    side->credit_ns = least_of(side->credit_ns + TUNER_COST * ns, CREDIT_STEPS * side->mean_ns);
    if (side->probe_left > 0) {
        learn_probe(tuner, side, rows, ns);
        return;
    }
    side->absent += (absent - side->absent) / 16;
    side->since++;
    if (side->settling > 0) {
        const tuner_level *level = level_of(side, rows);
        charge(side, level == NULL ? 0 : ns - level->row_ns * rows);
        side->settling--;
        return;
    }
    if (level_add(side, rows, ns)) {
        side->needed = PROBES_MIN;
        make_trials(side, tuner->most);
    }
}

uint32_t tuner_chosen(const tuner *tuner, uint32_t rows) {
    return tuner->side[kind_of(rows)].workers;
}

void tuner_text(const tuner *tuner, char *text, size_t capacity) {
    const tuner_side *decode = &tuner->side[TUNER_DECODE], *prefill = &tuner->side[TUNER_PREFILL];
    double total = decode->total_ns + prefill->total_ns;
    double cost = decode->cost_ns + prefill->cost_ns;
    uint32_t changes = decode->changes + prefill->changes;
    snprintf(text, capacity,
             "decode %u of %u, prefill %u; %u probes, %.1f %% of the time, %u change%s",
             decode->workers, tuner->most, prefill->workers, decode->probes + prefill->probes,
             total > 0 ? 100 * cost / total : 0, changes, changes == 1 ? "" : "s");
}
