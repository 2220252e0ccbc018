/* `avocet inspect --json`: one object. Arrays of the metadata are shortened to their first items,
 * with type and count beside them. */
#include "cli/inspect_int.h"

#include "base/json.h"
#include "formats/avo.h"

#include <math.h>

#define ITEMS_SHOWN 16

static avo_status write_key(buffer *out, const char *key) {
    AVO_TRY(buffer_append_text(out, out->data[out->size - 1] == '{' ? "" : ","));
    AVO_TRY(json_write_string(out, text_from(key)));
    return buffer_append_text(out, ":");
}

static avo_status write_integer(buffer *out, const char *key, uint64_t number) {
    AVO_TRY(write_key(out, key));
    return buffer_format(out, "%llu", (unsigned long long)number);
}

static avo_status write_number(buffer *out, const char *key, double number) {
    AVO_TRY(write_key(out, key));
    return json_write_number(out, number);
}

static avo_status write_boolean(buffer *out, const char *key, bool boolean) {
    AVO_TRY(write_key(out, key));
    return buffer_append_text(out, boolean ? "true" : "false");
}

static avo_status write_string(buffer *out, const char *key, text_view text) {
    AVO_TRY(write_key(out, key));
    return json_write_string(out, text);
}

static avo_status open_object(buffer *out, const char *key) {
    AVO_TRY(write_key(out, key));
    return buffer_append_text(out, "{");
}

static avo_status close_object(buffer *out) {
    return buffer_append_text(out, "}");
}

/* ---- Parts ---- */

static avo_status write_files(buffer *out, const model_source *source) {
    AVO_TRY(write_key(out, "files"));
    AVO_TRY(buffer_append_text(out, "["));
    for (uint32_t i = 0; i < source->file_count; i++) {
        AVO_TRY(buffer_append_text(out, i == 0 ? "{" : ",{"));
        AVO_TRY(write_string(out, "path", text_from(source->files[i].path)));
        AVO_TRY(write_integer(out, "bytes", source->files[i].map.bytes.size));
        AVO_TRY(close_object(out));
    }
    return buffer_append_text(out, "]");
}

static avo_status write_rope(buffer *out, const model_config *c) {
    const rope_scaling *rope = &c->rope;
    AVO_TRY(open_object(out, "rope"));
    AVO_TRY(write_integer(out, "dimensions", c->rotary_dims));
    AVO_TRY(write_boolean(out, "interleaved", c->rope_interleaved));
    AVO_TRY(write_number(out, "base", c->rope_base));
    if (c->rope_base_local > 0)
        AVO_TRY(write_number(out, "base_local", c->rope_base_local));
    AVO_TRY(write_string(out, "scaling", text_from(inspect_rope_name(rope->kind))));
    if (rope->kind != ROPE_PLAIN) {
        AVO_TRY(write_number(out, "factor", rope->factor));
        AVO_TRY(write_integer(out, "original_context", rope->original_context));
    }
    return close_object(out);
}

static avo_status write_layers(buffer *out, const char *key, const uint8_t *table,
                               uint32_t layers) {
    AVO_TRY(write_key(out, key));
    AVO_TRY(buffer_append_text(out, "["));
    for (uint32_t i = 0; table != NULL && i < layers; i++)
        AVO_TRY(buffer_append_text(out, i == 0 ? (table[i] ? "1" : "0") : table[i] ? ",1" : ",0"));
    return buffer_append_text(out, "]");
}

static avo_status write_config(buffer *out, const model_config *c) {
    const struct {
        const char *key;
        uint32_t number;
    } sizes[] = {
        {"layers", c->layers},         {"width", c->width},       {"feed_forward", c->feed_forward},
        {"heads", c->heads},           {"kv_heads", c->kv_heads}, {"head_size", c->head_size},
        {"vocabulary", c->vocabulary}, {"context", c->context},   {"positions", c->positions},
        {"window", c->window},
    };
    AVO_TRY(open_object(out, "config"));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        AVO_TRY(write_integer(out, sizes[i].key, sizes[i].number));
    AVO_TRY(write_string(out, "activation", text_from(inspect_activation_name(c->activation))));
    AVO_TRY(write_boolean(out, "tied_head", c->tied_head));
    AVO_TRY(write_number(out, "norm_epsilon", c->norm_epsilon));
    AVO_TRY(write_rope(out, c));
    AVO_TRY(write_layers(out, "layer_windowed", c->layer_windowed, c->layers));
    AVO_TRY(write_layers(out, "layer_rotary", c->layer_rotary, c->layers));
    return close_object(out);
}

