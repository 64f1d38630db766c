"""What a request is about, found once from its method, its undecoded path and its query.

Authorization, routing, aggregation, proxies, auditing and metrics all read this one finding, so that none of
them can take a request for something else than another did. The rules are those of Kubernetes' API server
(``RequestInfo`` of k8s.io/apiserver): the path counts decoded, so that ``%2F`` separates like ``/``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from multidict import MultiMapping

from kubecore.objects.field_selectors import parse_field_selector
from kubecore.objects.selectors import SelectorError

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_VERB_PREFIXES = ("watch", "proxy")
_SEPARATOR = re.compile("/|%2f", re.IGNORECASE)
_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_PATH = "/:@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A parsed request line. For non-resource requests only `method`, `path`, `verb` and the group count."""

    method: str
    path: str
    """Decoded."""
    verb: str
    """What authorization is asked for; empty for methods that mean nothing to resources."""
    is_resource: bool = False
    group: str = ""
    version: str = ""
    """Group and version are also known of the discovery page ``/apis/GROUP/VERSION``."""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    """From the path, or the one name that the field selector of a list or watch chooses."""
    parts: tuple[str, ...] = ()
    """Decoded path segments from the resource on."""
    prefix: str = ""
    """The old segment before the resource that sets the verb: ``watch`` or ``proxy``."""
    is_inside_namespace: bool = False
    """The path leads through ``namespaces/NAME/`` to a resource."""
    is_malformed: bool = False
    """A segment that has a meaning is empty or missing: nothing is served at such a path."""
    place: str = ""
    """The undecoded path up to the subresource and with it."""
    subpath: str = ""
    """What follows the subresource, undecoded and with its first slash."""

    @property
    def is_named(self) -> bool:
        """Whether the path (not just a selector) names an object."""
        return len(self.parts) > 1

    @property
    def canonical_path(self) -> str:
        """The path encoded again: whoever reads it, decoded before or after splitting, sees what is here."""
        return quote(self.path, safe=_PATH)


@dataclass(frozen=True, slots=True)
class _Segment:
    """A decoded path segment, and where it ends in the undecoded path."""

    text: str
    end: int


def parse(method: str, raw_path: str, query: MultiMapping[str]) -> RequestInfo:
    """The meaning of a request line: `raw_path` is undecoded and without `query`, which is decoded."""
    # What clients send undecoded although it is not ASCII is treated as if they had encoded it.
    raw = raw_path if raw_path.isascii() else quote(raw_path, safe=_ASCII, errors="surrogateescape")
    path = unquote(raw)
    segments = _segments(raw)
    head = [segment.text for segment in segments[:3]]
    group = version = ""
    if len(segments) >= 3 and head[0] == "api":
        version, rest = head[1], segments[2:]
    elif len(segments) >= 3 and head[0] == "apis":
        group, version, rest = head[1], head[2], segments[3:]
    else:
        return RequestInfo(method, path, method.lower())
    if not rest:
        return RequestInfo(method, path, method.lower(), group=group, version=version)
    base = RequestInfo(
        method, path, "", True, group, version, is_malformed="" in head or path.startswith("//")
    )
    return _resource_info(base, raw, rest, query)


def _segments(raw: str) -> list[_Segment]:
    """The segments between the separators; those at both ends of the path separate nothing."""
    found: list[_Segment] = []
    start = 0
    for separator in _SEPARATOR.finditer(raw):
        found.append(_Segment(unquote(raw[start : separator.start()]), separator.start()))
        start = separator.end()
    found.append(_Segment(unquote(raw[start:]), len(raw)))
    while found and not found[0].text:
        found.pop(0)
    while found and not found[-1].text:
        found.pop()
    return found


def _resource_info(
    base: RequestInfo, raw: str, rest: list[_Segment], query: MultiMapping[str]
) -> RequestInfo:
    """`base` with what the segments after the version say."""
    verb, prefix = _VERBS.get(base.method, ""), ""
    is_malformed = base.is_malformed
    if rest[0].text in _VERB_PREFIXES:
        is_malformed |= len(rest) == 1
        if len(rest) > 1:
            verb = prefix = rest[0].text
            rest = rest[1:]
    namespace, is_inside = "", False
    if rest[0].text == "namespaces" and len(rest) > 1:
        namespace = rest[1].text
        is_malformed |= not namespace
        if len(rest) > 2 and rest[2].text not in _NAMESPACE_SUBRESOURCES:
            rest, is_inside = rest[2:], True
    parts = tuple(segment.text for segment in rest)
    name = parts[1] if len(parts) > 1 else ""
    if not name and verb == "get":
        verb = "watch" if is_true(query.get("watch")) else "list"
        name = _selected_name(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    end = rest[min(len(rest), 3) - 1].end
    return replace(
        base,
        verb=verb,
        namespace=namespace,
        resource=parts[0],
        subresource=parts[2] if len(parts) > 2 and prefix != "proxy" else "",
        name=name,
        parts=parts,
        prefix=prefix,
        is_inside_namespace=is_inside,
        is_malformed=is_malformed or "" in parts[:3],
        place=raw[:end],
        subpath=raw[end:] if len(parts) > 2 else "",
    )


def is_true(value: str | None) -> bool:
    """A boolean query parameter, as Kubernetes reads them: anything but false and 0 is true."""
    return value is not None and value.lower() not in ("false", "0")


def _selected_name(query: MultiMapping[str]) -> str:
    """The one name that the field selector chooses, if it is one that a path could have."""
    text = query.get("fieldSelector")
    if not text:
        return ""
    try:
        name = parse_field_selector(text).exact("metadata.name") or ""
    except SelectorError:
        return ""
    return "" if name in (".", "..") or "/" in name or "%" in name else name
