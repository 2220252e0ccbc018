"""Training: adapters and models from data."""
import ctypes
import json
import math
import os
import ssl
import urllib.error
import urllib.request
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._arguments import must_be, number, path_of, shown, text_of
from ._ending import calling
from ._library import call, command, library, natives_of
from ._signals import Guard
from .engine import EngineOptions
from .model import Model, PathLike

PUBLISH_SECONDS = 60.0  # a large adapter on a slow disk

# (prompts, completions, items of the data) to one number for each
Reward = Callable[[List[str], List[str], List[Dict[str, Any]]], Sequence[float]]


@dataclass(frozen=True)
class TrainStep:
    """A step, or with `evaluation` a look at the valid data. `metrics` is the line of
    metrics.jsonl."""
    step: int
    steps: int
    loss: float
    reward: float  # NaN but for "rl"
    learning_rate: float
    tokens_per_second: float
    seconds_left: float
    evaluation: bool
    metrics: Dict[str, Any]


@dataclass(frozen=True)
class TrainResult:
    first_step: int  # the run was continued behind this one
    step: int
    steps: int
    tokens: int
    loss: float  # of the last step; NaN: every step was done already
    best_loss: float  # of the valid data; NaN: no evaluation
    best_step: int
    seconds: float


def _step_of(event: _abi.TrainEvent) -> TrainStep:
    values = {name: getattr(event, name) for name in TrainStep.__dataclass_fields__}
    return TrainStep(**{**values, "metrics": json.loads(event.metrics)})


def _scorer(function: Reward):
    def score(_, completions, count, scores):
        given = completions[:count]
        values = function([one.prompt.decode("utf-8", "replace") for one in given],
                          [one.completion.decode("utf-8", "replace") for one in given],
                          [json.loads(one.fields) for one in given])
        if len(values) != count:
            raise ValueError(f"the reward gave {len(values)} numbers for {count} completions")
        for index, value in enumerate(values):
            scores[index] = number("a reward", value)
        return True
    return score


def _rewards(given: Optional[Mapping[str, Union[Reward, Tuple[Reward, float]]]], guard: Guard):
    array = (_abi.TrainReward * len(given or {}))()
    for slot, (name, value) in zip(array, (given or {}).items()):
        function, weight = value if isinstance(value, tuple) else (value, 1.0)
        if not callable(function):
            raise TypeError(f"the reward {name} must be a function, not {shown(function)}")
        slot.name = text_of("the name of a reward", name)
        slot.weight = number("the weight of a reward", weight)
        slot.score = _abi.TRAIN_SCORE(guard.callback(
            lambda *arguments, scorer=_scorer(function): guard.user(scorer, *arguments)))
    return array


def _publisher(url: str, name: str, output: str, key: Optional[str],
               authorities: Optional[PathLike], seconds: float):
    """Loads the adapter in `output` into a server; what goes wrong there is a warning."""
    context = None
    if url.startswith("https://"):
        context = ssl.create_default_context(
            cafile=None if authorities is None else os.fspath(authorities))
    address = url.rstrip("/")
    address += "/load_lora_adapter" if address.endswith("/v1") else "/v1/load_lora_adapter"
    body = json.dumps({"lora_name": name, "lora_path": os.path.abspath(output)}).encode("utf-8")
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"

    def publish(step):
        request = urllib.request.Request(address, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=seconds,
                                        context=context) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")
            warnings.warn(f"{url} refuses the adapter of step {step}: {error.code} {said}")
        except OSError as error:
            warnings.warn(f"{url} cannot load the adapter of step {step}: {error}")
    return publish


def _adapter_callback(given, publish, name, key, authorities, output):
    """What is called with the step of every new adapter; None: nothing."""
    if publish is None:
        if name is not None or key is not None or authorities is not None:
            raise ValueError("publish_name, publish_key and publish_ca need publish")
        return given
    url = text_of("publish", publish).decode("utf-8")
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"publish must begin with http:// or https://, not {shown(publish)}")
    folder = os.fspath(output)
    publisher = _publisher(url, name or os.path.basename(os.path.abspath(folder)), folder, key,
                           authorities, PUBLISH_SECONDS)
    if given is None:
        return publisher

    def both(step):
        given(step)
        publisher(step)
    return both


