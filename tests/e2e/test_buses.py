"""Guests see the hardware that their machines name: buses, cards, firmware, watchdogs, notices of crashes."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.claims import Claims, claim
from tests.e2e.clusters import CORE, FULL_GUEST_IMAGE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import ROOT
from tests.e2e.failures import Document
from tests.e2e.support import Console, wait_for
from tests.support import tpm
from tests.support.clusters import clean_up
from tests.support.shellpods import shell_pod

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(300)]

_CONFIG_MAPS = f"{CORE}/namespaces/{NAMESPACE}/configmaps"
_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_DEFINITIONS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
_CARDS = {"e1000": "e1000", "e1000e": "e1000e", "rtl8139": "8139cp"}
"""Models, and the guest's drivers for them; also the names of their networks."""
_MEDIA = ("cd-one", "cd-two")
_BRIDGE, _NODE_ADDRESS = "br-cards", "192.168.79.1"


def full_guest(name: str, memory: str, strategy: str = "Always") -> Document:
    """A machine with the guest that knows all hardware."""
    wanted = manifest(name, memory=memory, strategy=strategy, grace=1)
    (root,) = (each for each in _spec(wanted)["volumes"] if each["name"] == "root")
    root["containerDisk"]["image"] = FULL_GUEST_IMAGE
    return wanted


def _spec(machine: Document) -> Document:
    found: Document = machine["spec"]["template"]["spec"]
    return found


def _plug(spec: Document, name: str, volume: Document, **disk: object) -> None:
    spec["domain"]["devices"]["disks"].append({"name": name, **disk})
    spec["volumes"].append({"name": name, **volume})


@pytest.fixture(scope="module")
def full_cluster(cluster: Cluster, full_guest_archive: Path) -> Cluster:
    """The cluster with the guest that knows all hardware."""
    cluster.load(full_guest_archive)
    return cluster


@pytest.fixture(scope="module")
def prepared(full_cluster: Cluster) -> Iterator[None]:
    """A feature gate, a config map, and a network for each model of card; all are one bridge of the node."""
    gates = {"developerConfiguration": {"featureGates": ["DownwardMetrics"]}}
    full_cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": gates}})
    settings: Document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hardware"}}
    full_cluster.request("POST", _CONFIG_MAPS, {**settings, "data": {"greeting": "from the cluster"}})
    for name in _CARDS:
        bridge = {"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": _BRIDGE, "ipam": {}}
        definition: Document = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
        definition |= {"metadata": {"name": name}, "spec": {"config": json.dumps(bridge)}}
        full_cluster.request("POST", _DEFINITIONS, definition)
    yield
    for name in _CARDS:
        full_cluster.request("DELETE", f"{_DEFINITIONS}/{name}")
    full_cluster.request("DELETE", f"{_CONFIG_MAPS}/hardware")
    full_cluster.request(
        "PATCH",
        _INSTALLATION,
        {"spec": {"configuration": {"developerConfiguration": {"featureGates": None}}}},
    )


