#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizer/: tiny tokenizers of every kind, trained here on text of our own,
with what Hugging Face `tokenizers` and SentencePiece say their ids are.

expected.json holds, per tokenizer, the hash of the ids of each text (the upper 40 of 64 bits of
FNV-1a over the ids as 32-bit little-endian numbers, in hexadecimal) with special tokens as text
and as tokens, and the hash of the decoded text; and for the tokenizers of the shared test data the
hashes of the ids of the shared texts, whole and line by line, and of all code points.

usage: python tools/oracle/tokenizer_vectors.py [SHARED_DATA_FOLDER]
(without the folder the hashes of the shared texts stay as they are)
"""
import io
import json
import random
import struct
import sys
from pathlib import Path

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "tests" / "fixtures" / "tokenizer"

SOURCE = """\
The avocet is a wader that sweeps its bent bill through shallow water. It feeds by touch,
finding shrimps and small insects where other birds see nothing; in winter it gathers in estuaries.
A tokenizer cuts a text into pieces, and every piece has a number. The same text must always give
the same numbers, whatever the machine, whatever the weather, whatever else is in the batch.
Numbers such as 7, 42, 1999 and 123456789 are cut in threes or one by one. It's what they're for;
we've seen that they'll do, and I'm sure you'd say: don't worry, that's fine, isn't it?
def merge(left, right):\n    if left is None:\n        return right\n    return left + right  # done
for (int i = 0; i < count; i++) { sum += weights[i] * inputs[i]; }\n\treturn sum / (double)count;
Der Säbelschnäbler wohnt an der Küste; über Öl und Größe spricht er nie. L'avocette élégante
cherche sa nourriture en été. El pájaro señala. Сабля и вода: шилоклювка ищет пищу в мелкой воде.
水鳥は浅い水の中でくちばしを動かす。 反嘴鹬在浅水中觅食。 뒷부리장다리물떼새는 얕은 물에서 먹이를 찾는다.
מים רדודים وماء ضحل πουλί στο νερό 🙂 👍🏽 🐦‍⬛ ½ ² Ⅷ e\u0301 n\u0303 ﬁ Å
"""

LATIN = SOURCE[:SOURCE.index("Der ")]  # for vocabularies to which most characters are unknown

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t\n \r\n", "a", "The avocet",
    " the avocet feeds  by touch.",
    "It's what they'RE for; WE'VE 'ſ 'tis don''t 'll", "1 12 123 1234 12345 ½ ² Ⅷ ٣٤ 一二",
    "tokenizer tokenizers TOKENIZER Tokenizer", "x = y + z;\n\n    return   x  # ok\r\n\r\n\tend",
    "Säbelschnäbler L'élégante señala Größe",
    "e\u0301 \u00e9 n\u0303 \u0301a a\u0323\u0307 a\u0307\u0323",
    "\u1100\u1161\u11a8 \uac01 \ud55c\uad6d\uc5b4", "水鳥は浅い。反嘴鹬, 뒷부리", "Сабля и вода πουλί",
    "מים רדודים \u200fوماء ضحل\u200f", "🙂👍🏽👩‍🚀 🇩🇪🇫🇷 🏴\U000e0067\U000e0062\U000e007f ❤️‍🔥 1️⃣",
    "\x00\x01\x1b\x7f\x80\x85\xa0\u200b\u2028\ufeff\ufffd", "a\u00a0b\u2003c\u3000d", "▁▁a▁b ▁",
    "Ġhello Ċ ĉ", "<0x0A><0xFF> <unk>", "<s>hello</s>", " <s> hello </s> there", "<|x|><|x|> <|x|>",
    "user: <|im_start|>  x<|im_end|>\n", "avocet avocets [MASK] a[MASK]b [MASK]",
    "wordAVOword AVO .AVO.",
    "Éclair ÉCLAIR éclair", "  lead and trail  ", "a" * 300, " " * 100, "1" * 100, "🙂" * 40,
    "\u0301" * 40,
    "ab" * 200, "\n" * 60, ".,;:!?" * 20, "é" * 60, "Å ﬁ ℌ ① ㎏ İI",
    "\U0001f600\U00020000\U000e0001\U0010fffd",
    "\u0378\u0530\U0001e030\U00031350\U00011de0\U0002ebf0", "<table>\n\n\n\t\t  </table>",
    "a,b;c d-e_f/g",
    "CamelCaseWords and_snake_case and kebab-case", "http://example.org/?q=1&r=%20#x",
    "aaa bbb  ccc   ddd",
    "The same text must always give the same numbers, whatever the machine.",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value >> 24:010x}"


def hash_ids(ids):
    return fnv(struct.pack(f"<{len(ids)}i", *ids))


def stress_texts(seed, count):
    """Short texts of everything that goes wrong: white space, marks, case, every plane."""
    draw = random.Random(seed)
    pools = ["abc XYZ 012 .,!?\n\r\té\u00df\u0301\u0300\u0327 中文あ\u0915\u094dกำ אا🙂🏽"
             "\u200d\ufe0f▁\u00a0\u2003'\"-_/\\<>|sStTrReEvVmMdDlL",
             " \n\r\t\u00a0\u2003\u3000\u0085\x0b\x0ca1.",
             "".join(map(chr, range(0x300, 0x345))) + "aeoAqc\u0327\uac00\u11a8\u1161\u1100 <>="]
    for i in range(count):
        if i % 4 < 3:
            yield "".join(draw.choice(pools[i % 4]) for _ in range(draw.randrange(1, 40)))
        else:
            points = [draw.randrange(0x110000) if draw.random() < .3 else draw.randrange(0x3400)
                      for _ in range(draw.randrange(1, 20))]
            yield "".join(chr(c) for c in points if not 0xD800 <= c < 0xE000)


# ---- Tokenizers of our own ----

def train(tokenizer, size, alphabet=(), special=(), source=SOURCE, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False,
        initial_alphabet=list(alphabet),
                                  special_tokens=list(special), **options)
    tokenizer.train_from_iterator(source.split("\n") * 2 + source.split("."), trainer)
    return tokenizer


def byte_level(pre, size=400, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, size, pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_special_tokens(["<|x|>"])
    return tokenizer


def llama3():
    tokenizer = byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=True)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", special_tokens=[
            ("<s>", tokenizer.token_to_id("<s>"))])])
    # Words that no merge leads to: only ignore_merges finds them.
    data = json.loads(tokenizer.to_str())
    merges = data["model"]["merges"]
    data["model"]["merges"] = merges[:-40]
    return Tokenizer.from_str(json.dumps(data))


def qwen2():
    tokenizer = byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<table>", normalized=False), AddedToken("Éclair",
        normalized=True)])
    return tokenizer


def smollm():
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=True)]))


def splits():
    """Patterns nobody wrote a scanner for, and every behaviour of a split."""
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{Lu}?\p{Ll}+(?=[A-Z])"), "isolated"),
        pre_tokenizers.Split(Regex(r"[一-龥぀-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?[\p{P}\p{S}]+$"), "merged_with_previous"),
        pre_tokenizers.Split("t", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[^\d]+"), "contiguous", invert=True),
        pre_tokenizers.Split(";", "removed"),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def patterns():
    """Where Oniguruma's dialect and tables differ from PCRE2's."""
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{Han}+|\p{N}{2}+|[[:punct:]]+|\u0041\h?"), "isolated"),
        pre_tokenizers.Split(Regex(r"[\w'-]+\b|\W(?m:.)$"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def fallback_vocabulary(tokenizer, size):
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    train(tokenizer, size, special=special)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    return data


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
        normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    data = fallback_vocabulary(tokenizer, 700)
    data["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.add_special_tokens([AddedToken("<|x|>", rstrip=True, normalized=False),
                                  AddedToken("[MASK]", lstrip=True, normalized=False)])
    return tokenizer


def gemma():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse()])
    data = fallback_vocabulary(tokenizer, 650)
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False),
                          AddedToken("<table>", normalized=False)])
    return tokenizer


def metaspace():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=True)
    train(tokenizer, 350, special=["<unk>", "<s>", "</s>"], source=LATIN)
    tokenizer.add_special_tokens([AddedToken("<|x|>", single_word=True), AddedToken("[MASK]",
        lstrip=True,
                                                                                   rstrip=True)])
    tokenizer.add_tokens([AddedToken("AVO", single_word=True, normalized=False), "avocets"])
    return tokenizer


def words():
    """No byte fallback, no fusing, everything small: what is not known becomes <unk>."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Strip(), normalizers.NFKD(), normalizers.Lowercase(),
            normalizers.StripAccents(),
        normalizers.NFKC(), normalizers.Replace(Regex(r"[;:]+"), ",")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")])
    tokenizer.decoder = decoders.Fuse()
    train(tokenizer, 300, special=["<unk>"], source=LATIN)
    tokenizer.add_tokens([AddedToken("Éclair", normalized=True), AddedToken("AVO",
        single_word=True)])
    return tokenizer


