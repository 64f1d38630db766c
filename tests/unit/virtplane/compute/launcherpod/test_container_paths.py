"""Folders of the launcher's container that the guest gets (volumes of the kind ``containerPath``)."""

from __future__ import annotations

import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import (
    IMAGES,
    compute,
    instance,
    rendered,
    settings,
    volume,
)

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.launcherpod.containerpaths import added_servers, missing_servers
from virtplane.compute.launcherpod.inputs import RenderInputs

_TOKEN: JsonObject = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def _vmi(path: str = "/var/run/cloud/token") -> JsonObject:
    devices = {"filesystems": [{"name": "cloud", "virtiofs": {}}]}
    shared = {"name": "cloud", "containerPath": {"path": path, "readOnly": True}}
    return instance(domain={"devices": devices}, volumes=[shared])


def _added(pod: JsonObject, vmi: JsonObject) -> list[JsonObject]:
    return added_servers(RenderInputs(decode(VirtualMachineInstance, vmi), settings(), IMAGES), pod)


def _pod(vmi: JsonObject, mount: JsonObject, source: JsonObject) -> JsonObject:
    """The launcher's pod, into which somebody else's webhook has mounted a volume."""
    pod = rendered(vmi)
    pod["spec"]["volumes"].append({"name": "injected", **source})
    compute(pod)["volumeMounts"].append({"name": "injected", **mount})
    return pod


def test_the_launcher_is_rendered_without_a_server_for_them_but_with_the_folder_of_its_socket() -> None:
    pod = rendered(_vmi())
    assert [each["name"] for each in pod["spec"]["containers"]] == ["compute"]
    assert volume(pod, "virtiofs-containers") == {"name": "virtiofs-containers", "emptyDir": {}}
    assert missing_servers(decode(VirtualMachineInstance, _vmi()), pod) == ["cloud"]


def test_a_folder_that_somebody_mounts_is_served_read_only_by_a_container_of_the_pods_user() -> None:
    vmi = _vmi()
    pod = _pod(vmi, {"mountPath": "/var/run/cloud"}, _TOKEN)
    (server,) = _added(pod, vmi)
    assert server["name"] == "virtiofs-cloud"
    assert server["image"] == IMAGES.launcher
    assert server["args"] == [
        "--socket-path=/var/run/kubevirt/virtiofs-containers/cloud.sock",
        "--shared-dir=/virtiofs-data/cloud",
        "--sandbox=none",
        "--cache=auto",
        "--migration-on-error=guest-error",
        "--migration-mode=find-paths",
        "--translate-uid=host:107:0:1",
    ]
    assert server["volumeMounts"][1] == {
        "name": "injected",
        "mountPath": "/virtiofs-data/cloud",
        "readOnly": True,
        "subPath": "token",
    }
    assert server["securityContext"]["runAsUser"] == 107
    assert server["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    pod["spec"]["containers"].append(server)
    assert _added(pod, vmi) == [], "asked again, nothing is missing"


@pytest.mark.parametrize(
    ("path", "mount", "below"),
    [
        ("/a", {"mountPath": "/a"}, None),
        ("/a/", {"mountPath": "/a"}, None),
        ("/a", {"mountPath": "/a/"}, None),
        ("/a/b/c", {"mountPath": "/a"}, "b/c"),
        ("/a/b", {"mountPath": "/a", "subPath": "x"}, "x/b"),
    ],
)
def test_the_part_of_a_volume_is_that_of_the_path(path: str, mount: JsonObject, below: str | None) -> None:
    (server,) = _added(_pod(_vmi(path), mount, {"configMap": {"name": "c"}}), _vmi(path))
    assert server["volumeMounts"][1].get("subPath") == below
    assert not any(word.startswith("--translate-uid") for word in server["args"])


def test_of_two_mounts_the_deeper_one_is_shared() -> None:
    vmi = _vmi("/a/b/c")
    pod = _pod(vmi, {"mountPath": "/a"}, {"secret": {"secretName": "s"}})
    pod["spec"]["volumes"].append({"name": "deeper", "emptyDir": {}})
    compute(pod)["volumeMounts"].append({"name": "deeper", "mountPath": "/a/b"})
    (server,) = _added(pod, vmi)
    assert server["volumeMounts"][1]["name"] == "deeper"


@pytest.mark.parametrize(
    ("mount", "source"),
    [
        pytest.param("/elsewhere", {"configMap": {"name": "c"}}, id="nothing is there"),
        pytest.param("/var/run/clou", {"configMap": {"name": "c"}}, id="the name only begins so"),
        pytest.param("/var/run/cloud", {"hostPath": {"path": "/"}}, id="a folder of the node"),
        pytest.param("/var/run/cloud", {"persistentVolumeClaim": {"claimName": "c"}}, id="a claim"),
    ],
)
def test_other_folders_are_not_served(mount: str, source: JsonObject) -> None:
    assert _added(_pod(_vmi(), {"mountPath": mount}, source), _vmi()) == []


def test_pods_without_the_launchers_container_or_with_odd_parts_get_nothing() -> None:
    odd: list[JsonObject] = [{}, {"containers": []}, {"containers": [{"name": "compute"}]}]
    for spec in odd:
        assert _added({"spec": spec}, _vmi()) == []
