"""KubeVirt: the installation itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import LocalObjectReference, NodePlacement
from virtplane.api.kubevirt_v1.configuration import KubeVirtConfiguration
from virtplane.api.markers import (
    ATOMIC,
    ApiStruct,
    Duration,
    Int,
    Int64,
    UInt8,
    describe,
    mark,
    requested_one_of,
)
from virtplane.api.meta_v1 import ObjectMeta


class CertConfig(ApiStruct, kw_only=True):
    """How long certificates live and how long before their end they are renewed."""

    duration: Duration | None = None
    renew_before: Duration | None = None


class KubeVirtSelfSignConfiguration(ApiStruct, kw_only=True):
    """Lifetimes of self-signed certificates."""

    ca: CertConfig | None = None
    ca_overlap_interval: Duration | None = None
    ca_rotate_interval: Duration | None = None
    cert_rotate_interval: Duration | None = None
    server: CertConfig | None = None


class KubeVirtCertificateRotateStrategy(ApiStruct, kw_only=True):
    """How certificates are renewed."""

    self_signed: KubeVirtSelfSignConfiguration | None = None


class Flags(ApiStruct, kw_only=True):
    """Command line flags given to components."""

    api: Mapping[str, str] = field(default_factory=dict)
    controller: Mapping[str, str] = field(default_factory=dict)
    handler: Mapping[str, str] = field(default_factory=dict)


class CustomizeComponentsPatch(ApiStruct, kw_only=True):
    """A patch of one installed object."""

    patch: str
    resource_name: Annotated[str, mark(minLength=1)]
    resource_type: Annotated[str, mark(minLength=1)]
    type: str


class CustomizeComponents(ApiStruct, kw_only=True):
    """Changes applied to the installed objects."""

    flags: Flags | None = None
    patches: Annotated[tuple[CustomizeComponentsPatch, ...], ATOMIC] = ()


class ComponentConfig(ApiStruct, kw_only=True):
    """Where components run and how many of them."""

    node_placement: NodePlacement | None = None
    replicas: UInt8 | None = None


class KubeVirtWorkloadUpdateStrategy(ApiStruct, kw_only=True):
    """How running guests get a new launcher after an update."""

    batch_eviction_interval: Duration | None = None
    batch_eviction_size: Int | None = None
    workload_update_methods: Annotated[tuple[str, ...], ATOMIC] = ()


class KubeVirtSpec(ApiStruct, kw_only=True):
    """Where images come from, how many replicas run where, certificates, and the configuration."""

    certificate_rotate_strategy: KubeVirtCertificateRotateStrategy | None = None
    configuration: Annotated[KubeVirtConfiguration | None, describe("Settings of the installation.")] = None
    customize_components: CustomizeComponents | None = None
    image_pull_policy: Annotated[str | None, requested_one_of("Always", "IfNotPresent", "Never")] = None
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], ATOMIC] = ()
    image_registry: str | None = None
    image_tag: str | None = None
    infra: Annotated[
        ComponentConfig | None, describe("Where control-plane components run and how many of them.")
    ] = None
    monitor_account: str | None = None
    monitor_namespace: str | None = None
    product_component: str | None = None
    product_name: str | None = None
    product_version: str | None = None
    service_monitor_namespace: str | None = None
    synchronization_port: str | None = None
    uninstall_strategy: Annotated[
        str | None, describe("RemoveWorkloads, or BlockUninstallIfWorkloadsExist.")
    ] = None
    workload_update_strategy: KubeVirtWorkloadUpdateStrategy | None = None
    workloads: Annotated[ComponentConfig | None, describe("Where node components, and so guests, run.")] = (
        None
    )


class GenerationStatus(ApiStruct, kw_only=True):
    """The generation of an installed object that was applied last."""

    group: str
    hash: str | None = None
    last_generation: Int64
    name: str
    namespace: str | None = None
    resource: str


class KubeVirtStatus(ApiStruct, kw_only=True):
    """Phase and conditions of the installation."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: tuple[Condition, ...] = ()
    default_architecture: str | None = None
    generations: Annotated[tuple[GenerationStatus, ...], ATOMIC] = ()
    observed_deployment_config: str | None = None
    observed_deployment_id: str | None = field(default=None, name="observedDeploymentID")
    observed_generation: Int64 | None = None
    observed_kube_virt_registry: str | None = None
    observed_kube_virt_version: str | None = None
    operator_version: str | None = None
    outdated_virtual_machine_instance_workloads: Int | None = None
    phase: Annotated[str | None, describe("Deploying, Deployed, Deleting or Deleted.")] = None
    synchronization_addresses: Annotated[tuple[str, ...], ATOMIC] = ()
    target_deployment_config: str | None = None
    target_deployment_id: str | None = field(default=None, name="targetDeploymentID")
    target_kube_virt_registry: str | None = None
    target_kube_virt_version: str | None = None


class KubeVirt(ApiStruct, kw_only=True):
    """The installation: what is installed and how it is set up."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: KubeVirtSpec
    status: KubeVirtStatus | None = None
