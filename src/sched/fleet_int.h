/* Inside the fleet: its state.
 *
 *   fleet.c           the clock; clients come, are sent to a replica, end
 *   fleet_life.c      replicas start, fail, restart, are stopped; the autoscaler
 *   fleet_replica.c   a replica: scheduler, pages, adapters, steps
 *   fleet_router.c    which replica gets a request
 *   fleet_load.c      conversations and their turns; small fleets of seeds
 *   fleet_report.c    tables
 */
#ifndef AVO_SCHED_FLEET_INT_H
#define AVO_SCHED_FLEET_INT_H

#include "base/arena.h"
#include "memory/pages.h"
#include "sched/dice.h"
#include "sched/fleet.h"
#include "sched/heap.h"

#define FLEET_NONE    UINT32_MAX
#define FLEET_HOLDERS 4 /* replicas that the router remembers for a block */

/* ---- Clients ---- */

typedef enum client_state {
    CLIENT_FREE,
    CLIENT_COMING,  /* thinks, or comes again: event_ns */
    CLIENT_LOADING, /* at a replica, its adapter is being loaded: event_ns */
    CLIENT_SENT     /* its replica's scheduler has it */
} client_state;

/* A conversation. Its tokens are one sequence: position p is a token of the system prompt, or a
 * function of the conversation and p. So a turn's prompt continues the turn before it. */
typedef struct client {
    client_state state;
    uint32_t next, previous; /* at the same replica; next: among free ones */
    uint64_t conversation;
    uint32_t turn;
    uint32_t tenant, adapter, prefix;
    uint32_t shared;  /* leading tokens that are the system prompt */
    uint32_t history; /* tokens of the turns before */
    uint32_t prompt, answer;
    uint32_t tokens;  /* delivered */
    uint32_t replica; /* FLEET_NONE: none */
    uint32_t matched; /* tokens of the prompt that its replica had when it was sent */
    uint32_t sequence;
    uint32_t tries; /* times that it was turned away */
    bool begun;
    uint32_t arrival_turn; /* turn + 1 that has arrived: it may come again */
    uint64_t event_ns;
    uint64_t arrival_ns, begin_ns, first_ns, last_ns; /* begin: its first row is planned */
} client;

/* What is drawn in advance: the next conversation. */
typedef struct fleet_stream {
    const fleet_load *load;
    uint32_t context_max;
    double *adapter_sums, *prefix_sums;
    uint64_t conversations, requests; /* so far */
    double time_ns;
    dice arrivals;
} fleet_stream;

AVO_MUST_USE avo_status stream_open(fleet_stream *stream, const fleet_load *load,
                                    uint32_t context_max, arena *arena, avo_error *error);
/* The first turn of the next conversation; false: no more requests. */
bool stream_next(fleet_stream *stream, client *client);
/* The next turn after an answer that ended at `now_ns`; false: this was the last. */
bool stream_turn(fleet_stream *stream, client *client, uint64_t now_ns);

static inline uint64_t fleet_mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ b * 0x9E3779B97F4A7C15ull) + 0x94D049BB133111EBull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}
/* Names everything that a block of `tokens` tokens depends on besides its number. */
static inline uint64_t client_text(const client *client, uint64_t end) {
    uint64_t root = fleet_mix(client->tenant, client->adapter);
    return end <= client->shared ? fleet_mix(root, client->prefix)
                                 : fleet_mix(root, client->conversation << 32);
}

/* ---- Replicas ---- */

typedef enum replica_state {
    REPLICA_OFF,
    REPLICA_STARTING, /* event_ns: when it serves */
    REPLICA_UP,       /* event_ns: when it fails */
    REPLICA_STOPPING, /* gets no more requests; event_ns: when it fails */
    REPLICA_DOWN      /* event_ns: when it is back */
} replica_state;

typedef struct replica_sequence {
    uint32_t client; /* FLEET_NONE: empty */
    uint32_t computed;
    prefix_root root;
    kv_table table;
} replica_sequence;

typedef struct resident {
    uint32_t adapter; /* 0: empty */
    uint32_t users;   /* requests here that need it */
    uint64_t ready_ns, used;
} resident;

typedef struct replica {
    replica_state state;
    uint32_t life;     /* counts failures and stops: what the router knew of it before is void */
    uint32_t open;     /* requests here */
    uint32_t clients;  /* list of them */
    uint64_t event_ns; /* of its life */
    uint64_t started_ns;
    double prompt_work; /* uncached prompt tokens of requests without a first token */
    double speed;       /* times as long as the cost model says */
    double busy_s;
    sched *sched;
    kv_pages *pages;
    arena arena;
    uint64_t *content; /* [pages] what a full page holds */
    replica_sequence *sequences;
    sched_result *results;
    resident *residents; /* [options.resident] */
    sched_plan plan;
    uint64_t step_ns; /* when the step ends; 0: none is being computed */
    uint64_t taken_ns;
    uint64_t draws; /* of noise */
} replica;

