#!/usr/bin/env python3
"""Does `avocet eval TASK --chat` ask what lm-eval asks with --apply_chat_template? Item by item:
the rendered prompt, log-likelihoods or the answer, and the scores.

usage: bench/eval_chat.py AVOCET MODEL ARC_EASY.jsonl [--limit N] [--threads N]

lm-eval (pip install "lm-eval[api]==0.4.13") sends its requests to `avocet serve`. Its own remote
tokenizer cannot apply a chat template, so this program renders the server's template with jinja2 as
transformers does, which is what lm-eval has with a tokenizer from Hugging Face.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PORT = 18099
URL = f"http://127.0.0.1:{PORT}"


def wait_for_server(process):
    while process.poll() is None:
        try:
            return json.load(urllib.request.urlopen(f"{URL}/tokenizer_info"))
        except urllib.error.URLError:
            time.sleep(0.2)
    sys.exit("the server did not start")


def task_of(data):
    return {"task": "arc_chat", "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test",
            "output_type": "multiple_choice", "doc_to_text": "{{query}}\nAnswer:",
            "doc_to_target": "gold", "doc_to_choice": "choices",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}


def peer_samples(info, data, limit):
    import jinja2.sandbox
    from lm_eval import simple_evaluate
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    template = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True).from_string(info["chat_template"])

    class WithTemplate(LocalCompletionsAPI):
        def apply_chat_template(self, chat_history, add_generation_prompt=True):
            return template.render(messages=chat_history,
                                   add_generation_prompt=add_generation_prompt)

    peer = WithTemplate(model="chat", base_url=f"{URL}/v1/completions", tokenizer_backend="remote",
                        tokenized_requests=True, num_concurrent=1)
    found = simple_evaluate(model=peer, tasks=[task_of(data)], limit=limit, log_samples=True,
                            apply_chat_template=True)
    return found["samples"]["arc_chat"]


def own_samples(options, folder):
    path = Path(folder) / "own.jsonl"
    subprocess.run([options.avocet, "eval", "arc_easy", options.model, "--data", options.data,
                    "--limit", str(options.limit), "--chat", "--samples", path], check=True,
                   stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in path.read_text().splitlines()]


def compare(peer, own):
    peer = sorted(peer, key=lambda sample: sample["doc_id"])
    prompts = scores = 0
    largest = 0.0
    for theirs, ours in zip(peer, own, strict=True):
        for i, arguments in enumerate(theirs["arguments"]):
            prompts += arguments[0] != ours["arguments"][f"gen_args_{i}"]["arg_0"]
        for [answer], [mine] in zip(theirs["resps"], ours["resps"], strict=True):
            largest = max(largest, abs(answer[0] - mine[0]))
        scores += any(theirs[key] != ours[key] for key in ("acc", "acc_norm"))
    print(f"{len(own)} documents: {prompts} other prompts, {scores} other scores, largest "
          f"difference of a log-likelihood {largest:.1e}")
    return prompts == 0 and scores == 0 and largest < 1e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("avocet")
    parser.add_argument("model")
    parser.add_argument("data", help="arc_easy.jsonl with query, choices and gold")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    try:
        import lm_eval  # noqa: F401
    except ImportError:
        print('SKIPPED: pip install "lm-eval[api]==0.4.13"')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([options.avocet, "serve", options.model, "--port", str(PORT),
                                   "--name", "chat", "--threads", options.threads],
                                  stderr=subprocess.DEVNULL)
        try:
            peer = peer_samples(wait_for_server(server), options.data, options.limit)
        finally:
            server.terminate()
            server.wait()
        return 0 if compare(peer, own_samples(options, folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
