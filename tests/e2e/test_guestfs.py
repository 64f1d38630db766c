"""``virtctl guestfs``: a disk is looked into and changed by libguestfs of the distribution, in a pod."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.e2e.claims import Claims
from tests.e2e.clusters import CORE, NAMESPACE, Cluster
from tests.e2e.commands import ROOT, program, run
from tests.e2e.support import wait_for

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_BUILD_SECONDS = 600
_SHELL_SECONDS = 600
"""Each command boots a small system under emulation, which takes a quarter of a minute on a quiet machine."""
_CLAIM = "server"
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEm1fQ6B1nUwD5g1n2yZ4Kk3n7m0o9qv1Vw2Yx3Zb5Cd admin"
_KEPT = Path(tempfile.gettempdir()) / "virtplane-e2e-guestfs"


@pytest.fixture
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


def shell(cluster: Cluster, claim: str, commands: Sequence[str]) -> str:
    """What the shell beside the disk of `claim` shows of `commands`; the first that fails ends it."""
    typed = "".join(f"{command} || exit 1\n" for command in commands)
    done = subprocess.run(
        [program("virtctl"), "guestfs", claim, "--kvm=false"],
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
