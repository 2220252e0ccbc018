"""Models that come with the program (share/avocet/models of its prefix): found, only read."""
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import tiny_model
from command import AVOCET, PATIENCE


class Bundled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.prefix = Path(cls.scratch.name) / "avocet"
        (cls.prefix / "bin").mkdir(parents=True)
        cls.program = cls.prefix / "bin/avocet"
        try:
            os.link(os.path.realpath(AVOCET), cls.program)
        except OSError:
            shutil.copy(AVOCET, cls.program)
        (cls.prefix / "avocet").symlink_to("bin/avocet")
        cls.model = Path(cls.scratch.name) / "model.avo"
        subprocess.run([AVOCET, "pack", tiny_model.write(cls.scratch.name), "-o", cls.model],
                       check=True, stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        self.home = Path(self.scratch.name) / "home"
        self.shelf = self.prefix / "share/avocet/models"
        self.environment = {"HOME": str(self.home), "AVOCET_OFFLINE": "1"}
        self.put(self.shelf, "smollm2", "bundled")

    def tearDown(self):
        shutil.rmtree(self.shelf)
        shutil.rmtree(self.home, ignore_errors=True)

    def put(self, shelf, name, source, manifest=True):
        folder = shelf / name.replace("/", "--")
        folder.mkdir(parents=True)
        shutil.copy(self.model, folder / "model.avo")
        data = self.model.read_bytes()
        file = {"path": "model.avo", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if manifest:
            (folder / "avocet-manifest.json").write_text(json.dumps(
                {"format": 1, "name": name, "source": source, "revision": "", "licence": "",
                 "date": "", "model": "model.avo", "files": [file]}))
        return folder

    def call(self, *arguments, program=None, status=0):
        done = subprocess.run([program or self.program, *map(str, arguments)], check=False,
                              env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=PATIENCE, cwd="/")
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def models(self):
        return [(model["name"], model["source"], model["bundled"], model["complete"])
                for model in json.loads(self.call("list", "--json"))["models"]]

    def pulled(self):
        return self.home / ".local/share/avocet/models"

    def test_answers_through_a_link_and_writes_nothing(self):
        wanted = self.call("run", self.model, "once", "-n", "8", "--ignore-eos")
        for program in (self.program, self.prefix / "avocet"):
            self.assertEqual(self.call("run", "smollm2", "once", "-n", "8", "--ignore-eos",
                                       program=program), wanted)
        self.assertFalse(self.home.exists())

    def test_without_a_home(self):
        for environment in ({}, {"HOME": ""}, {"HOME": "/dev/null"}):
            self.environment = environment
            self.assertEqual(self.models(), [("smollm2", "bundled", True, True)])
            self.call("run", "smollm2", "once", "-n", "1")
        shutil.rmtree(self.shelf / "smollm2")
        self.assertIn("/dev/null", self.call("list", status=1))

    def test_a_pulled_model_comes_first(self):
        self.put(self.pulled(), "smollm2", "pulled")
        self.put(self.pulled(), "a/b", "mine")
        self.assertEqual(self.models(), [("a/b", "mine", False, True),
                                         ("smollm2", "pulled", False, True)])
        self.call("remove", "smollm2")
        self.assertEqual(self.models(), [("a/b", "mine", False, True),
                                         ("smollm2", "bundled", True, True)])

    def test_an_interrupted_pull_hides_nothing(self):
        self.put(self.pulled(), "smollm2", "", manifest=False)
        self.assertEqual(self.models(), [("smollm2", "bundled", True, True)])
        self.call("run", "smollm2", "once", "-n", "1")

    def test_what_is_not_whole_is_not_listed(self):
        self.put(self.shelf, "other", "", manifest=False)
        self.assertEqual(self.models(), [("smollm2", "bundled", True, True)])

    def test_pull_finds_it_and_remove_refuses(self):
        said = json.loads(self.call("pull", "smollm2", "--json"))
        self.assertEqual((said["path"], said["fetched_bytes"]),
                         (str(self.shelf / "smollm2/model.avo"), 0))
        said = self.call("remove", "smollm2", status=1)
        self.assertIn("comes with this installation", said)
        self.assertIn(str(self.shelf / "smollm2"), said)
        self.assertTrue((self.shelf / "smollm2/model.avo").exists())
        self.assertIn("nothing to remove", self.call("remove", "gemma3-270m", status=1))


if __name__ == "__main__":
    unittest.main()
