"""The installation's configuration as every component sees it.

The effective configuration is the defaults below with ``spec.configuration`` of the ``KubeVirt`` object
merged on top: objects merge, lists and scalars replace. It counts once the object has a phase and while it
is not being deleted. A configuration that contradicts itself is ignored as a whole; whoever watches the
object keeps the last good one (`effective`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from kubecore.json import JsonObject, deep_copy, get_bool, get_int, get_list, get_object, get_str
from virtplane.api import feature_gates, labels

DEFAULT_ARCHITECTURE = "amd64"

_DEFAULTS: Mapping[str, Any] = {
    "architectureConfiguration": {
        "amd64": {
            "machineType": "q35",
            "emulatedMachines": ["q35*", "pc-q35*"],
            "ovmfPath": "/usr/share/edk2/ovmf",
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


def effective(kubevirt: JsonObject | None, previous: ClusterConfig | None = None) -> ClusterConfig:
    """The configuration to work by; `previous` where the object's own contradicts itself."""
    config = ClusterConfig(kubevirt)
    if config.contradictions():
        return previous or ClusterConfig(None)
    return config


class ClusterConfig:
    """One immutable view of the effective configuration; `raw` is ``spec.configuration`` with defaults."""

    def __init__(self, kubevirt: JsonObject | None = None) -> None:
        document = kubevirt or {}
        in_use = bool(get_str(document, "status", "phase")) and not get_str(
            document, "metadata", "deletionTimestamp"
        )
        spec = get_object(document, "spec") if in_use else {}
        self.raw: JsonObject = deep_copy(_merged(_DEFAULTS, get_object(spec, "configuration")))
        self.configured: JsonObject = deep_copy(get_object(spec, "configuration"))
        """What the user set, without defaults."""
        self.annotations: Mapping[str, str] = dict(get_object(document, "metadata", "annotations"))
        self.image_pull_secrets: list[JsonObject] = [
            dict(item) for item in get_list(spec, "imagePullSecrets")
        ]
        self.workload_update_strategy: JsonObject = deep_copy(get_object(spec, "workloadUpdateStrategy"))
        self.default_architecture = get_str(
            document, "status", "defaultArchitecture", default=DEFAULT_ARCHITECTURE
        )
        self.namespace = get_str(document, "metadata", "namespace", default="kubevirt")

    # Feature gates.

    @cached_property
    def enabled_gates(self) -> frozenset[str]:
        """Gates listed in ``featureGates``."""
        return frozenset(get_list(self.developer, "featureGates"))

    @cached_property
    def disabled_gates(self) -> frozenset[str]:
        """Gates listed in ``disabledFeatureGates``."""
        return frozenset(get_list(self.developer, "disabledFeatureGates"))

    def gate(self, name: str) -> bool:
        """Whether feature gate `name` is on."""
        return feature_gates.is_enabled(name, self.enabled_gates, self.disabled_gates)

    # Settings, each with its default.

    @property
    def developer(self) -> JsonObject:
        """``developerConfiguration``."""
        return get_object(self.raw, "developerConfiguration")

    @property
    def use_emulation(self) -> bool:
        """Whether guests may run under software emulation."""
        return get_bool(self.developer, "useEmulation")

    @property
    def cpu_allocation_ratio(self) -> int:
        """Virtual CPUs for each CPU that a launcher requests."""
        return get_int(self.developer, "cpuAllocationRatio", default=10)

    @property
    def cpu_model(self) -> str:
        """CPU model of instances that name none; empty for host-model."""
        return get_str(self.raw, "cpuModel")

    @property
    def cpu_request(self) -> str:
        """CPU request of instances that have none; the default of 100m is not copied into them."""
        return str(self.raw.get("cpuRequest") or "100m")

    @property
    def memory_overcommit(self) -> int:
        """Guest memory in percent of the memory that a launcher requests for it."""
        return get_int(self.developer, "memoryOvercommit", default=100)

    @property
    def image_pull_policy(self) -> str:
        """Pull policy of the launcher's own images."""
        return get_str(self.raw, "imagePullPolicy", default="IfNotPresent")

    @property
    def eviction_strategy(self) -> str:
        """Eviction strategy of instances that name none."""
        return get_str(self.raw, "evictionStrategy") or "None"

    @property
    def live_update(self) -> bool:
        """Whether changes of a VM are applied to its running instance where they can be."""
        return get_str(self.raw, "vmRolloutStrategy") != "Stage"

    @property
    def max_hotplug_ratio(self) -> int:
        """How many times its CPUs and memory an instance can grow to while it runs."""
        return get_int(self.raw, "liveUpdateConfiguration", "maxHotplugRatio", default=4)

    @property
    def max_cpu_sockets(self) -> int:
        """Most sockets of running instances; 0 leaves it to `max_hotplug_ratio`."""
        return get_int(self.raw, "liveUpdateConfiguration", "maxCpuSockets")

    @property
    def max_guest_memory(self) -> str | int | None:
        """Most memory of running instances; None leaves it to `max_hotplug_ratio`."""
        value: str | int | None = get_object(self.raw, "liveUpdateConfiguration").get("maxGuest")
        return value

    @property
    def migrations(self) -> JsonObject:
        """The install-wide migration settings."""
        return get_object(self.raw, "migrations")

    @property
    def default_network_interface(self) -> str:
        """Binding of the interface that instances without networks get: bridge or masquerade."""
        return get_str(self.raw, "network", "defaultNetworkInterface") or "bridge"

    @property
    def obsolete_cpu_models(self) -> Mapping[str, bool] | None:
        """CPU models that no guest should have; None for the built-in list."""
        found = self.raw.get("obsoleteCPUModels")
        return found if isinstance(found, dict) else None

    @property
    def permits_bridge_on_pod_network(self) -> bool:
        """Whether bridge bindings may join the pod network."""
        return get_bool(self.raw, "network", "permitBridgeInterfaceOnPodNetwork", default=True)

    @property
    def binding_plugins(self) -> JsonObject:
        """Registered network binding plugins by name."""
        return get_object(self.raw, "network", "binding")

    @property
    def persistent_reservation(self) -> bool:
        """Whether SCSI persistent reservations are allowed. The gate counts only where it is listed."""
        explicit = get_object(self.raw, "persistentReservationConfiguration").get("enabled")
        if isinstance(explicit, bool):
            return explicit
        return "PersistentReservation" in self.enabled_gates

    @property
    def common_instancetypes(self) -> bool:
        """Whether the common instance types and preferences are installed."""
        return get_bool(self.raw, "commonInstancetypesDeployment", "enabled", default=True)

    @property
    def instancetype_reference_policy(self) -> str:
        """reference, expand or expandAll."""
        return get_str(self.raw, "instancetype", "referencePolicy") or "reference"

    def machine_type(self, architecture: str) -> str:
        """The default machine type for `architecture`; the legacy setting wins where present."""
        return get_str(self.raw, "machineType") or get_str(self._architecture(architecture), "machineType")

    def emulated_machines(self, architecture: str) -> list[str]:
        """Globs of the machine types that `architecture` allows."""
        legacy = get_list(self.raw, "emulatedMachines")
        return legacy or get_list(self._architecture(architecture), "emulatedMachines")

    def ovmf_path(self, architecture: str) -> str:
        """Where the firmware images for `architecture` are found."""
        return get_str(self.raw, "ovmfPath") or get_str(self._architecture(architecture), "ovmfPath")

    def support_resources(self, kind: str) -> JsonObject:
        """The configured ``resources`` of support containers of type `kind`; empty when not configured."""
        for item in get_list(self.raw, "supportContainerResources"):
            if item.get("type") == kind:
                return get_object(item, "resources")
        return {}

    def log_verbosity(self, component: str, node: str = "") -> int:
        """Log level of ``virtHandler`` and the like; a level set for `node` wins."""
        levels = get_object(self.developer, "logVerbosity")
        per_node = get_object(levels, "nodeVerbosity")
        return get_int(per_node, node) if node in per_node else get_int(levels, component, default=2)

    def contradictions(self) -> list[str]:
        """What makes the configuration unusable; empty when it is fine."""
        found = []
        if self.image_pull_policy not in ("", "Always", "Never", "IfNotPresent"):
            found.append(f"invalid imagePullPolicy {self.image_pull_policy!r}")
        if self.memory_overcommit <= 0:
            found.append("memoryOvercommit must be greater than 0")
        if self.cpu_allocation_ratio <= 0:
            found.append("cpuAllocationRatio must be greater than 0")
        if not 0 <= get_int(self.developer, "pvcTolerateLessSpaceUpToPercent") <= 100:
            found.append("pvcTolerateLessSpaceUpToPercent must be between 0 and 100")
        if self.default_network_interface not in ("bridge", "slirp", "masquerade"):
            found.append(f"invalid defaultNetworkInterface {self.default_network_interface!r}")
        return found

    def _architecture(self, architecture: str) -> JsonObject:
        """The settings of an architecture; those of amd64 where there are none of its own."""
        known = get_object(self.raw, "architectureConfiguration")
        return get_object(known, architecture or self.default_architecture) or get_object(
            known, DEFAULT_ARCHITECTURE
        )
