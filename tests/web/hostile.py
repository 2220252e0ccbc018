"""Whatever a model says stays text: scripts, handlers, links that run, tricks of markdown, of
direction and of size. Nothing runs, nothing is asked for, the policy has nothing to stop."""
import json
import threading
import unittest

import webdriver
from page_mock import Answer

webdriver.skip_without_browser()

from page_world import World  # noqa: E402  (a browser is needed from here on)

RUN = "window.hacked = (window.hacked || 0) + 1"
MARKUP = [
    f"<script>{RUN}</script>",
    f"<img src=x onerror='{RUN}'>",
    f"<svg onload='{RUN}'><script>{RUN}</script><image href='x' onerror='{RUN}'/></svg>",
    f"<svg><foreignObject><iframe src='javascript:{RUN}'></iframe></foreignObject></svg>",
    f"<a href='javascript:{RUN}'>click</a>",
    "<img src='http://attacker.example/pixel.png'>",
    "<link rel=stylesheet href='http://attacker.example/x.css'><style>*{display:none}</style>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    f"<body onload='{RUN}'><details open ontoggle='{RUN}'><video><source onerror='{RUN}'>",
    "<meta http-equiv=refresh content='0;url=http://attacker.example/'>",
    "<base href='http://attacker.example/'><form action='http://attacker.example/'><button>go",
    f"</p></div></article></main><script>{RUN}</script>",
    f"<!--><script>{RUN}</script>--><![CDATA[<script>{RUN}</script>]]>",
    f"<math><mtext><table><mglyph><style><img src=x onerror='{RUN}'>",
    f"&lt;script&gt;{RUN}&lt;/script&gt; &#60;script&#62;",
    f"<scr\u0000ipt>{RUN}</scr\u0000ipt> \ufeff<script>{RUN}</script>",
    "{{constructor.constructor('hacked=1')()}} ${hacked=1} <%= hacked=1 %>",
]
MARKDOWN = [
    f"[a](javascript:{RUN.replace(' ', '')})",
    "[a](JAVASCRIPT:hacked=1) [b](java\nscript:hacked=1) [c](&#106;avascript:hacked=1)",
    "[a](\u0001javascript:hacked=1) [b](javascript&colon;hacked=1) <javascript:hacked=1>",
    "[a](data:text/html;base64,PHNjcmlwdD5oYWNrZWQ9MTwvc2NyaXB0Pg==) [b](vbscript:x)",
    "![x](http://attacker.example/pixel.png) ![x](javascript:hacked=1)",
    "![x\" onerror=\"hacked=1](https://attacker.example/a.png\" onerror=\"hacked=1)",
    "[a](https://attacker.example/\"onclick=\"hacked=1)",
    "[b](<https://x.example/' onclick='hacked=1>)",
    "[ref]: javascript:hacked=1\n[a][ref] [ref]",
    "```html\n<script>hacked=1</script>\n```\n````\n```\n<img src=x onerror=hacked=1>\n````",
    "```\"><script>hacked=1</script>\nx\n```\n`<script>hacked=1</script>`",
    "| <script>hacked=1</script> | <img src=x onerror=hacked=1> |\n|---|---|\n"
    "| [x](javascript:a) | y |",
    "# <script>hacked=1</script>\n- <img src=x onerror=hacked=1>\n> <svg onload=hacked=1>",
    "**<b onmouseover=hacked=1>bold**</b> *<i>*</i> ~~<s onclick=hacked=1>~~",
    "[x](https://user:pass@attacker.example/) https://good.example@attacker.example/",
]
ALLOWED = {"a", "bdi", "blockquote", "br", "button", "code", "del", "div", "em", "figcaption",
           "figure", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p", "path", "pre", "span",
           "strong", "svg", "table", "tbody", "td", "th", "thead", "tr", "ul"}
SURVEY = """
const bodies = [...document.querySelectorAll('.message .body')];
const nodes = bodies.flatMap((body) => [...body.querySelectorAll('*')]);
return {
    tags: [...new Set(nodes.map((node) => node.localName))],
    handlers: nodes.filter((node) => [...node.attributes].some(
        (attribute) => /^on|^style$|^src/.test(attribute.name))).map((node) => node.outerHTML),
    links: nodes.filter((node) => node.localName === 'a').map((node) => [node.getAttribute('href'),
        node.rel, node.target]),
    pictures: bodies.flatMap((body) => [...body.querySelectorAll('svg')])
        .filter((node) => !node.closest('figcaption')).length,
    hacked: window.hacked,
}"""


