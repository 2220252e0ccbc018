"""The training page in Chromium: runs, their figures and curves, live; what is wrong in words;
names and numbers that a file chose; keyboard, contrast and narrow screens."""
import math
import unittest

import webdriver
from command import wait_until

webdriver.skip_without_browser()

import looks  # noqa: E402  (a browser is needed from here on)
from page_world import World  # noqa: E402


class Runs:
    """What a server says of runs; `step` of the newest moves when a test says so."""

    def __init__(self):
        self.step, self.steps = 60, 200
        self.bytes_more = 0
        self.more = {}
        self.names = ["pirate", "dogs & <b>cats</b>/1"]

    def head(self, name):
        first = name == self.names[0]
        return {"run": name, "title": name, "task": "sft" if first else "rl",
                "model": "smollm2.avo", "steps": self.steps, "batch": 8,
                "state": "running" if first else "finished",
                "step": self.step if first else self.steps, "age_seconds": 1.0 if first else 7200,
                "bytes": 300 * self.step if first else 5000, "seconds_left": 130.0}

    def __call__(self, name):
        if name is None:
            return {"runs": [self.head(name) for name in self.names], "more": 0}
        if name not in self.names:
            return None
        head = self.head(name)
        steps = range(1, head["step"] + 1)
        series = {"loss": [[n, 2.5 * math.exp(-n / 50) + 0.1 * math.sin(n)] for n in steps],
                  "eval_loss": [[n, 2.6 * math.exp(-n / 60)] for n in steps if n % 20 == 0],
                  "learning_rate": [[n, 2e-4 * (1 - n / self.steps)] for n in steps],
                  "tokens_per_second": [[n, 500 + n % 7] for n in steps],
                  "grad_norm": [[n, 1 + n % 3] for n in steps]}
        if name != self.names[0]:
            series = {"reward": [[n, n / 200 - 0.5] for n in steps],
                      "rewards/contains/mean": [[n, n / 200] for n in steps], "kl": [[1, 0.5]]}
        latest = {key: points[-1][1] for key, points in series.items()}
        return {**head, "series": series, "lines": len(steps), "skipped": 0, "cut": False,
                "latest": {**latest, "num_tokens": 12345, "step_time": 0.93}, **self.more}


