"""What a URL means: the parts of a request that authorization, routing and auditing go by."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(slots=True)
class RequestInfo:
    """A parsed path. For non-resource requests only `path` and `verb` count."""

    path: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    parts: tuple[str, ...] = ()
    """Decoded path segments from the resource on."""
    watch_prefix: bool = False
    """The path has the old ``/watch/`` segment."""


def parse(method: str, raw_path: str) -> RequestInfo:
    """The meaning of a method and an undecoded path (without query)."""
    path = unquote(raw_path)
    info = RequestInfo(path, method.lower())
    segments = raw_path.strip("/").split("/")
    if segments[0] == "api" and len(segments) >= 3:
        info.version, rest = unquote(segments[1]), segments[2:]
    elif segments[0] == "apis" and len(segments) >= 4:
        info.group, info.version, rest = unquote(segments[1]), unquote(segments[2]), segments[3:]
    else:
        return info
    parts = [unquote(segment) for segment in rest]
    info.is_resource = True
    info.verb = _VERBS.get(method, method.lower())
    if parts[0] == "watch" and len(parts) > 1:
        info.watch_prefix = True
        parts = parts[1:]
    if parts[0] == "namespaces" and len(parts) > 1:
        info.namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    info.parts = tuple(parts)
    info.resource = parts[0]
    info.name = parts[1] if len(parts) > 1 else ""
    info.subresource = parts[2] if len(parts) > 2 else ""
    if info.watch_prefix and info.verb == "get":
        info.verb = "watch"
    if not info.name:
        if info.verb == "get":
            info.verb = "list"
        elif info.verb == "delete":
            info.verb = "deletecollection"
    return info


def refine_list(info: RequestInfo, *, watch: bool, name_selected: str | None) -> None:
    """Watching and selecting one name change what a list is called (and what authorization sees)."""
    if info.verb != "list" and not info.watch_prefix:
        return
    if watch:
        info.verb = "watch"
    if name_selected and not info.name:
        info.name = name_selected
