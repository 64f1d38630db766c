"""The target of a proxied request, and its headers."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from multidict import CIMultiDict
from yarl import URL

from kubecore import errors

from ..registry.context import UserInfo

_HOP_BY_HOP = frozenset(
    {"connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "host", "content-length"}
)
_IDENTITY_PREFIXES = ("impersonate-", "x-remote-")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(slots=True)
class Target:
    """An upstream server and the request line's target."""

    host: str
    port: int
    path: str
    """Undecoded path and query."""
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    """Headers to add (the identity for front proxies)."""

    @property
    def url(self) -> URL:
        """The target as a URL, not encoded again. Raises ValueError for an invalid path."""
        scheme = "https" if self.tls is not None else "http"
        path, _, query = self.path.partition("?")
        return URL.build(
            scheme=scheme, host=self.host, port=self.port, path=path, query_string=query, encoded=True
        )


def forwarded_headers(
    headers: Iterable[tuple[str, str]], extra: Sequence[tuple[str, str]]
) -> CIMultiDict[str]:
    """End-to-end headers of a request, without its credentials and with `extra`.

    Raises StatusError (400) for what would be read as more than one header.
    """
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in headers:
        # Some servers take underscores in names for hyphens.
        lower = name.lower().replace("_", "-")
        if lower == "authorization" or lower.startswith(_IDENTITY_PREFIXES) or lower in _HOP_BY_HOP:
            continue
        kept.add(name, value)
    for name, value in extra:
        kept.add(name, value)
    if any(_CONTROL.search(name) or _CONTROL.search(value) for name, value in kept.items()):
        raise errors.bad_request("a header contains control characters")
    return kept


def identity_headers(user: UserInfo) -> list[tuple[str, str]]:
    """The headers by which a front proxy names the user."""
    found = [("X-Remote-User", user.name)]
    if user.uid:
        found.append(("X-Remote-Uid", user.uid))
    found += [("X-Remote-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        found += [(f"X-Remote-Extra-{quote(key, safe='')}", value) for value in values]
    return found
