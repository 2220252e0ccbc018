/* The picture of a simulation: how latencies are distributed. Data and script lie beside it
 * until it is drawn, and stay where gnuplot is not here or fails. */
#include "cli/simulate_int.h"

#include "base/file.h"
#include "cli/plot.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define POINTS 200

bool simulate_plot_named(const char *path) {
    size_t length = strlen(path);
    return length > 4 && length < CLI_PATH_MAX - 16 &&
           (strcmp(path + length - 4, ".svg") == 0 || strcmp(path + length - 4, ".png") == 0);
}

/* A block for each metric: seconds, percent. */
static void write_data(FILE *file, const report *report) {
    for (uint32_t m = 0; m < REPORT_METRICS; m++) {
        fprintf(file, "# %s: seconds, percent\n", report_metric_name((report_metric)m));
        for (uint32_t i = 1; i <= POINTS; i++) {
            double part = i < POINTS ? (double)i / POINTS : 0.999;
            double seconds = report_percentile(&report->groups[0].metric[m], part);
            if (seconds > 0)
                fprintf(file, "%.6g %.4g\n", seconds, 100 * part);
        }
        fputs("\n\n", file);
    }
}

/* Names without folders: gnuplot runs where they lie. */
static void write_script(FILE *file, const report *report, const char *name, bool png) {
    static const char *const titles[] = {"first token", "between tokens", "whole answer", "queue"};
    const char *separator = "plot ";
    fprintf(file,
            "set terminal %s size 900,560 font 'sans-serif,13' background 'white'\n"
            "set output '%s.%s'\n"
            "set logscale x\nset xlabel 'seconds'\nset ylabel 'requests (tokens) within, %%'\n"
            "set yrange [0:100]\nset key left top\nset grid\n"
            "set title '%u requests, %.0f s'\n",
            png ? "pngcairo" : "svg", name, png ? "png" : "svg", report->count,
            (double)report->result->end_ns * 1e-9);
    for (uint32_t m = 0; m < REPORT_METRICS; m++) {
        if (report->groups[0].metric[m].count == 0)
            continue;
        fprintf(file, "%s'%s.dat' index %u with lines lw 2 title '%s'", separator, name, m,
                titles[m]);
        separator = ", \\\n     ";
    }
    fputs("\n", file);
}

/* "folder" and "name" of folder/name.svg. */
static void path_split(const char *path, char *folder, char *name) {
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    size_t stem = strlen(base) - 4;
    memcpy(name, base, stem);
    name[stem] = '\0';
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    memcpy(folder, path, length);
    folder[length] = '\0';
    if (length == 0)
        snprintf(folder, 2, "%s", slash == NULL ? "." : "/");
}

static FILE *file_create(const char *folder, const char *name, const char *end) {
    char path[2 * CLI_PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s%s", folder, name, end);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        cli_fail_text("%s: %s", path, strerror(errno));
    return file;
}

bool simulate_plot_possible(const char *path) {
    char folder[CLI_PATH_MAX], name[CLI_PATH_MAX];
    path_split(path, folder, name);
    return strpbrk(name, "'\"\\") == NULL && access(folder, W_OK | X_OK) == 0 &&
           file_kind_of(path) != FILE_FOLDER;
}

static void file_remove(const char *folder, const char *name, const char *end) {
    char path[2 * CLI_PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/%s%s", folder, name, end);
    (void)unlink(path);
}

int simulate_plot(const report *report, const char *path) {
    char folder[CLI_PATH_MAX], name[CLI_PATH_MAX], script[CLI_PATH_MAX + 16];
    path_split(path, folder, name);
    if (strpbrk(name, "'\"\\") != NULL)
        return cli_fail_text("--plot: %s: a name without quotes is needed", path);
    FILE *data = file_create(folder, name, ".dat");
    if (data == NULL)
        return EXIT_FAILED;
    write_data(data, report);
    bool good = fclose(data) == 0;
    FILE *commands = file_create(folder, name, ".gnuplot");
    if (commands == NULL)
        return EXIT_FAILED;
    write_script(commands, report, name, strcmp(path + strlen(path) - 4, ".png") == 0);
    if (fclose(commands) != 0 || !good)
        return cli_fail_text("%s: cannot be written", path);
    snprintf(script, sizeof(script), "%s.gnuplot", name);
    int failed = plot_draw(folder, script);
    if (failed == ENOENT)
        cli_warn("gnuplot is not here (Debian: apt-get install gnuplot-nox); figures and script "
                 "are in %s",
                 folder);
    else if (failed != 0)
        return cli_fail_text("gnuplot did not draw %s", path);
    if (failed == 0) {
        file_remove(folder, name, ".dat");
        file_remove(folder, name, ".gnuplot");
    }
    return EXIT_GOOD;
}
