"""The recording rules of KubeVirt, under their present and their former names."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore.json import JsonObject
from virtplane.operators.kubevirt.strategy.parameters import Parameters

COMPONENTS = ("api", "controller", "operator", "handler")
_OF_CONTROL_PLANE = ("api", "controller", "operator")
_MEMORY = 'container=~"virt-controller|virt-api|virt-handler|virt-operator|compute"'


def recordings(parameters: Parameters) -> list[JsonObject]:
    """The recording rules, under their present and their former names."""
    found = {
        **_of_components(parameters),
        **_of_cluster(),
        **_of_machines(),
        **_of_guests(),
        **_of_snapshots(),
    }
    found |= {old: new for old, new in _FORMER_NAMES.items() if new in found}
    rules: list[JsonObject] = [{"record": name, "expr": text} for name, text in found.items()]
    for usage, reason in (("working_set_bytes", "working_set"), ("rss", "rss")):
        expression = _over_request(usage)
        labels = {"reason": f"memory_{reason}_delta_from_request"}
        for name in (
            "container:kubevirt_memory_delta_from_requested_bytes:max",
            "kubevirt_memory_delta_from_requested_bytes",
        ):
            rules.append({"record": name, "expr": expression, "labels": labels})
    return rules


def pods_of(parameters: Parameters, component: str) -> str:
    """In whose pods a component runs: in the compact layout the control plane is virt-operator's process."""
    is_own = parameters.layout == "distributed" or component not in _OF_CONTROL_PLANE
    return component if is_own else "operator"


def _of_components(parameters: Parameters) -> dict[str, str]:
    namespace, found = parameters.namespace, {}
    for name in COMPONENTS:
        pods = f"pod=~'virt-{pods_of(parameters, name)}-.*'"
        start, metric = f"cluster:kubevirt_virt_{name}", f"kubevirt_virt_{name}"
        found[f"{start}_up:sum"] = f"sum(up{{namespace='{namespace}', {pods}}}) or vector(0)"
        found[f"{start}_pods_running:count"] = (
            f"count(kube_pod_status_phase{{{pods}, namespace='{namespace}', phase='Running'}} == 1)"
            " or vector(0)"
        )
        found[f"{start}_ready:sum"] = (
            f"sum(kube_pod_status_ready{{{pods}, namespace='{namespace}', condition='true'}}"
            f" * on(pod, namespace) {metric}_ready_status{{namespace='{namespace}'}}) or vector(0)"
        )
        if name in ("controller", "operator"):
            found[f"{start}_leading:sum"] = (
                f"sum({metric}_leading_status{{namespace='{namespace}'}}) or vector(0)"
            )
    return found


def _of_cluster() -> dict[str, str]:
    grouped = "(group,version,resource,subresource)"
    deprecated = (
        f'group by {grouped} (apiserver_requested_deprecated_apis{{group="kubevirt.io"}}) * on {grouped}'
        " group_right() sum by (group,version,resource,subresource,verb) (apiserver_request_total)"
    )
    return {
        "cluster:kubevirt_api_request_deprecated_total:sum": deprecated,
        "cluster:kubevirt_non_schedulable_nodes:sum": (
            "sum (count by (node) (kube_node_role{role=~'arbiter'})) or vector(0)"
        ),
        "cluster:kubevirt_nodes_allocatable:count": (
            "count(count (kube_node_status_allocatable) by (node))"
            " - cluster:kubevirt_non_schedulable_nodes:sum"
        ),
        "cluster:kubevirt_nodes_with_kvm:count": (
            'count(kube_node_status_allocatable{resource="devices_kubevirt_io_kvm"} != 0) or vector(0)'
        ),
    }


def _of_machines() -> dict[str, str]:
    of = "pod=~'virt-launcher-.*', container='compute'"
    requested = (
        f"sum by(pod, container, namespace) (kube_pod_container_resource_requests{{{of}, resource='memory'}}"
        " - on(pod,container, namespace) "
    )
    margin = "pod_container:kubevirt_vm_memory_request_margin_based_on"
    by = (
        "node, phase, os, workload, flavor, instance_type, preference, guest_os_kernel_release,"
        " guest_os_machine, guest_os_arch, guest_os_name, guest_os_version_id"
    )
    claims = (
        "((kube_persistentvolumeclaim_info unless on(namespace,persistentvolumeclaim)"
        " (kube_pod_spec_volumes_persistentvolumeclaims or kubevirt_vm_disk_allocated_size_bytes))"
        " * on(namespace,persistentvolumeclaim) group_left()"
        " kube_persistentvolumeclaim_resource_requests_storage_bytes)"
    )
    return {
        "pvc:kubevirt_suspected_orphaned_storage_bytes:info": claims,
        "kubevirt_vm_created_total": "sum by (namespace) (kubevirt_vm_created_by_pod_total)",
        f"{margin}_working_set_bytes:sum": (
            f"{requested}max by(pod, container, namespace) (container_memory_working_set_bytes{{{of}}}))"
        ),
        f"{margin}_rss_bytes:sum": f"{requested}container_memory_rss{{{of}}})",
        "namespace:kubevirt_vm:sum": "sum by (namespace) (count by (name, namespace) (kubevirt_vm_info))",
        "node:kubevirt_vmi_phase:sum": f"sum by ({by}) (kubevirt_vmi_info)",
    }


