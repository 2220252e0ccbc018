/* Pictures of figures: the roofline, and shares of what binds. */
#include "cli/bench_int.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define LINE_HEIGHT 19 /* of the list beside the roofline */
#define BAR_WIDTH   64
#define LETTER      7 /* about as wide */

/* ---- Names ---- */

#define LABEL_MAX 256

/* Back end and threads, where results differ in them. */
static void label_machine(const bench_results *results, const bench_result *r, char text[48]) {
    bool backends = false, threads = false;
    for (size_t i = 0; i < results->count; i++) {
        backends |= strcmp(results->item[i].backend, r->backend) != 0;
        threads |= results->item[i].threads != r->threads;
    }
    text[0] = 0;
    if (threads)
        snprintf(text, 48, ", %s%s%u thread%s", backends ? r->backend : "", backends ? ", " : "",
                 r->threads, r->threads == 1 ? "" : "s");
    else if (backends)
        snprintf(text, 48, ", %s", r->backend);
}

/* What a picture calls a result; nothing that gnuplot reads as markup may come out of a name. */
static const char *label_of(const bench_results *results, size_t index, char label[LABEL_MAX]) {
    const bench_result *r = &results->item[index];
    char rows[24] = "", batch[24] = "", depth[24] = "", machine[48];
    label_machine(results, r, machine);
    bool operation = r->kind == BENCH_OPERATION;
    if (r->tokens > 1 && r->kind != BENCH_DECODE)
        snprintf(rows, sizeof(rows), " %u", r->tokens);
    if (r->batch > 1)
        snprintf(batch, sizeof(batch), " × %u", r->batch);
    if (r->depth > 0)
        snprintf(depth, sizeof(depth), " at %u", r->depth);
    const char *what = operation ? r->kv : bench_kind_name(r->kind);
    snprintf(label, LABEL_MAX, "%s%s%s%s%s%s%s%s%s", r->model, what[0] != 0 ? " " : "", what,
             operation && rows[0] != 0 ? "," : "", rows, operation && rows[0] != 0 ? " rows" : "",
             batch, depth, machine);
    for (char *at = label; *at != 0; at++)
        if (strchr("\"'\\_^@{}&", *at) != NULL || (unsigned char)*at < ' ')
            *at = ' ';
    return label;
}

/* Letters, not bytes. */
static size_t longest_label(const bench_results *results) {
    size_t longest = 0;
    for (size_t i = 0; i < results->count; i++) {
        char label[LABEL_MAX];
        size_t letters = 0;
        for (const char *at = label_of(results, i, label); *at != 0; at++)
            letters += ((unsigned char)*at & 0xC0) != 0x80;
        longest = letters > longest ? letters : longest;
    }
    return longest;
}

/* ---- Files ---- */

/* Column 1 label, 2 operations per byte, 3 GOPS, 4 share, 5 tokens/s, 6 read limit, 7 integer
 * limit, 8 float limit, 9 number. */
static void write_figures(FILE *file, const void *context) {
    const bench_results *results = context;
    char label[LABEL_MAX];
    fputs("# label, operations/byte, GOPS, share, tokens/s, read, int8, f32, number\n", file);
    for (size_t i = 0; i < results->count; i++) {
        const bench_result *r = &results->item[i];
        fprintf(file, "\"%s\" %.6g %.6g %.6g %.6g %.6g %.6g %.6g %zu\n",
                label_of(results, i, label), r->gbps > 0 ? r->gops / r->gbps : 0, r->gops, r->share,
                r->tps, r->read_gbps, r->integer_gops, r->floating_gops, i + 1);
    }
}

/* Points have numbers, and a list beside the picture says what they are: names would lie on each
 * other wherever two cases are alike. What computes nothing (a tokenizer, a norm) has no place
 * here; lines of the roof are those of the best limits that were measured. */
