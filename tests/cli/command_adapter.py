"""`avocet adapter inspect|pack|merge` on the adapters that peft has made: text, JSON, files, and
what is refused with which exit status."""
import array
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from command import FAILED, GOOD, ROOT, USAGE, call

ADAPTERS = ROOT / "tests" / "fixtures" / "adapters"
MODELS = ROOT / "tests" / "fixtures" / "models"


def adapter(*arguments):
    done = call("adapter", *arguments)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def base_of(name):
    return MODELS / (ADAPTERS / name / "base.txt").read_text().strip()


def header_of(path):
    raw = path.read_bytes()
    return json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])


def floats_of(path):
    """The numbers of every F32 tensor of a safetensors file."""
    raw, header = path.read_bytes(), header_of(path)
    data = raw[8 + int.from_bytes(raw[:8], "little"):]
    return {name: array.array("f", data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if entry.get("dtype") == "F32"}


class Adapter(unittest.TestCase):
    def test_inspect_every_one(self):
        names = sorted(path.parent.name for path in ADAPTERS.glob("*/base.txt"))
        self.assertGreater(len(names), 20)
        for name in names:
            status, out, error = adapter("inspect", ADAPTERS / name, base_of(name), "--json")
            self.assertEqual(status, GOOD, error)
            seen = json.loads(out)
            self.assertEqual(seen["modules_matched"], seen["modules_expected"])
            self.assertEqual(len(seen["modules"]), seen["modules_matched"])
            lines = (ADAPTERS / name / "modules.txt").read_text().splitlines()
            wanted = {line.split()[0]: line.split()[1:] for line in lines}
            found = {m["name"]: m for m in seen["modules"] if m["kind"] != "bias"}
            self.assertEqual(sorted(found), sorted(wanted), name)
            for module, (kind, rank, scale, norm) in wanted.items():
                self.assertEqual(found[module]["kind"], kind)
                self.assertEqual(found[module]["rank"], int(rank))
                self.assertAlmostEqual(found[module]["scale"], float(scale), 6)
                self.assertLess(abs(found[module]["norm"] / float(norm) - 1), 0.02)

    def test_the_table_aligns(self):
        status, out, _ = adapter("inspect", ADAPTERS / "saved-norms", base_of("saved-norms"))
        self.assertEqual(status, GOOD)
        head, table = out.split("\n\n")
        self.assertIn("50 of 50 modules applied", head)
        rows = table.splitlines()
        self.assertEqual(len({len(row) for row in rows}), 1)
        self.assertEqual(len(rows), 51)

    def test_pack_gives_the_same_adapter(self):
        with tempfile.TemporaryDirectory() as name:
            packed = Path(name) / "one.avoa"
            for kind in ("q8", "f16", "f32"):
                status, out, error = adapter("pack", ADAPTERS / "dora", base_of("dora"), "-o",
                                             packed, "--type", kind)
                self.assertEqual(status, GOOD, error)
                self.assertIn(kind, out)
                _, first, _ = adapter("inspect", ADAPTERS / "dora", base_of("dora"), "--json",
                                      "--type", kind)
                _, second, _ = adapter("inspect", packed, base_of("dora"), "--json")
                first, second = json.loads(first), json.loads(second)
                for key in ("digest", "modules", "bytes", "type", "method", "rank_max"):
                    self.assertEqual(first[key], second[key], key)

    def test_pack_spares_what_it_reads(self):
        with tempfile.TemporaryDirectory() as name:
            own, base = Path(name) / "own", Path(name) / "base"
            shutil.copytree(ADAPTERS / "dora", own)
            shutil.copytree(base_of("dora"), base)
            packed = Path(name) / "one.avoa"
            self.assertEqual(adapter("pack", own, base, "-o", packed)[0], GOOD)
            for what, output in (("model", base / "model.safetensors"),
                                 ("adapter", own / "adapter_model.safetensors"),
                                 ("adapter", own / "adapter_config.json")):
                before = output.read_bytes()
                status, _, error = adapter("pack", own, base, "-o", output)
                self.assertEqual(status, FAILED)
                self.assertIn(f"is a file of the {what} itself", error)
                self.assertEqual(output.read_bytes(), before)
            status, _, error = adapter("pack", packed, base, "-o", packed)
            self.assertEqual(status, FAILED)
            self.assertIn("is a file of the adapter itself", error)

    def test_merge(self):
        with tempfile.TemporaryDirectory() as name:
            merged = Path(name) / "merged.avo"
            status, out, error = adapter("merge", base_of("plain"), f"{ADAPTERS / 'plain'}:0.5",
                                         f"{ADAPTERS / 'dora'}:-0.25", "-o", merged, "--type", "q8",
                                         "--json")
            self.assertEqual(status, GOOD, error)
            seen = json.loads(out)
            self.assertEqual((seen["adapters"], seen["type"]), (2, "q8b"))
            self.assertEqual(seen["bytes"], merged.stat().st_size)
            done = call("inspect", merged, "--verify", "--json")
            self.assertTrue(json.loads(done.stdout)["verify"]["good"])
            status, _, error = adapter("merge", merged, ADAPTERS / "conv1d", "-o",
                                       Path(name) / "x.avo")
            self.assertEqual(status, FAILED)
            self.assertFalse((Path(name) / "x.avo").exists())
            status, _, error = adapter("merge", merged, ADAPTERS / "plain", "-o", merged)
            self.assertEqual(status, FAILED)
            self.assertIn("choose another output", error)

    def test_merge_to_a_folder(self):
        with tempfile.TemporaryDirectory() as name:
            base, merged = base_of("conv1d"), Path(name) / "merged"
            status, out, error = adapter("merge", base, ADAPTERS / "conv1d", "-o", merged,
                                         "--format", "safetensors", "--json")
            self.assertEqual(status, GOOD, error)
            seen = json.loads(out)
            self.assertEqual((seen["adapters"], seen["type"]), (1, "keep"))
            model = merged / "model.safetensors"
            self.assertEqual(seen["bytes"], model.stat().st_size)
            self.assertEqual(header_of(model).keys(), header_of(base / model.name).keys())
            self.assertEqual((merged / "config.json").read_bytes(),
                             (base / "config.json").read_bytes())
            self.assertEqual(call("inspect", merged).returncode, GOOD)
            # Subtracting the adapter again gives the base back, up to rounding.
            back = Path(name) / "back"
            status, out, error = adapter("merge", merged, f"{ADAPTERS / 'conv1d'}:-1", "-o",
                                         f"{back}/", "--format", "safetensors", "--type", "f32")
            self.assertEqual(status, GOOD, error)
            self.assertIn("tensors as f32", out)
            for tensor, numbers in floats_of(base / model.name).items():
                for a, b in zip(numbers, floats_of(back / model.name)[tensor]):
                    self.assertAlmostEqual(a, b, 5)
            status, _, error = adapter("merge", base, ADAPTERS / "conv1d", "-o", merged,
                                       "--format", "safetensors")
            self.assertEqual(status, FAILED)
            self.assertIn("not an empty folder", error)
            status, _, error = adapter("merge", f"{base}.gguf", ADAPTERS / "conv1d", "-o",
                                       Path(name) / "x", "--format", "safetensors")
            self.assertEqual(status, FAILED)
            self.assertIn("write a .avo file instead", error)
            self.assertEqual(sorted(path.name for path in Path(name).iterdir()),
                             ["back", "merged"])

    def test_refusals(self):
        plain, base = ADAPTERS / "plain", base_of("plain")
        usage = [[], ["nothing"], ["inspect"], ["inspect", plain], ["pack", plain, base],
                 ["merge", base, "-o", "x.avo"], ["merge", base, plain],
                 ["inspect", plain, base, "--type", "q4"],
                 ["merge", base, plain, "-o", "x.avo", "--type", "keep"],
                 ["merge", base, plain, "-o", "x.avo", "--format", "gguf"],
                 ["merge", base, plain, "--format", "safetensors"]]
        for arguments in usage:
            status, out, error = adapter(*arguments)
            self.assertEqual(status, USAGE, arguments)
            self.assertEqual(len(error.splitlines()), 1)
            self.assertEqual(out, "")
        failing = [["inspect", plain, base_of("conv1d")], ["inspect", base, base],
                   ["inspect", ADAPTERS / "nowhere", base], ["inspect", base / "config.json", base]]
        for arguments in failing:
            status, out, error = adapter(*arguments)
            self.assertEqual(status, FAILED, arguments)
            self.assertEqual(len(error.splitlines()), 1)
            self.assertEqual(out, "")

    def test_what_is_said(self):
        plain, base = ADAPTERS / "plain", base_of("plain")
        with tempfile.TemporaryDirectory() as name:
            packed = Path(name) / "a.avoa"
            self.assertEqual(adapter("pack", plain, base, "-o", packed)[0], GOOD)
            empty = Path(name) / "empty"
            shutil.copytree(plain, empty)
            (empty / "adapter_config.json").write_text("")
            for arguments, part in (
                    (["merge", base, f"{plain}:nan", "-o", packed], "must be a number"),
                    (["merge", base, f"{plain}:1e39", "-o", packed], "must be a number"),
                    (["merge", base, plain, f"{plain}:-1", "-o", Path(name) / "m.avo"], "twice"),
                    (["inspect", packed, base, "--type", "f32"], "packed as q8"),
                    (["inspect", plain / "adapter_model.safetensors", base],
                     "one file of a PEFT adapter; give the folder"),
                    (["inspect", empty, base], f"{empty}/adapter_config.json: ")):
                status, _, error = adapter(*arguments)
                self.assertEqual(status, FAILED, arguments)
                self.assertIn(part, error)
            self.assertEqual(adapter("inspect", packed, base, "--type", "q8")[0], GOOD)

    def test_pickles_are_named(self):
        with tempfile.TemporaryDirectory() as name:
            shutil.copy(ADAPTERS / "plain" / "adapter_config.json", name)
            (Path(name) / "adapter_model.bin").write_bytes(b"\x80\x02}q\x00.")
            status, _, error = adapter("inspect", name, base_of("plain"))
            self.assertEqual(status, FAILED)
            self.assertIn("pickle", error)

    def test_help(self):
        for part in ([], ["inspect"], ["pack"], ["merge"]):
            status, out, _ = adapter(*part, "--help")
            self.assertEqual(status, GOOD)
            self.assertIn("Examples:", out)


if __name__ == "__main__":
    unittest.main()
