/* chat/parser: answers in every form, cut at every byte; what is no call stays text, every
 * byte of it. */
#include "support/support.h"

#include "chat/tool_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer_case {
    const char *form, *answer;
    const char *text;  /* for the user */
    const char *calls; /* "name arguments\n…" */
    size_t malformed;
} answer_case;

#define BAR  "\xef\xbd\x9c"
#define LOW  "\xe2\x96\x81"
#define DSML BAR "DSML" BAR
#define DEEP(call)                                                                                 \
    "<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">" call \
    "<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW "calls" LOW "end" BAR ">"

/* What types the values in tags have. */
static const char offered[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"$ref\":\"#/$defs/whole\"},\"b\":{"
    "\"type\":[\"boolean\",\"null\"]},\"l\":{\"anyOf\":[{\"type\":\"array\"},{\"type\":\"null\"}]}}"
    ","
    "\"$defs\":{\"whole\":{\"type\":\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]";

static const answer_case cases[] = {
    {"hermes", "Hello.", "Hello.", "", 0},
    {"hermes", "", "", "", 0},
    {"hermes", " \n", " \n", "", 0},
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "",
     "f {\"a\":1}\n", 0},
    {"hermes",
     "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":"
     "\"g\",\"arguments\":{\"s\":\"}</tool_call>{\\\"\"}}</tool_call>\n",
     "I look.\n", "f {}\ng {\"s\":\"}</tool_call>{\\\"\"}\n", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> and more", " and more",
     "f {}\n", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}} and more", " and more", "f {}\n", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_x", "</tool_x", "f {}\n", 0},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}",
     "<tool_call>{\"name\":\"f\",\"arguments\":{}", "", 1},
    {"hermes", "<tool_call>{\"name\":\"f\",}</tool_call>",
     "<tool_call>{\"name\":\"f\",}</tool_call>", "", 1},
    {"hermes", "<tool_call>no</tool_call>", "<tool_call>no</tool_call>", "", 1},
    {"hermes", "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>", "<tool_call>", "f {}\n", 1},
    {"hermes", "a <tool <tool_call", "a <tool <tool_call", "", 0},
    {"hermes", "<<tool_call>{\"name\":\"f\"}</tool_call>", "<", "f {}\n", 0},
    {"hermes", "<tool_call>{\"name\":7,\"arguments\":{}}</tool_call>",
     "<tool_call>{\"name\":7,\"arguments\":{}}</tool_call>", "", 1},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
     "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>", "", 1},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":2}\"}</tool_call>", "",
     "f {\"a\":2}\n", 0},
    {"hermes", "{\"name\":\"f\",\"arguments\":{\"a\":1}}", "", "f {\"a\":1}\n", 0},
    {"hermes", "{\"name\":\"f\"}", "{\"name\":\"f\"}", "", 1},
    {"hermes", "{not json}", "{not json}", "", 1},
    {"hermes", "{\"answer\": 42}", "{\"answer\": 42}", "", 1},
    {"hermes", "x {\"name\":\"f\",\"arguments\":{}}", "x {\"name\":\"f\",\"arguments\":{}}", "", 0},
    {"hermes", "[1] is a source", "[1] is a source", "", 1},
    {"hermes", "\xc3\xa4 <\xe2\x82\xac", "\xc3\xa4 <\xe2\x82\xac", "", 0},
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}]",
     "", "f {\"a\":1}\n", 0},
    {"mistral",
     "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":{\"b\":[]}}]",
     "", "f {}\ng {\"b\":[]}\n", 0},
    {"mistral", "[TOOL_CALLS]get-it[ARGS]{\"a\": \"x\"}", "", "get-it {\"a\":\"x\"}\n", 0},
    {"mistral", "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{}", "", "f {}\ng {}\n", 0},
    {"mistral", "[TOOL_CALLS]f{\"a\":1}", "", "f {\"a\":1}\n", 0},
    {"mistral", "[TOOL_CALLS][{\"name\":\"f\"},{\"nome\":\"g\"}]",
     "[TOOL_CALLS][{\"name\":\"f\"},{\"nome\":\"g\"}]", "", 1},
    {"mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]", "", 1},
    {"mistral", "[1] is a source", "[1] is a source", "", 0},
    {"granite", "<|tool_call|>[{\"name\":\"f\",\"arguments\":{\"a\":1}}]", "", "f {\"a\":1}\n", 0},
    {"granite", "<|tool_call|>[{\"name\":\"f\",\"arguments\":{}}]<|/tool_call|>", "", "f {}\n", 0},
    {"functools", "functools[{\"name\":\"f\",\"arguments\":{}}]", "", "f {}\n", 0},
    {"functools", "functools are useful", "functools are useful", "", 1},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "", "f {\"a\":1}\n", 0},
    {"llama3", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "", "f {}\n", 0},
    {"llama3", "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{\"n\":null}}",
     "", "f {}\ng {\"n\":null}\n", 0},
    {"llama3", "{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}", "", "f {}\n", 0},
    {"llama3", "\n\n{\"name\":\"f\",\"parameters\":{}}\n", "", "f {}\n", 0},
    {"fenced", "```tool_code\n{\"name\":\"f\",\"arguments\":{}}\n```", "", "f {}\n", 0},
    {"fenced", "Here:\n```json\n[{\"name\":\"f\",\"parameters\":{\"a\":1}}]\n``` done",
     "Here:\n done", "f {\"a\":1}\n", 0},
    {"fenced", "```tool_code\nprint(f(1))\n```", "```tool_code\nprint(f(1))\n```", "", 1},
    {"fenced", "```json\n{\"x\":1}\n```", "```json\n{\"x\":1}\n```", "", 1},
    {"fenced", "```c\nint x;\n```", "```c\nint x;\n```", "", 0},
    {"json", "{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}", "", "f {\"a\":1}\n", 0},
    /* Arguments are the bytes of the model, without white space between them. */
    {"hermes", "<tool_call>{\"name\":\"f\", \"arguments\": {\"s\" : \"\\u00e9 \\n\", \"n\": 1.50}}",
     "", "f {\"s\":\"\\u00e9 \\n\",\"n\":1.50}\n", 0},
    {"hermes", "<tool_call>{\"arguments\": {\"n\": 1}, \"name\":\"f\"}</tool_call>", "",
     "f {\"n\":1}\n", 0},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"n\": 1}", "", "f {\"n\":1}\n", 0},
    {"deepseek", DEEP("f<" BAR "tool" LOW "sep" BAR ">{\"n\": 1}"), "", "f {\"n\":1}\n", 0},
    {"deepseek", DEEP("function<" BAR "tool" LOW "sep" BAR ">f\n```json\n{\"n\": 1}\n```"), "",
     "f {\"n\":1}\n", 0},
    {"deepseek", "<" BAR "tool" LOW "calls" LOW "begin" BAR "> no",
     "<" BAR "tool" LOW "calls" LOW "begin" BAR "> no", "", 0},
    {"kimi",
     "So: <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"n\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "So: ", "f {\"n\":1}\ng {}\n", 0},
    {"command",
     "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"n\": "
     "1}}\n]<|END_ACTION|>",
     "", "f {\"n\":1}\n", 0},
    {"apertus", "<|tools_prefix|>[{\"f\": {\"n\": 1}}, {\"g\": {}}]<|tools_suffix|>", "",
     "f {\"n\":1}\ng {}\n", 0},
    {"gigachat", "<|function_call|>{\"name\": \"f\", \"arguments\": {\"n\": 1}}", "",
     "f {\"n\":1}\n", 0},
    {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]</TOOLCALL>", "",
     "f {\"n\":1}\n", 0},
    {"functionary", "all\nHello. >>> there", "Hello. >>> there", "", 1},
    {"functionary", "f\n{\"n\": 1}", "", "f {\"n\":1}\n", 0},
    {"functionary", "all\nI look.\n>>>f\n{\"n\": 1}>>>g\n{}", "I look.\n", "f {\"n\":1}\ng {}\n",
     0},
    {"functionary", "", "", "", 0},
    {"qwen3_coder",
     "I look.\n<tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=n>\n42\n"
     "</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=l>\n[1, \"x\"]\n</parameter>\n"
     "</function>\n</tool_call>",
     "I look.\n", "f {\"s\":\"1\",\"n\":42,\"b\":true,\"l\":[1,\"x\"]}\n", 0},
    {"qwen3_coder",
     "<tool_call><function=f><parameter=s>a</tool_call>\n\"<b>\"</parameter></function></"
     "tool_call>",
     "", "f {\"s\":\"a</tool_call>\\n\\\"<b>\\\"\"}\n", 0},
    {"qwen3_coder", "<function=f>\n</function>", "", "f {}\n", 0},
    {"qwen3_coder", "<tool_call>\n<function=f>\n</function>", "", "f {}\n", 0},
    {"qwen3_coder", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}}</tool_call>", "",
     "f {\"n\":1}\n", 0},
    {"qwen3_coder",
     "<tool_call><function=f><parameter=s>a</parameter><parameter=s>b</parameter></function>"
     "</tool_call>",
     "<tool_call><function=f><parameter=s>a</parameter><parameter=s>b</parameter></function>"
     "</tool_call>",
     "", 1},
    {"qwen3_coder", "<tool_call><function=f><parameter=s>a",
     "<tool_call><function=f><parameter=s>a", "", 1},
    {"glm",
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>7</arg_value>\n<arg_key>n</arg_key>\n"
     "<arg_value>7</arg_value>\n</tool_call>",
     "", "f {\"s\":\"7\",\"n\":7}\n", 0},
    {"glm",
     "<tool_call>f</tool_call><tool_call>g<arg_key>x</arg_key><arg_value>y z</arg_value>"
     "</tool_call>",
     "", "f {}\ng {\"x\":\"y z\"}\n", 0},
    {"glm", "<tool_call>no call at all</tool_call>", "<tool_call>no call at all</tool_call>", "",
     1},
    {"hunyuan",
     "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>n"
     "</arg_key:opensource>\n<arg_value:opensource>7</arg_value:opensource>\n"
     "</tool_call:opensource>\n</tool_calls:opensource>",
     "", "f {\"n\":7}\n", 0},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">x y</parameter>\n<parameter "
     "name=\"n\">42.0</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
     "</minimax:tool_call>",
     "", "f {\"s\":\"x y\",\"n\":42}\ng {}\n", 0},
    {"atem",
     "<atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"n\">42"
     "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
     "", "f {\"n\":42}\n", 0},
    {"deepseek_dsml",
     "<" DSML "tool_calls>\n<" DSML "invoke name=\"f\">\n<" DSML "parameter name=\"x\" "
     "string=\"true\">7</" DSML "parameter>\n<" DSML
     "parameter name=\"y\" string=\"false\">[7]</" DSML "parameter>\n</" DSML "invoke>\n</" DSML
     "tool_calls>",
     "", "f {\"x\":\"7\",\"y\":[7]}\n", 0},
    {"minicpm",
     "<function name=\"f\"><param name=\"s\"><![CDATA[a<b]]></param><param name=\"n\">42</param>"
     "</function>",
     "", "f {\"s\":\"a<b\",\"n\":42}\n", 0},
    {"gemma4", "<|tool_call>call:f{n:42,s:<|\"|>x \"y\"<|\"|>,l:[1,{k:true}]}<tool_call|>", "",
     "f {\"n\":42,\"s\":\"x \\\"y\\\"\",\"l\":[1,{\"k\":true}]}\n", 0},
    {"gemma4", "<|tool_call>call f<tool_call|>", "<|tool_call>call f<tool_call|>", "", 1},
    {"lfm", "<|tool_call_start|>[f(s='a\\'b', n=-4.5e1), g()]<|tool_call_end|>", "",
     "f {\"s\":\"a'b\",\"n\":-4.5e1}\ng {}\n", 0},
    {"lfm", "<|tool_call_start|>{\"name\":\"f\",\"arguments\":{\"n\":1}}<|tool_call_end|>", "",
     "f {\"n\":1}\n", 0},
    {"pythonic", "[f(s=\"x\", b=True, l=[None, {'k': (1, 2)}])]", "",
     "f {\"s\":\"x\",\"b\":true,\"l\":[null,{\"k\":[1,2]}]}\n", 0},
    {"pythonic", "[f(\"x\", 7)]", "", "f {\"s\":\"x\",\"n\":7}\n", 0},
    {"pythonic", "[1] is a source", "[1] is a source", "", 1},
    {"pythonic", "[a list]", "[a list]", "", 1},
    {"pythonic", "[f(n=1+1)]", "[f(n=1+1)]", "", 1},
    {"pythonic", "[{\"name\":\"f\",\"arguments\":{}}]", "", "f {}\n", 0},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

