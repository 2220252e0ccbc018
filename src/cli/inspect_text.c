/* `avocet inspect` for people. */
#include "cli/inspect_int.h"

#include "cli/cli.h"
#include "formats/avo.h"

#include <math.h>

#define TEMPLATE_LINES 6
#define ITEMS_SHOWN    4
#define STRING_SHOWN   72

/* A line's text of file origin: one line, shortened, control characters as '?'. */
static avo_status write_shown(buffer *out, text_view text, size_t limit) {
    size_t shown = text.size < limit ? text.size : limit;
    /* Not in the middle of a character. */
    while (shown < text.size && shown > 0 && ((unsigned char)text.data[shown] & 0xC0) == 0x80)
        shown--;
    for (size_t i = 0; i < shown; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte == '\n')
            AVO_TRY(buffer_append_text(out, "\\n"));
        else
            AVO_TRY(buffer_append(out, byte < 0x20 || byte == 0x7F ? "?" : (const char *)&byte, 1));
    }
    return shown < text.size ? buffer_format(out, "… (%zu bytes)", text.size) : AVO_OK;
}

static avo_status write_head(buffer *out, const inspect_facts *facts) {
    const model_source *source = facts->source;
    char size[16];
    AVO_TRY(buffer_format(out, "file          %s\n", source->path));
    AVO_TRY(buffer_format(out, "format        %s", source_format_name(source->format)));
    if (source->gguf != NULL)
        AVO_TRY(buffer_format(out, " version %u", source->gguf->version));
    if (source->format == SOURCE_AVO)
        AVO_TRY(buffer_format(out, " version %u", avo_source_header(source).version));
    AVO_TRY(buffer_format(out, ", %u file%s, %s\n", source->file_count,
                          source->file_count == 1 ? "" : "s",
                          cli_bytes_text(facts->file_bytes, size)));
    if (source->name.size == 0)
        return AVO_OK;
    AVO_TRY(buffer_append_text(out, "name          "));
    AVO_TRY(write_shown(out, source->name, STRING_SHOWN));
    return buffer_append_text(out, "\n");
}

static avo_status write_positions(buffer *out, const model_config *c) {
    if (c->positions > 0)
        AVO_TRY(buffer_format(out, "positions     learned, %u rows\n", c->positions));
    if (c->rotary_dims == 0)
        return AVO_OK;
    AVO_TRY(buffer_format(out, "positions     rotary, %u of %u dimensions, base %g", c->rotary_dims,
                          c->head_size, c->rope_base));
    if (c->rope_base_local > 0)
        AVO_TRY(buffer_format(out, " (windowed layers %g)", c->rope_base_local));
    AVO_TRY(buffer_format(out, ", %s", c->rope_interleaved ? "neighbours" : "halves"));
    if (c->rope.kind != ROPE_PLAIN)
        AVO_TRY(buffer_format(out, ", scaling %s", inspect_rope_name(c->rope.kind)));
    if (c->rope.kind != ROPE_PLAIN && c->rope.kind != ROPE_FACTORS)
        AVO_TRY(buffer_format(out, " by %g", c->rope.factor));
    if (c->rope.original_context > 0)
        AVO_TRY(buffer_format(out, " from %u", c->rope.original_context));
    return buffer_append_text(out, "\n");
}

static uint32_t count_ones(const uint8_t *table, uint32_t layers) {
    uint32_t count = 0;
    for (uint32_t i = 0; table != NULL && i < layers; i++)
        count += table[i];
    return count;
}

static avo_status write_config(buffer *out, const model_config *c) {
    AVO_TRY(buffer_format(out, "architecture  %s\n", source_architecture_name(c->architecture)));
    AVO_TRY(buffer_format(out, "layers        %u, width %u, feed-forward %u (%s)\n", c->layers,
                          c->width, c->feed_forward, inspect_activation_name(c->activation)));
    AVO_TRY(buffer_format(out, "attention     %u heads of %u, %u for keys and values\n", c->heads,
                          c->head_size, c->kv_heads));
    AVO_TRY(buffer_format(out, "vocabulary    %u, output head %s\n", c->vocabulary,
                          c->tied_head ? "tied to the embedding" : "separate"));
    AVO_TRY(buffer_format(out, "context       %u\n", c->context));
    AVO_TRY(write_positions(out, c));
    if (c->window > 0)
        AVO_TRY(buffer_format(out, "window        %u positions in %u of %u layers\n", c->window,
                              count_ones(c->layer_windowed, c->layers), c->layers));
    if (c->experts > 0)
        AVO_TRY(buffer_format(out,
                              "experts       %u of %u per token, feed-forward %u each, in %u of "
                              "%u layers%s\n",
                              c->experts_used, c->experts, c->expert_feed_forward,
                              count_ones(c->layer_experts, c->layers), c->layers,
                              c->shared_feed_forward > 0 ? ", and a shared one" : ""));
    uint32_t rotary = count_ones(c->layer_rotary, c->layers);
    if (c->rotary_dims > 0 && rotary < c->layers)
        AVO_TRY(buffer_format(out, "no RoPE       in %u of %u layers\n", c->layers - rotary,
                              c->layers));
    return buffer_format(out, "norm          epsilon %g%s\n", c->norm_epsilon,
                         c->norm_plus_one ? ", 1 + weight" : "");
}

