/* Which threads compute what: decoding and prompts in one step by all of them ("mixed"), or side by
 * side, each with threads of its own ("static", "adaptive"). Pure arithmetic; the scheduler's
 * driver and the simulation ask the same functions.
 *
 * static    prompts have `prompts` threads, decoding the others, whether there is work or not.
 * adaptive  where only one kind of work is there, all threads do it. Where both are, and the rows
 * of prompts are more than a step of decoding hides, prompts get steps of their own, computed
 * beside steps of decoding. Decoding keeps as few threads as it needs to stay well
 * within the wanted time between tokens, by what its steps have taken lately; all others compute
 * prompts, since everybody's first token waits for these.
 */
#ifndef AVO_SCHED_CORES_H
#define AVO_SCHED_CORES_H

#include "sched/core.h"

typedef enum cores_mode { CORES_MIXED, CORES_STATIC, CORES_ADAPTIVE } cores_mode;

/* NULL: mixed. False: there is no such mode. */
bool cores_mode_named(const char *name, cores_mode *mode);
const char *cores_mode_name(cores_mode mode);

typedef struct cores {
    cores_mode mode;
    uint32_t threads;
    uint32_t most;    /* threads that prompts may have: static, have */
    uint32_t prompts; /* of the last prefill step; the costs of both sides are those with as many */
    uint64_t target_ns;
} cores;

/* `most` 0: half of the threads where static, all but one where adaptive. Mixed takes any number of
 * threads, the others at least two. `threads` 0: the device has none and divides itself between two
 * steps; each is taken to have half of it. */
AVO_MUST_USE avo_status cores_open(cores *cores, cores_mode mode, uint32_t threads, uint32_t most,
                                   uint64_t target_ns, avo_error *error);
/* The costs of both sides, guessed from that of steps by all. */
void cores_guess(const cores *cores, sched *sched);

/* Threads for a prefill step that may start now beside decoding; 0: none shall, and the next step
 * is one of both sides by all threads. The sides' costs are brought to that number. */
uint32_t cores_choose(cores *cores, sched *sched);

#endif
