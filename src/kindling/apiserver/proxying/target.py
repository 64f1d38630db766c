"""Where a proxied request goes, and what it carries."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from multidict import CIMultiDict
from yarl import URL

from ..registry.context import UserInfo

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "host", "content-length"}
)
_IDENTITY_PREFIXES = ("impersonate-", "x-remote-")


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
        """The target as a URL, not encoded again."""
        scheme = "https" if self.tls is not None else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return URL(f"{scheme}://{host}:{self.port}{self.path}", encoded=True)


def forwarded_headers(
    headers: CIMultiDict[str] | Iterable[tuple[str, str]], extra: list[tuple[str, str]], *, upgrade: bool
) -> CIMultiDict[str]:
    """End-to-end headers of a request without its credentials; upgrades keep what makes them upgrades."""
    pairs = headers.items() if isinstance(headers, CIMultiDict) else headers
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in pairs:
        lower = name.lower()
        if lower == "authorization" or lower.startswith(_IDENTITY_PREFIXES):
            continue
        if lower in _HOP_BY_HOP and not (upgrade and lower in ("connection", "upgrade", "content-length")):
            continue
        kept.add(name, value)
    for name, value in extra:
        kept.add(name, value)
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