typedef struct outcome {
    char text[1024], calls[1024];
    size_t malformed;
} outcome;

static void keep(outcome *o, text_view text) {
    size_t at = strlen(o->text);
    assert_true(at + text.size < sizeof(o->text));
    memcpy(o->text + at, text.data, text.size);
    o->text[at + text.size] = '\0';
}

/* What a stream tells: names when they begin, arguments in the pieces that come. */
typedef struct teller {
    size_t told, bytes;
    bool open;
} teller;

static void tell(teller *t, chat_parser *parser, outcome *o) {
    for (;;) {
        const tool_call *call = chat_parser_call(parser, t->told);
        size_t at = strlen(o->calls);
        if (call == NULL)
            return;
        if (!t->open)
            at += (size_t)snprintf(o->calls + at, sizeof(o->calls) - at, "%.*s ",
                                   TEXT_ARGUMENT(call->name));
        snprintf(o->calls + at, sizeof(o->calls) - at, "%.*s%s",
                 (int)(call->arguments.size - t->bytes), call->arguments.data + t->bytes,
                 call->complete ? "\n" : "");
        t->open = !call->complete;
        t->bytes = call->complete ? 0 : call->arguments.size;
        t->told += call->complete;
        if (!call->complete)
            return;
    }
}

/* In pieces that end at `cut` and `second`. */
static void read_answer(const answer_case *c, bool eager, size_t cut, size_t second, outcome *o) {
    chat_format *format;
    chat_parser *parser;
    avo_error error = {0};
    arena arena;
    json_value tools;
    teller teller = {0};
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok(json_parse(&arena, text_from(offered), &tools, NULL));
    chat_parser_options options = {.calls = true, .tools = &tools, .eager = eager};
    chat_delta delta;
    memset(o, 0, sizeof(*o));
    assert_ok_error(chat_format_named(c->form, &format, &error), &error);
    assert_ok_error(chat_parser_open(format, &options, &parser, &error), &error);
    size_t bytes = strlen(c->answer), from = 0;
    const size_t ends[] = {cut, second, bytes};
    for (size_t i = 0; i < 3; i++) {
        text_view piece = {c->answer + from, ends[i] - from};
        assert_ok_error(chat_parser_push(parser, (int32_t)i, piece, &delta, &error), &error);
        tell(&teller, parser, o);
        keep(o, delta.text);
        from = ends[i];
    }
    assert_ok_error(chat_parser_finish(parser, &delta, &error), &error);
    keep(o, delta.text);
    tell(&teller, parser, o);
    assert_false(teller.open);
    assert_null(chat_parser_call(parser, chat_parser_count(parser)));
    o->malformed = chat_parser_malformed(parser);
    chat_parser_close(parser);
    chat_format_close(format);
    arena_free(&arena);
}

