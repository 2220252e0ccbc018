/* `avocet inspect --json`: one object. Arrays of the metadata are shortened to their first items,
 * with type and count beside them. */
#include "cli/inspect_int.h"

#include "formats/avo.h"

#include <math.h>

#define ITEMS_SHOWN 16

/* ---- Parts ---- */

static void write_files(json_writer *w, const model_source *source) {
    json_member_array_begin(w, "files");
    for (uint32_t i = 0; i < source->file_count; i++) {
        json_object_begin(w);
        json_member_string(w, "path", source->files[i].path);
        json_member_u64(w, "bytes", source->files[i].map.bytes.size);
        json_end(w);
    }
    json_end(w);
}

static void write_rope(json_writer *w, const model_config *c) {
    const rope_scaling *rope = &c->rope;
    json_member_object_begin(w, "rope");
    json_member_u64(w, "dimensions", c->rotary_dims);
    json_member_boolean(w, "interleaved", c->rope_interleaved);
    json_member_number(w, "base", c->rope_base);
    if (c->rope_base_local > 0)
        json_member_number(w, "base_local", c->rope_base_local);
    json_member_string(w, "scaling", inspect_rope_name(rope->kind));
    if (rope->kind != ROPE_PLAIN) {
        json_member_number(w, "factor", rope->factor);
        json_member_u64(w, "original_context", rope->original_context);
    }
    json_end(w);
}

static void write_layers(json_writer *w, const char *key, const uint8_t *table, uint32_t layers) {
    json_member_array_begin(w, key);
    for (uint32_t i = 0; table != NULL && i < layers; i++)
        json_u64(w, table[i] != 0);
    json_end(w);
}

static void write_config(json_writer *w, const model_config *c) {
    const struct {
        const char *key;
        uint32_t number;
    } sizes[] = {
        {"layers", c->layers},         {"width", c->width},       {"feed_forward", c->feed_forward},
        {"heads", c->heads},           {"kv_heads", c->kv_heads}, {"head_size", c->head_size},
        {"vocabulary", c->vocabulary}, {"context", c->context},   {"positions", c->positions},
        {"window", c->window},
    };
    json_member_object_begin(w, "config");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        json_member_u64(w, sizes[i].key, sizes[i].number);
    if (c->experts > 0) {
        json_member_u64(w, "experts", c->experts);
        json_member_u64(w, "experts_used", c->experts_used);
        json_member_u64(w, "expert_feed_forward", c->expert_feed_forward);
        json_member_u64(w, "shared_feed_forward", c->shared_feed_forward);
    }
    json_member_string(w, "activation", inspect_activation_name(c->activation));
    json_member_boolean(w, "tied_head", c->tied_head);
    json_member_number(w, "norm_epsilon", c->norm_epsilon);
    write_rope(w, c);
    write_layers(w, "layer_windowed", c->layer_windowed, c->layers);
    write_layers(w, "layer_rotary", c->layer_rotary, c->layers);
    json_end(w);
}

static void write_totals(json_writer *w, const inspect_facts *facts) {
    json_member_u64(w, "tensor_count", facts->source->tensor_count);
    json_member_u64(w, "weights", facts->elements);
    json_member_u64(w, "weight_bytes", facts->bytes);
    json_member_number(w, "bits_per_weight", inspect_bits(facts->bytes, facts->elements));
    json_member_array_begin(w, "types");
    for (size_t i = 0; i < facts->total_count; i++) {
        const inspect_total *total = &facts->totals[i];
        json_object_begin(w);
        json_member_string(w, "type", quant_name(total->type));
        json_member_string(w, "layout", quant_layout_name(total->layout));
        json_member_u64(w, "tensors", total->tensors);
        json_member_u64(w, "weights", total->elements);
        json_member_u64(w, "bytes", total->bytes);
        json_end(w);
    }
    json_end(w);
}

static void write_tensors(json_writer *w, const model_source *source) {
    json_member_array_begin(w, "tensors");
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *tensor = &source->tensors[i];
        json_object_begin(w);
        json_member_text(w, "name", tensor->name);
        json_member_string(w, "type", quant_name(tensor->type));
        json_member_string(w, "layout", quant_layout_name(tensor->layout));
        json_member_array_begin(w, "shape");
        for (uint32_t j = 0; j < tensor->rank; j++)
            json_u64(w, tensor->shape[j]);
        json_end(w);
        json_member_u64(w, "bytes", tensor->bytes);
        json_member_u64(w, "file", tensor->file);
        json_member_u64(w, "offset",
                        (uint64_t)(tensor->data - source->files[tensor->file].map.bytes.data));
        json_end(w);
    }
    json_end(w);
}

static void write_tokenizer(json_writer *w, const inspect_facts *facts) {
    json_member_object_begin(w, "tokenizer");
    json_member_string(w, "source", inspect_tokenizer_name(facts->source->tokenizer.kind));
    if (facts->tokenizer_opened) {
        json_member_string(w, "kind", facts->tokenizer.kind);
        json_member_u64(w, "vocabulary", facts->tokenizer.vocabulary);
        json_member_u64(w, "merges", facts->tokenizer.merges);
        json_member_u64(w, "added", facts->tokenizer.added);
    } else if (facts->tokenizer_error.text[0] != '\0') {
        json_member_string(w, "error", facts->tokenizer_error.text);
    }
    json_end(w);
}

