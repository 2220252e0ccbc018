/* Pictures of the laboratory. */
#include "cli/plot.h"
#include "cli/speculate_int.h"

#include <math.h>
#include <string.h>

typedef struct pictures {
    const lab_options *options;
    const lab_result *result;
} pictures;

#define TERMINAL "set terminal svg noenhanced size %u,%u font 'sans-serif,13' background 'white'\n"

/* Configurations that differ in K alone follow each other; *from becomes the next such group.
 * Returns how many it has, 0 behind the last one. */
static uint32_t group(const lab_options *options, uint32_t from) {
    uint32_t count = 0;
    for (; from + count < options->configs; count++) {
        const lab_config *a = &options->config[from], *b = &options->config[from + count];
        if (strcmp(a->source, b->source) != 0 || a->controller != b->controller ||
            a->policy.kind != b->policy.kind || a->policy.value != b->policy.value)
            break;
    }
    return count;
}

static uint32_t groups(const lab_options *options) {
    uint32_t count = 0;
    for (uint32_t at = 1; at < options->configs; at += group(options, at))
        count++;
    return count;
}

/* Without K: "suffix cost". */
static void group_name(const lab_options *options, uint32_t at, char *name, size_t capacity) {
    lab_config_name(&options->config[at], name, capacity);
    char *k = strstr(name, " K ");
    if (k != NULL)
        *k = '\0';
}

/* A block for each group and category, and for all prompts: K, speed-up, deviation. */
static void write_speedup_data(FILE *file, const void *context) {
    const pictures *p = context;
    fputs("# K, speed-up over K 0, standard deviation\n", file);
    for (uint32_t at = 1; at < p->options->configs; at += group(p->options, at))
        for (uint32_t c = 0; c <= p->result->categories; c++) {
            uint32_t category = c < p->result->categories ? c : LAB_ALL;
            fputs("0 1 0\n", file);
            for (uint32_t i = at; i < at + group(p->options, at); i++) {
                lab_spread s = lab_spread_of(p->options, p->result, i, category, LAB_SPEEDUP);
                if (!isnan(s.mean))
                    fprintf(file, "%u %.6g %.6g\n", p->options->config[i].k, s.mean,
                            isnan(s.sd) ? 0 : s.sd);
            }
            fputs("\n\n", file);
        }
}

static void write_speedup(FILE *file, const void *context) {
    const pictures *p = context;
    uint32_t count = groups(p->options), index = 0;
    fprintf(file, TERMINAL, 900u, 480 * (count > 0 ? count : 1));
    fprintf(file,
            "set output 'speedup.svg'\nset multiplot layout %u,1\nset grid\n"
            "set xlabel 'K (most draft tokens in a step)'\nset ylabel 'speed-up over K 0'\n"
            "set key outside right top Left reverse\nset xrange [-0.3:*]\nset yrange [0:*]\n",
            count > 0 ? count : 1);
    for (uint32_t at = 1; at < p->options->configs; at += group(p->options, at)) {
        char name[96];
        group_name(p->options, at, name, sizeof(name));
        fprintf(file, "set title '%s'\nplot 1 with lines lc rgb '#888888' dt 2 notitle", name);
        for (uint32_t c = 0; c <= p->result->categories; c++, index++) {
            bool all = c == p->result->categories;
            fprintf(file,
                    ", \\\n     'speedup.dat' index %u using 1:2:3 with yerrorlines lw %s pt 7 ps "
                    "0.6 lc %u title '%s'",
                    index, all ? "3" : "1.5", c + 1, all ? "all" : p->result->category[c]);
        }
        fputs("\n", file);
    }
    fputs("unset multiplot\n", file);
}

/* A block for each configuration: number, share in percent. */
static void write_positions_data(FILE *file, const void *context) {
    const pictures *p = context;
    fputs("# position, accepted % of the drafts verified there\n", file);
    for (uint32_t i = 1; i < p->options->configs; i++) {
        const lab_steps *s = &p->result->steps[i];
        for (uint32_t n = 0; n < DRAFTS_MAX && s->drafted_at[n] > 0; n++)
            fprintf(file, "%u %.6g\n", n + 1,
                    100.0 * (double)s->accepted_at[n] / (double)s->drafted_at[n]);
        fputs(s->drafted_at[0] == 0 ? "0 0\n\n\n" : "\n\n", file);
    }
}

static void write_lengths_data(FILE *file, const void *context) {
    const pictures *p = context;
    fputs("# accepted drafts, % of the steps with drafts\n", file);
    for (uint32_t i = 1; i < p->options->configs; i++) {
        const lab_steps *s = &p->result->steps[i];
        double whole = s->draft_steps > 0 ? (double)s->draft_steps : 1;
        for (uint32_t n = 0; n <= p->options->config[i].k; n++)
            fprintf(file, "%u %.6g\n", n, 100.0 * (double)s->length[n] / whole);
        fputs("\n\n", file);
    }
}

