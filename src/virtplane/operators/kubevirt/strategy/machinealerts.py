"""The alerts about VMs and their guests; names and expressions are KubeVirt's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Alert: TypeAlias = tuple[str, str, str, str, str, str]
"""Name, expression, how long it must hold (empty: not at all), severity, impact, summary."""

_NOT_MEASURED = (
    "CDFS|iso9660|udf|squashfs|cramfs|tmpfs|devtmpfs|proc|sysfs|selinuxfs|securityfs|pstore|debugfs|tracefs"
    "|configfs|binfmt_misc|bpf|devpts|mqueue|nsfs|rpc_pipefs|ramfs|rootfs|overlay|cgroup.*|fuse\\\\..*|fusectl"
)
"""Types of file systems that are always full, or in memory."""

_GUEST = "The guest {{ $labels.name }} of namespace {{ $labels.namespace }}"
_MACHINE = "The machine {{ $labels.name }} of namespace {{ $labels.namespace }}"
_SMALL = "The guest of {{ $labels.vm }} in namespace {{ $labels.namespace }} has little memory left"
DESCRIPTIONS: Mapping[str, str] = {
    "LowKVMNodesCount": "Guests can be moved only where at least two nodes have KVM.",
    "KubeVirtDeprecatedAPIRequested": "So many requests in ten minutes: {{ $value }}.",
    "VMCannotBeEvicted": (
        f"{_GUEST}, on node {{{{ $labels.node }}}}, has the eviction strategy LiveMigrate and cannot be"
        " migrated: draining the node waits for it."
    ),
    "KubeVirtVMIExcessiveMigrations": (
        "The guest {{ $labels.vmi }} of namespace {{ $labels.namespace }} was migrated so often in a day:"
        " {{ $value }}."
    ),
    "GuestVCPUQueueHighWarning": f"{_GUEST} has more than ten processes that wait for a processor.",
    "GuestVCPUQueueHighCritical": f"{_GUEST} has more than twenty processes that wait for a processor.",
    "VirtualMachineStuckInUnhealthyState": (
        f"{_MACHINE} has been {{{{ $labels.status }}}} without an instance for ten minutes."
    ),
    "VirtualMachineStuckOnNode": (
        f"{_MACHINE} has been {{{{ $labels.status }}}} on node {{{{ $labels.node }}}} for five minutes."
    ),
    "KubeVirtVMGuestMemoryPressure": f"{_SMALL}, and reads pages again or swaps.",
    "KubeVirtVMGuestMemoryAvailableLow": f"{_SMALL} (less than 3 % for half an hour), and does not swap.",
    "GuestFilesystemAlmostOutOfSpace": (
        f"{_GUEST} has used so much of {{{{ $labels.disk_name }}}} at {{{{ $labels.mount_point }}}}:"
        " {{ $value }} %."
    ),
    "VMNonRecoverableOSPanic": "Its kernel has crashed so often in a day: {{ $value }}.",
}
"""What the summaries do not say, by alert; where KubeVirt's alerts have descriptions."""


def machine_alerts() -> list[Alert]:
    """All of them."""
    return [*_machine_alerts(), *_memory_alerts(), *_guest_alerts()]


def _guest_alerts() -> list[Alert]:
    queue = "vmi:kubevirt_vmi_guest_queue_length:sum{namespace!=''}"
    where = f"{{namespace!='',file_system_type!~'{_NOT_MEASURED}',mount_point!='System Reserved'}}"
    share = f"(kubevirt_vmi_filesystem_used_bytes{where} / kubevirt_vmi_filesystem_capacity_bytes{where})*100"
    full = "GuestFilesystemAlmostOutOfSpace"
    panics = "sum by (namespace, name) (increase(kubevirt_vmi_guest_os_panic_total[24h])) > 5"
    waiting = "Processes of the guest {{ $labels.name }} wait for its processors."
    nearly, quite = (
        "A file system of a guest is nearly full.",
        "A file system of a guest is full but for 5 %.",
    )
    crashed = "The guest {{ $labels.name }} has crashed again and again."
    return [
        ("GuestVCPUQueueHighWarning", _named(f"{queue} > 10"), "", "warning", "none", waiting),
        ("GuestVCPUQueueHighCritical", _named(f"{queue} > 20"), "", "critical", "none", waiting),
        (full, _named(f"{share} >= 85 < 95"), "10m", "warning", "none", nearly),
        (full, _named(f"{share} >= 95"), "", "critical", "none", quite),
        ("VMNonRecoverableOSPanic", _named(panics), "1m", "critical", "none", crashed),
    ]