class Training(World):
    def setUp(self):
        super().setUp()
        self.runs = self.mock.training = Runs()

    def look(self, run=""):
        self.open(f"/?t#/training{run}")
        self.browser.wait("return document.querySelector('#training .card .line')")

    def tile(self, label):
        return self.browser.run(
            "return [...document.querySelectorAll('#training .tile')].find((tile) =>"
            " tile.firstChild.textContent === arguments[0]).querySelector('b').textContent", label)

    def test_offered_where_there_is_something(self):
        self.open("/?offered")
        self.browser.wait("return !document.getElementById('view-training').hidden")
        self.mock.training = None
        self.mock.seen.clear()
        self.open("/?not")
        wait_until(lambda: "/version" in self.mock.seen, "a question about the version")
        self.assertFalse(self.browser.find("#view-training").shown)
        self.mock.training = self.runs
        self.mock.broken.add("/version")  # the first answer is lost
        self.open("/?lost")
        self.browser.wait("return !document.getElementById('view-training').hidden")
        self.mock.training = None
        self.open("/?direct#/training")
        self.browser.wait("return document.querySelector('#training .live.bad')")

    def test_figures_and_curves(self):
        self.open("/?click")
        self.browser.wait("return !document.getElementById('view-training').hidden")
        self.browser.find("#view-training").click()
        self.browser.wait("return document.querySelector('#training .card .line')")
        self.assertEqual(self.browser.find("#title").text, "Training")
        self.assertEqual(self.browser.find("#training .live").text, "Running")
        self.assertEqual(self.texts("#training .card h3"),
                         ["Loss", "Learning rate", "Speed", "Gradient norm"])
        self.assertEqual((self.tile("Step"), self.tile("Speed"), self.tile("Time left")),
                         ("60", "504 /s", "2 min"))
        self.assertEqual(self.browser.find("#training progress").property("value"), 0.3)
        path = "return document.querySelector('#training .line.s1').getAttribute('d')"
        before = self.browser.run(path)
        asked = len(self.mock.runs_asked)
        seen = self.mock.seen.count("/training")
        wait_until(lambda: self.mock.seen.count("/training") >= seen + 4, "two more questions")
        self.assertEqual(len(self.mock.runs_asked), asked)  # nothing has grown
        self.runs.step = 61
        self.browser.wait("return document.querySelector('#training .tile b').textContent === '61'")
        self.assertNotEqual(self.browser.run(path), before)
        self.browser.find("#view-chat").click()
        self.mock.seen.clear()
        self.browser.wait("return document.getElementById('training').hidden")
        seen = self.mock.seen.count("/training")
        self.browser.run("return new Promise((done) => setTimeout(done, 2500))")
        self.assertLessEqual(self.mock.seen.count("/training"), seen + 1)  # not looked at

    def test_another_run(self):
        self.look()
        self.assertEqual(self.texts("#training option"),
                         ["pirate (running)", "dogs & <b>cats</b>/1"])
        self.browser.run("const pick = document.querySelector('#training select');"
                         "pick.value = pick.options[1].value;"
                         "pick.dispatchEvent(new Event('change'))")
        self.browser.wait("return document.querySelector(\"#training .card[aria-label='Reward']\")")
        self.assertEqual(self.browser.run("return location.hash"),
                         "#/training/dogs%20%26%20%3Cb%3Ecats%3C%2Fb%3E%2F1")
        self.assertEqual(self.mock.runs_asked[-1], "dogs & <b>cats</b>/1")
        self.assertEqual(self.browser.find("#training .live").text, "Finished")
        self.assertIn("2 h 0 min ago", self.browser.find("#training .about").text)
        self.assertEqual(self.texts("#training .card h3"), ["Reward", "Divergence"])
        self.assertEqual(self.texts("#training .card:first-child .legend li span"),
                         ["reward", "contains"])
        self.assertIn("−0.5", self.browser.run(
            "return [...document.querySelectorAll('#training .tick')].map((t) => t.textContent)"
            ".join(' ').replace(/-/g, '−')"))  # rewards below 0 are inside
        self.browser.reload()
        self.browser.wait("return document.querySelector(\"#training .card[aria-label='Reward']\")")
        self.open("/?gone#/training/nothing")
        self.browser.wait("return document.querySelector('#training .live')?.textContent"
                          " === 'There is no training run named nothing'")

    def test_keyboard(self):
        self.look()
        self.browser.run("document.querySelector('#training .plot').focus()")
        self.browser.keys(webdriver.LEFT)
        self.assertEqual(self.browser.find("#training .tip p").text, "step 60")
        self.browser.keys(webdriver.LEFT)
        self.assertEqual(self.browser.find("#training .tip p").text, "step 59")
        values = self.texts("#training .card:first-child .tip dd")
        self.assertEqual(values[1], "–")  # no evaluation there
        self.browser.keys(webdriver.ESCAPE)
        self.assertTrue(self.browser.run("return document.querySelector('#training .tip').hidden"))

    def test_what_is_wrong_is_said(self):
        self.runs.more = {"skipped": 3, "cut": True}
        self.look()
        note = self.browser.find("#training .run-note").text
        self.assertIn("3 lines of metrics.jsonl could not be read", note)
        self.assertIn("only its newest part", note)
        self.runs.names = []
        self.browser.wait("return document.querySelector('#training .live').textContent"
                          " === \"No training run in the server's folder yet\"")
        self.assertEqual(self.texts("#training .card"), [])
        self.mock.training = None
        self.browser.wait("return document.querySelector('#training .live.bad')")

    def test_odd_answers(self):
        odd = {"loss": [[1, 2], None, [2], ["3", 4], [4, None], [5, 1e308], [6, -1e308]],
               "kl": "none", "entropy": [], "grad_norm": [[1, 0]]}
        self.runs.more = {"series": odd, "latest": {"loss": "x"}}
        self.look()
        self.assertEqual(self.texts("#training .card h3"), ["Loss", "Gradient norm"])
        self.assertEqual(self.tile("Loss"), "–")
        self.assertNotIn("NaN", self.browser.run(
            "return [...document.querySelectorAll('#training .line')]"
            ".map((line) => line.getAttribute('d')).join()"))

    def test_looks(self):
        page = looks.Looks()
        page.mock, page.browser = self.mock, self.browser
        for width, height in ((1280, 860), (400, 800), (320, 640)):
            self.browser.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                             deviceScaleFactor=1, mobile=False)
            for theme in ("light", "dark"):
                self.look()
                self.browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
                page.check_contrast(f"training, {theme}, {width}")
                page.fits(f"training, {width}")
                page.shoot(f"training-{theme}-{width}")
        self.browser.cdp("Emulation.clearDeviceMetricsOverride")


if __name__ == "__main__":
    unittest.main(verbosity=2)
