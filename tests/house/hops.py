"""tools/hops: which functions it finds in a file of callgrind."""
import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

from command import ROOT

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("hops", str(ROOT / "tools" / "hops"))
hops = importlib.util.module_from_spec(importlib.util.spec_from_loader("hops", LOADER))
LOADER.exec_module(hops)

# Names are written once and then referred to by number; fi and fe are files of inlined lines.
SAMPLE = """\
fl=(1) /tree/build/../src/engine/step.c
fn=(10) avo_step
12 100
cfi=(2) /tree/src/base/arena.h
cfn=(11) arena_take
calls=1 5
12 7
fi=(3) /tree/src/base/checked.h
9 1
fe=(1)
fn=(12) avo_step'2
13 1

fl=(2)
fn=(11)
5 7
fn=(13) arena_grow.constprop.0.isra.1
6 1

fl=(4) ./string/strlen.c
fn=(14) strlen
1 1
fl=(5) /tree2/src/base/other.c
fn=(15) other
1 1
"""


class Hops(unittest.TestCase):
    def test_functions_that_ran(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "out"
            path.write_text(SAMPLE)
            found = hops.functions_of(path, "/tree")
        self.assertEqual(found, {("src/engine/step.c", "avo_step"),
                                 ("src/base/arena.h", "arena_take"),
                                 ("src/base/arena.h", "arena_grow")})


if __name__ == "__main__":
    unittest.main()
