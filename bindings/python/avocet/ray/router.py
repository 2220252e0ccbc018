"""Request routers for Ray Serve (its extension point `RequestRouterConfig`)."""
from ray.serve.request_router import RequestRouter

from .affinity import Affinity


def _call_of(pending_request):
    """The Call that the ingress sends as the only argument; None for requests of another kind."""
    arguments = pending_request.args if pending_request is not None else ()
    return arguments[0] if arguments and hasattr(arguments[0], "keys") else None


class AffinityRouter(RequestRouter):
    """Prefers replicas that have computed the prompt's beginning, then those that have the adapter
    loaded, then the least loaded one. Each ingress replica has a router with its own memory."""

    def initialize_state(self, match_min=0.1, gap_max=2, keys_max=65536):
        self._affinity = Affinity(match_min, gap_max, keys_max)

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        lengths = self.replica_queue_len_cache
        loads = {name: lengths.get(replica.replica_id) or 0 for name, replica in replicas.items()}
        call = _call_of(pending_request)
        if call is None:
            order = sorted(loads, key=loads.get)
        else:
            holders = [name for name, replica in replicas.items()
                       if all(adapter in replica.multiplexed_model_ids
                              for adapter in call.adapters)]
            order = self._affinity.order(call.scope, call.keys, loads,
                                         holders if call.adapters else ())
        return [[replicas[name]] for name in order]  # each a rank of its own: the first with room

    def on_request_routed(self, pending_request, replica_id, result):
        call = _call_of(pending_request)
        if call is not None:
            self._affinity.sent(call.keys, replica_id.unique_id)

    def on_replica_actor_died(self, replica_id):
        super().on_replica_actor_died(replica_id)
        self._affinity.forget(replica_id.unique_id)


class RoundRobinRouter(RequestRouter):
    """One replica after the other, for comparison."""

    def initialize_state(self):
        self._turn = 0

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        replicas = sorted(candidate_replicas, key=lambda replica: replica.replica_id.unique_id)
        first = self._turn % len(replicas) if replicas else 0
        return [[replica] for replica in replicas[first:] + replicas[:first]]

    def on_request_routed(self, pending_request, replica_id, result):
        self._turn += 1
