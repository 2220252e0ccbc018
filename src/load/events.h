/* Server-sent events as they come from a server, cut into pieces anywhere. Both clients of load/
 * read their answers with it. */
#ifndef AVO_LOAD_EVENTS_H
#define AVO_LOAD_EVENTS_H

#include "base/buffer.h"

/* Takes one event's data. */
typedef void (*events_take)(void *context, text_view data);

/* Hands over the data of all whole lines in `line` and leaves the rest. Comments, names of events,
 * empty lines and the closing [DONE] are passed over. */
void events_read(buffer *line, events_take take, void *context);

#endif
