"""CDIConfig: how data volumes are made in this cluster, and the settings of the same form in CDI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.core_v1 import LocalObjectReference, ResourceRequirements
from virtplane.api.markers import NULLABLE, REQUIRED, ApiStruct, Int32, describe, mark, one_of
from virtplane.api.meta_v1 import ObjectMeta

OVERHEAD_PATTERN = r"^(0(?:\.\d{1,3})?|1)$"
"""A share from 0 to 1 with up to three decimals."""
Overhead = Annotated[str, mark(pattern=OVERHEAD_PATTERN)]


class FilesystemOverhead(ApiStruct, kw_only=True):
    """The share of volumes that their file system takes: 0 to 1, with up to three decimals."""

    global_: Annotated[
        Overhead | None,
        mark(),
        describe("Share in all classes that storageClass does not list; 0.06 by default."),
    ] = field(default=None, name="global")
    storage_class: Annotated[Mapping[str, Overhead], describe("Shares by storage class.")] = field(
        default_factory=dict
    )


class ImportProxy(ApiStruct, kw_only=True):
    """The proxy of importers and of pollers."""

    http_proxy: Annotated[
        str | None, describe("Address of the proxy for http, such as http://proxy:3128.")
    ] = field(default=None, name="HTTPProxy")
    https_proxy: Annotated[str | None, describe("Address of the proxy for https.")] = field(
        default=None, name="HTTPSProxy"
    )
    no_proxy: Annotated[
        str | None, describe("Hosts that are reached directly, with commas between them.")
    ] = None
    trusted_ca_proxy: Annotated[
        str | None,
        describe("ConfigMap of CDI's namespace with the authorities that the proxy is verified by."),
    ] = field(default=None, name="trustedCAProxy")


class CustomTLSProfile(ApiStruct, kw_only=True):
    """Ciphers and the oldest version, one by one."""

    ciphers: Annotated[tuple[str, ...], describe("Cipher suites, by OpenSSL's names.")]
    min_tls_version: Annotated[
        str,
        one_of("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
        describe("The oldest version that is accepted."),
    ] = field(name="minTLSVersion")


class TLSProfileChoice(ApiStruct, kw_only=True):
    """A profile that has no settings."""


class TLSSecurityProfile(ApiStruct, kw_only=True):
    """Which versions of TLS and which ciphers servers accept."""

    custom: Annotated[
        CustomTLSProfile | None, NULLABLE, describe("Settings of one's own; they count whatever the type.")
    ] = None
    intermediate: Annotated[TLSProfileChoice | None, NULLABLE, describe("No effect; the type says it.")] = (
        None
    )
    modern: Annotated[TLSProfileChoice | None, NULLABLE, describe("No effect; the type says it.")] = None
    old: Annotated[TLSProfileChoice | None, NULLABLE, describe("No effect; the type says it.")] = None
    type: Annotated[
        str | None,
        one_of("Old", "Intermediate", "Modern", "Custom"),
        describe("Old, Intermediate, Modern or Custom; by default TLS 1.2 with OpenSSL's ciphers."),
    ] = None


class CDIConfigSpec(ApiStruct, kw_only=True):
    """What an administrator wants otherwise than the defaults are."""

    data_volume_ttl_seconds: Annotated[Int32 | None, describe("No effect: finished DataVolumes stay.")] = (
        field(default=None, name="dataVolumeTTLSeconds")
    )
    feature_gates: Annotated[
        tuple[str, ...], describe("HonorWaitForFirstConsumer and DataVolumeClaimAdoption are known.")
    ] = ()
    filesystem_overhead: FilesystemOverhead = FilesystemOverhead()
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...], describe("Secrets for the registry of worker pods' images.")
    ] = ()
    import_proxy: Annotated[
        ImportProxy | None, describe("The proxy of importers; by default that of the cluster (OpenShift).")
    ] = None
    insecure_registries: Annotated[
        tuple[str, ...], describe("Registries, as host or host:port, whose certificate is not verified.")
    ] = ()
    log_verbosity: Annotated[
        Int32 | None,
        describe("How much components log: 0 to 9; from 3 on debugging messages, from 6 on requests."),
    ] = None
    pod_resource_requirements: Annotated[
        ResourceRequirements | None, describe("CPU and memory of worker pods, in place of the defaults.")
    ] = None
    preallocation: Annotated[
        bool | None,
        describe("Whether volumes are allocated as a whole unless they say otherwise; false by default."),
    ] = None
    scratch_space_storage_class: Annotated[
        str | None, describe("Class of scratch space; by default that of the claim that is filled.")
    ] = None
    tls_security_profile: TLSSecurityProfile | None = None
    upload_proxy_url_override: Annotated[
        str | None, describe("Address of the upload proxy for clients, in place of the one that is found.")
    ] = field(default=None, name="uploadProxyURLOverride")
    webhook_pvc_rendering: Annotated[
        str | None,
        describe(
            "Enabled (default) completes claims with the label cdi.kubevirt.io/applyStorageProfile;"
            " or Disabled."
        ),
    ] = None


class CDIConfigStatus(ApiStruct, kw_only=True):
    """What holds: the spec, what was found in the cluster, and the defaults. cdi-deployment writes it."""

    default_pod_resource_requirements: Annotated[
        ResourceRequirements | None, describe("CPU and memory of worker pods.")
    ] = None
    filesystem_overhead: FilesystemOverhead = FilesystemOverhead()
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...], describe("Secrets for the registry of worker pods' images.")
    ] = ()
    import_proxy: ImportProxy | None = None
    preallocation: Annotated[
        bool | None, describe("Whether volumes are allocated as a whole unless they say otherwise.")
    ] = None
    scratch_space_storage_class: Annotated[
        str | None, describe("Class of scratch space; absent for that of the claim.")
    ] = None
    upload_proxy_ca: Annotated[
        str | None, describe("Certificates that clients verify the upload proxy by, in PEM.")
    ] = field(default=None, name="uploadProxyCA")
    upload_proxy_url: Annotated[
        str | None, describe("Address of the upload proxy for clients outside the cluster.")
    ] = field(default=None, name="uploadProxyURL")


class CDIConfig(ApiStruct, kw_only=True):
    """How data volumes are made in this cluster. There is one object, ``config``."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CDIConfigSpec, REQUIRED] = CDIConfigSpec()
    status: CDIConfigStatus = CDIConfigStatus()
