"""The flags of `python -m avocet run`: those of `avocet run`, by the same names."""
import argparse
import math
import os
import platform
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from .grammar import Grammar
from .model import Model
from .sampling import Sampling

EXAMPLES = """examples:
  python -m avocet run model.gguf "Why is the sky blue?" -n 100
  python -m avocet run model.gguf "Dear Sir" --raw --adapter style=letters/ --json
  python -m avocet run model.gguf --prompts questions.jsonl --adapter law=law/ --adapter poet=poet/
"""
_FLOATS = {"temperature": (0, 1e6), "top-p": (0, 1), "min-p": (0, 1), "typical-p": (1e-6, 1),
           "repetition-penalty": (1e-6, 1e6), "presence-penalty": (-1e6, 1e6),
           "frequency-penalty": (-1e6, 1e6)}


class UsageError(ValueError):
    """A flag is wrong: the exit status says so."""


def _number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' must be {low:g} to {high:g}")
        return value
    read.__name__ = "number"
    return read


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' must be {low} to {high}")
        return value
    read.__name__ = "integer"
    return read


def _adapter(text: str) -> Tuple[str, str, float]:
    """NAME=PATH[:SCALE]"""
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise argparse.ArgumentTypeError(f"'{text}' must have the form NAME=PATH or "
                                         "NAME=PATH:SCALE")
    head, colon, tail = path.rpartition(":")
    if colon and head:
        try:
            scale = float(tail)
        except ValueError:
            return name, path, 1.0
        if not math.isfinite(scale):
            raise argparse.ArgumentTypeError(f"'{text}': the scale is not a number")
        return name, head, scale
    return name, path, 1.0


_DEVICES = ("auto", "cpu", "ref", "avx2", "avx512", "amx", "neon", "cuda", "mpi")
_OTHERS = ("avx2", "avx512", "amx") if platform.machine() == "aarch64" else ("neon",)
_OWN_DEVICES = "|".join(name for name in _DEVICES if name not in _OTHERS)


def _device(text: str) -> str:
    """DEVICE or DEVICE:PARAMETERS; whether it is there, the library says."""
    if text.partition(":")[0] not in _DEVICES:
        raise argparse.ArgumentTypeError(f"'{text}' must be one of {', '.join(_DEVICES)}")
    return text


class _Choice(argparse.Action):
    """One of the words that the metavar shows, "auto|on|off"."""

    def __call__(self, parser, namespace, values, option_string=None):
        words = str(self.metavar).split("|")
        if values not in words:
            parser.error(f"{option_string}: '{values}' must be one of {', '.join(words)}")
        setattr(namespace, self.dest, values)


_U32 = _whole(0, 2 ** 32 - 1)


_NAMED = ("temperature", "top_k", "top_p", "min_p", "typical_p")


def _add_sampling(add) -> None:
    for name, (low, high) in _FLOATS.items():
        add(f"--{name}", type=_number(low, high), metavar="X")
    add("--top-k", type=_whole(0, 2 ** 32 - 2), metavar="N")
    add("--logit-bias", action="append", default=[], metavar="ID=X",
        help="add X to the logit of token ID; -inf forbids it; may be repeated")
    add("--seed", type=_whole(0, 2 ** 64 - 1), default=0, metavar="N",
        help="random seed; the same seed gives the same text")
    add("--logprobs", type=_whole(1, 20), default=0, metavar="N",
        help="with --json: log-probabilities of each token and of the N most likely ones")
    add("--stop-loops", type=_whole(0, 1000), metavar="N",
        help="end an answer whose last part, of 16 tokens or more, has come N times in a row; "
             "0: never (default 4; 0 with --ignore-eos)")
    add("--stop", action="append", default=[], metavar="TEXT",
        help="stop before this text; may be repeated")
    add("--stop-token", action="append", default=[], metavar="ID",
        help="stop at this token, in addition to the model's own; may be repeated")


def _bytes(text: str, others: str = "") -> int:
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if match is None or not 0 < int(match[1]) << " KMGT".index(match[2] or " ") * 10 < 1 << 64:
        raise argparse.ArgumentTypeError(
            f'"{text:.40}" must be {others}a size such as 500M or 4G')
    return int(match[1]) << " KMGT".index(match[2] or " ") * 10


def _panel_cache(text: str) -> int:
    """Bytes; 0: off."""
    if text in ("auto", "off"):
        return 0 if text == "off" else 16 << 30
    return _bytes(text, "off, auto, or ")


def panel_folder() -> Optional[str]:
    """Where the command keeps panels; None: a user without a home has no such folder."""
    own, cache, home = (os.environ.get(name, "")
                        for name in ("AVOCET_HOME", "XDG_CACHE_HOME", "HOME"))
    if own:
        return os.path.join(own, "panels")
    if cache.startswith("/"):
        return os.path.join(cache, "avocet/panels")
    return os.path.join(home, ".cache/avocet/panels") if home.startswith("/") else None


