/* Training data from files: formats, keys, samples, refusals with file, line and key. */
#include "train/data.h"
#include "support/support.h"
#include "support/text_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct world {
    text_model model;
    train_data_options options;
    train_data *data;
    avo_error error;
} world;

static world w;

static void begin(train_data_use use, const char *chat) {
    w = (world){.options = {.use = use, .context_max = 256}};
    text_model_open(&w.model, "qwen2", chat, "<|im_end|>");
}

static void end(void) {
    train_data_close(w.data);
    text_model_close(&w.model);
}

static const char *write_file(const char *name, const char *text) {
    static char path[1024];
    snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), name);
    assert_ok(file_write(path, text, strlen(text), &w.error));
    return path;
}

static avo_status open_text(const char *name, const char *text) {
    train_data_close(w.data);
    return train_data_open(&w.model.model, write_file(name, text), "train", &w.options, &w.data,
                           &w.error);
}

/* The sequence as text, with what counts in [ ]. */
static const char *shown(train_tokens tokens) {
    static char text[4096];
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(train_data_show(&w.model.model, tokens, "[", "]", &out, &w.error));
    assert_true(out.size < sizeof(text));
    memcpy(text, out.data, out.size);
    text[out.size] = '\0';
    buffer_free(&out);
    return text;
}

static void expect_sample(uint64_t index, const char *text) {
    assert_string_equal(shown(train_data_at(w.data, index).text), text);
}

#define USER(text)      "<|im_start|>user\n" text "<|im_end|>\n"
#define ASSISTANT(text) "<|im_start|>assistant\n[" text "<|im_end|>]\n"
#define SYSTEM(text)    "<|im_start|>system\n" text "<|im_end|>\n"

static void messages_of_all_names_are_read(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    static const char *const texts[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
        "{\"role\":\"assistant\",\"content\":\"yes\"}]}\n\n",
        "{\"id\":1,\"conversations\":[{\"from\":\"human\",\"value\":\"hi\"},"
        "{\"from\":\"gpt\",\"value\":\"yes\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"h\"},"
        "{\"type\":\"text\",\"text\":\"i\"}]},{\"role\":\"assistant\",\"content\":\"yes\"}]}",
        "{\"prompt\":\"hi\",\"completion\":\"yes\"}",
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"hi\"}],"
        "\"completion\":[{\"role\":\"assistant\",\"content\":\"yes\"}]}",
        "{\"instruction\":\"hi\",\"input\":\"\",\"output\":\"yes\"}",
        "{\"question\":\"hi\",\"answer\":\"yes\"}",
        "{\"input\":\"hi\",\"output\":\"yes\"}",
    };
    static const char *const keys[] = {
        "messages",           "conversations",      "messages",
        "prompt, completion", "prompt, completion", "instruction, input, output",
        "question, answer",   "input, output",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_ok_error(open_text("chat.jsonl", texts[i]), &w.error);
        train_data_info info = train_data_describe(w.data);
        assert_int_equal(info.samples, 1);
        assert_string_equal(info.keys, keys[i]);
        expect_sample(0, USER("hi") ASSISTANT("yes"));
        assert_int_equal(info.longest, train_data_at(w.data, 0).text.count);
    }
    end();
}

static void system_messages_come_from_option_and_item(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    w.options.system = "Be kind.";
    assert_ok_error(
        open_text("chat.jsonl",
                  "{\"instruction\":\"add\",\"input\":\"1 2\",\"output\":\"3\"}\n"
                  "{\"instruction\":\"a\",\"input\":null,\"output\":\"b\",\"system\":\"Own.\"}"),
        &w.error);
    expect_sample(0, SYSTEM("Be kind.") USER("add\n\n1 2") ASSISTANT("3"));
    expect_sample(1, SYSTEM("Own.") USER("a") ASSISTANT("b"));
    assert_ok_error(open_text("chat.jsonl",
                              "{\"messages\":[{\"role\":\"system\",\"content\":\"Mine.\"},"
                              "{\"role\":\"user\",\"content\":\"a\"},"
                              "{\"role\":\"assistant\",\"content\":\"b\"}]}"),
                    &w.error);
    expect_sample(0, SYSTEM("Mine.") USER("a") ASSISTANT("b"));
    end();
}