static avo_status write_totals(buffer *out, const inspect_facts *facts) {
    AVO_TRY(write_integer(out, "tensor_count", facts->source->tensor_count));
    AVO_TRY(write_integer(out, "weights", facts->elements));
    AVO_TRY(write_integer(out, "weight_bytes", facts->bytes));
    AVO_TRY(write_number(out, "bits_per_weight", inspect_bits(facts->bytes, facts->elements)));
    AVO_TRY(write_key(out, "types"));
    AVO_TRY(buffer_append_text(out, "["));
    for (size_t i = 0; i < facts->total_count; i++) {
        const inspect_total *total = &facts->totals[i];
        AVO_TRY(buffer_append_text(out, i == 0 ? "{" : ",{"));
        AVO_TRY(write_string(out, "type", text_from(quant_name(total->type))));
        AVO_TRY(write_string(out, "layout", text_from(inspect_layout_name(total->layout))));
        AVO_TRY(write_integer(out, "tensors", total->tensors));
        AVO_TRY(write_integer(out, "weights", total->elements));
        AVO_TRY(write_integer(out, "bytes", total->bytes));
        AVO_TRY(close_object(out));
    }
    return buffer_append_text(out, "]");
}

static avo_status write_tensors(buffer *out, const model_source *source) {
    AVO_TRY(write_key(out, "tensors"));
    AVO_TRY(buffer_append_text(out, "["));
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *tensor = &source->tensors[i];
        AVO_TRY(buffer_append_text(out, i == 0 ? "{" : ",{"));
        AVO_TRY(write_string(out, "name", tensor->name));
        AVO_TRY(write_string(out, "type", text_from(quant_name(tensor->type))));
        AVO_TRY(write_string(out, "layout", text_from(inspect_layout_name(tensor->layout))));
        AVO_TRY(write_key(out, "shape"));
        AVO_TRY(buffer_append_text(out, "["));
        for (uint32_t j = 0; j < tensor->rank; j++)
            AVO_TRY(buffer_format(out, "%s%llu", j == 0 ? "" : ",",
                                  (unsigned long long)tensor->shape[j]));
        AVO_TRY(buffer_append_text(out, "]"));
        AVO_TRY(write_integer(out, "bytes", tensor->bytes));
        AVO_TRY(write_integer(out, "file", tensor->file));
        AVO_TRY(write_integer(
            out, "offset", (uint64_t)(tensor->data - source->files[tensor->file].map.bytes.data)));
        AVO_TRY(close_object(out));
    }
    return buffer_append_text(out, "]");
}

static avo_status write_tokenizer(buffer *out, const inspect_facts *facts) {
    AVO_TRY(open_object(out, "tokenizer"));
    AVO_TRY(write_string(out, "source",
                         text_from(inspect_tokenizer_name(facts->source->tokenizer.kind))));
    if (facts->tokenizer_opened) {
        AVO_TRY(write_string(out, "kind", text_from(facts->tokenizer.kind)));
        AVO_TRY(write_integer(out, "vocabulary", facts->tokenizer.vocabulary));
        AVO_TRY(write_integer(out, "merges", facts->tokenizer.merges));
        AVO_TRY(write_integer(out, "added", facts->tokenizer.added));
    } else if (facts->tokenizer_error.text[0] != '\0') {
        AVO_TRY(write_string(out, "error", text_from(facts->tokenizer_error.text)));
    }
    return close_object(out);
}

static avo_status write_generation(buffer *out, const generation_defaults *g) {
    AVO_TRY(open_object(out, "generation"));
    AVO_TRY(write_key(out, "token_begin"));
    AVO_TRY(g->token_begin < 0 ? buffer_append_text(out, "null")
                               : buffer_format(out, "%d", g->token_begin));
    AVO_TRY(write_key(out, "stop_tokens"));
    AVO_TRY(buffer_append_text(out, "["));
    for (uint32_t i = 0; i < g->stop_token_count; i++)
        AVO_TRY(buffer_format(out, "%s%d", i == 0 ? "" : ",", g->stop_tokens[i]));
    AVO_TRY(buffer_append_text(out, "]"));
    for (generation_field i = 0; i < GENERATION_FIELD_COUNT; i++)
        if (!isnan(generation_number(g, i)))
            AVO_TRY(write_number(out, generation_field_name(i), (double)generation_number(g, i)));
    if (g->top_k >= 0)
        AVO_TRY(write_integer(out, "top_k", (uint64_t)g->top_k));
    return close_object(out);
}

