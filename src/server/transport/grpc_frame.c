/* Statuses, texts and timeouts of gRPC. */
#include "server/transport/grpc_frame.h"

unsigned grpc_status_of(unsigned http) {
    static const struct {
        unsigned http, grpc;
    } table[] = {{400, 3},                                 /* INVALID_ARGUMENT */
                 {401, 16},                                /* UNAUTHENTICATED */
                 {403, 7},                                 /* PERMISSION_DENIED */
                 {404, 5},                                 /* NOT_FOUND */
                 {405, 12},                                /* UNIMPLEMENTED */
                 {408, 4},                                 /* DEADLINE_EXCEEDED */
                 {413, 8},                                 /* RESOURCE_EXHAUSTED */
                 {415, 12}, {429, 8},  {431, 8}, {499, 1}, /* CANCELLED */
                 {501, 12}, {503, 14},                     /* UNAVAILABLE */
                 {504, 4}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].http == http)
            return table[i].grpc;
    if (http < 300)
        return 0;
    return http < 500 ? 3 : 13; /* INTERNAL */
}

avo_status grpc_text_write(const char *text, buffer *out) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; text[i] != '\0' && i < GRPC_TEXT_BYTES_MAX; i++) {
        unsigned char c = (unsigned char)text[i];
        char escaped[3] = {'%', digits[c >> 4], digits[c & 15]};
        bool plain = c >= 0x20 && c <= 0x7E && c != '%';
        AVO_TRY(buffer_append(out, plain ? text + i : escaped, plain ? 1 : 3));
    }
    return AVO_OK;
}

bool grpc_timeout_read(const char *text, double *seconds) {
    uint64_t value = 0;
    size_t at = 0;
    for (; at < 8 && text[at] >= '0' && text[at] <= '9'; at++)
        value = value * 10 + (uint64_t)(text[at] - '0');
    if (at == 0 || text[at] == '\0' || text[at + 1] != '\0')
        return false;
    static const char units[] = "HMSmun";
    static const double each[] = {3600.0, 60.0, 1.0, 1e-3, 1e-6, 1e-9};
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        if (units[i] == text[at]) {
            *seconds = (double)value * each[i];
            return true;
        }
    return false;
}
