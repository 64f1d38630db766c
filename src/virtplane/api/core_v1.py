"""Kubernetes' own types that KubeVirt's objects embed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.affinity_v1 import NodeAffinity, PodAffinity, PodAntiAffinity
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
    describe,
    list_map,
    mark,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class Affinity(ApiStruct, kw_only=True):
    """Where pods may, must or had better run: rules on nodes and on other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class ObjectFieldSelector(ApiStruct, kw_only=True):
    """A field of the pod itself."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    api_version: Annotated[str | None, describe("Version of the API that the path is of; v1 by default.")] = (
        None
    )
    field_path: Annotated[str, describe("Path of the field, such as metadata.labels.")]


class ResourceFieldSelector(ApiStruct, kw_only=True):
    """A resource request or limit of a container."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    container_name: Annotated[str | None, describe("Name of the container.")] = None
    divisor: Annotated[
        Quantity | None,
        ALWAYS_WRITTEN,
        describe("Unit in which the amount is written, such as 1Mi; 1 by default."),
    ] = None
    resource: Annotated[str, describe("The resource, such as requests.memory.")]


class DownwardAPIVolumeFile(ApiStruct, kw_only=True):
    """One file made of a field or a resource of the pod."""

    field_ref: Annotated[
        ObjectFieldSelector | None,
        describe("Field of the pod that the file holds; one of this and resourceFieldRef."),
    ] = None
    mode: Annotated[
        Int32 | None, describe("Permission bits of the file, 0 to 0777; by default those of the volume.")
    ] = None
    path: Annotated[str, describe('Path of the file in the volume; relative, without "..".')]
    resource_field_ref: Annotated[
        ResourceFieldSelector | None, describe("Resource of a container that the file holds.")
    ] = None


class ExecAction(ApiStruct, kw_only=True):
    """A command run inside; exit status 0 means healthy."""

    command: Annotated[
        tuple[str, ...], ATOMIC, describe("The command and its arguments; no shell is involved.")
    ] = ()


class HTTPHeader(ApiStruct, kw_only=True):
    """One header sent with an HTTP probe."""

    name: Annotated[str, describe("Name of the header.")]
    value: Annotated[str, describe("Value of the header.")]


class HTTPGetAction(ApiStruct, kw_only=True):
    """An HTTP GET; any status from 200 to 399 means healthy."""

    host: Annotated[str | None, describe("Name or address; by default the pod's address.")] = None
    http_headers: Annotated[tuple[HTTPHeader, ...], ATOMIC, describe("Headers to send.")] = ()
    path: Annotated[str | None, describe("Path to ask for; / by default.")] = None
    port: Annotated[IntOrString, describe("Number of the port, 1 to 65535, or its name.")]
    scheme: Annotated[
        str | None,
        requested_one_of("HTTP", "HTTPS"),
        describe("HTTP (default) or HTTPS; certificates are not verified."),
    ] = None


class LocalObjectReference(ApiStruct, kw_only=True):
    """The name of an object in the same namespace."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    name: Annotated[str | None, mark(default=""), describe("Name of the object.")] = None


class TypedLocalObjectReference(ApiStruct, kw_only=True):
    """Group, kind and name of an object in the same namespace."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    api_group: Annotated[str | None, NULL_IS_WRITTEN, describe("API group; empty for Kubernetes' core.")] = (
        None
    )
    kind: Annotated[str, REQUIRED, describe("Kind of the object.")] = ""
    name: Annotated[str, REQUIRED, describe("Name of the object.")] = ""


class TypedObjectReference(ApiStruct, kw_only=True):
    """Group, kind, name and namespace of an object."""

    api_group: Annotated[str | None, NULL_IS_WRITTEN, describe("API group; empty for Kubernetes' core.")] = (
        None
    )
    kind: Annotated[str, describe("Kind of the object.")]
    name: Annotated[str, describe("Name of the object.")]
    namespace: Annotated[
        str | None,
        EMPTY_IS_SET,
        describe("Namespace; by default this one. Another one needs a ReferenceGrant."),
    ] = None


class VolumeResourceRequirements(ApiStruct, kw_only=True):
    """The storage asked for, and its limit."""

    limits: Annotated[Mapping[str, Quantity], describe("Most storage, such as 20Gi under storage.")] = field(
        default_factory=dict
    )
    requests: Annotated[
        Mapping[str, Quantity], describe("Storage asked for, such as 10Gi under storage.")
    ] = field(default_factory=dict)


class PersistentVolumeClaimSpec(ApiStruct, kw_only=True):
    """What storage is asked for: class, size, access and volume modes."""

    access_modes: Annotated[
        tuple[str, ...], ATOMIC, describe("ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod.")
    ] = ()
    data_source: Annotated[
        TypedLocalObjectReference | None,
        describe("Claim or VolumeSnapshot of this namespace that the volume is made of."),
    ] = None
    data_source_ref: Annotated[
        TypedObjectReference | None,
        describe("The same, also for other kinds (volume populators) and other namespaces."),
    ] = None
    resources: Annotated[VolumeResourceRequirements | None, ALWAYS_WRITTEN] = None
    selector: Annotated[
        LabelSelector | None, describe("Labels of the volumes that will do; nothing is then provisioned.")
    ] = None
    storage_class_name: Annotated[
        str | None,
        EMPTY_IS_SET,
        describe("Storage class; absent for the cluster's default, empty for volumes of no class."),
    ] = None
    volume_attributes_class_name: Annotated[
        str | None, EMPTY_IS_SET, describe("Class of attributes that can change while the volume is used.")
    ] = None
    volume_mode: Annotated[
        str | None,
        requested_one_of("Block", "Filesystem", "FromStorageProfile"),
        EMPTY_IS_SET,
        describe("Filesystem (default) or Block, a raw device."),
    ] = None
    volume_name: Annotated[str | None, describe("The volume that the claim is bound to.")] = None


