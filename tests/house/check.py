"""tools/check and tools/fuzz do not call bad good: made-up results of every kind, counted."""
import contextlib
import importlib.machinery
import importlib.util
import io
import sys
import tempfile
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
            result = fuzz.run_entry(build, "json", 1)
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


class Again(unittest.TestCase):
    """A failure by chance is tried once more; what a sanitizer says, and many failures, stand."""

    def case(self, name, status, output=""):
        case = ElementTree.Element("testcase", name=name, status=status)
        ElementTree.SubElement(case, "system-out").text = output
        return case

    def try_again(self, cases, second):
        asked = []
        original = check.call_ctest

        def answer(_, selection):
            asked.append(selection)
            return 0 if second == "run" else 8, "", [self.case("a/b", second)]
        check.call_ctest = answer
        try:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                status, counted = check.try_again("normal", 8, cases)
        finally:
            check.call_ctest = original
        return status, [case.get("status") for case in counted], asked, said.getvalue()

    def test_by_chance(self):
        cases = [self.case("x/y", "run"), self.case("a/b", "fail", "boom")]
        status, counted, asked, said = self.try_again(cases, "run")
        self.assertEqual((status, counted, len(asked)), (0, ["run", "run"], 1))
        self.assertIn("UNSTABLE a/b", said)
        self.assertEqual(self.try_again(cases, "fail")[:2], (8, ["run", "fail"]))

    def test_what_stands(self):
        for cases in ([self.case("a/b", "fail", "==1==ERROR: AddressSanitizer: heap")],
                      [self.case("a/b", "fail", "WARNING: ThreadSanitizer: data race")],
                      [self.case(f"a/{number}", "fail") for number in range(check.AGAIN_MAX + 1)]):
            status, counted, asked, _ = self.try_again(cases, "run")
            self.assertEqual((status, asked), (8, []))
            self.assertIn("fail", counted)


if __name__ == "__main__":
    unittest.main()