def _hardware() -> Document:
    wanted = full_guest("hardware", "192Mi")
    spec = _spec(wanted)
    domain, devices = spec["domain"], spec["domain"]["devices"]
    (seed,) = (each for each in devices["disks"] if each["name"] == "cloudinit")
    # Neither a bus nor a kind: SATA, as by KubeVirt.
    del seed["disk"]
    empty = {"emptyDisk": {"capacity": "8Mi"}}
    sizes = {"custom": {"logical": 4096, "physical": 4096}}
    _plug(spec, "on-sata", empty, disk={"bus": "sata"}, serial="SATA-1")
    _plug(spec, "on-scsi", empty, disk={"bus": "scsi"}, serial="SCSI-1", blockSize=sizes)
    _plug(spec, "on-usb", empty, disk={"bus": "usb"}, serial="USB-1")
    _plug(spec, "kept", empty, disk={"bus": "scsi", "readonly": True}, serial="KEPT-1")
    _plug(spec, "medium", {"configMap": {"name": "hardware"}}, cdrom={"bus": "sata"})
    devices["disks"].append({"name": "drive", "cdrom": {"bus": "sata"}})
    _plug(spec, "metrics", {"downwardMetrics": {}}, disk={"bus": "virtio"})
    devices["downwardMetrics"] = {}
    domain["cpu"] = {"cores": 2, "features": [{"name": "rdrand", "policy": "disable"}]}
    domain["ioThreadsPolicy"] = "auto"
    domain["chassis"] = {"asset": "rack-7", "serial": "chassis-7", "manufacturer": "Smith"}
    domain["firmware"] = {"serial": "machine-7", "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}
    domain["clock"] = {"timezone": "Asia/Tokyo", "timer": {"hpet": {"present": False}}}
    devices["blockMultiQueue"] = True
    devices["inputs"] = [{"name": "tablet", "type": "tablet", "bus": "usb"}]
    devices["sound"] = {"name": "sound", "model": "ich9"}
    devices["watchdog"] = {"name": "dog", "i6300esb": {"action": "reset"}}
    for model in _CARDS:
        devices["interfaces"].append({"name": model, "bridge": {}, "model": model})
        spec["networks"].append({"name": model, "multus": {"networkName": model}})
    return wanted


@pytest.fixture(scope="module")
def hardware(full_cluster: Cluster, prepared: None) -> Iterator[Machine]:
    """A guest with much hardware."""
    machine = wait_for("the gate is known", lambda: full_cluster.create(_hardware()), 20)
    try:
        machine.wait_running(120)
        yield machine
    finally:
        clean_up([machine])


@pytest.fixture(scope="module")
def console(hardware: Machine) -> Iterator[Console]:
    """A console of that guest, with somebody logged in until the watchdog resets it."""
    with hardware.console() as opened:
        yield opened


def _disk(console: Console, serial: str) -> str:
    """The guest's name of a disk (``sda``), empty where it has none."""
    shown = f"grep -qs {serial} $d/serial $d/device/vpd_pg80"
    return console.run(f"(cd /sys/block; for d in sd* vd*; do {shown} && echo $d; done)")


def _usb_disk(console: Console) -> str:
    return console.run("(cd /sys/block; for d in sd*; do readlink $d | grep -q /usb && echo $d; done)")


def test_a_guest_sees_disks_on_every_bus(console: Console) -> None:
    # Its name comes from the seed, which is on the bus of disks that name none.
    assert console.run("hostname") == "hardware"
    usb = wait_for("the disk on USB is there", partial(_usb_disk, console), 30)
    found = {name: _disk(console, f"{name}-1") for name in ("SATA", "SCSI", "KEPT")}
    paths = {name: console.run(f"readlink /sys/block/{disk}") for name, disk in found.items()}
    assert "/ata" in paths["SATA"]
    assert "/virtio" in paths["SCSI"]
    for disk in (found["SATA"], found["SCSI"], usb):
        assert console.run(f"cat /sys/block/{disk}/size") == str(8 * 2048)
        console.run(f"echo {disk} | dd of=/dev/{disk} bs=4096 conv=sync,fsync 2>/dev/null")
        assert console.run(f"dd if=/dev/{disk} bs=4096 count=1 2>/dev/null | head -c 3") == disk
    queue = f"/sys/block/{found['SCSI']}/queue"
    assert console.run(f"cat {queue}/logical_block_size {queue}/physical_block_size").split() == ["4096"] * 2
    assert console.run(f"cat /sys/block/{found['KEPT']}/ro") == "1"
    assert console.run("mount -o ro /dev/sr0 /mnt && cat /mnt/greeting; umount /mnt") == "from the cluster"
    assert "/ata" in console.run("readlink /sys/block/sr0")


@pytest.fixture
def media(full_cluster: Cluster, hardware: Machine) -> Iterator[None]:
    """Claims with disks that begin with the claims' names; afterwards the drive is empty, as before."""
    claims = Claims(full_cluster)
    for name in _MEDIA:
        claims.create(claim(name, "16Mi", "Filesystem"))
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in _MEDIA]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in _MEDIA]
    with shell_pod(full_cluster, "burner", volumes=volumes, volumeMounts=mounts) as pod:
        for name in _MEDIA:
            disk = f"/{name}/disk.img"
            done = pod.run(f"truncate -s 1M {disk} && printf {name} | dd of={disk} conv=notrunc")
            assert done.returncode == 0, done.stderr
    yield
    _insert(hardware, "")
    claims.remove()


