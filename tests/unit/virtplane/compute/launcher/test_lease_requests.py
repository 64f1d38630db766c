"""The launcher's loop and what a guest sends it on the DHCP port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from virtplane.compute.launcher import dhcp, dhcp6, main
from virtplane.compute.launcher.settings import parse

_LEASE: dict[str, Any] = {
    "mac": "02:01:02:03:04:05",
    "address": "10.0.2.2",
    "prefix": 24,
    "server": "10.0.2.1",
}
_DISCOVER = (
    b"\x01\x01\x06\x00"
    + bytes(24)
    + bytes.fromhex("020102030405")
    + bytes(202)
    + b"\x63\x82\x53\x63\x35\x01\x01\xff"
)


class Wire:
    """A launcher that serves a lease on the loopback, and the guest's end."""

    def __init__(self, folder: Path) -> None:
        options = ["--name", "vm", "--uid", "u", "--namespace", "ns", "--kubevirt-share-dir", str(folder)]
        self.launcher = main.Launcher(
            parse([*options, "--private-dir", str(folder), "--runtime-dir", str(folder)])
        )
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.server.bind(("127.0.0.1", 0))
        self.guest = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.launcher._leases["eth0"] = (self.server, _LEASE)

    def send(self, packet: bytes) -> None:
        self.guest.sendto(packet, self.server.getsockname())
        self.launcher._on_lease_request("eth0")

    def close(self) -> None:
        self.launcher._control._listener.close()
        self.launcher._selector.close()
        self.server.close()
        self.guest.close()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    made = Wire(tmp_path)
    yield made
    made.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(packet=st.binary(max_size=4096) | st.binary(max_size=400).map(lambda tail: _DISCOVER[:240] + tail))
def test_no_datagram_changes_anything_in_a_launcher(wire: Wire, packet: bytes) -> None:
    wire.send(packet)
    assert wire.launcher._leases == {"eth0": (wire.server, _LEASE)}
    assert wire.launcher._exit_code is None
    assert wire.launcher._next_timeout() is None


def test_a_reply_that_cannot_be_sent_leaves_the_launcher_alone(
    wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    """This socket may not broadcast, as one whose link is down cannot."""
    wire.send(_DISCOVER)
    assert "a DHCP request on eth0 could not be answered: Permission denied" in capsys.readouterr().err
    assert wire.launcher._exit_code is None


def test_a_wakeup_without_a_datagram_leaves_the_launcher_alone(wire: Wire) -> None:
    wire.launcher._on_lease_request("eth0")
    assert wire.launcher._exit_code is None


def test_a_lease_ends_with_its_interface_and_can_come_again(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []

    def opened(_interface: str) -> socket.socket:
        made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        made[-1].bind(("127.0.0.1", 0))
        return made[-1]

    monkeypatch.setattr(dhcp, "open_socket", opened)
    monkeypatch.setattr(dhcp6, "open_socket", opened)
    served = {"command": "dhcp", "interface": "k6t-x", "lease": {**_LEASE, "ipv6": "fd00::2"}}
    for count in (2, 4):
        wire.launcher._handle(served)
        wire.launcher._handle(served)
        assert len(made) == count and made[-1].fileno() >= 0
        for _ in range(2):
            answer = wire.launcher._handle({"command": "end-dhcp", "interface": "k6t-x"})
            assert answer["done"] == "end-dhcp"
        assert all(each.fileno() == -1 for each in made)
        assert "k6t-x" not in wire.launcher._leases
    assert "eth0" in wire.launcher._leases
