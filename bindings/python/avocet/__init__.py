"""Avocet: language models on machines you own.

    import avocet

    with avocet.Model("model.gguf") as model:
        answer = model.chat([{"role": "user", "content": "Which bird has a bent beak?"}])
        print(answer.content)

or with an engine of your own:

    with avocet.Model("model.gguf") as model, avocet.Engine(model, sessions_max=16) as engine, \\
            avocet.Scheduler(engine) as scheduler:
        for token in scheduler.submit(prompt="Once upon a time", max_tokens=64):
            print(token.text, end="", flush=True)

The same request gives the same bytes, whatever else runs beside it.
"""
from ._library import library as _library
from .adapters import Adapter, AdapterInfo, AdapterModule, Registry, RegistryEntry
from .chat import ChatDelta, ChatRequest, ToolCall, ToolCallDelta
from .engine import Batch, Engine, EngineOptions, Heads, KvInfo, Plan, Result, Session, Token, plan
from .errors import (ArgumentError, AvocetError, CancelledError, ContextError, DeadlineError,
                     DeviceError, FormatError, FullError, InputOutputError, LimitError,
                     NetworkError, NotFoundError, OutOfMemoryError, TemplateError, UnsupportedError)
from .grammar import Grammar
from .model import Model, ModelInfo
from .sampling import Sampling
from .scheduler import (Answer, ChatResult, ChatStream, Request, Scheduler,
                        SchedulerInfo)
from .telemetry import Telemetry
from .training import TrainResult, TrainStep, train

__version__ = "0.1.0"


def library_version() -> str:
    """Of libavocet, which may differ from the package's."""
    return _library.avo_version().decode()


__all__ = ["Adapter", "AdapterInfo", "AdapterModule", "Answer", "ArgumentError", "AvocetError",
           "Batch", "CancelledError", "ChatDelta", "ChatRequest", "ChatResult", "ChatStream",
           "ContextError", "DeadlineError", "DeviceError", "Engine", "EngineOptions", "FormatError",
           "FullError", "Grammar", "Heads", "InputOutputError", "KvInfo", "LimitError", "Model",
           "ModelInfo", "NetworkError", "NotFoundError", "OutOfMemoryError", "Plan", "Registry",
           "RegistryEntry", "Request", "Result", "Sampling", "Scheduler", "SchedulerInfo",
           "Session", "Telemetry",
           "TemplateError", "Token", "ToolCall", "ToolCallDelta", "TrainResult", "TrainStep",
           "UnsupportedError", "library_version", "plan", "train"]
