"""The alerts and recordings of KubeVirt and CDI, evaluated by Prometheus' own promtool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cdi_operator import SETTINGS
from tests.support.promtool import Prometheus, unpacked

from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.config import ClusterConfig
from virtplane.compute.handler import guestmetrics
from virtplane.operators.cdi import monitoring
from virtplane.operators.cdi.product import Parameters as CdiParameters
from virtplane.operators.kubevirt.strategy import alerts, recordings
from virtplane.operators.kubevirt.strategy.parameters import Parameters

NS = 'namespace="installed"'
VM = 'name="vm",namespace="users"'
_ROOT = f'{VM},disk_name="vda1",mount_point="/",file_system_type="ext4"'
_IMAGE = f'{VM},disk_name="sr0",mount_point="/media",file_system_type="iso9660"'
_PANICS = f'{VM},type="unknown",bugcheck_code="unknown"'
_RUNBOOKS = "https://runbooks.test/%s"
_REQUESTS = "kubevirt_rest_client_requests_total"
_PROFILE = 'kubevirt_cdi_storageprofile_info{storageclass="%s",provisioner="p"'
_MINUTES = 90
_ALWAYS = f"1+0x{_MINUTES}"
_NEVER = f"0+0x{_MINUTES}"


def _often(count: int) -> str:
    return f"{count}+0x{_MINUTES}"


def _rising(by: int) -> str:
    return f"0+{by}x{_MINUTES}"


def _state(component: str, number: int, state: str) -> str:
    return f'kubevirt_{component.replace("-", "_")}_{state}_status{{{NS},pod="{component}-{number}"}}'


def _phase(component: str, number: int) -> str:
    return f'kube_pod_status_phase{{{NS},pod="{component}-{number}",phase="Running"}}'


def _pod_ready(component: str, number: int) -> str:
    return f'kube_pod_status_ready{{{NS},pod="{component}-{number}",condition="true"}}'


def _healthy() -> dict[str, str]:
    """A cluster of two nodes with a guest, where nothing is wrong."""
    found = {
        'kubevirt_configuration_emulation_enabled{pod="virt-operator-0"}': _NEVER,
        f'kube_daemonset_status_number_ready{{{NS},daemonset="virt-handler"}}': _often(2),
        f'kube_daemonset_status_desired_number_scheduled{{{NS},daemonset="virt-handler"}}': _often(2),
        'kube_pod_info{namespace="users",pod="virt-launcher-vm-x",node="node0"}': _ALWAYS,
        f'kubevirt_vmi_info{{{VM},phase="running",node="node0",vmi_pod="virt-launcher-vm-x"}}': _ALWAYS,
        f'kubevirt_vm_info{{{VM},status="running",status_group="running"}}': _ALWAYS,
        f"kubevirt_vmi_non_evictable{{{VM}}}": _NEVER,
        f"kubevirt_vmi_number_of_outdated{{{NS}}}": _NEVER,
        f"kubevirt_vmi_memory_available_bytes{{{VM}}}": _often(100),
        f"kubevirt_vmi_memory_usable_bytes{{{VM}}}": _often(50),
        f'kubevirt_vmi_vcpu_seconds_total{{{VM},id="0",state="running"}}': _rising(60),
        f"kubevirt_vmi_guest_load_1m{{{VM}}}": _often(2),
        f"kubevirt_vmi_filesystem_capacity_bytes{{{_ROOT}}}": _often(100),
        f"kubevirt_vmi_filesystem_used_bytes{{{_ROOT}}}": _often(50),
        f"kubevirt_vmi_filesystem_capacity_bytes{{{_IMAGE}}}": _often(100),
        f"kubevirt_vmi_filesystem_used_bytes{{{_IMAGE}}}": _often(100),
        f"kubevirt_vmi_guest_os_panic_total{{{_PANICS}}}": _often(7),
        'kubevirt_cdi_cr_ready{namespace="cdi"}': _ALWAYS,
        f'up{{namespace="{SETTINGS.namespace}",pod="cdi-operator-0"}}': _ALWAYS,
        _PROFILE % "fast" + ',default="true",virtdefault="false",degraded="false",complete="true"}': _ALWAYS,
        'kubevirt_cdi_dataimportcron_outdated{namespace="golden",cron_name="c",pending="false"}': _NEVER,
        'kubevirt_cdi_datavolume_pending{namespace="cdi"}': _NEVER,
    }
    for component in ("virt-api", "virt-controller", "virt-operator", "virt-handler"):
        for number in (0, 1):
            found[_phase(component, number)] = _ALWAYS
            found[_pod_ready(component, number)] = _ALWAYS
            found[_state(component, number, "ready")] = _ALWAYS
            if component in ("virt-controller", "virt-operator"):
                found[_state(component, number, "leading")] = (_ALWAYS, _NEVER)[number]
            pod = f'{NS},pod="{component}-{number}"'
            found[f'{_REQUESTS}{{{pod},code="200"}}'] = _rising(60)
            if component != "virt-handler":
                found[f'kube_deployment_spec_replicas{{{NS},deployment="{component}"}}'] = _often(2)
    for number in (0, 1):
        node = f'node="node{number}"'
        found[f'kube_pod_info{{{NS},pod="virt-handler-{number}",{node}}}'] = _ALWAYS
        found[f'kube_node_status_allocatable{{{node},resource="cpu"}}'] = _often(4)
        found[_kvm(number)] = _often(1000)
        found[f'kube_node_labels{{{node},label_kubevirt_io_schedulable="true"}}'] = _ALWAYS
        found[f"kube_node_spec_unschedulable{{{node}}}"] = _NEVER
    return found


def _kvm(number: int) -> str:
    return f'kube_node_status_allocatable{{node="node{number}",resource="devices_kubevirt_io_kvm"}}'


def _down(component: str, *numbers: int) -> dict[str, str]:
    """Pods that do not run."""
    return {_phase(component, number): _NEVER for number in numbers or (0, 1)}


def _unready(component: str, *numbers: int) -> dict[str, str]:
    """Pods that run and are not ready."""
    return {_state(component, number, "ready"): _NEVER for number in numbers}


def _refused(component: str) -> dict[str, str]:
    """Nine of ten requests."""
    return {f'{_REQUESTS}{{{NS},pod="{component}-0",code="503"}}': _rising(1200)}


def _migrations(count: int) -> dict[str, str]:
    return {
        f'kubevirt_vmi_migration_succeeded{{vmi="vm",namespace="users",vmim="m{number}"}}': _ALWAYS
        for number in range(count)
    }


_DEPRECATED = 'group="kubevirt.io",version="v1alpha3",resource="virtualmachines",subresource=""'
_OF_FAST = _PROFILE % "fast"
_OTHER = ',default="false",virtdefault="true",degraded="false",complete="true"}'
_CASES = (
    (
        "MON-69",
        "KubeVirtDeprecatedAPIRequested",
        {
            f"apiserver_requested_deprecated_apis{{{_DEPRECATED}}}": _ALWAYS,
            f'apiserver_request_total{{{_DEPRECATED},verb="GET"}}': _rising(5),
        },
    ),
    ("MON-70", "KubeVirtNoAvailableNodesToRunVMs", {_kvm(0): _NEVER, _kvm(1): _NEVER}),
    ("MON-72", "KubeVirtVMIExcessiveMigrations", _migrations(12)),
    ("MON-73", "LowKVMNodesCount", {_kvm(1): _NEVER}),
    ("MON-74", "LowReadyVirtControllersCount", _unready("virt-controller", 1)),
    ("MON-75", "LowReadyVirtOperatorsCount", _unready("virt-operator", 1)),
    ("MON-76", "LowVirtAPICount", _down("virt-api", 1)),
    ("MON-77", "LowVirtControllersCount", _down("virt-controller", 1)),
    ("MON-78", "LowVirtOperatorCount", _down("virt-operator", 1)),
    ("MON-80", "NoLeadingVirtOperator", {_state("virt-operator", 0, "leading"): _NEVER}),
    ("MON-81", "NoReadyVirtController", _unready("virt-controller", 0, 1)),
    ("MON-82", "NoReadyVirtOperator", _unready("virt-operator", 0, 1)),
    ("MON-83", "OrphanedVirtualMachineInstances", {_pod_ready("virt-handler", 0): _NEVER}),
    ("MON-93", "VirtAPIDown", _down("virt-api")),
    ("MON-94", "VirtApiRESTErrorsBurst", _refused("virt-api")),
    ("MON-96", "VirtControllerDown", _down("virt-controller")),
    ("MON-97", "VirtControllerRESTErrorsBurst", _refused("virt-controller")),
    (
        "MON-99",
        "VirtHandlerDaemonSetRolloutFailing",
        {f'kube_daemonset_status_number_ready{{{NS},daemonset="virt-handler"}}': _ALWAYS},
    ),
    ("MON-100", "VirtHandlerRESTErrorsBurst", _refused("virt-handler")),
    ("MON-102", "VirtOperatorDown", _down("virt-operator")),
    ("MON-103", "VirtOperatorRESTErrorsBurst", _refused("virt-operator")),
    ("MON-106", "VMCannotBeEvicted", {f"kubevirt_vmi_non_evictable{{{VM}}}": _ALWAYS}),
    (
        "MON-50",
        "CDIDataImportCronOutdated",
        {'kubevirt_cdi_dataimportcron_outdated{namespace="golden",cron_name="c",pending="false"}': _ALWAYS},
    ),
    (
        "MON-51",
        "CDIDataVolumeUnusualRestartCount",
        {'kube_pod_container_status_restarts_total{pod="importer-x",container="importer"}': _often(4)},
    ),
    (
        "MON-52",
        "CDIDefaultStorageClassDegraded",
        {
            _OF_FAST + ',default="true",virtdefault="false",degraded="false",complete="true"}': "",
            _OF_FAST + ',default="true",virtdefault="false",degraded="true",complete="true"}': _ALWAYS,
        },
    ),
    (
        "MON-53",
        "CDIMultipleDefaultVirtStorageClasses",
        {_PROFILE % name + _OTHER: _ALWAYS for name in ("one", "two")},
    ),
    (
        "MON-54",
        "CDINoDefaultStorageClass",
        {
            _OF_FAST + ',default="true",virtdefault="false",degraded="false",complete="true"}': "",
            'kubevirt_cdi_datavolume_pending{namespace="cdi"}': _ALWAYS,
        },
    ),
    ("MON-55", "CDINotReady", {'kubevirt_cdi_cr_ready{namespace="cdi"}': _NEVER}),
    ("MON-56", "CDIOperatorDown", {f'up{{namespace="{SETTINGS.namespace}",pod="cdi-operator-0"}}': _NEVER}),
    (
        "MON-57",
        "CDIStorageProfilesIncomplete",
        {
            _PROFILE % "odd"
            + ',default="false",virtdefault="false",degraded="true",complete="false"}': _ALWAYS
        },
    ),
)
"""The feature, the alert, and what is wrong."""
_AFTER_AN_HOUR = ("LowVirtAPICount", "LowVirtOperatorCount")


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("prometheus"))


@pytest.fixture
def prometheus(promtool: Path, tmp_path: Path) -> Prometheus:
    """With the rules of an installation of which each component has pods of its own."""
    kubevirt = Parameters("installed", "product:1", "distributed", ClusterConfig())
    cdi = CdiParameters(SETTINGS, CDI())
    rules = [
        *recordings.recordings(kubevirt),
        *monitoring.recordings(cdi),
        *alerts.alerts(kubevirt, _RUNBOOKS),
        *monitoring.alerts(_RUNBOOKS),
    ]
    return Prometheus(promtool, tmp_path, rules)


def test_no_alert_fires_where_nothing_is_wrong(prometheus: Prometheus) -> None:
    prometheus.check(_healthy(), {'group by (alertname) (ALERTS{alertstate="firing"})': {}}, minute=_MINUTES)


@pytest.mark.parametrize(
    ("alert", "wrong"),
    [pytest.param(alert, wrong, id=alert, marks=pytest.mark.feature(row)) for row, alert, wrong in _CASES],
)
def test_alert_fires_where_something_is_wrong(
    prometheus: Prometheus, alert: str, wrong: dict[str, str]
) -> None:
    series = {name: values for name, values in {**_healthy(), **wrong}.items() if values}
    query = f'group by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
    minute = _MINUTES if alert in _AFTER_AN_HOUR else 20
    prometheus.check(series, {query: {f'{{alertname="{alert}"}}': 1}}, minute=minute)


_USED = f"kubevirt_vmi_filesystem_used_bytes{{{_ROOT}}}"
_CRASHES = f"kubevirt_vmi_guest_os_panic_total{{{_PANICS}}}"
_LOAD = f"kubevirt_vmi_guest_load_1m{{{VM}}}"


@pytest.mark.parametrize(
    ("alert", "severity", "wrong"),
    [
        ("GuestVCPUQueueHighWarning", "warning", {_LOAD: _often(12)}),
        ("GuestVCPUQueueHighCritical", "critical", {_LOAD: _often(22)}),
        ("GuestFilesystemAlmostOutOfSpace", "warning", {_USED: _often(90)}),
        ("GuestFilesystemAlmostOutOfSpace", "critical", {_USED: _often(96)}),
        (
            "VMNonRecoverableOSPanic",
            "critical",
            {_CRASHES: _rising(1)},
        ),
    ],
)
def test_alert_names_the_guest_that_is_in_trouble(
    prometheus: Prometheus, alert: str, severity: str, wrong: dict[str, str]
) -> None:
    labels = f'alertname="{alert}",vm="vm",namespace="users",severity="{severity}"'
    query = f"group by (alertname, vm, namespace, severity) (ALERTS{{{labels}}})"
    prometheus.check(_healthy(), {query: {}}, minute=20)
    prometheus.check({**_healthy(), **wrong}, {query: {f"{{{labels}}}": 1}}, minute=20)


def test_claims_that_nothing_uses_are_suspected(prometheus: Prometheus) -> None:
    series = {}
    for name in ("disk", "mounted", "left"):
        claim = f'namespace="users",persistentvolumeclaim="{name}"'
        series[f"kube_persistentvolumeclaim_info{{{claim}}}"] = _ALWAYS
        series[f"kube_persistentvolumeclaim_resource_requests_storage_bytes{{{claim}}}"] = _often(1024)
    disk = 'namespace="users",persistentvolumeclaim="disk"'
    series[f"kubevirt_vm_disk_allocated_size_bytes{{{disk}}}"] = _often(9)
    pod = 'namespace="users",persistentvolumeclaim="mounted"'
    series[f"kube_pod_spec_volumes_persistentvolumeclaims{{{pod}}}"] = _ALWAYS
    name = "pvc:kubevirt_suspected_orphaned_storage_bytes:info"
    left = f'{name}{{namespace="users",persistentvolumeclaim="left"}}'
    prometheus.check(series, {name: {left: 1024.0}}, minute=10)


def test_created_machines_are_counted_over_all_pods(prometheus: Prometheus) -> None:
    series = {
        f'kubevirt_vm_created_by_pod_total{{namespace="users",pod="virt-api-{number}"}}': _often(number)
        for number in (1, 2)
    }
    name = "kubevirt_vm_created_total"
    prometheus.check(series, {name: {f'{name}{{namespace="users"}}': 3.0}}, minute=10)


@pytest.mark.feature("MON-84")
def test_outdated_guests_are_told_of_after_a_day(prometheus: Prometheus) -> None:
    series = {f"kubevirt_vmi_number_of_outdated{{{NS}}}": f"2+0x{25 * 60}"}
    name = "OutdatedVirtualMachineInstanceWorkloads"
    # A day of all other rules would take long.
    prometheus = replace(prometheus, rules=[each for each in prometheus.rules if each.get("alert") == name])
    query = f'group by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}})'
    prometheus.check(series, {query: {}}, minute=23 * 60)
    prometheus.check(series, {query: {f'{{alertname="{name}"}}': 1.0}}, minute=25 * 60)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            "network_receive_bytes_total", "network_transmit_bytes_total", marks=pytest.mark.feature("MON-09")
        ),
        pytest.param(
            "storage_read_traffic_bytes_total",
            "storage_write_traffic_bytes_total",
            marks=pytest.mark.feature("MON-12"),
        ),
        pytest.param(
            "storage_iops_read_total", "storage_iops_write_total", marks=pytest.mark.feature("MON-17")
        ),
        pytest.param(
            "memory_swap_in_traffic_bytes",
            "memory_swap_out_traffic_bytes",
            marks=pytest.mark.feature("MON-20"),
        ),
    ],
)
def test_the_three_guests_that_do_most_are_found(prometheus: Prometheus, first: str, second: str) -> None:
    names = [f"kubevirt_vmi_{each}" for each in (first, second)]
    assert set(names) <= set(guestmetrics.NAMES)
    series = {
        f'{name}{{name="vm{number}",namespace="users",interface="{card}"}}': _rising(60 * number)
        for name in names
        for number in range(1, 6)
        for card in ("a", "b")
    }
    rates = [f"sum by (name, namespace) (rate({name}[6m]))" for name in names]
    query = f"topk(3, {rates[0]} + {rates[1]}) > 0"
    most = {f'{{name="vm{number}",namespace="users"}}': 4.0 * number for number in (5, 4, 3)}
    prometheus.check(series, {query: most}, minute=20)


@pytest.mark.feature("MON-13", "MON-14")
def test_restored_disks_and_their_bytes_are_counted_by_machine(prometheus: Prometheus) -> None:
    labels = (
        'label_restore_kubevirt_io_source_vm_name="simple-vm",'
        'label_restore_kubevirt_io_source_vm_namespace="default"'
    )
    series = {}
    for number in (1, 2):
        claim = f'namespace="default",persistentvolumeclaim="restored-{number}"'
        series[f"kube_persistentvolumeclaim_labels{{{claim},{labels}}}"] = _ALWAYS
        size = f"kube_persistentvolumeclaim_resource_requests_storage_bytes{{{claim}}}"
        series[size] = _often(1024 * number)
    machine = '{vm_name="simple-vm",vm_namespace="default"}'
    name = "kubevirt_vmsnapshot_disks_restored_from_source"
    wanted = {name: {name + machine: 2.0}, f"{name}_bytes": {f"{name}_bytes{machine}": 3072.0}}
    prometheus.check(series, wanted, minute=10)
