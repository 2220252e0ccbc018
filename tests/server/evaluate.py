"""What lm-eval's local-completions asks with its remote tokenizer, request by request: the server's
answers give the same log-likelihoods, greedy flags and texts as `avocet eval TASK` in process."""
import json
import sys
import tempfile
import unittest
from pathlib import Path

import tiny_model
from api_server import Server
from command import GOOD, call

QUESTIONS = [{"q": f"once {i} upon", "c": ["a time", " the", "zz"][:2 + i % 2], "g": 0}
             for i in range(5)]
STOP = ["e", "zz"]


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-evaluate-")
        cls.folder = Path(cls.scratch.name)
        cls.model = tiny_model.write(cls.folder)
        cls.data = cls.folder / "data.jsonl"
        cls.data.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
        cls.server = Server(cls.model, "--name", "tiny", "--threads", "1")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None)
        cls.scratch.cleanup()

    def post(self, path, **body):
        return self.server.post(path, body)

    def encode(self, text):
        return self.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]

    def samples(self, task):
        path, out = self.folder / "task.json", self.folder / f"{task['name']}.jsonl"
        path.write_text(json.dumps(task))
        done = call("eval", path, self.model, "--data", self.data, "-o", out, "--no-bos")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def likelihood(self, context, continuation):
        """As TemplateLM._encode_pair and LocalCompletionsAPI.parse_logprobs."""
        blanks = len(context) - len(context.rstrip())
        if blanks > 0:
            continuation = context[-blanks:] + continuation
            context = context[:-blanks]
        whole, length = self.encode(context + continuation), len(self.encode(context))
        answer = self.post("/v1/completions", model="tiny", prompt=[whole], temperature=0,
                           max_tokens=1, logprobs=1, seed=1234, echo=True)
        told = answer["choices"][0]["logprobs"]
        logprobs = told["token_logprobs"][length:-1]
        tops = told["top_logprobs"][length:-1]
        return sum(logprobs), all(logprob == max(top.values())
                                  for logprob, top in zip(logprobs, tops))

    def test_tokenizer_info(self):
        info = self.server.get("/tokenizer_info")
        self.assertTrue(info["bos_token"] and info["eos_token"])
        self.assertEqual((info["pad_token"], info["chat_template"]), (None, None))
        self.assertEqual((info["add_bos_token"], info["model_max_length"]), (True, 128))

    def test_choices(self):
        rows = self.samples({"name": "pick", "kind": "choice", "prompt": "{{q}} ",
                             "choices": "{{c | tojson}}", "target": "{{g}}"})
        self.assertEqual(len(rows), len(QUESTIONS))
        for row in rows:
            found = [self.likelihood(row["arguments"][f"gen_args_{i}"]["arg_0"],
                                     " " + choice) for i, choice in enumerate(row["doc"]["c"])]
            for (logprob, greedy), [[own, own_greedy]] in zip(found, row["resps"]):
                self.assertAlmostEqual(logprob, own, delta=1e-5)
                self.assertEqual(greedy, own_greedy)
            best = max(range(len(found)), key=lambda i: found[i][0])
            self.assertEqual(row["acc"], best == row["target"])

    def test_continuations(self):
        rows = self.samples({"name": "goon", "kind": "continuation", "prompt": "{{q}}",
                             "target": " {{c[0]}}"})
        for row in rows:
            arguments = row["arguments"]["gen_args_0"]
            logprob, greedy = self.likelihood(arguments["arg_0"], arguments["arg_1"])
            self.assertAlmostEqual(logprob, row["perplexity"], delta=1e-5)
            self.assertEqual(greedy, bool(row["acc"]))

    def test_answers(self):
        rows = self.samples({"name": "make", "kind": "generate", "prompt": "{{q}}",
                             "target": "{{c[0]}}", "max_tokens": 20, "stop": STOP})
        for row in rows:
            prompt = self.encode(row["arguments"]["gen_args_0"]["arg_0"])
            answer = self.post("/v1/completions", model="tiny", prompt=[prompt], max_tokens=20,
                               temperature=0, stop=STOP, seed=1234)
            self.assertEqual(answer["choices"][0]["text"], row["resps"][0][0])


if __name__ == "__main__":
    sys.exit(unittest.main())