def _machine_alerts() -> list[Alert]:
    running = "topk by(name, namespace) (1, kubevirt_vmi_info{phase='running'})"
    there = "kubevirt_vmi_info{phase=~'scheduled|running'}"
    waiting = " == 1 or ".join(f"kubevirt_vm_info{{status='{word}'}}" for word in ("starting", "terminating"))
    on_node = " == 1 or ".join(
        f"kubevirt_vm_info{{status='{word}'}}" for word in ("starting", "stopping", "terminating")
    )
    failed = "kubevirt_vm_info{status_group='error'} == 1"
    provisioning = "kubevirt_vm_info{status='provisioning'}==1"
    moves = "topk by (vmi, namespace, vmim) (1, max_over_time(kubevirt_vmi_migration_succeeded[1d]))"
    return [
        (
            "VMCannotBeEvicted",
            _named(f"kubevirt_vmi_non_evictable * on(name, namespace) group_left() {running} == 1"),
            "1m",
            "warning",
            "none",
            "The guest {{ $labels.name }} is to be migrated when it is evicted, and cannot be.",
        ),
        (
            "KubeVirtVMIExcessiveMigrations",
            _named(f"sum by (vmi, namespace) ({moves}) >= 12", "vmi"),
            "",
            "warning",
            "none",
            "The guest {{ $labels.vmi }} was migrated at least twelve times in a day.",
        ),
        (
            "OutdatedVirtualMachineInstanceWorkloads",
            "kubevirt_vmi_number_of_outdated{namespace!=''} != 0",
            "24h",
            "warning",
            "none",
            "Some guests have run in launchers of an old image for a day.",
        ),
        (
            "VirtualMachineStuckInUnhealthyState",
            _named(
                f"sum by (name, namespace, status)({provisioning} or {waiting} == 1 or {failed})"
                " unless on(name, namespace) kubevirt_vmi_info"
            ),
            "10m",
            "warning",
            "none",
            "The machine {{ $labels.name }} is {{ $labels.status }} without an instance for ten minutes.",
        ),
        (
            "VirtualMachineStuckOnNode",
            _named(
                f"sum by (name, namespace, status, node)(({on_node} == 1 or"
                f" ({failed} and on(name, namespace) {there}) )"
                f" * on(name, namespace) group_left(node) topk by(name, namespace) (1, {there}))"
            ),
            "5m",
            "warning",
            "none",
            "The machine {{ $labels.name }} is {{ $labels.status }} on {{ $labels.node }} for five minutes.",
        ),
    ]


def _memory_alerts() -> list[Alert]:
    start = "vmi:kubevirt_vmi"
    headroom, faults = f"{start}_memory_headroom_ratio:sum", f"{start}_pgmajfaults"
    swaps = f"{start}_swap_traffic_bytes"
    is_told = f"({start}_memory_available_bytes:sum > 0)"
    info = "label_replace(kubevirt_vmi_info{phase='running'}, 'vm', '$1', 'name', '(.+)')"
    by_pod = f"label_replace({info}, 'name', '$1', 'vmi_pod', '(.+)')"
    machine = f"on(name, namespace) group_left(vm) topk by(name, namespace) (1, {by_pod})"
    pressure = f"({faults}:rate5m > 5 or ({swaps}:rate5m > 1048576))"
    quiet = f"({swaps}:rate30m < 2048) and ({faults}:rate30m < 1)"
    return [
        (
            "KubeVirtVMGuestMemoryPressure",
            f"((({headroom} < 0.05) and {pressure} and {is_told}) * {machine})",
            "5m",
            "warning",
            "none",
            "The guest of {{ $labels.vm }} has little memory left, and swaps or reads its pages again.",
        ),
        (
            "KubeVirtVMGuestMemoryAvailableLow",
            f"((({headroom} < 0.03) and {quiet} and {is_told}) * {machine})",
            "30m",
            "info",
            "none",
            "The guest of {{ $labels.vm }} has hardly any memory left.",
        ),
    ]


def _named(expression: str, label: str = "name") -> str:
    """The expression with the label ``vm`` of the machine's name."""
    return f'label_replace({expression}, "vm", "$1", "{label}", "(.+)")'