def _add_engine(add) -> None:
    add("-t", "--threads", type=lambda text: 0 if text == "auto" else _U32(text), default=0,
        metavar="N|auto")
    add("-c", "--ctx", type=_whole(0, 16777216), default=0, metavar="N", help="context in tokens")
    add("--kv-type", action=_Choice, metavar="f32|f16|bf16|int8|fp8")
    add("--device", type=_device, metavar=_OWN_DEVICES,
        help="device, or DEVICE:PARAMETERS (default: AVO_DEVICE, else auto)")
    add("--isa", dest="device", type=_device, metavar=_OWN_DEVICES,
        help="older name of --device")
    add("--arithmetic", action=_Choice, metavar="exact|fast")
    add("--kv-host", type=_bytes, default=0, metavar="SIZE",
        help="host memory (such as 4G) for cached prefixes that leave the device")
    add("--gpu-layers", metavar="N|auto",
        help="layers on the device; the CPU computes the others (default: all)")
    add("--huge-pages", action=_Choice, metavar="auto|on|off")
    add("--numa", action=_Choice, metavar="first-touch|interleave|off")
    add("--pin", action=_Choice, metavar="none|core|node")
    add("--panel-cache", type=_panel_cache, default=16 << 30, metavar="off|auto|SIZE",
        help="keep repacked weights on disk, so that the next start maps them: at most SIZE (such "
        "as 4G) of all models; auto (default): 16G; off: neither use nor write them")
    add("--lock", action="store_true", help="lock the weights in memory")
    add("--adapter-rank", type=_whole(1, 2048), default=0, metavar="N",
        help="largest sum of adapter ranks of one request")
    add("--speculate", metavar="off|auto|SOURCE,…",
        help="draft sources (default: auto): suffix, ngram, corpus, grammar, model, eagle, medusa, "
        "layers; the answers are the same")
    add("--draft-tokens", type=_whole(1, 16), default=0, metavar="K",
        help="most draft tokens of a request in one step (default 15)")
    add("--draft-model", metavar="MODEL|exit:N",
        help="a smaller model that proposes tokens, best one with the same vocabulary; exit:N: the "
        "first N layers of the model itself")
    add("--draft-heads", metavar="FILE[,FILE]|none",
        help="draft heads of the model: EAGLE, Medusa or distilled layers")
    add("--draft-controller", action=_Choice, metavar="cost|fixed|step|rate|ema",
        help="who decides how many drafts are verified (default: cost)")
    add("-v", "--verbose", action="store_true",
        help="print to standard error which device was chosen and why")


def _add_many(add) -> None:
    add("--prompts", metavar="FILE", help="JSON Lines file (- for standard input), as for "
        "`avocet run --prompts`, answered many at a time")
    add("--stream", action="store_true",
        help="with --prompts: print tokens and answers as they are generated")
    add("-b", "--batch", type=_whole(1, 4096), default=0, metavar="N",
        help="with --prompts: requests computed together (default 8)")
    add("--kv-tokens", type=_whole(0, 2 ** 64 - 1), default=0, metavar="N",
        help="with --prompts: tokens in the KV pool")
    add("--cores", action=_Choice, metavar="mixed|static|adaptive",
        help="with --prompts: decode and prefill on dedicated threads")
    add("--prefill-threads", type=_U32, default=0, metavar="N",
        help="with --cores: prefill threads")


def run_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m avocet run", description="Answers a prompt, or many.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = parser.add_argument
    add("model", metavar="MODEL")
    add("prompt", metavar="PROMPT", nargs="?", help="'-' or nothing: standard input")
    add("-n", "--max-new-tokens", type=_U32, default=0, metavar="N")
    _add_sampling(add)
    _add_engine(add)
    add("--system", metavar="TEXT", help="system message before the prompt")
    add("--raw", action="store_true", help="continue the prompt without the chat template")
    add("--special", action="store_true",
        help="with --raw: recognise special tokens in the prompt")
    add("--ignore-eos", action="store_true", help="continue after EOS tokens")
    add("-a", "--adapter", action="append", default=[], type=_adapter,
        metavar="NAME=PATH[:SCALE]", help="may be repeated: all apply unless a line of --prompts "
        "selects")
    add("--adapter-type", action=_Choice, metavar="q8|f16|f32")
    _add_many(add)
    add("--json", action="store_true", help="one JSON object instead of streaming text")
    add("--json-schema", metavar="FILE|TEXT", help="constrain the answer to this JSON schema")
    add("--grammar", metavar="FILE", help="constrain the answer to a GBNF grammar")
    add("--json-object", action="store_true", help="constrain the answer to a JSON object")
    add("--telemetry", nargs="?", metavar="FILE.csv",
        help="--telemetry[=FILE.csv]: append a CSV row to it (default: standard error)")
    add("--trace", metavar="FILE", help="write a trace of the computation, for Perfetto")
    return parser


