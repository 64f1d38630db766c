"""The installation's configuration as every component sees it.

The effective configuration is the defaults below with ``spec.configuration`` of the ``KubeVirt`` object
merged on top: objects merge, lists and scalars replace. It counts once the object has a phase and while it
is not being deleted. A configuration that contradicts itself, or does not fit its type, is ignored as a
whole; whoever watches the object keeps the last good one (`LastGood`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.structs import UnfitDocument, decode, encode, readable
from virtplane.api import feature_gates, images, labels, paths, verbosity
from virtplane.api.kubevirt_v1.component_configuration import TokenBucketRateLimiter
from virtplane.api.kubevirt_v1.configuration import KubeVirtConfiguration
from virtplane.api.kubevirt_v1.developer_configuration import LogVerbosity
from virtplane.api.kubevirt_v1.guest_configuration import ArchSpecificConfiguration
from virtplane.api.kubevirt_v1.kubevirt import Flags, KubeVirtWorkloadUpdateStrategy
from virtplane.api.kubevirt_v1.network_configuration import InterfaceBindingPlugin

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

DEFAULT_ARCHITECTURE = "amd64"

API_WEBHOOKS = "virt-api/webhooks"
"""The client of virt-api's webhooks, which has a limit of requests of its own."""

READERS_LIMIT = TokenBucketRateLimiter(qps=10, burst=20)
"""How many requests are sent to find out who reads metrics."""


def readers_client(component: str) -> str:
    """The name of the client that asks who reads a component's metrics.

    It does not share the component's limit: any pod may ask for metrics, with whatever tokens it invents.
    """
    return f"{component}/readers"


_OF_CONTROL_PLANE = TokenBucketRateLimiter(qps=200, burst=400)
REQUEST_LIMITS: Mapping[str, TokenBucketRateLimiter] = {
    "virt-api": _OF_CONTROL_PLANE,
    API_WEBHOOKS: _OF_CONTROL_PLANE,
    "virt-controller": _OF_CONTROL_PLANE,
    "virt-handler": TokenBucketRateLimiter(qps=50, burst=100),
}
"""How many requests clients send by default, KubeVirt's numbers."""

_DEFAULTS: Mapping[str, Any] = {
    "architectureConfiguration": {
        "amd64": {
            "machineType": "q35",
            "emulatedMachines": ["q35*", "pc-q35*"],
            "ovmfPath": paths.OVMF_DIR,
        },
        "arm64": {"machineType": "virt", "emulatedMachines": ["virt*"], "ovmfPath": "/usr/share/AAVMF"},
        "s390x": {
            "machineType": "s390-ccw-virtio",
            "emulatedMachines": ["s390-ccw-virtio*"],
            "ovmfPath": "",
        },
    },
    "commonInstancetypesDeployment": {"enabled": True},
    "cpuRequest": "100m",
    "developerConfiguration": {
        "cpuAllocationRatio": 10,
        "diskVerification": {"memoryLimit": "2000Mi"},
        "logVerbosity": {
            "virtAPI": 2,
            "virtController": 2,
            "virtHandler": 2,
            "virtLauncher": 2,
            "virtOperator": 2,
            "virtSynchronizationController": 0,
        },
        "memoryOvercommit": 100,
        "minimumReservePVCBytes": 131072,
        "pvcTolerateLessSpaceUpToPercent": 10,
        "useEmulation": False,
    },
    "evictionStrategy": "None",
    "hypervisors": [{"name": "kvm"}],
    "imagePullPolicy": "IfNotPresent",
    "instancetype": {"referencePolicy": "reference"},
    "liveUpdateConfiguration": {"maxHotplugRatio": 4},
    "memBalloonStatsPeriod": 10,
    "migrations": {
        "allowAutoConverge": False,
        "allowPostCopy": False,
        "bandwidthPerMigration": "0Mi",
        "completionTimeoutPerGiB": 150,
        "maxDowntimeMs": 900,
        "nodeDrainTaintKey": labels.DRAIN_TAINT,
        "parallelMigrationsPerCluster": 5,
        "parallelOutboundMigrationsPerNode": 2,
        "progressTimeout": 150,
        "unsafeMigrationOverride": False,
        "utilityVolumesTimeout": 150,
    },
    "network": {
        "defaultNetworkInterface": "bridge",
        "permitBridgeInterfaceOnPodNetwork": True,
        "permitSlirpInterface": False,
    },
    "roleAggregationStrategy": "AggregateToDefault",
    "smbios": {"family": "KubeVirt", "manufacturer": "KubeVirt", "product": "None"},
    "supportedGuestAgentVersions": ["2.*", "3.*", "4.*", "5.*"],
    "vmRolloutStrategy": "LiveUpdate",
}


