"""`make check-packages`: what the tests are too short for. Needs root, for chroot and mounts."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from . import bundle, deb, wheel
from .common import BUILD, Failed, call, say

# $1 is the root, $2 what a shell does there, in namespaces of its own.
OWN = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
# Read-only, and of the network there is nothing but the loopback device.
ENTER_BARE = [*OWN, "--net", "sh", "-ec", """
mount --make-rprivate / && mount --bind "$1" "$1" && mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -o remount,ro,bind "$1" && mount -t tmpfs tmpfs "$1/tmp"
exec chroot "$1" /bin/busybox env -i PATH=/bin HOME=/tmp/user /bin/busybox sh -ec "$2"
""", "sh"]
ENTER_DEBIAN = [*OWN, "sh", "-ec", """
mount --make-rprivate / && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp/user sh -ec "$2"
""", "sh"]

BUNDLE = """
busybox ip link set lo up
cd /
answer=$(/apps/bundle/avocet run MODEL "Hi" --temperature 0 -n 24)
printf '%s\\n' "$answer" >&2
test -n "$answer"
cd /apps/bundle/share
test "$(../bin/avocet run MODEL "Hi" --temperature 0 -n 24)" = "$answer"
printf 'Hi\\n' | ../avocet chat MODEL --temperature 0 -n 24 >/tmp/chat
test -s /tmp/chat
test ! -e /tmp/user/.local
../avocet serve MODEL --port 8080 2>/tmp/log &
server=$!
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    busybox wget -q -O - http://127.0.0.1:8080/health >/dev/null 2>&1 && break
    sleep 0.5
done
busybox wget -q -O - --header 'Content-Type: application/json' --post-data \\
    '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}' \\
    http://127.0.0.1:8080/v1/chat/completions | grep -q '"content"' || { cat /tmp/log >&2; exit 1; }