static void tools_and_calls_reach_the_template(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    assert_ok_error(
        open_text("tools.jsonl",
                  "{\"tools\":[{\"name\":\"f\"}],\"messages\":[{\"role\":\"user\",\"content\":"
                  "\"a\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":"
                  "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 7}\"}}]},"
                  "{\"role\":\"tool\",\"content\":\"9\"},"
                  "{\"role\":\"assistant\",\"content\":\"nine\"}]}"),
        &w.error);
    expect_sample(0, SYSTEM("[{\"name\": \"f\"}]") USER("a")
                         ASSISTANT("f:7") "<|im_start|>tool\n9<|im_end|>\n" ASSISTANT("nine"));
    end();
}

static void texts_begin_and_end_as_the_tokenizer_says(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, NULL);
    assert_ok_error(open_text("text.jsonl", "{\"text\":\"hello there\"}\n"), &w.error);
    expect_sample(0, "h[ello there<|im_end|>]");
    assert_int_equal(train_data_describe(w.data).kind, TRAIN_DATA_TEXT);
    assert_ok_error(open_text("pair.jsonl", "{\"prompt\":\"2+2=\",\"completion\":\" 4\"}"),
                    &w.error);
    expect_sample(0, "2+2=[ 4<|im_end|>]");
    text_model_close(&w.model);
    text_model_open(&w.model, "llama2", NULL, NULL);
    assert_ok_error(open_text("text.jsonl", "{\"text\":\"hello there\"}\n"), &w.error);
    train_tokens tokens = train_data_at(w.data, 0).text;
    assert_int_equal(tokens.tokens[0], 1);
    assert_int_equal(tokens.wanted[0], 0);
    assert_int_equal(tokens.wanted[1], 1);
    end();
}

/* A prompt has the tokens that it has alone, even where the joined text has others. */
static void a_prompt_keeps_its_tokens(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    w.options.no_template = true;
    assert_ok_error(open_text("pair.jsonl", "{\"prompt\":\"the bir\",\"completion\":\"ds are\"}"),
                    &w.error);
    train_tokens tokens = train_data_at(w.data, 0).text;
    int32_t alone[32];
    size_t count;
    assert_ok(avo_tokenize(&w.model.model, "the bir", 7, AVO_TOKENIZE_BEGIN, alone, 32, &count,
                           &w.error));
    assert_memory_equal(tokens.tokens, alone, count * sizeof(int32_t));
    for (uint32_t i = 0; i < tokens.count; i++)
        assert_int_equal(tokens.wanted[i], i >= count);
    end();
}

