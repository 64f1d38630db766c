"""CONNECT admission: streams to pods, and requests proxied to pods, services and nodes. Admission sees an
options object made from the query. Logs are a GET, not a CONNECT.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from multidict import MultiDict, MultiMapping

from kubecore import errors
from kubecore.json import JsonObject

from ..registry.admission import AdmissionAttributes
from ..registry.definition import ResourceDefinition, Subresource
from ..registry.registry import Registry
from .call import Call
from .contexts import Contexts

_PORT = re.compile(r"[0-9]{1,5}")
_FLAGS = ("stdin", "stdout", "stderr", "tty")


class ConnectAdmission:
    """Runs the admission chain before a connection is made."""

    def __init__(self, registry: Registry, contexts: Contexts) -> None:
        self._registry = registry
        self._contexts = contexts

    async def admit(self, call: Call, definition: ResourceDefinition, subresource: Subresource) -> None:
        """Run admission, which may change the stream options. Raises StatusError where it refuses."""
        kind = subresource.kind
        if not kind.endswith("Options"):
            return
        options = connect_options(call, kind)
        ctx = self._contexts.of(call, definition, "connect")
        attributes = AdmissionAttributes(
            ctx, definition, "CONNECT", dict(options), api_version="v1", kind=kind
        )
        chain = self._registry.admission(ctx)
        await chain.mutate(attributes)
        await chain.validate(attributes)
        if attributes.object is not None and attributes.object != options:
            call.query = query_of(attributes.object)


def connect_options(call: Call, kind: str) -> JsonObject:
    """The options object (``PodExecOptions``, ...) of a request. Raises StatusError (400)."""
    options: JsonObject = {"kind": kind, "apiVersion": "v1"}
    query = call.query
    if kind.endswith("ProxyOptions"):
        path = unquote(call.info.at_subresource()[1])
        return {**options, "path": path} if path else options
    if kind == "PodPortForwardOptions":
        ports = [_port(text) for value in query.getall("ports", []) for text in value.split(",")]
        return {**options, "ports": ports} if ports else options
    options |= {name: True for name in _FLAGS if call.flag(name)}
    if query.get("container"):
        options["container"] = query["container"]
    command: list[str] = query.getall("command", [])
    if kind == "PodExecOptions" and command:
        options["command"] = list(command)
    return options


def _port(text: str) -> int:
    """A port, parsed as strictly as the node does, so that both see the same. Raises StatusError (400)."""
    if _PORT.fullmatch(text) is None:
        raise errors.bad_request(f"invalid port {text[:20]!r}")
    return int(text)


def query_of(options: JsonObject) -> MultiMapping[str]:
    """The query for these options."""
    query: MultiDict[str] = MultiDict()
    for name, value in options.items():
        if name in ("kind", "apiVersion"):
            continue
        for each in value if isinstance(value, list) else [value]:
            query.add(name, str(each).lower() if isinstance(each, bool) else str(each))
    return query
