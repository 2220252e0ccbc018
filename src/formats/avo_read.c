/* The .avo reader is not here yet: such files are refused by name. */
#include "formats/formats_int.h"

avo_status avo_source_open(model_source *source, avo_error *error) {
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: .avo files are not read yet",
                       source->path);
}
