/* The queue of ended requests, and the thread that sends them. */
#include "server/otlp.h"

#include "server/otlp_format.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define BATCH_SECONDS    1    /* so long a span waits for others */
#define TIMEOUT_MS       3000 /* of connecting, and of each piece that is sent or read */
#define BODY_BYTES_MAX   ((size_t)4 << 20)
#define ANSWER_BYTES_MAX ((size_t)64 << 10)

struct otlp {
    otlp_target target;
    char service[OTLP_TEXT_MAX];
    otlp_say say;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool runs, ends;
    otlp_record *records; /* [OTLP_SPANS_MAX] a ring */
    uint32_t first, count;
    uint64_t dropped; /* found the queue full */

    /* The thread's own. */
    otlp_record *batch; /* [OTLP_BATCH_MAX] */
    uint64_t lost;      /* in batches that were not taken */
    bool failed;
};

/* ---- Sending ---- */

static bool wait_for(int descriptor, short events) {
    struct pollfd one = {.fd = descriptor, .events = events};
    int ready = 0;
    do
        ready = poll(&one, 1, TIMEOUT_MS);
    while (ready < 0 && errno == EINTR);
    return ready == 1;
}

static int connect_to(const otlp_target *target) {
    int descriptor =
        socket(target->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        return -1;
    int fault =
        connect(descriptor, (const struct sockaddr *)&target->address, target->address_bytes);
    socklen_t bytes = sizeof(fault);
    if (fault != 0 && errno == EINPROGRESS) {
        if (!wait_for(descriptor, POLLOUT))
            errno = ETIMEDOUT;
        else if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &fault, &bytes) == 0)
            errno = fault;
    }
    if (fault == 0)
        return descriptor;
    int reason = errno;
    close(descriptor);
    errno = reason;
    return -1;
}

static bool send_all(int descriptor, text_view text) {
    while (text.size > 0) {
        ssize_t sent = send(descriptor, text.data, text.size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN && wait_for(descriptor, POLLOUT))
            continue;
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        text.data += sent;
        text.size -= (size_t)sent;
    }
    return true;
}

