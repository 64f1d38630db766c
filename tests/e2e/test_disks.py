"""Claims of guests: data outlives them, on disks and in shared folders; growth, snapshots, full pools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.claims import CLAIMS, Claims, claim, device, is_gone, with_claims
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import Document
from tests.e2e.programs.volumes.disks import disk_of_container_image
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(240)]

SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_MUTATOR = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/virt-launcher-pod-mutator"
_CONFIG_MAPS = f"{CORE}/namespaces/{NAMESPACE}/configmaps"
_DISKS = ("files", "blocks")
_FOLDERS = ("shared", "settings", "token")
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_HEAD = "dd if=/dev/{disk} bs=6 count=1 2>/dev/null"
_MIB = 2048
"""Sectors of 512 bytes."""


def _sectors(console: Console, device: str) -> int:
    return int(console.run(f"cat /sys/block/{device}/size"))


def _has_grown(console: Console, device: str) -> bool:
    return _sectors(console, device) > 90 * _MIB


@pytest.fixture
def shared_claims(cluster: Cluster) -> Iterator[None]:
    """The feature gates of folders that guests share, and a config map; afterwards all is as before."""
    found = cluster.request("GET", _INSTALLATION)["spec"].get("configuration") or {}
    before = (found.get("developerConfiguration") or {}).get("featureGates")

    def configure(names: list[str] | None) -> None:
        developer = {"developerConfiguration": {"featureGates": names}}
        cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": developer}})

    settings: Document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    cluster.request("POST", _CONFIG_MAPS, {**settings, "data": {"greeting": "from the cluster"}})
    configure([*(before or []), "EnableVirtioFsStorageVolumes", "ContainerPathVolumes"])
    wait_for("launchers get servers for their folders", lambda: cluster.request("GET", _MUTATOR), 20)
    yield
    configure(before)
    cluster.request("DELETE", f"{_CONFIG_MAPS}/settings")


@pytest.mark.usefixtures("shared_claims")
@pytest.mark.feature("VML-36", "VMC-46", "VMC-53")
def test_claims_outlive_their_guest_and_grow_while_it_runs(cluster: Cluster, claims: Claims) -> None:
    for name, mode in (*zip(_DISKS, ("Filesystem", "Block"), strict=True), ("shared", "Filesystem")):
        claims.create(claim(name, "64Mi", mode))
    wanted = with_claims("keeper", *_DISKS)
    spec = wanted["spec"]["template"]["spec"]
    spec["domain"]["devices"]["filesystems"] = [{"name": name, "virtiofs": {}} for name in _FOLDERS]
    spec["volumes"] += [
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "account", "serviceAccount": {"serviceAccountName": "default"}},
        {"name": "token", "containerPath": {"path": _ACCOUNT, "readOnly": True}},
    ]
    spec["domain"]["devices"]["disks"].append({"name": "account", "disk": {"bus": "virtio"}})
    machine = wait_for("the gate is known", lambda: cluster.create(wanted), 20)
    try:
        machine.wait_running()
        with machine.console() as console:
            _share(console, machine)
            _write_and_grow(cluster, console)
        first = machine.uid()
        cluster.virtctl("restart", "keeper")
        machine.wait_restarted(first)
        with machine.console() as console:
            for name in _DISKS:
                disk = device(console, name)
                assert console.run(f"dd if=/dev/{disk} bs=5 count=1 2>/dev/null") == name[:5]
                assert _sectors(console, disk) > 90 * _MIB
            _mount(console)
            assert console.run("cat /mnt/shared/here") == "from the guest"
    finally:
        clean_up([machine])


def _mount(console: Console) -> None:
    for name in _FOLDERS:
        assert console.run(f"mkdir -p /mnt/{name} && mount -t virtiofs {name} /mnt/{name}") == ""


def _share(console: Console, machine: Machine) -> None:
    """Files go both ways between a guest and its node, where they are those of the pod's user."""
    folder = Path("/proc", str(machine.qemu()), "root/var/run/kubevirt-private/vmi-disks/shared")
    (folder / "there").write_text("from the node")
    _mount(console)
    assert console.run("cat /mnt/shared/there") == "from the node"
    console.run("echo from the guest > /mnt/shared/here; sync")
    here = folder / "here"
    assert (here.read_text(), here.stat().st_uid, here.stat().st_gid) == ("from the guest\n", 107, 107)
    assert console.run("cat /mnt/settings/greeting") == "from the cluster"
    assert "Read-only" in console.run("touch /mnt/settings/more")
    assert console.run("cat /mnt/token/namespace") == NAMESPACE
    assert console.run("cut -c -2 /mnt/token/token") == "ey"
    assert "Read-only" in console.run("touch /mnt/token/more")


def _write_and_grow(cluster: Cluster, console: Console) -> None:
    for name in _DISKS:
        disk = device(console, name)
        assert 57 * _MIB < _sectors(console, disk) <= 64 * _MIB
        console.run(f"echo {name} | dd of=/dev/{disk} conv=fsync 2>/dev/null")
    for name in _DISKS:
        more = {"spec": {"resources": {"requests": {"storage": "128Mi"}}}}
        cluster.request("PATCH", f"{CLAIMS}/{name}", more)
    for name in _DISKS:
        disk = device(console, name)
        wait_for(f"{name} has grown", partial(_has_grown, console, disk), 60)


