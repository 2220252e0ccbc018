/* Models from a hub and from URLs. */
#include "hub/hub_int.h"
avo_status pull_from_hub(pull *pull, const char *source, avo_error *error) {
    (void)pull;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s", source);
}
avo_status pull_from_url(pull *pull, const char *source, avo_error *error) {
    (void)pull;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s", source);
}