static avo_status write_tokenizer(buffer *out, const inspect_facts *facts) {
    const tokenizer_info *info = &facts->tokenizer;
    AVO_TRY(buffer_format(out, "tokenizer     %s",
                          inspect_tokenizer_name(facts->source->tokenizer.kind)));
    if (facts->tokenizer_opened)
        AVO_TRY(buffer_format(out, ": %s, %u tokens, %u merges, %u added", info->kind,
                              info->vocabulary, info->merges, info->added));
    else if (facts->tokenizer_error.text[0] != '\0')
        AVO_TRY(buffer_format(out, " (not usable: %s)", facts->tokenizer_error.text));
    return buffer_append_text(out, "\n");
}

static avo_status write_generation(buffer *out, const generation_defaults *g) {
    AVO_TRY(buffer_append_text(out, "generation    "));
    if (g->token_begin >= 0)
        AVO_TRY(buffer_format(out, "BOS token %d, ", g->token_begin));
    AVO_TRY(buffer_append_text(out, g->stop_token_count == 0 ? "no stop tokens" : "stops at"));
    for (uint32_t i = 0; i < g->stop_token_count; i++)
        AVO_TRY(buffer_format(out, " %d", g->stop_tokens[i]));
    for (generation_field i = 0; i < GENERATION_FIELD_COUNT; i++)
        if (!isnan(generation_number(g, i)))
            AVO_TRY(buffer_format(out, ", %s %g", generation_field_name(i),
                                  (double)generation_number(g, i)));
    if (g->top_k >= 0)
        AVO_TRY(buffer_format(out, ", top_k %d", g->top_k));
    return buffer_append_text(out, "\n");
}

static avo_status write_template(buffer *out, text_view text) {
    if (text.size == 0)
        return buffer_append_text(out, "template      none\n");
    AVO_TRY(buffer_format(out, "template      %zu bytes\n", text.size));
    for (int line = 0; line < TEMPLATE_LINES && text.size > 0; line++) {
        const char *end = memchr(text.data, '\n', text.size);
        size_t length = end == NULL ? text.size : (size_t)(end - text.data);
        AVO_TRY(buffer_append_text(out, "  | "));
        AVO_TRY(write_shown(out, (text_view){text.data, length}, STRING_SHOWN));
        AVO_TRY(buffer_append_text(out, "\n"));
        length += end == NULL ? 0 : 1;
        text = (text_view){text.data + length, text.size - length};
    }
    return text.size == 0 ? AVO_OK : buffer_append_text(out, "  | …\n");
}

static avo_status write_totals(buffer *out, const inspect_facts *facts) {
    char size[16];
    AVO_TRY(buffer_format(out, "tensors       %u, %llu weights, %s, %.3f bits per weight\n",
                          facts->source->tensor_count, (unsigned long long)facts->elements,
                          cli_bytes_text(facts->bytes, size),
                          inspect_bits(facts->bytes, facts->elements)));
    for (size_t i = 0; i < facts->total_count; i++) {
        const inspect_total *t = &facts->totals[i];
        AVO_TRY(buffer_format(out, "  %-8s %-8s %5u tensors  %14llu weights  %10s  %.3f bits\n",
                              quant_name(t->type), quant_layout_name(t->layout), t->tensors,
                              (unsigned long long)t->elements, cli_bytes_text(t->bytes, size),
                              inspect_bits(t->bytes, t->elements)));
    }
    return AVO_OK;
}

