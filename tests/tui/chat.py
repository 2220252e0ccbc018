"""`avocet chat` as a user has it: full screen within tmux, and plain lines through a pipe."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from chat_model import write_model
from command import AVOCET, GOOD, PATIENCE, USAGE, call, wait_until
from tiny_model import write_adapter

SKIPPED = 77
ON = ("--logit-bias", "2=-inf")  # never the end token: as many tokens as may be
ENDLESS = (*ON, "--ctx", "200000")  # minutes of answer: until somebody stops it


class Screen:
    """A terminal of our own that nobody sees."""

    def __init__(self, *arguments, columns=80, rows=24, environment=()):
        self.socket = tempfile.mkdtemp(prefix="avocet-tmux-")
        command = ["env", *environment, AVOCET, "chat", *map(str, arguments)]
        self.tmux("new-session", "-d", "-s", "t", "-x", str(columns), "-y", str(rows),
                  " ".join(command) + f"; echo status $?; sleep {PATIENCE}")

    def tmux(self, *arguments):
        clean = {name: value for name, value in os.environ.items() if name != "TMUX"}
        return subprocess.run(["tmux", "-f", "/dev/null", "-S", f"{self.socket}/s", *arguments],
                              check=True, capture_output=True, text=True, env=clean,
                              timeout=PATIENCE).stdout

    def keys(self, *keys):
        self.tmux("send-keys", "-t", "t", *keys)

    def type(self, text):
        self.tmux("send-keys", "-t", "t", "-l", text)

    def text(self):
        return self.tmux("capture-pane", "-t", "t", "-p")

    def wait(self, *wanted):
        """Until all of these are on the screen."""
        def found():
            shown = "".join(line.rstrip() + " \n" for line in self.text().splitlines())
            return shown if all(want in shown for want in wanted) else None
        try:
            return wait_until(found)
        except AssertionError:
            raise AssertionError(f"{wanted} not on the screen:\n{self.text()}") from None

    def resize(self, columns, rows):
        self.tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))

    def close(self):
        subprocess.run(["tmux", "-S", f"{self.socket}/s", "kill-server"], check=False,
                       capture_output=True)
        shutil.rmtree(self.socket)


class FullScreen(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-chat-")
        self.folder = Path(self.scratch.name)
        write_model(self.folder)
        self.screen = None

    def tearDown(self):
        if self.screen is not None:
            self.screen.close()
        self.scratch.cleanup()

    def answers(self, saved):
        self.screen.type(f"/save {saved}")
        self.screen.keys("Enter")
        self.screen.wait(f"Saved to {saved}")
        return [message["content"] for message in json.loads(saved.read_text())["messages"]
                if message["role"] == "assistant"]

    def open(self, *arguments, **options):
        self.screen = Screen(self.folder, *arguments, **options)
        self.screen.wait("Type a message")
        return self.screen

    def test_question_and_answer(self):
        screen = self.open("-n", "8")
        screen.type("hello")
        screen.keys("Enter")
        screen.wait("> hello", "t/s", "ctx")
        screen.type("/set")
        screen.keys("Enter")
        screen.wait("temperature = 0", "max_tokens = 8")
        screen.type("exit")
        screen.keys("Enter")
        screen.wait("status 0")

    def test_commands(self):
        screen = self.open("-n", "4", *ON)
        saved = self.folder / "talk.json"
        screen.type("/he")
        screen.keys("Tab", "Enter")
        screen.wait("/system", "/retry", "PgUp")
        for line, answer in (("/set temperature 0.5", "temperature = 0.5"),
                             ("/set temperature -1", "must be 0 to 1e+06"),
                             ("/set temperature hot", 'temperature: "hot" is not a number'),
                             ("/set seed 7", "seed = 7"),
                             ("/set seed 0.5", "non-negative integer"),
                             ("/set nothing 1", "Unknown setting"),
                             ("/set nothing hot", "Unknown setting"),
                             ("/adapter", "None is loaded"),
                             ("/adapter ghost", "ghost"),
                             ("/system be", "applies to the next"),
                             ("/system", "System message: be"),
                             ("/unheard", "Unknown command /unheard"),
                             ("/retry", "no question yet"),
                             (f"/load {self.folder}/none.json", "none.json")):
            screen.type("/clear")
            screen.keys("Enter")
            screen.type(line)
            screen.keys("Enter")
            screen.wait(answer)
        screen.type("hi")
        screen.keys("Enter")
        screen.wait("> hi", "Stopped after 4 tokens")
        screen.type(f"/save {saved}")
        screen.keys("Enter")
        screen.wait("Saved to")
        messages = json.loads(saved.read_text())["messages"]
        self.assertEqual([message["role"] for message in messages],
                         ["system", "user", "assistant"])
        self.assertEqual(messages[1]["content"], "hi")
        screen.type("/clear")
        screen.keys("Enter")
        screen.type(f"/load {saved}")
        screen.keys("Enter")
        screen.wait("> hi", "Loaded 2 messages")

    def test_a_command_does_not_cut_the_answer(self):
        screen = self.open("-n", "40", "--ctx", "64")
        saved = self.folder / "whole.json"
        screen.type("hi")
        screen.keys("Enter")
        screen.type("/set")
        screen.keys("Enter")
        screen.wait("temperature = 0")
        wait_until(lambda: "answering" not in screen.text())
        screen.type(f"/save {saved}")
        screen.keys("Enter")
        screen.wait("Saved to")
        answer = json.loads(saved.read_text())["messages"][-1]
        self.assertEqual(answer["role"], "assistant")
        whole = call("run", self.folder, "hi", "-n", "40", "--ctx", "64").stdout.decode()
        self.assertEqual(answer["content"] + "\n", whole)

    def test_retry_leaves_notes_where_they_are(self):
        screen = self.open("-n", "2", "--temperature", "0", *ON)
        screen.type("hi")
        screen.keys("Enter")
        screen.wait("> hi", "Stopped after 2 tokens")
        screen.type("/set top_k 7")
        screen.keys("Enter")
        screen.wait("top_k = 7")
        screen.type("/retry")
        screen.keys("Enter")
        shown = screen.wait("top_k = 7", "temperature 0.8, seed 1", "Type a message")
        self.assertEqual(shown.count("> hi"), 1)

    def test_editing_wide_characters_and_lines(self):
        screen = self.open("-n", "2")
        screen.type("ab日本")
        screen.keys("Left", "BSpace")
        screen.wait("> ab本")
        screen.keys("End", "M-Enter")
        screen.type("two 🙂x")
        screen.keys("BSpace", "BSpace")
        screen.wait("> ab本", "  two \n")
        screen.keys("C-u", "C-h", "C-u")
        screen.wait("Type a message")
        screen.type("/set x 1")
        screen.keys("Enter", "Up")
        screen.wait("> /set x 1")

    def test_retry_is_another_answer(self):
        screen = self.open("-n", "30", "--temperature", "0", *ON)
        seen = set()
        for line, end in (("hi", "Stopped after"), ("/retry", "temperature 0.8, seed 1"),
                          ("/retry", "temperature 0.8, seed 2")):
            screen.type(line)
            screen.keys("Enter")
            screen.wait(end)
            seen.update(self.answers(self.folder / f"talk{len(seen)}.json"))
        self.assertEqual(len(seen), 3, seen)
        screen.type("/set")
        screen.keys("Enter")
        screen.wait("temperature = 0,")  # the setting stays

    def test_retry_keeps_a_temperature(self):
        screen = self.open("-n", "4", "--temperature", "0.5", *ON)
        screen.type("hi")
        screen.keys("Enter")
        screen.wait("> hi", "Stopped after 4 tokens")
        screen.keys("/retry", "Enter")
        screen.keys("/set", "Enter")
        self.assertNotIn("Sampled with", screen.wait("seed = 1"))

    def test_what_is_typed_while_the_model_loads(self):
        self.screen = Screen(self.folder, "-n", "2")
        self.screen.keys("/set temperature 0.5", "Enter", "hi", "Enter", "half")
        self.screen.wait("temperature = 0.5", "> hi \n", "> half \n")
        self.screen.keys("C-j", "rest")  # and from now on Ctrl-J is itself
        self.screen.wait("> half \n  rest \n")

    def test_what_is_sent_during_an_answer_waits(self):
        screen = self.open(*ENDLESS)
        screen.keys("hi", "Enter", "second", "Enter", "third", "Enter", "fourth")
        screen.wait("answering: Ctrl-C stops; 2 waiting: second", "> fourth")
        screen.keys("C-c")  # nobody wants the next one now
        screen.wait("Stopped.", "> second \n  third \n  fourth")

    def test_the_waiting_are_sent_in_order(self):
        screen = self.open("-n", "2")
        screen.keys("hi", "Enter", "second", "Enter", "third", "Enter", "rest")
        shown = screen.wait("> hi \n", "> second \n", "> third \n", "> rest \n")
        self.assertLess(shown.index("> second"), shown.index("> third"))

    def test_leaving_during_an_answer(self):
        for farewell in ("exit", "/quit"):
            screen = self.open(*ENDLESS)
            screen.keys("hi", "Enter")
            screen.wait("answering")
            screen.keys("second", "Enter", farewell, "Enter")
            screen.wait("status 0")
            screen.close()
        self.screen = None

    def test_the_weight_of_an_adapter(self):
        write_adapter(self.folder / "adapter", 1, layers=3, width=36)
        screen = self.open("--adapter", f"one={self.folder}/adapter")
        self.assertNotIn("×", screen.wait("adapter one"))
        screen.type("/adapter one 0.5")
        screen.keys("Enter")
        screen.wait("adapter one × 0.5", "weight 0.5")
        screen.type("/adapter")
        screen.keys("Enter")
        screen.wait("Adapter: one × 0.5.")

    def test_terminals_without_a_full_screen(self):
        for terminal in ("dumb", "nosuchterm"):
            self.screen = Screen(self.folder, "-n", "2", columns=120,
                                 environment=(f"TERM={terminal}",))
            self.screen.wait(f'terminal "{terminal}"', "as with --plain", "> ")
            self.screen.keys("/set top_k 7", "Enter", "exit", "Enter")
            self.screen.wait("top_k = 7", "status 0")
            self.screen.close()
        self.screen = None

    def test_sizes(self):
        screen = self.open("-n", "4")
        screen.type("hello")
        screen.keys("Enter")
        screen.wait("> hello")
        screen.resize(120, 30)
        screen.wait("KV pages", "sampling", "> hello")
        screen.resize(40, 12)
        screen.wait("> hello")
        screen.resize(10, 3)
        screen.wait("too small")
        screen.resize(80, 24)
        screen.wait("> hello", "KV ")

    def test_interrupts(self):
        screen = self.open("--ctx", "64")
        screen.type("typed")
        screen.keys("C-c")  # the input first
        screen.wait("Type a message")
        screen.keys("C-c")
        screen.wait("status 0")

    def test_without_colours(self):
        screen = self.open("-n", "4", environment=("NO_COLOR=1",))
        screen.type("hello")
        screen.keys("Enter")
        screen.wait("> hello")
        coloured = screen.tmux("capture-pane", "-t", "t", "-p", "-e")
        self.assertNotRegex(coloured, "\033\\[[0-9;]*3[0-7]m")
        screen.keys("C-d")
        screen.wait("status 0")

    def test_too_long_for_the_context(self):
        screen = self.open()  # 64 tokens
        screen.type("x" * 70)
        screen.keys("Enter")
        screen.wait("the context holds 64")
        screen.wait("> " + "x" * 70)  # and it can be changed


class Plain(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="avocet-chat-")
        self.folder = Path(self.scratch.name)
        write_model(self.folder)

    def tearDown(self):
        self.scratch.cleanup()

    def test_drafts(self):
        """Shades are for terminals; what is piped is the same text with and without them."""
        plain = call("chat", self.folder, "-n", "12", given=b"hi\n/drafts\n")
        shown = call("chat", self.folder, "-n", "12", "--show-drafts", given=b"hi\n/drafts\n")
        self.assertEqual((plain.returncode, shown.returncode), (GOOD, GOOD))
        self.assertEqual(plain.stdout, shown.stdout)
        self.assertIn(b"Draft tokens are not shown", plain.stderr)
        self.assertIn(b"shown in another shade", shown.stderr)
        asked = b"/drafts on\n/drafts off\n/drafts maybe\n"
        said = call("chat", self.folder, given=asked).stderr.splitlines()
        self.assertIn(b"shown in another shade", said[-3])
        self.assertIn(b"are not shown", said[-2])
        self.assertEqual(said[-1], b"/drafts on or /drafts off")

    def test_lines(self):
        done = call("chat", self.folder, "-n", "6", given=b"hi\n/set\nho\\\nhum\n")
        self.assertEqual(done.returncode, GOOD, done.stderr)
        alone = call("run", self.folder, "hi", "-n", "6")
        self.assertTrue(done.stdout.startswith(alone.stdout.rstrip(b"\n")), done.stdout)
        self.assertIn(b"temperature = 0", done.stderr)

    def test_exit_and_errors(self):
        done = call("chat", self.folder, given=b"exit\nhello\n")
        self.assertEqual((done.returncode, done.stdout), (GOOD, b""))
        self.assertEqual(call("chat").returncode, USAGE)
        self.assertEqual(call("chat", self.folder, "more").returncode, USAGE)
        done = call("chat", self.folder, "--adapter", "a")
        self.assertIn(b"NAME=PATH", done.stderr)
        done = call("chat", self.folder, "--load", self.folder / "none.json", given=b"")
        self.assertIn(b"none.json", done.stderr)
        done = call("chat", self.folder, given=b"x" * 70 + b"\n")
        self.assertIn(b"the context holds 64", done.stderr)


if __name__ == "__main__":
    if shutil.which("tmux") is None:
        del FullScreen
        print("skipped: tmux is not here (tools/bootstrap test installs it)")
        unittest.main(exit=False)
        sys.exit(SKIPPED)
    unittest.main()
