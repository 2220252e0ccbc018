/* What the terminal can. Apart from view.c: term.h makes macros of common words. */
#include "tui/glyphs.h"
#include "tui/tui.h"

#include <curses.h>
#include <stdlib.h>
#include <unistd.h>

#include <term.h>

static bool has(const char *capability) {
    const char *sequence = tigetstr(capability);
    return sequence != NULL && sequence != (char *)-1;
}

avo_status tui_screen_check(avo_error *error) {
    const char *terminal = getenv("TERM");
    terminal = terminal == NULL ? "" : terminal;
    int known = 0;
    if (!glyphs_locale())
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "this system has no UTF-8 locale");
    if (terminal[0] == '\0')
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "TERM is not set");
    if (setupterm(NULL, STDOUT_FILENO, &known) != OK)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "unknown terminal \"%s\" (TERM)",
                           terminal);
    bool able = has("cup") && has("clear");
    (void)del_curterm(cur_term);
    return able ? AVO_OK
                : status_fail(error, AVO_ERROR_UNSUPPORTED,
                              "terminal \"%s\" (TERM) has no full-screen mode", terminal);
}
