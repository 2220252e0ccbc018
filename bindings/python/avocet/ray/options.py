"""Options of the application. Each has the same name on the command line of `serve run`."""
import dataclasses
import os
import shlex
from pathlib import Path
from typing import Dict, List, Optional, Union


@dataclasses.dataclass
class Options:
    model: str                       # a path or a name, as for avocet serve
    arguments: Union[str, List[str]] = ""  # further options of avocet serve
    command: Optional[str] = None    # the command avocet; default: the package's own, or from PATH
    adapter_root: Optional[str] = None  # of adapters, each by the name of its folder or file
    adapters_max: int = 16           # adapters that a replica has loaded at most
    replicas: int = 1                # at least
    replicas_max: int = 0            # at most; more than `replicas`: autoscaling
    target_requests: float = 16      # that wait or run at a replica before another one starts
    upscale_seconds: float = 10
    downscale_seconds: float = 300
    metrics_seconds: float = 5       # between two reports of queue lengths
    look_back_seconds: float = 15    # of which the mean is taken
    ongoing_max: int = 1040          # requests at a replica: avocet serve's queue and sessions
    router: str = "affinity"         # affinity, round_robin, ray (Ray's power of two choices)
    match_min: float = 0.1           # share of a prompt that must match for affinity
    gap_max: int = 2                 # requests more than the least loaded replica has
    attempts: int = 8                # replicas tried until an answer has begun
    cpus: float = 1                  # of a replica, for Ray's placement
    ingresses: int = 1
    ingress_cpus: float = 0.1
    health_seconds: float = 10
    drain_seconds: float = 40

    @classmethod
    def read(cls, given) -> "Options":
        """From a dictionary whose values may be texts."""
        if isinstance(given, cls):
            return given
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name in given:
            if name not in fields:
                raise ValueError(f"unknown option {name}; options are {', '.join(fields)}")
        if not given.get("model"):
            raise ValueError("the option model is missing: a path or a name, as for avocet serve")
        values = {}
        for name, value in given.items():
            kind = fields[name].type
            kind = {"int": int, "float": float}.get(getattr(kind, "__name__", kind))
            try:
                values[name] = kind(value) if kind else value
            except (TypeError, ValueError):
                raise ValueError(f"{name} is {value!r}, must be a number") from None
        options = cls(**values)
        options._check()
        return options

    def _check(self) -> None:
        for name in ("adapters_max", "replicas", "ongoing_max", "attempts", "ingresses"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        for name in ("target_requests", "health_seconds", "metrics_seconds", "look_back_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, must be more than 0")
        if self.router not in ("affinity", "round_robin", "ray"):
            raise ValueError(f"router is {self.router!r}, must be affinity, round_robin or ray")
        if self.adapter_root and not Path(self.adapter_root).is_dir():
            raise ValueError(f"adapter_root {self.adapter_root} is no folder")

    def adapter_paths(self) -> Dict[str, str]:
        """Adapters by name, with their paths relative to adapter_root."""
        if not self.adapter_root:
            return {}
        found = {}
        for entry in sorted(Path(self.adapter_root).iterdir()):
            if (entry / "adapter_config.json").is_file():
                found[entry.name] = entry.name
            elif entry.suffix in (".avoa", ".gguf") and entry.is_file():
                found.setdefault(entry.stem, entry.name)
        return found

    def serve_arguments(self) -> List[str]:
        words = shlex.split(self.arguments) if isinstance(self.arguments, str) else self.arguments
        words = ["--no-page", *map(str, words)]
        if self.adapter_root:
            words += ["--adapter-root", os.path.abspath(self.adapter_root)]
            if "--keys" not in words:
                words.append("--allow-adapter-loading")
        return words

    def router_options(self) -> Dict[str, float]:
        if self.router != "affinity":
            return {}
        return {"match_min": self.match_min, "gap_max": self.gap_max}
