/* A model: source, tokenizer, template and the bound weights. One small file per architecture says
 * what the configuration does not; bind.c finds the tensors, checks every shape and makes views. */
#ifndef AVO_MODEL_MODEL_H
#define AVO_MODEL_MODEL_H

#include "device/device.h"
#include "device/store.h"
#include "formats/source.h"
#include "model/panel_cache.h"
#include "tokenizer/template/template.h"
#include "tokenizer/tokenizer.h"

struct avo_model {
    const avo_allocator *allocator;
    avo_progress_function progress; /* while opening; NULL: silent */
    void *progress_context;
    arena arena; /* views, norms as f32 */
    model_source *source;
    tokenizer *tokenizer; /* NULL: the file has none, or tokenizer_error says why */
    avo_error tokenizer_error;
    chat_template *chat_template; /* NULL: the file has none, or template_error says why */
    avo_error template_error;
    model_view view; /* without rotation tables: those depend on the context */
    uint64_t parameters;
    uint64_t weight_bytes; /* of all bound tensors as stored */
    uint64_t repack_bytes; /* converted at load, in the arena */
    weights_store *store;  /* weights as devices have prepared them, for all engines */
    panel_cache *panels;   /* what of them is kept on disk; NULL: nothing */
    /* A draft model uses parts of its target: */
    bool borrows_text;   /* the tokenizer */
    bool borrows_source; /* file and store: an early exit */
};

/* avo_model_open, and where compiling the tokenizer takes its time, `meanwhile` is called while a
 * thread does that. It runs in the caller's thread and may use all of the model but tokenizer and
 * template. The allocator is then used by both threads. */
typedef void (*model_meanwhile)(const avo_model *model, void *context);
AVO_MUST_USE avo_status model_open_beside(const char *path, const avo_model_options *options,
                                          model_meanwhile meanwhile, void *context, avo_model **out,
                                          avo_error *error);

/* Fills a model whose path is "exit:N": the first N layers of `target`, with its final norm and
 * output head. It shares everything with the target, prepared weights included. */
bool model_is_exit(const char *path);
AVO_MUST_USE avo_status model_bind_exit(avo_model *model, const avo_model *target, const char *path,
                                        avo_error *error);

/* What the model recommends: its file's values, else those that are known by its name. Where it
 * recommends no temperature (false) the others are `otherwise`; where it does, what it leaves out
 * is off. */
bool model_sampling(const avo_model *model, const avo_sampling *otherwise, avo_sampling *out);

/* What a device prepares weights from. `view`: the model's with an engine's rotation tables. */
weights_source model_weights(const avo_model *model, const model_view *view);

/* Fills model->view from model->source. */
AVO_MUST_USE avo_status model_bind(avo_model *model, avo_error *error);

/* The rotation tables, in `arena`. LongRoPE takes its long factors when `rope_context` (0: the
 * model's own) exceeds the original context; nothing else depends on it. */
AVO_MUST_USE avo_status model_rotary(const model_config *config, uint32_t rope_context,
                                     arena *arena, const rotary_table **tables, uint32_t *count,
                                     avo_error *error);

/* avo_tokenize and avo_chat_tokenize into a list, with an encoder that is kept from text to text;
 * NULL: one for this text alone. */
AVO_MUST_USE avo_status model_encode_text(const avo_model *model, encoder *encoder, text_view text,
                                          uint32_t flags, id_list *ids, avo_error *error);
AVO_MUST_USE avo_status model_encode_chat(const avo_model *model, encoder *encoder,
                                          const avo_message *messages, size_t message_count,
                                          const avo_chat_options *options, id_list *ids,
                                          avo_error *error);

/* A conversation for the template. */
typedef struct model_chat {
    const avo_message *messages;
    size_t message_count;
    const json_value *variables; /* more, or in the place of these: "messages", "tools", …; NULL */
    bool no_generation_prompt;
    int64_t now; /* 0: the clock's */
} model_chat;
/* As the model's template writes it. */
AVO_MUST_USE avo_status model_render_chat(const avo_model *model, const model_chat *chat,
                                          chat_template_output *rendered, avo_error *error);
/* The ids of its first `bytes` bytes (SIZE_MAX: all), appended. Special tokens count only where the
 * template wrote them. */
AVO_MUST_USE avo_status model_encode_rendered(const avo_model *model, encoder *encoder,
                                              const chat_template_output *rendered, size_t bytes,
                                              id_list *ids, avo_error *error);

#endif
