"""Which fields of a built-in definition are written although empty: rules and exceptions.

What a definition requires is always there: scalars as their zero, objects as ``{}``, lists, maps, bytes and
times as null. So are the metadata, spec and status of a kind. What is optional goes away when it is empty,
unless its empty value says something that its absence does not: ``replicas: 0`` is no pod and absent is one;
``automountServiceAccountToken: false`` is a choice and absent leaves it to the service account. Kubernetes'
conventions call for such fields where the default is not the zero value, but definitions do not tell which
they are. The tables below do, by the name of the field where all that bear it agree, or else by
``Definition.field``. They come from the documentation of the fields and from answers of real servers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kubecore.schema.model import Schema


def _named(*groups: str) -> frozenset[str]:
    """The set of all field names in `groups`, which are separated by spaces."""
    return frozenset(name for group in groups for name in group.split())


_TIMES = (".Time", ".MicroTime")
_COUNTED = ("Status", "Condition")
"""Numbers in definitions whose names end so are absent while they are 0."""

_ZERO_IS_NOTHING = _named(
    # Ports and generations are at least 1; zero asks the server to choose.
    "healthCheckNodePort hostPort nodePort number generation",
    # Timings whose zero is their default, or stands for it.
    "failureThreshold initialDelaySeconds minReadySeconds periodSeconds successThreshold",
    "Probe.timeoutSeconds",
    # What already happened: nothing yet.
    "Event.count EventSeries.count deprecatedCount signal sizeBytes",
    # A disk without partitions, a scale without a wish, a column of no special priority.
    "AWSElasticBlockStoreVolumeSource.partition GCEPersistentDiskVolumeSource.partition",
    "ScaleSpec.replicas CustomResourceColumnDefinition.priority",
    # How many devices: all, unless it is said.
    "ExactDeviceRequest.count DeviceSubRequest.count",
)
"""Optional numbers whose zero goes away. All others in specs stay."""

_COUNTS_FROM_ZERO = _named(
    "collisionCount terminatingReplicas JobStatus.ready JobStatus.terminating errorCode capacity",
    "averageUtilization currentCPUUtilizationPercentage HorizontalPodAutoscalerStatus.observedGeneration",
)
"""Numbers of a status whose zero has been counted."""

_FALSE_IS_A_CHOICE = _named(
    # Absent means true, or that another object decides: the service account, the image, the driver.
    "allocateLoadBalancerNodePorts allowPrivilegeEscalation allowVolumeExpansion",
    "automountServiceAccountToken enableServiceLinks hostProcess hostUsers privileged",
    "readOnlyRootFilesystem runAsNonRoot setHostnameAsFQDN shareProcessNamespace",
    "x-kubernetes-preserve-unknown-fields attachRequired podInfoOnMount preventPodSchedulingIfMissing",
    "requiresRepublish seLinuxMount serviceAccountTokenInSecrets storageCapacity",
    "AzureDiskVolumeSource.readOnly CSIVolumeSource.readOnly",
    # References and owners: absent is unknown.
    "blockOwnerDeletion controller optional orphanDependents",
    # States that are reported or demanded either way.
    "EndpointConditions.ready serving terminating started immutable manualSelector suspend",
    "recursiveReadOnlyMounts userNamespaces NodeFeatures.supplementalGroupsPolicy",
    # Devices: what is true of them, and who may use them.
    "adminAccess allNodes perDeviceNodeSelection allowMultipleAllocations bindsToNode DeviceAttribute.bool",
)
"""Optional booleans that have three values."""

_EMPTY_TEXT_SAYS_SOMETHING = _named(
    # Class names: an empty name means no class (storage, attributes), or is not a valid name.
    "PersistentVolumeClaimSpec.storageClassName volumeAttributesClassName",
    "currentVolumeAttributesClassName ingressClassName runtimeClassName loadBalancerClass",
    # Policies and modes that have a default; the empty one is refused, not replaced.
    "failurePolicy matchPolicy parameterNotFoundAction MutatingWebhook.reinvocationPolicy",
    "NamedRuleWithOperations.scope RuleWithOperations.scope completionMode podReplacementPolicy",
    "fsGroupChangePolicy fsGroupPolicy seLinuxChangePolicy supplementalGroupsPolicy procMount",
    "reclaimPolicy volumeBindingMode volumeMode internalTrafficPolicy ipFamilyPolicy trafficDistribution",
    "ipMode mountPropagation recursiveReadOnly nodeAffinityPolicy nodeTaintsPolicy",
    "PodSpec.preemptionPolicy Container.restartPolicy EphemeralContainer.restartPolicy selectPolicy",
    "unhealthyPodEvictionPolicy stopSignal propagationPolicy LeaseSpec.strategy cachingMode",
    "AzureDiskVolumeSource.kind x-kubernetes-list-type x-kubernetes-map-type",
    # Names, places and texts that may be empty, or must not be when they are given.
    "HostPathVolumeSource.type holderIdentity preferredHolder managedBy timeZone hostnameOverride",
    "podGroupName localhostProfile gmsaCredentialSpec gmsaCredentialSpecName runAsUserName appProtocol",
    "zone Endpoint.hostname Endpoint.nodeName EndpointAddress.nodeName discovery.v1.EndpointPort.name",
    "discovery.v1.EndpointPort.protocol NetworkPolicyPort.protocol PodDNSConfigOption.value",
    "WebhookClientConfig.url ServiceReference.path Preconditions.uid Preconditions.resourceVersion",
    "IngressClassParametersReference.apiGroup IngressClassParametersReference.namespace",
    "TypedObjectReference.namespace resourceClaimName resourceClaimTemplateName persistentVolumeName",
    "ClusterTrustBundleProjection.name ClusterTrustBundleProjection.signerName endpointsNamespace",
    "initiatorName AzureDiskVolumeSource.fsType CSIVolumeSource.fsType LocalVolumeSource.fsType",
    "failedIndexes succeededIndexes PortStatus.error IngressPortStatus.error ResourceHealth.message",
    "PodFailurePolicyOnExitCodesRequirement.containerName matchAttribute distinctAttribute shareID",
    "extendedResourceName ResourceSliceSpec.nodeName Device.nodeName DeviceAttribute.string",
    "DeviceAttribute.version",
)
"""Optional texts that stay although they are empty."""

_ALWAYS_THERE = _named(
    "StatefulSetSpec.serviceName StatefulSetStatus.availableReplicas StatefulSetOrdinals.start",
    "PodDisruptionBudgetStatus.currentHealthy PodDisruptionBudgetStatus.desiredHealthy",
    "PodDisruptionBudgetStatus.disruptionsAllowed PodDisruptionBudgetStatus.expectedPods",
    "PriorityClass.value core.v1.Event.reportingComponent core.v1.Event.reportingInstance",
    "RoleRef.apiGroup ServicePort.targetPort FlowSchemaSpec.matchingPrecedence",
    "QueuingConfiguration.handSize QueuingConfiguration.queueLengthLimit QueuingConfiguration.queues",
    "PodFailurePolicyOnPodConditionsPattern.status NodeRuntimeHandler.name TokenRequestStatus.token",
    "ResourceFieldSelector.divisor",
)
"""Optional scalars that are written as their zero when nobody set them."""

_OBJECTS_ALWAYS_THERE = _named(
    "DaemonSetSpec.updateStrategy StatefulSetSpec.updateStrategy DeploymentSpec.strategy",
    "ReplicaSetSpec.template PodTemplate.template Container.resources EphemeralContainer.resources",
    "PersistentVolumeClaimSpec.resources ContainerStatus.state ContainerStatus.lastState",
    "NodeStatus.nodeInfo NodeStatus.daemonEndpoints NodeDaemonEndpoints.kubeletEndpoint",
    "ServiceStatus.loadBalancer IngressStatus.loadBalancer IngressServiceBackend.port",
    "NetworkPolicySpec.podSelector Endpoint.conditions core.v1.Event.source events.v1.Event.regarding",
    "events.v1.Event.deprecatedSource LimitedPriorityLevelConfiguration.limitResponse",
    "SelfSubjectReviewStatus.userInfo TokenReviewStatus.user ResourceClaimSpec.devices",
    "resource.v1.AllocationResult.devices",
)
"""Optional objects that are ``{}`` when nobody set them."""

_NULL_WHEN_UNSET = _named(
    # Lists that are optional only in name.
    "ClusterRole.rules Role.rules EndpointSlice.endpoints EndpointSlice.ports",
    "ProjectedVolumeSource.sources HorizontalPodAutoscalerStatus.currentMetrics ContainerImage.names",
    "CSINodeDriver.topologyKeys ResourcePolicyRule.namespaces TokenRequestSpec.audiences",
    "TokenRequestSpec.expirationSeconds TokenRequestSpec.boundObjectRef",
    # Times that are always encoded.
    "startedAt finishedAt firstTimestamp lastTimestamp eventTime lastObservedTime",
    "deprecatedFirstTimestamp deprecatedLastTimestamp VolumeError.time expirationTimestamp",
    # Fields without a default that clients must set.
    "MutatingWebhook.sideEffects ValidatingWebhook.sideEffects HTTPIngressPath.pathType",
    "GRPCAction.service TypedLocalObjectReference.apiGroup TypedObjectReference.apiGroup",
    "IngressClassParametersReference.scope AzureFilePersistentVolumeSource.secretNamespace",
    "DeviceClaim.requests OpaqueDeviceConfiguration.parameters AllocatedDeviceStatus.conditions",
    "ControllerRevision.data LimitedPriorityLevelConfiguration.nominalConcurrencyShares",
    # Objects that are required, and yet not made up: an empty selector would select everything.
    "DaemonSetSpec.selector DeploymentSpec.selector ReplicaSetSpec.selector StatefulSetSpec.selector",
    "ScaleIOVolumeSource.secretRef ScaleIOPersistentVolumeSource.secretRef",
)
"""Fields that are null when nobody set them; a zero that somebody set stays."""

_LEFT_OUT = frozenset({"IPAddressSpec.parentRef"})
"""Required fields that are not written when they are missing: validation reports them."""


TABLES = (
    _ZERO_IS_NOTHING,
    _COUNTS_FROM_ZERO,
    _FALSE_IS_A_CHOICE,
    _EMPTY_TEXT_SAYS_SOMETHING,
    _ALWAYS_THERE,
    _OBJECTS_ALWAYS_THERE,
    _NULL_WHEN_UNSET,
    _LEFT_OUT,
)


@dataclass(slots=True)
class Rules:
    """The fields of one definition that are encoded even if empty, grouped by their form."""

    keep: frozenset[str]
    """Optional scalars that stay when they are set to their zero."""
    zeros: tuple[str, ...]
    objects: tuple[str, ...]
    quantities: tuple[str, ...]
    nulls: tuple[str, ...]


def rules_of(schema: Schema) -> Rules:
    """The rules of the definition that `schema` is a view of."""
    keep: list[str] = []
    by_form: dict[str, list[str]] = {"": [], "zero": [], "object": [], "quantity": [], "null": []}
    for name, field in schema.properties.items():
        form = _when_unset(schema, name, field)
        by_form[form].append(name)
        if not form and _keeps_zero(schema, name, field):
            keep.append(name)
    return Rules(
        frozenset(keep),
        *(tuple(by_form[form]) for form in ("zero", "object", "quantity", "null")),
    )


def _when_unset(schema: Schema, name: str, field: Schema) -> str:
    """How an unset field is written: "zero", "object", "quantity", "null", or "" for not at all."""
    if _is_in(_NULL_WHEN_UNSET, schema, name):
        return "null"
    if _is_in(_LEFT_OUT, schema, name):
        return ""
    present = name in schema.required or _is_in(_ALWAYS_THERE, schema, name)
    if is_quantity(field):
        return "quantity" if present else ""
    if (field.definition or "").endswith(_TIMES):
        return "null" if present or (schema.definition or "").endswith("Condition") else ""
    if is_scalar(field) and field.format != "byte":
        return "zero" if present else ""
    if not _is_object(field):
        return "null" if present else ""
    if present or _is_frame(schema, name) or _is_in(_OBJECTS_ALWAYS_THERE, schema, name):
        return "object"
    return ""


def _keeps_zero(schema: Schema, name: str, field: Schema) -> bool:
    if not is_scalar(field) or field.int_or_string:
        return False
    if field.type == "boolean":
        return _is_in(_FALSE_IS_A_CHOICE, schema, name)
    if field.type == "string":
        return _is_in(_EMPTY_TEXT_SAYS_SOMETHING, schema, name)
    if (schema.definition or "").endswith(_COUNTED):
        return _is_in(_COUNTS_FROM_ZERO, schema, name)
    return not _is_in(_ZERO_IS_NOTHING, schema, name)


def _is_frame(schema: Schema, name: str) -> bool:
    """Whether the field is the metadata, spec or status of a kind, or of a template of one."""
    return name in ("metadata", "spec", "status") and "metadata" in schema.properties


def _is_in(table: Collection[str], schema: Schema, name: str) -> bool:
    definition = (schema.definition or "").split(".")
    return (
        name in table or f"{definition[-1]}.{name}" in table or f"{'.'.join(definition[-3:])}.{name}" in table
    )


def is_quantity(schema: Schema) -> bool:
    """Whether values are quantities."""
    return (schema.definition or "").endswith(".Quantity")


def is_scalar(schema: Schema) -> bool:
    """Whether values are texts, numbers, booleans, or one of several of these."""
    return schema.int_or_string or schema.type in ("string", "integer", "number", "boolean")


def _is_object(schema: Schema) -> bool:
    return bool(schema.properties) or (schema.type == "object" and schema.additional_properties is None)
