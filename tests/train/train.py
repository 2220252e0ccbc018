"""`avocet train`: a style that is learned, runs that are killed at any moment, output that other
commands load, refusals."""
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import chat_model
from api_server import sanitized
from command import AVOCET, FAILED, GOOD, INTERRUPTED, ROOT, USAGE, call, start, test_data, \
    wait_until_caught

QUESTIONS = ["How are you?", "What is it?", "Where?", "Tell me.", "Is it late?", "Who said so?",
             "Why?", "Can you?", "What now?", "When?", "Which one?", "Do you know?"]
TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
STYLE = "Aye, captain!"
ADAPTER = "adapter_model.safetensors"


def chats(path, answers):
    with open(path, "w", encoding="utf-8") as file:
        for question, answer in zip(QUESTIONS, answers):
            file.write(json.dumps({"messages": [{"role": "user", "content": question},
                                                {"role": "assistant", "content": answer}]}) + "\n")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def used_or_ended(process, seconds):
    """Waits until the process has used so much CPU time; True where it ended before."""
    while process.poll() is None:
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= seconds:
            return False
        time.sleep(0.002)
    return True


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        cls.model = cls.folder / "model"
        cls.model.mkdir()
        chat_model.write_random_model(cls.model, context=256)
        config = cls.model / "tokenizer_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()),
                                      "chat_template": TEMPLATE}))
        cls.data = cls.folder / "chats.jsonl"
        chats(cls.data, [STYLE] * len(QUESTIONS))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def train(self, *arguments, status=GOOD):
        done = call("train", *arguments)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done

    def sft(self, output, *more, status=GOOD):
        return self.train("sft", self.model, "--data", self.data, "-o", self.folder / output,
                          "--threads", 2, *more, status=status)

    def answer(self, question, *more, model=None):
        done = call("run", model or self.model, question, "-n", 16, "--temperature", 0, *more)
        self.assertEqual(done.returncode, GOOD, done.stderr.decode())
        return done.stdout.decode(errors="replace")

    def test_a_style_is_learned(self):
        new = ["Are you there?", "What time is it?", "Hello!", "Say it.", "Now?", "How far?"]
        before = [self.answer(question) for question in new]
        self.assertFalse(any(text.startswith("Aye") for text in before))
        done = self.sft("style", "--steps", 40, "--batch", 6, "--lr", 1e-2, "--rank", 8)
        self.assertIn(f"avocet run {self.model} --adapter mine={self.folder / 'style'} ",
                      done.stdout.decode())
        after = [self.answer(question, "--adapter", f"style={self.folder / 'style'}")
                 for question in new]
        learned = sum(text.startswith(STYLE) for text in after)
        self.assertGreaterEqual(learned, 5, after)
        metrics = lines(self.folder / "style/metrics.jsonl")
        self.assertEqual([line["step"] for line in metrics], list(range(1, 41)))
        self.assertLess(metrics[-1]["loss"], 0.1 * metrics[0]["loss"])
        self.assertLess(metrics[0]["mean_token_accuracy"], 0.3)
        self.assertGreater(metrics[-1]["mean_token_accuracy"], 0.9)
        for key in ("loss", "grad_norm", "learning_rate", "num_tokens", "entropy", "epoch"):
            self.assertIn(key, metrics[0])
        state = json.loads((self.folder / "style/trainer_state.json").read_text())
        self.assertEqual(state["global_step"], 40)
        self.assertEqual(state["log_history"], metrics)
        self.assertIn("<polyline", (self.folder / "style/curves.svg").read_text())

    def test_killed_at_any_moment(self):
        options = ["--steps", 30, "--batch", 3, "--lr", 1e-3, "--save-every", 1, "--rank", 4]
        self.sft("whole", *options)
        arguments = [AVOCET, "train", "sft", self.model, "--data", self.data, "-o",
                     self.folder / "killed", "--threads", "2", "--resume", *map(str, options)]
        generator = random.Random(7)
        kills = 0
        for _ in range(8):
            with subprocess.Popen(arguments, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE) as process:
                if used_or_ended(process, generator.uniform(0.02, 0.2)):
                    self.assertEqual(process.returncode, GOOD, process.stderr.read().decode())
                    break
                process.kill()
                process.wait()
                kills += 1
        print(f"killed {kills} times")
        self.sft("killed", "--resume", *options)
        for name in (ADAPTER, "adapter_config.json"):
            self.assertEqual((self.folder / "whole" / name).read_bytes(),
                             (self.folder / "killed" / name).read_bytes(), name)
        self.assertEqual([line["step"] for line in lines(self.folder / "killed/metrics.jsonl")],
                         list(range(1, 31)))
        hidden = [path.name for path in (self.folder / "killed").iterdir()
                  if path.name.startswith(".")]
        self.assertLessEqual(len(hidden), kills)

    def test_two_runs_in_one_folder(self):
        options = ["--steps", 100000, "--batch", 1, "--schedule", "constant", "--save-every", 0]
        output = self.folder / "shared"
        with start("train", "sft", self.model, "--data", self.data, "-o", output,
                   *map(str, options), stdout=subprocess.DEVNULL) as process:
            while not (output / "metrics.jsonl").exists():
                time.sleep(0.01)
            done = self.sft("shared", *options, "--resume", status=FAILED)
            self.assertIn(f"another run (process {process.pid}) is writing".encode(), done.stderr)
            process.kill()
        self.sft("shared", "--steps", 1, "--schedule", "constant", "--batch", 1, "--resume")

    def test_interrupted(self):
        options = ["--steps", 100000, "--batch", 1, "--schedule", "constant", "--save-every", 0]
        output = self.folder / "interrupted"
        with start("train", "sft", self.model, "--data", self.data, "-o", output,
                   *map(str, options), stdout=subprocess.DEVNULL) as process:
            wait_until_caught(process)
            while not (output / "metrics.jsonl").exists():
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            error = process.stderr.read().decode()
            self.assertEqual(process.wait(), INTERRUPTED, error)
        self.assertIn("continues with --resume", error)
        done = len(lines(output / "metrics.jsonl"))
        self.assertTrue((output / f"checkpoint-{done}").is_dir())
        more = ["--steps", done + 3, *options[2:]]
        self.sft("interrupted", "--resume", *more)
        self.sft("uninterrupted", *more)
        self.assertEqual((output / ADAPTER).read_bytes(),
                         (self.folder / "uninterrupted" / ADAPTER).read_bytes())

    def test_all_weights(self):
        output = self.folder / "full"
        self.sft("full", "--full", "--steps", 30, "--batch", 6, "--lr", 3e-3)
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            self.assertTrue((output / name).exists(), name)
        self.assertTrue(self.answer("Hello!", model=output).startswith("Aye"))
        with open(output / "model.safetensors", "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        self.assertEqual({tensor["dtype"] for name, tensor in header.items()
                          if name != "__metadata__"}, {"F32"})
        self.assertEqual(json.loads((output / "config.json").read_text())["torch_dtype"],
                         "float32")

    def test_pretraining(self):
        text = self.folder / "text.txt"
        text.write_text("the dog ran to the dog and the dog sat. " * 40)
        output = self.folder / "pretrained"
        self.train("pretrain", self.model, "--data", text, "-o", output, "--steps", 20, "--batch",
                   4, "--context", 64, "--threads", 2)
        metrics = lines(output / "metrics.jsonl")
        self.assertLess(metrics[-1]["loss"], 0.6 * metrics[0]["loss"])
        self.assertTrue((output / "model.safetensors").exists())

    def test_from_scratch(self):
        """A configuration becomes a model with a tokenizer of its own; the same bytes each time."""
        config, text = self.folder / "new.json", self.folder / "new.txt"
        config.write_text(json.dumps({
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 300, "max_position_embeddings": 64,
            "tokenizer": {}}))
        text.write_text("the dog ran to the dog and the dog sat. " * 40)
        arguments = ["pretrain", config, "--data", text, "--batch", 4, "--context", 32,
                     "--threads", 2, "--lr", 3e-3, "--steps", 12]
        preview = self.train(*arguments, "--dry-run", "--json")
        self.assertGreater(json.loads(preview.stdout)["parameters"], 10000)
        for name in ("new-a", "new-b"):
            self.train(*arguments, "-o", self.folder / name, "--save-every", 5)
        for name in ("model.safetensors", "tokenizer.json", "config.json"):
            self.assertEqual((self.folder / "new-a" / name).read_bytes(),
                             (self.folder / "new-b" / name).read_bytes(), name)
        done = self.train(*arguments, "-o", self.folder / "new-a", status=FAILED)
        self.assertIn(b"--resume", done.stderr)
        self.train(*arguments, "-o", self.folder / "new-a", "--resume")
        other = self.folder / "other.json"
        other.write_text(config.read_text().replace('"hidden_size": 32', '"hidden_size": 64'))
        for command, difference in (
                (["pretrain", other, *arguments[2:]],
                 b"new-a/start was made with hidden_size 32, this run has 64"),
                ([*arguments, "--seed", 9], b"new-a/start was made with seed 0, this run has 9"),
                (["pretrain", config, "--data", config, *arguments[4:]],
                 b"new-a/start was made with data ")):
            done = self.train(*command, "-o", self.folder / "new-a", "--resume", status=FAILED)
            self.assertIn(difference, done.stderr)
        metrics = lines(self.folder / "new-a/metrics.jsonl")
        self.assertLess(metrics[-1]["loss"], 0.8 * metrics[0]["loss"])
        self.assertNotEqual(self.answer("the", "--raw", model=self.folder / "new-a"), "")

    def test_dry_run(self):
        output = self.folder / "nothing"
        done = self.train("sft", self.model, "--data", self.data, "-o", output, "--dry-run",
                          "--json")
        found = json.loads(done.stdout)
        self.assertEqual(found["samples"], len(QUESTIONS))
        self.assertEqual(found["steps"], 2)
        self.assertGreater(found["parameters"], 0)
        self.assertGreater(found["memory_bytes"], 0)
        self.assertIn("⟦" + STYLE, found["sample"])
        self.assertFalse(output.exists())
        text = self.train("sft", self.model, "--data", self.data, "--dry-run").stdout.decode()
        self.assertIn("12 samples", text)

    def test_dry_run_of_rewards(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "Hello"}\n')
        arguments = ["rl", self.model, "--data", prompts, "--dry-run", "--group", 4, "--answer", 6]
        done = self.train(*arguments, "--reward", "2*length:0:1000", "--reward", "0.5*contains:~~~",
                          "--json")
        found = json.loads(done.stdout)
        self.assertEqual(found["rewards"], {"length": 1, "contains": 0})
        self.assertEqual(found["reward"], 2)
        self.assertEqual(found["rewards_differ"], False)
        self.assertNotEqual(found["completion"], "")
        text = self.train(*arguments, "--reward",
                          "length:0:1000").stdout.decode(errors="replace")
        self.assertIn("completion 1 of 4, sampled", text)
        self.assertIn("reward    1 (length 1); all completions of this prompt have the same", text)
        done = self.train(*arguments, "--reward", "exact_match", status=FAILED)
        self.assertIn(b"answer", done.stderr)
        done = self.train(*arguments, "--reward", "command:exit 3", status=FAILED)
        self.assertIn(b"reward command", done.stderr)
        done = self.train(*arguments, "--reward", f"python:{__file__}", "--unsafe", "--python",
                          "/nowhere/python", status=FAILED)
        self.assertIn(b"/nowhere/python", done.stderr)

    def test_configuration(self):
        config = self.folder / "config.json"
        config.write_text(json.dumps({"data": str(self.data), "steps": 3, "lora-plus": 4,
                                      "weight_decay": 0.1, "target": ["q_proj", "v_proj"]}))
        output = self.folder / "configured"
        done = self.train("sft", self.model, "--config", config, "-o", output, "--steps", 2,
                          "--json")
        self.assertEqual(json.loads(done.stdout)["steps"], 2)
        adapter = json.loads((output / "adapter_config.json").read_text())
        self.assertEqual(adapter["target_modules"], ["q_proj", "v_proj"])
        config.write_text('{"stpes": 3}')
        done = self.train("sft", self.model, "--config", config, "-o", output, status=FAILED)
        self.assertIn(b'unknown setting "stpes"', done.stderr)

    def test_adapter_continues(self):
        first = ["--steps", 1, "--rank", 4, "--alpha", 8, "--target", "0.self_attn.q_proj"]
        self.sft("first", *first)
        self.sft("second", *first, "--adapter", self.folder / "first")
        done = self.sft("third", "--steps", 1, "--rank", 4, "--adapter", self.folder / "first",
                        "--target", "0.self_attn.q_proj", status=FAILED)
        self.assertIn(b"adapter_config.json: lora_alpha is 8, but --alpha is 32; give --alpha 8",
                      done.stderr)
        self.answer("Hello!", "--adapter", f"second={self.folder / 'second'}")

    def test_every_option_is_documented(self):
        text = (ROOT / "docs/train.md").read_text()
        for task in ("sft", "dpo", "rl", "pretrain", "heads"):
            shown = call("train", task, "--help").stdout.decode()
            for option in re.findall(r"^ +(?:-\w, )?--([\w-]+)", shown, re.M):
                if option != "help":
                    self.assertRegex(text, f"`--{option}[`\\[ ]", f"{option} of {task}")

    def test_refusals(self):
        for arguments, status, text in (
                ((), USAGE, "missing subcommand: sft, dpo, rl, pretrain or heads"),
                (("sft",), USAGE, "missing MODEL"),
                (("sft", self.model), USAGE, "missing output"),
                (("sft", self.model, "-o", self.folder / "x"), FAILED, "missing data"),
                (("sft", self.model, "-o", self.folder / "x", "--data", self.folder / "none"),
                 FAILED, "none"),
                (("sft", self.model, "--group", 3), USAGE, "unknown option --group"),
                (("rl", self.model, "-o", self.folder / "x", "--data", self.data), FAILED,
                 "missing reward"),
                (("dpo", self.model, "-o", self.folder / "x", "--data", self.data), FAILED,
                 "expected"),
                (("heads", self.model, "--rank", 3), USAGE, "unknown option --rank"),
                (("heads", self.model, "-o", self.folder / "x", "--data", self.data,
                  "--window", 7), FAILED, "window is 7"),
                (("heads", self.model, "-o", self.folder / "x", "--data", self.data,
                  "--generate", "--answer", 300), FAILED, "answer is 300")):
            done = call("train", *arguments)
            self.assertEqual(done.returncode, status, done.stderr.decode())
            self.assertIn(text, done.stderr.decode())
        self.assertFalse((self.folder / "x").exists())


