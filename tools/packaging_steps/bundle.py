"""`make bundle`: an archive that runs where nothing is installed."""
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from . import common
from .common import Failed, call, say

# How each model is put in: packed by `avocet pack`, or the file as it is. The demo model must stay
# the one that is in the command, which otherwise writes its own.
MODELS = {"smollm2": True, "demo": False}

README = """Avocet {version}: language models on your own machine
{line}
This folder is complete: it runs where it lies, also read-only, without a network and without
installed libraries. It needs Linux on {architecture} with glibc {libc} or newer.

    ./avocet run {model} "Hi"
    ./avocet chat {model}
    ./avocet serve {model}         # http://127.0.0.1:8080
    ./avocet help

avocet                     the command (a link to bin/avocet, which finds the rest from where it is)
lib/                       the libraries that it uses
share/avocet/models/       {title}
share/avocet/heads/        draft heads, which make that model faster
share/man/, share/…        manual pages; completion for bash, zsh and fish
licences/                  all licences; LIBRARIES lists the libraries with their sources
SHA256SUMS                 sha256sum -c SHA256SUMS

Models that you pull are stored in ~/.local/share/avocet/models. Nothing is written into this
folder.

Avocet is free software (MIT licence: licences/avocet). {licence}
Draft heads: Apache-2.0 (licences/text-Apache-2.0, licences/draft-heads.md).
"""
LICENCES = {
    "smollm2": "SmolLM2-135M-Instruct is by Hugging Face\n(Apache-2.0: "
               "share/avocet/models/smollm2/LICENSE); its file was repacked by `avocet pack`.",
    "demo": "The demo model is a part of it.",
}


def avocet(build, *arguments, **options):
    """Runs the command that was built."""
    return call(build / "avocet", *arguments, **options)


def pulled(build, name, scratch):
    """A model on this disk, downloaded if need be. The demo model always is the build's."""
    environment = dict(os.environ)
    if not MODELS[name]:
        environment["AVOCET_HOME"] = str(scratch)
    done = subprocess.run([build / "avocet", "pull", name, "--json"], stdout=subprocess.PIPE,
                          env=environment, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{name} is not here and cannot be downloaded (see above); "
                     "`make bundle MODEL=demo` bundles the demo model, which needs no network")
    return Path(json.loads(done.stdout)["path"])


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def add_model(build, stage, name, flags, date):
    """The model with a manifest, as a pull leaves it, so that its name finds it."""
    folder = stage / "share/avocet/models" / name
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = pulled(build, name, scratch)
        manifest = json.loads((source.parent / "avocet-manifest.json").read_text())
        if MODELS[name]:
            target = folder / f"{name}.avo"
            avocet(build, "pack", source, "-o", target, *flags)
        else:
            target = folder / source.name
            shutil.copyfile(source, target)
        for entry in manifest["files"]:
            if entry["path"] != source.name:  # its licence
                shutil.copyfile(source.parent / entry["path"], folder / entry["path"])
    files = [{"path": path.name, "bytes": path.stat().st_size, "sha256": digest(path)}
             for path in sorted(folder.iterdir())]
    manifest.update(model=target.name, files=files,
                    date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(date)))
    (folder / "avocet-manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def write_sums(stage):
    files = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    lines = [f"{digest(path)}  {path.relative_to(stage)}\n" for path in files]
    (stage / "SHA256SUMS").write_text("".join(lines))


def archive(stage, target, date):
    """Sorted names, one date, no owner: the same files give the same bytes."""
    tar = ["tar", "--create", "--format=gnu", "--sort=name", f"--mtime=@{date}", "--owner=0",
           "--group=0", "--numeric-owner", "--mode=u+rwX,go+rX,go-w", "-C", str(stage.parent),
           stage.name]
    partial = target.with_name(target.name + ".part")
    with open(partial, "wb") as file, \
            subprocess.Popen(tar, stdout=subprocess.PIPE) as packer:
        packed = subprocess.run(["gzip", "-n", "-6"], stdin=packer.stdout, stdout=file, check=False)
    if packer.returncode != 0 or packed.returncode != 0:
        partial.unlink()
        raise Failed(f"{target}: cannot be written; see above")
    partial.rename(target)
    target.with_name(target.name + ".sha256").write_text(f"{digest(target)}  {target.name}\n")


def make(build, output, model, flags):
    """Returns the archive's path."""
    date = common.epoch()
    name = f"avocet-{common.VERSION}-{common.ARCHITECTURE}-{model}"
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output) as scratch:
        stage = Path(scratch) / name
        common.install(build, "command", stage)
        program = stage / "bin/avocet"
        libraries = common.closure(build, [program])
        common.copy_libraries(libraries, stage / "lib")
        common.set_search_path(program, "$ORIGIN/../lib")
        common.copy_licences(libraries, stage / "licences")
        shutil.copyfile(common.ROOT / "models/README.md", stage / "licences/draft-heads.md")
        shutil.rmtree(stage / "share/licenses")
        add_model(build, stage, model, flags, date)
        (stage / "avocet").symlink_to("bin/avocet")
        title = f"Avocet {common.VERSION}: language models on your own machine"
        (stage / "README").write_text(README.format(
            version=common.VERSION, architecture=common.ARCHITECTURE, model=model,
            line="=" * len(title), libc=common.libc_version(stage), licence=LICENCES[model],
            title=f"the model {model}"), encoding="utf-8")
        write_sums(stage)
        target = output / f"{name}.tar.gz"
        archive(stage, target, date)
    say(f"{target} ({target.stat().st_size / 1e6:.1f} MB), {target.name}.sha256")
    return target
