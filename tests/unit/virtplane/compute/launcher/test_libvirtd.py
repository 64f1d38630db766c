"""libvirt's daemon in the launcher."""

from __future__ import annotations

import pytest

from virtplane.compute.launcher.libvirtd import log_level

_VERBOSITY = "VIRT_LAUNCHER_LOG_VERBOSITY"


@pytest.mark.parametrize(
    ("environment", "level"),
    [
        ({}, 3),
        ({_VERBOSITY: "2"}, 3),
        ({_VERBOSITY: "3"}, 2),
        ({_VERBOSITY: "5"}, 1),
        ({_VERBOSITY: "much"}, 3),
        ({_VERBOSITY: "2", "LIBVIRT_DEBUG_LOGS": "1"}, 1),
    ],
)
def test_the_daemon_logs_as_much_as_the_installation_or_the_instance_wants(
    environment: dict[str, str], level: int
) -> None:
    assert log_level(environment) == level
