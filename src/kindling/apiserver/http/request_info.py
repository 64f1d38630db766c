"""RequestInfo: verb, resource and name of a request, parsed once from method, raw path and query.
Authorization, routing, aggregation, proxies, auditing and metrics all use this one result, so that they
cannot disagree about a request. The rules are those of Kubernetes' API server (``RequestInfo`` of
k8s.io/apiserver): the decoded path counts, so ``%2F`` separates like ``/``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from urllib.parse import quote, unquote

from multidict import MultiMapping

from kubecore.objects.field_selectors import parse_field_selector
from kubecore.objects.selectors import SelectorError

from ..registry.admission import AuthorizationQuery
from ..registry.context import UserInfo

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
_SEGMENT = re.compile("(?:(?!%2f)[^/])+", re.IGNORECASE)
_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_PATH = "/:@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A parsed request line. For non-resource requests only `method`, `path`, `verb` and the group count."""

    method: str
    path: str
    """Decoded."""
    verb: str
    """The verb for authorization; empty for methods that resources do not have."""
    is_resource: bool = False
    group: str = ""
    version: str = ""
    """Group and version are also set for the discovery path ``/apis/GROUP/VERSION``."""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    """From the path, or from ``metadata.name`` in the field selector of a list or watch."""
    parts: tuple[str, ...] = ()
    """Decoded path segments from the resource on."""
    prefix: str = ""
    """The legacy path segment before the resource that sets the verb: ``watch`` or ``proxy``."""
    is_inside_namespace: bool = False
    """The path leads through ``namespaces/NAME/`` to a resource."""
    is_malformed: bool = False
    """A required segment is empty or missing: nothing is served at such a path."""
    raw_path: str = ""
    """As it was sent."""
    depth: int = 0
    """How many segments there are up to the subresource and with it."""

    @property
    def is_named(self) -> bool:
        """Whether the path (not just a selector) names an object."""
        return len(self.parts) > 1

    def authorization(self, user: UserInfo, verb: str, field_selector: str = "") -> AuthorizationQuery:
        """What `user` has to be allowed for this request; `verb` is its own or follows from it."""
        if not self.is_resource:
            return AuthorizationQuery(user, verb, path=self.path)
        return AuthorizationQuery(
            user,
            verb,
            self.group,
            self.version,
            self.resource,
            self.subresource,
            self.namespace,
            self.name,
            field_selector=field_selector,
        )

    @property
    def canonical_path(self) -> str:
        """The path, encoded again in canonical form: it is the same whether it is decoded before or after
        splitting.
        """
        return quote(self.path, safe=_PATH)

    def at_subresource(self) -> tuple[str, str]:
        """The raw path up to the subresource, and the rest after it."""
        ends = [found.end() for found in islice(_SEGMENT.finditer(self.raw_path), self.depth)]
        rest = self.raw_path[ends[-1] :]
        # The slash between the two may be encoded; the path that follows begins with a plain one.
        return self.raw_path[: ends[-1]], f"/{rest[1 if rest[0] == '/' else 3 :]}" if rest else ""


def parse(method: str, raw_path: str, query: MultiMapping[str]) -> RequestInfo:
    """The meaning of a request line: `raw_path` is undecoded and without `query`, which is decoded."""
    # Non-ASCII characters that clients did not encode are treated as if encoded.
    raw = raw_path if raw_path.isascii() else quote(raw_path, safe=_ASCII, errors="surrogateescape")
    path = unquote(raw) if "%" in raw else raw
    segments = path.strip("/").split("/")
    group = version = ""
    if segments[0] == "api" and len(segments) > 2:
        version, first = segments[1], 2
    elif segments[0] == "apis" and len(segments) > 2:
        group, version, first = segments[1], segments[2], 3
    else:
        return RequestInfo(method, path, method.lower())
    if len(segments) == first:
        return RequestInfo(method, path, method.lower(), group=group, version=version)
    is_malformed = path.startswith("//") or "" in segments[: first + 1]
    verb, prefix = _VERBS.get(method, ""), ""
    if segments[first] in _VERB_PREFIXES:
        if len(segments) > first + 1:
            verb = prefix = segments[first]
            first += 1
        else:
            is_malformed = True
    namespace, is_inside = "", False
    if segments[first] == "namespaces" and len(segments) > first + 1:
        namespace = segments[first + 1]
        if len(segments) > first + 2 and segments[first + 2] not in _NAMESPACE_SUBRESOURCES:
            is_malformed |= not namespace
            first, is_inside = first + 2, True
    parts = tuple(segments[first:])
    name = parts[1] if len(parts) > 1 else ""
    if not name and verb == "get":
        verb = "watch" if is_true(query.get("watch")) else "list"
        name = _selected_name(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        method,
        path,
        verb,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=parts[0],
        subresource=parts[2] if len(parts) > 2 and prefix != "proxy" else "",
        name=name,
        parts=parts,
        prefix=prefix,
        is_inside_namespace=is_inside,
        is_malformed=is_malformed or "" in parts[:3],
        raw_path=raw,
        depth=first + min(len(parts), 3),
    )


def is_true(value: str | None) -> bool:
    """A boolean query parameter, as Kubernetes reads them: anything but false and 0 is true."""
    return value is not None and value.lower() not in ("false", "0")


def _selected_name(query: MultiMapping[str]) -> str:
    """The ``metadata.name`` of the field selector, if it is a valid path segment."""
    text = query.get("fieldSelector")
    if not text:
        return ""
    try:
        name = parse_field_selector(text).exact("metadata.name") or ""
    except SelectorError:
        return ""
    return "" if name in (".", "..") or "/" in name or "%" in name else name
