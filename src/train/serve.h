/* A server for the time of a run, so that the adapter can be tried while it is trained. It is
 * `avocet serve --control` in a process of its own, with its own sandbox, which maps the model's
 * file once more: a fault there cannot stop the run, and no request can change a bit of it.
 *
 * Both ends of the connection are lines of JSON (cli/serve_control.c has the other one): the server
 * says where it listens, the run says which adapter to load, the server whether it has. The server
 * ends when the connection does, also where this process is killed.
 *
 * Called by run.c from the thread of the run. What goes wrong before the server listens is an
 * error, everything later a line of the log: the run goes on. */
#ifndef AVO_TRAIN_SERVE_H
#define AVO_TRAIN_SERVE_H

#include "base/status.h"

#include <limits.h>
#include <sys/types.h>

#define TRAIN_ADAPTER_NAME_MAX 256
#define TRAIN_SERVE_EVERY      10u /* steps between two versions of the adapter */

typedef struct train_serve_options {
    const char *address; /* [HOST:]PORT; NULL or "": 127.0.0.1:8080; port 0: any free one */
    const char *command; /* the program avocet; NULL: found in PATH */
    const char *config; /* file for --config of `avocet serve`; NULL: few requests, little memory */
    const char *model;  /* what it serves */
    const char *output; /* the run's folder, which exists */
    const char *device, *arithmetic; /* of the run; NULL: the server's own choice */
    const avo_allocator *allocator;
} train_serve_options;

typedef struct train_serve {
    pid_t process;  /* 0: none, or it has ended */
    int connection; /* −1: none */
    char url[512];
    char name[TRAIN_ADAPTER_NAME_MAX]; /* what requests call the adapter */
    char folder[PATH_MAX];             /* the output folder's absolute path */
    const avo_allocator *allocator;
    bool loaded;    /* once at least */
    avo_error last; /* the failure that was told; no text: none, or it is over */
} train_serve;

/* What an adapter is called without a name of its own: the last part of the folder's path, with a
 * hyphen for what names of adapters cannot have. */
void train_serve_name(const char *folder, char name[TRAIN_ADAPTER_NAME_MAX]);

/* Returns when the server listens; it answers when it has opened the model. */
AVO_MUST_USE avo_status train_serve_open(train_serve *serve, const train_serve_options *options,
                                         avo_error *error);
/* The server loads what is in the output folder. `line` gets what the log should say, "" where
 * nothing is new. */
void train_serve_load(train_serve *serve, uint64_t step, char *line, size_t capacity);
/* Ends it, however long it takes. Also of one that was not opened: {.connection = -1}. */
void train_serve_close(train_serve *serve);

#endif
