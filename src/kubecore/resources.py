"""Names of API resources: group, version, plural and kind, and the URL paths they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

_SAFE = ":@$!*'(),"
"""What may stand in a part of a path beside letters and digits; a slash in a name leads nowhere else."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource as clients address it. `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion`` in its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """``plural`` or ``plural.group``, as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of a collection, an object or a subresource. `namespace` is left out when None."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe=_SAFE)]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=_SAFE))
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)


def _core(plural: str, kind: str, namespaced: bool = True) -> ResourceType:
    return ResourceType("", "v1", plural, kind, namespaced)


NAMESPACES = _core("namespaces", "Namespace", False)
NODES = _core("nodes", "Node", False)
PODS = _core("pods", "Pod")
SERVICES = _core("services", "Service")
ENDPOINTS = _core("endpoints", "Endpoints")
CONFIG_MAPS = _core("configmaps", "ConfigMap")
SECRETS = _core("secrets", "Secret")
SERVICE_ACCOUNTS = _core("serviceaccounts", "ServiceAccount")
NETWORK_POLICIES = ResourceType("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PERSISTENT_VOLUMES = _core("persistentvolumes", "PersistentVolume", False)
PERSISTENT_VOLUME_CLAIMS = _core("persistentvolumeclaims", "PersistentVolumeClaim")
RESOURCE_QUOTAS = _core("resourcequotas", "ResourceQuota")
LIMIT_RANGES = _core("limitranges", "LimitRange")
REPLICATION_CONTROLLERS = _core("replicationcontrollers", "ReplicationController")
EVENTS = _core("events", "Event")
DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = ResourceType("apps", "v1", "replicasets", "ReplicaSet")
DAEMON_SETS = ResourceType("apps", "v1", "daemonsets", "DaemonSet")
STATEFUL_SETS = ResourceType("apps", "v1", "statefulsets", "StatefulSet")
CONTROLLER_REVISIONS = ResourceType("apps", "v1", "controllerrevisions", "ControllerRevision")
JOBS = ResourceType("batch", "v1", "jobs", "Job")
CRON_JOBS = ResourceType("batch", "v1", "cronjobs", "CronJob")
HORIZONTAL_POD_AUTOSCALERS = ResourceType(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
POD_DISRUPTION_BUDGETS = ResourceType("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ENDPOINT_SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
STORAGE_CLASSES = ResourceType("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
VOLUME_ATTACHMENTS = ResourceType("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False)
CSI_NODES = ResourceType("storage.k8s.io", "v1", "csinodes", "CSINode", False)
CSI_DRIVERS = ResourceType("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False)
CSI_STORAGE_CAPACITIES = ResourceType("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
VOLUME_ATTRIBUTES_CLASSES = ResourceType(
    "storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False
)
CERTIFICATE_REQUESTS = ResourceType(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False
)
PRIORITY_CLASSES = ResourceType("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = ResourceType("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = ResourceType(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
)
CUSTOM_RESOURCE_DEFINITIONS = ResourceType(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
API_SERVICES = ResourceType("apiregistration.k8s.io", "v1", "apiservices", "APIService", False)
MUTATING_WEBHOOK_CONFIGURATIONS = ResourceType(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    False,
)
VALIDATING_WEBHOOK_CONFIGURATIONS = ResourceType(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    False,
)
VALIDATING_ADMISSION_POLICIES = ResourceType(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
VALIDATING_ADMISSION_POLICY_BINDINGS = ResourceType(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    False,
)
