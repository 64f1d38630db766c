"""What deschedulers and backup tools read on a launcher's pod follows the VM while its guest runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.controllers import running_controllers, until

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.launcherpod.inputs import Images

pytestmark = pytest.mark.looptime

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_EVICT = "descheduler.alpha.kubernetes.io/evict"
_SPARE = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
_SKIP = "kubevirt.io/skip-backup-hooks"
_HOOK = "pre.hook.backup.velero.io/command"
_IMAGE = "launcher:2"
_SPEC: JsonObject = {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}


def _metadata(name: str, **more: Any) -> JsonObject:
    return {"name": name, "namespace": "ns", "uid": name, **more}


def _owner(kind: str, name: str) -> list[JsonObject]:
    return [{"apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "uid": name, "controller": True}]


@pytest.fixture
def api() -> MemoryApi:
    """A VM ``vm`` whose guest runs in the pod ``pod``."""
    server = MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
    kubevirt = {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "status": {"phase": "Deployed"}}
    server.put(kinds.KUBEVIRTS, kubevirt)
    template = {"metadata": {"annotations": {_EVICT: "true", "mine": "at start"}}, "spec": _SPEC}
    machine = {"metadata": _metadata("vm"), "spec": {"runStrategy": "Always", "template": template}}
    server.put(kinds.VIRTUAL_MACHINES, machine)
    instance = {
        "metadata": _metadata(
            "vm",
            ownerReferences=_owner("VirtualMachine", "vm"),
            annotations={_EVICT: "true", "mine": "at start"},
        ),
        "spec": _SPEC,
        "status": {
            "phase": "Running",
            "nodeName": "node",
            "activePods": {"pod": "node"},
            "launcherContainerImageVersion": _IMAGE,
        },
    }
    server.put(kinds.VIRTUAL_MACHINE_INSTANCES, instance)
    pod = {
        "metadata": _metadata(
            "pod",
            labels={"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "vm"},
            annotations={"kubevirt.io/domain": "vm", _EVICT: "true", "of others": "kept"},
            ownerReferences=_owner("VirtualMachineInstance", "vm"),
        ),
        "spec": {"nodeName": "node", "containers": [{"name": "compute", "image": _IMAGE}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "compute", "ready": True, "state": {"running": {}}}],
        },
    }
    server.put(resources.PODS, pod)
    return server


def _on_pod(api: MemoryApi) -> dict[str, str]:
    return meta.annotations(api.get(resources.PODS, "pod", "ns") or {})


def _change(api: MemoryApi, own: dict[str, str], template: dict[str, str]) -> None:
    machine = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
    machine["metadata"]["annotations"] = own
    machine["spec"]["template"]["metadata"] = {"annotations": template}
    api.put(kinds.VIRTUAL_MACHINES, machine)


async def test_a_running_guest_can_be_spared_or_offered_by_its_template(api: MemoryApi) -> None:
    async with running_controllers(api, Images(_IMAGE, "sidecar:2")):
        _change(api, {}, {_SPARE: "", "mine": "changed"})
        await until(lambda: _SPARE in _on_pod(api))
        assert _EVICT not in _on_pod(api)
        assert _on_pod(api)["of others"] == "kept"
        instance = api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns") or {}
        assert meta.annotations(instance)["mine"] == "at start"


async def test_backups_stop_and_begin_again_to_freeze_a_running_guest(api: MemoryApi) -> None:
    async with running_controllers(api, Images(_IMAGE, "sidecar:2")):
        await until(lambda: _HOOK in _on_pod(api))
        _change(api, {_SKIP: "true"}, {})
        await until(lambda: _HOOK not in _on_pod(api))
        _change(api, {}, {})
        await until(lambda: _HOOK in _on_pod(api))
        assert _SKIP not in _on_pod(api)


_PCI = {"kubevirt.io/pci-topology-version": "v2", "kubevirt.io/pci-interface-slot-count": "9"}


def _place(api: MemoryApi, annotations: dict[str, str]) -> None:
    instance = api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns") or {}
    instance["metadata"]["annotations"] = annotations
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, instance)


def _on_template(api: MemoryApi) -> dict[str, str]:
    machine = api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
    return meta.annotations(machine["spec"]["template"])


async def test_a_template_without_a_pci_topology_gets_that_of_its_guest(api: MemoryApi) -> None:
    _place(api, {**_PCI, "of others": "stays"})
    before = _on_template(api)
    async with running_controllers(api, Images(_IMAGE, "sidecar:2")):
        await until(lambda: _on_template(api) == before | _PCI)


async def test_a_template_keeps_the_pci_topology_that_it_names(api: MemoryApi) -> None:
    _place(api, _PCI)
    named = {"kubevirt.io/pci-topology-version": "v3"}
    _change(api, {}, named)
    async with running_controllers(api, Images(_IMAGE, "sidecar:2")):
        await until(lambda: _HOOK in _on_pod(api))
        _change(api, {_SKIP: "true"}, named)
        await until(lambda: _HOOK not in _on_pod(api))
        assert _on_template(api) == named
