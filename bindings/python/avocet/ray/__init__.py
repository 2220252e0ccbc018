"""Replicas of `avocet serve` on Ray Serve: `pip install "ray[serve]"`, then

    serve run avocet.ray:build model=smollm2 replicas=2

One engine per replica, adapters as Serve's multiplexed models, requests routed by prefix and
adapter affinity, the HTTP API of `avocet serve` in front (docs/replicas.md). Importing avocet.ray
does not import Ray; `build` does."""
from .options import Options


def build(arguments):
    """The application for serve.run or `serve run`; see Options."""
    from . import app
    return app.build(arguments)


__all__ = ["Options", "build"]
