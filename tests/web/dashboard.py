"""The dashboard in Chromium: it moves with what happens, shows values where one points, keeps five
minutes, asks once a second and only while it is looked at, and survives a server that goes."""
import math
import unittest

import webdriver
from command import wait_until
from page_mock import Answer
from webdriver import LEFT

webdriver.skip_without_browser()

from page_world import World  # noqa: E402  (a browser is needed from here on)

TITLES = ["Throughput", "Time to first token", "Time between tokens", "Queue", "Batch by adapter",
          "KV pages", "Prefix hits", "Drafts accepted", "Memory", "Memory bandwidth",
          "Time by stage", "Inside a step"]


# Timers and the clock of the page, moved by hand; questions about /telemetry, and how many of them
# are under way.
CLOCK = """
const ask = window.fetch;
const clock = window.clock = {now: performance.now(), timers: new Map(), last: 0, asked: 0,
                              underway: 0};
performance.now = () => clock.now;
window.setTimeout = (act, wait = 0) => {
    clock.timers.set(--clock.last, {act, at: clock.now + wait});
    return clock.last;
};
const clear = window.clearTimeout;
window.clearTimeout = (id) => { if (!clock.timers.delete(id)) clear(id); };
window.fetch = (url, ...rest) => {
    const counted = String(url).includes("/telemetry");
    clock.asked += counted;
    clock.underway += counted;
    return ask(url, ...rest).finally(() => { clock.underway -= counted; });
};
clock.due = () => Math.min(...[...clock.timers.values()].map((timer) => timer.at)) - clock.now;
clock.advance = (milliseconds) => {
    const before = clock.asked;
    clock.now += milliseconds;
    for (const [id, {act, at}] of [...clock.timers])
        if (at <= clock.now && clock.timers.delete(id))
            act();
    return clock.asked - before;
};
"""


