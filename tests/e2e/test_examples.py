"""The manifests under ``examples/``: admitted as they are, and doing what their comments say."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine
from tests.e2e.commands import ROOT, attempt, program, run
from tests.e2e.failures import ApiError, Document
from tests.e2e.support import open_console, wait_for
from tests.support.clusters import clean_up
from tests.support.web import fetch_page

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
_PATHS = {
    "PersistentVolumeClaim": f"{CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims",
    "ConfigMap": f"{CORE}/namespaces/{NAMESPACE}/configmaps",
    "Secret": f"{CORE}/namespaces/{NAMESPACE}/secrets",
    "Service": f"{CORE}/namespaces/{NAMESPACE}/services",
    "VirtualMachine": f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines",
    "VirtualMachineInstance": f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachineinstances",
}
_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"


def documents(name: str) -> list[Document]:
    """The objects of an example."""
    return list(yaml.safe_load_all((ROOT / "examples" / name).read_text()))


@pytest.fixture(scope="module")
def host_disks(cluster: Cluster) -> Iterator[None]:
    """The feature gate of disks in files of the node."""
    gates = {"featureGates": ["HostDisk"]}
    change = {"spec": {"configuration": {"developerConfiguration": gates}}}
    cluster.request("PATCH", _INSTALLATION, change)

    def is_open() -> bool:
        cluster.request("POST", f"{_PATHS['VirtualMachine']}?dryRun=All", documents("vm-host-disk.yaml")[0])
        return True

    wait_for("the feature gate is known everywhere", is_open, 20)
    yield
    gates.clear()
    cluster.request(
        "PATCH",
        _INSTALLATION,
        {"spec": {"configuration": {"developerConfiguration": {"featureGates": None}}}},
    )


@pytest.fixture
def create(cluster: Cluster) -> Iterator[Callable[[Document], Machine]]:
    """Creates objects that are gone after the test."""
    others: list[str] = []
    machines: list[Machine] = []
    instances: list[Machine] = []

    def make(document: Document) -> Machine:
        kind, name = document["kind"], document["metadata"]["name"]
        cluster.request("POST", _PATHS[kind], document)
        machine = Machine(cluster, name)
        if kind.startswith("VirtualMachine"):
            (machines if kind == "VirtualMachine" else instances).append(machine)
        else:
            others.append(f"{_PATHS[kind]}/{name}")
        return machine

    yield make
    for path in others:
        cluster.request("DELETE", path)
    for machine in instances:
        if machine.instance() is not None:
            cluster.request("DELETE", f"{_PATHS['VirtualMachineInstance']}/{machine.name}")
    clean_up(machines + instances)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_admitted(cluster: Cluster, host_disks: None, path: Path) -> None:
    for document in documents(path.name):
        made = cluster.request(
            "POST", f"{_PATHS[document['kind']]}?dryRun=All&fieldValidation=Strict", document
        )
        assert made["metadata"]["uid"]


@pytest.mark.guest
@pytest.mark.feature("VMC-39", "VMC-40")
def test_an_empty_disk_has_its_size_and_serial_in_the_guest(create: Callable[[Document], Machine]) -> None:
    machine = create(documents("vm-data-disk.yaml")[0])
    machine.wait_running()
    with machine.console() as console:
        assert console.run("hostname") == "data-disk"
        assert console.run("cat /sys/block/vdc/size") == str((256 << 20) // 512)
        assert console.run("cat /sys/block/vdc/serial") == "DATA0001"


@pytest.mark.guest
@pytest.mark.feature("VMC-55")
def test_a_config_map_and_a_secret_are_disks_in_the_guest(create: Callable[[Document], Machine]) -> None:
    *configuration, wanted = documents("vm-config-disks.yaml")
    for document in configuration:
        create(document)
    machine = create(wanted)
    machine.wait_running()
    with machine.console() as console:
        assert console.run("mount -t iso9660 -o ro /dev/vdb /mnt && cat /mnt/app.conf") == "colour = blue"
        console.run("umount /mnt")
        assert console.run("mount -t iso9660 -o ro /dev/vdc /mnt && cat /mnt/password") == "not-told"


@pytest.mark.guest
@pytest.mark.feature("VMC-82", "SUP-24")
def test_a_machine_boots_the_disk_that_is_filled_for_it(create: Callable[[Document], Machine]) -> None:
    wanted = documents("vm-data-volume.yaml")[0]
    [template] = wanted["spec"]["dataVolumeTemplates"]
    machine = create(wanted)
    kubectl = partial(machine.cluster.kubectl, "-n", NAMESPACE)
    wait_for("the machine waits for its disk", lambda: machine.status() == "Provisioning", 30)
    wait_for("the importer is listed", lambda: "importer-" in kubectl("get", "pods"), 30)
    wait_for("the machine runs", machine.is_running, 90)
    told = re.sub(r" +", " ", kubectl("describe", "dv", template["metadata"]["name"]))
    assert "\n Phase: Succeeded\n" in told
    for condition in ("Bound", "Ready", "Running"):
        assert f"\n Type: {condition}\n" in told
    for member in ("Last Heartbeat Time", "Last Transition Time", "Message", "Reason", "Status"):
        assert f"\n {member}: " in told
    with machine.console() as console:
        assert console.run("hostname") == "with-data-volume"


@pytest.mark.guest
@pytest.mark.feature("CTL-04", "CTL-26", "CTL-27")
def test_an_instance_runs_without_a_machine_and_obeys_virtctl_as_one(
    create: Callable[[Document], Machine], tmp_path: Path
) -> None:
    instance = create(documents("vmi.yaml")[0])
    wait_for("it runs", lambda: instance.phase() == "Running" and instance.condition("Ready") == "True", 60)
    assert "ownerReferences" not in (instance.instance() or {})["metadata"]
    name, virtctl = instance.name, instance.cluster.virtctl
    with open_console(instance) as console:
        console.send("\n")
        console.expect("login: ", 90)
        virtctl("pause", "vmi", name)
        wait_for("it is paused", lambda: instance.condition("Paused") == "True", 10)
        virtctl("unpause", "vmi", name)
        wait_for("it goes on", lambda: not instance.condition("Paused"), 10)
        console.send("\n")
        console.expect("login: ", 10)
        virtctl("vnc", "screenshot", name, "--file", str(tmp_path / "display.png"))
        assert (tmp_path / "display.png").read_bytes().startswith(b"\x89PNG")
        virtctl("reset", name)
        console.expect("login: ", 90)
    # There is nothing that would start it again.
    for verb in ("start", "stop", "restart"):
        done = attempt(program("virtctl"), verb, name, env=instance.cluster.environment)
        assert done.returncode == 1 and "not found" in done.stderr


@pytest.mark.feature("VML-78")
def test_what_runs_guests_is_removed_only_after_the_last_instance(
    cluster: Cluster, create: Callable[[Document], Machine]
) -> None:
    removal = f"{_INSTALLATION}?dryRun=All"
    cluster.request("PATCH", _INSTALLATION, {"spec": {"uninstallStrategy": "BlockUninstallIfWorkloadsExist"}})
    instance = create(documents("vmi.yaml")[0])
    try:
        with pytest.raises(ApiError, match="since there are still Virtual Machine Instances present"):
            cluster.request("DELETE", removal)
        cluster.request("DELETE", f"{_PATHS['VirtualMachineInstance']}/{instance.name}")
        wait_for("the instance is gone", lambda: instance.instance() is None, 60)
        cluster.request("DELETE", removal)
    finally:
        cluster.request("PATCH", _INSTALLATION, {"spec": {"uninstallStrategy": None}})


_WRITTEN = (
    "instancetype --name written --cpu 1 --memory 128Mi",
    "preference --name written --machine-type q35",
    "vm --name written --instancetype written --preference written --volume-import "
    "type:registry,url:docker://virtplane.local/demo-guest:latest,pullmethod:node,size:256Mi",
)
_KINDS = "virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences"


@pytest.fixture
def written(cluster: Cluster) -> Iterator[Machine]:
    """A machine of manifests that virtctl writes and kubectl reads."""
    for arguments in _WRITTEN:
        command = f"{program('virtctl')} create {arguments} | kubectl apply -f -"
        assert "created" in run("sh", "-c", command, env=cluster.environment).stdout
    machine = Machine(cluster, "written")
    yield machine
    clean_up([machine])
    for kind in _KINDS:
        cluster.request("DELETE", f"/apis/instancetype.kubevirt.io/v1beta1/{kind}/written")


@pytest.mark.guest
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.feature("VMC-90")
def test_manifests_that_virtctl_writes_make_a_machine(written: Machine) -> None:
    written.wait_running(120)
    command = written.command()
    assert command[command.index("-m") + 1] == "128"
    annotations = (written.instance() or {})["metadata"]["annotations"]
    assert annotations["kubevirt.io/cluster-instancetype-name"] == "written"
    assert annotations["kubevirt.io/cluster-preference-name"] == "written"
    with open_console(written) as console:
        console.send("\n")
        console.expect("login: ", 90)


@pytest.mark.guest
@pytest.mark.feature("VML-03")
def test_a_machine_rerun_on_failure_stays_off_when_its_guest_is_done(
    create: Callable[[Document], Machine],
) -> None:
    machine = create(documents("vm-rerun-on-failure.yaml")[0])
    wait_for("the guest is done", lambda: machine.phase() == "Succeeded", 60)
    wait_for("the machine stands still", lambda: machine.status() == "Stopped", 20)


@pytest.mark.guest
def test_a_host_disk_is_made_as_a_file_of_the_node_and_outlives_the_machine(
    cluster: Cluster, host_disks: None, tmp_path: Path, create: Callable[[Document], Machine]
) -> None:
    wanted = documents("vm-host-disk.yaml")[0]
    file = tmp_path / "disks/kept.img"
    wanted["spec"]["template"]["spec"]["volumes"][1]["hostDisk"]["path"] = str(file)
    machine = create(wanted)
    machine.wait_running()
    assert file.stat().st_size == 64 << 20
    with machine.console() as console:
        console.run("echo remembered >/dev/vdb; sync")
    machine.delete()
    machine.wait_gone()
    assert file.read_bytes().startswith(b"remembered\n")


@pytest.mark.guest
@pytest.mark.feature("ACC-25", "ACC-27", "NET-04")
def test_a_service_leads_to_the_web_server_of_a_guest(
    cluster: Cluster, create: Callable[[Document], Machine]
) -> None:
    service, wanted = documents("service-http.yaml")
    create(service)
    create(wanted).wait_running()
    found = cluster.request("GET", f"{_PATHS['Service']}/website")["spec"]
    nodes = cluster.items(f"{CORE}/nodes")
    node = next(item["address"] for item in nodes[0]["status"]["addresses"] if item["type"] == "InternalIP")
    for address in (found["clusterIP"], f"{node}:{found['ports'][0]['nodePort']}"):
        assert (
            wait_for("the service answers", partial(fetch_page, f"http://{address}/"), 20)
            == b"website is up\n"
        )


@pytest.mark.guest
def test_a_headless_service_gives_a_machine_its_name(
    cluster: Cluster, create: Callable[[Document], Machine]
) -> None:
    service, wanted = documents("headless-service.yaml")
    create(service)
    machine = create(wanted)
    machine.wait_running()
    with machine.console() as console:
        name = f"first.machines.{NAMESPACE}.svc.cluster.local"
        assert machine.address() in wait_for(
            "the name resolves", lambda: console.run(f"nslookup {name} | tail -n +3"), 20
        )
