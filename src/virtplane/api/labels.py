"""Labels, annotations and finalizers: the one table of them."""

from __future__ import annotations

# Finalizers.
FINALIZER_INSTANCE = "kubevirt.io/foregroundDeleteVirtualMachine"
"""On instances until the node let go of the guest."""
FINALIZER_MACHINE = "kubevirt.io/virtualMachineControllerFinalize"
"""On machines, and on their instances, until the controller has seen them go."""
FINALIZER_MIGRATION = "kubevirt.io/migrationJobFinalize"
FINALIZER_KUBEVIRT = "kubevirt.io/foregroundDeleteKubeVirt"
FINALIZER_POOL = "pool.kubevirt.io/finalizer"
FINALIZER_SNAPSHOT = "snapshot.kubevirt.io/vmsnapshot-protection"
FINALIZER_SNAPSHOT_CONTENT = "snapshot.kubevirt.io/vmsnapshotcontent-protection"
FINALIZER_RESTORE = "snapshot.kubevirt.io/vmrestore-protection"
FINALIZER_SNAPSHOT_SOURCE = "snapshot.kubevirt.io/snapshot-source-protection"

# Labels of pods, instances and machines.
APP = "kubevirt.io"
"""The kind of component: virt-launcher, virt-handler, virt-api, hotplug-disk, ..."""
CREATED_BY = "kubevirt.io/created-by"
"""On launcher pods: the uid of their instance."""
VM_NAME = "vm.kubevirt.io/name"
VMI_ID = "vmi.kubevirt.io/id"
NODE_NAME = "kubevirt.io/nodeName"
MIGRATION_TARGET_NODE = "kubevirt.io/migrationTargetNodeName"
MIGRATION_JOB_UID = "kubevirt.io/migrationJobUID"
MIGRATION_NAME = "kubevirt.io/migrationName"
MIGRATION_SELECTOR = "kubevirt.io/vmi-name"
"""On migrations: the name of their instance."""
OUTDATED_LAUNCHER = "kubevirt.io/outdatedLauncherImage"
VOLUME_MIGRATION = "kubevirt.io/volume-update-migration"
POOL_REVISION = "kubevirt.io/vm-pool-revision-name"
AUTO_MEMORY_LIMITS_RATIO = "alpha.kubevirt.io/auto-memory-limits-ratio"
INSTALL_STRATEGY = "kubevirt.io/install-strategy"
ALLOW_CLUSTER_SERVICES = "np.kubevirt.io/allow-access-cluster-services"
PROMETHEUS = "prometheus.kubevirt.io"

RESERVED_INSTANCE_LABELS = (
    CREATED_BY,
    MIGRATION_JOB_UID,
    NODE_NAME,
    MIGRATION_TARGET_NODE,
    "kubevirt.io/schedulable",
    INSTALL_STRATEGY,
)
"""Labels that only components may set on instances."""

# Labels by which instance types and preferences are inferred and pinned.
DEFAULT_INSTANCETYPE = "instancetype.kubevirt.io/default-instancetype"
DEFAULT_INSTANCETYPE_KIND = "instancetype.kubevirt.io/default-instancetype-kind"
DEFAULT_PREFERENCE = "instancetype.kubevirt.io/default-preference"
DEFAULT_PREFERENCE_KIND = "instancetype.kubevirt.io/default-preference-kind"
TEMPLATE_ARCHITECTURE = "template.kubevirt.io/architecture"

