"""What all packages share: calling tools, the build, dates, libraries and their licences."""
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build-package"
COMMON_LICENCES = Path("/usr/share/common-licenses")
ARCHITECTURE = platform.machine()
VERSION = re.search(r"project\(avocet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


class Failed(Exception):
    """Something that the user can mend; the text says how."""


def say(text):
    print(f"package: {text}", flush=True)


def find(tool):
    if shutil.which(tool) is None:
        raise Failed(f"{tool} is not here; run: tools/bootstrap package")


def call(*command, **options):
    """What a tool prints. Missing tools and their failures are told by name."""
    words = [str(word) for word in command]
    if "/" not in words[0]:
        find(words[0])
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)} failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")
    return done.stdout


def epoch():
    """The one date that packages carry: SOURCE_DATE_EPOCH, or that of the last commit."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named:
        if not named.isdigit():
            raise Failed(f"SOURCE_DATE_EPOCH is '{named}', must be a number of seconds")
        return int(named)
    if (ROOT / ".git").exists():
        return int(call("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    return int((ROOT / "CHANGELOG.md").stat().st_mtime)  # a source archive


def flag(name):
    return call("dpkg-buildflags", "--get", name).strip() if shutil.which("dpkg-buildflags") else ""


def build():
    """A Release build with Debian's hardening flags, and without the folder's name in it."""
    say(f"building in {BUILD.name}/")
    compiler = f"{flag('CFLAGS')} {flag('CPPFLAGS')} -ffile-prefix-map={ROOT}=."
    machine = call("gcc", "-print-multiarch").strip()
    (BUILD / "manual/done").unlink(missing_ok=True)  # pages have the date of the package
    call("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DAVO_TESTS=OFF", "-DCMAKE_INSTALL_PREFIX=/usr",
         f"-DCMAKE_INSTALL_LIBDIR=lib/{machine}", f"-DCMAKE_C_FLAGS={compiler}",
         f"-DCMAKE_EXE_LINKER_FLAGS={flag('LDFLAGS')}",
         f"-DCMAKE_SHARED_LINKER_FLAGS={flag('LDFLAGS')}")
    call("cmake", "--build", BUILD, "--target", "avocet", "avocet_shared", "avocet_static",
         "manual", env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch())})
    return BUILD


def install(build, component, prefix):
    """One part of an installation, without symbols."""
    call("cmake", "--install", build, "--component", component, "--prefix", prefix, "--strip")


# ---- Libraries ----

def resolved(program):
    """Libraries that the loader would give a program: file names to paths."""
    said = call("ldd", program)
    missing = re.findall(r"(\S+) => not found", said)
    if missing:
        raise Failed(f"{program} needs {', '.join(missing)}, which is not installed")
    return dict(re.findall(r"(\S+) => (/\S+)", said))


def curl_path(build):
    """libcurl, which the command loads by name when it needs it (src/hub/curl_late.c)."""
    name = re.search(r"AVO_CURL_LIBRARY=\\\"([^\\]+)", (build / "build.ninja").read_text())[1]
    found = re.search(rf"{re.escape(name)} .*=> (\S+)", call("/sbin/ldconfig", "-p"))
    if not found:
        raise Failed(f"{name} is not installed; run: tools/bootstrap run")
    return name, found[1]


def owners(paths):
    """The Debian package of each file: its name, version, source and the source's version."""
    names = {}  # a folder that is a link to /usr/lib: packages know files by one of both names
    for path in paths:
        real = os.path.realpath(path)
        names.update({real: path, real.removeprefix("/usr"): path})
    said = subprocess.run(["dpkg", "-S", *names], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False).stdout
    packages = {names[file]: package for package, file in re.findall(r"^(\S+): (\S+)$", said, re.M)}
    for path in paths:
        if path not in packages:
            raise Failed(f"{path} is of no Debian package, so its licence is not known; libraries "
                         "for a package must come from apt")
    said = call("dpkg-query", "-W", "-f", "${Package}:${Architecture}\t${Version}\t"
                "${source:Package}\t${source:Version}\n", *sorted(set(packages.values())))
    rows = {line.split("\t")[0]: line.split("\t") for line in said.splitlines()}
    return {path: [packages[path].split(":")[0], *rows[packages[path]][1:]] for path in paths}


def closure(build, programs, curl=True):
    """Name, path and package of every library that programs need; not those of the C library,
    which each system has. With `curl`, also libcurl, which the command loads by name."""
    paths = {}
    for program in programs:
        paths.update(resolved(program))
    if curl:
        name, path = curl_path(build)
        paths.update(resolved(path), **{name: path})
    packages = owners(paths.values())
    return [(name, path, packages[path]) for name, path in sorted(paths.items())
            if packages[path][2] != "glibc"]


def copy_libraries(libraries, folder):
    """Beside each other, so that each finds the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path, _ in libraries:
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o644)
        set_search_path(folder / name, "$ORIGIN")


def set_search_path(file, path):
    call("patchelf", "--set-rpath", path, file)


def copy_licences(libraries, folder):
    """Ours, the copyright files of the libraries, the texts that those refer to, and a table."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "LICENSE", folder / "avocet")
    texts = {"Apache-2.0"}  # draft heads; SmolLM2
    rows = ["Libraries in this package, as Debian built them, unchanged but for where they look\n"
            "for each other. Each may be replaced by a file of the same name. Sources:\n"
            "https://snapshot.debian.org/package/SOURCE/VERSION/\n",
            f"{'file':28} {'package':20} {'licence text':24} source and version"]
    for name, _, (package, _, source, version) in libraries:
        text = Path("/usr/share/doc") / package / "copyright"
        if not text.exists():
            raise Failed(f"{text} is not here, so the licence of {name} cannot be passed on; "
                         f"run: apt-get install --reinstall {package}")
        shutil.copyfile(text, folder / package)
        texts.update(re.findall(r"common-licenses/([\w.+-]*\w)",
                                text.read_text(encoding="utf-8", errors="replace")))
        rows.append(f"{name:28} {package:20} {'licences/' + package:24} {source} {version}")
    for text in sorted(texts):
        if (COMMON_LICENCES / text).exists():
            shutil.copyfile(COMMON_LICENCES / text, folder / f"text-{text}")
    (folder / "LIBRARIES").write_text("\n".join(rows) + "\n", encoding="utf-8")


def libc_version(folder):
    """The oldest C library that has what the files of a folder call."""
    versions = set()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            versions.update(re.findall(r"\(GLIBC_([\d.]+)\)", call("objdump", "-T", path)))
    return max(versions, key=lambda text: [int(part) for part in text.split(".")])
