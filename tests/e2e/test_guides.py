"""The machines that users' guides show run on one cluster, each as it is written there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeAlias

import pytest
from tests.e2e.clusters import NAMESPACE, Cluster, Machine
from tests.e2e.failures import ApiError
from tests.e2e.guide_runs import SECONDS, Seen, collection_of, is_hindered, node_of, remove_traces, run, runs
from tests.e2e.guides import OVERLAY, adapted, surroundings
from tests.e2e.support import wait_for
from tests.support import guides
from tests.support.clusters import clean_up

from kubecore.objects.quantity import Quantity

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not guides.MANIFESTS.exists(), reason="VIRTPLANE_REFERENCE names no directory with it"
    ),
]

_AT_ONCE = 3

_TAINTED = ("example-vm-tolerations", "example-vm-9")
"""They run last: a taint of the only node concerns all."""


Look: TypeAlias = Callable[[str], Seen]


@pytest.fixture(scope="module")
def outcomes(cluster: Cluster) -> Iterator[dict[str, Future[Seen]]]:
    """What becomes of the machines, a few at a time."""
    wanted = {name: each for name, each in adapted().items() if name not in (*guides.REFUSED, *_TAINTED)}
    with surroundings(cluster), ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {name: pool.submit(run, cluster, each) for name, each in wanted.items()}
    remove_traces(cluster)


@pytest.fixture
def seen(outcomes: dict[str, Future[Seen]]) -> Look:
    """What was seen of a machine once it ran. Raises what went wrong."""
    return lambda name: outcomes[name].result()


def test_what_kubevirt_refuses_is_refused(cluster: Cluster) -> None:
    documents = adapted()
    for name, ending in guides.REFUSED.items():
        with pytest.raises(ApiError) as refused:
            cluster.request(
                "POST", f"{collection_of(documents[name])}?fieldValidation=Strict", documents[name]
            )
        assert str(refused.value).endswith(ending)


@pytest.mark.feature("VMC-07", "VMC-25", "VMC-26", "VMC-73")
def test_a_golden_image_an_instance_type_and_a_preference_make_a_machine(seen: Look) -> None:
    machine = seen("rhel-9-minimal")
    assert f'"size":{4 << 30}' in " ".join(machine.command)
    assert machine.annotation("cluster-instancetype-name") == "u1.medium"
    assert machine.annotation("cluster-preference-name") == "rhel.9"
    assert "OVMF" in " ".join(machine.command)
    assert machine.device("virtio-blk-pci-non-transitional")["id"] == "ua-rootdisk"


@pytest.mark.feature("VMC-20", "VMC-22")
def test_an_instance_type_of_the_namespace_gives_the_guest_its_size(seen: Look) -> None:
    machine = seen("example-instancetype")
    assert machine.option("-m") == "128"
    assert machine.annotation("instancetype-name") == "example-instancetype"


@pytest.mark.feature("VMC-74", "VMC-75", "VMC-76", "VMC-88")
@pytest.mark.parametrize(
    ("name", "volume"),
    [
        ("vm-fedora-datavolume", "datavolumedisk1"),
        ("vm-fedora-datavolume-2", "datavolumedisk1"),
        ("vm-dv-clone", "root-disk"),
    ],
)
def test_a_disk_is_imported_or_cloned_for_a_machine(seen: Look, name: str, volume: str) -> None:
    machine = seen(name)
    assert f"vmi-disks/{volume}/disk.img" in " ".join(machine.command)
    assert machine.vm["status"]["printableStatus"] == "Running"


@pytest.mark.feature("VMC-39", "VMC-41", "VMC-42", "VMC-57")
def test_a_container_disk_is_a_sata_cd_or_the_root_disk(seen: Look) -> None:
    drive = seen("windows-vm").device("ide-cd")
    assert (drive["id"], drive["bootindex"]) == ("ua-virtiocontainerdisk", 2)
    disk = seen("vmi-containerdisk").device("virtio-blk-pci-non-transitional")
    assert (disk["id"], disk["bootindex"]) == ("ua-rootdisk", 1)


@pytest.mark.feature("VMC-38", "VMC-58", "VMC-59", "VMC-60")
def test_user_data_and_keys_are_on_the_cloud_init_disk(seen: Look) -> None:
    machine = seen("example-vm")
    assert b"#cloud-config\nuser: cloud-user" in machine.cloud_init
    assert b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ example" in machine.cloud_init
    assert b"[ setsebool, -P, virt_qemu_ga_manage_ssh, on ]" in seen("example-vm-3").cloud_init
    assert b"chpasswd: { expire: False }" in seen("vmi-cloudinit").cloud_init


@pytest.mark.feature("VMC-61", "VMC-65")
@pytest.mark.parametrize("name", ["example-vm-3", "example-vm-4"])
def test_the_keys_of_a_secret_are_there_for_the_guest_agent(seen: Look, name: str) -> None:
    volumes = {each["name"]: each for each in seen(name).pod["spec"]["volumes"]}
    assert volumes["authorized-keys-access-cred"]["secret"]["secretName"] == "authorized-keys"
    assert "org.qemu.guest_agent.0" in " ".join(seen(name).command)


@pytest.mark.feature("VMC-71", "VMC-72", "NET-32")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vm-dynamic-ip", b"dhcp4: true"),
        ("vm-static-ip", b"- 10.10.10.14/24"),
        ("example-vm-ipv6", b"addresses: [ fd10:0:2::2/120 ]"),
    ],
)
def test_network_data_is_on_the_cloud_init_disk(seen: Look, name: str, text: bytes) -> None:
    assert text in seen(name).cloud_init


@pytest.mark.feature("VML-28", "MON-32")
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("example-vm-5", {"special": "key"}),
        ("monitored-vm", {"monitor": "metrics"}),
        ("production-vm", {"kubevirt.io/size": "large", "kubevirt.io/environment": "production"}),
        ("vm-istio", {"app": "vm-istio"}),
    ],
)
def test_labels_of_the_template_are_those_of_the_pod(seen: Look, name: str, labels: dict[str, str]) -> None:
    found = seen(name).pod["metadata"]["labels"]
    assert found | labels == found


@pytest.mark.feature("NET-36")
def test_a_machine_of_a_service_mesh_asks_for_its_sidecar(seen: Look) -> None:
    metadata = seen("vm-istio").pod["metadata"]
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "true"
    assert metadata["annotations"]["traffic.sidecar.istio.io/kubevirtInterfaces"] == "k6t-eth0"


@pytest.mark.feature("VML-63", "VML-64", "VML-65")
@pytest.mark.parametrize(
    ("name", "wish"),
    [
        ("example-vm-node-selector", '"example-key-1": "example-value-1"'),
        ("example-vm-pod-affinity", '"values": ["example-value-1"]'),
        ("example-vm-node-affinity", '"values": ["example-value-1", "example-value-2"]'),
    ],
)
def test_a_machine_waits_for_a_node_that_suits_it(seen: Look, name: str, wish: str) -> None:
    """Each ran only after the node was labelled, or the pod was there that it wants to be near to."""
    spec = seen(name).pod["spec"]
    assert wish in json.dumps([spec["nodeSelector"], spec.get("affinity")])


@pytest.mark.feature("VML-68", "VML-69")
def test_a_machine_of_another_scheduler_waits_for_it(seen: Look) -> None:
    pod = seen("vm-fedora").pod
    assert pod["spec"]["schedulerName"] == "my-scheduler"
    assert pod["metadata"]["name"].startswith("virt-launcher-vm-fedora-")


@pytest.mark.feature("VML-55", "VML-56", "VML-57", "VML-59")
def test_processors_are_as_they_are_asked_for(seen: Look) -> None:
    assert "apic=on" in seen("myvm").option("-cpu")
    assert seen("myvm").pod["spec"]["nodeSelector"]["cpu-feature.node.kubevirt.io/apic"] == "true"
    assert seen("myvm-2").option("-cpu").startswith("Conroe")
    assert seen("myvm-2").pod["spec"]["nodeSelector"]["cpu-model.node.kubevirt.io/Conroe"] == "true"
    assert seen("myvm-3").instance["spec"]["domain"]["cpu"]["model"] == "host-model"


@pytest.mark.feature("VML-43", "VML-45", "VML-49")
def test_firmware_tpm_and_watchdog_are_devices(seen: Look) -> None:
    secure = seen("vm-secureboot")
    assert "OVMF_CODE" in " ".join(secure.command)
    assert "smm=on" in secure.option("-machine")
    assert "emulator" in seen("example-vm-6").option("-tpmdev")
    watchdog = seen("vm2-rhel84-watchdog")
    assert watchdog.device("i6300esb")["id"] == "ua-watchdog"
    assert watchdog.option("-watchdog-action") == "poweroff"


@pytest.mark.feature("VML-39", "VML-47", "NET-11", "NET-14", "NET-15")
def test_a_guest_boots_from_its_network_card_first(seen: Look) -> None:
    machine = seen("vmi-pxe-boot")
    card = next(each for each in machine.devices if each.get("mac") == "de:00:00:00:00:de")
    disk = machine.device("virtio-blk-pci-non-transitional")
    assert (card["bootindex"], disk["bootindex"]) == (1, 2)
    assert [each["name"] for each in machine.instance["status"]["interfaces"]] == ["default", "pxe-net"]


@pytest.mark.feature("NET-02", "NET-03", "NET-12")
def test_cards_are_on_their_networks(seen: Look) -> None:
    ports = seen("example-vm-7").compute["ports"]
    assert [each["containerPort"] for each in ports] == [80]
    assert seen("demo-vm").pod["spec"]["hostname"] == "demo-vm"
    for name, network in (("demo-vm", "bond1-br1"), ("vm-server", OVERLAY)):
        joined = json.loads(seen(name).pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"])
        assert f"{NAMESPACE}/{network}" in [each["name"] for each in joined]


@pytest.mark.feature("VML-72")
def test_limits_and_requests_are_those_of_the_pod(seen: Look) -> None:
    resources = seen("with-limits").compute["resources"]
    # Requests and limits have the same overhead on top.
    requested, limit = (Quantity.parse(resources[kind]["memory"]).value for kind in ("requests", "limits"))
    assert limit - requested == 128 << 20
    assert requested > 128 << 20


@pytest.mark.feature("MON-38", "MON-41", "MON-42", "MON-44", "MON-45", "MON-46", "MON-48")
@pytest.mark.parametrize(
    ("name", "kind", "handler"),
    [
        ("fedora-vm", "readinessProbe", "httpGet"),
        ("fedora-vm-2", "readinessProbe", "tcpSocket"),
        ("fedora-vm-3", "livenessProbe", "httpGet"),
    ],
)
def test_probes_are_those_of_the_pod(seen: Look, name: str, kind: str, handler: str) -> None:
    """Ten seconds are for the guest's start."""
    wanted = guides.instance_spec(seen(name).vm)[kind]
    wanted["initialDelaySeconds"] += 10
    found = seen(name).compute[kind]
    assert found[handler] | wanted[handler] == found[handler]
    assert found | {key: value for key, value in wanted.items() if key != handler} == found


