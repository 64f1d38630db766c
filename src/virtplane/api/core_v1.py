"""Kubernetes' own types that KubeVirt's objects embed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.markers import (
    ALWAYS_WRITTEN,
    ATOMIC,
    EMPTY_IS_SET,
    NULL_IS_WRITTEN,
    REQUIRED,
    ZERO_IS_UNSET,
    ApiStruct,
    Int32,
    Int64,
    IntOrString,
    Quantity,
    list_map,
    mark,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class NodeSelectorRequirement(ApiStruct, kw_only=True):
    """One comparison of a node's label or field with values."""

    key: str
    operator: Annotated[str, requested_one_of("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")]
    values: Annotated[tuple[str, ...], ATOMIC] = ()


class NodeSelectorTerm(ApiStruct, kw_only=True):
    """Requirements on a node that must all hold."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], ATOMIC] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], ATOMIC] = ()


class PreferredSchedulingTerm(ApiStruct, kw_only=True):
    """A node term with the weight it adds to a node's score (1-100)."""

    preference: NodeSelectorTerm
    weight: Int32


class NodeSelector(ApiStruct, kw_only=True):
    """Alternatives of node requirements; one of them must hold."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], ATOMIC, REQUIRED] = ()


class NodeAffinity(ApiStruct, kw_only=True):
    """Rules on the labels and fields of nodes."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...], ATOMIC
    ] = ()
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(ApiStruct, kw_only=True):
    """Pods, and the topology in which they count as near."""

    label_selector: LabelSelector | None = None
    match_label_keys: Annotated[tuple[str, ...], ATOMIC] = ()
    mismatch_label_keys: Annotated[tuple[str, ...], ATOMIC] = ()
    namespace_selector: LabelSelector | None = None
    namespaces: Annotated[tuple[str, ...], ATOMIC] = ()
    topology_key: str


class WeightedPodAffinityTerm(ApiStruct, kw_only=True):
    """A pod term with the weight it adds to a node's score (1-100)."""

    pod_affinity_term: PodAffinityTerm
    weight: Int32


class PodAffinity(ApiStruct, kw_only=True):
    """Rules for running near other pods."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...], ATOMIC
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], ATOMIC] = ()


class PodAntiAffinity(ApiStruct, kw_only=True):
    """Rules for running apart from other pods."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...], ATOMIC
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], ATOMIC] = ()


class Affinity(ApiStruct, kw_only=True):
    """Where pods may, must or had better run: rules on nodes and on other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class ObjectFieldSelector(ApiStruct, kw_only=True):
    """A field of the pod itself."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    api_version: str | None = None
    field_path: str


class ResourceFieldSelector(ApiStruct, kw_only=True):
    """A resource request or limit of a container."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    container_name: str | None = None
    divisor: Annotated[Quantity | None, ALWAYS_WRITTEN] = None
    resource: str


class DownwardAPIVolumeFile(ApiStruct, kw_only=True):
    """One file made of a field or a resource of the pod."""

    field_ref: ObjectFieldSelector | None = None
    mode: Int32 | None = None
    path: str
    resource_field_ref: ResourceFieldSelector | None = None


class ExecAction(ApiStruct, kw_only=True):
    """A command run inside; exit status 0 means healthy."""

    command: Annotated[tuple[str, ...], ATOMIC] = ()


class HTTPHeader(ApiStruct, kw_only=True):
    """One header sent with an HTTP probe."""

    name: str
    value: str


class HTTPGetAction(ApiStruct, kw_only=True):
    """An HTTP GET; any status from 200 to 399 means healthy."""

    host: str | None = None
    http_headers: Annotated[tuple[HTTPHeader, ...], ATOMIC] = ()
    path: str | None = None
    port: IntOrString
    scheme: Annotated[str | None, requested_one_of("HTTP", "HTTPS")] = None


class LocalObjectReference(ApiStruct, kw_only=True):
    """The name of an object in the same namespace."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    name: Annotated[str | None, mark(default="")] = None


