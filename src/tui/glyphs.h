/* Text as a terminal shows it: what belongs together on the screen, and how wide it is.
 *
 * Widths are libc's (wcwidth), because ncurses places what it draws by them; borders between what a
 * reader sees as one character are Unicode's (utf8proc), because that is what a key deletes.
 * Whoever uses this has called setlocale with a UTF-8 locale (glyphs_locale). Text from models and
 * files is hostile: control characters, characters that turn the direction of writing, and bytes
 * that are no UTF-8 are shown as a replacement and never reach the terminal.
 */
#ifndef AVO_TUI_GLYPHS_H
#define AVO_TUI_GLYPHS_H

#include "base/cursor.h"

#define GLYPH_TAB_COLUMNS 4u

typedef struct glyph {
    size_t bytes;     /* of the text */
    unsigned columns; /* on the screen; 0 of a newline */
    bool newline, space;
    text_view shown; /* what is drawn: the text itself or its beginning, spaces, a replacement */
} glyph;

/* Sets a locale in which wcwidth knows UTF-8; false: this system has none. */
bool glyphs_locale(void);

/* The one that begins at `at` < text.size. */
glyph glyph_at(text_view text, size_t at);
/* Where the one that ends at `at` > 0 begins. */
size_t glyph_before(text_view text, size_t at);
/* The same for text that is printed as it comes, in pieces that may part a cluster: the character
 * at `at` alone; tabs and newlines pass. Bytes of it; *shown: what may be printed. */
size_t glyph_printed(text_view text, size_t at, text_view *shown);
/* Of a line without newlines. */
size_t glyph_columns(text_view text);

#endif
