"""A kubelet that keeps its pods elsewhere is told to the administrator, with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubecore.runtime import CannotRun
from virtplane.compute.handler.node.kubeletroot import require, root_in

_UID = "0d3ad4b8-6a3b-4f3c-9a58-6b4f0c0c9f11"
_MOUNTS = f"""\
812 700 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/x
830 812 8:1 /var/snap/k8s/common/var/lib/kubelet/pods/{_UID}/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw
831 812 8:1 /var/snap/k8s/common/var/lib/kubelet/pods/{_UID}/containers/x /dev/log rw - ext4 /dev/sda1 rw
""".encode()


def test_the_root_is_read_from_the_pod_s_hosts_file() -> None:
    assert root_in(_MOUNTS, _UID) == "/var/snap/k8s/common/var/lib/kubelet"


def test_another_pod_s_file_tells_nothing() -> None:
    assert root_in(_MOUNTS, "other") == ""


def _token_of(uid: str, pods: Path) -> bytes:
    folder = pods / uid / "volumes/kubernetes.io~projected/kube-api-access-x2x9l"
    return f"840 812 0:44 / {folder} rw,relatime shared:33 - tmpfs tmpfs rw\n".encode()


def test_a_kubelet_that_is_where_it_was_said_to_be_is_accepted(tmp_path: Path) -> None:
    (tmp_path / _UID).mkdir()
    require(tmp_path, _UID, "node1", _MOUNTS + _token_of(_UID, tmp_path))


def test_the_folder_behind_the_mount_that_the_kubelet_uses_is_refused(tmp_path: Path) -> None:
    """What virt-handler mounts there does not reach launchers: their disks would be empty."""
    (tmp_path / _UID).mkdir()
    with pytest.raises(CannotRun) as refused:
        require(tmp_path, _UID, "node1", _MOUNTS + _token_of("other", tmp_path))
    assert "node node1 has the kubelet's folders, but not what the kubelet mounts in them" in str(
        refused.value
    )


def test_a_process_outside_of_pods_has_nothing_to_compare_with(tmp_path: Path) -> None:
    require(tmp_path, "", "node1", b"")


def test_a_kubelet_elsewhere_is_named_with_the_command_that_mends_it(tmp_path: Path) -> None:
    with pytest.raises(CannotRun) as refused:
        require(tmp_path, _UID, "node1", _MOUNTS)
    assert "node node1" in str(refused.value)
    assert str(refused.value).endswith("install --kubelet-root /var/snap/k8s/common/var/lib/kubelet")
