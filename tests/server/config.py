"""--config: every option is a key, wrong ones are refused by name, options given win."""
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from command import FAILED, GOOD, ROOT, USAGE, call


def help_options():
    text = call("serve", "--help").stdout.decode()
    return set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text, re.MULTILINE)) - {"help"}


def schema():
    done = call("serve", "--config-schema")
    assert done.returncode == GOOD, done.stderr
    return json.loads(done.stdout)


class Config(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-config-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)

    def read(self, config, *flags):
        """Serves a model that is not there: with a good file that is what is wrong."""
        path = self.folder / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        done = call("serve", "--config", path, "--port", 0, *flags)
        return done.returncode, done.stderr.decode()

    def assert_read(self, config, *flags):
        status, text = self.read({"model": "/nowhere/model", **config}, *flags)
        self.assertEqual(status, FAILED, text)
        self.assertIn("/nowhere/model", text)

    def assert_wrong(self, config, *parts):
        status, text = self.read(config)
        self.assertEqual(status, USAGE, text)
        for part in (*parts, "config.json"):
            self.assertIn(part, text)
        self.assertEqual(text.count("\n"), 1, text)

    def test_every_option_has_a_key(self):
        keys = set(schema()["properties"]) - {"model"}
        options = {name.replace("-", "_") for name in help_options()}
        self.assertEqual(keys, options - {"config", "config_schema"})
        self.assertGreater(len(keys), 45)

    def test_every_key_is_taken(self):
        samples = {"string": "text", "boolean": False, "number": 1.5, "array": ["a=b"]}
        config = {}
        for name, facts in schema()["properties"].items():
            value = samples.get(facts["type"], facts.get("minimum", 0) + 1)
            config[name] = facts.get("enum", facts.get("examples", [value]))[0]
            if facts["type"] == "number":
                config[name] = facts["minimum"] + 0.5
        for name in ("tls_cert", "tls_key", "unix_socket", "host"):
            del config[name]
        for name in ("kv_events", "kv_events_replay"):  # bound before the model is opened
            config[name] = "tcp://127.0.0.1:0"
        del config["model"]
        self.assert_read(config)

    def test_wrong_files(self):
        self.assert_wrong('{"port": 1', "line 1")
        self.assert_wrong("[]", "object")
        self.assert_wrong({"sesions": 4}, "\"sesions\"", "did you mean \"sessions\"?")
        self.assert_wrong({"kv-tokens": 4}, "did you mean \"kv_tokens\"?")
        self.assert_wrong({"config": "x"}, "unknown key")
        self.assert_wrong({"port": "80"}, "\"port\"", "an integer")
        self.assert_wrong({"port": 70000}, "\"port\"", "0 to 65535")
        self.assert_wrong({"port": -1}, "\"port\"")
        self.assert_wrong({"port": 1.5}, "\"port\"")
        self.assert_wrong({"kv_type": "f8"}, "\"kv_type\"", "f32|f16")
        self.assert_wrong({"device": "vmx"}, "\"device\"", "unknown device 'vmx'", "available:")
        self.assert_wrong({"lock": 1}, "\"lock\"", "true or false")
        self.assert_wrong({"adapter": "a=b"}, "\"adapter\"", "list")
        self.assert_wrong({"adapter": [1]}, "\"adapter\"", "a string")
        self.assert_wrong({"host": None}, "\"host\"")
        self.assert_wrong({"idle_seconds": "long"}, "\"idle_seconds\"")
        self.assert_wrong('{"port": 1, "port": 2}', "duplicate")
        status = call("serve", "--config", self.folder / "absent.json").returncode
        self.assertEqual(status, USAGE)

    def test_options_given_win(self):
        status, text = self.read({"model": "/nowhere/a"}, "/nowhere/b")
        self.assertIn("/nowhere/b", text)
        status, text = self.read({"model": "/nowhere/a", "tls_cert": "c"})
        self.assertEqual(status, USAGE)
        self.assertIn("--tls-key", text)
        self.assert_read({"model": "/nowhere/model", "host": "no such host!"},
                         "--host", "127.0.0.1")

    def test_units(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("SKIPPED: systemd-analyze is not here (apt-get install systemd)")
        units = [ROOT / "deploy" / name for name in ("avocet.service", "avocet.socket")]
        said = subprocess.run(["systemd-analyze", "verify", *units], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout
        for line in said.splitlines():  # what is not installed here is no fault of theirs
            self.assertRegex(line, "is not executable|man avocet-serve|^$", said)

    def test_examples(self):
        known = schema()["properties"]
        examples = sorted((ROOT / "configs").glob("*.json"))
        self.assertGreaterEqual(len(examples), 4)
        for path in examples:
            config = json.loads(path.read_text())
            self.assertLessEqual({name for name in config if name[0] != "$"}, set(known), path)
            for name in ("tls_cert", "tls_key", "unix_socket", "keys", "access_log", "host"):
                config.pop(name, None)
            config["model"] = "/nowhere/model"
            self.assert_read(config)


if __name__ == "__main__":
    unittest.main()
