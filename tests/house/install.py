"""An installed copy: what is in it, pkg-config, and the example built against it, run."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import tiny_model

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = os.environ["AVO_BINARY_FOLDER"]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.stage = Path(cls.scratch.name) / "stage"
        run("cmake", "--install", BUILD, "--prefix", "/usr",
            env=dict(os.environ, DESTDIR=str(cls.stage)))
        # The staged copy moves, as packages do: nothing may remember where it was.
        cls.prefix = Path(cls.scratch.name) / "moved"
        shutil.move(cls.stage / "usr", cls.prefix)
        cls.libraries = next(cls.prefix.rglob("libavocet.so")).parent
        cls.environment = dict(os.environ, PKG_CONFIG_PATH=str(cls.libraries / "pkgconfig"),
                               LD_LIBRARY_PATH=str(cls.libraries))
        cls.model = tiny_model.write(cls.scratch.name)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def flags(self, *arguments):
        return run("pkg-config", *arguments, "avocet", env=self.environment).split()

    def test_what_is_there(self):
        names = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")
                 if not path.is_dir()}
        headers = {name for name in names if name.endswith(".h")}
        self.assertEqual(headers, {"include/avocet.h", "include/avocet/chat.h",
                                   "include/avocet/grammar.h", "include/avocet/scheduler.h",
                                   "include/avocet/train.h"})
        for part in ("bin/avocet", "libavocet.a", "libavocet.so", "libavocet.so.0", "avocet.pc",
                     "LICENSE", "bash-completion/completions/avocet", "site-functions/_avocet",
                     "vendor_completions.d/avocet.fish"):
            self.assertTrue(any(name.endswith(part) for name in names), part)
        self.assertEqual(list(self.stage.rglob("*.*")), [])

    def test_command_runs(self):
        self.assertIn("0.1.0", run(self.prefix / "bin/avocet", "version"))

    def test_paths_follow_the_copy(self):
        for flag in self.flags("--cflags", "--libs"):
            if flag.startswith(("-I", "-L")):
                self.assertTrue(os.path.realpath(flag[2:]).startswith(
                    os.path.realpath(self.prefix)), flag)

    def example(self, name, libraries, source="generate.c"):
        program = Path(self.scratch.name) / name
        run("cc", "-std=c17", "-Wall", "-Wextra", "-pedantic", "-Werror",
            ROOT / "examples" / source, "-o", program, *self.flags("--cflags"), *libraries)
        return program

    def check(self, program, environment):
        first = run(program, self.model, "once upon a time", env=environment)
        self.assertGreater(len(first), 0)
        self.assertEqual(first, run(program, self.model, "once upon a time", env=environment))
        bad = subprocess.run([str(program), "no-such-file", "x"], env=environment,
                             stderr=subprocess.PIPE, text=True)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("no-such-file", bad.stderr)
        return first

    def test_example_shared_and_static(self):
        shared = self.example("shared", self.flags("--libs"))
        self.assertIn("libavocet.so.0", run("readelf", "-d", shared))
        static = self.example("static", [self.libraries / "libavocet.a"] + [
            flag for flag in self.flags("--libs", "--static") if flag != "-lavocet"])
        self.assertNotIn("libavocet", run("readelf", "-d", static))
        alone = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        self.assertEqual(self.check(shared, self.environment), self.check(static, alone))

    def test_example_of_the_scheduler(self):
        program = self.example("serve", self.flags("--libs"), "serve.c")
        text = run(program, self.model, env=self.environment)
        self.assertEqual(sorted(line.split(",")[0] for line in text.splitlines()
                                if ": done" in line), [f"{i}: done" for i in range(4)])

    def test_example_is_short(self):
        lines = (ROOT / "examples/generate.c").read_text().splitlines()
        self.assertLessEqual(len(lines), 45)


if __name__ == "__main__":
    unittest.main()
