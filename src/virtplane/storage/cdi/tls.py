"""Versions of TLS and ciphers that CDI's servers accept: the profiles of OpenShift."""

from __future__ import annotations

import ssl
import warnings
from dataclasses import dataclass

from virtplane.api.cdi_v1beta1.cdi_config import TLSSecurityProfile

_VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_TLS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""The ciphers of TLS 1.3: OpenSSL always offers all of them."""
_INTERMEDIATE = (
    *_TLS_13,
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "DHE-RSA-AES128-GCM-SHA256",
    "DHE-RSA-AES256-GCM-SHA384",
)
_OLD = (
    *_INTERMEDIATE,
    "DHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-RSA-AES256-SHA384",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "DHE-RSA-AES128-SHA256",
    "DHE-RSA-AES256-SHA256",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA256",
    "AES256-SHA256",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
)
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
        older = [each for each in self.ciphers if each and each not in _TLS_13]
        if not older:
            return
        if self.min_version in ("VersionTLS10", "VersionTLS11"):
            older.append(_OLDEST_ALLOWED)
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise ValueError(f"none of the ciphers is known: {', '.join(self.ciphers)}") from error


def chosen(profile: TLSSecurityProfile | None) -> TLSSettings:
    """The settings of a profile; the defaults where none is chosen."""
    if profile is None:
        return TLSSettings()
    if profile.custom is not None:
        return TLSSettings(profile.custom.ciphers, profile.custom.min_tls_version)
    match profile.type:
        case "Old":
            return TLSSettings(_OLD, "VersionTLS10")
        case "Intermediate":
            return TLSSettings(_INTERMEDIATE, "VersionTLS12")
        case "Modern":
            return TLSSettings(_TLS_13, "VersionTLS13")
        case _:
            return TLSSettings()
