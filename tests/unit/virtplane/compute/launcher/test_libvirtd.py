"""libvirt's daemon in the launcher."""

from __future__ import annotations

import pytest

from virtplane.compute.launcher.libvirtd import log_filters

_VERBOSITY = "VIRT_LAUNCHER_LOG_VERBOSITY"
_DEBUG = "3:access 3:event 3:node_device 3:remote 3:rpc 3:util.dbus 3:util.json 3:util.object 1:*"


@pytest.mark.feature("SUP-11")
@pytest.mark.parametrize(
    ("environment", "filters"),
    [
        ({}, "3:*"),
        ({_VERBOSITY: "2"}, "3:*"),
        ({_VERBOSITY: "3"}, "2:*"),
        ({_VERBOSITY: "5"}, _DEBUG),
        ({_VERBOSITY: "much"}, "3:*"),
        ({_VERBOSITY: "2", "LIBVIRT_DEBUG_LOGS": "1"}, _DEBUG),
    ],
)
def test_the_daemon_logs_as_much_as_the_installation_or_the_instance_wants(
    environment: dict[str, str], filters: str
) -> None:
    assert log_filters(environment) == filters


def test_an_instance_may_choose_what_the_daemon_logs() -> None:
    assert log_filters({"LIBVIRT_DEBUG_LOGS": "1"}, " 1:qemu.qemu_monitor  3:* ") == "1:qemu.qemu_monitor 3:*"


@pytest.mark.parametrize("asked", ["qemu", "5:qemu", "1:", '1:qemu"\nmax_clients=1', "1:qemu\\", "1:a 1:b'"])
def test_filters_that_the_daemon_would_refuse_are_left_out(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert log_filters({}, asked) == "3:*"
    assert "are left out" in capsys.readouterr().err
