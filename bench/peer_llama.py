"""The peer's side of bench/peers: llama.cpp through the C functions of llama-cpp-python.

usage: peer_llama.py PACKAGE LIBRARIES MODEL REQUEST

PACKAGE is the folder of the Python package llama_cpp (only its ctypes declarations are used),
LIBRARIES the folder with libllama.so, REQUEST a JSON object:
  {"threads":2, "prompt":[512], "generate":32, "batch":[1,8], "repeats":1, "depth":0}
With "lora": FILE every case is measured without and with that adapter, in turn ("turns" times), and
results have "cost", the median of time with / time without - 1.
Prints {"system":…, "results":[{"kind","tokens","batch","depth","flash","tps"}…]}. Only llama_decode
and llama_synchronize stand between the two readings of the clock; batches are made before.
"""
import ctypes
import importlib
import json
import os
import random
import statistics
import sys
import time
import types

UBATCH = 512


def load(package, libraries):
    """The module with the declarations, without the package around it, which wants others."""
    os.environ["LLAMA_CPP_LIB_PATH"] = libraries
    stub = types.ModuleType("llama_cpp")
    stub.__path__ = [package]
    sys.modules["llama_cpp"] = stub
    try:
        importlib.import_module("typing_extensions")
    except ImportError:
        extensions = types.ModuleType("typing_extensions")
        extensions.TypeAlias = object
        sys.modules["typing_extensions"] = extensions
    for name in ("libgomp.so.1", "libggml-base.so", "libggml-cpu.so", "libggml.so"):
        path = os.path.join(libraries, name)
        if os.path.exists(path):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return importlib.import_module("llama_cpp.llama_cpp")