static void every_form_cut_at_every_byte(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const answer_case *c = &cases[i];
        size_t bytes = strlen(c->answer);
        for (size_t cut = 0; cut <= bytes; cut++)
            for (size_t at = cut; at <= 2 * bytes - cut + 1; at += 1 + bytes / 20) {
                bool eager = at > bytes; /* both ways: whole, and as streams tell them */
                size_t second = eager ? cut + at - bytes - 1 : at;
                outcome o;
                /* What was told cannot be taken back: those are looked at below. */
                if (eager && c->malformed > 0 && strstr(c->text, "\"name\":\"f\"") != NULL)
                    continue;
                read_answer(c, eager, cut, second, &o);
                if (strcmp(o.text, c->text) != 0 || strcmp(o.calls, c->calls) != 0 ||
                    o.malformed != c->malformed)
                    fail_msg("%s, %s cut at %zu and %zu:\ntext \"%s\", expected \"%s\"\ncalls "
                             "\"%s\", expected \"%s\", %zu malformed, expected %zu",
                             c->form, c->answer, cut, second, o.text, c->text, o.calls, c->calls,
                             o.malformed, c->malformed);
            }
    }
}

/* Of a stream: a call that has begun stays one, whatever comes. */
static void what_was_told_stays(void **state) {
    (void)state;
    static const struct {
        const char *answer, *calls, *text;
        bool cut;
    } cut_short[] = {
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\": \"ab", "f {\"s\":\"ab\n", "", true},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\": oops}}</tool_call>x", "f {\"s\":oops}\n",
         "x", false},
        /* Not one of the tools: nothing is told before it is complete. */
        {"<tool_call>{\"name\":\"h\",\"arguments\":{\"s\": \"ab", "",
         "<tool_call>{\"name\":\"h\",\"arguments\":{\"s\": \"ab", false},
    };
    for (size_t i = 0; i < 3; i++) {
        answer_case c = {.form = "hermes", .answer = cut_short[i].answer};
        for (size_t cut = 0; cut <= strlen(c.answer); cut++) {
            outcome o;
            read_answer(&c, true, cut, strlen(c.answer), &o);
            assert_string_equal(o.calls, cut_short[i].calls);
            assert_string_equal(o.text, cut_short[i].text);
            assert_int_equal(o.malformed, 1);
        }
    }
    /* Only one opener, and none at all. */
    static const char *const both = "{\"name\":\"f\",\"arguments\":{}}";
    for (int bare = 0; bare < 2; bare++) {
        chat_format *format;
        chat_parser *parser;
        chat_delta delta;
        chat_parser_options options = {.calls = true, .only = bare ? "" : "<tool_call>"};
        assert_ok(chat_format_named(bare ? "llama3" : "hermes", &format, NULL));
        assert_ok(chat_parser_open(format, &options, &parser, NULL));
        assert_ok(chat_parser_push(parser, -1, text_from(both), &delta, NULL));
        assert_int_equal(chat_parser_count(parser), bare);
        assert_int_equal(delta.text.size, bare ? 0 : strlen(both));
        chat_parser_close(parser);
        chat_format_close(format);
    }
}

