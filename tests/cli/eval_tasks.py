"""`avocet eval TASK` as a command: data files, results, samples, resuming, comparing, refusals.
That the scores are right is the business of tests/eval."""
import gzip
import json
import os
import signal
import tempfile
import unittest
from pathlib import Path

import tiny_model
from chat_model import write_model
from command import FAILED, GOOD, USAGE, call, start, wait_until

ARC = [{"query": f"Question: How {'very ' * i}old?", "choices": ["ten", "a", "once upon"],
        "gold": i % 3} for i in range(9)]
GOON = [{"text": f"the time is {i} once upon a time"} for i in range(5)]
MAKE = {"name": "make", "kind": "generate", "data": "make.jsonl", "prompt": "{{q}}",
        "target": "{{a}}", "max_tokens": 12, "stop": ["q"],
        "shots": {"count": 2, "from": "train.jsonl", "seed": 7},
        "filters": [{"name": "all"}, {"name": "first", "steps": [{"regex": "\\S"}]}]}


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


class Tasks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-tasks-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        (cls.folder / "other").mkdir()
        cls.other = tiny_model.write(cls.folder / "other", seed=2)
        cls.adapter = tiny_model.write_adapter(cls.folder / "adapter", 3)
        cls.data = cls.folder / "data"
        (cls.data / "tasks").mkdir(parents=True)
        (cls.data / "tasks" / "arc_easy.jsonl").write_text(lines(ARC))
        (cls.data / "lambada_openai.jsonl").write_text(lines(GOON))
        (cls.data / "train.jsonl").write_text(lines({"q": f"shot {i}", "a": f"a{i}"}
                                                    for i in range(30)))
        (cls.data / "make.jsonl").write_text(lines({"q": f"number {i}: ", "a": "x"}
                                                   for i in range(40)))
        cls.task = cls.folder / "make.json"
        cls.task.write_text(json.dumps(MAKE))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def run_json(self, *arguments):
        done = call("eval", *arguments, "--json")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        return json.loads(done.stdout)

    def refuse(self, *arguments, status=FAILED):
        done = call("eval", *arguments)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done)
        self.assertRegex(done.stderr, rb"\Aavocet: [^\n]+\n\Z")
        return done.stderr.decode()

    def samples_of(self, path):
        return [json.loads(line) for line in Path(path).read_text().splitlines()]

    # ---- What comes with the program ----

    def test_list(self):
        done = call("eval", "tasks")
        self.assertEqual(done.returncode, GOOD)
        names = [line.split()[0] for line in done.stdout.decode().splitlines()]
        for name in ("arc_easy", "piqa", "lambada_openai", "gsm8k", "gsm8k_cot", "humaneval",
                     "humaneval_instruct", "choice"):
            self.assertIn(name, names)
        tasks = json.loads(call("eval", "tasks", "--json").stdout)
        self.assertEqual([task["name"] for task in tasks], names)
        self.assertEqual(len({task["name"]: task for task in tasks}["gsm8k_cot"]["shots"]
                             ["examples"]), 8)

    # ---- Results ----

    def test_results(self):
        found = self.run_json("arc_easy,lambada", self.model, "--data", self.data)
        self.assertEqual(set(found["results"]), {"arc_easy", "lambada_openai"})
        results = found["results"]["arc_easy"]
        self.assertEqual(set(results), {"alias", "acc,none", "acc_stderr,none", "acc_norm,none",
                                        "acc_norm_stderr,none"})
        self.assertEqual(found["n-samples"]["arc_easy"], {"original": 9, "effective": 9})
        self.assertEqual(found["n-shot"], {"arc_easy": 0, "lambada_openai": 0})
        self.assertEqual(found["versions"]["arc_easy"], 1)
        self.assertEqual(found["higher_is_better"]["lambada_openai"],
                         {"acc": True, "perplexity": False})
        self.assertEqual(found["configs"]["arc_easy"]["name"], "arc_easy")
        self.assertGreater(found["results"]["lambada_openai"]["perplexity,none"], 1)
        table = call("eval", "arc_easy", self.model, "--data", self.data, "--limit", 4)
        self.assertEqual(table.returncode, GOOD, table.stderr)
        self.assertRegex(table.stdout.decode(), r"(?m)^arc_easy +4  none +acc +\d\.\d{4}  \+/- ")

    def test_data_files(self):
        plain = self.data / "tasks" / "arc_easy.jsonl"
        packed = self.folder / "arc.jsonl.gz"
        half = len(plain.read_bytes()) // 2
        packed.write_bytes(gzip.compress(plain.read_bytes()[:half]) +
                           gzip.compress(plain.read_bytes()[half:]))
        hugging = self.folder / "hf.jsonl"  # the columns of the original set
        hugging.write_text(lines({"question": row["query"][len("Question: "):],
                                  "choices": {"text": row["choices"], "label": ["A", "B", "C"]},
                                  "answerKey": "ABC"[row["gold"]]} for row in ARC))
        wanted = self.run_json("arc_easy", self.model, "--data", self.data)["results"]
        for path in (plain, packed, hugging):
            with self.subTest(path=path):
                found = self.run_json("arc_easy", self.model, "--data", path)["results"]
                self.assertEqual(found, wanted)
        generic = self.folder / "generic.jsonl"
        generic.write_text(lines({**row, "query": row["query"] + "\nAnswer:"} for row in ARC))
        found = self.run_json("choice", self.model, "--data", generic)["results"]["choice"]
        self.assertEqual(found["acc,none"], wanted["arc_easy"]["acc,none"])

    def test_samples(self):
        path = self.folder / "samples.jsonl"
        found = self.run_json(self.task, self.model, "--data", self.data, "-o", path)
        rows = self.samples_of(path)
        self.assertEqual([(row["doc_id"], row["filter"]) for row in rows],
                         [(i, name) for i in range(40) for name in ("all", "first")])
        self.assertEqual(rows[3]["doc"], {"q": "number 1: ", "a": "x"})
        context = rows[0]["arguments"]["gen_args_0"]["arg_0"]
        self.assertRegex(context, r"\Ashot \d+ a\d+\n\nshot \d+ a\d+\n\nnumber 0: \Z")
        mean = sum(row["exact_match"] for row in rows[::2]) / 40
        self.assertEqual(found["results"]["make"]["exact_match,all"], mean)
        for row in rows:
            if row["filter"] == "all":
                self.assertEqual(row["filtered_resps"], row["resps"][0])
        # Several tasks have a file each.
        call("eval", f"{self.task},arc_easy", self.model, "--data", self.data, "--limit", 2, "-o",
             self.folder / "many.jsonl")
        self.assertEqual(len(self.samples_of(self.folder / "many.make.jsonl")), 4)
        self.assertEqual(len(self.samples_of(self.folder / "many.arc_easy.jsonl")), 2)

    def test_same_for_any_batch(self):
        files = [self.folder / f"batch{i}.jsonl" for i in range(3)]
        for path, flags in zip(files, (["-b", 1, "-t", 1], ["-b", 7, "--speculate", "off"],
                                       ["-b", 40, "-t", 2])):
            done = call("eval", self.task, self.model, "--data", self.data, "-o", path, *flags)
            self.assertEqual(done.returncode, GOOD, done.stderr)
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
        self.assertEqual(files[0].read_bytes(), files[2].read_bytes())

    def test_killed_and_resumed(self):
        whole, part = self.folder / "whole.jsonl", self.folder / "killed.jsonl"
        wanted = self.run_json(self.task, self.model, "--data", self.data, "-o", whole)
        process = start("eval", self.task, self.model, "--data", self.data, "-o", part, "-b", 1,
                        "-t", 1, "--max-tokens", 12, stdout=-3)
        wait_until(lambda: part.exists() and part.stat().st_size > 0 or
                   process.poll() is not None, "the first sample")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = self.run_json(self.task, self.model, "--data", self.data, "-o", part, "--resume")
        self.assertEqual(part.read_bytes(), whole.read_bytes())
        self.assertEqual(found["results"], wanted["results"])
        # Nothing is left to do: the model computes nothing and the result is the same.
        again = self.run_json(self.task, self.model, "--data", self.data, "-o", part, "--resume")
        self.assertEqual(again["results"], wanted["results"])
        error = self.refuse(self.task, self.other, "--data", self.data, "-o", part, "--resume")
        self.assertIn("document 1 was answered with another model, task, data or option", error)

    def test_interrupted(self):
        path = self.folder / "interrupted.jsonl"
        process = start("eval", self.task, self.model, "--data", self.data, "-o", path, "-b", 1,
                        "-t", 1, stdout=-3)
        wait_until(lambda: path.exists() and path.stat().st_size > 0 or
                   process.poll() is not None, "the first sample")
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertIn(process.returncode, (130, 0))  # 0: it was done already
        self.assertTrue(path.read_bytes().endswith(b"}\n"))

    # ---- Comparing ----

    def test_against(self):
        flags = ["--data", self.data]
        path = self.folder / "reference.jsonl"
        both = self.run_json("arc_easy", self.model, "--against", self.other, *flags)
        other = self.run_json("arc_easy", self.other, *flags, "-o", path)
        pairs = both["against"]["pairs"]["arc_easy"]["acc,none"]
        self.assertEqual(both["against"]["model"], str(self.other))
        self.assertEqual(pairs["against"], other["results"]["arc_easy"]["acc,none"])
        self.assertEqual(pairs["score"], both["results"]["arc_easy"]["acc,none"])
        self.assertAlmostEqual(pairs["difference"], (pairs["gained"] - pairs["lost"]) / 9)
        self.assertEqual(both["against"]["pooled"]["items"], 9)
        file = self.run_json("arc_easy", self.model, "--against", path, *flags)
        self.assertEqual(file["against"]["pairs"], both["against"]["pairs"])
        same = self.run_json("arc_easy", self.other, "--against", path, *flags)["against"]
        self.assertEqual((same["pooled"]["gained"], same["pooled"]["lost"], same["pooled"]["p"]),
                         (0, 0, 1))
        table = call("eval", "arc_easy,lambada", self.model, "--against", self.other, *flags)
        self.assertRegex(table.stdout.decode(), r"(?m)^pooled +14 ")
        error = self.refuse(self.task, self.model, "--against", path, *flags)
        self.assertIn("document 1 has another prompt", error)

    def test_adapter_and_chat(self):
        plain = self.folder / "plain.jsonl"
        adapted = self.folder / "adapted.jsonl"
        flags = ["arc_easy", self.model, "--data", self.data, "-o"]
        call("eval", *flags, plain)
        done = call("eval", *flags, adapted, "--adapter", f"{self.adapter}:0.5")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        self.assertNotEqual([row["resps"] for row in self.samples_of(plain)],
                            [row["resps"] for row in self.samples_of(adapted)])
        error = self.refuse(*flags, plain, "--resume", "--adapter", self.adapter)
        self.assertIn("was answered with another model", error)
        self.assertIn("chat template", self.refuse(*flags, plain, "--chat"))
        (self.folder / "chat").mkdir()
        chat = write_model(self.folder / "chat")
        task = self.folder / "short.json"
        task.write_text(json.dumps({"name": "short", "kind": "choice", "prompt": "{{q}}",
                                    "choices": ["yes", "no<|end|>"], "target": "0"}))
        data = self.folder / "short.jsonl"
        data.write_text(lines([{"q": "why<|end|>?"}]))
        out = self.folder / "chat.jsonl"
        done = call("eval", task, chat, "--data", data, "--chat", "-o", out)
        self.assertEqual(done.returncode, GOOD, done.stderr)
        row = self.samples_of(out)[0]
        self.assertEqual(row["arguments"]["gen_args_1"],
                         {"arg_0": "<|user|>why<|end|>?<|end|><|assistant|>", "arg_1": "no<|end|>"})

    def test_truncated(self):
        done = call("eval", self.task, self.model, "--data", self.data, "--ctx", 30, "--limit", 3)
        self.assertIn("make: 3 prompts were cut at their begin to fit the context",
                      done.stdout.decode())

    # ---- Programs ----

    def test_programs(self):
        task = self.folder / "code.json"
        task.write_text(json.dumps({
            "name": "code", "kind": "generate", "prompt": "{{prompt}}", "metrics": ["pass@1"],
            "max_tokens": 4, "program": "answer = {{response | tojson}}\nassert {{test}}"}))
        data = self.folder / "code.jsonl"
        data.write_text(lines([{"prompt": "a", "test": "len(answer) >= 0"},
                               {"prompt": "b", "test": "answer is None"},
                               {"prompt": "c", "test": "exit(0)"}]))
        out = self.folder / "code-samples.jsonl"
        done = call("eval", task, self.model, "--data", data, "--json", "-o", out)
        if b"unsafe" in done.stderr or b"not in this branch" in done.stderr:
            self.skipTest("programs cannot be confined here")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        self.assertEqual([row["pass@1"] for row in self.samples_of(out)], [1, 0, 0])
        results = json.loads(done.stdout)["results"]["code"]
        self.assertAlmostEqual(results["pass@1,none"], 1 / 3)

    # ---- Refusals ----

    def test_refusals(self):
        data = ["--data", self.data]
        self.assertIn("missing MODEL", self.refuse("arc_easy", status=USAGE))
        self.assertIn("missing MODEL", self.refuse("task", "arc_easy", status=USAGE))
        self.assertIn("more words", self.refuse("arc_easy", self.model, "x", status=USAGE))
        self.assertIn("--resume needs --samples",
                      self.refuse("arc_easy", self.model, *data, "--resume", status=USAGE))
        self.assertIn("compares one task", self.refuse("arc_easy,piqa", self.model, *data,
                                                       "--against", "a.jsonl", status=USAGE))
        for words in (["task", "arc_esy"], ["arc_esy"]):
            self.assertIn("did you mean arc_easy?", self.refuse(*words, self.model, *data))
        self.assertIn("unknown task \"zzz\"; avocet eval tasks lists them",
                      self.refuse("task", "zzz", self.model, *data))
        for words in (["zzzzzz"], ["zzzzzz", self.model], ["zzzzzz", self.model, *data]):
            text = self.refuse(*words, status=USAGE)
            self.assertIn('unknown task "zzzzzz"; tasks: arc_easy, choice, gsm8k,', text)
            self.assertIn("perplexity, kl, logits", text)
        self.assertIn("by --data", self.refuse("arc_easy", self.model))
        self.assertIn("neither tasks/piqa.jsonl nor piqa.jsonl is there",
                      self.refuse("piqa", self.model, *data))
        self.assertIn("nowhere", self.refuse("arc_easy", self.model, "--data", "/nowhere"))
        self.assertIn("no.json", self.refuse("no.json", self.model, *data))
        self.assertIn("give it by --shots",
                      self.refuse(self.task, self.model, "--data", self.data / "make.jsonl"))
        self.assertIn("--data must be a folder", self.refuse(
            "arc_easy,choice", self.model, "--data", self.data / "tasks" / "arc_easy.jsonl"))
        self.assertIn("two tasks have the name arc_easy",
                      self.refuse("arc_easy,arc_easy", self.model, *data))
        self.assertIn("cannot write",
                      self.refuse("arc_easy", self.model, *data, "-o", "/nowhere/a.jsonl"))
        broken = self.folder / "broken.jsonl.gz"
        broken.write_bytes(gzip.compress(b"{}\n" * 1000)[:-20])
        self.assertIn("is damaged", self.refuse("arc_easy", self.model, "--data", broken))
        broken.write_bytes(b"{}\n")
        self.assertIn("arc_easy: document 1: \"prompt\": ",
                      self.refuse("arc_easy", self.model, "--data", broken))
        wrong = self.folder / "wrong.json"
        wrong.write_text('{"name": "w", "frob": 1}')
        self.assertIn('unknown key "frob"', self.refuse(wrong, self.model, *data))


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main()
