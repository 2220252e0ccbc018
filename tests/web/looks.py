"""How the page looks where it is read: light and dark, contrast of every text, a telephone, little
motion, large type. Screenshots go to AVO_SCREENSHOTS where that is set."""
import os
import unittest
from pathlib import Path

import webdriver
from page_mock import Answer

webdriver.skip_without_browser()

from page_world import World  # noqa: E402  (a browser is needed from here on)

RICH = """# A heading

Some **bold** and *slanted* text, `inline code`, ~~struck~~, a [link](https://example.org/).

> A quotation.

1. one
2. two
   - [x] done

| name | value |
|---|--:|
| a | 1 |

```python
# a comment
def area(radius):
    return 3.14 * radius ** 2, "text"
```
"""

# Every text that is seen, against what lies behind it; opacity counts.
CONTRAST = """
const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number);
    return text.startsWith('color(srgb') ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1]
        : [n[0], n[1], n[2], n[3] ?? 1]; };
const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = (node) => { const chain = [];
    for (let at = node; at; at = at.parentElement)
        chain.push(parse(getComputedStyle(at).backgroundColor));
    return chain.reverse().reduce((under, top) => over(top, under), [255, 255, 255]); };
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const poor = [];
let seen = 0;
while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), node = walker.currentNode.parentElement;
    if (text === '' || node.closest('.hidden, script, noscript, option, :disabled') ||
        !node.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const style = getComputedStyle(node);
    const paint = node.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const behind = ground(node.closest('svg')?.parentElement || node);
    const a = light(over(parse(paint), behind)), b = light(behind);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen++;
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${node.className} "${text.slice(0, 30)}"`);
}
return [seen, poor];
"""


