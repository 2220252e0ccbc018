/* The server of a run (train/serve.h) as a program of this test: what it is told, and what becomes
 * of a run whose server refuses, ends or never was. tests/train/serve.py has the real one. */
#include "train/calls.h"

#include <sys/stat.h>

/* A shell script that is started as the program avocet. */
static void write_server(const char *name, const char *text, char path[600]) {
    char script[2048];
    snprintf(script, sizeof(script), "#!/bin/sh\n%s\n", text);
    write_text(path, name, script);
    assert_int_equal(chmod(path, 0700), 0);
}

typedef struct served {
    const char *output, *address, *command;
    const char *rest; /* settings */
    char log_text[LOG_CAPACITY];
} served;

static avo_status run_served(served *s) {
    char settings[1024], path[600];
    call log = {.log_text = s->log_text};
    avo_train_server server = AVO_TRAIN_SERVER_INIT;
    avo_train_options options = AVO_TRAIN_OPTIONS_INIT;
    server.address = s->address;
    server.command = s->command;
    server.every = 2;
    options.task = "sft";
    options.output = in_folder(s->output, path);
    options.settings = settings_of(settings, w.texts, s->rest);
    options.server = &server;
    options.log = on_log;
    options.log_context = &log;
    s->log_text[0] = '\0';
    return avo_train_run(w.model, &options, NULL, &w.error);
}

#define STEPS "\"steps\": 5, \"save_every\": 4"
#define HELLO "echo '{\"listening\": \"http://here:1\"}'\n"

static void adapters_are_loaded(void **state) {
    (void)state;
    char command[600], told[600], text[4096], settings[1024];
    in_folder("told", told);
    snprintf(text, sizeof(text),
             "echo \"$@\" > %s\n" HELLO "while read -r line; do echo \"$line\" >> %s\n"
             "echo '{\"loaded\": \"served\"}'; done\necho end >> %s\n",
             told, told, told);
    write_server("server", text, command);
    served s = {.output = "served", .address = "[::1]:0", .command = command, .rest = STEPS};
    assert_ok_error(run_served(&s), &w.error);
    assert_non_null(strstr(s.log_text, "http://here:1 has the adapter of step 2 as \"served\"\n"));
    assert_null(strstr(s.log_text, "step 4"));
    file_map map;
    assert_ok_error(file_map_open(told, &map, &w.error), &w.error);
    snprintf(text, sizeof(text), "%.*s", (int)map.bytes.size, (const char *)map.bytes.data);
    file_map_close(&map);
    assert_non_null(strstr(text, "serve --control --host ::1 --port 0 --adapter-root /"));
    assert_non_null(strstr(text, "--sessions 4 --kv-tokens 8192 -- "));
    int loads = 0; /* behind steps 2, 4 and 5 */
    for (const char *at = text; (at = strstr(at, "{\"load\":\"served\",\"path\":\"/")) != NULL;
         at++)
        loads++;
    assert_int_equal(loads, 3);
    assert_non_null(strstr(text, "/served\"}\nend\n")); /* the run waits for its end */
    call alone = {.task = "sft", .output = "alone"};
    alone.settings = settings_of(settings, w.texts, STEPS);
    assert_ok_error(train(&alone, NULL), &w.error);
    assert_same_file("alone", "served", ADAPTER);
}

/* Each is told once, and the run goes on. */
static void faults_are_told(void **state) {
    (void)state;
    static const struct {
        const char *text, *told;
    } cases[] = {
        {HELLO "while read -r line; do echo '{\"error\": \"no room\"}'; done",
         "serve: the server says: no room; training goes on, with another try at the next "
         "version\n"},
        {HELLO "read -r line; exit 3", "serve: the server has ended (exit status 3); training "},
        {HELLO "read -r line; echo '{\"loaded\": 1}'; read -r line",
         "serve: the server's answer has no \"loaded\"; training goes on"},
        {HELLO "while read -r line; do echo nonsense; done", "training goes on"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char command[600], output[32];
        snprintf(output, sizeof(output), "fault-%zu", i);
        write_server("faulty", cases[i].text, command);
        served s = {.output = output, .address = "0", .command = command, .rest = STEPS};
        assert_ok_error(run_served(&s), &w.error);
        const char *first = strstr(s.log_text, cases[i].told);
        assert_non_null(first);
        assert_null(strstr(first + 1, cases[i].told));
        assert_true(exists(output, ADAPTER));
    }
}

/* What is wrong before it listens ends the run before its first step. */
static void refused_servers(void **state) {
    (void)state;
    static const struct {
        const char *address, *text, *rest, *told;
    } cases[] = {
        {"x", "", STEPS, "serve is x: must be PORT or HOST:PORT"},
        {":80", "", STEPS, "must be PORT or HOST:PORT"},
        {"127.0.0.1:70000", "", STEPS, "must be PORT or HOST:PORT"},
        {NULL, "exit 1", STEPS, "serve: the server has ended (exit status 1)"},
        {NULL, "echo '{}'; read -r line", STEPS, "the server's answer has no \"listening\""},
        {NULL, "echo '{'; read -r line", STEPS, "serve: "},
        {NULL, NULL, STEPS, "cannot start"},
        {NULL, HELLO, STEPS ", \"kind\": \"medusa\"", "kind"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char command[600], output[32];
        snprintf(output, sizeof(output), "refused-%zu", i);
        in_folder("nothing", command);
        if (cases[i].text != NULL)
            write_server("refused", cases[i].text, command);
        served s = {.output = output,
                    .address = cases[i].address,
                    .command = command,
                    .rest = cases[i].rest};
        assert_true(run_served(&s) != AVO_OK);
        assert_non_null(strstr(w.error.text, cases[i].told));
        assert_false(exists(output, ADAPTER));
    }
    call heads = {.task = "heads"};
    avo_train_server server = AVO_TRAIN_SERVER_INIT;
    avo_train_options options = AVO_TRAIN_OPTIONS_INIT;
    char settings[1024], path[600];
    snprintf(settings, sizeof(settings), "{\"data\": \"%s\", \"steps\": 1, \"drafts\": 2}",
             w.texts);
    options.task = heads.task;
    options.output = in_folder("heads", path);
    options.settings = settings;
    options.server = &server;
    assert_refused(avo_train_run(w.model, &options, NULL, &w.error), AVO_ERROR_ARGUMENT, &w.error,
                   "serve needs an adapter");
}

static void names_of_folders(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"runs/pirate", "pirate"}, {"a b", "a-b"}, {".hidden", "-hidden"}, {"v1.5", "v1.5"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[TRAIN_ADAPTER_NAME_MAX];
        train_serve_name(cases[i][0], name);
        assert_string_equal(name, cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_loaded),
        cmocka_unit_test(faults_are_told),
        cmocka_unit_test(refused_servers),
        cmocka_unit_test(names_of_folders),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
