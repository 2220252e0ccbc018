/* server/zmtp on any bytes. The first byte says which role and in what pieces the rest comes; the
 * greeting is put in front of what begins with an odd one. */
#include "server/zmtp.h"

#include <stdlib.h>

static bool give(zmtp_peer *peer, const uint8_t *data, size_t size, size_t piece) {
    const char *why = NULL;
    for (size_t at = 0, part; at < size; at += part) {
        size_t room;
        uint8_t *in = zmtp_room(peer, &room);
        if (room == 0)
            abort();
        part = size - at < piece ? size - at : piece;
        part = part < room ? part : room;
        memcpy(in, data + at, part);
        if (!zmtp_received(peer, part, &why)) {
            if (why == NULL)
                abort();
            return false;
        }
        if (peer->out.size > ZMTP_UNREAD_MAX || peer->in_size > sizeof(peer->in) ||
            peer->subscription_count > ZMTP_SUBSCRIPTIONS_MAX)
            abort();
        peer->asked = false;
        (void)zmtp_wants(peer, (bytes_view){(const uint8_t *)"topic", 5});
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t greeting[64] = {0xff, 0,    0, 0, 0,   0,   0,   0,
                                         1,    0x7f, 3, 1, 'N', 'U', 'L', 'L'};
    zmtp_peer peer;
    if (size == 0 || zmtp_open(&peer, (data[0] & 2) != 0 ? ZMTP_ROUTER : ZMTP_PUB) != AVO_OK)
        return 0;
    size_t piece = (size_t)(data[0] >> 2) + 1;
    bool good = (data[0] & 1) == 0 || give(&peer, greeting, sizeof(greeting), piece);
    if (good)
        (void)give(&peer, data + 1, size - 1, piece);
    zmtp_close(&peer);
    return 0;
}
