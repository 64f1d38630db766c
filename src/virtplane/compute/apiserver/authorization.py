"""Authentication by the front proxy's certificate and headers, authorization by SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.resources import ResourceType
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS

PROXY_CONFIG = "extension-apiserver-authentication"
"""The ConfigMap of ``kube-system`` in which the API server says how it vouches for its users."""
REQUIRE_WEBHOOK_CERTIFICATE = "require_webhook_certificate"
"""The setting of a process by which its webhooks answer the API server alone."""
_REVIEWS = ResourceType("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
_VERBS = {"GET": "get", "PUT": "update", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_OPEN_PATHS = frozenset({"/", "/apis", "/healthz", "/openapi/v2", "/openapi/v3"})
_OPEN_ENDS = ("", "/version", "/guestfs", "/healthz", "/start-cluster-profiler", "/stop-cluster-profiler")


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


def is_open(path: str) -> bool:
    """Whether every user may read the path."""
    if path in _OPEN_PATHS or path.startswith("/openapi/v3/"):
        return True
    bases = [f"/apis/{SUBRESOURCES_GROUP}/{version}" for version in SUBRESOURCES_VERSIONS]
    return any(path == base + end for base in bases for end in _OPEN_ENDS)


def attributes(method: str, path: str) -> JsonObject | None:
    """What access is needed for a request, None for paths that mean nothing."""
    parts = path.strip("/").split("/")
    if len(parts) < 6 or parts[:2] != ["apis", SUBRESOURCES_GROUP] or parts[3] != "namespaces":
        return None
    verb = _VERBS.get(method)
    if verb is None:
        return None
    found: JsonObject = {
        "group": SUBRESOURCES_GROUP,
        "version": parts[2],
        "namespace": parts[4],
        "resource": parts[5],
        "verb": verb,
    }
    if len(parts) > 6:
        found["name"] = parts[6]
    if len(parts) > 7:
        found["subresource"] = "portforward" if parts[7] == "portforward" else "/".join(parts[7:])
    return found


class Authorizer:
    """Asks the API server whether users may."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def refusal(self, user: User, wanted: JsonObject) -> str:
        """Why the user is not authorized; empty if he is. Raises StatusError if the API server cannot
        tell.
        """
        spec: JsonObject = {"user": user.name, "groups": list(user.groups), "resourceAttributes": wanted}
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        review = {"apiVersion": _REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
        answer = get_object(await self._client.create(_REVIEWS, review), "status")
        if answer.get("allowed") is True:
            return ""
        return get_str(answer, "reason") or "not allowed"