static avo_status write_tensors(buffer *out, const model_source *source) {
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *t = &source->tensors[i];
        AVO_TRY(
            buffer_format(out, "  %-8s %-8s [", quant_name(t->type), quant_layout_name(t->layout)));
        for (uint32_t j = 0; j < t->rank; j++)
            AVO_TRY(
                buffer_format(out, "%s%llu", j == 0 ? "" : ", ", (unsigned long long)t->shape[j]));
        AVO_TRY(buffer_format(out, "] %llu bytes  ", (unsigned long long)t->bytes));
        AVO_TRY(write_shown(out, t->name, SOURCE_NAME_MAX));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

static avo_status write_item(buffer *out, const gguf_value *value, uint64_t index) {
    char scratch[INSPECT_EXACT_BYTES];
    double number;
    text_view text = inspect_exact(value, index, scratch);
    if (text.size > 0)
        return buffer_append(out, text.data, text.size);
    if (gguf_number(value, index, &number))
        return buffer_format(out, "%.9g", number);
    if (!gguf_string(value, index, &text))
        return buffer_append_text(out, "…"); /* an array in an array */
    AVO_TRY(buffer_append_text(out, "\""));
    AVO_TRY(write_shown(out, text, STRING_SHOWN));
    return buffer_append_text(out, "\"");
}

static avo_status write_metadata(buffer *out, const gguf_metadata *metadata) {
    if (metadata == NULL)
        return AVO_OK;
    AVO_TRY(buffer_format(out, "metadata      %zu values\n", metadata->count));
    for (size_t i = 0; i < metadata->count; i++) {
        const gguf_value *value = &metadata->values[i];
        AVO_TRY(buffer_append_text(out, "  "));
        AVO_TRY(write_shown(out, value->key, STRING_SHOWN));
        AVO_TRY(buffer_append_text(out, " = "));
        if (value->type != GGUF_ARRAY) {
            AVO_TRY(write_item(out, value, 0));
        } else {
            AVO_TRY(buffer_append_text(out, "["));
            for (uint64_t j = 0; j < value->count && j < ITEMS_SHOWN; j++) {
                AVO_TRY(buffer_append_text(out, j == 0 ? "" : ", "));
                AVO_TRY(write_item(out, value, j));
            }
            AVO_TRY(buffer_format(out, "%s] (%llu × %s)", value->count > ITEMS_SHOWN ? ", …" : "",
                                  (unsigned long long)value->count,
                                  gguf_type_name(value->item_type)));
        }
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

static avo_status write_notes(buffer *out, const model_source *source) {
    uint32_t count = source->format == SOURCE_AVO ? avo_source_note_count(source) : 0;
    for (uint32_t i = 0; i < count; i++) {
        avo_note note = avo_source_note(source, i);
        AVO_TRY(buffer_append_text(out, "note          "));
        AVO_TRY(write_shown(out, note.key, STRING_SHOWN));
        AVO_TRY(buffer_append_text(out, " = "));
        AVO_TRY(write_shown(out, note.value, STRING_SHOWN));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

static avo_status write_verdict(buffer *out, const inspect_verdict *v) {
    if (!v->done)
        return AVO_OK;
    if (v->sums)
        return buffer_append_text(out, "verified      all checksums match\n");
    return buffer_format(out,
                         "verified      %llu weights decoded: %llu NaN, %llu Inf, in %u tensors\n",
                         (unsigned long long)v->elements, (unsigned long long)v->not_a_number,
                         (unsigned long long)v->infinite, v->bad_tensors);
}

static avo_status write_heads_layers(buffer *out, const heads_config *c) {
    AVO_TRY(buffer_format(out, "depth         %u layer%s, feed-forward %u\n", c->depth,
                          c->depth == 1 ? "" : "s", c->feed_forward));
    AVO_TRY(buffer_format(out, "attention     %u heads of %u, %u for keys and values\n",
                          c->attention_heads, c->head_size, c->kv_heads));
    AVO_TRY(buffer_format(out, "positions     rotary, base %g\n", c->rope_base));
    return c->window == 0 ? buffer_append_text(out, "window        all positions\n")
                          : buffer_format(out, "window        %u positions\n", c->window);
}

static avo_status write_heads(buffer *out, const heads_config *c) {
    AVO_TRY(buffer_format(out, "draft heads   %s\n", heads_kind_name(c->kind)));
    AVO_TRY(buffer_format(out, "base model    %u layers, width %u, vocabulary %u\n", c->layers,
                          c->width, c->vocabulary));
    AVO_TRY(buffer_format(out, "base digest   %s\n",
                          c->base_digest[0] == '\0' ? "not said" : c->base_digest));
    AVO_TRY(buffer_format(out, "base SHA-256  %s\n",
                          c->base_sha256[0] == '\0' ? "not said" : c->base_sha256));
    if (c->kind == HEADS_MEDUSA)
        AVO_TRY(buffer_format(out, "heads         %u, from the hidden state%s\n", c->heads,
                              c->token ? " and the token" : ""));
    else
        AVO_TRY(write_heads_layers(out, c));
    AVO_TRY(buffer_append_text(out, c->taps == 0 ? "taps          none" : "taps          layer"));
    for (uint32_t i = 0; i < c->taps; i++)
        AVO_TRY(buffer_format(out, " %u", c->tap[i]));
    AVO_TRY(buffer_format(out, "\nfrequent      %u of %u tokens can be drafted\n", c->frequent,
                          c->vocabulary));
    return buffer_format(out, "norm          epsilon %g\n", c->norm_epsilon);
}

static avo_status write_model(buffer *out, const inspect_facts *facts) {
    AVO_TRY(write_config(out, &facts->source->config));
    AVO_TRY(write_tokenizer(out, facts));
    AVO_TRY(write_generation(out, &facts->source->generation));
    return write_template(out, facts->source->chat_template);
}

avo_status inspect_write_text(buffer *out, const inspect_facts *facts) {
    const model_source *source = facts->source;
    AVO_TRY(write_head(out, facts));
    AVO_TRY(facts->heads != NULL ? write_heads(out, facts->heads) : write_model(out, facts));
    AVO_TRY(write_totals(out, facts));
    if (facts->list_tensors)
        AVO_TRY(write_tensors(out, source));
    AVO_TRY(write_metadata(out, source->gguf));
    AVO_TRY(write_notes(out, source));
    return write_verdict(out, &facts->verdict);
}
