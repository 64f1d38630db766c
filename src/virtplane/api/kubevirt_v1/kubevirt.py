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

    duration: Annotated[Duration | None, describe("How long each certificate is valid, such as 48h.")] = None
    renew_before: Annotated[
        Duration | None,
        describe("How long before its end a certificate is renewed, such as 12h; less than the duration."),
    ] = None


class KubeVirtSelfSignConfiguration(ApiStruct, kw_only=True):
    """Lifetimes of the authorities and certificates that virt-operator issues."""

    ca: Annotated[
        CertConfig | None,
        describe("Lifetime of the authorities: 168h by default, renewed in the last fifth."),
    ] = None
    ca_overlap_interval: Annotated[
        Duration | None, describe("Deprecated: ca.renewBefore. Refused beside ca and server.")
    ] = None
    ca_rotate_interval: Annotated[
        Duration | None, describe("Deprecated: ca.duration. Refused beside ca and server.")
    ] = None
    cert_rotate_interval: Annotated[
        Duration | None, describe("Deprecated: server.duration. Refused beside ca and server.")
    ] = None
    server: Annotated[
        CertConfig | None,
        describe("Lifetime of the components' certificates: 24h by default, renewed in the last fifth."),
    ] = None


class KubeVirtCertificateRotateStrategy(ApiStruct, kw_only=True):
    """How the certificates of components are renewed."""

    self_signed: KubeVirtSelfSignConfiguration | None = None


class Flags(ApiStruct, kw_only=True):
    """Command line flags given to components. Only v, the verbosity of logs, has an effect."""

    api: Annotated[
        Mapping[str, str], describe("Flags of virt-api. Only v counts, where logVerbosity does not say.")
    ] = field(default_factory=dict)
    controller: Annotated[
        Mapping[str, str],
        describe("Flags of virt-controller. Only v counts, where logVerbosity does not say."),
    ] = field(default_factory=dict)
    handler: Annotated[
        Mapping[str, str], describe("Flags of virt-handler. Only v counts, where logVerbosity does not say.")
    ] = field(default_factory=dict)


class CustomizeComponentsPatch(ApiStruct, kw_only=True):
    """A patch of the installed objects of one kind and name."""

    patch: Annotated[str, describe("The patch, in JSON.")]
    resource_name: Annotated[
        str, mark(minLength=1), describe("Name of the object to patch; a star stands for all.")
    ]
    resource_type: Annotated[
        str,
        mark(minLength=1),
        describe("Kind of the object to patch, such as Deployment; a star stands for all."),
    ]
    type: Annotated[str, describe("How the patch is written: json, merge or strategic.")]


class CustomizeComponents(ApiStruct, kw_only=True):
    """Changes applied to the installed objects."""

    flags: Flags | None = None
    patches: Annotated[
        tuple[CustomizeComponentsPatch, ...],
        ATOMIC,
        describe("Patches, applied in this order each time an object is written."),
    ] = ()


class ComponentConfig(ApiStruct, kw_only=True):
    """Where components run and how many of them."""

    node_placement: NodePlacement | None = None
    replicas: Annotated[
        UInt8 | None,
        describe(
            "Pods of each component; by default 2, of virt-api more in large clusters. No effect in"
            " workloads."
        ),
    ] = None


class KubeVirtWorkloadUpdateStrategy(ApiStruct, kw_only=True):
    """How running guests get to a launcher of a new image."""

    batch_eviction_interval: Annotated[
        Duration | None, describe("Time between the evictions of two batches, such as 5m; 1m by default.")
    ] = None
    batch_eviction_size: Annotated[Int | None, describe("Most guests evicted at once; 10 by default.")] = None
    workload_update_methods: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe(
            "Evict shuts guests down to update them. LiveMigrate has no effect yet. Empty: they stay"
            " as they are."
        ),
    ] = ()


