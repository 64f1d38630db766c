"""Build protobuf message classes and gRPC stubs from an interface table.

Table: ``services`` maps a service to methods ``[request, response]`` ("stream X" marks streams), ``enums``
maps an enum to its values, ``messages`` maps a message to fields ``name: [number, type]`` where type may be
``repeated T``, ``map<K, V>`` or carry ``(oneof x)``. A method's path is ``/PACKAGE.SERVICE/METHOD``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, TypeAlias

import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message: TypeAlias = Any
"""An instance of a class made at run time; its fields are those of the table."""

_SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
_MESSAGE_TYPE = 11
_ENUM_TYPE = 14
_OPTIONAL = 1
_REPEATED = 3
_WELL_KNOWN: Mapping[str, Mapping[str, list[Any]]] = {
    "google.protobuf.BoolValue": {"value": [1, "bool"]},
    "google.protobuf.Int64Value": {"value": [1, "int64"]},
    "google.protobuf.StringValue": {"value": [1, "string"]},
    "google.protobuf.Timestamp": {"seconds": [1, "int64"], "nanos": [2, "int32"]},
    "google.protobuf.Duration": {"seconds": [1, "int64"], "nanos": [2, "int32"]},
}
"""Messages that tables use without defining them; only their numbers matter on the wire."""
_MAP = re.compile(r"^map<(\w+), ([\w.]+)>$")
_ONEOF = re.compile(r"^(.*?)\s*\(oneof (\w+)\)$")


@dataclass(frozen=True, slots=True)
class Method:
    """One gRPC method: its path, its message classes and whether either side streams."""

    path: str
    request: type[Any]
    response: type[Any]
    request_stream: bool
    response_stream: bool


@dataclass(frozen=True)
class Interface:
    """The services and message classes of one table."""

    package: str
    messages: Mapping[str, type[Any]]
    enums: Mapping[str, Mapping[str, int]]
    methods: Mapping[str, Mapping[str, Method]] = field(default_factory=dict)

    def message(self, name: str, values: Mapping[str, Any] | None = None) -> Message:
        """A message `name` with `values`; nested messages may be given as dicts, lists and maps."""
        return self.messages[name](**(values or {}))

    def stub(self, channel: Any, service: str) -> dict[str, Callable[..., Any]]:
        """Callables of `service` on a grpc.aio channel, by method name."""
        calls: dict[str, Callable[..., Any]] = {}
        for name, method in self.methods[service].items():
            kind = ("stream" if method.request_stream else "unary") + (
                "_stream" if method.response_stream else "_unary"
            )
            calls[name] = getattr(channel, kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return calls

    def handler(self, service: str, implementations: Mapping[str, Callable[..., Any]]) -> Any:
        """A generic handler for a grpc.aio server; absent methods answer UNIMPLEMENTED."""
        import grpc  # noqa: PLC0415 - servers are few; clients of pure tables need no grpc

        handlers = {}
        for name, function in implementations.items():
            method = self.methods[service][name]
            make = grpc.unary_stream_rpc_method_handler if method.response_stream else None
            make = make or grpc.unary_unary_rpc_method_handler
            handlers[name] = make(
                function,
                request_deserializer=method.request.FromString,
                response_serializer=method.response.SerializeToString,
            )
        return grpc.method_handlers_generic_handler(f"{self.package}.{service}", handlers)


@lru_cache(maxsize=8)
def load_interface(name: str) -> Interface:
    """The interface of table `name` (file name without ``.json``). Raises KeyError for wrong tables."""
    table = orjson.loads((resources.files(__package__) / f"{name}.json").read_bytes())
    return build_interface(name, table)


def build_interface(name: str, table: Mapping[str, Any]) -> Interface:
    """Message classes and methods of `table`; `name` only labels the descriptor file."""
    package: str = table["package"]
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=package, syntax="proto3")
    enums: Mapping[str, Mapping[str, int]] = table.get("enums", {})
    for enum_name, values in enums.items():
        _add_enum(file, enum_name, values)
    all_messages: dict[str, Mapping[str, Any]] = {**_WELL_KNOWN, **table["messages"]}
    for message_name, fields in all_messages.items():
        _add_message(file, package, message_name, fields, enums)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call, unused-ignore]
    messages = {
        message_name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{_flat(message_name)}")
        )
        for message_name in all_messages
    }
    methods = {
        service: {
            method: _method(f"/{package}.{service}/{method}", ends, messages)
            for method, ends in entries.items()
        }
        for service, entries in table["services"].items()
    }
    return Interface(package, messages, enums, methods)


def to_plain(message: Message) -> dict[str, Any]:
    """`message` as dicts, lists and scalars, every field of proto3 present; absent sub-messages are None."""
    plain: dict[str, Any] = {}
    for descriptor in message.DESCRIPTOR.fields:
        value = getattr(message, descriptor.name)
        if descriptor.message_type is None:
            plain[descriptor.name] = list(value) if descriptor.is_repeated else value
        elif descriptor.message_type.GetOptions().map_entry:
            plain[descriptor.name] = dict(value)
        elif descriptor.is_repeated:
            plain[descriptor.name] = [to_plain(item) for item in value]
        else:
            plain[descriptor.name] = to_plain(value) if message.HasField(descriptor.name) else None
    return plain


def _method(path: str, ends: list[str], messages: Mapping[str, type[Any]]) -> Method:
    request, response = ends
    return Method(
        path,
        messages[request.removeprefix("stream ")],
        messages[response.removeprefix("stream ")],
        request.startswith("stream "),
        response.startswith("stream "),
    )


def _add_enum(file: Any, name: str, values: Mapping[str, int]) -> None:
    # Enum values share the scope of the enum's parent in protobuf, so each enum's own name becomes their
    # prefix.
    enum = file.enum_type.add(name=_flat(name))
    for value_name, number in values.items():
        enum.value.add(name=f"{_flat(name)}__{value_name}", number=number)


def _flat(name: str) -> str:
    """Nested names as one word: the names of messages do not travel, so nesting is not needed."""
    return name.replace(".", "_")


def _add_message(
    file: Any, package: str, name: str, fields: Mapping[str, Any], enums: Mapping[str, Mapping[str, int]]
) -> None:
    message = file.message_type.add(name=_flat(name))
    oneofs: dict[str, int] = {}
    for field_name, (number, type_text) in fields.items():
        kind = type_text
        member = _ONEOF.match(kind)
        added = message.field.add(name=field_name, number=number, label=_OPTIONAL)
        if member:
            kind = member.group(1)
            if member.group(2) not in oneofs:
                oneofs[member.group(2)] = len(oneofs)
                message.oneof_decl.add(name=member.group(2))
            added.oneof_index = oneofs[member.group(2)]
        mapping = _MAP.match(kind)
        if mapping:
            entry = message.nested_type.add(name=_entry_name(field_name))
            entry.options.map_entry = True
            for index, part in enumerate(mapping.groups(), start=1):
                column = entry.field.add(name=("key", "value")[index - 1], number=index, label=_OPTIONAL)
                _set_type(column, package, part, enums)
            added.label = _REPEATED
            added.type = _MESSAGE_TYPE
            added.type_name = f".{package}.{_flat(name)}.{entry.name}"
            continue
        if kind.startswith("repeated "):
            added.label = _REPEATED
            kind = kind.removeprefix("repeated ")
        elif kind.startswith("optional "):
            kind = kind.removeprefix("optional ")
            added.proto3_optional = True
            added.oneof_index = oneofs[f"_{field_name}"] = len(oneofs)
            message.oneof_decl.add(name=f"_{field_name}")
        _set_type(added, package, kind, enums)


def _entry_name(field_name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


def _set_type(added: Any, package: str, kind: str, enums: Mapping[str, Mapping[str, int]]) -> None:
    if kind in _SCALARS:
        added.type = _SCALARS[kind]
    elif kind in enums:
        added.type = _ENUM_TYPE
        added.type_name = f".{package}.{_flat(kind)}"
    else:
        added.type = _MESSAGE_TYPE
        added.type_name = f".{package}.{_flat(kind)}"