class Dashboard(World):
    def look(self):
        self.open("/?d#/dashboard")
        self.browser.wait("return document.querySelector('.live.good')")

    def asked(self):
        return self.mock.seen.count("/telemetry")

    def wait_asked(self, count):
        wait_until(lambda: self.asked() >= count, "another question of the dashboard")

    def chart(self, title):
        return self.browser.find(f".card[aria-label='{title}'] .plot")

    def test_it_moves(self):
        self.look()
        self.assertEqual(self.texts(".card h3"), TITLES)
        before = self.texts(".tile b")[0]
        path = "return document.querySelector('.line.s1').getAttribute('d')"
        self.wait_asked(self.asked() + 2)
        line = self.browser.run(path)
        self.mock.tokens += 1000
        self.browser.wait("return document.querySelector('.tile b').textContent !== arguments[0]",
                          before)
        self.assertNotEqual(self.browser.run(path), line)

    def test_an_answer_is_seen_by_its_adapter(self):
        self.browser.find("#model option[value=poetry]").click()
        self.say("x", Answer(*["word "] * 3000, delay=0.005), wait=False)
        self.browser.find("#view-dashboard").click()
        self.browser.wait("return document.querySelector(\".card[aria-label='Batch by adapter']"
                          " .legend\").textContent.includes('poetry')")
        self.browser.find("#view-chat").click()
        self.browser.wait("return document.querySelector('.growing .body')?.textContent.length > 9")
        self.browser.keys(webdriver.ESCAPE)
        self.finish()

    def test_the_share_of_the_bandwidth_never_passes_the_whole(self):
        self.mock.figures = lambda: {"bandwidth": {"bytes_per_second": 2.9e10,
                                                   "limit_bytes_per_second": 2e10}}
        self.look()
        self.browser.wait("return document.querySelector('.tiles').textContent.includes('% of')")
        self.assertIn("100 % of", self.browser.find(".tiles").text.replace(" ", " ")
                      .replace(" ", " "))

    def test_values_under_the_pointer_and_the_arrows(self):
        self.look()
        self.wait_asked(self.asked() + 3)
        plot = self.chart("Time to first token")
        self.browser.run("arguments[0].scrollIntoView({block: 'center'})",
                         {webdriver.ELEMENT: plot.name})
        self.browser.move_to(plot, x=int(plot.property("clientWidth") / 2) - 12)
        tip = self.browser.find(".card[aria-label='Time to first token'] .tip")
        self.browser.wait("return !arguments[0].hidden", {webdriver.ELEMENT: tip.name})
        self.assertIn("median\n12 ms", tip.text)
        self.assertIn("99 %\n30 ms", tip.text)
        self.browser.move_to(self.browser.find(".tiles"))
        self.browser.wait("return arguments[0].hidden", {webdriver.ELEMENT: tip.name})
        self.browser.run("arguments[0].focus()", {webdriver.ELEMENT: plot.name})
        self.browser.keys(LEFT)
        self.assertTrue(tip.shown)
        self.assertIn("median 12 ms", plot.attribute("aria-label"))

    def stop_the_clock(self):
        """From now on the page's time is the test's, and its questions are counted there."""
        self.browser.run(CLOCK)
        self.settle()

    def settle(self):
        """Until no question is under way, and the next one has its time: within a second, unlike
        the timer that gives up on an answer."""
        self.browser.wait("return clock.underway === 0 && clock.due() <= 1000")

    def questions(self, milliseconds):
        """How many the page asks in this time, which passes at once."""
        return self.browser.run("return clock.advance(arguments[0])", milliseconds)

    def test_it_asks_once_a_second_and_only_while_seen(self):
        self.look()
        self.stop_the_clock()
        left = self.browser.run("return clock.due()")
        self.assertTrue(0 <= left <= 1000, left)
        self.assertEqual(self.questions(left), 1)
        for _ in range(3):
            self.settle()
            self.assertEqual(self.questions(999), 0)
            self.assertEqual(self.questions(1), 1)
        self.settle()
        self.browser.find("#view-chat").click()
        self.assertEqual(self.questions(60000), 0, "asked although another view is open")
        self.asks_at_once(lambda: self.browser.find("#view-dashboard").click())
        self.browser.find(".dashboard-head button").click()
        self.assertEqual(self.questions(60000), 0, "asked although it is paused")
        self.asks_at_once(lambda: self.browser.find(".dashboard-head button").click())
        self.hide(True)
        self.assertEqual(self.questions(60000), 0, "asked although the tab is hidden")
        self.asks_at_once(lambda: self.hide(False))

    def asks_at_once(self, act):
        before = self.browser.run("return clock.asked")
        act()
        # The page learns of another view by an event that comes after the click.
        self.browser.wait(f"return clock.asked > {before}")
        self.settle()
        self.assertEqual(self.browser.run("return clock.asked"), before + 1)

    def hide(self, hidden):
        """As the browser tells it when another tab is in front."""
        self.browser.run("Object.defineProperty(document, 'hidden', {configurable: true,"
                         " get: () => arguments[0]});"
                         "document.dispatchEvent(new Event('visibilitychange'))", hidden)

    def test_five_minutes_are_kept(self):
        self.browser.open(self.mock.url + "/?d")
        kept = self.browser.run(
            "return import('/dashboard.js').then(({Dashboard}) => {"
            "const root = document.createElement('div'); document.body.append(root);"
            "const board = new Dashboard(root); board.build();"
            "let now = 1e6; const real = performance.now; performance.now = () => now;"
            "for (let i = 0; i < 400; i++) { now += 1000; board.take(arguments[0]); }"
            "performance.now = real; root.remove();"
            "return [board.samples.length, JSON.stringify(board.samples).length]})",
            {**self.mock.telemetry(), "uptime": None})
        self.assertEqual(kept[0], 301)
        self.assertLess(kept[1], 1000000)

    def test_a_server_that_goes_and_comes_back(self):
        self.look()
        figures = self.mock.telemetry()
        def gone():
            raise ConnectionAbortedError
        self.mock.figures = gone
        self.browser.wait("return document.querySelector('.live.bad')")
        self.assertEqual(self.browser.find(".live").text, "The server cannot be reached.")
        self.mock.figures = lambda: {**figures, "uptime": 1}
        self.browser.wait("return document.querySelector('.live.good')")
        self.assertIn("up 1 s", self.browser.find(".about").text)
        self.browser.complaints()

    def test_colours_differ_for_everyone(self):
        """Neighbours in the palette stay apart in lightness or hue for people without red, green or
        blue receptors, and stand out from their ground by 3 to 1."""
        for theme in ("light", "dark"):
            self.browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
            colours = self.browser.run(
                "const probe = document.createElement('p'); document.body.append(probe);"
                "const read = (name) => { probe.style.color = `var(${name})`;"
                " return getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number); };"
                "const out = ['--surface', '--s1', '--s2', '--s3', '--s4', '--s5', '--s6', '--s7']"
                ".map(read); probe.remove(); return out")
            ground, *series = colours
            for colour in series:
                self.assertGreaterEqual(contrast(colour, ground), 3.0, (theme, colour))
            for kind in DEFICIENCIES:
                for i in range(3):  # the first four are what charts with lines and areas use
                    for j in range(i + 1, 4):
                        self.assertGreater(distance(see(series[i], kind), see(series[j], kind)), 9,
                                           (theme, kind, i + 1, j + 1))


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
DEFICIENCIES = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
            (-0.003882, -0.048116, 1.051998)),
    "green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
              (-0.011820, 0.042940, 0.968881)),
    "blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
             (0.004733, 0.691367, 0.303900)),
}


def linear(colour):
    return [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]]


def contrast(a, b):
    def light(colour):
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour)))
    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def see(colour, kind):
    return [max(0, min(1, sum(w * c for w, c in zip(row, linear(colour)))))
            for row in DEFICIENCIES[kind]]


def distance(a, b):
    """Between linear colours, in CIELAB."""
    def lab(colour):
        rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
        x, y, z = (sum(w * c for w, c in zip(row, colour)) / white
                   for row, white in zip(rows, (0.9505, 1.0, 1.089)))
        fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
        return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)
    return math.dist(lab(a), lab(b))


if __name__ == "__main__":
    unittest.main(verbosity=2)