kill $server
cd /apps/bundle && sha256sum -c SHA256SUMS >/dev/null
"""


@contextmanager
def bare_root(folder):
    """A root with the C library and busybox (linked statically), and nothing else."""
    root = Path(folder) / "root"
    for name in ("bin", "proc", "tmp", "apps", "dev"):
        (root / name).mkdir(parents=True)
    packages = Path(folder) / "packages"
    packages.mkdir()
    packages.chmod(0o777)  # apt downloads as a user of its own
    call("apt-get", "download", "-q", "libc6", "busybox-static", cwd=packages)
    for package in sorted(packages.iterdir()):
        unpacked = packages / package.stem
        call("dpkg-deb", "-x", package, unpacked)
        if package.name.startswith("libc6"):
            call("cp", "-a", *(unpacked / name for name in ("lib", "lib64")), root)
        else:
            busybox = next(path for path in unpacked.rglob("busybox") if path.parent.name == "bin")
            shutil.copy(busybox, root / "bin/busybox")
    call("chroot", root, "/bin/busybox", "--install", "-s", "/bin")
    yield root


def check_bundle(build, output, model):
    first = bundle.make(build, output, model, [])
    with tempfile.TemporaryDirectory() as scratch:
        again = bundle.make(build, Path(scratch) / "again", model, [])
        if first.read_bytes() != again.read_bytes():
            raise Failed(f"two runs of make bundle differ: {first} and {again}")
        say("bundle: two runs give the same bytes")
        with bare_root(scratch) as root:
            call("tar", "-xf", first, "-C", root / "apps")
            (root / "apps/bundle").symlink_to(first.name.removesuffix(".tar.gz"))
            done = subprocess.run([*ENTER_BARE, str(root), BUNDLE.replace("MODEL", model)],
                                  stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                raise Failed(f"the bundle does not run where there is only libc:\n{done.stderr}")
            wanted = call(build / "avocet", "run", model, "Hi", "--temperature", "0", "-n", "24")
            if done.stderr.strip() != wanted.strip():
                raise Failed(f"the bundle answers {done.stderr!r}, the build {wanted!r}")
    say(f"bundle: run, chat and serve work without a network, on a read-only root with only libc "
        f"({wanted.strip()!r})")


# apt needs the network; what was installed is then called without it.
INSTALL = """
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install -y --no-install-recommends /packages/avocet_*.deb
unshare --net avocet run demo "Who are you?" --temperature 0 -n 24
test -e /usr/share/man/man1/avocet-serve.1.gz
grep -q /usr/bin/avocet /lib/systemd/system/avocet.service
apt-get -q install -y --no-install-recommends /packages/*.deb gcc libc6-dev pkgconf
cd /usr/share/doc/libavocet-dev/examples
cc generate.c $(pkgconf --cflags --libs avocet) -o /tmp/generate
cd /
ldd /tmp/generate | grep -q "libavocet.so.0 => /"
unshare --net /tmp/generate ~/.local/share/avocet/models/demo/demo.avo "Who are you?"
apt-get -q purge -y avocet libavocet0 libavocet-dev
if dpkg -l 'avocet*' 'libavocet*' 2>/dev/null | grep '^[ri]'; then exit 1; fi
find / -xdev -name '*avocet*' -not -path '/tmp/*' -not -path '/packages/*' \\
    -not -path "$HOME/*" -not -path '/var/cache/*' >/tmp/left
cat /tmp/left
test ! -s /tmp/left
"""


def debian_root():
    """A minimal Debian like this one, made once and kept."""
    root = BUILD / "debian-root"
    if not (root / "etc/debian_version").exists():
        suite = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())[1]
        say(f"debootstrap of {suite} into {root.name}/ (a minute)")
        shutil.rmtree(root, ignore_errors=True)
        partial = root.with_name(root.name + ".part")
        shutil.rmtree(partial, ignore_errors=True)
        call("debootstrap", "--variant=minbase", suite, partial)
        partial.rename(root)
    return root


def check_deb(output):
    packages = deb.make(output)
    first = [package.read_bytes() for package in packages]
    if first != [package.read_bytes() for package in deb.make(output)]:
        raise Failed("two runs of make deb differ")
    say("deb: two runs give the same bytes")
    base = debian_root()
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        root = Path(scratch) / "root"
        call("cp", "-a", base, root)
        (root / "packages").mkdir()
        for package in packages:
            shutil.copy(package, root / "packages")
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        done = subprocess.run([*ENTER_DEBIAN, str(root), INSTALL], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"the packages cannot be used or removed:\n{done.stdout[-4000:]}")
    say("deb: installed, used, compiled with and purged in a minimal Debian; nothing is left")


# Without a network, from a folder where nothing is.
USE = """
export AVOCET_HOME="$1/home" HOME=/nonexistent
cd /
"$1/bin/avocet" run demo "Who are you?" --temperature 0 -n 16 >"$1/said"
grep -q "I am demo" "$1/said"
"$1/bin/python" -c '
import sys, avocet
with avocet.Model(sys.argv[1]) as model:
    print(model.chat([{"role": "user", "content": "Who are you?"}], temperature=0,
                     max_tokens=16).content)
' "$1/home/models/demo/demo.avo" >"$1/chatted"
grep -q "I am demo" "$1/chatted"
"$1/bin/avocet-py" --version
"""


def pythons():
    """Every Python here that the wheel is for and that can make environments."""
    found = {}
    for name in [sys.executable, *(f"python3.{minor}" for minor in range(9, 20))]:
        done = subprocess.run([name, "-c", "import ensurepip, platform, venv; "
                               "print(platform.python_version())"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True,
                              check=False) if shutil.which(name) else None
        if done and done.returncode == 0:
            found.setdefault(done.stdout.strip(), name)
    return found


def check_wheel(build, output):
    first = wheel.make(build, output)
    with tempfile.TemporaryDirectory() as scratch:
        again = wheel.make(build, Path(scratch) / "again")
        if first.read_bytes() != again.read_bytes():
            raise Failed(f"two runs of make wheel differ: {first} and {again}")
        say("wheel: two runs give the same bytes")
        for version, python in pythons().items():
            folder = Path(scratch) / version
            call(python, "-m", "venv", folder)
            call(folder / "bin/pip", "install", "-q", first)  # NumPy comes from PyPI
            call("unshare", "--net", "sh", "-ec", USE, "sh", folder)
            say(f"wheel: installed and used without a network by Python {version}")


def run(build, output, model):
    if os.geteuid() != 0:
        raise Failed("check needs root, for chroot and mounts; run: sudo make check-packages")
    check_bundle(build, output, model)
    check_deb(output)
    check_wheel(build, output)
