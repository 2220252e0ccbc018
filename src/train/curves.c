/* Curves of metrics over steps as one SVG file: no program draws it, no font or script is fetched.
 * A long run is drawn with at most POINTS points a curve, each the mean of the steps around it. */
#include "train/record.h"

#include <math.h>
#include <string.h>

#define POINTS 400
#define WIDTH  420 /* of a panel, frame and labels included */
#define HEIGHT 220
#define LEFT   56
#define RIGHT  12
#define TOP    28
#define BOTTOM 26

/* Keys of one panel: the second, where it is not NULL, is drawn into the same axes. */
static const char *const panels[][2] = {
    {"reward", NULL},
    {"loss", "eval_loss"},
    {"accepted_1", "eval_accepted_1"},
    {"rewards/margins", NULL},
    {"rewards/accuracies", NULL},
    {"mean_token_accuracy", "eval_mean_token_accuracy"},
    {"entropy", NULL},
    {"completions/mean_length", NULL},
    {"kl", NULL},
    {"frac_reward_zero_std", NULL},
    {"grad_norm", NULL},
    {"learning_rate", NULL},
};
#define PANELS (sizeof(panels) / sizeof(panels[0]))

typedef struct curve {
    double x[POINTS], y[POINTS];
    uint32_t count;
} curve;

typedef struct range {
    double low, high;
} range;

static bool number_of(const json_value *line, const char *key, double *value) {
    const json_value *found = json_find(line, key);
    if (found == NULL || (found->kind != JSON_INTEGER && found->kind != JSON_NUMBER))
        return false;
    *value = found->kind == JSON_INTEGER ? (double)found->integer : found->number;
    return true;
}

static size_t count_of(const json_value *lines, const char *key) {
    size_t count = 0;
    double value;
    for (size_t i = 0; i < lines->array.count; i++)
        count += number_of(&lines->array.items[i], key, &value);
    return count;
}

/* The curve of a metric, in at most POINTS means. */
static void gather(const json_value *lines, const char *key, curve *c) {
    size_t total = count_of(lines, key), seen = 0;
    *c = (curve){0};
    if (total == 0)
        return;
    size_t points = total < POINTS ? total : POINTS;
    double x_sum = 0.0, y_sum = 0.0;
    size_t in_point = 0;
    for (size_t i = 0; i < lines->array.count; i++) {
        double x, y;
        if (!number_of(&lines->array.items[i], key, &y) ||
            !number_of(&lines->array.items[i], "step", &x))
            continue;
        x_sum += x;
        y_sum += y;
        in_point++;
        seen++;
        if (seen * points / total > c->count && c->count < POINTS) {
            c->x[c->count] = x_sum / (double)in_point;
            c->y[c->count++] = y_sum / (double)in_point;
            x_sum = y_sum = 0.0;
            in_point = 0;
        }
    }
}

static void widen(range *r, const double *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        r->low = values[i] < r->low ? values[i] : r->low;
        r->high = values[i] > r->high ? values[i] : r->high;
    }
}

static double place(double value, const range *r, double begin, double end) {
    double width = r->high - r->low;
    return width > 0.0 ? begin + (end - begin) * (value - r->low) / width : (begin + end) / 2.0;
}

static avo_status label(buffer *svg, int x, int y, const char *anchor, double value) {
    char text[NUMBER_TEXT_MAX];
    number_to_text(text, sizeof(text), 'g', 4, value);
    return buffer_format(svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y,
                         anchor, text);
}

static avo_status draw_line(buffer *svg, const curve *c, const range *x, const range *y,
                            const char *style) {
    avo_status status = AVO_OK;
    if (c->count == 0)
        return AVO_OK;
    AVO_THEN(status, buffer_format(svg, "<polyline class=\"%s\" points=\"", style));
    for (uint32_t i = 0; i < c->count; i++) {
        char across[NUMBER_TEXT_MAX], down[NUMBER_TEXT_MAX];
        number_to_text(across, sizeof(across), 'f', 1, place(c->x[i], x, LEFT, WIDTH - RIGHT));
        number_to_text(down, sizeof(down), 'f', 1, place(c->y[i], y, HEIGHT - BOTTOM, TOP));
        AVO_THEN(status, buffer_format(svg, "%s,%s ", across, down));
    }
    AVO_THEN(status, buffer_append_text(svg, "\"/>\n"));
    return status;
}

