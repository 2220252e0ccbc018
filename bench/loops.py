"""How many answers loop: the share of prompts whose answer ends because it repeats itself, greedy
and with the defaults of `avocet run`. Answers are those of `run --prompts`, seed 0.

    bench/loops.py MODEL QUESTIONS.jsonl [--limit 200] [-n 256] [--avocet FILE]

QUESTIONS.jsonl has lines with "turns" (MT-Bench, Spec-Bench), "question" or "prompt"; the first
--limit that are at most 1,500 bytes long are asked.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

MODES = (("greedy", ["--temperature", "0"]), ("default", []))


def questions(path, limit):
    found = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        text = (given.get("turns") or [given.get("question") or given.get("prompt")])[0]
        if text and len(text.encode()) <= 1500 and len(found) < limit:
            found.append(text)
    return found


def ask(options, texts, flags):
    lines = "".join(json.dumps({"prompt": text}) + "\n" for text in texts)
    done = subprocess.run([options.avocet, "run", options.model, "--prompts", "-", "-n",
                           str(options.n), "-c", "2048", "-b", "16", *flags],
                          input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("questions")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--avocet", default="avocet")
    options = parser.parse_args()
    texts = questions(options.questions, options.limit)
    print(f"{len(texts)} prompts, up to {options.n} tokens each")
    for name, flags in MODES:
        answers = ask(options, texts, flags)
        ends = [answer["finish_reason"] for answer in answers]
        tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
        print(f"{name}: {ends.count('repetition')} loop, {ends.count('stop')} end by themselves, "
              f"{ends.count('length')} reach the limit; {tokens} tokens", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