static void json_and_csv_give_the_samples_of_jsonl(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    static const struct {
        const char *name, *text;
    } files[] = {
        {"a.jsonl", "{\"prompt\":\"a, b\",\"completion\":\"c\\n\\\"d\\\"\"}\r\n"
                    "{\"prompt\":\"e\",\"completion\":\"f\"}\n"},
        {"a.json", "[\n {\"prompt\": \"a, b\", \"completion\": \"c\\n\\\"d\\\"\"},\n"
                   " {\"prompt\": \"e\",\n \"completion\": \"f\"}\n]\n"},
        {"b.json", "{\"prompt\": \"a, b\", \"completion\": \"c\\n\\\"d\\\"\"}\n"
                   "{\"prompt\": \"e\", \"completion\": \"f\"}"},
        {"c.json", "{\"version\": 1, \"data\": [{\"prompt\": \"a, b\", \"completion\": "
                   "\"c\\n\\\"d\\\"\"},{\"prompt\": \"e\", \"completion\": \"f\"}]}"},
        {"a.csv", "id,prompt,completion\r\n1,\"a, b\",\"c\n\"\"d\"\"\"\r\n2,e,f\r\n"},
        {"b.csv", "\xEF\xBB\xBF\"prompt\",completion,\nx\na"},
        {"c.csv", "prompt,completion\n\"a, b\",\"c\n\"\"d\"\"\"\n\ne,f"},
    };
    uint64_t digest[2] = {0};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (strcmp(files[i].name, "b.csv") == 0) {
            assert_refused(open_text(files[i].name, files[i].text), AVO_ERROR_FORMAT, &w.error,
                           "b.csv:2: the row has 1 fields, the header has 3");
            continue;
        }
        assert_ok_error(open_text(files[i].name, files[i].text), &w.error);
        assert_int_equal(train_data_describe(w.data).samples, 2);
        expect_sample(0, USER("a, b") ASSISTANT("c\n\"d\""));
        expect_sample(1, USER("e") ASSISTANT("f"));
        if (i == 0)
            memcpy(digest, train_data_describe(w.data).digest, sizeof(digest));
        assert_memory_equal(digest, train_data_describe(w.data).digest, sizeof(digest));
    }
    assert_ok_error(open_text("m.csv", "messages\n\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":"
                                       "\"\"a\"\"},{\"\"role\"\":\"\"assistant\"\","
                                       "\"\"content\"\":\"\"b\"\"}]\"\n"),
                    &w.error);
    expect_sample(0, USER("a") ASSISTANT("b"));
    assert_memory_not_equal(digest, train_data_describe(w.data).digest, sizeof(digest));
    end();
}

static void preferences_are_read_in_four_forms(void **state) {
    (void)state;
    begin(TRAIN_FOR_DPO, text_model_chatml);
    static const char *const texts[] = {
        "{\"prompt\":\"q\",\"chosen\":\"good\",\"rejected\":\"bad\"}",
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"}],\"chosen\":[{\"role\":\"assistant\","
        "\"content\":\"good\"}],\"rejected\":[{\"role\":\"assistant\",\"content\":\"bad\"}]}",
        "{\"chosen\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
        "\"good\"}],\"rejected\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
        "\"content\":\"bad\"}]}",
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"}],\"chosen\":\"good\","
        "\"rejected\":\"bad\"}",
    };
    for (size_t i = 0; i < 4; i++) {
        assert_ok_error(open_text("dpo.jsonl", texts[i]), &w.error);
        expect_sample(0, USER("q") ASSISTANT("good"));
        assert_string_equal(shown(train_data_at(w.data, 0).rejected), USER("q") ASSISTANT("bad"));
    }
    /* Only the last answer counts. */
    assert_ok_error(
        open_text("dpo.jsonl",
                  "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
                  "\"content\":\"r\"},{\"role\":\"user\",\"content\":\"s\"}],\"chosen\":\"good\","
                  "\"rejected\":\"bad\"}"),
        &w.error);
    expect_sample(0, USER("q") "<|im_start|>assistant\nr<|im_end|>\n" USER("s") ASSISTANT("good"));
    assert_ok_error(open_text("dpo.jsonl", "{\"chosen\":\"Q: a A: good\",\"rejected\":"
                                           "\"Q: a A: bad\"}"),
                    &w.error);
    expect_sample(0, "Q: a A:[ good<|im_end|>]");
    assert_refused(open_text("dpo.jsonl", "{\"chosen\":\"a\",\"rejected\":\"b\"}"),
                   AVO_ERROR_FORMAT, &w.error, "dpo.jsonl:1: the key \"prompt\" is missing");
    end();
}

