"""Cards of a running domain of libvirt, whose pod has links in a network namespace; its guest is none."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.launcher_daemon import USER, Daemon, launched

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import document
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.interfaces import plugged_interfaces
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.network import links
from virtplane.compute.handler.network.keeper import GuestNetworks
from virtplane.compute.handler.threads import Steps

pytestmark = [pytest.mark.host, pytest.mark.timeout(60)]

NAME, BLUE, TAP = "ns_vm", "pod16477688c0e", "tap16477688c0e"


def instance(state: str | None = None) -> VirtualMachineInstance:
    """A guest on the pod network, and on `blue` unless its state is None."""
    interfaces: list[Any] = [{"name": "default", "masquerade": {}, "acpiIndex": 3}]
    networks: list[Any] = [{"name": "default", "pod": {}}]
    if state is not None:
        interfaces.append({"name": "blue", "bridge": {}, "state": state, "macAddress": "02:11:22:33:44:55"})
        networks.append({"name": "blue", "multus": {"networkName": "blue"}})
    devices = {
        "interfaces": interfaces,
        "networkInterfaceMultiqueue": True,
        "autoattachGraphicsDevice": False,
        "autoattachSerialConsole": False,
    }
    domain = {"memory": {"guest": "32Mi"}, "cpu": {"cores": 2}, "devices": devices}
    return decode(
        VirtualMachineInstance,
        {
            "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
            "spec": {"domain": domain, "networks": networks},
        },
    )


@pytest.fixture
async def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Daemon]:
    """A launcher in a network namespace with the interfaces of a pod."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    monkeypatch.setattr(links, "QEMU_USER", USER)
    tun = tmp_path / "tun"
    os.mknod(tun, stat.S_IFCHR | 0o666, os.makedev(10, 200))
    tun.chmod(0o666)  # As it is in a pod, whose user may open it.
    script = f'mount --bind {tun} /dev/net/tun && exec "$@"'
    async with launched("unshare", "--net", "--mount", "sh", "-c", script, "sh") as started:
        batch = f"""link set lo up
link add eth0 mtu 1400 type veth peer name node0
link add {BLUE} mtu 1300 type veth peer name node1
addr add 10.9.0.5/24 dev eth0
link set eth0 up
link set node0 up
link set {BLUE} up
link set node1 up
"""
        inside(started, "ip", "-batch", "-", text=batch)
        yield started


def inside(daemon: Daemon, *command: str, text: str = "") -> str:
    """The output of a command in the launcher's network namespace."""
    namespace = daemon.link.process.network()
    try:
        entered = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace}", *command]
        return subprocess.run(entered, input=text, capture_output=True, text=True, check=True).stdout
    finally:
        os.close(namespace)


@pytest.mark.feature("VML-38", "NET-14")
async def test_libvirt_plugs_switches_and_asks_back_cards_of_a_running_domain(daemon: Daemon) -> None:
    networks = GuestNetworks(NAME, "ns/vm", Steps("ns/vm", lambda: None))
    connection = await Hypervisor.open(daemon.socket, lambda: None)
    try:
        prepared = await networks.prepare(instance(), daemon.link)
        xml = document.render(instance(), DomainContext(emulation=True, interfaces=prepared))
        xml = xml.replace("/var/run/kubevirt-private/u", str(daemon.folder / "run"))
        await connection.start(xml, paused=True)
        await networks.recall(instance(), daemon.link, connection)
        for _ in range(2):
            await networks.follow(instance("up"), daemon.link, connection, emulation=True)
        found = plugged_interfaces(await connection.description(NAME))
        assert found["blue"].mac == networks.cards["blue"].mac == "02:11:22:33:44:55"
        assert networks.cards["blue"].queues == 2
        assert f"master k6t-{BLUE[3:]}" in inside(daemon, "ip", "-o", "link", "show", TAP)
        for state, is_up in (("down", False), ("up", True)):
            await networks.follow(instance(state), daemon.link, connection, emulation=True)
            assert plugged_interfaces(await connection.description(NAME))["blue"].is_up is is_up
        for _ in range(2):  # Nobody in this domain lets the card go, however often it is asked.
            await networks.follow(instance("absent"), daemon.link, connection, emulation=True)
        assert "blue" in networks.cards

        after = GuestNetworks(NAME, "ns/vm", Steps("ns/vm", lambda: None))
        await after.recall(instance("up"), daemon.link, connection)
        assert after.cards == networks.cards
        await connection.destroy(NAME)
    finally:
        await connection.close()
