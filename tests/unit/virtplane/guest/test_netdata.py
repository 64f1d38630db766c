"""What the demo guest does with cloud-init's network data: its own script, run by busybox in a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.guest_root import make_guest_root
from tests.support.namespaces import Namespace, connect, namespaces

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("busybox") is None, reason="needs root and busybox"),
]

_DATA = """version: 2
ethernets:
  eth0:
    dhcp4: true
    match: {}
    addresses:
    - fd10:0:2::2/120
    - 192.0.2.5/24
    routes:
    - to: ::/0
      via: fd10:0:2::1
    - {to: 198.51.100.0/24, via: 192.0.2.1}
"""


@dataclass
class Guest:
    """A root and a network with the card eth0."""

    root: Path
    network: Namespace

    def obey(self, data: str) -> list[str]:
        """Run the guest's script; what it said on the console."""
        (self.root / "run/network-config").write_text(data)
        console = self.root / "dev/console"
        console.write_text("")
        # `ip netns exec` gives the script a mount namespace of its own, and the network's /sys.
        enter = f"mount --rbind /sys {self.root}/sys && exec chroot {self.root}"
        self.network.run("sh", "-c", f"PATH=$PATH:/bin; {enter} /etc/netdata /run/network-config")
        return [line.removeprefix("cloud-init: ") for line in console.read_text().splitlines()]

    def addresses(self) -> str:
        return self.network.run("ip", "addr", "show", "eth0")

    def default6(self) -> str:
        return self.network.run("ip", "-6", "route", "show", "default")


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    make_guest_root(tmp_path)
    with namespaces("pod", "guest") as (pod, made):
        connect(pod, "guest", made, "eth0")
        yield Guest(tmp_path, made)


@pytest.mark.feature("NET-05")
def test_a_card_gets_its_addresses_and_routes_of_both_families(guest: Guest) -> None:
    assert guest.obey(_DATA) == []
    assert "inet6 fd10:0:2::2/120" in guest.addresses() and "inet 192.0.2.5/24" in guest.addresses()
    assert "via fd10:0:2::1 dev eth0" in guest.default6()
    assert "198.51.100.0/24 via 192.0.2.1 dev eth0" in guest.network.run("ip", "route")


def test_netplans_own_form_gateways_and_cards_by_their_mac_are_understood(guest: Guest) -> None:
    mac = guest.network.run("cat", "/sys/class/net/eth0/address").strip().upper()
    said = guest.obey(
        f"network:\n  version: 2\n  ethernets:\n    first:\n      match:\n        macaddress: '{mac}'\n"
        "      addresses: [fd10:0:2::2/120]\n      gateway6: fd10:0:2::1\n"
    )
    assert said == []
    assert "inet6 fd10:0:2::2/120" in guest.addresses()
    assert "via fd10:0:2::1 dev eth0" in guest.default6()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("bonds:\n  b: x\n", "bonds: not obeyed"),
        ("ethernets:\n  eth7:\n    dhcp4: true\n", "ethernets.eth7: not obeyed, there is no such card"),
        ("ethernets:\n  eth0:\n    mtu: 1300\n", "ethernets.eth0.mtu: not obeyed"),
        ("ethernets:\n  eth0:\n    addresses: [x]\n", "ethernets.eth0.addresses.0: not obeyed"),
        ("ethernets:\n  eth0:\n    gateway4: 192.0.2.9\n", "ethernets.eth0.gateway4: not obeyed"),
    ],
)
def test_what_it_does_not_obey_it_tells(guest: Guest, data: str, told: str) -> None:
    assert guest.obey(f"version: 2\n{data}") == [told]


def test_data_of_version_1_is_not_obeyed(guest: Guest) -> None:
    assert guest.obey("version: 1\nconfig: disabled\n") == ["network data is not of version 2: not obeyed"]
