"""What can be known of the page without a browser: no markup from text, nothing from outside, and
its modules as node runs them (markdown, colours of code, the tree of messages, files, figures)."""
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from page_mock import ROOT, page_headers

FILES = sorted((ROOT / "web").iterdir())


def without_comments(text):
    return re.sub(r"/\*.*?\*/|<!--.*?-->", "", text, flags=re.DOTALL)


class Sources(unittest.TestCase):
    def test_nothing_makes_markup_from_text(self):
        banned = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|"
                            r"new Function|DOMParser|createContextualFragment|srcdoc|setHTML|"
                            r"setTimeout\(\s*[\"'`]|[\"'`]javascript:|\bimport\(")
        for path in FILES:
            self.assertIsNone(banned.search(without_comments(path.read_text())), path)
        self.assertIsNotNone(banned.search("node.innerHTML = text"))

    def test_nothing_comes_from_outside(self):
        outside = re.compile(r"(?<!\w)(?:https?:)?//[\w-]+(\.[\w-]+)+")
        for path in FILES:
            text = without_comments(path.read_text()).replace("http://www.w3.org/2000/svg", "")
            self.assertIsNone(outside.search(text), path)
        self.assertIsNotNone(outside.search('src="https://cdn.example.org/x.js"'))

    def test_nothing_stands_inline(self):
        for path in FILES:
            if path.suffix in (".html", ".svg"):
                self.assertIsNone(re.search(r"\son\w+=|\sstyle=|<style|<script(?! src=\"/)",
                                            path.read_text()), path)

    def test_the_tests_use_the_headers_of_the_server(self):
        headers = page_headers()
        self.assertIn("script-src 'self'; ", headers["Content-Security-Policy"])
        self.assertEqual(len(headers), 6)

    def test_the_page_is_small(self):
        self.assertLess(sum(path.stat().st_size for path in FILES), 200 * 1000)


@unittest.skipUnless(shutil.which("node"), "no node here; on Debian: apt-get install nodejs")
class Modules(unittest.TestCase):
    def test_modules(self):
        """modules.mjs, with web/ beside it as modules."""
        with tempfile.TemporaryDirectory(prefix="avocet-web-") as folder:
            for path in FILES:
                shutil.copy(path, folder)
            shutil.copy(Path(__file__).with_name("modules.mjs"), folder)
            Path(folder, "package.json").write_text(json.dumps({"type": "module"}))
            done = subprocess.run(["node", "modules.mjs"], cwd=folder, timeout=120, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