class Looks(World):
    def tearDown(self):
        super().tearDown()
        self.browser.cdp("Emulation.clearDeviceMetricsOverride")
        self.browser.cdp("Emulation.setTouchEmulationEnabled", enabled=False)
        self.browser.media()

    def shoot(self, name):
        folder = os.environ.get("AVO_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.browser.screenshot(str(Path(folder) / f"{name}.png"))

    def check_contrast(self, where):
        seen, poor = self.browser.run(CONTRAST)
        self.assertGreater(seen, 15, where)
        self.assertEqual(poor, [], where)

    def ground(self):
        return self.browser.run("return getComputedStyle(document.body).backgroundColor")

    def fits(self, where):
        """Nothing stands out at the side, and what must be reached is on the screen."""
        self.assertEqual(self.browser.run(
            "return [...document.querySelectorAll('body *')].filter((node) =>"
            " node.checkVisibility({visibilityProperty: true}) && !node.closest("
            "'.sidebar, .hidden, .skip, pre, .table, svg') &&"
            " (node.getBoundingClientRect().right > innerWidth + 1 ||"
            " node.getBoundingClientRect().left < -1)).map((node) => node.outerHTML.slice(0, 80))"),
            [], where)

    def test_contrast_everywhere(self):
        self.say("Show me *everything*", Answer(RICH), Answer(status=500, message="out of memory"))
        self.say("and fail")
        for theme in ("light", "dark"):
            self.browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
            self.check_contrast(f"chat, {theme}")
            self.shoot(f"chat-{theme}")
            self.browser.find("#settings-open").click()
            self.check_contrast(f"settings, {theme}")
            self.browser.find("#settings-close").click()
            self.browser.find("#new-chat").click()
            self.check_contrast(f"welcome, {theme}")
            self.browser.find("#view-dashboard").click()
            self.browser.wait("return document.querySelector('.live.good')")
            self.check_contrast(f"dashboard, {theme}")
            self.browser.find(".conversations a").click()

    def test_the_switch_of_the_theme(self):
        self.browser.media(prefers_color_scheme="light")
        light = self.ground()
        self.browser.media(prefers_color_scheme="dark")
        dark = self.ground()
        self.assertNotEqual(light, dark)
        self.browser.find("#theme").click()
        self.assertEqual((self.browser.find("#theme").text, self.ground()), ("Light theme", light))
        self.browser.reload()
        self.assertEqual(self.ground(), light)
        self.browser.find("#theme").click()
        self.browser.media(prefers_color_scheme="light")
        self.assertEqual((self.browser.find("#theme").text, self.ground()), ("Dark theme", dark))
        self.browser.find("#theme").click()
        self.assertEqual((self.browser.find("#theme").text, self.ground()),
                         ("System theme", light))

    def test_a_telephone(self):
        self.browser.phone()
        self.open("/?phone")
        self.fits("welcome")
        self.assertFalse(self.browser.find("#sidebar").shown)
        self.say("Show me everything", Answer(RICH + "\n" + "x" * 300))
        self.fits("chat")
        self.shoot("phone")
        self.browser.find("#sidebar-open").click()
        self.browser.wait("return document.activeElement.id === 'sidebar-close'")
        self.assertTrue(self.browser.run("return document.getElementById('main').inert"))
        self.browser.keys(webdriver.ESCAPE)
        self.assertEqual(self.focus(), "sidebar-open")
        self.browser.find("#sidebar-open").click()
        self.browser.wait("return document.getElementById('sidebar')"
                          ".getBoundingClientRect().left === 0")
        self.browser.find("#view-dashboard").click()
        self.browser.wait("return document.querySelector('.live.good')")
        self.fits("dashboard")
        self.assertFalse(self.browser.run("return document.getElementById('main').inert"))
        self.open("/?phone2")
        self.browser.find("#settings-open").click()
        self.fits("settings")
        self.browser.find("#settings-close").click()
        small = self.browser.run(
            "return [...document.querySelectorAll('button, select')].filter((node) =>"
            " node.checkVisibility({visibilityProperty: true}) && (node.offsetHeight < 24 ||"
            " node.offsetWidth < 24)).map((node) => node.outerHTML.slice(0, 80))")
        self.assertEqual(small, [], "too small for a finger")

    def test_narrow_and_large(self):
        for width, height in ((320, 640), (700, 500), (1024, 700), (1920, 1080)):
            self.browser.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                             deviceScaleFactor=1, mobile=False)
            self.open(f"/?w{width}")
            self.say("Show me everything", Answer(RICH))
            self.fits(f"{width} × {height}")
            self.assertTrue(self.browser.find("#send").shown)
        self.browser.run("document.body.style.fontSize = '24px'")
        self.fits("large type")

    def test_little_motion(self):
        self.browser.media(prefers_reduced_motion="reduce")
        self.say("x", Answer(*["a "] * 500, delay=0.01), wait=False)
        moving = self.browser.run("return document.getAnimations().length")
        self.browser.keys(webdriver.ESCAPE)
        self.finish()
        self.assertEqual(moving, 0)

    def test_the_view_follows_unless_one_reads_above(self):
        self.say("x", Answer(*["a paragraph\n\n"] * 80))
        at = "const s = document.getElementById('scroller');"
        self.browser.wait(at + "return s.scrollHeight - s.scrollTop - s.clientHeight < 5")
        self.say("y", Answer(*["more\n\n"] * 2000, delay=0.003), wait=False)
        self.browser.wait("return document.querySelectorAll('.growing .body p').length > 5")
        self.browser.run(at + "s.scrollTop = 0")
        self.browser.wait("return !document.getElementById('jump').hidden")
        before = self.texts(".growing .body")[0]
        self.browser.wait("return document.querySelector('.growing .body').textContent.length >"
                          " arguments[0] + 100", len(before))
        self.assertEqual(self.browser.run(at + "return s.scrollTop"), 0)
        self.browser.find("#jump").click()
        self.browser.wait(at + "return s.scrollHeight - s.scrollTop - s.clientHeight < 80")
        self.browser.keys(webdriver.ESCAPE)
        self.finish()


if __name__ == "__main__":
    unittest.main(verbosity=2)
