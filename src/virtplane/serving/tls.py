"""Versions of TLS and ciphers that servers accept."""

from __future__ import annotations

import ssl
import warnings
from dataclasses import dataclass

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
        wanted = [each for each in self.ciphers if each and not each.startswith(_TLS_13)]
        if not wanted:
            return
        known = _known()
        older = [each for each in wanted if each in known]
        if not older:
            raise ValueError(f"none of the ciphers is known: {', '.join(wanted)}")
        if self.min_version in ("VersionTLS10", "VersionTLS11"):
            older.append(_OLDEST_ALLOWED)
        context.set_ciphers(":".join(older))


def _known() -> set[str]:
    """The names of all ciphers that OpenSSL has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(f"ALL:{_OLDEST_ALLOWED}")
    return {each["name"] for each in context.get_ciphers()}