/* All configurations, as lines or as bars beside each other. */
static void write_names(FILE *file, const pictures *p, const char *data, bool bars) {
    const char *separator = "plot ";
    for (uint32_t i = 1; i < p->options->configs; i++) {
        char name[96];
        lab_config_name(&p->options->config[i], name, sizeof(name));
        fprintf(file, "%s'%s' index %u using ", separator, data, i - 1);
        if (bars)
            fprintf(file, "($1 + 0.8 * (%u + 0.5) / %u - 0.4):2 with impulses lw 5", i - 1,
                    p->options->configs - 1);
        else
            fputs("1:2 with linespoints lw 2 pt 7 ps 0.6", file);
        fprintf(file, " title '%s'", name);
        separator = ", \\\n     ";
    }
    fputs(p->options->configs > 1 ? "\n" : "plot 0 notitle\n", file);
}

static void write_positions(FILE *file, const void *context) {
    fprintf(file, TERMINAL, 1000u, 520u);
    fputs("set output 'positions.svg'\nset grid\nset xlabel 'position of the draft'\n"
          "set ylabel 'accepted, %'\nset yrange [0:100]\nset xrange [0.5:*]\nset xtics 1\n"
          "set key outside right top Left reverse\n",
          file);
    write_names(file, context, "positions.dat", false);
}

static void write_lengths(FILE *file, const void *context) {
    fprintf(file, TERMINAL, 1000u, 520u);
    fputs("set output 'lengths.svg'\nset grid y\nset xlabel 'drafts accepted in a step'\n"
          "set ylabel 'steps with drafts, %'\nset yrange [0:*]\nset xtics 1\n"
          "set style fill solid 0.8\nset key outside right top Left reverse\n",
          file);
    write_names(file, context, "lengths.dat", true);
}

/* Rows, measured, learned, predicted. */
static void write_cost_data(FILE *file, const void *context) {
    const pictures *p = context;
    const lab_cost *cost = p->result->cost;
    fputs("# rows, measured, learned and predicted step over that of one row\n", file);
    for (uint32_t rows = 1; rows <= LAB_ROWS_MAX; rows++)
        if (cost[rows].steps > 0 && cost[1].steps > 0)
            fprintf(file, "%u %.6g %.6g %.6g\n", rows, cost[rows].measured_ns / cost[1].measured_ns,
                    cost[rows].learned_ns / cost[1].learned_ns,
                    cost[rows].predicted_ns / cost[1].predicted_ns);
}

static void write_cost(FILE *file, const void *context) {
    (void)context;
    fprintf(file, TERMINAL, 900u, 520u);
    fputs("set output 'cost.svg'\nset grid\nset xlabel 'rows of a step'\n"
          "set ylabel 'T(rows) / T(1)'\nset yrange [0:*]\nset key top left\n"
          "plot 'cost.dat' using 1:2 with linespoints lw 2 pt 7 title 'measured', \\\n"
          "     '' using 1:4 with linespoints lw 2 pt 5 title 'predicted before each step', \\\n"
          "     '' using 1:3 with lines lw 2 dt 2 title 'learned table, without context'\n",
          file);
}

static void write_memory_data(FILE *file, const void *context) {
    const pictures *p = context;
    fputs("# seconds, resident MiB, tokens in KV pages\n", file);
    for (size_t i = 0; i < p->result->memory_count; i++)
        fprintf(file, "%.3f %.3f %llu\n", p->result->memory[i].seconds,
                (double)p->result->memory[i].resident_bytes / 1048576.0,
                (unsigned long long)p->result->memory[i].kv_tokens);
}

static void write_memory(FILE *file, const void *context) {
    (void)context;
    fprintf(file, TERMINAL, 900u, 520u);
    fputs("set output 'memory.svg'\nset grid\nset xlabel 'seconds'\n"
          "set ylabel 'resident memory, MiB'\nset yrange [0:*]\nset y2label 'tokens in KV pages'\n"
          "set y2tics\nset y2range [0:*]\nset key bottom right\n"
          "plot 'memory.dat' using 1:2 with lines lw 2 title 'resident', \\\n"
          "     '' using 1:3 axes x1y2 with lines lw 1 title 'KV tokens'\n",
          file);
}

int speculate_plot(const lab_options *options, const lab_result *result, const char *folder) {
    static const struct {
        const char *data, *script, *picture;
        plot_writer write_data, write;
    } all[] = {
        {"speedup.dat", "speedup.gnuplot", "speedup.svg", write_speedup_data, write_speedup},
        {"positions.dat", "positions.gnuplot", "positions.svg", write_positions_data,
         write_positions},
        {"lengths.dat", "lengths.gnuplot", "lengths.svg", write_lengths_data, write_lengths},
        {"cost.dat", "cost.gnuplot", "cost.svg", write_cost_data, write_cost},
        {"memory.dat", "memory.gnuplot", "memory.svg", write_memory_data, write_memory},
    };
    const pictures p = {options, result};
    bool drawn = true;
    int status = EXIT_GOOD;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && status == EXIT_GOOD; i++) {
        status = plot_write(folder, all[i].data, all[i].write_data, &p);
        if (status == EXIT_GOOD && drawn)
            status = plot_picture(folder, all[i].script, all[i].picture, all[i].write, &p, &drawn);
        else if (status == EXIT_GOOD)
            status = plot_write(folder, all[i].script, all[i].write, &p);
    }
    return status;
}