def _merged(base: Any, over: Any) -> Any:
    if over is None:
        return base
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    return {**base, **{key: _merged(base.get(key), value) for key, value in over.items()}}


VERSION_DETAIL = "config-resource-version"
"""By which ``/healthz`` of a component tells up to which KubeVirt object it has read the configuration."""


def observed_version(kubevirt: JsonObject | None) -> str:
    """What a component tells as `VERSION_DETAIL`."""
    return get_str(kubevirt or {}, "metadata", "resourceVersion", default="0")


class LastGood:
    """The last valid configuration of a KubeVirt object that changes."""

    def __init__(self) -> None:
        self._seen: JsonObject | None = None
        self._config = ClusterConfig(None)
        self._problems: list[str] = []

    def of(self, kubevirt: JsonObject | None) -> ClusterConfig:
        """The configuration to use for the current object `kubevirt`. Logs why the object's own is
        invalid.
        """
        if kubevirt is self._seen:
            return self._config
        self._seen = kubevirt
        config = ClusterConfig(kubevirt)
        problems = config.contradictions()
        if not problems:
            self._config = config
        elif problems != self._problems:
            logger.error(
                "The configuration of KubeVirt is ignored as a whole; correct spec.configuration",
                extra={"err": "; ".join(problems)},
            )
        self._problems = problems
        return self._config


