"""What the webhook of launcher pods adds."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import Response, review

_OWNER = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "u"}


class _Instances:
    """A cluster with one instance; `document` may be anything, or an error."""

    def __init__(self, document: Any) -> None:
        self._document = document

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        if isinstance(self._document, Exception):
            raise self._document
        found: JsonObject | None = self._document
        return (
            found if (resource.plural, name, namespace) == ("virtualmachineinstances", "vm", "ns") else None
        )

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return []


def _vmi() -> JsonObject:
    devices = {"filesystems": [{"name": "cloud", "virtiofs": {}}]}
    shared = {"name": "cloud", "containerPath": {"path": "/cloud", "readOnly": True}}
    return {"metadata": {"name": "vm"}, "spec": {"domain": {"devices": devices}, "volumes": [shared]}}


def _pod(owner: JsonObject) -> JsonObject:
    mount = {"name": "token", "mountPath": "/cloud"}
    return {
        "metadata": {"name": "virt-launcher-vm-x", "ownerReferences": [owner]},
        "spec": {
            "containers": [{"name": "compute", "image": "pods:own", "volumeMounts": [mount]}],
            "volumes": [{"name": "token", "secret": {"secretName": "s"}}],
        },
    }


async def _ask(pod: JsonObject, found: Any, resource: str = "pods") -> Response:
    request = {
        "operation": "CREATE",
        "namespace": "ns",
        "resource": {"group": "", "version": "v1", "resource": resource},
        "object": pod,
    }
    settings = ClusterConfig({"status": {"phase": "Deployed"}, "spec": {}})
    return await review("/virt-launcher-pod-mutate", request, settings, _Instances(found))


async def test_a_server_of_the_pods_own_image_is_added_for_a_shared_folder() -> None:
    answer = await _ask(_pod(_OWNER), _vmi())
    (patch,) = answer.patches
    assert (patch["op"], patch["path"]) == ("add", "/spec/containers/-")
    assert (patch["value"]["name"], patch["value"]["image"]) == ("virtiofs-cloud", "pods:own")


@pytest.mark.parametrize(
    ("owner", "found"),
    [
        pytest.param({**_OWNER, "kind": "ReplicaSet"}, _vmi(), id="no instance's pod"),
        pytest.param({**_OWNER, "name": "other"}, _vmi(), id="an instance that is not there"),
        pytest.param(_OWNER, {**_vmi(), "spec": "none"}, id="an instance that cannot be read"),
        pytest.param(_OWNER, errors.StatusError(503, "ServiceUnavailable", "busy"), id="an API that fails"),
    ],
)
async def test_other_pods_pass_unchanged(owner: JsonObject, found: Any) -> None:
    answer = await _ask(_pod(owner), found)
    assert answer.allowed
    assert answer.patches == ()


async def test_other_kinds_pass_unchanged() -> None:
    assert (await _ask(_pod(_OWNER), _vmi(), "services")).patches == ()
