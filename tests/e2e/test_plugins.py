"""A plugin changes a guest's domain by CEL and by a sidecar, and hears of the guest's life."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.clusters import KUBEVIRT, Cluster, Machine, manifest
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up
from tests.support.plugin_service import domain_service, node_service

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(180)]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_PLUGINS = "/apis/plugin.kubevirt.io/v1alpha1/plugins"
_NAME = "e2e"
_WATCHDOG = (
    'Domain{Devices: DomainDeviceList{Watchdogs: [DomainWatchdog{Model: "i6300esb", Action: "none"}]}}'
)


@pytest.fixture(scope="module")
def plugin(cluster: Cluster) -> Iterator[str]:
    """A plugin that wants everything of the machine ``plugged``."""
    gates: dict[str, list[str] | None] = {"featureGates": ["Plugins"]}
    change = {"spec": {"configuration": {"developerConfiguration": gates}}}
    cluster.request("PATCH", _INSTALLATION, change)
    spec = {
        "condition": 'vmi.Name == "plugged"',
        "domainHooks": [
            {"cel": {"expression": _WATCHDOG}, "condition": "!has(domainSpec.Devices.Watchdogs)"},
            {"sidecar": {"socketPath": f"/var/run/kubevirt-plugin/{_NAME}/hook.sock"}},
        ],
        "nodeHooks": [
            {
                "socket": f"/var/run/kubevirt/plugins/{_NAME}.sock",
                "permittedHooks": ["PreVMStart", "PostVMStart", "PreVMStop", "PostVMStop"],
                "condition": 'vmi.metadata.name == "plugged"',
            }
        ],
    }
    made = {
        "apiVersion": "plugin.kubevirt.io/v1alpha1",
        "kind": "Plugin",
        "metadata": {"name": _NAME},
        "spec": spec,
    }
    wait_for("the gate is open", partial(cluster.request, "POST", _PLUGINS, made), 30)
    try:
        yield _NAME
    finally:
        cluster.request("DELETE", f"{_PLUGINS}/{_NAME}")
        gates["featureGates"] = None
        cluster.request("PATCH", _INSTALLATION, change)


def _pods_volume(machine: Machine, node: Path) -> Path | None:
    """The folder of the launcher's pod in which sidecars listen, once the node has made it."""
    uid = machine.pod()["metadata"]["uid"]
    found = node / f"var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/kubevirt-plugin-sockets"
    return found if found.is_dir() else None


def _renamed(request: Any) -> bytes:
    changed: bytes = request.domain.replace(b'"manufacturer">KubeVirt<', b'"manufacturer">Plugged<')
    return changed


def test_a_plugin_has_its_say_in_a_guest(cluster: Cluster, plugin: str) -> None:
    node = Path("/proc", str(cluster.component("virt-handler")), "root")
    heard: list[str] = []
    with node_service(
        node / f"run/kubevirt/plugins/{plugin}.sock", lambda told: heard.append(told.hookPoint)
    ):
        machine = cluster.create(manifest("plugged", grace=1))
        try:
            volume = wait_for("the pod has its volume", partial(_pods_volume, machine, node), 60)
            (volume / plugin).mkdir()
            folder = os.open(volume / plugin, os.O_PATH)
            try:
                # The address of a socket is short.
                with domain_service(Path(f"/proc/self/fd/{folder}/hook.sock"), _renamed):
                    machine.wait_running()
            finally:
                os.close(folder)
            words = " ".join(machine.command())
            assert "i6300esb" in words and "manufacturer=Plugged" in words
        finally:
            clean_up([machine])
    assert heard[0] == "PreVMStart"
    assert [point for point in heard if point != "PreVMStart"] == ["PostVMStart", "PreVMStop", "PostVMStop"]
