/* Training data of any bytes, in every format and for every use: what is read has masks of its own
 * length, samples within the context, and counts that agree. The first byte chooses. */
#include "model/model.h"
#include "train/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char chat[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content %}"
    "{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static avo_model *the_model(void) {
    static avo_model model;
    static model_source source = {.path = "fuzz"};
    avo_error error;
    if (model.tokenizer != NULL)
        return &model;
    model.source = &source;
    generation_defaults_init(&source.generation);
    if (tokenizer_open_file(AVO_FUZZ_FOLDER "/../tests/fixtures/tokenizer/qwen2.json", NULL,
                            &model.tokenizer, &error) != AVO_OK ||
        chat_template_open(text_from(chat), NULL, &model.chat_template, &error) != AVO_OK)
        abort();
    return &model;
}

static void check(train_tokens tokens, const train_data_options *options, uint64_t *total) {
    if (tokens.count == 0 || tokens.count > options->context_max || tokens.wanted[0] != 0)
        abort();
    for (uint32_t i = 0; i < tokens.count; i++)
        if (tokens.wanted[i] > 1 || tokens.tokens[i] < 0)
            abort();
    *total += tokens.count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static const char *const endings[] = {"jsonl", "json", "csv", "txt"};
    if (size == 0)
        return 0;
    train_data_options options = {.use = (train_data_use)(bytes[0] >> 2 & 3),
                                  .context_max = 2 + (bytes[0] >> 4) * 8u,
                                  .cut = (bytes[0] >> 7) != 0};
    char path[256];
    avo_error error = {0};
    train_data *data;
    snprintf(path, sizeof(path), "/tmp/fuzz_train_data.%ld.%s", (long)getpid(),
             endings[bytes[0] & 3]);
    if (file_write(path, bytes + 1, size - 1, &error) != AVO_OK)
        return 0;
    avo_status status = train_data_open(the_model(), path, "train", &options, &data, &error);
    unlink(path);
    if (status != AVO_OK) {
        if (strstr(error.text, "fuzz_train_data") == NULL)
            abort(); /* the file is named */
        return 0;
    }
    train_data_info info = train_data_describe(data);
    uint64_t total = 0;
    for (uint64_t i = 0; i < info.samples; i++) {
        train_sample sample = train_data_at(data, i);
        check(sample.text, &options, &total);
        if (info.kind == TRAIN_DATA_PREFERENCE)
            check(sample.rejected, &options, &total);
    }
    if (total != info.tokens || info.longest > options.context_max)
        abort();
    train_data_close(data);
    return 0;
}
