"""The public header from C and C++, strictly, with gcc and clang; the sources on another CPU."""
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-fsyntax-only",
          f"-I{ROOT}/include"]
PROGRAM = """
#include <avocet.h>
#include <avocet.h>
int main(void) {
    avo_model_options model = AVO_MODEL_OPTIONS_INIT;
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    avo_request request = AVO_REQUEST_INIT;
    return model.size + engine.size + sampling.size + request.size > 0 &&
           avo_status_text(AVO_OK) != 0 ? 0 : 1;
}
"""
# Folders whose files are for one processor only, each behind a check of its own.
OTHERS = ("device/cpu/lanes/", "device/cpu/neon/")
ONE_PROCESSOR = re.compile(r"/device/cpu/(avx2|avx512|amx|neon)/")

# Words without which a file is the same program for every processor.
PROCESSOR = re.compile(r"immintrin|arm_neon|cpuid|xgetbv|_mm\d*_|__builtin_ia32|__builtin_cpu|"
                       r"__x86_64__|__aarch64__|__SSE|__AVX|__ARM|\b(?:__)?asm\b|arch_prctl")
FIRST_INCLUDE = re.compile(r'\A(?:/\*.*?\*/|\s)*#\s*include\s+"([^"]+)"', re.DOTALL)


class Header(unittest.TestCase):
    def compile(self, compiler, standard, suffix):
        if shutil.which(compiler) is None:
            self.skipTest(f"{compiler} is not here")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / ("program" + suffix)
            source.write_text(PROGRAM)
            done = subprocess.run([compiler, f"-std={standard}", *STRICT, str(source)],
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, f"{compiler} {standard}\n{done.stderr}")

    def test_c(self):
        for compiler in ("gcc", "clang"):
            for standard in ("c99", "c11", "c17"):
                with self.subTest(compiler=compiler, standard=standard):
                    self.compile(compiler, standard, ".c")

    def test_cpp(self):
        for compiler in ("g++", "clang++"):
            for standard in ("c++11", "c++17", "c++20"):
                with self.subTest(compiler=compiler, standard=standard):
                    self.compile(compiler, standard, ".cpp")

    def check_alone(self, headers, flags):
        with tempfile.TemporaryDirectory() as folder:
            for number, header in enumerate(headers):
                (Path(folder) / f"{number}.c").write_text(f'#include "{header}"\n')
            done = subprocess.run(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-fsyntax-only",
                                   "-Werror", f"-I{ROOT}/include", f"-I{ROOT}/src", *flags,
                                   *sorted(map(str, Path(folder).glob("*.c")))],
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_module_header_stands_alone(self):
        """Those of an instruction set with its flags; lanes/ is written in the words of the folder
        that includes it, so it has none of its own. neon/ needs another compiler. What a source
        includes before everything else stands alone, or that source would not have been built."""
        first = set()
        for path in (ROOT / "src").rglob("*.c"):
            match = FIRST_INCLUDE.search(path.read_text(encoding="utf-8"))
            if match and not ONE_PROCESSOR.search(str(path)):
                first.add(match.group(1))
        headers = sorted({str(path.relative_to(ROOT / "src"))
                          for path in (ROOT / "src").rglob("*.h")} - first)
        vector = ("device/cpu/avx2/", "device/cpu/avx512/", "device/cpu/amx/")
        self.check_alone([name for name in headers
                          if not name.startswith(vector + OTHERS)], [])
        self.check_alone([name for name in headers if name.startswith(vector)],
                         ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq",
                          "-mavx512vl", "-mavx512vnni", "-mamx-tile", "-mamx-int8",
                          f"-I{ROOT}/src/device/cpu/amx"])


class OtherProcessor(unittest.TestCase):
    """The library for 64-bit ARM, as far as a compiler without its C library can tell: the headers
    of this machine's C library serve, with the few files replaced that ask for the processor."""

    def sources_that_name_a_processor(self):
        """Those that hold such a word themselves or in a header of ours that they include. Starting
        the compiler for all 500 others took 20 seconds and could find nothing."""
        text = {str(path.relative_to(ROOT / "src")): path.read_text(encoding="utf-8")
                for path in (ROOT / "src").rglob("*.[ch]") if not ONE_PROCESSOR.search(str(path))}
        names = {name for name in text if PROCESSOR.search(text[name])}
        headers = None
        while headers != (headers := {name for name in names if name.endswith(".h")}):
            names |= {name for name in text
                      if not headers.isdisjoint(re.findall(r'#include "([^"]+)"', text[name]))}
        return [str(ROOT / "src" / name) for name in sorted(names) if name.endswith(".c")
                and not name.startswith(("cli/", "hub/", "load/"))]

    def test_reference_path_has_no_x86(self):
        if shutil.which("clang") is None:
            self.skipTest("clang is not here")
        sources = self.sources_that_name_a_processor()
        self.assertTrue(sources)
        with tempfile.TemporaryDirectory() as folder:
            bits = Path(folder) / "bits"
            gnu = Path(folder) / "gnu"
            bits.mkdir()
            gnu.mkdir()
            (bits / "wordsize.h").write_text("#define __WORDSIZE 64\n"
                                             "#define __WORDSIZE_TIME64_COMPAT32 0\n")
            (bits / "hwcap.h").write_text("#define HWCAP_ASIMDDP (1 << 20)\n")
            (gnu / "stubs.h").write_text("")
            triple = subprocess.run(["gcc", "-print-multiarch"], stdout=subprocess.PIPE, text=True,
                                    check=True).stdout.strip()
            done = subprocess.run(
                ["clang", "--target=aarch64-linux-gnu", "-std=gnu17", "-D_GNU_SOURCE",
                 "-fsyntax-only", "-Wno-everything", "-nostdlibinc", "-D__regparm__(n)=unused",
                 "-DAVO_KERNEL_LIST=", f"-I{ROOT}/include", f"-I{ROOT}/src", "-isystem", folder,
                 "-isystem", f"/usr/include/{triple}", "-isystem", "/usr/include", *sources],
                stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[:4000])


if __name__ == "__main__":
    unittest.main()
