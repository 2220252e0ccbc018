"""The page as `avocet serve` serves it, on a tiny model that is made here: what comes with every
file, an answer as it streams, stopping, adapters, failures, keys, and the dashboard that moves."""
import http.client
import json
import re
import tempfile
import unittest
import urllib.parse
from pathlib import Path

import chat_model
import tiny_model
import webdriver
from command import GOOD, ROOT
from page_mock import page_headers
from serving import Serving
from webdriver import ENTER, ESCAPE, TAB

webdriver.skip_without_browser()

KEY = "a-key-that-is-long-enough"
CONTEXT = 512
FINISHED = "return document.getElementById('stop').hidden"


class Served(unittest.TestCase):
    """A server of the class's own, and a browser."""
    @classmethod
    def arguments(cls, folder):
        """The model and the flags."""
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        if cls is Served:
            raise unittest.SkipTest("what the others share")
        scratch = tempfile.TemporaryDirectory(prefix="avocet-served-")
        cls.addClassCleanup(scratch.cleanup)
        model, *flags = cls.arguments(Path(scratch.name))
        cls.server = Serving(model, "--name", "tiny", "--threads", 1, *flags)
        cls.addClassCleanup(cls.server.__exit__)
        cls.url = cls.server.url
        cls.browser = webdriver.Browser()
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.end() == GOOD, cls.server.lines

    def setUp(self):
        self.browser.open(self.url + "/avocet.svg")
        self.browser.run("localStorage.clear(); sessionStorage.clear()")
        self.browser.requests()
        self.browser.complaints()
        self.browser.open(self.url)
        self.browser.wait("return document.querySelector('#server-state.good, #server-state.bad')")

    def tearDown(self):
        self.assertEqual(self.browser.run("return [violations, failures]"), [[], []])
        origin = urllib.parse.urlsplit(self.url).netloc
        self.assertEqual([url for url in self.browser.requests()
                          if urllib.parse.urlsplit(url).netloc != origin
                          and not url.startswith(("chrome:", "data:"))], [])
        self.assertEqual([text for text in self.browser.complaints() if "status of" not in text],
                         [])

    def ask(self, path, **headers):
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc, timeout=30)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def say(self, text, wait=True):
        self.browser.find("#prompt").type(text + ENTER)
        if wait:
            self.browser.wait(FINISHED)

    def limit(self, tokens):
        self.browser.find("#settings-open").click()
        box = self.browser.find("#s-max_tokens")
        box.clear()
        box.type(str(tokens))
        self.browser.find("#settings-close").click()

    def stats(self):
        return [element.text for element in self.browser.all(".assistant .stats")]


