"""_abi.py against the header, as a C compiler reads it."""
import ctypes
import re
import shutil
import subprocess

import pytest

from avocet import _abi
from conftest import ROOT

HEADER = ROOT / "include/avocet.h"


def test_structures_lie_as_in_c(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    lines = ['#include "avocet.h"', "#include <stdio.h>", "int main(void) {"]
    for name, structure in _abi.STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in structure._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                         f"sizeof((({name} *)0)->{field}));")
    lines.append("return 0; }")
    source = tmp_path / "abi.c"
    source.write_text("\n".join(lines))
    program = tmp_path / "abi"
    subprocess.run([compiler, "-I", str(HEADER.parent), str(source), "-o", str(program)],
                   check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    own = []
    for name, structure in _abi.STRUCTURES.items():
        own.append(f"{name} {ctypes.sizeof(structure)}")
        for field, _ in structure._fields_:
            place = getattr(structure, field)
            own.append(f"{name}.{field} {place.offset} {place.size}")
    assert said.splitlines() == own


def test_every_structure_and_function_is_known():
    text = "".join(path.read_text() for path in sorted(HEADER.parent.rglob("*.h")))
    structures = set(re.findall(r"^\} (avo_\w+);", text, re.M))
    enumerations = {"avo_status", "avo_finish", "avo_event_kind", "avo_pooling",
                    "avo_grammar_kind", "avo_telemetry_form"}
    assert structures - enumerations - {"avo_allocator"} == set(_abi.STRUCTURES)
    functions = set(re.findall(r"^AVO_API[^;]*?\b(avo_\w+)\(", text, re.M))
    # avo_batch_add is avo_batch_add_scored; sharing and C's batches are Python's own
    assert functions - set(_abi.FUNCTIONS) == {"avo_batch_add", "avo_adapter_share",
                                               "avo_grammar_share", "avo_scheduler_batch"}