static void prompts_keep_their_fields(void **state) {
    (void)state;
    begin(TRAIN_FOR_RL, text_model_chatml);
    assert_ok_error(open_text("rl.jsonl",
                              "{\"prompt\":\"1+1\",\"answer\":\"2\",\"level\":3}\n"
                              "{\"prompt\":\"2+2\",\"answer\":\"4\",\"tags\":[\"x\"]}\n"),
                    &w.error);
    train_sample sample = train_data_at(w.data, 1);
    assert_string_equal(shown(sample.text), USER("2+2") "<|im_start|>assistant\n");
    assert_string_equal(sample.prompt, USER("2+2") "<|im_start|>assistant\n");
    assert_true(text_is(json_find(sample.fields, "answer")->string, "4"));
    assert_int_equal(json_find(sample.fields, "tags")->array.count, 1);
    assert_int_equal(train_data_describe(w.data).wanted_tokens, 0);
    /* The file's own answer is no part of the prompt. */
    assert_ok_error(open_text("rl.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                                          "{\"role\":\"assistant\",\"content\":\"b\"}]}"),
                    &w.error);
    assert_string_equal(train_data_at(w.data, 0).prompt, USER("a") "<|im_start|>assistant\n");
    w.options.no_template = true;
    assert_ok_error(open_text("rl.jsonl", "{\"prompt\":\"Once\"}"), &w.error);
    assert_string_equal(train_data_at(w.data, 0).prompt, "Once");
    assert_string_equal(shown(train_data_at(w.data, 0).text), "Once");
    end();
}

/* Every token of the texts counts once, but the very first. */
static void pretraining_divides_the_stream(void **state) {
    (void)state;
    begin(TRAIN_FOR_PRETRAIN, text_model_chatml);
    for (uint32_t context = 2; context < 40; context += 5) {
        w.options.context_max = context;
        assert_ok_error(open_text("text.txt", "one two three\nfour\n<|endoftext|>\nfive six\n"),
                        &w.error);
        train_data_info info = train_data_describe(w.data);
        int32_t stream[256];
        size_t count = 0, wanted = 0;
        for (uint64_t i = 0; i < info.samples; i++) {
            train_tokens tokens = train_data_at(w.data, i).text;
            assert_true(tokens.count >= 2 && tokens.count <= context);
            assert_true(i + 1 == info.samples || tokens.count == context);
            if (i > 0)
                assert_int_equal(tokens.tokens[0], stream[count - 1]);
            for (uint32_t t = i > 0; t < tokens.count; t++)
                stream[count++] = tokens.tokens[t];
            for (uint32_t t = 0; t < tokens.count; t++)
                wanted += tokens.wanted[t];
        }
        assert_int_equal(wanted, count - 1);
        assert_int_equal(info.wanted_tokens, wanted);
        uint8_t all[256];
        memset(all, 0, sizeof(all));
        assert_string_equal(shown((train_tokens){stream, all, (uint32_t)count}),
                            "one two three\nfour\n<|im_end|>five six\n<|im_end|>");
    }
    w.options.context_max = 256;
    assert_ok_error(open_text("chat.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n"
                                            "{\"prompt\":\"c\",\"completion\":\"d\"}\n"),
                    &w.error);
    assert_int_equal(train_data_describe(w.data).samples, 1);
    assert_non_null(strstr(shown(train_data_at(w.data, 0).text), "assistant\nd<|im_end|>\n]"));
    end();
}

static void long_samples_are_refused_or_cut(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    static const char text[] = "{\"prompt\":\"a\",\"completion\":\"x x x x x x x x x x\"}\n"
                               "{\"prompt\":\"a a a a a a a a a a a a a a a a a a a a a\","
                               "\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completion\":\"b\"}";
    assert_ok_error(open_text("long.jsonl", text), &w.error);
    uint32_t longest = train_data_describe(w.data).longest;
    uint32_t first = train_data_at(w.data, 0).text.count;
    w.options.context_max = longest - 1;
    assert_refused(open_text("long.jsonl", text), AVO_ERROR_LIMIT, &w.error,
                   "long.jsonl:2: the sample has ");
    w.options.context_max = longest;
    assert_ok_error(open_text("long.jsonl", text), &w.error);
    w.options.cut = true;
    w.options.context_max = first - 1;
    assert_ok_error(open_text("long.jsonl", text), &w.error);
    train_data_info info = train_data_describe(w.data);
    assert_int_equal(info.samples, 2);
    assert_int_equal(info.cut, 2);
    assert_int_equal(info.dropped, 1);
    assert_int_equal(train_data_at(w.data, 0).text.count, first - 1);
    w.options.context_max = 1;
    assert_refused(open_text("long.jsonl", text), AVO_ERROR_ARGUMENT, &w.error, "at least 2");
    w.options.context_max = 256;
    w.options.memory_max = 64; /* less than a sample */
    assert_refused(open_text("long.jsonl", text), AVO_ERROR_LIMIT, &w.error, "need more than");
    end();
}

static void refusals_name_file_line_and_key(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    static const struct {
        const char *name, *text, *part;
    } cases[] = {
        {"a.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\"}",
         "a.jsonl:2: the key \"completion\" is missing (the file's first item has it); found: "
         "prompt"},
        {"a.jsonl", "{\"foo\":1,\"bar\":2}",
         "a.jsonl:1: the item has the keys foo, bar; expected messages, prompt and completion, or "
         "text"},
        {"a.jsonl", "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}", "train dpo"},
        {"a.jsonl", "\n\n{\"text\": 3}", "a.jsonl:3: text is integer, must be a string"},
        {"a.jsonl", "{\"text\":\"x\"}\n{\"text\":}", "a.jsonl:2: "},
        {"a.jsonl", "[1]", "a.jsonl:1: found array, expected an object"},
        {"a.jsonl", "{\"messages\":[]}", "a.jsonl:1: messages has 0 messages"},
        {"a.jsonl", "{\"messages\":[{\"content\":\"a\"}]}", "messages[0]: role is missing"},
        {"a.jsonl", "{\"messages\":[{\"role\":\"user\"}]}", "messages[0]: content is missing"},
        {"a.jsonl", "{\"messages\":[{\"from\":\"x\",\"value\":\"a\"}]}", "messages[0]: from is"},
        {"a.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
         "a.jsonl:1: the conversation has nothing that the assistant says"},
        {"a.jsonl",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"url\":\"x\"}]}]}",
         "only text can be trained"},
        {"a.jsonl", "", "a.jsonl: the file is empty"},
        {"a.jsonl", "\n\n", "a.jsonl: the file has no samples"},
        {"a.json", "[]", "a.json: the file has no samples"},
        {"a.json", "[{\"text\":\"a\"},\n{\"text\":\"a\"}\n", "a.json:3: expected ',' or ']'"},
        {"a.json", "[{\"text\":\"a\"}] x", "more text behind the list"},
        {"a.json", "[\n{\"text\":\n1x}]", "a.json:3: "},
        {"a.json", "[3]", "a.json:1: found integer, expected an object"},
        {"a.csv", "prompt,completion\na\n", "a.csv:2: the row has 1 fields, the header has 2"},
        {"a.csv", "prompt,prompt\n", "two columns \"prompt\""},
        {"a.csv", "prompt,completion\n\"a,b\n", "a.csv:2: a quoted field has no closing quote"},
        {"a.csv", "prompt,completion\n\"a\"b,c\n", "a.csv:2: expected ','"},
        {"a.csv", "prompt,completion\n\xFF,c\n", "a.csv:2: the field is not valid UTF-8"},
        {"a.txt", "a\n\xFF", "a.txt:2: the text is not valid UTF-8"},
        {"a.yaml", "x", "must end in .jsonl, .json, .csv or .txt"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        avo_status status = open_text(cases[i].name, cases[i].text);
        assert_true(status != AVO_OK);
        if (strstr(w.error.text, cases[i].part) == NULL)
            fail_msg("%zu: expected \"%s\" in: %s", i, cases[i].part, w.error.text);
    }
    assert_refused(
        train_data_open(&w.model.model, "/nowhere", "train", &w.options, &w.data, &w.error),
        AVO_ERROR_NOT_FOUND, &w.error, "no such file");
    text_model_close(&w.model);
    text_model_open(&w.model, "qwen2", NULL, NULL);
    assert_refused(open_text("a.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"),
                   AVO_ERROR_NOT_FOUND, &w.error,
                   "no chat template, which messages need; give prompt and completion");
    end();
}

static void folders_have_splits(void **state) {
    (void)state;
    begin(TRAIN_FOR_SFT, text_model_chatml);
    char folder[1024], path[1100];
    snprintf(folder, sizeof(folder), "%s/split", test_scratch_folder());
    (void)mkdir(folder, 0700);
    static const char item[] = "{\"text\":\"hello\"}";
    assert_refused(train_data_open(&w.model.model, folder, "train", &w.options, &w.data, &w.error),
                   AVO_ERROR_NOT_FOUND, &w.error, "has no train.jsonl");
    snprintf(path, sizeof(path), "%s/train.jsonl", folder);
    assert_ok(file_write(path, item, strlen(item), &w.error));
    assert_ok_error(train_data_open(&w.model.model, folder, "train", &w.options, &w.data, &w.error),
                    &w.error);
    train_data_close(w.data);
    assert_refused(train_data_open(&w.model.model, path, "valid", &w.options, &w.data, &w.error),
                   AVO_ERROR_NOT_FOUND, &w.error, "one file without a split");
    snprintf(path, sizeof(path), "%s/validation.jsonl", folder);
    assert_ok(file_write(path, item, strlen(item), &w.error));
    assert_ok_error(train_data_open(&w.model.model, folder, "valid", &w.options, &w.data, &w.error),
                    &w.error);
    assert_non_null(strstr(train_data_describe(w.data).path, "validation.jsonl"));
    train_data_close(w.data);
    snprintf(path, sizeof(path), "%s/train.txt", folder);
    assert_ok(file_write(path, item, strlen(item), &w.error));
    assert_refused(train_data_open(&w.model.model, folder, "train", &w.options, &w.data, &w.error),
                   AVO_ERROR_ARGUMENT, &w.error, "both train.jsonl and train.txt");
    remove(path);
    end();
}

static void every_epoch_is_another_permutation(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 17, 64, 1000, 4097};
    uint8_t *seen = malloc(4097);
    assert_non_null(seen);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        uint64_t fixed = 0, same = 0;
        memset(seen, 0, 4097);
        for (uint64_t i = 0; i < sizes[s]; i++) {
            uint64_t at = train_data_order(sizes[s], 7, 0, i);
            assert_true(at < sizes[s] && !seen[at]);
            seen[at] = 1;
            fixed += at == i;
            same += at == train_data_order(sizes[s], 7, 1, i);
        }
        if (sizes[s] >= 64)
            assert_true(fixed < 10 && same < 10);
    }
    free(seen);
    /* The numbers are part of what a checkpoint continues. */
    assert_int_equal(train_data_order(1000, 1, 0, 0), 224);
    assert_int_equal(train_data_order((uint64_t)1 << 40, 1, 3, 12345), 249428432646);
}

