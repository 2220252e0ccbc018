/* What this machine can do at most, measured: how fast a team reads memory, and how many operations
 * a second its registers do with the instructions that the kernels of an instruction set are made
 * of. Every figure of speed is shown as a share of these, taken in the same run, because times of
 * two machines, or of one machine on two days, say nothing about each other.
 *
 * The loops of a peak touch no memory and have no useful result: they are what a perfect kernel
 * would do at every moment.
 */
#ifndef AVO_DEVICE_CPU_LIMITS_H
#define AVO_DEVICE_CPU_LIMITS_H

#include "base/cpu.h"
#include "base/team.h"

/* One peak: `run` does `rounds` × `operations` multiplications and additions and gives back a
 * number that depends on all of them. */
typedef struct limit_peak {
    const char *name; /* the instructions: "vpdpbusd zmm" */
    double operations;
    uint64_t (*run)(uint64_t rounds);
} limit_peak;

/* Begins as plain C and is overwritten as the op table is. */
typedef struct limit_table {
    const char *isa;
    limit_peak integer;  /* int8 × int8, summed in integers */
    limit_peak floating; /* f32 */
} limit_table;

void limits_plain(limit_table *table);
void limits_avx2(limit_table *table);
void limits_avx512(limit_table *table);
void limits_amx(limit_table *table);
void limits_neon(limit_table *table);

/* The table of a back end by its name: "ref", "plain" or an instruction set; false for another
 * name, or where this build or this machine does not have it. */
bool limits_of(const char *name, limit_table *table);

typedef struct machine_limits {
    limit_table table;
    uint32_t threads;
    double read_bytes; /* per second, by all workers together */
    double integer_operations, floating_operations;
    /* how reading was fastest and how long peaks ran: for limits_again */
    size_t read_way;
    uint64_t integer_rounds, floating_rounds;
} machine_limits;

/* Bytes that a measurement of reading should be given: well past every cache. */
#define LIMITS_READ_BYTES ((size_t)512 << 20)

/* Writes to every page of the memory that is to be read, each worker to the share that it will
 * read: pages then lie near it. `bytes` is a multiple of 64; the memory begins at one, and should
 * lie in huge pages. */
void limits_touch(team *team, uint8_t *memory, size_t bytes);
/* Takes about half a second with LIMITS_READ_BYTES. */
void limits_measure(const limit_table *table, team *team, const uint8_t *memory, size_t bytes,
                    machine_limits *out);
/* Reading and the peaks of integers and floats once more, as limits_measure has found them, in a
 * tenth of the time: where memory and processors are shared with others, what they give changes
 * from one second to the next, and a figure wants the limits of its own moment. */
void limits_again(team *team, const uint8_t *memory, size_t bytes, machine_limits *limits);

/* Reading alone and in a hurry: each way once in a half of the memory, then the best one in all of
 * it while `seconds` last; the fastest pass counts. For those who serve and want a figure at the
 * beginning. */
double limits_read(team *team, const uint8_t *memory, size_t bytes, double seconds);

/* The shortest times that a piece of work can take, to read and to compute, and which of them
 * bounds it. Integers and floats share the ports, so their times add up; reading goes on beside
 * them. */
typedef struct limit_work {
    double bytes; /* read */
    double integer_operations, floating_operations;
} limit_work;
typedef enum limit_bound { LIMIT_READ, LIMIT_ARITHMETIC } limit_bound;
typedef struct limit_times {
    double reading, computing; /* seconds */
} limit_times;
limit_times limits_times(const machine_limits *limits, const limit_work *work);
limit_bound limits_bound(limit_times times);

#endif
