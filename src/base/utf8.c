/* UTF-8 decoding and encoding. */
#include "base/utf8.h"

#include <stdbool.h>

/* What a lead byte promises: the length (0: no lead byte) and the range of the second byte. */
static size_t lead_length(uint8_t lead, uint8_t *second_min, uint8_t *second_max) {
    *second_min = 0x80;
    *second_max = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2)
        return 0;
    if (lead < 0xE0)
        return 2;
    if (lead < 0xF0) {
        if (lead == 0xE0)
            *second_min = 0xA0;
        if (lead == 0xED)
            *second_max = 0x9F;
        return 3;
    }
    if (lead < 0xF5) {
        if (lead == 0xF0)
            *second_min = 0x90;
        if (lead == 0xF4)
            *second_max = 0x8F;
        return 4;
    }
    return 0;
}

/* How many of the bytes a lead byte promises are there and fit. */
static size_t sequence_good(const char *text, size_t size, size_t *promised) {
    const uint8_t *bytes = (const uint8_t *)text;
    uint8_t second_min;
    uint8_t second_max;
    *promised = lead_length(bytes[0], &second_min, &second_max);
    if (*promised == 0)
        return 0;
    size_t good = 1;
    while (good < *promised && good < size) {
        uint8_t byte = bytes[good];
        bool fits = good == 1 ? byte >= second_min && byte <= second_max : (byte & 0xC0) == 0x80;
        if (!fits)
            break;
        good++;
    }
    return good;
}

size_t utf8_decode(const char *text, size_t size, uint32_t *code_point) {
    size_t promised;
    size_t good = sequence_good(text, size, &promised);
    if (promised == 0 || good < promised)
        return 0;
    const uint8_t *b = (const uint8_t *)text;
    switch (promised) {
    case 1:
        *code_point = b[0];
        break;
    case 2:
        *code_point = (uint32_t)(b[0] & 0x1F) << 6 | (uint32_t)(b[1] & 0x3F);
        break;
    case 3:
        *code_point =
            (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (uint32_t)(b[2] & 0x3F);
        break;
    default:
        *code_point = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 |
                      (uint32_t)(b[2] & 0x3F) << 6 | (uint32_t)(b[3] & 0x3F);
        break;
    }
    return promised;
}

size_t utf8_encode(uint32_t c, char *out) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

size_t utf8_valid_prefix(const char *text, size_t size) {
    size_t at = 0;
    while (at < size) {
        if ((uint8_t)text[at] < 0x80) {
            at++;
            continue;
        }
        uint32_t ignored;
        size_t length = utf8_decode(text + at, size - at, &ignored);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

size_t utf8_invalid_length(const char *text, size_t size) {
    size_t promised;
    size_t good = sequence_good(text, size, &promised);
    return good == 0 ? 1 : good;
}

size_t utf8_incomplete_suffix(const char *text, size_t size) {
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        const char *at = text + size - back;
        if (((uint8_t)*at & 0xC0) == 0x80)
            continue; /* a continuation byte: the lead is further back */
        size_t promised;
        size_t good = sequence_good(at, back, &promised);
        return promised > back && good == back ? back : 0;
    }
    return 0;
}
