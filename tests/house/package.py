"""tools/package: the bundle of the demo model and a wheel, from the build that is here.
`make check-packages` does the long checks: the default model, roots without libraries."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from bootstrap import packages

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ["AVO_BINARY_FOLDER"])
PACKAGE = ROOT / "tools/package"
TOOLS = ("patchelf", "dpkg-query", "strip", "ldd", "objdump")
DATE = "1700000000"


def package(*arguments, **environment):
    return subprocess.run([PACKAGE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False,
                          env={**os.environ, "SOURCE_DATE_EPOCH": DATE, **environment})


def unreachable():
    """What runs a program without a network, where that is allowed."""
    without = ["unshare", "--map-root-user", "--net"]
    works = shutil.which("unshare") and subprocess.run([*without, "true"], check=False,
                                                       stderr=subprocess.DEVNULL).returncode == 0
    return without if works else []


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.archives = [cls.make("one"), cls.make("two")]
        subprocess.run(["tar", "-xf", cls.archives[0], "-C", cls.scratch.name], check=True)
        cls.folder = Path(cls.scratch.name) / cls.archives[0].name.removesuffix(".tar.gz")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def make(cls, name):
        output = Path(cls.scratch.name) / name
        done = package("bundle", "--model", "demo", "--build", BUILD, "--output", output)
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        return next(output.glob("avocet-*.tar.gz"))

    def run_inside(self, *command):
        """Nothing of this machine's folders is known to it."""
        done = subprocess.run([*unreachable(), "env", "-i", "HOME=/nonexistent", *command],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_same_bytes(self):
        self.assertEqual(self.archives[0].read_bytes(), self.archives[1].read_bytes())
        for archive in self.archives:
            subprocess.run(["sha256sum", "--quiet", "-c", archive.name + ".sha256"], check=True,
                           cwd=archive.parent)
        self.assertRegex(self.archives[0].name, r"^avocet-\d+\.\d+\.\d+-\w+-demo\.tar\.gz$")

    def test_answers_without_network_and_home(self):
        said = self.run_inside(self.folder / "avocet", "run", "demo", "Who are you?",
                               "--temperature", "0", "-n", "24")
        self.assertTrue(said.startswith("I am demo"), said)

    def test_libraries_are_its_own(self):
        said = self.run_inside("/usr/bin/ldd", self.folder / "bin/avocet")
        found = dict(re.findall(r"(\S+) => (\S+)", said))
        libc = {"libc.so.6", "libm.so.6", "libresolv.so.2", "libpthread.so.0", "libdl.so.2"}
        inside = os.path.realpath(self.folder)
        for name, path in found.items():
            if name not in libc:
                self.assertTrue(os.path.realpath(path).startswith(inside), f"{name}: {path}")
        self.assertGreater(len(found), 10)
        curl = self.run_inside("/usr/bin/ldd", next(self.folder.glob("lib/libcurl.so.*")))
        self.assertNotIn("not found", curl)

    def test_sums_and_licences(self):
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], check=True, cwd=self.folder)
        table = (self.folder / "licences/LIBRARIES").read_text()
        for library in (self.folder / "lib").iterdir():
            row = re.search(rf"^{re.escape(library.name)} +\S+ +(\S+) +\S+ \S+$", table, re.M)
            self.assertTrue(row and (self.folder / row[1]).stat().st_size > 0, library.name)
        for text in ("avocet", "text-Apache-2.0", "draft-heads.md"):
            self.assertTrue((self.folder / "licences" / text).exists(), text)
        self.assertIn("glibc 2.", (self.folder / "README").read_text())