def _server(serve, config, every) -> Optional[_abi.TrainServer]:
    if serve is None or serve is False:
        if config is not None or every != 0:
            raise ValueError("serve_config and serve_every need serve")
        return None
    address = None if serve is True else text_of("serve", serve if isinstance(serve, str)
                                                 else str(int(serve)))
    return _abi.TrainServer(address=address, command=os.fsencode(command()),
                            config=None if config is None else path_of("serve_config", config),
                            every=every)


def train(model: Model, task: str, output: PathLike, *, data: PathLike, resume: bool = False,
          on_step: Optional[Callable[[TrainStep], Optional[bool]]] = None,
          rewards: Optional[Mapping[str, Union[Reward, Tuple[Reward, float]]]] = None,
          log: Optional[Callable[[str], None]] = None,
          engine: Optional[EngineOptions] = None,
          on_adapter: Optional[Callable[[int], None]] = None, adapter_every: int = 0,
          publish: Optional[str] = None, publish_name: Optional[str] = None,
          publish_key: Optional[str] = None, publish_ca: Optional[PathLike] = None,
          serve: Union[None, bool, int, str] = None, serve_every: int = 0,
          serve_config: Optional[PathLike] = None, **settings: Any) -> TrainResult:
    """Trains an adapter for the model, with full=True all its weights, or draft heads for it, and
    writes the result, checkpoints and metrics to the folder `output`. `task` is "sft", "dpo", "rl",
    "pretrain" or "heads", whose result `Heads(model, output + "/heads.safetensors")` opens.
    Further arguments are the options of `avocet train`: steps=100, lr=1e-4, target=["q_proj"].
    `rewards` are functions of (prompts, completions, items of the data) that give a number for each
    completion, or pairs of such a function and a weight. `on_step` may return False to end the run
    behind the step with a checkpoint, which `resume` continues: CancelledError is raised then.
    `on_adapter` is called with the step when `output` has a new adapter: with every checkpoint and
    every `adapter_every` steps. `publish` is the URL of a running server, which loads the adapter
    then as `publish_name` (default: the last part of `output`); it must see the folder below its
    --adapter-root. A server that is gone or refuses is a warning; the training goes on.
    `publish_ca` is a file of certificates to trust of a server with https.
    `serve` (True, a port, or "HOST:PORT") starts a server for the time of the training, `avocet
    serve` in a process of its own: it answers with the adapter as it was a few steps ago
    (`serve_every`, default 10), named like the last part of `output`. `log` hears its address."""
    must_be(Model, model=model)
    must_be(EngineOptions, optional=True, engine=engine)
    renew = _adapter_callback(on_adapter, publish, publish_name, publish_key, publish_ca, output)
    guard = Guard()
    result = _abi.TrainResult(best_loss=math.nan)
    settings = {"data": path_of("data", data).decode("utf-8"), **settings}
    array = _rewards(rewards, guard)
    struct = None if engine is None else engine.as_struct()
    server = _server(serve, serve_config, serve_every)
    options = _abi.TrainOptions(
        task=text_of("task", task), output=path_of("output", output),
        settings=json.dumps(settings, default=os.fspath).encode("utf-8"), resume=bool(resume),
        rewards=array, reward_count=len(array))

    def step(_, event):
        return on_step is None or \
            guard.user(on_step, _step_of(event.contents)) is not False

    def tell(_, line):
        if log is not None:
            guard.user(log, line.decode("utf-8", "replace"))
        return True

    def renewed(_, step):
        if renew is not None:
            guard.user(renew, int(step))
        return True

    told = guard.callback(tell)
    seen = guard.callback(renewed)
    if renew is not None:
        options.on_adapter = _abi.TRAIN_ADAPTER(lambda *arguments: seen(*arguments) and None)
    options.adapter_every = adapter_every
    options.on_step = _abi.TRAIN_STEP(guard.callback(step))
    options.progress = _abi.PROGRESS(guard.callback(lambda *_: True))
    options.log = _abi.LOG(lambda *arguments: told(*arguments) and None)
    if struct is not None:
        options.engine = ctypes.pointer(struct)
    if server is not None:
        options.server = ctypes.pointer(server)
    natives = natives_of(model)
    with calling(), guard:
        call(library.avo_train_run, natives[0], ctypes.byref(options), ctypes.byref(result))
    return TrainResult(**{name: getattr(result, name)
                          for name in TrainResult.__dataclass_fields__})