/* ---- GGUF metadata ---- */

static avo_status write_item(buffer *out, const gguf_value *value, uint64_t index) {
    double number;
    text_view text;
    bool written;
    AVO_TRY(inspect_write_exact(out, value, index, &written));
    if (written)
        return AVO_OK;
    if (gguf_number(value, index, &number))
        return json_write_number(out, number);
    if (gguf_string(value, index, &text))
        return json_write_string(out, text);
    return buffer_append_text(out, "null"); /* an array in an array */
}

static avo_status write_array(buffer *out, const gguf_value *value) {
    AVO_TRY(buffer_append_text(out, "{"));
    AVO_TRY(write_string(out, "array", text_from(gguf_type_name(value->item_type))));
    AVO_TRY(write_integer(out, "count", value->count));
    AVO_TRY(write_key(out, "first"));
    AVO_TRY(buffer_append_text(out, "["));
    for (uint64_t i = 0; i < value->count && i < ITEMS_SHOWN; i++) {
        AVO_TRY(buffer_append_text(out, i == 0 ? "" : ","));
        AVO_TRY(write_item(out, value, i));
    }
    return buffer_append_text(out, "]}");
}

static avo_status write_metadata(buffer *out, const gguf_metadata *metadata) {
    AVO_TRY(write_integer(out, "gguf_version", metadata->version));
    AVO_TRY(open_object(out, "metadata"));
    for (size_t i = 0; i < metadata->count; i++) {
        const gguf_value *value = &metadata->values[i];
        AVO_TRY(buffer_append_text(out, i == 0 ? "" : ","));
        AVO_TRY(json_write_string(out, value->key));
        AVO_TRY(buffer_append_text(out, ":"));
        AVO_TRY(value->type == GGUF_ARRAY ? write_array(out, value) : write_item(out, value, 0));
    }
    return close_object(out);
}

static avo_status write_avo(buffer *out, const model_source *source) {
    AVO_TRY(write_integer(out, "avo_version", avo_source_header(source).version));
    AVO_TRY(open_object(out, "notes"));
    for (uint32_t i = 0; i < avo_source_note_count(source); i++) {
        avo_note note = avo_source_note(source, i);
        AVO_TRY(buffer_append_text(out, i == 0 ? "" : ","));
        AVO_TRY(json_write_string(out, note.key));
        AVO_TRY(buffer_append_text(out, ":"));
        AVO_TRY(json_write_string(out, note.value));
    }
    return close_object(out);
}

static avo_status write_verdict(buffer *out, const inspect_verdict *v) {
    AVO_TRY(open_object(out, "verify"));
    AVO_TRY(write_string(out, "checked", text_from(v->sums ? "sums" : "numbers")));
    AVO_TRY(write_boolean(out, "good", v->bad_tensors == 0));
    if (!v->sums) {
        AVO_TRY(write_integer(out, "weights", v->elements));
        AVO_TRY(write_integer(out, "nan", v->not_a_number));
        AVO_TRY(write_integer(out, "infinite", v->infinite));
        AVO_TRY(write_integer(out, "bad_tensors", v->bad_tensors));
    }
    return close_object(out);
}

avo_status inspect_write_json(buffer *out, const inspect_facts *facts) {
    const model_source *source = facts->source;
    AVO_TRY(buffer_append_text(out, "{"));
    AVO_TRY(write_string(out, "path", text_from(source->path)));
    AVO_TRY(write_string(out, "format", text_from(source_format_name(source->format))));
    AVO_TRY(write_string(out, "name", source->name));
    AVO_TRY(write_string(out, "architecture",
                         text_from(source_architecture_name(source->config.architecture))));
    AVO_TRY(write_files(out, source));
    AVO_TRY(write_config(out, &source->config));
    AVO_TRY(write_totals(out, facts));
    if (facts->list_tensors)
        AVO_TRY(write_tensors(out, source));
    AVO_TRY(write_tokenizer(out, facts));
    AVO_TRY(write_generation(out, &source->generation));
    if (source->chat_template.size > 0)
        AVO_TRY(write_string(out, "chat_template", source->chat_template));
    if (source->gguf != NULL)
        AVO_TRY(write_metadata(out, source->gguf));
    if (source->format == SOURCE_AVO)
        AVO_TRY(write_avo(out, source));
    if (facts->verdict.done)
        AVO_TRY(write_verdict(out, &facts->verdict));
    return close_object(out);
}