class CorePersistentVolumeClaimVolumeSource(ApiStruct, kw_only=True):
    """A claim of the same namespace, as Kubernetes' own volumes name it."""

    claim_name: Annotated[str, describe("Name of the claim.")]
    read_only: Annotated[
        bool | None, ZERO_IS_UNSET, describe("Whether the claim is mounted read-only; false by default.")
    ] = None


class PodDNSConfigOption(ApiStruct, kw_only=True):
    """One resolver option with an optional value."""

    name: Annotated[str | None, describe("Name of the option, such as ndots.")] = None
    value: Annotated[str | None, EMPTY_IS_SET, describe("Value of the option; some have none.")] = None


class PodDNSConfig(ApiStruct, kw_only=True):
    """Name servers, search domains and options added to what the DNS policy gives."""

    nameservers: Annotated[tuple[str, ...], ATOMIC, describe("Addresses of name servers.")] = ()
    options: Annotated[tuple[PodDNSConfigOption, ...], ATOMIC, describe("Resolver options.")] = ()
    searches: Annotated[tuple[str, ...], ATOMIC, describe("Domains in which short names are looked up.")] = ()


class TCPSocketAction(ApiStruct, kw_only=True):
    """A TCP connection; being accepted means healthy."""

    host: Annotated[str | None, describe("Name or address; by default the pod's address.")] = None
    port: Annotated[IntOrString, describe("Number of the port, 1 to 65535, or its name.")]


class Toleration(ApiStruct, kw_only=True):
    """A taint that is put up with."""

    effect: Annotated[
        str | None,
        requested_one_of("NoExecute", "NoSchedule", "PreferNoSchedule"),
        describe("NoSchedule, PreferNoSchedule or NoExecute; absent for all."),
    ] = None
    key: Annotated[
        str | None, describe("Key of the taint; absent, with the operator Exists, for all taints.")
    ] = None
    operator: Annotated[
        str | None,
        requested_one_of("Equal", "Exists"),
        describe("Equal (default) compares the value; Exists takes any."),
    ] = None
    toleration_seconds: Annotated[
        Int64 | None, describe("Seconds that NoExecute is put up with; absent for ever.")
    ] = None
    value: Annotated[str | None, describe("Value of the taint.")] = None


class TopologySpreadConstraint(ApiStruct, kw_only=True):
    """How evenly matching pods spread over a topology."""

    label_selector: Annotated[LabelSelector | None, describe("Which pods are counted.")] = None
    match_label_keys: Annotated[
        tuple[str, ...], ATOMIC, describe("Labels of the new pod whose values counted pods have as well.")
    ] = ()
    max_skew: Annotated[
        Int32, describe("How many more pods one place may have than the emptiest; at least 1.")
    ]
    min_domains: Annotated[
        Int32 | None, describe("Places that there must be, else the emptiest counts as having none.")
    ] = None
    node_affinity_policy: Annotated[
        str | None,
        requested_one_of("Honor", "Ignore"),
        EMPTY_IS_SET,
        describe("Honor (default) leaves out nodes that the pod may not run on; Ignore counts them."),
    ] = None
    node_taints_policy: Annotated[
        str | None,
        requested_one_of("Honor", "Ignore"),
        EMPTY_IS_SET,
        describe(
            "Honor leaves out nodes whose taints the pod does not tolerate; Ignore (default) counts them."
        ),
    ] = None
    topology_key: Annotated[str, describe("Label of nodes; equal values are one place.")]
    when_unsatisfiable: Annotated[
        str,
        requested_one_of("DoNotSchedule", "ScheduleAnyway"),
        describe("DoNotSchedule leaves the pod waiting; ScheduleAnyway only prefers emptier places."),
    ]


class ResourceRequirementsWithoutClaims(ApiStruct, kw_only=True):
    """Compute resources requested and their limits."""

    limits: Annotated[Mapping[str, Quantity], describe('Most of each resource, such as cpu: "2".')] = field(
        default_factory=dict
    )
    requests: Annotated[
        Mapping[str, Quantity], describe("What is reserved of each resource, such as memory: 1Gi.")
    ] = field(default_factory=dict)


class ResourceClaim(ApiStruct, kw_only=True):
    """A claim of the pod's whose devices a container gets, or one request of it."""

    name: Annotated[str, describe("Name of the claim in the pod's resourceClaims.")]
    request: Annotated[str | None, describe("One request of the claim; absent for all of them.")] = None


class ResourceRequirements(ResourceRequirementsWithoutClaims, kw_only=True):
    """Compute resources requested and their limits, and claims of devices."""

    claims: Annotated[
        tuple[ResourceClaim, ...],
        list_map("name"),
        describe("Device claims of the pod that the container gets."),
    ] = ()


class NodePlacement(ApiStruct, kw_only=True):
    """On which nodes pods run."""

    affinity: Affinity | None = None
    node_selector: Annotated[Mapping[str, str], describe("Labels that the nodes must have.")] = field(
        default_factory=dict
    )
    tolerations: Annotated[tuple[Toleration, ...], describe("Taints of nodes that are put up with.")] = ()
