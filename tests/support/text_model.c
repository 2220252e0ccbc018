/* A model made of a tokenizer and a template: see text_model.h. */
#include "support/text_model.h"

#include "support/support.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

const char text_model_chatml[] =
    "{% if tools %}{{ '<|im_start|>system\n' + tools | tojson + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.content %}{{ m.content }}{% endif %}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}:"
    "{{ call.function.arguments.x }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const char text_model_inst[] =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
    " {{ m.content }}{{ eos_token }}{% else %}[INST] {{ m.content }} [/INST]{% endif %}"
    "{% endfor %}";

void text_model_open(text_model *model, const char *tokenizer, const char *chat, const char *stop) {
    avo_error error = {0};
    char name[128], config[256];
    file_map map;
    snprintf(name, sizeof(name), "tokenizer/%s.json", tokenizer);
    snprintf(config, sizeof(config), "{\"bos_token\": \"<s>\", \"eos_token\": \"%s\"}",
             stop == NULL ? "" : stop);
    *model = (text_model){.source = {.path = "text model"}};
    model->model.source = &model->source;
    generation_defaults_init(&model->source.generation);
    assert_ok_error(file_map_open(test_fixture_path(name), &map, &error), &error);
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON,
                               .data = map.bytes,
                               .config = {(const uint8_t *)config, strlen(config)},
                               .name = name};
    assert_ok_error(tokenizer_open(&source, NULL, &model->model.tokenizer, &error), &error);
    file_map_close(&map);
    if (chat != NULL)
        assert_ok_error(
            chat_template_open(text_from(chat), NULL, &model->model.chat_template, &error), &error);
    if (stop != NULL) {
        int32_t id = tokenizer_find_piece(model->model.tokenizer, text_from(stop));
        assert_true(id >= 0);
        model->source.generation.stop_tokens[0] = id;
        model->source.generation.stop_token_count = 1;
    }
}

void text_model_close(text_model *model) {
    chat_template_close(model->model.chat_template);
    tokenizer_close(model->model.tokenizer);
}
