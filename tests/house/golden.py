"""tests/golden/answers.py: one changed byte fails, and normalising removes only timings and ids."""
import contextlib
import importlib.util
import io
import unittest

import golden_models
from command import ROOT
from golden_jobs import Job, rounded, without_times
from golden_serving import in_order, without_chance


def load():
    spec = importlib.util.spec_from_file_location("answers", ROOT / "tests/golden/answers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANSWERS = load()


class Tallies(unittest.TestCase):
    def tally(self, record, *seen, missing=""):
        """What a job with these answers adds up to: the columns, the printed text, the tally."""
        tally = ANSWERS.Tally(record, None)
        job = Job("avx2", [name for name, _ in seen], lambda: [data for _, data in seen],
                  missing=missing)
        ANSWERS.perform(job, tally, "", False)()
        if record is not None:
            tally.miss()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            columns = tally.print()
        return columns, said.getvalue(), tally

    def test_one_byte(self):
        _, _, recorded = self.tally(None, ("a/x", b"text"), ("a/y", b"more"))
        columns, said, _ = self.tally(recorded.found, ("a/x", b"text"), ("a/y", b"more"))
        self.assertEqual(columns, [2, 0, 0])
        self.assertTrue(said.endswith("\n2 passed, 0 failed, 0 skipped\n"), said)
        columns, said, _ = self.tally(recorded.found, ("a/x", b"text"), ("a/y", b"mora"))
        self.assertEqual(columns, [1, 1, 0])
        self.assertIn("FAILED a/y (avx2)", said)

    def test_requests_and_record_must_match(self):
        _, _, recorded = self.tally(None, ("a/x", b"text"), ("a/y", b"more"))
        columns, said, _ = self.tally(recorded.found, ("a/x", b"text"))
        self.assertEqual(columns, [1, 1, 0])
        self.assertIn("no job runs it", said)
        columns, said, _ = self.tally({}, ("a/x", b"text"))
        self.assertEqual(columns, [0, 1, 0])
        self.assertIn("not recorded", said)

    def test_classes_are_apart(self):
        _, _, recorded = self.tally(None, ("a/x", b"text"))
        self.assertEqual(list(recorded.found), [("fast", "a/x")])
        self.assertEqual([Job(isa, [], None).arithmetic for isa in ("ref", "amx", None)],
                         ["ref", "fast", "any"])

    def test_two_instruction_sets_that_differ_are_not_recorded(self):
        tally = ANSWERS.Tally(None, None)
        for isa, data in (("avx2", b"text"), ("amx", b"texx")):
            ANSWERS.perform(Job(isa, ["a/x"], lambda data=data: [data]), tally, "", False)()
        self.assertEqual(tally.rows, {"a": [1, 1, 0]})

    def test_skipped_and_broken_jobs(self):
        _, _, recorded = self.tally(None, ("a/x", b"text"))
        columns, said, _ = self.tally(recorded.found, ("a/x", b"text"), missing="no amx")
        self.assertEqual(columns, [0, 0, 1])
        self.assertIn("no amx", said)
        tally = ANSWERS.Tally(recorded.found, None)
        ANSWERS.perform(Job("avx2", ["a/x", "a/y"], lambda: [b"text"]), tally, "", False)()
        tally.miss()  # does not count what has already failed
        self.assertEqual(tally.rows, {"a": [0, 2, 0]})


class Normalising(unittest.TestCase):
    def test_times(self):
        self.assertEqual(
            without_times(b'{"ids":[1,2],"reused_tokens":32,"timings":{"a_ms":0.5,"b_ms":1e+3}}'),
            b'{"ids":[1,2],"reused_tokens":#,"timings":{"a_ms":#,"b_ms":#}}')
        plain = b'{"text":"a 0.5 b","logprob":-0.25,"usage":{"prompt_tokens":8}}'
        self.assertEqual(without_times(plain), plain)
        one, other = (without_times(b'"timings":{"%s":1}' % name) for name in (b"a", b"b"))
        self.assertNotEqual(one, other)

    def test_numbers(self):
        self.assertEqual(rounded(b"[1.2345678901234567,12]"), b"[1.23456789012,12]")
        self.assertNotEqual(rounded(b"1.23456789013"), rounded(b"1.23456789012"))

    def test_identities(self):
        one, two = b"0123456789abcdef" * 2, b"f123456789abcdef" * 2
        self.assertEqual(
            without_chance(b'{"id":"resp_' + one + b'","created_at":17,"x":["msg_' + one +
                           b'00","call_' + two + b'"],"f":"avocet-0.1.0"}'),
            b'{"id":"resp_<0>","created_at":#,"x":["msg_<0>00","call_<1>"],"f":"avocet-#"}')
        plain = b'{"id":"call_1","content":"created 17","cached_tokens":32}'
        self.assertEqual(without_chance(plain), plain)

    def test_events_of_choices(self):
        def event(index, text):
            return b'data: {"choices":[{"index":%d,"delta":"%s"}]}' % (index, text)
        first = [event(1, b"c"), event(0, b"a"), event(0, b"b"), b"data: [DONE]", b""]
        second = [event(0, b"a"), event(1, b"c"), event(0, b"b"), b"data: [DONE]", b""]
        wanted = [event(0, b"a"), event(0, b"b"), event(1, b"c"), b"data: [DONE]", b""]
        for events in (first, second):
            self.assertEqual(in_order(b"\n\n".join(events)), b"\n\n".join(wanted))
        swapped = [event(0, b"b"), event(0, b"a"), event(1, b"c"), b"data: [DONE]", b""]
        self.assertNotEqual(in_order(b"\n\n".join(swapped)), b"\n\n".join(wanted))


class Models(unittest.TestCase):
    def test_pieces_are_unique_and_whole(self):
        used = set()
        for text in ("aaaaaaa", "aaaab", "abcabcabc", "xy"):
            pieces = golden_models.pieces_of(text, used)
            self.assertEqual("".join(pieces), text)
            self.assertTrue(set(pieces) <= used)
        self.assertEqual(len(golden_models.pieces_of("0123456789", used)), 5)

    def test_numbers_are_exact(self):
        self.assertEqual(golden_models.numbers("seed", 2, 0.5).hex(), "003ab9be00dae1be")


if __name__ == "__main__":
    unittest.main()
