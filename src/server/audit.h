/* The audit log: a JSON line for everything that changes how the server serves, and for attempts
 * that were denied: who, from where, what, on what, when, with which outcome.
 *
 *   {"time":"2026-11-19T20:00:00.000Z","actor":"ops","peer":"192.0.2.1:5000","request":"…",
 *    "action":"load_adapter","target":"support","outcome":"done"}
 *
 * Unlike the access log no line is dropped: whoever acts waits until the line is in the file and,
 * for what was done, synced. A line that cannot be written is reported to the caller, who tells
 * the operator; the action itself has happened by then. */
#ifndef AVO_SERVER_AUDIT_H
#define AVO_SERVER_AUDIT_H

#include "base/status.h"

typedef struct audit audit;

typedef enum audit_outcome { AUDIT_DONE, AUDIT_FAILED, AUDIT_DENIED } audit_outcome;

typedef struct audit_entry {
    const char *actor;          /* a key's name; "local": this machine, without keys; "signal" */
    const char *peer, *request; /* address and request id; NULL: none */
    const char *action;         /* "reload_keys", "load_adapter", … */
    const char *target;         /* NULL: none */
    audit_outcome outcome;
    const char *reason; /* of what was not done; NULL: none */
} audit_entry;

AVO_MUST_USE avo_status audit_open(const char *path, audit **out, avo_error *error);
/* NULL is ignored, here and below. */
void audit_close(audit *audit);
/* The file is opened anew: after its name means another one. */
void audit_reopen(audit *audit);
/* False: the line is not in the file. */
bool audit_write(audit *audit, const audit_entry *entry);

#endif
