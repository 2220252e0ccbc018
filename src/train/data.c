/* Samples: what the reader finds becomes tokens and masks in memory. */
#include "train/data_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KEYS_MAX       200
#define PATH_MAX_BYTES 4096

struct train_data {
    const avo_allocator *allocator;
    arena arena; /* tokens, masks, fields, prompts */
    train_sample *samples;
    uint64_t count, capacity;
    train_data_info info;
    hash_stream digest;
    char keys[KEYS_MAX];
    char path[PATH_MAX_BYTES];
};

/* What is needed while reading. */
typedef struct collector {
    train_data *data;
    const train_data_options *options;
    const char *split;
    data_encoder encoder;
    bool chat; /* strings become messages */
    bool found;
    data_form form;
    id_list stream; /* pre-training: tokens that are not in a sample yet */
    uint8_t *all;   /* … [context_max] the mask of every sample */
    buffer text;    /* of an item, as JSON */
} collector;

const char *train_data_kind_name(train_data_kind kind) {
    static const char *const names[] = {"text", "chat", "completion", "preference", "prompt"};
    return names[kind];
}

/* ---- Keeping samples ---- */

static avo_status full(const train_data *data, const char *what, avo_error *error) {
    if (data->arena.limit_hit)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the samples need more than %zu MiB; use less data or raise the limit",
                           data->arena.limit_bytes >> 20);
    return status_fail(error, AVO_ERROR_MEMORY, "out of memory for %s", what);
}

static avo_status add_sample(train_data *data, const train_sample *sample, avo_error *error) {
    if (data->count == TRAIN_DATA_SAMPLES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %llu samples",
                           (unsigned long long)TRAIN_DATA_SAMPLES_MAX);
    if (data->count == data->capacity) {
        uint64_t capacity = data->capacity == 0 ? 256 : data->capacity * 2;
        train_sample *larger =
            allocator_take_array(data->allocator, (size_t)capacity, sizeof(*larger));
        if (larger == NULL)
            return status_no_memory(error, "samples", (size_t)capacity * sizeof(*larger));
        if (data->count > 0)
            memcpy(larger, data->samples, (size_t)data->count * sizeof(*larger));
        allocator_give(data->allocator, data->samples, (size_t)data->capacity * sizeof(*larger));
        data->samples = larger;
        data->capacity = capacity;
    }
    data->samples[data->count++] = *sample;
    return AVO_OK;
}

/* Counts a sequence and adds it to the digest. */
static void count_sequence(train_data *data, train_tokens tokens) {
    train_data_info *info = &data->info;
    info->tokens += tokens.count;
    for (uint32_t i = 0; i < tokens.count; i++)
        info->wanted_tokens += tokens.wanted[i];
    if (tokens.count > info->longest)
        info->longest = tokens.count;
    if (info->shortest == 0 || tokens.count < info->shortest)
        info->shortest = tokens.count;
    hash_stream_add(&data->digest, &tokens.count, sizeof(tokens.count));
    hash_stream_add(&data->digest, tokens.tokens, tokens.count * sizeof(int32_t));
    hash_stream_add(&data->digest, tokens.wanted, tokens.count);
}

static avo_status keep_sample(train_data *data, const train_sample *sample, avo_error *error) {
    AVO_TRY(add_sample(data, sample, error));
    uint32_t longer = sample->text.count;
    count_sequence(data, sample->text);
    if (sample->rejected.count > 0) {
        count_sequence(data, sample->rejected);
        longer = sample->rejected.count > longer ? sample->rejected.count : longer;
    }
    uint32_t bin = 0;
    while (bin + 1 < TRAIN_DATA_LENGTHS && longer > (uint32_t)1 << bin)
        bin++;
    data->info.lengths[bin]++;
    return AVO_OK;
}

static avo_status copy_tokens(train_data *data, const int32_t *ids, const uint8_t *wanted,
                              uint32_t count, train_tokens *out, avo_error *error) {
    int32_t *tokens = arena_take_array(&data->arena, count, sizeof(*tokens));
    uint8_t *mask = wanted == NULL ? NULL : arena_take(&data->arena, count);
    if (tokens == NULL || (wanted != NULL && mask == NULL))
        return full(data, "tokens", error);
    memcpy(tokens, ids, count * sizeof(*tokens));
    if (wanted != NULL)
        memcpy(mask, wanted, count);
    *out = (train_tokens){tokens, mask, count};
    return AVO_OK;
}

