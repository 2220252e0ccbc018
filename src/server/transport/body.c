/* Bodies: what is being read shares a maximum, and is handed on when it is complete. */
#include "server/server_int.h"

#include "base/clock.h"

/* Bodies that are being read share a maximum, of which one key, or without keys one address, has a
 * part only while others want it. What has come is counted, not what was announced: saying that
 * much will come costs nothing, and so must take nothing from others. False, and nothing is
 * claimed, where it is full. */
static bool claim_body(carried *exchange, uint64_t bytes) {
    server *server = exchange->server;
    uint64_t largest = server->options.body_bytes_max, all = largest * SERVER_BODY_SHARE;
    uint64_t sum = atomic_fetch_add(&server->body_bytes, bytes) + bytes;
    uint64_t own = sum > all / 2 ? largest * SERVER_BODY_OWN : UINT64_MAX;
    if (sum > all ||
        (exchange->pays && !addresses_take_bytes(server->addresses, exchange->payer, bytes, own))) {
        atomic_fetch_sub(&server->body_bytes, bytes);
        return false;
    }
    exchange->body_counted += bytes;
    return true;
}

void body_give_back(carried *exchange) {
    server *server = exchange->server;
    atomic_fetch_sub(&server->body_bytes, exchange->body_counted);
    if (exchange->pays && exchange->body_counted > 0)
        addresses_give_bytes(server->addresses, exchange->payer, exchange->body_counted);
    exchange->body_counted = 0;
}

/* What is thrown away takes no memory, and so nothing of what bodies share: clients that are
 * refused cannot use it up. */
void body_discard(carried *exchange) {
    buffer_free(&exchange->body);
    body_give_back(exchange);
}

bool body_take(carried *exchange, const char *bytes, size_t size) {
    if (!claim_body(exchange, size)) {
        exchange_refuse(&exchange->base, 503, 1.0, "too many large requests are being received");
        body_discard(exchange);
        return false;
    }
    avo_status status = buffer_append(&exchange->body, bytes, size);
    if (status == AVO_OK)
        return true;
    body_discard(exchange);
    if (status == AVO_ERROR_LIMIT)
        admission_refuse_body(exchange);
    else
        exchange_refuse(&exchange->base, 503, 1.0, "out of memory for the body");
    return false;
}

void body_complete(carried *exchange) {
    server *server = exchange->server;
    if (buffer_terminate(&exchange->body) != AVO_OK) {
        exchange_refuse(&exchange->base, 503, 1.0, "out of memory for the body");
        return;
    }
    exchange->base.asked.body = buffer_text(&exchange->body);
    exchange->base.asked.arrived_ns = clock_now_ns();
    exchange->counted = !exchange->watches;
    if (exchange->counted && atomic_fetch_add(&server->open_exchanges, 1) == 0)
        pulse_wake(server);
    server->handler.handle(server->handler.context, &exchange->base);
}