class KubeVirtSpec(ApiStruct, kw_only=True):
    """Where images come from, how many replicas run where, certificates, and the configuration."""

    certificate_rotate_strategy: KubeVirtCertificateRotateStrategy | None = None
    configuration: KubeVirtConfiguration | None = None
    customize_components: CustomizeComponents | None = None
    image_pull_policy: Annotated[
        str | None,
        requested_one_of("Always", "IfNotPresent", "Never"),
        describe("When images of components are pulled: IfNotPresent (default), Always or Never."),
    ] = None
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...],
        ATOMIC,
        describe("Secrets for the registry of images, in the installation's namespace."),
    ] = ()
    image_registry: Annotated[
        str | None,
        describe("Registry of the images of components and launchers; by default the operator's own."),
    ] = None
    image_tag: Annotated[
        str | None, describe("Tag of the images of components and launchers; by default the operator's own.")
    ] = None
    infra: Annotated[
        ComponentConfig | None, describe("Where the control plane runs, and with how many pods.")
    ] = None
    monitor_account: Annotated[
        str | None,
        describe("Service account of Prometheus, which may read metrics; prometheus-k8s by default."),
    ] = None
    monitor_namespace: Annotated[
        str | None, describe("Namespace of that account; by default openshift-monitoring and monitoring.")
    ] = None
    product_component: Annotated[
        str | None,
        describe("Value of the label app.kubernetes.io/component on installed objects; kubevirt by default."),
    ] = None
    product_name: Annotated[
        str | None, describe("Value of the label app.kubernetes.io/part-of on installed objects.")
    ] = None
    product_version: Annotated[
        str | None, describe("Value of the label app.kubernetes.io/version on installed objects.")
    ] = None
    service_monitor_namespace: Annotated[
        str | None, describe("Namespace of the ServiceMonitor; by default the monitor's namespace.")
    ] = None
    synchronization_port: Annotated[
        str | None, describe("No effect: guests do not migrate between clusters.")
    ] = None
    uninstall_strategy: Annotated[
        str | None,
        describe(
            "RemoveWorkloads (default), or BlockUninstallIfWorkloadsExist: not deleted while there"
            " are machines."
        ),
    ] = None
    workload_update_strategy: KubeVirtWorkloadUpdateStrategy | None = None
    workloads: Annotated[
        ComponentConfig | None,
        describe("Where virt-handler runs, and so guests. Its replicas have no effect: each node has one."),
    ] = None


class GenerationStatus(ApiStruct, kw_only=True):
    """The generation that an installed object had when it was last applied."""

    group: Annotated[str, describe("API group of the object.")]
    hash: Annotated[str | None, describe("Always empty.")] = None
    last_generation: Annotated[
        Int64, describe("The object's generation; another one in the object means that somebody changed it.")
    ]
    name: Annotated[str, describe("Name of the object.")]
    namespace: Annotated[str | None, describe("Namespace of the object; absent for objects without.")] = None
    resource: Annotated[str, describe("Plural name of the kind, such as deployments.")]


class KubeVirtStatus(ApiStruct, kw_only=True):
    """Phase, conditions and versions of the installation, written by virt-operator."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[
        tuple[Condition, ...],
        describe("Available, Progressing and Degraded; Created; Synchronized if an update failed."),
    ] = ()
    default_architecture: Annotated[str | None, describe("Architecture of machines that name none.")] = None
    generations: Annotated[
        tuple[GenerationStatus, ...],
        ATOMIC,
        describe("Generations of the installed objects, to notice changes by others."),
    ] = ()
    observed_deployment_config: Annotated[
        str | None, describe("Parameters of the installed version, in JSON.")
    ] = None
    observed_deployment_id: Annotated[
        str | None, describe("Digest of the parameters of the installed version.")
    ] = field(default=None, name="observedDeploymentID")
    observed_generation: Annotated[
        Int64 | None, describe("Generation of this object up to which all is rolled out.")
    ] = None
    observed_kube_virt_registry: Annotated[
        str | None, describe("Registry of the installed version's images.")
    ] = None
    observed_kube_virt_version: Annotated[
        str | None, describe("The installed version, once all its components are ready.")
    ] = None
    operator_version: Annotated[str | None, describe("Version of virt-operator.")] = None
    outdated_virtual_machine_instance_workloads: Annotated[
        Int | None,
        describe("Guests that still run in a launcher of an older image; written by virt-controller."),
    ] = None
    phase: Annotated[str | None, describe("Deploying, Deployed (also during updates) or Deleting.")] = None
    synchronization_addresses: Annotated[
        tuple[str, ...], ATOMIC, describe("Never written: guests do not migrate between clusters.")
    ] = ()
    target_deployment_config: Annotated[
        str | None, describe("Parameters of the version that is being installed, in JSON.")
    ] = None
    target_deployment_id: Annotated[
        str | None, describe("Digest of the parameters of the version that is being installed.")
    ] = field(default=None, name="targetDeploymentID")
    target_kube_virt_registry: Annotated[
        str | None, describe("Registry of the images that are being installed.")
    ] = None
    target_kube_virt_version: Annotated[str | None, describe("The version that is being installed.")] = None


class KubeVirt(ApiStruct, kw_only=True):
    """The installation: what is installed and how it is set up."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: KubeVirtSpec
    status: KubeVirtStatus | None = None
