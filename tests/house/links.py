"""tools/links on small trees that are compiled here: every rule must find what it is there for, and
nothing else. And the picture in the documentation shows the modules that there are."""
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LINKS = ROOT / "tools" / "links"
COMPILER = os.environ.get("CC", "cc")
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("links", str(LINKS))
links = importlib.util.module_from_spec(importlib.util.spec_from_loader("links", LOADER))
LOADER.exec_module(links)

ENGINE = "int avo_engine_open(void);\nint avo_engine_open(void) { return 1; }\n"
CALLS_ENGINE = "int avo_engine_open(void);\nint f(void);\n" \
               "int f(void) { return avo_engine_open(); }\n"


def compile_tree(folder, files):
    """Writes and compiles the files, with CMake's list of commands beside the objects."""
    root, build, commands = Path(folder), Path(folder) / "build", []
    for path, text in files.items():
        source = root / path
        target = build / "CMakeFiles" / "avocet_objects.dir" / f"{path}.o"
        if path.startswith("tests/"):  # a source that a test compiles once more
            source = root / path.removeprefix("tests/")
            target = build / "tests" / f"{path}.o"
        for made in (source, target):
            made.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        if not path.endswith(".c"):
            continue
        words = [COMPILER, "-O1", "-fPIC", f"-I{root}/src", "-o", str(target.relative_to(build)),
                 "-c", str(source)]
        subprocess.run(words, cwd=build, check=True)
        commands.append({"directory": str(build), "file": str(source),
                         "command": " ".join(words)})
    (build / "compile_commands.json").write_text(json.dumps(commands))
    return root, build


@unittest.skipIf(shutil.which(COMPILER) is None or shutil.which("nm") is None,
                 "there is no compiler here")
class Links(unittest.TestCase):
    def examine(self, files, allowed=None):
        """The set of (path, rule) that is found in a tree of these files."""
        with tempfile.TemporaryDirectory() as folder:
            findings = links.examine(*compile_tree(folder, files), allowed or {})[0]
        return {(path, rule) for path, rule, _ in findings}

    def globals_in(self, text, path="src/base/a.c", allowed=None):
        return {rule for _, rule in self.examine({path: text}, allowed)}

    def test_calls_upwards_are_found(self):
        found = self.examine({"src/tokenizer/a.c": CALLS_ENGINE, "src/engine/b.c": ENGINE})
        self.assertEqual(found, {("src/tokenizer/a.c", "link")})
        for user in ("src/server/a.c", "src/sched/a.c", "src/engine/a.c"):
            self.assertEqual(self.examine({user: CALLS_ENGINE, "src/engine/b.c": ENGINE}), set())

    def test_data_counts_as_well(self):
        found = self.examine({
            "src/base/a.c": "extern const int table[2];\nint f(void);\n"
                            "int f(void) { return table[1]; }\n",
            "src/quant/b.c": "extern const int table[2];\nconst int table[2] = {1, 2};\n"})
        self.assertEqual(found, {("src/base/a.c", "link")})

    def test_names_of_one_file_do_not_count(self):
        own = "static int __attribute__((noinline)) avo_engine_open(void) { return 2; }\n" \
              "int f(void);\nint f(void) { return avo_engine_open(); }\n"
        self.assertEqual(self.examine({"src/base/a.c": own, "src/engine/b.c": ENGINE}), set())
        self.assertEqual(self.examine({"src/base/a.c": CALLS_ENGINE}), set())  # of another library

    def test_writable_variables_are_found(self):
        for text in ("int counter;\n", "int counter = 1;\n",
                     "static int counter;\nint f(void);\nint f(void) { return counter++; }\n",
                     "int f(void);\nint f(void) { static int calls; return calls++; }\n",
                     "_Thread_local int own;\n", "_Thread_local int own = 1;\n",
                     "int common __attribute__((common));\n", "const char *name = \"a\";\n",
                     "int named __attribute__((section(\".data.named\"))) = 1;\n"):
            self.assertEqual(self.globals_in(text), {"global"}, text)
        for text in ("const int table[2] = {1, 2};\n", "const char *const names[] = {\"a\"};\n",
                     "extern int elsewhere;\nint f(void);\nint f(void) { return elsewhere; }\n",
                     "int f(void);\nint f(void) { return 1; }\nint (*const g)(void) = f;\n"):
            self.assertEqual(self.globals_in(text), set(), text)

    def test_exceptions_are_for_programs_and_are_used(self):
        text = "int f(void);\nint f(void) { static int calls; return calls++; }\n"
        path = "src/cli/a.c"
        self.assertEqual(self.globals_in(text, path), {"global"})
        self.assertEqual(self.globals_in(text, path, {path: {"calls": "counts"}}), set())
        self.assertEqual(self.globals_in("const int a = 1;\n", path, {path: {"calls": "counts"}}),
                         {"global"})
        library = "src/server/a.c"
        self.assertEqual(self.globals_in(text, library, {library: {"calls": "counts"}}), {"global"})

    def test_what_tests_compile_is_theirs(self):
        self.assertEqual(self.examine({"src/base/a.c": "int counter;\n",
                                       "tests/src/base/a.c": "const int counter = 1;\n"}),
                         {("src/base/a.c", "global")})

    def test_as_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            root, build = compile_tree(folder, {"src/base/a.c": "int counter;\n"})

            def run(*arguments):
                done = subprocess.run([sys.executable, LINKS, "--root", root, *arguments],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                return done.returncode, done.stdout, done.stderr
            status, out, _ = run(build)
            self.assertEqual(status, 1)
            self.assertIn("src/base/a.c: global: counter can be written", out)
            self.assertIn("links: 1 objects, 0 links", out)
            status, out, error = run(root)
            self.assertEqual((status, out), (2, ""))
            self.assertIn("compile_commands.json is missing: run cmake", error)
            next(build.rglob("*.o")).unlink()
            status, out, error = run(build)
            self.assertEqual((status, out), (2, ""))
            self.assertIn("src/base/a.c has no object file: run cmake --build", error)

    def test_the_picture(self):
        files = {"src/base/a.h": "int one(void);\n",
                 "src/base/a.c": "#include \"base/a.h\"\nint one(void) { return 1; }\n",
                 "src/quant/b.c": "#include \"base/a.h\"\nint two(void);\n"
                                  "int two(void) { return 2 * one(); }\n",
                 "src/engine/c.c": "#include \"base/a.h\"\nint three(void);\n"
                                   "int three(void) { return 3; }\n"}
        with tempfile.TemporaryDirectory() as folder:
            root, build = compile_tree(folder, files)
            drawn = links.draw(root, build)
            self.assertEqual(drawn, links.draw(root, build))
        self.assertEqual(modules_drawn(drawn), ["engine", "quant", "base"])
        self.assertIn("quant uses base: 1 symbols, 1 includes", drawn)
        self.assertIn("engine uses base: 0 symbols, 1 includes", drawn)
        self.assertEqual(len(re.findall(r"\w+ uses \w+: ", drawn)), 2)


def modules_drawn(drawn):
    return re.findall(r'class="module"[^>]*>(\w+)<', drawn)


class Documentation(unittest.TestCase):
    def test_the_picture_shows_the_modules_that_there_are(self):
        with_code = {path.relative_to(ROOT / "src").parts[0]
                     for path in (ROOT / "src").rglob("*.c")}
        wanted = [module for module in reversed(links.tidy.LAYERS) if module in with_code]
        drawn = modules_drawn((ROOT / "docs" / "images" / "modules.svg").read_text())
        self.assertEqual(drawn, wanted, "run make graph")


if __name__ == "__main__":
    unittest.main(verbosity=1)
