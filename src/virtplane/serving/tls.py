"""Versions of TLS and ciphers that servers accept, and how they refuse others."""

from __future__ import annotations

import logging
import ssl
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from kubecore.runtime import Context

logger = logging.getLogger(__name__)

_VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_TLS_13 = "TLS_"
"""Ciphers of TLS 1.3 begin so. OpenSSL always offers all of them."""
_OLDEST_ALLOWED = "@SECLEVEL=0"
"""OpenSSL refuses what is older than TLS 1.2 at any other level."""


@dataclass(frozen=True, slots=True)
class TLSSettings:
    """Names of ciphers as OpenSSL has them, and the oldest version; empty members leave the defaults."""

    ciphers: tuple[str, ...] = ()
    min_version: str = ""

    def apply(self, context: ssl.SSLContext) -> None:
        """Restrict a server. Ciphers that OpenSSL does not know are left out. Raises ValueError."""
        if self.min_version:
            if self.min_version not in _VERSIONS:
                raise ValueError(f"{self.min_version!r} is no version of TLS")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the administrator wants old clients
                context.minimum_version = _VERSIONS[self.min_version]
        is_old = self.min_version in ("VersionTLS10", "VersionTLS11")
        wanted = [each for each in self.ciphers if each and not each.startswith(_TLS_13)]
        if not wanted:
            if is_old:
                context.set_ciphers(f"DEFAULT:{_OLDEST_ALLOWED}")
            return
        known = _known()
        older = [each for each in wanted if each in known]
        if not older:
            raise ValueError(f"none of the ciphers is known: {', '.join(wanted)}")
        if is_old:
            older.append(_OLDEST_ALLOWED)
        context.set_ciphers(":".join(older))


@dataclass(frozen=True, slots=True)
class _Usual:
    """What a server accepts that nobody restricts."""

    oldest: ssl.TLSVersion
    ciphers: str

    @classmethod
    def of(cls, context: ssl.SSLContext) -> _Usual:
        older = [each["name"] for each in context.get_ciphers() if not each["name"].startswith(_TLS_13)]
        level = f"@SECLEVEL={context.security_level}"
        return cls(context.minimum_version, ":".join([*older, level]))

    def restore(self, context: ssl.SSLContext) -> None:
        context.minimum_version = self.oldest
        context.set_ciphers(self.ciphers)


class ServersTLS:
    """What some servers accept, which can change: connections that come afterwards find it so.

    `chosen_by` is the field that says so, in words of its owner.
    """

    def __init__(self, chosen_by: str = "KubeVirt's tlsConfiguration") -> None:
        self._chosen_by = chosen_by
        self._settings = TLSSettings()
        self._servers: WeakKeyDictionary[ssl.SSLContext, _Usual] = WeakKeyDictionary()

    @classmethod
    def of(cls, context: Context) -> ServersTLS:
        """That of the process of these components; one that never changes where it has none."""
        found = context.settings.get(SERVERS_TLS)
        return found if isinstance(found, cls) else cls()

    def restrict(self, server: ssl.SSLContext) -> None:
        """Restrict one more server, as long as it exists."""
        self._servers[server] = _Usual.of(server)
        self._apply(server)

    def set(self, settings: TLSSettings) -> None:
        """Restrict all servers so from now on. What means nothing is logged, and the rest acts."""
        if settings == self._settings:
            return
        self._settings = settings
        for server, usual in self._servers.items():
            usual.restore(server)
            self._apply(server)

    def _apply(self, server: ssl.SSLContext) -> None:
        try:
            self._settings.apply(server)
        except ValueError as error:
            logger.error("TLS is not restricted as %s says, correct it: %s", self._chosen_by, error)


SERVERS_TLS = "servers_tls"
"""The setting of a process that holds its `ServersTLS`."""


class ChangingTLS(ssl.SSLContext):
    """What a listening server has whose certificate changes: new connections get what is `current` then."""

    current: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As of the current one."""
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class TellingTLS(ssl.SSLObject):
    """A server's side of a connection that tells a client why it is refused, by TLS's alert.

    Event loops close a connection whose handshake fails without sending what OpenSSL has written last, the
    alert. So a failure is first told as if more bytes were needed, upon which they send what is there; when
    the client answers, goes or says nothing until the time for a handshake has passed, the connection ends.
    """

    _failure: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """Raises SSLError."""
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._failure = error
            raise ssl.SSLWantReadError(*error.args) from error


def _known() -> set[str]:
    """The names of all ciphers that OpenSSL has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(f"ALL:{_OLDEST_ALLOWED}")
    return {each["name"] for each in context.get_ciphers()}
