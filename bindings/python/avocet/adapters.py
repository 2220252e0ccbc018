"""Adapters: LoRA and the like, and names for them."""
import ctypes
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple, Union

from . import _abi
from ._arguments import items, must_be, number, path_of, shown, text_of
from ._ending import calling
from ._library import Native, Owned, call, encoded, library, natives_of
from ._signals import Guard
from .model import Model, PathLike


@dataclass(frozen=True)
class AdapterInfo:
    """Proof that an adapter is applied: what was matched, and how much it changes."""
    path: str
    method: str
    type: str
    digest: str
    modules_matched: int
    modules_expected: int
    rank_max: int
    bytes: int
    memory_bytes: int
    idle: bool  # it changes nothing: B, or every scale, is zero


@dataclass(frozen=True)
class AdapterModule:
    name: str
    kind: str
    rank: int
    scale: float
    norm: float


@dataclass(frozen=True)
class RegistryEntry:
    name: str
    path: str
    open: bool
    pinned: bool
    memory_bytes: int
    users: int
    version: int
    digest: str


def _values(structure, fields):
    values = {}
    for name in fields:
        value = getattr(structure, name)
        values[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return values


class Adapter(Owned):
    """A PEFT folder, a GGUF adapter or a packed file, checked against the model: whatever does not
    fit is refused by name. `type`: "q8" (the default), "f16" or "f32"."""

    _close = "avo_adapter_close"

    def __init__(self, model: Model, path: PathLike, *, type: Optional[str] = None):
        must_be(Model, model=model)
        options = _abi.AdapterOptions(type=encoded(type))
        handle = _abi.Handle()
        natives = natives_of(model)
        call(library.avo_adapter_open, natives[0], path_of("path", path), ctypes.byref(options),
             ctypes.byref(handle))
        super().__init__(handle, natives, (model,))

    @classmethod
    def _of(cls, handle, natives, model: Model) -> "Adapter":
        adapter = cls.__new__(cls)
        Owned.__init__(adapter, handle, natives, (model,))
        return adapter

    @property
    def info(self) -> AdapterInfo:
        info = _abi.AdapterInfo()
        native = self.handle  # whose texts are read below
        library.avo_adapter_describe(native, ctypes.byref(info))
        return AdapterInfo(**_values(info, AdapterInfo.__dataclass_fields__))

    @property
    def modules(self) -> List[AdapterModule]:
        found = []
        module = _abi.AdapterModule()
        native = self.handle
        while library.avo_adapter_module_at(native, len(found), ctypes.byref(module)):
            found.append(AdapterModule(**_values(module, AdapterModule.__dataclass_fields__)))
        return found

    def pack(self, path: PathLike) -> None:
        """Writes the layout that opens instantly."""
        call(library.avo_adapter_pack, self.handle, path_of("path", path))


AdapterLike = Union[Adapter, Tuple[Adapter, float]]
NameLike = Union[str, Tuple[str, float]]


def _weighted(given):
    if not isinstance(given, tuple):
        return given, 1.0
    if len(given) != 2:
        raise TypeError(f"an adapter with a weight must be a pair, not {shown(given)}")
    return given


def uses_of(adapters: Sequence[AdapterLike]):
    """Adapters, plain or with weights, as a C array, and what must be held while it is used."""
    adapters = items("adapters", adapters, "adapters")
    array = (_abi.AdapterUse * len(adapters))()
    held: List[Native] = []
    for use, given in zip(array, adapters):
        adapter, weight = _weighted(given)
        must_be(Adapter, adapter=adapter)
        held.append(adapter.handle)
        use.adapter = held[-1].pointer
        use.weight = number("an adapter's weight", weight)
    return array, held


def names_of(names: Sequence[NameLike]):
    array = (_abi.NamedAdapter * len(names))()
    for use, given in zip(array, names):
        name, weight = _weighted(given)
        use.name = text_of("an adapter's name", name)
        use.weight = number("an adapter's weight", weight)
    return array


class Registry(Owned):
    """Names for adapters: loaded, replaced and unloaded while requests run. Any thread."""

    _close = "avo_registry_close"

    def __init__(self, model: Model, *, root: Optional[PathLike] = None, memory_max: int = 0,
                 type: Optional[str] = None):
        must_be(Model, model=model)
        options = _abi.RegistryOptions(root=encoded(root), memory_max=memory_max,
                                       type=encoded(type))
        handle = _abi.Handle()
        self.model = model
        natives = natives_of(model)
        call(library.avo_registry_open, natives[0], ctypes.byref(options), ctypes.byref(handle))
        super().__init__(handle, natives, (model,))

    def load(self, name: str, path: PathLike, *, pinned: bool = False, lazy: bool = False) -> None:
        """Makes a name known, or replaces what it means. Requests in flight keep the version they
        began with."""
        call(library.avo_registry_load, self.handle, text_of("name", name), path_of("path", path),
             (1 if pinned else 0) | (2 if lazy else 0))

    def unload(self, name: str) -> None:
        call(library.avo_registry_unload, self.handle, text_of("name", name))

    def take(self, name: str) -> Adapter:
        """The version that the name means now."""
        handle = _abi.Handle()
        natives = natives_of(self.model)
        call(library.avo_registry_take, self.handle, text_of("name", name), ctypes.byref(handle))
        return Adapter._of(handle, natives, self.model)

    def list(self) -> List[RegistryEntry]:
        entries: List[RegistryEntry] = []

        guard = Guard()

        @_abi.REGISTRY_SEE
        @guard.callback
        def see(_, entry):
            entries.append(RegistryEntry(**_values(entry.contents,
                                                   RegistryEntry.__dataclass_fields__)))
        with calling(), guard:
            library.avo_registry_list(self.handle, see, None)
        return entries
