#!/usr/bin/env python3
"""Byte-level vocabularies as Hugging Face `tokenizers` trains them, for tests/train/bpe.c.

usage: tools/oracle/bpe_trainer.py >tests/fixtures/train/bpe.json
       tools/oracle/bpe_trainer.py TEXT PATTERN VOCABULARY OUT    one, of a file

The texts are our own. Needs tokenizers.
"""
import json
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MODERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"gpt2": None, "llama3": MODERN % r"\p{N}{1,3}", "qwen2": MODERN % r"\p{N}"}
TEXTS = [
    "The avocet is a wader with a long, thin bill that curves upwards. It walks through shallow "
    "water and sweeps its bill from side to side. When the water is deep it swims, and then it "
    "tips up like a duck. The avocets' nests are on the ground; they're often on islands.\n\n",
    "Twenty-one birds and 21 boats; 1234567 grains of sand, 3.14159 and 1,000.50 too. "
    "100 + 200 = 300, 12 + 30 = 42, 99 - 9 = 90.\n",
    "for (size_t i = 0; i < count; i++) {\n    sum += values[i] * weights[i];\n}\n\n\treturn sum;\n",
    "Ein Säbelschnäbler ist ein Watvogel. L'avocette élégante marche dans l'eau. 反嘴鹬在水中行走。"
    "Шилоклювка ходит по воде 🐦🐦.\n",
    "She said: 'I'll be there, we've seen it, he'd go, it's I'm don't.' AAAAAAAA aaaaaaaaaa ---- "
    "________ ........ \n\n\n   spaces   and\ttabs\t\t\n",
    "water water waters watering watered wader wades waded wading walk walks walked walking swim "
    "swims swimming bill bills billed curve curves curved curving up upwards upward down downwards",
]


def train(texts, pattern, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    if PATTERNS[pattern] is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, min_frequency=0,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main():
    if len(sys.argv) == 5:
        text = open(sys.argv[1], encoding="utf-8", newline="").read()
        train([text], sys.argv[2], int(sys.argv[3])).save(sys.argv[4])
        return
    cases = []
    for pattern, vocabulary in [("gpt2", 400), ("llama3", 600), ("qwen2", 2000)]:
        model = json.loads(train(TEXTS, pattern, vocabulary).to_str())["model"]
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        cases.append({"pattern": pattern, "vocabulary": vocabulary, "tokens": tokens,
                      "merges": model["merges"]})
    print('{"special": %s,\n"texts": %s,\n"cases": [\n%s\n]}' % (
        json.dumps(SPECIAL), json.dumps(TEXTS, ensure_ascii=False),
        ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)))


if __name__ == "__main__":
    main()
