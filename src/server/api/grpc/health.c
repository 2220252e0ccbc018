/* grpc.health.v1. All services have the state that GET /ready tells: a load balancer that asks here
 * and one that asks there do the same. The service "liveness" has that of GET /health, which
 * draining does not change: who restarts servers asks for it. A Watch is in the API's list until
 * its client goes or the server drains; it is told by whoever sees the state change (grpc_changed).
 */
#include "server/api/grpc/grpc_int.h"

#include <stdlib.h>

enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

typedef enum watch_kind { WATCH_UNKNOWN, WATCH_READY, WATCH_ALIVE } watch_kind;

struct grpc_watch {
    grpc_call *call;
    uint64_t number; /* of the API's counter: addresses come again */
    watch_kind kind;
    int64_t told;
    struct grpc_watch *next;
};
typedef struct grpc_watch watch;

bool grpc_is_ready(const api *api) {
    return !api->host.draining(api->host.context) &&
           api->host.health(api->host.context, NULL) == SERVER_ALIVE;
}

static watch_kind kind_of(const json_value *message) {
    const json_value *name = json_find(message, "service");
    if (name == NULL || name->string.size == 0)
        return WATCH_READY;
    if (text_is(name->string, "liveness"))
        return WATCH_ALIVE;
    for (size_t i = 0; i < proto_service_count; i++)
        if (text_is(name->string, proto_services[i]))
            return WATCH_READY;
    return WATCH_UNKNOWN;
}

static int64_t state_of(const api *api, watch_kind kind) {
    bool alive = api->host.health(api->host.context, NULL) == SERVER_ALIVE;
    if (kind == WATCH_UNKNOWN)
        return SERVICE_UNKNOWN;
    return (kind == WATCH_ALIVE ? alive : grpc_is_ready(api)) ? SERVING : NOT_SERVING;
}

static bool tell(grpc_call *call, int64_t state) {
    json_member member = {TEXT_LITERAL("status"), tree_integer(state)};
    json_value message = tree_object(&member, 1);
    return grpc_call_write(call, &message);
}

void method_health(grpc_call *call, json_value *message) {
    watch_kind kind = kind_of(message);
    if (kind == WATCH_UNKNOWN) {
        grpc_call_fail(call, 404, "no such service");
        return;
    }
    (void)tell(call, state_of(call->api, kind));
    if (!call->broken)
        grpc_call_end(call);
}

/* ---- Watch ---- */

static void end_watch(watch *ended) {
    if (!ended->call->broken && exchange_gone(ended->call->outer))
        grpc_call_end(ended->call);
    else if (!ended->call->broken)
        grpc_call_fail(ended->call, 503, "the server is shutting down");
    grpc_call_release(ended->call);
    free(ended);
}

/* Out of the list and ended. Not in the list: another thread has it, and looks whether the client
 * is still there. */
static void drop_watch(api *api, uint64_t number) {
    watch *found = NULL;
    pthread_mutex_lock(&api->lock);
    for (watch **at = &api->watches; *at != NULL; at = &(*at)->next)
        if ((*at)->number == number) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&api->lock);
    if (found != NULL)
        end_watch(found);
}

/* The exchange's end waits for this, and so the watch is there. */
static void watch_gone(void *context) {
    watch *gone = context;
    drop_watch(gone->call->api, gone->number);
}

static void list_watch(api *api, watch *listed) {
    exchange *client = exchange_share(listed->call->outer); /* the watch may go from here on */
    uint64_t number = listed->number;
    pthread_mutex_lock(&api->lock);
    listed->next = api->watches;
    api->watches = listed;
    pthread_mutex_unlock(&api->lock);
    /* Who went, or was called off, while it was in no list was not heard. */
    if (exchange_gone(client) || api->host.draining(api->host.context))
        drop_watch(api, number);
    exchange_release(client);
}

void method_watch(grpc_call *call, json_value *message) {
    watch *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        grpc_call_fail(call, 503, "out of memory");
        return;
    }
    made->call = call;
    made->number = atomic_fetch_add(&call->api->counter, 1);
    exchange_share(&call->inner);
    made->kind = kind_of(message);
    made->told = state_of(call->api, made->kind);
    (void)tell(call, made->told);
    exchange_on_gone(call->outer, watch_gone, made);
    list_watch(call->api, made);
}

void grpc_changed(api *api) {
    bool drains = api->host.draining(api->host.context);
    pthread_mutex_lock(&api->lock);
    watch *list = api->watches;
    api->watches = NULL;
    pthread_mutex_unlock(&api->lock);
    while (list != NULL) {
        watch *one = list;
        list = one->next;
        int64_t state = state_of(api, one->kind);
        if (state != one->told && !one->call->broken)
            (void)tell(one->call, state);
        one->told = state;
        if (drains)
            end_watch(one);
        else
            list_watch(api, one);
    }
}