/* Runs out of memory at every allocation in turn. */
static void no_memory_is_an_error(void **state) {
    (void)state;
    begin(TRAIN_FOR_RL, text_model_chatml);
    const char *path = write_file("memory.jsonl", "{\"prompt\":\"a\",\"x\":\"b\"}\n");
    test_allocator counter;
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        w.options.allocator = &counter.allocator;
        avo_status status =
            train_data_open(&w.model.model, path, "train", &w.options, &w.data, &w.error);
        train_data_close(w.data);
        w.data = NULL;
        assert_int_equal(counter.live, 0);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_true(fail_at < 200);
    }
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_all_names_are_read),
        cmocka_unit_test(system_messages_come_from_option_and_item),
        cmocka_unit_test(tools_and_calls_reach_the_template),
        cmocka_unit_test(texts_begin_and_end_as_the_tokenizer_says),
        cmocka_unit_test(a_prompt_keeps_its_tokens),
        cmocka_unit_test(json_and_csv_give_the_samples_of_jsonl),
        cmocka_unit_test(preferences_are_read_in_four_forms),
        cmocka_unit_test(prompts_keep_their_fields),
        cmocka_unit_test(pretraining_divides_the_stream),
        cmocka_unit_test(long_samples_are_refused_or_cut),
        cmocka_unit_test(refusals_name_file_line_and_key),
        cmocka_unit_test(folders_have_splits),
        cmocka_unit_test(every_epoch_is_another_permutation),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