/* ---- Supervised samples, preferences, prompts ---- */

/* The encoder's tokens as a sequence; out->count stays 0 where nothing that counts is left. */
static avo_status take_tokens(collector *collector, train_tokens *out, bool *cut,
                              avo_error *error) {
    const train_data_options *options = collector->options;
    const data_encoder *encoder = &collector->encoder;
    size_t count = encoder->ids.count;
    bool prompt = collector->form.kind == TRAIN_DATA_PROMPT;
    *out = (train_tokens){0};
    if (count > options->context_max) {
        if (!options->cut)
            return status_fail(error, AVO_ERROR_LIMIT,
                               "the sample has %zu tokens, must have at most %u; set context to at "
                               "least %zu, or cut to cut samples at their end",
                               count, options->context_max, count);
        *cut = true;
        count = options->context_max;
    }
    bool wanted = prompt && !*cut; /* a prompt without its end cannot be answered */
    for (size_t i = 0; i < count && !prompt; i++)
        wanted = wanted || encoder->wanted.data[i] != 0;
    if (wanted && count > 0)
        return copy_tokens(collector->data, encoder->ids.ids, (const uint8_t *)encoder->wanted.data,
                           (uint32_t)count, out, error);
    if (*cut)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT,
                       collector->form.kind == TRAIN_DATA_CHAT
                           ? "the conversation has nothing that the assistant says"
                           : "the sample has no token to learn");
}

static avo_status encode_answer(collector *collector, arena *arena, const data_words *words,
                                bool rejected, avo_error *error) {
    data_encoder *encoder = &collector->encoder;
    if (words->plain)
        return data_encode_pair(encoder, words->prompt_text,
                                rejected ? words->rejected_text : words->answer_text, error);
    json_value messages;
    AVO_TRY(data_messages_join(arena, &words->prompt, rejected ? &words->rejected : &words->answer,
                               &messages, error));
    return data_encode_chat(encoder, &messages, &words->tools, words->prompt.array.count, error);
}

/* The item and the rendered prompt, which outlive the file. */
static avo_status keep_fields(collector *collector, const data_words *words, train_sample *sample,
                              avo_error *error) {
    train_data *data = collector->data;
    text_view prompt =
        words->plain ? words->prompt_text : buffer_text(&collector->encoder.rendered.text);
    collector->text.size = 0;
    if (json_write_value(&collector->text, words->fields) != AVO_OK)
        return status_fail(error, AVO_ERROR_MEMORY, "out of memory for the fields of a sample");
    size_t bytes = collector->text.size;
    char *text = arena_copy_text(&data->arena, collector->text.data, bytes);
    json_value *fields = arena_take(&data->arena, sizeof(*fields));
    sample->prompt = arena_copy_text(&data->arena, prompt.data, prompt.size);
    if (text == NULL || fields == NULL || sample->prompt == NULL)
        return full(data, "the fields of a sample", error);
    AVO_TRY(json_parse(&data->arena, (text_view){text, bytes}, fields, error));
    sample->fields = fields;
    hash_stream_add(&data->digest, text, bytes);
    return AVO_OK;
}

static avo_status encode_prompt(collector *collector, const data_words *words, avo_error *error) {
    data_encoder *encoder = &collector->encoder;
    if (!words->plain)
        return data_encode_render(encoder, &words->prompt, &words->tools, true, error);
    AVO_TRY(data_encode_text(encoder, words->prompt_text, error));
    if (encoder->end_token >= 0)
        encoder->ids.count--; /* the answer follows */
    if (encoder->wanted.size > 0)
        memset(encoder->wanted.data, 0, encoder->wanted.size);
    return AVO_OK;
}

