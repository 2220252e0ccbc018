"""Training: adapters and models from data."""
import ctypes
import json
import math
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._arguments import must_be, number, path_of, shown, text_of
from ._ending import calling
from ._library import call, library, natives_of
from ._signals import Guard
from .engine import EngineOptions
from .model import Model, PathLike

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


def train(model: Model, task: str, output: PathLike, *, data: PathLike, resume: bool = False,
          on_step: Optional[Callable[[TrainStep], Optional[bool]]] = None,
          rewards: Optional[Mapping[str, Union[Reward, Tuple[Reward, float]]]] = None,
          log: Optional[Callable[[str], None]] = None,
          engine: Optional[EngineOptions] = None, **settings: Any) -> TrainResult:
    """Trains an adapter for the model, with full=True all its weights, or draft heads for it, and
    writes the result, checkpoints and metrics to the folder `output`. `task` is "sft", "dpo", "rl",
    "pretrain" or "heads", whose result `Heads(model, output + "/heads.safetensors")` opens.
    Further arguments are the options of `avocet train`: steps=100, lr=1e-4, target=["q_proj"].
    `rewards` are functions of (prompts, completions, items of the data) that give a number for each
    completion, or pairs of such a function and a weight. `on_step` may return False to end the run
    behind the step with a checkpoint, which `resume` continues: CancelledError is raised then."""
    must_be(Model, model=model)
    must_be(EngineOptions, optional=True, engine=engine)
    guard = Guard()
    result = _abi.TrainResult(best_loss=math.nan)
    settings = {"data": path_of("data", data).decode("utf-8"), **settings}
    array = _rewards(rewards, guard)
    struct = None if engine is None else engine.as_struct()
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

    told = guard.callback(tell)
    options.on_step = _abi.TRAIN_STEP(guard.callback(step))
    options.progress = _abi.PROGRESS(guard.callback(lambda *_: True))
    options.log = _abi.LOG(lambda *arguments: told(*arguments) and None)
    if struct is not None:
        options.engine = ctypes.pointer(struct)
    natives = natives_of(model)
    with calling(), guard:
        call(library.avo_train_run, natives[0], ctypes.byref(options), ctypes.byref(result))
    return TrainResult(**{name: getattr(result, name)
                          for name in TrainResult.__dataclass_fields__})
