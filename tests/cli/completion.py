"""Completion scripts and manual pages: made from the commands' own tables, and understood by those
who read them."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from command import AVOCET, GOOD, USAGE, call


def text_of(*arguments):
    done = call(*arguments)
    assert done.returncode == GOOD, done.stderr
    return done.stdout.decode()


def pages():
    return text_of("manual", "--list").split()


def flags_of(page):
    """Long options as the help lists them."""
    words = [] if page == "avocet" else page.split("-", 1)
    return set(re.findall(r"^  (?:-\w, |    )--([a-z0-9-]+)", text_of("help", *words), re.M))


class Bash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-completion-")
        cls.script = os.path.join(cls.scratch.name, "avocet.bash")
        with open(cls.script, "w", encoding="utf-8") as file:
            file.write(text_of("completion", "bash"))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def complete(self, *words):
        listed = " ".join(f"'{word}'" for word in ("avocet", *words))
        program = (f"source {self.script}; COMP_WORDS=({listed}); COMP_CWORD={len(words)}; "
                   "_avocet; printf '%s\\n' \"${COMPREPLY[@]}\"")
        environment = {**os.environ, "PATH": os.path.dirname(AVOCET) + ":" + os.environ["PATH"],
                       "AVOCET_HOME": self.scratch.name}
        done = subprocess.run(["bash", "--norc", "-c", program], check=True, text=True,
                              capture_output=True, env=environment, cwd=self.scratch.name)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands_and_flags(self):
        self.assertEqual(self.complete("inspe"), ["inspect"])
        self.assertEqual(self.complete("eval", "per"), ["perplexity"])
        self.assertIn("--temperature", self.complete("run", "m", "--te"))
        self.assertIn("--against", self.complete("eval", "kl", "--ag"))
        self.assertEqual(self.complete("run", "--kv-type", "in"), ["int8"])
        self.assertEqual(self.complete("run", "--device", "avx"), ["avx2", "avx512"])
        self.assertEqual(self.complete("plan", "--device", "a"),
                         ["auto", "avx2", "avx512", "amx"])
        self.assertEqual(self.complete("run", "--seed", ""), [])
        self.assertIn("avocet.bash", self.complete("inspect", "avo"))

    def test_every_flag_is_known(self):
        for page in pages()[1:]:
            with self.subTest(command=page):
                words = page.split("-", 1)
                offered = {flag[2:] for flag in self.complete(*words, "--")}
                self.assertEqual(offered, flags_of(page) | {"help"})


class Others(unittest.TestCase):
    def test_zsh_and_fish(self):
        for shell, flag in (("zsh", "-n"), ("fish", "--no-execute")):
            script = text_of("completion", shell)
            self.assertIn("temperature", script)
            self.assertIn("perplexity", script)
            self.assertRegex(script, "auto cpu ref (avx2 avx512 amx |neon )?cuda")
            if shutil.which(shell) is None:
                print(f"{shell} is not here: its script is not read")
                continue
            with tempfile.NamedTemporaryFile("w", suffix="." + shell) as file:
                file.write(script)
                file.flush()
                subprocess.run([shell, flag, file.name], check=True)

    def test_wrong_use(self):
        for arguments in (["completion"], ["completion", "tcsh"], ["manual", "nothing"],
                          ["manual", "a", "b", "c"]):
            self.assertEqual(call(*arguments).returncode, USAGE)


class Manual(unittest.TestCase):
    def test_pages(self):
        names = pages()
        self.assertIn("eval-kl", names)
        for page in names:
            with self.subTest(page=page):
                text = text_of("manual", page)
                for flag in flags_of(page):
                    self.assertIn(f"*--{flag}*", text)
                if shutil.which("scdoc") is None:
                    continue
                done = subprocess.run(["scdoc"], input=text, text=True, capture_output=True,
                                      check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(".TH", done.stdout)


if __name__ == "__main__":
    unittest.main()
