"""The KubeVirt configuration as components see it: defaults, the user's settings on top, feature gates.

The effective configuration is computed from the ``KubeVirt`` object only; whoever holds a `ClusterSettings`
holds one consistent view. The object counts once its phase is set and while it is not being deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubecore.json import JsonObject, deep_copy, get_bool, get_int, get_list, get_object, get_str

BETA_GATES = frozenset(
    {
        "DeclarativeHotplugVolumes",
        "DecentralizedLiveMigration",
        "ExternalNetResourceInjection",
        "GPUsWithDRA",
        "HostDevicesWithDRA",
        "ImageVolume",
        "KubevirtSeccompProfile",
        "NodeRestriction",
        "OptOutRoleAggregation",
        "PasstBinding",
        "PodSecondaryInterfaceNamingUpgrade",
        "RebootPolicy",
        "Snapshot",
        "Template",
        "WorkloadEncryptionSEV",
    }
)
"""Gates that are on unless they are listed in ``disabledFeatureGates``."""

GA_GATES = frozenset(
    {
        "LiveMigration",
        "SRIOVLiveMigration",
        "NonRoot",
        "PSA",
        "CPUNodeDiscovery",
        "NUMA",
        "CommonInstancetypesDeploymentGate",
        "GPU",
        "HotplugNICs",
        "BochsDisplayForEFIGuests",
        "VMLiveUpdateFeatures",
        "NetworkBindingPlugins",
        "DynamicPodInterfaceNaming",
        "VolumesUpdateStrategy",
        "VolumeMigration",
        "DisableCustomSELinuxPolicy",
        "AutoResourceLimitsGate",
        "ClusterProfiler",
        "VMPersistentState",
        "VMExport",
        "PersistentReservation",
        "InstancetypeReferencePolicy",
        "EnableVirtioFsConfigVolumes",
        "ExpandDisks",
        "PanicDevices",
        "LiveUpdateNADRef",
        "VideoConfig",
        "SecureExecution",
        "MigrationPriorityQueue",
        "VmiMemoryOverheadReport",
        "LibvirtHooksServerAndClient",
    }
)
"""Gates that are always on and cannot be disabled."""

_DEFAULTS: Mapping[str, Any] = {
    "architectureConfiguration": {
        "amd64": {"machineType": "q35", "ovmfPath": "/usr/share/edk2/ovmf"},
        "arm64": {"machineType": "virt", "ovmfPath": "/usr/share/AAVMF"},
        "s390x": {"machineType": "s390-ccw-virtio", "ovmfPath": ""},
    },
    "developerConfiguration": {
        "cpuAllocationRatio": 10,
        "memoryOvercommit": 100,
        "minimumReservePVCBytes": 131072,
        "pvcTolerateLessSpaceUpToPercent": 10,
        "diskVerification": {"memoryLimit": "2000Mi"},
        "logVerbosity": {"virtLauncher": 2},
        "useEmulation": False,
    },
    "evictionStrategy": "None",
    "imagePullPolicy": "IfNotPresent",
    "instancetype": {"referencePolicy": "reference"},
    "liveUpdateConfiguration": {"maxHotplugRatio": 4},
    "migrations": {
        "allowAutoConverge": False,
        "allowPostCopy": False,
        "bandwidthPerMigration": "0Mi",
        "completionTimeoutPerGiB": 150,
        "nodeDrainTaintKey": "kubevirt.io/drain",
        "parallelMigrationsPerCluster": 5,
        "parallelOutboundMigrationsPerNode": 2,
        "progressTimeout": 150,
        "unsafeMigrationOverride": False,
        "utilityVolumesTimeout": 150,
    },
    "network": {"defaultNetworkInterface": "bridge", "permitBridgeInterfaceOnPodNetwork": True},
    "vmRolloutStrategy": "LiveUpdate",
}


def _merged(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {
            key: _merged(base.get(key), over[key]) if key in over else base[key] for key in {**base, **over}
        }
    return base if over is None else over


class ClusterSettings:
    """One immutable view of the effective configuration. `raw` is the merged ``spec.configuration``."""

    def __init__(self, kubevirt: JsonObject | None = None) -> None:
        document = kubevirt or {}
        in_use = bool(get_str(document, "status", "phase")) and not get_str(
            document, "metadata", "deletionTimestamp"
        )
        spec = get_object(document, "spec") if in_use else {}
        self.raw: JsonObject = deep_copy(_merged(_DEFAULTS, get_object(spec, "configuration")))
        self.annotations: Mapping[str, str] = get_object(document, "metadata", "annotations")
        self.image_pull_secrets = [dict(item) for item in get_list(spec, "imagePullSecrets")]
        self.workload_update_strategy = get_object(spec, "workloadUpdateStrategy")
        self.default_architecture = get_str(document, "status", "defaultArchitecture", default="amd64")
        self.namespace = get_str(document, "metadata", "namespace", default="kubevirt")
        developer = get_object(self.raw, "developerConfiguration")
        self._enabled = frozenset(get_list(developer, "featureGates"))
        self._disabled = frozenset(get_list(developer, "disabledFeatureGates"))

    def gate(self, name: str) -> bool:
        """Whether feature gate `name` is on: GA always, listed, or beta and not disabled."""
        if name in GA_GATES or name in self._enabled:
            return True
        return name in BETA_GATES and name not in self._disabled

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
        return get_str(self.raw, "evictionStrategy", default="None") or "None"

    @property
    def live_update(self) -> bool:
        """Whether changes of a VM are applied to its running instance where they can be."""
        return get_str(self.raw, "vmRolloutStrategy", default="LiveUpdate") == "LiveUpdate"

    @property
    def migrations(self) -> JsonObject:
        """The install-wide migration settings."""
        return get_object(self.raw, "migrations")

    @property
    def binding_plugins(self) -> JsonObject:
        """Registered network binding plugins by name."""
        return get_object(self.raw, "network", "binding")

    def machine_type(self, architecture: str) -> str:
        """The default machine type for `architecture`; the legacy setting wins where present."""
        configured = get_object(self.raw, "architectureConfiguration", architecture)
        return get_str(self.raw, "machineType") or get_str(configured, "machineType")

    def ovmf_path(self, architecture: str) -> str:
        """Where the firmware images for `architecture` are found."""
        configured = get_object(self.raw, "architectureConfiguration", architecture)
        return get_str(self.raw, "ovmfPath") or get_str(configured, "ovmfPath")

    def support_resources(self, kind: str) -> JsonObject:
        """The configured ``resources`` of support containers of type `kind`; empty when not configured."""
        for item in get_list(self.raw, "supportContainerResources"):
            if item.get("type") == kind:
                return get_object(item, "resources")
        return {}
