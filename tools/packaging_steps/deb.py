"""`make deb`: debian/rules does the work; this calls it, and lintian."""
import os
import re

from . import common
from .common import Failed, call, say

RESULTS = re.compile(r"building package '[^']+' in '([^']+)'")


def make(output):
    """Returns the paths of the packages."""
    output.mkdir(parents=True, exist_ok=True)
    for tool in ("dh", "dpkg-deb", "dpkg-shlibdeps", "lintian"):
        common.find(tool)
    # No package of debug symbols: the build keeps lines alone.
    options = " ".join(filter(None, [os.environ.get("DEB_BUILD_OPTIONS"), "noautodbgsym"]))
    said = call("debian/rules", "clean", "binary", cwd=common.ROOT,
                env={**os.environ, "SOURCE_DATE_EPOCH": str(common.epoch()),
                     "PACKAGES": str(output.resolve()), "DEB_BUILD_OPTIONS": options})
    packages = [common.ROOT / path for path in RESULTS.findall(said)]
    if not packages:
        raise Failed(f"debian/rules names no package:\n{said[-2000:]}")
    # These are no upload to Debian, which would close the bug that announces them.
    complaints = call("lintian", "--fail-on", "error", "--no-tag-display-limit", "--allow-root",
                      "--suppress-tags", "initial-upload-closes-no-bugs", *packages)
    if complaints.strip():
        print(complaints.strip())
    for package in packages:
        say(f"{package.resolve()} ({package.stat().st_size / 1e6:.1f} MB)")
    return [package.resolve() for package in packages]