@pytest.mark.feature("VMC-35")
def test_a_snapshot_fills_a_new_claim_of_which_an_ephemeral_disk_is_a_copy(
    cluster: Cluster, claims: Claims
) -> None:
    claims.create(claim("taken", "64Mi", "Block"))
    machine = cluster.create(with_claims("taker", "taken"))
    try:
        machine.wait_running()
        with machine.console() as console:
            disk = device(console, "taken")
            console.run(f"echo before | dd of=/dev/{disk} conv=fsync 2>/dev/null")
            source = {"persistentVolumeClaimName": "taken"}
            snapshot: Document = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"}
            snapshot |= {"metadata": {"name": "kept"}, "spec": {"source": source}}
            cluster.request("POST", SNAPSHOTS, snapshot)
            kept = f"{SNAPSHOTS}/kept"
            wait_for(
                "the snapshot is ready",
                lambda: cluster.request("GET", kept).get("status", {}).get("readyToUse"),
                30,
            )
            console.run(f"echo after- | dd of=/dev/{disk} conv=fsync 2>/dev/null")
    finally:
        clean_up([machine])
    origin = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "kept"}
    claims.create(claim("restored", "64Mi", "Block", origin))
    wanted = with_claims("reader", "restored")
    # What the guest writes goes with it.
    *_, volume = wanted["spec"]["template"]["spec"]["volumes"]
    volume["ephemeral"] = {"persistentVolumeClaim": volume.pop("persistentVolumeClaim")}
    reader = cluster.create(wanted)
    try:
        reader.wait_running()
        first = reader.uid()
        with reader.console() as console:
            disk = device(console, "restored")
            assert console.run(_HEAD.format(disk=disk)) == "before"
            console.run(f"echo gone-- | dd of=/dev/{disk} conv=fsync 2>/dev/null")
            assert console.run(f"echo 3 > /proc/sys/vm/drop_caches; {_HEAD.format(disk=disk)}") == "gone--"
        cluster.virtctl("restart", "reader")
        reader.wait_restarted(first)
        with reader.console() as console:
            assert console.run(_HEAD.format(disk=device(console, "restored"))) == "before"
    finally:
        clean_up([reader])
        cluster.request("DELETE", f"{SNAPSHOTS}/kept")
        wait_for("the snapshot is gone", partial(is_gone, cluster, f"{SNAPSHOTS}/kept"), 30)


def _installed_from(claim: str) -> Document:
    """A machine with a copy of `claim` as its disk, and the answer file of the config map ``answers``."""
    wanted = manifest("installed", strategy="RerunOnFailure", grace=2)
    storage = {"resources": {"requests": {"storage": "400Mi"}}}
    source = {"pvc": {"namespace": NAMESPACE, "name": claim}}
    template = {"metadata": {"name": "installed-root"}, "spec": {"source": source, "storage": storage}}
    wanted["spec"]["dataVolumeTemplates"] = [template]
    spec = wanted["spec"]["template"]["spec"]
    spec["volumes"][0] = {"name": "root", "dataVolume": {"name": "installed-root"}}
    spec["volumes"].append({"name": "sysprep", "sysprep": {"configMap": {"name": "answers"}}})
    disk = {"name": "sysprep", "disk": {"bus": "virtio"}, "serial": "answers"}
    spec["domain"]["devices"]["disks"].append(disk)
    return wanted


@pytest.mark.feature("VMC-84")
def test_a_machine_boots_a_copy_of_an_uploaded_disk_beside_its_answer_file(
    cluster: Cluster, claims: Claims, guest_archive: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "installer.img"
    disk.write_bytes(disk_of_container_image(guest_archive))
    proxy = cluster.request("GET", f"{CORE}/namespaces/kubevirt/services/cdi-uploadproxy")
    options = (
        f"--image-path={disk}",
        "--insecure",
        f"--uploadproxy-url=https://{proxy['spec']['clusterIP']}",
    )
    claims.names.append("installer")
    cluster.virtctl("image-upload", "pvc", "installer", "--size=400Mi", *options, seconds=120)
    answers: Document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "answers"}}
    cluster.request("POST", _CONFIG_MAPS, {**answers, "data": {"autounattend.xml": "<unattend/>"}})
    machine = cluster.create(_installed_from("installer"))
    try:
        machine.wait_running(120)
        with machine.console() as console:
            assert console.run("hostname") == "installed"
            console.run(f"mount -t iso9660 -o ro /dev/{device(console, 'answers')} /mnt")
            assert console.run("cat /mnt/[Aa]uto[Uu]nattend.xml") == "<unattend/>"
        clone = cluster.request("GET", f"{CLAIMS}/installed-root")
        assert clone["metadata"]["annotations"]["cdi.kubevirt.io/cloneType"] == "csi-clone"
    finally:
        clean_up([machine])
        cluster.request("DELETE", f"{_CONFIG_MAPS}/answers")