static void write_roofline(FILE *file, const void *context) {
    const bench_results *results = context;
    static const char *const offsets[] = {"left offset 0.7,-0.4", "right offset -0.7,0.4",
                                          "left offset 0.7,0.4", "right offset -0.7,-0.4"};
    size_t height = 140;
    for (size_t i = 0; i < results->count; i++)
        height += results->item[i].gops > 0 ? LINE_HEIGHT : 0;
    fprintf(file,
            "set terminal svg size %zu,%zu font 'sans-serif,13' background 'white'\n"
            "set output 'roofline.svg'\n"
            "stats 'figures.dat' using 6 nooutput name 'R'\n"
            "stats 'figures.dat' using 7 nooutput name 'I'\n"
            "stats 'figures.dat' using 8 nooutput name 'F'\n"
            "stats 'figures.dat' using ($3 > 0 ? $2 : 1) nooutput name 'X'\n"
            "set logscale xy\n"
            "set xrange [(X_min < 1 ? X_min / 3 : 0.3):(X_max > 100 ? X_max * 3 : 300)]\n"
            "set yrange [1:*]\n"
            "set xlabel 'operations per byte read'\n"
            "set ylabel 'GOPS'\n"
            "set key outside right top Left reverse samplen 1 font ',11'\n"
            "set grid\n"
            "set title sprintf('read %%.1f GB/s, int8 %%.0f GOPS, f32 %%.0f GFLOPS', R_max, I_max, "
            "F_max)\n"
            "plot (x * R_max < I_max ? x * R_max : I_max) with lines lw 2 lc rgb '#333333' "
            "title 'int8 roof', \\\n"
            "     (x * R_max < F_max ? x * R_max : F_max) with lines lw 2 dt 2 lc rgb '#888888' "
            "title 'f32 roof'",
            850 + LETTER * longest_label(results), height > 560 ? height : 560);
    for (size_t i = 0; i < results->count; i++) {
        char label[LABEL_MAX];
        if (results->item[i].gops > 0)
            fprintf(
                file,
                ", \\\n     'figures.dat' every ::%zu::%zu using 2:3 with points pt 7 ps 0.8 lc "
                "%zu title '%zu %s', \\\n"
                "     '' every ::%zu::%zu using 2:3:9 with labels %s font ',11' notitle",
                i, i, i + 1, i + 1, label_of(results, i, label), i, i, offsets[i % 4]);
    }
    fputs("\n", file);
}

static void write_share(FILE *file, const void *context) {
    const bench_results *results = context;
    size_t width = 160 + BAR_WIDTH * results->count + 5 * longest_label(results);
    fprintf(file,
            "set terminal svg size %zu,620 font 'sans-serif,13' background 'white'\n"
            "set output 'share.svg'\n"
            "set style fill solid 0.8\n"
            "set boxwidth 0.7\n"
            "set xrange [0.3:%zu.7]\n"
            "stats 'figures.dat' using (100 * $4) nooutput name 'S'\n"
            "set yrange [0:(S_max > 140 ? 150 : S_max > 95 ? S_max * 1.08 : 100)]\n"
            "set ylabel 'share of the limit that binds, %%'\n"
            "set xtics rotate by -35 font ',10'\n"
            "set grid y\n"
            "set bmargin %zu\n"
            "set rmargin %zu\n"
            "unset key\n"
            "plot 'figures.dat' using 9:(100 * $4):xtic(1) with boxes lc rgb '#3070a0', \\\n"
            "     100 with lines lc rgb '#888888' dt 2, \\\n"
            "     '' using 9:($4 > 1.4 ? 140 : 100 * $4):(gprintf('%%.1s%%c/s', $5)) with labels "
            "offset 0,0.7 font "
            "',9'\n",
            width > 900 ? width : 900, results->count, 3 + longest_label(results) / 4,
            longest_label(results) / 2);
}

/* ---- Drawing ---- */

int bench_plot_folder(const char *folder) {
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        return EXIT_GOOD;
    return cli_fail_text("--plot: %s: %s", folder, strerror(errno));
}

int bench_draw(const char *folder, const char *data, plot_writer write_data, const char *script,
               plot_writer write_picture, const char *picture, const void *context) {
    bool drawn;
    int status = plot_write(folder, data, write_data, context);
    return status == EXIT_GOOD
               ? plot_picture(folder, script, picture, write_picture, context, &drawn)
               : status;
}

int bench_plot(const bench_results *results, const char *folder) {
    static const struct {
        const char *script, *picture;
        plot_writer write;
    } pictures[] = {{"roofline.gnuplot", "roofline.svg", write_roofline},
                    {"share.gnuplot", "share.svg", write_share}};
    bool drawn = true;
    int status = plot_write(folder, "figures.dat", write_figures, results);
    for (size_t i = 0; i < sizeof(pictures) / sizeof(pictures[0]) && status == EXIT_GOOD && drawn;
         i++)
        status = plot_picture(folder, pictures[i].script, pictures[i].picture, pictures[i].write,
                              results, &drawn);
    return status;
}
