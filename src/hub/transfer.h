/* Downloading the files of a pull: several at once, each resumed, checked and retried by itself. */
#ifndef AVO_HUB_TRANSFER_H
#define AVO_HUB_TRANSFER_H

#include "hub/http.h"

/* Fetches every file of client->pull that is not `present` into its part and checks its sum.
 * Afterwards file.bytes and file.sha256 are what lies there. Renames nothing. What has arrived
 * stays when it fails. */
AVO_MUST_USE avo_status transfer_files(http_client *client, avo_error *error);

#endif
