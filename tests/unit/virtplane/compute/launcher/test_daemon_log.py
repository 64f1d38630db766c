"""The log of libvirt's daemon as lines of JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.launcher_daemon import launched

from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.launcher.daemonlog import DaemonLog, entry

DOMAIN = """
<domain type='qemu'><name>ns_vm</name><memory unit='MiB'>16</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>
"""


def test_the_parts_of_a_line_are_fields() -> None:
    line = "2026-11-26 15:45:37.485+0000: 13693: warning : virNew:194 : a driver : it is old"
    assert entry(line) == {
        "component": "virt-launcher",
        "subcomponent": "libvirt",
        "level": "warning",
        "thread": "13693",
        "timestamp": "2026-11-26 15:45:37.485+0000",
        "pos": "virNew:194",
        "msg": "a driver : it is old",
    }
    told = entry("2026-11-26 15:45:37.485+0000: 13693: info : hostname: vm")
    assert (told["level"], told["msg"]) == ("info", "hostname: vm")


@pytest.mark.parametrize("line", ["  <memory>16</memory>", "a: 1: loud : b : c", "a: b: error : c"])
def test_other_lines_are_messages_as_they_are(line: str) -> None:
    assert entry(line)["msg"] == line


def test_lines_are_logged_when_they_are_whole_or_too_long(capfd: pytest.CaptureFixture[str]) -> None:
    log = DaemonLog()
    log.collect()
    for data in (b"one\ntw", b"o\n", b"x" * 60_000, b"x" * 60_000):
        os.write(log.writer, data)
        log.collect()
    lines = capfd.readouterr().err.splitlines()
    assert '"subcomponent":"libvirt"' in lines[0], "without spaces, as the other components write"
    messages = [json.loads(line)["msg"] for line in lines]
    assert messages[:2] == ["one", "two"]
    assert 64_000 < len(messages[2]) <= 128_000


@pytest.mark.host
@pytest.mark.timeout(60)
async def test_debugging_shows_what_libvirt_says_to_qemu(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    file = tmp_path / "log"
    # The shell redirects; what comes after it is the command.
    shell = ("sh", "-c", f'exec "$@" 2>{file}', "sh")
    async with launched(*shell, "env", "LIBVIRT_DEBUG_LOGS=1") as daemon:
        connection = await Hypervisor.open(daemon.socket, lambda: None)
        await connection.start(DOMAIN, paused=True)
        await connection.destroy("ns_vm")
        await connection.close()
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]
    said = [line for line in lines if "QEMU_MONITOR_SEND_MSG" in line["msg"]]
    assert {line["subcomponent"] for line in said} == {"libvirt"}
    assert any("qmp_capabilities" in line["msg"] for line in said)