@pytest.mark.feature("SUP-14")
def test_other_fields_reach_the_instance_or_its_pod(seen: Look) -> None:
    assert seen("example-vm-8").instance["spec"]["evictionStrategy"] == "LiveMigrateIfPossible"
    inits = seen("example-vm-10").pod["spec"]["initContainers"]
    assert "guest-console-log" in [each["name"] for each in inits]


def test_every_machine_runs(outcomes: dict[str, Future[Seen]]) -> None:
    failures = {name: repr(each.exception()) for name, each in outcomes.items() if each.exception()}
    assert not failures


@pytest.mark.feature("VML-02", "VML-66")
def test_only_a_machine_that_tolerates_it_runs_on_a_tainted_node(
    cluster: Cluster, outcomes: dict[str, Future[Seen]]
) -> None:
    wait(outcomes.values())
    documents = adapted()
    tolerant, other = (Machine(cluster, name) for name in _TAINTED)
    taint = {"key": "key", "value": "virtualization", "effect": "NoSchedule"}
    cluster.request("PATCH", node_of(cluster), {"spec": {"taints": [taint]}})
    try:
        cluster.request("POST", collection_of(documents[other.name]), documents[other.name])
        told = "untolerated taint"
        wait_for("one waits", partial(is_hindered, cluster, other, told), SECONDS)
        run(cluster, documents[tolerant.name])
        assert other.phase() == "Scheduling"
        cluster.request("PATCH", node_of(cluster), {"spec": {"taints": None}})
        wait_for("the other runs", partial(runs, other), SECONDS)
    finally:
        cluster.request("PATCH", node_of(cluster), {"spec": {"taints": None}})
        clean_up([tolerant, other])
