"""What the library shows to the outside and what it keeps: exactly the declared functions, no C++
runtime, nothing that prints or exits, no mutable globals."""
import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ["AVO_BINARY_FOLDER"])
SHARED = BUILD / "libavocet.so"
STATIC = BUILD / "libavocet.a"
LIBRARIES = {"libc.so.6", "libm.so.6", "libpcre2-8.so.0", "libutf8proc.so.2", "libxxhash.so.0"}
UNWANTED = {"printf", "puts", "putchar", "perror", "exit", "_exit", "quick_exit", "stdout",
            "stderr", "__printf_chk", "longjmp", "rand", "system", "popen"}


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def declared():
    text = "".join(path.read_text() for path in sorted((ROOT / "include").rglob("*.h")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return set(re.findall(r"^AVO_API\b[^;(]*?\b(avo_\w+)\(", text, flags=re.MULTILINE))


class Symbols(unittest.TestCase):
    def test_exports_are_the_header(self):
        lines = run("nm", "-D", "--defined-only", SHARED).splitlines()
        exported = {line.split()[-1].split("@")[0] for line in lines}
        self.assertGreater(len(declared()), 20)
        self.assertEqual(exported, declared())

    def test_dependencies(self):
        needed = set(re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "-d", SHARED)))
        self.assertEqual(needed - LIBRARIES - {"ld-linux-x86-64.so.2"}, set())

    def test_soname(self):
        version = re.search(r'AVO_VERSION_TEXT\s+"(\d+)\.(\d+\.\d+)"',
                            (ROOT / "include/avocet.h").read_text())
        soname = re.search(r"SONAME.*\[(.*?)\]", run("readelf", "-d", SHARED)).group(1)
        self.assertEqual(soname, f"libavocet.so.{version.group(1)}")
        self.assertTrue((BUILD / f"libavocet.so.{version.group(1)}.{version.group(2)}").exists())

    def test_versions_agree(self):
        header = (ROOT / "include/avocet.h").read_text()
        text = re.search(r'AVO_VERSION_TEXT\s+"(.*?)"', header).group(1)
        numbers = [re.search(rf"AVO_VERSION_{part}\s+(\d+)", header).group(1)
                   for part in ("MAJOR", "MINOR", "PATCH")]
        cmake = re.search(r"project\(avocet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
        self.assertEqual(text, ".".join(numbers))
        self.assertEqual(text, cmake.group(1))
        self.assertIn(text, (ROOT / "CHANGELOG.md").read_text())

    def test_neither_prints_nor_exits(self):
        used = {line.split()[-1].split("@")[0]
                for line in run("nm", "-D", "--undefined-only", SHARED).splitlines()}
        self.assertEqual(used & UNWANTED, set())

    def test_no_mutable_globals(self):
        """Every object of the library: nothing in .data or .bss."""
        found = []
        name = ""
        for line in run("objdump", "-t", STATIC).splitlines():
            if line.endswith("file format elf64-x86-64"):
                name = line.split(":")[0]
            match = re.search(r"\sO\s+(\.data|\.bss|\.tdata|\.tbss|\*COM\*)(?:\.(?!rel\.ro)\S*)?\s"
                              r"+[0-9a-f]+\s+(\S+)", line)
            if match:
                found.append(f"{name} {match.group(2)} in {match.group(1)}")
        self.assertEqual(found, [])


if __name__ == "__main__":
    if not SHARED.exists():
        raise SystemExit(f"{SHARED} is not built")
    unittest.main()
