#!/usr/bin/env python3
"""Two tenants on one server: how much one who floods moves the other's latency, and whether the
time to a first token tells one what the other has asked.

usage: bench/tenants.py MODEL [--avocet PATH] [--rounds 4] [--visits 30] [--flood 40] [--probes 60]
                        [--seed N] [-- options of avocet serve]

Flood: rounds alternate between visits alone (A), visits under a flood whose key has no limits (B),
and one whose key has a budget of KV tokens (C), so that a machine that becomes slower or faster in
between touches all three alike. Printed are percentiles of the visits' time to a first token, and
the ratio of their medians. A visit's own work is small; a request of the flood is four times a
visit's prompt and eight times its answer.

Leak: key one sends prompts; then key two sends the same prompts and as many that nobody has sent,
in random order, and notes the server's CPU time and the time to the first token of each. Printed is
the probability that a random "seen" prompt takes less than a random "fresh" one (0.5: they cannot
be told apart; the area under the curve of a Mann-Whitney test, with its standard error), the
p-value of a permutation test (how often labels that are exchanged at random give medians as far
apart; 10,000 permutations, two-sided), and how many tokens the prefix cache gave. The same for key
one itself is the control, which must see it. Fails when key two is given any cached token, when its
CPU time is further than 4 standard errors from 0.5, or when the control's p is above 0.01. Give
--threads 1: a team of threads that spins makes CPU time noisy.

Wall-clock times of one machine on which other work may run: read ratios, not milliseconds.
"""
import argparse
import http.client
import json
import math
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PERMUTATIONS = 10000
VISIT, FLOOD, LIMITED, OTHER = "visit-key-1", "flood-key-2", "limited-key-3", "other-key-4"


