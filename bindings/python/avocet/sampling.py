"""How tokens are drawn."""
import ctypes
from dataclasses import dataclass, field
from typing import Mapping, Optional

from . import _abi
from ._arguments import must_be, number, shown
from ._library import library
from .model import Model


@dataclass(frozen=True)
class Sampling:
    """The same seed gives the same text. temperature 0 takes the likeliest token each time; the
    defaults switch everything else off. Sampling.of(model) is the model's own recommendation."""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    top_logprobs: int = 0

    @classmethod
    def of(cls, model, **changes) -> "Sampling":
        must_be(Model, model=model)
        sampling = _abi.Sampling()
        library.avo_model_sampling(model.handle, sampling)
        own = {name: getattr(sampling, name) for name in _PLAIN_FIELDS}
        return cls(**{**own, **changes})

    @staticmethod
    def recommended(model) -> bool:
        """Whether a temperature is recommended for the model, by its files or its name."""
        must_be(Model, model=model)
        return library.avo_model_recommends(model.handle)

    def as_struct(self) -> _abi.Sampling:
        struct = _abi.Sampling(**{name: getattr(self, name) for name in _PLAIN_FIELDS},
                               seed=self.seed, top_logprobs=self.top_logprobs)
        if not isinstance(self.logit_bias, Mapping):
            raise TypeError("logit_bias must be a mapping of token ids to numbers, not "
                            f"{shown(self.logit_bias)}")
        biases = (_abi.LogitBias * len(self.logit_bias))()
        for bias, (token, value) in zip(biases, self.logit_bias.items()):
            bias.token = _abi.in_range(ctypes.c_int32, "logit_bias", token)
            bias.bias = number("logit_bias", value)
        if len(biases) > 0:
            struct.bias = biases  # ctypes keeps the array alive with the structure
            struct.bias_count = len(biases)
        return struct


_PLAIN_FIELDS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
                 "presence_penalty", "frequency_penalty")


def struct_of(sampling: Optional[Sampling]):
    """For requests: NULL is greedy."""
    must_be(Sampling, optional=True, sampling=sampling)
    return None if sampling is None else sampling.as_struct()
