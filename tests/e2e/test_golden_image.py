"""Debian for every user: ``load --debian``, and a machine that a user starts from it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine
from tests.e2e.commands import ROOT, run
from tests.e2e.failures import Document
from tests.e2e.support import PASSWORD, wait_for
from tests.support.clusters import clean_up

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

_LOAD_SECONDS = 300
_BOOT_SECONDS = 360
"""Under emulation, by UEFI."""
_USER, _NAME = "alice", "golden"
_CDI = "/apis/cdi.kubevirt.io/v1beta1/namespaces"
_IMAGES = "kubevirt-os-images"
_RIGHTS = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"


def command(cluster: Cluster) -> list[str]:
    return [sys.executable, "-m", "virtplane.cli.main", "load", "--debian", "--state", str(cluster.state)]


def volumes(cluster: Cluster) -> list[Document]:
    return cluster.items(f"{_CDI}/{_IMAGES}/datavolumes")


def versions(cluster: Cluster) -> list[str]:
    """The versions of everything that the command writes."""
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{_IMAGES}"
    collections = (
        *(f"{_CDI}/{_IMAGES}/{kind}" for kind in ("datavolumes", "datasources")),
        *(f"{rights}/{kind}" for kind in ("roles", "rolebindings")),
        f"{CORE}/namespaces/{_IMAGES}/persistentvolumeclaims",
    )
    return [each["metadata"]["resourceVersion"] for path in collections for each in cluster.items(path)]


@pytest.fixture
def user(cluster: Cluster) -> Iterator[str]:
    """Somebody who may do everything in the default namespace, and nothing elsewhere."""
    group = "rbac.authorization.k8s.io"
    cluster.request(
        "POST",
        _RIGHTS,
        {
            "metadata": {"name": _USER},
            "subjects": [{"apiGroup": group, "kind": "User", "name": _USER}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        },
    )
    yield _USER
    cluster.request("DELETE", f"{_RIGHTS}/{_USER}")


@pytest.fixture
def golden(cluster: Cluster, debian_image: Path) -> Iterator[None]:
    """The DataSource is there, after a command that was killed while it sent the disk."""
    images = cluster.state / "images"
    images.mkdir(exist_ok=True)
    shutil.copy2(debian_image, images)
    with subprocess.Popen(
        command(cluster), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as killed:
        wait_for(
            "the disk can be sent",
            lambda: (
                killed.poll() is None
                and any(each.get("status", {}).get("phase") == "UploadReady" for each in volumes(cluster))
            ),
            _LOAD_SECONDS,
        )
        killed.send_signal(signal.SIGKILL)
    try:
        run(*command(cluster), seconds=_LOAD_SECONDS, cwd=ROOT)
        yield
    finally:
        cluster.request("DELETE", f"{CORE}/namespaces/{_IMAGES}")
        wait_for("it is gone", lambda: cluster.find(f"{CORE}/namespaces/{_IMAGES}") is None, 120)


@pytest.mark.feature("NEW-10", "VMC-09")
def test_a_user_starts_a_machine_from_the_golden_image(
    cluster: Cluster, golden: None, user: str, tmp_path: Path
) -> None:
    before = versions(cluster)
    run(*command(cluster), seconds=120, cwd=ROOT)
    assert versions(cluster) == before, "repeated, it changes nothing"
    assert len(volumes(cluster)) == 1

    password, manifest = tmp_path / "password.txt", tmp_path / "vm.yaml"
    password.write_text(f"{PASSWORD}\n")
    manifest.write_text(
        cluster.virtctl(
            *("create", "vm", "--name", _NAME, "--user", "debian", "--password-file", str(password)),
            *("--volume-import", f"type:ds,src:{_IMAGES}/debian,name:{_NAME},size:4Gi"),
            *("--infer-instancetype", "--infer-preference"),
        )
    )
    machine = Machine(cluster, _NAME)
    cluster.kubectl("create", "--as", user, "-f", str(manifest))
    try:
        check_clone(cluster)
        machine.wait_running(120)
        wait_for(
            "the guest agent is there", lambda: machine.condition("AgentConnected") == "True", _BOOT_SECONDS
        )
        instance = machine.instance()
        assert instance is not None
        notes = instance["metadata"]["annotations"]
        assert notes["kubevirt.io/cluster-instancetype-name"] == "u1.small"
        assert notes["kubevirt.io/cluster-preference-name"] == "debian"
        wait_for("the system is known", lambda: os_of(machine) == "debian", 60)
    finally:
        clean_up([machine])


def check_clone(cluster: Cluster) -> None:
    """Wait for the machine's disk, which the storage driver has cloned."""
    path = f"{_CDI}/{NAMESPACE}/datavolumes/{_NAME}"
    wait_for(
        "it is cloned",
        lambda: (cluster.find(path) or {}).get("status", {}).get("phase") == "Succeeded",
        120,
    )
    claim = cluster.request("GET", f"{CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims/{_NAME}")
    assert claim["spec"]["storageClassName"] == "hostpath"
    assert claim["metadata"]["annotations"]["cdi.kubevirt.io/cloneType"] == "csi-clone"


def os_of(machine: Machine) -> str:
    found = json.loads(machine.cluster.virtctl("guestosinfo", machine.name))
    return str(found.get("os", {}).get("id", ""))
