"""What vLLM's, llama.cpp's and ollama's clients send, byte by byte on a tiny model: constraints in
each one's words, /completion and its siblings, /api/… as JSON lines. Nothing that a client asks
for is passed over: it has its effect, or it is refused by name."""
import json
import re
import runpy
import tempfile
import unittest
from pathlib import Path

from api_server import Server
from chat_model import write_model
from command import ROOT, wait_until

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]
FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"]
TEMPLATE = ("{% for m in messages %}<|user|>{{ m.content }}"
            "{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}"
            "{% for c in m.tool_calls or [] %}<tool_call>\n"
            '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
            "</tool_call>{% endfor %}<|end|>{% endfor %}"
            "{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def give_fim_tokens(folder):
    """Five letters of the vocabulary become the tokens of a gap."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for letter, piece in zip("#$%&@", FIM):
        number = vocabulary.pop(letter)
        vocabulary[piece] = number
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": number,
                                          "content": piece})
    path.write_text(json.dumps(tokenizer))
    return {piece: vocabulary[piece] for piece in FIM}


class Served(unittest.TestCase):
    generation = {"do_sample": True, "temperature": 1.0}

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-dialects-")
        cls.folder = write_model(Path(cls.scratch.name), template=TEMPLATE,
                                 generation=cls.generation)
        cls.fim = give_fim_tokens(cls.folder)
        cls.server = Server(cls.folder, "--name", "tiny", "--threads", "1", "--sessions", "4",
                            "--rows", "64")

    @classmethod
    def tearDownClass(cls):
        with cls.server:
            pass
        cls.scratch.cleanup()

    def post(self, path, status=200, **body):
        return self.server.post(path, body, status)

    def refused(self, path, name, **body):
        error = self.post(path, 400, **body)["error"]
        self.assertIn(name, error if isinstance(error, str) else error["message"])

    def lines(self, path, **body):
        status, headers, data = self.server.ask("POST", path, body)
        self.assertEqual(status, 200, data)
        self.assertEqual(headers["Content-Type"], "application/x-ndjson")
        return [json.loads(line) for line in data.decode().splitlines()]


class Vllm(Served):
    def texts(self, **body):
        choices = self.post(TEXT, prompt="a", n=4, seed=3, **body)["choices"]
        return [choice["text"] for choice in choices]

    def test_guided_choice(self):
        wanted = ["yes", 'n"o\\', "maybe"]
        for name in ("guided_choice", "structured_outputs"):
            value = wanted if name == "guided_choice" else {"choice": wanted}
            self.assertTrue(set(self.texts(**{name: value})) <= set(wanted))

    def test_guided_regex(self):
        pattern = r"[a-c]{2,4}-(x|yz)\d?"
        for anchored in (pattern, f"^{pattern}$"):
            for text in self.texts(guided_regex=anchored, max_tokens=20):
                self.assertRegex(text, rf"\A(?:{pattern})\Z")
        text = self.post(CHAT, messages=HELLO, structured_outputs={"regex": pattern},
                         max_tokens=20)["choices"][0]["message"]["content"]
        self.assertRegex(text, rf"\A(?:{pattern})\Z")
        self.refused(TEXT, "guided_regex", prompt="a", guided_regex="(a")
        self.refused(TEXT, "guided_regex", prompt="a", guided_regex=r"(?=a)b")

    def test_guided_json_and_grammar(self):
        schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
                  "additionalProperties": False}
        for value in (schema, json.dumps(schema)):
            for text in self.texts(guided_json=value, max_tokens=50):
                self.assertIsInstance(json.loads(text)["x"], bool)
        for text in self.texts(structured_outputs={"grammar": 'root ::= "ab" | "c"'}):
            self.assertIn(text, ("ab", "c"))

    def test_only_one_and_nothing_unknown(self):
        self.refused(TEXT, "guided_choice", prompt="a", guided_regex="a", guided_choice=["a"])
        self.refused(TEXT, "structured_outputs.choice", prompt="a", grammar='root ::= "a"',
                     structured_outputs={"choice": ["a"]})
        self.refused(TEXT, "structured_outputs.structural_tag", prompt="a",
                     structured_outputs={"structural_tag": "{}"})
        self.refused(TEXT, "guided_choice", prompt="a", guided_choice=[])
        self.refused(TEXT, "guided_choice", prompt="a", guided_choice=[1])
        for name, value in (("use_beam_search", True), ("length_penalty", 0.5),
                            ("skip_special_tokens", False), ("bad_words", ["a"]),
                            ("allowed_token_ids", [5]), ("truncate_prompt_tokens", 4),
                            ("include_stop_str_in_output", True), ("structural_tag", "x"),
                            ("guided_whitespace_pattern", " ")):
            self.refused(TEXT, name, prompt="a", **{name: value})
        self.post(TEXT, prompt="a", max_tokens=1, use_beam_search=False, length_penalty=1.0,
                  skip_special_tokens=True, bad_words=[], truncate_prompt_tokens=None,
                  include_stop_str_in_output=False, guided_decoding_backend="auto")

    def test_min_tokens(self):
        end = 2  # <|end|>; biased so that it would come at once
        body = {"prompt": "a", "logit_bias": {str(end): 100}, "max_tokens": 12, "seed": 1}
        self.assertEqual(self.post(TEXT, **body)["usage"]["completion_tokens"], 1)
        told = self.post(TEXT, **body, min_tokens=5)
        self.assertEqual(told["usage"]["completion_tokens"], 6)
        self.assertEqual(told["choices"][0]["finish_reason"], "stop")
        letter = self.post("/tokenize", content="z")["tokens"][0]
        stopped = {"prompt": "a", "logit_bias": {str(letter): 100}, "max_tokens": 12, "stop": ["z"]}
        self.assertEqual(self.post(TEXT, **stopped)["choices"][0]["text"], "")
        self.assertEqual(self.post(TEXT, **stopped, min_tokens=4)["choices"][0]["text"], "zzzz"[:3])
        token = {**stopped, "stop": None, "stop_token_ids": [letter], "ignore_eos": True}
        self.assertNotIn("z", self.post(TEXT, **token, min_tokens=12)["choices"][0]["text"])
        self.refused(TEXT, "min_new_tokens", prompt="a", min_tokens=5, max_tokens=4)
        held = self.post(TEXT, prompt="a", guided_choice=["ab"], min_tokens=9, max_tokens=20)
        self.assertEqual(held["choices"][0]["text"], "ab")  # nothing else is allowed

    def test_repetition(self):
        letters = self.post("/tokenize", content="xy")["tokens"]
        body = {"prompt": "a", "temperature": 0, "max_tokens": 40, "ignore_eos": True,
                "logit_bias": {str(letters[0]): 100}}
        self.assertEqual(self.post(TEXT, **body)["choices"][0]["finish_reason"], "length")
        found = {"max_pattern_size": 4, "min_count": 3}
        choice = self.post(TEXT, **body, repetition_detection=found)["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"]), ("xxx", "repetition"))
        choice = self.post(TEXT, **body, repetition_detection={
            "max_pattern_size": 4, "min_pattern_size": 4, "min_count": 3})["choices"][0]
        self.assertEqual(choice["text"], "x" * 12)
        self.refused(TEXT, "repetition_detection", prompt="a",
                     repetition_detection={"max_pattern_size": 4, "min_count": 1})
        self.refused(TEXT, "max_size", prompt="a", repetition_detection={"max_size": 4})

    def test_prompt_logprobs(self):
        told = self.post(TEXT, prompt=["abc", "de"], max_tokens=2, n=2, prompt_logprobs=2,
                         logprobs=1, seed=1)
        scored = self.post(TEXT, prompt="abc", max_tokens=0, echo=True, logprobs=2)
        expected = scored["choices"][0]["logprobs"]["token_logprobs"]
        for index, count in ((0, 3), (1, 3), (2, 2), (3, 2)):
            entries = told["choices"][index]["prompt_logprobs"]
            self.assertEqual(len(entries), count)
            self.assertIsNone(entries[0])
        ids = self.post("/tokenize", content="abc")["tokens"]
        entries = told["choices"][0]["prompt_logprobs"]
        for token, entry, logprob in list(zip(ids, entries, expected))[1:]:
            self.assertEqual(entry[str(token)]["logprob"], logprob)
            self.assertIn(len(entry), (2, 3))
            ranks = sorted(one["rank"] for one in entry.values() if one["rank"])
            self.assertEqual(ranks[:2], [1, 2])
        self.assertEqual(len(told["choices"][0]["logprobs"]["top_logprobs"][0]) in (1, 2), True)
        chat = self.post(CHAT, messages=HELLO, max_tokens=1, prompt_logprobs=0)
        self.assertEqual(len(chat["prompt_logprobs"]), chat["usage"]["prompt_tokens"])
        self.assertTrue(all(len(entry) == 1 for entry in chat["prompt_logprobs"][1:]))
        self.refused(TEXT, "prompt_logprobs", prompt="a", prompt_logprobs=1, stream=True)

    def test_anthropic_output(self):
        schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
                  "additionalProperties": False}
        asked = {"messages": HELLO, "max_tokens": 50}
        shape = {"type": "json_schema", "schema": schema}
        for more in ({"output_config": {"format": shape, "effort": "low"}},
                     {"output_format": shape}):
            text = self.post("/v1/messages", **asked, **more)["content"][0]["text"]
            self.assertIsInstance(json.loads(text)["x"], bool)
        self.refused("/v1/messages", "format_", **asked, output_config={"format_": shape})

    def test_the_model_recommends(self):
        said = self.server.get("/version")["sampling"]
        self.assertTrue(said["recommended"])
        self.assertEqual(said["temperature"], 1)

    def test_earlier_reasoning(self):
        turns = [*HELLO, {"role": "assistant", "content": "a", "reasoning_content": "why"}, *HELLO]
        told = self.post("/apply-template", messages=turns)["prompt"]
        self.assertIn("a[why]", told)


class Llama(Served):
    def test_completion(self):
        told = self.post("/completion", prompt="abc", n_predict=6, seed=4, ignore_eos=True)
        other = self.post(TEXT, prompt="abc", max_tokens=6, seed=4, ignore_eos=True)
        self.assertEqual(told["content"], other["choices"][0]["text"])
        self.assertEqual((told["stop"], told["stop_type"], told["truncated"], told["tokens"]),
                         (True, "limit", False, []))
        self.assertEqual((told["tokens_predicted"], told["tokens_evaluated"]), (6, 3))
        self.assertEqual(told["timings"]["predicted_n"], 6)
        self.assertEqual(told["generation_settings"]["n_predict"], 6)
        self.assertEqual(told["generation_settings"]["seed"], 4)
        self.assertEqual(told["prompt"], "abc")
        self.assertIs(told["has_new_line"], False)
        tokens = self.post("/completion", prompt="abc", n_predict=6, seed=4, ignore_eos=True,
                           return_tokens=True)["tokens"]
        text = self.post("/detokenize", tokens=tokens)["content"]
        self.assertEqual(re.sub(r"<\|\w+\|>", "", text), told["content"])

    def test_stream(self):
        body = {"prompt": "abc", "n_predict": 6, "seed": 4, "ignore_eos": True}
        whole = self.post("/completion", **body)
        events = [json.loads(data) for _, data in self.server.events("/completion", body)]
        self.assertEqual([event["stop"] for event in events], [False] * (len(events) - 1) + [True])
        self.assertEqual("".join(event["content"] for event in events), whole["content"])
        self.assertTrue(all(event["tokens"] for event in events[:-1]))
        self.assertEqual(events[-1]["timings"]["predicted_n"], 6)

    def test_prompts(self):
        ids = self.post("/tokenize", content="abc")["tokens"]
        greedy = {"n_predict": 4, "temperature": 0}
        one = self.post("/completion", prompt="abc", **greedy)["content"]
        for prompt in (ids, ["abc"], [*ids[:2], "c"], ["a", *ids[1:]]):
            self.assertEqual(self.post("/completion", prompt=prompt, **greedy)["content"], one)
        both = self.post("/completions", prompt=["abc", ids], **greedy)
        self.assertEqual([answer["content"] for answer in both], [one, one])

    def test_n_probs(self):
        told = self.post("/completion", prompt="abc", n_predict=3, n_probs=4, temperature=0,
                         ignore_eos=True)
        self.assertEqual(len(told["completion_probabilities"]), 3)
        for entry in told["completion_probabilities"]:
            self.assertEqual(len(entry["top_logprobs"]), 4)
            self.assertEqual(entry["id"], entry["top_logprobs"][0]["id"])
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
        for _, data in self.server.events("/completion", {"prompt": "abc", "n_predict": 3,
                                                          "n_probs": 4, "temperature": 0,
                                                          "ignore_eos": True}):
            event = json.loads(data)
            if not event["stop"]:
                self.assertEqual(len(event["completion_probabilities"]), 1)

    def test_constraints_and_stops(self):
        schema = {"enum": ["ab", "cd"]}
        self.assertIn(self.post("/completion", prompt="a", json_schema=schema)["content"],
                      ('"ab"', '"cd"'))
        told = self.post("/completion", prompt="a", grammar='root ::= "xyz"', stop=["y"])
        self.assertEqual((told["content"], told["stop_type"], told["stopping_word"]),
                         ("x", "word", "y"))
        letter = self.post("/tokenize", content="z")["tokens"][0]
        biased = self.post("/completion", prompt="a", n_predict=3, logit_bias=[[letter, 100.0]])
        self.assertEqual(biased["content"], "zzz")
        never = self.post("/completion", prompt="a", n_predict=9, ignore_eos=True, temperature=0,
                          logit_bias=[[letter, False]])
        self.assertNotIn("z", never["content"])

    def test_refused_by_name(self):
        for name, value in (("mirostat", 2), ("dry_multiplier", 0.8), ("xtc_probability", 0.5),
                            ("dynatemp_range", 0.5), ("top_n_sigma", 1.0), ("samplers", ["top_k"]),
                            ("post_sampling_probs", True), ("response_fields", ["content"]),
                            ("min_keep", 3), ("image_data", [{}]), ("no_such_field", 1)):
            self.refused("/completion", name, prompt="a", **{name: value})
        self.refused("/completion", "repeat_last_n", prompt="a", repeat_penalty=1.1,
                     repeat_last_n=64)
        self.post("/completion", prompt="a", n_predict=1, mirostat=0, dry_multiplier=0.0,
                  top_n_sigma=-1, samplers=[], min_keep=0, repeat_last_n=64, id_slot=-1,
                  cache_prompt=False, response_fields=[])
        self.refused("/completion", "prompt", n_predict=1)
        self.post("/completion", 400, prompt="a" * 90)

    def test_infill(self):
        told = self.post("/infill", input_prefix="ab", prompt="c", input_suffix="de", n_predict=3,
                         temperature=0)
        text = "<|fim_prefix|>abc<|fim_suffix|>de<|fim_middle|>"
        self.assertEqual(told["prompt"], text)
        same = self.post("/completion", prompt=text, n_predict=3, temperature=0)
        self.assertEqual(told["content"], same["content"])
        openai = self.post(TEXT, prompt="abc", suffix="de", max_tokens=3, temperature=0)
        self.assertEqual(openai["choices"][0]["text"], told["content"])
        extra = self.post("/infill", input_prefix="ab", input_suffix="de", n_predict=1,
                          input_extra=[{"filename": "f", "text": "xy"}])
        self.assertIn("<|file_sep|>fxy<|file_sep|>", extra["prompt"])  # no token is a newline
        for wrong in ({}, {"filename": "ok"}, {"filename": 1, "text": "a"}, {"text": 4}):
            self.post("/infill", 400, input_prefix="a", input_suffix="b", input_extra=[wrong])

    def test_embeddings(self):
        unit = self.post("/v1/embeddings", input=["abc"])["data"][0]["embedding"]
        for path, body in (("/embedding", {"content": "abc"}), ("/embeddings", {"input": "abc"})):
            self.assertEqual(self.post(path, **body), [{"index": 0, "embedding": [unit]}])
        raw = self.post("/embedding", content="abc", embd_normalize=-1)[0]["embedding"][0]
        self.assertNotEqual(raw, unit)
        self.assertEqual(len(self.post("/embedding", content=["a", "b"])), 2)
        self.refused("/embedding", "content")

    def test_each_protocol_draws_as_its_own_server_does(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = write_model(Path(scratch), template=TEMPLATE)  # recommends nothing
            with Server(folder, "--name", "tiny", "--threads", "1") as server:
                drawn = server.get("/props")["default_generation_settings"]["params"]
                self.assertEqual(
                    [round(drawn[name], 3) for name in ("temperature", "top_k", "top_p", "min_p")],
                    [0.8, 40, 0.95, 0.05])
                shown = server.post("/api/show", {"model": "tiny"})["parameters"]
                self.assertIn("temperature 0.8\ntop_p 0.9\ntop_k 40\nmin_p 0\n", shown)
                self.assertEqual(server.get("/version")["sampling"]["temperature"], 1)

    def test_what_it_is(self):
        props = self.server.get("/props")
        self.assertEqual(props["total_slots"], 4)
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 64)
        self.assertEqual(props["chat_template"], TEMPLATE)
        wait_until(lambda: [slot["is_processing"] for slot in self.server.get("/slots")] ==
                   [False] * 4, "four idle slots")
        self.assertEqual(self.server.get("/models"), self.server.get("/v1/models"))
        told = self.post("/apply-template", messages=HELLO)
        self.assertEqual(told, {"prompt": "<|user|>hi<|end|><|assistant|>"})
        told = self.post("/apply-template", messages=HELLO, add_generation_prompt=False)
        self.assertEqual(told, {"prompt": "<|user|>hi<|end|>"})


class Ollama(Served):
    def test_chat(self):
        body = {"model": "tiny", "messages": HELLO,
                "options": {"seed": 5, "num_predict": 8, "temperature": 1.0}}
        whole = self.post("/api/chat", **body, stream=False)
        other = self.post(CHAT, messages=HELLO, seed=5, max_tokens=8)
        self.assertEqual(whole["message"]["role"], "assistant")
        self.assertEqual(whole["message"]["content"], other["choices"][0]["message"]["content"])
        self.assertIs(whole["done"], True)
        self.assertEqual(whole["done_reason"], other["choices"][0]["finish_reason"])
        self.assertEqual(whole["prompt_eval_count"], other["usage"]["prompt_tokens"])
        self.assertEqual(whole["eval_count"], other["usage"]["completion_tokens"])
        self.assertTrue(all(isinstance(whole[name], int) for name in
                            ("total_duration", "load_duration", "eval_duration")))
        lines = self.lines("/api/chat", **body)
        self.assertEqual("".join(line["message"]["content"] for line in lines),
                         whole["message"]["content"])
        self.assertEqual([line["done"] for line in lines], [False] * (len(lines) - 1) + [True])
        self.assertTrue(all(re.match(r"\d{4}-\d\d-\d\dT.*Z$", line["created_at"])
                            for line in lines))

    def test_generate(self):
        body = {"model": "tiny:latest", "prompt": "hi", "options": {"seed": 5, "num_predict": 8}}
        whole = self.post("/api/generate", **body, stream=False)
        chat = self.post("/api/chat", model="tiny", messages=HELLO, stream=False,
                         options=body["options"])
        self.assertEqual(whole["response"], chat["message"]["content"])
        self.assertEqual("".join(line["response"] for line in self.lines("/api/generate", **body)),
                         whole["response"])
        raw = self.post("/api/generate", **body, raw=True, stream=False)
        text = self.post("/completion", prompt="hi", n_predict=8, seed=5)
        self.assertEqual(raw["response"], text["content"])
        gap = self.post("/api/generate", **body, suffix="b", stream=False)
        same = self.post("/infill", input_prefix="hi", input_suffix="b", n_predict=8, seed=5)
        self.assertEqual(gap["response"], same["content"])
        for path, more in (("/api/generate", {}), ("/api/chat", {"messages": []})):
            told = self.post(path, model="tiny", **more)
            self.assertEqual((told["done"], told["done_reason"]), (True, "load"))

    def test_format(self):
        schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
                  "additionalProperties": False}
        told = self.post("/api/chat", model="tiny", messages=HELLO, stream=False, format=schema)
        self.assertIsInstance(json.loads(told["message"]["content"])["x"], bool)
        told = self.post("/api/generate", model="tiny", prompt="a", stream=False, format="json",
                         options={"num_predict": 3})
        self.assertTrue(told["response"].startswith("{"))
        self.refused("/api/chat", "format", model="tiny", messages=HELLO, format="xml")

    def test_tools_and_thinking(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"x": {"type": "boolean"}}}}}
        turns = [*HELLO, {"role": "assistant", "content": "", "thinking": "t", "tool_calls": [
            {"function": {"name": "f", "arguments": {"x": True}}}]},
            {"role": "tool", "tool_name": "f", "content": "ok"}]
        self.post("/api/chat", model="tiny", messages=turns[:1], tools=[tool], stream=False,
                  options={"num_predict": 1})
        counted = [self.post("/api/chat", model="tiny", messages=HELLO, stream=False, **more,
                             options={"num_predict": 1})["prompt_eval_count"]
                   for more in ({}, {"think": True}, {"think": False})]
        self.assertEqual(counted, [counted[0], counted[0] + 4, counted[0] + 5])  # True, False

    def test_calls(self):
        """tool_choice is ours: it makes this model write a call."""
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"],
            "additionalProperties": False}}}
        body = {"model": "tiny", "messages": HELLO, "tools": [tool], "tool_choice": "required",
                "options": {"seed": 1, "num_predict": 55}}
        whole = self.post("/api/chat", **body, stream=False)
        call = whole["message"]["tool_calls"][0]["function"]
        self.assertEqual(call["name"], "f")
        self.assertIsInstance(call["arguments"]["x"], bool)
        self.assertEqual(whole["done_reason"], "stop")
        told = [line["message"]["tool_calls"] for line in self.lines("/api/chat", **body)
                if "tool_calls" in line["message"]]
        self.assertEqual(told, [whole["message"]["tool_calls"]])

    def test_logprobs(self):
        told = self.post("/api/generate", model="tiny", prompt="a", stream=False, logprobs=True,
                         top_logprobs=2, options={"num_predict": 3, "seed": 1})
        self.assertEqual(len(told["logprobs"]), told["eval_count"])
        self.assertEqual(len(told["logprobs"][0]["top_logprobs"]), 2)

    def test_embed(self):
        unit = self.post("/v1/embeddings", input=["ab", "c"])["data"]
        told = self.post("/api/embed", model="tiny", input=["ab", "c"])
        self.assertEqual(told["embeddings"], [one["embedding"] for one in unit])
        self.assertEqual(told["prompt_eval_count"], 3)
        old = self.post("/api/embeddings", model="tiny", prompt="ab")["embedding"]
        self.assertEqual(len(old), len(told["embeddings"][0]))

    def test_models(self):
        models = self.server.get("/api/tags")["models"]
        self.assertEqual([model["name"] for model in models], ["tiny"])
        self.assertEqual(self.server.get("/api/ps")["models"][0]["context_length"], 64)
        shown = self.post("/api/show", model="tiny")
        self.assertEqual(shown["template"], TEMPLATE)
        self.assertIn("completion", shown["capabilities"])
        self.assertEqual(self.post("/api/pull", model="tiny", stream=False), {"status": "success"})
        self.assertEqual(self.lines("/api/pull", name="tiny:latest"), [{"status": "success"}])
        for path in ("/api/show", "/api/pull"):
            self.assertIn("other", self.post(path, 404, model="other")["error"])
        self.assertRegex(self.server.get("/api/version")["version"], r"^\d+\.\d+\.\d+$")

    def test_refused_by_name(self):
        self.refused("/api/chat", "mirostat", model="tiny", messages=HELLO,
                     options={"mirostat": 1})
        self.refused("/api/chat", "no_such", model="tiny", messages=HELLO, options={"no_such": 1})
        self.refused("/api/generate", "template", model="tiny", prompt="a", template="x")
        self.refused("/api/generate", "images", model="tiny", prompt="a", images=["eA=="])
        self.refused("/api/chat", "images", model="tiny", messages=[
            {"role": "user", "content": "a", "images": ["eA=="]}])
        self.assertIn("other", self.post("/api/chat", 404, model="other", messages=HELLO)["error"])
        self.post("/api/chat", model="tiny", messages=HELLO, stream=False, keep_alive="5m",
                  options={"num_predict": 1, "num_ctx": 2048, "num_thread": 4, "mirostat": 0})


class Fields(Served):
    generation = None

    def test_the_list_of_fields(self):
        """docs/fields.md is what tools/fields makes of the table."""
        document = self.server.get("/openapi.json")
        tool = runpy.run_path(str(ROOT / "tools" / "fields"))
        self.assertEqual((ROOT / "docs" / "fields.md").read_text(), tool["page"](document))

    def test_without_a_recommendation_it_is_openai_s(self):
        said = self.server.get("/version")["sampling"]
        self.assertEqual((said["recommended"], said["temperature"], said["top_p"]),
                         (False, 1, 1))


if __name__ == "__main__":
    unittest.main()