def vanishing():
    """Neither bytes nor an unknown token: such characters vanish and their neighbours meet."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.Fuse()
    return train(tokenizer, 250, source=LATIN[:400])


# ---- SentencePiece, llama2.c and GGUF ----

def sentencepiece_model():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in SOURCE.split("\n") if line] * 3),
            model_writer=model,
        model_type="bpe", vocab_size=600, byte_fallback=True, character_coverage=0.98,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        user_defined_symbols=["<table>", "\n\n", "▁▁"], num_threads=1)
    return model.getvalue()


def llama2c_file(proto):
    pieces = [(p.piece.replace("▁", " "), p.score) for p in proto.pieces]
    pieces[1], pieces[2] = ("\n<s>\n", 0.0), ("\n</s>\n", 0.0)
    out = struct.pack("<I", max(len(p.encode()) for p, _ in pieces))
    for piece, score in pieces:
        out += struct.pack("<fI", score, len(piece.encode())) + piece.encode()
    return out


def without_user_defined(proto):
    """llama2.c knows no user-defined pieces."""
    kept = sentencepiece_model_pb2.ModelProto()
    kept.CopyFrom(proto)
    del kept.pieces[:]
    kept.pieces.extend(p for p in proto.pieces if p.type != p.USER_DEFINED)
    return kept


def gguf_file(path, add):
    writer = gguf.GGUFWriter(str(path), "llama")
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def gguf_scored(proto):
    def add(writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_list([p.piece.replace("▁", " ") if p.type == 4 else p.piece
                               for p in proto.pieces])
        writer.add_token_scores([p.score for p in proto.pieces])
        writer.add_token_types([p.type for p in proto.pieces])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
    return add


def gguf_ranked(tokenizer, pre):
    data = json.loads(tokenizer.to_str())
    added = {a["id"]: a for a in data["added_tokens"]}

    def add(writer):
        count = tokenizer.get_vocab_size(True)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list([tokenizer.id_to_token(i) for i in range(count)])
        writer.add_token_types([(3 if added[i]["special"] else 4) if i in added else 1
                                for i in range(count)])
        writer.add_token_merges([" ".join(m) if isinstance(m, list) else m
                                 for m in data["model"]["merges"]])
    return add


# ---- Expectations ----

def expect(name, texts, plain, special=None, decode=None):
    case = {"file": name, "plain": [hash_ids(plain(t)) for t in texts]}
    if special is not None:
        case["special"] = [hash_ids(special(t)) for t in texts]
    if decode is not None:
        case["decoded"] = [fnv(decode(plain(t)).encode()) for t in texts]
    return case


def decoder_of(tokenizer):
    """Decoding as the original does it, save for two faults: its ByteLevel decoder takes the
    letters of added tokens for bytes,
        so that one with an É in it comes out broken; and added tokens come
    out normalised. Ours gives them as they were added."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    added = {i: t.content for i, t in tokenizer.get_added_tokens_decoder().items()}
    if isinstance(tokenizer.decoder, decoders.Fuse):
        return lambda ids: "".join(added.get(i) or tokenizer.id_to_token(i) for i in ids)
    ascii_only = all(text.isascii() for text in added.values())
    if not isinstance(tokenizer.decoder, decoders.ByteLevel) or ascii_only:
        return lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
    plain = [c for c in range(256) if chr(c) in letters]
    byte_of = {chr(c): c for c in plain}
    byte_of.update(zip((chr(256 + i) for i in range(256 - len(plain))),
                       (c for c in range(256) if c not in plain)))

    def decode(ids):
        parts = (added[i].encode() if i in added
                 else bytes(byte_of[c] for c in tokenizer.id_to_token(i)) for i in ids)
        return b"".join(parts).decode(errors="replace")
    return decode