class Server:
    def __init__(self, avocet, model, folder, flags, budget):
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"keys": [
            {"name": "visit", "key": VISIT}, {"name": "flood", "key": FLOOD},
            {"name": "limited", "key": LIMITED, "kv_tokens": budget},
            {"name": "other", "key": OTHER}]}))
        self.process = subprocess.Popen(
            [avocet, "serve", model, "--port", "0", "--keys", str(keys), *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if " at http://" in line:
                self.port = int(line.rsplit(":", 1)[1])
            if line.startswith("  sandbox"):
                break
        else:
            sys.exit("the server did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def cpu_seconds(self):
        """Of all threads so far, to the nanosecond: other work on the machine does not count."""
        return 1e-9 * sum(int(path.read_text().split()[0]) for path in
                          Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"))

    def first_token(self, key, prompt, tokens, stop=None):
        """Seconds to the first bytes of a stream, which is then read to its end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True,
                "temperature": 0, "speculation": "off", "stream_options": {"include_usage": True}}
        begin = time.monotonic()
        try:
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"Authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            if answer.status != 200:
                answer.read()
                return None
            text = answer.read(1)
            seconds = time.monotonic() - begin
            while (more := answer.read1(65536)) and not (stop and stop.is_set()):
                text = text[-4000:] + more
            found = re.search(rb'"cached_tokens": ?(\d+)', text)
            self.cached = int(found.group(1)) if found else 0
            return seconds
        finally:
            connection.close()


def words(generator, count):
    return " ".join(str(generator.randrange(10000)) for _ in range(count))


def quantile(numbers, part):
    numbers = sorted(numbers)
    return numbers[min(len(numbers) - 1, int(part * len(numbers)))]


def flood(server, key, threads, stop):
    def run(number):
        generator = random.Random(number)
        while not stop.is_set():
            server.first_token(key, words(generator, 48), 64, stop)
    made = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in made:
        thread.start()
    return made


def measure_flood(server, options):
    seen = {"A": [], "B": [], "C": []}
    generator = random.Random(1)
    for _ in range(options.rounds):
        for kind, key in (("A", None), ("B", FLOOD), ("C", LIMITED)):
            stop = threading.Event()
            made = flood(server, key, options.flood, stop) if key else []
            if made:
                time.sleep(2)
            for _ in range(options.visits):
                seen[kind].append(server.first_token(VISIT, words(generator, 12), 8))
            stop.set()
            for thread in made:
                thread.join()
    names = {"A": "alone", "B": "flood without a limit", "C": "flood with kv_tokens"}
    for kind, numbers in seen.items():
        missing = sum(number is None for number in numbers)
        numbers = [number for number in numbers if number is not None]
        print(f"{names[kind]}: {len(numbers)} visits, {missing} refused, first token p50 "
              f"{quantile(numbers, .5) * 1e3:.1f} ms, p99 {quantile(numbers, .99) * 1e3:.1f} ms")
        seen[kind] = numbers
    for kind in "BC":
        print(f"{names[kind]}: {quantile(seen[kind], .5) / quantile(seen['A'], .5):.1f} times the "
              f"median alone, p99 {quantile(seen[kind], .99) / quantile(seen['A'], .99):.1f} times")


def faster(first, second):
    """The probability that one of `first` is less than one of `second`, and its standard error
    where there is no difference."""
    wins = sum((a < b) + .5 * (a == b) for a in first for b in second)
    n, m = len(first), len(second)
    return wins / (n * m), math.sqrt((n + m + 1) / (12 * n * m))


def p_value(first, second, generator):
    """Of the hypothesis that both are drawn alike."""
    def gap(numbers):
        return abs(statistics.median(numbers[:len(first)]) -
                   statistics.median(numbers[len(first):]))
    numbers = first + second
    seen, larger = gap(numbers), 0
    for _ in range(PERMUTATIONS):
        generator.shuffle(numbers)
        larger += gap(numbers) >= seen
    return (larger + 1) / (PERMUTATIONS + 1)


def measure_leak(server, options):
    generator = random.Random(options.seed)
    good = True
    for key, name, told in ((OTHER, "another key", False), (VISIT, "the same key", True)):
        seen, fresh, area = [], [], 0.0
        prompts = [words(generator, 24) for _ in range(options.probes)]
        for prompt in prompts:
            server.first_token(VISIT, prompt, 1)
        probes = [(prompt, seen) for prompt in prompts]
        probes += [(words(generator, 24), fresh) for _ in prompts]
        generator.shuffle(probes)
        cached, p = 0, 1.0
        for prompt, times in probes:
            before = server.cpu_seconds()
            wall = server.first_token(key, prompt, 1)
            time.sleep(0.02)  # until its threads sleep
            times.append((server.cpu_seconds() - before, wall))
            cached += server.cached
        for clock, what in enumerate(("CPU time", "time")):
            first, second = ([sample[clock] for sample in times] for times in (seen, fresh))
            chance, error = faster(first, second)
            area = chance if clock == 0 else area
            p = p_value(first, second, generator)
            medians = [1e3 * statistics.median(numbers) for numbers in (first, second)]
            print(f"{name}, {what}: a prompt that was sent before takes less with probability "
                  f"{chance:.3f} (0.5 ± {error:.3f} where nothing is told), p = {p:.4f}; medians "
                  f"{medians[0]:.2f} and {medians[1]:.2f} ms")
        print(f"{name}: {cached} cached tokens")
        if told:
            good = good and area > .9 and p < .01
        else:
            good = good and cached == 0 and abs(area - .5) < 4 * error
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--avocet", default="build/avocet")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--visits", type=int, default=30)
    parser.add_argument("--flood", type=int, default=40)
    parser.add_argument("--probes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=2, help="of the prompts of the leak test")
    parser.add_argument("--budget", type=int, default=8192, help="kv_tokens of the limited key")
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[:own.index("--")], own[own.index("--") + 1:]
    options = parser.parse_args(own)
    with tempfile.TemporaryDirectory(prefix="avocet-tenants-") as folder:
        server = Server(options.avocet, options.model, Path(folder), flags, options.budget)
        try:
            if options.rounds > 0:
                measure_flood(server, options)
            good = measure_leak(server, options) if options.probes > 0 else True
        finally:
            server.process.terminate()
            server.process.wait()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
