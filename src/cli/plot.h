/* Pictures: data files and scripts for gnuplot, which is a program of its own and may be absent.
 * The files stay, so that a picture can be drawn again. */
#ifndef AVO_CLI_PLOT_H
#define AVO_CLI_PLOT_H

#include <stdbool.h>
#include <stdio.h>

typedef void (*plot_writer)(FILE *file, const void *context);

/* Writes folder/name; the exit status. */
int plot_write(const char *folder, const char *name, plot_writer write, const void *context);
/* Writes the script and has gnuplot draw the picture; the exit status. *drawn is false where
 * gnuplot is absent, which is a warning. */
int plot_picture(const char *folder, const char *script, const char *picture, plot_writer write,
                 const void *context, bool *drawn);

#endif
