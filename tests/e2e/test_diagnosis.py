"""What users read when they look for a fault: logs of consoles and pods, events, lists of objects."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.claims import CLAIMS, device, is_gone
from tests.e2e.clusters import KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import attempt
from tests.e2e.failures import ApiError, Document
from tests.e2e.processes import kill
from tests.e2e.programs.volumes.disks import disk_of_container_image
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

from virtplane.oci import ImageConfig, LayerWriter, write_archive

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_DISK = "blank-disk"
_SECRET = "written-to-the-console"
_IMAGE = "virtplane.local/users-own:1"
_LOG = "guest-console-log"
_LOG_OF_QEMU = ",logfile="
"""In the argument of a serial console that QEMU logs."""


@pytest.fixture(scope="module")
def image(cluster: Cluster, guest_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A container disk as users build them: one file, which QEMU's user may read and nobody else may."""
    folder = tmp_path_factory.mktemp("image")
    disk, archive, owner = folder / "disk.img", folder / "image.tar", 107
    disk.write_bytes(disk_of_container_image(guest_archive))
    with LayerWriter(folder / "layer.tar.gz", level=1) as layer:
        layer.add_directory("disk", owner=owner)
        layer.add_file("disk/disk.img", disk, mode=0o440, owner=owner)
    write_archive(archive, _IMAGE, [layer.finished()], ImageConfig("a user's disk"))
    cluster.load(archive)
    return _IMAGE


def _with_blank_disk(image: str) -> Document:
    """A machine whose template has CDI make an empty disk of one GiB."""
    wanted = manifest("patient", grace=1)
    template = wanted["spec"]["template"]
    template["metadata"]["labels"]["kubevirt.io/domain"] = "patient"
    spec = template["spec"]
    spec["volumes"][0]["containerDisk"]["image"] = image
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}, "serial": _DISK})
    spec["volumes"].append({"name": "data", "dataVolume": {"name": _DISK}})
    storage = {"resources": {"requests": {"storage": "1Gi"}}}
    blank = {"metadata": {"name": _DISK}, "spec": {"source": {"blank": {}}, "storage": storage}}
    wanted["spec"]["dataVolumeTemplates"] = [blank]
    return wanted


@pytest.fixture(scope="module")
def patient(cluster: Cluster, image: str) -> Iterator[Machine]:
    """A guest that runs."""
    made = cluster.create(_with_blank_disk(image))
    try:
        made.wait_running(120)
        yield made
    finally:
        clean_up([made])
        wait_for("its disk is gone", partial(is_gone, cluster, f"{CLAIMS}/{_DISK}"), 60)