def _insert(machine: Machine, medium: str) -> None:
    """Have the drive hold a claim, or nothing."""
    volumes = machine.vm()["spec"]["template"]["spec"]["volumes"]
    kept = [each for each in volumes if each["name"] != "drive"]
    source = {"claimName": medium, "hotpluggable": True}
    added = [{"name": "drive", "persistentVolumeClaim": source}] if medium else []
    change = {"spec": {"template": {"spec": {"volumes": [*kept, *added]}}}}
    machine.cluster.request("PATCH", machine._vm_path, change)


def _medium(console: Console) -> str:
    """What the medium in the second drive begins with; the first holds the config map."""
    return console.run("head -c 6 /dev/sr1 2>&1")


def _holds(console: Console, medium: str) -> bool:
    return medium in _medium(console)


@pytest.mark.usefixtures("media")
def test_a_guest_sees_media_that_are_inserted_changed_and_ejected(
    hardware: Machine, console: Console
) -> None:
    started = hardware.uid()
    assert _holds(console, "No medium")
    for name in _MEDIA:
        _insert(hardware, name)
        wait_for(f"the drive holds {name}", partial(_holds, console, name), 60)
    assert "Read-only" in console.run("echo x 2>&1 >/dev/sr1")
    _insert(hardware, "")
    wait_for("the drive is empty", partial(_holds, console, "No medium"), 60)
    assert hardware.uid() == started
    assert "RestartRequired" not in {each["type"] for each in hardware.vm()["status"]["conditions"]}


def _in_node(cluster: Cluster) -> list[str]:
    return ["nsenter", f"--net={cluster.state / 'nodes/node01/ns/net'}"]


def _address_on_bridge(cluster: Cluster) -> None:
    command = ["ip", "addr", "replace", f"{_NODE_ADDRESS}/24", "dev", _BRIDGE]
    subprocess.run([*_in_node(cluster), *command], check=True, timeout=20)


def _answers(console: Console, ping: str) -> bool:
    return "1 packets received" in console.run(ping)


@pytest.mark.feature("NET-09")
def test_a_guest_reaches_its_networks_through_cards_of_every_model(
    hardware: Machine, console: Console
) -> None:
    _address_on_bridge(hardware.cluster)
    cards = {each["name"]: each for each in (hardware.instance() or {})["status"]["interfaces"]}
    for number, (model, driver) in enumerate(_CARDS.items(), 2):
        card = console.run(f"grep -l {cards[model]['mac']} /sys/class/net/*/address | cut -d/ -f5")
        assert console.run(f"readlink /sys/class/net/{card}/device/driver").endswith(f"/{driver}")
        console.run(f"ip link set {card} up; ip addr add 192.168.79.{number}/24 dev {card}")
        ping = f"ping -c 1 -W 2 -I {card} {_NODE_ADDRESS}"
        wait_for(f"{model} works", partial(_answers, console, ping), 40)
        console.run(f"ip addr flush dev {card}")


def test_a_guest_sees_its_tablet_and_its_sound_card(console: Console) -> None:
    assert "QEMU USB Tablet" in console.run("cat /proc/bus/input/devices")
    assert "HDA-Intel" in console.run("cat /proc/asound/cards")


def test_a_guest_reads_what_the_firmware_says_of_the_machine(console: Console) -> None:
    names = "chassis_asset_tag chassis_serial chassis_vendor product_serial product_uuid"
    said = console.run(f"(cd /sys/class/dmi/id && cat {names})").splitlines()
    uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"
    assert said == ["rack-7", "chassis-7", "Smith", "machine-7", uuid]
    shown = int(console.run("cat /sys/class/rtc/rtc0/since_epoch"))
    assert abs(shown - 9 * 3600 - time.time()) < 300, "the hardware clock shows Tokyo's time"
    assert console.run("ls /sys/firmware/acpi/tables/HPET 2>&1").endswith("No such file or directory")


@pytest.mark.feature("VML-57", "VML-61")
def test_a_guest_has_the_queues_threads_and_features_of_its_processors(
    hardware: Machine, console: Console
) -> None:
    assert console.run("ls /sys/block/vda/mq").split() == ["0", "1"]
    flags = console.run("grep -m 1 ^flags /proc/cpuinfo").split()
    assert "aes" in flags
    assert "rdrand" not in flags
    tasks = Path("/proc", str(hardware.qemu()), "task")
    names = [path.read_text().strip() for path in tasks.glob("*/comm")]
    assert [name for name in names if name.startswith("IO iothread")]


