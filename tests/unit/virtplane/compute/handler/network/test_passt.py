"""What passt is started with, and what its pod must allow."""

from __future__ import annotations

import resource
from typing import Any, cast

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.network import passt
from virtplane.compute.handler.network.plan import PodInterface
from virtplane.compute.handler.network.setup import NetworkSetupError
from virtplane.compute.podlinks import wires

POD = PodInterface("0a:58:0a:09:00:05", 1400)


def instance(*ports: dict[str, Any], mesh: str = "", **interface: Any) -> VirtualMachineInstance:
    card = {"name": "default", "passtBinding": {}, "ports": list(ports), **interface}
    spec = {"domain": {"devices": {"interfaces": [card]}}, "networks": [{"name": "default", "pod": {}}]}
    annotations = {"sidecar.istio.io/inject": mesh} if mesh else {}
    metadata = {"name": "vm", "uid": "u-1", "annotations": annotations}
    return decode(VirtualMachineInstance, {"metadata": metadata, "spec": spec})


def forwarded(vmi: VirtualMachineInstance) -> passt.Forwarded:
    return passt.forwarded(vmi, vmi.spec.domain.devices.interfaces[0])


@pytest.mark.feature("NET-03")
def test_ports_that_are_listed_are_forwarded_or_all() -> None:
    assert forwarded(instance()) == passt.Forwarded("all", "all")
    listed = instance({"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "tcp"})
    assert forwarded(listed) == passt.Forwarded("80,53", "53")
    assert forwarded(instance({"port": 53, "protocol": "UDP"})) == passt.Forwarded("", "53")


@pytest.mark.feature("NET-36", "NET-37")
def test_a_service_mesh_keeps_its_ports() -> None:
    meshed = forwarded(instance(mesh="True"))
    assert meshed.tcp.startswith("~15000,~15001,") and meshed.tcp.endswith("~15090")
    assert meshed.udp == "" and meshed.is_everything
    assert forwarded(instance({"port": 80}, mesh="true")).tcp.endswith("~15090,80")
    assert forwarded(instance(mesh="false")).tcp == "all"


def test_passt_has_another_mac_than_its_guest() -> None:
    vmi = instance({"port": 80})
    (wire,) = wires(vmi)
    words = passt.arguments(wire, POD, forwarded(vmi))
    assert words[:2] == ["--interface", "eth0"]
    own = words[words.index("--mac-addr") + 1]
    assert own.startswith("02:") and own != passt.guest_mac(wire.interface, POD) == POD.mac
    assert "--no-map-gw" in words and words[-2:] == ["--tcp-ports", "80"]
    named = instance(macAddress="0A-00-00-00-00-01").spec.domain.devices.interfaces[0]
    assert passt.guest_mac(named, POD) == "0a:00:00:00:00:01"


class _Launcher:
    pid = 4711
    is_alive = True


def _limited(
    monkeypatch: pytest.MonkeyPatch, hard: int, *, is_refused: bool = False
) -> list[tuple[int, int]]:
    """The limits that are set for a launcher that may open `hard` files."""
    wanted: list[tuple[int, int]] = []

    def prlimit(_pid: int, _kind: int, limits: tuple[int, int] | None = None) -> tuple[int, int]:
        if limits is not None:
            if is_refused:
                raise PermissionError("not permitted to raise maximum limit")
            wanted.append(limits)
        return 1024, hard

    monkeypatch.setattr(resource, "prlimit", prlimit)
    return wanted


def test_a_limit_of_open_files_is_raised_where_every_port_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, everything = cast("Process", _Launcher()), passt.Forwarded("all", "all")
    wanted = _limited(monkeypatch, 4096)
    passt.allow_files(launcher, everything, "default")
    passt.allow_files(launcher, passt.Forwarded("80", ""), "default")
    assert wanted == [(1024, passt._ALL_PORTS_FILES)]
    for enough in (1 << 20, resource.RLIM_INFINITY):
        wanted = _limited(monkeypatch, enough)
        passt.allow_files(launcher, everything, "default")
        assert wanted == []


def test_a_node_that_cannot_raise_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    _limited(monkeypatch, 20000, is_refused=True)
    with pytest.raises(NetworkSetupError, match=r"may open 20000\. List the interface's ports, or raise"):
        passt.allow_files(cast("Process", _Launcher()), passt.Forwarded("all", "all"), "default")


def test_a_node_that_may_not_look_at_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def prlimit(_pid: int, _kind: int, _limits: tuple[int, int] | None = None) -> tuple[int, int]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "prlimit", prlimit)
    with pytest.raises(NetworkSetupError, match=r"CAP_SYS_RESOURCE.*List the interface's ports"):
        passt.allow_files(cast("Process", _Launcher()), passt.Forwarded("all", "all"), "default")
