"""passt beside a guest: started once, waiting for QEMU, and started again when it fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virtplane.compute.launcher import passt, virtpasst
from virtplane.compute.launcher.passt import PasstServer
from virtplane.compute.launcher.settings import parse

_SOURCE = str(Path(passt.__file__).parents[3])


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The command lines that are started."""
    commands: list[list[str]] = []

    def spawn(_program: str, command: list[str], _environment: Any) -> int:
        commands.append(list(command))
        return 4710 + len(commands)

    monkeypatch.setattr(os, "posix_spawn", spawn)
    monkeypatch.setattr(passt, "program", lambda name, *_: f"/bin/{name}")
    yield commands


@pytest.fixture
def server(tmp_path: Path) -> PasstServer:
    options = ["--name", "vm", "--uid", "u", "--namespace", "ns", "--kubevirt-share-dir", str(tmp_path)]
    return PasstServer(parse(options))


def test_passt_is_started_once_and_again_when_it_has_ended(
    server: PasstServer, spawned: list[list[str]], tmp_path: Path
) -> None:
    for _ in range(2):
        server.serve("/p/virt-passt", ["--tcp-ports", "80"])
    command = ["/bin/virt-passt", "/p/virt-passt", "/bin/passt", "--tcp-ports", "80"]
    assert spawned == [[*command, "--log-file", f"{tmp_path}/passt.log"]]
    assert not server.reaped(4712) and server.restart_at is None
    assert server.reaped(4711) and server.restart_at is not None
    server.start()
    server.start()
    assert spawned == [spawned[0]] * 2 and server.restart_at is None


@pytest.mark.parametrize("bad", ["--all", [7], ["x" * 131072], ["x"] * 40, None])
def test_what_are_no_arguments_starts_nothing(
    server: PasstServer, spawned: list[list[str]], bad: Any
) -> None:
    with pytest.raises(ValueError, match="passt"):
        server.serve("/p/virt-passt", bad)
    assert spawned == []


def test_a_guest_may_have_thousands_of_ports(server: PasstServer, spawned: list[list[str]]) -> None:
    ports = ",".join(map(str, range(10000, 20000)))
    server.serve("/p/virt-passt", ["--tcp-ports", ports])
    assert ports in spawned[0]


def test_an_image_without_passt_is_said(server: PasstServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passt, "program", lambda *_: None)
    with pytest.raises(FileNotFoundError, match="passt is not installed"):
        server.serve("/p/virt-passt", [])


_UNCONFINED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from virtplane.compute.launcher import virtpasst
if sys.argv[2] == "refused":
    virtpasst.may_confine_itself = lambda: False
sys.argv = ["virt-passt", *sys.argv[3:]]
sys.exit(virtpasst.main())
"""
_STAND_IN = """
import ctypes, os, socket, sys
kernel = ctypes.CDLL(None)
answers = [kernel.unshare(0x10000000), kernel.umount2(b"/nowhere", 0), kernel.mount(b"", b"/x", b"", 0, 0)]
guest = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
guest.sendall(f"{answers} {sys.argv[1:-2]}".encode())
"""


@pytest.mark.parametrize("namespaces", ["allowed", "refused"])
def test_it_waits_for_qemu_and_confines_itself_where_it_may(tmp_path: Path, namespaces: str) -> None:
    wanted = ["--interface", "lo", "--mac-addr", "02:00:00:00:00:07"]
    path, stand_in = tmp_path / "cable", tmp_path / "passt"
    stand_in.write_text(f"#!{sys.executable}\n{_STAND_IN}")
    stand_in.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))  # Of a QEMU that has ended.
    command = [
        sys.executable,
        "-c",
        _UNCONFINED,
        _SOURCE,
        namespaces,
        str(path),
        str(stand_in),
        *wanted,
    ]
    with subprocess.Popen(command) as child, socket.socket(socket.AF_UNIX) as qemu:
        path.unlink()
        qemu.bind(str(path))
        qemu.listen(1)
        qemu.settimeout(30)
        connection, _ = qemu.accept()
        with connection:
            frame = connection.recv(4)
            asked = connection.recv(int.from_bytes(frame))
            said = connection.recv(4096).decode()
        assert child.wait(30) == 0
    assert said.endswith(f" {[*wanted, '--foreground', '--one-off']}")
    assert asked == virtpasst.arp_probe(bytes.fromhex("020000000007"), bytes((127, 0, 0, 1)))
    # Nothing was made, and passt goes on as if it were.
    assert said.startswith("[0, 0, 0]") is (namespaces == "refused")


def test_a_command_line_that_lacks_something_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["virt-passt", "/p/virt-passt"])
    assert virtpasst.main() == 2
    assert "passt's command line" in capsys.readouterr().err