def _wrong(flags) -> Optional[str]:
    """Options that conflict, with the texts of `avocet run`."""
    if flags.prompts is not None and flags.prompt is not None:
        return "give a PROMPT or --prompts, not both"
    if flags.prompts is not None and flags.telemetry is not None:
        return "--telemetry works with one prompt, not with --prompts"
    if flags.prompts is None and (flags.stream or flags.batch or flags.kv_tokens or flags.cores or
                                  flags.prefill_threads):
        return "--stream, --batch, --kv-tokens and --cores need --prompts"
    if flags.logprobs and not flags.json and flags.prompts is None:
        return "--logprobs needs --json"
    if flags.special and not flags.raw:
        return "--special needs --raw"
    if flags.system is not None and flags.raw:
        return "--system and --raw cannot be combined"
    if (flags.json_schema is not None) + (flags.grammar is not None) + flags.json_object > 1:
        return "give one of --json-schema, --grammar and --json-object"
    if "" in flags.stop:
        return "--stop: the text is empty"
    return None


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options and words in any order. --telemetry takes the word behind it where that ends with
    ".csv", as the command does: a prompt there stays one."""
    given: List[str] = []
    for index, argument in enumerate(arguments):
        if argument == "--":
            given += arguments[index:]
            break
        if given and given[-1] == "--telemetry=" and argument[0:1] != "-" \
                and argument.endswith(".csv") and len(argument) > 4:
            given[-1] += argument
        else:
            given.append("--telemetry=" if argument == "--telemetry" else argument)
    parser = run_parser()
    flags = parser.parse_intermixed_args(given)
    wrong = _wrong(flags)
    if wrong is not None:
        parser.error(wrong)
    return flags


# ---- What they mean for a model ----

def _fail(text: str) -> NoReturn:
    raise UsageError(text)


def _token(name: str, text: str, vocabulary: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < vocabulary):
        _fail(f'--{name}: token "{text}" must be 0 to {vocabulary - 1}')
    return int(text)


def _bias(text: str, vocabulary: int) -> Tuple[int, float]:
    token, equals, value = text.partition("=")
    if not equals:
        _fail(f'--logit-bias: "{text}" must have the form ID=X, as in 15043=-2.5')
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not number <= 3e38:
        _fail(f'--logit-bias: "{value}" is not a number')
    return _token("logit-bias", token, vocabulary), number


def repetition_of(flags) -> Optional[Tuple[int, int, int]]:
    """When a loop ends an answer."""
    count = flags.stop_loops
    if count is None:
        count = 0 if flags.ignore_eos else 4
    return (16, 256, count) if count else None


def sampling_of(model: Model, flags, named: bool = False) -> Sampling:
    """`named`: of a request that names a temperature or a filter of its own."""
    names = [name.replace("-", "_") for name in (*_FLOATS, "top-k")]
    given: Dict[str, Any] = {name: getattr(flags, name) for name in names
                             if getattr(flags, name) is not None}
    vocabulary = model.info.vocabulary
    if not Sampling.recommended(model):
        own = Sampling.of(model)
        given.setdefault("temperature", 0.7)
        if not named and not any(getattr(flags, name) is not None for name in _NAMED):
            given["top_p"] = 0.95 if own.top_p == 1 else own.top_p
            given["min_p"] = own.min_p or 0.05
    return Sampling.of(model, seed=flags.seed, top_logprobs=flags.logprobs,
                       logit_bias=dict(_bias(text, vocabulary) for text in flags.logit_bias),
                       **given)


def stop_tokens_of(model: Model, flags) -> List[int]:
    vocabulary = model.info.vocabulary
    return [_token("stop-token", text, vocabulary) for text in flags.stop_token]


def grammar_of(model: Model, flags) -> Optional[Grammar]:
    """None: any answer. A schema is an object or a boolean; anything else names a file."""
    if flags.json_object:
        return Grammar(model)
    if flags.json_schema is not None:
        text = flags.json_schema.strip()
        if not text.startswith("{") and text not in ("true", "false"):
            text = Path(flags.json_schema).read_text(encoding="utf-8")
        return Grammar(model, schema=text)
    if flags.grammar is not None:
        return Grammar(model, Path(flags.grammar).read_text(encoding="utf-8"))
    return None


def model_options(flags) -> Dict[str, Any]:
    return dict(panel_cache=panel_folder() if flags.panel_cache > 0 else None,
                panel_cache_bytes=flags.panel_cache)


def engine_options(flags) -> Dict[str, Any]:
    """But for the context and the pool."""
    return dict(threads=flags.threads, kv_type=flags.kv_type, device=flags.device,
                arithmetic=flags.arithmetic, gpu_layers=flags.gpu_layers,
                kv_host_bytes=flags.kv_host,
                huge_pages=flags.huge_pages, numa=flags.numa, pin=flags.pin, lock=flags.lock,
                adapter_rank_max=flags.adapter_rank, rope_context=flags.ctx,
                speculate=flags.speculate, draft_tokens=flags.draft_tokens,
                draft_controller=flags.draft_controller)


__all__ = ["UsageError", "engine_options", "grammar_of", "model_options", "parse", "run_parser",
           "sampling_of", "stop_tokens_of"]
