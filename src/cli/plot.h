/* Pictures: gnuplot is a program of its own and may be absent. */
#ifndef AVO_CLI_PLOT_H
#define AVO_CLI_PLOT_H

/* Runs gnuplot on a script in `folder`; 0, or why it did not draw: an errno (ENOENT: there is no
 * gnuplot), or −1 where it failed by itself. */
int plot_draw(const char *folder, const char *script);

#endif
