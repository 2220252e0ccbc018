"""`avocet inspect`: text and JSON of the committed models, --verify, and what it refuses."""
import json
import struct
import tempfile
import unittest
from pathlib import Path

from command import ROOT, call

MODELS = ROOT / "tests" / "fixtures" / "models"
HEADS = ROOT / "tests" / "fixtures" / "heads" / "tiny"


def inspect(*arguments):
    done = call("inspect", *arguments)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def inspect_json(*arguments):
    status, out, error = inspect(*arguments, "--json")
    assert status == 0, error
    return json.loads(out)


def write_safetensors(folder, numbers):
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    header = json.dumps({"w": {"dtype": "F32", "shape": [len(numbers)],
                               "data_offsets": [0, len(data)]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (folder / "config.json").write_text('{"model_type": "llama"}')


class Inspect(unittest.TestCase):
    def test_gguf(self):
        seen = inspect_json(MODELS / "llama3.gguf", "--tensors")
        self.assertEqual(seen["format"], "gguf")
        self.assertEqual(seen["architecture"], "llama")
        self.assertEqual(seen["config"]["layers"], 3)
        self.assertEqual(seen["config"]["rope"]["scaling"], "frequency factors")
        self.assertEqual(len(seen["tensors"]), seen["tensor_count"])
        self.assertEqual(sum(t["bytes"] for t in seen["tensors"]), seen["weight_bytes"])
        self.assertEqual(sum(t["bytes"] for t in seen["types"]), seen["weight_bytes"])
        self.assertEqual(seen["metadata"]["general.architecture"], "llama")
        self.assertAlmostEqual(seen["bits_per_weight"],
                               8 * seen["weight_bytes"] / seen["weights"])

    def test_every_model(self):
        paths = sorted(MODELS.glob("*.gguf")) + sorted(MODELS.glob("*/config.json"))
        self.assertGreater(len(paths), 20)
        for path in paths:
            model = path.parent if path.name == "config.json" else path
            seen = inspect_json(model, "--verify")
            self.assertTrue(seen["verify"]["good"], model)
            self.assertEqual(seen["verify"]["weights"], seen["weights"])
            status, text, _ = inspect(model, "--tensors")
            self.assertEqual(status, 0)
            self.assertIn(f"architecture  {seen['architecture']}\n", text)
            self.assertNotIn("\x1b", text)

    def test_verify_finds_nan(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_safetensors(folder, [1.0, float("nan"), float("inf"), float("nan")])
            status, out, error = inspect(folder, "--json", "--verify")
            self.assertEqual(status, 1)
            self.assertEqual(json.loads(out)["verify"],
                             {"checked": "numbers", "good": False, "weights": 4, "nan": 2,
                              "infinite": 1, "bad_tensors": 1})
            self.assertIn("1 tensors contain NaN or Inf, the first is w", error)
            self.assertEqual(inspect(folder)[0], 0)

    def test_avo(self):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "tiny.avo"
            packed = call("pack", MODELS / "llama3.gguf", "-o", path, "--type", "q8")
            self.assertEqual(packed.returncode, 0, packed.stderr)
            seen = inspect_json(path, "--verify", "--tensors")
            self.assertEqual(seen["format"], "avo")
            self.assertEqual(seen["verify"], {"checked": "sums", "good": True})
            self.assertEqual(seen["notes"]["source"], "llama3.gguf")
            self.assertIn("panels", {t["layout"] for t in seen["tensors"]})
            self.assertIn("all checksums match", inspect(path, "--verify")[1])
            # One bit of one tensor: still opens, and --verify names it.
            tensor = seen["tensors"][5]
            data = bytearray(path.read_bytes())
            data[tensor["offset"] + 3] ^= 4
            path.write_bytes(data)
            self.assertEqual(inspect(path)[0], 0)
            status, out, error = inspect(path, "--verify")
            self.assertEqual((status, out), (1, ""))
            self.assertIn(tensor["name"], error)

    def test_heads(self):
        sizes = {"width": 36, "layers": 3, "vocabulary": 97, "frequent": 61, "base_digest": None}
        layers = {"attention_heads": 3, "kv_heads": 1, "head_size": 12, "feed_forward": 52}
        own = {"f32-medusa": {"kind": "medusa", "heads": 4, "token": True, "taps": [3]},
               "deep-eagle": {"kind": "eagle", "depth": 2, "window": 7, "taps": [1, 2, 3],
                              **layers},
               "q4-layers": {"kind": "layers", "depth": 2, "window": 7, "taps": [], **layers}}
        for name, fields in own.items():
            path = HEADS / f"{name}.safetensors"
            seen = inspect_json(path, "--tensors", "--verify")
            self.assertEqual({**seen["heads"], **sizes, **fields}, seen["heads"])
            self.assertEqual(len(seen["heads"]["base_sha256"]), 64)
            self.assertEqual(seen["files"], [{"path": str(path), "bytes": path.stat().st_size}])
            self.assertEqual(len(seen["tensors"]), seen["tensor_count"])
            self.assertIn("frequent", {tensor["name"] for tensor in seen["tensors"]})
            self.assertEqual(sum(t["bytes"] for t in seen["tensors"]), seen["weight_bytes"])
            self.assertTrue(seen["verify"]["good"])
            self.assertFalse({"architecture", "config", "tokenizer"} & set(seen))
            status, text, _ = inspect(path)
            self.assertEqual(status, 0)
            for line in (f"draft heads   {fields['kind']}", "base digest   not said",
                         "base model    3 layers, width 36, vocabulary 97",
                         f"base SHA-256  {seen['heads']['base_sha256']}",
                         "taps          " + " ".join(["layer", *map(str, fields["taps"])])
                         if fields["taps"] else "taps          none",
                         "frequent      61 of 97 tokens can be drafted"):
                self.assertIn(line + "\n", text)
            if "depth" in fields:
                self.assertIn("depth         2 layers, feed-forward 52\n", text)
                self.assertIn("window        7 positions\n", text)
            self.assertIn(f"tensors       {seen['tensor_count']}, ", text)

    def test_heads_with_wrong_fields(self):
        data = (HEADS / "f32-medusa.safetensors").read_bytes()
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "wrong.safetensors"
            path.write_bytes(data.replace(b"medusa", b"gorgon", 1))
            status, out, error = inspect(path)
            self.assertEqual((status, out), (1, ""))
            self.assertIn('wrong.safetensors: avocet.heads: kind is "gorgon", must be', error)

    def test_refusals(self):
        self.assertEqual(inspect()[0], 2)
        self.assertEqual(inspect("a", "b")[0], 2)
        self.assertEqual(inspect("--tensor", "a")[0], 2)
        status, out, error = inspect("/nonexistent.gguf")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("/nonexistent.gguf", error)
        self.assertEqual(error.count("\n"), 1)
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "cut.gguf"
            path.write_bytes((MODELS / "llama3.gguf").read_bytes()[:-100])
            status, out, error = inspect(path)
            self.assertEqual((status, out), (1, ""))
            self.assertIn("cut.gguf: tensor", error)


if __name__ == "__main__":
    unittest.main()
