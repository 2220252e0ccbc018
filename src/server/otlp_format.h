/* Requests as spans, in OTLP's JSON. */
#ifndef AVO_SERVER_OTLP_FORMAT_H
#define AVO_SERVER_OTLP_FORMAT_H

#include "base/buffer.h"
#include "server/otlp.h"

/* An otlp_request with its texts. */
typedef struct otlp_record {
    otlp_request request; /* its pointers are NULL or point to what follows */
    char method[16], path[OTLP_TEXT_MAX], id[OTLP_TEXT_MAX], key[OTLP_TEXT_MAX];
    char model[OTLP_TEXT_MAX];
    bool has_key, has_model;
} otlp_record;

void otlp_record_take(otlp_record *record, const otlp_request *request);
AVO_MUST_USE avo_status otlp_records_format(const otlp_record *records, size_t count,
                                            const char *service, uint64_t seed, buffer *out);

#endif
