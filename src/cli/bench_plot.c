/* Pictures of figures: a data file and a script per picture in a folder, drawn by gnuplot, which is
 * a program of its own and may be absent. The files stay, so that a picture can be drawn again. */
#include "cli/bench_int.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char **environ;

/* X(name, script). Column 1 label, 2 operations per byte, 3 GOPS, 4 share, 5 tokens/s, 6 read
 * limit, 7 integer limit, 8 float limit, 9 number. Lines of one roof: the first result's. */
static const char roofline_script[] =
    "set terminal svg size 900,560 font 'sans-serif,13' background 'white'\n"
    "set output 'roofline.svg'\n"
    "stats 'figures.dat' using 6 nooutput name 'R'\n"
    "stats 'figures.dat' using 7 nooutput name 'I'\n"
    "stats 'figures.dat' using 8 nooutput name 'F'\n"
    "set logscale xy\n"
    "set xrange [0.1:20000]\n"
    "set yrange [0.5:*]\n"
    "set xlabel 'operations per byte read'\n"
    "set ylabel 'GOPS'\n"
    "set key left top\n"
    "set grid\n"
    "set title sprintf('read %.1f GB/s, int8 %.0f GOPS, f32 %.0f GFLOPS', R_max, I_max, F_max)\n"
    "plot (x * R_max < I_max ? x * R_max : I_max) with lines lw 2 lc rgb '#333333' "
    "title 'int8 roof', \\\n"
    "     (x * R_max < F_max ? x * R_max : F_max) with lines lw 2 dt 2 lc rgb '#888888' "
    "title 'f32 roof', \\\n"
    "     'figures.dat' using 2:3:(0.05) with points pt 7 ps 0.8 lc rgb '#c03030' notitle, \\\n"
    "     '' using 2:3:(R_records > 24 ? stringcolumn(9) : stringcolumn(1)) every 2 with labels "
    "left offset 0.6,-0.4 font ',10' notitle, \\\n"
    "     '' using 2:3:(R_records > 24 ? stringcolumn(9) : stringcolumn(1)) every 2::1 with "
    "labels right offset -0.6,0.4 font ',10' notitle\n";

static const char share_script[] =
    "set terminal svg size 900,560 font 'sans-serif,13' background 'white'\n"
    "set output 'share.svg'\n"
    "set style fill solid 0.8\n"
    "set boxwidth 0.7\n"
    "set yrange [0:100]\n"
    "set ylabel 'share of the limit that binds, %'\n"
    "set xtics rotate by -35 font ',10'\n"
    "set grid y\n"
    "set bmargin 9\n"
    "unset key\n"
    "plot 'figures.dat' using 9:(100 * $4):xtic(1) with boxes lc rgb '#3070a0', \\\n"
    "     '' using 9:(100 * $4):(sprintf('%.0f t/s', $5)) with labels offset 0,0.7 font ',9'\n";

/* What a picture calls a result; no quotes or newlines may come out of a model's name. */
static void write_label(FILE *file, const bench_result *r) {
    char label[160], batch[24] = "", depth[24] = "";
    if (r->batch > 1)
        snprintf(batch, sizeof(batch), " × %u", r->batch);
    if (r->depth > 0)
        snprintf(depth, sizeof(depth), " at %u", r->depth);
    if (r->kind == BENCH_OPERATION)
        snprintf(label, sizeof(label), "%s, %u rows", r->model, r->tokens);
    else
        snprintf(label, sizeof(label), "%s %s%s%s", r->model, bench_kind_name(r->kind), batch,
                 depth);
    for (char *at = label; *at != 0; at++)
        if (*at == '"' || *at == '\\' || *at == '_' || *at == '^' || (unsigned char)*at < ' ')
            *at = ' '; /* gnuplot would read them as markup */
    fprintf(file, "\"%s\"", label);
}

static bool write_figures(const bench_results *results, const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fputs("# label, operations/byte, GOPS, share, tokens/s, read, int8, f32, number\n", file);
    for (size_t i = 0; i < results->count; i++) {
        const bench_result *r = &results->item[i];
        write_label(file, r);
        fprintf(file, " %.6g %.6g %.6g %.6g %.6g %.6g %.6g %zu\n",
                r->gbps > 0 ? r->gops / r->gbps : 0, r->gops, r->share, r->tps, r->read_gbps,
                r->integer_gops, r->floating_gops, i);
    }
    bool good = ferror(file) == 0;
    return fclose(file) == 0 && good;
}

static bool write_script(const char *path, const char *script) {
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    bool good = fputs(script, file) >= 0;
    return fclose(file) == 0 && good;
}

/* 0, or why gnuplot did not draw: an errno, or −1 where it failed by itself. */
static int draw(const char *folder, const char *script) {
    char *arguments[] = {"gnuplot", (char *)(uintptr_t)script, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = posix_spawn_file_actions_init(&actions);
    if (status != 0)
        return status;
    status = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (status == 0)
        status = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (status != 0)
        return status;
    int ended;
    while (waitpid(child, &ended, 0) < 0)
        if (errno != EINTR)
            return errno;
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0 ? 0 : -1;
}

int bench_plot(const bench_results *results, const char *folder) {
    static const struct {
        const char *script, *picture, *text;
    } pictures[] = {{"roofline.gnuplot", "roofline.svg", roofline_script},
                    {"share.gnuplot", "share.svg", share_script}};
    char path[CLI_PATH_MAX];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return cli_fail_text("%s: %s", folder, strerror(errno));
    snprintf(path, sizeof(path), "%s/figures.dat", folder);
    if (!write_figures(results, path))
        return cli_fail_text("%s: %s", path, strerror(errno));
    for (size_t i = 0; i < sizeof(pictures) / sizeof(pictures[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, pictures[i].script);
        if (!write_script(path, pictures[i].text))
            return cli_fail_text("%s: %s", path, strerror(errno));
        int failed = draw(folder, pictures[i].script);
        if (failed == ENOENT) {
            cli_warn("gnuplot is not here (Debian: apt-get install gnuplot-nox); figures and "
                     "scripts are in %s",
                     folder);
            return EXIT_GOOD;
        }
        if (failed != 0)
            return cli_fail_text("gnuplot did not draw %s/%s", folder, pictures[i].picture);
    }
    return EXIT_GOOD;
}