static void too_many_calls_are_text(void **state) {
    (void)state;
    static const char call[] = "<tool_call>{\"name\":\"f\"}</tool_call>";
    chat_format *format;
    chat_parser *parser;
    chat_delta delta;
    size_t shown = 0;
    chat_parser_options options = {.calls = true};
    assert_ok(chat_format_named("hermes", &format, NULL));
    assert_ok(chat_parser_open(format, &options, &parser, NULL));
    for (size_t i = 0; i < CHAT_CALLS_MAX + 3; i++) {
        assert_ok(chat_parser_push(parser, -1, text_from(call), &delta, NULL));
        shown += delta.text.size;
    }
    assert_ok(chat_parser_finish(parser, &delta, NULL));
    shown += delta.text.size;
    assert_int_equal(chat_parser_count(parser), CHAT_CALLS_MAX);
    assert_int_equal(shown, 3 * (sizeof(call) - 1));
    chat_parser_close(parser);
    chat_format_close(format);
}

/* ---- Which form ---- */

static void forms_are_seen_in_what_templates_write(void **state) {
    (void)state;
    static const struct {
        const char *rendered, *form;
    } seen[] = {
        {"# Tools {\"name\": \"look_up\"} inside <tool_call></tool_call> "
         "tags\n<|im_start|>assistant\n"
         "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"what\": \"VAL\"}}\n</tool_call>",
         "hermes"},
        {"[INST]Look.[/INST][TOOL_CALLS][{\"name\": \"look_up\", \"arguments\": {\"what\": "
         "\"VAL\"}}]",
         "mistral"},
        {"[TOOL_CALLS]look_up[ARGS]{\"what\": \"VAL\"}", "mistral"},
        {"assistant\n\n{\"name\": \"look_up\", \"parameters\": {\"what\": \"VAL\"}}", "llama3"},
        {"<|python_tag|>{\"name\": \"look_up\", \"parameters\": {\"what\": \"VAL\"}}", "llama3"},
        {"{\"name\": \"look_up\", \"arguments\": {\"what\": \"VAL\"}}", "json"},
        {"respond only with <|tool_call|> followed by a JSON list of tools used: look_up",
         "granite"},
        {"answer with functools[{\"name\": ...}] look_up", "functools"},
        {"<tool_call>\n<function=look_up>\n<parameter=what>\nVAL", "qwen3_coder"},
        {"<tool_call>look_up\n<arg_key>what</arg_key>\n<arg_value>VAL", "glm"},
        {"assistant\n[look_up(what='VAL", "pythonic"},
        {"<|open|>call tool=\"look_up\" index=\"1\"<|sep|>VAL", NULL},
        {"user: Look.\nassistant: ", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
        const char *form = tool_form_seen(text_from(seen[i].rendered), "VAL", NULL);
        if ((form == NULL) != (seen[i].form == NULL) ||
            (form != NULL && strcmp(form, seen[i].form) != 0))
            fail_msg("%s: %s, expected %s", seen[i].rendered, form == NULL ? "none" : form,
                     seen[i].form == NULL ? "none" : seen[i].form);
    }
    chat_format *format;
    avo_error error = {0};
    assert_int_equal(chat_format_named("smoke", &format, &error), AVO_ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "smoke"));
}