def expect_hf(name, tokenizer, texts):
    def ids(special):
        def run(text):
            tokenizer.encode_special_tokens = not special
            return tokenizer.encode(text, add_special_tokens=False).ids
        return run
    case = expect(name, texts, ids(False), ids(True), decoder_of(tokenizer))
    framed = tokenizer.encode("a", add_special_tokens=True).ids
    case["framed"] = hash_ids(framed)
    return case


def all_code_points():
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for at in range(0, len(points), 64):
        yield "".join(f"a{chr(c)} {chr(c)}{chr(c)}1" for c in points[at:at + 64])


def expect_shared(folder):
    cases = []
    for name in ("gpt2", "llama3", "qwen2_5", "phi3", "llama2"):
        file = "tokenizer.model" if name == "llama2" else "tokenizer.json"
        path = folder / "tokenizers" / name / file
        if name == "llama2":
            encode = sentencepiece.SentencePieceProcessor(model_file=str(path)).encode
        else:
            tokenizer = Tokenizer.from_file(str(path))
            tokenizer.encode_special_tokens = True

            def encode(text, tokenizer=tokenizer):
                return tokenizer.encode(text, add_special_tokens=False).ids
        case = {"file": f"tokenizers/{name}/{path.name}", "texts": []}
        if name != "llama2":  # SentencePiece stops at a zero byte
            case["points"] = hash_ids([i for text in all_code_points() for i in encode(text)])
        for text_path in sorted((folder / "text").glob("*.txt")):
            text = text_path.read_bytes().decode()
            lines = text.split("\n")
            case["texts"].append({
                "file": f"text/{text_path.name}", "whole": hash_ids(encode(text)),
                "lines": hash_ids([i for line in lines for i in encode(line)])})
        cases.append(case)
        print(name, file=sys.stderr)
    return cases


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    texts = TEXTS + list(stress_texts(7, 150))
    cases = []
    made = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "smollm": smollm, "splits": splits,
            "patterns": patterns,
            "llama2": llama2, "gemma": gemma, "metaspace": metaspace, "words": words,
            "vanishing": vanishing}
    kept = {}
    for name, make in made.items():
        kept[name] = tokenizer = make()
        text = tokenizer.to_str()
        (OUT / f"{name}.json").write_text(text, encoding="utf-8")
        cases.append(expect_hf(f"{name}.json", Tokenizer.from_str(text), texts))
        print(name, len(text), file=sys.stderr)
    model = sentencepiece_model()
    (OUT / "bpe.model").write_bytes(model)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    # SentencePiece stops at a zero byte and squeezes nothing here.
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    clean = [t.replace("\x00", "") for t in texts]
    decode = processor.decode
    cases.append(dict(expect("bpe.model", clean, processor.encode, None, decode), clean=True))
    bare = without_user_defined(proto)
    (OUT / "bpe.bin").write_bytes(llama2c_file(bare))
    bare_processor = sentencepiece.SentencePieceProcessor(model_proto=bare.SerializeToString())
    cases.append(dict(expect("bpe.bin", clean, bare_processor.encode), clean=True, marks=True))
    gguf_file(OUT / "bpe.gguf", gguf_scored(proto))
    cases.append(dict(expect("bpe.gguf", clean, processor.encode, None, decode), clean=True))
    for name, pre in (("gpt2", "gpt-2"), ("llama3", "llama-bpe"), ("qwen2", "qwen2")):
        gguf_file(OUT / f"{name}.gguf", gguf_ranked(kept[name], pre))
        data = json.loads(kept[name].to_str())
        for added in data["added_tokens"]:
            added["normalized"] = False  # GGUF does not say; its readers seek them in the raw text
        cases.append(expect_hf(f"{name}.gguf", Tokenizer.from_str(json.dumps(data)), texts))
        del cases[-1]["framed"]
    expected = {"texts": texts, "cases": cases, "shared": []}
    if len(sys.argv) > 1:
        expected["shared"] = expect_shared(Path(sys.argv[1]))
    elif (OUT / "expected.json").exists():
        expected["shared"] = json.loads((OUT / "expected.json").read_text())["shared"]
    text = json.dumps(expected, ensure_ascii=True, separators=(",", ":"))
    (OUT / "expected.json").write_text(text + "\n")


main()
