"""tools/check and tools/fuzz do not call bad good: made-up results of every kind, counted."""
import contextlib
import importlib.machinery
import importlib.util
import io
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


check = load("check")
fuzz = load("fuzz")
CMOCKA = """[==========] base/json: Running 4 test(s).
[ RUN      ] one
[       OK ] one
[ RUN      ] two
[  SKIPPED ] two
[ RUN      ] three
[  ERROR   ] --- 0x1 != 0
[  FAILED  ] three
[ RUN      ] four
[       OK ] four
[==========] base/json: 4 test(s) run.
[  PASSED  ] 2 test(s).
[  SKIPPED ] base/json: 1 test(s), listed below:
[  SKIPPED ] two
[  FAILED  ] base/json: 1 test(s), listed below:
[  FAILED  ] three
"""


class Counting(unittest.TestCase):
    def count(self, status, output, skipped=None):
        case = ElementTree.Element("testcase", name="base/x", status=status)
        if skipped is not None:
            ElementTree.SubElement(case, "skipped", message=skipped)
        ElementTree.SubElement(case, "system-out").text = output
        tally = check.Tally()
        check.count_case("normal", case, tally)
        return tally.passed, tally.failed, tally.skipped

    def test_cmocka_programs(self):
        self.assertEqual(self.count("fail", CMOCKA), (2, 1, 1))
        good = CMOCKA.replace("[  FAILED  ] three", "[       OK ] three")
        self.assertEqual(self.count("run", good), (3, 0, 1))

    def test_a_program_that_dies_has_failed(self):
        self.assertEqual(self.count("fail", "[ RUN      ] one\n[       OK ] one\n[ RUN"), (1, 1, 0))
        self.assertEqual(self.count("fail", ""), (0, 1, 0))
        # all its tests passed, and then a sanitizer found a leak
        good = CMOCKA.replace("[  FAILED  ] three", "[       OK ] three")
        self.assertEqual(self.count("fail", good + "ERROR: LeakSanitizer"), (3, 1, 1))

    def test_skipped_is_not_missing(self):
        self.assertEqual(self.count("notrun", "", "SKIP_RETURN_CODE=77"), (0, 0, 1))
        self.assertEqual(self.count("notrun", "", "Unable to find executable"), (0, 1, 0))

    def test_unittest_programs(self):
        for text, status, wanted in (
                ("Ran 15 tests in 1.0s\n\nOK\n", "run", (15, 0, 0)),
                ("Ran 1 test in 1.0s\n\nOK (skipped=1)\n", "run", (0, 0, 1)),
                ("Ran 9 tests in 1.0s\n\nFAILED (failures=2, errors=1, skipped=1)\n", "fail",
                 (5, 3, 1)),
                ("Ran 9 tests in 1.0s\n\nOK\n", "fail", (9, 1, 0))):
            self.assertEqual(self.count(status, text), wanted, text)

    def test_scripts(self):
        self.assertEqual(self.count("run", "whatever\n"), (1, 0, 0))
        self.assertEqual(self.count("run", "1 passed\n7 passed, 0 failed, 2 skipped\n"), (7, 0, 2))
        self.assertEqual(self.count("fail", "7 passed, 0 failed, 2 skipped\n"), (7, 1, 2))
        self.assertEqual(self.count("fail", "6 passed, 1 failed, 2 skipped\n"), (6, 1, 2))


class Fuzzing(unittest.TestCase):
    GOOD = "echo 'stat::number_of_executed_units: 1234'"

    def entry(self, body):
        with tempfile.TemporaryDirectory() as folder:
            build = Path(folder)
            (build / "fuzz").mkdir()
            program = build / "fuzz" / "fuzz_json"
            program.write_text("#!/bin/sh\nfor a; do case $a in -artifact_prefix=*) "
                               "findings=${a#*=};; esac; done\n" + body + "\n")
            program.chmod(0o755)
            result = fuzz.run_entry(build, "json", "-runs=1", 121)
            with contextlib.redirect_stdout(io.StringIO()):
                fuzz.report(result)
        return result

    def test_good(self):
        result = self.entry(self.GOOD)
        self.assertTrue(result["good"])
        self.assertEqual(result["executions"], 1234)

    def test_findings_and_failures(self):
        for body in (self.GOOD + "; touch ${findings}crash-1", self.GOOD + "; exit 77", "exit 0",
                     "exit 1", "kill -SEGV $$"):
            self.assertFalse(self.entry(body)["good"], body)


class Running(unittest.TestCase):
    """Suites, builds and the load beside them, without any compiler."""

    def setUp(self):
        self.originals = {name: getattr(check, name)
                          for name in ("call_ctest", "build_commands", "run_fuzz", "BUSY_LOOP")}
        self.addCleanup(lambda: [setattr(check, name, value)
                                 for name, value in self.originals.items()])
        self.tested = []
        check.call_ctest = self.answer

    def answer(self, folder, selection):
        self.tested.append((folder, selection))
        case = ElementTree.Element("testcase", name="a/b", status="run")
        return 0, "", [case]

    def run_suites(self, *suites, more=()):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            rows = check.run_suites(list(suites), list(more))
        return {suite: (tally.passed, tally.failed) for suite, tally, _ in rows}, said.getvalue()

    def test_each_is_tested_when_it_is_built(self):
        """The second build waits for the first suite's test: they run at the same time."""
        with tempfile.TemporaryDirectory() as folder:
            mark = Path(folder) / "tested"
            check.build_commands = lambda suite: [
                ["true"] if suite == "normal" else
                ["sh", "-c", f"until [ -e {mark} ]; do sleep 0.01; done"]]
            ordinary = check.call_ctest
            check.call_ctest = lambda *given: (mark.touch(), ordinary(*given))[1]
            rows, _ = self.run_suites("normal", "asan", more=["-R", "x"])
        self.assertEqual(rows, {"normal": (1, 0), "asan": (1, 0)})
        self.assertEqual([folder for folder, _ in self.tested], ["build", "build-asan"])
        self.assertEqual(self.tested[0][1][-2:], ["-R", "x"])

    def test_a_build_that_fails_fails_its_suite_alone(self):
        check.build_commands = lambda suite: [["false"] if suite == "asan" else ["true"]]
        rows, _ = self.run_suites("normal", "asan", "tsan")
        self.assertEqual(rows, {"normal": (1, 0), "asan": (0, 1), "tsan": (1, 0)})

    def test_warnings_fail(self):
        check.build_commands = lambda suite: [["echo", "x.c:1: warning: unused"]]
        rows, said = self.run_suites("normal")
        self.assertEqual(rows, {"normal": (1, 1)})
        self.assertIn("unused", said)

    def test_busy_loops_end(self):
        with tempfile.TemporaryDirectory() as folder:
            check.BUSY_LOOP = ["sh", "-c", f"echo $$ >>{folder}/ids; exec sleep 600"]
            with check.busy_loops(2):
                while not (Path(folder) / "ids").exists() or len(
                        (Path(folder) / "ids").read_text().split()) < 2 * check.CORES:
                    time.sleep(0.01)
            for number in (Path(folder) / "ids").read_text().split():
                self.assertFalse(Path(f"/proc/{number}").exists())


if __name__ == "__main__":
    unittest.main()
