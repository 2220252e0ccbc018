/* Clusters of characters and their columns. */
#include "tui/glyphs.h"

#include "base/utf8.h"

#include <locale.h>
#include <utf8proc.h>
#include <wchar.h>

#define GLYPH_BYTES_MAX 64u /* of one cluster: marks can be piled up without end */

static const char replacement[] = "\xEF\xBF\xBD";
static const char spaces[] = "    ";

bool glyphs_locale(void) {
    static const char *const names[] = {"", "C.UTF-8", "en_US.UTF-8"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (setlocale(LC_CTYPE, names[i]) != NULL && wcwidth(0x4E2D) == 2)
            return true;
    return false;
}

/* Moves the cursor, changes the terminal, or turns what stands around it. */
static bool is_harmful(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0x200E || c == 0x200F || c == 0x061C ||
           c == 0x2028 || c == 0x2029 || c == 0xFEFF || (c >= 0xE0000 && c <= 0xE007F);
}

static glyph replaced(size_t bytes) {
    return (glyph){bytes, 1, false, false, {replacement, sizeof(replacement) - 1}};
}

/* Joiners of emoji, choosers of their looks, skin tones: one terminal makes one picture of the
 * cluster, another shows its parts side by side, and nobody can ask which. What stands before them
 * has the same width everywhere. */
static bool is_drawn_differently(uint32_t c) {
    return c == 0x200D || c == 0xFE0E || c == 0xFE0F || (c >= 0x1F3FB && c <= 0x1F3FF);
}

/* Bytes of what belongs to the character before `at`; `*shown` of them are drawn, in so many more
 * columns. */
static size_t attached(text_view text, size_t begin, size_t at, uint32_t first, size_t *shown,
                       unsigned *columns) {
    utf8proc_int32_t state = 0;
    bool draws = true;
    *shown = at - begin;
    utf8proc_int32_t before = (utf8proc_int32_t)first;
    while (at < text.size && at - begin < GLYPH_BYTES_MAX) {
        uint32_t next;
        size_t bytes = utf8_decode(text.data + at, text.size - at, &next);
        if (bytes == 0 || is_harmful(next) ||
            utf8proc_grapheme_break_stateful(before, (utf8proc_int32_t)next, &state))
            break;
        int width = wcwidth((wchar_t)next);
        if (width < 0)
            break;
        draws = draws && !is_drawn_differently(next);
        *columns += draws ? (unsigned)width : 0;
        before = (utf8proc_int32_t)next;
        at += bytes;
        *shown = draws ? at - begin : *shown;
    }
    return at - begin;
}

size_t glyph_printed(text_view text, size_t at, text_view *shown) {
    uint32_t c;
    const char *here = text.data + at;
    size_t bytes = utf8_decode(here, text.size - at, &c);
    bool passes = bytes > 0 && (c == '\n' || c == '\t' || !is_harmful(c));
    *shown = passes ? (text_view){here, bytes} : (text_view){replacement, sizeof(replacement) - 1};
    return bytes > 0 ? bytes : utf8_invalid_length(here, text.size - at);
}

glyph glyph_at(text_view text, size_t at) {
    uint32_t first;
    const char *here = text.data + at;
    size_t bytes = utf8_decode(here, text.size - at, &first);
    if (bytes == 0)
        return replaced(utf8_invalid_length(here, text.size - at));
    if (first == '\n')
        return (glyph){1, 0, true, false, {here, 0}};
    if (first == '\t')
        return (glyph){1, GLYPH_TAB_COLUMNS, false, true, {spaces, GLYPH_TAB_COLUMNS}};
    int width = is_harmful(first) ? -1 : wcwidth((wchar_t)first);
    if (width < 0 || (width == 0 && first != 0x200B))
        return replaced(bytes); /* a mark with nothing to stand on, too */
    unsigned columns = (unsigned)width;
    size_t shown;
    size_t all = attached(text, at, at + bytes, first, &shown, &columns);
    return (glyph){all, columns, false, first == ' ', {here, shown}};
}

size_t glyph_before(text_view text, size_t at) {
    /* Clusters are found from their beginning: from the line's, or as far back as one may reach. */
    size_t from = at;
    while (from > 0 && at - from < 4 * GLYPH_BYTES_MAX && text.data[from - 1] != '\n')
        from--;
    if (from == at)
        return at - 1; /* a newline */
    while (from < at && ((uint8_t)text.data[from] & 0xC0) == 0x80)
        from++;
    size_t begin = from;
    while (from < at) {
        begin = from;
        from += glyph_at((text_view){text.data, at}, from).bytes;
    }
    return begin;
}

size_t glyph_columns(text_view text) {
    size_t columns = 0;
    for (size_t at = 0; at < text.size;) {
        glyph glyph = glyph_at(text, at);
        columns += glyph.columns;
        at += glyph.bytes;
    }
    return columns;
}
