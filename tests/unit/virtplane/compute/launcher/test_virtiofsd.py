"""The server of shared folders where the distribution's needs privileges."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from virtplane.compute.launcher import virtiofsd

_SOURCE = str(Path(virtiofsd.__file__).parents[3])


def test_options_of_newer_servers_become_those_of_qemus() -> None:
    found = {"socket-path": "/s.sock", "shared-dir": "/d", "sandbox": "none", "cache": "auto"}
    assert virtiofsd.server_command(found, 7) == [
        "/usr/lib/qemu/virtiofsd",
        "-f",
        "--fd=7",
        "--rlimit-nofile=0",
        "-o",
        "source=/d,sandbox=chroot,cache=auto",
    ]


def test_a_missing_option_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["virtiofsd", "--socket-path=/s"])
    assert virtiofsd.main() == 2
    assert "--shared-dir is missing" in capsys.readouterr().err


def test_the_socket_of_an_ended_server_is_taken_over_by_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "files.sock"
    for _ in range(2):
        listening = virtiofsd.listen(str(path))
        with socket.socket(socket.AF_UNIX) as guest:
            guest.connect(str(path))
        assert (os.get_inheritable(listening), stat.S_IMODE(path.stat().st_mode)) == (True, 0o700)
        os.close(listening)


_PROBE = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from virtplane.compute.launcher import virtiofsd
if os.geteuid() == 0:
    os.setgroups([107]);  os.setresgid(107, 107, 107); os.setresuid(107, 107, 107)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # As after exec: its files in /proc are its own.
try:
    virtiofsd.become_root_of_own_namespace()
except PermissionError:
    sys.exit(77)
os.setgroups([])
print(os.getuid(), os.getgid(), open("/proc/self/uid_map").read().split()[0::2])
os.chroot("/proc")
try:
    os.chown("/1", 1, 1)
except OSError as error:
    print(type(error).__name__)
"""


def test_the_user_becomes_root_of_itself_and_of_nobody_else(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", _PROBE, _SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    if done.returncode == 77:
        pytest.skip("this kernel gives no user namespaces to users without privileges")
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first == "0 0 ['0', '1']"
    assert second in {"OSError", "PermissionError"}
    assert os.getuid() == os.geteuid()


def test_the_newer_server_runs_where_the_distribution_has_it(tmp_path: Path) -> None:
    newer, written = tmp_path / "virtiofsd", tmp_path / "written"
    newer.write_text(f'#!/bin/sh\necho "$@" > {written}\n')
    newer.chmod(0o755)
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from virtplane.compute.launcher import virtiofsd\n"
        "virtiofsd._NEWER_SERVER = sys.argv.pop(1)\n"
        "sys.exit(virtiofsd.main())\n"
    )
    arguments = ["--socket-path=/s", "--shared-dir=/d", "--sandbox=none"]
    subprocess.run([sys.executable, "-c", code, _SOURCE, str(newer), *arguments], check=True)
    assert written.read_text().split() == arguments