class Hostile(World):
    def survey(self):
        seen = self.browser.run(SURVEY)
        self.assertEqual(set(seen["tags"]) - ALLOWED, set())
        self.assertEqual((seen["handlers"], seen["pictures"], seen["hacked"]), ([], 0, None))
        for href, rel, target in seen["links"]:
            self.assertRegex(href, r"\Ahttps?://[\w.]+/")
            self.assertNotIn("@", href)
            self.assertIn("noopener", rel)
            self.assertEqual(target, "_blank")
        return seen

    def test_markup_stays_text(self):
        self.say("x", Answer(*(text + "\n\n" for text in MARKUP)))
        self.survey()
        said = self.texts(".assistant .body")[0]
        for piece in ("<script>window.hacked", "onerror=", "<iframe srcdoc", "<meta http-equiv",
                      "<script>window.hacked = (window.hacked || 0) + 1</script>"):
            self.assertIn(piece, said)
        self.assertTrue(self.browser.find("#prompt").shown)

    def test_markdown_tricks_stay_text(self):
        self.say("x", *(Answer(text) for text in MARKDOWN[:1]))
        for text in MARKDOWN[1:]:
            self.say("x", Answer(text))
        seen = self.survey()
        self.assertGreater(len(seen["links"]), 0)
        for link in self.browser.all(".assistant .body a"):
            self.assertNotIn("javascript", link.attribute("href").lower())

    def test_cut_anywhere_while_it_streams(self):
        text = "\n\n".join(MARKUP[:6] + MARKDOWN[:6])
        self.say("x", Answer(*text, delay=0.0005))
        self.survey()

    def test_my_own_message_and_names_are_text_too(self):
        script = f"<img src=x onerror='{RUN}'>"
        self.mock.models = [f"<img src=x onerror='{RUN}'>", "<script>hacked=1</script>"]
        self.open("/?names")
        self.browser.find("#prompt").type(script)
        self.say("", Answer("ok"))
        self.browser.find("#settings-open").click()
        self.survey()
        self.assertEqual(self.texts(".user .body"), [script])
        self.assertTrue(self.texts(".conversations a")[0].startswith("<img src=x onerror"))
        self.browser.reload()
        self.browser.wait("return document.querySelectorAll('.message').length === 2")
        self.survey()

    def test_errors_of_the_server_are_text(self):
        self.say("x", Answer(status=400, message=f"<img src=x onerror='{RUN}'> [a](javascript:x)"))
        self.assertIn("<img src=x", self.browser.find(".error").text)
        self.assertEqual(self.browser.run("return document.querySelectorAll('.error img, .error a')"
                                          ".length + (window.hacked || 0)"), 0)

    def test_hostile_figures_on_the_dashboard(self):
        good = self.mock.telemetry()
        script = f"<img src=x onerror='{RUN}'>"
        self.mock.figures = lambda: {
            **good, "isa": script, "threads": script, "uptime": {}, "requests": [script],
            "batch": {"rows": 1, "adapters": [{"name": script, "running": 2},
                                              {"name": "__proto__", "running": 1},
                                              {"name": 7, "running": "x"}]},
            "stages": [{"name": script, "seconds": 1, "count": 1}], "kv": None,
            "latency": {"first_token": {"p50": "x"}, "inter_token": None},
            "memory": "x", "rates": {"new_tokens": 1e308, "prompt_tokens": -5}}
        self.open("/?d#/dashboard")
        self.browser.wait("return document.querySelectorAll('.bars.wide tbody tr').length === 1")
        self.assertEqual(self.browser.run(
            "return [document.querySelectorAll('#dashboard img').length, window.hacked]"),
                         [0, None])
        self.assertIn(script, self.texts(".bars tbody th"))

    def test_characters_of_control_are_shown(self):
        self.say("x", Answer("a\u202egnp.exe\u202c b\u2066c\u0007d\n\n`x\u202ey` "
                             "[https://good.example\u202e](https://other.example/)\n\n"
                             "```\nif (admin\u202e) {\n```\n\nעברית عربي"))
        shown = self.texts(".assistant .control")
        self.assertEqual(shown, ["U+202E", "U+202C", "U+2066", "U+0007", "U+202E", "U+202E",
                                 "U+202E"])
        self.assertEqual(self.browser.run(
            "return [...document.querySelectorAll('.assistant .body > p')].pop().dir"), "auto")
        self.survey()

    def test_huge_answers_do_not_block_the_page(self):
        piece = "word **bold** `code` " * 50 + "\n\n"
        self.say("x", Answer(*[piece] * 400))  # 430 KB in 400 paragraphs
        self.assertEqual(self.browser.run(
            "return document.querySelectorAll('.assistant .body > p').length"), 400)
        self.browser.find("#new-chat").click()
        self.say("x", Answer("W" * 300000))
        self.assertEqual(len(self.texts(".assistant .body")[0]), 300000)
        self.assertLessEqual(self.browser.run(
            "return document.documentElement.scrollWidth - innerWidth"), 0)
        self.browser.find("#new-chat").click()
        self.say("x", Answer(">" * 3000 + "\n" + "- " * 3000 + "\n" + "[" * 3000 + "*" * 3000))
        self.survey()

    def test_nesting_ends_and_the_page_goes_on(self):
        for text in ("**a " * 2000 + "b** " * 2000, "- a" + "\n" * 200000 + "  b",
                     "![" * 2000 + "a" + "](https://x.example/)" * 2000):
            self.browser.find("#new-chat").click()
            self.say("x", Answer(text))
            self.survey()
            self.assertFalse(self.browser.find("#stop").shown)
            self.browser.reload()
            self.browser.wait("return document.querySelectorAll('.message').length === 2")
            self.assertNotEqual(self.texts(".assistant .body")[0], "")
            self.assertEqual(self.browser.all(".body > .plain"), [])

    def test_a_flood_can_be_stopped(self):
        hold = threading.Event()
        self.say("x", Answer("```c\n", *["int x;\n" * 20] * 500, hold=hold), wait=False)
        hold.set()
        self.browser.keys(webdriver.ESCAPE)
        self.finish()
        self.assertTrue(self.browser.find("#prompt").shown)

    def test_no_room_to_keep_it(self):
        self.browser.run("localStorage.setItem('filler', 'x'.repeat(5200000))")
        self.say("x", Answer("y" * 100000))
        self.assertEqual(len(self.texts(".assistant .body")[0]), 100000)
        self.assertIn("no room", self.browser.find(".toasts").text)

    def test_hostile_files_are_checked(self):
        nodes = {"a": {"id": "a", "parent": "", "role": "user", "text": f"<script>{RUN}</script>",
                       "error": f"<img src=x onerror='{RUN}'>", "stats": {"rate": "<b>"}}}
        file = json.dumps({"avocet": "conversations", "version": 1, "conversations": [
            {"version": 1, "id": "abc", "title": f"<img src=x onerror='{RUN}'>", "nodes": nodes,
             "chosen": {"": "a", "__proto__": "a"}, "mix": {"__proto__": 1}}]})
        self.browser.run(
            "const all = new DataTransfer(); all.items.add(new File([arguments[0]], 'x.json'));"
            "const input = document.getElementById('import-file');"
            "input.files = all.files; input.dispatchEvent(new Event('change'))", file)
        self.browser.wait("return document.querySelectorAll('.conversations li').length === 1")
        self.browser.find(".conversations a").click()
        self.browser.wait("return document.querySelectorAll('.message').length === 1")
        self.survey()
        self.assertEqual(self.browser.run("return [Object.prototype.a, ({}).poetry]"), [None, None])


class Policy(World):
    """The tests above could pass because they cannot see: here the policy is made to speak."""
    def tearDown(self):
        self.browser.complaints()
        self.browser.requests()

    def test_what_gets_in_anyway_cannot_run(self):
        self.browser.run(
            "document.body.insertAdjacentHTML('beforeend', arguments[0]);"
            "const script = document.createElement('script'); script.textContent = 'hacked = 1';"
            "document.body.append(script);"
            "fetch('http://attacker.example/').catch(() => {});",
            f"<img src=x onerror='{RUN}'><img src='http://attacker.example/x.png'>"
            "<p style='color:red' onclick='hacked=1'>x</p>")
        self.browser.wait("return violations.length >= 4")
        said = " ".join(self.browser.run("return violations"))
        for rule in ("script-src-attr", "script-src-elem inline", "img-src", "style-src-attr",
                     "connect-src"):
            self.assertIn(rule, said)
        self.assertIsNone(self.browser.run("return window.hacked"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
