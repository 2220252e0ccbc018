"""The model in the binary: found by its name without a network, listed, removed, replaced when the
binary has another one."""
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

from command import call

LISTED = json.loads(call("list", "--json").stdout)["known"]
DEMO = next((known for known in LISTED if known["name"] == "demo"), None)


class Demo(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name) / "models" / "demo"
        self.environment = {**os.environ, "AVOCET_HOME": self.home.name, "AVOCET_OFFLINE": "1",
                            "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}

    def tearDown(self):
        self.home.cleanup()

    def command(self, *arguments, status=0):
        done = call(*arguments, env=self.environment)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def answer(self):
        return self.command("run", "demo", "Who are you?", "--temperature", "0", "-n", "24").stdout

    def test_runs_at_once(self):
        first = self.answer()
        self.assertTrue(first.startswith(b"I am demo, a toy model inside Avocet."), first)
        self.assertEqual(self.folder.joinpath("demo.avo").stat().st_size, DEMO["bytes"])
        self.assertEqual(self.answer(), first)
        listed = json.loads(self.command("list", "--json").stdout)["models"]
        self.assertEqual([(m["name"], m["source"], m["complete"]) for m in listed],
                         [("demo", "avocet", True)])

    def test_pull_and_remove(self):
        self.command("pull", "demo")
        self.assertTrue(self.folder.joinpath("demo.avo").exists())
        self.command("remove", "demo")
        self.assertFalse(self.folder.exists())

    def test_another_binary_replaces_it(self):
        self.command("pull", "demo")
        manifest = self.folder / "avocet-manifest.json"
        content = json.loads(manifest.read_text())
        content["files"][0]["sha256"] = "0" * 64
        manifest.write_text(json.dumps(content))
        self.folder.joinpath("demo.avo").write_bytes(b"old")
        self.assertTrue(self.answer().strip())
        self.assertEqual(self.folder.joinpath("demo.avo").stat().st_size, DEMO["bytes"])

    def test_folder_that_cannot_be_made(self):
        self.environment["AVOCET_HOME"] = "/dev/null/home"
        done = self.command("run", "demo", "Hi", status=1)
        self.assertIn(b"/dev/null/home", done.stderr)


if __name__ == "__main__":
    if DEMO is None:
        print("SKIPPED: this binary has no demo model")
        sys.exit(77)
    unittest.main()
