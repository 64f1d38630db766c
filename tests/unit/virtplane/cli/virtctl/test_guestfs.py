"""``guestfs``: its pod, and which claims it takes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from aiohttp import web

from virtplane.cli.virtctl.guestfs import obstacle

from .conftest import FakeServer, Virtctl
from .test_streams import SOURCES

_CORE = "/api/v1/namespaces/default"
_CLAIM = f"{_CORE}/persistentvolumeclaims/c"
_POD = f"{_CORE}/pods/libguestfs-tools-c"
_INFO = "/apis/subresources.kubevirt.io/v1/guestfs"


async def _shell(socket: web.WebSocketResponse) -> None:
    await socket.send_bytes(b"\x01")
    message = await socket.receive()
    await socket.send_bytes(b"\x01<" + message.data[1:] + b">")
    await socket.send_bytes(b'\x03{"status":"Success"}')


def _start(api: FakeServer, *arguments: str) -> tuple[int, str, str]:
    """What virtctl does with the keys ``ls``."""
    command = [sys.executable, "-m", "virtplane.cli.virtctl.main", "guestfs", *arguments]
    ended = subprocess.run(
        [*command, "--server", api.url],
        input="ls",
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
        env={"PYTHONPATH": str(SOURCES)},
    )
    return ended.returncode, ended.stdout, ended.stderr


def _cluster(api: FakeServer, **claim: str) -> None:
    api.answers["GET", _CLAIM] = (200, {"metadata": {"name": "c"}, "spec": claim})
    api.answers["GET", f"{_CORE}/pods"] = (200, {"metadata": {}, "items": []})
    api.answers["GET", _INFO] = (200, {"registry": "r", "tag": "v1", "imagePrefix": "", "gsImage": ""})
    api.answers["GET", _POD] = (200, {"status": {"phase": "Running"}})
    api.stream = _shell


def _made(api: FakeServer) -> dict[str, Any]:
    [body] = [body for method, path, body in api.requests if (method, path) == ("POST", f"{_CORE}/pods")]
    pod: dict[str, Any] = body
    return pod


@pytest.mark.feature("CTL-59", "CTL-65")
def test_a_shell_is_opened_in_a_pod_with_the_claim_and_the_pod_goes_with_it(api: FakeServer) -> None:
    _cluster(api, volumeMode="Filesystem")
    code, output, errors = _start(api, "c")
    assert code == 0, errors
    assert output == "Use image: r/libguestfs-tools:v1 \nThe PVC has been mounted at /disk \n<ls>"
    pod = _made(api)
    assert pod["metadata"] == {"name": "libguestfs-tools-c"}
    spec = pod["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["restartPolicy"] == "Never"
    assert spec["volumes"] == [
        {"name": "volume", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "libguestfs-tmp-dir", "emptyDir": {}},
        {"name": "guestfs", "emptyDir": {}},
    ]
    [container] = spec["containers"]
    assert container["command"] == ["/entrypoint.sh"]
    assert (container["stdin"], container["tty"], container["workingDir"]) == (True, True, "/disk")
    assert container["resources"] == {"limits": {"devices.kubevirt.io/kvm": "1"}}
    assert container["volumeMounts"][-1] == {"name": "volume", "mountPath": "/disk"}
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {
        "LIBGUESTFS_BACKEND": "direct",
        "LIBGUESTFS_PATH": "/usr/local/lib/guestfs/appliance",
        "LIBGUESTFS_TMPDIR": "/tmp/guestfs",
        "HOME": "/home/guestfs",
    }
    assert api.requests[-1][:2] == ("DELETE", _POD)


@pytest.mark.feature("CTL-60", "CTL-62", "CTL-63", "CTL-64")
def test_image_user_and_kvm_may_be_chosen(api: FakeServer) -> None:
    _cluster(api, volumeMode="Block")
    line = "c --image own:1 --kvm=false --pull-policy Always --uid 107 --gid 108 --fsGroup 109"
    assert _start(api, *line.split())[0] == 0
    spec = _made(api)["spec"]
    [container] = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("own:1", "Always")
    assert "resources" not in container
    assert container["volumeDevices"] == [{"name": "volume", "devicePath": "/dev/vda"}]
    chosen = {name: spec["securityContext"][name] for name in ("runAsUser", "runAsGroup", "fsGroup")}
    assert chosen == {"runAsUser": 107, "runAsGroup": 108, "fsGroup": 109}


@pytest.mark.feature("CTL-59")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "accepts 1 arg(s), received 0"),
        ("a b", "accepts 1 arg(s), received 2"),
        ("gone", "The PVC gone doesn't exist"),
        ("c", "PVC c is used by another pod"),
        ("c --pull-policy Often", "Invalid pull policy: Often"),
        ("c --root --uid 1", "cannot set uid if root is true"),
        ("c --gid 1", "gid requires the uid to be set"),
        ("c --uid x", 'strconv.ParseInt: parsing "x": invalid syntax'),
    ],
)
def test_a_claim_that_cannot_be_opened_is_told(
    api: FakeServer, virtctl: Virtctl, line: str, said: str
) -> None:
    _cluster(api)
    used = {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}
    api.answers["GET", f"{_CORE}/pods"] = (200, {"metadata": {}, "items": [used]})
    api.refuse("GET", f"{_CORE}/persistentvolumeclaims/gone", 404, "not found")
    api.answers["GET", f"{_CORE}/persistentvolumeclaims/gone"][1]["reason"] = "NotFound"
    result = virtctl("guestfs", *line.split())
    assert (result.code, result.err) == (1, f"{said}\n")
    assert {method for method, _, _ in api.requests} <= {"GET"}


def test_a_pod_that_ends_is_removed(api: FakeServer, virtctl: Virtctl) -> None:
    _cluster(api)
    api.answers["GET", _POD] = (200, {"status": {"phase": "Failed"}})
    result = virtctl("guestfs", "c")
    assert (result.code, result.err) == (1, "Pod is not in running state but got Failed\n")
    assert api.requests[-1][:2] == ("DELETE", _POD)


def test_what_keeps_the_pod_from_starting_is_said(api: FakeServer) -> None:
    _cluster(api)
    why = "0/1 nodes are available: 1 Insufficient devices.kubevirt.io/kvm."
    condition = {"type": "PodScheduled", "status": "False", "message": why}
    pending = (200, {"status": {"phase": "Pending", "conditions": [condition]}})
    api.earlier["GET", _POD] = [pending, pending]
    code, _, errors = _start(api, "c")
    assert code == 0
    assert errors.count(why) == 1


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        ({"reason": "ImagePullBackOff", "message": "Back-off pulling image"}, "Back-off pulling image"),
        ({"reason": "ErrImageNeverPull"}, "ErrImageNeverPull"),
        ({"reason": "ContainerCreating"}, ""),
    ],
)
def test_an_image_that_cannot_be_had_keeps_a_pod_from_starting(waiting: dict[str, str], said: str) -> None:
    status = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    assert obstacle({**status, "containerStatuses": [{"state": {"waiting": waiting}}]}) == said
