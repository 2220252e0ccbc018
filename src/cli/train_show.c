/* What `avocet train` prints: a line of progress, the result, the preview. */
#include "base/clock.h"
#include "cli/train_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- Progress ---- */

typedef struct progress {
    bool terminal; /* the line is drawn over again */
    uint64_t shown_ns;
} progress;

static const char *time_text(double seconds, char text[32]) {
    uint64_t s = seconds > 0.0 && seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, 32, "%" PRIu64 ":%02u:%02u", s / 3600, (unsigned)(s / 60 % 60),
                 (unsigned)(s % 60));
    else
        snprintf(text, 32, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    return text;
}

static void step_text(const train_step_info *info, char *text, size_t capacity) {
    char left[32], reward[48] = "";
    if (!isnan(info->reward))
        snprintf(reward, sizeof(reward), "  reward %.4f", info->reward);
    snprintf(text, capacity,
             "step %" PRIu64 "/%" PRIu64 "%s  loss %.4f  lr %.3g  %.0f tokens/s  %s left",
             info->step, info->steps, reward, info->loss, info->rate, info->tokens_per_second,
             time_text(info->seconds_left, left));
}

/* On a terminal one line that changes; elsewhere at most a line per second. */
static bool on_step(void *context, const train_step_info *info) {
    progress *p = context;
    char text[256];
    uint64_t now = clock_now_ns();
    bool last = info->step == info->steps || cli_interrupted();
    cli_progress_end();
    if (info->evaluation) {
        fprintf(stderr, "%sstep %" PRIu64 "/%" PRIu64 "  eval_loss %.4f\n",
                p->terminal ? "\r\033[K" : "", info->step, info->steps, info->loss);
        return !cli_interrupted();
    }
    step_text(info, text, sizeof(text));
    if (p->terminal) {
        fprintf(stderr, "\r\033[K%s%s", text, last ? "\n" : "");
    } else if (last || p->shown_ns == 0 || now - p->shown_ns > 1000000000u) {
        fprintf(stderr, "%s\n", text);
        p->shown_ns = now;
    }
    return !cli_interrupted();
}

static void log_line(void *context, const char *line) {
    (void)context;
    cli_progress_end();
    cli_warn("%s", line);
}

/* ---- The result ---- */

static avo_status print_summary_json(const train_call *call, const train_summary *summary) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "task", train_task_name(call->options.settings.task));
    json_member_string(w, "output", call->options.output);
    json_member_u64(w, "step", summary->step);
    json_member_u64(w, "steps", summary->steps);
    json_member_u64(w, "first_step", summary->first_step);
    json_member_u64(w, "tokens", summary->tokens);
    if (!isnan(summary->loss))
        json_member_number(w, "loss", summary->loss);
    if (!isnan(summary->best)) {
        json_member_number(w, "best_eval_loss", summary->best);
        json_member_u64(w, "best_step", summary->best_step);
    }
    json_member_fixed(w, "seconds", summary->seconds, 3);
    json_end(w);
    return cli_json_end(&json);
}

static void print_summary(const train_call *call, const train_summary *summary) {
    char time[32];
    printf("%s: %" PRIu64 " steps, %" PRIu64 " tokens", call->options.output, summary->step,
           summary->tokens);
    if (!isnan(summary->loss))
        printf(", loss %.4f", summary->loss);
    if (!isnan(summary->best))
        printf(", best eval_loss %.4f at step %" PRIu64 " (in best/)", summary->best,
               summary->best_step);
    printf("; %s\n", time_text(summary->seconds, time));
    if (call->options.settings.task == TRAIN_HEADS)
        printf("use it: avocet run %s --draft-heads %s/heads.safetensors \"Hello\"\n", call->model,
               call->options.output);
    else if (call->options.settings.full)
        printf("use it: avocet run %s \"Hello\"\n", call->options.output);
    else
        printf("use it: avocet run %s --adapter mine=%s \"Hello\"\n", call->model,
               call->options.output);
}

avo_status train_show_run(train_call *call, const avo_model *model) {
    progress progress = {.terminal = isatty(STDERR_FILENO)};
    train_summary summary;
    bool leads = train_ranks_leads(call);
    call->options.on_step = leads ? on_step : NULL;
    call->options.on_step_context = &progress;
    call->options.log = leads ? log_line : NULL;
    avo_status status = train_run(model, &call->options, &summary, &call->error);
    if (status != AVO_OK || !leads)
        return status;
    if (call->json)
        return print_summary_json(call, &summary);
    print_summary(call, &summary);
    return AVO_OK;
}

/* ---- The preview ---- */

