"""What CDIConfig should say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.cdi_v1beta1.cdi_config import (
    OVERHEAD_PATTERN,
    CDIConfigSpec,
    CDIConfigStatus,
    FilesystemOverhead,
    ImportProxy,
)
from virtplane.api.core_v1 import ResourceRequirements
from virtplane.api.markers import ApiStruct
from virtplane.api.storage_kinds import StorageClass

UPLOAD_PROXY = "cdi-uploadproxy"
"""The service that users upload to."""
DEFAULT_OVERHEAD = "0.06"
_DEFAULT_LIMITS: dict[str, str | int] = {"cpu": "750m", "memory": "600M"}
_DEFAULT_REQUESTS: dict[str, str | int] = {"cpu": "100m", "memory": "60M"}


class IngressServiceBackend(ApiStruct, kw_only=True):
    """The service behind a path."""

    name: str = ""


class IngressBackend(ApiStruct, kw_only=True):
    """What is behind a path."""

    service: IngressServiceBackend | None = None


class HTTPIngressPath(ApiStruct, kw_only=True):
    """One path of a host."""

    backend: IngressBackend = IngressBackend()


class HTTPIngressRule(ApiStruct, kw_only=True):
    """The paths of a host."""

    paths: tuple[HTTPIngressPath, ...] = ()


class IngressRule(ApiStruct, kw_only=True):
    """A host, and what is behind it."""

    host: str = ""
    http: HTTPIngressRule | None = None


class IngressTLS(ApiStruct, kw_only=True):
    """The certificate of some hosts."""

    secret_name: str = ""


class IngressSpec(ApiStruct, kw_only=True):
    """What an Ingress publishes."""

    default_backend: IngressBackend | None = None
    rules: tuple[IngressRule, ...] = ()
    tls: tuple[IngressTLS, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """Where the upload proxy is reached from outside, and the authority of its certificate."""

    url: str | None = None
    authority: str | None = None


def wanted_spec(installation: CDI, current: CDIConfigSpec) -> CDIConfigSpec:
    """The spec that holds: that of the CDI object where it has the say, else the config's own."""
    if names.CONFIG_AUTHORITY not in installation.metadata.annotations:
        return current
    return installation.spec.config or CDIConfigSpec()


def wanted_status(
    spec: CDIConfigSpec, classes: Iterable[StorageClass], published: Published, proxy: ImportProxy | None
) -> CDIConfigStatus:
    """The settings that follow from `spec`. `proxy` is the cluster's own, which the spec's replaces."""
    known = {each.metadata.name for each in classes}
    scratch = spec.scratch_space_storage_class
    return CDIConfigStatus(
        default_pod_resource_requirements=pod_resources(spec.pod_resource_requirements),
        filesystem_overhead=overhead(spec.filesystem_overhead, known),
        image_pull_secrets=spec.image_pull_secrets,
        import_proxy=_complete(spec.import_proxy or proxy or ImportProxy()),
        preallocation=True if spec.preallocation else None,
        scratch_space_storage_class=scratch if scratch in known else None,
        upload_proxy_ca=published.authority,
        upload_proxy_url=spec.upload_proxy_url_override or published.url,
    )


def pod_resources(wanted: ResourceRequirements | None) -> ResourceRequirements:
    """The resources of worker pods: processors and memory can be said one by one."""
    limits, requests = dict(_DEFAULT_LIMITS), dict(_DEFAULT_REQUESTS)
    if wanted is not None:
        limits |= _known(wanted.limits, limits)
        requests |= _known(wanted.requests, requests)
    return ResourceRequirements(limits=limits, requests=requests)


def overhead(wanted: FilesystemOverhead, classes: Iterable[str]) -> FilesystemOverhead:
    """The share of file systems in every class; what is no share counts as the default."""
    pattern = re.compile(OVERHEAD_PATTERN)
    given = wanted.global_ or ""
    everywhere = given if pattern.match(given) else DEFAULT_OVERHEAD
    single = {
        name: share if (share := wanted.storage_class.get(name, "")) and pattern.match(share) else everywhere
        for name in sorted(classes)
    }
    return FilesystemOverhead(global_=everywhere, storage_class=single)


def host_of(spec: IngressSpec) -> str:
    """The host under which an Ingress publishes the upload proxy; empty if it does not."""
    if _is_upload_proxy(spec.default_backend):
        return next((rule.host for rule in spec.rules if rule.host), "")
    for rule in spec.rules:
        if (
            rule.host
            and rule.http is not None
            and any(_is_upload_proxy(path.backend) for path in rule.http.paths)
        ):
            return rule.host
    return ""


def _is_upload_proxy(backend: IngressBackend | None) -> bool:
    return backend is not None and backend.service is not None and backend.service.name == UPLOAD_PROXY


def _known(given: Mapping[str, str | int], defaults: Mapping[str, str | int]) -> dict[str, str | int]:
    return {name: value for name, value in given.items() if name in defaults}


def _complete(proxy: ImportProxy) -> ImportProxy:
    """The proxy with every setting said: users look here for what holds."""
    return ImportProxy(
        http_proxy=proxy.http_proxy or "",
        https_proxy=proxy.https_proxy or "",
        no_proxy=proxy.no_proxy or "",
        trusted_ca_proxy=proxy.trusted_ca_proxy or "",
    )
