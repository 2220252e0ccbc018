"""The documents stay true: every command, flag, make target and file that they name exists."""
import os
import re
import shlex
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
AVOCET = os.environ["AVOCET"]
DOCUMENTS = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md"))


def help_of(*arguments):
    done = subprocess.run([AVOCET, *arguments, "--help"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode == 0 else None


def commands_of(text):
    """Single commands of shell lines: comments dropped, pipes and lists cut."""
    for line in text.splitlines():
        words = shlex.split(line.replace("$(", " ( "), comments=True)
        command = []
        for word in words + [";"]:
            if word in ("|", "&&", "||", ";", "(", ")") or word.startswith((">", "<")):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


class Documents(unittest.TestCase):
    helps = {}

    def help(self, *names):
        if names not in self.helps:
            self.helps[names] = help_of(*names)
        return self.helps[names]

    def check_avocet(self, where, command):
        words = command[1:]
        plain = [word for word in words if not word.startswith("-")]
        if not plain or plain[0] in ("help", "COMMAND"):
            return
        name = plain[0]
        text = self.help(name)
        self.assertIsNotNone(text, f"{where}: no command '{name}'")
        if len(plain) > 1 and re.search(rf"avocet {name} {re.escape(plain[1])}\b", text):
            text += self.help(name, plain[1]) or ""  # a command of a command: eval perplexity
        for word in words:
            flag = word.split("=")[0]
            if re.fullmatch(r"--[a-z][a-z0-9-]*|-[a-zA-Z]", flag):
                self.assertRegex(text, rf"(?<![\w-]){re.escape(flag)}(?![\w-])",
                                 f"{where}: '{name}' has no {flag}")

    def check_make(self, where, command):
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        for word in command[1:]:
            if "=" not in word and not word.startswith("-"):
                self.assertIn(word, targets, where)

    def check_command(self, where, command):
        if command[0] == "sudo":
            command = command[1:]
        program = command[0]
        if program in ("avocet", "./build/avocet", "./avocet-*/avocet"):
            self.check_avocet(where, command)
        elif program == "make":
            self.check_make(where, command)
        elif program.startswith(("tools/", "bench/", "./")):
            self.assertTrue((ROOT / program).exists(), f"{where}: no {program}")

    def test_shell_blocks(self):
        seen = 0
        for document in DOCUMENTS:
            for block in re.findall(r"^```sh\n(.*?)^```", document.read_text(), re.M | re.S):
                for command in commands_of(block):
                    self.check_command(f"{document.name}: {' '.join(command)}", command)
                    seen += 1
        self.assertGreater(seen, 10)

    def test_inline_commands(self):
        for document in DOCUMENTS:
            for code in re.findall(r"`((?:avocet|make|tools/\w+)(?: [^`]*)?)`",
                                   document.read_text()):
                for command in commands_of(code.replace("…", "")):
                    self.check_command(f"{document.name}: {code}", command)

    def test_links(self):
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
                if not target.startswith("http"):
                    self.assertTrue((document.parent / target).exists(),
                                    f"{document.name}: {target}")

    def test_examples_in_the_help_are_true(self):
        listing = help_of()
        self.assertIsNotNone(listing)
        names = re.findall(r"^  ([a-z]+) {2,}\S", listing, re.MULTILINE)
        self.assertIn("version", names)
        for name in names:
            text = help_of(name)
            if name == "help" or text is None:
                self.assertEqual(name, "help", f"'{name} --help' failed")
                continue
            examples = text.partition("Examples:")[2]
            self.assertIn(f"avocet {name}", text)
            for command in commands_of(examples):
                if command[0] == "avocet":
                    self.check_avocet(f"{name} --help: {' '.join(command)}", command)

    def test_whole_header_is_in_the_drawing(self):
        """Every module with code is named in docs/architecture.md."""
        text = (ROOT / "docs/architecture.md").read_text()
        for folder in sorted((ROOT / "src").iterdir()):
            if any(folder.rglob("*.c")):
                self.assertIn(f"`{folder.name}/`", text)

    def test_nothing_left_to_fill_in(self):
        for document in DOCUMENTS:
            self.assertNotRegex(document.read_text(), r"\bFIG" r"URES\b|\?\?\?|\bTBD\b")


if __name__ == "__main__":
    unittest.main()
