"""Clients of gRPC: grpcio, and messages made of our own descriptors (tools/protos); no code is
generated. Importing this ends the test as skipped where grpcio or protobuf is missing; where
the system's Python has them and this one has not, the test begins again there."""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys

from command import ROOT

SYSTEM = "/usr/bin/python3"
MODULES = "import grpc, google.protobuf.message_factory"

def has_all(*modules):
    try:
        return all(importlib.util.find_spec(name) is not None for name in modules)
    except ModuleNotFoundError:
        return False


if not has_all("grpc", "google", "google.protobuf"):
    if sys.executable != SYSTEM and os.path.exists(SYSTEM) and subprocess.run(
            [SYSTEM, "-c", MODULES], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        os.execv(SYSTEM, [SYSTEM, *sys.argv])
    print("skipped: no Python with grpcio and protobuf (tools/bootstrap test installs them)")
    sys.exit(77)

import grpc  # noqa: E402
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402


def generator():
    """tools/protos as a module."""
    loader = importlib.machinery.SourceFileLoader("protos", str(ROOT / "tools/protos"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("protos", loader))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def files():
    """{name: FileDescriptorProto as bytes} of proto/."""
    protos, folder = generator(), ROOT / "proto"
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.proto"))]
    return {name: protos.describe(protos.Reader(folder / name, name).read()) for name in names}


POOL = descriptor_pool.DescriptorPool()
for data in files().values():
    POOL.Add(descriptor_pb2.FileDescriptorProto.FromString(data))


def message_class(name):
    descriptor = POOL.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(POOL).GetPrototype(descriptor)


class Stub:
    """Methods of a service: Stub(channel, "avocet.v1.Inference").Chat(message, timeout=…)"""

    def __init__(self, channel, service):
        for method in POOL.FindServiceByName(service).methods:
            proto = descriptor_pb2.MethodDescriptorProto()
            method.CopyToProto(proto)
            kind = "{}_{}".format("stream" if proto.client_streaming else "unary",
                                  "stream" if proto.server_streaming else "unary")
            setattr(self, method.name, getattr(channel, kind)(
                f"/{service}/{method.name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=message_class(method.output_type.full_name).FromString))


# Members of REST's answers that are always null, or that no message needs.
IGNORED = {"refusal"}


def fill(message, given):
    """A message from an object of the REST API; fails where it has a member without a field."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in given.items():
        if value is None or name in IGNORED:
            continue
        if name + "_json" in fields:
            field = fields[name + "_json"]
            if isinstance(value, list) and name == "top_logprobs":
                getattr(message, field.name).extend(
                    json.dumps(item, separators=(",", ":"), ensure_ascii=False) for item in value)
            else:
                setattr(message, field.name, json.dumps(value))
            continue
        if name in ("prompt", "input") and (isinstance(value, str) or not isinstance(value[0],
                                                                                     str)):
            fill_prompt(message, name, value)
            continue
        field = fields[name]
        if name == "logit_bias":
            getattr(message, name).update({int(key): number for key, number in value.items()})
        elif isinstance(value, list):
            for item in value:
                if field.message_type is not None:
                    fill(getattr(message, name).add(), item)
                else:
                    getattr(message, name).append(float("nan") if item is None else item)
        elif isinstance(value, dict):
            getattr(message, name).SetInParent()
            fill(getattr(message, name), value)
        elif name == "stop" and isinstance(value, str):
            message.stop.append(value)
        else:
            setattr(message, name, str(value) if name == "stop_reason" else value)
    return message


def fill_prompt(message, name, value):
    if isinstance(value, str):
        getattr(message, name).append(value)
        return
    for ids in value if isinstance(value[0], list) else [value]:
        getattr(message, name + "_tokens").add().ids.extend(ids)


def make(name, given=None, /, **members):
    return fill(message_class(name)(), {**(given or {}), **members})


def code_of(action):
    """(code, text) of the error that a call ends with."""
    try:
        found = action()
        for _ in found if hasattr(found, "__next__") else ():
            pass
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", None
