"""tools/tidy on small bad trees: every rule must find what it is there for, and nothing else."""
import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TIDY = ROOT / "tools" / "tidy"
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("tidy", str(TIDY))
tidy = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", LOADER))
LOADER.exec_module(tidy)
HEAD = "/* What this owns. */\n"


def header(guard, body=""):
    return f"{HEAD}#ifndef {guard}\n#define {guard}\n{body}\n#endif\n"


class Tidy(unittest.TestCase):
    def write(self, folder, files):
        for path, content in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def rules(self, files, with_format=False):
        """The set of (path, rule) that tools/tidy reports on a tree made of these files."""
        with tempfile.TemporaryDirectory() as folder:
            self.write(folder, files)
            findings = tidy.examine(folder, with_format)[0]
        return {(path, rule) for path, _, rule, _ in findings}

    def test_as_a_program(self):
        for text, status in (("int x;\n", 0), ("int x; \n", 1)):
            with tempfile.TemporaryDirectory() as folder:
                self.write(folder, {"tests/base/a.c": HEAD + text})
                done = subprocess.run([sys.executable, TIDY, "--root", folder, "--no-format"],
                                      stdout=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, status)
            self.assertEqual("tests/base/a.c:2: space" in done.stdout, status == 1)
            self.assertIn("tidy: 1 files", done.stdout)

    def source(self, text, path="src/base/thing.c", **more):
        """The rules broken by one source file (tests are there, headers are there)."""
        module = path.split("/")[1]
        files = {path: HEAD + text, f"tests/{module}/thing.c": HEAD,
                 "src/base/status.h": header("AVO_BASE_STATUS_H"),
                 "src/engine/engine.h": header("AVO_ENGINE_ENGINE_H"),
                 "src/quant/table_int.h": header("AVO_QUANT_TABLE_INT_H")}
        files.update(more)
        return {rule for name, rule in self.rules(files) if name == path}

    def test_good_tree(self):
        self.assertEqual(self.source('#include "base/status.h"\n\nint one(void) {\n'
                                     '    return 1;\n}\n'), set())

    def test_layers(self):
        self.assertEqual(self.source('#include "engine/engine.h"\n'), {"layer"})
        self.assertEqual(self.source('#include "base/status.h"\n', "src/engine/x.c"), set())
        self.assertEqual(self.source('#include "quant/table_int.h"\n', "src/engine/x.c"),
                         {"private"})
        self.assertEqual(self.source('#include "quant/table_int.h"\n', "src/quant/x.c"), set())
        self.assertEqual(self.source('#include "status.h"\n'), {"include"})
        self.assertEqual(self.source('#include "base/missing.h"\n'), {"include"})
        self.assertEqual(self.source('#include "../base/status.h"\n'), {"include"})
        self.assertEqual(self.source('#include "elsewhere/x.h"\n'), {"include"})
        self.assertEqual(self.source("", "src/unknown/x.c"), {"layer"})

    def test_library_homes(self):
        self.assertEqual(self.source("#include <curl/curl.h>\n", "src/model/x.c"), {"library"})
        self.assertEqual(self.source("#include <curl/curl.h>\n", "src/hub/x.c"), set())

    def test_public_header(self):
        found = self.rules({"include/avocet.h": header("AVOCET_H", '#include "base/x.h"'),
                            "include/other.h": header("AVO_INCLUDE_OTHER_H"),
                            "examples/a.c": HEAD + '#include "base/status.h"\n'})
        self.assertEqual(found, {("include/avocet.h", "public"), ("include/other.h", "public"),
                                 ("examples/a.c", "public")})

    def test_banned_functions(self):
        for name in ("strcpy", "strcat", "sprintf", "vsprintf", "gets", "strtok", "alloca", "atoi",
                     "atol", "atof", "rand", "setjmp", "longjmp", "system"):
            self.assertEqual(self.source(f"void f(void) {{\n    {name}(a);\n}}\n"), {"banned"},
                             name)
        self.assertEqual(self.source("/* strcpy( is banned */\nvoid f(void) {\n"
                                     '    my_strcpy("atoi(");\n    table->system(1);\n}\n'), set())
        self.assertEqual(self.rules({"tests/base/a.c": HEAD + "void f(void) {\n    atoi(a);\n}\n"}),
                         {("tests/base/a.c", "banned")})

    def test_printing_and_memory(self):
        for call in ("printf(a)", "puts(a)", "exit(1)", "abort()", "fputs(a, stderr)",
                     "fprintf(stdout, a)"):
            text = f"void f(void) {{\n    {call};\n}}\n"
            self.assertEqual(self.source(text), {"prints"}, call)
            self.assertEqual(self.source(text, "src/hub/x.c"), {"prints"}, call)
            self.assertEqual(self.source(text, "src/cli/x.c"), set(), call)
        text = "void f(void) {\n    free(malloc(1));\n}\n"
        self.assertEqual(self.source(text), {"memory"})
        self.assertEqual(self.source(text, "src/base/allocator.c"), set())
        self.assertEqual(self.source(text, "src/cli/x.c"), set())

    def test_weak(self):
        self.assertEqual(self.source("__attribute__((weak)) int f(void);\n"), {"weak"})

    def test_locale(self):
        for call in ("strtod(a, 0)", "sscanf(a, b)"):
            text = f"void f(void) {{\n    {call};\n}}\n"
            self.assertEqual(self.source(text), {"locale"})
            self.assertEqual(self.source(text, "src/base/number.c"), set())
            self.assertEqual(self.source(text, "src/cli/x.c"), set())

    def test_global_state(self):
        for text in ("static int counter;\n", "static struct thing cache = {0};\n",
                     "static char *names[4];\n", "static _Atomic int ready = 0;\n",
                     "void f(void) {\n    static int calls;\n}\n",
                     "static _Thread_local char text[80];\n"):
            self.assertEqual(self.source(text), {"global-state"}, text)
        for text in ("static const int table[] = {1};\n", "static int f(int a);\n",
                     'static const char *const names[] = {"a"};\n',
                     "static inline int g(void) {\n    return 1;\n}\n",
                     "static thing *h(int a, int b) {\n    return 0;\n}\n"):
            self.assertEqual(self.source(text), set(), text)

    def test_lengths(self):
        body = "".join(f"    call({i});\n" for i in range(69))
        self.assertEqual(self.source(f"void f(void) {{\n{body}}}\n"), {"function-length"})
        self.assertEqual(self.source("void f(void) {\n" + body[13:] + "}\n"), set())
        self.assertEqual(self.source("/* */\n" * 701), {"file-length"})
        self.assertEqual(self.source("/* */\n" * 1001), {"file-length"})
        self.assertEqual(self.source("int x" + "y" * 100 + ";\n"), {"long-line"})

    def test_ratchet(self):
        body = "".join(f"    call({i});\n" for i in range(80))
        long = f"void f(void) {{\n{body}}}\n"
        for entry, wanted in (
                ("function src/base/thing.c f 82", set()),
                ("function src/base/thing.c f 81", {("src/base/thing.c", "function-length")}),
                ("function src/base/thing.c f 90", {("tools/tidy.ratchet", "ratchet")}),
                ("function src/base/thing.c g 90", {("tools/tidy.ratchet", "ratchet"),
                                                    ("src/base/thing.c", "function-length")}),
                ("nonsense", {("tools/tidy.ratchet", "ratchet"),
                              ("src/base/thing.c", "function-length")})):
            found = self.rules({"src/base/thing.c": HEAD + long, "tests/base/thing.c": HEAD,
                                "tools/tidy.ratchet": entry + "\n"})
            self.assertEqual(found, wanted, entry)
        found = self.rules({"src/base/a.c": HEAD + "/* */\n" * 1100, "tests/base/a.c": HEAD,
                            "tools/tidy.ratchet": "file src/base/a.c 1101\n"})
        self.assertIn(("src/base/a.c", "file-length"), found)

    def test_json_by_hand(self):
        for literal in (r'"{\"key\":1}"', r'",\"a_b\": "', r'"\"%s\":%u"', r'"\"$ref\":"',
                        '"{\'key\':1}"', '"[{\'a_b\' : 2}]"', '",\'$ref\':"'):
            self.assertEqual(self.source(f"const char *x = {literal};\n"), {"json"}, literal)
        for literal in (r'"adapter \"%s\": no such file"', r'"say \"key\""', r'"key:"',
                        '"the key\'s: name"', '"say \'key\'"'):
            self.assertEqual(self.source(f"const char *x = {literal};\n"), set(), literal)
        self.assertEqual(self.source('/* "{\\"key\\":1}" */\n'), set())
        two = HEAD + 'const char *x = "\\"a\\":"\n                "\\"b\\":";\n'
        for entry, wanted in (
                ("json src/base/thing.c 2", set()),
                ("json src/base/ 2", set()),
                ("json src/base/ 1", {("src/base/thing.c", "json")}),
                ("json src/base/thing.c 3", {("tools/tidy.ratchet", "ratchet")}),
                ("json src/quant/ 1", {("tools/tidy.ratchet", "ratchet"),
                                       ("src/base/thing.c", "json")})):
            found = self.rules({"src/base/thing.c": two, "tests/base/thing.c": HEAD,
                                "tools/tidy.ratchet": entry + "\n"})
            self.assertEqual(found, wanted, entry)
        found = self.rules({"src/base/thing.c": HEAD, "tests/base/thing.c": HEAD,
                            "tools/tidy.ratchet": "json src/base/thing.c 2\n"})
        self.assertEqual(found, {("tools/tidy.ratchet", "ratchet")})

    def test_text(self):
        self.assertEqual(self.source("int x; \n"), {"space"})
        self.assertEqual(self.source("\tint x;\n"), {"tab"})
        self.assertEqual(self.source("/* TO" "DO later */\n"), {"open-work"})
        self.assertEqual(self.source("/* TO" "DO (#12) later */\n"), set())
        self.assertEqual(self.source("/* see /" "home/me/x */\n"), {"machine-path"})
        self.assertEqual(self.source("int x;"), {"end"})
        self.assertEqual(self.source("int x;\n\n"), {"end"})
        self.assertEqual(self.rules({"docs/a.md": "in /" "opt/thing \n"}),
                         {("docs/a.md", "machine-path"), ("docs/a.md", "space")})

    def test_heads_and_guards(self):
        files = {"src/base/a.c": "int x;\n", "tests/base/a.c": HEAD,
                 "src/engine/engine_int.h": header("AVO_ENGINE_INT_H"),
                 "src/base/b.h": header("WRONG_H"), "src/base/c.h": HEAD,
                 "src/tokenizer/template/template.h": header("AVO_TOKENIZER_TEMPLATE_H"),
                 "src/tokenizer/template/lexer_int.h":
                     header("AVO_TOKENIZER_TEMPLATE_LEXER_INT_H"),
                 "src/tokenizer/template/value_int.h": header("AVO_TEMPLATE_VALUE_INT_H")}
        self.assertEqual(self.rules(files), {("src/base/a.c", "head"), ("src/base/b.h", "guard"),
                                             ("src/base/c.h", "guard")})

    def test_x86(self):
        self.assertEqual(self.source("#include <immintrin.h>\n"), {"x86"})
        self.assertEqual(self.source("#if defined(__x86_64__)\n#include <immintrin.h>\n#endif\n"),
                         set())
        self.assertEqual(self.source("#if defined(__x86_64__)\n#else\n#include <cpuid.h>\n"
                                     "#endif\n"),
                         {"x86"})
        self.assertEqual(self.source("void f(void) {\n    __builtin_ia32_pause();\n}\n"), {"x86"})
        self.assertEqual(self.source("#include <immintrin.h>\n", "src/device/cpu/avx2/a.c"), set())

    def test_arm(self):
        self.assertEqual(self.source("#include <arm_neon.h>\n"), {"arm"})
        self.assertEqual(self.source("#if defined(__aarch64__)\n#include <arm_neon.h>\n#endif\n"),
                         set())
        self.assertEqual(self.source("#if defined(__x86_64__)\n#elif defined(__aarch64__)\n"
                                     "#include <cpuid.h>\n#endif\n"), {"x86"})
        self.assertEqual(self.source("#include <arm_neon.h>\n", "src/device/cpu/neon/a.c"), set())
        self.assertEqual(self.source("#include <arm_neon.h>\n", "src/device/cpu/avx2/a.c"), {"arm"})

    def test_mirrored_tests(self):
        self.assertEqual(self.rules({"src/base/a.c": HEAD}), {("src/base", "tests")})
        self.assertEqual(self.rules({"tests/nothing/a.c": HEAD}), {("tests/nothing", "tests")})
        self.assertEqual(self.rules({"fuzz/fuzz_a.c": HEAD}), {("fuzz/fuzz_a.c", "tests")})

    def test_large_and_generated(self):
        self.assertEqual(self.rules({"docs/a.bin": b"x" * 400001, "src/base/a.o": b"x"}),
                         {("docs/a.bin", "large"), ("src/base/a.o", "generated")})

    def test_heads_may_be_larger(self):
        self.assertEqual(self.rules({"models/a.safetensors": "x" * 8000000}), set())
        self.assertEqual(self.rules({"models/a.safetensors": "x" * 8000001,
                                     "models/b.bin": "x" * 400001,
                                     "models/deep/c.safetensors": "x" * 400001}),
                         {("models/a.safetensors", "large"), ("models/b.bin", "large"),
                          ("models/deep/c.safetensors", "large")})

    def test_format(self):
        version = subprocess.run("clang-format --version", shell=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL).stdout
        if b"version 14." not in version:
            self.skipTest("clang-format 14 is not here")
        files = {"tests/base/a.c": HEAD + "int  x;\n", "tests/base/b.c": HEAD + "int x;\n",
                 ".clang-format": (ROOT / ".clang-format").read_text()}
        self.assertEqual(self.rules(files, True), {("tests/base/a.c", "format")})


if __name__ == "__main__":
    unittest.main(verbosity=1)