class Wheel(unittest.TestCase):
    """What needs no tool from PyPI: a wheel for this machine."""

    @classmethod
    def setUpClass(cls):
        cls.python = next((python for python in (sys.executable, "/usr/bin/python3")
                           if subprocess.run([python, "-c", "import setuptools, wheel, pip, numpy, "
                                              "venv"], check=False,
                                             stderr=subprocess.DEVNULL).returncode == 0), None)
        if cls.python is None:
            raise unittest.SkipTest("SKIPPED: no Python with numpy, pip, setuptools, venv and "
                                    "wheel (tools/bootstrap test installs them)")
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        cls.wheel = cls.make("one")
        cls.bin = cls.folder / "venv/bin"
        subprocess.run([cls.python, "-m", "venv", "--system-site-packages", "--without-pip",
                        cls.folder / "venv"], check=True)
        subprocess.run([cls.bin / "python", "-m", "pip", "install", "-q", "--no-index",
                        "--no-deps", cls.wheel], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def make(cls, name):
        done = subprocess.run([cls.python, PACKAGE, "wheel", "--no-audit", "--build", BUILD,
                               "--output", cls.folder / name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "SOURCE_DATE_EPOCH": DATE})
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        return next((cls.folder / name).glob("*.whl"))

    def run_inside(self, *command):
        done = subprocess.run([*unreachable(), "env", "-i", f"AVOCET_HOME={self.folder}/home",
                               *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_same_bytes_for_any_python(self):
        self.assertEqual(self.wheel.read_bytes(), self.make("two").read_bytes())
        self.assertRegex(self.wheel.name, r"^avocet-[\d.]+-py3-none-linux_\w+\.whl$")

    def test_command_and_bindings(self):
        said = self.run_inside(self.bin / "avocet", "run", "demo", "Who are you?", "-n", "16",
                               "--temperature", "0")
        self.assertTrue(said.startswith("I am demo"), said)
        program = """
import avocet
with avocet.Model("MODEL") as model:
    print(avocet.__file__, model.chat([{"role": "user", "content": "Who are you?"}],
                                      temperature=0, max_tokens=16).content)
""".replace("MODEL", f"{self.folder}/home/models/demo/demo.avo")
        said = self.run_inside(self.bin / "python", "-c", program)
        self.assertTrue(said.startswith(os.path.realpath(self.folder)) and "I am demo" in said,
                        said)
        listed = self.run_inside(self.bin / "avocet", "licenses")
        self.assertIn("MIT", listed)

    def test_data_and_licences(self):
        package = next(self.folder.glob("venv/lib/python*/site-packages/avocet"))
        for part in ("share/avocet/heads/smollm2-135m-eagle.safetensors", "libavocet.so",
                     "licences/LIBRARIES", "licences/avocet", "licences/libmicrohttpd12"):
            self.assertTrue((package / part).exists(), part)
        self.assertFalse((package / "tests").exists())

    def test_a_command_that_is_not_there(self):
        package = next(self.folder.glob("venv/lib/python*/site-packages/avocet"))
        (package / "bin/avocet").rename(package / "bin/away")
        try:
            done = subprocess.run([self.bin / "avocet"], stderr=subprocess.PIPE, text=True,
                                  check=False)
        finally:
            (package / "bin/away").rename(package / "bin/avocet")
        self.assertEqual(done.returncode, 1)
        self.assertIn("install the package again", done.stderr)


class Debian(unittest.TestCase):
    """What lintian does not know about debian/; make check-packages installs the packages."""

    def test_version_is_the_programs(self):
        version = re.search(r"project\(avocet VERSION (\S+)",
                            (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertTrue((ROOT / "debian/changelog").read_text()
                        .startswith(f"avocet ({version}-"))
        major, minor, _ = version.split(".")
        next_minor = f"{major}.{int(minor) + 1}~"
        self.assertIn(f"(>= {major}.{minor}.0~), libavocet0 (<< {next_minor})",
                      (ROOT / "debian/rules").read_text())

    def test_build_needs_what_bootstrap_installs(self):
        field = re.search(r"^Build-Depends: (.*(?:\n .*)*)",
                          (ROOT / "debian/control").read_text(), re.M)[1]
        wanted = {name.split()[0] for name in field.replace("\n", " ").split(", ")}
        ours = set(packages("run")) | {"debhelper-compat"}
        everywhere = {"gcc", "libc6-dev", "ca-certificates", "python3-pip", "libcmocka-dev"}
        self.assertEqual(wanted, ours - everywhere)

    def test_unit_starts_what_is_installed(self):
        """debian/rules replaces this folder in it."""
        self.assertIn("ExecStart=/usr/local/bin/avocet serve --config /etc/avocet/serve.json",
                      (ROOT / "deploy/avocet.service").read_text())


class Refusals(unittest.TestCase):
    def refused(self, *arguments, **environment):
        with tempfile.TemporaryDirectory() as output:
            done = package(*arguments, "--build", BUILD, "--output", output, **environment)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(list(Path(output).rglob("*.gz")), [])
            self.assertNotIn("Traceback", done.stdout)
            return done.stdout

    def test_a_model_that_cannot_be_had(self):
        with tempfile.TemporaryDirectory() as home:
            said = self.refused("bundle", AVOCET_HOME=home, AVOCET_OFFLINE="1")
        self.assertIn("MODEL=demo", said)

    def test_no_tools(self):
        with tempfile.TemporaryDirectory() as tools:
            (Path(tools) / "python3").symlink_to(os.path.realpath(sys.executable))
            for name in ("env", "git", "cmake"):
                (Path(tools) / name).symlink_to(os.path.realpath(shutil.which(name)))
            said = self.refused("bundle", "--model", "demo", PATH=tools)
        self.assertIn("tools/bootstrap package", said)

    def test_a_date_that_is_none(self):
        self.assertIn("SOURCE_DATE_EPOCH", self.refused("bundle", "--model", "demo",
                                                        SOURCE_DATE_EPOCH="today"))


if __name__ == "__main__":
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or "AVO_SANITIZE:STRING=\n" not in (BUILD / "CMakeCache.txt").read_text():
        print(f"SKIPPED: {'no ' + ', '.join(missing) if missing else 'a build with sanitizers'}")
        sys.exit(77)
    unittest.main()
