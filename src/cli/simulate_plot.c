/* The picture of a simulation: how latencies are distributed. Data and script lie beside it
 * until it is drawn, and stay where gnuplot is not here or fails. */
#include "cli/simulate_int.h"

#include "base/file.h"

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
static void write_data(FILE *file, const void *context) {
    const report *report = ((const picture *)context)->what;
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
void simulate_plot_begin(FILE *file, const picture *picture, unsigned width, unsigned height) {
    fprintf(file,
            "set terminal %s size %u,%u font 'sans-serif,13' background 'white'\n"
            "set output '%s.%s'\nset grid\n",
            picture->png ? "pngcairo" : "svg", width, height, picture->name,
            picture->png ? "png" : "svg");
}

static void write_script(FILE *file, const void *context) {
    const picture *picture = context;
    const report *report = picture->what;
    const char *name = picture->name;
    static const char *const titles[] = {"first token", "between tokens", "whole answer", "queue"};
    const char *separator = "plot ";
    simulate_plot_begin(file, picture, 900, 560);
    fprintf(file,
            "set logscale x\nset xlabel 'seconds'\nset ylabel 'requests (tokens) within, %%'\n"
            "set yrange [0:100]\nset key left top\n"
            "set title '%u requests, %.0f s'\n",
            report->count, (double)report->result->end_ns * 1e-9);
    for (uint32_t m = 0; m < REPORT_METRICS; m++) {
        if (report->groups[0].metric[m].count == 0)
            continue;
        fprintf(file, "%s'%s.dat' index %u with lines lw 2 title '%s'", separator, name, m,
                titles[m]);
        separator = ", \\\n     ";
    }
    fputs("\n", file);
}

static void picture_named(const char *path, picture *out) {
    const char *slash = strrchr(path, '/');
    out->file = slash == NULL ? path : slash + 1;
    int folder = slash == NULL ? 0 : (int)(slash - path);
    snprintf(out->name, sizeof(out->name), "%.*s", (int)strlen(out->file) - 4, out->file);
    snprintf(out->folder, sizeof(out->folder), "%.*s", folder, path);
    if (folder == 0)
        snprintf(out->folder, sizeof(out->folder), "%s", slash == NULL ? "." : "/");
    out->png = text_ends(text_from(path), TEXT_LITERAL(".png"));
}

static bool name_fits(const picture *picture) {
    return strpbrk(picture->name, "'\"\\") == NULL;
}

bool simulate_plot_possible(const char *path) {
    picture picture;
    picture_named(path, &picture);
    return name_fits(&picture) && access(picture.folder, W_OK | X_OK) == 0 &&
           file_kind_of(path) != FILE_FOLDER;
}

int simulate_plot(const report *report, const char *path) {
    return simulate_draw(path, report, write_data, write_script);
}

int simulate_draw(const char *path, const void *what, plot_writer write, plot_writer script_write) {
    picture picture = {.what = what};
    char data[CLI_PATH_MAX + 16], script[CLI_PATH_MAX + 16], file[2 * CLI_PATH_MAX + 32];
    picture_named(path, &picture);
    if (!name_fits(&picture))
        return cli_fail_text("--plot: %s: the name must not contain quotes", path);
    snprintf(data, sizeof(data), "%s.dat", picture.name);
    snprintf(script, sizeof(script), "%s.gnuplot", picture.name);
    bool drawn = false;
    int status = plot_write(picture.folder, data, write, &picture);
    if (status == EXIT_GOOD)
        status = plot_picture(picture.folder, script, picture.file, script_write, &picture, &drawn);
    const char *const made[] = {data, script};
    for (size_t i = 0; drawn && i < 2; i++) {
        snprintf(file, sizeof(file), "%s/%s", picture.folder, made[i]);
        (void)unlink(file);
    }
    return status;
}