static avo_status use_sample(collector *collector, arena *arena, const data_words *words,
                             avo_error *error) {
    train_data *data = collector->data;
    train_sample sample = {0};
    bool cut = false;
    switch (collector->form.kind) {
    case TRAIN_DATA_TEXT:
        AVO_TRY(data_encode_text(&collector->encoder, words->text, error));
        break;
    case TRAIN_DATA_PROMPT:
        AVO_TRY(encode_prompt(collector, words, error));
        break;
    default:
        AVO_TRY(encode_answer(collector, arena, words, false, error));
    }
    AVO_TRY(take_tokens(collector, &sample.text, &cut, error));
    bool kept = sample.text.count > 0;
    if (collector->form.kind == TRAIN_DATA_PREFERENCE) {
        AVO_TRY(encode_answer(collector, arena, words, true, error));
        AVO_TRY(take_tokens(collector, &sample.rejected, &cut, error));
        kept = kept && sample.rejected.count > 0;
    }
    data->info.cut += cut;
    data->info.dropped += !kept;
    if (!kept)
        return AVO_OK;
    if (collector->form.kind == TRAIN_DATA_PROMPT)
        AVO_TRY(keep_fields(collector, words, &sample, error));
    return keep_sample(data, &sample, error);
}

/* ---- Pre-training ---- */

/* Samples of context_max tokens from the front of the stream; at the end, of what is left. */
static avo_status drain(collector *collector, bool end, avo_error *error) {
    id_list *stream = &collector->stream;
    size_t at = 0, size = collector->options->context_max;
    while (stream->count - at >= size || (end && stream->count - at >= 2)) {
        size_t count = stream->count - at < size ? stream->count - at : size;
        train_sample sample = {0};
        AVO_TRY(copy_tokens(collector->data, stream->ids + at, NULL, (uint32_t)count, &sample.text,
                            error));
        sample.text.wanted = collector->all;
        AVO_TRY(keep_sample(collector->data, &sample, error));
        at += count - 1;
    }
    if (at > 0) {
        stream->count -= at;
        memmove(stream->ids, stream->ids + at, stream->count * sizeof(*stream->ids));
    }
    return AVO_OK;
}

static avo_status use_document(collector *collector, arena *arena, const data_words *words,
                               avo_error *error) {
    data_encoder *encoder = &collector->encoder;
    if (collector->form.kind == TRAIN_DATA_TEXT) {
        if (words->text.size == 0)
            return AVO_OK;
        AVO_TRY(data_encode_text(encoder, words->text, error));
    } else if (words->plain) {
        AVO_TRY(data_encode_pair(encoder, words->prompt_text, words->answer_text, error));
    } else {
        json_value messages;
        AVO_TRY(data_messages_join(arena, &words->prompt, &words->answer, &messages, error));
        AVO_TRY(data_encode_render(encoder, &messages, &words->tools, false, error));
    }
    if (id_list_reserve(&collector->stream, encoder->ids.count) != AVO_OK)
        return status_no_memory(error, "tokens", encoder->ids.count * sizeof(int32_t));
    memcpy(collector->stream.ids + collector->stream.count, encoder->ids.ids,
           encoder->ids.count * sizeof(int32_t));
    collector->stream.count += encoder->ids.count;
    return drain(collector, false, error);
}

/* ---- Reading ---- */

static avo_status use_item(void *context, arena *arena, const json_value *item, avo_error *error) {
    collector *collector = context;
    data_words words;
    if (!collector->found) {
        AVO_TRY(data_form_find(collector->options->use, item, &collector->form, error));
        data_form_keys(&collector->form, collector->data->keys, KEYS_MAX);
        collector->found = true;
    }
    AVO_TRY(data_form_read(&collector->form, arena, item, collector->chat,
                           collector->options->system, &words, error));
    return collector->options->use == TRAIN_FOR_PRETRAIN
               ? use_document(collector, arena, &words, error)
               : use_sample(collector, arena, &words, error);
}

/* The first item of each file decides on its keys. */
static avo_status read_file(collector *collector, const char *path, avo_error *error) {
    const train_data_options *options = collector->options;
    data_reader reader = {.allocator = options->allocator,
                          .path = path,
                          .use = use_item,
                          .context = collector,
                          .progress = options->progress,
                          .progress_context = options->progress_context};
    uint64_t before = collector->data->count;
    collector->found = false;
    AVO_TRY(data_read(&reader, error));
    /* Of texts that are joined, the last may wait for those of the next file. */
    bool any = collector->data->count > before || options->use == TRAIN_FOR_PRETRAIN;
    return any || options->more_count == 0
               ? AVO_OK
               : status_fail(error, AVO_ERROR_FORMAT, "%s: the file has no samples", path);
}