# Labels and annotations of nodes.
SCHEDULABLE = "kubevirt.io/schedulable"
HEARTBEAT = "kubevirt.io/heartbeat"
CPU_MANAGER = "kubevirt.io/cpumanager"
CPU_MANAGER_OLD = "cpumanager"
REALTIME = "kubevirt.io/realtime"
CPU_MODEL_PREFIX = "cpu-model.node.kubevirt.io/"
CPU_MODEL_MIGRATION_PREFIX = "cpu-model-migration.node.kubevirt.io/"
CPU_FEATURE_PREFIX = "cpu-feature.node.kubevirt.io/"
CPU_VENDOR_PREFIX = "cpu-vendor.node.kubevirt.io/"
CPU_TIMER_PREFIX = "cpu-timer.node.kubevirt.io/"
TSC_SCHEDULING_PREFIX = "scheduling.node.kubevirt.io/tsc-frequency-"
HYPERV_PREFIX = "hyperv.node.kubevirt.io/"
MACHINE_TYPE_PREFIX = "machine-type.node.kubevirt.io/"
HOST_MODEL_CPU_PREFIX = "host-model-cpu.node.kubevirt.io/"
HOST_MODEL_FEATURES_PREFIX = "host-model-required-features.node.kubevirt.io/"
OBSOLETE_HOST_MODEL = "node-labeller.kubevirt.io/obsolete-host-model"
SKIP_NODE = "node-labeller.kubevirt.io/skip-node"
VM_ARCHITECTURE_PREFIX = "kubevirt.io/vm-arch-"
DRAIN_TAINT = "kubevirt.io/drain"

# Annotations.
LATEST_API_VERSION = "kubevirt.io/latest-observed-api-version"
STORAGE_API_VERSION = "kubevirt.io/storage-observed-api-version"
VM_GENERATION = "kubevirt.io/vm-generation"
DOMAIN = "kubevirt.io/domain"
"""On launcher pods: the name of their instance."""
MEMORY_OVERHEAD_BYTES = "kubevirt.io/memory-overhead-bytes"
"""On launcher pods: what they need beside the guest's memory."""
OWNER_VMI_NAME = "kubevirt.io/owner-vmi-name"
"""On attachment pods: the name of the instance that they bring volumes to."""
PCI_TOPOLOGY_VERSION = "kubevirt.io/pci-topology-version"
INSTANCETYPE_NAME = "kubevirt.io/instancetype-name"
CLUSTER_INSTANCETYPE_NAME = "kubevirt.io/cluster-instancetype-name"
IMMEDIATE_DATA_VOLUMES = "kubevirt.io/immediate-data-volume-creation"
CREATE_MIGRATION_TARGET = "kubevirt.io/create-migration-target"
RESTORE_RUN_STRATEGY = "kubevirt.io/restore-run-strategy"
KEEP_LAUNCHER_ALIVE = "kubevirt.io/keep-launcher-alive-after-failure"
FAIL_FAST = "kubevirt.io/func-test-virt-launcher-fail-fast"
"""Whatever its value, launchers end at once: how clients see what a crash loop does."""
LIBVIRT_LOG_FILTERS = "kubevirt.io/libvirt-log-filters"
IGNITION_DATA = "kubevirt.io/ignitiondata"
HOOK_SIDECARS = "hooks.kubevirt.io/hookSidecars"
DISABLE_PCI_HOLE64 = "kubevirt.io/disablePCIHole64"
FREE_PAGE_REPORTING_DISABLED = "kubevirt.io/free-page-reporting-disabled"
ALLOW_BRIDGE_MIGRATION = "kubevirt.io/allow-pod-bridge-network-live-migration"
QGS_SOCKET_PATH = "kubevirt.io/qgs-socket-path"
EVICTION_SOURCE = "kubevirt.io/eviction-source"
EVEN_PARITY = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
PRESET_PREFIX = "virtualmachinepreset.kubevirt.io/"
PRESET_EXCLUDE = "virtualmachineinstancepresets.admission.kubevirt.io/exclude"
EVACUATION_MIGRATION = "kubevirt.io/evacuationMigration"
WORKLOAD_UPDATE_MIGRATION = "kubevirt.io/workloadUpdateMigration"
MIGRATION_JOB_NAME = "kubevirt.io/migrationJobName"
NETWORK_INFO = "kubevirt.io/network-info"
INSTALL_STRATEGY_IDENTIFIER = "kubevirt.io/install-strategy-identifier"
CUSTOMIZER_IDENTIFIER = "kubevirt.io/customizer-identifier"

# Annotations of others' that pods have.
NETWORKS = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
ISTIO_INJECT = "sidecar.istio.io/inject"

CERTIFICATE_SECRET = "certificates.kubevirt.io/secret"
"""On webhooks and aggregated services: the secret of the certificate that they are verified by."""
CONDITION_UNPAUSED = "kubevirt.io/virtual-machine-unpaused"
"""Condition of launcher pods, their readiness gate."""
