#!/usr/bin/env python3
"""Compares what `avocet inspect --json --tensors` says of GGUF files with the gguf package.

usage: tools/oracle/check_gguf.py AVOCET FILE.gguf …
Metadata (arrays: type, count and the first items), and of every tensor name, shape, type, offset
and size. Exit status 1 when anything differs.
"""
import json
import math
import subprocess
import sys

import gguf


def same(ours, theirs):
    if isinstance(theirs, bool) or isinstance(theirs, str):
        return ours == theirs
    return math.isclose(float(ours), float(theirs), rel_tol=1e-12)


def check_metadata(ours, reader):
    wrong = []
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    if set(fields) != set(ours):
        wrong.append(f"keys differ: {set(fields) ^ set(ours)}")
    for key, field in fields.items():
        theirs, value = field.contents(), ours.get(key)
        if field.types[0] != gguf.GGUFValueType.ARRAY:
            if not same(value, theirs):
                wrong.append(f"{key}: {value!r} and {theirs!r}")
            continue
        if value["count"] != len(theirs):
            wrong.append(f"{key}: {value['count']} and {len(theirs)} items")
        for index, item in enumerate(value["first"]):
            if not same(item, theirs[index]):
                wrong.append(f"{key}[{index}]: {item!r} and {theirs[index]!r}")
    return wrong


def check_tensors(ours, reader):
    wrong = []
    if len(ours) != len(reader.tensors):
        wrong.append(f"{len(ours)} and {len(reader.tensors)} tensors")
    for mine, theirs in zip(ours, reader.tensors):
        expected = {"name": theirs.name, "type": theirs.tensor_type.name.lower(),
                    "shape": [int(n) for n in reversed(theirs.shape)],
                    "offset": int(theirs.data_offset), "bytes": int(theirs.n_bytes)}
        for key, value in expected.items():
            if mine[key] != value:
                wrong.append(f"{theirs.name}: {key} {mine[key]!r} and {value!r}")
    return wrong


def main():
    bad = 0
    for path in sys.argv[2:]:
        done = subprocess.run([sys.argv[1], "inspect", path, "--json", "--tensors"],
                              stdout=subprocess.PIPE, check=True)
        ours = json.loads(done.stdout)
        reader = gguf.GGUFReader(path)
        wrong = check_metadata(ours["metadata"], reader) + check_tensors(ours["tensors"], reader)
        bad += bool(wrong)
        print(f"{path}: {len(ours['metadata'])} values, {len(ours['tensors'])} tensors: "
              f"{'same' if not wrong else 'DIFFERENT'}")
        print("".join(f"  {line}\n" for line in wrong[:20]), end="")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