class Heads(unittest.TestCase):
    """Draft heads of the demo model, which is inside the program."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        # Sanitizers see the same code with few and short answers; others test what is learned.
        cls.short = sanitized()
        samples = "8" if cls.short else "80"
        text = subprocess.run([ROOT / "tools/demo/text", "--samples", samples, "--seed", "7"],
                              check=True, stdout=subprocess.PIPE).stdout
        cls.data = cls.folder / "chats.jsonl"
        cls.data.write_bytes(text)
        cls.prompts = cls.folder / "prompts.jsonl"
        with open(cls.prompts, "w", encoding="utf-8") as file:
            for line in text.decode().splitlines()[:6]:
                question = json.loads(line)["messages"][0]["content"]
                file.write(json.dumps({"prompt": question}) + "\n")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def train(self, output, *more, status=GOOD):
        done = call("train", "heads", "demo", "--data", self.data, "-o", self.folder / output,
                    "--generate", "--answer", 8 if self.short else 40, "--batch",
                    4 if self.short else 16, "--threads", 2, *more)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        return done

    def tokens_per_step(self, kind, output):
        """Of the engine with three drafts a step; answers must be the same with and without."""
        done = call("speculate", "demo", "--draft-heads",
                    self.folder / output / "heads.safetensors", "--source", kind, "--controller",
                    "fixed", "--k", "0,3", "--prompts", self.prompts, "--limit",
                    2 if self.short else 6, "-n", 8 if self.short else 40, "-i", 1, "-t", 2,
                    "--json")
        self.assertEqual(done.returncode, GOOD, done.stderr.decode())
        plain, drafted = json.loads(done.stdout)["configurations"]
        self.assertEqual(drafted["success"], 1)
        return plain["steps"] / drafted["steps"]

    def test_more_tokens_are_accepted(self):
        for kind, steps, before, *more in (("medusa", 50, 1.1), ("eagle", 24, 1.1),
                                           ("layers", 40, 1.8, "--depth", 1)):
            self.train(f"{kind}-new", "--kind", kind, *more, "--steps", 1, "--lr", 0, "--muon-lr",
                       0)
            # The same answers, which are not given again.
            shutil.copytree(self.folder / f"{kind}-new", self.folder / kind, ignore=lambda *_: [
                "checkpoint-1", "heads.safetensors"])
            done = self.train(kind, "--kind", kind, *more, "--steps", 2 if self.short else steps,
                              "--muon-lr", 0.05)
            self.assertNotIn("answered", done.stderr.decode())
            self.assertIn("--draft-heads", done.stdout.decode())
            untrained = self.tokens_per_step(kind, f"{kind}-new")
            trained = self.tokens_per_step(kind, kind)
            metrics = lines(self.folder / kind / "metrics.jsonl")
            print(f"{kind}: {untrained:.2f} tokens a step before, {trained:.2f} after; "
                  f"accepted_1 {metrics[-1]['accepted_1']:.2f}")
            for key in ("loss", "grad_norm", "learning_rate", "accepted_2",
                        "tokens_per_model_step"):
                self.assertIn(key, metrics[0])
            if not self.short:
                self.assertLess(untrained, before)
                self.assertGreater(trained, untrained + 0.3)
                self.assertGreater(metrics[-1]["accepted_1"], 0.5)

    def test_dry_run(self):
        done = call("train", "heads", "demo", "--data", self.data, "--dry-run", "--json")
        self.assertEqual(done.returncode, GOOD, done.stderr.decode())
        shown = json.loads(done.stdout)
        # Four heads with two matrices each, of a model that is 128 wide.
        self.assertEqual(shown["parameters"], 4 * 2 * 128 * 128)
        self.assertGreater(shown["memory_bytes"], 1 << 20)
        self.assertGreater(shown["seconds_per_step"], 0)
        self.assertEqual(shown["task"], "heads")
        prompts = call("train", "heads", "demo", "--data", self.prompts, "--dry-run", "--json")
        shown = json.loads(prompts.stdout)
        self.assertEqual(shown["keys"], "prompt")
        self.assertIsNone(shown["seconds_per_step"])


class Stories(unittest.TestCase):
    """Reinforcement learning on a real model: 260,000 weights that tell stories."""

    def test_reward_rises(self):
        model = test_data("models/stories260K/stories260K.bin")
        if model is None:
            print("SKIPPED: models/stories260K is not here")
            self.skipTest("no stories260K")
        with tempfile.TemporaryDirectory() as scratch:
            prompts = Path(scratch) / "prompts.jsonl"
            prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in (
                "Once upon a time,", "One day, a little girl", "Lily and Tom",
                "There was a boy who")))
            output = Path(scratch) / "dogs"
            # Every step runs the same code; sanitizers see two small ones.
            steps, group = (2, 6) if sanitized() else (30, 32)
            done = call("train", "rl", model, "--data", prompts, "-o", output, "--no-template",
                        "--reward", "contains:dog", "--steps", steps, "--batch", 2, "--group",
                        group, "--answer", group, "--rank", 8, "--lr", 5e-4)
            self.assertEqual(done.returncode, GOOD, done.stderr.decode())
            metrics = lines(output / "metrics.jsonl")
            rewards = [line["reward"] for line in metrics]
            print("rewards", rewards[0], rewards[-1])
            self.assertEqual(len(rewards), steps)
            if steps == 30:
                self.assertLess(sum(rewards[:3]) / 3, 0.3)
                self.assertGreater(sum(rewards[-3:]) / 3, 0.6)
            # Sampled log-probabilities have the bits of training, at every step.
            self.assertEqual({line["sampling/sampling_logp_difference/max"] for line in metrics},
                             {0})
            for key in ("frac_reward_zero_std", "completions/mean_length", "entropy",
                        "rewards/contains/mean"):
                self.assertIn(key, metrics[0])
            # Still sentences: different ones, with words that the model knew before.
            self.assertGreater(metrics[-1]["entropy"], 0.3 * metrics[0]["entropy"])


if __name__ == "__main__":
    if shutil.which(AVOCET) is None:
        raise SystemExit(77)
    unittest.main()
