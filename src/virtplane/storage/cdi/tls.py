"""Versions of TLS and ciphers that CDI's servers accept: the profiles of OpenShift."""

from __future__ import annotations

import logging

from kubecore.objects.structs import UnfitDocument
from kubecore.runtime import Manager
from virtplane.api.cdi_names import CONFIG
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig, TLSSecurityProfile
from virtplane.api.resources import CDI_CONFIGS
from virtplane.serving.tls import ServersTLS, TLSSettings

logger = logging.getLogger(__name__)

_TLS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
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


def servers_tls(manager: Manager) -> ServersTLS:
    """What CDIConfig says of TLS, as `manager` watches it; as before while that cannot be read."""
    servers = ServersTLS("CDIConfig's tlsSecurityProfile")
    configs = manager.informer(CDI_CONFIGS, struct=CDIConfig)

    def take_over(*_: object) -> None:
        try:
            config = configs.get(None, CONFIG)
        except UnfitDocument as error:
            logger.error("the TLS profile stays as it was, correct CDIConfig: %s", error)
            return
        servers.set(chosen(config.spec.tls_security_profile if config is not None else None))

    configs.add_handler(take_over)
    configs.add_unfit_handler(take_over)
    return servers