class Peer:
    def __init__(self, package, libraries, model_path, request):
        self.c = load(package, libraries)
        self.request = request
        self.quiet = self.c.llama_log_callback(lambda level, text, data: None)
        self.c.llama_log_set(self.quiet, ctypes.c_void_p(0))
        self.c.llama_backend_init()
        parameters = self.c.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = self.c.llama_model_load_from_file(model_path.encode(), parameters)
        if not self.model:
            raise SystemExit(f"peer_llama: cannot load {model_path}")
        vocabulary = self.c.llama_model_get_vocab(self.model)
        self.vocabulary = self.c.llama_vocab_n_tokens(vocabulary)
        self.context = None

    def open_context(self, flash):
        self.close_context()
        request = self.request
        longest = request["depth"] + max(request["prompt"] + [request["generate"]]) + 64
        sequences = max(request["batch"] + [1])
        parameters = self.c.llama_context_default_params()
        parameters.n_ctx = longest * sequences if request["generate"] else longest
        parameters.n_batch = parameters.n_ubatch = UBATCH
        parameters.n_seq_max = sequences
        parameters.n_threads = parameters.n_threads_batch = request["threads"]
        parameters.flash_attn_type = int(flash)
        if hasattr(parameters, "kv_unified"):
            parameters.kv_unified = sequences > 1
        self.context = self.c.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise SystemExit("peer_llama: llama_init_from_model failed")

    def close_context(self):
        if self.context:
            self.c.llama_free(self.context)
        self.context = None

    def batch(self, rows):
        """rows: (token, position, sequence, logits)"""
        made = self.c.llama_batch_init(len(rows), 0, 1)
        made.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            made.token[i] = token
            made.pos[i] = position
            made.n_seq_id[i] = 1
            made.seq_id[i][0] = sequence
            made.logits[i] = logits
        return made

    def forget(self):
        self.c.llama_memory_clear(self.c.llama_get_memory(self.context), False)

    def prompt_batches(self, tokens, sequence=0, first=0):
        generator = random.Random(1)
        batches = []
        for begin in range(0, tokens, UBATCH):
            count = min(UBATCH, tokens - begin)
            batches.append(self.batch([(generator.randrange(self.vocabulary), first + begin + i,
                                        sequence, begin + i == tokens - 1)
                                       for i in range(count)]))
        return batches

    def decode_batches(self, steps, sequences, depth):
        generator = random.Random(2)
        return [self.batch([(generator.randrange(self.vocabulary), depth + step, sequence, True)
                            for sequence in range(sequences)]) for step in range(steps)]

    def run(self, batches):
        """Seconds of computing all of them."""
        begin = time.perf_counter()
        for one in batches:
            if self.c.llama_decode(self.context, one) != 0:
                raise SystemExit("peer_llama: llama_decode failed")
        self.c.llama_synchronize(self.context)
        seconds = time.perf_counter() - begin
        return seconds

    def release(self, batches):
        for one in batches:
            self.c.llama_batch_free(one)

    def measure(self, kind, flash, tokens, sequences):
        """One result: the best of the repeats."""
        depth = self.request["depth"]
        if kind == "prefill":
            batches = self.prompt_batches(tokens, first=depth)
        else:
            batches = self.decode_batches(tokens, sequences, depth)
        seconds = []
        for _ in range(self.request["repeats"]):
            self.forget()
            for sequence in range(sequences if depth else 0):
                filling = self.prompt_batches(depth, sequence)
                self.run(filling)
                self.release(filling)
            seconds.append(self.run(batches))
        self.release(batches)
        return {"kind": kind, "tokens": tokens, "batch": sequences, "depth": depth,
                "flash": flash, "tps": tokens * sequences / min(seconds)}

    def apply(self, adapter):
        kind = self.c.llama_adapter_lora_p_ctypes
        adapters = (kind * 1)(ctypes.cast(adapter, kind)) if adapter else None
        scales = (ctypes.c_float * 1)(1.0) if adapter else None
        if self.c.llama_set_adapters_lora(self.context, adapters, 1 if adapter else 0, scales) != 0:
            raise SystemExit("peer_llama: llama_set_adapters_lora failed")

    def measure_adapter(self):
        """Every case in turns without and with the adapter."""
        request = self.request
        adapter = self.c.llama_adapter_lora_init(self.model, request["lora"].encode())
        if not adapter:
            raise SystemExit(f"peer_llama: cannot load {request['lora']}")
        results = []
        self.open_context(True)
        cases = [("prefill", tokens, 1) for tokens in request["prompt"]]
        cases += [("decode", request["generate"], sequences) for sequences in request["batch"]]
        for kind, tokens, sequences in cases:
            costs, rates = [], []
            for turn in range(-1, request["turns"]):
                tps = {}
                for used in (None, adapter) if turn % 2 else (adapter, None):
                    self.apply(used)
                    tps[used is adapter] = self.measure(kind, True, tokens, sequences)["tps"]
                if turn >= 0:  # the first is for nothing
                    costs.append(tps[False] / tps[True] - 1)
                    rates.append((tps[False], tps[True]))
            results.append({"kind": kind, "tokens": tokens, "batch": sequences,
                            "cost": statistics.median(costs),
                            "base_tps": statistics.median(rate[0] for rate in rates),
                            "tps": statistics.median(rate[1] for rate in rates)})
        self.close_context()
        return results

    def measure_all(self):
        results = []
        request = self.request
        for flash in request.get("flash", [True, False]):
            self.open_context(flash)
            warm = self.prompt_batches(32)
            self.run(warm)
            self.release(warm)
            for tokens in request["prompt"]:
                results.append(self.measure("prefill", flash, tokens, 1))
            if request["generate"]:
                for sequences in request["batch"]:
                    results.append(self.measure("decode", flash, request["generate"], sequences))
        self.close_context()
        return results


def main():
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    peer = Peer(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    results = peer.measure_adapter() if "lora" in peer.request else peer.measure_all()
    system = peer.c.llama_print_system_info().decode()
    print(json.dumps({"system": system, "results": results}))


if __name__ == "__main__":
    main()