@pytest.mark.feature("VMC-11", "VMC-44", "VMC-49", "VMC-79")
def test_a_blank_disk_has_its_gibibytes_and_nothing_on_it(cluster: Cluster, patient: Machine) -> None:
    with patient.console() as console:
        disk = device(console, _DISK)
        assert console.run(f"cat /sys/block/{disk}/size") == str((1 << 30) // 512)
        assert console.run(f"head -c 1048576 /dev/{disk} | tr -d '\\0' | wc -c") == "0"
        # Its owner finds it by the machine.
        console.run(f"echo mine | dd of=/dev/{disk} conv=fsync 2>/dev/null")
    path = r"jsonpath={.spec.template.spec.volumes}{'\n'}"
    volumes = json.loads(cluster.kubectl("get", "vm", "patient", "-o", path))
    assert volumes[-1] == {"dataVolume": {"name": _DISK}, "name": "data"}
    assert (
        cluster.request("GET", f"{CLAIMS}/{volumes[-1]['dataVolume']['name']}")["status"]["phase"] == "Bound"
    )


@pytest.mark.feature("SUP-15", "SUP-16")
def test_the_log_container_has_what_the_guest_wrote_to_its_console(
    cluster: Cluster, patient: Machine
) -> None:
    with patient.console() as console:
        # In two parts: an echo of what is typed does not have it.
        console.run(f"echo {_SECRET[:7]}''{_SECRET[7:]}")

    def log() -> str:
        wanted = ("-l", "kubevirt.io/domain=patient", "--tail=-1", "-c", _LOG)
        return cluster.kubectl("logs", "-n", NAMESPACE, *wanted)

    wait_for("the log has it", lambda: _SECRET in log(), 20)
    assert "login:" in log()
    assert any(_LOG_OF_QEMU in argument for argument in patient.command())


@pytest.mark.feature("SUP-07")
def test_events_of_a_namespace_and_of_an_object_are_listed(cluster: Cluster, patient: Machine) -> None:
    lines = cluster.kubectl("get", "events", "-n", NAMESPACE).splitlines()
    assert lines[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    started = [line.split() for line in lines if "virtualmachineinstance/patient" in line]
    assert ["Normal", "Started"] in [line[1:3] for line in started]
    told = cluster.kubectl("describe", "vmi", "patient").partition("\nEvents:")[2]
    assert "VirtualMachineInstance started." in told


@pytest.mark.feature("NEW-11")
def test_why_a_machine_waits_is_said_with_the_field_and_the_numbers(
    cluster: Cluster,
) -> None:
    wanted = manifest("giant", grace=1)
    wanted["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "900Gi"}
    giant = cluster.create(wanted)
    try:
        wait_for("no node takes it", lambda: giant.status() == "ErrorUnschedulable", 30)
        said = cluster.virtctl("explain-status", "giant")
        assert "no node takes its pod: 1 node has too little memory (it asks for 90" in said
        assert "node01 has the most left, " in said
        assert "field:   spec.template.spec.domain.memory.guest is 900Gi\n" in said
        fits = re.search(r"at most ([0-9]+)Mi fits on node01 now", said)
        assert fits is not None and int(fits[1]) > 0
    finally:
        clean_up([giant])


@pytest.mark.feature("STO-10")
def test_storage_profiles_are_listed_one_for_each_class(cluster: Cluster) -> None:
    heading, *rows = cluster.kubectl("get", "StorageProfile", "-o", "wide").splitlines()
    classes = cluster.kubectl("get", "sc", "--no-headers").splitlines()
    assert heading.split() == ["NAME", "AGE"]
    assert [row.split()[0] for row in rows] == sorted(line.split()[0] for line in classes)
    assert all(len(row.split()) == 2 for row in rows)


@pytest.mark.feature("SUP-09")
def test_logs_of_components_are_followed_and_kept_of_the_container_before(cluster: Cluster) -> None:
    name = cluster.component_pod("virt-handler")["metadata"]["name"]
    logs = ("logs", "-n", "kubevirt", name)
    assert '"component":"virt-handler"' in cluster.kubectl(*logs)
    command = ["kubectl", *logs, "-f", "--tail=1"]
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True) as followed:
        assert followed.stdout is not None
        first = followed.stdout.readline()
        kill(cluster.component("virt-handler"))
        # It ends with the container.
        seen = [first.rstrip(), *followed.stdout.read().splitlines()]

    def has_log_of_before() -> bool:
        # Refused until the node agent has noticed that the container ended.
        before = attempt("kubectl", *logs, "--previous", env=cluster.environment)
        return before.returncode == 0 and set(seen) <= set(before.stdout.splitlines())

    wait_for("the log of the container before is there", has_log_of_before, 60)
    wait_for("it runs again", lambda: cluster.component("virt-handler"), 60)


@pytest.fixture
def pods_of(cluster: Cluster) -> Iterator[Callable[..., Machine]]:
    """Creates machines of which only the pods matter."""
    made: list[Machine] = []

    def create(name: str, **devices: object) -> Machine:
        wanted = manifest(name, grace=1)
        wanted["spec"]["template"]["spec"]["domain"]["devices"] |= devices
        made.append(cluster.create(wanted))
        return made[-1]

    yield create
    clean_up(made)


def _is_logged(machine: Machine) -> bool:
    """Whether its pod has the container with the log, once there is a pod."""
    spec = wait_for("its pod is there", machine.pod, 60)["spec"]
    return _LOG in {each["name"] for each in spec.get("initContainers", ())}


@pytest.mark.feature("SUP-13")
def test_the_installation_switches_the_logs_of_consoles_off_for_all_who_do_not_ask(
    cluster: Cluster, pods_of: Callable[..., Machine]
) -> None:
    found = cluster.request("GET", _INSTALLATION)["spec"].get("configuration") or {}

    def configure(options: Document | None) -> None:
        change = {"spec": {"configuration": {"virtualMachineOptions": options}}}
        cluster.request("PATCH", _INSTALLATION, change)

    def is_unlogged() -> bool:
        """Components take the setting over in their own time."""
        machine = pods_of("silent")
        has_log = _is_logged(machine)
        if has_log:
            clean_up([machine])
        return not has_log

    configure({"disableSerialConsoleLog": {}})
    try:
        wait_for("guests are not logged", is_unlogged, 60)
        assert _is_logged(pods_of("asking", logSerialConsole=True))
        silent = Machine(cluster, "silent")
        silent.wait_running(120)
        assert not any(_LOG_OF_QEMU in argument for argument in silent.command())
    finally:
        configure(found.get("virtualMachineOptions"))


_PROFILER = "/apis/subresources.kubevirt.io/v1/{}-cluster-profiler"


@pytest.fixture
def profiled(cluster: Cluster) -> Iterator[Callable[[bool | None], None]]:
    """Says whether components may be profiled; afterwards nothing is said."""

    def allow(is_allowed: bool | None) -> None:
        developer = {"developerConfiguration": {"clusterProfiler": is_allowed}}
        cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": developer}})

    yield allow
    allow(None)


def test_components_are_profiled_where_the_installation_says_so(
    cluster: Cluster, profiled: Callable[[bool | None], None]
) -> None:
    with pytest.raises(ApiError, match='"ClusterProfiler" feature gate must be enabled') as refused:
        cluster.request("GET", _PROFILER.format("start"))
    assert refused.value.code == 403
    profiled(True)

    def is_started() -> bool:
        return cluster.request("GET", _PROFILER.format("start")) == {}

    wait_for("all components know", is_started, 20)
    for _ in range(20):
        cluster.items(_INSTALLATION.rpartition("/")[0])
    cluster.request("GET", _PROFILER.format("stop"))
    found = cluster.request("GET", _PROFILER.format("dump"))["componentResults"]
    assert {name.rpartition("-")[0].split("-")[1] for name in found} >= {"operator", "handler"}
    for result in found.values():
        profile = gzip.decompress(base64.b64decode(result["pprofData"]["cpu.pprof"]))
        assert b"nanoseconds" in profile
        assert b"task " in base64.b64decode(result["pprofData"]["goroutine.pprof"])
