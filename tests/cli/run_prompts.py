"""`avocet run --prompts` and `--adapter` on a tiny model: order, overrides, bad lines, adapters."""
import json
import math
import os
import tempfile
import threading
import unittest
from pathlib import Path

import tiny_model
from chat_model import write_random_model
from command import FAILED, GOOD, USAGE, call
from tiny_model import write_adapter


class Prompts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-prompts-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.one = write_adapter(cls.folder / "one", 1)
        cls.two = write_adapter(cls.folder / "two:1", 2)  # a colon in the path

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def ask(self, lines, *flags, status=GOOD):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n"
                       for line in lines)
        path = self.folder / "prompts.jsonl"
        path.write_text(text)
        done = call("run", self.model, "--prompts", path, *flags)
        self.assertEqual(done.returncode, status, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def alone(self, prompt, *flags):
        done = call("run", self.model, prompt, "--json", *flags)
        self.assertEqual(done.returncode, GOOD, done.stderr)
        return json.loads(done.stdout)

    def test_of_the_prompt_itself(self):
        ids = [1, 5, 9, 2, 30, 7]
        scored, pooled, both = self.ask([
            {"tokens": ids, "prompt_logprobs": True, "logprobs": 2, "max_new_tokens": 3},
            {"tokens": ids, "pooling": "mean"},
            {"tokens": ids, "pooling": "last", "prompt_logprobs": True}])
        self.assertEqual([item["id"] for item in scored["prompt_logprobs"]], ids)
        self.assertIsNone(scored["prompt_logprobs"][0]["logprob"])
        for item in scored["prompt_logprobs"][1:]:
            self.assertLess(item["logprob"], 0)
            self.assertEqual(len(item["top"]), 2)
        self.assertNotIn("embedding", scored)
        self.assertGreater(len(pooled["embedding"]), 1)
        self.assertEqual((pooled["text"], pooled["ids"]), ("", []))
        self.assertNotEqual(pooled["embedding"], both["embedding"])
        self.assertEqual([item["logprob"] for item in both["prompt_logprobs"]],
                         [item["logprob"] for item in scored["prompt_logprobs"]])
        wrong = self.ask([{"tokens": ids, "pooling": "most"}, {"tokens": [1, "x"]},
                          {"tokens": ids, "prompt": "x"}, {"tokens": [10**9]}], status=FAILED)
        for line, part in zip(wrong, ("most", "tokens[1] must be an integer", "one of",
                                      "1000000000")):
            self.assertIn(part, line["error"])

    def test_a_key_is_not_cut(self):
        """A zero byte in a key is shown, and so is what comes behind it."""
        for line in ({"prompt": "x", "se\0ed": 1},
                     {"prompt": "x", "adapter": {"name": "a", "se\0ed": 1}}):
            self.assertIn(r'"se\u0000ed"', self.ask([line], status=FAILED)[0]["error"])

    def test_a_grammar_is_not_cut(self):
        """A zero byte would end it for C: refused, in a line and in a file."""
        rules = 'root ::= "a"\0 "b"'
        for line in ({"prompt": "x", "grammar": rules},
                     {"prompt": "x", "json_schema": "true\0false"}):
            self.assertIn("contains a zero byte", self.ask([line], status=FAILED)[0]["error"])
        path = self.folder / "rules.gbnf"
        path.write_text(rules)
        done = call("run", self.model, "x", "--grammar", path)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"rules.gbnf: contains a zero byte", done.stderr)

    def test_perplexity_is_that_of_prompt_logprobs(self):
        """`eval perplexity` and the logprobs of the same windows, computed by the scheduler."""
        text, context = self.folder / "text.txt", 32
        text.write_text("the quick brown fox jumps over the lazy dog, once upon a time. " * 6)
        told = json.loads(call("eval", "perplexity", self.model, "--file", text, "--ctx", context,
                               "--json").stdout)
        ids = json.loads(call("tokenize", self.model, "--json", "-",
                              given=text.read_bytes()).stdout)["ids"]
        ids = ids if ids[0] == 1 else [1] + ids  # the begin token
        windows = [[1] + ids[at + 1:at + context]
                   for at in range(0, len(ids) - context + 1, context)]
        answers = self.ask([{"tokens": window, "prompt_logprobs": True, "no_answer": True}
                            for window in windows])
        scored = [item["logprob"] for answer in answers
                  for item in answer["prompt_logprobs"][context // 2 + 1:]]
        self.assertEqual(len(scored), told["tokens"])
        self.assertAlmostEqual(math.exp(-sum(scored) / len(scored)) / told["perplexity"], 1,
                               delta=1e-6)

    def test_the_same_as_alone_in_order(self):
        lines = [{"prompt": f"once upon {'a ' * (i % 5)}time {i}", "id": {"n": i},
                  "max_new_tokens": 3 + i % 7, "temperature": 0.3 * (i % 3), "seed": i}
                 for i in range(24)]
        answers = self.ask(lines, "--ignore-eos", "-b", "5", "--kv-tokens", "300", "--ctx", "100")
        self.assertEqual([answer["index"] for answer in answers], list(range(24)))
        for line, answer in zip(lines, answers):
            self.assertEqual(answer["id"], line["id"])
            alone = self.alone(line["prompt"], "--ignore-eos", "--ctx", "100", "-n",
                               str(line["max_new_tokens"]), "--temperature",
                               str(line["temperature"]), "--seed", str(line["seed"]))
            for one in (answer, alone):  # how much is drafted depends on what steps cost
                del one["usage"]["drafted"], one["usage"]["accepted"]
            for key in ("text", "ids", "finish_reason", "stop_reason", "usage"):
                self.assertEqual(answer[key], alone[key])

    def test_flags_are_defaults(self):
        lines = [{"prompt": "once"}, {"prompt": "once", "max_tokens": 2, "seed": 9, "logprobs": 2}]
        first, second = self.ask(lines, "-n", "5", "--temperature", "2", "--seed", "1",
                                 "--ignore-eos")
        self.assertEqual(len(first["ids"]), 5)
        self.assertEqual(first["ids"], self.alone("once", "-n", "5", "--temperature", "2", "--seed",
                                                  "1", "--ignore-eos")["ids"])
        self.assertEqual(len(second["ids"]), 2)
        self.assertEqual([len(entry["top"]) for entry in second["logprobs"]], [2, 2])
        self.assertNotIn("logprobs", first)

    def test_a_bad_line_fails_alone(self):
        lines = ['{"prompt":"once","max_new_tokens":2}', "", "{", '{"prompt":1}',
                 '{"prompt":"a","messages":[]}', '{"prompt":"a","tempreature":1}', '[]',
                 '{"prompt":"a","top_p":7}', '{"prompt":"a","adapter":"none"}',
                 '{"prompt":"' + "x" * 400 + '"}', '{"messages":[{"role":"user","content":"x"}]}',
                 '{"prompt":"a\\u0000b"}', '{"prompt":"upon","max_new_tokens":3}']
        answers = self.ask(lines, "--ignore-eos", status=FAILED)
        self.assertEqual([answer["line"] for answer in answers], [1] + list(range(3, 14)))
        wanted = ["JSON", "prompt must be a string", "one of", "did you mean \"temperature\"",
                  "expected a JSON object", "top_p", "is not loaded",
                  "context", "template", "zero byte"]
        for answer, part in zip(answers[1:-1], wanted):
            self.assertIn(part, answer["error"])
            self.assertIn(f"line {answer['line']}: ", answer["error"])
        self.assertEqual([len(answers[0]["ids"]), len(answers[-1]["ids"])], [2, 3])

    def test_conversations_as_over_http(self):
        """Parts of content, tool calls and their results, tools, formats."""
        folder = self.folder / "talks"
        folder.mkdir()
        model = write_random_model(folder)
        tools = [{"type": "function", "function": {"name": "look", "parameters": {
            "type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
            "additionalProperties": False}}}]
        said = [{"role": "user", "content": [{"type": "text", "text": "a"},
                                             {"type": "text", "text": "b"}]}]
        called = [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function",
             "function": {"name": "look", "arguments": '{"n": 1}'}}]},
                  {"role": "tool", "tool_call_id": "1", "content": "7"}]
        lines = [{"messages": said}, {"messages": [{"role": "user", "content": "ab"}]},
                 {"messages": said + called},
                 {"messages": said, "tools": tools, "tool_choice": "required"},
                 {"prompt": "ab", "tools": tools, "tool_choice": "required", "max_tokens": 60},
                 {"prompt": "ab", "response_format": {"type": "json_schema", "json_schema": {
                     "schema": {"enum": ["yes"]}}}}]
        path = folder / "lines.jsonl"
        path.write_text("".join(json.dumps({"max_tokens": 60, **line}) + "\n" for line in lines))
        done = call("run", model, "--prompts", path)
        self.assertEqual(done.returncode, GOOD, done.stdout)
        parts, plain, after, forced, prompted, shaped = map(json.loads, done.stdout.splitlines())
        self.assertEqual(parts["ids"], plain["ids"])
        self.assertNotIn("tool_calls", parts)
        self.assertGreater(after["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"])
        for answer in (forced, prompted):
            function = answer["tool_calls"][0]["function"]
            self.assertRegex(answer["tool_calls"][0]["id"], r"\Acall_[0-9a-f]{16}\Z")
            self.assertEqual((answer["text"], answer["finish_reason"], function["name"]),
                             ("", "tool_calls", "look"))
            self.assertIn(json.loads(function["arguments"])["n"], (1, 2))
        self.assertEqual(shaped["text"], '"yes"')
        wrong = [({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
                 ({"messages": [{"role": "user"}]}, "content is missing"),
                 ({"prompt": "a", "tools": 3}, "tools must be an array"),
                 ({"prompt": "a", "tools": tools, "tool_choice": "most"}, "most"),
                 ({"prompt": "a", "raw": True, "tools": tools}, "tools needs a prompt"),
                 ({"prompt": "a", "parallel_tool_calls": 1}, "true or false"),
                 ({"prompt": "a", "response_format": 3}, "response_format"),
                 ({"prompt": "a", "json_object": True,
                   "response_format": {"type": "json_object"}}, "cannot be combined")]
        path.write_text("".join(json.dumps(line) + "\n" for line, _ in wrong))
        done = call("run", model, "--prompts", path)
        self.assertEqual(done.returncode, FAILED)
        for answer, (_, part) in zip(map(json.loads, done.stdout.splitlines()), wrong):
            self.assertIn(part, answer["error"])

    def test_adapters_of_a_line_have_one_form(self):
        for value, part in (('"adapter":["a","b"]', 'use "adapters"'),
                            ('"adapter":{"a":0.5}', 'unknown key "a" in an adapter'),
                            ('"adapter":{"name":"a","scale":2}', 'unknown key "scale"'),
                            ('"adapter":{"weight":2}', 'an adapter has no "name"'),
                            ('"adapter":7', '{"name"'), ('"adapters":"a"', "must be an array"),
                            ('"adapters":[["a"]]', "not an array")):
            answers = self.ask(['{"prompt":"once",' + value + "}"], "--adapter", f"a={self.one}",
                               status=FAILED)
            self.assertIn(part, answers[0]["error"])

    def test_the_keys_of_a_line_are_in_the_help(self):
        text = call("run", "--help").stdout.decode()
        for key in ("adapters", "max_new_tokens", "stop_tokens", "cache_salt", "deadline"):
            self.assertIn(key, text)

    def test_an_adapter_that_breaks_logits_is_named(self):
        huge = write_adapter(self.folder / "huge", 3, spread=1e30)
        done = call("run", self.model, "once", "--adapter", f"x={huge}", "--adapter-type", "f32")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(f"with adapter {huge}: the logit of token", done.stderr.decode())

    def test_room_for_ranks(self):
        done = call("run", self.model, "once", "--adapter", f"x={self.one}", "--adapter-rank", "3")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"add up to 4, must be at most 3", done.stderr)
        self.alone("once", "--adapter", f"x={self.one}", "--adapter-rank", "4", "-n", "1")

    def test_adapters_in_the_plan(self):
        plans = [json.loads(call("plan", self.model, "--json", "-c", "64", *flags).stdout)
                 for flags in ([], ["--adapter", self.one], ["-a", self.one, "-a", self.two])]
        bytes_ = [plan["adapter_bytes"] for plan in plans]
        self.assertEqual(bytes_[0], 0)
        self.assertGreater(bytes_[1], 2 * 2 * 2 * 4 * 32)  # layers, modules, halves, numbers of q8
        self.assertGreater(bytes_[2], bytes_[1])
        self.assertEqual(plans[2]["total_bytes"] - plans[0]["total_bytes"], bytes_[2])

    def test_the_id_of_a_line_with_an_unknown_key(self):
        answer, = self.ask([{"id": {"a": 5}, "prompt": "x", "bogus": 1}], status=FAILED)
        self.assertEqual(answer["id"], {"a": 5})
        self.assertIn("bogus", answer["error"])

    def test_lines_from_a_pipe_by_name(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: pipe.write_text('{"prompt": "ab"}\n'))
        writer.start()
        done = call("run", self.model, "--prompts", pipe, "-n", "2")
        writer.join()
        self.assertEqual(done.returncode, GOOD, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1)

    def test_an_adapter_that_changes_nothing_is_told(self):
        path = write_adapter(self.folder / "nothing", 3)
        config = Path(path) / "adapter_config.json"
        text = json.loads(config.read_text())
        config.write_text(json.dumps({**text, "lora_alpha": 0}))
        done = call("run", self.model, "ab", "-n", "2", "--adapter", f"n={path}")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        self.assertIn(b"has no effect", done.stderr)
        done = call("run", self.model, "ab", "-n", "2", "--adapter", f"n={self.one}", "-v")
        self.assertNotIn(b"has no effect", done.stderr)
        self.assertIn(b"modules, rank", done.stderr)

    def test_stream(self):
        lines = [{"prompt": "once", "max_new_tokens": 4}, "{", {"prompt": "upon"}]
        events = self.ask(lines, "--stream", "--ignore-eos", "-n", "6", status=FAILED)
        ends = {event["index"]: event for event in events if "usage" in event or "error" in event}
        self.assertEqual(sorted(ends), [0, 1, 2])
        for index, count in ((0, 4), (2, 6)):
            mine = [event for event in events if event["index"] == index and "token" in event]
            tokens = [event["token"] for event in mine if event["token"] >= 0]
            self.assertEqual(tokens, ends[index]["ids"])
            self.assertEqual(len(tokens), count)
            self.assertEqual("".join(event["text"] for event in mine), ends[index]["text"])

    def test_adapters(self):
        flags = ["--adapter", f"a={self.one}", "--adapter", f"b={self.two}:-0.5", "--ignore-eos",
                 "-n", "12"]
        lines = [{"prompt": "once", "adapter": None}, {"prompt": "once", "adapter": "a"},
                 {"prompt": "once", "adapters": [{"name": "b", "weight": 2}]}, {"prompt": "once"},
                 {"prompt": "once", "adapters": []}]
        answers = self.ask(lines, *flags)
        base = self.alone("once", "--ignore-eos", "-n", "12")
        only_a = self.alone("once", "--adapter", f"x={self.one}", "--ignore-eos", "-n", "12")
        only_b = self.alone("once", "--adapter", f"x={self.two}:-1", "--ignore-eos", "-n", "12")
        both = self.alone("once", *flags)
        for answer, alone in zip(answers, (base, only_a, only_b, both, base)):
            self.assertEqual(answer["ids"], alone["ids"])
        self.assertEqual(len({str(answer["ids"]) for answer in answers}), 4)
        self.assertNotIn("adapters", base)
        self.assertEqual([use["name"] for use in both["adapters"]], ["a", "b"])
        self.assertEqual(both["adapters"][1]["weight"], -0.5)
        self.assertEqual(both["adapters"][0]["modules_matched"], 4)
        self.assertNotEqual(both["adapters"][0]["digest"], both["adapters"][1]["digest"])
        for kind in ("f16", "f32"):
            self.alone("once", "--adapter", f"x={self.one}", "--adapter-type", kind, "-n", "1")

    def test_refused(self):
        for flags, part, status in (
                (["--adapter", "x"], "NAME=PATH", USAGE),
                (["--adapter", "=x"], "NAME=PATH", USAGE),
                (["--adapter", f"x={self.one}:nan"], "must be a number", FAILED),
                (["--adapter", f"x={self.one}:1e39"], "must be a number", FAILED),
                (["--adapter", f"x={self.one}:-inf"], "must be a number", FAILED),
                (["--adapter", f"x={self.one}:other"], "no such file", FAILED),
                (["--adapter", f"x={self.folder}"], "adapter_config.json", FAILED),
                (["--adapter", f"x={self.one}", "--adapter", f"x={self.one}"], "twice", FAILED),
                (["--adapter-type", "q4"], "q8, f16, f32", USAGE),
                (["--stream"], "--prompts", USAGE), (["-b", "3"], "--prompts", USAGE)):
            done = call("run", self.model, "once", *flags)
            self.assertEqual((done.returncode, done.stdout), (status, b""), done)
            self.assertIn(part, done.stderr.decode())
        done = call("run", self.model, "once", "--prompts", "x")
        self.assertEqual(done.returncode, USAGE)
        done = call("run", self.model, "--prompts", self.folder / "nothing")
        self.assertEqual(done.returncode, FAILED)
        (self.folder / "line").write_text('{"prompt":"once"}')
        done = call("run", self.model, "--prompts", self.folder / "line", "--kv-tokens",
                    "1000000000000")
        self.assertIn(b"kv_tokens is 1000000000000, must be at most", done.stderr)
        (self.folder / "empty").write_text("\n\n")
        done = call("run", self.model, "--prompts", self.folder / "empty")
        self.assertIn(b"no prompts in the file", done.stderr)


if __name__ == "__main__":
    unittest.main()