/* ---- Reasoning ---- */

typedef struct reasoning_case {
    const char *answer, *text, *reasoning;
    bool opened; /* by the prompt */
} reasoning_case;

static const reasoning_case reasoned[] = {
    {"<think>\nA\nB.\n</think>\n\nYes.", "Yes.", "A\nB.", false},
    {" \n<think>a</think>b", "b", "a", false},
    {"[THINK]a </think> b[/THINK]c", "c", "a </think> b", false},
    {"plain <think>x</think>", "plain <think>x</think>", "", false},
    {"<thin air>", "<thin air>", "", false},
    {"  leading", "  leading", "", false},
    {"<think>cut </thi", "", "cut </thi", false},
    {"<think>cut\n\n", "", "cut", false},
    {"<think></think>", "", "", false},
    {"<thi", "<thi", "", false},
    {"a <b> </think>\n c", "c", "a <b>", true},
    {"\n</think>c", "c", "", true},
    {"a</think><think>b</think>", "<think>b</think>", "a", true},
};

/* In two pushes. */
static void read_reasoning(const reasoning_case *c, bool wanted, size_t cut, char *text,
                           char *reasoning) {
    chat_format *format;
    chat_parser *parser;
    chat_delta delta;
    chat_parser_options options = {.reasoning = wanted};
    assert_ok(chat_format_named("hermes", &format, NULL));
    format->reasons = c->opened;
    assert_ok(chat_parser_open(format, &options, &parser, NULL));
    text[0] = reasoning[0] = '\0';
    for (int i = 0; i < 3; i++) {
        text_view piece = i == 0 ? (text_view){c->answer, cut} : text_from(c->answer + cut);
        if (i < 2)
            assert_ok(chat_parser_push(parser, -1, piece, &delta, NULL));
        else
            assert_ok(chat_parser_finish(parser, &delta, NULL));
        snprintf(text + strlen(text), 128 - strlen(text), "%.*s", TEXT_ARGUMENT(delta.text));
        snprintf(reasoning + strlen(reasoning), 128 - strlen(reasoning), "%.*s",
                 TEXT_ARGUMENT(delta.reasoning));
    }
    assert_int_equal(chat_parser_count(parser), 0);
    chat_parser_close(parser);
    chat_format_close(format);
}