_PORT = "grep -l org.github.vhostmd.1 /sys/class/virtio-ports/*/name | cut -d/ -f5"
_ASK = "(exec 3<>/dev/{port}; printf 'GET /metrics/XML\\n\\n' >&3; timeout 3 cat <&3)"


def test_a_guest_reads_metrics_of_its_node_from_a_channel_and_a_disk(console: Console) -> None:
    port = console.run(_PORT)
    told = wait_for("the node answers", lambda: _metrics(console.run(_ASK.format(port=port))), 40)
    assert "<name>HostName</name>" in told
    disks = "(cd /dev; for d in vd?; do grep -aq '<metrics>' $d && echo $d; done)"
    disk = wait_for("a disk has metrics", lambda: console.run(disks, 60).split()[-1:], 40)
    assert "<name>HostName</name>" in console.run(f"strings /dev/{disk[0]} | head -n 20")


def _metrics(answer: str) -> str:
    return answer if "</metrics>" in answer else ""


def _starve(console: Console) -> None:
    """Begin to feed the watchdog, and stop it in a way that the kernel takes for a failure."""
    console.run("watchdog -T 5 -t 1 /dev/watchdog")
    console.send("kill -9 $(pidof watchdog)\n")


@pytest.mark.feature("VML-49", "VML-51", "MON-49")
def test_a_guest_that_stops_feeding_its_watchdog_is_reset(hardware: Machine, console: Console) -> None:
    before, process = hardware.uid(), hardware.qemu()
    _starve(console)
    console.expect("login: ", 120)
    assert (hardware.uid(), hardware.qemu()) == (before, process)
    assert hardware.is_running()


_SECRET = b"in the TPM"
_VARIABLES = "/sys/firmware/efi/efivars"
_KEPT = f"{_VARIABLES}/Kept-5d307ca9-b3ef-428c-8861-06e72d69f223"
_SECURE_BOOT = f"{_VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MOUNT_VARIABLES = f"mount -t efivarfs efivarfs {_VARIABLES}"


def _tpm(console: Console, command: bytes) -> tuple[int, bytes]:
    """What the guest's TPM answers: a code, and what it reads."""
    return tpm.result(console.run(tpm.shell(command), 40))


def _keep_secret(console: Console) -> None:
    assert _tpm(console, tpm.define(len(_SECRET)))[0] == 0
    assert _tpm(console, tpm.write(_SECRET))[0] == 0


@pytest.mark.feature("VML-42", "VML-43", "VML-44", "VML-45", "VML-46", "VML-49", "VML-50")
def test_variables_and_tpm_are_kept_when_the_watchdog_of_a_secure_guest_powers_it_off(
    full_cluster: Cluster,
) -> None:
    wanted = full_guest("firmware", "384Mi")
    domain = _spec(wanted)["domain"]
    domain["features"] = {"acpi": {}, "smm": {"enabled": True}}
    domain["firmware"] = {"bootloader": {"efi": {"secureBoot": True, "persistent": True}}}
    domain["devices"]["tpm"] = {"persistent": True}
    domain["devices"]["watchdog"] = {"name": "dog", "i6300esb": {"action": "poweroff"}}
    machine = full_cluster.create(wanted)
    try:
        machine.wait_running(120)
        first = machine.uid()
        with machine.console(180) as console:
            console.run(_MOUNT_VARIABLES)
            assert console.run(f"hexdump -e '1/1 \"%d \"' {_SECURE_BOOT}").split()[-1] == "1"
            console.run(f"printf '\\007\\000\\000\\000kept' > {_KEPT}")
            _keep_secret(console)
            _starve(console)
            machine.wait_restarted(first, 120)
        with machine.console(180) as console:
            console.run(_MOUNT_VARIABLES)
            assert console.run(f"tail -c 4 {_KEPT}") == "kept"
            code, answer = _tpm(console, tpm.read(len(_SECRET)))
            assert code == 0
            assert _SECRET in answer
    finally:
        clean_up([machine])


