"""What the demo guest does with a DHCP lease: its own script, run by busybox in a network of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.namespaces import Namespace, connect, namespaces

from virtplane.guest import initramfs

_SCRIPT = Path(initramfs.__file__).parent / "rootfs/etc/udhcpc.script"
_LEASE = ("interface=eth0", "ip=10.0.2.2", "mask=24", "router=10.0.2.1", "mtu=1400")

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("busybox") is None, reason="needs root and busybox"),
]


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Namespace]:
    """A network with a card; the script is one that writes the name servers below `tmp_path`."""
    script = _SCRIPT.read_text().replace("/etc/resolv.conf", str(tmp_path / "resolv.conf"))
    (tmp_path / "script").write_text(script)
    with namespaces("pod", "guest") as (pod, made):
        connect(pod, "guest", made, "eth0")
        yield made


def _obey(guest: Namespace, script: Path, event: str) -> None:
    guest.run("env", *_LEASE, "busybox", "sh", str(script), event)


@pytest.mark.parametrize("event", ["bound", "renew"])
def test_a_lease_gives_address_mtu_and_route(guest: Namespace, tmp_path: Path, event: str) -> None:
    guest.run("ip", "addr", "add", "10.9.9.9/24", "dev", "eth0")
    _obey(guest, tmp_path / "script", event)
    shown = guest.run("ip", "-4", "addr", "show", "eth0")
    assert "inet 10.0.2.2/24" in shown and "10.9.9.9" not in shown and "mtu 1400" in shown
    assert "via 10.0.2.1 dev eth0" in guest.run("ip", "route", "show", "default")


@pytest.mark.feature("NET-05")
@pytest.mark.parametrize("event", ["deconfig", "bound", "renew"])
def test_addresses_of_ipv6_are_no_part_of_the_lease(guest: Namespace, tmp_path: Path, event: str) -> None:
    guest.run("ip", "addr", "add", "fd10:0:2::2/120", "dev", "eth0", "nodad")
    guest.run("ip", "route", "add", "default", "via", "fd10:0:2::1")
    _obey(guest, tmp_path / "script", event)
    shown = guest.run("ip", "-6", "addr", "show", "eth0")
    assert "inet6 fd10:0:2::2/120" in shown and "inet6 fe80::" in shown
    assert "via fd10:0:2::1" in guest.run("ip", "-6", "route", "show", "default")
