"""``virtctl guestfs``: a disk is looked into and changed by libguestfs of the distribution, in a pod."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.e2e.claims import CLAIMS, Claims, claim
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import ROOT, program, run
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_BUILD_SECONDS = 600
_SHELL_SECONDS = 600
"""Each command boots a small system under emulation, which takes a quarter of a minute on a quiet machine."""
_CLAIM, _BLOCK = "server", "block-server"
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEm1fQ6B1nUwD5g1n2yZ4Kk3n7m0o9qv1Vw2Yx3Zb5Cd admin"
_ID = "0123456789abcdef0123456789abcdef"
_DEFAULTS = {"instancetype": "u1.small", "preference": "debian"}
_KEPT = Path(tempfile.gettempdir()) / "virtplane-e2e-guestfs"


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> None:
    """The image is on the cluster's nodes. It is kept as the Debian disk is: building takes a minute."""
    main = (sys.executable, "-m", "virtplane.cli.main")
    built = run(*main, "image", "build", "guestfs", "--state", _KEPT, seconds=_BUILD_SECONDS, cwd=ROOT)
    archive = Path(built.stdout.strip())
    images = cluster.state / "images"
    images.mkdir(exist_ok=True)
    shutil.copy2(archive, images)
    run(*main, "load", "--guestfs", "--state", cluster.state, seconds=_BUILD_SECONDS, cwd=ROOT)


@pytest.fixture
def disk(cluster: Cluster, debian_image: Path) -> Iterator[str]:
    """A claim with the Debian disk."""
    claims = Claims(cluster)
    claims.names.append(_CLAIM)
    options = ("--size=3Gi", f"--image-path={debian_image}", "--insecure", "--volume-mode=filesystem")
    cluster.virtctl("image-upload", "pvc", _CLAIM, *options, seconds=300)
    yield _CLAIM
    claims.remove()


def shell(cluster: Cluster, claim: str, commands: Sequence[str], *options: str) -> str:
    """What the shell beside the disk of `claim` shows of `commands`; the first that fails ends it."""
    typed = "".join(f"{command} || exit 1\n" for command in commands)
    done = subprocess.run(
        [program("virtctl"), "guestfs", claim, "--kvm=false", *options],
        input=f"{typed}exit 0\n",
        capture_output=True,
        text=True,
        timeout=_SHELL_SECONDS,
        check=False,
        env=cluster.environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("image")
@pytest.mark.feature("CTL-59", "CTL-66", "CTL-67", "CTL-68", "CTL-69")
def test_a_disk_is_looked_into_and_changed(cluster: Cluster, disk: str) -> None:
    shown = shell(
        cluster,
        disk,
        [
            "virt-df -a disk.img -h",
            "virt-edit -a disk.img /etc/motd -e 's/^/edited: /'",
            f"virt-customize -a disk.img --ssh-inject 'root:string:{_KEY}'",
            "virt-cat -a disk.img /etc/motd /root/.ssh/authorized_keys",
        ],
    )
    lines = [line.strip() for line in shown.splitlines()]
    assert any(line.startswith("disk.img:/dev/sda") and line.endswith("%") for line in lines), shown
    assert any(line.startswith("edited: The programs included with") for line in lines), shown
    assert _KEY in lines, shown
    pod = f"{CORE}/namespaces/{NAMESPACE}/pods/libguestfs-tools-{disk}"
    wait_for("the pod is gone", lambda: cluster.find(pod) is None, 30)


@pytest.fixture
def block_disk(cluster: Cluster) -> Iterator[str]:
    """A claim that is a block device, with nothing on it."""
    claims = Claims(cluster)
    claims.create(claim(_BLOCK, "64Mi", "Block"))
    yield _BLOCK
    claims.remove()


def generalised(disk: str) -> list[str]:
    """Commands that write what only one machine has into a disk, generalise it, and show what is left."""
    return [
        f"virt-customize -a {disk} --write /etc/machine-id:{_ID} --write /etc/ssh/ssh_host_rsa_key:secret",
        f"virt-cat -a {disk} /etc/machine-id",
        f"virt-sysprep -a {disk}",
        "echo generalised",
        f"virt-cat -a {disk} /etc/machine-id",
        f"virt-ls -a {disk} /etc/ssh",
    ]


def check_generalised(shown: str) -> None:
    """The machine's own files were in the disk, and are not any more."""
    lines = [line.strip() for line in shown.splitlines()]
    before, after = lines[: lines.index("generalised")], lines[lines.index("generalised") :]
    # What has no end of a line has the shell's prompt behind it.
    assert any(line.startswith(_ID) for line in before), shown
    assert "sshd_config" in after and not any(line.startswith(_ID) for line in after), shown
    assert not any(line.startswith("ssh_host_") for line in after), shown


@pytest.mark.usefixtures("image")
def test_a_disk_that_is_a_block_device_is_partitioned(cluster: Cluster, block_disk: str) -> None:
    shown = shell(
        cluster, block_disk, ["guestfish -a /dev/vda run : part-disk /dev/sda mbr : list-partitions"]
    )
    assert "/dev/sda1" in [line.strip() for line in shown.splitlines()], shown


@pytest.mark.skipif(
    "VIRTPLANE_TEST_DEBIAN" not in os.environ, reason="takes minutes; VIRTPLANE_TEST_DEBIAN=1 runs it"
)
@pytest.mark.usefixtures("image")
@pytest.mark.feature("VMC-10", "CTL-70")
def test_a_machine_becomes_a_golden_image_for_others(cluster: Cluster, disk: str, tmp_path: Path) -> None:
    wanted = manifest("original", strategy="RerunOnFailure", memory="1Gi", grace=1)
    volumes = wanted["spec"]["template"]["spec"]["volumes"]
    volumes[0] = {"name": "root", "persistentVolumeClaim": {"claimName": disk}}
    original, copy = cluster.create(wanted), Machine(cluster, "copy")
    try:
        original.wait_running()
        cluster.virtctl("stop", "original")
        wait_for("it is off", lambda: original.instance() is None, 30)
        check_generalised(shell(cluster, disk, generalised("disk.img"), "--uid=107"))
        labels = {f"instancetype.kubevirt.io/default-{key}": value for key, value in _DEFAULTS.items()}
        cluster.request("PATCH", f"{CLAIMS}/{disk}", {"metadata": {"labels": labels}})
        # It may be too early in its boot to hear the power button.
        created = ["create", "vm", "--name", copy.name, "--termination-grace-period=1"]
        created += ["--infer-instancetype", "--infer-preference"]
        source = f"type:pvc,src:{NAMESPACE}/{disk},name:{copy.name},size:4Gi"
        file = tmp_path / "vm.yaml"
        file.write_text(cluster.virtctl(*created, "--volume-import", source))
        cluster.kubectl("create", "-f", str(file))
        copy.wait_running(120)
        notes = (copy.instance() or {})["metadata"]["annotations"]
        assert notes["kubevirt.io/cluster-instancetype-name"] == _DEFAULTS["instancetype"]
        assert notes["kubevirt.io/cluster-preference-name"] == _DEFAULTS["preference"]
    finally:
        clean_up([original, copy])
