/* The safetensors reader is not here yet: such files are refused by name. */
#include "formats/formats_int.h"

avo_status safetensors_source_open(source_loader *loader, avo_error *error) {
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: safetensors are not read yet",
                       loader->source->path);
}

avo_status safetensors_folder_open(source_loader *loader, avo_error *error) {
    return safetensors_source_open(loader, error);
}