/* The status of an answer, of which nothing else is of interest; 0: there is none. */
static unsigned read_status(int descriptor) {
    char text[64] = "";
    size_t size = 0;
    while (size < 12 && wait_for(descriptor, POLLIN)) {
        ssize_t got = recv(descriptor, text + size, sizeof(text) - 1 - size, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            break;
        size += (size_t)got;
    }
    unsigned status =
        size < 12 || strncmp(text, "HTTP/1.", 7) != 0 ? 0 : (unsigned)strtoul(text + 9, NULL, 10);
    /* The rest is read and thrown away: an unread byte would reset the connection. */
    for (size_t rest = 0; status != 0 && rest < ANSWER_BYTES_MAX && wait_for(descriptor, POLLIN);) {
        ssize_t got = recv(descriptor, text, sizeof(text), 0);
        if (got <= 0)
            break;
        rest += (size_t)got;
    }
    return status;
}

/* False: `why` says what was wrong. */
static bool post(const otlp_target *target, text_view body, char why[static 160]) {
    char head[640];
    int size = snprintf(head, sizeof(head),
                        "POST %s HTTP/1.1\r\nHost: %s:%u\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                        target->path, target->host, target->port, body.size);
    int descriptor = connect_to(target);
    if (descriptor < 0) {
        snprintf(why, 160, "cannot connect: %s", strerror(errno));
        return false;
    }
    unsigned status = 0;
    if (send_all(descriptor, (text_view){head, (size_t)size}) && send_all(descriptor, body))
        status = read_status(descriptor);
    close(descriptor);
    if (status >= 200 && status < 300)
        return true;
    if (status == 0)
        snprintf(why, 160, "no answer within %d ms", TIMEOUT_MS);
    else
        snprintf(why, 160, "answered with status %u", status);
    return false;
}

static void tell(const otlp *otlp, const char *text) {
    if (otlp->say.say != NULL)
        otlp->say.say(otlp->say.context, text);
}

static bool send_batch(otlp *otlp, uint32_t count, buffer *body) {
    char why[160] = "out of memory", line[400];
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        seed = (uint64_t)time(NULL);
    body->size = 0;
    bool good = otlp_records_format(otlp->batch, count, otlp->service, seed, body) == AVO_OK &&
                post(&otlp->target, buffer_text(body), why);
    if (!good && !otlp->failed) {
        snprintf(line, sizeof(line), "--otlp %s:%u: %s; traces are dropped until it works",
                 otlp->target.host, otlp->target.port, why);
        tell(otlp, line);
    }
    otlp->lost += good ? 0 : count;
    if (good && otlp->failed) {
        snprintf(line, sizeof(line), "--otlp %s:%u works again; %llu traces were lost",
                 otlp->target.host, otlp->target.port, (unsigned long long)otlp->lost);
        tell(otlp, line);
    }
    otlp->failed = !good;
    return good;
}

/* ---- The thread ---- */

/* With the lock: until there is a batch, one has waited long enough, or the end has come. */
static void wait_for_batch(otlp *otlp) {
    struct timespec until;
    while (otlp->count == 0 && !otlp->ends)
        pthread_cond_wait(&otlp->work, &otlp->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += BATCH_SECONDS;
    while (otlp->count < OTLP_BATCH_MAX && !otlp->ends &&
           pthread_cond_timedwait(&otlp->work, &otlp->lock, &until) == 0)
        ;
}

static uint32_t take_batch(otlp *otlp) {
    uint32_t count = 0;
    for (; otlp->count > 0 && count < OTLP_BATCH_MAX; count++) {
        otlp->batch[count] = otlp->records[otlp->first];
        otlp->first = (otlp->first + 1) % OTLP_SPANS_MAX;
        otlp->count--;
    }
    return count;
}

static void *otlp_main(void *context) {
    otlp *otlp = context;
    buffer body;
    buffer_init(&body, NULL, BODY_BYTES_MAX);
    for (bool over = false; !over;) {
        pthread_mutex_lock(&otlp->lock);
        wait_for_batch(otlp);
        uint32_t count = take_batch(otlp);
        bool ends = otlp->ends;
        bool empty = otlp->count == 0;
        pthread_mutex_unlock(&otlp->lock);
        bool good = count == 0 || send_batch(otlp, count, &body);
        over = ends && (empty || !good);
    }
    buffer_free(&body);
    return NULL;
}

void otlp_add(otlp *otlp, const otlp_request *request) {
    if (otlp == NULL || !request->parent.sampled)
        return;
    pthread_mutex_lock(&otlp->lock);
    if (otlp->count < OTLP_SPANS_MAX) {
        otlp_record_take(&otlp->records[(otlp->first + otlp->count) % OTLP_SPANS_MAX], request);
        otlp->count++;
        pthread_cond_signal(&otlp->work);
    } else {
        otlp->dropped++;
    }
    pthread_mutex_unlock(&otlp->lock);
}

/* ---- Opening and closing ---- */

avo_status otlp_open(const char *url, const char *service, otlp_say say, otlp **out,
                     avo_error *error) {
    pthread_condattr_t steady;
    otlp_target target;
    AVO_TRY(otlp_target_read(url, &target, error));
    otlp *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "traces", sizeof(*opened));
    opened->target = target;
    opened->say = say;
    snprintf(opened->service, sizeof(opened->service), "%s", service);
    pthread_mutex_init(&opened->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&opened->work, &steady);
    pthread_condattr_destroy(&steady);
    opened->records = calloc(OTLP_SPANS_MAX, sizeof(*opened->records));
    opened->batch = calloc(OTLP_BATCH_MAX, sizeof(*opened->batch));
    if (opened->records == NULL || opened->batch == NULL ||
        pthread_create(&opened->thread, NULL, otlp_main, opened) != 0) {
        otlp_close(opened);
        return status_no_memory(error, "traces", OTLP_SPANS_MAX * sizeof(otlp_record));
    }
    opened->runs = true;
    *out = opened;
    return AVO_OK;
}

void otlp_close(otlp *otlp) {
    char line[160];
    if (otlp == NULL)
        return;
    if (otlp->runs) {
        pthread_mutex_lock(&otlp->lock);
        otlp->ends = true;
        pthread_cond_signal(&otlp->work);
        pthread_mutex_unlock(&otlp->lock);
        pthread_join(otlp->thread, NULL);
    }
    if (otlp->dropped + otlp->lost + otlp->count > 0) {
        snprintf(line, sizeof(line), "--otlp: %llu traces were not delivered",
                 (unsigned long long)(otlp->dropped + otlp->lost + otlp->count));
        tell(otlp, line);
    }
    pthread_cond_destroy(&otlp->work);
    pthread_mutex_destroy(&otlp->lock);
    free(otlp->records);
    free(otlp->batch);
    free(otlp);
}
