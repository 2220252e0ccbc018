"""What the ingress must know of a request's body to route it: adapters, tenant, prompt. The body
itself goes to a replica unchanged; whether it is right is decided there."""
import json
from typing import Dict, List, NamedTuple, Optional

from .affinity import block_keys


class Call(NamedTuple):
    """A request on its way to a replica."""

    method: str
    path: str
    headers: Dict[str, str]
    body: bytes
    adapters: List[str]  # that the replica must have loaded
    scope: str           # adapters and tenant: what a cached prefix depends on besides its text
    keys: List[bytes]    # of the prompt's blocks
    stream: bool


PASSED_ON = ("accept", "authorization", "content-type", "traceparent", "x-api-key", "x-request-id")


def adapters_of(body: dict, known) -> List[str]:
    """The adapters that a request names, of those that are `known`."""
    named = [body.get("model")]
    for field in ("adapters", "lora"):
        items = body.get(field)
        for item in items if isinstance(items, list) else ():
            named.append(item.get("name") if isinstance(item, dict) else item)
    named += [body.get("adapter"), body.get("lora_name")]
    return sorted({name for name in named if isinstance(name, str) and name in known})


def prompt_of(body: dict) -> str:
    """The text that a model's prompt begins with, in an order that follows the templates: tools and
    system first. Two requests whose texts share a beginning share one of their prompts."""
    parts = [json.dumps(body[field], ensure_ascii=False, sort_keys=True)
             for field in ("tools", "system", "instructions") if body.get(field)]
    for field in ("messages", "prompt", "input"):
        value = body.get(field)
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, list):
            parts += [json.dumps(item, ensure_ascii=False, sort_keys=True) for item in value]
    return "\n".join(parts)


def read_call(method: str, path: str, headers: Dict[str, str], data: bytes, known,
              adapter: Optional[str] = None) -> Call:
    """`adapter`, from the header serve_multiplexed_model_id, is used where the body names none."""
    try:
        body = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        body = {}  # the replica says what is wrong with it
    if not isinstance(body, dict):
        body = {}
    adapters = adapters_of(body, known)
    if adapter and not adapters and body:
        adapters = [adapter] if adapter in known else []
        body["model"] = adapter
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    passed = {name: headers[name] for name in PASSED_ON if name in headers}
    tenant = passed.get("authorization") or passed.get("x-api-key") or ""
    scope = json.dumps([adapters, tenant, str(body.get("cache_salt") or "")])
    return Call(method, path, passed, data, adapters, scope, block_keys(scope, prompt_of(body)),
                body.get("stream") is True)