static void write_generation(json_writer *w, const generation_defaults *g) {
    json_member_object_begin(w, "generation");
    if (g->token_begin < 0)
        json_member_null(w, "token_begin");
    else
        json_member_i64(w, "token_begin", g->token_begin);
    json_member_array_begin(w, "stop_tokens");
    for (uint32_t i = 0; i < g->stop_token_count; i++)
        json_i64(w, g->stop_tokens[i]);
    json_end(w);
    for (generation_field i = 0; i < GENERATION_FIELD_COUNT; i++)
        if (!isnan(generation_number(g, i)))
            json_member_number(w, generation_field_name(i), (double)generation_number(g, i));
    if (g->top_k >= 0)
        json_member_u64(w, "top_k", (uint64_t)g->top_k);
    json_end(w);
}

/* ---- GGUF metadata ---- */

static void write_item(json_writer *w, const gguf_value *value, uint64_t index) {
    char scratch[INSPECT_EXACT_BYTES];
    double number;
    text_view text = inspect_exact(value, index, scratch);
    if (text.size > 0)
        json_raw(w, text);
    else if (gguf_number(value, index, &number))
        json_number(w, number);
    else if (gguf_string(value, index, &text))
        json_text(w, text);
    else
        json_null(w); /* an array in an array */
}

static void write_array(json_writer *w, const gguf_value *value) {
    json_object_begin(w);
    json_member_string(w, "array", gguf_type_name(value->item_type));
    json_member_u64(w, "count", value->count);
    json_member_array_begin(w, "first");
    for (uint64_t i = 0; i < value->count && i < ITEMS_SHOWN; i++)
        write_item(w, value, i);
    json_end(w);
    json_end(w);
}

static void write_metadata(json_writer *w, const gguf_metadata *metadata) {
    json_member_u64(w, "gguf_version", metadata->version);
    json_member_object_begin(w, "metadata");
    for (size_t i = 0; i < metadata->count; i++) {
        const gguf_value *value = &metadata->values[i];
        json_key_text(w, value->key);
        if (value->type == GGUF_ARRAY)
            write_array(w, value);
        else
            write_item(w, value, 0);
    }
    json_end(w);
}

static void write_avo(json_writer *w, const model_source *source) {
    json_member_u64(w, "avo_version", avo_source_header(source).version);
    json_member_object_begin(w, "notes");
    for (uint32_t i = 0; i < avo_source_note_count(source); i++) {
        avo_note note = avo_source_note(source, i);
        json_key_text(w, note.key);
        json_text(w, note.value);
    }
    json_end(w);
}

static void write_verdict(json_writer *w, const inspect_verdict *v) {
    json_member_object_begin(w, "verify");
    json_member_string(w, "checked", v->sums ? "sums" : "numbers");
    json_member_boolean(w, "good", v->bad_tensors == 0);
    if (!v->sums) {
        json_member_u64(w, "weights", v->elements);
        json_member_u64(w, "nan", v->not_a_number);
        json_member_u64(w, "infinite", v->infinite);
        json_member_u64(w, "bad_tensors", v->bad_tensors);
    }
    json_end(w);
}

/* ---- Draft heads ---- */

static void write_digest(json_writer *w, const char *key, const char *digest) {
    if (digest[0] == '\0')
        json_member_null(w, key);
    else
        json_member_string(w, key, digest);
}

static void write_heads(json_writer *w, const heads_config *c) {
    json_member_object_begin(w, "heads");
    json_member_string(w, "kind", heads_kind_name(c->kind));
    write_digest(w, "base_digest", c->base_digest);
    write_digest(w, "base_sha256", c->base_sha256);
    json_member_u64(w, "width", c->width);
    json_member_u64(w, "layers", c->layers);
    json_member_u64(w, "vocabulary", c->vocabulary);
    json_member_u64(w, "frequent", c->frequent);
    json_member_number(w, "norm_epsilon", c->norm_epsilon);
    json_member_array_begin(w, "taps");
    for (uint32_t i = 0; i < c->taps; i++)
        json_u64(w, c->tap[i]);
    json_end(w);
    if (c->kind == HEADS_MEDUSA) {
        json_member_u64(w, "heads", c->heads);
        json_member_boolean(w, "token", c->token);
    } else {
        json_member_u64(w, "depth", c->depth);
        json_member_u64(w, "window", c->window);
        json_member_u64(w, "attention_heads", c->attention_heads);
        json_member_u64(w, "kv_heads", c->kv_heads);
        json_member_u64(w, "head_size", c->head_size);
        json_member_u64(w, "feed_forward", c->feed_forward);
        json_member_number(w, "rope_base", c->rope_base);
    }
    json_end(w);
}

/* ---- The object ---- */

static void write_model(json_writer *w, const inspect_facts *facts) {
    const model_source *source = facts->source;
    json_member_string(w, "architecture", source_architecture_name(source->config.architecture));
    write_config(w, &source->config);
    write_tokenizer(w, facts);
    write_generation(w, &source->generation);
    if (source->chat_template.size > 0)
        json_member_text(w, "chat_template", source->chat_template);
}

void inspect_write_json(json_writer *w, const inspect_facts *facts) {
    const model_source *source = facts->source;
    json_object_begin(w);
    json_member_string(w, "path", source->path);
    json_member_string(w, "format", source_format_name(source->format));
    json_member_text(w, "name", source->name);
    write_files(w, source);
    if (facts->heads != NULL)
        write_heads(w, facts->heads);
    else
        write_model(w, facts);
    write_totals(w, facts);
    if (facts->list_tensors)
        write_tensors(w, source);
    if (source->gguf != NULL)
        write_metadata(w, source->gguf);
    if (source->format == SOURCE_AVO)
        write_avo(w, source);
    if (facts->verdict.done)
        write_verdict(w, &facts->verdict);
    json_end(w);
}