/* ---- The router ---- */

/* Which replicas were sent a block; the oldest of a set gives way. */
typedef struct index_entry {
    uint64_t key; /* 0: empty */
    uint64_t used;
    uint32_t replica[FLEET_HOLDERS]; /* the latest first */
    uint32_t life[FLEET_HOLDERS];
} index_entry;

typedef struct router {
    uint32_t turn;
    dice dice;
    heap by_load;    /* replicas that serve, fewest open requests first */
    uint64_t *sent;  /* [replicas] serial number of the last request sent: breaks ties */
    uint64_t serial; /* of requests sent, and of looks into the index */
    uint64_t open;
    uint32_t *up; /* [up_count] replicas that serve, ascending */
    uint32_t up_count;
    index_entry *index; /* [index_sets][INDEX_WAYS] */
    uint64_t index_sets;
} router;

/* ---- The fleet ---- */

typedef struct fleet {
    const fleet_options *options;
    const avo_allocator *allocator;
    fleet_result *result;
    arena arena;
    uint64_t now;
    fleet_stream stream;
    client *clients;
    uint32_t client_count, client_free, client_capacity, clients_now;
    heap coming; /* clients by event_ns */
    replica *replicas;
    heap steps; /* replicas by step_ns */
    heap lives; /* replicas by event_ns */
    router router;
    int32_t *tokens;            /* [context_max] a timeline, as far as it is needed */
    double service_s;           /* a request's time at a replica, running mean */
    uint32_t upcoming;          /* the client whose arrival makes the next one known; FLEET_NONE */
    uint64_t gap_ns, gap_count; /* tokens that came after the same time, not yet in the metric */
    uint64_t ended, last_ns;    /* requests; when the last of them did */
    uint64_t scale_ns;          /* next decision of the autoscaler; UINT64_MAX: never */
    uint64_t fewer_ns;          /* since when fewer replicas are enough; UINT64_MAX: they are not */
    uint32_t existing;          /* replicas that are not off */
    avo_status status;          /* of memory that could not be had in the middle of a run */
    avo_error *error;
} fleet;

void fleet_wrong(fleet *fleet, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool fleet_stops(const fleet *fleet) {
    return fleet->result->wrong[0] != '\0' || fleet->status != AVO_OK;
}

/* ---- fleet.c ---- */

/* A request that waits for nothing more than a replica. */
void client_route(fleet *fleet, uint32_t index);
/* It leaves its replica. */
void client_leave(fleet *fleet, uint32_t index);
/* A token has come. */
void client_token(fleet *fleet, uint32_t index);
/* All of its tokens have. */
void client_finish(fleet *fleet, uint32_t index);
/* Its answer ends for another reason, counted by the caller; the conversation ends, too. */
void client_end(fleet *fleet, uint32_t index);

/* ---- fleet_life.c ---- */

AVO_MUST_USE avo_status lives_open(fleet *fleet, avo_error *error);
void life_event(fleet *fleet, uint32_t replica);
void life_scale(fleet *fleet);
/* A replica that is to stop and has nothing left. */
void life_idle(fleet *fleet, uint32_t replica);

/* ---- fleet_replica.c ---- */

AVO_MUST_USE avo_status replica_open(fleet *fleet, uint32_t index, avo_error *error);
void replica_close(fleet *fleet, uint32_t index);
/* Its adapter is there: to the scheduler. AVO_ERROR_FULL: *retry_ns. */
AVO_MUST_USE avo_status replica_submit(fleet *fleet, uint32_t client, uint64_t *retry_ns);
/* Plans the next step if none is being computed. */
void replica_plan(fleet *fleet, uint32_t index);
void replica_step_ends(fleet *fleet, uint32_t index);
/* When the adapter can be used; one that was not there is being loaded from now on. */
uint64_t replica_adapter(fleet *fleet, uint32_t index, uint32_t adapter);
void replica_adapter_leave(fleet *fleet, uint32_t index, uint32_t adapter);
/* Whether it is resident. */
bool replica_has(const fleet *fleet, uint32_t index, uint32_t adapter);
/* Tokens of a client's prompt that are cached there now. */
uint32_t replica_cached(fleet *fleet, uint32_t index, const client *client);

/* ---- fleet_router.c ---- */

AVO_MUST_USE avo_status router_open(fleet *fleet, avo_error *error);
/* FLEET_NONE: no replica serves. */
uint32_t router_choose(fleet *fleet, const client *client, uint32_t *matched);
/* The least loaded that is none of these; FLEET_NONE. */
uint32_t router_other(fleet *fleet, const uint32_t *tried, uint32_t count);
void router_sent(fleet *fleet, uint32_t replica, const client *client);
/* The number of its open requests, or whether it serves, has changed. */
void router_load(fleet *fleet, uint32_t replica);
void router_serving(fleet *fleet, uint32_t replica, bool serves);

#endif
