/* Tables of what the clients of a server saw: Markdown for people, CSV and JSON for programs. */
#include "load/load.h"

#include "base/json_writer.h"

#include <string.h>

static double per_second(double count, const load_result *result) {
    return result->seconds > 0.0 ? count / result->seconds : 0.0;
}

avo_status load_write_markdown(const load_table *table, buffer *out) {
    const load_options *first = &table->item[0].options;
    AVO_TRY(buffer_format(out, "%s, %s: prompts of about %u tokens, %u new tokens%s\n\n",
                          table->url, table->item[0].result.model, first->prompt, first->generate,
                          first->whole ? ", whole answers" : ""));
    AVO_TRY(buffer_format(
        out,
        "| %9s | requests | tokens/s | requests/s | first token p50 | p90 | p99 | between p50 "
        "| p99 | whole p50 | p99 | refused | failed |\n"
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        first->rate > 0.0 ? "per s" : "clients"));
    for (size_t i = 0; i < table->count; i++) {
        const load_options *options = &table->item[i].options;
        const load_result *r = &table->item[i].result;
        if (options->rate > 0.0)
            AVO_TRY(buffer_format(out, "| %9.2f ", options->rate));
        else
            AVO_TRY(buffer_format(out, "| %9u ", options->clients));
        AVO_TRY(buffer_format(
            out,
            "| %u | %.1f | %.2f | %.0f ms | %.0f ms | %.0f ms | %.1f ms | %.1f ms | %.0f ms | %.0f "
            "ms | %u | %u |\n",
            r->requests, per_second((double)r->new_tokens, r), per_second(r->finished, r),
            r->first.p50 * 1e3, r->first.p90 * 1e3, r->first.p99 * 1e3, r->between.p50 * 1e3,
            r->between.p99 * 1e3, r->whole.p50 * 1e3, r->whole.p99 * 1e3, r->refused, r->failed));
    }
    for (size_t i = 0; i < table->count; i++) {
        const load_result *r = &table->item[i].result;
        if (r->refused > 0)
            AVO_TRY(buffer_format(out,
                                  "\n"
                                  "refused requests were answered within %.0f ms (p50 %.0f ms)\n",
                                  r->refusal.max * 1e3, r->refusal.p50 * 1e3));
        if (r->failed > 0)
            AVO_TRY(buffer_format(out, "\n%u failed, the first: %s\n", r->failed, r->failure));
    }
    return AVO_OK;
}

typedef struct load_figure {
    const char *key;
    double value;
} load_figure;

#define FIGURES 20
static void figures_of(const load_case *item, load_figure figures[FIGURES]) {
    const load_options *o = &item->options;
    const load_result *r = &item->result;
    const load_figure all[FIGURES] = {
        {"clients", o->clients},
        {"rate", o->rate},
        {"prompt", o->prompt},
        {"generate", o->generate},
        {"requests", r->requests},
        {"finished", r->finished},
        {"refused", r->refused},
        {"failed", r->failed},
        {"connections", r->connections},
        {"seconds", r->seconds},
        {"new_tokens_per_second", per_second((double)r->new_tokens, r)},
        {"requests_per_second", per_second(r->finished, r)},
        {"first_token_p50", r->first.p50},
        {"first_token_p90", r->first.p90},
        {"first_token_p99", r->first.p99},
        {"between_tokens_p50", r->between.p50},
        {"between_tokens_p99", r->between.p99},
        {"whole_p50", r->whole.p50},
        {"whole_p99", r->whole.p99},
        {"refusal_max", r->refusal.max},
    };
    memcpy(figures, all, sizeof(all));
}

avo_status load_write_csv(const load_table *table, buffer *out) {
    load_figure figures[FIGURES];
    for (size_t i = 0; i < table->count; i++) {
        figures_of(&table->item[i], figures);
        for (size_t n = 0; i == 0 && n < FIGURES; n++)
            AVO_TRY(buffer_format(out, "%s%s", n > 0 ? "," : "", figures[n].key));
        AVO_TRY(buffer_append_text(out, i == 0 ? "\n" : ""));
        for (size_t n = 0; n < FIGURES; n++) {
            AVO_TRY(buffer_append_text(out, n > 0 ? "," : ""));
            AVO_TRY(json_write_number(out, figures[n].value));
        }
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

avo_status load_write_json(const load_table *table, buffer *out) {
    load_figure figures[FIGURES];
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "url", table->url);
    json_member_string(&w, "model", table->item[0].result.model);
    json_member_array_begin(&w, "results");
    for (size_t i = 0; i < table->count; i++) {
        figures_of(&table->item[i], figures);
        json_object_begin(&w);
        for (size_t n = 0; n < FIGURES; n++)
            json_member_number(&w, figures[n].key, figures[n].value);
        json_member_string(&w, "failure", table->item[i].result.failure);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}
