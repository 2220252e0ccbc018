/* systemd without its library: sockets that it opened, and what it wants to hear. */
#ifndef AVO_SERVER_ACTIVATION_H
#define AVO_SERVER_ACTIVATION_H

#include "base/status.h"

/* Sockets that were handed over (LISTEN_PID, LISTEN_FDS), which become close-on-exec and
 * non-blocking; the variables are removed, so that no child takes them for its own. Refused: what
 * is no listening stream socket, more than `maximum`. */
AVO_MUST_USE avo_status activation_sockets(int *sockets, uint32_t maximum, uint32_t *count,
                                           avo_error *error);

/* Opened before the sandbox; −1 where nobody listens (NOTIFY_SOCKET). */
int activation_notifier_open(void);
void activation_notifier_close(int notifier);
/* "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=…". A lost message is no error. */
void activation_notify(int notifier, const char *text);
/* Seconds within which a WATCHDOG=1 is wanted; 0: none. */
double activation_watchdog_seconds(void);

#endif