def _of_guests() -> dict[str, str]:
    start, by = "vmi:kubevirt_vmi", "sum by (name, namespace)"
    usable, available = "kubevirt_vmi_memory_usable_bytes", "kubevirt_vmi_memory_available_bytes"
    found = {
        f"{start}_memory_used_bytes:sum": f"{available}-{usable}",
        f"{start}_vcpu:count": "count by (namespace, name, node) (kubevirt_vmi_vcpu_seconds_total)",
        f"{start}_guest_queue_length:sum": (
            f"{by} (clamp_min(kubevirt_vmi_guest_load_1m - {start}_vcpu:count, 0))"
        ),
        f"{start}_memory_headroom_ratio:sum": f"{by} ({usable}) / {by} ({available})",
        f"{start}_memory_available_bytes:sum": f"{by} ({available})",
    }
    for minutes in (5, 30):
        swaps = (
            f"{by} (rate(kubevirt_vmi_memory_swap_{way}_traffic_bytes[{minutes}m]))" for way in ("in", "out")
        )
        found[f"{start}_swap_traffic_bytes:rate{minutes}m"] = " + ".join(swaps)
        faults = f"{by} (rate(kubevirt_vmi_memory_pgmajfault_total[{minutes}m]))"
        found[f"{start}_pgmajfaults:rate{minutes}m"] = faults
    return found


def _of_snapshots() -> dict[str, str]:
    label = "label_restore_kubevirt_io_source_vm"
    claims = f"kube_persistentvolumeclaim_labels{{{label}_name!='', {label}_namespace!=''}} == 1"
    spaced = f"label_replace({claims},'vm_namespace', '$1', '{label}_namespace', '(.*)')"
    by, named = "sum by(vm_name, vm_namespace)", "pvc:kubevirt_vmsnapshot_labels:info"
    return {
        named: f"label_replace({spaced}, 'vm_name', '$1', '{label}_name', '(.*)')",
        "vm:kubevirt_vmsnapshot_disks_restored:sum": f"{by} ({named})",
        "vm:kubevirt_vmsnapshot_restored_bytes:sum": (
            f"{by} (kube_persistentvolumeclaim_resource_requests_storage_bytes"
            f" * on(persistentvolumeclaim, namespace) group_left(vm_name, vm_namespace) {named})"
        ),
    }


def _over_request(usage: str) -> str:
    requests = f'kube_pod_container_resource_requests{{{_MEMORY},resource="memory"}}'
    used = f'container_memory_{usage}{{{_MEMORY}, pod=~"virt-.*"}}'
    return (
        f"topk by(container)(1,max by(container, namespace, node, pod)({used}"
        f" - on(pod) group_left(node) ({requests})))"
    )


_MARGIN = "memory_request_margin_based_on"
_FORMER_NAMES: Mapping[str, str] = {
    "kubevirt_allocatable_nodes": "cluster:kubevirt_nodes_allocatable:count",
    "kubevirt_nodes_with_kvm": "cluster:kubevirt_nodes_with_kvm:count",
    "kubevirt_api_request_deprecated_total": "cluster:kubevirt_api_request_deprecated_total:sum",
    "kubevirt_number_of_vms": "namespace:kubevirt_vm:sum",
    f"kubevirt_vm_container_{_MARGIN}_rss_bytes": f"pod_container:kubevirt_vm_{_MARGIN}_rss_bytes:sum",
    f"kubevirt_vm_container_{_MARGIN}_working_set_bytes": (
        f"pod_container:kubevirt_vm_{_MARGIN}_working_set_bytes:sum"
    ),
    "kubevirt_vmi_guest_vcpu_queue": "vmi:kubevirt_vmi_guest_queue_length:sum",
    "kubevirt_vmi_memory_used_bytes": "vmi:kubevirt_vmi_memory_used_bytes:sum",
    "kubevirt_vmi_phase_count": "node:kubevirt_vmi_phase:sum",
    **{f"kubevirt_virt_{name}_up": f"cluster:kubevirt_virt_{name}_up:sum" for name in COMPONENTS},
    **{
        f"kubevirt_virt_{name}_ready": f"cluster:kubevirt_virt_{name}_ready:sum"
        for name in ("controller", "operator")
    },
    "kubevirt_virt_operator_leading": "cluster:kubevirt_virt_operator_leading:sum",
    "kubevirt_vmsnapshot_persistentvolumeclaim_labels": "pvc:kubevirt_vmsnapshot_labels:info",
    "kubevirt_vmsnapshot_disks_restored_from_source": "vm:kubevirt_vmsnapshot_disks_restored:sum",
    "kubevirt_vmsnapshot_disks_restored_from_source_bytes": "vm:kubevirt_vmsnapshot_restored_bytes:sum",
}