static avo_status read_samples(collector *collector, avo_error *error) {
    train_data *data = collector->data;
    const train_data_options *options = collector->options;
    if (options->use == TRAIN_FOR_PRETRAIN) {
        uint8_t *all = arena_take(&data->arena, options->context_max);
        if (all == NULL)
            return full(data, "a mask", error);
        memset(all + 1, 1, options->context_max - 1);
        collector->all = all;
    }
    AVO_TRY(read_file(collector, data->path, error));
    for (uint32_t i = 0; i < options->more_count; i++) {
        char path[PATH_MAX_BYTES];
        AVO_TRY(data_find_split(options->more[i], collector->split, path, sizeof(path), error));
        AVO_TRY(read_file(collector, path, error));
    }
    if (options->use == TRAIN_FOR_PRETRAIN)
        AVO_TRY(drain(collector, true, error));
    if (data->count > 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT, "%s: the file has no samples%s", data->path,
                       data->info.dropped > 0 ? " that fit the context" : "");
}

static avo_status read_all(train_data *data, const avo_model *model, const char *split,
                           const train_data_options *options, avo_error *error) {
    collector collector = {.data = data, .options = options, .split = split};
    id_list_init(&collector.stream, options->allocator);
    buffer_init(&collector.text, options->allocator, TRAIN_DATA_ITEM_MAX * 2);
    collector.chat = model->chat_template != NULL && !options->no_template;
    avo_status status =
        data_encoder_open(&collector.encoder, model, options->allocator, options->now, error);
    AVO_THEN(status, read_samples(&collector, error));
    data->info.kind = collector.form.kind;
    data->info.samples = data->count;
    data->info.mask = options->use == TRAIN_FOR_PRETRAIN ? "everything" : collector.encoder.mask;
    hash_stream_add(&data->digest, &data->count, sizeof(data->count));
    hash_wide_sum(&data->digest, data->info.digest);
    data_encoder_close(&collector.encoder);
    buffer_free(&collector.text);
    id_list_free(&collector.stream);
    return status;
}

avo_status train_data_open(const avo_model *model, const char *path, const char *split,
                           const train_data_options *options, train_data **out, avo_error *error) {
    *out = NULL;
    if (options->context_max < 2)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the context is %u, must be at least 2",
                           options->context_max);
    train_data *data = allocator_take(options->allocator, sizeof(*data));
    if (data == NULL)
        return status_no_memory(error, "training data", sizeof(*data));
    *data = (train_data){.allocator = options->allocator};
    uint64_t memory = options->memory_max == 0 ? TRAIN_DATA_MEMORY_MAX : options->memory_max;
    arena_init(&data->arena, options->allocator, (size_t)memory);
    hash_wide_begin(&data->digest);
    avo_status status = data_find_split(path, split, data->path, sizeof(data->path), error);
    AVO_THEN(status, read_all(data, model, split, options, error));
    if (status != AVO_OK) {
        train_data_close(data);
        return status;
    }
    *out = data;
    return AVO_OK;
}

void train_data_close(train_data *data) {
    if (data == NULL)
        return;
    const avo_allocator *allocator = data->allocator;
    allocator_give(allocator, data->samples, (size_t)data->capacity * sizeof(*data->samples));
    arena_free(&data->arena);
    allocator_give(allocator, data, sizeof(*data));
}

/* ---- Asking ---- */

train_data_info train_data_describe(const train_data *data) {
    train_data_info info = data->info;
    info.keys = data->keys;
    info.path = data->path;
    return info;
}

train_sample train_data_at(const train_data *data, uint64_t index) {
    assert(index < data->count);
    return data->samples[index];
}

avo_status train_data_show(const avo_model *model, train_tokens tokens, const char *open,
                           const char *close, buffer *out, avo_error *error) {
    decode_stream stream;
    decode_stream_init(&stream, model->tokenizer, true);
    avo_status status = AVO_OK;
    bool inside = false;
    for (uint32_t i = 0; i <= tokens.count && status == AVO_OK; i++) {
        bool wanted = i < tokens.count && tokens.wanted[i] != 0;
        if (wanted != inside)
            status = buffer_append_text(out, wanted ? open : close);
        inside = wanted;
        if (i < tokens.count)
            AVO_THEN(status, decode_stream_push(&stream, tokens.tokens[i], out, error));
    }
    AVO_THEN(status, decode_stream_finish(&stream, out, error));
    return status;
}
