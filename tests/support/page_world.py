"""What every test of the page in a browser begins with, and how it must end: no script of others
ran, the policy stopped nothing because nothing tried, nobody outside was asked."""
import json
import unittest
import urllib.parse

from page_mock import Mock
from webdriver import ENTER, Browser

LAST = "document.querySelector('.message.assistant:last-of-type')"
DONE = "return document.getElementById('stop').hidden"


class World(unittest.TestCase):
    """A browser and a mock for the class; an empty page for each test."""
    @classmethod
    def setUpClass(cls):
        cls.mock = Mock()
        cls.mock.__enter__()
        cls.addClassCleanup(cls.mock.__exit__)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        mock, browser = self.mock, self.browser
        mock.answers.clear()
        mock.bodies.clear()
        mock.seen.clear()
        mock.models = ["avocet-tiny", "poetry", "sql-helper"]
        mock.key = mock.figures = mock.training = None
        mock.runs_asked.clear()
        browser.open(mock.url + "/avocet.svg")
        browser.run("localStorage.clear(); sessionStorage.clear()")
        browser.requests()
        browser.complaints()
        self.open("/")

    def open(self, path):
        self.browser.open(self.mock.url + path)
        self.browser.wait("return document.querySelector('#server-state.good, #server-state.bad')")

    def tearDown(self):
        self.assertEqual(self.browser.run("return [violations, failures]"), [[], []])
        origin = urllib.parse.urlsplit(self.mock.url).netloc
        strange = [url for url in self.browser.requests()
                   if urllib.parse.urlsplit(url).netloc != origin
                   and not url.startswith(("chrome:", "data:", "blob:" + self.mock.url))]
        self.assertEqual(strange, [], "asked for outside of the server")
        complaints = [text for text in self.browser.complaints() if "status of" not in text
                      and "ERR_INCOMPLETE_CHUNKED" not in text]
        self.assertEqual(complaints, [])

    # ---- What tests do again and again ----

    def say(self, text, *answers, wait=True):
        self.mock.answers += answers
        self.browser.find("#prompt").type(text + ENTER)
        if wait:
            self.finish()

    def finish(self):
        self.browser.wait(DONE, why="the answer never ended")

    def texts(self, css=".message .body"):
        return self.browser.run("return [...document.querySelectorAll(arguments[0])]"
                                ".map((node) => node.textContent)", css)

    def kept(self):
        """Conversations in the browser's storage, newest first."""
        found = self.browser.run(
            "return Object.keys(localStorage).filter((key) => key.startsWith('avocet.chat.'))"
            ".map((key) => localStorage.getItem(key))")
        return sorted(map(json.loads, found), key=lambda kept: -kept["updated"])

    def focus(self):
        return self.browser.run("return document.activeElement.id || "
                                "document.activeElement.getAttribute('aria-label')")
