"""tools/bootstrap on made-up machines: fake dpkg-query, apt-get, sudo and id write down calls."""
import re
import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BOOTSTRAP = ROOT / "tools/bootstrap"


def packages(name):
    """A list of tools/bootstrap; of alternatives, the first."""
    text = re.search(rf"^packages_{name}=\((.*?)\)", BOOTSTRAP.read_text(), re.M | re.S).group(1)
    return [word.strip('"').split("|")[0] for word in text.split()]


RUN = packages("run")
TEST = RUN + packages("test")


class Bootstrap(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        self.calls = self.folder / "calls"
        self.calls.touch()
        for tool in ("env", "bash", "cat"):
            (self.folder / tool).symlink_to(shutil.which(tool))

    def tearDown(self):
        self.scratch.cleanup()

    def fake(self, name, body):
        path = self.folder / name
        path.write_text(f'#!/bin/bash\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def machine(self, installed, user=0, sudo=False, known=None, install_status=0,
                update_status=0):
        lines = "\n".join(f"{name} installed" for name in installed)
        self.fake("dpkg-query", f'cat <<"END"\n{lines}\nEND\nexit 1')
        self.fake("id", f"echo {user}")
        if known is None:
            self.fake("apt-cache", "exit 0")
        else:
            self.fake("apt-cache", f'for k in {" ".join(known)}; do [ "$2" = $k ] && exit 0; done\n'
                      "exit 100")
        self.fake("apt-get", f'echo "apt-get $DEBIAN_FRONTEND $*" >>{self.calls}\n'
                  f'case "$*" in *update*) exit {update_status};; esac\nexit {install_status}')
        if sudo:
            self.fake("sudo", f'echo "sudo $*" >>{self.calls}\n[ "$1" = -n ] && shift\nexec "$@"')

    def run_bootstrap(self, *arguments):
        done = subprocess.run(["/bin/bash", str(BOOTSTRAP), *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={"PATH": str(self.folder)})
        return done.returncode, done.stderr, self.calls.read_text().splitlines()

    def test_every_library_of_the_build_is_named(self):
        """pkg-config's names in the build against the packages that bring them."""
        brought = {"libpcre2-8": "libpcre2-dev", "libutf8proc": "libutf8proc-dev",
                   "libxxhash": "libxxhash-dev", "libcurl": "libcurl4-openssl-dev",
                   "libcrypto": "libssl-dev", "zlib": "zlib1g-dev", "cmocka": "libcmocka-dev",
                   "libmicrohttpd": "libmicrohttpd-dev", "libseccomp": "libseccomp-dev",
                   "ncursesw": "libncurses-dev", "md4c": "libmd4c-dev",
                   "libnghttp2>=1.52": "libnghttp2-dev", "libssl": "libssl-dev"}
        for file in ("CMakeLists.txt", "tests/CMakeLists.txt"):
            for name in re.findall(r"pkg_check_modules\(\w+ (?:REQUIRED )?IMPORTED_TARGET (\S+)\)",
                                   (ROOT / file).read_text()):
                self.assertIn(brought.get(name, f"the package of {name}"), RUN)

    def test_nothing_missing_does_nothing(self):
        self.machine(TEST)
        status, said, calls = self.run_bootstrap("test")
        self.assertEqual((status, said, calls), (0, "", []))

    def test_installs_only_what_is_missing(self):
        self.machine([name for name in RUN if name not in ("cmake", "libpcre2-dev")])
        status, said, calls = self.run_bootstrap("run")
        self.assertEqual(status, 0)
        self.assertIn("missing: cmake libpcre2-dev", said)
        self.assertEqual(len(calls), 2)  # one update, one install
        self.assertTrue(calls[0].startswith("apt-get noninteractive"))
        self.assertTrue(calls[0].endswith("update"))
        self.assertTrue(calls[1].endswith("install -y --no-install-recommends cmake libpcre2-dev"))

    def test_bare_machine(self):
        self.machine([])
        status, _, calls = self.run_bootstrap("run")
        self.assertEqual(status, 0)
        self.assertEqual(calls[1].split("--no-install-recommends ")[1].split(), RUN)

    def test_run_does_not_need_what_tests_need(self):
        self.machine(RUN)
        self.assertEqual(self.run_bootstrap("run"), (0, "", []))
        self.assertEqual(self.run_bootstrap("test")[2][1].split("recommends ")[1].split(),
                         TEST[len(RUN):])

    def test_packages_need_no_tests(self):
        self.machine(RUN)
        wanted = self.run_bootstrap("package")[2][1].split("recommends ")[1].split()
        self.assertEqual(wanted, packages("package"))
        self.assertNotIn("clang", wanted)

    def test_alternatives(self):
        self.machine([name for name in TEST if name != "pkgconf"] + ["pkg-config"])
        self.assertEqual(self.run_bootstrap("test"), (0, "", []))
        self.machine([name for name in TEST if name != "libclang-rt-14-dev"],
                     known=["libclang-rt-dev"])
        calls = self.run_bootstrap("test")[2]
        self.assertTrue(calls[1].endswith("recommends libclang-rt-dev"))

    def test_sudo_when_not_root(self):
        self.machine([name for name in RUN if name != "cmake"], user=1000, sudo=True)
        status, _, calls = self.run_bootstrap("run")
        self.assertEqual(status, 0)
        self.assertTrue(any(call.startswith("sudo -n env") for call in calls))
        self.assertTrue(any("noninteractive" in call for call in calls))

    def test_neither_root_nor_sudo(self):
        self.machine([name for name in RUN if name != "cmake"], user=1000)
        status, said, calls = self.run_bootstrap("run")
        self.assertEqual((status, calls), (1, []))
        self.assertIn("apt-get install cmake", said)

    def test_failures_are_loud(self):
        self.machine([], install_status=100)
        status, said, _ = self.run_bootstrap("run")
        self.assertEqual(status, 1)
        self.assertIn("could not install", said)

    def test_old_lists_will_do(self):
        self.machine([], update_status=100)
        self.assertEqual(self.run_bootstrap("run")[0], 0)

    def test_no_apt(self):
        self.assertEqual(self.run_bootstrap("run")[0], 0)

    def test_dry_run_and_wrong_usage(self):
        self.machine([])
        status, said, calls = self.run_bootstrap("run", "--dry-run")
        self.assertEqual((status, calls), (0, []))
        self.assertIn("would install: gcc", said)
        self.assertEqual(self.run_bootstrap("nonsense")[0], 2)


if __name__ == "__main__":
    unittest.main()
