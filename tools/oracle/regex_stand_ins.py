#!/usr/bin/env python3
"""Writes src/tokenizer/regex_table.c: where PCRE2 here knows less Unicode than Hugging Face
`tokenizers` (Oniguruma), the characters in question are matched as if they were an older one of the
same category and the same length in UTF-8.

usage: python tools/oracle/regex_stand_ins.py > src/tokenizer/regex_table.c
"""
import ctypes
import ctypes.util

import tokenizers
from tokenizers import Regex, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))
BYTES = TEXT.encode()
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co "
              "Cn").split()
HAN = "Han"


def pcre2():
    library = ctypes.CDLL(ctypes.util.find_library("pcre2-8"))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.pcre2_compile_8.restype = pointer
    library.pcre2_compile_8.argtypes = [ctypes.c_char_p, size, ctypes.c_uint32] + [pointer] * 3
    library.pcre2_match_data_create_8.restype = pointer
    library.pcre2_match_8.argtypes = [pointer, ctypes.c_char_p, size, size, ctypes.c_uint32,
                                      pointer, pointer]
    library.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(size)
    library.pcre2_get_ovector_pointer_8.argtypes = [pointer]
    data = pointer(library.pcre2_match_data_create_8(2, None))

    def matching(pattern):
        error, offset = ctypes.c_int(), size()
        text = (pattern + "+").encode()
        code = pointer(library.pcre2_compile_8(text, len(text), 0x000A0000, ctypes.byref(error),
                                               ctypes.byref(offset), None))
        found, at = set(), 0
        while library.pcre2_match_8(code, BYTES, len(BYTES), at, 0x40000000, data, None) > 0:
            ends = library.pcre2_get_ovector_pointer_8(data)
            found.update(map(ord, BYTES[ends[0]:ends[1]].decode()))
            at = ends[1]
        return found
    return matching


def theirs(pattern):
    kept = set()
    for _, (a, b) in pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(TEXT):
        kept.update(range(a, b))
    return {c for i, c in enumerate(ALL) if i not in kept}


def main():
    ours = pcre2()
    wanted, known = {}, {}
    for category in CATEGORIES:
        wanted.update((c, category) for c in theirs(r"\p{%s}" % category))
        known.update((c, category) for c in ours(r"\p{%s}" % category))
    han = theirs(r"\p{Han}")
    same = [c for c in ALL if wanted[c] == known[c]]

    def stand_in(c):
        if c in han:
            return 0x20000
        length = len(chr(c).encode())
        return next(s for s in same if wanted[s] == wanted[c] and len(chr(s).encode()) == length
                    and s not in han and s > 0x900)

    ranges = []
    for c in [0x180E] + [c for c in ALL if wanted[c] != known[c]]:
        other = 0x200B if c == 0x180E else stand_in(c)  # PCRE2 takes U+180E for white space
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == other:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, other])
    ranges.sort()
    print("/* Made by tools/oracle/regex_stand_ins.py from tokenizers", tokenizers.__version__ +
          ": do not edit. */")
    print('#include "tokenizer/regex_int.h"')
    print("\n/* clang-format off */")
    print(f"const uint32_t regex_stand_in_count = {len(ranges)};")
    print(f"const regex_stand_in regex_stand_ins[{len(ranges)}] = {{")
    for begin, end, other in ranges:
        print(f"    {{0x{begin:X}, 0x{end:X}, 0x{other:X}}},")
    print("};\n/* clang-format on */")


main()
