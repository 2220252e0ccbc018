"""Which replica gets a request: the rules, without Ray, so that tests call them directly.

A prompt is cut into blocks of BLOCK_BYTES. The key of a block covers the adapters, the tenant and
all blocks before it, so equal keys mean equal prefixes. `Affinity` remembers to which replicas each
key was sent. It is a guess about their prefix caches: a replica may have evicted a prefix, or be
new; a wrong guess costs a prefill and never changes an answer.
"""
import hashlib
from collections import OrderedDict
from typing import Dict, Hashable, Iterable, List, Sequence

BLOCK_BYTES = 128  # about one KV page of 32 tokens
BLOCKS_MAX = 256   # of one prompt; what follows is not looked at


def block_keys(scope: str, text: str) -> List[bytes]:
    """Keys of the full blocks of a prompt. `scope` is what a cached prefix depends on besides its
    text: adapters and tenant."""
    data = text.encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    keys = []
    for block in range(min(len(data) // BLOCK_BYTES, BLOCKS_MAX)):
        part = data[block * BLOCK_BYTES:(block + 1) * BLOCK_BYTES]
        key = hashlib.blake2b(part, key=key, digest_size=8).digest()
        keys.append(key)
    return keys


def preference(scope: str, replica: Hashable) -> bytes:
    """Orders replicas for a scope in the same way in every process (rendezvous hashing)."""
    return hashlib.blake2b(f"{scope}\0{replica}".encode("utf-8", "surrogatepass"),
                           digest_size=8).digest()


class Affinity:
    """Remembers at most `keys_max` keys, the least recently used ones go first. Not for several
    threads: a router has one and calls it from its event loop."""

    def __init__(self, match_min: float = 0.1, gap_max: int = 2, keys_max: int = 65536):
        if not 0 <= match_min <= 1:
            raise ValueError(f"match_min is {match_min}, must be a share from 0 to 1")
        if gap_max < 0:
            raise ValueError(f"gap_max is {gap_max}, must not be negative")
        if keys_max < 1:
            raise ValueError(f"keys_max is {keys_max}, must be at least 1")
        self.match_min, self.gap_max, self.keys_max = match_min, gap_max, keys_max
        self._replicas: "OrderedDict[bytes, set]" = OrderedDict()

    def matched(self, keys: Sequence[bytes], replica: Hashable) -> int:
        """Leading blocks that were sent to the replica."""
        for count, key in enumerate(keys):
            if replica not in self._replicas.get(key, ()):
                return count
        return len(keys)

    def order(self, scope: str, keys: Sequence[bytes], loads: Dict[Hashable, int],
              holders: Iterable[Hashable] = ()) -> List[Hashable]:
        """The replicas of `loads` (requests at each), the best first. `holders` have the request's
        adapter loaded. A replica with more than `gap_max` requests above the least loaded one gets
        no request for the sake of its caches."""
        least = min(loads.values(), default=0)
        holders = set(holders)

        def rank(replica):
            near = loads[replica] - least <= self.gap_max
            matched = self.matched(keys, replica) if near else 0
            if matched < self.match_min * len(keys):
                matched = 0
            has_adapter = near and replica in holders
            return (-matched, not has_adapter, loads[replica], preference(scope, replica))

        return sorted(loads, key=rank)

    def sent(self, keys: Sequence[bytes], replica: Hashable) -> None:
        """A request with these blocks went to the replica."""
        for key in reversed(keys):  # the first block is the most recently used: it goes last
            self._replicas.setdefault(key, set()).add(replica)
            self._replicas.move_to_end(key)
        while len(self._replicas) > self.keys_max:
            self._replicas.popitem(last=False)

    def forget(self, replica: Hashable) -> None:
        """The replica has ended."""
        for key in [key for key, known in self._replicas.items() if replica in known]:
            known = self._replicas[key]
            known.discard(replica)
            if not known:
                del self._replicas[key]

    def __len__(self) -> int:
        return len(self._replicas)
