/* The picture of simulated fleets: time to the first token, hit rates and goodput, by router; over
 * the number of replicas where there are several. */
#include "cli/simulate_int.h"

typedef struct fleets {
    const fleet_result *runs;
    uint32_t count, fleets; /* fleets: numbers of replicas */
} fleets;

static void write_run(FILE *file, const fleet_result *run) {
    const report_histogram *first = &run->metric[REPORT_FIRST];
    double prompt = run->prompt_tokens > 0 ? (double)run->prompt_tokens : 1;
    double adapters = run->adapter_requests > 0 ? (double)run->adapter_requests : 1;
    fprintf(file, "%s %u %.6g %.6g %.6g %.4g %.4g %.4g\n", fleet_router_name(run->router),
            run->replicas, report_percentile(first, 0.5), report_percentile(first, 0.9),
            report_percentile(first, 0.99), 100 * (double)run->reused_tokens / prompt,
            100 - 100 * (double)run->adapter_loads / adapters,
            100 * (double)run->good / (double)run->requests);
}

/* A block for each router. */
static void write_data(FILE *file, const void *context) {
    const fleets *fleets = ((const picture *)context)->what;
    uint32_t routers = fleets->count / fleets->fleets;
    fputs(
        "# router, replicas, first token p50, p90, p99 (s), prefix hits, adapter hits, good (%)\n",
        file);
    for (uint32_t r = 0; r < routers; r++) {
        for (uint32_t f = 0; f < fleets->fleets; f++)
            write_run(file, &fleets->runs[f * routers + r]);
        if (fleets->fleets > 1)
            fputs("\n\n", file);
    }
}

typedef struct panel {
    const char *title, *scale;
    unsigned columns[3];
    const char *names[3];
} panel;

static const panel panels[] = {
    {"first token, s", "set logscale y", {3, 4, 5}, {"p50", "p90", "p99"}},
    {"hits, %", "unset logscale y\nset yrange [0:105]", {6, 7}, {"prefix", "adapter"}},
    {"requests within the SLO, %", "unset logscale y\nset yrange [0:105]", {8}, {"good"}},
};

/* Bars by router. */
static void plot_bars(FILE *file, const char *name, const panel *panel) {
    const char *separator = "plot ";
    fputs("set style data histograms\nset style fill solid 0.8\nset xtics rotate by -35\n", file);
    for (uint32_t i = 0; i < 3 && panel->columns[i] > 0; i++) {
        fprintf(file, "%s'%s.dat' using %u:xtic(1) title '%s'", separator, name, panel->columns[i],
                panel->names[i]);
        separator = ", ";
    }
    fputs("\n", file);
}

/* A line for each router over the replicas: of the last column, the highest percentile. */
static void plot_lines(FILE *file, const fleets *fleets, const char *name, const panel *panel) {
    uint32_t column = 0;
    while (column < 2 && panel->columns[column + 1] > 0 && panel->columns[column] != 6)
        column++;
    const char *separator = "plot ";
    fprintf(file, "set xlabel 'replicas'\nset title '%s (%s)'\n", panel->title,
            panel->names[column]);
    for (uint32_t r = 0; r < fleets->count / fleets->fleets; r++) {
        fprintf(file, "%s'%s.dat' index %u using 2:%u with linespoints lw 2 title '%s'", separator,
                name, r, panel->columns[column], fleet_router_name(fleets->runs[r].router));
        separator = ", \\\n     ";
    }
    fputs("\n", file);
}

static void write_script(FILE *file, const void *context) {
    const picture *picture = context;
    const fleets *fleets = picture->what;
    simulate_plot_begin(file, picture, 1500, 480);
    fputs("set multiplot layout 1,3\nset key top left\n", file);
    for (size_t i = 0; i < sizeof(panels) / sizeof(panels[0]); i++) {
        fprintf(file, "%s\nset title '%s'\n", panels[i].scale, panels[i].title);
        if (fleets->fleets > 1)
            plot_lines(file, fleets, picture->name, &panels[i]);
        else
            plot_bars(file, picture->name, &panels[i]);
    }
    fputs("unset multiplot\n", file);
}

int simulate_fleet_plot(const fleet_result *runs, uint32_t count, uint32_t fleet_count,
                        const char *path) {
    fleets fleets = {runs, count, fleet_count};
    return simulate_draw(path, &fleets, write_data, write_script);
}
