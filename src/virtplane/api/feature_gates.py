"""The feature gates: their states, and warnings about listing them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from virtplane.api import vnc_access


class State(StrEnum):
    """The maturity of a feature, which is the default of its gate."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GENERAL_AVAILABILITY = "General Availability"
    DEPRECATED = "Deprecated"
    DISCONTINUED = "Discontinued"


_ALPHA = """
AlignCPUs CPUManager ConfigurableHypervisor ContainerPathVolumes CrossArchitectureVirtualization
DownwardMetrics EnableVirtioFsStorageVolumes ExperimentalIgnitionSupport FirmwareAutoSelection
GraceIOVirtualization HostDevices HostDisk HypervStrictCheck IncrementalBackup IOMMUFD
MigrationDowntimeTuning MigrationStallDetection NetworkDevicesWithDRA ObjectGraph OCIExport
PCINUMAAwareTopology Plugins PortRangesSpec ReservedOverheadMemlock Root Sidecar UtilityVolumes
VGPULiveMigration VMStatsCollector VSOCK WorkloadEncryptionTDX
"""
_OWN = frozenset({vnc_access.GATE})
"""Gates that KubeVirt does not have: elsewhere they are settings of other operators."""
_BETA = """
DeclarativeHotplugVolumes DecentralizedLiveMigration ExternalNetResourceInjection GPUsWithDRA
HostDevicesWithDRA ImageVolume KubevirtSeccompProfile NodeRestriction OptOutRoleAggregation PasstBinding
PodSecondaryInterfaceNamingUpgrade RebootPolicy Snapshot Template WorkloadEncryptionSEV
"""
_GENERAL_AVAILABILITY = """
LiveMigration SRIOVLiveMigration NonRoot PSA CPUNodeDiscovery NUMA CommonInstancetypesDeploymentGate GPU
HotplugNICs BochsDisplayForEFIGuests VMLiveUpdateFeatures NetworkBindingPlugins
DynamicPodInterfaceNaming VolumesUpdateStrategy VolumeMigration DisableCustomSELinuxPolicy
AutoResourceLimitsGate ClusterProfiler VMPersistentState VMExport PersistentReservation
InstancetypeReferencePolicy EnableVirtioFsConfigVolumes ExpandDisks PanicDevices LiveUpdateNADRef
VideoConfig SecureExecution MigrationPriorityQueue VmiMemoryOverheadReport LibvirtHooksServerAndClient
"""

DEPRECATED: Mapping[str, str] = {
    "DockerSELinuxMCSWorkaround": "DockerSELinuxMCSWorkaround has been deprecated since v1.4.",
    "MultiArchitecture": "MultiArchitecture has been deprecated since v1.8.0",
    "DisableMDEVConfiguration": "DisableMDEVConfiguration has been deprecated since v1.8.0",
    "HotplugVolumes": "HotplugVolumes has been deprecated since v1.9.0"
    " and has been replaced by DeclarativeHotplugVolumes",
}
"""Gates that do nothing of their own any more, with the warning for those who list them."""

DISCONTINUED: Mapping[str, str] = {
    "ExperimentalVirtiofsSupport": "Virtiofs ExperimentalVirtiofsSupport feature gate is"
    " discontinued since v1.7."
    " Please use EnableVirtioFsConfigVolumes or EnableVirtioFsPVC feature gates instead",
    "Passt": "Passt network binding is discontinued since v1.3."
    " Please refer to Kubevirt user guide for alternatives.",
    "Macvtap": "Macvtap network binding is discontinued since v1.3."
    " Please refer to Kubevirt user guide for alternatives.",
    "PasstIPStackMigration": "Seamless migration with passt network binding plugin is no longer supported"
    " since KubeVirt v1.8. Please use the passt core binding instead.",
}
"""Gates of removed features: instances that use the feature are refused while the gate is listed."""

STATES: Mapping[str, State] = {
    **dict.fromkeys((*_ALPHA.split(), *_OWN), State.ALPHA),
    **dict.fromkeys(_BETA.split(), State.BETA),
    **dict.fromkeys(_GENERAL_AVAILABILITY.split(), State.GENERAL_AVAILABILITY),
    **dict.fromkeys(DEPRECATED, State.DEPRECATED),
    **dict.fromkeys(DISCONTINUED, State.DISCONTINUED),
}
"""Every gate known."""

_GRADUATED_URL = "https://github.com/kubevirt/kubevirt/blob/main/docs/deprecation.md"


def is_enabled(gate: str, enabled: Collection[str], disabled: Collection[str]) -> bool:
    """Whether `gate` is on. Unknown gates are off, graduated ones on; listed wins over disabled."""
    state = STATES.get(gate)
    if state is None:
        return False
    if state is State.GENERAL_AVAILABILITY or gate in enabled:
        return True
    return state is State.BETA and gate not in disabled


def listing_warning(gate: str) -> str | None:
    """The warning for listing `gate`; None for unknown gates, empty for no warning."""
    state = STATES.get(gate)
    if state is None:
        return None
    if state is State.GENERAL_AVAILABILITY:
        return (
            f'feature gate {gate} is deprecated (feature state is "{state}"),'
            f" therefore it can be safely removed and is redundant."
            f" For more info, please look at: {_GRADUATED_URL}"
        )
    return DEPRECATED.get(gate) or DISCONTINUED.get(gate) or ""
