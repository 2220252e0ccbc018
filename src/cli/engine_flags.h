/* Flags of commands that open an engine: how it computes and where its weights lie. One table, so
 * that they are the same everywhere. */
#ifndef AVO_CLI_ENGINE_FLAGS_H
#define AVO_CLI_ENGINE_FLAGS_H

#include "cli/cli.h"

/* As OPTION_CHOICE and OPTION_DEVICE have them; devices of this architecture. */
#define KV_TYPE_CHOICES "f32|f16|bf16|int8|fp8"
#if defined(__aarch64__)
#define DEVICE_NAMES "auto|cpu|ref|neon|cuda|mpi"
#elif defined(__x86_64__)
#define DEVICE_NAMES "auto|cpu|ref|avx2|avx512|amx|cuda|mpi"
#else
#define DEVICE_NAMES "auto|cpu|ref|cuda|mpi"
#endif

/* Adds the options whose targets are `options`' fields; their strings are not copied. */
void engine_flags_specs(avo_engine_options *options, option_table *table);
/* Those of them that say where things lie: for commands that try several instruction sets, KV types
 * and numbers of threads. */
void place_flags_specs(avo_engine_options *options, option_table *table);

/* Speculation, for commands that generate answers. */
void draft_flags_specs(avo_engine_options *options, option_table *table);
/* Of these, --draft-model and --draft-heads alone. */
void draft_model_flag_spec(option_table *table);

/* How a scheduler shares threads between decoding and prompts. */
void cores_flags_specs(avo_scheduler_options *options, option_table *table);
/* What the engine of such a scheduler needs. */
void cores_flags_apply(const avo_scheduler_options *scheduler, avo_engine_options *engine);

/* Fills in what models are opened with for --panel-cache; `folder` lives as long as the options. */
AVO_MUST_USE avo_status cli_panel_options(avo_model_options *options, char *folder, size_t capacity,
                                          avo_error *error);
/* For a server, which may write as little as possible. */
void cli_panels_only_used(void);

/* A line for those who asked for them with --verbose. */
void cli_note(const char *line);

/* Opens the engine; where that takes its time, with progress on stderr. */
AVO_MUST_USE avo_status cli_engine_open(const avo_model *model, const avo_engine_options *options,
                                        avo_engine **engine, avo_error *error);

/* Opens the model of --draft-model, where it was given, for `model`, and names it in the options.
 */
AVO_MUST_USE avo_status cli_draft_model(const avo_model *model, avo_engine_options *options,
                                        avo_error *error);
/* The same of draft heads: the files of --draft-heads, or, where it was not given and `speculate`
 * allows them, those beside the program that were trained on this very model. */
AVO_MUST_USE avo_status cli_draft_heads(const avo_model *model, avo_engine_options *options,
                                        avo_error *error);
/* Closes what engines shared; before the process ends. */
void cli_engine_end(void);

/* Tokens of a KV pool for as many sessions of `context` tokens, or the model's own where that is 0:
 * what they may need, but not more than `most` or one context. */
uint64_t cli_kv_tokens(const avo_model *model, uint32_t context, uint32_t sessions, uint64_t most);

#endif
