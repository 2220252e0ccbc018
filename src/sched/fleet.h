/* Many replicas behind a router, under a virtual clock: what fleet a load needs, which router suits
 * it, what breaks first.
 *
 * Every replica has a scheduler (core.c) and page accounting with a prefix cache (memory/pages.c),
 * the real ones; kernels are a cost model with noise, as in simulate.h. Around them are simulated:
 * a router that sees each request and each token pass, adapters that a replica must load first,
 * conversations whose next turn comes after the answer to the last one, replicas that fail and
 * restart, and an autoscaler.
 *
 * A request goes to one replica. When that replica fails before the first token, the router sends
 * the request to another one; after the first token the answer is broken. A replica whose queue is
 * full refuses; the router asks FLEET_TRIES replicas before the client is turned away.
 *
 * Memory is bounded by the clients that are there at a time, not by the number of requests: they
 * are generated when they come. Everything is a function of the seed: all routers get the same
 * conversations, of which only the later turns' arrivals depend on how the earlier ones were
 * served. Invariants are checked in every run (simulate_check.c has those of the scheduler itself):
 * rows of a sequence continue where it stands, pages found in the prefix cache hold the tokens that
 * were looked for, every request ends once and with all of its tokens, none is lost, none that had
 * begun to stream is sent again, nothing is sent to a replica that is not there, and no page is
 * left over. The first that does not hold ends the run. */
#ifndef AVO_SCHED_FLEET_H
#define AVO_SCHED_FLEET_H

#include "sched/report.h"
#include "sched/simulate.h"

#define FLEET_REPLICAS_MAX 4096
#define FLEET_REQUESTS_MAX 1000000000
#define FLEET_CLIENTS_MAX  4194304 /* at a time */
#define FLEET_RESIDENT_MAX 256     /* adapters in a replica */
#define FLEET_TRIES        3
#define FLEET_BLOCK        128 /* tokens: the router knows prefixes in multiples of it */

typedef enum fleet_router {
    FLEET_ROUND_ROBIN,  /* in turn */
    FLEET_RANDOM,       /* any */
    FLEET_TWO_CHOICES,  /* of two random ones the one with fewer open requests */
    FLEET_LEAST_LOADED, /* fewest open requests */
    FLEET_ADAPTER,      /* an adapter's home, by hashing with bounded loads */
    FLEET_PREFIX,       /* that was sent the longest prefix of the prompt, unless it has many more
                           open requests than the least loaded; else the least loaded */
    FLEET_EVENTS,       /* the same, by what is cached now: replicas report it (KV events) */
    FLEET_PREDICTED,    /* the shortest predicted time to the first token */
    FLEET_ROUTERS
} fleet_router;
const char *fleet_router_name(fleet_router router);
bool fleet_router_named(const char *name, size_t length, fleet_router *router);

/* ---- What comes ---- */

typedef struct fleet_load {
    uint64_t requests; /* in all */
    uint64_t seed;
    double rate;                /* requests a second; without a trace */
    const simulate_item *trace; /* arrivals, prompts and answers instead, repeated as often as it
                                   takes; every line begins a conversation. NULL: drawn */
    uint32_t trace_count;
    uint32_t prompt_mean, answer_mean; /* tokens of a message, of an answer */
    double turns;                      /* of a conversation, mean; at least 1 */
    double think_s;                    /* mean time between an answer and the next turn */
    uint32_t tenants, adapters;        /* adapters 0: none */
    double zipf;                       /* adapter k has the weight 1/k^zipf; so has prefix k */
    uint32_t prefixes;                 /* system prompts of each adapter */
    uint32_t prefix_tokens;            /* of each; 0: none */
} fleet_load;

/* ---- The fleet ---- */

typedef struct fleet_options {
    uint32_t replicas; /* with autoscaling: at most */
    fleet_router router;
    fleet_load load;
    sched_options sched; /* of every replica */
    simulate_machine machine;
    uint64_t seed;
    bool check; /* every invariant of schedulers and pages at every step: slow */
    bool retry; /* clients that are turned away come again when they are told to */

    uint32_t resident;        /* adapters that a replica has room for; 0: all, from the beginning */
    uint64_t adapter_load_ns; /* until an adapter that is not resident can be used */

    double load_gap;      /* open requests more than the least loaded that affinity may cost */
    double match_min;     /* part of the prompt that must match for affinity to count */
    uint32_t index_bytes; /* of the router's memory of prefixes */

    uint32_t slow;       /* replicas 0…slow − 1 take slow_factor times as long */
    double slow_factor;  /* at least 1 */
    double mtbf_s;       /* mean time to a replica's failure; 0: none fails */
    double restart_s;    /* from a failure until it is back, with an empty cache */
    uint32_t scale_min;  /* with autoscaling: at least; 0: no autoscaling */
    double scale_target; /* open requests for each replica */
    double scale_s;      /* between decisions */
    double scale_down_s; /* for so long fewer must be enough before one is stopped */
    double boot_s;       /* from its start until a replica serves */

    uint64_t slo_first_ns, slo_gap_ns; /* goodput counts answers that keep both; 0: no limit */
} fleet_options;

typedef struct fleet_result {
    char wrong[SIMULATE_WRONG_MAX]; /* "" or the invariant that did not hold */
    fleet_router router;
    uint32_t replicas;
    uint64_t requests, finished, good; /* good: finished within the SLO */
    uint64_t broken;                   /* replica lost after the first token */
    uint64_t refused;                  /* never fits a replica */
    uint64_t turned_away;              /* all queues that were asked were full */
    uint64_t resent;                   /* replica lost before the first token */
    uint64_t full;                     /* refusals of full queues */
    uint64_t homeless;                 /* waits for any replica to be there */
    uint64_t steps, answer_tokens;
    uint64_t prompt_tokens, reused_tokens; /* of requests when they begin; of these cached */
    uint64_t recomputed_tokens, preemptions;
    uint64_t adapter_requests, adapter_loads; /* loads: it was not resident */
    uint64_t failures, starts, stops;
    uint32_t clients_max;   /* at a time */
    uint32_t replicas_peak; /* serving at a time */
    double replica_s;       /* that replicas existed, together */
    double busy_s;          /* that they computed */
    double busy_max_s;      /* the busiest */
    double seconds;         /* until the last request ended */
    report_histogram metric[REPORT_METRICS];
} fleet_result;

/* AVO_OK also where result->wrong says something. */
AVO_MUST_USE avo_status fleet_run(const fleet_options *options, const avo_allocator *allocator,
                                  fleet_result *result, avo_error *error);

/* A small fleet full of trouble: options of a seed. */
void fleet_seed(uint64_t seed, fleet_options *options);

/* ---- Tables: a line for each run ---- */

AVO_MUST_USE avo_status fleet_write_text(const fleet_result *runs, uint32_t count, buffer *out);
AVO_MUST_USE avo_status fleet_write_csv(const fleet_result *runs, uint32_t count, buffer *out);
AVO_MUST_USE avo_status fleet_write_json(const fleet_result *runs, uint32_t count, buffer *out);

#endif
