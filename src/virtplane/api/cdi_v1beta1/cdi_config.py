"""CDIConfig: how data volumes are made in this cluster, and the settings of the same form in CDI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.core_v1 import LocalObjectReference, ResourceRequirements
from virtplane.api.markers import NULLABLE, REQUIRED, ApiStruct, Int32, mark, one_of
from virtplane.api.meta_v1 import ObjectMeta

OVERHEAD_PATTERN = r"^(0(?:\.\d{1,3})?|1)$"
"""A share from 0 to 1 with up to three decimals."""
Overhead = Annotated[str, mark(pattern=OVERHEAD_PATTERN)]


class FilesystemOverhead(ApiStruct, kw_only=True):
    """The share of a volume that its file system takes: of all classes, and of single ones."""

    global_: Annotated[Overhead | None, mark()] = field(default=None, name="global")
    storage_class: Mapping[str, Overhead] = field(default_factory=dict)


class ImportProxy(ApiStruct, kw_only=True):
    """The proxy through which importers reach their sources."""

    http_proxy: str | None = field(default=None, name="HTTPProxy")
    https_proxy: str | None = field(default=None, name="HTTPSProxy")
    no_proxy: str | None = None
    trusted_ca_proxy: str | None = field(default=None, name="trustedCAProxy")
    """The ConfigMap with the authorities that the proxy is verified by."""


class CustomTLSProfile(ApiStruct, kw_only=True):
    """Ciphers and the oldest version, one by one."""

    ciphers: tuple[str, ...]
    min_tls_version: Annotated[
        str, one_of("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
    ] = field(name="minTLSVersion")


class TLSProfileChoice(ApiStruct, kw_only=True):
    """A profile that has no settings."""


class TLSSecurityProfile(ApiStruct, kw_only=True):
    """Which versions of TLS and which ciphers servers accept."""

    custom: Annotated[CustomTLSProfile | None, NULLABLE] = None
    intermediate: Annotated[TLSProfileChoice | None, NULLABLE] = None
    modern: Annotated[TLSProfileChoice | None, NULLABLE] = None
    old: Annotated[TLSProfileChoice | None, NULLABLE] = None
    type: Annotated[str | None, one_of("Old", "Intermediate", "Modern", "Custom")] = None


class CDIConfigSpec(ApiStruct, kw_only=True):
    """What an administrator wants otherwise than the defaults are."""

    data_volume_ttl_seconds: Int32 | None = field(default=None, name="dataVolumeTTLSeconds")
    feature_gates: tuple[str, ...] = ()
    filesystem_overhead: FilesystemOverhead = FilesystemOverhead()
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    import_proxy: ImportProxy | None = None
    insecure_registries: tuple[str, ...] = ()
    log_verbosity: Int32 | None = None
    pod_resource_requirements: ResourceRequirements | None = None
    preallocation: bool | None = None
    scratch_space_storage_class: str | None = None
    tls_security_profile: TLSSecurityProfile | None = None
    upload_proxy_url_override: str | None = field(default=None, name="uploadProxyURLOverride")
    webhook_pvc_rendering: str | None = None
    """``Enabled`` (default) or ``Disabled``."""


class CDIConfigStatus(ApiStruct, kw_only=True):
    """What holds: the spec, what was found in the cluster, and the defaults."""

    default_pod_resource_requirements: ResourceRequirements | None = None
    filesystem_overhead: FilesystemOverhead = FilesystemOverhead()
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    import_proxy: ImportProxy | None = None
    preallocation: bool | None = None
    scratch_space_storage_class: str | None = None
    upload_proxy_ca: str | None = field(default=None, name="uploadProxyCA")
    upload_proxy_url: str | None = field(default=None, name="uploadProxyURL")


class CDIConfig(ApiStruct, kw_only=True):
    """How data volumes are made in this cluster. There is one object, ``config``."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CDIConfigSpec, REQUIRED] = CDIConfigSpec()
    status: CDIConfigStatus = CDIConfigStatus()