class TypedLocalObjectReference(ApiStruct, kw_only=True):
    """Group, kind and name of an object in the same namespace."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    api_group: Annotated[str | None, NULL_IS_WRITTEN] = None
    kind: Annotated[str, REQUIRED] = ""
    name: Annotated[str, REQUIRED] = ""


class TypedObjectReference(ApiStruct, kw_only=True):
    """Group, kind, name and namespace of an object."""

    api_group: Annotated[str | None, NULL_IS_WRITTEN] = None
    kind: str
    name: str
    namespace: Annotated[str | None, EMPTY_IS_SET] = None


class VolumeResourceRequirements(ApiStruct, kw_only=True):
    """The storage asked for, and its limit."""

    limits: Mapping[str, Quantity] = field(default_factory=dict)
    requests: Mapping[str, Quantity] = field(default_factory=dict)


class PersistentVolumeClaimSpec(ApiStruct, kw_only=True):
    """What storage is asked for: class, size, access and volume modes."""

    access_modes: Annotated[tuple[str, ...], ATOMIC] = ()
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    resources: Annotated[VolumeResourceRequirements | None, ALWAYS_WRITTEN] = None
    selector: LabelSelector | None = None
    storage_class_name: Annotated[str | None, EMPTY_IS_SET] = None
    volume_attributes_class_name: Annotated[str | None, EMPTY_IS_SET] = None
    volume_mode: Annotated[
        str | None, requested_one_of("Block", "Filesystem", "FromStorageProfile"), EMPTY_IS_SET
    ] = None
    volume_name: str | None = None


class CorePersistentVolumeClaimVolumeSource(ApiStruct, kw_only=True):
    """A claim of the same namespace, as Kubernetes' own volumes name it."""

    claim_name: str
    read_only: Annotated[bool | None, ZERO_IS_UNSET] = None


class PodDNSConfigOption(ApiStruct, kw_only=True):
    """One resolver option with an optional value."""

    name: str | None = None
    value: Annotated[str | None, EMPTY_IS_SET] = None


class PodDNSConfig(ApiStruct, kw_only=True):
    """Name servers, search domains and options added to what the DNS policy gives."""

    nameservers: Annotated[tuple[str, ...], ATOMIC] = ()
    options: Annotated[tuple[PodDNSConfigOption, ...], ATOMIC] = ()
    searches: Annotated[tuple[str, ...], ATOMIC] = ()


class TCPSocketAction(ApiStruct, kw_only=True):
    """A TCP connection; being accepted means healthy."""

    host: str | None = None
    port: IntOrString


class Toleration(ApiStruct, kw_only=True):
    """A taint that is put up with."""

    effect: Annotated[str | None, requested_one_of("NoExecute", "NoSchedule", "PreferNoSchedule")] = None
    key: str | None = None
    operator: Annotated[str | None, requested_one_of("Equal", "Exists")] = None
    toleration_seconds: Int64 | None = None
    value: str | None = None


class TopologySpreadConstraint(ApiStruct, kw_only=True):
    """How evenly matching pods spread over a topology."""

    label_selector: LabelSelector | None = None
    match_label_keys: Annotated[tuple[str, ...], ATOMIC] = ()
    max_skew: Int32
    min_domains: Int32 | None = None
    node_affinity_policy: Annotated[str | None, requested_one_of("Honor", "Ignore"), EMPTY_IS_SET] = None
    node_taints_policy: Annotated[str | None, requested_one_of("Honor", "Ignore"), EMPTY_IS_SET] = None
    topology_key: str
    when_unsatisfiable: Annotated[str, requested_one_of("DoNotSchedule", "ScheduleAnyway")]


class ResourceRequirementsWithoutClaims(ApiStruct, kw_only=True):
    """Compute resources requested and their limits."""

    limits: Mapping[str, Quantity] = field(default_factory=dict)
    requests: Mapping[str, Quantity] = field(default_factory=dict)


class ResourceClaim(ApiStruct, kw_only=True):
    """A claim of the pod's whose devices a container gets, or one request of it."""

    name: str
    request: str | None = None


class ResourceRequirements(ResourceRequirementsWithoutClaims, kw_only=True):
    """Compute resources requested and their limits, and claims of devices."""

    claims: Annotated[tuple[ResourceClaim, ...], list_map("name")] = ()


class NodePlacement(ApiStruct, kw_only=True):
    """On which nodes pods run."""

    affinity: Affinity | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
