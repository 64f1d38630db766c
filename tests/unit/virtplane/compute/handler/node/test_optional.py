"""Device plugins that the installation's configuration turns on and off."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.node import optional, pluginset
from virtplane.compute.handler.node.deviceplugin import Device, Offer


def _config(*gates: str) -> ClusterConfig:
    developer = {"featureGates": list(gates)}
    return ClusterConfig(
        {
            "status": {"phase": "Deployed"},
            "spec": {"configuration": {"developerConfiguration": developer}},
        }
    )


def test_a_node_offers_sockets_where_gate_and_kernel_allow_them(tmp_path: Path) -> None:
    node = tmp_path / "vhost-vsock"
    assert optional.allowed(_config("VSOCK"), lambda: 3, node) == []
    node.touch()
    assert optional.allowed(_config(), lambda: 3, node) == []
    (offer,) = optional.allowed(_config("VSOCK"), lambda: 3, node)
    assert offer.resource == "devices.kubevirt.io/vhost-vsock"
    assert list(offer.units()) == ["vhost-vsock0", "vhost-vsock1", "vhost-vsock2"]
    (given,) = offer.allocation(["vhost-vsock1"])["devices"]
    assert given["host_path"] == str(node)


def test_launchers_get_the_folder_where_the_reservation_helper_listens(tmp_path: Path) -> None:
    assert optional.allowed(_config(), lambda: 1) == []
    (offer,) = optional.allowed(_config("PersistentReservation"), lambda: 1)
    assert offer.resource == "devices.kubevirt.io/pr-helper"
    (mount,) = offer.allocation(["pr-helper0"])["mounts"]
    assert mount["container_path"] == mount["host_path"] == "/var/run/kubevirt/daemons/pr"
    assert mount["read_only"]
    helper = optional.ReservationHelper(lambda: 2, tmp_path / "s")
    assert helper.units() == {"pr-helper0": False, "pr-helper1": False}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert helper.units() == {"pr-helper0": True, "pr-helper1": True}


async def test_plugins_follow_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []

    class Plugin:
        def __init__(self, offer: Offer, _folder: Path) -> None:
            self._name = offer.name

        async def run(self) -> None:
            running.append(self._name)
            try:
                await asyncio.Event().wait()
            finally:
                running.remove(self._name)

    monkeypatch.setattr(pluginset, "DevicePlugin", Plugin)
    wanted: list[Offer] = []
    plugins = optional.OptionalPlugins(tmp_path, lambda: wanted)
    for offers in ([Device("a", "/a")], [Device("a", "/a"), Device("b", "/b")], [Device("b", "/b")], []):
        wanted[:] = offers
        await plugins.look()
        await asyncio.sleep(0)
        assert running == [offer.name for offer in offers]