class ClusterConfig:
    """One immutable view of the effective configuration.

    `configuration` is ``spec.configuration`` with defaults.
    """

    def __init__(self, kubevirt: JsonObject | None = None) -> None:
        document = kubevirt or {}
        in_use = bool(get_str(document, "status", "phase")) and not get_str(
            document, "metadata", "deletionTimestamp"
        )
        spec = get_object(document, "spec") if in_use else {}
        self._unfit = ""
        configured = get_object(spec, "configuration")
        try:
            self.configuration = decode(KubeVirtConfiguration, _merged(_DEFAULTS, configured))
        except UnfitDocument as error:
            self._unfit = f"{error.path}: {error.problem}"
            self.configuration = decode(KubeVirtConfiguration, _DEFAULTS)
        self.annotations: Mapping[str, str] = dict(get_object(document, "metadata", "annotations"))
        self.image_pull_secrets: list[JsonObject] = [
            dict(item) for item in get_list(spec, "imagePullSecrets")
        ]
        levels = get_object(configured, "developerConfiguration", "logVerbosity")
        self._verbosities = next(readable(LogVerbosity, [levels]), LogVerbosity())
        flags = get_object(spec, "customizeComponents", "flags")
        self._flags = next(readable(Flags, [flags]), Flags())
        self._registry, self.image_tag = get_str(spec, "imageRegistry"), get_str(spec, "imageTag")
        updates = readable(KubeVirtWorkloadUpdateStrategy, [get_object(spec, "workloadUpdateStrategy")])
        self.workload_update_strategy = next(updates, KubeVirtWorkloadUpdateStrategy())
        self.default_architecture = get_str(
            document, "status", "defaultArchitecture", default=DEFAULT_ARCHITECTURE
        )
        self.namespace = get_str(document, "metadata", "namespace", default="kubevirt")

    # Feature gates.

    @cached_property
    def enabled_gates(self) -> frozenset[str]:
        """Gates listed in ``featureGates``."""
        return frozenset(self.configuration.developer_configuration.feature_gates)

    @cached_property
    def disabled_gates(self) -> frozenset[str]:
        """Gates listed in ``disabledFeatureGates``."""
        return frozenset(self.configuration.developer_configuration.disabled_feature_gates)

    def gate(self, name: str) -> bool:
        """Whether feature gate `name` is on."""
        return feature_gates.is_enabled(name, self.enabled_gates, self.disabled_gates)

    # Settings, each with its default.

    def image(self, image: str) -> str:
        """What one of the product's images is called by ``imageRegistry`` and ``imageTag``."""
        return images.renamed(image, self._registry, self.image_tag)

    def log_verbosity(self, component: str, node: str) -> int:
        """How much `component` logs on `node`, 0 to 9: what is said of the node, else of the component, else
        by its flags. Raises KeyError for components that are not KubeVirt's.
        """
        levels, flags = self._verbosities, self._flags
        level, given = {
            "virt-api": (levels.virt_api, verbosity.of_flags(flags.api)),
            "virt-controller": (levels.virt_controller, verbosity.of_flags(flags.controller)),
            "virt-handler": (levels.virt_handler, verbosity.of_flags(flags.handler)),
            "virt-operator": (levels.virt_operator, None),
        }[component]
        return levels.node_verbosity.get(node) or _or(level, _or(given, 2))

    def request_limit(self, client: str) -> TokenBucketRateLimiter:
        """How many requests a client sends, one of `REQUEST_LIMITS`. Numbers that are 0 are the default."""
        known = self.configuration
        component = {
            "virt-api": known.api_configuration,
            API_WEBHOOKS: known.webhook_configuration,
            "virt-controller": known.controller_configuration,
            "virt-handler": known.handler_configuration,
        }[client]
        usual = REQUEST_LIMITS[client]
        rest = component.rest_client if component is not None else None
        limiter = rest.rate_limiter if rest is not None else None
        wanted = limiter.token_bucket_rate_limiter if limiter is not None else None
        if wanted is None:
            return usual
        return TokenBucketRateLimiter(
            qps=wanted.qps if wanted.qps > 0 else usual.qps,
            burst=wanted.burst if wanted.burst > 0 else usual.burst,
        )

    @property
    def is_profiled(self) -> bool:
        """Whether components may be profiled. The gate is one of those that are always on, so it counts here
        only where it is listed.
        """
        developer = self.configuration.developer_configuration
        return bool(developer.cluster_profiler) or "ClusterProfiler" in developer.feature_gates

    @property
    def use_emulation(self) -> bool:
        """Whether guests may run under software emulation."""
        return bool(self.configuration.developer_configuration.use_emulation)

    @property
    def cpu_allocation_ratio(self) -> int:
        """Virtual CPUs for each CPU that a launcher requests."""
        return _or(self.configuration.developer_configuration.cpu_allocation_ratio, 10)

    @property
    def cpu_model(self) -> str:
        """CPU model of instances that name none; empty for host-model."""
        return self.configuration.cpu_model or ""

    @property
    def cpu_request(self) -> str:
        """CPU request of instances that have none; the default of 100m is not copied into them."""
        return str(self.configuration.cpu_request or "100m")

    @property
    def memory_overcommit(self) -> int:
        """Guest memory in percent of the memory that a launcher requests for it."""
        return _or(self.configuration.developer_configuration.memory_overcommit, 100)

    @property
    def image_pull_policy(self) -> str:
        """Pull policy of the launcher's own images."""
        return _or(self.configuration.image_pull_policy, "IfNotPresent")

    @property
    def eviction_strategy(self) -> str:
        """Eviction strategy of instances that name none."""
        return self.configuration.eviction_strategy or "None"

    @property
    def live_update(self) -> bool:
        """Whether changes of a VM are applied to its running instance where they can be."""
        return self.configuration.vm_rollout_strategy != "Stage"

    @property
    def max_hotplug_ratio(self) -> int:
        """How many times its CPUs and memory an instance can grow to while it runs."""
        return _or(self.configuration.live_update_configuration.max_hotplug_ratio, 4)

    @property
    def max_cpu_sockets(self) -> int:
        """Most sockets of running instances; 0 leaves it to `max_hotplug_ratio`."""
        return self.configuration.live_update_configuration.max_cpu_sockets or 0

    @property
    def max_guest_memory(self) -> str | int | None:
        """Most memory of running instances; None leaves it to `max_hotplug_ratio`."""
        return self.configuration.live_update_configuration.max_guest

    @property
    def parallel_migrations(self) -> int:
        """Most migrations at the same time."""
        return _or(self.configuration.migrations.parallel_migrations_per_cluster, 5)

    @property
    def parallel_outbound_migrations(self) -> int:
        """Most migrations at the same time that leave one node."""
        return _or(self.configuration.migrations.parallel_outbound_migrations_per_node, 2)

    @property
    def default_network_interface(self) -> str:
        """Binding of the interface that instances without networks get: bridge or masquerade."""
        return self.configuration.network.default_network_interface or "bridge"

    @property
    def obsolete_cpu_models(self) -> Mapping[str, bool] | None:
        """CPU models that no guest should have; None for the built-in list."""
        return self.configuration.obsolete_cpu_models

    @property
    def permits_bridge_on_pod_network(self) -> bool:
        """Whether bridge bindings may join the pod network."""
        return self.configuration.network.permit_bridge_interface_on_pod_network is not False

    @property
    def binding_plugins(self) -> Mapping[str, InterfaceBindingPlugin]:
        """Registered network binding plugins by name."""
        return self.configuration.network.binding

    @property
    def persistent_reservation(self) -> bool:
        """Whether SCSI persistent reservations are allowed. The gate counts only where it is listed."""
        explicit = self.configuration.persistent_reservation_configuration.enabled
        return explicit if explicit is not None else "PersistentReservation" in self.enabled_gates

    @property
    def common_instancetypes(self) -> bool:
        """Whether the common instance types and preferences are installed."""
        return self.configuration.common_instancetypes_deployment.enabled is not False

    @property
    def instancetype_reference_policy(self) -> str:
        """reference, expand or expandAll."""
        return self.configuration.instancetype.reference_policy or "reference"

    def machine_type(self, architecture: str) -> str:
        """The default machine type for `architecture`; the legacy setting wins where present."""
        return self.configuration.machine_type or self._architecture(architecture).machine_type or ""

    def emulated_machines(self, architecture: str) -> list[str]:
        """Globs of the machine types that `architecture` allows."""
        legacy = self.configuration.emulated_machines
        return list(legacy or self._architecture(architecture).emulated_machines)

    def ovmf_path(self, architecture: str) -> str:
        """Where the firmware images for `architecture` are found."""
        return self.configuration.ovmf_path or self._architecture(architecture).ovmf_path or ""

    def support_resources(self, kind: str) -> JsonObject:
        """The configured ``resources`` of support containers of type `kind`; empty when not configured."""
        found = (each for each in self.configuration.support_container_resources if each.type == kind)
        return next((encode(each.resources) for each in found), {})

    def contradictions(self) -> list[str]:
        """Why the configuration is invalid; empty if it is valid."""
        found = [self._unfit] if self._unfit else []
        if self.image_pull_policy not in ("", "Always", "Never", "IfNotPresent"):
            found.append(f"invalid imagePullPolicy {self.image_pull_policy!r}")
        if self.memory_overcommit <= 0:
            found.append("memoryOvercommit must be greater than 0")
        if self.cpu_allocation_ratio <= 0:
            found.append("cpuAllocationRatio must be greater than 0")
        percent = self.configuration.developer_configuration.pvc_tolerate_less_space_up_to_percent
        if not 0 <= (percent or 0) <= 100:
            found.append("pvcTolerateLessSpaceUpToPercent must be between 0 and 100")
        if self.default_network_interface not in ("bridge", "slirp", "masquerade"):
            found.append(f"invalid defaultNetworkInterface {self.default_network_interface!r}")
        return found

    def _architecture(self, architecture: str) -> ArchSpecificConfiguration:
        """The settings of an architecture; by default those of amd64."""
        known = self.configuration.architecture_configuration
        named = {"amd64": known.amd64, "arm64": known.arm64, "ppc64le": known.ppc64le, "s390x": known.s390x}
        nothing = ArchSpecificConfiguration()
        own = named.get(architecture or self.default_architecture) or nothing
        return own if own != nothing else known.amd64 or nothing


def _or(value: Value | None, default: Value) -> Value:
    """`value`, or `default` if it is absent; 0 and the empty string count as values."""
    return default if value is None else value