static void reasoning_is_kept_apart(void **state) {
    (void)state;
    char text[128], reasoning[128];
    for (size_t i = 0; i < sizeof(reasoned) / sizeof(reasoned[0]); i++) {
        const reasoning_case *c = &reasoned[i];
        for (size_t cut = 0; cut <= strlen(c->answer); cut++) {
            read_reasoning(c, true, cut, text, reasoning);
            if (strcmp(text, c->text) != 0 || strcmp(reasoning, c->reasoning) != 0)
                fail_msg("%s cut at %zu: text \"%s\", reasoning \"%s\"", c->answer, cut, text,
                         reasoning);
            read_reasoning(c, false, cut, text, reasoning); /* unless it is not asked for */
            assert_string_equal(text, c->answer);
            assert_string_equal(reasoning, "");
        }
    }
}

/* Calls behind the span are found. */
static void calls_follow_reasoning(void **state) {
    (void)state;
    static const char answer[] =
        "<think>I call <tool_call>.</think><tool_call>{\"name\":\"f\"}</tool_call>";
    chat_format *format;
    chat_parser *parser;
    chat_delta delta;
    chat_parser_options options = {.calls = true, .reasoning = true};
    assert_ok(chat_format_named("hermes", &format, NULL));
    assert_ok(chat_parser_open(format, &options, &parser, NULL));
    assert_ok(chat_parser_push(parser, -1, text_from(answer), &delta, NULL));
    assert_true(text_is(delta.reasoning, "I call <tool_call>."));
    assert_int_equal(delta.text.size, 0);
    assert_int_equal(chat_parser_count(parser), 1);
    assert_true(text_is(chat_parser_call(parser, 0)->name, "f"));
    chat_parser_close(parser);
    chat_format_close(format);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_cut_at_every_byte),
                                       cmocka_unit_test(too_many_calls_are_text),
                                       cmocka_unit_test(what_was_told_stays),
                                       cmocka_unit_test(forms_are_seen_in_what_templates_write),
                                       cmocka_unit_test(reasoning_is_kept_apart),
                                       cmocka_unit_test(calls_follow_reasoning)};
    return cmocka_run_group_tests_name("chat/parser", tests, NULL, NULL);
}