typedef struct sample_text {
    const avo_model *model;
    buffer text; /* of the sample, with counted parts between markers */
    avo_status status;
    avo_error *error;
} sample_text;

static void take_sample(void *context, const train_sample *sample) {
    sample_text *s = context;
    s->status = train_data_show(s->model, sample->text, "⟦", "⟧", &s->text, s->error);
}

static avo_status print_preview_json(const train_call *call, const train_preview *p,
                                     text_view sample) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "task", train_task_name(call->options.settings.task));
    json_member_u64(w, "samples", p->data.samples);
    json_member_u64(w, "valid_samples", p->valid_samples);
    json_member_u64(w, "tokens", p->data.tokens);
    json_member_u64(w, "counted_tokens", p->data.wanted_tokens);
    json_member_u64(w, "shortest", p->data.shortest);
    json_member_u64(w, "longest", p->data.longest);
    json_member_u64(w, "cut", p->data.cut);
    json_member_string(w, "keys", p->data.keys);
    json_member_u64(w, "steps", p->steps);
    json_member_number(w, "tokens_per_step", p->tokens_per_step);
    json_member_u64(w, "parameters", p->parameters);
    json_member_u64(w, "memory_bytes", p->core_bytes + p->optimizer_bytes);
    if (isnan(p->seconds_per_step))
        json_member_null(w, "seconds_per_step");
    else
        json_member_fixed(w, "seconds_per_step", p->seconds_per_step, 3);
    json_member_text(w, "sample", sample);
    if (p->completions > 0) {
        json_member_string(w, "completion", p->completion);
        json_member_number(w, "reward", p->reward);
        json_member_object_begin(w, "rewards");
        for (size_t i = 0; i < p->rewards; i++)
            json_member_number(w, call->options.rewards[i].name, p->scores[i]);
        json_end(w);
        json_member_boolean(w, "rewards_differ", p->rewards_differ);
    }
    json_end(w);
    return cli_json_end(&json);
}

static void print_rewards(const train_call *call, const train_preview *p) {
    printf("completion 1 of %zu, sampled\n", p->completions);
    cli_print_untrusted(stdout, text_from(p->completion));
    printf("\nreward    %g", p->reward);
    for (size_t i = 0; i < p->rewards; i++)
        printf("%s%s %g", i == 0 ? " (" : ", ", call->options.rewards[i].name, p->scores[i]);
    printf(")%s\n", p->rewards_differ ? "" : "; all completions of this prompt have the same");
}

static void print_preview(const train_call *call, const train_preview *p, text_view sample) {
    char memory[16], moments[16], time[32];
    printf("data      %" PRIu64 " samples (%s), %" PRIu64 " tokens, %" PRIu64 " of them count\n",
           p->data.samples, p->data.keys, p->data.tokens, p->data.wanted_tokens);
    printf("lengths   %u to %u tokens", p->data.shortest, p->data.longest);
    if (p->data.cut > 0)
        printf(", %" PRIu64 " cut", p->data.cut);
    printf("\n");
    if (p->valid_samples > 0)
        printf("valid     %" PRIu64 " samples\n", p->valid_samples);
    printf("steps     %" PRIu64 " of about %.0f tokens\n", p->steps, p->tokens_per_step);
    printf("trains    %" PRIu64 " parameters\n", p->parameters);
    printf("memory    %s beside the model, optimizer %s\n", cli_bytes_text(p->core_bytes, memory),
           cli_bytes_text(p->optimizer_bytes, moments));
    if (!isnan(p->seconds_per_step))
        printf("time      about %.1f s a step, %s in all\n", p->seconds_per_step,
               time_text(p->seconds_per_step * (double)p->steps, time));
    printf("sample 1  (parts that count between ⟦ and ⟧)\n");
    cli_print_untrusted(stdout, sample);
    printf("\n");
    if (p->completions > 0)
        print_rewards(call, p);
}

avo_status train_show_preview(train_call *call, const avo_model *model) {
    train_preview preview;
    sample_text sample = {.model = model, .error = &call->error};
    call->options.log = log_line;
    buffer_init(&sample.text, NULL, (size_t)64 << 20);
    avo_status status =
        train_dry_run(model, &call->options, &preview, take_sample, &sample, &call->error);
    cli_progress_end();
    AVO_THEN(status, sample.status);
    if (status == AVO_OK && call->json)
        status = print_preview_json(call, &preview, buffer_text(&sample.text));
    else if (status == AVO_OK)
        print_preview(call, &preview, buffer_text(&sample.text));
    buffer_free(&sample.text);
    return status;
}