static avo_status draw_panel(buffer *svg, const curve *first, const curve *second,
                             const char *const keys[2], unsigned index) {
    range x = {INFINITY, -INFINITY}, y = x;
    widen(&x, first->x, first->count);
    widen(&y, first->y, first->count);
    widen(&x, second->x, second->count);
    widen(&y, second->y, second->count);
    const int bottom = HEIGHT - BOTTOM, right = WIDTH - RIGHT;
    avo_status status = buffer_format(svg, "<g transform=\"translate(%u,%u)\">\n",
                                      index % 2 * WIDTH, index / 2 * HEIGHT);
    AVO_THEN(status, buffer_format(svg,
                                   "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" "
                                   "height=\"%d\"/>\n",
                                   LEFT, TOP, right - LEFT, bottom - TOP));
    AVO_THEN(status, buffer_format(svg, "<text class=\"title\" x=\"%d\" y=\"%d\">%s%s%s</text>\n",
                                   LEFT, TOP - 9, keys[0], second->count > 0 ? ", " : "",
                                   second->count > 0 ? keys[1] : ""));
    AVO_THEN(status, label(svg, LEFT - 5, TOP + 9, "end", y.high));
    AVO_THEN(status, label(svg, LEFT - 5, bottom, "end", y.low));
    AVO_THEN(status, label(svg, LEFT, bottom + 15, "start", x.low));
    AVO_THEN(status, label(svg, right, bottom + 15, "end", x.high));
    AVO_THEN(status, draw_line(svg, first, &x, &y, "first"));
    AVO_THEN(status, draw_line(svg, second, &x, &y, "second"));
    AVO_THEN(status, buffer_append_text(svg, "</g>\n"));
    return status;
}

static avo_status draw_all(const json_value *lines, buffer *svg) {
    static const char style[] =
        "<style>text{font:11px sans-serif;fill:#444}.title{font-size:13px;fill:#111}"
        ".frame{fill:none;stroke:#bbb}polyline{fill:none;stroke-width:1.5}"
        ".first{stroke:#1f6fb4}.second{stroke:#d1692b;stroke-dasharray:4 2}"
        "@media(prefers-color-scheme:dark){text{fill:#bbb}.title{fill:#eee}"
        ".frame{stroke:#555}.first{stroke:#6db3f2}.second{stroke:#f2a36d}}</style>\n";
    unsigned drawn = 0, wanted = 0;
    for (size_t p = 0; p < PANELS; p++)
        wanted += count_of(lines, panels[p][0]) > 0;
    unsigned height = (wanted + 1) / 2 * HEIGHT;
    avo_status status = buffer_format(svg,
                                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                                      "height=\"%u\" viewBox=\"0 0 %d %u\">\n",
                                      2 * WIDTH, height, 2 * WIDTH, height);
    AVO_THEN(status, buffer_append_text(svg, style));
    for (size_t p = 0; p < PANELS && status == AVO_OK; p++) {
        curve first, second = {.count = 0};
        gather(lines, panels[p][0], &first);
        if (first.count == 0)
            continue;
        if (panels[p][1] != NULL)
            gather(lines, panels[p][1], &second);
        status = draw_panel(svg, &first, &second, panels[p], drawn++);
    }
    AVO_THEN(status, buffer_append_text(svg, "</svg>\n"));
    return status;
}

avo_status curves_draw(const json_value *lines, buffer *svg, avo_error *error) {
    avo_status status = draw_all(lines, svg);
    if (status != AVO_OK)
        return status_fail(error, status, "curves.svg: %s", avo_status_text(status));
    return AVO_OK;
}
