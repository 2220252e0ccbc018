/* Opening adapters below a folder that nothing may leave: neither "..", nor an absolute path to
 * somewhere else, nor a symbolic link, also where somebody changes the folder at the same time. */
#ifndef AVO_ADAPTERS_BENEATH_H
#define AVO_ADAPTERS_BENEATH_H

#include "adapters/adapters.h"

AVO_MUST_USE avo_status beneath_open(const char *root, const char *path, const adapter_base *base,
                                     const adapter_options *options, const avo_allocator *allocator,
                                     avo_adapter **out, avo_error *error);

#endif