class Open(Served):
    @classmethod
    def arguments(cls, folder):
        tiny_model.write_adapter(folder / "loud", 1)
        tiny_model.write_adapter(folder / "soft", 2)
        model = chat_model.write_random_model(folder)
        return (model, "--ctx", CONTEXT, "--kv-type", "f32", "--adapter", "loud=loud",
                "--adapter-root", folder, "--allow-adapter-loading")

    def test_every_file_with_its_headers(self):
        for path in sorted((ROOT / "web").iterdir()):
            name = "/" if path.name == "index.html" else f"/{path.name}"
            answer, body = self.ask(name)
            self.assertEqual((answer.status, body), (200, path.read_bytes()), name)
            for header, value in page_headers().items():
                self.assertEqual(answer.getheader(header), value, (name, header))
            again, body = self.ask(name, **{"If-None-Match": answer.getheader("ETag")})
            self.assertEqual((again.status, body), (304, b""), name)
        for name in ("/index.html", "/..%2fLICENSE", "/app.js/", "/nothing.js"):
            self.assertEqual(self.ask(name)[0].status, 404, name)

    def test_an_answer_streams(self):
        self.limit(40)
        self.say("once upon a time")
        self.assertEqual(self.browser.all(".error"), [])
        self.assertRegex(self.stats()[0],
                         r"[\d.,]+ tokens/s[\s\S]*to first token[\s\S]*\d+ tokens?")
        self.browser.reload()
        self.browser.wait("return document.querySelectorAll('.message').length === 2")

    def test_another_answer_is_another_where_nothing_is_set(self):
        self.limit(30)
        self.say("once upon a time")
        first = self.browser.find(".assistant .body").property("textContent")
        self.browser.find(".assistant .again").click()
        self.browser.wait(FINISHED)
        self.assertNotEqual(self.browser.find(".assistant .body").property("textContent"), first)
        self.assertIn("sampled: temperature 0.8", self.browser.find(".assistant .stats").text)

    def test_the_same_seed_the_same_answer(self):
        self.browser.find("#settings-open").click()
        for name, value in (("seed", "7"), ("temperature", "1.5"), ("max_tokens", "30")):
            self.browser.find(f"#s-{name}").type(value)
        self.browser.find("#settings-close").click()
        self.say("once upon a time")
        first = self.browser.find(".assistant .body").property("textContent")
        self.browser.find(".assistant .again").click()  # the next seed
        self.browser.wait(FINISHED)
        self.assertEqual(self.browser.find(".assistant .branch span").text, "2/2")
        self.assertNotEqual(self.browser.find(".assistant .body").property("textContent"), first)
        self.browser.find("#new-chat").click()
        self.say("once upon a time")
        self.assertEqual(self.browser.find(".assistant .body").property("textContent"), first)

    def test_adapters(self):
        self.limit(12)
        self.browser.find("#model option[value=loud]").click()
        self.say("once upon")
        self.assertEqual(self.browser.all(".error"), [])
        self.assertEqual(self.browser.find(".assistant").attribute("aria-label"),
                         "Answer of loud")
        self.browser.find("#settings-open").click()
        if len(self.browser.all("#model option")) < 3:
            self.browser.find(".settings summary").click()
            self.browser.find("#load-name").type("soft")
            self.browser.find("#load-path").type("soft" + ENTER)
            self.browser.wait("return document.querySelectorAll('#model option').length === 3")
        for box in self.browser.all(".mix-row input[type=checkbox]"):
            if not box.property("checked"):
                box.click()
        self.browser.run("const slider = document.getElementById('mix-weight-1');"
                         "slider.value = 0.5; slider.dispatchEvent(new Event('input'))")
        self.browser.find("#settings-close").click()
        self.say("a time")
        self.assertEqual(self.browser.all(".error"), [])
        self.assertIn("× 0.5", self.browser.all(".assistant")[-1].attribute("aria-label"))

    def test_too_long_is_said_with_both_numbers(self):
        self.browser.run("const box = document.getElementById('prompt'); box.value ="
                         " 'long '.repeat(3000); box.dispatchEvent(new Event('input'))")
        self.browser.find("#send").click()
        self.browser.wait(FINISHED)
        self.assertRegex(self.browser.find(".error").text.replace(",", ""), r"\d{4,}[\s\S]*512")

    def test_the_dashboard_moves(self):
        self.limit(200)
        self.say("once upon a time", wait=False)
        self.browser.find("#view-dashboard").click()
        self.browser.wait("return document.querySelector('.live.good')")
        self.assertEqual(len(self.browser.all("#dashboard .card")), 12)
        self.browser.wait("return document.querySelectorAll('.bars tbody tr').length > 3")
        self.browser.wait("return /[1-9]\\d* finished/.test("
                          "document.querySelector('.about').textContent)")
        self.browser.wait("return document.querySelector('.line.s1').getAttribute('d').length > 60")
        shown = self.browser.run("return [...document.querySelectorAll('.tile b')]"
                                 ".map((node) => node.textContent)")
        self.assertNotIn("NaN", " ".join(shown))
        self.assertTrue(re.match(r"[\d.,]+ /s", shown[0]), shown)


class Long(Served):
    """A model that does not come to an end by itself."""
    @classmethod
    def arguments(cls, folder):
        return chat_model.write_random_model(folder, 256, 6, 8192), "--sessions", 2

    def test_stop_frees_the_server(self):
        self.say("go on", wait=False)
        self.browser.wait("return document.querySelector('.growing .body')?.textContent.length > 9")
        self.assertEqual(self.server.requests()["running"], 1)
        self.browser.keys(ESCAPE)
        self.browser.wait(FINISHED)
        self.assertIn("stopped", self.stats()[-1])
        self.server.wait_idle()
        self.say("again", wait=False)
        self.browser.wait("return document.querySelectorAll('.growing .body p').length > 0")
        self.browser.reload()  # leaving the page frees it, too
        self.server.wait_idle()


class Guarded(Served):
    @classmethod
    def arguments(cls, folder):
        (folder / "keys.json").write_text(json.dumps({"keys": [{"name": "tester", "key": KEY}]}))
        return chat_model.write_random_model(folder), "--keys", folder / "keys.json"

    def test_the_page_opens_and_asks_for_the_key(self):
        self.browser.wait("return document.activeElement.id === 'key'")
        self.assertEqual(self.browser.find("#server-text").text, "Key wanted")
        self.browser.find("#key").type("wrong" + TAB)
        self.browser.wait("return document.getElementById('server-text').textContent"
                          " === 'Key wanted'")
        box = self.browser.find("#key")
        box.clear()
        box.type(KEY + TAB)
        self.browser.wait("return document.querySelector('#server-state.good')")
        self.browser.find("#settings-close").click()
        self.limit(5)
        self.say("hello")
        self.assertEqual(self.browser.all(".error"), [])
        self.browser.find("#view-dashboard").click()
        self.browser.wait("return document.querySelector('.live.good')")


if __name__ == "__main__":
    unittest.main(verbosity=2)
