/* How many workers compute the next step, for `--threads auto`: found by measuring steps while the
 * engine runs, apart for decoding (few rows) and prefill (many). Pure arithmetic without a clock or
 * threads; the stream of a CPU device feeds it.
 *
 * Most steps run with the number of workers that is chosen now. From time to time a probe runs a
 * few steps with another number and compares their times with those around them. A number that is
 * faster beyond doubt becomes the choice. So hyperthreads, efficiency cores and other processes are
 * seen by what they do to the time of a step. Probes may cost TUNER_COST of the time that steps
 * take; a probe that is slower than expected delays the next ones. */
#ifndef AVO_DEVICE_CPU_TUNER_H
#define AVO_DEVICE_CPU_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUNER_COST        0.005 /* of the time of all steps of a kind */
#define TUNER_DECODE_ROWS 16    /* steps with more rows count as prefill */

typedef enum tuner_kind { TUNER_DECODE, TUNER_PREFILL, TUNER_KINDS } tuner_kind;

/* What probes of one number of workers have shown. */
typedef struct tuner_trial {
    uint32_t workers;      /* 0: there is no such candidate */
    uint32_t count;        /* probes that count */
    double mean, variance; /* of time with these workers / time with those that are chosen */
    uint32_t rest;         /* rounds without a probe */
    uint32_t rest_next;    /* grows while probes are in vain */
} tuner_trial;
#define TUNER_TRIALS 4 /* somewhat fewer, somewhat more, half, twice as many */

/* How long steps of about so many rows take with the workers that are chosen. */
typedef struct tuner_level {
    uint32_t rows, steps;
    double row_ns;     /* mean of the last steps, per row */
    double fast, slow; /* means over fewer and more steps: apart when the machine has changed */
    uint32_t apart;    /* steps since then */
} tuner_level;
#define TUNER_LEVELS (TUNER_DECODE_ROWS + 1)

typedef struct tuner_side {
    uint32_t workers; /* chosen */
    tuner_trial trial[TUNER_TRIALS];
    tuner_level level[TUNER_LEVELS]; /* decode: by rows; prefill: two for each power of two */
    uint32_t needed;                 /* probes: more when the last change was taken back */
    bool more;                       /* the last change added workers */
    uint32_t turn;                   /* trial whose turn it is */
    uint32_t since;                  /* steps since the last probe */
    uint32_t settling;               /* steps that are not measured: workers wake up */
    uint32_t probe_left, probe_measured;
    double probe_sum;
    double noise;     /* of steps: mean square of how far one is off its level */
    double mean_ns;   /* of the last steps */
    double absent;    /* workers that missed whole steps, mean of the last ones */
    double credit_ns; /* that probes may cost */
    double total_ns, cost_ns;
    uint32_t probes, changes;
} tuner_side;

typedef struct tuner {
    uint32_t most;
    tuner_side side[TUNER_KINDS];
} tuner;

/* `decode` and `prefill`: to begin with, of at most `most`. */
void tuner_open(tuner *tuner, uint32_t most, uint32_t decode, uint32_t prefill);

/* Workers for the next step; what was measured of it is said to tuner_learn. */
uint32_t tuner_choose(tuner *tuner, uint32_t rows);
/* `absent`: workers that took no item of the whole step. */
void tuner_learn(tuner *tuner, uint32_t rows, uint64_t ns, uint32_t absent);

/* The number that is chosen for steps of so many rows, without a probe. */
uint32_t tuner_chosen(const tuner *tuner, uint32_t rows);
/* "decode 6 of 8, prefill 8; 12 probes, 0.1 % of the time, 1 change"; always terminated. */
void tuner_text(const tuner *tuner, char *text, size_t capacity);

#endif
