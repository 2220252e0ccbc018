#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_table.c: the classes of every code point, asked of Hugging Face
`tokenizers` itself, so that our scanners agree with it on every one of them, whatever the Unicode
version of the libraries here.

usage: python tools/oracle/unicode_classes.py > src/tokenizer/unicode_table.c
"""
import ctypes
import ctypes.util
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
import tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))
BLOCK, GROUP = 8, 64


def matching(pattern):
    """The code points a regular expression of one class matches."""
    kept = set()
    for _, (a, b) in pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(TEXT):
        kept.update(range(a, b))
    return {c for i, c in enumerate(ALL) if i not in kept}


def isolated(pre_tokenizer):
    # Runs of other characters are longer than one; a lone one between two isolated ones is told
    # apart by asking again for it alone, between letters.
    alone = {ALL[a] for _, (a, b) in pre_tokenizer.pre_tokenize_str(TEXT) if b - a == 1}
    return {c for c in alone if len(pre_tokenizer.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def single_word():
    """What Rust's \\w is, seen through an added token that wants to stand alone."""
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.add_tokens([AddedToken("QQ", single_word=True, normalized=False)])
    word = set()
    for at in range(0, len(ALL), 4096):
        chunk = ALL[at:at + 4096]
        encoded = tokenizer.encode("".join("." + chr(c) + "QQ." for c in chunk))
        found = {o[1] for o, t in zip(encoded.offsets, encoded.tokens) if t == "QQ"}
        word |= {c for i, c in enumerate(chunk) if i * 5 + 4 not in found}
    return word | {0x51}


def utf8proc():
    library = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def function(name):
        f = getattr(library, "utf8proc_" + name)
        f.restype, f.argtypes = ctypes.c_void_p, [ctypes.c_char_p]

        def call(text):
            memory = f(text.encode())
            result = ctypes.string_at(memory).decode()
            free(memory)
            return result
        return call
    return function


def opaque_to_normaliser():
    """Where utf8proc knows more of a character than the original does: left as it is."""
    function = utf8proc()
    result = {0x11930, 0x11935}
    for name in ("NFC", "NFD", "NFKC", "NFKD"):
        ours, theirs = function(name), getattr(normalizers, name)()
        result |= {c for c in ALL[1:] if ours(chr(c)) != theirs.normalize_str(chr(c))}
    ours, theirs = function("NFD"), normalizers.NFD()
    for c in ALL[1:]:
        for text in ("a\u0345" + chr(c), "a" + chr(c) + "\u0334"):
            if ours(text) != theirs.normalize_str(text):
                result.add(c)
    return result


def composes_or_moves(opaque):
    """What may change by NFC, or change what stands before it."""
    second = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in ALL:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            second.add(int(parts[1], 16))
    nfc = normalizers.NFC()
    moves = {c for c in ALL if unicodedata.combining(chr(c)) or c in second
             or nfc.normalize_str(chr(c)) != chr(c)}
    return moves - opaque


def main():
    opaque = opaque_to_normaliser()
    accents = normalizers.StripAccents()
    classes = [
        ("LETTER", matching(r"\p{L}")),
        ("NUMBER", matching(r"\p{N}")),
        ("SPACE", matching(r"\s")),
        ("WORD", matching(r"\w")),
        ("NUMERIC", isolated(pre_tokenizers.Digits(True))),
        ("PUNCTUATION", isolated(pre_tokenizers.Punctuation("isolated"))),
        ("WORD_ALONE", single_word()),
        ("MARK", {c for c in ALL if accents.normalize_str(chr(c)) == ""}),
        ("OPAQUE", opaque),
        ("NFC_ACTIVE", composes_or_moves(opaque)),
    ]
    value = [0] * 0x110000
    for bit, (_, members) in enumerate(classes):
        for c in members:
            value[c] |= 1 << bit
    kinds = sorted(set(value))
    index = {k: i for i, k in enumerate(kinds)}
    leaves, leaf_of, groups, group_of, top = [], {}, [], {}, []
    blocks = []
    for at in range(0, 0x110000, BLOCK):
        leaf = tuple(index[v] for v in value[at:at + BLOCK])
        if leaf not in leaf_of:
            leaf_of[leaf] = len(leaves)
            leaves.append(leaf)
        blocks.append(leaf_of[leaf])
    for at in range(0, len(blocks), GROUP):
        group = tuple(blocks[at:at + GROUP])
        if group not in group_of:
            group_of[group] = len(groups)
            groups.append(group)
        top.append(group_of[group])

    def array(type_, name, numbers):
        print(f"\nconst {type_} {name}[{len(numbers)}] = {{")
        line = "   "
        for n in numbers:
            piece = f" {n},"
            if len(line) + len(piece) > 100:
                print(line)
                line = "   "
            line += piece
        print(line + "\n};")

    print("/* Made by tools/oracle/unicode_classes.py from tokenizers", tokenizers.__version__ +
          ": do not edit. */")
    print('#include "tokenizer/unicode_int.h"')
    print("\n/* Bits, lowest first:", ", ".join(n for n, _ in classes) + ". */")
    print("/* clang-format off */")
    array("uint16_t", "unicode_kinds", kinds)
    array("uint8_t", "unicode_top", top)
    array("uint16_t", "unicode_groups", [b for g in groups for b in g])
    array("uint8_t", "unicode_leaves", [k for leaf in leaves for k in leaf])
    print("/* clang-format on */")
    print([(n, len(m)) for n, m in classes], len(kinds), len(leaves), len(groups), file=sys.stderr)


main()
