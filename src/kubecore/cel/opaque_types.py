"""Opaque CEL types: quantities, URLs, IP addresses, CIDRs and authorizer checks.

Each is a protocol buffer message made here, because that is the only kind of foreign value whose type the
compiler knows. Functions read the fields; expressions see the type name and equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

_STRING, _BOOL, _MESSAGE = 9, 8, 11
_MESSAGES: dict[str, dict[str, int]] = {
    "kubernetes.Quantity": {"text": _STRING},
    "kubernetes.URL": {"text": _STRING},
    "kubernetes.Semver": {"text": _STRING},
    "kubernetes.NamedFormat": {"name": _STRING},
    "net.IP": {"text": _STRING},
    "net.CIDR": {"text": _STRING},
    "kubernetes.authorization.Authorizer": {"account": _STRING},
    "kubernetes.authorization.PathCheck": {"account": _STRING, "path": _STRING},
    "kubernetes.authorization.GroupCheck": {"account": _STRING, "group": _STRING},
    "kubernetes.authorization.ResourceCheck": {
        "account": _STRING,
        "group": _STRING,
        "resource": _STRING,
        "subresource": _STRING,
        "namespace": _STRING,
        "name": _STRING,
    },
    "kubernetes.authorization.Decision": {"is_allowed": _BOOL, "why": _STRING, "failure": _STRING},
    "JSONPatch": {"op": _STRING, "path": _STRING, "from": _STRING, "value": _MESSAGE},
}


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A type for declarations (`type`) and the constructor of its values (`make`)."""

    name: str
    type: Any
    make: Any


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """The descriptors of all opaque types."""
    made = descriptor_pool.DescriptorPool()
    made.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    for serialized in descriptor_files():
        made.AddSerializedFile(serialized)
    return made


def descriptor_files() -> list[bytes]:
    """The files that describe the opaque types; they need ``google/protobuf/struct.proto``."""
    packages: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for name, fields in _MESSAGES.items():
        package, _, short = name.rpartition(".")
        file = packages.setdefault(
            package,
            descriptor_pb2.FileDescriptorProto(
                name=f"{package or 'root'}.proto",
                package=package,
                syntax="proto3",
                dependency=["google/protobuf/struct.proto"],
            ),
        )
        message = file.message_type.add(name=short)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            added = message.field.add(name=field, number=number, type=kind, label=1)
            if kind == _MESSAGE:
                added.type_name = ".google.protobuf.Value"
    return [file.SerializeToString() for file in packages.values()]


@cache
def opaque(name: str) -> OpaqueType:
    """The opaque type called `name` (KeyError when there is none)."""
    if name not in _MESSAGES:
        raise KeyError(name)
    made = message_factory.GetMessageClass(pool().FindMessageTypeByName(name))
    return OpaqueType(name, cel.Type(name), made)
