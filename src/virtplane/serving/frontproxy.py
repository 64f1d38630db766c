"""Authentication by the front proxy's certificate and headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from kubecore.json import JsonObject, get_object, get_str

PROXY_CONFIG = "extension-apiserver-authentication"
"""The ConfigMap of ``kube-system`` in which the API server says how it vouches for its users."""
REQUIRE_WEBHOOK_CERTIFICATE = "require_webhook_certificate"
"""The setting of a process by which its webhooks answer the API server alone."""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """How the API server vouches for its users (ConfigMap ``extension-apiserver-authentication``)."""

    authorities: str = ""
    allowed_names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def of(cls, config_map: JsonObject) -> ProxySettings:
        """The settings that the ConfigMap holds."""
        data = get_object(config_map, "data")
        defaults = cls()
        return cls(
            authorities=get_str(data, "requestheader-client-ca-file"),
            allowed_names=frozenset(_names(data, "requestheader-allowed-names")),
            user_headers=_names(data, "requestheader-username-headers") or defaults.user_headers,
            group_headers=_names(data, "requestheader-group-headers") or defaults.group_headers,
            extra_prefixes=_names(data, "requestheader-extra-headers-prefix") or defaults.extra_prefixes,
        )


def _names(data: JsonObject, key: str) -> tuple[str, ...]:
    text = get_str(data, key)
    if not text:
        return ()
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ()
    return tuple(str(item) for item in found) if isinstance(found, list) else ()


@dataclass(frozen=True, slots=True)
class User:
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def user_of(headers: Iterable[tuple[str, str]], settings: ProxySettings) -> User | None:
    """The user that the front proxy names; None when it names none."""
    names = {name.lower() for name in settings.user_headers}
    groups_in = {name.lower() for name in settings.group_headers}
    user, groups = "", []
    extra: dict[str, list[str]] = {}
    for key, value in headers:
        lower = key.lower()
        if lower in names:
            user = user or value
        elif lower in groups_in:
            groups.append(value)
        else:
            for prefix in settings.extra_prefixes:
                if lower.startswith(prefix.lower()):
                    extra.setdefault(lower[len(prefix) :], []).append(value)
    if not user:
        return None
    return User(user, tuple(groups), {key: tuple(values) for key, values in extra.items()})


def is_front_proxy(transport: object, settings: ProxySettings) -> bool:
    """Whether the client certificate is one of the API server's front proxy.

    The TLS context has verified the certificate. Without allowed names, every name of that CA is accepted.
    """
    found = getattr(transport, "get_extra_info", None)
    certificate = found("peercert") if found is not None else None
    if not certificate or not settings.authorities:
        return False
    return not settings.allowed_names or peer_common_name(certificate) in settings.allowed_names


def peer_common_name(certificate: object) -> str:
    """The common name of a peer's certificate as the ssl module describes it."""
    if not isinstance(certificate, dict):
        return ""
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""