def _kernel_guest() -> Document:
    wanted = full_guest("kernel", "192Mi", strategy="Manual")
    spec = _spec(wanted)
    container = {"image": FULL_GUEST_IMAGE, "imagePullPolicy": "IfNotPresent"}
    container |= {"kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.gz"}
    arguments = "console=ttyS0,115200 quiet mitigations=off no_timer_check tsc=unstable given=here"
    spec["domain"]["firmware"] = {"kernelBoot": {"container": container, "kernelArgs": arguments}}
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "root"]
    devices = spec["domain"]["devices"]
    devices["disks"] = [each for each in devices["disks"] if each["name"] != "root"]
    devices["panicDevices"] = [{"model": "isa"}]
    devices["sound"] = {"name": "sound", "model": "ac97"}
    devices["tpm"] = {}
    devices["watchdog"] = {"name": "dog", "i6300esb": {"action": "shutdown"}}
    return wanted


@pytest.mark.feature("VML-45", "VML-49")
def test_a_guest_with_a_kernel_of_its_own_crashes_and_is_shut_down_by_its_watchdog(
    full_cluster: Cluster,
) -> None:
    machine = full_cluster.create(_kernel_guest())
    try:
        full_cluster.virtctl("start", "kernel")
        wait_for("it runs", lambda: machine.phase() == "Running", 120)
        first = machine.uid()
        with machine.console(120) as console:
            assert console.run("cat /proc/cmdline").endswith(" given=here")
            assert "ICH" in console.run("cat /proc/asound/cards")
            _keep_secret(console)
            console.send("echo c > /proc/sysrq-trigger\n")
            wait_for("the crash is noticed", lambda: machine.phase() == "Failed", 60)
        said = [event["message"] for event in machine.events()]
        assert "The VirtualMachineInstance crashed." in said
        full_cluster.virtctl("start", "kernel")
        wait_for("another runs", lambda: machine.uid() != first and machine.phase() == "Running", 120)
        with machine.console(120) as console:
            assert _tpm(console, tpm.read(len(_SECRET)))[0] != 0, "such a TPM begins anew"
            _starve(console)
            wait_for("the guest was shut down", lambda: machine.phase() == "Succeeded", 120)
    finally:
        clean_up([machine])


_PXE_MAC = "de:00:00:00:00:de"
_PXE_ARGUMENTS = "console=ttyS0,115200 quiet mitigations=off no_timer_check tsc=unstable from=network"
_PXE_SCRIPT = f"""\
#!ipxe
kernel vmlinuz initrd=initrd.gz {_PXE_ARGUMENTS}
initrd initrd.gz
boot
"""


@pytest.fixture
def boot_server(
    full_cluster: Cluster, hardware: Machine, full_guest_archive: Path, tmp_path: Path
) -> Iterator[None]:
    """DHCP and HTTP on the bridge of the cards, with the kernel of the full guest."""
    (tmp_path / "boot.ipxe").write_text(_PXE_SCRIPT)
    with tarfile.open(full_guest_archive) as image:
        blobs = [member for member in image.getmembers() if member.isfile() and member.size > 1 << 20]
        layer = image.extractfile(blobs[0])
        assert layer is not None
        with tarfile.open(fileobj=layer, mode="r|gz") as files:
            for member in files:
                content = files.extractfile(member) if member.name.startswith("boot/") else None
                if content is not None:
                    (tmp_path / Path(member.name).name).write_bytes(content.read())
    _address_on_bridge(full_cluster)
    command = [*_in_node(full_cluster), sys.executable, "-m", "tests.support.netboot"]
    command += [_BRIDGE, _NODE_ADDRESS, "192.168.79.99", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT) as server:
        yield
        server.kill()


@pytest.mark.feature("VML-47", "VML-48", "VML-39", "NET-11", "VMC-53")
def test_a_guest_boots_from_the_network(full_cluster: Cluster, boot_server: None) -> None:
    wanted = full_guest("pxe", "256Mi")
    spec = _spec(wanted)
    devices = spec["domain"]["devices"]
    devices["disks"][0]["bootOrder"] = 2
    card = {"name": "pxe", "bridge": {}, "macAddress": _PXE_MAC, "bootOrder": 1}
    devices["interfaces"] = [card]
    spec["networks"] = [{"name": "pxe", "multus": {"networkName": "e1000"}}]
    machine = full_cluster.create(wanted)
    try:
        machine.wait_running(120)
        with machine.console(180) as console:
            assert console.run("cat /proc/cmdline").endswith(" from=network")
            assert f"link/ether {_PXE_MAC}" in console.run("ip addr")
    finally:
        clean_up([machine])
