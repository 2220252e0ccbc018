"""`avocet pack`: what it writes, what it says, and that a failure leaves nothing behind."""
import json
import signal
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import tiny_model
from api_server import sanitized
from command import AVOCET, PATIENCE, ROOT, call, wait_until

MODELS = ROOT / "tests" / "fixtures" / "models"
MIB = 1 << 20


def pack(*arguments):
    done = call("pack", *arguments)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Pack(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "model.avo"

    def files(self):
        return sorted(path.name for path in Path(self.folder.name).iterdir())

    def test_every_type(self):
        bits = {"f32": 32, "f16": 16, "bf16": 16, "f8c": 8, "q8": 8.5, "q8b": 8.5, "q8c": 8,
                "q5_0": 5.5, "q5_1": 6, "q4": 4.4, "q4r": 4.4, "q4_0": 4.5, "q4_1": 5,
                "q4b64": 4.2, "q4m64": 4.5, "keep": 16}
        full = {"q8": "q8b", "q4": "q4r"}
        for name, least in bits.items():
            status, out, error = pack(MODELS / "smollm2", "-o", self.path, "--type", name, "--json")
            self.assertEqual(status, 0, error)
            report = json.loads(out)
            self.assertEqual(report["type"], full.get(name, name))
            self.assertEqual(report["bytes"], self.path.stat().st_size)
            self.assertGreaterEqual(report["bits_per_weight"], least)
            done = call("inspect", self.path, "--verify", "--json")
            seen = json.loads(done.stdout)
            self.assertEqual(done.returncode, 0)
            self.assertEqual((seen["format"], seen["architecture"]), ("avo", "llama"))
            if name in ("q8", "q8b", "q8c", "f8c"):  # tied: a table beside the head
                self.assertGreater(seen["weights"], report["parameters"])
                self.assertGreater(report["bits_per_weight"], report["bits_per_weight_read"])
            else:
                self.assertEqual(seen["weights"], report["parameters"])
        self.assertEqual(self.files(), ["model.avo"])

    def test_recommended(self):
        """Without a type numbers are kept, and what halves them is named; a calibration alone is
        what docs/quantisation.md recommends."""
        model = tiny_model.write(self.folder.name)
        text = Path(self.folder.name) / "text.txt"
        text.write_text("once upon a time there was a quick brown fox. " * 20)
        statistics = Path(self.folder.name) / "text.cal"
        call("calibrate", model, "--file", text, "-o", statistics)
        status, out, error = pack(model, "-o", self.path)
        self.assertEqual(status, 0, error)
        self.assertIn(f"avocet pack {model} -o {self.path} --calibrate TEXT", out)
        kept = self.path.read_bytes()
        status, out, _ = pack(model, "-o", self.path, "--calibrate", statistics, "--json")
        self.assertEqual((status, json.loads(out)["type"]), (0, "q8b"))
        self.assertLess(json.loads(out)["bits_per_weight"], 10)  # norms of f32 are much here
        recommended = self.path.read_bytes()
        self.assertLess(len(recommended), 0.5 * len(kept))
        explicit = self.path.with_name("explicit.avo")
        status, out, _ = pack(model, "-o", explicit, "--type", "q8", "--look-up", "shared",
                              "--calibrate", statistics)
        self.assertEqual((status, explicit.read_bytes()), (0, recommended))
        self.assertNotIn("kept", out)
        # what is packed already has nothing to gain
        self.assertNotIn("kept", pack(explicit, "-o", self.path)[1])
        pack(model, "-o", self.path, "--calibrate", statistics, "--look-up", "f16")
        self.assertGreater(len(self.path.read_bytes()), len(recommended))

    def test_bits(self):
        """The budget holds, more bits are never worse, and the table adds up."""
        model = tiny_model.write(self.folder.name)
        text = Path(self.folder.name) / "text.txt"
        text.write_text("once upon a time there was a quick brown fox. " * 20)
        statistics = Path(self.folder.name) / "text.cal"
        done = call("calibrate", model, "--file", text, "-o", statistics, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual((seen["inputs"], seen["bytes"]), (9, statistics.stat().st_size))
        errors = []
        for bits in ("5.5", "7", "9", "16.5"):
            status, out, error = pack(model, "-o", self.path, "--bits", bits, "--calibrate",
                                      statistics, "--json")
            self.assertEqual(status, 0, error)
            report = json.loads(out)
            self.assertEqual(report["type"], "mixed")
            self.assertLessEqual(report["bits_per_weight"], float(bits))
            self.assertEqual(sum(group["weights"] for group in report["groups"]),
                             report["parameters"])
            errors.append(sum(group["weights"] * group["error"] for group in report["groups"]))
        self.assertEqual(errors, sorted(errors, reverse=True))
        self.assertEqual(errors[-1], 0)  # f16 for all
        # measured on a text: the budget holds all the same, and nothing else is left behind
        before = self.files()
        status, out, error = pack(model, "-o", self.path, "--bits", "7", "--calibrate", statistics,
                                  "--sensitivity", text, "--json")
        self.assertEqual(status, 0, error)
        self.assertLessEqual(json.loads(out)["bits_per_weight"], 7)
        self.assertEqual(self.files(), before)
        for wrong, part in ((("--sensitivity", text), "--bits"),
                            (("--bits", "7", "--sensitivity", "nothing.txt"), "nothing.txt")):
            status, out, error = pack(model, "-o", self.path, *wrong)
            self.assertNotEqual(status, 0)
            self.assertIn(part, error)
        self.assertEqual(self.files(), before)
        # a text instead of its statistics gives the same file, and leaves nothing behind
        first = self.path.with_name("first.avo")
        self.assertEqual(pack(model, "-o", first, "--type", "q4", "--calibrate", statistics)[0], 0)
        status, out, _ = pack(model, "-o", self.path, "--type", "q4", "--calibrate", text)
        self.assertEqual(status, 0)
        self.assertIn("token_embd", out)
        self.assertEqual(first.read_bytes(), self.path.read_bytes())
        self.assertEqual(pack(model, "-o", first, "--type", "q4")[0], 0)
        self.assertNotEqual(first.read_bytes(), self.path.read_bytes())
        self.assertEqual(self.files(), ["first.avo", "model.avo", "model.bin", "text.cal",
                                        "text.txt", "tokenizer.bin"])

    def test_calibration_refusals(self):
        model = tiny_model.write(self.folder.name)
        text = Path(self.folder.name) / "text.txt"
        text.write_text("once upon a time")
        before = self.files()
        for arguments, part, wanted in [
            (("calibrate", model, "-o", self.path), "--file", 2),
            (("calibrate", model, "--file", text), "-o FILE", 2),
            (("calibrate", "--file", text, "-o", self.path), "MODEL", 2),
            (("calibrate", model, "--file", text, "-o", self.path, "--ctx", "0"), "--ctx", 2),
            (("calibrate", model, "--file", "/no/such.txt", "-o", self.path), "/no/such.txt", 1),
            (("pack", model, "-o", self.path, "--bits", "x"), "not a number", 2),
            (("pack", model, "-o", self.path, "--bits", "3"), "must be 4 to 32", 2),
            (("pack", model, "-o", self.path, "--bits", "4.5", "--type", "q4"), "--type", 2),
            (("pack", model, "-o", self.path, "--bits", "4.001"), "too few", 1),
            (("pack", model, "-o", self.path, "--effort", "3"), "--effort", 2),
            (("pack", model, "-o", self.path, "--effort", "1", "--calibrate", "x"), "--effort", 2),
            (("pack", model, "-o", ""), "-o FILE", 2),
            (("pack", "--random", "tiny", "-o", self.path, "--bits", "5"), "random", 2),
            (("pack", "--random", "tiny", "-o", self.path, "--calibrate", text), "random", 2),
            (("pack", "--random", "tiny", "-o", self.path, "--look-up", "f32"), "--look-up", 2),
            (("pack", "--random", "tiny", "-o", self.path, "--tensors", "nothing=q8"),
             "no matrix has \"nothing\"", 1),
            (("pack", model, "-o", self.path, "--type", "q4", "--calibrate", "/no/such.cal"),
             "/no/such.cal", 1),
        ]:
            done = call(*arguments)
            self.assertEqual(done.returncode, wanted, (arguments, done))
            self.assertIn(part, done.stderr.decode())
            self.assertEqual(self.files(), before)
        # a file of statistics that was cut off
        statistics = Path(self.folder.name) / "text.cal"
        self.assertEqual(call("calibrate", model, "--file", text, "-o", statistics).returncode, 0)
        statistics.write_bytes(statistics.read_bytes()[:-5])
        status, _, error = pack(model, "-o", self.path, "--type", "q4", "--calibrate", statistics)
        self.assertEqual((status, "file size" in error), (1, True), error)

    def test_text(self):
        status, out, error = pack(MODELS / "llama3.gguf", "-o", self.path)
        self.assertEqual((status, error), (0, ""))
        self.assertIn("bits per weight", out)

    def test_usage(self):
        for arguments, part in [
            ((MODELS / "llama3.gguf",), "-o FILE.avo"),
            (("-o", self.path), "needs one MODEL"),
            ((MODELS / "llama3.gguf", "-o", self.path, "--type", "q9"), "unknown type \"q9\""),
            (("--random", "tiny", "model", "-o", self.path), "takes no MODEL"),
            ((MODELS / "llama3.gguf", "-o", self.path, "--tipe", "q8"), "--type"),
        ]:
            status, _, error = pack(*arguments)
            self.assertEqual(status, 2, error)
            self.assertIn(part, error)
        self.assertEqual(self.files(), [])

    def test_failures(self):
        self.path.write_bytes(b"what was there before")
        for arguments, part in [
            (("/no/such/model", "-o", self.path), "/no/such/model"),
            ((MODELS / "llama3.gguf", "-o", "/no/such/folder/x.avo"), "/no/such/folder"),
            (("--random", "enormous", "-o", self.path), "tinyllama-1.1b"),
        ]:
            status, _, error = pack(*arguments)
            self.assertEqual(status, 1, error)
            self.assertIn(part, error)
            self.assertEqual(error.count("\n"), 1)
        self.assertEqual(self.path.read_bytes(), b"what was there before")
        self.assertEqual(self.files(), ["model.avo"])

    def test_the_model_itself(self):
        pack(MODELS / "llama3.gguf", "-o", self.path)
        before = self.path.read_bytes()
        status, _, error = pack(self.path, "-o", self.path, "--type", "q8")
        self.assertEqual(status, 1)
        self.assertIn("a file of the model itself", error)
        self.assertEqual(self.path.read_bytes(), before)

    def test_what_is_read_is_never_overwritten(self):
        model = tiny_model.write(self.folder.name)
        text = Path(self.folder.name) / "text.txt"
        text.write_text("once upon a time there was a quick brown fox. " * 4)
        statistics = Path(self.folder.name) / "text.cal"
        self.assertEqual(call("calibrate", model, "--file", text, "-o", statistics).returncode, 0)
        link = Path(self.folder.name) / "link"
        link.symlink_to(text)
        before = {name: (Path(self.folder.name) / name).read_bytes() for name in self.files()}
        q4 = ("--type", "q4")
        for arguments, part in [
            (("calibrate", model, "--file", text, "-o", model), "a file of the model itself"),
            (("calibrate", model, "--file", text, "-o", text), "is also the input file"),
            (("calibrate", model, "--file", text, "-o", link), "is also the input file"),
            (("pack", model, *q4, "--calibrate", text, "-o", text), "is also the input file"),
            (("pack", model, *q4, "--calibrate", text, "-o", link), "is also the input file"),
            (("pack", model, *q4, "--calibrate", statistics, "-o", statistics),
             "is also the input file"),
            (("pack", model, "--bits", "7", "--sensitivity", text, "-o", text),
             "is also the input file"),
        ]:
            done = call(*arguments)
            self.assertEqual(done.returncode, 1, (arguments, done))
            self.assertIn(part, done.stderr.decode())
            self.assertEqual(before, {name: (Path(self.folder.name) / name).read_bytes()
                                      for name in self.files()})

    def test_damaged(self):
        data = bytearray((MODELS / "llama2" / "model.safetensors").read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        where = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0] + 8 + size
        data[where:where + 4] = struct.pack("<f", float("nan"))
        model = Path(self.folder.name) / "broken"
        model.mkdir()
        (model / "model.safetensors").write_bytes(data)
        (model / "config.json").write_bytes((MODELS / "llama2" / "config.json").read_bytes())
        status, _, error = pack(model, "-o", self.path)
        self.assertEqual(status, 1)
        self.assertIn("blk.1.ffn_up.weight: row 0, column 0 is nan", error)
        self.assertEqual(self.files(), ["broken"])

    def test_interrupt_leaves_nothing(self):
        process = subprocess.Popen([AVOCET, "pack", "--random", "tinyllama-1.1b", "-o", self.path,
                                    "--type", "q4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(self.files)
        self.assertEqual(len(self.files()), 1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(self.files(), [])

    @unittest.skipIf(sanitized(), "sanitizers need memory of their own")
    def test_memory(self):
        """A source of 96 MiB in one tensor: memory stays far below it."""
        config = json.loads((MODELS / "llama2" / "config.json").read_text())
        config.update(vocab_size=384 * 1024, hidden_size=64, intermediate_size=64,
                      num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                      tie_word_embeddings=True)
        model = Path(self.folder.name) / "large"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config))
        shapes = {"model.embed_tokens.weight": [384 * 1024, 64], "model.norm.weight": [64]}
        for name in ["input_layernorm", "post_attention_layernorm"]:
            shapes[f"model.layers.0.{name}.weight"] = [64]
        for name in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                     "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]:
            shapes[f"model.layers.0.{name}.weight"] = [64, 64]
        header, at = {}, 0
        for name, shape in shapes.items():
            size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        with open(model / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + at)
        status, out, error = pack(model, "-o", self.path, "--type", "q8", "--json")
        self.assertEqual(status, 0, error)
        report = json.loads(out)
        self.assertGreater(report["parameters"], 24 * MIB)
        self.assertLess(report["memory_peak_bytes"], 80 * MIB)


if __name__ == "__main__":
    unittest.main()
