#!/usr/bin/env python3
"""Two replicas of avocet.ray behind each router in turn: how many prompt tokens the prefix caches
had, and the time to the first token. Conversations and adapters as servers see them: every
conversation goes on several times, with a system prompt that others have, too, in front.

    make test-ray                                   # installs Ray into build/ray
    AVOCET_LIBRARY=build/libavocet.so build/ray/bin/python bench/replicas.py smollm2.gguf [OPTIONS]
"""
import argparse
import concurrent.futures
import json
import os
import random
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from ray_replicas import Replicas  # noqa: E402
import avocet.ray  # noqa: E402

WORDS = ("river stone window paper engine winter garden letter number yellow silver market "
         "station morning answer question bridge summer kitchen village").split()


def words(generator, count):
    return " ".join(generator.choice(WORDS) for _ in range(count))


def conversations(options):
    """Turns in the order in which they are asked; each is (conversation, adapter, prompt)."""
    generator = random.Random(options.seed)
    systems = [words(generator, options.system_words) for _ in range(options.systems)]
    texts = [systems[i % options.systems] for i in range(options.conversations)]
    adapters = [f"a{i % options.adapters}" if options.adapters else None
                for i in range(options.conversations)]
    turns = []
    for _ in range(options.turns):
        order = list(range(options.conversations))
        generator.shuffle(order)
        for number in order:
            texts[number] += "\n" + words(generator, options.turn_words)
            turns.append((number, adapters[number], texts[number]))
    return turns


def measure(ray, options, turns):
    path = "/v1/completions"
    prompt_tokens = cached_tokens = 0
    seconds = []

    def ask(turn):
        _, adapter, prompt = turn
        body = {"prompt": prompt, "max_tokens": options.tokens, "ignore_eos": True,
                "temperature": 0, "stream_options": {"include_usage": True}}
        if adapter:
            body["model"] = adapter
        first, events = ray.first_token(path, body)
        usage = None
        for line in events.decode().split("\n\n"):
            if line.startswith("data: {"):
                usage = json.loads(line[6:]).get("usage") or usage
        return first, usage

    with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
        for first, usage in pool.map(ask, turns):
            seconds.append(first)
            prompt_tokens += usage["prompt_tokens"]
            cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
    seconds.sort()
    return {"requests": len(turns), "prompt_tokens": prompt_tokens,
            "hits": cached_tokens / prompt_tokens,
            "first_token_mean_ms": 1000 * statistics.mean(seconds),
            "first_token_p50_ms": 1000 * seconds[len(seconds) // 2],
            "first_token_p90_ms": 1000 * seconds[len(seconds) * 9 // 10]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--routers", default="round_robin,affinity,ray")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--conversations", type=int, default=24)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--systems", type=int, default=4)
    parser.add_argument("--system-words", type=int, default=120)
    parser.add_argument("--turn-words", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--adapters", type=int, default=0)
    parser.add_argument("--adapter-root")
    parser.add_argument("--arguments", default="--threads 1 --ctx 2048 --kv-tokens 16384")
    parser.add_argument("--gap-max", type=int, default=avocet.ray.Options.gap_max)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    command = os.environ.get("AVOCET", str(ROOT / "build/avocet"))
    turns = conversations(options)
    with Replicas() as ray:
        for number in range(options.rounds):
            for router in options.routers.split(","):  # each begins with cold caches
                ray.deploy(model=os.path.abspath(options.model), replicas=2, router=router,
                           arguments=options.arguments, command=command,
                           gap_max=options.gap_max, adapter_root=options.adapter_root)
                found = measure(ray, options, turns)
                print(json.dumps({"round": number, "router": router, **{
                    name: round(value, 3) for name, value in found.items()}}), flush=True)
                ray.remove()


if __name__ == "__main__":
    main()
